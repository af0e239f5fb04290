#!/usr/bin/env python3
"""Builds all texts of the workbook as one site that needs neither network nor server.

Usage: scripts/book.py [FOLDER]
  FOLDER  where to write it (default: build/book, which is emptied first)

Pandoc turns each Markdown file into HTML. This script adds what is around it: the menu, links from page to
page, tooltips for words of the glossary, the index of the search. scripts/book/ has the rest.
"""
import html
import json
import os
import re
import shutil
import string
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
PARTS = ROOT / "scripts" / "book"
GLOSSARY = Path("docs/glossary.md")
FONTS = ["Lato-Regular.ttf", "Lato-Bold.ttf", "JetBrainsMono-Regular.ttf", "latinmodern-math.otf"]
HEADING = re.compile(r'<h([1-6]) id="([^"]*)">(.*?)</h\1>', re.S)


class BookError(Exception):
    """What a user can mend; the message is one line."""


class Page:
    """A Markdown file as a page. Sections are (level, anchor, title, text up to the next heading)."""

    def __init__(self, source):
        self.source = source  # relative to the root, like the page to the site
        self.address = source.with_suffix(".html").as_posix()
        self.up = "../" * (len(source.parts) - 1)  # from the page's folder to the site's
        self.body = convert(source)
        parts = HEADING.split(self.body)[1:]
        self.sections = [(int(level), anchor, plain_text(title), plain_text(text))
                         for level, anchor, title, text in zip(*[iter(parts)] * 4)]
        self.is_hints = source.name == "hints.md"
        self.group = {"labs": "Labs", "docs": "Reference"}.get(source.parts[0], "")
        self.title = self.sections[0][2] if self.group else "Getting started"
        first = plain_text(re.search(r"<p>.*?</p>", self.body, re.S).group())
        self.summary = first.removeprefix("Outcome. ")


def convert(source):
    command = ["pandoc", str(source), "--from", "gfm+tex_math_dollars", "--to", "html", "--mathml",
               "--wrap", "none", "--fail-if-warnings", "--resource-path", str(source.parent),
               "--lua-filter", "slides/filter.lua"]  # draws figures into the page, mends formulas
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BookError(f"{source}: pandoc: {' '.join(result.stderr.split())}")
    # What may be wider than a phone scrolls on its own.
    body = re.sub(r"<table>.*?</table>", r'<div class="wide">\g<0></div>', result.stdout, flags=re.S)
    body = body.replace("<p><svg", '<p class="wide"><svg')
    # A line may end after any hyphen, but must not after those of --ranks.
    return re.sub(r"<code>[^<]*</code>", lambda code: re.sub(
        r"(?<!\w)--?\w[\w-]*", r'<span class="option">\g<0></span>', code[0]), body)


def plain_text(markup):
    """What a reader sees, without figures, and without the TeX that pandoc keeps next to a formula."""
    markup = re.sub(r"<(svg|annotation)\b.*?</\1>", "", markup, flags=re.S)
    markup = re.sub(r"</(p|li|td|th|pre|summary)>|<br", r" \g<0>", markup)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", markup)).split())


def find_pages():
    labs = [path for folder in sorted((ROOT / "labs").iterdir())
            for path in (folder / "README.md", folder / "hints.md") if path.exists()]
    sources = [ROOT / "README.md", *labs, *sorted((ROOT / "docs").glob("*.md"))]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        return list(workers.map(lambda path: Page(path.relative_to(ROOT)), sources))


def resolve_links(page, pages, out):
    """The page's body, with links to other pages of the site, and else into the checkout."""
    known = {other.source: other for other in pages}
    meanings = {anchor: text for _, anchor, _, text in known[GLOSSARY].sections}

    def resolve(match):
        path, _, anchor = html.unescape(match[1]).partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        source = Path(os.path.normpath(page.source.parent / path))
        if source not in known:
            if not (ROOT / source).exists():
                raise BookError(f"{page.source}: the link to {path} leads nowhere")
            return f'href="{quote(os.path.relpath(ROOT / source, (out / page.source).parent))}"'
        target = f'href="{page.up}{known[source].address}{anchor and "#" + anchor}"'
        if source == GLOSSARY and anchor in meanings:
            target += f' class="term" title="{html.escape(meanings[anchor])}"'
        return target

    return re.sub(r'href="([^"]*)"', resolve, page.body)


def link(page, up, attributes="", name=None):
    return f'<a href="{up}{page.address}"{attributes}>{html.escape(name or page.title)}</a>'


def menu(pages, present):
    """All pages, and the sections of the present one (None: the index)."""
    lines = []
    for group, members in groupby(pages, lambda page: page.group):
        lines.append(f'<li class="group">{group}</li>')
        for page in members:
            kind, name = ("hints", "Hints") if page.is_hints else ("page", page.title)
            mark = ' aria-current="page"' if page is present else ""
            lines.append(f'<li class="{kind}">{link(page, present.up if present else "", mark, name)}</li>')
            lines += [f'<li class="section level{level}"><a href="#{anchor}">{html.escape(title)}</a></li>'
                      for level, anchor, title, _ in page.sections if page is present and level in (2, 3)]
    return "\n".join(lines)


def index_body(pages):
    """A card per page: its title and first paragraph. Hints are on the card of their lab."""
    lines = ["<h1>LLaMA workbook</h1>"]
    for group, members in groupby(pages, lambda page: page.group):
        cards = []
        for page in members:
            if page.is_hints:
                cards[-1] = cards[-1].replace("</h3>", f" <small>{link(page, '', name='hints')}</small></h3>")
            else:
                cards.append(f"<div class='card'><h3>{link(page, '')}</h3>"
                             f"<p>{html.escape(page.summary)}</p></div>")
        lines += [f"<h2>{group}</h2>" if group else "", "<div class='cards'>", *cards, "</div>"]
    return "\n".join(lines)


def build(out):
    if not shutil.which("pandoc"):
        raise BookError("pandoc is missing: apt-get install pandoc")
    template = string.Template((PARTS / "template.html").read_text(encoding="utf-8"))
    pages = find_pages()

    def write(address, **fields):
        (out / address).parent.mkdir(parents=True, exist_ok=True)
        (out / address).write_text(template.substitute(fields), encoding="utf-8")

    write("index.html", title="Contents", up="", menu=menu(pages, None), body=index_body(pages),
          previous="", next=link(pages[0], "", ' rel="next"'))
    for before, page, after in zip([None, *pages], pages, [*pages[1:], None]):
        write(page.address, title=html.escape(page.title), up=page.up, menu=menu(pages, page),
              body=resolve_links(page, pages, out),
              previous=link(before, page.up, ' rel="prev"') if before else "",
              next=link(after, page.up, ' rel="next"') if after else "")
        for picture in re.findall(r'<img src="([^":]+)"', page.body):  # pages lie where their sources do
            place = os.path.normpath(page.source.parent / picture)
            (out / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / place, out / place)
    entries = [(f"{page.address}#{anchor}", page.title, title, text)
               for page in pages for _, anchor, title, text in page.sections]
    # A script, because a page that was opened as a file may not read other files.
    (out / "search-index.js").write_text(
        f"const sections = {json.dumps(entries, ensure_ascii=False)};\n", encoding="utf-8")
    shutil.copy(PARTS / "book.css", out)
    shutil.copy(PARTS / "search.js", out)
    # Where a font is missing, the browser takes a similar one.
    (out / "fonts").mkdir(exist_ok=True)
    for file in [*Path("/usr/share/fonts").rglob("*"), *Path("/usr/share/texmf/fonts").rglob("*")]:
        if file.name in FONTS:
            shutil.copy(file, out / "fonts")


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "book"
    try:
        if len(sys.argv) == 1:
            shutil.rmtree(folder, ignore_errors=True)  # pages whose source is gone
        build(folder)
    except BookError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    print(f"open {os.path.relpath(folder)}/index.html in a browser")

#!/usr/bin/env python3
"""./workbook book: all texts are there as pages, all links lead somewhere, nothing was left as Markdown.

Builds the site into a temporary folder; needs pandoc.
"""
import json
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent.parent
# Of a formula, a table row, bold, code, a link, a heading.
MARKDOWN = re.compile(r"\$|\\[a-zA-Z]+|^\s*\|.*\|\s*$|\*\*|`|\]\(|^#+ ", re.M)


class Content(HTMLParser):
    """What the test looks at in a page."""

    def __init__(self, file):
        super().__init__()
        self.anchors, self.links, self.prose, self.tags = set(), [], [], []
        self.open = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.add(attributes.get("id"))
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]
        self.tags.append(tag)
        if tag in ("code", "math", "svg"):  # may hold what looks like Markdown
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and tag == self.open[-1]:
            self.open.pop()

    def handle_data(self, data):
        if not self.open:
            self.prose.append(data)


def build(folder):
    return subprocess.run([sys.executable, ROOT / "scripts/book.py", folder], capture_output=True, text=True,
                          check=False)


def link_problem(link, page, pages):
    path, _, anchor = unquote(link).partition("#")
    if re.match(r"https?:", path):
        return ""
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return "leads nowhere"
    if target.suffix == ".md" and target.name != "README.md":
        return "leads to Markdown, not to a page"
    if anchor and anchor not in pages[target].anchors:
        return "names no section"
    return ""


def problems(site):
    sources = [ROOT / "README.md", *ROOT.glob("labs/*/*.md"), *ROOT.glob("docs/*.md")]
    expected = {site / source.relative_to(ROOT).with_suffix(".html") for source in sources}
    expected.add(site / "index.html")
    pages = {file: Content(file) for file in site.rglob("*.html")}
    yield from (f"{file}: is missing" for file in expected - set(pages))
    yield from (f"{file}: does not belong here" for file in set(pages) - expected)
    for page, content in pages.items():
        yield from (f"{page}: {link} {problem}" for link in content.links
                    if (problem := link_problem(link, page, pages)))
        # Adjacent pieces of text may be parts of one line.
        yield from (f"{page}: left as it was: {match.group()}"
                    for match in MARKDOWN.finditer("".join(content.prose)))
    tags = [tag for content in pages.values() for tag in content.tags]
    for tag, least in ("math", 300), ("table", 50), ("svg", 30), ("details", 100):
        if tags.count(tag) < least:
            yield f"only {tags.count(tag)} elements {tag}"

    script = (site / "search-index.js").read_text(encoding="utf-8")
    sections = json.loads(script[script.index("["):script.rindex("]") + 1])
    for word, address in (("RMSNorm", "labs/01cuda_kernels/README.html"),
                          ("MPI_Comm_split", "docs/glossary.html"),
                          ("torchrun", "docs/several-hosts.html")):
        found = [entry[0] for entry in sections if word in entry[3]]
        if not any(entry.startswith(address + "#") for entry in found):
            yield f"the search finds '{word}' in {found}, not in {address}"
    yield from (f"the search leads to {address}, which is missing" for address, *_ in sections
                if address.partition("#")[2] not in pages[site / address.partition("#")[0]].anchors)


with tempfile.TemporaryDirectory(prefix="workbook book ") as temporary:
    result = build(temporary)
    if result.returncode != 0:
        sys.exit(f"failed: {result.stderr}")
    found = list(problems(Path(temporary).resolve()))
    if found:
        sys.exit("failed:\n" + "\n".join(found[:50]))
    file = Path(temporary) / "index.html"
    result = build(file)
    if result.returncode != 1 or not re.fullmatch(r"error: .*\n", result.stderr):
        sys.exit(f"failed: a file in place of the folder is not refused in one line: {result.stderr}")

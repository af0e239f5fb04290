#!/usr/bin/env python3
"""Plain English in every text that a person reads: no phrases that read as if translated, and no
second words for the things that docs/glossary.md names.

Reads Markdown without its code, and the comments and messages of C++, Python, shell and CMake.
Prints `file:line: "phrase": what to write instead` for each hit, and exits with 1 if there is one.
First it tries its rules on a few sentences.

Usage: english_test.py [FILE...]
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SUFFIXES = {".md", ".h", ".cpp", ".cu", ".py", ".sh", ".json", ".txt", ".cmake"}
# Stories, numbers, and this file.
SKIPPED = ("data/", "tests/golden/", "tests/texts/english_test.py")

# In a text that `prose` has prepared, this ends a paragraph or a cell, and that stands for code.
END, CODE = "\x01", "\0"
# Where a sentence begins, and where a sentence or a part of one does.
SENTENCE, PART = r"(?:\A|[\x01.?!]\s*)", r"(?:\A|[\0\x01.;:?!]\s*)"
VERB = (
    r"\b(?:does|has|is|was|are|were|did|must|may|can|will|would|should|gets?|reads?|sends?|waits?|"
    r"writes?|takes?|finds?|needs?|makes?|gives?|goes|stands?|lies|loses?|knows?|becomes?|comes?)\b"
)

# (a word that the text must contain, a pattern, what to do). A blank in a pattern is any white
# space, the end of a line included. Where the group `fine` matches, all is well.
RULES = [
    ("shall", r"\bshall\b", "will, must or should; or the present tense"),
    ("ever", r"\bfor ever\b", "forever"),
    ("dear", r"\b(?:an?|the|is|are|too|as|so|very|more|most|less) dear(?:er|est)?\b", "expensive"),
    ("sel", r"\bby (?:itself|themselves)\b", "drop it, or say alone, automatically"),
    ("own",
     r"\bof (?:its|their|your|our) own\b"
     r"(?=\s*(?:\Z|[\0\x01.,;:)?!|\"*]|(?:and|or|that|until|is|in|to|of|so|as)\b))",
     "its own X, or a separate X"),
    ("besides", r"\bbesides(?=[.,;:])", "also, as well"),
    ("manieth", r"\bmanieth\b", "its position, its place in the order"),
    ("together", r"\bin all together\b", "in all, or together"),
    ("behind",
     r"(?P<fine>\b(?:left|leaves?|leaving|rule|reasons?|idea|process|processes|nothing|something|"
     r"file|messages|collective) )?\bbehind\b",
     "after, downstream, later, next to"),
    ("stand", r"\bstands? (?:behind|before) ", "is in, follows, precedes"),
    ("nothing", r"\b(?:equal|identical|the same) for nothing\b", "without communication"),
    ("books", r"\bkeeps? (?:the )?books\b", "records, writes the metrics"),
    ("sample", r"\btells? a sample\b", "prints a sample"),
    ("must", r"\bmust it be\?|\bmust be respected\b", "is that necessary? there is one constraint"),
    ("but", r"\b(?:complete but for|anything but an?\b)", "all but, except for"),
    ("so long", PART + r"so long,", "until then, meanwhile"),
    ("told", PART + r"told (?:is|are)\b", "the message names"),
    ("over into", r"\bgo(?:es)? over into\b", "continues into"),
    ("who",
     rf"(?:{SENTENCE}who(?:ever)?|: whoever|\b(?:for|from) who(?:ever)?) [^?.!;:,\x01]*?,?\s*"
     + VERB + r"[^?.!;:\x01]{0,150}(?:[.;:\x01]|\Z)",
     "name the subject: anyone waiting, a rank that skips"),
    ("what", rf"(?:{PART}|\b(?:that|because) )what(?:ever)? [^?.!;:,|\0\x01]+, {VERB}",
     "no comma between subject and verb; better a noun as the subject"),
    ("who", r": who [^?.!|\x01]{0,120}(?:\.|\x01|\Z)", "say what it does: hands out tickets"),
    ("whatever", r"\b(?:over|at) whatever\b|\bwhatever becomes of\b", "any; what happens to"),
    ("low", r"\b(?:allows|enables) to\b", "lets you, makes it possible to"),
    # One word for one thing: docs/glossary.md.
    ("reduce", r"\ball ?reduces?\b(?![_.\"])", "all-reduce"),
    ("reduce", r"\breduce scatter\b", "reduce-scatter"),
    ("gather", r"\ball gather\b", "all-gather"),
    ("micro", r"\bmicro[- ]batch(?:es)?\b", "microbatch"),
    ("word",
     r"\b(?:likely|probable|predicted) words?\b|\bpredicts? the (?:next|right) word\b|"
     r"\bvocabulary of [\d,]+ words\b|\bwords of the vocabulary\b",
     "piece (an entry of the vocabulary) or token (a position)"),
    ("mesh", r"\b(?:rows?|columns?) of the mesh\b", "pipeline; replicas"),
    ("round", r"\brounds? of (?:the schedule|microbatches)\b", "wave"),
    ("share", r"\bshares? of the (?:data|corpus|sequences|stories|cores|batch|epoch)\b",
     "shard, part"),
    ("verdict", r"\bverdict (?:of|from|by) the (?:watchdog|launcher|watcher|judge)\b", "diagnosis"),
    ("optimis", r"\boptimisers?\b", "optimizer"),
]
RULES = [(word, re.compile(pattern.replace(" ", r"\s+"), re.I), advice)
         for word, pattern, advice in RULES]

BAD = """
A rank shall wait. | They wait for ever. | It has a dear head. | The stage does it by itself. |
Each has a thread of its own. | It is set, besides. | It is the how manieth. |
The stages behind wait. | Told is the first rank. | They are kept equal for nothing. | Must it be? | So long, it waits. |
Who waits for it now, waits for nothing. | Whoever sends first must wait for the other. |
The signals wait for who reads them. | What others do before then, did not wait for them. |
This allows to send. | Serving: who gets which answer when. | It has what is left, whatever becomes of the rest. | An all reduce follows. | It has six micro-batches. |
It predicts the next word. | Each rank has its share of the data. | One thing: two: three.
"""
GOOD = """
Who gets stuck first? | Ask: who sends what to whom? | Who holds what? Who sends what to whom, how many bytes, and when? |
It says who waits for whom. | Whatever you merge, in whatever order, the result is the same. |
The figure shows who may send. | That is the rule behind it. | It leaves nothing behind. |
The rate of its own products. | What is lost, and who would notice? | Dear reader, wait.
"""

FENCED = re.compile(
    r"\A---\n.*?^---$|^ *(?:\d+\. +|[-*] +)?(```).*?^ *\1|\$\$.*?\$\$|<[a-z/!][^>]*>", re.M | re.S)
INLINE_CODE = re.compile(r"`[^`\n]*(?:\n[^`\n]+)?`|\]\([^)\s]*\)|https?://\S+")
# The ends of paragraphs and cells, and the marks of lists, headings and slides.
MARKS = re.compile(r"\n(?= *\n)|^ *(?:>|[-*]|\d+\.|#+|:::.*)(?= |$)|\|", re.M)
# A line of a table, a message quoted in italics, a title: colons may be as they like there.
QUOTED = re.compile(r"^ *\x01.*\x01 *$|\*[^*\n\x01]+\*|\"[^\"\x01]{1,150}\"", re.M)

STRING = r'"(?P<b>(?:[^"\\\n]|\\.)*)"|\'(?P<c>(?:[^\'\\\n]|\\.)*)\''
CPP = re.compile(r'//[/<!]* ?(?P<a>[^\n]*)|"(?P<b>(?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)\'')
PYTHON = re.compile(r'"""(?P<a>.*?)"""|' + STRING + r"|#+ ?(?P<d>[^\n]*)", re.S)
SHELL = re.compile(r"(?:^|(?<=\s))#+ ?(?P<a>[^\n]*)|" + STRING, re.M)
MUTANTS = re.compile(r"^(?:why|message): (?P<a>[^\n]*)|^ *// (?P<b>[^\n]*)", re.M)


def only(spans, text):
    """The characters in `spans`; between them code is CODE, and mere marks are blanks."""
    kept, at = [], 0
    for first, last in spans + [(len(text), len(text))]:
        gap = text[at:first]
        kept += [(" " if re.fullmatch(r"[\s\"'/#!<]*", gap) else CODE) * len(gap), text[first:last]]
        at = last
    return "".join(kept)


def prose(name, text):
    """What is read as English; everything else is END or CODE, and positions stay."""
    if name.endswith(".md"):
        for pattern, sign in ((FENCED, END), (INLINE_CODE, CODE), (MARKS, END)):
            text = pattern.sub(lambda match, sign=sign: sign * len(match[0]), text)
        return text
    if name.endswith((".h", ".cpp", ".cu")):
        pattern = CPP
    elif name.endswith("mutants.txt"):
        pattern = MUTANTS
    else:
        pattern = PYTHON if name.endswith(".py") else SHELL
    return only([m.span(m.lastgroup) for m in pattern.finditer(text) if m.lastgroup], text)


def sentences(text):
    """(position, sentence) of a text in Markdown that `prose` has prepared, without tables."""
    text = QUOTED.sub(lambda match: (END if match[0][0] in " \x01" else CODE) * len(match[0]), text)
    start = 0
    for end in re.finditer(r"[.?!;·](?=[\s*)\"])|\x01|\Z", text):
        sentence = text[start:end.start()]
        yield end.start() - len(sentence.lstrip()), sentence
        start = end.end()


def hits(name, text):
    """(position, phrase, advice) of each thing to mend in one text."""
    text = prose(name, text)
    lower = text.lower()
    for word, pattern, advice in RULES:
        # In code, "a thread of its own" says which thread.
        if word not in lower or (word == "own" and not name.endswith(".md")):
            continue
        for match in pattern.finditer(text):
            if not match.groupdict().get("fine"):
                phrase = match[0].lstrip("\0\x01.;:?! \n")
                yield match.end() - len(phrase), phrase, advice
    if name.endswith(".md"):
        for at, sentence in sentences(text):
            if len(re.findall(r"\w[*_)]*:\s", sentence)) > 1:
                yield at, sentence, "two colons in a sentence: write two sentences"


def git(*command):
    """The lines that a git command prints."""
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print("skipped: the list of texts comes from git, and this is no checkout")
        sys.exit(77)
    return done.stdout.splitlines()


def main():
    wrong = [f"no rule finds what is wrong with: {sentence}"
             for sentence in BAD.split("|") if not list(hits("x.md", sentence.strip()))]
    wrong += [f"good English, and a rule finds: {sentence}"
              for sentence in GOOD.split("|") if list(hits("x.md", sentence.strip()))]

    names = sys.argv[1:] or git("ls-files")
    changed = set() if sys.argv[1:] else set(git("diff", "--name-only", "HEAD"))
    count = 0
    for name in names:
        if name.startswith(SKIPPED) or pathlib.Path(name).suffix not in SUFFIXES | {""}:
            continue
        if not (ROOT / name).exists():  # removed, but not committed yet
            continue
        # A student's own words.
        if name in changed and (ROOT / name.replace("labs/", "solutions/", 1)).exists():
            if name.startswith("labs/") and not name.endswith(".md"):
                continue
        count += 1
        text = (ROOT / name).read_text(encoding="utf-8")
        for at, phrase, advice in hits(name, text):
            phrase = " ".join(re.sub(r"[\0\x01]+", " … ", phrase).split())[:90]
            wrong.append(f'{name}:{text.count(chr(10), 0, at) + 1}: "{phrase}": {advice}')
    if not sys.argv[1:] and count < 500:
        wrong.append(f"only {count} texts found: is this the workbook?")
    print("\n".join(wrong) or f"{count} texts, {len(RULES)} rules")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a file of C++ declares, read roughly: enough to compare a starter with its solution. And what
mutants.txt and experiments.txt say."""

import collections
import re

# `head`: a function up to its body, or all of another declaration; `body`: None unless a function.
# `hidden`: in an unnamed namespace, or static. `is_task`: has a TODO.
Declaration = collections.namedtuple("Declaration", "line head body hidden is_task")

STRING = r'"(?:\\.|[^"\\\n])*"'
COMMENT = r"//[^\n]*|/\*.*?\*/"


def blank(found):
    return re.sub(r"[^\n]", " ", found[0])


def words(text):
    """Without white space, and without what keeps the compiler quiet about a starter."""
    found = re.findall(r"\w+|[^\w\s]", text.replace("[[maybe_unused]]", ""))
    return " ".join(word for word in found if word != "inline")


def declarations(source):
    """Those outside of functions and classes, without comments and includes."""
    # Strings are looked for as well, because "//" in one begins no comment.
    code = re.sub(f"{STRING}|{COMMENT}", lambda m: m[0] if m[0][0] == '"' else blank(m), source, flags=re.S)
    code = re.sub(r"^[ \t]*#include[^\n]*", blank, code, flags=re.M)
    shape = re.sub(f"{STRING}|'[(){{}};]'", blank, code)
    found, namespaces = [], []
    begin = depth = parentheses = 0
    opened = None  # where the brace is that follows the head

    def add(end, is_function):
        start = begin + len(code[begin:end]) - len(code[begin:end].lstrip())
        found.append(Declaration(
            line=source.count("\n", 0, start) + 1,
            head=words(code[begin : opened if is_function else end]),
            body=words(code[opened:end]) if is_function else None,
            hidden="" in namespaces or code.startswith("static ", start),
            is_task=re.search(r"\b(TODO|not_implemented)\(", source[begin:end]) is not None,
        ))

    for i, c in enumerate(shape):
        if depth == 0 and c in "()":
            parentheses += 1 if c == "(" else -1
        elif parentheses:
            continue
        elif c == "{":
            namespace = re.fullmatch(r"\s*namespace\s*([\w:]*)\s*", shape[begin:i])
            if depth == 0 and namespace:
                namespaces.append(namespace[1])
                begin = i + 1
                continue
            if depth == 0:
                opened = i
            depth += 1
        elif c == "}" and depth == 0:  # the end of a namespace
            namespaces.pop()
            begin = i + 1
        elif c == "}":
            depth -= 1
            if depth == 0 and re.match(r"(?!\s*(struct|class|enum)\b)[^=]*\([^{]*$", shape[begin:opened]):
                add(i + 1, True)
                begin, opened = i + 1, None
        elif c == ";" and depth == 0:
            add(i + 1, False)
            begin, opened = i + 1, None
    return found


# `edits`: (find, replace) of each. `line`: where the entry begins.
Mutant = collections.namedtuple("Mutant", "line name tasks message edits")


def read_mutants(text):
    """The entries of a mutants.txt (tests/grading/mutants.h)."""
    mutants, inside = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# ") and inside is None:
            mutants.append(Mutant(number, line[2:], [], [], []))
        elif mutants and line in ("<<<<", "====", ">>>>"):
            inside = line if line != ">>>>" else None
            if inside == "<<<<":
                mutants[-1].edits.append(("", ""))
        elif mutants and inside is not None:
            find, replace = mutants[-1].edits.pop()
            edit = (find + line + "\n", replace) if inside == "<<<<" else (find, replace + line + "\n")
            mutants[-1].edits.append(edit)
        elif mutants and line.startswith("task: "):
            mutants[-1].tasks.extend(word.partition(".")[0] for word in line[6:].split())
        elif mutants and line.startswith("message: "):
            mutants[-1].message.append(line[9:])
    return mutants


def changed_source(text, mutant):
    """The solution with a mutant's mistake. Raises ValueError unless the solution has each place once."""
    for find, _ in mutant.edits:
        if text.count(find) != 1:
            raise ValueError(f"{mutant.name} replaces lines that the solution has {text.count(find)} times: "
                             f"{find.strip().partition(chr(10))[0]!r}")
    # All places are those of the solution, also if an edit repeats another one's lines: so the last one first.
    for find, replace in sorted(mutant.edits, key=lambda edit: text.index(edit[0]), reverse=True):
        place = text.index(find)
        text = text[:place] + replace + text[place + len(find):]
    return text


# `options`: of the program, by name; "" for a flag. `wrong_runs`: how often the wrong version runs.
Experiment = collections.namedtuple("Experiment", "line letter what mutant options predict look wrong_runs")


def split_options(words):
    """["--steps", "3", "--drift"] -> {"--steps": "3", "--drift": ""}"""
    options = {}
    for word in words:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            options[name] = value
        elif not options or options[name]:
            raise ValueError(f"'{word}' belongs to no option")
        else:
            options[name] = word
    return options


def read_experiments(text):
    """The entries of an experiments.txt (docs/authors.md). Raises ValueError that names the line."""
    entries, key = [(0, "", {})], None
    for number, line in enumerate(text.splitlines(), 1):
        field = re.fullmatch(r"(\w+): +(\S.*)", line)
        if line.startswith("# "):
            entries.append((number, line[2:].strip(), {}))
            key = None
        elif field and field[1] in ("what", "mutant", "options", "predict", "look", "runs"):
            key = field[1]
            entries[-1][2][key] = field[2]
        elif line.startswith("  ") and key:
            entries[-1][2][key] += " " + line.strip()
        elif key or len(entries) > 1:
            if line:
                raise ValueError(f"{number}: expected what, mutant, options, predict, look or runs, not '{line}'")
            key = None
    common, found = entries[0][2], []
    for number, letter, fields in entries[1:]:
        missing = {"what", "mutant", "look"} - fields.keys()
        if missing:
            raise ValueError(f"{number}: {letter} has no '{min(missing)}:'")
        if not re.fullmatch("[1-3]", fields.get("runs", "1")):
            raise ValueError(f"{number}: {letter}: 'runs:' is 1, 2 or 3")
        try:
            options = {**split_options(common.get("options", "").split()),
                       **split_options(fields.get("options", "").split())}
        except ValueError as error:
            raise ValueError(f"{number}: {letter}: {error}") from None
        found.append(Experiment(number, letter, fields["what"], fields["mutant"], options,
                                fields.get("predict", common.get("predict", "")), fields["look"],
                                int(fields.get("runs", 1))))
    return found

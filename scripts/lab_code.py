"""What a file of C++ declares, read roughly: enough to compare a starter with its solution. And what
mutants.txt says."""

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


def read_mutants(text):
    """(line, name, tasks, texts to find) of each entry of a mutants.txt (tests/grading/mutants.h)."""
    mutants, inside = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# ") and inside is None:
            mutants.append((number, line[2:], [], []))
        elif mutants and line in ("<<<<", "====", ">>>>"):
            inside = line if line != ">>>>" else None
            if inside == "<<<<":
                mutants[-1][3].append("")
        elif mutants and inside == "<<<<":
            mutants[-1][3][-1] += line + "\n"
        elif mutants and inside is None and line.startswith("task: "):
            mutants[-1][2].extend(line[6:].split())
    return mutants

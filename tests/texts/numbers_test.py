#!/usr/bin/env python3
"""Numbers in the texts are those that the formulas give: checks the rows of numbers.txt.

Prints `file:line: printed, expected …` for each number that differs from its expression by more
than half a unit of its last digit, and names each phrase that the file no longer has. Exits with 1
if there is one.

Usage: numbers_test.py [PLAN], the program `plan`; without it, what it says is not checked.
"""
import math
import pathlib
import re
import sys

import quantities

HERE = pathlib.Path(__file__).resolve().parent
NUMBER = r"([-−]?\d{1,3}(?:(?:,|\{,\})\d{3})+(?:\.\d+)?|[-−]?\d+(?:\.\d+)?)"

# Names of quantities.py that run the program `plan`.
PLANNED = re.compile(r"\b(?:plan|shape|line|planned|ratio|missing|planned_ms)\(")


def values(expressions):
    """Their values; `*[...]` gives several."""
    names = {**vars(math), **vars(quantities)}
    return eval(f"[{expressions.replace(';', ',')}]", names)  # our own file


def rows():
    """(line of numbers.txt, file, phrase, the numbers that it should have)."""
    file = None
    table = (HERE / "numbers.txt").read_text(encoding="utf-8")
    for number, line in enumerate(table.splitlines(), 1):
        if not line.strip() or line.startswith(";"):
            continue
        if not line.startswith(" "):
            file = line.strip()
            continue
        phrase, _, expressions = line.strip().partition("  <-  ")
        if PLANNED.search(expressions) and quantities.PLAN is None:
            continue
        yield number, file, phrase, values(expressions)


def check(text, file, phrase, expected):
    """(how many numbers, what is wrong) of one row; `#` in the phrase is a number."""
    if phrase.count("#") != len(expected):
        return 0, [f"{phrase.count('#')} numbers, {len(expected)} expressions: {phrase}"]
    pattern = re.escape(phrase).replace(r"\#", NUMBER).replace(r"\ ", r"\s+")
    found = list(re.finditer(r"(?<![\d,.{])" + pattern, text))
    if not found:
        return 0, [f"{file}: has no longer: {phrase}"]
    wrong = []
    for match in found:
        for group, right in enumerate(expected, 1):
            printed = re.sub(r"[,{}]", "", match[group]).replace("−", "-")
            half_a_digit = 0.5 * 10.0 ** -len(printed.partition(".")[2])
            if abs(float(printed) - right) > half_a_digit * (1 + 1e-9):
                line = text.count("\n", 0, match.start(group)) + 1
                wrong.append(f"{file}:{line}: {match[group]}, expected {right:.9g}")
    return len(expected) * len(found), wrong


def main():
    quantities.PLAN = sys.argv[1] if len(sys.argv) > 1 else None
    count, wrong, texts = 0, [], {}
    for number, file, phrase, expected in rows():
        if file not in texts:
            texts[file] = (quantities.ROOT / file).read_text(encoding="utf-8")
        checked, problems = check(texts[file], file, phrase, expected)
        count += checked
        wrong += [f"{problem} (numbers.txt:{number})" for problem in problems]

    # The test notices a wrong digit, and accepts what rounding explains.
    wrong += ["1.5 is not 1.56"] * (not check("it is 1.5 MB", "", "is # MB", [1.56])[1])
    wrong += ["1.6 is 1.56"] * len(check("it is 1.6 MB", "", "is # MB", [1.56])[1])
    if count < 500:
        wrong.append(f"only {count} numbers found: is numbers.txt whole?")
    print("\n".join(wrong) or f"{count} numbers in {len(texts)} texts")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

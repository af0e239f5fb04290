#!/usr/bin/env python3
"""The predictions of a lab, for `./workbook status N`.

    status.py ROOT FOLDER POINTS

FOLDER: 01_single_gpu. POINTS: what `./workbook status` says about the lab's points. Prints each question with
the student's number; once the lab is done, also the value from solutions/FOLDER/predictions.json, which copies for
students have as reference/predictions/FOLDER.json:

    {"id": {"value": 41.3, "how": "computed" or "measured", "section": "a heading of its README.md"}}

With "exact": true, an answer must be that value; else it may be off by 10 %.

A lab is done when POINTS are all points; a lab without points, when every question has its answer. What is
wrong with a file is told in one line, with exit code 1.
"""
import json
import math
import pathlib
import re
import shutil
import signal
import sys
import textwrap

TOLERANCE = 0.1
HOW = {"computed": "computed", "measured": "measured on another machine"}
WHY_LATER = "why: in the lab's solution, once your course hands it out"


class Problem(Exception):
    """What is wrong with a file, where, and what to do: one line."""


def load(root, name, advice):
    """The JSON of a file, whose name is relative to `root`."""
    try:
        return json.loads((root / name).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise Problem(f"{name} is missing: {restore(root, name)}") from None
    except OSError as error:
        raise Problem(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Problem(f"{name} is not text in UTF-8: save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise Problem(f"{name}, line {error.lineno}: not valid JSON ({error.msg}): {advice}") from None
    except (ValueError, RecursionError):
        raise Problem(f"{name}: not valid JSON: {advice}") from None


def restore(root, name):
    if (root / ".git").exists():
        return f"git checkout HEAD -- {name} restores the committed one"
    return "get it from where you got the workbook"


def is_number(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def line_of(root, name, identifier):
    """", line 8" where the entry with this id has its answer; empty if that is not found."""
    text = (root / name).read_text(encoding="utf-8-sig")
    found = re.search(r'"id"\s*:\s*"%s"[^{}]*?"answer"' % re.escape(identifier), text)
    return f", line {text.count(chr(10), 0, found.end()) + 1}" if found else ""


def read_predictions(root, folder):
    """The entries of the student's file."""
    name = f"labs/{folder}/predictions.json"
    content = load(root, name, "a number is written like 41.3, text in quotes, and a comma goes "
                   "between entries, not after the last")
    entries = content.get("predictions") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise Problem(f'{name} has no list "predictions": {restore(root, name)}')
    seen = set()
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not all(
                isinstance(entry.get(key), str) for key in ("id", "question", "unit")):
            raise Problem(f'{name}: entry {number} lacks "id", "question" or "unit": {restore(root, name)}')
        identifier, answer = entry["id"], entry.get("answer")
        if identifier in seen:
            raise Problem(f"{name} has two entries {identifier}: remove one")
        seen.add(identifier)
        if answer is not None and not is_number(answer):
            written = textwrap.shorten(json.dumps(answer, ensure_ascii=False), 40, placeholder="…")
            raise Problem(f"{name}{line_of(root, name, identifier)}: the answer of {identifier} is {written}, "
                          "which is not a number: write it like 41.3, without quotes and unit, or null for none yet")
    return entries


def read_values(root, folder, entries):
    """The right values by id."""
    released = f"reference/predictions/{folder}.json"
    name = released if (root / released).is_file() else f"solutions/{folder}/predictions.json"
    values = load(root, name, restore(root, name))
    if not isinstance(values, dict) or not all(
            isinstance(value, dict) and is_number(value.get("value")) and value.get("how") in HOW and
            isinstance(value.get("section"), str) for value in values.values()):
        raise Problem(f"{name} lacks a value, how or section: {restore(root, name)}")
    own = f"labs/{folder}/predictions.json"
    ids = [entry["id"] for entry in entries]
    for identifier in ids:
        if identifier not in values:
            raise Problem(f"{own}: there is no question {identifier}: leave the ids as they were "
                          f"({restore(root, own)})")
    for identifier in values:
        if identifier not in ids:
            raise Problem(f"{own}: the question {identifier} is missing: {restore(root, own)}")
    return values


def is_done(graded, points, entries):
    if not graded:
        return all(entry.get("answer") is not None for entry in entries)
    reached = re.search(r"(\d+)/(\d+) points", points)  # also of a file that has changed since
    return reached is not None and reached[1] == reached[2]


def shown(number, unit, digits=12):
    """A number with its unit; `digits` count only where it is not whole."""
    if number == int(number) and abs(number) < 1e15:
        text = f"{int(number):,}"
    elif abs(number) >= 100 and digits < 4:
        text = f"{number:,.1f}"
    else:
        text = f"{number:.{digits}g}"
    if unit in ("count", "number", "weight"):
        return text
    return f"{text} (factor)" if unit == "factor" else f"{text} {'µs' if unit == 'us' else unit}"


def judged(answer, value, exact):
    if math.isclose(answer, value, rel_tol=0 if exact else 0.01):
        return "right"
    if exact:
        return "not right: this one is exact"
    if abs(answer - value) <= TOLERANCE * abs(value) * (1 + 1e-9):
        return "within 10 %"
    if value == 0 or answer / value <= 0:
        return "not within 10 %"
    return f"not within 10 %: {answer / value:.3g} times the value"


def compared(entry, values):
    """What stands under a question."""
    unit, answer = entry["unit"], entry.get("answer")
    if answer is None:
        return f'{entry["id"]} · no answer yet' + ("; give one, and the value appears" if values is not None else "")
    parts = [entry["id"], f"you: {shown(answer, unit)}"]
    if values is not None:
        value = values[entry["id"]]
        parts.append(f"{HOW[value['how']]}: {shown(value['value'], unit, digits=3)}")
        parts.append(judged(answer, value["value"], value.get("exact", False)))
    return " · ".join(parts)


def reasons(root, folder, values):
    """Where the solution explains the values: the section of most of them, then those of the others."""
    sections = {}
    for identifier, value in values.items():
        sections.setdefault(value["section"], []).append(identifier)
    most = max(sections, key=lambda section: len(sections[section]))
    others = [f'{", ".join(ids)}: "{section}"' for section, ids in sections.items() if section != most]
    if not (root / "solutions" / folder).is_dir():
        return WHY_LATER
    return "; ".join([f'why: solutions/{folder}/README.md, "{most}"'] + others)


def report(root, folder, points):
    number = folder.split("_")[0].lstrip("0") or "0"
    handout = root / "labs" / folder / "README.md"
    # A lab whose handout never names the file has none: lab 00 asks on paper.
    if "predictions.json" not in (handout.read_text(encoding="utf-8") if handout.is_file() else "predictions.json"):
        there = (root / "solutions" / folder).is_dir()
        return [f'predictions: on paper ("Predict" in labs/{folder}/README.md); ' +
                (f"the answers are in solutions/{folder}/README.md" if there else WHY_LATER)]
    entries = read_predictions(root, folder)
    values = read_values(root, folder, entries)
    filled = sum(entry.get("answer") is not None for entry in entries)
    graded = (root / "labs" / folder / "points.json").is_file()
    done = is_done(graded, points, entries)

    lines = [f"predictions: {filled} of {len(entries)} filled in (labs/{folder}/predictions.json)"]
    width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
    for entry in entries:
        lines += textwrap.wrap(entry["question"], width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        lines.append("    " + compared(entry, values if done else None))
    if done and values:
        lines.append(reasons(root, folder, values))
    else:
        when = f"the lab has all its points (./workbook test {number})" if graded else "every question has its answer"
        lines.append(f"the values appear next to your numbers once {when}")
    return lines


def main():
    root, folder, points = sys.argv[1:]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stderr.reconfigure(encoding="utf-8")
    try:
        print("\n".join(report(pathlib.Path(root), folder, points)))
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

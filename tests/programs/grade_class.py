#!/usr/bin/env python3
"""./workbook grade: a class of 30 submissions of all labs (solutions, starters, wrong solutions of mutants.txt, and
files as students really submit them) has the points that it deserves. By hand: it takes some minutes.

Usage: grade_class.py BUILD OUT [--labs 01-03] [--seed S] [--jobs J]. OUT keeps the submissions and grades.
"""
import argparse
import csv
import json
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUDENTS, MUTANTS = 30, 3
sys.path.insert(0, str(ROOT / "scripts"))
from lab_code import changed_source, read_mutants  # noqa: E402
from lab_numbers import parse_labs  # noqa: E402

LABS = {path.parent.name.split("_")[0]: path.parent.name for path in sorted(ROOT.glob("labs/[0-9][0-9]_*/points.json"))}


def name_of(lab):
    return LABS[lab].split("_", 1)[1] + ".cpp"


def text_of(place, lab):
    return (ROOT / place / LABS[lab] / name_of(lab)).read_text(encoding="utf-8")


def wrong_solutions(lab, tasks):
    """(contents, points) of every mutant; of correct solutions, the task is none."""
    for mutant in read_mutants((ROOT / "tests/labs" / LABS[lab] / "mutants.txt").read_text(encoding="utf-8")):
        lost = sum(tasks[task] for task in mutant.tasks if task != "none")
        yield changed_source(text_of("solutions", lab), mutant), sum(tasks.values()) - lost


def pools(labs):
    """(lab, [(contents, points)]) of each lab: first the solution, then the starter."""
    for lab in labs:
        tasks = {task["id"]: task["points"] for task in
                 json.loads((ROOT / "labs" / LABS[lab] / "points.json").read_text(encoding="utf-8"))["tasks"]}
        wrong = random.Random(lab).sample(list(wrong_solutions(lab, tasks)), MUTANTS)
        yield lab, [(text_of("solutions", lab), sum(tasks.values())), (text_of("labs", lab), 0), *wrong]


# How a file can be submitted: (contents, points) -> [(path, bytes)], points.
def odd(kind, lab, text, points):
    place = f"labs/{LABS[lab]}/{name_of(lab)}"
    data = text.encode()
    return {
        "plain": ([(place, data)], points),
        "moved": ([(f"my work/{name_of(lab)}", data)], points),
        "windows": ([(place, data.replace(b"\n", b"\r\n"))], points),
        "byte_order_mark": ([(place, b"\xef\xbb\xbf" + data)], points),
        "latin1": ([(place, data + "// für\n".encode("latin-1"))], 0),
        "utf16": ([(place, text.encode("utf-16"))], 0),
        "renamed": ([(place.replace(".cpp", "_final.cpp"), data)], 0),
        "missing": ([], 0),
        "huge": ([(place, data + b"//" + b"x" * (1 << 20))], 0),
        "binary": ([(place, b"\x7fELF" + bytes(range(256)) * 4)], 0),
        "cut_off": ([(place, data[:len(data) // 2])], 0),
    }[kind]


ODD = ["moved", "windows", "byte_order_mark", "latin1", "utf16", "renamed", "missing", "huge", "binary", "cut_off"]


def make(folder, labs):
    """The points that each submission deserves, by name and lab."""
    deserved = {}
    chance = random.Random(30)
    pool = list(pools(labs))
    for i in range(STUDENTS):
        name = f"student{i:02}"
        for j, (lab, choices) in enumerate(pool):
            text, points = choices[0] if i == 0 else chance.choice(choices)
            kind = ODD[i // 3] if i % 3 == 0 and i > 0 and j == i % len(pool) else "plain"
            if kind != "plain":
                text, points = choices[0]
            files, points = odd(kind, lab, text, points)
            for path, data in files:
                (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / name / path).write_bytes(data)
            deserved.setdefault(name, {})[lab] = points
    return deserved


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--labs", type=lambda text: parse_labs(text, LABS), default=sorted(LABS))
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args()
    deserved = make(options.out / "class", options.labs)
    begin = time.monotonic()
    grades = options.out / f"grades{options.seed}"
    subprocess.run([sys.executable, ROOT / "scripts/grade.py", options.build, *sorted((options.out / "class").iterdir()),
                    "--labs", ",".join(options.labs), "--jobs", options.jobs, "--seed", options.seed, "--out", grades], check=True)
    seconds = time.monotonic() - begin
    with open(grades / "results.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    wrong = [f"{row['submission']}, lab {lab}: {row[f'{lab} counts']} points, not {points}"
             for row in rows for lab, points in deserved[row["submission"]].items() if row[f"{lab} counts"] != str(points)]
    print("\n".join(wrong))
    print(f"{len(rows)} submissions in {seconds:.0f} s: {len(wrong)} wrong points")
    return 1 if wrong or len(rows) != STUDENTS else 0


if __name__ == "__main__":
    sys.exit(main())

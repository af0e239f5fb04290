#!/usr/bin/env python3
"""./workbook grade: every attack of hostile_submissions.py has the points it deserves and leaves nothing, and the
solutions that are graded beside them have all points. By hand: it takes ten minutes.

Usage: grade_hostile.py BUILD [NAME...] [--no-sandbox] [--jobs J]
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hostile_submissions import ATTACKS, POINTS, ROOT, SOLUTION, SUCCESS, THEFTS, UNBUILT, attacking, placed, stealing

FILE = "labs/02_gradient_allreduce/gradient_allreduce.cpp"


def left(mark):
    """Processes and files with the mark in their names."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[0]
            if mark in text or mark in (process / "comm").read_text(encoding="utf-8"):
                found.append(f"process {process.name}: {text}")
        except OSError:
            continue
    for folder in ("/tmp", "/var/tmp", "/dev/shm", str(ROOT)):
        found += [str(path) for path in Path(folder).glob(f"*{mark}*")]
    return found


def changed():
    """What git says of the checkout, in which no submission may change anything."""
    return subprocess.run(["git", "-C", ROOT, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--no-sandbox", action="store_true")
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args()
    mark = f"left{os.getpid()}"
    deserved = {}
    with tempfile.TemporaryDirectory(prefix="grade-hostile.") as scratch:
        folder = Path(scratch)

        def add(name, text, points):
            if options.names and name.split("-")[0] not in options.names and not name.startswith("solution"):
                return
            file = folder / name / FILE
            file.parent.mkdir(parents=True)
            file.write_text(placed(text, options.build.resolve(), mark), encoding="utf-8")
            deserved[name] = points

        for i, (name, body) in enumerate(ATTACKS.items()):
            add(name, attacking(body), POINTS)
            if i % 8 == 0:
                add(f"solution-{i}", SOLUTION + f"// {i}\n", 100)
        for name, body in THEFTS.items():
            add(name, stealing(body), POINTS)
        for name, text in UNBUILT.items():
            add(name, text + SOLUTION, 0)
        before, checkout = set(Path("/tmp").iterdir()), changed()
        begin = time.monotonic()
        command = [sys.executable, ROOT / "scripts/grade.py", options.build, *(folder / name for name in deserved),
                   "--labs", "2", "--jobs", options.jobs, "--out", folder / "grades",
                   *(["--no-sandbox"] if options.no_sandbox else [])]
        code = subprocess.run(command, check=False).returncode
        seconds = time.monotonic() - begin
        with open(folder / "grades/results.csv", newline="", encoding="utf-8") as stream:
            reached = {row["submission"]: row["total"] for row in csv.DictReader(stream)}
        wrong = [f"{name} has {reached[name]} points, not {points}"
                 for name, points in deserved.items() if reached[name] != str(points)]
        for name in deserved:
            tasks = json.loads((folder / "grades" / name / "tasks.json").read_text(encoding="utf-8"))["02"]["tasks"]
            messages = "\n".join(task["message"] for task in tasks)
            if SUCCESS in messages or "root:x:0" in messages:
                wrong.append(f"{name}: {messages!r}")
    time.sleep(1)
    wrong += [f"left: {what}" for what in left(mark)]
    wrong += [f"left: {path}" for path in set(Path("/tmp").iterdir()) - before if path.owner().isdigit() or
              path.name.startswith(("workbook-grade.", "workbook-clone."))]
    if changed() != checkout:
        wrong.append(f"the checkout has changed:\n{changed()}")
    if code != 0:
        wrong.append(f"exit code {code}")
    print("\n".join(wrong))
    print(f"{len(deserved)} submissions in {seconds:.0f} s: " + (f"{len(wrong)} faults" if wrong else "as they deserve"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Grades systematic mutants of a lab's solution, and lists those that get all points.

Every mutant that mutate.py makes must lose points, or be explained: tests/labs/NN_name/survivors.txt
has a line "ID: why no test can or need tell it from the solution" for each. An explanation of a mutant
that is killed, or that does not exist any more, is an error, so that the file stays true.

BUILD_FOLDER/mutation/NN_name/messages/ID.txt has what the tests say about a mutant.

usage: check.py NN_name BUILD_FOLDER [--only FUNCTION] [--jobs N]
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from judging import ROOT, build_all, fails, solution_of


def explanations(lab: str) -> dict[str, str]:
    file = ROOT / "tests/labs" / lab / "survivors.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = (line.split(": ", 1) for line in lines if line and not line.startswith("#"))
    return dict(pairs)


def task_above(solution: list[str], line: int) -> str:
    """That of the last "// Task 2" above a line of the solution; empty above all of them."""
    named = (re.match(r"// Task (\w+)$", text) for text in reversed(solution[:line]))
    return next((f"Task{found[1]}" for found in named if found), "")


def is_killed(verdict: Path, implementation: Path, output: Path, own: str) -> bool:
    """Whether a task fails: its own first, which finds most. The program does not count, because it
    says whether the tasks' functions fit together."""
    suites = [f"{own}.*", f"-TaskProgram.*:{own}.*"] if own else ["-TaskProgram.*"]
    return any(fails(verdict, implementation, output, suite) for suite in suites)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab")
    parser.add_argument("build", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()

    lab = options.lab
    number = lab.split("_")[0]
    solution = solution_of(lab)
    folder = options.build / "mutation" / lab
    sources = folder / "sources"
    objects = folder / "objects"
    messages = folder / "messages"
    messages.mkdir(parents=True, exist_ok=True)
    for old in [*sources.glob("*.c*"), *messages.glob("*.txt")]:
        old.unlink()
    only = ["--only", options.only] if options.only else []
    made = subprocess.run(
        [sys.executable, ROOT / "tests/mutation/mutate.py", solution, "--out", sources, *only, "--",
         "-std=c++20", "-fopenmp", f"-I{ROOT}"],
        stdout=subprocess.DEVNULL,
    )
    if made.returncode != 0:
        return made.returncode  # it has said why
    mutants = json.loads((sources / "mutations.json").read_text())
    build_all(options.build, solution, sources, objects)  # some do not compile
    verdict = options.build / "bin" / f"lab{number}_verdict"
    implementation = lambda m: (objects / m["file"]).with_suffix(".so")  # noqa: E731
    built = [m for m in mutants if implementation(m).exists()]
    text = solution.read_text().splitlines()
    known = explanations(lab)
    survivors = set()
    unexplained = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        killed = pool.map(
            lambda m: is_killed(verdict, implementation(m), messages / f"{m['id']}.txt",
                                task_above(text, m["line"])), built)
        for done, (mutant, dead) in enumerate(zip(built, killed), 1):
            print(f"\r{done} of {len(built)}", end="", file=sys.stderr, flush=True)
            if dead:
                continue
            survivors.add(mutant["id"])
            if mutant["id"] not in known:
                unexplained += 1
                print(file=sys.stderr, flush=True)  # ends the line of the count
                print(f"{mutant['id']}  (line {mutant['line']})\n  {mutant['what']}")
                print(f"  - {mutant['before'].strip()}\n  + {mutant['after'].strip()}", flush=True)
    print(file=sys.stderr)

    stale = [] if options.only else sorted(set(known) - survivors)
    for identifier in stale:
        print(f"{identifier}: explained in survivors.txt, but it does not survive")
    good = len(built) - unexplained
    print(f"lab {number}: {len(built)} mutants, {len(built) - len(survivors)} killed, "
          f"{len(survivors) - unexplained} explained, {unexplained} unexplained: "
          f"{100 * good / max(len(built), 1):.1f} %")
    return 1 if unexplained or stale else 0


if __name__ == "__main__":
    sys.exit(main())

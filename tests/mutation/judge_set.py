#!/usr/bin/env python3
"""Grades a set of wrong solutions, and of right ones, that somebody wrote without seeing the tests.

The file has the form of a mutants.txt (tests/grading/mutants.h), except that nobody can know the
messages yet. A wrong solution must fail in one of the tasks that it names, a right one ("task: none")
must pass everything, the lab's program included. One line each tells what the tests said about it, so
that a reader can see whether the mistake is named.

BUILD_FOLDER/mutation/NN_name/set/messages/ENTRY.txt has all that the tests said.

usage: judge_set.py NN_name BUILD_FOLDER FILE [ENTRY ...]
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import sys
from pathlib import Path

from judging import ROOT, build_all, fails, solution_of

sys.path.insert(0, str(ROOT / "scripts"))
from lab_code import changed_source, read_mutants  # noqa: E402


def is_right(mutant) -> bool:
    return mutant.tasks == ["none"]


def chosen(text: str, entries: list[str], tasks: list[str]):
    """The entries of a set, or those with the given names. Raises ValueError."""
    mutants = read_mutants(text)
    if unknown := set(entries) - {mutant.name for mutant in mutants}:
        raise ValueError(f"it has no entry '{min(unknown)}'")
    mutants = [mutant for mutant in mutants if not entries or mutant.name in entries]
    for mutant in mutants:
        if not is_right(mutant) and (not mutant.tasks or set(mutant.tasks) - set(tasks)):
            raise ValueError(f"{mutant.name} needs a line 'task: TASK', one of {', '.join(tasks)}, or none if it is right")
        if not mutant.edits:
            raise ValueError(f"{mutant.name} changes nothing")
    if not mutants:
        raise ValueError("it has no entries; tests/grading/mutants.h shows one")
    return mutants


def write_sources(mutants, solution: Path, folder: Path) -> None:
    """Raises ValueError if one does not fit the solution."""
    text = solution.read_text()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.cpp"):
        old.unlink()
    for mutant in mutants:
        (folder / f"{mutant.name}.cpp").write_text(changed_source(text, mutant))


def first_message(report: Path) -> str:
    """What the tests said first about what is wrong."""
    lines = [line.strip() for line in report.read_text(errors="replace").splitlines() if line.strip()]
    failed = [line for line in lines if not line.endswith("(passed)")]
    return next((line for line in failed if not re.match(r"task \w+ · (?!.*not graded)", line)), "")


def judge(mutant, verdict: Path, implementation: Path, messages: Path) -> tuple[bool, str]:
    """Whether the verdict is the right one, and a line about it."""
    if not implementation.exists():
        return False, "does not compile, see below"
    report = messages / f"{mutant.name}.txt"
    if is_right(mutant):
        failed = fails(verdict, implementation, report, "*")
        return not failed, f"right, but loses points: {first_message(report)}" if failed else "keeps all points"
    own = ":".join(f"Task{task}.*" for task in mutant.tasks)
    tasks = f"task {' and '.join(mutant.tasks)}"
    if fails(verdict, implementation, report, own):
        return True, f"{tasks}: {first_message(report)}"
    if fails(verdict, implementation, report, f"-{own}"):
        return False, f"{tasks} passes; only another fails: {first_message(report)}"
    return False, f"{tasks} passes, and so does all else"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab")
    parser.add_argument("build", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("entries", nargs="*")
    options = parser.parse_args()

    number = options.lab.split("_")[0]
    solution = solution_of(options.lab)
    build = options.build.resolve()
    folder = build / "mutation" / options.lab / "set"
    messages = folder / "messages"
    messages.mkdir(parents=True, exist_ok=True)
    try:
        points = json.loads((ROOT / "labs" / options.lab / "points.json").read_text())
        tasks = [task["id"] for task in points["tasks"]]
        mutants = chosen(options.file.read_text(encoding="utf-8"), options.entries, tasks)
        write_sources(mutants, solution, folder / "sources")
    except (OSError, ValueError) as error:
        print(f"error: {options.file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    said = build_all(build, solution, folder / "sources", folder / "objects")
    for beside in ("solution.so", "rehearsal.so"):  # where the test of the program looks for them
        shared = build / "implementations" / f"lab{number}" / beside
        if shared.exists():
            shutil.copy(shared, folder / "objects")
    verdict = build / "bin" / f"lab{number}_verdict"

    def run(mutant):
        return judge(mutant, verdict, folder / "objects" / f"{mutant.name}.so", messages)

    counts = {True: [0, 0], False: [0, 0]}  # by "is right": as they should be, all
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, (good, what) in zip(mutants, pool.map(run, mutants)):
            print(f"{'ok  ' if good else 'HOLE'}  {mutant.name}: {what}", flush=True)
            counts[is_right(mutant)][0] += good
            counts[is_right(mutant)][1] += 1
    if said:
        print(said.strip()[-2000:], file=sys.stderr)
    wrong, right = counts[False], counts[True]
    print(f"lab {number}: {wrong[0]} of {wrong[1]} wrong solutions lose points in their task, "
          f"{right[0]} of {right[1]} right ones keep all")
    return 0 if wrong[0] == wrong[1] and right[0] == right[1] else 1


if __name__ == "__main__":
    sys.exit(main())

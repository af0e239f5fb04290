#!/usr/bin/env python3
"""Which part includes which, as docs/architecture.md says.

    library  <-  run  <-  tools, train and the labs' main.cpp        gpu implements interfaces of the library

No circle between folders; contracts and solutions include only the library; only tests include
tests/. Prints each include that breaks a rule, and exits with 1 if there is one.
"""
import collections
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = {"comm", "data", "io", "model", "ops", "optim", "pipeline", "tensor"}
MAY_INCLUDE = {
    "library": {"library"},
    "run": {"library", "run"},
    "tools": {"library", "run", "tools"},
    "gpu": {"library", "gpu"},
    "lab": {"library", "lab"},
    "program": {"library", "run", "lab", "program"},
    "train": {"library", "run", "tools", "lab", "train"},
    "tests": {"library", "run", "tools", "gpu", "lab", "tests"},
}
# Kernels are launched on the stream that the library uses.
CUDA_LAB = {"common/gpu/cuda/launch.h", "common/gpu/cuda/stream.h"}


def part(path):
    """The part of the house that a file belongs to."""
    names = path.split("/")
    if names[0] == "common":
        return "library" if len(names) == 2 or names[1] in LIBRARY else names[1]
    if names[0] in ("labs", "solutions"):
        return "program" if names[-1].startswith("main") else "lab"
    return names[0]


def includes():
    """(file, what it includes), both relative to the root."""
    for top in ("common", "labs", "solutions", "tests", "train"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix in (".h", ".cpp", ".cu"):
                text = file.read_text(encoding="utf-8", errors="replace")
                for included in re.findall(r'^#include "((?:common|labs|tests|train)/[^"]+)"', text, re.M):
                    yield str(file.relative_to(ROOT)), included


def circles(graph):
    """Each strongly connected group of more than one folder."""
    def reachable(start):
        seen, open_ = set(), [start]
        while open_:
            for folder in graph[open_.pop()] - seen:
                seen.add(folder)
                open_.append(folder)
        return seen

    reach = {folder: reachable(folder) for folder in list(graph)}
    return {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in reach if a in reach[a]}


def main():
    wrong = []
    graph = collections.defaultdict(set)
    count = 0
    for file, included in includes():
        count += 1
        if not (ROOT / included).is_file():
            wrong.append(f"{file} includes {included}, which does not exist")
        allowed = MAY_INCLUDE.get(part(file))
        if allowed is None:
            wrong.append(f"{file} lies in a part that docs/architecture.md does not have")
        elif part(included) not in allowed and not (
            "/01cuda_kernels/" in file and included in CUDA_LAB
        ):
            wrong.append(f"{file} ({part(file)}) must not include {included} ({part(included)})")
        here, there = os.path.dirname(file), os.path.dirname(included)
        if here != there and here.startswith("common/"):
            graph[here].add(there)
    for circle in circles(graph):
        wrong.append("folders include each other in a circle: " + ", ".join(sorted(circle)))
    if count < 1000:
        wrong.append(f"only {count} includes found: is this the workbook?")
    print("\n".join(wrong) or f"{count} includes keep to the rules")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""./workbook submit N...: the students' files of some labs as an archive that ./workbook grade takes.

    submit.py ROOT BUILD FILE... [--out ARCHIVE] [--force]    FILE: labs/02_gradient_allreduce/gradient_allreduce.cpp

Next to the files the archive has submission.json: of each file its hash and the points of its last test, and which
version of the workbook tested it. They tell what the student saw; only a grader's own test counts. Refuses a file that
was not tested as it is now, unless --force.
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True  # the folder may be read-only
from grade_files import read_files
from grade_submissions import Submission

ROW = re.compile(r"^  (\w+) +(\S.*?) +(\d+)/(\d+) +\S", re.M)  # of the table in tests/grading/score.cpp


class Problem(Exception):
    """What is wrong, and what to do: one line."""


def number_of(file):
    return file.split("/")[1].split("_")[0]


def verdict(build, number, option):
    program = build / "bin" / f"lab{number}_verdict"
    if not program.exists():
        return "not tested yet"
    environment = {name: value for name, value in os.environ.items() if name != "LAB_SEED"}
    return subprocess.run([program, option], env=environment, capture_output=True, text=True, check=False).stdout


def points(build, number, force):
    """The points by task of the file as it is now; None if they are not known."""
    state = verdict(build, number, "--brief").strip()
    if not re.fullmatch(r"\d+/\d+ points", state):
        if force:
            return None
        what = {"does not compile": "the file does not compile", "not tested yet": "the file was not tested"}
        if state.startswith("changed"):
            what[state] = "the file has changed since its last test"
        raise Problem(f"lab {number}: {what.get(state, state or 'its points cannot be read')}: "
                      f"./workbook test {number.lstrip('0')} first, or submit it as it is with --force")
    rows = ROW.findall(verdict(build, number, "--score"))
    return {task: {"points": int(reached), "max": int(most)} for task, _, reached, most in rows}


def version(root):
    """Of the workbook that has tested the files."""
    release = root / "reference/release.json"
    if release.exists():
        return {"workbook": json.loads(release.read_text(encoding="utf-8"))["commit"], "released": True}
    found = subprocess.run(["git", "-C", root, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True,
                           check=False)
    return {"workbook": found.stdout.strip() or "unknown", "released": False}


def described(root, build, files, force):
    """submission.json."""
    labs = {}
    for file in files:
        number = number_of(file)
        tasks = points(build, number, force)
        labs[number] = {"file": file, "sha256": hashlib.sha256((root / file).read_bytes()).hexdigest(),
                        "tested": tasks is not None, "tasks": tasks or {}}
        for key in ("points", "max"):
            labs[number][key] = sum(task[key] for task in (tasks or {}).values())
    return {**version(root), "labs": labs}


def write(archive, contents):
    """The same files make the same archive."""
    with open(archive, "wb") as stream, gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def check(archive, files):
    """That grade takes them: what it would say about a file is said here."""
    submission = Submission("", archive)
    read_files(submission, {number_of(file): file for file in files})
    if submission.problems:
        raise Problem("; ".join(submission.problems.values()))


def main():
    parser = argparse.ArgumentParser(prog="./workbook submit", usage="%(prog)s N... [--out ARCHIVE] [--force]")
    parser.add_argument("root", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--force", action="store_true", help="even files that changed since their last test")
    options = parser.parse_args()
    files = sorted(set(options.files))
    about = described(options.root, options.build, files, options.force)
    out = options.out or options.root / f"submission-{'-'.join(map(number_of, files))}.tar.gz"
    if not out.name.endswith((".tar.gz", ".tgz")):
        raise Problem(f"--out {out}: the archive's name must end in .tar.gz")
    contents = {file: (options.root / file).read_bytes() for file in files}
    if not out.parent.is_dir():
        raise Problem(f"--out {out}: there is no folder {out.parent}")
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".submission.") as folder:
        archive = Path(folder) / out.name
        write(archive, {**contents, "submission.json": json.dumps(about, indent=2).encode() + b"\n"})
        check(archive, files)
        archive.replace(out)
    print(f"{os.path.relpath(out)}, tested with workbook {about['workbook']}:")
    for lab in about["labs"].values():
        reached = f"{lab['points']}/{lab['max']}" if lab["tested"] else "not tested"
        print(f"  {lab['file']}  {reached}  sha256 {lab['sha256'][:12]}")


if __name__ == "__main__":
    try:
        main()
    except (Problem, OSError) as problem:
        sys.exit(f"error: {problem}")

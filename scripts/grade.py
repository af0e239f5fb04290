#!/usr/bin/env python3
"""./workbook grade: grades a class.

Usage: grade.py BUILD PATH... [--labs 01-03] [--out FOLDER] [--seed S] [--jobs J] [--no-sandbox]
  BUILD   a configured build folder
  PATH    a submission (a folder, .zip or .tar.gz), or a .csv with rows of name and path

Only the students' files are taken from a submission (grade_files.py). Each is compiled and judged in a sandbox
(grade_sandbox.py), with tests and points of this workbook. The verdict programs decide; this one adds up and reports
(grade_report.py).
"""
import argparse
import hashlib
import json
import os
import queue
import re
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import grade_report
from grade_files import GradeError, printable, read_files, submissions
from grade_sandbox import Kit, Sandbox, built_labs, why_not

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "Program"  # kProgramTask of tests/grading/program_run.h
NOT_GRADED = 3       # exit code of verdicts, and of this program


class Lab:
    """Tasks and points of a lab, and the file that students write."""

    def __init__(self, number):
        self.number = number
        self.folder = next(ROOT.glob(f"labs/{number}_*")).name
        self.path = f"labs/{self.folder}/{self.folder.split('_', 1)[1]}.cpp"
        self.tasks = json.loads((ROOT / "labs" / self.folder / "points.json").read_text(encoding="utf-8"))["tasks"]
        self.has_program = (ROOT / "tests/labs" / self.folder / "program.cpp").exists()


def graded_labs():
    """The labs with points, without those of kernels."""
    return {path.parent.name.split("_")[0] for path in ROOT.glob("labs/[0-9][0-9]_*/points.json")}


def chosen_labs(text):
    """Of "01-03,5": the labs, in order."""
    order = sorted(graded_labs())
    labs = set()
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", part.strip())
        if not ends:
            raise GradeError(f"--labs: '{part}' is no lab; such as 01-03 or 1,2")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        found = [lab for lab in order if first <= int(lab) <= last]
        if f"{first:02}" not in order or f"{last:02}" not in order or not found:
            raise GradeError(f"--labs: '{part}' is not among the labs with points, {order[0]} to {order[-1]}")
        labs.update(found)
    return sorted(labs)


class Grader:
    """Grades submissions; results by lab and task are dictionaries that are also kept as JSON.

    Of a lab: hash, points, max, and tasks, each with id, title, points, max, graded, passed, message.
    """

    def __init__(self, build, labs, options, folder):
        self.build, self.options, self.folder = build, options, folder
        self.labs = [Lab(number) for number in labs]
        (folder / "kit").mkdir()
        self.kit = Kit(build, folder / "kit", {lab.number: lab.path for lab in self.labs})
        self.slots = queue.SimpleQueue()
        for slot in range(options.jobs):
            self.slots.put(slot)
        self.harness = {lab.number: self.fingerprint(lab) for lab in self.labs}
        self.solutions = {}  # whether the solution is graded, by lab and task
        self.lock = threading.Lock()

    def fingerprint(self, lab):
        """Of what judges: a result is kept as long as this stays the same."""
        programs = [self.build / "bin" / f"lab{lab.number}_verdict", self.kit.folder / f"lab{lab.number}_ranks",
                    ROOT / "labs" / lab.folder / "points.json"]
        return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in programs))

    def grade(self, submission, known):
        """The results of a submission by lab; `known` are those of an earlier run."""
        results = {}
        slot = self.slots.get()
        try:
            for lab in self.labs:
                source = submission.files.get(lab.number)
                if source is None:
                    why = submission.problems.get(lab.number, f"{lab.path} is missing")
                    results[lab.number] = result_of(lab, "", [(False, why)] * len(lab.tasks))
                    continue
                digest = self.harness[lab.number].copy()
                digest.update(f"{self.options.seed} {self.options.no_sandbox} ".encode() + source)
                before = known.get(lab.number, {})
                if before.get("hash") == digest.hexdigest() and all(task["graded"] for task in before["tasks"]):
                    results[lab.number] = before
                    continue
                with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as work:
                    judged = self.judged(lab, source, Path(work), slot)
                results[lab.number] = result_of(lab, digest.hexdigest(), judged)
        finally:
            self.slots.put(slot)
        return results

    def judged(self, lab, source, work, slot):
        """(passed, message) of each task; passed is None if the harness failed."""
        sandbox = Sandbox(self.build, self.kit, slot, not self.options.no_sandbox)
        work.chmod(0o755)
        for folder in ("results", "tmp"):
            (work / folder).mkdir()
        if error := sandbox.compile(work, lab.number, source):
            return [(False, f"the file does not compile: {error}")] * len(lab.tasks)
        for name in ("solution", "rehearsal"):
            shared = self.build / "implementations" / f"lab{lab.number}" / f"{name}.so"
            if shared.exists():
                shutil.copyfile(shared, work / shared.name)
        sandbox.rank_script(work, lab.number)
        judged = [self.task(sandbox, work, lab, task["id"]) for task in lab.tasks]
        # As in tests/grading/score.cpp: if parts that passed fail together, the last task has no points.
        if lab.has_program and all(passed for passed, _ in judged):
            judged[-1] = self.task(sandbox, work, lab, PROGRAM)
        return judged

    def task(self, sandbox, work, lab, task):
        outcome = (None, "")
        for _ in range(2):
            outcome = self.verdict(sandbox, work, lab, task, "student")
            if outcome[0] is not None:
                return outcome
        # Is it the harness, or does the file disturb it?
        key = (lab.number, task)
        with self.lock:
            works = self.solutions.get(key)
        if not works:
            works = self.verdict(sandbox, work, lab, task, "solution")[0] is not None
            with self.lock:
                self.solutions[key] = works
        if works:
            return False, f"the test could not run with this file, twice, but with the solution: {outcome[1]}"
        return outcome

    def verdict(self, sandbox, work, lab, task, name):
        results = work / "results" / (f"seed{self.options.seed}" if self.options.seed != 1 else ".")
        file = results / f"{task}.json"
        file.unlink(missing_ok=True)
        if name == "solution":  # as the student's file, which the sandbox shows
            shutil.copyfile(work / "student.so", work / "submitted.so")
            shutil.copyfile(work / "solution.so", work / "student.so")
        try:
            arguments = ["--implementation", str(work / "student.so")]
            arguments += ["--program"] if task == PROGRAM else ["--task", task]
            status, output = sandbox.judge(work, lab.number, arguments, self.options.seed)
        finally:
            if name == "solution":
                os.replace(work / "submitted.so", work / "student.so")
        if status is None:
            return None, "the test did not end"
        try:
            result = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            lines = output.strip().splitlines() or [f"the test ended with status {status}"]
            return None, lines[-1][:500]
        if result["not_graded"] or result["tests"] == 0:
            return None, (result["not_graded"] or "no test ran")[:500]
        messages = list(dict.fromkeys(failure["message"] for failure in result["failures"]))
        return result["passed"], "\n\n".join(messages)[:8000]


def result_of(lab, digest, judged):
    tasks = [{"id": task["id"], "title": task["title"], "points": task["points"] if passed else 0,
              "max": task["points"], "graded": passed is not None, "passed": bool(passed), "message": message}
             for task, (passed, message) in zip(lab.tasks, judged)]
    return {"hash": digest, "tasks": tasks, "points": sum(task["points"] for task in tasks),
            "max": sum(task["max"] for task in tasks)}


def in_words(results):
    """lab 01 70/100, lab 02 not graded"""
    words = []
    for lab, result in results.items():
        graded = all(task["graded"] for task in result["tasks"])
        words.append(f"lab {lab} " + (f"{result['points']}/{result['max']}" if graded else "not graded, run again"))
    return ", ".join(words)


def first_problem(results):
    """In one line, for a submission that could not be judged as it should have been."""
    for result in results.values():
        messages = {task["message"].split("\n")[0] for task in result["tasks"]}
        if len(messages) == 1 and not result["points"] and (message := messages.pop()):
            return f" ({printable(message)})"
    return ""


def read_known(file):
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def grade_class(grader, found, out):
    """Results by submission, in the order of `found`, which are also in OUT/NAME."""
    results = {}
    begin = time.monotonic()

    def one(submission):
        folder = out / submission.name
        folder.mkdir(exist_ok=True)
        result = grader.grade(submission, read_known(folder / "tasks.json"))
        grade_report.write_submission(folder, submission.name, result, grader.labs)
        return result

    workers = ThreadPoolExecutor(grader.options.jobs)
    try:
        jobs = {workers.submit(one, submission): submission.name for submission in found}
        for count, job in enumerate(as_completed(jobs), 1):
            results[jobs[job]] = job.result()
            left = (time.monotonic() - begin) / count * (len(found) - count)
            rest = f", {left / 60:.0f} min left" if left > 90 else ""
            print(f"[{count}/{len(found)}{rest}] {jobs[job]}: {in_words(results[jobs[job]])}"
                  f"{first_problem(results[jobs[job]])}", flush=True)
    finally:
        workers.shutdown(cancel_futures=True)
    return {submission.name: results[submission.name] for submission in found}


def print_table(results, labs):
    width = max(len(name) for name in results)
    print("\n" + "submission".ljust(max(width, 10)) + "".join(f"  lab {lab.number}" for lab in labs) + "   total")
    for name, result in results.items():
        cells, total = [], 0
        for lab in labs:
            graded = all(task["graded"] for task in result[lab.number]["tasks"])
            cells.append(f"{result[lab.number]['points']:>8}" if graded else "       ?")
            total += result[lab.number]["points"]
        print(name.ljust(max(width, 10)) + "".join(cells) + ("       ?" if "?" in "".join(cells) else f"{total:>8}"))


def parsed():
    parser = argparse.ArgumentParser(prog="./workbook grade", usage="%(prog)s PATH... [options]",
                                     description="Grades submissions: folders, .zip, .tar.gz, or a .csv of name,path.")
    parser.add_argument("build", help=argparse.SUPPRESS, type=Path)
    parser.add_argument("paths", metavar="PATH", nargs="+")
    parser.add_argument("--labs", help="such as 01-03 or 1,2 (default: those whose files were submitted)")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path("grades"),
                        help="for the results (default: grades); results there are not made again")
    parser.add_argument("--seed", type=int, default=1, help="draws other scenarios (default: the students')")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="submissions at once (default: one per core)")
    parser.add_argument("--no-sandbox", action="store_true", help="without bubblewrap: with limits only")
    options = parser.parse_args()
    if options.jobs < 1 or options.seed < 1:
        parser.error("--jobs and --seed are at least 1")
    return options


def main():
    options = parsed()
    found = submissions(options.paths)
    if not found:
        raise GradeError("there are no submissions")
    if not options.no_sandbox and (reason := why_not()):
        raise GradeError(f"there is no sandbox for students' programs: {reason}. --no-sandbox runs them without: "
                         "do that only in a container or an account that holds nothing else")
    labs = chosen_labs(options.labs) if options.labs else sorted(graded_labs())
    for submission in found:
        read_files(submission, {lab: Lab(lab).path for lab in labs})
    if not options.labs:
        labs = [lab for lab in labs if any(lab in one.files or lab in one.problems for one in found)]
        # An unreadable archive says nothing about labs.
        labs = [lab for lab in labs if any(lab in one.files for one in found)] or labs
    if not labs:
        raise GradeError(f"no submission has a lab's file, such as {Lab(min(graded_labs())).path}")
    built_labs(options.build, labs)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GradeError(f"--out {options.out}: {error.strerror}") from None
    how = "without a sandbox" if options.no_sandbox else "each in a sandbox"
    print(f"{len(found)} submissions, labs {' '.join(labs)}, {how}", flush=True)
    with tempfile.TemporaryDirectory(prefix="workbook-grade.", ignore_cleanup_errors=True) as scratch:
        Path(scratch).chmod(0o755)
        grader = Grader(options.build.resolve(), labs, options, Path(scratch))
        results = grade_class(grader, found, options.out)
    grade_report.write_class(options.out, results, grader.labs)
    print_table(results, grader.labs)
    print(f"\n{options.out}: results.csv, junit.xml, index.html; of each submission results.json and index.html")
    if any(not task["graded"] for result in results.values() for lab in result.values() for task in lab["tasks"]):
        print("some tasks are not graded, because the harness failed: run again, which grades only these")
        return NOT_GRADED
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GradeError as problem:
        sys.exit(f"error: {problem}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on with the submissions that are left")

#!/usr/bin/env python3
"""./workbook grade: a small class with right, wrong and hostile submissions of lab 02 gets the right points, twice.

Usage: grade_test.py BUILD, the build folder of this workbook, in which lab 02 has been built. Exits with 77, after
saying why, where bubblewrap cannot run.
"""
import contextlib
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import grade  # noqa: E402
import grade_files  # noqa: E402
import grade_given  # noqa: E402
import grade_sandbox  # noqa: E402
import grade_submissions  # noqa: E402
import hostile_submissions as hostile  # noqa: E402
from grade_submissions import GradeError  # noqa: E402
from grade_test_class import FILE, SOLUTION, Class  # noqa: E402


def run(paths, out, *options):
    """(exit code, what it prints) of the command; lab 02 has been built already."""
    output = io.StringIO()
    sys.argv = ["grade.py", str(BUILD), *map(str, paths), "--labs", "2", "--jobs", "2", "--out", str(out), *options]
    grade.built_labs = lambda *_: None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = grade.main()
    return code, output.getvalue()


def totals(out):
    with open(out / "results.csv", newline="", encoding="utf-8") as stream:
        return {row["submission"]: row["total"] for row in csv.DictReader(stream)}


def messages(out, name):
    tasks = json.loads((out / name / "tasks.json").read_text(encoding="utf-8"))["02"]["tasks"]
    return [task["message"] for task in tasks]


def running(mark):
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark in process.read_bytes().decode(errors="replace").split("\0")[0]:
                found.append(process.parent.name)
    return found


class GradeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="grade-test.")
        cls.folder = Path(cls.scratch.name)
        cls.mark = f"left-{os.getpid()}"
        (cls.folder / "class").mkdir()
        cls.students = Class(cls.folder / "class", BUILD, cls.mark)
        cls.first = cls.folder / "first"
        cls.code, cls.output = run(cls.students.paths(), cls.first)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def deserved(self):
        return {name: str(points) for name, points in self.students.deserved.items()}

    def test_points_twice(self):
        self.assertEqual(self.code, 0, self.output)
        self.assertEqual(totals(self.first), self.deserved(), self.output)
        names = ("solution", "starter.zip", "wrong_shard.tar.gz")
        code, output = run([self.students.folder / name for name in names], self.folder / "second", "--seed", "7")
        self.assertEqual(code, 0, output)
        self.assertEqual(totals(self.folder / "second"), {"solution": "100", "starter": "0", "wrong_shard": "75"}, output)

    def test_reasons(self):
        for name, reason in {"nothing": "it is empty", "huge": "larger than 1 MiB", "latin1": "is not UTF-8",
                             "link": "is a symbolic link", "climbs": "leaves the archive",
                             "two_files": "several files", "broken": "not a readable zip archive",
                             "notes.pdf": "not a folder, .zip, .tar.gz or the file of a lab", "cut": "not a readable .tar.gz archive",
                             "includes": "No such file", "password": "No such file", "exits": "exit code 0",
                             "backslashes": "below backslashes", "uploaded": "in an upload",
                             "starter": "is not written yet", "given": "set_given", "names_correct": "given_3"}.items():
            self.assertIn(reason, messages(self.first, name)[0], name)

    def test_sandbox(self):
        attacks = "\n".join(sum((messages(self.first, name) for name in ("attacks", *hostile.THEFTS)), []))
        self.assertNotIn(hostile.SUCCESS, attacks)
        self.assertNotIn("root:x:0", attacks)
        self.assertIn("visible: nothing\n", messages(self.first, "intruder")[1] + "\n")
        self.assertEqual(running(self.mark), [])
        for path in (ROOT, ROOT / "labs", BUILD, Path("/usr"), Path("/")):
            self.assertFalse((path / "written").exists())
        self.assertFalse(Path("/tmp", self.mark).exists())

    def test_correct_functions_are_hidden(self):
        """A rank program exports none of them, and a copy for a job has those that the job is given, and no other."""
        for program in sorted((BUILD / "bin").glob("lab*_ranks")):
            exported = grade_given.printed_by("nm", "-DC", "--defined-only", program)
            self.assertEqual(re.findall(r"^\w+ [A-Z] .*(?:given_|correct_|::correct::|lab::grading::\w+\().*", exported, re.M), [])
            given = set(re.findall(r'is_given\("(\w+)"\)', "".join(
                file.read_text(encoding="utf-8") for file in ROOT.glob(f"tests/labs/{program.name[3:-6]}_*/rank*.cpp"))))
            found = grade_given.given_code(program)
            self.assertEqual(set().union(*(tasks for tasks, _, _ in found)), given, program)
        program, stripped = BUILD / "bin/lab02_ranks", self.folder / "copies/lab02_ranks"
        stripped.parent.mkdir()
        subprocess.run(["strip", "-o", stripped, program], check=True)
        whole = stripped.read_bytes()
        grade_given.write_copies(program, stripped)
        self.assertEqual((stripped.parent / "lab02_ranks.3").read_bytes(), whole)
        changed = sum(a != b for a, b in zip(whole, stripped.read_bytes()))
        size = sum(size for _, _, size in grade_given.given_code(program))
        self.assertTrue(0.9 * size < changed <= size, (changed, size))

    def test_reports(self):
        good = json.loads((self.first / "solution/results.json").read_text(encoding="utf-8"))
        self.assertEqual((good["score"], sum(test["score"] for test in good["tests"])), (100, 100))
        bad = json.loads((self.first / "wrong_shard/results.json").read_text(encoding="utf-8"))
        failed = [test for test in bad["tests"] if test["status"] == "failed"]
        self.assertEqual([(test["name"], test["score"], test["max_score"]) for test in failed],
                         [("lab 02, task 2: shard", 0, 25)])
        suites = ElementTree.parse(self.first / "junit.xml").getroot()
        self.assertEqual({suite.get("name"): suite.get("failures") for suite in suites}["wrong_shard"], "1")
        self.assertIn("wrong_shard/index.html", (self.first / "index.html").read_text(encoding="utf-8"))

    def test_goes_on_where_it_stopped(self):
        """What has been graded is not graded again; a list names submissions."""
        judged = grade.Grader.judged
        again = self.folder / "again"
        shutil.copytree(self.first, again)
        grade.Grader.judged = lambda *_: self.fail("graded again")
        try:
            code, _ = run([self.students.folder / "solution"], again, "--replace")
            self.assertEqual(code, 0)
        finally:
            grade.Grader.judged = judged
        grade.Grader.judged = lambda _, lab, source, *__: [(source == SOLUTION.encode(), "")] * len(lab.tasks)
        try:
            run([self.students.folder / "list.csv"], self.folder / "listed")
        finally:
            grade.Grader.judged = judged
        self.assertEqual(totals(self.folder / "listed"), {"Zoë_listed": "100"})

    def test_failures_of_the_harness(self):
        """They are no verdict about a submission, and there is a second try."""
        tries = []

        def failing(self, sandbox, work, lab, task, name):
            tries.append((task, name))
            return None, "no temporary folder"

        verdict, grade.Grader.verdict = grade.Grader.verdict, failing
        check = grade.check_solutions
        try:
            with self.assertRaisesRegex(GradeError, "the solution itself cannot be graded in task 1 of lab 02, so nothing"):
                run([self.students.folder / "solution"], self.folder / "failed")
            tries.clear()
            grade.check_solutions = lambda *_: None
            code, output = run([self.students.folder / "solution"], self.folder / "failed")
        finally:
            grade.Grader.verdict, grade.check_solutions = verdict, check
        self.assertEqual(tries[:3], [("1", "student"), ("1", "student"), ("1", "solution")])
        self.assertEqual(code, grade.NOT_GRADED)
        self.assertIn("not graded, run again", output)
        self.assertEqual(totals(self.folder / "failed"), {"solution": "not graded"})
        result = json.loads((self.folder / "failed/solution/results.json").read_text(encoding="utf-8"))
        self.assertFalse(any("score" in test for test in [result, *result["tests"]]))

    def test_bombs(self):
        """An archive is unpacked up to a limit."""
        self.students.add_tar("zeros", {"zeros": "0" * (3 << 20)}, 0)
        submission = grade_submissions.submission("zeros.tar.gz", self.students.folder)
        limit, grade_files.UNPACKED = grade_files.UNPACKED, 2 << 20
        try:
            grade_files.read_files(submission, {"02": FILE})
        finally:
            grade_files.UNPACKED = limit
            submission.path.unlink()
            del self.students.deserved["zeros"]
        self.assertIn("more than 2 MiB", submission.problems["02"])


if __name__ == "__main__":
    if reason := grade_sandbox.why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main()

#!/usr/bin/env python3
"""./workbook grade: repositories, terms of a course, and the tables for course platforms. No verdict is run here:
a file has the points of the tasks that it names ("passes 1 2").

Usage: grade_course_test.py BUILD, a configured build folder.
"""
import contextlib
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
import grade  # noqa: E402
import grade_cgroup  # noqa: E402
import grade_course  # noqa: E402
import grade_git  # noqa: E402
import grade_judge  # noqa: E402
import grade_sandbox  # noqa: E402
import grade_similar  # noqa: E402
from grade_submissions import GradeError  # noqa: E402
from lab_numbers import parse_labs  # noqa: E402

FILE = "labs/02_gradient_allreduce/gradient_allreduce.cpp"
DEADLINE = datetime(2026, 10, 16, 23, 59, tzinfo=timezone.utc)
SANDBOX = not grade_sandbox.why_not()
NUMBER = {"type": "number"}
VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
FORMAT = {"enum": ["text", "html", "simple_format", "md", "ansi"]}
# https://gradescope-autograders.readthedocs.io/en/latest/specs/, "Output format".
GRADESCOPE = {
    "type": "object", "additionalProperties": False,
    "anyOf": [{"required": ["score"]}, {"required": ["tests"]}],
    "properties": {
        "score": NUMBER, "execution_time": NUMBER, "output": {"type": "string"}, "output_format": FORMAT,
        "test_output_format": FORMAT, "test_name_format": FORMAT, "visibility": VISIBILITY,
        "stdout_visibility": VISIBILITY, "extra_data": {"type": "object"}, "leaderboard": {"type": "array"},
        "tests": {"type": "array", "items": {
            "type": "object", "additionalProperties": False,
            "properties": {
                "score": NUMBER, "max_score": NUMBER, "status": {"enum": ["passed", "failed"]},
                "name": {"type": "string"}, "name_format": FORMAT, "number": {"type": "string"},
                "output": {"type": "string"}, "output_format": FORMAT, "visibility": VISIBILITY,
                "tags": {"type": "array", "items": {"type": "string"}}, "extra_data": {"type": "object"}}}}}}


def judged(_, lab, source, *__):
    passed = re.findall(r"passes ([\w ]*)", source.decode())
    return [(task["id"] in passed[0].split(), "passed" if task["id"] in passed[0].split() else "is wrong")
            for task in lab.tasks] if passed else [(None, "no folder")] * len(lab.tasks)


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended


def git(folder, *words, when=DEADLINE):
    environment = os.environ | {"GIT_AUTHOR_DATE": when.isoformat(), "GIT_COMMITTER_DATE": when.isoformat(),
                                "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "init.defaultBranch=main",
                    "-c", "protocol.file.allow=always", *words],
                   cwd=folder, env=environment, check=True, capture_output=True)


class GradeCourseTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="grade-course-test.")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        before = grade.Grader.judged
        grade.Grader.judged = judged
        self.addCleanup(setattr, grade.Grader, "judged", before)
        self.addCleanup(setattr, grade_judge, "Kit", grade_judge.Kit)
        grade_judge.Kit = lambda _, folder, __: SimpleNamespace(folder=folder)  # so no lab has to be built
        self.addCleanup(setattr, grade, "check_solutions", grade.check_solutions)
        grade.check_solutions = lambda *_: None

    def student(self, name, text="passes 1 2 3 4 5", when=DEADLINE):
        """A repository with one commit."""
        folder = self.folder / name
        (folder / FILE).parent.mkdir(parents=True)
        (folder / FILE).write_text(text, encoding="utf-8")
        git(folder, "init")
        git(folder, "add", ".")
        git(folder, "commit", "-m", "lab 2", when=when)
        return folder

    def grade(self, *words, labs=("--labs", "2"), code=0):
        """(what the command prints, results of lab 02 by name)"""
        output, out = io.StringIO(), self.folder / "grades"
        sys.argv = ["grade.py", str(BUILD), *map(str, words), *labs, "--jobs", "2", "--out", str(out)]
        if not SANDBOX:
            sys.argv.append("--no-sandbox")
        grade.built_labs = lambda *_: None
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            self.assertEqual(grade.main(), code)
        return output.getvalue(), {file.parent.name: json.loads(file.read_text(encoding="utf-8"))["02"]
                                   for file in out.glob("*/tasks.json")}

    def table(self, name):
        with open(self.folder / "grades" / name, newline="", encoding="utf-8") as stream:
            return list(csv.reader(stream))

    def test_numbers_of_labs(self):
        known = ["01", "01cuda", "02", "03", "05"]
        for text, labs in {"1": "01", "01-03,5": "01 02 03 05", "1cuda,1": "01 01cuda", "01-01cuda": "01 01cuda",
                           "3, 02": "02 03"}.items():
            self.assertEqual(parse_labs(text, known), labs.split(), text)
        for text, reason in {"4": "no lab '4'", "2-1": "ends before", "": "no lab ''", "1-": "no lab ''", "x": "no lab 'x'",
                             "2cuda": "no lab '2cuda'"}.items():
            with self.assertRaisesRegex(ValueError, reason):
                parse_labs(text, known)

    def test_repositories(self):
        """A commit counts, of any kind of repository, and nothing in it is run."""
        ann = self.student("ann", "passes 1")
        git(ann, "branch", "early")
        (ann / FILE).write_text("passes 1 2", encoding="utf-8")
        git(ann, "commit", "-am", "more")
        git(self.folder, "clone", "--bare", "ann", "carl.git")
        (ann / FILE).write_text("passes 1 2 3", encoding="utf-8")
        mark = self.folder / "run"
        program = self.folder / "program"
        program.write_text(f"#!/bin/sh\necho x >>'{mark}'\ncat\n", encoding="utf-8")
        program.chmod(0o755)
        for hook in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change"):
            shutil.copy(program, ann / ".git/hooks" / hook)
        for setting in ("core.fsmonitor", "filter.x.smudge", "filter.x.clean", "uploadpack.packObjectsHook",
                        "core.sshCommand", "core.pager", "core.alternateRefsCommand"):
            git(ann, "config", setting, str(program))
        (ann / ".git/info").mkdir(exist_ok=True)
        (ann / ".git/info/attributes").write_text("* filter=x", encoding="utf-8")
        mark.unlink(missing_ok=True)
        output, results = self.grade(ann, f"{ann}#early", f"file://{self.folder}/carl.git", f"{ann}#nothing")
        points = {name: result["points"] for name, result in results.items()}
        self.assertEqual(points, {"ann": 35, "ann_2": 10, "carl": 35, "ann_3": 0})
        self.assertIn("changes that are not committed", output)
        self.assertIn("no commit 'nothing'", output)
        self.assertFalse(mark.exists())
        (ann / FILE).write_bytes(b"passes 1 2\r\n")  # as git for Windows checks it out
        git(ann, "config", "core.autocrlf", "true")
        git(ann, "-c", "core.fsmonitor=false", "-c", "filter.x.clean=cat", "commit", "-am", "lines")
        self.assertNotIn("not committed", self.grade(ann, "--replace")[0])

    def test_not_committed(self):
        """What was never added to git is not graded, and the reason says so."""
        ann = self.student("ann")
        other = "labs/03_weight_aggregation/weight_aggregation.cpp"
        (ann / other).parent.mkdir()
        (ann / other).write_text("passes 1", encoding="utf-8")
        output, _ = self.grade(ann, labs=("--labs", "2,3"))
        self.assertIn(f"{other} exists, but is not committed", output)

    def test_hostile_repositories(self):
        links, empty, deep = self.student("links"), self.folder / "empty", self.student("deep")
        (links / FILE).unlink()
        (links / FILE).symlink_to("/etc/passwd")
        git(links, "commit", "-am", "link")
        empty.mkdir()
        git(empty, "init")
        git(deep, "submodule", "add", str(links), "sub")
        git(deep, "commit", "-am", "sub")
        shutil.copytree(deep, self.folder / "broken")
        for pack in (self.folder / "broken/.git/objects").glob("[0-9a-f][0-9a-f]"):
            shutil.rmtree(pack)
        borrowed = self.student("borrowed")  # its objects are those of another repository
        shutil.rmtree(borrowed / ".git/objects")
        (borrowed / ".git/objects/info").mkdir(parents=True)
        (borrowed / ".git/objects/info/alternates").write_text(f"{deep}/.git/objects\n", encoding="utf-8")
        before = grade_git.SECONDS
        grade_git.SECONDS = 5
        try:
            output, results = self.grade(links, empty, deep, self.folder / "broken", borrowed,
                                         "ssh://-oProxyCommand=touch%20x/y", "https://127.0.0.1:1/x.git",
                                         "file:///nowhere/at/all.git", code=grade.NOT_GRADED)
        finally:
            grade_git.SECONDS = before
        self.assertEqual({name for name, result in results.items() if result["points"]}, {"deep"} if SANDBOX else
                         {"deep", "borrowed"})
        for reason in ("is a symbolic link", "has no commits", "cannot be cloned"):
            self.assertIn(reason, output)

    def test_lateness(self):
        course = grade_course.Course({"02": grade_course.Terms(DEADLINE)}, percent=25, grace=15, max_days=3)
        for hours, expected in {-1: (0, 1), 0: (0, 1), 0.25: (0, 1), 0.3: (1, 0.75), 24.25: (1, 0.75), 24.3: (2, 0.5),
                                72.25: (3, 0.25), 73: (4, 0)}.items():
            self.assertEqual(course.lateness("02", DEADLINE + timedelta(hours=hours), "Ann"), expected, hours)
        self.assertEqual(course.lateness("01", DEADLINE + timedelta(days=9), "Ann"), (0, 1))

    def test_terms(self):
        """A list's time counts before that of the commit, and this one before that of the file."""
        self.student("ann", when=DEADLINE + timedelta(hours=1))
        self.student("bob", "passes 1 2", when=DEADLINE + timedelta(hours=30))
        self.student("eve", "passes none", when=DEADLINE + timedelta(hours=30))
        (self.folder / "plain").mkdir()
        (self.folder / "plain/gradient_allreduce.cpp").write_text("passes 1 2 3 4 5", encoding="utf-8")
        late = (DEADLINE + timedelta(days=7, hours=1)).timestamp()
        os.utime(self.folder / "plain/gradient_allreduce.cpp", (late, late))
        (self.folder / "class.csv").write_text(
            "name,path,submitted,email,id,login\n"
            f"Ann A.,ann,{DEADLINE.isoformat()},ann@uni.edu,100,aa1\n=Bob,bob,,bob@uni.edu,101,bb2\nEve,eve,,,,\n"
            "Plain,plain,,,,\n", encoding="utf-8")
        (self.folder / "course.toml").write_text(
            "[late]\npercent_per_day = 10\ngrace_minutes = 15\nmax_days = 7\n[lab.02]\nweight = 40\n"
            "deadline = 2026-10-16T23:59:00Z\npoints = {1 = 35, 2 = 0}\n", encoding="utf-8")
        output, results = self.grade(self.folder / "class.csv", "--course", self.folder / "course.toml", labs=())
        seen = {name: (result["points"], result["max"], result["time_source"], result["days_late"], result["counts"])
                for name, result in results.items()}
        self.assertEqual(seen, {"Ann_A": (100, 100, "list", 0, 40), "_Bob": (35, 100, "commit", 2, 11.2),
                                "Eve": (0, 100, "commit", 2, 0), "Plain": (100, 100, "file", 8, 0)})
        self.assertIn("_Bob: lab 02 35/100 (2 d late: 28)", output)
        moodle = self.table("moodle.csv")
        self.assertEqual(moodle[0], ["Name", "Email address", "ID number", "Lab 02", "Lab 02 feedback"])
        self.assertEqual(moodle[1], ["Ann A.", "ann@uni.edu", "100", "100", "all tasks passed"])
        self.assertEqual(moodle[2][:4], ["'=Bob", "bob@uni.edu", "101", "28"])
        self.assertIn("3: is wrong\n", moodle[2][4])
        self.assertIn("2 days late", moodle[2][4])
        page = (self.folder / "grades/Ann_A/index.html").read_text(encoding="utf-8")
        self.assertIn(f"<p>{FILE}, handed in 2026-", page)
        self.assertIn(", as the list says</p>", page)
        canvas = self.table("canvas.csv")
        self.assertEqual(canvas[:3], [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Lab 02"],
                                      ["    Points Possible", "", "", "", "", "100"],
                                      ["Ann A.", "", "100", "aa1", "", "100"]])
        self.assertIn("<h2>Lab 02: 28/100 (35 before 20 % off: 2 days late)</h2>\n<p>counts 11.2 of 40 in the total",
                      (self.folder / "grades/_Bob/index.html").read_text(encoding="utf-8"))
        self.assertIn("<p>Total: 40/40</p>", page)
        self.assertIn('/index.html">Ann A.</a>', (self.folder / "grades/index.html").read_text(encoding="utf-8"))
        self.assertIn("lab 02/40   total/40\n", output)
        header, _, bob = self.table("results.csv")[:3]
        self.assertEqual(list(zip(header, bob))[-6:],
                         [("02 days late", "2"), ("02 points", "28"), ("02 max", "100"), ("02 counts", "11.2"),
                          ("total", "11.2"), ("total max", "40")])

    def test_evidence(self):
        """The page says what it takes to see the grade again; a grade that is kept has its own time."""
        ann = self.student("ann")
        self.grade(ann, "--seed", "7")
        file = self.folder / "grades/ann/tasks.json"
        known = json.loads(file.read_text(encoding="utf-8"))
        evidence = known["02"]["evidence"]
        self.assertEqual(evidence["file"], hashlib.sha256((ann / FILE).read_bytes()).hexdigest())
        commit = subprocess.check_output(["git", "-C", ann, "rev-parse", "HEAD"], text=True).strip()
        self.assertEqual(evidence["commit"], commit)
        known["02"]["evidence"]["graded"] = "2026-10-17T08:00:00+02:00"
        file.write_text(json.dumps(known), encoding="utf-8")
        self.grade(ann, "--seed", "7")
        page = (self.folder / "grades/ann/index.html").read_text(encoding="utf-8")
        self.assertIn("graded 2026-10-17T08:00:00+02:00 with seed 7 by the workbook&#x27;s commit", page)
        self.assertIn(f"of commit {commit}: {evidence['file']}", page)
        self.grade(ann, "--seed", "8")
        self.assertNotIn("2026-10-17T08", file.read_text(encoding="utf-8"))
        with mock.patch.dict(os.environ, {"PATH": ""}):
            self.assertEqual(grade_judge.workbook_commit(), "unknown")

    def test_times_of_labs(self):
        """A column for a lab counts before the one for all; an extension is a deadline of a student's own."""
        for name in ("ann", "bob", "eve"):
            self.student(name)
        days = [(DEADLINE + timedelta(days=count)).isoformat() for count in range(4)]
        (self.folder / "class.csv").write_text(
            f"name,path,submitted,submitted_2,submitted_03\nAnn,ann,{days[3]},{days[0]},\n"
            f"Bob Bell,bob,,{days[2]},\nEve,eve,{days[1]},,{days[3]}\n", encoding="utf-8")
        course = f"[late]\npercent_per_day = 10\n[lab.02]\ndeadline = {days[0]}\n[lab.02.extension]\n"
        (self.folder / "course.toml").write_text(f'{course}"Bob Bell" = {days[1]}\n', encoding="utf-8")
        words = self.folder / "class.csv", "--course", self.folder / "course.toml"
        output, _ = self.grade(*words, "--list", labs=())
        self.assertIn(", 1 d late, extension\n", output)
        _, results = self.grade(*words, labs=())
        self.assertEqual({name: (result["days_late"], result["score"], result["extension"])
                          for name, result in results.items()},
                         {"Ann": (0, 100, ""), "Bob_Bell": (1, 90, days[1]), "Eve": (1, 90, "")})
        page = (self.folder / "grades/Bob_Bell/index.html").read_text(encoding="utf-8")
        self.assertIn(f"extension: until {days[1]}", page)
        self.assertIn(f"extension: until {days[1]}", self.table("moodle.csv")[2][4])
        self.assertIn(days[1], self.table("results.csv")[2])
        for line, reason in {f'"Bob" = {days[1]}': "no submission has this name",
                             f'"Bob Bell" = {days[0]}': "later than the deadline", "Eve = 3": "Eve has a date"}.items():
            (self.folder / "course.toml").write_text(course + line, encoding="utf-8")
            with self.subTest(line), self.assertRaisesRegex(GradeError, reason):
                self.grade(*words, labs=())

    def test_by_hand(self):
        """Points given by hand replace those of the tests, are late like these, and are told with their reason."""
        for name in ("ann", "bob"):
            self.student(name, "passes 1 2", when=DEADLINE + timedelta(hours=1))
        (self.folder / "class.csv").write_text("name,path\nAnn,ann\nBob Bell,bob\n", encoding="utf-8")
        course = "[late]\npercent_per_day = 10\n[lab.02]\ndeadline = 2026-10-16T23:59:00Z\n[lab.02.by_hand]\n"
        (self.folder / "course.toml").write_text(f'{course}"Bob Bell" = {{3 = 20, 1 = 5, why = "one <typo>"}}\n',
                                                 encoding="utf-8")
        words = self.folder / "class.csv", "--course", self.folder / "course.toml"
        for _ in range(2):  # the second run takes the verdicts of the first
            _, results = self.grade(*words, labs=())
            self.assertEqual({name: (result["points"], result["score"]) for name, result in results.items()},
                             {"Ann": (35, 31.5), "Bob_Bell": (50, 45)})
        said = "by hand: 20 points for 3, 5 points for 1 (one "
        self.assertIn(f"{said}&lt;typo&gt;)", (self.folder / "grades/Bob_Bell/index.html").read_text(encoding="utf-8"))
        self.assertIn(f"{said}<typo>)", self.table("moodle.csv")[2][4])
        self.assertIn(f"lab 02: {said}", (self.folder / "grades/Bob_Bell/results.json").read_text(encoding="utf-8"))
        (self.folder / "course.toml").write_text(course, encoding="utf-8")
        self.assertEqual(self.grade(*words, labs=())[1]["Bob_Bell"]["score"], 31.5)
        for line, reason in {'Bob = {1 = 5, why = "x"}': "by_hand for 'Bob', but no submission has this name",
                             '"Ann" = {1 = 11, why = "x"}': "1 = 11 must be a number, from 0 to 10",
                             '"Ann" = {1 = 5}': "names a task and says why", '"Ann" = {why = "x"}': "names a task",
                             '"Ann" = {9 = 1, why = "x"}': "no key '9'", '"Ann" = 3': "Ann must be a table"}.items():
            (self.folder / "course.toml").write_text(course + line, encoding="utf-8")
            with self.subTest(line), self.assertRaisesRegex(GradeError, reason):
                self.grade(*words, labs=())

    def test_list(self):
        """What was handed in, when, and how late; nothing is graded."""
        zone = timezone(timedelta(hours=5))
        late = DEADLINE + timedelta(hours=30)
        self.student("late", when=late)
        self.student("starter", (ROOT / FILE).read_text(encoding="utf-8"))
        (self.folder / "empty").mkdir()
        (self.folder / "list.csv").write_text(
            f"name,path,submitted\nAnn,late,{DEADLINE.astimezone(zone).isoformat()}\n"
            "Bob,late#main,\nCid,starter,\nDan,empty,\n", encoding="utf-8")
        (self.folder / "course.toml").write_text(f"[lab.02]\ndeadline = {DEADLINE.isoformat()}\n", encoding="utf-8")
        output, results = self.grade(self.folder / "list.csv", "--course", self.folder / "course.toml", "--list", labs=())
        self.assertEqual(results, {})
        self.assertFalse((self.folder / "grades").exists())
        lines = output.splitlines()
        self.assertEqual(lines[1:5], ["submission   lab 02", "Ann          2026-10-17 04:59+05:00",
                                      f"Bob          {late:%Y-%m-%d %H:%M}+00:00, 2 d late (commit)",
                                      "Cid          the starter"])
        self.assertEqual(lines[5:], ["Dan          none", "Dan: no file of these labs was handed in: it is empty"])

    def test_nothing_usable(self):
        """Of a folder or archive without any file of the labs, the reason says what is in it."""
        with zipfile.ZipFile(self.folder / "none.zip", "w"):
            pass
        with zipfile.ZipFile(self.folder / "else.zip", "w") as archive:
            archive.writestr("report.pdf", "")
        (self.folder / "zero.tar.gz").touch()
        (self.folder / "folder").mkdir()
        (self.folder / "folder/gradient_allreduce (1).cpp").write_text("passes 1", encoding="utf-8")
        names = [self.folder / name for name in ("none.zip", "else.zip", "folder", "zero.tar.gz")]
        for output in (self.grade(*names, "--list")[0], self.grade(*names)[0]):
            for line in ("none: no file of these labs was handed in: it is empty\n",
                         "zero: zero.tar.gz is empty: it has no bytes\n",
                         "else: no file of these labs was handed in: only report.pdf\n",
                         "folder: no file of these labs was handed in: only gradient_allreduce (1).cpp\n"):
                self.assertIn(line, output)

    def test_gradescope(self):
        """Results have the documented form; what is not graded has no score."""
        try:
            import jsonschema  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("python3-jsonschema is not installed")
        self.grade(self.student("ann", "passes 1"), self.student("eve", "the harness fails"), code=grade.NOT_GRADED)
        for name, score in (("ann", 10), ("eve", None)):
            result = json.loads((self.folder / "grades" / name / "results.json").read_text(encoding="utf-8"))
            jsonschema.validate(result, GRADESCOPE)
            self.assertEqual(result.get("score"), score)
            self.assertEqual(any("score" in test for test in result["tests"]), score is not None)
        self.assertEqual([row[5] for row in self.table("canvas.csv")], ["Lab 02", "100", "10", ""])

    def test_labs_that_nobody_has_begun(self):
        ann = self.student("ann")
        for lab in ("01_single_gpu/single_gpu.cpp", "01cuda_kernels/kernels.cu"):
            (ann / "labs" / lab).parent.mkdir()
            shutil.copy(ROOT / "labs" / lab, ann / "labs" / lab)
        git(ann, "add", ".")
        git(ann, "commit", "-m", "starters")
        self.assertIn("1 submission, lab 02,", self.grade(ann, labs=())[0])

    def test_what_to_look_at(self):
        """Submissions with a problem, and pages of earlier runs, are listed; a page says each thing once."""
        self.student("ann", "passes 1")
        (self.folder / "bob.rar").write_bytes(b"Rar!")
        shutil.copy(self.student("cid") / FILE, self.folder / Path(FILE).name)
        (self.folder / "list.csv").write_text("name;path\nAnn Ä.;ann\n", encoding="utf-8")
        self.grade(self.folder / "list.csv")
        page = (self.folder / "grades/Ann_Ä/index.html").read_text(encoding="utf-8")
        self.assertIn("<h1>Ann Ä.</h1>", page)
        self.assertIn("Tasks 2, 3, 4, 5", page)
        self.assertEqual(page.count("is wrong"), 1)
        with self.assertRaisesRegex(GradeError, "the tables in .* also have Ann_Ä: name all submissions"):
            self.grade(self.folder / "bob.rar")
        output, results = self.grade(self.folder / "bob.rar", self.folder / Path(FILE).name, "--replace")
        self.assertEqual({name: result["points"] for name, result in results.items() if name != "Ann_Ä"},
                         {"bob.rar": 0, Path(FILE).name: 100})
        self.assertIn("look at these first:\n  bob.rar: bob.rar is not a folder", output)
        self.assertIn("in none of the tables: Ann_Ä", output)

    def test_remarks_of_labs(self):
        """Each follows its lab, and names it among those to look at first."""
        ann = self.student("ann")
        (ann / FILE).write_bytes(b"\xff")
        other = "labs/03_weight_aggregation/weight_aggregation.cpp"
        (ann / other).parent.mkdir()
        (ann / other).write_text("passes 1a", encoding="utf-8")
        shutil.rmtree(ann / ".git")
        output, _ = self.grade(ann, labs=("--labs", "1-3"))
        self.assertRegex(output, r": lab 01 not handed in, lab 02 0/100 \(.* not UTF-8 .*\), lab 03 [1-9]\d*/100\n")
        self.assertRegex(output, r"look at these first:\n  ann, lab 02: .* is not UTF-8")

    def test_nothing_handed_in(self):
        """No points, in all tables, and apart from what went wrong."""
        (self.folder / "list.csv").write_text(f"name,path,id\nAnn,{self.student('ann')},7\nBob,,8\nCid,,9\n",
                                              encoding="utf-8")
        output, results = self.grade(self.folder / "list.csv", labs=("--labs", "2,3"))
        self.assertEqual(results["Bob"]["tasks"][0]["message"], "nothing was handed in")
        self.assertEqual([row[2:6] for row in self.table("moodle.csv")[2:]],
                         [[number, "0", "nothing was handed in", "0"] for number in "89"])
        self.assertIn("\nnot handed in: Ann (03), Bob (02 03), Cid (02 03)\n", output)
        self.assertNotIn("look at these first", output)
        self.assertIn("Bob          none", self.grade(self.folder / "list.csv", "--list")[0])

    def test_teams(self):
        self.student("ann")
        (self.folder / "list.csv").write_text("Ann,ann\nBob,./ann\n", encoding="utf-8")
        output, results = self.grade(self.folder / "list.csv")
        self.assertRegex(output, r"line 1 \(Ann\) and .*line 2 \(Bob\) have the same path: are they a team\?")
        self.assertEqual(sorted(results), ["Ann", "Bob"])

    def test_unreachable(self):
        """What cannot be fetched is not graded, and has no points that could be taken for a verdict."""
        (self.folder / "list.csv").write_text(
            f"name,path,id\nAnn,{self.student('ann')},7\nBob,file://{self.folder}/moved.git,8\n", encoding="utf-8")
        output, _ = self.grade(self.folder / "list.csv", code=grade.NOT_GRADED)
        header, *rows = self.table("results.csv")
        self.assertEqual([row[:4] for row in [header, *rows]],
                         [["submission", "name", "id", "02.1"], ["Ann", "Ann", "7", "10"], ["Bob", "Bob", "8", ""]])
        self.assertEqual([row[-2] for row in rows], ["100", "not graded"])
        with self.assertRaisesRegex(GradeError, "no submission has a file .*cannot be cloned"):
            self.grade(f"file://{self.folder}/moved.git", labs=())
        self.assertRegex(output, "look at these first:\n  Bob: the repository cannot be cloned: fatal: .*moved.git")

    def test_one_run_at_a_time(self):
        with grade.claimed(self.folder / "grades"), self.assertRaisesRegex(GradeError, "another ./workbook grade"):
            self.grade(self.student("ann"))
        self.grade(self.folder / "ann")

    def test_scratch_folder(self):
        """Other accounts cannot read it; what a killed run has left is removed, what another run uses is not."""
        left, used, new = (self.folder / f"{grade.SCRATCH}{name}" for name in ("left", "used", "new"))
        for folder in (left, used, new):
            folder.mkdir()
        for folder in (left, used):
            os.utime(folder, (0, 0))
        self.addCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = str(self.folder)
        with grade.locked(used), grade.scratch_folder(False) as scratch:
            self.assertEqual(scratch.stat().st_mode & 0o777, 0o700)
            self.assertEqual([folder.exists() for folder in (left, used, new)], [False, True, True])
        with grade.scratch_folder(True) as scratch:
            self.assertEqual(scratch.stat().st_mode & 0o777, 0o711)

    def test_interrupted(self):
        """No table of an earlier run is left that could be taken for this one's."""
        ann = self.student("ann")
        self.grade(ann)
        self.addCleanup(setattr, grade, "grade_class", grade.grade_class)

        def interrupt(*_):
            raise KeyboardInterrupt
        grade.grade_class = interrupt
        with self.assertRaises(KeyboardInterrupt):
            self.grade(ann)
        self.assertEqual([path.name for path in (self.folder / "grades").glob("*.*")], [])

    @unittest.skipUnless(shutil.which("sim_c++"), "similarity-tester is not installed")
    def test_similar(self):
        source = (ROOT / "solutions/02_gradient_allreduce/gradient_allreduce.cpp").read_text(encoding="utf-8")
        renamed = re.sub(r"\b(gradients|world|ranks)\b", r"my_\1", source).replace("// ", "// Own words: ")
        own = next(ROOT.glob("solutions/05_*/*.cpp")).read_text(encoding="utf-8")
        starter = (ROOT / FILE).read_text(encoding="utf-8")
        for name, text in (("ann", source), ("bob", renamed), ("eve", own), ("cid", starter), ("dan", starter + "\n\n")):
            self.student(name, text + "// passes 1\n")
        output, _ = self.grade(*(self.folder / name for name in ("ann", "bob", "eve", "cid", "dan")), "--similar")
        self.assertRegex(output, r"similar, lab 02:\n *\d+ %  (ann  bob|bob  ann)\n")
        self.assertNotRegex(output, r"%.*(eve|cid|dan)")
        output, _ = self.grade(self.folder / "eve", "--replace")
        self.assertIn("similar.csv is that of an earlier run", output)
        self.assertEqual(len(self.table("similar.csv")), 2)
        # Of earlier years, only what resembles a submission of this year is listed.
        output, _ = self.grade(self.folder / "eve", "--earlier", self.folder / "ann", self.folder / "bob")
        self.assertNotIn("%", output)
        output, _ = self.grade(self.folder / "ann", "--replace", "--earlier", self.folder / "bob", self.folder / "eve",
                               f"file://{self.folder}/moved.git")
        self.assertIn("note: earlier/moved is compared with nothing: the repository cannot be cloned", output)
        header, *pairs = self.table("similar.csv")
        self.assertEqual(header, ["lab", "percent", "submission", "other"])
        self.assertEqual([(row[0], set(row[2:])) for row in pairs], [("02", {"ann", "earlier/bob"})])

    def test_groups(self):
        """Files that pairs connect; of many pairs, only the most similar are shown."""
        pairs = [(90, "a", "b"), (80, "x", "y"), (75, "d", "c"), (70, "c", "b")]
        self.assertEqual(grade_similar.groups(pairs), [("a", "b", "c", "d")])
        self.assertEqual(grade_similar.in_lines(pairs)[:2], ["4 files are alike: a, b, c, d", " 90 %  a  b"])
        many = [(60, "a", f"b{i}") for i in range(grade_similar.MOST + 2)]
        self.assertEqual(grade_similar.in_lines(many)[-2:], [" 60 %  a  b29", "and 2 more pairs in similar.csv"])

    def test_control_group(self):
        """All that a command starts is in the group, and ends with it."""
        root = grade_cgroup.root_group()
        if root is None or not os.access(root, os.W_OK):
            self.skipTest("this account can make no control group of version 2")
        name = f"left-{os.getpid()}"
        with grade_cgroup.control_group({}) as prefix:
            group = Path(prefix[-1]).parent
            script = f"setsid bash -c 'exec -a {name} sleep 900' & exec -a {name} sleep 900"
            process = subprocess.Popen([*prefix, "bash", "-c", script])
            end = time.monotonic() + 30
            while len((group / "cgroup.procs").read_text(encoding="utf-8").split()) < 2 and time.monotonic() < end:
                time.sleep(0.01)
            self.assertIn(str(process.pid), (group / "cgroup.procs").read_text(encoding="utf-8").split())
        self.assertEqual(process.wait(30), -9)
        self.assertFalse(group.exists())
        running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if name.encode() in read(path)]
        self.assertEqual(running, [])
        with grade_cgroup.control_group({"no-such-controller.max": 1}) as prefix:
            self.assertEqual(prefix, [])

    def test_wrong_input(self):
        ann = self.student("ann")
        for text, reason in {"[lab.99]\n": "the labs with points are", "[late]\nper_day = 1\n": "no key 'per_day'",
                             "[lab.02]\ndeadline = 2026-10-16\n": "a date, a time", "x": "key/value",
                             "[lab.02]\nweight = -1\n": "must be a number", "[late]\npercent_per_day = 300\n": "from 0 to 100", "[lab.02]\nweight = true\n": "must be a number",
                             "[lab.02]\npoints = {9 = 1}\n": "no key '9'", "lab = 2\n": "lab must be a table"}.items():
            (self.folder / "course.toml").write_text(text, encoding="utf-8")
            with self.subTest(text), self.assertRaisesRegex(GradeError, reason):
                self.grade(ann, "--course", self.folder / "course.toml")
        for text, labs in {"[lab.01]\nweight = 1\n[lab.02]\n": (), "[lab.01]\nweight = 1\n": ("--labs", "1,2")}.items():
            (self.folder / "course.toml").write_text(text, encoding="utf-8")
            with self.subTest(text), self.assertRaisesRegex(GradeError, "lab.02 no weight, but lab.01 has one"):
                self.grade(ann, "--course", self.folder / "course.toml", labs=labs)
        for text, reason in {"name,path,grade\n": "no column 'grade'",
                             "name,path,submitted_99\n": "no column 'submitted_99'",
                             "name,path,submitted_2,submitted_02\n": "two columns are named 'submitted_02'",
                             "ann\n": "needs a name and a path", "name,path\n,ann\n": "line 2 needs a name",
                             "name,path,submitted\nann,ann,yesterday\n": "is not a time",
                             "name,path\n\nann,an\n": "line 3: .*'an' must be", "who,where\nann,ann\n": "name,path and",
                             "ann,ann\n\nAnn,ann#x\n":
                                 r"list.csv, line 1 \(ann\) and .*list.csv, line 3 \(Ann\) have the same name",
                             "A B,ann\nA:b,ann#x\n": "have the same folder for results, 'a_b'",
                             "name,path,email\nA,ann,a@b.c\nB,ann#x,A@b.c\n": "have the same email, 'a@b.c'",
                             "name,path,id\nA,ann,7\nB,ann#x,7\n": "have the same id, '7'",
                             "name,path,login\nA,ann,a\nB,ann#x,a\n": "have the same login, 'a'"}.items():
            (self.folder / "list.csv").write_text(text, encoding="utf-8")
            with self.subTest(text), self.assertRaisesRegex(GradeError, reason):
                self.grade(self.folder / "list.csv")
        (self.folder / "list.csv").write_bytes("name,path\nBöll,ann\n".encode("latin-1"))
        with self.assertRaisesRegex(GradeError, "is not UTF-8"):
            self.grade(self.folder / "list.csv")
        with self.assertRaisesRegex(GradeError, "--labs: there is no lab '99'"):
            self.grade(ann, labs=("--labs", "99"))


if __name__ == "__main__":
    unittest.main()

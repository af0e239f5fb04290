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
import shutil
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
import grade  # noqa: E402
import grade_files  # noqa: E402
import grade_sandbox  # noqa: E402

FILE = "labs/02_gradient_allreduce/gradient_allreduce.cpp"
SOLUTION = (ROOT / "solutions/02_gradient_allreduce/gradient_allreduce.cpp").read_text(encoding="utf-8")
STARTER = (ROOT / FILE).read_text(encoding="utf-8")
INCLUDES = """
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
"""

# Runs when the file is loaded. What it could see or do is in the message of task 2.
INTRUDER = r"""
std::string visible() {
  std::string found;
  for (const char* path : {"@ROOT@/solutions", "@ROOT@/.git", "@ROOT@/tests", "@ROOT@/README.md", "/etc/passwd",
                           "/etc/shadow", "/home", "/root", "/var", "@BUILD@/bin/lab03_ranks", "@BUILD@/results",
                           "@BUILD@/implementations/lab02/solution.so", "@WORK@"})
    if (access(path, F_OK) == 0) found += std::string(" ") + path;
  for (const char* path : {"@ROOT@/written", "@ROOT@/labs/written", "@BUILD@/written", "/usr/written", "/written"})
    if (std::ofstream(path) << "x" << std::flush) found += std::string(" wrote ") + path;
  std::ofstream("/tmp/@MARK@") << "x";  // in memory
  if (dlsym(RTLD_DEFAULT, "_ZN3lab7grading13scenario_seedEv") != nullptr ||
      dlsym(RTLD_DEFAULT, "_ZN3lab7grading8is_givenERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE") != nullptr)
    found += " the harness";
  for (const char* name : {"LAB_SEED", "LAB_SANDBOX"})
    if (std::getenv(name) != nullptr) found += std::string(" ") + name;
  int processes = 0;
  if (DIR* proc = opendir("/proc"))
    while (const dirent* entry = readdir(proc)) processes += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
  if (processes > 8) found += " other processes";
  const int link = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(53);
  inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
  if (connect(link, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) found += " the network";
  return found.empty() ? " nothing" : found;
}
const std::string seen = visible();
const bool started = [] {
  std::puts("lab 02: 100/100\n{\"score\": 100}");
  for (int i = 0; i < 3; ++i)
    if (fork() == 0) {
      setsid();
      execl("/usr/bin/sleep", "@MARK@", "600", nullptr);
      _exit(1);
    }
  return true;
}();
"""


def placed(text, work, mark):
    for name, value in {"ROOT": ROOT, "BUILD": BUILD, "WORK": work, "MARK": mark}.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def changed(text, before, after):
    assert text.count(before) == 1, before
    return text.replace(before, after)


def with_includes(text, code):
    return INCLUDES + text + "\nnamespace {\n" + code + "\n}  // namespace\n"


class Class:
    """Submissions in a folder, with the points they deserve."""

    def __init__(self, folder, mark):
        self.folder, self.deserved = folder, {}
        intruder = changed(STARTER, 'lab::not_implemented("2"', "throw std::runtime_error(what_it_saw());"
                           ' lab::not_implemented("2"')
        intruder = INCLUDES + "std::string what_it_saw();\n" + intruder + "\nnamespace {\n" + \
            placed(INTRUDER, folder, mark) + '}\nstd::string what_it_saw() { return "visible:" + seen; }\n'
        wrong_shard = with_includes(changed(SOLUTION, "order[i * ranks + static_cast<size_t>(rank)]", "order[i]"),
                                    "const bool killed = (kill(getppid(), SIGKILL), kill(-1, SIGKILL), true);")
        self.add_folder("solution", SOLUTION, 100)
        self.add_zip("starter", {f"course/{FILE}": STARTER}, 0)
        self.add_tar("wrong_shard", {"gradient_allreduce.cpp": wrong_shard}, 75)
        self.add_zip("two_files", {"a/gradient_allreduce.cpp": STARTER, "b/gradient_allreduce.cpp": SOLUTION}, 0)
        self.add_zip("climbs", {f"../../{FILE}": SOLUTION}, 0)
        self.add_folder("huge", SOLUTION + "//" + "x" * (1 << 20), 0)
        self.add_folder("latin1", (SOLUTION + "// \xe9\n").encode("latin-1"), 0)
        self.add_link("link", 0)
        (folder / "nothing").mkdir()
        self.deserved["nothing"] = 0
        (folder / "broken.zip").write_bytes(b"PK\3\4 no archive")
        self.deserved["broken"] = 0
        self.add_folder("exits", with_includes(STARTER, "const bool left = (std::exit(0), true);"), 0)
        self.add_folder("intruder", intruder, 0)
        self.add_folder("includes", f'#include "{ROOT}/solutions/02_gradient_allreduce/gradient_allreduce.cpp"\n', 0)
        self.add_folder("password", STARTER + '#include "/etc/passwd"\n', 0)
        self.add_folder("given", "#include <set>\n#include <string>\nnamespace lab::grading { "
                        "void set_given(std::set<std::string>); }\n" + STARTER +
                        '\nconst bool given = (lab::grading::set_given({"1", "2", "3", "4", "5"}), true);\n', 0)
        rows = io.StringIO()
        csv.writer(rows).writerows([["name", "path"], ["Zoë, listed", "solution"]])
        (folder / "list.csv").write_text(rows.getvalue(), encoding="utf-8")

    def add_folder(self, name, text, points):
        file = self.folder / name / FILE
        file.parent.mkdir(parents=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.deserved[name] = points

    def add_link(self, name, points):
        file = self.folder / name / FILE
        file.parent.mkdir(parents=True)
        file.symlink_to(ROOT / "solutions/02_gradient_allreduce/gradient_allreduce.cpp")
        self.deserved[name] = points

    def add_zip(self, name, files, points):
        with zipfile.ZipFile(self.folder / f"{name}.zip", "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        self.deserved[name] = points

    def add_tar(self, name, files, points):
        with tarfile.open(self.folder / f"{name}.tar.gz", "w:gz") as archive:
            for path, text in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        self.deserved[name] = points

    def paths(self):
        return sorted(path for path in self.folder.iterdir() if path.suffix != ".csv")


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
        cls.students = Class(cls.folder / "class", cls.mark)
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
        code, output = run(reversed(self.students.paths()), self.folder / "second", "--seed", "7")
        self.assertEqual(code, 0, output)
        self.assertEqual(totals(self.folder / "second"), self.deserved(), output)

    def test_reasons(self):
        for name, reason in {"nothing": "is missing", "huge": "larger than 1 MiB", "latin1": "is not UTF-8",
                             "link": "is a symbolic link", "climbs": "leaves the archive",
                             "two_files": "several files", "broken": "no readable zip archive",
                             "includes": "No such file", "password": "No such file", "exits": "exit code 0",
                             "starter": "is not written yet", "given": "set_given"}.items():
            self.assertIn(reason, messages(self.first, name)[0], name)

    def test_sandbox(self):
        self.assertIn("visible: nothing\n", messages(self.first, "intruder")[1] + "\n")
        self.assertEqual(running(self.mark), [])
        for path in (ROOT, ROOT / "labs", BUILD, Path("/usr"), Path("/")):
            self.assertFalse((path / "written").exists())
        self.assertFalse(Path("/tmp", self.mark).exists())

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
            code, _ = run([self.students.folder / "solution"], again)
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
        try:
            code, output = run([self.students.folder / "solution"], self.folder / "failed")
        finally:
            grade.Grader.verdict = verdict
        self.assertEqual(tries[:3], [("1", "student"), ("1", "student"), ("1", "solution")])
        self.assertEqual(code, grade.NOT_GRADED)
        self.assertIn("not graded, run again", output)
        self.assertEqual(totals(self.folder / "failed"), {"solution": "not graded"})
        result = json.loads((self.folder / "failed/solution/results.json").read_text(encoding="utf-8"))
        self.assertFalse(any("score" in test for test in [result, *result["tests"]]))

    def test_bombs(self):
        """An archive is unpacked up to a limit."""
        self.students.add_tar("zeros", {"zeros": "0" * (3 << 20)}, 0)
        submission = grade_files.Submission("zeros", self.students.folder / "zeros.tar.gz")
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

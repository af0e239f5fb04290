#!/usr/bin/env python3
"""`./workbook submit N...` and `./workbook diff N`: what they take and refuse. Nothing is built: a verdict is a script."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from grade_files import read_files  # noqa: E402
from grade_submissions import Submission  # noqa: E402

FILES = {"01": "labs/01_single_gpu/single_gpu.cpp", "01cuda": "labs/01cuda_kernels/kernels.cu",
         "02": "labs/02_gradient_allreduce/gradient_allreduce.cpp"}
SOLUTION = "solutions/02_gradient_allreduce/gradient_allreduce.cpp"
TABLE = """what to fix:
  task 2 · three ranks
    rank 0: the order: 3 of 3 numbers are wrong

lab 02 · gradient all-reduce
  1   broadcast_parameters     10/10   passed
  2   shard                     0/25   2 of 4 tests failed
next: see "Task 2"

lab 02: 10/35
"""


class Loop(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="submit-test.")
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        shutil.copy(ROOT / "workbook", self.root)
        for name in ("scripts", *map(os.path.dirname, [*FILES.values(), SOLUTION]), "labs/00_warmup"):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        git = ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=b"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "labs"], check=True)
        subprocess.run([*git, "commit", "-qm", "labs"], check=True)
        self.commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)[:12]
        for number in FILES:
            self.verdict(number, "10/35 points")

    def verdict(self, number, brief):
        file = self.root / f"build/student/bin/lab{number}_verdict"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/usr/bin/env bash\nif [[ $1 == --brief ]]; then echo '{brief}'; exit; fi\ncat <<'END'\n{TABLE}END\nexit 1\n",
                        encoding="utf-8")
        file.chmod(0o755)

    def workbook(self, *arguments, code=0):
        done = subprocess.run([self.root / "workbook", *arguments], cwd=self.root, capture_output=True,
                              encoding="utf-8", check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code:
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr if code else done.stdout

    def about(self, name):
        with tarfile.open(self.root / name) as tar:
            return tar.getnames(), json.load(tar.extractfile("submission.json"))

    def test_archive(self):
        text = "// A student's file: 70 % of it.\n"
        (self.root / FILES["02"]).write_text(text, encoding="utf-8")
        shown = self.workbook("submit", "2", "1cuda", "1", "2")
        self.assertIn(f"{FILES['02']}  10/35  sha256 ", shown)
        names, about = self.about("submission-01-01cuda-02.tar.gz")
        self.assertEqual(names, [*FILES.values(), "submission.json"])
        self.assertEqual(about["workbook"], self.commit)
        self.assertEqual(about["labs"]["02"]["sha256"], hashlib.sha256(text.encode()).hexdigest())
        self.assertEqual(about["labs"]["02"]["tasks"], {"1": {"points": 10, "max": 10}, "2": {"points": 0, "max": 25}})
        self.assertEqual((about["labs"]["02"]["points"], about["labs"]["02"]["max"]), (10, 35))
        archive = self.root / "submission-01-01cuda-02.tar.gz"
        graded = Submission("", archive)
        read_files(graded, FILES)
        self.assertEqual((graded.problems, graded.files["02"]), ({}, text.encode()))
        before = archive.read_bytes()
        self.workbook("submit", "1", "1cuda", "2")
        self.assertEqual(archive.read_bytes(), before)

    def test_released_copy(self):
        (self.root / "reference").mkdir()
        (self.root / "reference/release.json").write_text('{"commit": "0123456789ab"}', encoding="utf-8")
        self.assertIn("tested with workbook 0123456789ab", self.workbook("submit", "2", "--out", "mine.tgz"))
        self.assertTrue(self.about("mine.tgz")[1]["released"])

    def test_untested(self):
        for brief, why in (("does not compile", "lab 02: the file does not compile"),
                           ("changed since the last test (35/35 points)", "lab 02: the file has changed since"),
                           ("not tested yet", "lab 02: the file was not tested")):
            self.verdict("02", brief)
            self.assertIn(why, self.workbook("submit", "1", "2", code=1))
            self.assertFalse(list(self.root.glob("submission*")))
        self.assertIn("not tested", self.workbook("submit", "2", "--force"))
        self.assertFalse(self.about("submission-02.tar.gz")[1]["labs"]["02"]["tested"])

    def test_refusals(self):
        for words, why, code in ((["submit"], "which labs", 2), (["submit", "0"], "lab 00 has no points", 1),
                                 (["submit", "2", "--out", "mine.zip"], "must end in .tar.gz", 1),
                                 (["submit", "2", "--fast"], "unknown option --fast", 2),
                                 (["diff"], "which lab", 2), (["compare"], "which lab", 2),
                                 (["compare", "0"], "no training step", 1), (["compare", "1cuda"], "no training step", 1),
                                 (["watch"], "which lab", 2), (["watch", "0"], "lab 00 has no tests", 1)):
            self.assertIn(why, self.workbook(*words, code=code))
        # What grade would refuse is refused at once.
        (self.root / FILES["02"]).write_bytes(b"// \xe4\n")
        self.assertIn("is not UTF-8", self.workbook("submit", "2", code=1))
        self.assertFalse(list(self.root.glob("submission*")))

    def test_diff(self):
        self.assertIn("once your file has all points of lab 02. Now: 10/35 points", self.workbook("diff", "2", code=1))
        self.verdict("02", "changed since the last test (35/35 points)")
        self.assertIn("Now: changed since", self.workbook("diff", "2", code=1))
        self.verdict("02", "35/35 points")
        shown = self.workbook("diff", "2")
        for sign, place in (("-", FILES["02"]), ("+", SOLUTION)):
            self.assertIn(f"\n{sign * 3} {'a' if sign == '-' else 'b'}/{place}\n", shown)
        shutil.copy(self.root / SOLUTION, self.root / FILES["02"])
        self.assertIn("your file is the solution", self.workbook("diff", "2"))
        shutil.rmtree(self.root / "solutions")
        self.assertIn("./workbook release --update FOLDER --given 02", self.workbook("diff", "2", code=1))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""`./workbook status N`: what it shows before and after a lab is done, and what it says about a broken file.

The values of all predictions: the handout's table, labs/*/predictions.json, the table in the solution's README.md
and solutions/*/predictions.json have the same ids, units and numbers. Nothing is built: a verdict is a script here.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAB = "02_gradient_allreduce"
FOLDERS = [folder.name for folder in sorted((ROOT / "labs").iterdir())
           if folder.is_dir() and "predictions.json" in (folder / "README.md").read_text(encoding="utf-8")]
VALUES = {folder: json.loads((ROOT / "solutions" / folder / "predictions.json").read_text(encoding="utf-8"))
          for folder in FOLDERS}

TABLE = """lab 02 · gradient all-reduce
  1   shard                     20/20   passed
  2   sum_over_ranks             0/80   not written yet
next: see "Task 2"
"""


def entries(folder):
    """The questions, without answers; the student may have filled them in, or be about to."""
    try:
        found = json.loads((ROOT / "labs" / folder / "predictions.json").read_text(encoding="utf-8"))["predictions"]
        answered = any(entry["answer"] is not None for entry in found)
    except (OSError, ValueError, KeyError) as error:
        if os.environ.get("CI") == "true":
            raise
        raise unittest.SkipTest(f"labs/{folder}/predictions.json has been edited: {error}")
    if answered and os.environ.get("CI") == "true":
        raise AssertionError(f"labs/{folder}/predictions.json: what is published must have no answers")
    return [dict(entry, answer=None, why="") for entry in found]


def rows(file, columns):
    """The cells of the table rows that begin with `| `id` |`, by id."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| `([a-z]\w*)` \|", line):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if len(cells) == columns:
                found[match[1]] = cells
    return found


def plain_unit(unit):
    return unit.split(" (")[0].replace("µs", "us")


class Values(unittest.TestCase):
    def test_handout_file_and_solution_agree(self):
        self.assertGreaterEqual(len(FOLDERS), 8)
        for folder in FOLDERS:
            with self.subTest(folder):
                handout = rows(ROOT / "labs" / folder / "README.md", 3)
                solution = rows(ROOT / "solutions" / folder / "README.md", 4)
                questions = entries(folder)
                ids = [entry["id"] for entry in questions]
                self.assertEqual(ids, list(handout))
                self.assertEqual(ids, list(solution))
                self.assertEqual(ids, list(VALUES[folder]))
                for entry in questions:
                    self.agree(folder, entry, handout[entry["id"]][2], solution[entry["id"]][1])

    def agree(self, folder, entry, asked_unit, answer):
        value = VALUES[folder][entry["id"]]
        place = f"{folder} {entry['id']}"
        self.assertEqual(entry["unit"], plain_unit(asked_unit), place)
        number, _, unit = answer.partition(" ")
        if unit:
            self.assertEqual(entry["unit"], plain_unit(unit), place)
        number = number.replace(",", "").replace("−", "-")
        decimals = len(number.partition(".")[2])
        self.assertEqual(round(value["value"], decimals), float(number), place)
        self.assertIn(value["how"], ("computed", "measured"), place)
        text = (ROOT / "solutions" / folder / "README.md").read_text(encoding="utf-8")
        self.assertIn(f"\n## {value['section']}\n", text, place)

    def test_handouts_name_the_command(self):
        for folder in FOLDERS:
            number = folder.split("_")[0].lstrip("0")
            text = (ROOT / "labs" / folder / "README.md").read_text(encoding="utf-8")
            self.assertIn(f"`./workbook status {number}`", text)


class Status(unittest.TestCase):
    def setUp(self):
        self.questions = entries(LAB)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        shutil.copy(ROOT / "workbook", self.root)
        for name in ("scripts", "labs/00_warmup", f"labs/{LAB}", f"solutions/{LAB}", "solutions/00_warmup"):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.file = self.root / "labs" / LAB / "predictions.json"
        self.answer()

    def answer(self, **answers):
        filled = [dict(entry, answer=answers.get(entry["id"])) for entry in self.questions]
        self.file.write_text(json.dumps({"lab": LAB, "predictions": filled}, indent=2, ensure_ascii=False),
                             encoding="utf-8")

    def verdict(self, brief, table=TABLE):
        file = self.root / "build/student/bin/lab02_verdict"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/usr/bin/env bash\nif [[ $1 == --brief ]]; then echo '{brief}'; exit; fi\n"
                        f"cat <<'END'\n{table}END\nexit 1\n", encoding="utf-8")
        file.chmod(0o755)

    def status(self, *arguments, code=0, path=os.environ["PATH"]):
        """Standard output, or where it must fail standard error, which is one line."""
        done = subprocess.run([self.root / "workbook", "status", *arguments], capture_output=True, encoding="utf-8",
                              env={**os.environ, "COLUMNS": "100", "PATH": path}, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code == 0:
            self.assertEqual(done.stderr, "")
            return done.stdout
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def right_answers(self, **others):
        return {**{identifier: value["value"] for identifier, value in VALUES[LAB].items()}, **others}

    def test_values_stay_hidden_until_the_lab_is_done(self):
        for brief in (None, "not tested yet", "20/100 points", "does not compile"):
            if brief:
                self.verdict(brief)
            # Other numbers than the right ones, which would otherwise be seen among the answers.
            self.answer(**{entry["id"]: 0.5 for entry in self.questions})
            shown = self.status("2")
            self.assertIn(brief or "not tested yet", shown)
            self.assertIn("6 of 6 filled in", shown)
            self.assertIn("the values appear next to your numbers once the lab has all its points", shown)
            for word in ("computed", "measured", "10 %", "55.1", "165.2", "2.33", "times the value", "why:"):
                self.assertNotIn(word, shown)

    def test_counts_answers(self):
        self.assertIn("0 of 6 filled in", self.status("2"))
        self.answer(ring_bytes=0)  # 0 is an answer
        shown = self.status("2")
        self.assertIn("1 of 6 filled in", shown)
        self.assertIn("ring_bytes · you: 0 MB\n", shown)

    def test_comparison_of_a_finished_lab(self):
        self.answer(**self.right_answers(gradient_bytes=45.4, ring_bytes=110, skip=8001, sum_adam=-1, mean_loss=None))
        for brief in ("100/100 points", "changed since the last test (100/100 points)"):
            self.verdict(brief)
            shown = self.status("2")
            for line in ("gradient_bytes · you: 45.4 MB · computed: 41.3 MB · within 10 %\n",
                         "ring_bytes · you: 110 MB · computed: 55.1 MB · not within 10 %: 2 times the value\n",
                         "skip · you: 8,001 · computed: 8,000 · not right: this one is exact\n",
                         "sum_adam · you: -1 (factor) · computed: 1 (factor) · not within 10 %\n",
                         "mean_loss · no answer yet; give one, and the value appears\n",
                         f'why: solutions/{LAB}/README.md, "Section 3 · predictions"\n'):
                self.assertIn(line, shown)

    def test_measured_values_say_so(self):
        file = self.root / "solutions" / LAB / "predictions.json"
        values = json.loads(file.read_text(encoding="utf-8"))
        values["skip"].update(how="measured", section="Section 6.2 · the same step")
        file.write_text(json.dumps(values), encoding="utf-8")
        self.verdict("100/100 points")
        self.answer(**self.right_answers())
        shown = self.status("2")
        self.assertIn("skip · you: 8,000 · measured on another machine: 8,000 · right\n", shown)
        self.assertIn('"Section 3 · predictions"; skip: "Section 6.2 · the same step"\n', shown)

    def test_points_by_task(self):
        self.verdict("20/100 points")
        shown = self.status("2")
        self.assertIn("  1   shard                     20/20   passed\n", shown)
        self.assertNotIn("next:", shown)
        untested = TABLE.replace("passed", "not tested").replace("not written yet", "not tested")
        for brief in ("changed since the last test", "only task 1 tested since the last change: 20 of 20 points"):
            self.verdict(brief, untested)
            self.assertIn("the values appear next to your numbers once", self.status("2"))
        self.verdict("changed since the last test", untested)
        self.assertNotIn("shard ", self.status("2"))

    def test_a_lab_without_points_is_done_with_its_last_answer(self):
        (self.root / "labs" / LAB / "points.json").unlink()
        self.answer(**self.right_answers(skip=None))
        self.assertNotIn("computed", self.status("2"))
        self.answer(**self.right_answers())
        self.assertIn("skip · you: 8,000 · computed: 8,000 · right\n", self.status("2"))

    def test_a_lab_on_paper(self):
        self.assertIn("predictions: on paper", self.status("0"))

    def test_without_solutions(self):
        self.answer(ring_bytes=55)
        self.verdict("100/100 points")
        released = self.root / "reference" / "predictions"
        released.mkdir(parents=True)
        shutil.copy(self.root / "solutions" / LAB / "predictions.json", released / f"{LAB}.json")
        shutil.rmtree(self.root / "solutions")
        shown = self.status("2")
        self.assertIn("computed: 55.1 MB", shown)
        self.assertEqual(shown.count("once your course hands it out"), 1)
        self.verdict("20/100 points")
        self.assertNotIn("computed", self.status("2"))

    def test_without_python(self):
        tools = self.root / "tools"
        tools.mkdir()
        for name in ("bash", "awk", "basename", "dirname", "readlink", "env", "grep"):
            (tools / name).symlink_to(shutil.which(name))
        self.assertIn("sudo apt-get install python3", self.status("2", code=1, path=str(tools)))

    def test_files_that_cannot_be_read(self):
        good = self.file.read_text(encoding="utf-8")
        place = f"labs/{LAB}/predictions.json"
        line = good.split("ring_bytes")[0].count("\n") + 4
        for text, message in (
                (good.replace('"answer": null', '"answer": 41,3', 1), f"{place}, line 8: not valid JSON"),
                (good.replace('"answer": null', '"answer": about 41', 1), f"{place}, line 8: not valid JSON"),
                (good[:-3], "not valid JSON"), ("", "not valid JSON"), ("[" * 100000, "not valid JSON"),
                ("[]", 'no list "predictions"'), ('{"predictions": [1]}', "entry 1 lacks"),
                (good.replace("skip", "skipped"), "there is no question skipped"),
                (good.replace("skip", "ring_bytes"), "two entries ring_bytes"),
                ('{"predictions": []}', "the question gradient_bytes is missing")):
            self.file.write_text(text, encoding="utf-8")
            self.assertIn(message, self.status("2", code=1))
        for answer in ('"41.3 MB"', "true", "NaN", "Infinity", "1e999", "[1]", "1" + "0" * 400, '"two\\nlines"'):
            before, after = good.split("ring_bytes")
            self.file.write_text(f'{before}ring_bytes{after.replace("null", answer, 1)}', encoding="utf-8")
            self.assertIn(f"{place}, line {line}: the answer of ring_bytes is ", self.status("2", code=1))
        self.file.write_bytes(b"\xff\xfe")
        self.assertIn("UTF-8", self.status("2", code=1))
        self.file.unlink()
        self.assertIn(f"{place} is missing: ", self.status("2", code=1))
        self.assertIn("is not the number of a lab", self.status("two", code=2))
        self.assertIn("there is no lab 09", self.status("9", code=1))
        self.assertIn("one lab, or all", self.status("2", "3", code=2))


if __name__ == "__main__":
    unittest.main()

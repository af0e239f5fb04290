#!/usr/bin/env python3
"""`./workbook losses`: the table, what it says of each run, and folders that are no runs."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Losses(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_folder(self, name, losses, more="", **validations):
        """`losses`: one per step, None if it was not logged; `more`: after the last line."""
        folder = self.folder / name
        folder.mkdir()
        records = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1) if loss is not None]
        for record in records:
            if (value := validations.get(f"step_{record['step']}")) is not None:
                record["val_loss"] = value
        (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + more)

    def losses(self, *names):
        run = subprocess.run([sys.executable, ROOT / "scripts/losses.py", *names], cwd=self.folder,
                             capture_output=True, text=True, timeout=60)
        return run.returncode, run.stdout, run.stderr

    def test_digits(self):
        self.run_folder("one", [8.0, 7.0, 6.0, 5.0], step_4=4.5)
        self.run_folder("same", [8.0, 7.0, 6.0, 5.0], step_4=4.5)
        self.run_folder("near", [8.0, 7.0 + 2e-8, 6.0, 5.0 - 3e-6], step_4=4.25)
        status, text, _ = self.losses("one", "same", "near")
        self.assertEqual(status, 0)
        rows = [line.split() for line in text.splitlines()]
        self.assertIn(["step", "one", "same", "near"], rows)
        self.assertIn(["1", "8.000000000000000", "=", "="], rows)
        self.assertIn(["2", "7.000000000000000", "=", "+2.0e-08", "8"], rows)
        self.assertIn(["4", "5.000000000000000", "=", "-3.0e-06", "6"], rows)
        self.assertIn(["validation,", "step", "4", "4.500000000000000", "=", "-2.5e-01", "1"], rows)
        self.assertIn("same: all digits agree in all 4 steps", text)
        self.assertIn("near: all digits agree in 2 of 4 steps, 6 to 8 in the others (6 in step 4)", text)

    def test_the_last_bit_is_a_difference(self):
        self.run_folder("one", [8.392732776378292])
        self.run_folder("other", [8.392732776378294])
        self.assertIn("other: all digits agree in 0 of 1 steps, 15 in the others", self.losses("one", "other")[1])

    def test_only_steps_that_all_have_logged(self):
        self.run_folder("every", [5.0, 4.0, 3.0, 2.0])
        self.run_folder("second", [5.0, None, 3.0, None], more='{"step":5,"lo')  # killed while it wrote
        _, text, _ = self.losses("every", "second")
        self.assertIn("second: all digits agree in all 2 steps", text)
        self.assertIn("--log-every 1", text)
        self.run_folder("other", [None, 4.0])
        status, text, error = self.losses("second", "other")
        self.assertEqual((status, text), (1, ""))
        self.assertIn("no step in common", error)

    def test_a_long_run_shows_some_steps(self):
        self.run_folder("one", [1000.0 - step for step in range(400)])
        self.run_folder("other", [1000.5 - step for step in range(400)])
        _, text, _ = self.losses("one", "other")
        steps = [line.split()[0] for line in text.splitlines() if line.split() and line.split()[0].isdigit()]
        self.assertEqual((len(steps), steps[0], steps[-1]), (25, "1", "400"))
        self.assertIn("in 0 of 400 steps", text)

    def test_what_is_no_run(self):
        self.run_folder("one", [8.0])
        for arguments, message in ((["one"], "which runs?"), (["one", "missing"], "missing has no losses"),
                                   (["one", "."], ". has no losses")):
            status, text, error = self.losses(*arguments)
            self.assertEqual((status, text), (1, ""))
            self.assertIn(message, error)
            self.assertEqual(error.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()

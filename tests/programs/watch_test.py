#!/usr/bin/env python3
"""`./workbook watch N`, in a terminal: what it shows after every kind of save, its keys, and that nothing is left running.

Build and verdict are scripts here, which follow words in the student's file: "broken" does not build, "wrong 3" fails
task 3, "stuck 4" makes its test wait forever.
"""
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from watch import FAILED, PASSED, Watch as Tester  # noqa: E402

FILE = "labs/02_gradient_allreduce/gradient_allreduce.cpp"
LIMIT_S = 30

BUILD = f"""#!/usr/bin/env bash
if grep -q broken {FILE}; then echo "{FILE}:7:3: error: expected ';'"; exit 1; fi
"""
VERDICT = f"""#!/usr/bin/env bash
cd "$(dirname "$0")/../../.."
echo "$*" >>runs.txt
report() {{
  printf 'task %s · in words\\n  the gradients: 3 times too large\\n\\nsee "Task %s" in the handout\\nhint: think\\n\\n' $1 $1
  echo "task $1 · title: 0/20 ($2)"
}}
if [[ $1 == --program ]]; then echo "task 5 · title: 10/10 (passed)"; exit 0; fi
if grep -q "stuck $2" {FILE}; then
  report $2 "1 of 1 tests failed"
  printf '\\f'
  sleep 1000 &
  echo "$! $$" >stuck.part
  mv stuck.part stuck.txt
  wait
fi
if grep -q "wrong $2" {FILE}; then report $2 "2 of 3 tests failed"; exit 1; fi
echo "task $2 · title: 20/20 (passed)"
"""


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Watch(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="watch-test.")
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        shutil.copy(ROOT / "workbook", self.root)
        for name in ("scripts", os.path.dirname(FILE)):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.file = self.root / FILE
        self.file.write_text("// right\n", encoding="utf-8")
        for name, text in (("cmake/run_build.sh", BUILD), ("build/student/bin/lab02_verdict", VERDICT),
                           ("build/student/bin/lab02_rehearsal", "")):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text, encoding="utf-8")
            (self.root / name).chmod(0o755)
        self.terminal, side = pty.openpty()
        self.addCleanup(os.close, self.terminal)
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.settings = termios.tcgetattr(side)
        self.side = side
        self.addCleanup(os.close, side)
        self.screen = ""
        self.watch = subprocess.Popen(
            [sys.executable, self.root / "scripts/watch.py", self.root, FILE, self.root / "build/student"],
            cwd=self.root, stdin=side, stdout=side, stderr=side, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.addCleanup(self.end)
        self.until("every task passes")

    def end(self):
        if self.watch.poll() is None:
            self.watch.kill()
            self.watch.wait()

    def until(self, pattern):
        """The last screen, once all of it is there, and it matches."""
        deadline = time.monotonic() + LIMIT_S
        while not ("q quit" in self.screen and re.search(pattern, self.screen)):
            self.assertLess(time.monotonic(), deadline, f"no {pattern}: {self.screen}")
            if select.select([self.terminal], [], [], 1)[0]:
                text = self.screen + os.read(self.terminal, 65536).decode("utf-8", "replace")
                self.screen = re.sub(r"\x1b\[[0-9;]*m|\r", "", text.rpartition("\x1b[3J")[2])
        return self.screen

    def until_tested(self, pattern):
        """The same, once all tasks have been tested: side by side, they end in any order."""
        return self.until(rf"(?s)\A(?!.*· (?:building|testing)).*{pattern}")

    def save(self, text):
        """As most editors do: a new file takes the old one's place."""
        self.screen = ""
        new = self.file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, self.file)

    def press(self, key):
        self.screen = ""
        os.write(self.terminal, key)

    def stuck(self):
        """The process ids of a test that waits forever, once it does."""
        deadline = time.monotonic() + LIMIT_S
        file = self.root / "stuck.txt"
        while not file.exists():
            self.assertLess(time.monotonic(), deadline, "the test never began")
            select.select([], [], [], 0.01)
        pids = [int(word) for word in file.read_text(encoding="utf-8").split()]
        file.unlink()
        return pids

    def assert_gone(self, pids):
        deadline = time.monotonic() + LIMIT_S
        while any(map(alive, pids)):
            self.assertLess(time.monotonic(), deadline, "still running")
            select.select([], [], [], 0.01)

    def runs(self):
        return (self.root / "runs.txt").read_text(encoding="utf-8").splitlines()

    def test_first_failing_task(self):
        self.save("// wrong 3, wrong 4")
        shown = self.until_tested("✓ 1 broadcast_parameters  ✓ 2 shard  ✗ 3 average_gradients  ✗ 4 train_step  ✓ 5")
        self.assertIn("task 3 · in words\n  the gradients: 3 times too large\n", shown)
        self.assertIn('see "Task 3" in the handout', shown)
        self.assertIn("./workbook hint 2 3", shown)
        self.assertNotIn("task 4 · in words", shown)
        before = len(self.runs())
        self.save("// right again")
        self.until("every task passes")
        # The program is run only when all tasks pass.
        self.assertEqual(len(self.runs()), before + 6)
        self.assertEqual(self.runs()[-1], "--program")

    def test_what_failed_comes_first(self):
        watch = Tester(self.root, FILE, self.root / "build/student")
        watch.states = {"1": PASSED, "2": PASSED, "3": FAILED, "4": FAILED, "5": PASSED}
        watch.go_on = lambda: None  # starts nothing
        watch.start()
        self.assertEqual(watch.waiting, ["build", "3", "4", "1", "2", "5"])

    def test_ways_to_save(self):
        with open(self.file, "w", encoding="utf-8") as stream:
            self.screen = ""
            for part in ("// wr", "ong", " 2\n"):
                stream.write(part)
                stream.flush()
        self.until_tested("✗ 2 shard .*✓ 5")
        self.file.rename(self.file.with_suffix(".bak"))  # as some editors do: the name is free for a while
        self.save("// wrong 1\n")
        self.until_tested("✗ 1 broadcast_parameters .*✓ 5")
        self.screen = ""
        old = self.file.with_suffix(".bak")
        os.utime(old, (1, 1))
        os.replace(old, self.file)
        self.until_tested("✗ 2 shard .*✓ 5")

    def test_does_not_build(self):
        self.save("// broken, wrong 1")
        shown = self.until("expected ';'")
        self.assertIn("· 1 broadcast_parameters  · 2 shard", shown)
        self.press(b"h")  # there is no failing task
        self.press(b"\n")
        self.until("expected ';'")

    def test_save_restarts_the_tests(self):
        self.save("// stuck 4")
        pids = self.stuck()
        self.assertIn("… 4 train_step", self.until("3 times too large"))  # told before the test has ended
        self.save("// wrong 2")
        self.assert_gone(pids)
        self.until_tested("✗ 2 shard .*✓ 5")

    def test_keys(self):
        self.save("// wrong 3")
        self.until_tested("✗ 3 .*✓ 5")
        for level in (1, 2, 3, 1):
            self.press(b"h")
            self.until(f"task 3, level {level} of 3")
        runs = len(self.runs())
        self.press(b"\n")
        self.until_tested("✗ 3 .*✓ 5")
        self.assertEqual(len(self.runs()), runs + 5)
        self.press(b"q")
        self.assertEqual(self.watch.wait(LIMIT_S), 0)
        self.assertEqual(termios.tcgetattr(self.side), self.settings)

    def test_endings(self):
        self.save("// stuck 1")
        pids = self.stuck()
        self.until("3 times too large")
        self.press(b"\x03")
        self.assertEqual(self.watch.wait(LIMIT_S), 0)
        self.assert_gone(pids)
        self.assertEqual(termios.tcgetattr(self.side), self.settings)

    def test_terminal_is_closed(self):
        self.save("// stuck 1")
        pids = self.stuck()
        self.watch.send_signal(signal.SIGHUP)
        self.watch.wait(LIMIT_S)
        self.assert_gone(pids)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""./workbook watch N: builds and tests the student's file of a lab whenever it is saved.

    watch.py ROOT FILE BUILD    FILE: labs/02_gradient_allreduce/gradient_allreduce.cpp

The screen shows the first task that fails, with its message and where to read on, and the state of the others. What
failed last time is tested first. Keys: h = hint (again: the next level), Enter = test again, q or Ctrl-C = quit.

The file is looked at ten times a second. inotify would be no simpler, since editors replace the file as often as they
write it, and it reports nothing for folders that a container or WSL shares with another system.
"""
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import tty
from pathlib import Path

POLL_S = 0.1
STEP_POLL_S = 0.02  # while something runs
JOBS = max(2, os.cpu_count() or 2)  # tasks that are tested at once: ranks wait for each other half of the time
END_S = 5           # for a build or a test that has been asked to end
PROGRAM = "program"
PASSED, FAILED, UNWRITTEN, NOT_GRADED, NOT_RUN = "passed", "failed", "not written yet", "not graded", "not run"
MARKS = {PASSED: "✓", FAILED: "✗", UNWRITTEN: "○", NOT_GRADED: "?", NOT_RUN: "·"}
COLOURS = {PASSED: "32", FAILED: "31", UNWRITTEN: "33", NOT_GRADED: "33", NOT_RUN: "2"}


def stamp(file):
    """Another one after every save; None while an editor replaces the file."""
    try:
        now = file.stat()
    except OSError:
        return None
    return now.st_mtime_ns, now.st_size, now.st_ino


def end(process):
    """Ends a build or a test with all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(END_S)
            return
        except subprocess.TimeoutExpired:
            continue


class Watch:
    def __init__(self, root, file, build):
        self.root, self.file, self.build = root, root / file, build
        self.folder = self.file.parent.name
        self.number = self.folder.split("_")[0]
        self.short = self.number.lstrip("0") or "0"
        self.titles = {task["id"]: task["title"] for task in json.loads(
            (self.file.parent / "points.json").read_text(encoding="utf-8"))["tasks"]}
        self.verdict = build / "bin" / f"lab{self.number}_verdict"
        self.has_program = (build / "bin" / f"lab{self.number}_rehearsal").exists()
        self.since = 0.0                 # the time of the save, or of Enter
        self.seen = self.tested = None   # stamps of the file: at the last look, and of what is tested
        self.before = {}                 # the state of each task in the last test
        self.states, self.reports = {}, {}
        self.waiting, self.running = [], {}  # steps: "build", a task, PROGRAM; with process and output
        self.build_error, self.hints, self.level, self.seconds = "", "", 0, 0.0

    def saved(self):
        """Whether there is a new version that nobody is writing any more: it is the same in two looks."""
        now, before = stamp(self.file), self.seen
        self.seen = now
        return now is not None and now == before and now != self.tested

    def start(self, saved=False):
        """Tests the file as it is now, in place of what is being tested."""
        self.stop()
        now = stamp(self.file)
        if now is None:
            self.build_error = f"{self.file.name} is missing: ./workbook reset {self.short} restores the starter"
            self.draw()
            return
        self.seen = self.tested = now
        self.since = now[0] / 1e9 if saved else time.time()
        self.before.update(self.states)
        self.states, self.reports = {}, {}
        self.build_error, self.hints, self.level, self.seconds = "", "", 0, 0.0
        order = {FAILED: 0, UNWRITTEN: 1, NOT_GRADED: 1, PASSED: 3}
        tasks = sorted(self.titles, key=lambda task: order.get(self.before.get(task), 2))  # stable
        self.waiting = ["build", *tasks]
        self.go_on()

    def stop(self):
        self.waiting = []
        for process, output in self.running.values():
            end(process)
            output.close()
        self.running = {}

    def command(self, step):
        if step == "build":
            return ["bash", self.root / "cmake/run_build.sh", "--student", f"lab{self.number}",
                    self.file.relative_to(self.root), self.root, self.build, f"lab{self.number}_shared_student"]
        return [self.verdict, "--program"] if step == PROGRAM else [self.verdict, "--task", step, "--at-once"]

    def go_on(self):
        """Starts what can be started: the build alone, then tasks."""
        while self.waiting and "build" not in self.running and len(self.running) < JOBS:
            step = self.waiting.pop(0)
            output = tempfile.TemporaryFile()
            process = subprocess.Popen([str(word) for word in self.command(step)], stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            self.running[step] = process, output
        self.draw()

    def read_first_failures(self):
        """Shows a task's first failure while its other tests still run."""
        for step, (_, output) in self.running.items():
            if step in self.titles and step not in self.states and os.fstat(output.fileno()).st_size:
                text = os.pread(output.fileno(), 1 << 20, 0).decode("utf-8", "replace")
                if "\f" in text:
                    self.note(step, text.partition("\f")[0].strip(), 1)
                    self.draw()

    def note(self, task, text, status):
        unwritten = text.startswith(f"task {task} is not written yet")
        self.reports[task] = text
        self.states[task] = {0: PASSED, 1: UNWRITTEN if unwritten else FAILED, 77: PASSED}.get(status, NOT_GRADED)
        if not self.seconds and self.failing():
            self.seconds = time.time() - self.since

    def finish(self, step):
        """Notes what the build or the test has said, and starts what comes next."""
        process, output = self.running.pop(step)
        output.seek(0)
        text = output.read().decode("utf-8", "replace").strip()
        output.close()
        if step == "build":
            if process.returncode:
                self.build_error, self.waiting = text, []
        else:
            task = list(self.titles)[-1] if step == PROGRAM else step  # as tests/grading/score.h
            self.note(task, text.rpartition("\f")[2].strip(), process.returncode)  # without what was told at once
            if step != PROGRAM and not self.running and self.all_passed() and self.has_program:
                self.waiting = [PROGRAM]
        if not self.seconds and not self.waiting and not self.running:
            self.seconds = time.time() - self.since
        self.go_on()

    def all_passed(self):
        return all(self.states.get(task) == PASSED for task in self.titles)

    def failing(self):
        """The task to show: the first that is wrong, else the first that is not written."""
        for state in (FAILED, UNWRITTEN, NOT_GRADED):
            for task in self.titles:
                if self.states.get(task) == state:
                    return task
        return None

    def hint(self):
        task = self.failing()
        if task is None:
            return
        self.level = self.level % 3 + 1
        done = subprocess.run([self.root / "workbook", "hint", self.short, task, str(self.level)], text=True,
                              capture_output=True, check=False)
        self.hints = (done.stdout or done.stderr).strip()
        self.draw()

    # The screen

    def colour(self, code, text):
        return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text

    def message(self):
        """What the student should read now."""
        if self.build_error:
            return self.build_error
        task = self.failing()
        if task:
            # The verdict prints the points last, after a blank line.
            told, gap, points = self.reports[task].rpartition("\n\n")
            return told + gap + self.colour(COLOURS[self.states[task]], points)
        if self.running:
            return ""
        return self.colour("32", "every task passes") + (
            f"\n\nnext: ./workbook status {self.short}, ./workbook diff {self.short} and the experiments: "
            f"./workbook break {self.short}")

    def table(self):
        cells = []
        for task, title in self.titles.items():
            state = self.states.get(task, NOT_RUN)
            if task in self.running or (PROGRAM in self.running and task == list(self.titles)[-1]):
                cells.append(self.colour("36", f"… {task} {title}"))
            else:
                cells.append(self.colour(COLOURS[state], f"{MARKS[state]} {task} {title}"))
        return "  ".join(cells)

    def draw(self):
        doing = " · building" if "build" in self.running else " · testing" if self.running else ""
        when = time.strftime("%H:%M:%S", time.localtime(self.tested[0] / 1e9)) if self.tested else ""
        shown = f" · result after {self.seconds:.1f} s" if self.seconds else ""
        head = self.colour("1", f"lab {self.number}") + f" · {self.file.name} · saved {when}{shown}{doing}"
        task = self.failing()
        hint = f"h hint (./workbook hint {self.short} {task}) · " if task else ""
        foot = self.colour("2", f"{hint}Enter test again · q quit")
        height = shutil.get_terminal_size((100, 40)).lines
        body = (self.hints or self.message()).splitlines()
        room = max(6, height - 8)
        if len(body) > room:  # the end says where to read on
            body = body[: room - 7] + ["…", *body[-6:]]
        clear = "\x1b[H\x1b[2J\x1b[3J" if sys.stdout.isatty() else "\n"
        print(clear + "\n".join([head, "", *body, "", self.table(), "", foot]), flush=True)

    # Keys and saves

    def keys(self, seconds):
        """What was typed within this time; nothing where there is no terminal."""
        if not sys.stdin.isatty():
            time.sleep(seconds)
            return ""
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return ""
        return os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace") or "q"  # the terminal is gone

    def run(self):
        self.start()
        while True:
            for key in self.keys(STEP_POLL_S if self.running else POLL_S):
                if key in "qQ\x04":
                    return
                if key in "\r\n":
                    self.start()
                elif key in "hH":
                    self.hint()
            if self.saved():
                self.start(saved=True)
                continue
            for step in [step for step, (process, _) in self.running.items() if process.poll() is not None]:
                self.finish(step)
            self.read_first_failures()


def main(arguments):
    root, file, build = arguments
    sys.stdout.reconfigure(encoding="utf-8")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    terminal = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    watch = Watch(Path(root), file, Path(build))
    try:
        if terminal:
            tty.setcbreak(sys.stdin)
        watch.run()
    except KeyboardInterrupt:
        pass
    finally:
        watch.stop()
        if terminal:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, terminal)


if __name__ == "__main__":
    main(sys.argv[1:])

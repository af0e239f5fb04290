"""Judging one submission: which verdict program runs how often, and what its results mean."""
import hashlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from datetime import datetime
from pathlib import Path

from grade_kit import Kit
from grade_report import tidy
from grade_sandbox import Sandbox

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "Program"  # kProgramTask of tests/grading/program_run.h


def workbook_commit():
    """Of this checkout; with "-dirty" if its files are no longer those of the commit. Gradescope's image may have no git.
    """
    if not shutil.which("git"):
        return "unknown"
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


class Lab:
    """Tasks and points of a lab, and the file that students write."""

    def __init__(self, number):
        self.number = number
        self.folder = next(ROOT.glob(f"labs/{number}_*")).name
        name = self.folder.split("_", 1)[1]
        self.path = f"labs/{self.folder}/{name}." + ("cu" if number.endswith("cuda") else "cpp")
        self.tasks = json.loads((ROOT / "labs" / self.folder / "points.json").read_text(encoding="utf-8"))["tasks"]
        self.has_program = (ROOT / "tests/labs" / self.folder / "program.cpp").exists()


class Grader:
    """Judges submissions; results by lab and task are dictionaries that are also kept as JSON.

    Of a lab: hash, points, max, and tasks, each with id, title, points, max, graded, passed, message; what the
    course's terms make of the points: days_late, percent_off, time, time_source, extension, by_hand, score, weight,
    counts, counts_max; and evidence, so that a grade can be seen again: file (its SHA-256), commit, seed, workbook (its
    commit), graded (when).
    """

    def __init__(self, build, labs, course, options, folder):
        self.build, self.course, self.options, self.folder = build, course, options, folder
        self.labs = labs
        (folder / "kit").mkdir()
        self.kit = Kit(build, folder / "kit", {lab.number: lab.path for lab in self.labs})
        self.slots = queue.SimpleQueue()
        for slot in range(options.jobs):
            self.slots.put(slot)
        self.harness = {lab.number: self.fingerprint(lab) for lab in self.labs}
        self.solutions = {}  # whether the solution is graded, by lab and task
        self.judged_files = {}  # by hash: starters, for example, are judged once
        self.lock = threading.Lock()
        self.workbook = workbook_commit()

    def fingerprint(self, lab):
        """Of what judges: a result is kept as long as this stays the same."""
        implementations = self.build / "implementations" / f"lab{lab.number}"
        files = [self.build / "bin" / f"lab{lab.number}_verdict", self.kit.folder / f"lab{lab.number}_ranks",
                 self.kit.folder / f"lab{lab.number}_rehearsal", implementations / "solution.so",
                 implementations / "rehearsal.so", ROOT / "labs" / lab.folder / "points.json"]
        return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files if file.exists()))

    def grade(self, submission, known, labs=None):
        """The results of a submission by lab; `known` are those of an earlier run. `labs`: only these."""
        results = {}
        slot = self.slots.get()
        try:
            for lab in labs or self.labs:
                source = submission.files.get(lab.number)
                if source is None:
                    why = "nothing was handed in" if submission.absent else f"{lab.path} is missing"
                    why = submission.problems.get(lab.number, why)
                    judged = (None, submission.unreachable) if submission.unreachable else (False, why)
                    results[lab.number] = self.result_of(lab, "", [judged] * len(lab.tasks), {}, submission)
                    continue
                digest = self.harness[lab.number].copy()
                digest.update(f"{self.options.seed} {self.options.no_sandbox} ".encode() + source)
                digest = digest.hexdigest()
                judged, evidence = self.judged_before(digest, known.get(lab.number, {}))
                if judged is None:
                    evidence = {"graded": datetime.now().astimezone().isoformat(timespec="seconds"),
                                "seed": self.options.seed, "workbook": self.workbook}
                    with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as work:
                        judged = self.judged(lab, source, Path(work), slot)
                    with self.lock:
                        self.judged_files[digest] = judged, evidence
                evidence = evidence | {"file": hashlib.sha256(source).hexdigest(), "commit": submission.commit}
                results[lab.number] = self.result_of(lab, digest, judged, evidence, submission)
        finally:
            self.slots.put(slot)
        return results

    def judged_before(self, digest, before):
        """What an earlier run, or another submission with the same file, got, and the evidence; None unless all of it
        was graded."""
        with self.lock:
            judged, evidence = self.judged_files.get(digest, (None, {}))
        if before.get("hash") == digest:
            judged = [(task["passed"] if task["graded"] else None, task["message"]) for task in before["tasks"]]
            evidence = before.get("evidence", {})
        return (None, {}) if judged is None or any(passed is None for passed, _ in judged) else (judged, evidence)

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
            return False, f"the test failed to run with this file, twice, though it runs with the solution: {outcome[1]}"
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

    def result_of(self, lab, digest, judged, evidence, submission):
        terms = self.course.terms(lab.number)
        by_hand = terms.by_hand.get(submission.title, {})
        tasks = []
        for task, (passed, message) in zip(lab.tasks, judged):
            most = terms.points.get(task["id"], task["points"])
            points = by_hand.get(task["id"], most if passed else 0) if passed is not None else 0
            tasks.append({"id": task["id"], "title": task["title"], "points": points, "max": most,
                          "graded": passed is not None, "passed": bool(passed), "message": message})
        result = {"hash": digest, "evidence": evidence, "tasks": tasks, "points": sum(task["points"] for task in tasks),
                  "max": sum(task["max"] for task in tasks)}
        time, source = self.course.handed_in(submission, lab.number)
        days, left = self.course.lateness(lab.number, time, submission.title)
        extension = terms.extension.get(submission.title)
        score = counts = result["points"] * left
        if terms.weight is not None:
            counts = terms.weight * score / (result["max"] or 1)
        most = result["max"] if terms.weight is None else terms.weight
        return result | {"time": time.isoformat(timespec="seconds") if time else "", "time_source": source,
                         "extension": extension.isoformat(timespec="seconds") if extension else "", "by_hand": by_hand,
                         "days_late": days, "percent_off": tidy(round(100 - 100 * left, 2)), "weight": terms.weight,
                         "score": tidy(score), "counts": tidy(counts), "counts_max": most}

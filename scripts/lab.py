#!/usr/bin/env python3
"""Makes a lab, and checks one: ./workbook lab new NN name, ./workbook lab check NN (docs/authors.md).

usage: lab.py new NN name          a lab with one small task, from scripts/lab_template
       lab.py check NN_name        what can be seen without building
                   [--built BUILD] what the tests of its build folder say as well

Each problem is one line: file:line: what is wrong: what to do. Exit code 1 if there is one.
"""

import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

sys.dont_write_bytecode = True  # the folder may be read-only
from lab_built import check_build
from lab_code import changed_source, declarations, read_experiments, read_mutants
from lab_new import new, stop

ROOT = Path(__file__).resolve().parents[1]


class Lab:
    """The files of a lab, and the problems found in them."""

    def __init__(self, folder):
        self.number, self.name = folder.split("_", 1)
        kind = "cu" if self.number.endswith("cuda") else "cpp"
        self.folder, self.problems = folder, 0
        self.starter = f"labs/{folder}/{self.name}.{kind}"
        self.solution = f"solutions/{folder}/{self.name}.{kind}"
        self.contract = f"labs/{folder}/{self.name}.h"
        self.handout = f"labs/{folder}/README.md"
        self.hints = f"labs/{folder}/hints.md"
        self.points = f"labs/{folder}/points.json"
        self.predictions = f"labs/{folder}/predictions.json"
        self.answers = f"solutions/{folder}/README.md"
        self.mutants = f"tests/labs/{folder}/mutants.txt"
        self.experiments = f"labs/{folder}/experiments.txt"
        self.deck = f"slides/{folder}.md"
        if not (ROOT / self.points).is_file():
            stop(f"{self.points} is missing: lab check is for labs with points")
        try:
            tasks = json.loads(self.read(self.points))["tasks"]
            self.tasks = {task["id"]: task["points"] for task in tasks}
        except (ValueError, KeyError, TypeError) as error:
            stop(f"{self.points}: not in the form of the other labs' points.json: {error}")

    def read(self, file):
        path = ROOT / file
        return path.read_text() if path.is_file() else ""

    def problem(self, file, where, what, remedy):
        """`where`: a line number, or a text that the line contains."""
        if isinstance(where, str):
            lines = self.read(file).splitlines()
            where = next((i for i, line in enumerate(lines, 1) if where in line), 1)
        print(f"{file}:{where}: {what}: {remedy}")
        self.problems += 1


def check_files(lab):
    for file in (lab.starter, lab.solution, lab.contract, lab.handout, lab.hints, lab.predictions,
                 lab.answers, lab.mutants, lab.deck, f"tests/labs/{lab.folder}/rank.cpp"):
        if not (ROOT / file).is_file():
            lab.problem(file, 1, "the file is missing", "write it as in the other labs")
    for file, text in (("README.md", f"[{lab.number} {lab.name}](labs/{lab.folder}/README.md)"),
                       ("CMakeLists.txt", f"add_lab({lab.number} {lab.name}")):
        if text not in lab.read(file):
            lab.problem(file, 1, "does not mention this lab", f"add {text}, as of the other labs")


def check_starter(lab):
    text = lab.read(lab.starter)
    if not text or not lab.read(lab.solution):
        return
    starter, solution = declarations(text), declarations(lab.read(lab.solution))
    wholes = {(item.head, item.body) for item in solution}
    solved = {item.head for item in solution}
    for item in starter:
        if item.is_task and item.head not in solved:
            lab.problem(lab.starter, item.line, "the solution has no function with this declaration",
                        f"make it the same in {lab.solution}")
        elif not item.is_task and (item.head, item.body) not in wholes:
            lab.problem(lab.starter, item.line, "differs from the solution outside the tasks' functions",
                        f"make it the same in {lab.solution}, or put a TODO into it")
    for item in solution:
        if not item.hidden and item.head not in {other.head for other in starter}:
            lab.problem(lab.solution, item.line, "the starter does not have this",
                        "put helpers of the solution into an unnamed namespace")
    for pattern, sign in ((r"\bTODO\((\w+)\)", "TODO({})"),
                          (r'\bnot_implemented\(\s*"(\w+)"', 'lab::not_implemented("{}", ...)')):
        marked = {found[1]: text.count("\n", 0, found.start()) + 1 for found in re.finditer(pattern, text)}
        for task in sorted(marked.keys() - lab.tasks.keys()):
            lab.problem(lab.starter, marked[task], f"points.json has no task {task}",
                        f"correct the number, or add the task to {lab.points}")
        for task in (task for task in lab.tasks if task not in marked):
            lab.problem(lab.points, f'"id": "{task}"', f"the starter has no {sign.format(task)}",
                        "restore the starter, if somebody has begun to solve it, or remove the task")
    for file in re.findall(r'not_implemented\(\s*"\w+",\s*"([^"]*)"', text):
        if file != lab.starter:
            lab.problem(lab.starter, f'"{file}"', "a TODO names another file", f'write "{lab.starter}"')


def check_tests(lab):
    folder = f"tests/labs/{lab.folder}"
    for task in lab.tasks:
        files = sorted((ROOT / folder).glob(f"task{task}_*.cpp"))
        if not files:
            lab.problem(f"{folder}/task{task}_.cpp", 1, f"task {task} has no test",
                        f"write {folder}/task{task}_name.cpp with the suite Task{task}")
        elif not any(f"TEST(Task{task}," in file.read_text() for file in files):
            lab.problem(files[0].relative_to(ROOT), 1, f"no test of the suite Task{task}",
                        f"write TEST(Task{task}, ...)")
    for file in sorted((ROOT / folder).glob("task*.cpp")):
        if not any(file.name.startswith(f"task{task}_") for task in lab.tasks):
            lab.problem(file.relative_to(ROOT), 1, f"a test of no task of {lab.points}",
                        "rename it, or add the task")
    if not lab.read(lab.mutants):
        return
    solution, mutants = lab.read(lab.solution), read_mutants(lab.read(lab.mutants))
    for mutant in mutants:
        for task in sorted(set(mutant.tasks) - set(lab.tasks) - {"none"}):
            lab.problem(lab.mutants, mutant.line, f"{mutant.name} is for task {task}, which does not exist",
                        "name one of points.json")
        try:
            changed_source(solution, mutant)
        except ValueError as error:
            lab.problem(lab.mutants, mutant.line, error, "adapt the mutant to the solution")
    needed = [(task, 3, "wrong solutions") for task in lab.tasks] + [("none", 1, "correct variants")]
    for task, least, kind in needed:
        count = sum(task in mutant.tasks for mutant in mutants)
        if count < least:
            lab.problem(lab.mutants, 1, f"task {task} has {count} {kind} and needs at least {least}",
                        "add those that students will write (docs/grading.md)")


def check_hints(lab):
    text = lab.read(lab.hints)
    parts = re.split(r"^## Task (\w+).*$", text, flags=re.M)
    found = dict(zip(parts[1::2], parts[2::2]))
    for task in lab.tasks if text else ():
        levels = re.findall(r"<summary>Level (\d) · .*</summary>\n\n(?!</details>)", found.get(task, ""))
        for level in sorted({"1", "2", "3"} - set(levels)):
            lab.problem(lab.hints, f"## Task {task}", f"task {task} has no hint of level {level}",
                        f"add <details><summary>Level {level} · ...</summary> and its text")
    for task in sorted(found.keys() - lab.tasks.keys()):
        lab.problem(lab.hints, f"## Task {task}", f"points.json has no task {task}",
                    "remove it, or correct the number")


def hours(text):
    """ "3½" -> 3.5; None if there is no number. """
    number = re.match(r"(\d*)([½¼¾]?)", text.strip())
    if not number[0]:
        return None
    return int(number[1] or 0) + (unicodedata.numeric(number[2]) if number[2] else 0)


def check_handout(lab):
    text = lab.read(lab.handout)
    if not text:
        return
    for task, points in lab.tasks.items():
        section = re.search(rf"^### Task {task}\n+(.*)", text, re.M)
        if not section:
            lab.problem(lab.handout, "## 5", f"no section of task {task}", f"add '### Task {task}'")
        elif f"· {points} points ·" not in section[1]:
            lab.problem(lab.handout, section[1], f"points.json gives task {task} {points} points",
                        f"write '· {points} points ·' below its heading, or change {lab.points}")
        if not re.search(rf"Task {task} · ", lab.read(lab.contract)):
            lab.problem(lab.contract, 1, f"task {task} is not in the contract",
                        f"describe it: /// Task {task} · ...")
    if sum(lab.tasks.values()) != 100:
        lab.problem(lab.points, '"points"', f"the points add up to {sum(lab.tasks.values())}",
                    "they should be 100")
    row = re.search(r"^\| points \| (.*?) = 100\b.*\|$", text, re.M)
    told = {task: int(points) for task, points in
            re.findall(r"(\w+): (\d+)(?= ·|$)", row[1])} if row else None
    if told != lab.tasks:
        lab.problem(lab.handout, "| points |", "the table's points are not those of points.json",
                    "write task " + " · ".join(f"{t}: {p}" for t, p in lab.tasks.items()) + " = 100")

    time = re.search(r"^\| time \| about ([\d½¼¾]+) hours?: (.*) \|$", text, re.M)
    if not time:
        lab.problem(lab.handout, "| time |", "the table does not say how long the lab takes",
                    "write '| time | about 2 hours: ½ reading, 1 writing, ½ experimenting |'")
    else:
        parts = [hours(part) for part in time[2].split(", ")]
        if None in parts or sum(parts) != hours(time[1]):
            lab.problem(lab.handout, "| time |", f"the parts do not add up to {time[1]} hours",
                        "correct one of them")
        for file, row, remedy in (
            ("README.md", rf"^\| \[{lab.number} {lab.name}\]\(.*?\) \| ([^|]*) \|", "row"),
            ("slides/00_introduction.md", rf"^\| {lab.number} \|[^|\n]*\| ([^|\n]*) \|", "row"),
            ("docs/instructors.md", rf"^Times to plan with(?:[^\n]|\n(?!\n))*? {lab.number} ([\d½¼¾]+)", "number"),
        ):
            found = re.search(row, lab.read(file), re.M)
            if found and found[1].strip() and hours(found[1]) != hours(time[1]):
                lab.problem(file, found[0], f"{found[1].strip()} hours, the handout says {time[1]}",
                            f"correct this {remedy}")
    lines = re.search(r"^\| to write \| about (\d+) lines", text, re.M)
    if not lines:
        lab.problem(lab.handout, "| to write |", "the table does not say how many lines",
                    "write 'about 20 lines'")
        return
    of_tasks = sum(int(n) for n in re.findall(r"^\*\*.*points · (?:about )?(\d+) lines?", text, re.M))
    if abs(of_tasks - int(lines[1])) > max(2, 0.2 * int(lines[1])):
        lab.problem(lab.handout, "| to write |", f"about {lines[1]} lines, but {of_tasks} in its tasks",
                    "correct the table or the tasks")
    for told in re.findall(r"[Aa]bout (\d+) lines", lab.read(lab.deck)):
        if told != lines[1]:
            lab.problem(lab.deck, f"bout {told} lines", f"the handout says about {lines[1]} lines",
                        "correct one of them")


def check_predictions(lab):
    text = lab.read(lab.predictions)
    ids = re.findall(r'"id": "(\w+)"', text)
    for file in (lab.handout, lab.answers):
        if text and lab.read(file):
            for identifier in ids:
                if not re.search(rf"^\| `{identifier}` \|", lab.read(file), re.M):
                    lab.problem(file, "## Section 3" if file == lab.answers else "## 3",
                                f"no row of the prediction {identifier}",
                                f"add it, or remove it from {lab.predictions}")


def check_experiments(lab):
    """Those of ./workbook break, if the lab has any."""
    text = lab.read(lab.experiments)
    if not text:
        return
    try:
        experiments = read_experiments(text)
    except ValueError as error:
        line, _, what = str(error).partition(": ")
        lab.problem(lab.experiments, int(line), what, "see docs/authors.md")
        return
    section = re.search(r"^### 6\.1 .*?(?=^##)", lab.read(lab.handout), re.M | re.S)
    rows = re.findall(r"^\| ([A-Z]\d?) \| ", section[0], re.M) if section else []
    letters = [experiment.letter for experiment in experiments]
    mutants = {mutant.name for mutant in read_mutants(lab.read(lab.mutants))}
    for letter in rows:
        if letter not in letters:
            lab.problem(lab.handout, f"| {letter} |", f"{lab.experiments} has no experiment {letter}",
                        "add it, or remove the row")
    for experiment in experiments:
        if letters.count(experiment.letter) > 1:
            lab.problem(lab.experiments, experiment.line, f"there are two experiments {experiment.letter}",
                        "rename one")
        if experiment.letter not in rows:
            lab.problem(lab.experiments, experiment.line,
                        f"section 6.1 of the handout has no row | {experiment.letter} |", "add it")
        if experiment.mutant not in mutants:
            lab.problem(lab.experiments, experiment.line,
                        f"{lab.mutants} has no entry {experiment.mutant}", "add it there")


def check_with_tests(lab):
    """What the tests of all texts and of all includes say about this lab."""
    def run(*command):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    texts = run("bash", "tests/programs/handouts_test.sh", str(ROOT), lab.folder)
    for line in texts.stderr.splitlines():
        if link := re.fullmatch(r"(\S+): (\S+) (leads nowhere|names no section)", line):
            lab.problem(link[1], f"]({link[2]})", f"the link {link[2]} {link[3]}", "correct it")
        elif out := re.fullmatch(r"(\S+): (.*--out (runs/\S+).*)", line):
            lab.problem(out[1], out[3], out[2], f"each run has its own folder, runs/{lab.number}_...")
        elif not line.startswith(("failed:", "no hint for task", "error:")):
            lab.problem(lab.handout, 1, line, "see tests/programs/handouts_test.sh")
    layout = run(sys.executable, "tests/layout_test.py")
    for line in layout.stdout.splitlines():
        if wrong := re.fullmatch(rf"(\S+/{lab.folder}/\S+) (.*?include[s]? ([^\s,]+).*)", line):
            lab.problem(wrong[1], f'"{wrong[3]}"', wrong[2], "docs/architecture.md says who may include what")


def check(folder, build):
    lab = Lab(folder)
    for part in (check_files, check_starter, check_tests, check_hints, check_handout, check_predictions,
                 check_experiments, check_with_tests):
        part(lab)
    extent = f"{check_build(lab, build)} tests run" if build else "only what needs no build"
    row = "".join(line for line in lab.read("README.md").splitlines() if lab.folder in line)
    texts = lab.read(lab.handout) + lab.read(lab.answers) + lab.read(lab.deck) + row
    prompts = len(re.findall(r"\b[Aa]uthor: ", texts))
    print(f"lab {lab.number}: {lab.problems or 'no'} problem{'s' * (lab.problems != 1)} ({extent})"
          + (f"; to be written: {prompts} places marked 'Author:'" if prompts else ""))
    return 1 if lab.problems else 0


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "new":
        return new(*arguments[1:])
    if len(arguments) in (2, 4) and arguments[0] == "check" and arguments[2:3] in ([], ["--built"]):
        return check(arguments[1], Path(arguments[3]) if arguments[3:] else None)
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

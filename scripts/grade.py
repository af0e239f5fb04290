#!/usr/bin/env python3
"""./workbook grade: grades a class.

Usage: grade.py BUILD PATH... [--labs 01-03] [--course FILE] [--out FOLDER] [--seed S] [--jobs J] [--similar]
                [--earlier PATH...] [--no-sandbox] [--replace] [--list]
  BUILD   a configured build folder
  PATH    a submission (a folder, .zip, .tar.gz, git repository or URL), or a .csv of such (grade_submissions.py)

Only the students' files are taken from a submission (grade_files.py). Each is compiled and judged (grade_judge.py) in a
sandbox (grade_sandbox.py), with tests and points of this workbook and the terms of the course (grade_course.py). The
verdict programs decide; this one adds up and reports (grade_report.py, grade_tables.py).
"""
import argparse
import contextlib
import csv
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import grade_report
import grade_tables
from grade_course import read_course
from grade_files import read_files
from grade_git import is_repository, read_repository
from grade_judge import Grader, Lab
from grade_kit import built_labs
from grade_run import stopping
from grade_sandbox import why_not
from grade_similar import in_lines, similar_pairs
from grade_submissions import GradeError, Submission, printable, submissions
from lab_numbers import parse_labs

ROOT = Path(__file__).resolve().parent.parent
NOT_GRADED = 3  # exit code of verdicts, and of this program
TABLES = ("results.csv", "moodle.csv", "canvas.csv", "junit.xml", "index.html")
SIMILAR = "similar.csv"
SCRATCH = "workbook-grade."
SCRATCH_SECONDS = 60  # between making such a folder and locking it, at most


def all_labs():
    return [Lab(number) for number in sorted(path.parent.name.split("_")[0] for path in ROOT.glob("labs/*/points.json"))]


def read(submission, wanted, sandbox):
    if submission.absent:
        return
    if is_repository(submission):
        read_repository(submission, wanted, sandbox)
    else:
        read_files(submission, wanted)


def chosen_labs(options, course, found, earlier):
    """The labs to grade: those named, else the course's, else those whose starters somebody has changed. Reads all
    submissions."""
    labs = {lab.number: lab for lab in all_labs()}
    if options.labs or course.labs:
        try:
            numbers = parse_labs(options.labs, labs) if options.labs else sorted(course.labs)
        except ValueError as error:
            raise GradeError(f"--labs: {error}") from None
        course.check_weights(numbers)
        labs = {number: labs[number] for number in numbers}
    wanted = {number: lab.path for number, lab in labs.items()}
    print(f"reading {counted(found)}", flush=True)
    with ThreadPoolExecutor(8) as workers:  # clones wait for the network
        list(workers.map(lambda one: read(one, wanted, not options.no_sandbox), found + earlier))
    if not options.labs and not course.labs:
        labs = {number: lab for number, lab in labs.items() if any(begun(one, lab, len(wanted)) for one in found)}
    if not labs:
        reasons = [why for one in found for why in reasons_of(one)]
        raise GradeError("no submission has a file that differs from its starter: name the labs with --labs" +
                         "".join(f" ({why})" for why in reasons[:1]))
    return list(labs.values())


def reasons_of(submission):
    """Why files of it are missing."""
    return [submission.unreachable] if submission.unreachable else list(submission.problems.values())


def counted(found):
    return f"{len(found)} submission{'s' if len(found) != 1 else ''}"


def begun(submission, lab, labs):
    """An archive that cannot be read, for example, has a problem with all labs, and says nothing about this one."""
    starter = (ROOT / lab.path).read_bytes()
    return submission.files.get(lab.number, starter) != starter or (
        lab.number in submission.problems and len(submission.problems) < labs)


def in_words(submission, results):
    """lab 01 70/100, lab 02 0/100 (name.cpp is a symbolic link), lab 03 not handed in"""
    words = []
    for lab, result in results.items():
        late = f" ({result['days_late']} d late: {result['score']})" if grade_report.lateness(result) else ""
        points = f"{result['points']}/{result['max']}{late}"
        if missing(submission, lab):
            points = "not handed in"
        elif not grade_report.is_graded_lab(result):
            points = "not graded, run again"
        why = remark(submission, lab, result)
        words.append(f"lab {lab} {points}{why and f' ({why})'}")
    return ", ".join(words)


def missing(submission, lab):
    """Was it just not handed in?"""
    return not (lab in submission.files or lab in submission.problems or submission.unreachable)


def remark(submission, lab, result):
    """In one line, why a file could not be judged as it should have been; empty if it could, or if there is none."""
    if lab in submission.notes:
        return f"note: {printable(submission.notes[lab])}"
    messages = {task["message"].split("\n")[0] for task in result["tasks"]}
    alike = len(messages) == 1 and not result["points"] and not missing(submission, lab)
    return printable(messages.pop()) if alike else ""


def read_known(file):
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def grade_class(grader, found, out):
    """Results by submission, in the order of `found`, which are also in OUT/NAME."""
    results = {}
    begin = time.monotonic()

    def one(submission):
        folder = out / submission.name
        folder.mkdir(exist_ok=True)
        result = grader.grade(submission, read_known(folder / "tasks.json"))
        grade_report.write_submission(folder, submission, result, grader.labs)
        return result

    workers = ThreadPoolExecutor(grader.options.jobs)
    try:
        jobs = {workers.submit(one, submission): submission for submission in found}
        for count, job in enumerate(as_completed(jobs), 1):
            name = jobs[job].name
            results[name] = job.result()
            left = (time.monotonic() - begin) / count * (len(found) - count)
            rest = f", {left / 60:.0f} min left" if left > 90 else ""
            print(f"[{count}/{len(found)}{rest}] {name}: {in_words(jobs[job], results[name])}", flush=True)
    finally:
        workers.shutdown(cancel_futures=True)
    return {submission.name: results[submission.name] for submission in found}


def check_solutions(grader, out):
    """Grades the solutions, with this seed and on this machine, so that no student pays for a fault of either."""
    def one(lab):
        solution = Submission("solution", None)
        solution.files[lab.number] = (ROOT / lab.path.replace("labs/", "solutions/", 1)).read_bytes()
        return grader.grade(solution, known, [lab])

    file = out / "solutions.json"
    known = read_known(file)
    results = {}
    with ThreadPoolExecutor(grader.options.jobs) as workers:
        for result in workers.map(one, grader.labs):
            results |= result
    for number, result in results.items():
        for task in result["tasks"]:
            if not task["passed"]:
                why = "fails" if task["graded"] else "cannot be graded in"
                advice = " Take another --seed" if grader.options.seed != 1 and task["graded"] else ""
                raise GradeError(f"the solution itself {why} task {task['id']} of lab {number}, so nothing was graded: "
                                 f"{printable(task['message'])}.{advice}")
    grade_report.write(file, json.dumps(known | results))


def print_table(results, labs):
    width = max(10, *map(len, results))
    first = next(iter(results.values()))
    heads = [*(f"lab {lab.number}/{first[lab.number]['counts_max']}" for lab in labs),
             f"total/{grade_report.total_max(first)}"]
    print("\n" + "submission".ljust(width) + "".join(f"   {head}" for head in heads))
    for name, result in results.items():
        cells = [*(grade_report.counted(result[lab.number]) for lab in labs), grade_report.total_in_words(result)]
        print(name.ljust(width) + "".join(f"   {cell:>{len(head)}}" for cell, head in zip(cells, heads)))


def print_list(found, labs, course):
    """What would be graded: when each file was handed in, and how late, or why there is none."""
    def cell(submission, lab):
        if lab.number not in submission.files:
            return "none"
        if submission.files[lab.number] == (ROOT / lab.path).read_bytes():
            return "the starter"
        when, source = course.handed_in(submission, lab.number)
        days, _ = course.lateness(lab.number, when, submission.title)
        late = f", {days} d late" if days else ""
        late += ", extension" if submission.title in course.terms(lab.number).extension else ""
        return f"{when.isoformat(' ', 'minutes')}{late}" + (f" ({source})" if source != "list" else "")

    rows = {one.name: [cell(one, lab) for lab in labs] for one in found}
    widths = [max(map(len, column)) for column in zip(["lab 00"] * len(labs), *rows.values())]
    name = max(10, *map(len, rows))
    for head, cells in [("submission", [f"lab {lab.number}" for lab in labs]), *rows.items()]:
        print((head.ljust(name) + "".join(f"   {text:<{width}}" for text, width in zip(cells, widths))).rstrip())
    for one in found:
        for why in dict.fromkeys([*reasons_of(one), *one.notes.values()]):
            print(f"{one.name}: {printable(why)}")


def print_exceptions(found, results, out):
    """What an instructor should look at before the points go anywhere."""
    odd = []
    for one in found:
        labs = {}  # by remark
        for lab, result in results[one.name].items():
            labs.setdefault(remark(one, lab, result), []).append(lab)
        odd += [f"{one.name}{'' if len(same) == len(results[one.name]) else ', lab ' + ' '.join(same)}: {why}"
                for why, same in labs.items() if why]
    if odd:
        print("\nlook at these first:" + "".join(f"\n  {line}" for line in odd))
    absent = {one.name: [lab for lab in results[one.name] if missing(one, lab)] for one in found}
    if names := [f"{name} ({' '.join(labs)})" for name, labs in absent.items() if labs]:
        print(f"\nnot handed in: {', '.join(names)}")
    others = sorted(file.parent.name for file in out.glob("*/tasks.json") if file.parent.name not in results)
    if others:
        print(f"\n{out} also has pages of earlier runs that are in none of the tables: {', '.join(others)}")


def parsed():
    parser = argparse.ArgumentParser(prog="./workbook grade", usage="%(prog)s PATH... [options]",
                                     description="Grades submissions: folders, .zip, .tar.gz, git repositories and "
                                     "URLs (with #REF if not HEAD), or a .csv of name,path,submitted,email,id,login.")
    parser.add_argument("build", help=argparse.SUPPRESS, type=Path)
    parser.add_argument("paths", metavar="PATH", nargs="+")
    parser.add_argument("--labs", help="such as 01-03,5 or 1,1cuda (default: the course's, or those somebody has begun)")
    parser.add_argument("--course", metavar="FILE", type=Path, help="deadlines, late policy, weights (TOML)")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path("grades"),
                        help="for the results (default: grades); what has been graded there is not graded again")
    parser.add_argument("--seed", type=int, default=1, help="draws other scenarios (default: the students')")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="submissions at once (default: one per core)")
    parser.add_argument("--similar", action="store_true", help="list similar pairs, too; needs similarity-tester")
    parser.add_argument("--earlier", metavar="PATH", nargs="+", default=[],
                        help="submissions of earlier years: --similar compares with them, and they are not graded")
    parser.add_argument("--no-sandbox", action="store_true", help="without bubblewrap: with limits only")
    parser.add_argument("--replace", action="store_true",
                        help="take submissions that are not named this time out of the tables")
    parser.add_argument("--list", action="store_true", help="grade nothing; list what was handed in, when, and how late")
    options = parser.parse_args()
    for name in ("jobs", "seed"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


def main():
    options = parsed()
    graded = {lab.number: {task["id"]: task["points"] for task in lab.tasks} for lab in all_labs()}
    found = submissions(options.paths, graded)
    if not found:
        raise GradeError("there are no submissions")
    if not options.no_sandbox and (reason := why_not()):
        raise GradeError(f"there is no sandbox for students' programs: {reason}. --no-sandbox runs them without: "
                         "do that only in a container or an account that holds nothing else")
    earlier = submissions(options.earlier, graded)
    for one in earlier:
        one.name = f"earlier/{one.name}"
    course = read_course(options.course, graded)
    course.check_names([one.title for one in found])
    labs = chosen_labs(options, course, found, earlier)
    if options.list:
        print_list(found, labs, course)
        return 0
    built_labs(options.build, [lab.number for lab in labs])
    with claimed(options.out):
        return grade_and_report(options, course, labs, found, earlier)


@contextlib.contextmanager
def scratch_folder(no_sandbox):
    """A folder that other accounts cannot read. What killed runs of this account have left is removed: nobody holds its
    lock."""
    for left in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):
            status = left.lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > SCRATCH_SECONDS:
                with locked(left):
                    shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, ignore_cleanup_errors=True) as scratch, locked(scratch):
        # Without a sandbox, programs under other accounts have their own folders in it.
        Path(scratch).chmod(0o711 if no_sandbox else 0o700)
        yield Path(scratch)


@contextlib.contextmanager
def locked(folder):
    """BlockingIOError if another process holds the lock, which ends with it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def claimed(out):
    """The folder for the results is there, and no other run of this command uses it."""
    with contextlib.ExitStack() as stack:
        try:
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(locked(out))
        except FileExistsError:
            raise GradeError(f"--out {out} is a file, not a folder") from None
        except BlockingIOError:
            raise GradeError(f"another ./workbook grade is writing to {out}: "
                             "wait for it, or name another --out") from None
        except OSError as error:
            raise GradeError(f"--out {out}: {error.strerror}") from None
        yield


def check_complete(options, found):
    """A list that has become shorter would take students out of the tables."""
    try:
        with open(options.out / "results.csv", newline="", encoding="utf-8") as stream:
            before = [row["submission"].lstrip("'") for row in csv.DictReader(stream)]
    except (OSError, KeyError):
        return
    left_out = sorted(set(before) - {one.name for one in found})
    if left_out and not options.replace:
        raise GradeError(f"the tables in {options.out} also have {', '.join(left_out[:5])}"
                         f"{f' and {len(left_out) - 5} more' if len(left_out) > 5 else ''}: name all submissions, "
                         "or another --out, or --replace to take them out of the tables")


def grade_and_report(options, course, labs, found, earlier):
    check_complete(options, found)
    for one in earlier:
        if not one.files:
            print(f"note: {one.name} is compared with nothing: {(reasons_of(one) or ['it has no file of these labs'])[0]}")
    pairs = similar_pairs(found, earlier, labs) if options.similar or earlier else {}
    how = "without a sandbox" if options.no_sandbox else "each in a sandbox"
    numbers = " ".join(lab.number for lab in labs)
    print(f"{counted(found)}, lab{'s' if len(labs) > 1 else ''} {numbers}, {how}", flush=True)
    with scratch_folder(options.no_sandbox) as scratch:
        grader = Grader(options.build.resolve(), labs, course, options, scratch)
        check_solutions(grader, options.out)
        # Those of an earlier run are not to be taken for this one's, should it be interrupted.
        for table in TABLES + (SIMILAR,) * bool(pairs):
            (options.out / table).unlink(missing_ok=True)
        results = grade_class(grader, found, options.out)
    grade_report.write_class(options.out, found, results, labs, pairs)
    grade_tables.write_tables(options.out, found, results, labs)
    print_table(results, labs)
    for lab, ones in pairs.items():
        print(f"\nsimilar, lab {lab}:" + "".join(f"\n  {line}" for line in in_lines(ones)))
    print_exceptions(found, results, options.out)
    if not pairs and (options.out / SIMILAR).exists():
        print(f"\n{options.out / SIMILAR} is that of an earlier run: --similar renews it")
    print(f"\n{options.out}: {', '.join(TABLES + (SIMILAR,) * bool(pairs))}; of each submission results.json and index.html")
    if not all(map(grade_report.is_graded, results.values())):
        print("some tasks are not graded: run again, which grades only these")
        return NOT_GRADED
    return 0


def stop(*_):
    """Ends the students' programs at once: the threads that wait for them would go on. Temporary files are removed."""
    stopping.set()
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(main())
    except GradeError as problem:
        sys.exit(f"error: {problem}")
    except KeyboardInterrupt:
        print("interrupted: the same command grades the submissions that are left, and then writes the tables",
              file=sys.stderr)
        sys.exit(128 + signal.SIGINT)

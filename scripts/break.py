#!/usr/bin/env python3
"""./workbook break N [LETTER [options]]: a wrong version of lab N's solution next to the right one.

    break.py list ROOT FOLDER
    break.py find ROOT FOLDER LETTER (is there such an experiment?)
    break.py run ROOT FOLDER BUILD POINTS LETTER [--out FOLDER] [options of the lab's program]

FOLDER: 04_pipeline_1f1b, whose labs/FOLDER/experiments.txt says what is run (docs/authors.md). BUILD has the
lab's rehearsal program, or its test if it has no program, and implementations/labNN/solution.so. POINTS: what
`./workbook status` says about the lab's points; the page shows the changed lines only to those who have them all.

A wrong version is a mutant of tests/labs/FOLDER/mutants.txt, compiled with the solution's options into
BUILD/experiments/labNN/NAME.so. A released copy has no sources of solutions: there it is linked from
reference/ARCHITECTURE/experiments/FOLDER/NAME.cpp.o. The student's file is neither read nor written. A wrong version
that deadlocks, crashes, diverges or fails its test has done what it is for: the exit code is that of the right version.
"""
import difflib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True  # the folder may be read-only
from break_page import Run, difference_in_words, loss_table, page
from lab_code import changed_source, read_experiments, read_mutants, split_options

LIMIT_S = 900  # of a run, which takes about a minute
END_S = 10  # for a run that has been asked to end
LAST_LINES = 30  # of a run's output, on the page
ERROR_LINES = 25  # of an error, on the page
TERMINAL_LINES = 12  # and in the terminal


class Problem(Exception):
    """What is wrong, where, and what to do: one line."""


def load_experiments(root, folder):
    name = f"labs/{folder}/experiments.txt"
    if not (root / name).is_file():
        raise Problem(f"lab {folder.split('_')[0]} has no experiments for this command: there is no {name}")
    try:
        return read_experiments((root / name).read_text(encoding="utf-8"))
    except ValueError as error:
        raise Problem(f"{name}:{error}") from None


def number_of(folder):
    """"04_pipeline_1f1b" -> "4"."""
    return folder.split("_")[0].lstrip("0")


def list_experiments(root, folder):
    experiments = load_experiments(root, folder)
    print(f"lab {folder.split('_')[0]}: section 6.1 of labs/{folder}/README.md. Predict first: {experiments[0].predict}")
    for experiment in experiments:
        print(f"  {experiment.letter:<3} {experiment.what}")
    print(f"next: ./workbook break {number_of(folder)} {experiments[0].letter}")


def find_experiment(root, folder, letter):
    experiments = {experiment.letter.upper(): experiment for experiment in load_experiments(root, folder)}
    if letter.upper() not in experiments:
        raise Problem(f"lab {folder.split('_')[0]} has no experiment {letter}; it has {', '.join(experiments)}")
    return experiments[letter.upper()]


def find_mutant(root, folder, name):
    """In a released copy: without its edits."""
    files = [root / "tests/labs" / folder / "mutants.txt", root / "reference/experiments" / f"{folder}.txt"]
    file = next(filter(Path.is_file, files), None)
    if not file:
        return None
    for mutant in read_mutants(file.read_text(encoding="utf-8")):
        if mutant.name == name:
            return mutant
    raise Problem(f"{file.relative_to(root)} has no {name}, which labs/{folder}/experiments.txt names")


def link_shipped(root, lab_folder, built, name):
    """Links the compiled wrong version of a released copy (scripts/release.py), if there is one."""
    places = (root / "reference" / platform.machine() / "experiments" / lab_folder).glob(f"{name}.c*.o")
    shipped = next(places, None)  # NAME.cpp.o or NAME.cu.o
    if not shipped or (built.is_file() and built.stat().st_mtime > shipped.stat().st_mtime):
        return
    built.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([os.environ.get("CXX", "g++"), "-shared", "-o", built, shipped], capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise Problem(f"{shipped.relative_to(root)} cannot be linked: {done.stderr.strip()[-500:]}")


def build_wrong(root, build, lab, solution, mutant, name):
    """The wrong version as a shared object, and its difference from the solution (None if that is not here)."""
    folder = build / "experiments" / lab
    built = folder / f"{name}.so"
    if not solution.is_file() or mutant is None or not mutant.edits:
        link_shipped(root, solution.parent.name, built, name)
        if not built.is_file():
            raise Problem(f"this copy of the workbook has neither {solution.relative_to(root)} nor {built}: "
                          "ask whoever gave it to you")
        return built, None
    right = solution.read_text(encoding="utf-8")
    try:
        wrong = changed_source(right, mutant)
    except ValueError as error:
        raise Problem(str(error)) from None
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{name}.cpp"  # a .cu is C++ for the emulation
    for other in folder.glob("*.cpp"):
        if other != source:
            other.unlink()
    if not source.is_file() or source.read_text(encoding="utf-8") != wrong:
        source.write_text(wrong, encoding="utf-8")
    compiled = solution  # or the file that includes it (cmake/Emulation.cmake)
    if solution.suffix == ".cu":
        compiled = build / "emulated" / f"{lab}_code_solution" / f"{solution.stem}.cpp"
    command = ["bash", root / "cmake/build_mutants.sh", "--optimized", build / "compile_commands.json", compiled,
               folder, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(f"the wrong version does not build: {done.stderr.strip()[-1500:]}")
    lines = difflib.unified_diff(right.splitlines(), wrong.splitlines(), lineterm="", n=2)
    return built, "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def free_folder(root, name):
    """runs/NAME, or with the first number that is free."""
    for again in range(1, 1000):
        folder = root / "runs" / (name if again == 1 else f"{name}_{again}")
        if not folder.exists():
            return folder
    raise Problem(f"runs/ has a thousand folders {name}: remove some")


def end(process):
    """Ends a program and, with it, its ranks, which the kernel ends when their launcher ends."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def is_test(program):
    """Of a lab that has no program."""
    return program.name.endswith("_verdict")


def last_line(log):
    text = log.read_bytes()[-400:].decode("utf-8", "replace").strip()
    return re.sub(r"\x1b\[[0-9;]*m|\t", " ", text.splitlines()[-1])[:70] if text else ""


def run_program(root, command, implementation, name, folder):
    """Runs the program or test until it ends; its output goes to FOLDER.log."""
    log = folder.with_suffix(".log")
    environment = dict(os.environ)
    if is_test(command[0]):
        command = [*command, "--implementation", implementation, "--results", folder]
    else:
        command = [*command, "--out", folder]
        environment["LD_PRELOAD"] = str(implementation)
    begin = time.monotonic()
    with open(log, "wb") as output:
        # A session of its own: Ctrl-C reaches this script only, which then ends the program.
        process = subprocess.Popen([str(part) for part in command], cwd=root, env=environment, stdout=output,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = None
            while status is None and time.monotonic() - begin < LIMIT_S:
                try:
                    status = process.wait(0.5)
                except subprocess.TimeoutExpired:
                    if sys.stdout.isatty():
                        print(f"\r\x1b[K{name}: {last_line(log)}", end="", flush=True)
        finally:
            if process.poll() is None:
                end(process)
            if sys.stdout.isatty():
                print("\r\x1b[K", end="")
    seconds = time.monotonic() - begin
    for checkpoint in folder.glob("checkpoint-*"):  # of a wrong model, and large
        shutil.rmtree(checkpoint)
    if status is None:
        ended = f"still running after {LIMIT_S} s, and ended"
    elif status < 0:
        ended = f"ended by {signal.Signals(-status).name} after {seconds:.0f} s"
    elif is_test(command[0]):
        ended = "the test passes" if status == 0 else "the test fails"
    else:
        ended = f"{'done' if status == 0 else 'ended with an error'} after {seconds:.0f} s"
    return Run(name, folder, status == 0, ended, tail(log))


def tail(log):
    """The last paragraphs of the output, or from an error on, without the prefix of rank 0 and the checkpoint."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(encoding="utf-8", errors="replace")).splitlines()
    lines = [line.removeprefix("[0] ") for line in lines]
    errors = [i for i, line in enumerate(lines) if re.match(r"(\[\d+\] )?error: ", line)]
    if errors:
        return lines[errors[0]:][:ERROR_LINES]
    lines = [line for line in lines if not line.startswith("checkpoint ")]
    begins = [0] + [i + 1 for i, line in enumerate(lines) if not line.strip()]
    return lines[next((i for i in begins if len(lines) - i <= LAST_LINES), begins[-1]):]


def words_of(options):
    return [word for name, value in options.items() for word in (name, value) if word]


def found_by_test(mutant):
    if mutant is None:
        return ""
    if "none" in mutant.tasks:
        return "all tasks pass"
    tasks = f"tasks {' and '.join(mutant.tasks)} fail" if len(mutant.tasks) > 1 else f"task {mutant.tasks[0]} fails"
    return f"{tasks}: “… {' '.join(mutant.message)} …”"


def run_experiment(root, folder, build, points, letter, words):
    experiment = find_experiment(root, folder, letter)
    try:
        options = {**experiment.options, **split_options(words)}
    except ValueError as error:
        raise Problem(str(error)) from None
    if "--help" in options:
        raise Problem("break N LETTER [--out FOLDER] takes the options of ./workbook run N, which replace those of "
                      "the experiment")
    lab, name = f"lab{folder.split('_')[0]}", folder.split("_", 1)[1]
    programs = [build / "bin" / f"{lab}_{kind}" for kind in ("rehearsal", "verdict")]
    program = next(filter(Path.is_file, programs), programs[0])
    right = build / "implementations" / lab / "solution.so"
    if not program.is_file() or not right.is_file():
        raise Problem(f"{program} or {right} is missing: ./workbook break {number_of(folder)} {letter} builds them")
    out = Path(options.pop("--out", "")) if "--out" in options else free_folder(
        root, f"{folder.split('_')[0]}_break_{experiment.letter}")
    out = Path(os.path.abspath(out))
    if out.exists():
        raise Problem(f"{out} exists already: name another folder")
    mutant = find_mutant(root, folder, experiment.mutant)
    kind = ".cu" if (root / "labs" / folder / f"{name}.cu").is_file() else ".cpp"
    wrong, change = build_wrong(root, build, lab, root / "solutions" / folder / f"{name}{kind}", mutant,
                                experiment.mutant)

    out.mkdir(parents=True)
    shown = " ".join(shlex.quote(word) for word in words_of(options))
    print(f"lab {folder.split('_')[0]}, experiment {experiment.letter}: {experiment.what}\n"
          f"options     {shown}\npredict     {experiment.predict}\n", flush=True)
    wrong_names = [f"wrong {i}" for i in range(1, experiment.wrong_runs + 1)] if experiment.wrong_runs > 1 else ["wrong"]
    runs = []
    for run_name, implementation in [("right", right)] + [(wrong_name, wrong) for wrong_name in wrong_names]:
        place = out / run_name.replace(" ", "_")
        runs.append(run_program(root, [program, *words_of(options)], implementation, run_name, place))
        print(f"{run_name:<11} {runs[-1].ended}", flush=True)
        if not runs[-1].succeeded:
            print("\n".join("  | " + line for line in runs[-1].log[:TERMINAL_LINES]), flush=True)
            if len(runs) == 1:
                raise Problem(f"the right version fails, so there is nothing to compare: {out}/{run_name}.log")
    rows = [] if is_test(program) else loss_table(runs)
    if rows:
        print("\n" + "\n".join("  ".join(f"{cell:>10}" for cell in row) for row in rows))
    if difference := difference_in_words(runs):
        print(difference)

    done = re.search(r"(\d+)/(\d+) points", points)
    if change and not (done and done[1] == done[2]):
        change = ""
    file = out / "index.html"
    file.write_text(page(experiment, folder, shown, runs, rows, change, found_by_test(mutant)), encoding="utf-8")
    print(f"\nlook at     {experiment.look}\npage        with what the test finds: {os.path.relpath(file)}")


def interrupt(number, _):
    raise KeyboardInterrupt(number)


def main(arguments):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stderr.reconfigure(encoding="utf-8")
    if len(arguments) < 3:
        sys.exit(__doc__)
    command, root, folder, *rest = arguments
    root = Path(root).resolve()
    try:
        if command == "list" and not rest:
            list_experiments(root, folder)
        elif command == "find" and len(rest) == 1:
            find_experiment(root, folder, rest[0])
        elif command == "run" and len(rest) >= 3:
            run_experiment(root, folder, Path(rest[0]).resolve(), rest[1], rest[2], rest[3:])
        else:
            sys.exit(__doc__)
        return 0
    except (Problem, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupted:
        print("\nstopped; nothing is left running", file=sys.stderr)
        return 128 + (interrupted.args[0] if interrupted.args else signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

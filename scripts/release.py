#!/usr/bin/env python3
"""./workbook release: a copy of the workbook to hand to students, without solutions and answers.

Usage: release.py BUILD --labs 00-03 --out DIR [--given 01,02]
       release.py BUILD --update DIR [--labs 00-04] [--given 01,02]
       release.py BUILD --gradescope FILE.zip --labs 02 [--seed S]
  BUILD          a configured build folder, which says how each file is compiled
  --labs         the labs to hand out; those they build on come along
  --given        labs whose solutions and answers are handed out as well
  --classroom    with a workflow for GitHub Classroom (release_classroom.py)
  --gradescope   an autograder in place of a copy (release_gradescope.py)
  --update DIR   adds labs to a folder that has been handed out, and renews the rest of it. What
                 somebody has changed there stays as it is

The files are those of the last commit. Files with correct functions are compiled, for any processor
of an architecture, and cmake/Reference.cmake links the result in their place.
"""
import argparse
import contextlib
import hashlib
import io
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from lab_code import changed_source, read_experiments, read_mutants
from lab_numbers import parse_labs
from release_classroom import WORKFLOW, workflow
from release_gradescope import write_autograder

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = "reference/release.json"
VERSION = 2  # of the compiled files: another one if this script changes what it makes of them

# Released besides labs/NN_* and solutions/NN_*; * also matches /. What is named nowhere stays here.
RELEASED = [
    ".clang-format", ".clang-tidy", ".clangd", ".devcontainer/*", ".dockerignore", ".editorconfig",
    ".gitattributes", ".gitignore", ".vscode/*", "AGENTS.md", "CMakeLists.txt", "CMakePresets.json", "Dockerfile",
    "LICENSE", "README.md", "packages.txt", "workbook", "cmake/*", "common/*", "data/*", "docs/*",
    "slides/filter.lua", "scripts/book.py", "scripts/book/*", "scripts/break.py", "scripts/break_page.py",
    "scripts/debug.sh", "scripts/doctor.sh", "scripts/grade_files.py", "scripts/grade_submissions.py",
    "scripts/lab_code.py", "scripts/losses.py", "scripts/setup.sh", "scripts/slurm/*", "scripts/status.py",
    "scripts/submit.py", "scripts/watch.py", "tests/CMakeLists.txt", "tests/bench/*", "tests/emulation/*", "tests/grading/*",
    "tests/unit/pipeline_plans.h",  # lab 05's tests
    "train/*"]
WITHHELD = [
    "cmake/build_mutants.sh", "docs/authors.md", "docs/grading.md", "docs/instructors.md",
    "tests/bench/gpu_script_test.sh", "tests/bench/gpu_run_test.sh",
    "tests/emulation/CMakeLists.txt", "tests/emulation/tests/*",
    "*/mutants.txt", "*/survivors.txt"]
# Files of the tests that contain correct functions, for tasks that are given those of other tasks.
COMPILED_TESTS = ["tests/grading/reference.cpp", "tests/labs/*/rank*.cpp", "tests/labs/*/rehearsal*.cpp"]
WRONG_VERSIONS = "experiments"  # the folder, below reference/ARCHITECTURE, of what ./workbook break runs

# The sections of README.md that students get.
SECTIONS = ["The labs", "Working on a lab", "Several ranks", "Training and telling stories", "Other machines",
            "When something goes wrong", "Licence"]

HONESTY = ["For students", "What the grader detects", "What it cannot detect"]  # of docs/honesty.md

CROSS_COMPILERS = {"x86_64": "x86_64-linux-gnu-", "aarch64": "aarch64-linux-gnu-"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s]+)\)")


class ReleaseError(Exception):
    """What a user can mend; the message is one line."""


def run(*command, cwd=ROOT, text=True, **options):
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=text, check=False, **options)
    if result.returncode != 0:
        message = result.stderr if text else result.stderr.decode(errors="replace")
        raise ReleaseError(f"{' '.join(command[:3])} failed: {message.strip() or 'no message'}")
    return result.stdout


def digest(data):
    return hashlib.sha256(data).hexdigest()


def matches(path, patterns):
    return any(fnmatchcase(path, pattern) for pattern in patterns)


class Workbook:
    """The last commit: `files` by path, as (contents, is executable), and the labs by number."""

    def __init__(self):
        if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode != 0:
            raise ReleaseError(f"{ROOT} is no git repository with a commit: only what git knows is released")
        self.commit = run("git", "rev-parse", "--short=12", "HEAD").strip()
        self.files = {}
        archive = run("git", "archive", "--format=tar", "HEAD", text=False)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if member.isfile():
                    self.files[member.name] = (tar.extractfile(member).read(), bool(member.mode & 0o100))
        lines = re.findall(r"^add_lab\((\w+) (\w+)([^)]*)\)", self.text("CMakeLists.txt"), re.M)
        self.folders = {number: f"{number}_{name}" for number, name, _ in lines}
        self.bases = {number: rest.partition("BUILDS_ON")[2].split() for number, _, rest in lines}

    def text(self, path):
        return self.files[path][0].decode()

    def numbers(self, text):
        try:
            return parse_labs(text, self.folders)
        except ValueError as error:
            here = {path.name.split("_")[0] for path in ROOT.glob("labs/*_*")}
            with contextlib.suppress(ValueError):
                new = sorted(set(parse_labs(text, here)) - set(self.folders))
                raise ReleaseError(f"lab {' '.join(new)} is not committed, and only the last commit is released: "
                                   "commit its folders and CMakeLists.txt") from None
            raise ReleaseError(str(error)) from None

    def with_bases(self, labs):
        """Also the labs that these are built on. Lab 01 and its CUDA part are in every program."""
        wanted = {"01", *labs}
        while True:
            more = wanted | {base for lab in wanted for base in self.bases[lab]}
            if "01cuda" in self.folders:
                more.add("01cuda")
            if more == wanted:
                return sorted(wanted)
            wanted = more


def add_wrong_versions(book, labs):
    """Adds those that ./workbook break runs, as files experiments/FOLDER/NAME.cpp or .cu: to be compiled, and not
    released."""
    for folder in (book.folders[lab] for lab in labs):
        if f"labs/{folder}/experiments.txt" not in book.files:
            continue
        mutants = {mutant.name: mutant for mutant in read_mutants(book.text(f"tests/labs/{folder}/mutants.txt"))}
        kind = ".cpp" if solution_of(folder, ".cpp") in book.files else ".cu"
        solution = book.text(solution_of(folder, kind))
        for name in {experiment.mutant for experiment in read_experiments(book.text(f"labs/{folder}/experiments.txt"))}:
            wrong = changed_source(solution, mutants[name])
            book.files[f"{WRONG_VERSIONS}/{folder}/{name}{kind}"] = (wrong.encode(), False)


def messages_of_wrong_versions(book, labs):
    """What the tests say about them, for ./workbook break: entries of mutants.txt without their edits."""
    files = {}
    for folder in (book.folders[lab] for lab in labs):
        if f"labs/{folder}/experiments.txt" not in book.files:
            continue
        names = {experiment.mutant for experiment in read_experiments(book.text(f"labs/{folder}/experiments.txt"))}
        entries = [f"# {mutant.name}\ntask: {' '.join(mutant.tasks)}\n" + "".join(f"message: {line}\n" for line in mutant.message)
                   for mutant in read_mutants(book.text(f"tests/labs/{folder}/mutants.txt")) if mutant.name in names]
        files[f"reference/{WRONG_VERSIONS}/{folder}.txt"] = ("\n".join(entries).encode(), False)
    return files


def solution_of(folder, kind):
    return f"solutions/{folder}/{folder.split('_', 1)[1]}{kind}"


def sources(book, labs, given):
    """The files to compile."""
    folders = {book.folders[lab] for lab in labs}
    found = []
    for path in book.files:
        parts = path.split("/")
        if parts[0] == "solutions" and parts[1] in folders and path.endswith((".cpp", ".cu")):
            # With its source given, a lab needs no compiled solution.
            if parts[1].split("_")[0] not in given:
                found.append(path)
        elif parts[0] == WRONG_VERSIONS and parts[1] in folders:
            found.append(path)
        elif matches(path, COMPILED_TESTS) and (parts[1] != "labs" or parts[2] in folders):
            found.append(path)
    return sorted(found)


def released_files(book, labs, given):
    """All but what is compiled, as (contents, is executable) by path."""
    folders = {book.folders[lab] for lab in labs}
    answers = {book.folders[lab] for lab in given}
    files = {}
    for path, file in book.files.items():
        parts = path.split("/")
        wanted = {"labs": len(parts) > 2 and parts[1] in folders,
                  "solutions": len(parts) > 2 and parts[1] in answers}.get(parts[0])
        if wanted is None:
            wanted = matches(path, RELEASED) or (path.startswith("tests/labs/") and parts[2] in folders)
        if wanted and not matches(path, WITHHELD + COMPILED_TESTS):
            files[path] = file
    for folder in sorted(folders - answers):
        if (values := f"solutions/{folder}/predictions.json") in book.files:
            files[f"reference/predictions/{folder}.json"] = book.files[values]
    files["README.md"] = (readme(book, labs).encode(), False)
    honesty = book.text("docs/honesty.md")
    parts = [honesty.split("\n\n")[0] + "\n", *(section(honesty, heading) for heading in HONESTY)]
    files["docs/honesty.md"] = ("\n".join(parts).encode(), False)
    files["reference/README.md"] = (about_reference(given).encode(), False)
    return with_links(files)


# Texts

def section(text, heading):
    """The section of a Markdown text, with its heading."""
    found = re.search(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", text, re.M | re.S)
    if not found:
        raise ReleaseError(f"there is no section '{heading}' in a text that released copies need")
    return found[0].rstrip() + "\n"


def readme(book, labs):
    whole = book.text("README.md")
    last = "06" in labs
    missing = [number for number in book.folders if number not in labs]
    first = book.folders[labs[0]]
    names = f"lab {labs[0]}" if len(labs) == 1 else f"labs {', '.join(labs[:-1])} and {labs[-1]}"
    introduction = whole.split("\n\n")[1]
    parts = [f"# LLaMA workbook: labs {labs[0]} to {labs[-1]}\n\n{introduction}\n\n"
             "```sh\n./workbook setup     # installs missing packages and builds, once: some minutes\n"
             "./workbook test 1    # tests your lab, and prints points\n```\n\n"
             f"Start with [lab {labs[0]}](labs/{first}/README.md). This copy has {names}; your course may add\n"
             "others later. In place of solutions it has their compiled code: [`reference/`](reference/README.md).\n"]
    for heading in SECTIONS:
        if heading == "Training and telling stories" and not last:
            continue
        text = section(whole, heading)
        for number in missing:
            text = re.sub(rf"^\| \[{number} .*\n", "", text, flags=re.M)
            text = re.sub(rf"^\./workbook run {number.lstrip('0')} .*\n", "", text, flags=re.M)
        if not last:
            text = text.replace("`./workbook train`", "`./workbook setup`")
        parts.append(text)
    return "\n".join(parts)


def about_reference(given):
    there = f"It has those of lab {', '.join(given)}, in `solutions/`.\n" if given else "It has none yet.\n"
    return f"""# The reference

The solutions of the labs, compiled. Tests use them, later labs build on them, and `./workbook run 2 --solution` runs
one. Some files of the tests are compiled, too, because they contain correct functions, and so are the wrong versions
that `./workbook break` runs. `predictions/` has the right values of the predictions, which `./workbook status 2` shows
once lab 02 has all its points.

Your course decides when this copy gets the solutions' sources and the answers to the handouts' questions. {there}
Leave this folder as it is. `release.json` lists all files as they were handed out, so that an
update knows which ones you have changed, and keeps them.
"""


def outside_code(text, change):
    """The text, changed outside of fenced code."""
    parts = re.split(r"(^ *```.*?^ *```[^\n]*$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def anchors(text):
    """What GitHub calls the headings of a text."""
    titles = []
    outside_code(text, lambda part: titles.extend(re.findall(r"^#+ *(.*)$", part, re.M)) or part)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def with_links(files):
    """The files, whose texts have no links to what is not among them."""
    folders = {str(parent) for path in files for parent in Path(path).parents}
    texts = {path: contents.decode() for path, (contents, _) in files.items() if path.endswith(".md")}

    def mend(path, match):
        image, label, target = match.groups()
        place, _, anchor = target.partition("#")
        if not place or re.match(r"[a-z]+:", target):
            return match[0]
        to = os.path.normpath(os.path.join(os.path.dirname(path), place))
        if to in files or to in folders:
            if anchor and to in texts and anchor not in anchors(texts[to]):
                return f"{image}[{label}]({place})"
            return match[0]
        if to.startswith("solutions"):  # the page that says why they are not there
            return f"[{label}]({os.path.relpath('reference/README.md', os.path.dirname(path) or '.')})"
        return label

    result = dict(files)
    for path, text in texts.items():
        mended = outside_code(text, lambda part, path=path: LINK.sub(lambda match: mend(path, match), part))
        result[path] = (mended.encode(), files[path][1])
    return result


# Compiled files

def command_of(entries, source):
    """The compiler's words for a source, without what is about this machine, this build and its speed."""
    like = Path(solution_of(source.split("/")[1], Path(source).suffix) if source.startswith(WRONG_VERSIONS) else source)
    if like.suffix == ".cu":  # compiled as C++ for the emulation, through a file that includes it
        lab = like.parts[1].split("_")[0]
        place = f"/emulated/lab{lab}_code_solution/{like.stem}.cpp"
        found = [entry for entry in entries if entry["file"].endswith(place)]
    else:
        found = [entry for entry in entries if entry["file"] == str(ROOT / like)]
    if not found:
        raise ReleaseError(f"the build folder does not say how {source} is compiled: cmake --preset student")
    words = shlex.split(found[0]["command"])
    kept = []
    skip = False
    for word in words[1:]:
        if skip or word in ("-o", "-c", "-include", "-isystem"):
            skip = not skip
        elif not re.match(r"-(W|g|march=|mtune=|O3|DFMT_SHARED|DLAB_SOURCE_DIR)", word):
            kept.append(word.replace(f"-I{ROOT}/", "-I").replace(f"-I{ROOT}", "-I."))
    # The library for formatted text has another name in each of its versions: its functions come along.
    options = ["-DFMT_HEADER_ONLY", "-fPIC", "-fsemantic-interposition", "-fno-gnu-unique"]
    if not any(word.startswith("-O") for word in kept if word != "-O0"):
        options.append("-O2")
    return [*kept, *options, "-x", "c++"]


class Compiler:
    """Compiles files of the last commit for one architecture. Results are kept in build/reference."""

    def __init__(self, machine, build, tree):
        self.machine, self.tree = machine, tree
        self.kept = build.parent / "reference" / machine
        native = machine == platform.machine()
        self.prefix = "" if native else CROSS_COMPILERS[machine]
        # Headers of libraries are the same for all architectures; the cross compiler finds its own first.
        self.options = [] if native else ["-idirafter", "/usr/include"]
        self.entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        self.version = run(f"{self.prefix}g++", "-dumpversion").strip()

    def compile(self, source):
        command = [f"{self.prefix}g++", *command_of(self.entries, source), *self.options]
        target = self.kept / f"{source}.o"
        record = self.kept / f"{source}.json"
        if target.exists() and record.exists():
            known = json.loads(record.read_text(encoding="utf-8"))
            if known["command"] == [VERSION, self.version, *command] and known["read"] == self.hashes(known["read"]):
                return target.read_bytes()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            output, read = f"{folder}/file.o", f"{folder}/file.d"
            run(*command, "-MD", "-MF", read, "-o", output, "-c", source, cwd=self.tree)
            self.check(source, output)
            # The emulation of CUDA knows kernels and shared variables by their symbols.
            strip = "--strip-debug" if source.endswith(".cu") else "--strip-unneeded"
            run(f"{self.prefix}objcopy", strip, "--remove-section=.comment", output)
            words = Path(read).read_text(encoding="utf-8").replace("\\\n", " ").split()
            record.unlink(missing_ok=True)  # until it is true: this may be interrupted
            shutil.copyfile(output, target)
            record.write_text(json.dumps({"command": [VERSION, self.version, *command], "read": self.hashes(words[1:])}),
                              encoding="utf-8")
        return target.read_bytes()

    def hashes(self, names):
        def of(name):
            file = self.tree / name
            return digest(file.read_bytes()) if file.is_file() else ""
        return {name: of(name) for name in names}

    def check(self, source, output):
        """Nothing may be needed that other versions of a library call differently."""
        needed = run(f"{self.prefix}nm", "-u", "-C", output).split("\n")
        bad = [line.split(maxsplit=1)[1] for line in needed if re.search(r"\b(fmt|nlohmann|testing|CLI|gloo)::", line)]
        if bad:
            raise ReleaseError(f"{source} cannot be compiled for other machines: it needs {bad[0]}")


def compiled_files(book, build, paths):
    """The compiled files by path, and the compilers' versions by architecture."""
    files, versions = {}, {}
    with tempfile.TemporaryDirectory(prefix="workbook-release.") as folder:
        tree = Path(folder)
        for path, (contents, _) in book.files.items():
            if path.endswith((".h", ".cpp", ".cu", ".cuh")):
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_bytes(contents)
        for machine, prefix in sorted(CROSS_COMPILERS.items()):
            if machine != platform.machine() and not shutil.which(f"{prefix}g++"):
                print(f"note: no reference for {machine}: {prefix}g++ is missing "
                      f"(sudo apt-get install g++-{prefix.rstrip('-').replace('_', '-')})", file=sys.stderr)
                continue
            compiler = Compiler(machine, build, tree)
            versions[machine] = compiler.version
            with ThreadPoolExecutor(os.cpu_count()) as workers:
                for path, contents in zip(paths, workers.map(compiler.compile, paths)):
                    files[f"reference/{machine}/{path}.o"] = (contents, False)
    return files, versions


def contents(book, build, labs, given, classroom):
    """All files of a copy with these labs, and its manifest. `classroom`: the labs that its workflow tests, if any."""
    if stray := [lab for lab in given if lab not in labs]:
        raise ReleaseError(f"--given: lab {stray[0]} is not among the labs {' '.join(labs)}")
    add_wrong_versions(book, labs)
    compiled, versions = compiled_files(book, build, sources(book, labs, given))
    files = {**released_files(book, labs, given), **messages_of_wrong_versions(book, labs), **compiled}
    if classroom:
        files[WORKFLOW] = (workflow(book, classroom).encode(), False)
    manifest = {"labs": labs, "given": given, "classroom": classroom, "commit": book.commit, "compilers": versions,
                "files": {path: digest(data) for path, (data, _) in sorted(files.items())}}
    return files, manifest


# Writing

def write(file, data, executable):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(0o755 if executable else 0o644)


def commit(folder, paths, message):
    """Commits these files, and no others."""
    known = set(run("git", "ls-files", "-z", cwd=folder).split("\0"))
    names = "\0".join(path for path in paths if path in known or (folder / path).exists())
    who = ["-c", "user.name=LLaMA workbook", "-c", "user.email=workbook@localhost", "-c", "commit.gpgsign=false"]
    existing = "\0".join(path for path in paths if (folder / path).exists())
    run("git", "add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", cwd=folder, input=existing)
    run("git", *who, "commit", "--quiet", "--message", message, "--pathspec-from-file=-", "--pathspec-file-nul",
        cwd=folder, input=names)


def described(labs):
    return f"labs {' '.join(labs)}"


def release(book, build, out, labs, given, classroom):
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ReleaseError(f"{out} is there already: choose another folder, or --update {out}")
    if out.resolve().is_relative_to(ROOT):
        raise ReleaseError(f"{out} is inside the workbook: choose a folder outside of it")
    files, manifest = contents(book, build, labs, given, classroom)
    for path, (data, executable) in files.items():
        write(out / path, data, executable)
    write(out / MANIFEST, json.dumps(manifest, indent=1).encode(), False)
    run("git", "init", "--quiet", "--initial-branch=main", cwd=out)
    commit(out, [*files, MANIFEST], f"LLaMA workbook: {described(labs)}")
    print(f"{out}: {described(labs)}, {len(files)} files, one commit")


def free_name(file, data):
    """FILE.new, or another name if somebody has changed that one, too."""
    name, n = file.with_name(file.name + ".new"), 2
    while name.exists() and name.read_bytes() != data:
        name, n = file.with_name(f"{file.name}.new{n}"), n + 1
    return name


def update(book, build, folder, named, given, classroom):
    """`named`: what --labs says; empty if it was not given. Whether to have a `classroom` is never taken back."""
    folder = Path(folder)
    try:
        old = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        before, old_labs, old_given, tested = old["files"], old["labs"], old["given"], old["classroom"]
    except (OSError, ValueError, KeyError):
        raise ReleaseError(f"{folder} has no readable {MANIFEST}: it was not made by ./workbook release") from None
    labs = book.with_bases(named) if named else old_labs
    given = sorted({*given, *old_given})
    gone = [lab for lab in old_labs if lab not in labs]
    if gone:
        raise ReleaseError(f"{described(gone)} cannot be taken back: --labs must name all labs, old and new")
    if classroom or tested:
        tested = named or tested or labs
    files, manifest = contents(book, build, labs, given, tested)
    if lost := sorted(set(old["compilers"]) - set(manifest["compilers"])):
        raise ReleaseError(f"{folder} runs on {' and '.join(lost)}, too, and there is no compiler for that here: "
                           "see docs/instructors.md")

    new, renewed, removed, kept = [], [], [], []
    for path, (data, executable) in files.items():
        file = folder / path
        now = digest(file.read_bytes()) if file.is_file() else None
        if now == manifest["files"][path]:
            continue
        if now is None or now == before.get(path):
            (new if now is None else renewed).append(path)
            write(file, data, executable)
        elif before.get(path) == manifest["files"][path]:
            kept.append(f"kept, changed here: {path}")
        else:
            beside = free_name(file, data)
            write(beside, data, executable)
            kept.append(f"kept, changed here: {path}; the new one is {beside.name}, next to it")
    for path, was in before.items():
        file = folder / path
        if path in files or not file.is_file():
            continue
        if digest(file.read_bytes()) == was:
            file.unlink()
            removed.append(path)
        else:
            kept.append(f"kept, changed here: {path}; the workbook has no such file any more")
    write(folder / MANIFEST, json.dumps(manifest, indent=1).encode(), False)

    print(f"{folder}: {described(labs)}; {len(new)} files new, {len(renewed)} renewed, {len(removed)} removed")
    for path in sorted({"/".join(path.split("/")[:2]) for path in new if path.startswith(("labs/", "solutions/"))}):
        print(f"new: {path}")
    print("\n".join(kept) if kept else "nothing had been changed here")
    if (folder / ".git").exists() and (new or renewed or removed or manifest != old):
        commit(folder, [*new, *renewed, *removed, MANIFEST], f"LLaMA workbook: {described(labs)}")
        print("committed, without any file that was changed here")


def main():
    parser = argparse.ArgumentParser(prog="./workbook release", usage="%(prog)s --labs 00-03 --out DIR [--given 01]\n"
                                     "       %(prog)s --update DIR [--labs 00-04] [--given 01]\n"
                                     "       %(prog)s --gradescope FILE.zip --labs 02 [--seed S]")
    parser.add_argument("build", help=argparse.SUPPRESS, type=Path)
    parser.add_argument("--labs", help="the labs to hand out, such as 00-03 or 01,02")
    parser.add_argument("--given", default="", help="labs whose solutions are handed out as well")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", metavar="DIR", help="a new folder")
    target.add_argument("--update", metavar="DIR", help="a folder that has been handed out")
    target.add_argument("--gradescope", metavar="FILE.zip", help="an autograder for Gradescope, in place of a copy")
    parser.add_argument("--classroom", action="store_true", help="with a workflow for GitHub Classroom")
    parser.add_argument("--seed", type=int, default=1, help="of the autograder's scenarios (default: the students')")
    options = parser.parse_args()
    if not options.update and not options.labs:
        parser.error("which labs? --labs 00-03")

    book = Workbook()
    named = book.numbers(options.labs) if options.labs else []
    given = book.numbers(options.given) if options.given else []
    if changed := run("git", "status", "--porcelain", "--untracked-files=no").splitlines():
        print(f"note: the last commit is released; {len(changed)} files have changed since", file=sys.stderr)
    if options.gradescope:
        if not options.gradescope.lower().endswith(".zip"):
            raise ReleaseError(f"{options.gradescope}: Gradescope takes a .zip")
        graded = [lab for lab in named if f"labs/{book.folders[lab]}/points.json" in book.files]
        if not graded:
            raise ReleaseError(f"{described(named)}: no points to give")
        write_autograder(book, options.gradescope, graded, options.seed)
        print(f"{options.gradescope}: an autograder of {described(graded)}")
    elif options.out:
        release(book, options.build, options.out, book.with_bases(named), given, named if options.classroom else [])
    else:
        update(book, options.build, options.update, named, given, options.classroom)


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"error: {error}")

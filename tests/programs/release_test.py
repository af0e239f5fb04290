#!/usr/bin/env python3
"""./workbook release: what students get builds, grades, and has no line of a solution. --update keeps their files.

Usage: release_test.py BUILD, the build folder of this workbook. Its objects are used for the copy, too: only what
differs there is compiled. The last commit is tested.
"""
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
import release  # noqa: E402
from lab_code import read_experiments  # noqa: E402

# For this machine only: the other architecture's files would double the time.
release.CROSS_COMPILERS = {release.platform.machine(): ""}
# One wrong version of each lab: all of them would take longer than everything else here.
release.read_experiments = lambda text: read_experiments(text)[-1:]

# In place of the compiler: takes the object of this build where the sources are the same, and have no path in them.
# Generated sources include those that are compiled together, or for the emulation.
LAUNCHER = """#!/bin/sh
previous=
for word; do
  case $previous in
    -o) object=$word ;;
    -MF) record=$word ;;
  esac
  previous=$word
done
case $previous in
  "COURSE/build/"*) sources=$(sed -n 's,^#include "\\(.*\\)"$,\\1,p' "$previous") ;;
  *) sources=$previous ;;
esac
same=yes
sed "s,COURSE/,ROOT/," "$previous" | cmp -s - "ROOT/${previous#"COURSE/"}" || same=
for source in $sources; do
  here="ROOT/${source#"COURSE/"}"
  if [ ! "BUILD/$object" -nt "$here" ] || ! cmp -s "$source" "$here" || grep -q LAB_SOURCE_DIR "$source"; then same=; fi
done
if [ "$same" ]; then
  cp "BUILD/$object" "$object"
  echo "$object: $sources" >"$record"
else
  exec "$@"
fi
"""


def call(*arguments):
    """What release.py prints with these arguments."""
    output = io.StringIO()
    before, sys.argv = sys.argv, ["release.py", str(BUILD), *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            release.main()
    finally:
        sys.argv = before
    return output.getvalue()


def code_lines(text):
    """Without comments, spaces, and short lines, which occur everywhere."""
    lines = (re.sub(r"\s+", "", re.sub(r"//.*", "", line)) for line in text.splitlines())
    return [line for line in lines if len(line) >= 12 and not line.startswith("#include")]


def in_threes(text):
    lines = code_lines(text)
    return {"".join(lines[i:i + 3]) for i in range(len(lines) - 2)}


def leaks(book, files):
    """Three lines in a row of a solution or its answers that are in the texts `files`, but not in its starter."""
    places = {}
    for path, text in files.items():
        places.update(dict.fromkeys(in_threes(text), path))
    found = []
    for source in book.files:
        if not source.startswith("solutions/") or not source.endswith((".cpp", ".cu", ".md")):
            continue
        starter = source.replace("solutions/", "labs/", 1)
        known = set()
        for path in (starter, f"{starter.rpartition('.')[0]}.h"):
            if path in book.files and not path.endswith(".md"):
                known |= in_threes(book.text(path))
        found += [f"{places[lines]} has lines of {source}: {lines}"
                  for lines in in_threes(book.text(source)) - known if len(lines) >= 80 and lines in places]
    return found


def texts(files):
    return {path: data.decode(errors="replace") for path, (data, _) in files.items() if not path.endswith(".o")}


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="release-test."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.course = cls.folder / "course"
        cls.book = release.Workbook()
        cls.printed = call("--labs", "0,2", "--out", cls.course)

    def workbook(self, *arguments, code):
        result = subprocess.run([self.course / "workbook", *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def test_files(self):
        self.assertIn("labs 00 01 01cuda 02,", self.printed)
        git = ["git", "-C", self.course]
        self.assertEqual(subprocess.check_output([*git, "rev-list", "--all", "--count"], text=True), "1\n")
        self.assertEqual(subprocess.check_output([*git, "status", "--porcelain", "--ignored"], text=True), "")
        files = {str(path.relative_to(self.course)): path.read_bytes() for path in self.course.rglob("*")
                 if path.is_file() and ".git" not in path.relative_to(self.course).parts}
        self.assertLess(300, len(files))
        for path, data in files.items():
            self.assertNotRegex(path, r"^solutions/|(mutants|survivors)[.]txt|/0[3-6]_")
            if path.endswith(".o"):
                for private in (b".debug_info", str(ROOT).encode(), b"workbook-release."):
                    self.assertNotIn(private, data, path)
            elif path.startswith("reference/"):
                self.assertRegex(path, r"^reference/(README\.md|release\.json|(experiments|predictions)/\w+\.(txt|json))$")
        for name in ("tasks", "launch", "settings", "extensions"):
            json.loads(re.sub(r"^ *//.*", "", files[f".vscode/{name}.json"].decode(), flags=re.M))
        kernels = self.course / f"reference/{os.uname().machine}/solutions/01cuda_kernels/kernels.cu.o"
        self.assertRegex(subprocess.check_output(["nm", kernels], text=True), " b .*lab_emulation_gap")
        self.assertEqual(leaks(self.book, {path: data.decode(errors="replace") for path, data in files.items()
                                           if not path.endswith(".o")}), [])

    def test_container(self):
        """What .devcontainer names is there."""
        folder = self.course / ".devcontainer"
        container = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
        recipe = (folder / container["build"]["dockerfile"]).resolve()
        self.assertEqual((folder / container["build"]["context"]).resolve(), self.course.resolve())
        for name in re.findall(r"^COPY (\S+)", recipe.read_text(encoding="utf-8"), re.M):
            self.assertTrue((self.course / name).is_file(), name)
        self.assertEqual(container["postCreateCommand"], "./workbook setup")
        # The packages that its line of awk takes: also what the editor's configurations need.
        line = re.search(r"\$\((awk .*?) /tmp/packages.txt\)", recipe.read_text(encoding="utf-8"))[1]
        taken = subprocess.check_output(f"{line} packages.txt", shell=True, cwd=self.course, text=True).split()
        self.assertLess({"g++", "python3", "clangd", "gdb"}, set(taken))

    def test_clangd(self):
        """.clangd takes away all flags that only g++ knows: clangd shows any other as an error in the first line."""
        emulation = re.search(r"STREQUAL GNU\)\n(.*?)\nelse", self.book.text("cmake/Emulation.cmake"), re.S)[1]
        flags = re.findall(r"(?<= )-f[\w-]+", emulation)
        flags += re.findall(r"CXX_COMPILER_ID:GNU>:(-f[\w-]+)>", self.book.text("cmake/AddLab.cmake"))
        self.assertIn("-fno-gnu-unique", flags)
        removed = re.search(r"Remove: \[([^]]*)\]", self.book.text(".clangd"))[1]
        self.assertLessEqual(set(flags), set(re.split(r",\s+", removed)))

    def test_classroom(self):
        """Each task of the labs named is a step, with its points, and the reporter knows all of them; an update keeps
        the workflow. The optional part of lab 01 comes along, and has no step."""
        folder = self.folder / "classroom"
        call("--labs", "1", "--classroom", "--out", folder)
        call("--update", folder, "--labs", "0-2")
        call("--update", folder)
        text = (folder / release.WORKFLOW).read_text(encoding="utf-8")
        steps = re.findall(r'id: (\w+)\n.*?command: ./workbook test (\w+) (\w+)\n.*?max-score: (\d+)\n', text, re.S)
        wanted = [(lab, task["id"], str(task["points"])) for lab in ("01", "02")
                  for task in json.loads(self.book.text(f"labs/{self.book.folders[lab]}/points.json"))["tasks"]]
        self.assertEqual([step[1:] for step in steps], wanted)
        names = [step[0] for step in steps]
        self.assertIn(f"runners: {','.join(names)}\n", text)
        self.assertRegex(names[0], "^[a-z0-9]+$")
        for name in names:
            self.assertIn(f"{name.upper()}_RESULTS: ${{{{ steps.{name}.outputs.result }}}}", text)
        try:
            import yaml  # pylint: disable=import-outside-toplevel
        except ImportError:
            return
        job = yaml.safe_load(text)["jobs"]["run-autograding-tests"]
        self.assertEqual(len(job["steps"]), len(names) + 3)

    def test_gradescope(self):
        """setup.sh and run_autograder at the top, executable, and the workbook with solutions, but no history."""
        file = self.folder / "autograder.zip"
        self.assertIn("an autograder of labs 01 02", call("--labs", "0-2", "--seed", "7", "--gradescope", file))
        with zipfile.ZipFile(file) as archive:
            modes = {member.filename: member.external_attr >> 16 for member in archive.infolist()}
            self.assertEqual([archive.read(name) for name in ("labs", "seed")], [b"01 02\n", b"7\n"])
            for name in ("setup.sh", "run_autograder", "workbook/workbook"):
                self.assertEqual(modes[name], 0o100755, name)
                self.assertTrue(archive.read(name).startswith(b"#!/usr/bin/env bash\n"))
        for name in ("scripts/grade.py", "packages.txt", "tests/labs/02_gradient_allreduce/rank.cpp",
                     "solutions/02_gradient_allreduce/gradient_allreduce.cpp"):
            self.assertIn(f"workbook/{name}", modes)
        self.assertFalse([name for name in modes if ".git/" in name])

    def test_leaks_are_found(self):
        labs = sorted(self.book.folders)
        files = texts(release.released_files(self.book, labs, []))
        self.assertEqual(leaks(self.book, files), [])
        found = "\n".join(leaks(self.book, texts(release.released_files(self.book, labs, labs))))
        for lab, folder in self.book.folders.items():  # every solution and its answers would be noticed
            for kind in ("md", "cu" if lab.endswith("cuda") else "cpp"):
                self.assertRegex(found, rf"solutions/{folder}/\w+[.]{kind} has lines")

    def included(self, files):
        """(file, header of this workbook) for every #include in `files`."""
        for path, text in files.items():
            for header in re.findall(r'^#include "(\w+/[^"]+)"', text, re.M) if path.endswith((".h", ".cpp", ".cu")) else []:
                if header in self.book.files:
                    yield path, header

    def test_includes(self):
        """Of all labs: no file includes one of this workbook's that is not handed out."""
        files = texts(release.released_files(self.book, sorted(self.book.folders), []))
        checked = 0
        for path, header in self.included(files):
            checked += 1
            self.assertTrue(header in files, f"{path} includes {header}, which is not handed out")
        self.assertLess(1000, checked)

    def test_a_lab_without_later_ones(self):
        """Its own program and tests do without labs that do not come along, such as 06 without 08. (train/ and tests/bench
        are built only where their labs are.)"""
        self.assertNotIn("08", self.book.with_bases(["06"]))
        for lab, folder in self.book.folders.items():
            labs = self.book.with_bases([lab])
            files = texts(release.released_files(self.book, labs, []))
            for number, other in self.book.folders.items():
                if number not in labs:
                    self.assertEqual([path for path in files if f"/{other}/" in path], [])
            for path, header in self.included(files):
                if path.startswith(("common/", f"labs/{folder}/", f"tests/labs/{folder}/", "tests/grading/")):
                    self.assertTrue(header in files, f"{path} includes {header}, which does not come along with lab {lab}")

    def test_links(self):
        checked = 0
        for given in ([], ["01"]):
            files = release.released_files(self.book, ["00", "01", "01cuda", "02"], given)
            tree = self.folder / f"texts{len(given)}"
            for path, (data, executable) in files.items():
                release.write(tree / path, data, executable)
            for text in tree.rglob("*.md"):
                plain = re.sub(r"^ *```.*?^ *```", "", text.read_text(encoding="utf-8"), flags=re.M | re.S)
                for place, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^() ]*)\)", plain)):
                    if not place or ":" in place:
                        continue
                    checked += 1
                    target = text.parent / place
                    self.assertTrue(target.exists(), f"{text}: {place}")
                    if anchor and target.suffix == ".md":
                        self.assertIn(anchor, release.anchors(target.read_text(encoding="utf-8")), f"{text}: {place}")
            answers = (tree / "labs/01_single_gpu/README.md").read_text(encoding="utf-8")
            self.assertIn(f"](../../{'solutions/01_single_gpu' if given else 'reference'}/README.md)", answers)
        self.assertLess(200, checked)

    def test_commands(self):
        for words in ("stress", "lab check 1", "release --labs 1 --out x", "slides", "break 4", "train", "test 3", "bench hybrid"):
            with self.subTest(words):
                self.assertRegex(self.workbook(*words.split(), code=1), r"\Aerror: [^\n]*\n\Z")
        self.assertIn("next: ./workbook break 2 A", self.workbook("break", "2", code=0))
        self.assertIn("error: lab 02 has no task 9; it has 1 2 3 4 5 (", self.workbook("test", "2", "9", code=2))
        self.assertIn("Level 1", self.workbook("hint", "2", "1", code=0).title())
        commands = set(re.findall(r"^  ([a-z]+)", self.workbook("help", code=0), re.M))
        self.assertLess({"setup", "watch", "submit"}, commands)
        withheld = {"gpu", "slides", "stress", "lab", "release", "grade", "format"}
        self.assertTrue(commands.isdisjoint(withheld), commands)
        self.assertTrue(withheld.isdisjoint(self.workbook("unknown", code=2).split()))
        self.assertIn("did you mean ./workbook reset?", self.workbook("relaese", code=2))
        self.assertRegex(self.workbook("setup", "--help", code=0), r"\A  setup +install[^\n]*\n\Z")
        self.assertRegex(self.workbook("test", "-h", code=0), r"\A  test  [^\n]*\n  test N ")

    def test_reset(self):
        """The starter is what was handed out, whatever students have committed since."""
        clone = self.folder / "reset"
        subprocess.run(["git", "clone", "--quiet", self.course, clone], check=True)
        file = clone / "labs/02_gradient_allreduce/gradient_allreduce.cpp"
        starter = file.read_bytes()
        file.write_text("// A student's lab.\n", encoding="utf-8")
        subprocess.run(["git", "-C", clone, "-c", "user.name=Ann", "-c", "user.email=ann@example.edu",
                        "commit", "--quiet", "-am", "My lab"], check=True)
        reset = [clone / "workbook", "reset", "2"]
        self.assertIn("your file is now ", subprocess.check_output(reset, text=True))
        self.assertEqual(file.read_bytes(), starter)
        self.assertIn("already the starter", subprocess.check_output(reset, text=True))
        shutil.rmtree(clone / ".git")
        update = Path(f"{file}.new")  # what release --update leaves next to a file that a student has begun
        update.write_bytes(starter)
        file.write_text("// Another version.\n", encoding="utf-8")
        self.assertIn("the starter again", subprocess.check_output(reset, text=True))
        self.assertEqual(file.read_bytes(), starter)
        update.unlink()
        result = subprocess.run(reset, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Aerror: this folder is not a git checkout [^\n]*\n\Z")

    def test_grades(self):
        launcher = self.folder / "launcher.sh"
        launcher.write_text(LAUNCHER.replace("COURSE", str(self.course)).replace("BUILD", str(BUILD))
                            .replace("ROOT", str(ROOT)), encoding="utf-8")
        launcher.chmod(0o755)
        configured = subprocess.run(
            ["cmake", "--preset", "student", "-DLAB_CUDA=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",
             f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"], cwd=self.course, capture_output=True, text=True, check=False)
        self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)
        shown = self.workbook("test", "2", code=1)
        self.assertIn("lab 02: 0/100", shown)
        self.assertIn("TODO(1)", shown)
        name = "02_gradient_allreduce/gradient_allreduce.cpp"
        (self.course / "labs" / name).write_bytes(self.book.files[f"solutions/{name}"][0])
        os.utime(self.course / "labs" / name, (10**9, 10**9))  # older than what was built, as from an archive
        with mock.patch.dict(os.environ, CI="true"):  # as GitHub Classroom
            self.assertIn("lab 02: 100/100", self.workbook("test", "2", code=0))
        self.assertIn("LAB_WERROR:BOOL=OFF", (self.course / "build/student/CMakeCache.txt").read_text(encoding="utf-8"))
        self.assertRegex(self.workbook("status", code=0), r"lab 02 .* 100/100 points")
        self.assertIn("./workbook release --update FOLDER --given 02", self.workbook("diff", "2", code=1))
        self.assertIn("the same in ", self.workbook("compare", "2", code=0))
        self.assertIn("100/100  sha256 ", self.workbook("submit", "2", code=0))
        # A wrong version, of which this copy has the object file only.
        shown = self.workbook("break", "2", "E", "--out", str(self.folder / "broken"), "--steps", "2", "--dim", "48",
                              "--heads", "4", "--context", "64", "--validation-batches", "2", code=0)
        self.assertRegex(shown, r"(?m)^right .* done")
        self.assertRegex(shown, r"(?m)^wrong .* ended with an error")
        page = (self.folder / "broken/index.html").read_text(encoding="utf-8")
        self.assertIn("./workbook test 2: task 3 fails", page)
        self.assertNotIn("The change", page)

    def test_refusals(self):
        for words, reason in (("--labs 97 --out x", "there is no lab '97'"), ("--labs 3-1 --out x", "ends before"),
                              (f"--labs 1 --given 2 --out {self.folder}/x", "lab 02 is not among"),
                              (f"--labs 1 --out {self.course}", "is there already"),
                              (f"--labs 1 --out {ROOT / 'labs/zz'}", "is inside the workbook"),
                              ("--labs 1 --gradescope x.tar", "takes a .zip"),
                              (f"--update {ROOT / 'docs'}", "not made by ./workbook release"),
                              (f"--update {self.course} --labs 0-1", "labs 02 cannot be taken back")):
            with self.subTest(words), self.assertRaisesRegex(release.ReleaseError, re.escape(reason)):
                call(*words.split())

    def test_lab_that_is_not_committed(self):
        (self.folder / "new/labs/97_name").mkdir(parents=True)
        with mock.patch.object(release, "ROOT", self.folder / "new"):
            for text, reason in {"97": "lab 97 is not committed", "98": "there is no lab '98'"}.items():
                with self.subTest(text), self.assertRaisesRegex(release.ReleaseError, reason):
                    self.book.numbers(text)

    def test_update(self):
        handed = self.folder / "handed"
        call("--labs", "1", "--out", handed)
        manifest = json.loads((handed / release.MANIFEST).read_text(encoding="utf-8"))

        def handed_out(path, text):
            """As if this file had been handed out with this text."""
            (handed / path).write_text(text, encoding="utf-8")
            manifest["files"][path] = release.digest(text.encode())

        starter, notes, header = "labs/01_single_gpu/single_gpu.cpp", "labs/01_single_gpu/notes.txt", "common/todo.h"
        handed_out(header, "// An old header.\n")
        handed_out("common/gone.h", "// A file that the workbook no longer has.\n")
        handed_out("labs/01_single_gpu/hints.md", "Old hints.\n")
        (handed / release.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        (handed / starter).write_text("// A student's lab.\n", encoding="utf-8")
        (handed / "labs/01_single_gpu/hints.md").write_text("Old hints, with a student's remarks.\n", encoding="utf-8")
        (handed / notes).write_text("A student's notes.\n", encoding="utf-8")
        printed = call("--update", handed, "--labs", "1-2", "--given", "1")

        self.assertEqual((handed / starter).read_text(encoding="utf-8"), "// A student's lab.\n")
        self.assertFalse((handed / f"{starter}.new").exists())  # the starter is still the same
        self.assertIn(f"kept, changed here: {starter}\n", printed)
        self.assertIn("remarks", (handed / "labs/01_single_gpu/hints.md").read_text(encoding="utf-8"))
        self.assertEqual((handed / "labs/01_single_gpu/hints.md.new").read_bytes(),
                         self.book.files["labs/01_single_gpu/hints.md"][0])
        self.assertIn("hints.md; the new one is hints.md.new", printed)
        self.assertTrue((handed / notes).exists())
        self.assertEqual((handed / header).read_bytes(), self.book.files[header][0])
        self.assertFalse((handed / "common/gone.h").exists())
        for path in ("labs/02_gradient_allreduce/README.md", "solutions/01_single_gpu/README.md"):
            self.assertTrue((handed / path).exists(), path)
            self.assertIn(f"new: {os.path.dirname(path)}\n", printed)
        self.assertFalse(list((handed / "reference").rglob("solutions/01_single_gpu/*")))
        changed = subprocess.check_output(["git", "-C", handed, "status", "--porcelain", "-uno"], text=True)
        self.assertEqual(sorted(changed.split()), ["M", "M", "labs/01_single_gpu/hints.md", starter])
        # Lab 01's solution is compiled here, lab 02's is not.
        configured = subprocess.run(["cmake", "--preset", "student", "-DLAB_CUDA=OFF"], cwd=handed, capture_output=True,
                                    text=True, check=False)
        self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)
        commands = (handed / "build/student/compile_commands.json").read_text(encoding="utf-8")
        self.assertIn("solutions/01_single_gpu/single_gpu.cpp", commands)
        self.assertNotIn("solutions/02_gradient_allreduce", commands)
        again = call("--update", handed)
        self.assertIn("0 files new, 0 renewed, 0 removed", again)
        self.assertIn(f"kept, changed here: {starter}\n", again)


if __name__ == "__main__":
    if subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, check=False).returncode != 0:
        print("skipped: this is no git repository")
        sys.exit(77)
    unittest.main()

"""How the files of a class are compiled, and the programs that load them."""
import json
import re
import shlex
import subprocess
from pathlib import Path

from grade_given import write_copies
from grade_sandbox import read_only
from grade_submissions import GradeError

ROOT = Path(__file__).resolve().parent.parent


class Kit:
    """What the sandboxes of a class share: how files are compiled, and the programs that load them."""

    def __init__(self, build, folder, wanted):
        self.build, self.folder, self.wanted = build, folder, wanted  # wanted: labs/NN_name/name.cpp (or .cu) by lab
        entries = {entry["file"]: entry["command"] for entry in
                   json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))}
        compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$",
                             (build / "CMakeCache.txt").read_text(encoding="utf-8"), re.M)[1]
        contracts = sorted(ROOT.glob("labs/*/*.h"))
        self.commands = {}
        for lab, path in wanted.items():
            # A .cu file is included by one that is compiled (cmake/Emulation.cmake).
            emulated = build / f"emulated/lab{lab}_code_student" / f"{Path(path).stem}.cpp"
            words = shlex.split(entries[str(emulated if path.endswith(".cu") else ROOT / path)])
            words = words[words.index(compiler):]
            kept = [word for i, word in enumerate(words)
                    if word not in ("-o", "-c") and (i == 0 or words[i - 1] not in ("-o", "-c"))]
            others = [str(Path(word)) for i, word in enumerate(kept)
                      if i > 0 and kept[i - 1] == "-isystem" and not word.startswith("/usr/")]
            if path.endswith(".cu"):
                others.append(str(ROOT / "tests/emulation"))
            headers = read_only(ROOT / "common", *contracts, *[word for word in others if Path(word).exists()])
            self.commands[lab] = (kept, [compiler, "-fPIC", "-shared", "-Wl,-soname,student.so"], headers)
            self.copy_programs(lab)
        self.libraries = self.unusual_libraries()

    def copy_programs(self, lab):
        """Without the names and code of functions that are not for students' files."""
        for program in (f"lab{lab}_ranks", f"lab{lab}_rehearsal"):
            if (self.build / "bin" / program).exists():
                subprocess.run(["strip", "--strip-all", "-o", self.folder / program, self.build / "bin" / program],
                               check=True)
        write_copies(self.build / "bin" / f"lab{lab}_ranks", self.folder / f"lab{lab}_ranks")

    def unusual_libraries(self):
        """Libraries of the rank programs that are in unusual places."""
        found = set()
        for program in self.folder.iterdir():
            listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
            found.update(re.findall(r"=> (/\S+) ", listed))
        return read_only(*sorted(path for path in found
                                 if not path.startswith(("/usr/", "/lib", str(self.build) + "/"))))


def built_labs(build, labs):
    """Builds what judging these labs needs."""
    targets = []
    for lab in labs:
        folder = next(ROOT.glob(f"labs/{lab}_*")).name
        targets += [f"lab{lab}_verdict", f"lab{lab}_ranks", f"lab{lab}_shared_solution"]
        if (ROOT / "tests/labs" / folder / "program.cpp").exists():
            targets.append(f"lab{lab}_rehearsal")
    script = 'set -euo pipefail; root=$1 build=$2; source "$root/scripts/setup.sh"; build_targets "${@:3}"'
    if subprocess.run(["bash", "-c", script, "--", ROOT, build, *targets], check=False).returncode != 0:
        raise GradeError("nothing was graded: see above")

"""Where students' files are compiled and run: in bubblewrap's namespaces, with limits.

The verdict of the instructor's build runs in a network of its own, and starts every process with a student's code in a
second sandbox within: a read-only system, its own process tree, and one folder to write to. That folder is in memory
and vanishes with the verdict. Results are written where no such process sees them.
"""
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from grade_run import GIGABYTE, limited, run_limited

ROOT = Path(__file__).resolve().parent.parent
FIRST_USER = 61_000     # started by root, students' processes get these user ids, one for each job
PROGRAM_GROUP = 60_999  # of the lab's program, if there is no sandbox: only it may read the solution's shared object

# Per process, except for the number of processes. Libraries map memory that they never touch, so
# the limit of the address space is larger.
RANK_LIMITS = {"data": 4 * GIGABYTE, "as": 32 * GIGABYTE, "cpu": 300, "fsize": GIGABYTE // 4, "nproc": 256,
               "nofile": 1024, "core": 0}
# The emulation of CUDA reserves a GPU's memory and never touches most of it.
EMULATION_LIMITS = RANK_LIMITS | {"data": 160 * GIGABYTE, "as": 192 * GIGABYTE}
COMPILER_LIMITS = {"data": 3 * GIGABYTE, "as": 4 * GIGABYTE, "cpu": 120, "fsize": GIGABYTE // 8, "nproc": 64,
                   "nofile": 256, "core": 0}
COMPILER_SECONDS = 180
VERDICT_SECONDS = 300


def system():
    """bubblewrap's options for the programs and libraries of this machine, without its settings."""
    options = []
    for path in map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")):
        if path.is_symlink():
            options += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        if os.path.exists(path):
            options += read_only(path)
    return options + ["--proc", "/proc", "--dev", "/dev", "--size", str(GIGABYTE // 4), "--tmpfs", "/dev/shm",
                      "--perms", "1777", "--size", str(GIGABYTE // 4), "--tmpfs", "/tmp",
                      "--setenv", "HOME", "/tmp", "--setenv", "TMPDIR", "/tmp"]


def parents(path):
    """bubblewrap's options that make the folders above a path, which all may enter."""
    return [word for parent in reversed(Path(path).parents) if str(parent) != "/"
            for word in ("--perms", "0755", "--dir", str(parent))]


def read_only(*paths):
    return [word for path in paths for word in (*parents(path), "--ro-bind", str(path), str(path))]


def isolated(readable, writable):
    """The words before a command that sees the system and these folders, and no network."""
    bound = [word for path in writable for word in (*parents(path), "--bind", str(path), str(path))]
    return ["bwrap", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--die-with-parent", *system(),
            *read_only(*readable), *bound, "--remount-ro", "/"]


class Sandbox:
    """How the processes of one job are started."""

    def __init__(self, build, kit, job, use_bubblewrap):
        self.build, self.kit, self.bubblewrap = build, kit, use_bubblewrap
        self.user = FIRST_USER + job if os.geteuid() == 0 else None

    def inner(self, *options):
        """The words before a command that contains, or compiles, a student's code."""
        words = ["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", *options]
        if self.user is None:
            return [*words, "--unshare-user", "--disable-userns"]
        return [*words, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]

    def as_user(self, limits, group=None):
        words = limited(limits, [])
        if self.user is None:
            return words
        if self.bubblewrap:  # no new namespaces, which is what most flaws of the kernel need
            words = ["bwrap", "--unshare-user", "--disable-userns", "--die-with-parent", "--dev-bind", "/", "/", *words]
        return ["setpriv", "--reuid", str(self.user), "--regid", str(group or self.user), "--clear-groups", *words]

    def sweep(self):
        """Without a sandbox, ends what a student's program has left running, and removes what it has left."""
        if self.bubblewrap or self.user is None:
            return
        subprocess.run([*self.as_user(COMPILER_LIMITS), "sh", "-c", "kill -KILL -1"], capture_output=True, check=False)
        subprocess.run(["find", "/tmp", "/var/tmp", "/dev/shm", "-depth", "-xdev", "-mindepth", "1", "-user",
                        str(self.user), "-delete"], capture_output=True, check=False)

    def outer(self, work):
        """The words before a verdict."""
        if not self.bubblewrap:
            return []
        words = ["bwrap", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--die-with-parent",
                 "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--size", str(GIGABYTE),
                 "--tmpfs", f"{work}/tmp", "--bind", f"{work}/results", f"{work}/results"]
        return words + (["--unshare-user"] if self.user is None else ["--cap-add", "ALL"])

    def rank_script(self, work, lab):
        """LAB_SANDBOX of tests/grading/rank_harness.h: confines what it starts to the folder that it is given."""
        quoted = shlex.join
        # If memory ends, the kernel takes students' processes first.
        limits = EMULATION_LIMITS if lab.endswith("cuda") else RANK_LIMITS
        lines = ["#!/bin/sh", "echo 1000 2>/dev/null >/proc/self/oom_score_adj", 'folder=$1', "shift",
                 "given= before=", 'for word; do if [ "$before" = --given ]; then given=.$word; fi; before=$word; done']
        if self.user is not None:
            lines.append(f'chown -hR {self.user}:{self.user} "$folder"')
        if self.bubblewrap:
            ranks, rehearsal = f"lab{lab}_ranks", f"lab{lab}_rehearsal"
            base = self.inner(*system(), "--unsetenv", "LAB_SANDBOX", "--unsetenv", "LAB_SEED",
                              *self.kit.libraries, *read_only(work / "student.so"),
                              *parents(work / "tmp" / "folder"))
            programs = parents(self.build / "bin" / ranks)
            # The copy with the correct functions that this job is given (grade_given.py).
            as_rank = [*programs, "--ro-bind", f"{self.kit.folder / ranks}@GIVEN@", str(self.build / "bin" / ranks)]
            # The lab's program falls back on the solution, which is also what it is compared with.
            shared = [file for file in (work / "solution.so", work / "rehearsal.so") if file.exists()]
            as_program = [*programs, "--ro-bind-try", str(self.kit.folder / rehearsal), str(self.build / "bin" / rehearsal),
                          *read_only(*shared, self.build / "implementations" / f"lab{lab}" / "solution.so",
                                     ROOT / "data")]
            lines += ["case $1 in", f"  /usr/bin/env) files='{quoted(as_program)}' ;;",
                      '  *) files="{}" ;;'.format(quoted(as_rank).replace("@GIVEN@", "$given")), "esac",
                      f'{quoted(base)} $files --perms 0755 --dir "${{folder%/*}}" --bind "$folder" "$folder" \\',
                      '  --chdir "$folder" --remount-ro / \\',
                      f'  {quoted(self.as_user(limits))} "$@"']
        else:
            lines += ['chmod o+x "${folder%/*}"', 'cd "$folder"', 'export TMPDIR="$folder"',
                      "unset LAB_SANDBOX LAB_SEED", "case $1 in",
                      f'  /usr/bin/env) {quoted(self.as_user(limits, PROGRAM_GROUP))} "$@" ;;',
                      f'  *) {quoted(self.as_user(limits))} "$@" ;;', "esac"]
            if self.user is not None:
                os.chown(work / "solution.so", 0, PROGRAM_GROUP)
                (work / "solution.so").chmod(0o640)
        # What ended the process by a signal ends this one, too, so that the verdict can say so.
        lines += ["code=$?", 'if [ "$code" -gt 128 ] && [ "$code" -lt 160 ]; then kill -"$((code - 128))" $$; fi',
                  'exit "$code"']
        script = work / "sandbox"
        script.write_text("\n".join(lines) + "\n", encoding="utf-8")
        script.chmod(0o755)
        return script

    def compile(self, work, lab, source):
        """Makes work/student.so of a student's file; returns the compiler's first error, or nothing."""
        file = ROOT / self.kit.wanted[lab]
        out = work / "out"
        out.mkdir()
        if self.user is not None:
            os.chown(out, self.user, self.user)
        own = work / file.name
        own.write_bytes(source)
        own.chmod(0o644)
        seen = file if self.bubblewrap else own
        compiled = seen
        if file.suffix == ".cu":  # as C++, for the emulation
            compiled = work / "compiled.cpp"
            compiled.write_text(f'#include "{seen}"\n', encoding="utf-8")
        command, link, headers = self.kit.commands[lab]
        prefix = limited(COMPILER_LIMITS, [])
        if self.bubblewrap:
            prefix = self.inner("--unshare-net", *system(), *headers, *parents(file), "--ro-bind", str(own), str(file),
                                *(read_only(compiled) if compiled != seen else []), *parents(out), "--bind", str(out),
                                str(out), "--chdir", str(out), "--remount-ro", "/")
            prefix += self.as_user(COMPILER_LIMITS)
        elif self.user is not None:
            prefix = self.as_user(COMPILER_LIMITS)
        script = shlex.join([*command, "-fdiagnostics-color=never", "-o", f"{out}/file.o", "-c", str(compiled)])
        script += " && " + shlex.join([*link, "-o", f"{out}/student.so", f"{out}/file.o"])
        # Only what the compiler says first counts; templates can make it say much.
        script = f"({script}) 2>&1 | head -c 200000"
        status, output = run_limited([*prefix, "sh", "-c", script], COMPILER_SECONDS, ENVIRONMENT)
        made = out / "student.so"
        if made.is_file() and not made.is_symlink():
            shutil.copyfile(made, work / "student.so")
            (work / "student.so").chmod(0o755)
            return ""
        if status is None:
            return f"of the compiler: {output}"
        lines = [line.replace(f"{seen}", self.kit.wanted[lab]).replace(f"{ROOT}/", "")
                 for line in output.splitlines()]
        errors = [line for line in lines if re.search(r"\berror:|undefined|memory", line, re.I)]
        return (errors or lines or [f"the compiler ended with status {status} and no message"])[0][:500]

    def judge(self, work, lab, arguments, seed):
        """The output of a verdict about work/NAME.so; its results are in work/results."""
        environment = {**ENVIRONMENT, "TMPDIR": f"{work}/tmp", "LAB_SANDBOX": str(work / "sandbox"),
                       "LAB_SEED": str(seed)}
        command = [*self.outer(work), str(self.build / "bin" / f"lab{lab}_verdict"), "--results", f"{work}/results",
                   *arguments]
        try:
            return run_limited(command, VERDICT_SECONDS, environment)
        finally:
            self.sweep()


ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}


def why_not():
    """Why bubblewrap cannot run here; empty if it can."""
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed (sudo apt-get install bubblewrap)"
    sandbox = Sandbox(None, None, 0, True)
    inner = [*sandbox.inner(*system(), "--remount-ro", "/"), *sandbox.as_user(RANK_LIMITS), "true"]
    outer = ["bwrap", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--ro-bind", "/", "/",
             "--dev", "/dev", "--proc", "/proc"]
    outer += ["--unshare-user"] if sandbox.user is None else ["--cap-add", "ALL"]
    result = subprocess.run([*outer, *inner], capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    return f"this machine does not permit it: {(result.stderr.strip().splitlines() or ['no message'])[-1]}"

"""Git repositories of students: cloned without a checkout, so that no hook, filter or submodule of theirs runs.

A repository on this disk is cloned in a sandbox: its settings could name programs, and its objects other repositories.
"""
import os
import shutil
import subprocess
import tempfile
from datetime import datetime
from pathlib import Path

from grade_files import read_entries
from grade_run import limited, run_limited
from grade_sandbox import isolated
from grade_submissions import LARGEST, URL, GradeError, Refused, Unreachable, printable

SECONDS = 120     # for a clone
LISTING = 16 << 20  # bytes of a list of files
LIMITS = {"fsize": 1 << 29, "as": 4 << 30, "cpu": 100, "core": 0}


def is_repository(submission):
    if submission.path is None or submission.reference:
        return True
    path = submission.path
    return (path / ".git").is_dir() or all((path / name).exists() for name in ("HEAD", "objects", "refs"))


def read_repository(submission, wanted, sandbox):
    """As grade_files.read_files."""
    try:
        with Repository(submission, sandbox) as repository:
            submission.commit = repository.commit
            read_entries(submission, wanted, repository.entries())
            for lab in submission.files:
                submission.times[lab] = (repository.committed(submission.places[lab]), "commit")
                if repository.differs(submission.places[lab], submission.files[lab]):
                    submission.notes[lab] = (f"{submission.places[lab]} has changes that are not committed: "
                                             "the commit is graded")
            for lab, path in wanted.items():
                if lab not in submission.files and repository.is_in_folder(path):
                    submission.problems[lab] = f"{path} exists, but is not committed"
    except Refused as problem:
        submission.files, submission.problems = {}, {lab: str(problem) for lab in wanted}
    except Unreachable as problem:
        submission.unreachable = str(problem)


def with_unix_lines(data):
    return data.replace(b"\r\n", b"\n")


class Repository:
    """A clone, which lasts as long as the `with` statement. All errors are Refused or Unreachable."""

    def __init__(self, submission, sandbox):
        self.submission, self.sandbox = submission, sandbox
        self.commit = None

    def __enter__(self):
        if not shutil.which("git"):
            raise GradeError("a submission is a git repository, and git is not installed (sudo apt-get install git)")
        self.scratch = tempfile.TemporaryDirectory(prefix="workbook-clone.", ignore_cleanup_errors=True)
        self.folder = Path(self.scratch.name)
        try:
            self.clone()
        except BaseException:
            self.scratch.cleanup()
            raise
        return self

    def __exit__(self, *_):
        self.scratch.cleanup()

    def clone(self):
        source, target = self.submission.source, self.folder / "clone"
        local = not URL.match(source)
        if local and not Path(source).exists():
            raise Refused(f"{printable(source)}: there is no such repository")
        settings = ["protocol.allow=never", *(f"protocol.{name}.allow=always" for name in
                                              ("https", "http", "ssh", "git", "file"))]
        command = ["git", *(word for setting in settings for word in ("-c", setting)), "clone", "--quiet", "--bare",
                   "--no-local", "--template=", "--", source, str(target)]
        command = limited(LIMITS, command)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes", "LC_ALL": "C"}
        if local:
            # Git would refuse folders of other users. In the sandbox, nothing is lost.
            (self.folder / "settings").write_text("[safe]\n\tdirectory = *\n", encoding="utf-8")
            environment["GIT_CONFIG_GLOBAL"] = str(self.folder / "settings")
            if self.sandbox:
                command = [*isolated([source], [self.folder]), *command]
        status, output = run_limited(command, SECONDS, environment)
        if status != 0:
            lines = [line for line in output.splitlines() if line.startswith(("fatal:", "error:"))]
            why = output if status is None else printable((lines or ["no message"])[0])
            raise (Refused if local else Unreachable)(f"the repository cannot be cloned: {why}")
        reference = self.submission.reference or "HEAD"
        try:
            self.commit = self.git("rev-parse", "--verify", "--quiet", "--end-of-options",
                                   reference + "^{commit}").decode().strip()
        except Refused:
            raise Refused(f"the repository has no commit '{printable(reference)}'" if self.submission.reference
                          else "the repository has no commits") from None

    def git(self, *words, largest=LISTING):
        """What git prints about the clone; at most a byte more than `largest`."""
        command = limited(LIMITS, ["git", "-C", str(self.folder / "clone"), "--no-replace-objects", *words])
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null"}) as process:
            data = process.stdout.read(largest + 1)
            if len(data) > largest:
                process.kill()
            elif process.wait() != 0:
                raise Refused(f"the repository is damaged: git {words[0]} failed")
        return data

    def entries(self):
        """As grade_files.entries."""
        listing = self.git("ls-tree", "-r", "-z", "--full-tree", self.commit)
        if len(listing) > LISTING:
            raise Refused("the repository has too many files")
        for entry in listing.decode(errors="replace").split("\0")[:-1]:
            (mode, kind, name), path = entry.split("\t", 1)[0].split(), entry.split("\t", 1)[1]
            if kind == "blob":
                yield path, lambda mode=mode, name=name, path=path: self.read(mode, name, path)

    def read(self, mode, name, path):
        if mode == "120000":
            raise Refused(f"{printable(path)} is a symbolic link: submit the file itself")
        return self.git("cat-file", "blob", name, largest=LARGEST)

    def committed(self, path):
        """When the file last changed, as the commit says."""
        text = self.git("log", "-1", "--format=%cI", self.commit, "--", f":(literal){path}").decode().strip()
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise Refused(f"{printable(path)}: its commit has no date") from None

    def is_in_folder(self, path):
        """Is there a file of this path in a folder that is a repository, where only the commit counts?"""
        folder = self.submission.path
        if folder is None or self.submission.reference or not (folder / ".git").is_dir():
            return False
        try:
            return (folder / path).is_file() and not (folder / path).is_symlink()
        except OSError:
            return False

    def differs(self, path, committed):
        """Does a folder that is a repository have other contents than its commit, except for the ends of lines, which
        git changes on Windows?"""
        try:
            return (self.is_in_folder(path) and
                    with_unix_lines((self.submission.path / path).read_bytes()) != with_unix_lines(committed))
        except OSError:
            return False

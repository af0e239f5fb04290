"""The students' files of submissions: folders, .zip, .tar.gz. Of git repositories: grade_git.py.

Of each submission, only the files of the labs are read; nothing is extracted. Whatever is wrong with a file is a line
in the result of its submission.
"""
import gzip
import os
import stat
import tarfile
import zipfile
from datetime import datetime
from itertools import islice
from pathlib import Path, PurePosixPath

from grade_submissions import LARGEST, Refused, printable


UNPACKED = 512 << 20       # bytes of an archive that are looked at
ARCHIVES = (".zip", ".tar.gz", ".tgz")
SOURCES = (".cpp", ".cu")  # a submission may be the file of a lab alone
ENTRIES = 50_000           # files of a submission that are looked at


def read_files(submission, wanted):
    """Fills in the files, their times and the problems of a folder or archive. `wanted`: labs/NN_name/name.cpp by lab."""
    submission.path = only_archive(submission.path) or submission.path
    read_entries(submission, wanted, entries(submission.path))
    date_files(submission)


def date_files(submission):
    """The time of a folder's file, or of the archive."""
    for lab, place in submission.places.items():
        file = submission.path / place if submission.path.is_dir() else submission.path
        submission.times[lab] = (datetime.fromtimestamp(file.lstat().st_mtime).astimezone(), "file")


def read_entries(submission, wanted, listed):
    names = {PurePosixPath(path).name: lab for lab, path in wanted.items()}
    found = {lab: {} for lab in wanted}  # by lab: contents or Refused, by path
    others = []
    try:
        for count, (path, read) in enumerate(listed):
            if count >= ENTRIES:
                raise Refused(f"the submission has more than {ENTRIES} files")
            lab = names.get(PurePosixPath(path).name)
            if lab is not None:
                try:
                    found[lab][path] = checked(path, read)
                except Refused as problem:
                    found[lab][path] = problem
            elif len(others) <= 3:
                others.append(printable(path))
    except Refused as problem:
        submission.problems = {lab: str(problem) for lab in wanted}
        return
    if not any(found.values()):
        what = f"only {', '.join(others[:3])}{' and more' * (len(others) > 3)}" if others else "it is empty"
        submission.problems = {lab: f"no file of these labs was handed in: {what}" for lab in wanted}
    for lab, path in wanted.items():
        place, choice = chosen(found[lab], path)
        if isinstance(choice, bytes):
            submission.files[lab], submission.places[lab] = choice, place
        elif choice is not None:
            submission.problems[lab] = str(choice)


def chosen(candidates, path):
    """(path, contents) of the one file that counts; in place of the contents Refused, or None without such a file."""
    if len(candidates) > 1:
        at_its_place = {name: file for name, file in candidates.items() if ("/" + name).endswith("/" + path)}
        if len(at_its_place) != 1:
            names = ", ".join(printable(name) for name in sorted(candidates)[:3])
            return "", Refused(f"several files could be {path}: {names}. Submit one")
        candidates = at_its_place
    return next(iter(candidates.items()), ("", None))


def checked(path, read):
    name = printable(path)
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise Refused(f"{name}: the path leaves the archive")
    data = read()
    if len(data) > LARGEST:
        raise Refused(f"{name} is larger than {LARGEST >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    if "\0" in text:
        raise Refused(f"{name} is not a text file: it contains a zero byte")
    return data


def entries(path):
    """(path within the submission, function that returns the contents, at most a byte too many) of every file."""
    if path.is_dir():
        yield from folder_entries(path)
    elif not path.is_file():
        raise Refused(f"{printable(path)}: there is no such folder or archive")
    elif path.stat().st_size == 0:
        raise Refused(f"{printable(path.name)} is empty: it has no bytes")
    elif path.suffix in SOURCES:
        yield path.name, lambda: read_regular(path)
    elif not path.name.lower().endswith(ARCHIVES):
        raise Refused(f"{printable(path.name)} is not a folder, .zip, .tar.gz or the file of a lab")
    elif path.name.lower().endswith(".zip"):
        yield from zip_entries(path)
    else:
        yield from tar_entries(path)


def only_archive(folder):
    """The archive in a folder that holds nothing else: some course platforms make a folder of each upload."""
    files = list(islice((Path(parent) / name for parent, _, names in os.walk(folder) for name in names), 2))
    alone = len(files) == 1 and files[0].name.lower().endswith(ARCHIVES) and not files[0].is_symlink()
    return files[0] if alone else None


def folder_entries(folder):
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            file = Path(parent) / name
            yield file.relative_to(folder).as_posix(), lambda file=file: read_regular(file)


def read_regular(file):
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if file.is_symlink():
            raise Refused(f"{printable(file.name)} is a symbolic link: submit the file itself") from None
        raise Refused(f"{printable(file.name)} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused(f"{printable(file.name)} is not a regular file")
        return stream.read(LARGEST + 1)


def zip_entries(path):
    def read(archive, member):
        if stat.S_ISLNK(member.external_attr >> 16):
            raise Refused(f"{printable(member.filename)} is a symbolic link")
        with archive.open(member) as stream:
            return stream.read(LARGEST + 1)

    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.is_dir():
                    # Some programs of Windows write backslashes.
                    yield member.filename.replace("\\", "/"), lambda member=member: guarded(path, lambda: read(archive, member))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise Refused(f"{printable(path.name)} is not a readable zip archive: {printable(error)}") from None


def guarded(path, read):
    """No common class is raised for what is wrong with a member: encryption, compression, checksums, its end."""
    try:
        return read()
    except Refused:
        raise
    except Exception as error:  # pylint: disable=broad-except
        raise Refused(f"{printable(path.name)} cannot be unpacked: {printable(error)}") from None


class Limited:
    """A stream that ends with Refused after UNPACKED bytes."""

    def __init__(self, stream):
        self.stream, self.left = stream, UNPACKED

    def read(self, size):
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise Refused(f"the archive holds more than {UNPACKED >> 20} MiB")
        return data


def tar_entries(path):
    def read(archive, member):
        if not member.isfile():
            what = "a symbolic link" if member.issym() else "no regular file"
            raise Refused(f"{printable(member.name)} is {what}")
        return archive.extractfile(member).read(LARGEST + 1)

    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=Limited(stream), mode="r|") as archive:
            for member in archive:
                if not member.isdir():
                    yield member.name, lambda member=member: guarded(path, lambda: read(archive, member))
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise Refused(f"{printable(path.name)} is not a readable .tar.gz archive: {printable(error)}") from None
    except Exception as error:  # pylint: disable=broad-except
        if isinstance(error, Refused):
            raise
        raise Refused(f"{printable(path.name)} cannot be unpacked: {printable(error)}") from None

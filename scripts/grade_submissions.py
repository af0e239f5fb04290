"""What is graded: names and places of submissions, from the command line and from lists as CSV."""
import csv
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

URL = re.compile(r"(https?|ssh|git|file)://|[\w.-]+@[\w.-]+:")
LARGEST = 1 << 20  # bytes of a student's file
# Of a list: name and path come first. The last three are for the tables of course platforms (grade_tables.py).
COLUMNS = ("name", "path", "submitted", "email", "id", "login")
UNIQUE = ("name", "email", "id", "login")


class GradeError(Exception):
    """What the instructor can mend; the message is one line."""


class Refused(Exception):
    """Why a file or a submission is not taken; the message is one line."""


class Unreachable(Exception):
    """Why a submission was not fetched, which says nothing about it; the message is one line."""


@dataclass
class Submission:
    name: str                                     # unique, and the name of a folder
    path: Path                                    # or None, of a URL
    source: str = ""                              # the path or URL, without the reference; "" of a row without a path
    reference: str = ""                           # a branch, tag or commit of it
    commit: str = ""                              # what that is
    student: dict = field(default_factory=dict)   # what a list says, by column
    row: str = ""                                 # of a list: the list and the line
    submitted: dict = field(default_factory=dict)  # as a list says, by lab; "" for labs without a time of their own
    files: dict = field(default_factory=dict)     # contents by lab
    places: dict = field(default_factory=dict)    # paths in the submission, by lab
    times: dict = field(default_factory=dict)     # (time, "list", "commit" or "file"), by lab
    problems: dict = field(default_factory=dict)  # why there is no file, by lab
    unreachable: str = ""                         # why nothing is known about it: it is not graded
    notes: dict = field(default_factory=dict)     # what else there is to know about a file, by lab

    def time(self, lab):
        listed = self.submitted.get(lab) or self.submitted.get("")
        return (listed, "list") if listed else self.times.get(lab)

    @property
    def absent(self):
        """The list has no path: nothing was handed in."""
        return not self.source

    @property
    def title(self):
        """The student's name."""
        return self.student.get("name", self.name)


def printable(text):
    """Text from a submission, on one line of at most 120 characters."""
    line = "".join(c if c.isprintable() else "?" for c in str(text))
    return line if len(line) <= 120 else line[:117] + "..."


def submissions(words, labs):
    """One for each path or URL, or each row of a CSV file; names are unique. `labs`: those with points."""
    found = []
    for word in map(str, words):
        if not URL.match(word) and Path(word).suffix.lower() == ".csv":
            found += rows(Path(word), labs)
        else:
            found.append(submission(word, Path()))
            if not URL.match(word) and not found[-1].path.exists():
                raise GradeError(f"{word}: there is no such folder, archive, git repository or list")
    check_rows([one for one in found if one.row])
    seen = {folder_name(one.name).lower() for one in found if one.row}
    for one in found:
        base = name = folder_name(one.name)
        number = 2
        while not one.row and name.lower() in seen:
            name, number = f"{base}_{number}", number + 1
        seen.add(name.lower())
        one.name = name
    return found


def folder_name(name):
    """Of a folder of results: one part of a path, the same for all file systems."""
    return re.sub(r"[^\w.@+-]+", "_", name).strip(".")[:80] or "submission"


def check_rows(found):
    """A row that is there twice would give one student the points, or the page, of another."""
    seen = {}
    for one in found:
        values = {column: one.student.get(column, "").lower() for column in UNIQUE}
        values["folder for results"] = folder_name(one.name).lower()
        for what, value in values.items():
            if value and (other := seen.setdefault((what, value), one)) is not one:
                raise GradeError(f"{other.row} and {one.row} have the same {what}, '{printable(value)}': "
                                 "make them differ, or remove one")
        path = f"{one.source}#{one.reference}".rstrip("#")
        if path and (other := seen.setdefault(("path", path), one)) is not one:
            print(f"note: {other.row} and {one.row} have the same path: are they a team?", flush=True)


def submission(word, folder, name=None):
    """Of a path, relative to a folder, or a URL; both may end with #reference."""
    source, _, reference = word.partition("#")
    path = None
    if not URL.match(word):
        if (folder / word).exists():  # the # is part of the name
            source, reference = word, ""
        path = folder / source
        source = str(path.resolve())
    ending = re.sub(r"(\.git|\.zip|\.tar\.gz|\.tgz)?/*$", "", source, flags=re.I)
    return Submission(name or re.split(r"[/:]", ending)[-1], path, source, reference)


def read_table(file):
    """(line, cells) of every row that is not empty. Spreadsheets separate by a semicolon where the comma is decimal."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        separator = ";" if ";" in text.partition("\n")[0] and "," not in text.partition("\n")[0] else ","
        reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except OSError as error:
        raise GradeError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GradeError(f"{file} is not UTF-8: save it as \"CSV UTF-8\"") from None
    except csv.Error as error:
        raise GradeError(f"{file}: {error}") from None


def with_offset(time):
    """A time without one is in the time zone of this machine."""
    return time if time.tzinfo else time.astimezone()


def rows(file, labs):
    columns = list(COLUMNS[:2])
    found = []
    for count, (number, cells) in enumerate(read_table(file)):
        if count == 0 and [cell.lower() for cell in cells[:2]] == columns:
            columns = [re.sub(r"^submitted_(?=\d(cuda)?$)", "submitted_0", cell.lower()) for cell in cells]
            times = ["submitted", *(f"submitted_{lab}" for lab in labs)]
            if unknown := [column for column in columns if column not in (*COLUMNS, *times)]:
                raise GradeError(f"{file}: there is no column '{printable(unknown[0])}', only {', '.join(COLUMNS)} "
                                 f"and, for single labs, {times[1]} to {times[-1]}")
            if twice := [column for column in columns if columns.count(column) > 1]:
                raise GradeError(f"{file}: two columns are named '{twice[0]}': remove one")
            continue
        if len(cells) < 2 or not cells[0]:
            raise GradeError(f"{file}: line {number} needs a name and a path")
        found.append(submission(cells[1], file.parent, cells[0]) if cells[1] else Submission(cells[0], None))
        if cells[1] and not URL.match(cells[1]) and not found[-1].path.exists():
            begin = ("the first line is name,path and more columns, or" if count == 0
                     else "leave the path empty if a student handed in nothing;")
            raise GradeError(f"{file}: line {number}: {begin} '{printable(cells[1])}' must be a submission, "
                             "but there is no such file or folder")
        found[-1].row = f"{file}, line {number} ({printable(cells[0])})"
        found[-1].student = dict(zip(columns, cells))
        for column, text in found[-1].student.items():
            if column.startswith("submitted") and text:
                try:
                    time = with_offset(datetime.fromisoformat(text))
                except ValueError:
                    raise GradeError(f"{file}: line {number}: '{printable(text)}' is not a time "
                                     "such as 2026-10-16T23:59:00+02:00") from None
                found[-1].submitted[column.partition("_")[2]] = time
    return found

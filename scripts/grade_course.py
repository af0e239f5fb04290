"""The course file of ./workbook grade: deadlines, what lateness costs, and what labs and tasks count.

    [late]
    percent_per_day = 10              # taken off a lab's points for each day begun; default 0
    grace_minutes = 15                # each of these days begins that much later; default 0
    max_days = 3                      # later than that: no points; default: no limit

    [lab.01]
    deadline = 2026-10-16T23:59:00+02:00  # without +02:00: in the time zone of this machine
    weight = 20                       # what the lab counts in the total; for all graded labs or for none
    points = {1a = 10, 1b = 20}       # in place of those in points.json; other tasks keep theirs

    [lab.01.extension]                # deadlines of single students, by name
    "Bob Bell" = 2026-10-20T23:59:00+02:00

    [lab.01.by_hand]                  # points of single tasks, in place of what the tests say
    "Bob Bell" = {1b = 15, why = "right except for a typo"}

Every table and key is optional.
"""
import math
import tomllib
from dataclasses import dataclass, field
from datetime import datetime

from grade_submissions import GradeError, printable, with_offset
from lab_numbers import parse_labs


@dataclass
class Terms:
    """Of one lab."""
    deadline: datetime = None
    weight: float = None
    points: dict = field(default_factory=dict)  # by task
    extension: dict = field(default_factory=dict)  # deadlines by student
    by_hand: dict = field(default_factory=dict)  # points by student and task, and "why"


@dataclass
class Course:
    labs: dict = field(default_factory=dict)  # Terms by lab
    percent: float = 0
    grace: float = 0  # minutes
    max_days: float = math.inf

    def terms(self, lab):
        return self.labs.get(lab, Terms())

    def check_weights(self, labs):
        """A lab without a weight would count its points in a total of weights."""
        weighted = [lab for lab in labs if self.terms(lab).weight is not None]
        if weighted and len(weighted) < len(labs):
            missing = next(lab for lab in labs if lab not in weighted)
            raise GradeError(f"the course file gives lab.{missing} no weight, but lab.{weighted[0]} has one: "
                             "give all labs that are graded one, or none")

    def check_names(self, names):
        for lab, terms in self.labs.items():
            for table, students in (("extension", terms.extension), ("by_hand", terms.by_hand)):
                if unknown := [name for name in students if name not in names]:
                    raise GradeError(f"the course file has lab.{lab}.{table} for '{printable(unknown[0])}', but no "
                                     "submission has this name: write it as in the list")

    def deadline(self, lab, student):
        return self.terms(lab).extension.get(student, self.terms(lab).deadline)

    def handed_in(self, submission, lab):
        """(time or None, source), with the offset that the list has or, of other times, the deadline."""
        time, source = submission.time(lab) or (None, "")
        deadline = self.deadline(lab, submission.title)
        return time.astimezone(deadline.tzinfo) if deadline and time and source != "list" else time, source

    def lateness(self, lab, time, student):
        """(days late, what is left of the points: 0 to 1) of a lab handed in at a time, or None."""
        deadline = self.deadline(lab, student)
        if deadline is None or time is None:
            return 0, 1.0
        seconds = (time - deadline).total_seconds() - self.grace * 60
        if seconds <= 0:
            return 0, 1.0
        days = math.ceil(seconds / 86400)
        return days, max(0.0, 1 - self.percent * days / 100) if days <= self.max_days else 0.0


def read_course(file, graded):
    """The course file. `graded`: the points of all labs' tasks, by lab and task."""
    if file is None:
        return Course()
    try:
        with open(file, "rb") as stream:
            text = tomllib.load(stream)
    except OSError as error:
        raise GradeError(f"{file}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise GradeError(f"{file}: {printable(error)}") from None
    reader = Reader(file)
    reader.only(text, "the file", "late", "lab")
    late = reader.table(text, "late")
    reader.only(late, "late", "percent_per_day", "grace_minutes", "max_days")
    course = Course(percent=reader.number(late, "percent_per_day", 0, 100), grace=reader.number(late, "grace_minutes", 0),
                    max_days=reader.number(late, "max_days", math.inf))
    for name in reader.table(text, "lab"):
        place = f"lab.{name}"
        try:
            lab, = parse_labs(name, graded)
        except ValueError:
            raise GradeError(f"{file}: {place}: the labs with points are {' '.join(sorted(graded))}") from None
        table = reader.table(text["lab"], name)
        reader.only(table, place, "deadline", "weight", "points", "extension", "by_hand")
        points = reader.table(table, "points")
        reader.only(points, f"{place}.points", *graded[lab])
        deadline, extension = reader.time(table, "deadline", place), reader.table(table, "extension")
        extension = {student: reader.time(extension, student, f"{place}.extension") for student in extension}
        for student, time in extension.items():
            if deadline is None or time <= deadline:
                raise GradeError(f"{file}: {place}.extension for '{printable(student)}' must be later than the "
                                 "deadline of the lab")
        points = {task: reader.number(points, task, 0) for task in points}
        course.labs[lab] = Terms(deadline, reader.number(table, "weight", None), points, extension,
                                 reader.by_hand(table, f"{place}.by_hand", graded[lab] | points))
    return course


class Reader:
    """Values of a course file; what is wrong is a GradeError."""

    def __init__(self, file):
        self.file = file

    def only(self, table, place, *keys):
        for key in table:
            if key not in keys:
                raise GradeError(f"{self.file}: {place} has no key '{printable(key)}', only {', '.join(keys)}")

    def table(self, table, key):
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise GradeError(f"{self.file}: {key} must be a table, such as [{key}]")
        return value

    def number(self, table, key, default, most=math.inf):
        value = table.get(key, default)
        if value is not default and (isinstance(value, bool) or not isinstance(value, (int, float)) or
                                     not 0 <= value <= most or value == math.inf):
            limits = "0 or more" if most == math.inf else f"from 0 to {most}"
            raise GradeError(f"{self.file}: {key} = {printable(value)} must be a number, {limits}")
        return value

    def by_hand(self, table, place, most):
        """Points of single students. `most`: what each task is worth."""
        students = self.table(table, "by_hand")
        for student in students:
            given = self.table(students, student)
            self.only(given, f"{place} for '{printable(student)}'", "why", *most)
            if not isinstance(given.get("why"), str) or len(given) < 2:
                raise GradeError(f"{self.file}: {place} for '{printable(student)}' names a task and says why: "
                                 '{1b = 15, why = "..."}')
            for task in given.keys() - {"why"}:
                self.number(given, task, 0, most[task])
        return students

    def time(self, table, key, place):
        value = table.get(key)
        if value is not None and not isinstance(value, datetime):
            raise GradeError(f"{self.file}: {place}: {printable(key)} has a date, a time and an offset: "
                             "2026-10-16T23:59:00+02:00")
        return value and with_offset(value)

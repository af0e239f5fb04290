"""Tables that course platforms import: moodle.csv and canvas.csv.

Moodle (https://docs.moodle.org/en/Grade_import): any columns, which the import page maps to "Email address" or "ID
number", to grade items, and to "Feedback for" them.
Canvas (https://github.com/instructure/canvas-lms, lib/gradebook_importer.rb): Student, ID, SIS User ID, SIS Login ID and
Section come first; a row "Points Possible"; a student is found by one of the ids, else by name. There is no feedback.
"""
from grade_report import is_graded_lab, remarks, write_table


def title(lab):
    return f"Lab {lab.number}"


def points(lab):
    return lab["score"] if is_graded_lab(lab) else ""


def feedback(lab):
    """A short text: the rest is in the student's page."""
    failed = [f"{task['id']}: {task['message'].splitlines()[0][:200] if task['message'] else 'failed'}"
              for task in lab["tasks"] if task["graded"] and not task["passed"]]
    if len({line.partition(": ")[2] for line in failed}) == 1 and len(failed) == len(lab["tasks"]):
        failed = [failed[0].partition(": ")[2]]
    return "\n".join((failed or ["all tasks passed"]) + remarks(lab))


def write_tables(out, found, results, labs):
    columns = ["Name", "Email address", "ID number"]
    for lab in labs:
        columns += [title(lab), f"{title(lab)} feedback"]
    rows = [columns]
    for one in found:
        row = [one.title, one.student.get("email", ""), one.student.get("id", "")]
        for lab in labs:
            result = results[one.name][lab.number]
            row += [points(result), feedback(result) if is_graded_lab(result) else ""]
        rows.append(row)
    write_table(out / "moodle.csv", rows)

    most = [next(iter(results.values()))[lab.number]["max"] for lab in labs]
    rows = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *map(title, labs)],
            ["    Points Possible", "", "", "", "", *most]]
    for one in found:
        rows.append([one.title, "", one.student.get("id", ""), one.student.get("login", ""), "",
                     *(points(results[one.name][lab.number]) for lab in labs)])
    write_table(out / "canvas.csv", rows)

"""What ./workbook grade writes: results for people (HTML), tables (CSV), Gradescope (JSON) and CI systems (JUnit)."""
import csv
import html
import io
import json
import os
import re
from collections import Counter
from xml.etree import ElementTree

from grade_similar import in_lines

STYLE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>
body{{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}
table{{border-collapse:collapse}}td,th{{padding:.2em .8em;text-align:left;border-bottom:1px solid #ccc}}
td.n{{text-align:right}}pre{{white-space:pre-wrap;background:#f4f4f4;padding:.6em}}</style><h1>{title}</h1>
"""


def write(file, text):
    """Whole or not at all."""
    beside = file.with_name(file.name + ".part")
    beside.write_text(text, encoding="utf-8", errors="replace", newline="")
    os.replace(beside, file)


def write_table(file, rows):
    """As CSV. A spreadsheet would take some texts for formulas."""
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([["'" + cell if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell
                                   for cell in row] for row in rows])
    write(file, stream.getvalue())


def tidy(number):
    """Two decimals, and none where they are zero."""
    return int(number) if number == int(number) else round(number, 2)


def reached(task):
    return f"{task['points']}/{task['max']}" if task["graded"] else "not graded"


def said(task):
    """The handout's message about a task, or why there is none."""
    if not task["graded"]:
        return f"not graded yet: {task['message']}"
    return task["message"] or "passed"


def is_graded_lab(lab):
    return all(task["graded"] for task in lab["tasks"])


def is_graded(result):
    return all(map(is_graded_lab, result.values()))


def total(result):
    return tidy(sum(lab["counts"] for lab in result.values()))


def counted(lab):
    return lab["counts"] if is_graded_lab(lab) else "?"


def total_max(result):
    return tidy(sum(lab["counts_max"] for lab in result.values()))


def total_in_words(result):
    return total(result) if is_graded(result) else "?"


def time_in_words(lab):
    """When a lab was handed in, and who says so."""
    how = {"list": "the list", "commit": "the commit", "file": "the file"}[lab["time_source"]]
    return f"{lab['time']}, as {how} says"


def days_late(lab):
    return f"{lab['days_late']} day{'s' if lab['days_late'] != 1 else ''} late"


def lateness(lab):
    """When a lab was handed in, and what that means; empty if no deadline was missed."""
    if not lab["days_late"] or not lab["points"]:
        return ""
    return f"{days_late(lab)} ({time_in_words(lab)}): {lab['score']} of {lab['points']} points count"


def extended(lab):
    return f"extension: until {lab['extension']}" if lab["extension"] else ""


def by_hand(lab):
    """Which points are not those of the tests, and why."""
    given = [f"{points} points for {task}" for task, points in lab["by_hand"].items() if task != "why"]
    return f"by hand: {', '.join(given)} ({lab['by_hand']['why']})" if given else ""


def remarks(lab):
    """What the course's terms have changed."""
    return [text for text in (lateness(lab), extended(lab), by_hand(lab)) if text]


def heading(lab):
    """68/85 (85 before 20 % off: 2 days late)"""
    if not is_graded_lab(lab):
        return "not graded yet"
    late = f" ({lab['points']} before {lab['percent_off']} % off: {days_late(lab)})" if lateness(lab) else ""
    return f"{lab['score']}/{lab['max']}{late}"


def evidence(lab):
    """What it takes to see the points again; empty if no file was graded."""
    known = lab["evidence"]
    if not known.get("graded"):
        return ""
    commit = f", of commit {known['commit']}" if known["commit"] else ""
    return (f"graded {known['graded']} with seed {known['seed']} by the workbook's commit {known['workbook']}; "
            f"SHA-256 of the file{commit}: {known['file']}")


def write_submission(folder, submission, result, labs):
    write(folder / "tasks.json", json.dumps(result, indent=1))
    write(folder / "results.json", json.dumps(gradescope(result), indent=1))
    page = [STYLE.format(title=html.escape(submission.title))]
    if len(labs) > 1 or any(lab["weight"] is not None for lab in result.values()):
        page.append(f"<p>Total: {total_in_words(result)}/{total_max(result)}</p>")
    for lab in labs:
        of_lab = result[lab.number]
        tasks = of_lab["tasks"]
        page.append(f"<h2>Lab {lab.number}: {heading(of_lab)}</h2>")
        if of_lab["weight"] is not None:
            page.append(f"<p>counts {counted(of_lab)} of {of_lab['weight']} in the total</p>")
        if of_lab["time"] and of_lab["hash"]:
            page.append(f"<p>{html.escape(lab.path)}, handed in {html.escape(time_in_words(of_lab))}</p>")
        page += [f"<p>{html.escape(text)}</p>"
                 for text in (submission.notes.get(lab.number), *remarks(of_lab)) if text]
        page.append("<table>")
        for task in tasks:
            page.append(f"<tr><td>{html.escape(task['id'])}<td>{html.escape(task['title'])}"
                        f"<td class=n>{reached(task)}</tr>")
        page.append("</table>")
        page += [f"<p><small>{html.escape(evidence(of_lab))}</small></p>"] * bool(evidence(of_lab))
        ids = {}  # of the tasks that failed, by what is said about them
        for task in tasks:
            if not task["passed"]:
                ids.setdefault(said(task), []).append(task["id"])
        page += [f"<h3>Task{'s' if len(same) > 1 else ''} {html.escape(', '.join(same))}</h3>"
                 f"<pre>{html.escape(text)}</pre>" for text, same in ids.items()]
    write(folder / "index.html", "\n".join(page))


def gradescope(result):
    """https://gradescope-autograders.readthedocs.io/en/latest/specs/; a task without `score` is not graded."""
    tests = []
    for number, lab in result.items():
        for task in lab["tasks"]:
            test = {"name": f"lab {number}, task {task['id']}: {task['title']}", "max_score": task["max"],
                    "output": said(task), "visibility": "visible"}
            if task["graded"]:
                test |= {"score": task["points"], "status": "passed" if task["passed"] else "failed"}
            tests.append(test)
    changed = [f"lab {number}: {text}" for number, lab in result.items() for text in remarks(lab)]
    words = "graded" if is_graded(result) else "not graded, run again"
    whole = {"tests": tests, "visibility": "visible", "stdout_visibility": "hidden", "output": "\n".join([words, *changed])}
    if is_graded(result):
        whole["score"] = total(result)
    return whole


def write_class(out, found, results, labs, pairs):
    write_csv(out, found, results, labs)
    write_junit(out, results)
    if pairs:
        write_table(out / "similar.csv", [["lab", "percent", "submission", "other"],
                                          *((lab, *pair) for lab, ones in pairs.items() for pair in ones)])
    write_page(out, found, results, labs, pairs)


def write_csv(out, found, results, labs):
    known = [column for column in ("name", "email", "id", "login") if any(one.student.get(column) for one in found)]
    columns = ["submission", *known]
    for lab in labs:
        columns += [*(f"{lab.number}.{task['id']}" for task in lab.tasks), f"{lab.number} extension",
                    *(f"{lab.number} {what}" for what in ("days late", "points", "max", "counts"))]
    rows = [[*columns, "total", "total max"]]
    for submission in found:
        result = results[submission.name]
        row = [submission.name, *(submission.student.get(column, "") for column in known)]
        for one in (result[lab.number] for lab in labs):
            row += [task["points"] if task["graded"] else "" for task in one["tasks"]]
            graded = is_graded_lab(one)
            row += [one["extension"], one["days_late"], one["score"] if graded else "", one["max"],
                    one["counts"] if graded else ""]
        rows.append([*row, total(result) if is_graded(result) else "not graded", total_max(result)])
    write_table(out / "results.csv", rows)


def write_junit(out, results):
    root = ElementTree.Element("testsuites")
    for name, result in results.items():
        suite = ElementTree.SubElement(root, "testsuite", name=name)
        for number, lab in result.items():
            for task in lab["tasks"]:
                case = ElementTree.SubElement(suite, "testcase", classname=f"lab{number}",
                                              name=f"{task['id']} {task['title']}")
                if not task["passed"]:
                    # XML has no control characters.
                    text = re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", said(task))
                    kind = "failure" if task["graded"] else "error"
                    ElementTree.SubElement(case, kind, message=text.split("\n")[0]).text = text
        tasks = [task for lab in result.values() for task in lab["tasks"]]
        suite.set("tests", str(len(tasks)))
        suite.set("failures", str(sum(task["graded"] and not task["passed"] for task in tasks)))
        suite.set("errors", str(sum(not task["graded"] for task in tasks)))
    write(out / "junit.xml", ElementTree.tostring(root, encoding="unicode", xml_declaration=True))


def write_page(out, found, results, labs, pairs):
    names = {one.name: one.title for one in found}
    first = next(iter(results.values()))
    page = [STYLE.format(title="The class"), "<h2>Points</h2>\n<table><tr><th>submission"]
    page += [f"<th>lab {lab.number} (of {first[lab.number]['counts_max']})" for lab in labs]
    page.append(f"<th>total (of {total_max(first)})</tr>")
    for name, result in results.items():
        cells = [f"<td class=n>{counted(result[lab.number])}" for lab in labs]
        whole = total(result) if is_graded(result) else "not graded"
        page.append(f'<tr><td><a href="{html.escape(name)}/index.html">{html.escape(names[name])}</a>{"".join(cells)}'
                    f"<td class=n>{whole}</tr>")
    page.append("</table>\n<h2>Tasks, and the most frequent first messages</h2>\n<table>"
                "<tr><th>lab<th>task<th>passed<th>message<th>submissions</tr>")
    for lab in labs:
        for i, task in enumerate(lab.tasks):
            of_all = [result[lab.number]["tasks"][i] for result in results.values()]
            counts = Counter(one["message"].split("\n")[0] for one in of_all if not one["passed"]).most_common(3)
            passed = sum(one["passed"] for one in of_all)
            for row, (message, count) in enumerate(counts or [("", "")]):
                begin = (f"<td>{lab.number}<td>{html.escape(task['id'])} {html.escape(task['title'])}"
                         f"<td class=n>{passed} of {len(of_all)}") if row == 0 else "<td><td><td>"
                page.append(f"<tr>{begin}<td>{html.escape(message)}<td class=n>{count}</tr>")
    page.append("</table>")
    for lab, ones in pairs.items():
        page.append(f"<h2>Similar, lab {lab}</h2>\n<pre>{html.escape(chr(10).join(in_lines(ones)))}</pre>")
    write(out / "index.html", "\n".join(page))

"""Makes a lab from scripts/lab_template: ./workbook lab new NN name (docs/authors.md)."""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "scripts/lab_template"


def stop(message):
    sys.exit(f"error: {message}")


def put_after(text, pattern, addition, file):
    """`text` with `addition` after the last match of `pattern`."""
    places = [match.end() for match in re.finditer(pattern, text, re.M)]
    if not places:
        stop(f"{file} has no line of a lab to put the new one after (scripts/lab.py: {pattern})")
    return text[: places[-1]] + addition + text[places[-1] :]


def new(number, name):
    if not re.fullmatch(r"[0-9]{1,2}", number):
        stop(f"'{number}' is not the number of a lab: two digits, as in ./workbook lab new 13 zero")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > 24:
        stop(f"'{name}' is not the name of a lab: small letters, digits and _, at most 24")
    number = f"{int(number):02d}"
    for lab in sorted((ROOT / "labs").glob("[0-9][0-9]*_*")):
        if lab.name.split("_")[0] == number or lab.name.split("_", 1)[1] == name:
            stop(f"there is labs/{lab.name} already: choose another number and another name")

    def filled(text):
        title = name.replace("_", " ").capitalize()
        for word, value in (("NN", number), ("SHORT", str(int(number))), ("NAME", name),
                            ("TITLE", title)):
            text = text.replace(word, value)
        return text

    files = {
        ROOT / filled(str(source.relative_to(TEMPLATE))): filled(source.read_text())
        for source in sorted(TEMPLATE.rglob("*")) if source.is_file()
    }
    for file in files:
        if file.exists():
            stop(f"{file.relative_to(ROOT)} exists already: move it away")
    row = (f"| [{number} {name}](labs/{number}_{name}/README.md) | 2 | *author: what students write, "
           "in a line* |\n")
    for file, pattern, addition in (
        ("CMakeLists.txt", r"^add_lab\(.*\)\n", f"add_lab({number} {name})\n"),
        ("README.md", r"^\| \[[0-9]{2}\w* \w+\]\(labs/.*\|\n", row),
    ):
        files[ROOT / file] = put_after((ROOT / file).read_text(), pattern, addition, file)

    # All or nothing.
    before = {file: file.read_text() if file.exists() else None for file in files}
    folders = {folder for file in files for folder in file.parents if not folder.exists()}
    try:
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    except BaseException as error:
        for file, text in before.items():
            if text is not None:
                file.write_text(text)
            elif file.is_file():
                file.unlink()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        stop(f"nothing has been made: {error}")
    for file in files:
        print(("changed  " if before[file] else "made     ") + str(file.relative_to(ROOT)))
    print(f"next: ./workbook lab check {int(number)}, and docs/authors.md")

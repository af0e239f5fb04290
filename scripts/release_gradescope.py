"""./workbook release --gradescope: an autograder for Gradescope, with the whole workbook, as of the last commit.

https://gradescope-autograders.readthedocs.io/en/latest/specs/: setup.sh and run_autograder lie at the top of the zip,
which is unpacked to /autograder/source.
"""
import os
import zipfile
from pathlib import Path

EXECUTABLE, PLAIN = 0o100755, 0o100644
# Nothing in the autograder needs these.
LEFT_OUT = (".ci/", ".devcontainer/", "slides/", "docs/", "tests/golden/", "scripts/gradescope/")


def write_autograder(book, file, labs, seed):
    """Writes the zip, whole or not at all. `book`: the Workbook of release.py."""
    file = Path(file)
    beside = file.with_name(file.name + ".part")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(path, data, mode):
            member = zipfile.ZipInfo(path)
            member.external_attr = mode << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)

        for name in ("setup.sh", "run_autograder"):
            add(name, book.files[f"scripts/gradescope/{name}"][0], EXECUTABLE)
        add("labs", " ".join(labs) + "\n", PLAIN)
        add("seed", f"{seed}\n", PLAIN)
        for path, (data, executable) in sorted(book.files.items()):
            if not path.startswith(LEFT_OUT):
                add(f"workbook/{path}", data, EXECUTABLE if executable else PLAIN)
    os.replace(beside, file)

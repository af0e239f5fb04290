"""What the build of a lab shows: warnings in the starter, and all tests except the student's own."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

from lab_code import read_mutants


def check_warnings(lab, build):
    """The starter must compile without any. (Students may have some.)"""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if f"/lab{lab.number}_code_student.dir/" in entry["command"]:
            break
    else:
        lab.problem("CMakeLists.txt", 1, f"{build} does not compile {lab.starter}",
                    "add_lab() it, and configure")
        return
    with tempfile.NamedTemporaryFile(suffix=".o") as scratch:
        command = shlex.split(re.sub(r" -o \S+", f" -o {scratch.name} -Werror", entry["command"]))
        done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    found = re.findall(r"^\S+?:(\d+):\d+: (?:fatal )?(?:error|warning): (.*)$", done.stderr, re.M)
    if done.returncode and not found:
        found = [(1, done.stderr.strip()[-200:])]
    for line, what in found:
        lab.problem(lab.starter, int(line), f"the starter does not compile without warnings: {what}", "correct it")


def check_build(lab, build):
    """Returns how many tests there are. They build what they need."""
    mutants = read_mutants(lab.read(lab.mutants))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        labels = f"^(starter|solution|mutants){lab.number}$"
        command = ["ctest", "--test-dir", build, "-L", labels, "--output-junit", report]
        subprocess.run(command, stdout=sys.stderr)
        cases = list(xml.etree.ElementTree.parse(report).iter("testcase")) if report.exists() else []
    for case in cases:
        name, output = case.get("name"), (case.findtext("system-out") or "").strip()
        is_starter = name.startswith("starter")
        # A starter is skipped if somebody has begun to solve it.
        if case.get("status") != "fail" and not (is_starter and case.find("skipped") is not None):
            continue
        again = f"see ctest --test-dir {os.path.relpath(build)} --output-on-failure -R '^{name}$'"
        wrong = [(mutant[0], line.rstrip(":")) for line in output.splitlines() for mutant in mutants
                 if line.startswith(mutant[1] + ": ")]
        for where, line in wrong:
            lab.problem(lab.mutants, where, line, again)
        if not wrong:
            file = lab.starter if is_starter else lab.solution
            lab.problem(file, 1, f"{name} fails: {' '.join(output.splitlines()[-2:]).strip()}", again)
    check_warnings(lab, build)
    return len(cases)

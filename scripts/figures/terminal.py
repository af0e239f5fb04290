#!/usr/bin/env python3
"""Makes docs/figures/terminal.svg: the screen of a real `./workbook watch 2`, of a file in which task 3 forgets the mean.

Usage: scripts/figures/terminal.py. Writes that file in the place of lab 02's starter while it runs, and refuses if the
starter has been changed.
"""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "labs/02_gradient_allreduce/gradient_allreduce.cpp"
COLUMNS, ROWS, LIMIT_S = 100, 24, 120
CHARACTER, LINE, MARGIN, TOP = 8.4, 19, 18, 44  # pixels
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff", "2": "#8b949e", "1": "#ffffff"}
INK, PAPER, BAR = "#d8dee4", "#161b22", "#2b323b"


def half_done(starter):
    """Tasks 1 to 3 of the solution, but task 3 does not scale; tasks 4 and 5 are TODOs."""
    solution = (ROOT / "solutions" / FILE.relative_to(ROOT / "labs")).read_text(encoding="utf-8")
    done = solution[:solution.index("// Task 4")].replace("  lab::scale(flat, share);\n", "")
    done = done.replace("namespace lab02 {", '#include "common/todo.h"\n\nnamespace lab02 {', 1)
    return done + starter[starter.index("double train_step"):]


def screen_after(terminal):
    """The last screen, once all tasks have been tested."""
    screen, deadline = "", time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.5)[0]:
            screen = (screen + os.read(terminal, 65536).decode("utf-8", "replace")).rpartition("\x1b[3J")[2]
        elif "quit" in screen and not re.search(r"· (building|testing)", screen):
            return screen.replace("\r", "").rstrip("\n").split("\n")
    sys.exit(f"error: no result within {LIMIT_S} s: {screen}")


def last_screen():
    """What the command shows after a save, which is not the first: what failed before is tested first."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvp("./workbook", ["./workbook", "watch", "2"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen_after(terminal)
    FILE.write_text(FILE.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    screen = screen_after(terminal)
    os.write(terminal, b"q")
    os.waitpid(pid, 0)
    return screen


def wrapped(line):
    """[(colour, text)] of each line on the screen, which breaks lines at its last column."""
    rows, colour, column = [[]], INK, 0
    for code, text in re.findall(r"(?:\x1b\[(\d+)m)?([^\x1b]*)", line):
        if code:
            colour = COLOURS.get(code, INK)
        while text:
            part, text = text[:COLUMNS - column], text[COLUMNS - column:]
            rows[-1].append((column, colour, part))
            column += len(part)
            if text:
                rows.append([])
                column = 0
    return rows


def drawing(lines):
    rows = [[(0, COLOURS["32"], "$ "), (2, INK, "./workbook watch 2")], []] + [
        row for line in lines for row in wrapped(line)]
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, TOP + len(rows) * LINE + MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
             'aria-label="The screen of ./workbook watch 2: task 3 fails, tasks 4 and 5 are not written yet">',
             f'<rect width="100%" height="100%" rx="10" fill="{PAPER}"/>',
             f'<path d="M0 30V10a10 10 0 0 1 10-10h{width - 20:g}a10 10 0 0 1 10 10v20z" fill="{BAR}"/>']
    parts += [f'<circle cx="{x}" cy="15" r="6" fill="{fill}"/>'
              for x, fill in ((20, "#ff5f57"), (40, "#febc2e"), (60, "#28c840"))]
    parts.append('<g font-family="ui-monospace, \'JetBrains Mono\', \'DejaVu Sans Mono\', Menlo, Consolas, monospace" '
                 'font-size="14">')
    for number, row in enumerate(rows):
        for column, colour, text in row:
            for word in re.finditer(r"\S+(?: \S+)*", text):  # several spaces would be drawn as one
                x, words = MARGIN + (column + word.start()) * CHARACTER, word[0]
                parts.append(f'<text x="{x:.1f}" y="{TOP + (number + 0.7) * LINE:.1f}" '
                             f'textLength="{len(words) * CHARACTER:.1f}" fill="{colour}">{escape(words)}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main():
    starter = FILE.read_text(encoding="utf-8")
    if subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD", "--", FILE], check=False).returncode:
        sys.exit(f"error: {FILE} has been changed: save it elsewhere first")
    FILE.write_text(half_done(starter), encoding="utf-8")
    try:
        lines = last_screen()
    finally:
        FILE.write_text(starter, encoding="utf-8")
    (ROOT / "docs/figures/terminal.svg").write_text(drawing(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

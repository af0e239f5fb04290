"""A terminal that a program of a test writes to, and what a reader would see on it."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time


class Screen:
    """Understands what ./common/run/metrics/progress.cpp sends: \\r, \\n, lines up, and erase to the end."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.master, self.side = pty.openpty()
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.lines, self.row, self.column = [""], 0, 0  # of all that was shown, also above the top of the screen
        self.rest = ""

    def close(self):
        os.close(self.master)
        os.close(self.side)

    def read(self, seconds):
        """Shows what arrives within that time; whether anything did."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        self.rest += os.read(self.master, 1 << 16).decode("utf-8", "replace")
        while (match := re.match(r"\x1b\[(\d*)([A-Z])|[^\x1b]", self.rest)):
            self.rest = self.rest[match.end():]
            if match[2] == "A":
                self.row = max(self.row - int(match[1] or 1), len(self.lines) - self.rows, 0)
            elif match[2] == "J":
                self.lines[self.row:] = [self.lines[self.row][:self.column]]
            elif match[2]:
                raise ValueError(f"unknown: {match[0]!r}")
            elif match[0] == "\r":
                self.column = 0
            elif match[0] == "\n":
                self.next_row()
            else:
                self.put(match[0])
        return True

    def next_row(self):
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def put(self, character):
        if self.column == self.columns:
            self.column = 0
            self.next_row()
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[:self.column] + character + line[self.column + 1:]
        self.column += 1

    def text(self):
        return "\n".join(self.lines)

    def follow(self, process, seconds, look):
        """Calls `look` with each new state of the screen until the process has ended; whether it has in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            if self.read(0.02):
                look(self.text())
            elif ended:
                return True
        return False

"""Running a command with limits on its time, and on the memory of all that it starts."""
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from grade_cgroup import control_group

GIGABYTE = 1 << 30
MEMORY = 6 * GIGABYTE  # of all processes of a verdict, or of a compiler, together
TOGETHER = {"memory.max": MEMORY, "memory.swap.max": 0, "pids.max": 1024}  # where there are control groups

stopping = threading.Event()  # set: every command is ended, and its thread gets Stopped


class Stopped(Exception):
    """The grading was interrupted."""


def limited(limits, command):
    return ["prlimit", *(f"--{name}={value}" for name, value in limits.items()), *command]


def run_limited(command, seconds, environment):
    """(exit status, output) of a command. (None, the reason) if it took too long, or too much memory."""
    with control_group(TOGETHER) as prefix:
        return run_measured([*prefix, *command], seconds, environment)


def run_measured(command, seconds, environment):
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=environment, cwd="/", start_new_session=True) as process:
        end = time.monotonic() + seconds
        reason = ""
        try:
            while not reason:
                try:
                    output, _ = process.communicate(timeout=0.5)
                    return process.returncode, output.decode(errors="replace")
                except subprocess.TimeoutExpired:
                    if stopping.is_set():
                        raise Stopped from None
                    if time.monotonic() > end:
                        reason = f"it was not done after {seconds} s"
                    elif resident(process.pid) > MEMORY:
                        reason = f"it took more than {MEMORY // GIGABYTE} GB of memory"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # a sandbox ends with all that is in it
        process.communicate()
        return None, reason


def resident(ancestor):
    """Bytes of memory of a process and all that descend from it."""
    children, pages = {}, {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(status.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        pages[pid] = int(fields[21])
    family = [ancestor]
    for pid in family:
        family += children.get(pid, [])
    return sum(pages.get(pid, 0) for pid in family) * os.sysconf("SC_PAGE_SIZE")

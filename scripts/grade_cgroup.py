"""Limits for all processes of a job together, by a control group (cgroup v2), where this process may make one.

That takes root, a machine whose root group hands on its controllers (as systemd sets it up), and no container that
protects them. Elsewhere, grade_sandbox.py measures memory itself, and limits processes for each user.
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""
import contextlib
import os
import re
import time
from pathlib import Path

SECONDS = 10  # until all processes of a group have ended


def root_group():
    """Where control groups of version 2 are mounted; None if they are not."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    found = re.search(r"^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", mounts, re.M)
    return Path(found[1]) if found else None


@contextlib.contextmanager
def control_group(limits):
    """The words before a command that starts it in a new group with these limits, such as {"memory.max": 1 << 30}.

    No words if there can be no such group. At the end, all that is in the group is killed.
    """
    root = root_group()
    group = None
    try:
        handed_on = (root / "cgroup.subtree_control").read_text(encoding="utf-8").split() if root else []
        if root and {name.split(".")[0] for name in limits} <= set(handed_on):
            group = root / f"workbook-grade.{os.getpid()}.{time.monotonic_ns()}"
            group.mkdir()
            for name, value in limits.items():
                (group / name).write_text(str(value), encoding="utf-8")
    except OSError:
        remove(group)
        group = None
    try:
        yield ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs")] if group else []
    finally:
        remove(group)


def remove(group):
    if group is None or not group.is_dir():
        return
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1", encoding="utf-8")
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            group.rmdir()
            return
        except OSError:  # killed processes are still ending
            time.sleep(0.01)

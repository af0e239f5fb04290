"""Rank programs without the correct functions of tasks that a job is not given.

For tests of one task, a rank program replaces functions of other tasks by correct ones. Those of task 3 are in the C++
namespace given_3 (LAB_GIVEN in tests/grading/implementation.h). A student's file could find them in the memory of its
process, or in the program's file. So it is loaded by copies in which their machine code is overwritten.
"""
import itertools
import platform
import re
import subprocess

# Of an instruction that ends the process.
TRAP = b"\xcc" if platform.machine() == "x86_64" else b"\x00"


def printed_by(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def given_code(program):
    """[(tasks, address, bytes)] of the functions in namespaces given_..., with all that is made for them."""
    found = re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [tTwWuiI] (.*\bgiven_.*)$",
                       printed_by("nm", "-SC", "--defined-only", program), re.M)
    return [(set(re.findall(r"\bgiven_(\w+)", name)), int(address, 16), int(size, 16)) for address, size, name in found]


def write_copies(program, stripped):
    """STRIPPED, `program` without names, loses all correct functions; STRIPPED.1,4b keeps those of tasks 1 and 4b."""
    code = given_code(program)
    segments = [tuple(int(number, 16) for number in found) for found in
                re.findall(r"^ +LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+)", printed_by("readelf", "-lW", stripped), re.M)]
    whole = stripped.read_bytes()
    tasks = sorted(set().union(*(tasks for tasks, _, _ in code)))
    for count in range(len(tasks) + 1):
        for given in itertools.combinations(tasks, count):
            copy = bytearray(whole)
            for needed, address, size in code:
                if needed.isdisjoint(given):
                    begin = next(offset + address - start for offset, start, length in segments
                                 if start <= address < start + length)
                    copy[begin:begin + size] = TRAP * size
            file = stripped.with_name(".".join([stripped.name, *([",".join(given)] if given else [])]))
            file.write_bytes(copy)
            file.chmod(0o755)

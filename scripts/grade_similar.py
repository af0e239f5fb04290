"""./workbook grade --similar: pairs of files that resemble each other, as sim_c++ of Debian's similarity-tester says.

It compares runs of at least SHORTEST tokens; names, layout, comments and the order of functions do not count.
"""
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from grade_submissions import GradeError

SHORTEST = 24   # tokens of a run
LOWEST = 60     # percent of a file that must be found in the other
MOST = 30       # pairs of a lab that are shown; similar.csv has all
SECONDS = 300
ROOT = Path(__file__).resolve().parent.parent
BEGUN = 90      # percent of the starter: a file with more of it has hardly been begun
FOUND = re.compile(r"^(\d+)\.cpp consists for (\d+) % of (\d+)\.cpp material$", re.M)


def similar_pairs(found, earlier, labs):
    """By lab: (percent, name, name), most similar first. Those of earlier years are compared with those of this year."""
    if not shutil.which("sim_c++"):
        raise GradeError("--similar needs sim_c++: sudo apt-get install similarity-tester")
    pairs = {}
    for lab in labs:
        new, old = ([one for one in ones if lab.number in one.files] for ones in (found, earlier))
        pairs[lab.number] = compared(new + old, len(new), lab)
    return pairs


def compared(ones, new, lab):
    """The first `new` are of this year."""
    with tempfile.TemporaryDirectory(prefix="workbook-similar.") as folder:
        # sim_c++ says of each file how much of it the later ones have: so the starter comes last.
        names = [f"{i}.cpp" for i in range(len(ones) + 1)]
        for name, text in zip(names, [*(one.files[lab.number] for one in ones), (ROOT / lab.path).read_bytes()]):
            Path(folder, name).write_bytes(text)
        try:  # -e: each with each; -s: not with itself
            said = subprocess.run(["sim_c++", "-p", "-e", "-s", f"-r{SHORTEST}", f"-t{LOWEST}", *names], cwd=folder,
                                  capture_output=True, check=True, timeout=SECONDS).stdout.decode(errors="replace")
        except (subprocess.SubprocessError, OSError) as error:
            raise GradeError(f"--similar: sim_c++ failed: {error}") from None
    shares = {(int(one), int(other)): int(percent) for one, percent, other in FOUND.findall(said)}
    starter = len(ones)
    untouched = {starter} | {one for (one, other), percent in shares.items() if other == starter and percent >= BEGUN}
    pairs = {}
    for (one, other), percent in shares.items():
        if not untouched & {one, other} and min(one, other) < new:
            pair = (min(one, other), max(one, other))
            pairs[pair] = max(pairs.get(pair, 0), percent)
    return sorted(((percent, ones[i].name, ones[j].name) for (i, j), percent in pairs.items()), reverse=True)


def groups(pairs):
    """Three or more files that pairs connect, directly or through others: the largest group first."""
    group = {}  # by file
    for _, one, other in pairs:
        joined = group.get(one, {one}) | group.get(other, {other})
        group.update(dict.fromkeys(joined, joined))
    large = {tuple(sorted(names)) for names in group.values() if len(names) > 2}
    return sorted(large, key=lambda names: (-len(names), names))


def in_lines(pairs):
    """What an instructor sees of a lab's pairs."""
    lines = [f"{len(names)} files are alike: {', '.join(names)}" for names in groups(pairs)]
    lines += [f"{share:>3} %  {one}  {other}" for share, one, other in pairs[:MOST]]
    return lines + [f"and {len(pairs) - MOST} more pairs in similar.csv"] * (len(pairs) > MOST)

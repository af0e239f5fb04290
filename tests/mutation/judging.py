"""Building and grading many changed versions of a lab's solution."""

import resource
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 400  # a version may hang in every test; each ends at its own deadline before
MEMORY = 12 << 30  # bytes: some versions push into a vector without end


def solution_of(lab: str) -> Path:
    """The .cpp or .cu file of a lab's solution; `lab` is its folder's name."""
    return next((ROOT / "solutions" / lab).glob(lab.split("_", 1)[1] + ".c*"))


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def build_all(build: Path, solution: Path, sources: Path, objects: Path) -> str:
    """Makes objects/NAME.so of every sources/NAME.cpp that compiles. Returns what the compiler said."""
    for old in objects.glob("*.so"):  # of a version that compiled before
        old.unlink()
    if solution.suffix == ".cu":  # of which the emulation compiles a wrapper (cmake/Emulation.cmake)
        lab = f"lab{solution.parent.name.split('_')[0]}"
        solution = build / "emulated" / f"{lab}_code_solution" / f"{solution.stem}.cpp"
    return subprocess.run(
        ["bash", ROOT / "cmake/build_mutants.sh", build / "compile_commands.json", solution, sources,
         objects],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
    ).stderr


def fails(verdict: Path, implementation: Path, output: Path, suites: str) -> bool:
    """Whether a test fails; `output` is what the tests print. Not graded counts as failed only if it
    is so twice."""
    limits = None if "cuda" in verdict.name else limit_memory  # the emulation reserves more than it uses
    command = [verdict, "--implementation", implementation, "--gtest_fail_fast",
               f"--gtest_filter={suites}"]
    for _ in range(2):
        try:
            with output.open("w") as file:
                code = subprocess.run(
                    command, stdout=file, stderr=subprocess.STDOUT, timeout=DEADLINE_S,
                    preexec_fn=limits,
                ).returncode
        except subprocess.TimeoutExpired:
            return True
        if code in (0, 1):
            return code == 1
    return True

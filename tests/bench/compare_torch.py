#!/usr/bin/env python3
"""Times the training step of the workbook and of PyTorch, in turns, on the same cores.

    cmake --build --preset student --target bench_step
    python3 tests/bench/compare_torch.py build/student/bin/bench_step [--threads N]

Prints for each vocabulary how many times faster the workbook is: the median over rounds of the
ratio of neighbouring measurements, so that a machine that slows down slows both.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

TORCH = [sys.executable, str(Path(__file__).with_name("torch_step.py"))]


def measure(command, vocab, arguments):
    command = command + ["--vocab", str(vocab), "--steps", str(arguments.steps),
                         "--batch", str(arguments.batch)]
    if arguments.threads:
        command += ["--threads", str(arguments.threads)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode != 0:
        sys.exit(f"error: {' '.join(command)} ended with code {finished.returncode}")
    return json.loads(finished.stdout.splitlines()[-1])


def compare(vocab, arguments):
    ours = [str(arguments.bench_step.resolve()), "--step-only", "--json", "--rounds", "1"]
    theirs = TORCH + (["--compile"] if arguments.compile else [])
    pairs = []
    for _ in range(arguments.rounds):
        pairs.append((measure(ours, vocab, arguments), measure(theirs, vocab, arguments)))
        print(f"  vocabulary {vocab}: workbook {pairs[-1][0]['milliseconds_per_step']:.1f} ms, "
              f"PyTorch {pairs[-1][1]['milliseconds_per_step']:.1f} ms", file=sys.stderr)
    ratios = [b["milliseconds_per_step"] / a["milliseconds_per_step"] for a, b in pairs]
    return {
        "vocab": vocab,
        "threads": pairs[0][0]["threads"],
        "torch": pairs[0][1]["program"],
        "workbook_ms": statistics.median(a["milliseconds_per_step"] for a, _ in pairs),
        "torch_ms": statistics.median(b["milliseconds_per_step"] for _, b in pairs),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "workbook_peak_mib": max(a["peak_mib"] for a, _ in pairs),
        "torch_peak_mib": max(b["peak_mib"] for _, b in pairs),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench_step", type=Path, help="the compiled C++ benchmark")
    parser.add_argument("--vocab", type=int, nargs="+", default=[4096, 32000])
    parser.add_argument("--batch", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of both; 0: all cores")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="per measurement")
    parser.add_argument("--compile", action="store_true", help="let PyTorch compile its step")
    parser.add_argument("--json", action="store_true", help="one JSON object per vocabulary")
    arguments = parser.parse_args()
    if not arguments.bench_step.is_file():
        sys.exit(f"error: {arguments.bench_step} is missing; "
                 "cmake --build --preset student --target bench_step makes it")

    for vocab in arguments.vocab:
        result = compare(vocab, arguments)
        if arguments.json:
            print(json.dumps(result))
        else:
            print("vocabulary {vocab}, {threads} threads: workbook {workbook_ms:.1f} ms, "
                  "{torch} {torch_ms:.1f} ms: ratio {ratio:.2f} ({ratio_min:.2f} to "
                  "{ratio_max:.2f}); peak memory {workbook_peak_mib:.0f} and "
                  "{torch_peak_mib:.0f} MiB".format(**result))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times the training step of the workbook and of PyTorch, in turns, on the same cores or GPU.

    cmake --build --preset student --target bench_step
    python3 tests/bench/compare_torch.py build/student/bin/bench_step [--threads N]
    ... --against eager transformers            # needs pip install torch transformers
    ... --device cuda [--precision tf32] [--model large] --against eager default reduce-overhead

Prints how many times faster the workbook is: the median over rounds of the ratio of measurements of
the same round, so that a machine that slows down slows all.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

TORCH = [sys.executable, str(Path(__file__).with_name("torch_step.py"))]


@contextlib.contextmanager
def busy_core():
    """Another program keeps one core busy."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def measure(program, arguments, vocab):
    command = program + ["--model", arguments.model, "--device", arguments.device,
                         "--batch", str(arguments.batch), "--steps", str(arguments.steps),
                         "--warmup", str(arguments.warmup),
                         "--precision", arguments.precision]
    sizes = {"vocab": vocab, "threads": arguments.threads}
    for name in ("dim", "heads", "layers", "hidden", "context"):
        sizes[name] = getattr(arguments, name)
    for name, size in sizes.items():
        command += [f"--{name}", str(size)] if size else []
    with busy_core() if arguments.busy else contextlib.nullcontext():
        finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode != 0:
        sys.exit(f"error: {' '.join(command)} ended with code {finished.returncode}")
    return json.loads(finished.stdout.splitlines()[-1])


def compare(vocab, arguments):
    """One result for each way of running PyTorch."""
    memory = "gpu_mib" if arguments.device == "cuda" else "peak_mib"
    ours = [str(arguments.bench_step.resolve()), "--step-only", "--json", "--rounds", "1"]
    options = {"eager": [], "transformers": ["--transformers"]}
    theirs = {way: TORCH + options.get(way, ["--compile", way]) for way in arguments.against}
    rounds = []
    for _ in range(arguments.rounds):
        measured = {"workbook": measure(ours, arguments, vocab)}
        for way, command in theirs.items():
            measured[way] = measure(command, arguments, vocab)
        rounds.append(measured)
        print(f"  vocabulary {vocab}: " + ", ".join(
            f"{name} {one['milliseconds_per_step']:.4g} ms" for name, one in measured.items()),
            file=sys.stderr)
    for way in theirs:
        pairs = [(measured["workbook"], measured[way]) for measured in rounds]
        ratios = [b["milliseconds_per_step"] / a["milliseconds_per_step"] for a, b in pairs]
        yield {
            "model": arguments.model,
            "vocab": vocab,
            "batch": arguments.batch,
            "device": pairs[0][0]["device"],
            "precision": arguments.precision,
            "threads": pairs[0][0]["threads"],
            "torch": pairs[0][1]["program"],
            "workbook_ms": statistics.median(a["milliseconds_per_step"] for a, _ in pairs),
            "torch_ms": statistics.median(b["milliseconds_per_step"] for _, b in pairs),
            "workbook_tokens": statistics.median(a["tokens_per_second"] for a, _ in pairs),
            "torch_tokens": statistics.median(b["tokens_per_second"] for _, b in pairs),
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "workbook_mib": max(a[memory] for a, _ in pairs),
            "torch_mib": max(b[memory] for _, b in pairs),
        }


LINE = ("vocabulary {vocab}, {where}: workbook {workbook_ms:.4g} ms, {torch} {torch_ms:.4g} ms: "
        "ratio {ratio:.2f} ({ratio_min:.2f} to {ratio_max:.2f}); memory {workbook_mib:.0f} and "
        "{torch_mib:.0f} MiB")
TABLE_HEAD = ("| model | products | workbook tokens/s | PyTorch | its tokens/s | ratio | spread | "
              "MiB |\n|---|---|---|---|---|---|---|---|")
TABLE_ROW = ("| {model}, {batch} sequences, vocabulary {vocab} | {precision} | "
             "{workbook_tokens:.0f} | {torch} | {torch_tokens:.0f} | {ratio:.2f} | "
             "{ratio_min:.2f} to {ratio_max:.2f} | {workbook_mib:.0f} and {torch_mib:.0f} |")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench_step", type=Path, help="the compiled C++ benchmark")
    parser.add_argument("--model", choices=("seed", "large"), default="seed")
    parser.add_argument("--vocab", type=int, nargs="+", default=[4096, 32000])
    for size in ("dim", "heads", "layers", "hidden", "context"):
        parser.add_argument(f"--{size}", type=int, help="default: that of the model")
    parser.add_argument("--batch", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of both")
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"), default="float32",
                        help="of computing on a GPU")
    parser.add_argument("--threads", type=int, default=0, help="of both; 0: all cores")
    parser.add_argument("--busy", action="store_true",
                        help="both beside another program that keeps one core busy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="per measurement")
    parser.add_argument("--warmup", type=int, default=3, help="steps before each measurement")
    parser.add_argument("--against", nargs="+", default=["eager"],
                        choices=("eager", "transformers", "default", "reduce-overhead",
                                 "max-autotune"),
                        help="PyTorch at its fastest without compiling (eager), as most people "
                        "train a LLaMA (transformers), or compiled in a mode of torch.compile")
    parser.add_argument("--compile", dest="against", action="store_const", const=["default"],
                        help="short for --against default")
    parser.add_argument("--json", action="store_true", help="one JSON object per comparison")
    parser.add_argument("--table", action="store_true", help="a table in Markdown")
    arguments = parser.parse_args()
    if not arguments.bench_step.is_file():
        sys.exit(f"error: {arguments.bench_step} is missing; "
                 "cmake --build --preset student --target bench_step makes it")
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.table:
        print(TABLE_HEAD)
    for vocab in arguments.vocab:
        for result in compare(vocab, arguments):
            on_gpu = arguments.device == "cuda"
            where = result["device"] if on_gpu else f"{result['threads']} threads"
            if arguments.json:
                print(json.dumps(result), flush=True)
            else:
                line = TABLE_ROW if arguments.table else LINE
                print(line.format(where=where, **result), flush=True)


if __name__ == "__main__":
    main()

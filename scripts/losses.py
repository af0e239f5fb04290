#!/usr/bin/env python3
"""./workbook losses RUN RUN...: the losses of several runs, step by step, and in how many digits they agree.

Usage: losses.py FOLDER FOLDER...
"""
import json
import math
import sys
from pathlib import Path

ROWS = 25  # of the table; longer runs show some of their steps


def read_metrics(folder):
    """The records of metrics.jsonl; the last line of a run that was killed may be incomplete."""
    records = []
    file = folder / "metrics.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return [record for record in records if isinstance(record, dict) and is_number(record.get("loss"))]


def is_number(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def digits(one, other):
    """How many digits agree, judged by the difference: 7 of 8.3927328 and 8.3927331, and 4 of 7.9999 and 8.0000.
    None if all do."""
    if one == other:
        return None
    return max(0, math.floor(-math.log10(abs(other - one) / max(abs(one), abs(other)))))


def row(label, values):
    first, *others = values
    agree = [digits(first, other) for other in others]
    return [label, f"{first:.15f}", *("=" if count is None else f"{other - first:+.1e} {count:3}"
                                      for other, count in zip(others, agree))]


def summary(first, losses, steps):
    agree = [digits(first[step], losses[step]) for step in steps]
    counts = [count for count in agree if count is not None]
    if not counts:
        return f"all digits agree in all {len(steps)} steps"
    some = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    last = f" ({agree[-1]} in step {steps[-1]})" if agree[-1] is not None else ""
    return f"all digits agree in {len(steps) - len(counts)} of {len(steps)} steps, {some} in the others{last}"


def shown(steps):
    """All steps of a short run; of a long one some, with the first and the last."""
    if len(steps) <= ROWS:
        return steps
    return [steps[round(i * (len(steps) - 1) / (ROWS - 1))] for i in range(ROWS)]


def main(arguments):
    if len(arguments) < 2:
        sys.exit("error: which runs? ./workbook losses runs/ONE runs/OTHER")
    names = [Path(folder).resolve().name for folder in arguments]
    if len(set(names)) < len(names):
        names = arguments
    records = [read_metrics(Path(folder)) for folder in arguments]
    for folder, found in zip(arguments, records):
        if not found:
            sys.exit(f"error: {folder} has no losses: give the folder of a run, with its metrics.jsonl")
    losses = [{record["step"]: record["loss"] for record in found} for found in records]
    validations = [{record["step"]: record["val_loss"] for record in found if is_number(record.get("val_loss"))}
                   for found in records]
    steps = sorted(set.intersection(*map(set, losses)))
    if not steps:
        sys.exit("error: these runs have logged no step in common: repeat them with --log-every 1")

    rows = [["step", *names]]
    rows += [row(f"{step}", [losses_[step] for losses_ in losses]) for step in shown(steps)]
    if validated := set.intersection(*map(set, validations)):
        step = max(validated)
        rows.append(row(f"validation, step {step}", [values[step] for values in validations]))
    print(f"the loss of {names[0]}; of the others, = if all digits agree, else the difference and how many digits agree\n")
    widths = [max(map(len, column)) for column in zip(*rows)]
    for cells in rows:
        print("  ".join(text.rjust(width) for text, width in zip(cells, widths)))
    print()
    for name, other in zip(names[1:], losses[1:]):
        print(f"{name}: {summary(losses[0], other, steps)}")
    if len(steps) < max(map(len, losses)):
        print("Some runs have logged fewer steps than others: --log-every 1 logs every step.")


if __name__ == "__main__":
    main(sys.argv[1:])

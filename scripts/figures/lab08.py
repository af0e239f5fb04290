#!/usr/bin/env python3
"""Draws the figures of lab 08's handout into labs/08_overlap/figures.

Usage: scripts/figures/lab08.py
"""

from pathlib import Path

from svg import BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_GREY, RED, Figure

FOLDER = Path(__file__).resolve().parents[2] / "labs/08_overlap/figures"

# As the example of section 4, with other numbers: 2 ranks, 4 parameters of 1,000 bytes, 0.5 ms and 1 us per byte.
FORWARD, BACKWARD, UPDATE = 4, 2, 1  # ms: forward, backward of each parameter, optimizer


def all_reduce(parameters):
    """ms of a ring of 2 ranks: 2 steps of 0.5 ms and half of the bytes."""
    return 2 * (0.5 + 0.5 * parameters)


def schedule(buckets, overlap=True):
    """(start, end, parameters) of each bucket; time counts from the beginning of the step."""
    travels, free, ready = [], 0, FORWARD
    end = FORWARD + BACKWARD * sum(buckets)
    for size in buckets:
        ready += BACKWARD * size
        start = max(free, ready if overlap else end)
        free = start + all_reduce(size)
        travels.append((start, free, size))
    return travels


def step_figure():
    figure = Figure(980, 520, "A step without overlap, with two buckets and with four")
    left, scale = 150, 37.5
    rows = [("lab 02: one all-reduce after the backward pass", [4], False),
            ("two buckets", [2, 2], True),
            ("a bucket for each gradient", [1, 1, 1, 1], True)]
    y = 46
    for title, buckets, overlap in rows:
        figure.text(left, y, title, 18, anchor="start", weight="bold")
        y += 14
        for name in ("compute", "network"):
            figure.text(left - 14, y + 27, name, 16, MUTED, "end")
            figure.rect(left, y, 20 * scale, 38, PALE_GREY, FAINT, 1, 0)
            if name == "compute":
                figure.rect(left, y, FORWARD * scale, 38, BLUE, "#ffffff", 1, 2)
                figure.text(left + FORWARD * scale / 2, y + 25, "forward", 15, "#ffffff")
                for k in range(4):
                    at = left + (FORWARD + k * BACKWARD) * scale
                    figure.rect(at, y, BACKWARD * scale, 38, GREEN, "#ffffff", 1, 2)
                    figure.text(at + BACKWARD * scale / 2, y + 25, f"B{3 - k}", 15, "#ffffff")
                travels = schedule(buckets, overlap)
                end = travels[-1][1]
                computed = FORWARD + 4 * BACKWARD
                figure.rect(left + computed * scale, y + 13, (end - computed) * scale, 12, RED, RED,
                            0, 0)
                figure.text(left + (computed + end) / 2 * scale, y + 10, "waits", 12, RED)
                figure.rect(left + end * scale, y, UPDATE * scale, 38, MUTED, "#ffffff", 1, 2)
                figure.text(left + (end + UPDATE) * scale + 6, y + 25, "update", 15, MUTED, "start")
            else:
                last = 4
                for start, end, size in travels:
                    first = last - size
                    label = f"{last - 1}" if size == 1 else f"{last - 1}…{first}"
                    figure.rect(left + start * scale, y, (end - start) * scale, 38, ORANGE, "#ffffff",
                                1, 2)
                    figure.text(left + (start + end) / 2 * scale, y + 25, label, 15, "#ffffff")
                    last = first
            y += 42
        exposed = travels[-1][1] - FORWARD - 4 * BACKWARD
        figure.text(left + 20 * scale, y - 98, f"exposed: {exposed:g} ms", 16, RED, "end", "bold")
        y += 40
    for tick in range(0, 21, 2):
        figure.text(left + tick * scale, y - 12, str(tick), 14, MUTED)
    figure.text(left + 20 * scale + 22, y - 12, "ms", 14, MUTED)
    figure.text(left, y + 20, "2 ranks, 4 gradients of 1,000 bytes, α = 0.5 ms, β = 1 µs per byte: "
                "an all-reduce of k gradients takes 1 + k ms", 14, MUTED, "start")
    figure.save(FOLDER / "step.svg")


def order_figure():
    figure = Figure(980, 400, "Buckets posted as they complete, and in their order")
    for left, title, held in ((110, "posted when complete", False), (600, "posted in their turn", True)):
        figure.text(left + 160, 40, title, 19, RED if not held else GREEN, weight="bold")
        for rank, (top, order) in enumerate(((70, (0, 1)), (210, (1, 0)))):
            figure.text(left - 14, top + 27, f"rank {rank}", 16, anchor="end", weight="bold")
            figure.text(left - 14, top + 75, "posts", 16, MUTED, "end")
            for place, bucket in enumerate(order):
                at = left + place * 160
                figure.rect(at, top, 152, 40, GREEN, "#ffffff", 1, 2)
                figure.text(at + 76, top + 26, f"computes bucket {bucket}", 14, "#ffffff")
            if held and rank == 1:
                posts = [(left + 312, 0), (left + 352, 1)]
            else:
                posts = [(left + 152 * (k + 1) + 8 * k, bucket) for k, bucket in enumerate(order)]
            for at, bucket in posts:
                figure.rect(at - 17, top + 52, 34, 34, ORANGE, "#ffffff", 1, 4)
                figure.text(at, top + 76, str(bucket), 18, "#ffffff", weight="bold")
        words = ("both keep the order 0, 1: rank 1 holds 1 back" if held else
                 "bucket 0 meets 1: a wrong sum, or a job that stops")
        figure.text(left + 160, 345, words, 17, GREEN if held else RED)
    figure.save(FOLDER / "order.svg")


def exposed_of(cap, alpha, layers=60, size=0.5, beta=2.0, per_gradient=1.0, ranks=3):
    """ms; `size` MB per gradient, beta ms per MB."""
    per_bucket = max(1, int(cap / size + 1e-9))
    free, ready, left = 0.0, 0.0, layers
    while left > 0:
        count = min(per_bucket, left)
        left -= count
        ready += count * per_gradient
        free = max(free, ready) + 2 * (ranks - 1) * (alpha + beta * count * size / ranks)
    return free - ready


def capacity_figure():
    figure = Figure(980, 430, "Exposed time against the capacity of buckets")
    left, bottom, width, height = 120, 330, 800, 270
    top = 150.0
    figure.line(left, bottom, left + width, bottom)
    figure.line(left, bottom, left, bottom - height)
    counts = list(range(1, 61))
    x = lambda cap: left + width * cap / 30
    y = lambda ms: bottom - height * ms / top
    for caption, alpha, colour, place, aside in (("α = 0.5 ms", 0.5, RED, 0.42, -16),
                                                 ("α = 0.02 ms", 0.02, BLUE, 0.34, 30)):
        points = [(x(c * 0.5), y(exposed_of(c * 0.5, alpha))) for c in counts]
        figure.path(points, colour)
        best = min(counts, key=lambda c: exposed_of(c * 0.5, alpha))
        figure.dot(x(best * 0.5), y(exposed_of(best * 0.5, alpha)), colour, 7)
        at = counts[int(place * len(counts))]
        figure.text(x(at * 0.5), y(exposed_of(at * 0.5, alpha)) + aside, caption, 17, colour,
                    weight="bold")
    for cap in range(0, 31, 5):
        figure.text(x(cap), bottom + 24, str(cap), 15, MUTED)
    for ms in range(0, 151, 25):
        figure.text(left - 12, y(ms) + 5, str(ms), 15, MUTED, "end")
    figure.text(left + width / 2, bottom + 52, "capacity of a bucket (MB)", 16, MUTED)
    figure.text(left, bottom - height - 18, "exposed (ms)", 16, MUTED, "start")
    figure.text(left, bottom + 82, "3 ranks, 60 gradients of 0.5 MB, 1 ms for each in the backward pass, "
                "β = 2 ms per MB (4 Gbit/s)", 15, MUTED, "start")
    figure.save(FOLDER / "capacity.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    step_figure()
    order_figure()
    capacity_figure()

#!/usr/bin/env python3
"""Draws the figures of lab 11's handout into labs/11_parameter_server/figures.

Usage: scripts/figures/lab11.py
"""

from pathlib import Path

from svg import BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_GREY, RED, Figure

FOLDER = Path(__file__).resolve().parents[2] / "labs/11_parameter_server/figures"
SECONDS = 12
COMPUTE = [1, 3, 1, 1]


def schedule(n, bound):
    """(worker, start, end, item, staleness) and the times of updates, by the rule of section 2.5."""
    version, arrived, item, now = 0, 0, 0, 0.0
    leases, spans, updates = {}, [], []

    def pull(worker):
        nonlocal item
        last = version + (arrived + len(leases)) // n
        oldest = min([version] + [lease[1] for lease in leases.values()])
        if worker not in leases and last - oldest <= bound:
            leases[worker] = (now, version, item, now + COMPUTE[worker])
            item += 1

    for worker in range(len(COMPUTE)):
        pull(worker)
    while now <= SECONDS:
        first = min(leases, key=lambda worker: (leases[worker][3], worker))
        start, used, number, now = leases.pop(first)
        spans.append((first, start, now, number, version - used))
        arrived += 1
        if arrived == n:
            arrived, version = 0, version + 1
            updates.append(now)
        for worker in [first, *range(len(COMPUTE))]:  # it pulls at once; those that wait try again
            pull(worker)
    return [span for span in spans if span[2] <= SECONDS], [time for time in updates if time <= SECONDS]


def workers_figure():
    figure = Figure(980, 640, "Four workers, one of them slow: synchronous, bounded and asynchronous")
    left, scale, height = 130, 66, 32
    y = 44
    for title, n, bound in [("synchronous: s = 0, updates of n = 4 gradients", 4, 0),
                            ("bounded: s = 4, n = 4", 4, 4),
                            ("asynchronous: n = 1, no bound", 1, 10**9)]:
        spans, updates = schedule(n, bound)
        figure.text(left, y, f"{title} · {len(spans)} gradients in {SECONDS} s", 18, anchor="start", weight="bold")
        y += 12
        for worker in range(4):
            figure.text(left - 14, y + 22, f"worker {worker}", 15, MUTED, "end")
            figure.rect(left, y, SECONDS * scale, height - 3, PALE_GREY, FAINT, 1, 0)
            for who, start, end, item, stale in spans:
                if who == worker:
                    color = GREEN if stale == 0 else BLUE if stale < 3 else ORANGE
                    figure.rect(left + start * scale, y, (end - start) * scale, height - 3, color, "#ffffff", 1, 2)
                    figure.text(left + (start + end) / 2 * scale, y + 21, str(stale), 15, "#ffffff")
            y += height
        for time in sorted(set(updates)):
            figure.rect(left + time * scale - 1, y - 4 * height, 2, 4 * height, RED, RED, 0, 0)
        y += 46
    figure.text(left, y - 6, "Number and colour: the staleness of the gradient. Red line: an update. Grey: the worker waits.", 16,
                INK, "start")
    figure.save(FOLDER / "workers.svg")


def item_figure():
    figure = Figure(980, 250, "The states of an item")
    boxes = {"new": (60, 90, MUTED), "leased": (370, 90, BLUE), "counted": (720, 90, GREEN), "returned": (370, 190, ORANGE)}
    for name, (x, y, color) in boxes.items():
        figure.rect(x, y - 28, 170, 46, color, color, 0, 8)
        figure.text(x + 85, y + 2, name, 19, "#ffffff", weight="bold")
    for x, text in [(300, "on_pull"), (630, "on_push")]:
        figure.text(x, 58, text, 17, INK)
    figure.line(230, 85, 364, 85, arrow=True)
    figure.line(540, 85, 714, 85, arrow=True)
    figure.line(425, 160, 425, 114, arrow=True)
    figure.line(485, 108, 485, 156, arrow=True)
    figure.text(410, 142, "on_pull", 17, INK, "end")
    figure.text(502, 142, "on_leave, or its worker pulls again", 17, INK, "start")
    figure.save(FOLDER / "item.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    workers_figure()
    item_figure()

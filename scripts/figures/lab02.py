#!/usr/bin/env python3
"""Draws the figures of lab 02 into labs/02_gradient_allreduce/figures.

Usage: scripts/figures/lab02.py
"""

import math
import pathlib
import random

from svg import (BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_GREY,
                 PALE_ORANGE, PAPER, RED, Axes, Figure)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "labs/02_gradient_allreduce/figures"
RANK_COLORS = [(PALE_BLUE, BLUE), (PALE_GREEN, GREEN), (PALE_ORANGE, ORANGE)]


def data_parallel():
    """One step on three ranks: everything is separate, except for one all-reduce."""
    fig = Figure(980, 400, "A data-parallel step: the gradients meet")
    columns = [("shard", "own sequences", "1"), ("forward", "own activations", "2"),
               ("loss", "own targets", "5"), ("backward", "own gradients", "2"),
               ("all-reduce", "", "4"), ("clip, Adam", "own m, v", ""), ("weights", "the same", "")]
    left, pitch, w, h, top = 104, 125, 104, 70, 62
    fig.text(20, 36, "cutpoint", 15, MUTED, "start")
    for i, (_, _, cutpoint) in enumerate(columns):
        fig.text(left + i * pitch + w / 2, 36, cutpoint, 15, MUTED)
    for rank in range(3):
        fill, edge = RANK_COLORS[rank]
        y = top + rank * 104
        fig.text(20, y + h / 2 + 6, f"rank {rank}", 18, edge, "start", "bold")
        for i, (name, detail, _) in enumerate(columns):
            x = left + i * pitch
            if i < 6:
                fig.line(x + w, y + h / 2, x + pitch, y + h / 2, edge, 2, arrow=True)
            if name == "all-reduce":
                continue
            same = name == "weights"
            fig.rect(x, y, w, h, PALE_GREY if same else fill, INK if same else edge)
            fig.text(x + w / 2, y + 31, name, 15, INK if same else edge, weight="bold")
            fig.text(x + w / 2, y + 54, detail, 12, MUTED)
    x = left + 4 * pitch
    fig.rect(x, top - 8, w, 2 * 104 + h + 16, PAPER, RED, 3)
    fig.text(x + w / 2, top + 110, "all-reduce", 16, RED, weight="bold")
    fig.text(x + w / 2, top + 138, "mean over", 15)
    fig.text(x + w / 2, top + 158, "all targets", 15)
    fig.text(x + w / 2, top + 190, "the same bits", 13, MUTED)
    fig.text(x + w / 2, top + 208, "on every rank", 13, MUTED)
    fig.text(490, 382, "Same weights, gradient and update: same weights after. Besides gradients, only "
             "the number of targets travels.", 16, MUTED)
    fig.save(FOLDER / "data_parallel.svg")


def ring_states(ranks):
    """Yields (held, received) per step: held[r][b] is the set of ranks whose numbers are in it. Rank r finishes
    block r, as in lab 07."""
    held = [[{r} for _ in range(ranks)] for r in range(ranks)]
    yield [[set(b) for b in row] for row in held], set()
    for step in range(2 * (ranks - 1)):
        before = [[set(b) for b in row] for row in held]
        received = set()
        for sender in range(ranks):
            block = (sender - 1 - step) % ranks
            if step >= ranks - 1:
                block = (sender - (step - (ranks - 1))) % ranks
            receiver = (sender + 1) % ranks
            held[receiver][block] |= before[sender][block]
            received.add((receiver, block))
        yield [[set(b) for b in row] for row in held], received


def ring():
    """Ring all-reduce of three ranks and three blocks, step by step."""
    fig = Figure(980, 390, "Ring all-reduce with three ranks: two steps of adding, two of copying")
    left, pitch, w, h, top, row = 96, 178, 50, 44, 104, 78
    for rank in range(3):
        fig.text(20, top + rank * row + 28, f"rank {rank}", 17, INK, "start", "bold")
    for i, (held, received) in enumerate(ring_states(3)):
        x0 = left + i * pitch
        fig.text(x0 + 1.5 * w, 40, "start" if i == 0 else f"step {i}", 17, INK, weight="bold")
        for block in range(3):
            x = x0 + block * w
            fig.text(x + w / 2, 66, "ABC"[block], 14, MUTED)
            for rank in range(3):
                y = top + rank * row
                full = len(held[rank][block]) == 3
                new = (rank, block) in received
                fig.rect(x + 2, y, w - 4, h, PALE_GREEN if full else PALE_BLUE,
                         ORANGE if new else GREEN if full else BLUE, 3 if new else 1.5, 5)
                words = "Σ" if full else "+".join(map(str, sorted(held[rank][block])))
                fig.text(x + w / 2, y + 28, words, 19 if full else 15, GREEN if full else BLUE,
                         weight="bold" if full else "normal")
                if new:
                    fig.line(x + w / 2, y - 30, x + w / 2, y - 3, ORANGE, 2.5, arrow=True)
                    if rank == 0:
                        fig.text(x + w / 2 + 6, y - 16, "from 2", 12, ORANGE, "start")
    bottom = top + 3 * row
    for first, words, color in [(1, "reduce-scatter: receive and add", BLUE),
                                (3, "all-gather: receive and keep", GREEN)]:
        x = left + first * pitch
        fig.line(x, bottom - 16, x + pitch + 3 * w, bottom - 16, color, 3)
        fig.text(x + (pitch + 3 * w) / 2, bottom + 8, words, 16, color, weight="bold")
    fig.text(490, 372, "A, B, C: thirds of the gradient. Numbers: the ranks whose gradients are in it; Σ: all. "
             "Orange: just received.", 15, MUTED)
    fig.save(FOLDER / "ring.svg")


def flatten():
    """Tensors of two ranks, copied into one vector, added up and copied back."""
    fig = Figure(980, 330, "Flatten, reduce, copy back: two ranks with three tensors")
    shapes = [("[2, 2]", 2, 2), ("[3]", 1, 3), ("[1]", 1, 1)]
    colors = [(PALE_BLUE, BLUE), (PALE_GREEN, GREEN), (PALE_ORANGE, ORANGE)]
    cell = 24

    def tensors(x, y):
        for (name, rows, columns), (fill, edge) in zip(shapes, colors):
            for row in range(rows):
                for column in range(columns):
                    fig.rect(x + column * cell, y + row * cell, cell - 2, cell - 2, fill, edge, 1.5, 2)
            fig.text(x + columns * cell / 2, y - 8, name, 13, edge)
            x += columns * cell + 16

    def flat(x, y, offsets):
        at = x
        for (_, rows, columns), (fill, edge) in zip(shapes, colors):
            if offsets:
                fig.text(at, y - 8, f"{round((at - x) / cell)}", 13, edge, "start")
            for _ in range(rows * columns):
                fig.rect(at, y, cell - 2, cell - 2, fill, edge, 1.5, 2)
                at += cell
        return at

    for rank in range(2):
        y = 92 + rank * 118
        fig.text(20, y + 22, f"rank {rank}", 18, INK, "start", "bold")
        tensors(100, y)
        fig.line(284, y + 16, 330, y + 16, INK, 2, arrow=True)
        end = flat(340, y + 6, offsets=True)
        fig.line(end + 4, y + 16, end + 34, y + 16, INK, 2, arrow=True)
        fig.line(612, y + 16, 642, y + 16, INK, 2, arrow=True)
        flat(648, y + 6, offsets=False)
        fig.line(700, y + 38, 700, y + 62, INK, 2, arrow=True)
        fig.text(712, y + 56, "copied back into its tensors", 14, MUTED, "start")
    fig.rect(572, 70, 40, 190, PAPER, RED, 3)
    fig.add(f'<text x="592" y="165" font-size="16" fill="{RED}" font-weight="bold" text-anchor="middle" '
            f'transform="rotate(-90 592 165)">all-reduce</text>')
    fig.text(180, 40, "gradients", 17, INK, weight="bold")
    fig.text(436, 40, "one vector, scaled", 17, INK, weight="bold")
    fig.text(744, 40, "the sum", 17, INK, weight="bold")
    fig.text(490, 314, "Small numbers: where each tensor begins in the vector.", 15, MUTED)
    fig.save(FOLDER / "flatten.svg")


def shards():
    """Two epochs of 11 sequences among three ranks."""
    fig = Figure(980, 350, "Shards: every epoch is shuffled, dealt out, and the rest left out")
    random.seed(2)
    count, ranks, w, left = 11, 3, 62, 150
    for epoch in range(2):
        order = random.sample(range(count), count)
        y = 62 + epoch * 132
        fig.text(20, y + 30, f"epoch {epoch}", 18, INK, "start", "bold")
        for position, sequence in enumerate(order):
            x = left + position * w
            used = position < count - count % ranks
            fill, edge = RANK_COLORS[position % ranks] if used else (PALE_GREY, FAINT)
            fig.rect(x + 2, y, w - 4, 46, fill, edge)
            fig.text(x + w / 2, y + 30, f"{sequence}", 18, edge if used else MUTED, weight="bold")
            if used:
                fig.text(x + w / 2, y - 8, f"rank {position % ranks}", 13, edge)
        for step in range(count // ranks):
            x = left + step * ranks * w
            fig.line(x + 6, y + 58, x + ranks * w - 6, y + 58, MUTED, 1.5)
            fig.text(x + ranks * w / 2, y + 78, f"step {step + 1}", 14, MUTED)
        fig.text(left + 10 * w, y + 78, "left out", 14, MUTED)
    fig.text(490, 330, "11 sequences, 3 ranks, batch 1: 3 sequences each. Each epoch leaves out 2, "
             "and others than before.", 16, MUTED)
    fig.save(FOLDER / "shards.svg")


def skip():
    """A constant skip per rank instead of shards."""
    fig = Figure(980, 330, "A constant skip per rank: shards of unequal length that overlap")
    count, skip_by, w, left, top = 12, 3, 56, 110, 66
    fig.text(left, 36, "12 sequences, in the order of the file; rank r skips the first 3r", 17, INK,
             "start", "bold")
    for rank in range(3):
        fill, edge = RANK_COLORS[rank]
        y = top + rank * 54
        fig.text(20, y + 26, f"rank {rank}", 17, edge, "start", "bold")
        for i in range(count):
            x = left + i * w
            read = i >= rank * skip_by
            fig.rect(x + 2, y, w - 4, 38, fill if read else PAPER, edge if read else FAINT, 1.5, 5)
            if read:
                fig.text(x + w / 2, y + 25, f"{i}", 16, edge)
        steps = count - rank * skip_by
        fig.text(left + count * w + 16, y + 25, f"{steps} steps", 16, MUTED, "start")
    y = top + 3 * 54 + 12
    fig.text(20, y + 22, "read by", 16, INK, "start", "bold")
    for first, last, words, color in [(0, 3, "1 rank", MUTED), (3, 6, "2 ranks", INK),
                                      (6, 12, "all 3 ranks", RED)]:
        fig.line(left + first * w + 4, y, left + last * w - 4, y, color, 4)
        fig.text(left + (first + last) * w / 2, y + 24, words, 16, color, weight="bold")
    fig.text(490, 312, "From step 4 on, rank 0 reads what rank 1 has read three steps earlier. After "
             "step 6 rank 2 is done, and the others wait.", 15, MUTED)
    fig.save(FOLDER / "skip.svg")


def circle(ranks, center, radius, start=-math.pi / 2):
    return [(center[0] + radius * math.cos(start + 2 * math.pi * r / ranks),
             center[1] + radius * math.sin(start + 2 * math.pi * r / ranks)) for r in range(ranks)]


def shortened(a, b, gap, aside=0.0):
    """The line from a to b, cut at both ends and moved sideways."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy)
    dx, dy = dx / length, dy / length
    return (a[0] + dx * gap - dy * aside, a[1] + dy * gap + dx * aside,
            b[0] - dx * gap - dy * aside, b[1] - dy * gap + dx * aside)


def node(fig, at, rank, fill, edge):
    fig.add(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="27" fill="{fill}" stroke="{edge}" '
            'stroke-width="2.5"/>')
    fig.text(at[0], at[1] + 7, f"{rank}", 20, edge, weight="bold")


def master_and_ring():
    """The same sum, once through a master and once around a ring, with four ranks."""
    fig = Figure(980, 440, "Master and workers against a ring, four ranks")
    fig.text(245, 40, "master and workers", 20, RED, weight="bold")
    master = (245, 190)
    workers = circle(3, master, 112)
    for worker in workers:
        fig.line(*shortened(worker, master, 32, 7), BLUE, 3, arrow=True)
        fig.line(*shortened(master, worker, 32, 7), GREEN, 3, arrow=True)
    for rank, worker in enumerate(workers, 1):
        node(fig, worker, rank, PALE_GREY, INK)
    node(fig, master, 0, PALE_ORANGE, RED)
    fig.text(228, 140, "S in", 16, BLUE, "end")
    fig.text(262, 140, "S out", 16, GREEN, "start")

    fig.text(735, 40, "ring", 20, GREEN, weight="bold")
    places = circle(4, (735, 178), 96)
    for rank, place in enumerate(places):
        fig.line(*shortened(place, places[(rank + 1) % 4], 34), BLUE, 3, arrow=True)
    for rank, place in enumerate(places):
        node(fig, place, rank, PALE_GREEN, GREEN)
    fig.text(735, 174, "each step: S/4", 16)
    fig.text(735, 196, "on every link", 16)

    rows = [("rank 0", "sends 3S, receives 3S", "each rank", "sends 1.5 S, receives 1.5 S"),
            ("a worker", "sends S, receives S", "", ""),
            ("in total", "6S sent", "in total", "6S sent")]
    for i, (name, cost, ring_name, ring_cost) in enumerate(rows):
        y = 338 + i * 28
        hot = i == 0
        fig.text(60, y, name, 16, MUTED, "start")
        fig.text(190, y, cost, 17, RED if hot else INK, "start", "bold" if hot else "normal")
        fig.text(550, y, ring_name, 16, MUTED, "start")
        fig.text(680, y, ring_cost, 17, GREEN if hot else INK, "start", "bold" if hot else "normal")
    fig.text(490, 428, "S: the size of the gradient. The same total; the ring spreads it "
             "evenly.", 15, MUTED, style="italic")
    fig.save(FOLDER / "master_and_ring.svg")


def busiest_link():
    """Time on the busiest link by the formulas, latency left out."""
    fig = Figure(980, 440, "Time on the busiest link, in units of beta S, against world size")
    axes = Axes(fig, (100, 60, 840, 300), (2, 64), (0.8, 150), True, True)
    sizes = [2, 3, 4, 6, 8, 16, 32, 64]
    axes.frame(sizes, [1, 2, 5, 10, 20, 50, 100], "world size n (logarithmic)",
               "time to move the data, in units of β S (logarithmic)")
    for cost, color in [(lambda n: 2 * (n - 1), RED), (lambda n: 2 * (n - 1) / n, GREEN)]:
        axes.curve([(2 * 32**(i / 100), cost(2 * 32**(i / 100))) for i in range(101)], color)
        for n in sizes:
            fig.dot(*axes.at(n, cost(n)), color)
    fig.text(500, 140, "master and workers: 2(n − 1)", 19, RED, "end", "bold")
    fig.text(640, 284, "ring: 2(n − 1)/n, always below 2", 19, GREEN, "middle", "bold")
    fig.save(FOLDER / "busiest_link.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in (data_parallel, flatten, ring, shards, skip, master_and_ring, busiest_link):
        draw()

#!/usr/bin/env python3
"""Draws the figures of lab 07 into labs/07_allreduce/figures.

Usage: scripts/figures/lab07.py
"""

import pathlib

from svg import (BLUE, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_GREY, PALE_ORANGE,
                 PAPER, RED, Axes, Figure)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "labs/07_allreduce/figures"


def doubling():
    """Recursive doubling on six ranks: two guests are folded in."""
    fig = Figure(980, 400, "Recursive doubling on six ranks, two of them folded in")
    columns = ["start", "fold in", "distance 1", "distance 2", "fold out"]
    left, pitch, top, row, w, h = 110, 180, 74, 50, 92, 34
    held = [{r} for r in range(6)]
    arrows = [[(4, 0), (5, 1)], [(0, 1), (1, 0), (2, 3), (3, 2)],
              [(0, 2), (2, 0), (1, 3), (3, 1)], [(0, 4), (1, 5)]]
    for i, name in enumerate(columns):
        fig.text(left + i * pitch + w / 2, 44, name, 17, INK, weight="bold")
    for i in range(len(columns)):
        if i > 0:
            before = [set(ranks) for ranks in held]
            for sender, receiver in arrows[i - 1]:
                held[receiver] = held[receiver] | before[sender]
                x0, x1 = left + (i - 1) * pitch + w, left + i * pitch
                fig.line(x0 + 4, top + sender * row + h / 2, x1 - 4, top + receiver * row + h / 2,
                         ORANGE, 2, arrow=True)
        for rank in range(6):
            if i == 0:
                fig.text(20, top + rank * row + 23, f"rank {rank}", 16, INK, "start", "bold")
            full = len(held[rank]) == 6
            guest = rank >= 4 and not full and i > 0
            fig.rect(left + i * pitch, top + rank * row, w, h,
                     PALE_GREEN if full else PALE_GREY if guest else PALE_BLUE,
                     GREEN if full else MUTED if guest else BLUE, 1.5, 5)
            words = "Σ" if full else "+".join(map(str, sorted(held[rank])))
            fig.text(left + i * pitch + w / 2, top + rank * row + 23, words, 15,
                     GREEN if full else MUTED if guest else BLUE, weight="bold" if full else "normal")
    fig.text(490, 386, "Numbers: whose part is in it; Σ: all. Every arrow is a message with the whole "
             "tensor.", 15, MUTED)
    fig.save(FOLDER / "doubling.svg")


def hierarchical():
    """Two hosts of three ranks: inside, across, inside."""
    fig = Figure(980, 330, "Hierarchical all-reduce on two hosts of three ranks")
    titles = [("1 · reduce-scatter inside", BLUE), ("2 · all-reduce across, per chunk", ORANGE),
              ("3 · all-gather inside", GREEN)]
    w, pitch, top, box, step = 290, 320, 56, 72, 97
    for i, (title, color) in enumerate(titles):
        x = 25 + i * pitch
        fig.text(x + w / 2, 36, title, 17, color, weight="bold")
        for host in range(2):
            y = top + host * 122
            fig.rect(x, y, w, 106, PALE_GREY, MUTED, 1.5)
            fig.text(x + (64 if i == 1 else 12), y + 18, f"host {host}", 13, MUTED, "start")
            for place in range(3):
                cx = x + 12 + place * step
                done = i == 2
                fig.rect(cx, y + 26, box, 52, PALE_GREEN if done else PAPER, GREEN if done else INK, 1.5, 6)
                fig.text(cx + box / 2, y + 47, f"rank {3 * host + place}", 14, weight="bold")
                label = [f"{place}: of host", f"{place}: of all", "all: of all"][i]
                fig.text(cx + box / 2, y + 68, label, 12, MUTED)
                if i != 1 and place < 2:
                    fig.line(cx + box + 2, y + 52, cx + step - 3, y + 52, color, 2, arrow=True)
            if i != 1:  # from the last rank back to the first one
                first, last = x + 12 + box / 2, x + 12 + 2 * step + box / 2
                fig.path([(last, y + 79), (last, y + 97), (first, y + 97)], color, 2)
                fig.line(first, y + 97, first, y + 80, color, 2, arrow=True)
        if i == 1:
            for place in range(3):
                cx = x + 12 + place * step + box / 2
                fig.line(cx - 7, top + 81, cx - 7, top + 145, ORANGE, 2, arrow=True)
                fig.line(cx + 7, top + 145, cx + 7, top + 81, ORANGE, 2, arrow=True)
    fig.text(490, 316, "In each box: the chunk that the rank has after the step, summed over its host or over all ranks.", 15, MUTED)
    fig.save(FOLDER / "hierarchical.svg")


def times():
    """Predicted times of the four algorithms against size, on one host."""
    fig = Figure(980, 480, "Predicted time against size, six ranks on one host")
    alpha, beta, gamma, n = 5e-6, 1e-9, 1e-9 / 4, 6
    axes = Axes(fig, (96, 60, 640, 340), (1, 1e5), (0.01, 1e3), log_x=True, log_y=True)
    axes.frame([1, 10, 100, 1000, 10000], [0.01, 0.1, 1, 10, 100], "size of the tensor (kB)", "time (ms)")

    def ring(s):
        return (n - 1) * (2 * (alpha + beta * s / n) + gamma * s / n)

    def doubling(s):
        return 2 * (alpha + beta * s + gamma * s) + 2 * (alpha + beta * s) + gamma * s

    def root(s):
        return (n - 1) * (2 * (alpha + beta * s) + gamma * s)

    sizes = [10 ** (k / 20) for k in range(101)]
    for name, function, color, y in [("root", root, MUTED, 120), ("doubling", doubling, ORANGE, 160),
                                     ("ring", ring, BLUE, 250)]:
        axes.curve([(s, 1e3 * function(1000 * s)) for s in sizes], color)
        _, end = axes.at(1e5, 1e3 * function(1e8))
        fig.text(748, end + 5, name, 17, color, "start", "bold")
    # Both are straight lines: where their difference at 0 bytes has been made up for.
    slopes = [(function(1e6) - function(0)) / 1e6 for function in (ring, doubling)]
    crossing = (ring(0) - doubling(0)) / (slopes[1] - slopes[0])
    x, y = axes.at(crossing / 1000, 1e3 * ring(crossing))
    fig.dot(x, y, RED, 7)
    fig.text(x + 12, y + 26, f"from {crossing / 1000:.1f} kB on the ring is faster", 15, RED, "start")
    fig.text(846, 308, "six ranks, one host", 14, MUTED)
    fig.text(846, 330, "α = 5 µs, β = 1 ns per byte", 14, MUTED)
    fig.text(846, 352, "γ = 1 ns per addition", 14, MUTED)
    fig.save(FOLDER / "times.svg")


def trees():
    """A double binary tree on eight ranks. A leaf of one tree is an inner node of the other."""
    fig = Figure(980, 360, "A double binary tree on eight ranks")
    # In-order trees over ranks 0..6 below rank 7; the second one is shifted by one rank.
    first = {3: [1, 5], 1: [0, 2], 5: [4, 6], 7: [3]}
    second = {(r + 1) % 8: [(c + 1) % 8 for c in children] for r, children in first.items()}
    depth = {7: 0, 3: 1, 1: 2, 5: 2, 0: 3, 2: 3, 4: 3, 6: 3}
    for i, (tree, color, pale, title) in enumerate(
            [(first, BLUE, PALE_BLUE, "tree 1: the first half of the tensor"),
             (second, ORANGE, PALE_ORANGE, "tree 2: the second half")]):
        left, shift = 40 + i * 480, i
        fig.text(left + 210, 34, title, 17, color, weight="bold")
        place = {}
        for rank in range(8):
            level = depth[(rank - shift) % 8]
            place[rank] = (left + 20 + rank * 54, 80 + level * 66)
        for parent, children in tree.items():
            for child in children:
                fig.line(*place[child], *place[parent], color, 2)
        for rank, (x, y) in place.items():
            inner = rank in tree
            fig.dot(x, y, color, 19)
            fig.dot(x, y, pale if inner else PAPER, 17)
            fig.text(x, y + 6, f"{rank}", 16, color, weight="bold" if inner else "normal")
    fig.text(490, 342, "Each rank adds in one tree (filled) and is a leaf in the other: together they "
             "keep every link busy both ways.", 15, MUTED)
    fig.save(FOLDER / "trees.svg")


def main():
    FOLDER.mkdir(exist_ok=True)
    doubling()
    hierarchical()
    times()
    trees()


if __name__ == "__main__":
    main()

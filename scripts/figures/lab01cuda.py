#!/usr/bin/env python3
"""Draws the figures of lab 01's CUDA part into labs/01cuda_kernels/figures. Needs Python only."""

import pathlib

from svg import (BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_GREY,
                 PALE_ORANGE, Figure)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "labs" / "01cuda_kernels" / "figures"


def grid():
    """One block per row; its threads walk over the columns side by side."""
    fig = Figure(980, 420, "One block per row; threads, in warps, walk over its columns in iterations")
    fig.text(24, 40, "matrix of 5 rows of 288 columns: a grid of 5 blocks", 18, INK, "start", "bold")
    for row in range(5):
        chosen = row == 2
        fig.rect(24, 58 + row * 26, 300, 22, PALE_ORANGE if chosen else PALE_GREY,
                 ORANGE if chosen else FAINT, radius=4)
        fig.text(174, 74 + row * 26, f"row {row} · block {row}", 14, ORANGE if chosen else MUTED)
    fig.line(324, 121, 388, 121, ORANGE, 2, arrow=True)
    fig.text(400, 78, "block 2: 128 threads", 18, INK, "start", "bold")
    for warp in range(4):
        fig.rect(400 + warp * 140, 94, 132, 54, PALE_BLUE, BLUE)
        fig.text(466 + warp * 140, 117, f"warp {warp}", 16, BLUE, weight="bold")
        fig.text(466 + warp * 140, 138, f"threads {32 * warp} to {32 * warp + 31}", 13, MUTED)

    fig.text(24, 232, "its row, three iterations: thread t has the columns t, t + 128, t + 256", 18, INK,
             "start", "bold")
    left, width = 24, 932 / 288
    rounds = [("iteration 1", 0, 128, PALE_BLUE, BLUE), ("iteration 2", 128, 256, PALE_GREEN, GREEN),
              ("iteration 3", 256, 288, PALE_ORANGE, ORANGE)]
    for name, first, last, fill, stroke in rounds:
        x, w = left + first * width, (last - first) * width
        fig.rect(x, 252, w, 50, fill, stroke, radius=4)
        fig.text(x + w / 2, 283, name, 16, stroke, weight="bold")
        fig.text(x + 3, 322, str(first), 14, MUTED, "start")
        if last - first == 128:
            for warp in range(1, 4):
                fig.line(x + warp * 32 * width, 252, x + warp * 32 * width, 302, stroke, 1, dash="3 4")
    fig.text(left + 288 * width, 322, "287", 14, MUTED, "end")
    fig.text(24, 360, "In iteration 3, warp 0 has columns; warps 1, 2 and 3 have none.", 16,
             INK, "start")
    fig.text(24, 388, "In each iteration, the 32 lanes of a warp touch 32 neighbours.", 16, INK,
             "start")
    fig.save(FOLDER / "grid.svg")


def block_reduction():
    """The reduction of section 4.1: 8 threads, warps of 4 lanes."""
    fig = Figure(980, 520, "Block reduction by hand: shuffles in each warp, shared memory across warps")
    values = [[2, 13, 9, 1, 4, 1, 1, 9], [11, 14, None, None, 5, 10, None, None],
              [25, None, None, None, 15, None, None, None]]
    left, pitch, box_w = 190, 96, 78

    def x_of(thread):
        return left + thread * pitch + (24 if thread >= 4 else 0)

    labels = ["own sums", "+ 2 lanes up", "+ 1 lane up"]
    for level, row in enumerate(values):
        y = 66 + level * 100
        fig.text(20, y + 28, labels[level], 16, INK, "start", "bold")
        for thread, value in enumerate(row):
            useful = value is not None
            chosen = level == 2 and useful
            fig.rect(x_of(thread), y, box_w, 44,
                     PALE_ORANGE if chosen else PALE_BLUE if useful else PALE_GREY,
                     ORANGE if chosen else BLUE if useful else FAINT)
            if useful:
                fig.text(x_of(thread) + box_w / 2, y + 29, str(value), 19,
                         ORANGE if chosen else BLUE, weight="bold")
            if level == 0:
                fig.text(x_of(thread) + box_w / 2, y - 12, f"t{thread}", 15, MUTED)
        if level < 2:
            offset = 2 >> level
            for warp in range(2):
                for lane in range(offset):
                    target = warp * 4 + lane
                    for source in (target, target + offset):
                        fig.line(x_of(source) + box_w / 2, y + 44, x_of(target) + box_w / 2, y + 98,
                                 BLUE, 2, arrow=True)
    for thread, slot in ((0, 0), (4, 1)):
        fig.line(x_of(thread) + box_w / 2, 310, 420 + slot * 96 + 39, 360, ORANGE, 2, arrow=True)
    fig.text(20, 389, "shared memory: parts", 16, INK, "start", "bold")
    for slot, value in enumerate((25, 15)):
        fig.rect(420 + slot * 96, 362, 78, 44, PALE_ORANGE, ORANGE)
        fig.text(459 + slot * 96, 391, str(value), 19, ORANGE, weight="bold")
    fig.line(190, 428, 956, 428, INK, 3, dash="8 6")
    fig.text(20, 433, "__syncthreads()", 16, INK, "start", "bold")
    fig.text(20, 485, "every thread", 16, INK, "start", "bold")
    for thread in range(8):
        fig.rect(x_of(thread), 456, box_w, 44, PALE_GREEN, GREEN)
        fig.text(x_of(thread) + box_w / 2, 485, "40", 19, GREEN, weight="bold")
    fig.save(FOLDER / "block_reduction.svg")


def traffic():
    """Passes over memory: kernel by kernel, and fused. Counts, not measurements."""
    fig = Figure(980, 300, "Memory traffic of separate kernels and of a fused one, counted")
    rows = [("softmax and loss", "6 kernels", 8, MUTED, PALE_GREY),
            ("768 × 4,096 scores", "C2", 3, ORANGE, PALE_ORANGE),
            ("Adam", "6 kernels", 16, MUTED, PALE_GREY),
            ("10,325,664 weights", "C3", 7, ORANGE, PALE_ORANGE)]
    megabytes = {"softmax": 768 * 4096 * 4 / 1e6, "adam": 10325664 * 4 / 1e6}
    for i, (what, name, passes, stroke, fill) in enumerate(rows):
        y = 30 + i * 56 + (22 if i >= 2 else 0)
        unit = megabytes["softmax" if i < 2 else "adam"]
        fig.text(24, y + 27, what, 16, INK if i % 2 == 0 else MUTED, "start",
                 "bold" if i % 2 == 0 else "normal")
        fig.text(320, y + 27, name, 16, stroke, "end", "bold")
        for k in range(passes):
            fig.rect(336 + k * 28, y + 4, 24, 34, fill, stroke, 1.5, radius=3)
        fig.text(336 + passes * 28 + 10, y + 27, f"{passes} passes · {passes * unit:.0f} MB", 16,
                 stroke, "start", "bold")
    fig.text(24, 286, "One box: every number of the array read once, or written once, in float32.", 14,
             MUTED, "start")
    fig.save(FOLDER / "traffic.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in (grid, block_reduction, traffic):
        draw()

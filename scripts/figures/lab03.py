#!/usr/bin/env python3
"""Draws the figures of lab 03 into labs/03_weight_aggregation/figures.

Usage: scripts/figures/lab03.py
"""

import pathlib

from svg import (BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_ORANGE, PAPER,
                 RED, Axes, Figure)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "labs/03_weight_aggregation/figures"


def cutpoints():
    """The seven cutpoints of a training loop; orange: written in this lab."""
    fig = Figure(980, 400, "The cutpoints of the training loop that lab 03 changes")
    fig.rect(20, 20, 940, 246, PALE_ORANGE, ORANGE, 3, 18)
    fig.text(44, 54, "3 · loop", 22, ORANGE, "start", "bold")
    fig.text(148, 54, "on every rank: k local steps, then one average", 17, ORANGE, "start")

    fig.rect(36, 76, 640, 176, PALE_BLUE, BLUE, 2, 12)
    fig.text(56, 104, "local step, as in lab 01: nothing is sent", 16, BLUE, "start", "bold")
    for x, w, name, detail in [(56, 128, "1 · input", "own shard"), (204, 140, "2 · model", "own weights"),
                               (364, 128, "5 · loss", "own targets"), (512, 144, "update", "own m, v")]:
        fig.rect(x, 122, w, 84, PAPER, BLUE)
        fig.text(x + w / 2, 156, name, 18, BLUE, weight="bold")
        fig.text(x + w / 2, 184, detail, 15)
    for x1, x2 in [(184, 204), (344, 364), (492, 512)]:
        fig.line(x1, 164, x2, 164, arrow=True)
    fig.text(356, 236, "k times", 16, MUTED, style="italic")

    fig.rect(724, 92, 212, 134, PAPER, ORANGE, 3)
    fig.text(830, 128, "4 · aggregation", 20, ORANGE, weight="bold")
    fig.text(830, 158, "of the weights", 17)
    fig.text(830, 186, "every k steps", 15)
    fig.text(830, 210, "all_reduce", 15, MUTED)
    fig.line(676, 164, 724, 164, arrow=True)

    fig.rect(204, 290, 200, 70, PALE_BLUE, BLUE)
    fig.text(304, 320, "6 · metrics", 18, BLUE, weight="bold")
    fig.text(304, 344, "once a round", 15)
    fig.line(304, 266, 304, 290, arrow=True)
    fig.rect(424, 290, 200, 70, PAPER, ORANGE, 3)
    fig.text(524, 320, "6 · drift", 18, ORANGE, weight="bold")
    fig.text(524, 344, "after a step, if asked", 15)
    fig.line(524, 266, 524, 290, arrow=True)
    fig.rect(724, 290, 212, 70, PALE_BLUE, BLUE)
    fig.text(830, 320, "7 · checkpoint", 18, BLUE, weight="bold")
    fig.text(830, 344, "right after an average", 15)
    fig.line(830, 226, 830, 290, arrow=True)
    fig.text(44, 386, "orange: you write it", 16, ORANGE, "start", "bold")
    fig.text(240, 386, "blue: given", 16, BLUE, "start", "bold")
    fig.save(FOLDER / "cutpoints.svg")


def rounds():
    """Two ways to use the same steps: an all-reduce in each, or one every four."""
    fig = Figure(980, 420, "Gradient aggregation against local SGD with k = 4: when ranks wait for each other")
    # Lengths of local steps, drawn; no measurement.
    steps = [[58, 74, 60, 66, 62, 70, 58, 64], [70, 60, 64, 60, 74, 58, 66, 60],
             [60, 62, 78, 58, 60, 62, 72, 66]]
    left, height, gap, message = 110, 34, 12, 22

    def draw(top, every, title):
        fig.text(20, top - 14, title, 17, INK, "start", "bold")
        for rank in range(3):
            fig.text(left - 14, top + rank * (height + gap) + 23, f"rank {rank}", 15, MUTED, "end")
        x = [left] * 3
        for i in range(8):
            for rank in range(3):
                y = top + rank * (height + gap)
                fig.rect(x[rank], y, steps[rank][i] - 3, height, PALE_BLUE, BLUE, 1.5, 4)
                x[rank] += steps[rank][i]
            if (i + 1) % every == 0:
                latest = max(x)
                for rank in range(3):
                    y = top + rank * (height + gap) + height / 2
                    if latest - x[rank] > 2:
                        fig.line(x[rank], y, latest - 2, y, FAINT, 3)
                fig.rect(latest, top - 4, message - 4, 3 * height + 2 * gap + 8, PALE_ORANGE, ORANGE, 2, 4)
                x = [latest + message] * 3
        fig.line(x[0] + 2, top - 8, x[0] + 2, top + 3 * height + 2 * gap + 8, GREEN, 2, dash="5 4")

    draw(56, 1, "lab 02: an all-reduce of the gradients in every step")
    draw(252, 4, "lab 03, k = 4: an all-reduce of the weights after every four steps")
    fig.text(110, 408, "blue: computing; orange: an all-reduce; grey: waiting; green: eight steps are "
             "done (drawn, not measured)", 15, MUTED, "start")
    fig.save(FOLDER / "rounds.svg")


def paths():
    """One round of local SGD on two ranks, and gradient aggregation, with the losses of section 4."""
    fig = Figure(980, 430, "Two ranks, two steps: local SGD and gradient aggregation part")
    axes = Axes(fig, (100, 60, 560, 290), (0, 2), (0, 3.2))
    axes.frame([0, 1, 2], [0, 0.5, 1, 1.5, 2, 2.5, 3], "step", "weight w")
    axes.curve([(0, 0), (1, 2), (2, 3)], BLUE)
    axes.curve([(0, 0), (1, 0), (2, 0)], BLUE)
    axes.curve([(0, 0), (1, 1), (2, 1.75)], GREEN)
    axes.dots([(1, 2), (2, 3), (1, 0), (2, 0)], BLUE)
    axes.dots([(1, 1), (2, 1.75)], GREEN)
    x, low = axes.at(2, 0)
    _, high = axes.at(2, 3)
    _, middle = axes.at(2, 1.5)
    fig.line(x + 14, low, x + 14, middle + 8, ORANGE, 2, arrow=True)
    fig.line(x + 14, high, x + 14, middle - 8, ORANGE, 2, arrow=True)
    fig.dot(x, middle, ORANGE, 7)
    _, gradient = axes.at(2, 1.75)
    fig.text(x + 34, high + 6, "rank 1: 3", 17, BLUE, "start", "bold")
    fig.text(x + 34, gradient - 8, "averaged gradients: 1.75", 17, GREEN, "start", "bold")
    fig.text(x + 34, middle + 16, "averaged weights: 1.5", 17, ORANGE, "start", "bold")
    fig.text(x + 34, low - 2, "rank 0: 0", 17, BLUE, "start", "bold")
    fig.text(130, 96, "local steps of each rank", 16, BLUE, "start")
    fig.save(FOLDER / "paths.svg")


def adam():
    """The first step of Adam for gradients +1 and -3, in learning rates."""
    fig = Figure(980, 330, "Adam's first step: averaged gradients against averaged weights")
    zero, unit = 190, 84

    def bar(x, value, name, color, fill):
        y = zero - value * unit
        fig.rect(x, min(y, zero), 74, max(abs(y - zero), 2), fill, color, 2, 4)
        fig.text(x + 37, zero - value * unit / 2 + 7 if value else y - 10,
                 f"{value:+g}".replace("-", "−") if value else "0", 19, color, weight="bold")
        fig.text(x + 37, 304, name, 15, MUTED)

    fig.text(30, 222, "up: the weight grows, in learning rates", 15, MUTED, "start", style="italic")
    fig.line(30, zero, 460, zero, MUTED, 1.5)
    fig.text(30, 40, "lab 02: average, then Adam", 18, INK, "start", "bold")
    fig.text(30, 66, "mean gradient (+1 − 3)/2 = −1", 16, MUTED, "start")
    bar(200, 1, "every rank", GREEN, PALE_GREEN)
    fig.line(500, zero, 950, zero, MUTED, 1.5)
    fig.text(500, 40, "lab 03, k = 1: Adam, then average", 18, INK, "start", "bold")
    fig.text(500, 66, "each rank moves by one learning rate", 16, MUTED, "start")
    bar(540, -1, "rank 0: g = +1", BLUE, PALE_BLUE)
    bar(680, 1, "rank 1: g = −3", BLUE, PALE_BLUE)
    bar(820, 0, "average", RED, PALE_ORANGE)
    fig.save(FOLDER / "adam.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in (cutpoints, rounds, paths, adam):
        draw()

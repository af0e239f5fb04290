#!/usr/bin/env python3
"""Draws the figures of lab 06 into labs/06_hybrid_2x3/figures.

Usage: scripts/figures/lab06.py
"""

import pathlib

from lab05 import PALE_RED, bar, one_f_one_b, simulate
from svg import (BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_GREY,
                 PALE_ORANGE, PAPER, RED, Axes, Figure)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "labs/06_hybrid_2x3/figures"
DP, PP = 2, 3
COLORS = [(PALE_BLUE, BLUE), (PALE_GREEN, GREEN), (PALE_ORANGE, ORANGE)]

# The default model, two layers on each stage.
DIM, HIDDEN, VOCABULARY, CONTEXT = 288, 1152, 4096, 256
LAYER = 4 * DIM * DIM + 3 * DIM * HIDDEN + 2 * DIM
STAGE_WEIGHTS = [VOCABULARY * DIM + 2 * LAYER, 2 * LAYER, 2 * LAYER + DIM + VOCABULARY * DIM]
BOUNDARY_BYTES = 4 * CONTEXT * DIM  # one sequence's activations between two stages


def gradient_bytes(stage, dp=DP):
    """What a rank sends for its all-reduce, in a ring."""
    return 2 * (dp - 1) / dp * 4 * STAGE_WEIGHTS[stage]


def activation_bytes(stage, microbatches):
    """What a rank sends to its neighbours in a step: activations one way, gradients the other."""
    neighbours = (stage > 0) + (stage < PP - 1)
    return neighbours * microbatches * BOUNDARY_BYTES


def hybrid():
    """The map: two pipelines, what travels in them and across them."""
    fig = Figure(980, 446, "Two pipelines of three stages: activations within a pipeline, gradients "
                 "among replicas")
    left, pitch, w, h = 214, 226, 150, 96
    top, row = 66, 208
    parts = ["embedding, 2 layers", "2 layers", "2 layers, head"]
    for s in range(PP):
        x = left + s * pitch
        fig.text(x + w / 2, 36, f"stage {s}", 19, INK, weight="bold")
        fig.text(x + w / 2, 56, parts[s], 14, MUTED)
    for d in range(DP):
        y = top + d * row
        fill, edge = COLORS[d]
        fig.text(20, y + 30, f"pipeline {d}", 18, edge, "start", "bold")
        fig.text(20, y + 55, "positions", 14, MUTED, "start")
        fig.text(20, y + 74, ", ".join(str(d + DP * k) for k in range(3)) + ", …", 14, MUTED,
                 "start")
        fig.line(130, y + h / 2, left - 2, y + h / 2, edge, 2, arrow=True)
        fig.text(168, y + h / 2 - 8, "tokens", 13, edge)
        for s in range(PP):
            x = left + s * pitch
            fig.rect(x, y, w, h, fill, edge)
            fig.text(x + w / 2, y + 42, f"rank {d * PP + s}", 21, edge, weight="bold")
            fig.text(x + w / 2, y + 68, f"pipeline {d}, stage {s}", 14, MUTED)
            if s + 1 < PP:
                fig.line(x + w + 2, y + 34, x + pitch - 2, y + 34, INK, 2.5, arrow=True)
                fig.line(x + pitch - 2, y + 62, x + w + 2, y + 62, ORANGE, 2.5, arrow=True)
                fig.text(x + (w + pitch) / 2, y + 22, "activation", 13, INK)
                fig.text(x + (w + pitch) / 2, y + 84, "gradient", 13, ORANGE)
        x = left + 2 * pitch + w
        fig.line(x + 60, y + 34, x + 2, y + 34, edge, 2, arrow=True)
        fig.text(x + 66, y + 39, "targets", 14, edge, "start")
        fig.line(x, y + 66, x + 60, y + 66, edge, 2, arrow=True)
        fig.text(x + 66, y + 64, "a part of", 14, edge, "start")
        fig.text(x + 66, y + 81, "the loss", 14, edge, "start")
    middle = top + h + (row - h) / 2
    for s in range(PP):
        x = left + s * pitch
        fig.line(x + w / 2, middle - 24, x + w / 2, top + h + 2, RED, 2.5, arrow=True)
        fig.line(x + w / 2, middle + 24, x + w / 2, top + row - 2, RED, 2.5, arrow=True)
        fig.rect(x - 4, middle - 25, w + 8, 50, PAPER, RED, 2.5)
        fig.text(x + w / 2, middle - 4, "all-reduce", 16, RED, weight="bold")
        fig.text(x + w / 2, middle + 16, "once a step", 13, MUTED)
    fig.text(20, middle + 5, "replicas", 18, RED, "start", "bold")
    fig.text(490, 402, "Within a pipeline: one microbatch after the other, in both directions, between "
             "neighbours.", 15, MUTED)
    fig.text(490, 426, "Among replicas: the same weights, other data. Once per step, when the "
             "stage has done its last backward.", 15, MUTED)
    fig.save(FOLDER / "hybrid.svg")


def calls(rank, swapped):
    """(color, key) of both splits of a rank; `swapped`: in pipeline 1 exchanged."""
    pipeline, stage = divmod(rank, PP)
    both = [(pipeline, stage), (stage, pipeline)]
    return both[::-1] if swapped and pipeline == 1 else both


def members(call, color, swapped):
    given = [(calls(r, swapped)[call], r) for r in range(DP * PP)]
    return [r for (_, r) in sorted(((key, r) for ((c, key), r) in given if c == color))]


def groups():
    """Which ranks meet in each split: as it should be, and with another order in pipeline 1."""
    fig = Figure(980, 466, "Two splits: who meets whom")
    panel_x, pitch, radius = [214, 620], 92, 27
    for call, words in enumerate(["first call of split", "second call of split"]):
        fig.text(panel_x[call] + pitch, 34, words, 18, INK, weight="bold")
    for line, (swapped, name, detail) in enumerate(
            [(False, "as it should be", "all: pipeline, then stage"),
             (True, "exchanged", "ranks 3 to 5: stage first")]):
        y0 = 92 + line * 190
        edge = RED if swapped else INK
        fig.text(20, y0 + 30, name, 17, edge, "start", "bold")
        fig.text(20, y0 + 54, detail, 13, MUTED, "start")
        for call in range(2):
            for rank in range(DP * PP):
                d, s = divmod(rank, PP)
                color, _ = calls(rank, swapped)[call]
                fill, stroke = COLORS[color]
                x, y = panel_x[call] + s * pitch, y0 + d * 76
                fig.add(f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}" '
                        f'stroke="{stroke}" stroke-width="2.5"/>')
                fig.text(x, y + 7, f"{rank}", 20, stroke, weight="bold")
                fig.text(x + 28, y + 34, f"key {calls(rank, swapped)[call][1]}", 11, MUTED)
            for color in range(PP):
                group = members(call, color, swapped)
                if not group:
                    continue
                words = " ".join(map(str, group))
                fig.text(panel_x[call] + 2 * pitch + 46, y0 + 8 + color * 34,
                         f"color {color}: {words}", 14, COLORS[color][1], "start", "bold")
    fig.line(20, 224, 960, 224, FAINT, 1.5)
    fig.text(490, 418, "Fill: the color that the rank passes. Next to it: the members of each group, "
             "in the order of their keys.", 15, MUTED)
    fig.text(490, 442, "A split knows nothing of names: ranks that pass the same color in the same "
             "call form a group.", 15, MUTED)
    fig.save(FOLDER / "groups.svg")


def timeline():
    """One step of a pipeline, f = 1, b = 2, and an all-reduce of 2 units over one cable."""
    m, reduce_time = 3, 2
    spans = simulate(one_f_one_b(PP, m), [(1, 2)] * PP)
    ends = [row[-1][3] for row in spans]
    fig = Figure(980, 566, "When to all-reduce: after one's own last backward or everybody's")
    left, unit, row, h = 110, 40, 52, 40

    def panel(top, title, starts, color):
        last = max(start + length for start, length in starts)
        fig.text(left, top - 14, title, 17, INK, "start", "bold")
        fig.text(left + last * unit, top - 14, f"update at {last:g}", 17, color, "end", "bold")
        for s in range(PP):
            y = top + s * row
            fig.text(20, y + 26, f"stage {s}", 17, INK, "start", "bold")
            fig.rect(left, y, last * unit, h, PALE_GREY, "none", 0, 4)
            for kind, k, start, stop in spans[s]:
                bar(fig, left + start * unit, y, (stop - start) * unit, h, kind, f"{kind}{k}")
            start, length = starts[s]
            fig.rect(left + start * unit + 1, y, length * unit - 2, h, PALE_RED, RED, 2, 4)
            fig.text(left + (start + length / 2) * unit, y + 25,
                     "sum", 14, RED, weight="bold")
        x = left + last * unit
        fig.line(x, top - 6, x, top + PP * row - 4, color, 2.5)

    staggered, free = [None] * PP, 0
    for s in reversed(range(PP)):
        free = max(free, ends[s])
        staggered[s] = (free, reduce_time)
        free += reduce_time
    panel(70, "each stage after its own last backward", staggered, GREEN)
    panel(292, "all stages after everybody's last backward",
          [(max(ends) + (PP - 1 - s) * reduce_time, reduce_time) for s in range(PP)], RED)
    for top in (70, 292):
        for t in range(0, 22, 3):
            x, y = left + t * unit, top + PP * row + 14
            fig.text(x, y, f"{t}", 13, MUTED)
    fig.text(490, 506, "f = 1, b = 2, three microbatches, 1F1B; the other pipeline does the same "
             "at the same time.", 15, MUTED)
    fig.text(490, 530, "sum: the all-reduce. All of them share one cable, which carries one at a time; "
             "each takes 2.", 15, MUTED)
    fig.text(490, 554, "Above, those of stages 2 and 1 run while earlier stages still compute; "
             "only stage 0's is left over.", 15, MUTED)
    fig.save(FOLDER / "timeline.svg")


def traffic():
    """What a rank sends in a step, against the number of microbatches."""
    fig = Figure(980, 450, "What a rank sends in a step: gradients against activations")
    axes = Axes(fig, (100, 60, 840, 284), (1, 128), (0.2, 100), True, True)
    axes.frame([1, 3, 6, 12, 18, 52, 128], [0.2, 0.5, 1, 2, 5, 10, 20, 50, 100],
               "microbatches of one sequence, per pipeline and step (logarithmic)",
               "MB sent per step (logarithmic)")
    for stage, color, words in [(0, ORANGE, "stages 0 and 2: gradients 15.3 MB"),
                                (1, RED, "stage 1: gradients 10.6 MB")]:
        height = gradient_bytes(stage) / 1e6
        axes.curve([(1, height), (128, height)], color)
        x, y = axes.at(1.1, height)
        fig.text(x, y - 8 if stage == 0 else y + 20, words, 16, color, "start", "bold")
    for stage, color, words, at in [(0, GREEN, "stages 0 and 2: activations", 4.6),
                                    (1, BLUE, "stage 1: activations", 5.4)]:
        axes.curve([(m, activation_bytes(stage, m) / 1e6) for m in (1, 128)], color)
        x, y = axes.at(at, activation_bytes(stage, at) / 1e6)
        if stage == 0:
            fig.text(x + 14, y + 12, words, 16, color, "start", "bold")
        else:
            fig.text(x - 10, y - 10, words, 16, color, "end", "bold")
        crossing = gradient_bytes(stage) / activation_bytes(stage, 1)
        fig.dot(*axes.at(crossing, gradient_bytes(stage) / 1e6), INK)
    fig.text(490, 412, "Dots: where a stage sends equally much of both.", 15, MUTED)
    fig.text(490, 434, "dp = 2, pp = 3, the default model. Gradients do not grow with the batch, "
             "activations do not grow with the layers.", 15, MUTED)
    fig.save(FOLDER / "traffic.svg")


def placements():
    """A machine per stage and a machine per pipeline, and what crosses the cables."""
    fig = Figure(980, 330, "Two placements of six ranks on machines")
    w, h = 92, 44
    fig.text(245, 32, "a machine per stage", 18, INK, weight="bold")
    fig.text(735, 32, "a machine per pipeline", 18, INK, weight="bold")
    for s in range(PP):
        x = 60 + s * 140
        fig.rect(x - 10, 56, w + 20, 200, PALE_GREY, MUTED, 1.5, 10)
        fig.text(x + w / 2, 78, f"machine {s}", 14, MUTED)
        for d in range(DP):
            y = 96 + d * 92
            fig.rect(x, y, w, h, *COLORS[d], 2)
            fig.text(x + w / 2, y + 28, f"rank {d * PP + s}", 17, COLORS[d][1], weight="bold")
        fig.line(x + w / 2, 166, x + w / 2, 142, RED, 1.5, arrow=True)
        fig.line(x + w / 2, 162, x + w / 2, 186, RED, 1.5, arrow=True)
    for s in range(PP - 1):
        x = 60 + s * 140
        for d in range(DP):
            y = 96 + d * 92
            fig.line(x + w + 2, y + 14, x + 138, y + 14, INK, 3, arrow=True)
            fig.line(x + 138, y + 30, x + w + 2, y + 30, ORANGE, 3, arrow=True)
    for d in range(DP):
        y = 70 + d * 104
        fig.rect(552, y - 14, 366, 78, PALE_GREY, MUTED, 1.5, 10)
        fig.text(542, y + 30, f"machine {d}", 14, MUTED, "end")
        for s in range(PP):
            x = 570 + s * 118
            fig.rect(x, y + 10, w, h, *COLORS[d], 2)
            fig.text(x + w / 2, y + 38, f"rank {d * PP + s}", 17, COLORS[d][1], weight="bold")
            if s + 1 < PP:
                fig.line(x + w + 2, y + 24, x + 116, y + 24, INK, 1.5, arrow=True)
                fig.line(x + 116, y + 40, x + w + 2, y + 40, ORANGE, 1.5, arrow=True)
    for s in range(PP):
        x = 570 + s * 118 + w / 2
        fig.line(x, 155, x, 128, RED, 3, arrow=True)
        fig.line(x, 155, x, 182, RED, 3, arrow=True)
    fig.text(245, 288, "activations and their gradients cross the cables,", 15, INK)
    fig.text(245, 308, "for every microbatch", 15, INK)
    fig.text(735, 288, "gradients of weights cross the cable,", 15, RED)
    fig.text(735, 308, "once a step", 15, RED)
    fig.save(FOLDER / "placements.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in (hybrid, groups, timeline, traffic, placements):
        draw()

#!/usr/bin/env python3
"""Draws the figures of lab 10's handout into labs/10_tensor_parallel/figures.

Usage: scripts/figures/lab10.py
"""

from pathlib import Path

from svg import (BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_GREY,
                 PALE_ORANGE, RED, Figure)

FOLDER = Path(__file__).resolve().parents[2] / "labs/10_tensor_parallel/figures"
RANK = (BLUE, ORANGE)
PALE = (PALE_BLUE, PALE_ORANGE)


def matrix(figure, x, y, w, h, name, cut="", shape=""):
    """A matrix in two colours, cut by rows or by columns; or whole."""
    for r in (0, 1):
        if cut == "rows":
            figure.rect(x, y + r * h / 2, w, h / 2, PALE[r], RANK[r], 2, 0)
        elif cut == "columns":
            figure.rect(x + r * w / 2, y, w / 2, h, PALE[r], RANK[r], 2, 0)
    if not cut:
        figure.rect(x, y, w, h, PALE_GREY, MUTED, 2, 0)
    figure.text(x + w / 2, y + h + 24, name, 18, weight="bold")
    figure.text(x + w / 2, y + h + 44, shape, 14, MUTED)


def cuts_figure():
    figure = Figure(980, 480, "A linear layer whose output is divided, and one whose input is divided")
    for top, title in ((30, "cut the output (column parallel): nothing to add"),
                       (260, "cut the input (row parallel): summands of the full shape")):
        figure.text(40, top, title, 19, anchor="start", weight="bold")
    top = 58
    rows, inner, outer = 110, 84, 136  # N, in, out
    low = top + rows - inner
    matrix(figure, 70, top, inner, rows, "X", "", "[N, in], on both")
    figure.text(205, top + 72, "·", 30)
    matrix(figure, 250, low, outer, inner, "Wᵀ", "columns", "rows of W [out, in]")
    figure.text(425, top + 72, "=", 26)
    matrix(figure, 465, top, outer, rows, "Y", "columns", "[N, out], divided")
    figure.text(800, top + 50, "rank 0", 18, BLUE, weight="bold")
    figure.text(800, top + 76, "rank 1", 18, ORANGE, weight="bold")
    figure.text(800, top + 102, "whole: the same on both", 16, MUTED)
    top = 288
    low = top + rows - inner
    matrix(figure, 70, top, inner, rows, "X", "columns", "[N, in], divided")
    figure.text(205, top + 72, "·", 30)
    matrix(figure, 250, low, outer, inner, "Wᵀ", "rows", "columns of W [out, in]")
    figure.text(425, top + 72, "=", 26)
    for r in (0, 1):
        x = 465 + r * 168
        figure.rect(x, top, outer, rows, PALE[r], RANK[r], 2, 0)
        figure.text(x + outer / 2, top + 134, f"summand {r}", 16, RANK[r], weight="bold")
    figure.text(617, top + 64, "+", 26)
    figure.text(786, top + 64, "=", 26)
    matrix(figure, 805, top, outer, rows, "Y", "", "after the all-reduce")
    figure.save(FOLDER / "cuts.svg")


def box(figure, x, y, w, words, rank=None, h=44):
    fill, stroke = (PALE_GREY, MUTED) if rank is None else (PALE[rank], RANK[rank])
    figure.rect(x, y, w, h, fill, stroke, 2, 6)
    figure.text(x + w / 2, y + h / 2 + 6, words, 16)


def slices(figure, top, words, backward=False):
    """f, the three boxes of each rank, and g; from right to left in the backward pass."""
    for x, name in ((222, "f"), (722, "g")):
        figure.rect(x, top + 20, 40, 110, PALE_GREEN, GREEN, 2, 6)
        figure.text(x + 20, top + 82, name, 22, GREEN, weight="bold", style="italic")
    for rank, y in ((0, top + 20), (1, top + 86)):
        for (x, w), text in zip(((290, 126), (434, 108), (560, 140)), words):
            box(figure, x, y, w, text, rank)
        for left, right in ((262, 290), (416, 434), (542, 560), (700, 722)):
            start, end = (right, left + 2) if backward else (left, right - 2)
            figure.line(start, y + 22, end, y + 22, RANK[rank], 2, True)


def block(figure, top, title, words):
    """x, norm, f, two rows of slices, g, plus."""
    center = top + 75
    figure.text(30, top + 8, title, 19, anchor="start", weight="bold")
    box(figure, 30, center - 22, 60, "x")
    box(figure, 120, center - 22, 80, "norm")
    figure.line(90, center, 118, center, MUTED, 2, True)
    figure.line(200, center, 220, center, MUTED, 2, True)
    slices(figure, top, words)
    figure.line(762, center, 808, center, MUTED, 2, True)
    figure.dot(826, center, FAINT, 17)
    figure.text(826, center + 8, "+", 24)
    figure.line(844, center, 868, center, MUTED, 2, True)
    box(figure, 870, center - 22, 70, "whole")
    figure.path([(60, center + 24), (60, top + 150), (826, top + 150), (826, center + 20)], MUTED, 2,
                "6 5")
    figure.arrow_head(826, center + 40, 826, center + 19, MUTED)
    figure.text(520, top + 168, "residual path: whole, added after the sum", 15, MUTED)


def backward_figure():
    """The gradients of SwiGLU's block, from right to left."""
    figure = Figure(980, 210, "The backward pass of SwiGLU's block on two ranks")
    top, center = 20, 95
    figure.text(30, top + 8, "SwiGLU, backward", 19, anchor="start", weight="bold")
    for x, w, words in ((870, 70, "whole"), (110, 90, "norm"), (30, 60, "∇x")):
        box(figure, x, center - 22, w, words)
    slices(figure, top, ("its part of ∇n", "∇g, ∇u", "∇down, ∇h"), backward=True)
    figure.line(870, center, 764, center, MUTED, 2, True)
    figure.line(222, center, 202, center, MUTED, 2, True)
    figure.line(110, center, 92, center, MUTED, 2, True)
    figure.path([(905, center + 24), (905, top + 150), (60, top + 150), (60, center + 26)], MUTED, 2, "6 5")
    figure.arrow_head(60, center + 44, 60, center + 23, MUTED)
    figure.text(520, top + 168, "n: the norm's output. f completes its gradient before the norm's backward pass; "
                "then the residual path's is added", 15, MUTED)
    figure.save(FOLDER / "backward.svg")


def layer_figure():
    figure = Figure(980, 485, "Attention by heads and SwiGLU by channels on two ranks")
    block(figure, 30, "attention by heads", ("q, k, v: rows", "own heads", "o: columns"))
    block(figure, 235, "SwiGLU by channels", ("gate, up: rows", "silu(g) · u", "down: columns"))
    figure.text(490, 455, "f: copy_to_ranks, an all-reduce in the backward pass; "
                "g: sum_over_ranks, an all-reduce in the forward pass", 16, GREEN)
    figure.save(FOLDER / "layer.svg")


def mesh_figure():
    figure = Figure(980, 430, "Eight ranks: two pipelines of two stages of two slices")
    for d in (0, 1):
        left = 60 + d * 460
        figure.rect(left, 60, 400, 290, "none", GREEN, 2, 14, "8 6")
        figure.text(left + 200, 48, f"pipeline {d}: one model", 18, GREEN, weight="bold")
        for s in (0, 1):
            x = left + 30 + s * 190
            figure.rect(x, 92, 150, 238, PALE_GREY, MUTED, 1.5, 10)
            figure.text(x + 75, 84, f"stage {s}", 15, MUTED)
            for p in (0, 1):
                y = 108 + p * 112
                figure.rect(x + 15, y, 120, 92, PALE[p], RANK[p], 2, 8)
                figure.text(x + 75, y + 42, f"rank {(d * 2 + s) * 2 + p}", 20, weight="bold")
                figure.text(x + 75, y + 68, f"slice {p}", 15, RANK[p])
            figure.line(x + 75, 201, x + 75, 219, RED, 6)
        for p in (0, 1):
            figure.line(left + 167, 150 + p * 112, left + 233, 150 + p * 112, INK, 2, True)
            figure.line(left + 233, 160 + p * 112, left + 167, 160 + p * 112, INK, 2, True)
    figure.text(80, 382, "slices: 4 all-reduces a layer", 16, RED, "start")
    figure.text(940, 382, "pipeline: hidden states, and their gradients back", 16, INK, "end")
    figure.text(490, 410, "replicas, ranks 0 and 4, 1 and 5, 2 and 6, 3 and 7: gradients, once a step · "
                "model, the dashed box: the norm", 16, MUTED)
    figure.save(FOLDER / "mesh.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    cuts_figure()
    layer_figure()
    backward_figure()
    mesh_figure()

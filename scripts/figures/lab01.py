#!/usr/bin/env python3
"""Draws the figures of lab 01 into labs/01_single_gpu/figures.

Usage: scripts/figures/lab01.py
"""

import math
import pathlib
import random

from svg import (BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_GREY,
                 PALE_ORANGE, PAPER, RED, Axes, Figure)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "labs/01_single_gpu/figures"


def cutpoints():
    """The seven cutpoints of a training loop; orange: written in this lab."""
    fig = Figure(980, 420, "The seven cutpoints of a training loop")
    fig.rect(20, 20, 940, 260, PALE_ORANGE, ORANGE, 3, 18)
    fig.text(44, 54, "3 · loop", 22, ORANGE, "start", "bold")
    fig.text(148, 54, "each pass reads a batch and calls train_step", 17, ORANGE, "start")
    fig.text(940, 54, "labs 01, 04, 05", 14, MUTED, "end")

    def box(x, y, w, name, detail, labs, mine):
        fill, edge = (PAPER, ORANGE) if mine else (PALE_BLUE, BLUE)
        fig.rect(x, y, w, 108, fill, edge, 3 if mine else 2)
        fig.text(x + w / 2, y + 36, name, 20, edge, weight="bold")
        fig.text(x + w / 2, y + 64, detail, 15)
        fig.text(x + w / 2, y + 92, labs, 14, MUTED)

    top = 84
    box(44, top, 150, "1 · input", "token batches", "labs 02, 06", False)
    box(234, top, 150, "2 · model", "forward, backward", "lab 04", False)
    box(424, top, 150, "5 · loss", "and its gradient", "labs 01, 04", True)
    box(614, top, 196, "4 · aggregation", "of the gradients", "labs 01, 02, 03, 06", True)
    box(850, top, 90, "update", "Adam", "lab 01", True)
    middle = top + 40
    fig.line(194, middle, 234, middle, arrow=True)
    fig.line(384, middle, 424, middle, arrow=True)
    fig.line(424, middle + 36, 384, middle + 36, arrow=True)
    fig.path([(345, 192), (345, 218), (712, 218), (712, 200)], INK, 2)
    fig.arrow_head(712, 212, 712, 194)
    fig.text(528, 211, "gradients of the weights", 15, MUTED)
    fig.line(810, middle, 850, middle, arrow=True)

    fig.path([(895, 192), (895, 248), (273, 248), (273, 200)], INK, 2)
    fig.arrow_head(273, 230, 273, 194)
    fig.text(602, 268, "new weights, next step", 15, MUTED)

    box(234, 304, 150, "6 · metrics", "loss, tokens/s", "lab 02", False)
    box(614, 304, 196, "7 · checkpoint", "weights, m, v, position", "lab 06", False)
    fig.line(309, 280, 309, 304, arrow=True)
    fig.line(712, 280, 712, 304, arrow=True)
    fig.text(44, 352, "orange: you write it", 16, ORANGE, "start", "bold")
    fig.text(44, 378, "blue: given", 16, BLUE, "start", "bold")
    fig.save(FOLDER / "cutpoints.svg")


def shift():
    """Position t predicts token t + 1."""
    fig = Figure(980, 330, "Position t predicts token t+1; the last position and padding count for nothing")
    tokens = ["<s>", "Tom", "ran", "home", "padding", "padding"]
    left, pitch, w = 170, 132, 112
    fig.text(20, 84, "gradient of", 17, INK, "start", "bold")
    fig.text(20, 106, "the logits [T, V]", 17, INK, "start", "bold")
    fig.text(20, 266, "tokens [T]", 17, INK, "start", "bold")
    for t, token in enumerate(tokens):
        x = left + t * pitch
        counts = t < 3
        fig.text(x + w / 2, 44, f"t = {t}", 15, MUTED)
        fig.rect(x, 62, w, 54, PALE_ORANGE if counts else PALE_GREY, ORANGE if counts else FAINT)
        fig.text(x + w / 2, 95, "p − o" if counts else "0", 18, ORANGE if counts else MUTED,
                 weight="bold")
        real = token != "padding"
        fig.rect(x, 232, w, 54, PALE_BLUE if real else PALE_GREY, BLUE if real else FAINT)
        fig.text(x + w / 2, 265, token, 18, BLUE if real else MUTED)
        if counts:
            fig.line(x + w / 2, 116, x + pitch + w / 2 - 6, 230, ORANGE, 3, arrow=True)
        elif t < 5:
            fig.line(x + w / 2, 116, x + pitch + w / 2 - 6, 230, FAINT, 2, dash="5 5")
    fig.text(left + 5 * pitch + 64, 150, "no target:", 16, MUTED)
    fig.text(left + 5 * pitch + 64, 172, "gradient 0", 16, MUTED)
    fig.text(490, 316, "3 targets: “Tom” given <s> (a story begins), “ran” given <s> Tom, “home” given <s> Tom ran",
             16, MUTED)
    fig.save(FOLDER / "shift.svg")


def mean_of_means():
    """Microbatches with 3 and 1 targets."""
    fig = Figure(980, 310, "Mean over targets against mean of means")
    groups = [("k = 1: 3 targets", [2, 3, 4], BLUE, PALE_BLUE),
              ("k = 2: 1 target", [7], GREEN, PALE_GREEN)]
    base, scale, x = 250, 24, 60
    for name, losses, edge, fill in groups:
        first = x
        for loss in losses:
            fig.rect(x, base - loss * scale, 60, loss * scale, fill, edge, 2, 4)
            fig.text(x + 30, base - loss * scale + 24, f"{loss}", 18, edge, weight="bold")
            x += 74
        fig.text((first + x - 14) / 2, base + 28, name, 16, edge)
        x += 80 if len(losses) > 1 else 0
    fig.line(40, base, 450, base, MUTED, 1.5)
    fig.text(40, 40, "loss of each target, in two microbatches", 17, INK, "start", "bold")

    rows = [("right", "(2 + 3 + 4 + 7) / 4", "= 4", GREEN),
            ("mean of means", "((2 + 3 + 4)/3 + 7/1) / 2", "= 5", RED),
            ("sum of means", "(2 + 3 + 4)/3 + 7/1", "= 10", RED)]
    for i, (name, formula, value, color) in enumerate(rows):
        y = 84 + i * 82
        fig.text(510, y, name, 18, color, "start", "bold")
        fig.text(510, y + 30, formula, 20, INK, "start")
        if name == "mean of means":
            fig.text(670, y, "one target weighs as much as three", 15, MUTED, "start")
        fig.text(950, y + 30, value, 26, color, "end", "bold")
        if i < 2:
            fig.line(510, y + 50, 950, y + 50, FAINT, 1)
    fig.save(FOLDER / "mean_of_means.svg")


def gradient_noise():
    """Spread of the minibatch gradient, simulated; the line is 1/sqrt(B)."""
    random.seed(1)
    # Least squares in one dimension: the loss of an example is (w x - y)^2 / 2 at w = 0, so its
    # gradient is -x y.
    examples = []
    for _ in range(20000):
        x = random.gauss(0, 1)
        examples.append(-x * (x + random.gauss(0, 1)))
    mean = sum(examples) / len(examples)
    spread = math.sqrt(sum((g - mean) ** 2 for g in examples) / len(examples))

    def measured(batch, trials=40000):
        total = 0.0
        for _ in range(trials):
            estimate = sum(random.choices(examples, k=batch)) / batch
            total += (estimate - mean) ** 2
        return math.sqrt(total / trials)

    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    fig = Figure(980, 440, "Standard deviation of the minibatch gradient against batch size")
    axes = Axes(fig, (100, 60, 840, 300), (1, 256), (0.08, 3), True, True)
    axes.frame(sizes, [0.1, 0.2, 0.5, 1, 2], "batch size B (logarithmic)",
               "standard deviation of the gradient estimate (logarithmic)")
    axes.curve([(b, spread / math.sqrt(b)) for b in sizes], BLUE)
    axes.dots([(b, measured(b)) for b in sizes])
    fig.text(560, 130, "line: σ/√B", 18, BLUE, "start", "bold")
    fig.text(560, 176, "dots: 40,000 random batches of each size,", 16, ORANGE, "start")
    fig.text(560, 198, "least squares in one dimension", 16, ORANGE, "start")
    fig.save(FOLDER / "gradient_noise.svg")


def bias_correction():
    """Length of Adam's step for a constant gradient, in learning rates."""
    beta1, beta2 = 0.9, 0.999
    fig = Figure(980, 440, "Adam's first steps with and without bias correction")
    axes = Axes(fig, (100, 60, 840, 300), (1, 3000), (0, 7), log_x=True)
    axes.frame([1, 3, 10, 30, 100, 300, 1000, 3000], [0, 1, 2, 3, 4, 5, 6, 7],
               "update number t (logarithmic)", "length of the update, in learning rates")
    steps = [math.exp(i * math.log(3000) / 200) for i in range(201)]
    axes.curve([(t, (1 - beta1**t) / math.sqrt(1 - beta2**t)) for t in steps], RED)
    axes.curve([(1, 1), (3000, 1)], GREEN)
    fig.text(560, 110, "without correction", 18, RED, "start", "bold")
    fig.text(170, 312, "with correction: 1 from the first step on", 18, GREEN, "start", "bold")
    fig.save(FOLDER / "bias_correction.svg")


def memory():
    """What training keeps per weight."""
    fig = Figure(980, 250, "Memory of weights, gradients and Adam's moments")
    parts = [("weights", PALE_BLUE, BLUE), ("gradients", PALE_GREEN, GREEN),
             ("first moment m", PALE_ORANGE, ORANGE), ("second moment v", PALE_ORANGE, ORANGE)]
    width = 225
    for i, (name, fill, edge) in enumerate(parts):
        x = 40 + i * width
        fig.rect(x, 60, width - 6, 92, fill, edge)
        fig.text(x + width / 2 - 3, 98, name, 19, edge, weight="bold")
        fig.text(x + width / 2 - 3, 130, "4 bytes", 18)
    fig.text(40, 40, "for each weight, in float32", 17, INK, "start", "bold")
    for y, count, label, color in [(176, 1, "to use the model: 4 bytes", BLUE),
                                   (212, 4, "to train it with Adam: 16 bytes, before any activation",
                                    ORANGE)]:
        fig.line(40, y, 40 + count * width - 6, y, color, 3)
        fig.text(40, y + 22, label, 16, color, "start")
    fig.save(FOLDER / "memory.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in (cutpoints, shift, mean_of_means, gradient_noise, bias_correction, memory):
        draw()

#!/usr/bin/env python3
"""Draws the figures of lab 04 into labs/04_pipeline_1f1b/figures.

Usage: scripts/figures/lab04.py
"""

import pathlib

from svg import (BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_GREY,
                 PALE_ORANGE, PAPER, RED, Axes, Figure)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "labs/04_pipeline_1f1b/figures"

# The default model: V, C, H, heads, layers; a batch of B sequences of T tokens.
V, C, H, HEADS, LAYERS = 4096, 288, 1152, 6, 6
B, T = 3, 256


def layer_weights():
    return 4 * C * C + 3 * C * H + 2 * C


def weights(layers, embeds, has_head):
    return layers * layer_weights() + embeds * V * C + has_head * (V * C + C)


def activation_bytes(layers, has_head, sequences):
    per_token = layers * (6 * C + 2 * H + HEADS + 2) + C + has_head * (V + 1)
    return 4 * sequences * T * per_token


def head_cost(vocabulary):
    """Multiplications and additions of the head per token, in layers."""
    layer = 2 * (4 * C * C + 3 * C * H) + 2 * C * T
    return 2 * vocabulary * C / layer


def stages():
    """The model in three pieces, what each holds and what crosses the cuts."""
    fig = Figure(980, 470, "One model cut into three stages: what each holds, what crosses the cuts")
    left, pitch, w, top, h = 60, 325, 210, 70, 250
    parts = [("rank 0 = stage 0", ["embedding", "layer 0", "layer 1"]),
             ("rank 1 = stage 1", ["layer 2", "layer 3"]),
             ("rank 2 = stage 2", ["layer 4", "layer 5", "norm, head"])]
    for i, (name, pieces) in enumerate(parts):
        x = left + i * pitch
        fig.text(x + w / 2, top - 16, name, 18, INK, weight="bold")
        fig.rect(x, top, w, h, PALE_GREY, INK, 2, 12)
        for k, piece in enumerate(pieces):
            y = top + 16 + k * 48 + (24 if len(pieces) == 2 else 0)
            layer = piece.startswith("layer")
            fig.rect(x + 22, y, w - 44, 40, PALE_BLUE if layer else PALE_GREEN,
                     BLUE if layer else GREEN, 1.5, 6)
            fig.text(x + w / 2, y + 26, piece, 17, BLUE if layer else GREEN)
        fig.text(x + w / 2, top + 182, "weights", 16, INK, weight="bold")
        fig.text(x + w / 2, top + 206, "their gradients, m and v", 15, MUTED)
        fig.text(x + w / 2, top + 230, "activations of its layers", 15, MUTED)
    for i in range(2):
        a, b = left + i * pitch + w + 4, left + (i + 1) * pitch - 4
        fig.line(a, top + 84, b, top + 84, BLUE, 3, arrow=True)
        fig.text((a + b) / 2, top + 50, "hidden states", 15, BLUE)
        fig.text((a + b) / 2, top + 72, "[B, T, C]", 15, BLUE)
        fig.line(b, top + 172, a, top + 172, ORANGE, 3, arrow=True)
        fig.text((a + b) / 2, top + 138, "their gradient", 15, ORANGE)
        fig.text((a + b) / 2, top + 160, "[B, T, C]", 15, ORANGE)
    x = left + w / 2
    fig.line(x, top + h + 44, x, top + h + 6, INK, 2.5, arrow=True)
    fig.text(x, top + h + 66, "tokens", 17, INK, weight="bold")
    x = left + 2 * pitch + w / 2
    fig.line(x - 40, top + h + 4, x - 40, top + h + 44, BLUE, 2.5, arrow=True)
    fig.line(x + 40, top + h + 44, x + 40, top + h + 6, ORANGE, 2.5, arrow=True)
    fig.text(x - 48, top + h + 28, "logits", 15, BLUE, "end")
    fig.text(x + 48, top + h + 28, "their gradient", 15, ORANGE, "start")
    fig.text(x, top + h + 66, "the loss, with the targets", 17, INK, weight="bold")
    fig.text(490, 440, "Each message: B · T · C numbers of 4 bytes.", 16, MUTED)
    fig.save(FOLDER / "stages.svg")


def cut():
    """What a stage in the middle receives, keeps and sends."""
    fig = Figure(980, 400, "The chain rule at the cut, seen from a stage in the middle")
    x, w = 330, 320
    fig.rect(x, 60, w, 110, PALE_BLUE, BLUE, 2, 12)
    fig.text(x + w / 2, 96, "forward", 20, BLUE, weight="bold")
    fig.text(x + w / 2, 126, "hᵣ₊₁ = f(hᵣ; w)", 20, INK)
    fig.text(x + w / 2, 154, "own layers, own weights", 15, MUTED)
    fig.rect(x, 250, w, 110, PALE_ORANGE, ORANGE, 2, 12)
    fig.text(x + w / 2, 286, "backward", 20, ORANGE, weight="bold")
    fig.text(x + w / 2, 316, "dL/dhᵣ and dL/dw from dL/dhᵣ₊₁", 18, INK)
    fig.text(x + w / 2, 344, "dL/dw stays here", 15, MUTED)
    fig.line(x + w / 2, 170, x + w / 2, 250, GREEN, 3, arrow=True, dash="7 5")
    fig.text(x + w / 2 + 14, 206, "kept: hᵣ and what the", 16, GREEN, "start")
    fig.text(x + w / 2 + 14, 228, "layers keep", 16, GREEN, "start")
    fig.line(120, 115, x - 4, 115, BLUE, 3, arrow=True)
    fig.text(214, 82, "recv hᵣ", 19, BLUE, weight="bold")
    fig.text(214, 102, "from rank r − 1", 15, BLUE)
    fig.line(x + w + 4, 115, 860, 115, BLUE, 3, arrow=True)
    fig.text(752, 82, "send hᵣ₊₁", 19, BLUE, weight="bold")
    fig.text(752, 102, "to rank r + 1", 15, BLUE)
    fig.line(860, 305, x + w + 4, 305, ORANGE, 3, arrow=True)
    fig.text(762, 272, "recv dL/dhᵣ₊₁", 19, ORANGE, weight="bold")
    fig.text(762, 292, "from rank r + 1", 15, ORANGE)
    fig.line(x - 4, 305, 120, 305, ORANGE, 3, arrow=True)
    fig.text(224, 272, "send dL/dhᵣ", 19, ORANGE, weight="bold")
    fig.text(224, 292, "to rank r − 1", 15, ORANGE)
    fig.text(490, 390, "Each of the four messages has the shape [B, T, C].", 15, MUTED)
    fig.save(FOLDER / "cut.svg")


def grid():
    """One forward and one backward of the whole batch over three stages."""
    fig = Figure(980, 370, "One forward, one backward: only one of three ranks works at a time")
    left, unit, top, h, row = 116, 88, 64, 56, 74
    for rank in range(3):
        y = top + rank * row
        fig.text(20, y + 34, f"stage {rank}", 18, INK, "start", "bold")
        fig.rect(left, y, 9 * unit, h, PALE_GREY, FAINT, 1.5, 5)
        spans = [(rank, 1, "F", PALE_BLUE, BLUE), (3 + 2 * (2 - rank), 2, "B", PALE_ORANGE, ORANGE)]
        for start, length, name, fill, edge in spans:
            fig.rect(left + start * unit + 1, y, length * unit - 2, h, fill, edge, 2.5, 5)
            fig.text(left + (start + length / 2) * unit, y + 36, name, 22, edge, weight="bold")
        busy = [(rank, rank + 1), (3 + 2 * (2 - rank), 5 + 2 * (2 - rank))]
        gaps = [(0, busy[0][0]), (busy[0][1], busy[1][0]), (busy[1][1], 9)]
        for start, end in gaps:
            if end - start > 0:
                fig.text(left + (start + end) / 2 * unit, y + 35, "waits", 15, MUTED, style="italic")
    for rank in range(2):
        y = top + rank * row + h
        x = left + (rank + 1) * unit
        fig.line(x, y, x, y + row - h - 1, BLUE, 3, arrow=True)
        x = left + (7 - 2 * rank) * unit
        fig.line(x, y + row - h, x, y + 1, ORANGE, 3, arrow=True)
    bottom = top + 2 * row + h + 14
    for tick in range(10):
        x = left + tick * unit
        fig.line(x, bottom, x, bottom + 6, MUTED, 1.5)
        fig.text(x, bottom + 24, f"{tick}", 14, MUTED)
    fig.line(left, bottom, left + 9 * unit, bottom, MUTED, 1.5)
    fig.text(490, 44, "a step takes 9, and every stage works for 3 of it: bubble 67 %", 18, RED, weight="bold")
    fig.text(490, 352, "Simulated: equal stages, a backward takes as long as two forwards, messages "
             "take no time.", 15, MUTED)
    fig.save(FOLDER / "grid.svg")


def fits():
    """Bytes per weight, and what that makes of known models."""
    fig = Figure(980, 470, "Bytes per weight while training with Adam, and the sizes of known models")
    fig.text(30, 40, "bytes per weight", 19, INK, "start", "bold")
    columns = [("float32", [(4, "weight", PALE_BLUE, BLUE), (4, "gradient", PALE_ORANGE, ORANGE),
                            (8, "Adam: m, v", PALE_GREEN, GREEN)]),
               ("mixed", [(2, "weight, 16 bit", PALE_BLUE, BLUE),
                          (2, "gradient, 16 bit", PALE_ORANGE, ORANGE),
                          (4, "weight, 32 bit", PALE_BLUE, BLUE),
                          (8, "Adam: m, v", PALE_GREEN, GREEN)])]
    base, unit, w = 400, 20, 150
    for i, (name, parts) in enumerate(columns):
        x, y = 30 + i * 180, base
        for size, words, fill, edge in parts:
            y -= size * unit
            fig.rect(x, y, w, size * unit, fill, edge, 1.5, 3)
            fig.text(x + w / 2, y + size * unit / 2 + 6, f"{size}  {words}", 15, edge)
        fig.text(x + w / 2, base + 26, name, 17, INK, weight="bold")
        fig.text(x + w / 2, 72, "16", 18, INK, weight="bold")

    fig.text(430, 40, "16 bytes · number of weights", 19, INK, "start", "bold")
    models = [("this workbook", "10.3 M", 10325664), ("GPT-2 small", "124 M", 124e6),
              ("TinyLlama", "1.1 B", 1.1e9), ("LLaMA 7B", "6.74 B", 6.738e9),
              ("Llama 2 70B", "69.0 B", 68.98e9), ("GPT-3", "175 B", 175e9),
              ("Llama 3.1 405B", "406 B", 405.9e9)]
    axes = Axes(fig, (570, 64, 380, 336), (0.1e9, 10e12), (0, len(models)), log_x=True)
    for value, words in [(1e9, "1 GB"), (1e10, "10 GB"), (1e11, "100 GB"), (1e12, "1 TB")]:
        x, y = axes.at(value, 0)
        fig.line(x, 64, x, y, FAINT, 1)
        fig.text(x, y + 24, words, 14, MUTED)
    for i, (name, size, count) in enumerate(models):
        x, y = axes.at(16 * count, len(models) - i)
        too_large = 16 * count > 80e9
        fig.rect(570, y + 8, x - 570, 30, PALE_ORANGE if too_large else PALE_GREEN,
                 RED if too_large else GREEN, 1.5, 4)
        fig.text(560, y + 21, name, 15, INK, "end")
        fig.text(560, y + 38, size, 13, MUTED, "end")
    x, y = axes.at(80e9, 0)
    fig.line(x, 56, x, y, RED, 3, dash="7 5")
    fig.text(x - 8, 74, "one device of 80 GB", 15, RED, "end", "bold")
    fig.text(490, 452, "Activations come on top. Right: a logarithmic scale.", 15, MUTED)
    fig.save(FOLDER / "fits.svg")


def memory():
    """What one process, one rank of lab 02 and each stage hold."""
    fig = Figure(980, 440, "Memory of one process, of a rank of lab 02 and of the three stages")
    whole = weights(LAYERS, True, True)
    columns = [("one process", "batch 3", whole, activation_bytes(LAYERS, True, B)),
               ("a rank of lab 02", "batch 1", whole, activation_bytes(LAYERS, True, 1)),
               ("stage 0", "batch 3", weights(2, True, False), activation_bytes(2, False, B)),
               ("stage 1", "batch 3", weights(2, False, False), activation_bytes(2, False, B)),
               ("stage 2", "batch 3", weights(2, False, True), activation_bytes(2, True, B))]
    base, per_mb, w, pitch, left = 352, 1.12, 104, 146, 60
    for i, (name, detail, count, activations) in enumerate(columns):
        x, y = left + i * pitch, base
        for size, fill, edge in [(4 * count, PALE_BLUE, BLUE), (4 * count, PALE_ORANGE, ORANGE),
                                 (8 * count, PALE_GREEN, GREEN), (activations, PALE_GREY, MUTED)]:
            mb = size / 1e6
            y -= mb * per_mb
            fig.rect(x, y, w, mb * per_mb, fill, edge, 1.5, 2)
            font = min(14, mb * per_mb - 1)
            fig.text(x + w / 2, y + mb * per_mb / 2 + font / 3, f"{mb:.1f}", font, edge)
        fig.text(x + w / 2, y - 9, f"{(16 * count + activations) / 1e6:.0f} MB", 18, INK,
                 weight="bold")
        fig.text(x + w / 2, base + 26, name, 16, INK, weight="bold")
        fig.text(x + w / 2, base + 48, detail, 14, MUTED)
    fig.line(40, base, 790, base, MUTED, 1.5)
    legend = [("activations", PALE_GREY, MUTED), ("Adam: m and v", PALE_GREEN, GREEN),
              ("gradients", PALE_ORANGE, ORANGE), ("weights", PALE_BLUE, BLUE)]
    for i, (words, fill, edge) in enumerate(legend):
        y = 120 + i * 40
        fig.rect(810, y, 26, 22, fill, edge, 1.5, 3)
        fig.text(846, y + 17, words, 16, edge, "start")
    fig.text(490, 428, "Computed: float32, 256 tokens, vocabulary 4,096; layers 2, 2, 2. Numbers in "
             "MB (10⁶ bytes).", 15, MUTED)
    fig.save(FOLDER / "memory.svg")


def split_bar(fig, x, y, unit, layers, head):
    """One row per stage: its layers, and the head after those of the last. Returns the slowest."""
    slowest = max(layers[:-1] + [layers[-1] + head])
    for stage, count in enumerate(layers):
        row = y + stage * 36
        fig.text(x - 10, row + 20, f"stage {stage}", 14, MUTED, "end")
        for i in range(count):
            fig.rect(x + i * unit, row, unit - 2, 28, PALE_BLUE, BLUE, 1.5, 3)
        if stage == len(layers) - 1:
            fig.rect(x + count * unit, row, head * unit - 2, 28, PALE_GREEN, GREEN, 1.5, 3)
            fig.text(x + (count + head / 2) * unit, row + 20, "head", 14, GREEN)
    end = x + slowest * unit
    fig.line(end, y - 8, end, y + 3 * 36 + 2, RED, 2.5, dash="6 4")
    fig.text(end + 8, y + 3 * 36 - 44, f"{slowest:.2f}".rstrip("0").rstrip("."), 17, RED, "start",
             "bold")
    return slowest


def split():
    """Two vocabularies, two splits each: the slowest stage sets the pace."""
    fig = Figure(980, 430, "Six layers and a head on three stages: the slowest stage sets the pace")
    panels = [(V, 40, 90), (32000, 500, 40)]
    for vocabulary, x, unit in panels:
        head = head_cost(vocabulary)
        fig.text(x, 40, f"vocabulary {vocabulary:,}: the head costs {head:.2f} layers", 17, INK,
                 "start", "bold")
        for i, layers in enumerate([[2, 2, 2], [3, 2, 1]]):
            y = 100 + i * 160
            best = (vocabulary == V) == (i == 0)
            words = ", ".join(map(str, layers))
            fig.text(x, y - 20, f"layers {words}" + (": the best" if best else ""), 16,
                     GREEN if best else MUTED, "start", "bold" if best else "normal")
            split_bar(fig, x + 70, y, unit, layers, head)
    fig.text(490, 414, "Cost per token in layers, from the FLOPs. Red: the slowest stage.", 15, MUTED)
    fig.save(FOLDER / "split.svg")


def waits():
    """Who waits for whom: a line here, a circle when the messages are in another order."""
    fig = Figure(980, 380, "Who waits for whom: a line ends somewhere, a circle does not")

    def nodes(y, states):
        for rank, (words, fill, edge) in enumerate(states):
            x = left + rank * 150
            fig.rect(x - 54, y - 32, 108, 64, fill, edge, 2, 10)
            fig.text(x, y - 6, f"rank {rank}", 16, edge, weight="bold")
            fig.text(x, y + 17, words, 14, INK)

    def edge(a, b, y, color):
        x1, x2 = left + a * 150, left + b * 150
        side = 1 if b > a else -1
        fig.line(x1 + side * 58, y, x2 - side * 58, y, color, 2.5, arrow=True)

    working, waiting = (PALE_GREEN, GREEN), (PALE_GREY, MUTED)
    left = 100
    fig.text(left - 60, 40, "this lab: a line", 19, GREEN, "start", "bold")
    fig.text(left - 60, 84, "forward", 16, MUTED, "start")
    nodes(130, [("computes", *working), ("recv from 0", *waiting), ("recv from 1", *waiting)])
    edge(1, 0, 130, INK)
    edge(2, 1, 130, INK)
    fig.text(left - 60, 224, "backward", 16, MUTED, "start")
    nodes(270, [("recv from 1", *waiting), ("recv from 2", *waiting), ("computes", *working)])
    edge(0, 1, 270, INK)
    edge(1, 2, 270, INK)

    left = 606
    stuck = (PALE_ORANGE, RED)
    fig.text(left - 60, 40, "rank 0 receives as well: a circle", 19, RED, "start", "bold")
    nodes(130, [("recv from 2", *stuck), ("recv from 0", *stuck), ("recv from 1", *stuck)])
    edge(1, 0, 130, RED)
    edge(2, 1, 130, RED)
    fig.path([(left, 166), (left, 214), (left + 300, 214), (left + 300, 166)], RED, 2.5)
    fig.arrow_head(left + 300, 190, left + 300, 164, RED)
    fig.text(left - 60, 244, "two neighbours send at once: a circle of two", 17, RED, "start", "bold")
    nodes(300, [("send to 1", *stuck), ("send to 0", *stuck)])
    edge(0, 1, 288, RED)
    edge(1, 0, 312, RED)
    fig.text(490, 362, "An arrow from a rank to the one that it waits for.", 15, MUTED)
    fig.save(FOLDER / "waits.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in (stages, cut, grid, fits, memory, split, waits):
        draw()

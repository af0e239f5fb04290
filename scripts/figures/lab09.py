#!/usr/bin/env python3
"""Draws the figures of lab 09's handout into labs/09_sharded/figures.

Usage: scripts/figures/lab09.py
"""

from pathlib import Path

from svg import BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_GREY, RED, Figure

FOLDER = Path(__file__).resolve().parents[2] / "labs/09_sharded/figures"
RANKS = 4


def memory_figure():
    """Bytes per weight of each stage on four ranks."""
    figure = Figure(980, 400, "Bytes per weight on each of four ranks, by stage")
    left, scale = 150, 45  # pixels per byte
    kinds = (("weights", BLUE), ("gradients", GREEN), ("moments", ORANGE))
    stages = (("lab 02", (4, 4, 8)), ("ZeRO 1", (4, 4, 8 / RANKS)),
              ("ZeRO 2", (4, 4 / RANKS, 8 / RANKS)), ("ZeRO 3", (4 / RANKS, 4 / RANKS, 8 / RANKS)))
    y = 60
    for place, (kind, colour) in enumerate(kinds):
        figure.rect(left + 170 * place, 24, 20, 20, colour, colour, 0, 3)
        figure.text(left + 170 * place + 30, 40, kind, 17, anchor="start")
    for name, parts in stages:
        y += 18
        figure.text(left - 16, y + 32, name, 18, anchor="end", weight="bold")
        figure.rect(left, y, 16 * scale, 50, PALE_GREY, FAINT, 1, 2)
        at = left
        for part, (_, colour) in zip(parts, kinds):
            figure.rect(at, y, part * scale, 50, colour, "#ffffff", 1, 2)
            figure.text(at + part * scale / 2, y + 32, f"{part:g}", 17, "#ffffff", weight="bold")
            at += part * scale
        figure.text(at + 12, y + 32, f"{sum(parts):g} bytes", 17, INK, "start")
        y += 60
    figure.text(left, y + 22, "4 ranks; and, for a moment: a part's gradient (ZeRO 2, 3), two parts' weights (ZeRO 3)",
                16, MUTED, "start")
    figure.save(FOLDER / "memory.svg")


def halves_figure():
    """Reduce-scatter, update, all-gather of one part."""
    figure = Figure(980, 370, "An all-reduce taken apart: reduce-scatter, update, all-gather")
    columns = ((55, "gradients", GREEN, lambda r, s: True),
               (310, "sums", RED, lambda r, s: r == s),
               (565, "new weights", BLUE, lambda r, s: r == s),
               (820, "new weights", BLUE, lambda r, s: True))
    cell, top = 36, 80
    for left, title, colour, held in columns:
        figure.text(left + 2 * cell, 46, title, 18, colour, weight="bold")
        for rank in range(RANKS):
            for shard in range(RANKS):
                full = held(rank, shard)
                figure.rect(left + shard * cell, top + rank * 58, cell - 4, 42,
                            colour if full else PALE_GREY, "#ffffff" if full else FAINT, 1, 3)
                if full:
                    figure.text(left + shard * cell + (cell - 4) / 2, top + rank * 58 + 28, str(shard), 17,
                                "#ffffff")
    for rank in range(RANKS):
        figure.text(45, top + rank * 58 + 28, f"r{rank}", 16, MUTED, "end")
    for left, words in ((203, "reduce-scatter"), (458, "optimizer"), (713, "all-gather")):
        figure.line(left, 190, left + 98, 190, INK, 2, arrow=True)
        figure.text(left + 49, 176, words, 14, MUTED)
    figure.text(490, 345, "between the two halves, each rank updates one quarter of the weights", 17, MUTED)
    figure.save(FOLDER / "halves.svg")


def parts_figure():
    """The model cut into parts, and a part of 10 elements cut into four shards."""
    figure = Figure(980, 300, "The model is cut into parts, and each part into shards, one for each rank")
    left, right = 130, 950
    parts = ["embedding"] + [f"layer {k}" for k in range(6)] + ["norm, head"]
    width = (right - left) / len(parts)
    figure.text(left - 16, 62, "parts", 18, anchor="end", weight="bold")
    for k, name in enumerate(parts):
        figure.rect(left + k * width, 36, width - 6, 42, BLUE, "#ffffff", 1, 3)
        figure.text(left + k * width + width / 2 - 3, 62, name, 15, "#ffffff")
    cell, top, gap = 56, 170, 26
    start = left + 30
    end = start + 12 * cell + (RANKS - 1) * gap
    figure.line(left + 2 * width, 84, start, top - 34, MUTED, 1)
    figure.line(left + 3 * width - 6, 84, end, top - 34, MUTED, 1)
    figure.text(left - 16, top + 28, "shards", 18, anchor="end", weight="bold")
    for rank in range(RANKS):
        at = start + rank * (3 * cell + gap)
        figure.text(at + 1.5 * cell, top - 12, f"rank {rank}", 16, MUTED)
        for k in range(3):
            element = 3 * rank + k
            held = element < 10
            figure.rect(at + k * cell, top, cell - 4, 42, GREEN if held else PALE_GREY, "#ffffff" if held else FAINT,
                        1, 3)
            if held:
                figure.text(at + k * cell + cell / 2 - 2, top + 28, str(element), 17, "#ffffff")
    figure.text(start, top + 84, "a part of 10 elements on 4 ranks: shards of 3; the last two places are padding, 0",
                16, MUTED, "start")
    figure.save(FOLDER / "parts.svg")


def prefetch_figure():
    """What ZeRO 3 has in memory while it computes: a forward and a backward pass of three parts."""
    figure = Figure(980, 380, "ZeRO 3: parts gathered ahead, used and freed, in a forward and a backward pass")
    left, width = 110, 88
    gather, reduce = 0.75, 0.75  # of the time that a part is computed
    rows = {"compute": 50, "network": 106, "part 0": 172, "part 1": 216, "part 2": 260}
    for name, y in rows.items():
        figure.text(left - 14, y + 26, name, 16, MUTED, "end")

    def box(row, at, length, words, colour, border="#ffffff", ink="#ffffff", size=14):
        figure.rect(left + at * width, rows[row], length * width - 3, 40, colour, border, 1, 2)
        if words:
            figure.text(left + (at + length / 2) * width - 1.5, rows[row] + 26, words, size, ink)

    def collective(at, length, words):
        box("network", at, length, words, ORANGE, size=12)

    time = 0.0
    uses = [("F", 0, 1), ("F", 1, 2), ("F", 2, None), ("B", 2, 1), ("B", 1, 0), ("B", 0, None)]
    for number, (kind, part, following) in enumerate(uses):
        colour = BLUE if kind == "F" else GREEN
        if number in (0, 3):  # nothing was gathered ahead
            collective(time, gather, f"gather {part}")
            box(f"part {part}", time, gather, "", "#fdeee3", ORANGE)
            time += gather
        box("compute", time, 1, f"{kind}{part}", colour)
        box(f"part {part}", time, 1, "used" if kind == "F" else "used, g", colour)
        until = time + 1
        if kind == "B":  # close_gradient waits for the sum
            collective(until, reduce, f"reduce {part}")
            box(f"part {part}", until, reduce, "g", "#e3f1ee", GREEN, GREEN)
            until += reduce
        if following is not None:
            collective(time, gather, f"gather {following}")
            box(f"part {following}", time, until - time, "ahead", "#fdeee3", ORANGE, ORANGE)
        time = until
    figure.text(left, 328, "pale orange: weights on their way, or not yet used; g: the part's gradient; "
                "reduce: its reduce-scatter", 15, MUTED, "start")
    figure.text(left, 352, "blank: nothing of this part is in memory except its shards", 15, MUTED, "start")
    figure.save(FOLDER / "prefetch.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    memory_figure()
    parts_figure()
    halves_figure()
    prefetch_figure()

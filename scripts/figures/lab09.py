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
    figure.text(left, y + 22, "and, for a moment: a part's gradient (ZeRO 2, 3), two parts' weights (ZeRO 3)",
                16, MUTED, "start")
    figure.save(FOLDER / "memory.svg")


def halves_figure():
    """Reduce-scatter, update, all-gather of one part."""
    figure = Figure(980, 370, "An all-reduce taken apart: reduce-scatter, update, all-gather")
    columns = ((60, "gradients", GREEN, lambda r, s: True),
               (300, "sums", RED, lambda r, s: r == s),
               (540, "new weights", BLUE, lambda r, s: r == s),
               (780, "new weights", BLUE, lambda r, s: True))
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
        figure.text(50, top + rank * 58 + 28, f"r{rank}", 16, MUTED, "end")
    for left, words in ((208, "reduce-scatter"), (448, "optimizer"), (688, "all-gather")):
        figure.line(left, 190, left + 82, 190, INK, 2, arrow=True)
        figure.text(left + 41, 176, words, 14, MUTED)
    figure.text(490, 345, "between the two halves each rank computes with one quarter", 17, MUTED)
    figure.save(FOLDER / "halves.svg")


def prefetch_figure():
    """What ZeRO 3 has in memory while it computes: a forward and a backward pass of three parts."""
    figure = Figure(980, 360, "ZeRO 3: parts gathered ahead, used and freed, in a forward and a backward pass")
    left, width = 90, 110
    uses = [(1, "F", 0, 1), (2, "F", 1, 2), (3, "F", 2, None), (4.7, "B", 2, 1), (5.7, "B", 1, 0), (6.7, "B", 0, None)]
    figure.text(left - 14, 77, "compute", 16, MUTED, "end")
    figure.text(left - 14, 133, "network", 16, MUTED, "end")
    for part in range(3):
        figure.text(left - 14, 199 + 44 * part, f"part {part}", 16, MUTED, "end")
    for place, part in ((0.3, 0), (4, 2)):  # nothing to compute meanwhile
        figure.rect(left + place * width, 106, (width - 6) * 0.7, 42, ORANGE, "#ffffff", 1, 2)
        figure.text(left + (place + 0.35) * width - 2, 133, f"gather {part}", 14, "#ffffff")
    for place, kind, part, following in uses:
        x = left + place * width
        colour = BLUE if kind == "F" else GREEN
        figure.rect(x, 50, width - 6, 42, colour, "#ffffff", 1, 2)
        figure.text(x + (width - 6) / 2, 77, f"{kind}{part}", 18, "#ffffff")
        figure.rect(x, 172 + 44 * part, width - 6, 40, colour, "#ffffff", 1, 2)
        figure.text(x + (width - 6) / 2, 198 + 44 * part,
                    "used" if kind == "F" else "used, gradient", 14, "#ffffff")
        if following is not None:
            figure.rect(x, 106, (width - 6) * 0.7, 42, ORANGE, "#ffffff", 1, 2)
            figure.text(x + (width - 6) * 0.35, 133, f"gather {following}", 14, "#ffffff")
            figure.rect(x, 172 + 44 * following, width - 6, 40, "#fdeee3", ORANGE, 1, 2)
            figure.text(x + (width - 6) / 2, 198 + 44 * following, "ahead", 14, ORANGE)
        if kind == "B":
            figure.line(x + width - 8, 50, x + width - 8, 148, RED, 3)
    figure.text(left, 332, "blank: nothing of this part is in memory except its shard; red: reduce-scatter",
                16, MUTED, "start")
    figure.save(FOLDER / "prefetch.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    memory_figure()
    halves_figure()
    prefetch_figure()

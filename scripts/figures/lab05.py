#!/usr/bin/env python3
"""Draws the explanatory figures of lab 05 into labs/05_microbatches/figures.

The grids of schedules are drawn by the lab's own program: see lab05_grids.sh.

Usage: scripts/figures/lab05.py
"""

import pathlib

from svg import (BLUE, FAINT, GREEN, INK, MUTED, ORANGE, PALE_BLUE, PALE_GREEN, PALE_GREY,
                 PAPER, RED, Axes, Figure)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "labs/05_microbatches/figures"
PALE_RED = "#fdecec"
MONO = "'JetBrains Mono', 'DejaVu Sans Mono', monospace"


# --- Schedules in simulated time: just enough for these figures.

def gpipe(stages, m):
    return [[("F", k) for k in range(m)] + [("B", k) for k in range(m)] for _ in range(stages)]


def one_f_one_b(stages, m):
    plan = []
    for s in range(stages):
        forwards = min(stages - 1 - s, m)
        passes = [("F", k) for k in range(forwards)]
        for k in range(m):
            if forwards < m:
                passes.append(("F", forwards))
                forwards += 1
            passes.append(("B", k))
        plan.append(passes)
    return plan


def simulate(plan, costs):
    """costs: (forward, backward) per stage. Returns per stage a list of (kind, k, start, end)."""
    now, ends = [0.0] * len(plan), {}
    spans, position = [[] for _ in plan], [0] * len(plan)
    while any(position[s] < len(plan[s]) for s in range(len(plan))):
        for s, passes in enumerate(plan):
            if position[s] == len(passes):
                continue
            kind, k = passes[position[s]]
            source = s - 1 if kind == "F" else s + 1
            if 0 <= source < len(plan):
                if (kind, k, source) not in ends:
                    continue
                now[s] = max(now[s], ends[kind, k, source])
            start = now[s]
            now[s] += costs[s][0 if kind == "F" else 1]
            ends[kind, k, s] = now[s]
            spans[s].append((kind, k, start, now[s]))
            position[s] += 1
    return spans


def mono(fig, x, y, words, size=17, fill=INK, anchor="start", weight="normal"):
    fig.add(f'<g font-family="{MONO}">')
    fig.text(x, y, words, size, fill, anchor, weight)
    fig.add("</g>")


def bar(fig, x, y, w, h, kind, label):
    fill, edge = (PALE_BLUE, BLUE) if kind == "F" else (PALE_GREEN, GREEN)
    fig.rect(x + 1, y, w - 2, h, fill, edge, 1.5, 4)
    if label:
        fig.text(x + w / 2, y + h / 2 + 5, label, 14, edge, weight="bold")


# --- The figures.

def chain():
    """From a schedule to training: what the student writes and what is given."""
    fig = Figure(980, 372, "One schedule: written, given its messages, checked, drawn and run")
    boxes = [(24, "schedule", "F0 F1 B0 B1", ["tasks 1, 2", "which pass after which"], True),
             (352, "program", "F0 >F0* F1 >F1* <B0 B0 ...", ["task 3 (naive), task 5 (safe)",
                                                          "the messages as well"], True),
             (680, "executor", "run_actions", ["tasks 4a, 4b: one wave", "task 6: the whole step"], True)]
    w, h, top = 276, 128, 40
    for x, name, example, lines, _ in boxes:
        fig.rect(x, top, w, h, PALE_BLUE, BLUE)
        fig.text(x + w / 2, top + 30, name, 20, BLUE, weight="bold")
        mono(fig, x + w / 2, top + 58, example, 14, INK, "middle")
        for i, words in enumerate(lines):
            fig.text(x + w / 2, top + 88 + i * 22, words, 15, MUTED)
    for x in (300, 628):
        fig.line(x, top + h / 2, x + 50, top + h / 2, INK, 2.5, arrow=True)
    given = [(24, "validate", "complete? possible? no circle?"),
             (270, "simulate", "makespan, bubble, peak in flight"),
             (516, "draw", "grid, SVG, trace for Perfetto"),
             (762, "flight recorder", "what really happened")]
    y = 252
    for x, name, words in given:
        fig.rect(x, y, 194, 72, PALE_GREY, MUTED, 1.5)
        fig.text(x + 97, y + 29, name, 17, INK, weight="bold")
        fig.text(x + 97, y + 53, words, 11.5, MUTED)
    for x0, x1 in [(110, 110), (220, 340), (270, 560), (440, 200), (490, 380), (540, 600)]:
        fig.line(x0, top + h, x1, y, MUTED, 2, arrow=True)
    fig.line(818, top + h, 850, y, MUTED, 2, arrow=True)
    fig.line(762, y + 36, 712, y + 36, MUTED, 2, arrow=True)
    fig.text(490, 356, "Blue: yours. Grey: given. A measured timeline is drawn like a simulated "
             "one.", 15, MUTED)
    fig.save(FOLDER / "chain.svg")


def makespan():
    """GPipe on three stages, with the path that decides how long it takes."""
    p, m = 3, 4
    fig = Figure(980, 392, "GPipe, three stages, four microbatches: where the idle time is")
    spans = simulate(gpipe(p, m), [(1, 2)] * p)
    left, unit, top, row, h = 96, 47, 74, 66, 44
    end = 18
    for s in range(p):
        y = top + s * row
        fig.text(20, y + 28, f"stage {s}", 17, INK, "start", "bold")
        fig.rect(left, y, end * unit, h, PALE_GREY, "none", 0, 4)
        for kind, k, start, stop in spans[s]:
            bar(fig, left + start * unit, y, (stop - start) * unit, h, kind, f"{kind}{k}")
    # The last stage: idle, all forwards, all backwards, idle.
    y = top + p * row + 6
    parts = [(0, 2, "(p−1) f", RED), (2, 6, "m f", BLUE), (6, 14, "m b", GREEN),
             (14, 18, "(p−1) b", RED)]
    for start, stop, words, color in parts:
        fig.line(left + start * unit + 4, y, left + stop * unit - 4, y, color, 4)
        fig.text(left + (start + stop) / 2 * unit, y + 25, words, 17, color, weight="bold")
    fig.text(20, y + 8, "stage 2:", 15, MUTED, "start")
    fig.text(left, 48, "f = 1, b = 2", 16, MUTED, "start")
    fig.text(left + end * unit, 48, "makespan (m + p − 1)(f + b) = 6 · 3 = 18", 16, INK, "end",
             "bold")
    fig.text(490, 336, "The last stage waits for the first activation, works without a gap, and "
             "waits while the last gradient travels on.", 15, MUTED)
    fig.text(490, 360, "Every other stage is idle for just as long: (p − 1)(f + b) = 6 of 18.", 15,
             MUTED)
    fig.save(FOLDER / "makespan.svg")


def bubble():
    fig = Figure(980, 446, "The bubble against the number of microbatches")
    axes = Axes(fig, (100, 60, 840, 280), (1, 64), (0, 0.9), True)
    axes.frame([1, 2, 3, 6, 12, 24, 64], [0, 0.2, 0.4, 0.6, 0.8],
               "microbatches m (logarithmic)", "bubble (p − 1) / (m + p − 1)")
    for p, color, at in [(2, GREEN, 1.25), (3, BLUE, 1.7), (6, RED, 3.6)]:
        def share(m, stages=p):
            return (stages - 1) / (m + stages - 1)
        axes.curve([(64**(i / 100), share(64**(i / 100))) for i in range(101)], color)
        for m in (1, 3, 6, 12, 24):
            fig.dot(*axes.at(m, share(m)), color)
        x, y = axes.at(at, share(at))
        fig.text(x + 12, y - 8, f"p = {p}", 17, color, "start", "bold")
    for m, words in [(1, "67 %"), (3, "40 %"), (6, "25 %"), (12, "14 %")]:
        x, y = axes.at(m, 2 / (m + 2))
        fig.text(x + 6, y - 9, words, 14, BLUE, "start")
    fig.text(490, 430, "f and b do not appear: the bubble is a matter of p and m alone.", 15, MUTED)
    fig.save(FOLDER / "bubble.svg")


def in_flight():
    """Microbatches in flight on stage 0 over time, under both schedules."""
    p, m = 3, 12
    fig = Figure(980, 446, "Microbatches in flight on stage 0, three stages, twelve microbatches")
    axes = Axes(fig, (100, 66, 840, 272), (0, 42), (0, 13))
    axes.frame(range(0, 43, 6), [0, 3, 6, 9, 12], "time (f = 1, b = 2)",
               "microbatches in flight on stage 0")
    for plan, color, words, at in [(gpipe(p, m), ORANGE, "GPipe: up to m = 12", (17.5, 12.4)),
                                   (one_f_one_b(p, m), BLUE, "1F1B: up to p = 3", (19, 3.7))]:
        spans = simulate(plan, [(1, 2)] * p)[0]
        points, held = [(0, 0)], 0
        for kind, _, start, stop in spans:
            at_time = start if kind == "F" else stop
            points.append((at_time, held))
            held += 1 if kind == "F" else -1
            points.append((at_time, held))
        axes.curve(points, color)
        fig.text(*axes.at(*at), words, 18, color, "start", "bold")
    fig.text(490, 430, "The same makespan, 42, and the same passes. A backward frees what its "
             "forward has kept: 1F1B does it as soon as it can.", 15, MUTED)
    fig.save(FOLDER / "in_flight.svg")


def program_row(fig, x, y, words, pitch, states):
    """A program as a row of boxes; states: 'done', 'wait', 'later' per word."""
    for i, (word, state) in enumerate(zip(words, states)):
        fill, edge, ink = {"done": (PALE_GREEN, GREEN, GREEN), "wait": (PALE_RED, RED, RED),
                           "later": (PAPER, FAINT, MUTED)}[state]
        fig.rect(x + i * pitch, y, pitch - 6, 38, fill, edge, 3 if state == "wait" else 1.5, 5)
        mono(fig, x + i * pitch + (pitch - 6) / 2, y + 25, word, 16, ink, "middle",
             "bold" if state == "wait" else "normal")


def circle():
    """The naive program of 1F1B on three stages: where it stands still."""
    fig = Figure(980, 414, "The naive program of 1F1B stands still: stages 1 and 2 wait in a circle")
    rows = [("F0 >F0 F1 >F1 F2 >F2 <B0 B0 F3 >F3", 5),
            ("<F0 F0 >F0 <F1 F1 >F1 <B0 B0 >B0 <F2", 5),
            ("<F0 F0 B0 >B0 <F1 F1 B1 >B1 <F2 F2", 3)]
    left, pitch, top, row = 110, 80, 66, 96
    for s, (text, wait) in enumerate(rows):
        y = top + s * row
        fig.text(20, y + 25, f"stage {s}", 17, INK, "start", "bold")
        states = ["done" if i < wait else "wait" if i == wait else "later" for i in range(10)]
        program_row(fig, left, y, text.split(), pitch, states)
        fig.text(left + 10 * pitch + 2, y + 25, "…", 18, MUTED, "start")

    def slot(s, i):
        return left + i * pitch + (pitch - 6) / 2, top + s * row

    def wait_arrow(s0, i0, s1, i1, color, words, at, anchor):
        x0, y0 = slot(s0, i0)
        x1, y1 = slot(s1, i1)
        down = s1 > s0
        fig.line(x0, y0 + (38 if down else 0), x1, y1 + (-2 if down else 40), color, 2.5,
                 arrow=True)
        fig.text(*at, words, 14, color, anchor)

    wait_arrow(0, 5, 1, 9, ORANGE, "waits for <F2", (735, 126), "start")
    wait_arrow(1, 5, 2, 4, RED, "waits for <F1", (504, 251), "start")
    wait_arrow(2, 3, 1, 6, RED, "waits for <B0", (424, 228), "end")
    fig.text(490, 362, "Green: done. Red: begun, and never done. Stage 1 would come to <B0 right "
             "after >F1, stage 2 to <F1 right after >B0.", 15, MUTED)
    fig.text(490, 388, "Stage 0 is stuck because of them, though not part of the circle.", 15,
             MUTED)
    fig.save(FOLDER / "circle.svg")


def cures():
    """Three ways out of the circle, two stages, three microbatches."""
    fig = Figure(980, 470, "Three cures of the same deadlock, two stages")
    cures_list = [
        ("post", BLUE, "F0 >F0* F1 >F1* <B0 B0 F2 >F2* <B1 B1 …",
         "<F0 F0 B0 >B0* <F1 F1 B1 >B1* <F2 F2 …",
         "No send waits. Price: a pending message keeps its tensor."),
        ("order", GREEN, "F0 >F0 F1 >F1 <B0 B0 F2 >F2 <B1 B1 …",
         "<F0 F0 B0 <F1 >B0 F1 B1 <F2 >B1 F2 …",
         "One side receives first. Price: it must know the other's list, and both sides wait."),
        ("fuse", ORANGE, "F0 >F0 F1 <B0* >F1 B0 F2 <B1* >F2 B1 …",
         "<F0 F0 B0 <F1* >B0 F1 B1 <F2* >B1 F2 …",
         "Send and recv of a pair begin together. Price: both sides must pair in the same places.")]
    for i, (name, color, first, second, price) in enumerate(cures_list):
        y = 30 + i * 146
        fig.text(20, y + 24, name, 21, color, "start", "bold")
        fig.text(110, y + 24, price, 15, MUTED, "start")
        for s, text in enumerate((first, second)):
            fig.text(20, y + 66 + s * 46, f"stage {s}", 16, INK, "start", "bold")
            for j, word in enumerate(text.split()):
                x = 110 + j * 76
                hot = word in {"post": {">F1*", ">B0*", ">F0*", ">B1*", ">F2*"},
                               "order": {"<F1", "<F2", ">B0", ">B1"} if s else set(),
                               "fuse": {"<B0*", ">F1", "<B1*", ">F2", "<F1*", ">B0", "<F2*",
                                        ">B1"}}[name]
                if word == "…":
                    fig.text(x + 6, y + 66 + s * 46, word, 18, MUTED, "start")
                    continue
                fig.rect(x, y + 42 + s * 46, 70, 36, PALE_GREY if hot else PAPER,
                         color if hot else FAINT, 2 if hot else 1.2, 5)
                mono(fig, x + 35, y + 66 + s * 46, word, 16, color if hot else MUTED, "middle",
                     "bold" if hot else "normal")
    fig.save(FOLDER / "cures.svg")


def lifetimes():
    """What the executor holds for one microbatch on a stage in the middle."""
    fig = Figure(980, 400, "One microbatch on a stage in the middle: what must exist, and until when")
    events = [("<F", 0), ("F", 1), (">F*", 2), ("others", 3), ("<B", 4), ("B", 5), (">B*", 6),
              ("end", 7)]
    left, pitch, top = 236, 90, 84
    for name, i in events:
        x = left + i * pitch
        pass_ = name in ("F", "B")
        if name == "others":
            fig.text(x + 42, 48, "…", 20, MUTED)
            continue
        if name == "end":
            fig.text(x + 34, 48, "end", 15, MUTED)
            fig.text(x + 34, 66, "of list", 12, MUTED)
            continue
        fig.rect(x, 24, 84, 38, PALE_BLUE if pass_ else PAPER, BLUE if pass_ else MUTED, 1.5, 5)
        mono(fig, x + 42, 49, name, 17, BLUE if pass_ else INK, "middle", "bold")
    rows = [("received activation", 0, 2, BLUE, "", "yours: until the forward has read it"),
            ("kept by the stage", 1, 6, INK, "", "layers' activations, 8.6 MB: until the backward"),
            ("output", 1, 6, INK, "", "part of what the stage keeps: >F* reads it there"),
            ("received gradient", 4, 6, GREEN, "", "yours"),
            ("input gradient", 5, 8, GREEN, "", "until the send is done")]
    for r, (name, start, stop, color, _, words) in enumerate(rows):
        y = top + r * 54
        fig.text(20, y + 26, name, 16, color, "start", "bold")
        x, w = left + start * pitch, (stop - start) * pitch - 6
        fill = {BLUE: PALE_BLUE, GREEN: PALE_GREEN}.get(color, PALE_GREY)
        fig.rect(x, y + 4, w, 34, fill, color, 1.5, 5)
        room = len(words) * 7.2
        if room < w:
            fig.text(x + w / 2, y + 26, words, 14, color)
        else:
            fig.text(x - 8 if x - room > left else x + w + 8, y + 26, words, 14, color,
                     "end" if x - room > left else "start")
    fig.text(490, 382, "Grey: the stage keeps it, under 1F1B of p − r microbatches at a time; other tensors "
             "come and go.", 15, MUTED)
    fig.save(FOLDER / "lifetimes.svg")


def uneven():
    """1F1B with the head on the last stage."""
    m = 6
    head = 2_359_296 / 2_802_240  # lab 04, 5.1
    fig = Figure(980, 330, "Uneven stages: the slowest one sets the pace")
    costs = [(2 / 3, 4 / 3), (2 / 3, 4 / 3), ((2 + head) / 3, 2 * (2 + head) / 3)]
    spans = simulate(one_f_one_b(3, m), costs)
    end = max(stop for row in spans for _, _, _, stop in row)
    left, top, row, h = 190, 62, 66, 44
    unit = (960 - left) / end
    names = ["2 layers", "2 layers", "2 layers + head"]
    for s in range(3):
        y = top + s * row
        fig.text(20, y + 20, f"stage {s}", 17, INK, "start", "bold")
        fig.text(20, y + 40, names[s], 14, MUTED, "start")
        fig.rect(left, y, end * unit, h, PALE_GREY, "none", 0, 4)
        for kind, k, start, stop in spans[s]:
            bar(fig, left + start * unit, y, (stop - start) * unit, h, kind, f"{k}")
    idle = 1 - sum(m * (f + b) for f, b in costs) / (3 * end)
    fig.text(left, 42, f"1F1B, m = 6, the head costs {head:.2f} layers; unit: one layer, both passes", 16, MUTED, "start")
    fig.text(960, 42, f"makespan {end:.1f}; idle {idle:.0%} instead of 25%".replace("%", " %"), 16,
             INK, "end", "bold")
    fig.text(490, 286, "Stage 2 has no gap in the middle. The others wait for it once per "
             "microbatch: no number of microbatches removes that.", 15, MUTED)
    fig.text(490, 310, "Blue: forward, green: backward, with the number of the microbatch.", 15,
             MUTED)
    fig.save(FOLDER / "uneven.svg")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in (chain, makespan, bubble, in_flight, circle, cures, lifetimes, uneven):
        draw()

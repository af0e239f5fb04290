"""The page of an experiment: what was changed, the loss curves of all its runs, their numbers, timelines and output."""
import base64
import collections
import html
import math
import re
import statistics

from losses import is_number, read_metrics

# `folder`: a run's folder, with metrics.jsonl; `ended`: in words; `log`: the last lines of its output.
Run = collections.namedtuple("Run", "name folder succeeded ended log")

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 360, 56, 40  # of a chart, and its margins
LEAST_SCALE = 0.6  # of a timeline; smaller, its text could not be read

STYLE = """
:root{color-scheme:light dark;--page:#f7f7f4;--card:#fff;--ink:#1d2733;--soft:#5a6673;--line:#dfe3e6;
 --run0:#1f5fa8;--run1:#c8521d;--run2:#8e44ad;--removed:#c8521d;--added:#1f8055}
@media(prefers-color-scheme:dark){:root{--page:#12161b;--card:#1a2027;--ink:#e3e8ed;--soft:#9ba7b3;--line:#303943;
 --run0:#6ea8f0;--run1:#f08a55;--run2:#b98ad6;--removed:#f08a55;--added:#4fbf8b}}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:1100px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:28px;line-height:1.2;margin:0}h2{font-size:19px;margin:0 0 10px}h3{font-size:15px;margin:14px 0 4px}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px 24px;margin:20px 0 0}
p{margin:6px 0}.soft{color:var(--soft);font-size:14px}code,pre{font:13px/1.45 ui-monospace,monospace}
pre{margin:6px 0 0;overflow-x:auto}.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:15px}
th{font-weight:400;color:var(--soft)}th,td{padding:4px 12px;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}
svg{display:block;width:100%;height:auto;overflow:visible}svg text{font-size:13px;fill:var(--soft)}
.rule{stroke:var(--line)}polyline{fill:none;stroke-linejoin:round}
.run0{stroke:var(--run0);stroke-width:5;opacity:.55}.run1{stroke:var(--run1);stroke-width:2}
.run2,.run3{stroke:var(--run2);stroke-width:2;stroke-dasharray:7 4}
.run3{stroke-dasharray:2 4}
.key{display:inline-block;width:26px;vertical-align:4px;border-top:3px solid;margin:0 6px 0 16px}
.key.run0{border-color:var(--run0)}.key.run1{border-color:var(--run1)}.key.run2,.key.run3{border-color:var(--run2)}
img{max-width:100%;background:#fff;border-radius:6px}
.removed{color:var(--removed)}.added{color:var(--added)}
"""


def loss_table(runs):
    """Rows of texts: the loss at some steps, the last validation loss and the speed of each run."""
    metrics = [read_metrics(run.folder) for run in runs]
    last = max((records[-1]["step"] for records in metrics if records), default=0)
    steps = sorted({record["step"] for records in metrics for record in records})
    chosen = [min(steps, key=lambda step: abs(step - wanted)) for wanted in
              (1, last / 10, last / 5, last / 2, last)] if steps else []
    chosen = sorted(set(chosen))
    rows = [["loss in step", *(f"{step:,}" for step in chosen), "validation", "tokens/s"]]
    for run, records in zip(runs, metrics):
        losses = {record["step"]: record["loss"] for record in records}
        validations = [record["val_loss"] for record in records[1:] if is_number(record.get("val_loss"))]
        speeds = [record["tokens_per_second"] for record in records if is_number(record.get("tokens_per_second"))]
        rows.append([run.name, *(f"{losses[step]:.4f}" if step in losses else "–" for step in chosen),
                     f"{validations[-1]:.4f}" if validations else "–",
                     f"{statistics.median(speeds):,.0f}" if speeds else "–"])
    return rows


def difference_in_words(runs):
    """From which step on the losses of two runs differ by more than rounding; empty if one of them has none."""
    right, wrong = ({record["step"]: record["loss"] for record in read_metrics(run.folder)} for run in runs[:2])
    if not right or not wrong:
        return ""
    if len(right.keys() & wrong.keys()) < len(right) / 2:
        return ""  # the runs logged different steps
    differences = {step: abs(wrong[step] - loss) for step, loss in right.items() if step in wrong}
    largest = max(differences.values())
    most = f", by {largest:.1g} at most" if math.isfinite(largest) else ""
    differing = [step for step, difference in differences.items() if not difference <= 1e-5 * abs(right[step])]
    if differing:
        return f"The losses differ from step {differing[0]:,} on{most}."
    if largest > 0:
        return f"The losses differ by rounding only{most}."
    return "The losses are the same in every step, to the last digit."


def read_drift(folder):
    """[(step, drift)] of lab 03's drift.tsv."""
    file = folder / "drift.tsv"
    rows = [line.split("\t") for line in file.read_text().splitlines()] if file.is_file() else []
    return [(int(row[0]), float(row[1])) for row in rows if len(row) == 2]


def ticks(low, high):
    """About five round numbers in [low, high]."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def powers(low, high):
    """At most ten of the powers of ten in [low, high]."""
    exponents = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return [10.0**i for i in exponents[:: len(exponents) // 10 + 1]]


def chart(title, curves):
    """An SVG; `curves`: a list of (x, y) for each run. The first, of the right version, is drawn wide, so that it
    shows below another. Its y axis is logarithmic where the others leave its range by far."""
    curves = [[(x, y) for x, y in curve if math.isfinite(y)] for curve in curves]
    xs, ys = [x for curve in curves for x, _ in curve], [y for curve in curves for _, y in curve]
    if not xs:
        return f"<p>No {title}: no run came that far.</p>"
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)
    if x_high == x_low:
        x_low, x_high = x_low - 1, x_high + 1
    largest_right = max((y for _, y in curves[0]), default=y_high)
    logarithmic = y_high > 30 * largest_right > 0
    if logarithmic:
        y_low, y_high = max(y_low, largest_right / 1000), 1.5 * y_high
        y_ticks, height = powers(y_low, y_high), lambda y: math.log(max(y, y_low))
    else:
        margin = 0.05 * (y_high - y_low) or 0.05 * abs(y_high) or 1
        y_low, y_high = min(y_low, max(0, y_low - margin)), y_high + margin
        y_ticks, height = ticks(y_low, y_high), float

    def place(x, y):
        return (LEFT + (WIDTH - LEFT - 10) * (x - x_low) / (x_high - x_low),
                (HEIGHT - BOTTOM) * (height(y_high) - height(y)) / (height(y_high) - height(y_low)))

    svg = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">']
    for tick in y_ticks:
        y = place(x_low, tick)[1]
        svg.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in ticks(x_low, x_high):
        if tick == int(tick):
            svg.append(f'<text x="{place(tick, y_low)[0]:.1f}" y="{HEIGHT - BOTTOM + 20}" '
                       f'text-anchor="middle">{tick:g}</text>')
    svg.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 2}" text-anchor="middle">step</text>')
    for number, curve in enumerate(curves):
        places = [place(x, y) for x, y in curve]
        if len(places) == 1:  # a dot, which is a short line
            places.append((places[0][0] + 4, places[0][1]))
        if places:
            svg.append(f'<polyline class="run{number}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
    note = '<p class="soft">The vertical axis is logarithmic.</p>' if logarithmic else ""
    return "\n".join(svg) + "</svg>" + note


def table(rows):
    def line(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return ('<div class="wide"><table>' + line(rows[0], "th") + "".join(line(row, "td") for row in rows[1:])
            + "</table></div>")


def section(title, content):
    return f"<section><h2>{title}</h2>\n{content}</section>\n"


def timelines(runs):
    """Empty if no run has measured one. As images, so that their styles do not mix."""
    found = [(run, run.folder / "timeline.svg") for run in runs]
    if not any(file.is_file() for _, file in found):
        return ""
    parts = []
    for run, file in found:
        parts.append(f"<h3>{run.name}</h3>")
        if file.is_file():
            picture = file.read_bytes()
            size = re.search(rb'<svg[^>]* width="(\d+)', picture)
            width = LEAST_SCALE * int(size[1]) if size else 0
            parts.append(f'<div class="wide"><img style="min-width:{width:.0f}px" alt="timeline of the {run.name} version" '
                         f'src="data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"/></div>')
        else:
            parts.append("<p>none: it did not reach its last step</p>")
    return section("The last step, as measured", "\n".join(parts))


def difference(lines):
    kinds = {"-": "removed", "+": "added"}
    return "\n".join(f'<span class="{kinds.get(line[:1], "soft")}">{html.escape(line)}</span>' for line in lines)


def page(experiment, folder, options, runs, rows, change, test):
    """A whole HTML page that needs no other file. `rows`: loss_table(), or empty if nothing was trained. `change`: the
    lines of a diff, empty to keep them back, or None if they are not known."""
    number = folder.split("_")[0]
    title = f"Lab {number} · experiment {experiment.letter}"
    keys = "".join(f'<span class="key run{i}"></span>{run.name}' for i, run in enumerate(runs))
    losses = [[(record["step"], record["loss"]) for record in read_metrics(run.folder)] for run in runs]
    drifts = [read_drift(run.folder) for run in runs]
    parts = [f"<h1>{title}</h1>\n<p>{html.escape(experiment.what)}</p>\n"
             f'<p class="soft">Both versions with <code>{html.escape(options)}</code></p>\n']
    parts.append(section("The question", f"<p>{html.escape(experiment.predict)}</p>\n"
                         f"<p><b>Look at:</b> {html.escape(experiment.look)}</p>"))
    output = section("Output", "".join(
        f"<h3>{run.name}: {html.escape(run.ended)}</h3>\n<pre>{html.escape(chr(10).join(run.log))}</pre>\n"
        for run in runs))
    failed = not all(run.succeeded for run in runs)
    if failed:  # then the output is what there is to see
        parts.append(output)
    if rows:
        parts.append(section("Training loss", f"<p>{keys}</p>\n" + chart("training loss", losses) + table(rows)
                             + f"<p>{difference_in_words(runs)}</p>"))
    if any(drifts):
        parts.append(section("Drift", f"<p>{keys}</p>\n" + chart("drift", drifts)))
    parts.append(timelines(runs))
    if not failed:
        parts.append(output)
    if test:
        parts.append(section("The test", f"<p>./workbook test {number.lstrip('0')}: {html.escape(test)}</p>"))
    if change:
        shown = f"<pre>{difference(change.splitlines())}</pre>"
    else:
        shown = ("<p>Appears here once you have all points of the lab, because the lines around it "
                 "are the solution's.</p>")
    if change is not None:  # a copy without solutions cannot show it
        parts.append(section("The change", shown))
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n" + "".join(parts)
            + "</main>\n</body>\n</html>\n")

"""Small SVG drawings without dependencies: shapes, text and x-y plots on a white card."""

import math
from xml.sax.saxutils import escape

INK, MUTED, FAINT, PAPER = "#1f2933", "#5b6876", "#d5dbe1", "#ffffff"
BLUE, ORANGE, GREEN, RED = "#1d5fbf", "#c2410c", "#0f766e", "#b91c1c"
PALE_BLUE, PALE_ORANGE, PALE_GREEN, PALE_GREY = "#e8f0fb", "#fdeee3", "#e3f4f1", "#f1f4f7"
FONT = "Lato, 'Helvetica Neue', Arial, sans-serif"


class Figure:
    """Collects elements; coordinates are pixels from the upper left corner."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts = []

    def add(self, element):
        self.parts.append(element)

    def rect(self, x, y, w, h, fill=PAPER, stroke=INK, width=2, radius=8, dash=""):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius}" '
                 f'fill="{fill}" stroke="{stroke}" stroke-width="{width}"{dash}/>')

    def line(self, x1, y1, x2, y2, stroke=INK, width=2, arrow=False, dash=""):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{stroke}" '
                 f'stroke-width="{width}"{dash}/>')
        if arrow:
            self.arrow_head(x1, y1, x2, y2, stroke)

    def arrow_head(self, x1, y1, x2, y2, fill=INK, size=10):
        angle = math.atan2(y2 - y1, x2 - x1)
        corners = [(x2, y2)] + [(x2 - size * math.cos(angle + turn), y2 - size * math.sin(angle + turn))
                                for turn in (-0.4, 0.4)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self.add(f'<polygon points="{points}" fill="{fill}"/>')

    def path(self, points, stroke=BLUE, width=3, dash=""):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add(f'<polyline points="{steps}" fill="none" stroke="{stroke}" '
                 f'stroke-width="{width}" stroke-linejoin="round"{dash}/>')

    def dot(self, x, y, fill=ORANGE, radius=5):
        self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}"/>')

    def text(self, x, y, words, size=16, fill=INK, anchor="middle", weight="normal", style=""):
        style = f' font-style="{style}"' if style else ""
        self.add(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" '
                 f'text-anchor="{anchor}" font-weight="{weight}"{style}>{escape(words)}</text>')

    def save(self, path):
        body = "\n".join(self.parts)
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" font-family="{FONT}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n"
            f'<rect width="{self.width}" height="{self.height}" rx="12" fill="{PAPER}"/>\n'
            f"{body}\n</svg>\n", encoding="utf-8")


class Axes:
    """An x-y plot in a box of a figure; either axis may be logarithmic."""

    def __init__(self, figure, box, x_range, y_range, log_x=False, log_y=False):
        self.figure, self.box = figure, box
        self.x_range, self.y_range, self.log_x, self.log_y = x_range, y_range, log_x, log_y

    @staticmethod
    def _share(value, ends, log):
        low, high = (math.log(e) for e in ends) if log else ends
        return ((math.log(value) if log else value) - low) / (high - low)

    def at(self, x, y):
        left, top, w, h = self.box
        return (left + w * self._share(x, self.x_range, self.log_x),
                top + h * (1 - self._share(y, self.y_range, self.log_y)))

    def frame(self, x_ticks, y_ticks, x_label, y_label):
        left, top, w, h = self.box
        for tick in y_ticks:
            _, y = self.at(self.x_range[0], tick)
            self.figure.line(left, y, left + w, y, FAINT, 1)
            self.figure.text(left - 10, y + 5, f"{tick:g}", 15, MUTED, "end")
        for tick in x_ticks:
            x, _ = self.at(tick, self.y_range[0])
            self.figure.line(x, top + h, x, top + h + 6, MUTED, 1)
            self.figure.text(x, top + h + 24, f"{tick:g}", 15, MUTED)
        self.figure.line(left, top + h, left + w, top + h, MUTED, 1.5)
        self.figure.text(left + w / 2, top + h + 52, x_label, 17)
        self.figure.text(left - 40, top - 18, y_label, 17, INK, "start")

    def curve(self, points, stroke=BLUE, width=3, dash=""):
        self.figure.path([self.at(x, y) for x, y in points], stroke, width, dash)

    def dots(self, points, fill=ORANGE):
        for x, y in points:
            self.figure.dot(*self.at(x, y), fill)

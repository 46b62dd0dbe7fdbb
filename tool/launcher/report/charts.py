# SPDX-License-Identifier: BSD-3-Clause
"""Charts of a report: the data of a chart, thinned to what a screen can show, and a static drawing of it for readers without
JavaScript and for paper. Nothing here knows what the numbers mean."""
import math

from .html import text
from ..common.figures import byte_text, seconds_text, short

MOST_POINTS = 1500   # of a curve
WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 68, 12, 12, 30
LOG_RATIO = 100.0    # of the largest to the smallest value, from which positive values are drawn on a logarithmic scale
HUGE = 1e300         # values beyond it are drawn there
FORMATS = {"number": short, "bytes": byte_text, "seconds": seconds_text, "share": lambda v: f"{short(100 * v, 2)} %"}
COLOURS = 8          # --c0 to --c7 in page.css


class Chart:
    """`curves`: [(name, [(x, y or None)])], x ascending. `unit`: how values are shown, a key of FORMATS. `x_unit`: the same of x.
    `marks`: [(x, kind, text)], lines across the chart. `whole`: (first x, last x) of the axis. `from_zero`: the axis of y begins
    at 0."""

    def __init__(self, title, curves, unit="number", x_unit="seconds", marks=(), whole=None, from_zero=True, note=""):
        self.title, self.unit, self.x_unit, self.marks, self.note = title, unit, x_unit, list(marks), note
        self.curves = [(name, thinned(points)) for name, points in curves if any(y is not None for _, y in points)]
        ys = [y for _, points in self.curves for _, y in points if y is not None]
        xs = [x for _, points in self.curves for x, _ in points]
        self.x = whole or ((min(xs), max(xs)) if xs else (0.0, 1.0))
        if self.x[0] == self.x[1]:
            self.x = (self.x[0], self.x[0] + 1.0)
        self.log = not from_zero and bool(ys) and min(ys) > 0 and max(ys) > LOG_RATIO * min(ys)
        self.y = y_range(ys, self.log, from_zero)

    def __bool__(self):
        return bool(self.curves)

    def data(self):
        """For page.js: {"title","unit","xUnit","log","x","y","names","data":[xs, ys, ...],"marks"}"""
        xs = sorted({x for _, points in self.curves for x, _ in points})
        place = {x: i for i, x in enumerate(xs)}
        columns = [xs]
        for _, points in self.curves:
            column = [None] * len(xs)
            for x, y in points:
                column[place[x]] = y
            columns.append(column)
        return {"title": self.title, "unit": self.unit, "xUnit": self.x_unit, "log": self.log, "x": self.x, "y": self.y,
                "names": [name for name, _ in self.curves], "data": [[rounded(v) for v in c] for c in columns],
                "span": len(self.curves) > 1, "marks": [[rounded(x), kind, said] for x, kind, said in self.marks]}

    def at_x(self, x):
        return LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def at_y(self, y):
        low, high = self.y
        part = (math.log(y) - math.log(low)) / (math.log(high) - math.log(low)) if self.log else (y - low) / (high - low)
        part = min(1.1, max(-0.1, part))
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def svg(self):
        show, show_x = FORMATS[self.unit], FORMATS[self.x_unit]
        parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(self.title)}">']
        for y in log_ticks(*self.y) if self.log else ticks(*self.y, 5):
            at = self.at_y(y)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                         f'<text class="y" x="{LEFT - 6}" y="{at + 4:.1f}">{text(show(y))}</text>')
        for x in ticks(*self.x, 6):
            parts.append(f'<text class="x" x="{self.at_x(x):.1f}" y="{HEIGHT - 8}">{text(show_x(x))}</text>')
        for x, kind, said in self.marks:
            if self.x[0] <= x <= self.x[1]:
                at = self.at_x(x)
                parts.append(f'<line class="mark {text(kind)}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">'
                             f'<title>{text(said)}</title></line>')
        for i, (_, points) in enumerate(self.curves):
            parts += self.curve(f"c{i % COLOURS}", points)
        return "".join(parts) + "</svg>"

    def curve(self, colour, points):
        pieces, piece = [], []
        for x, y in points + [(0, None)]:
            if y is not None:
                piece.append((self.at_x(x), self.at_y(y)))
            elif piece:
                pieces.append(piece)
                piece = []
        for piece in pieces:
            if len(piece) == 1:
                yield f'<circle class="{colour}" cx="{piece[0][0]:.1f}" cy="{piece[0][1]:.1f}" r="2.5"/>'
            else:
                yield f'<polyline class="{colour}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in piece)}"/>'


def rounded(value):
    """Six digits, as many as a screen can show."""
    return None if value is None else float(f"{value:.6g}")


def thinned(points, most=MOST_POINTS):
    """At most about `most` points: the extremes of each piece of the curve, so that no peak is lost. A gap stays."""
    if len(points) <= most:
        return points
    size = -(-len(points) // (most // 3))
    kept = []
    for begin in range(0, len(points), size):
        piece = range(begin, min(begin + size, len(points)))
        real = [i for i in piece if points[i][1] is not None]
        chosen = {piece[0], piece[-1], next((i for i in piece if points[i][1] is None), piece[0])}
        if real:
            chosen |= {min(real, key=lambda i: points[i][1]), max(real, key=lambda i: points[i][1])}
        kept += [points[i] for i in sorted(chosen)]
    return kept


def y_range(ys, log, from_zero):
    if not ys:
        return (0.0, 1.0)
    low, high = max(min(ys), -HUGE), min(max(ys), HUGE)
    if log:
        return (low / 1.2 or low, high * 1.2)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        room = abs(low) * 0.1 or 1.0
        return (low if low == 0 else low - room, high + room)
    room = (high - low) * 0.06
    return (low if low == 0 and from_zero else low - room, high if high == 0 and from_zero else high + room)


def ticks(low, high, about):
    """About that many round numbers between the two."""
    if not math.isfinite(high - low) or high <= low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    step = next(step * f for f in (1, 2, 5, 10, 20) if (high - low) / (step * f) <= about)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, first + 2 * about + 2) if i * step <= high + step * 1e-9]


def log_ticks(low, high):
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    every = max(1, len(powers) // 5)
    return [10.0 ** p for p in powers][::every] or [low, high]


def summarised(curves, most=COLOURS, pieces=150):
    """More curves than colours as three: the least, the median and the greatest of their values in each piece of the axis."""
    if len(curves) <= most:
        return curves
    points = [point for _, points in curves for point in points if point[1] is not None]
    if not points:
        return []
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    width = (last - first) / pieces or 1.0
    at = {}
    for x, y in points:
        at.setdefault(int((x - first) / width), []).append(y)
    rows = [(first + (piece + 0.5) * width, sorted(ys)) for piece, ys in sorted(at.items())]
    return [(f"greatest of {len(curves):,}", [(x, ys[-1]) for x, ys in rows]),
            ("median", [(x, ys[len(ys) // 2]) for x, ys in rows]),
            ("least", [(x, ys[0]) for x, ys in rows])]

# SPDX-License-Identifier: BSD-3-Clause
"""The plot of a sweep: a panel for each key, with the objective of each point over its value there. The best point is filled."""
import html
import json
import math

WIDTH, HEIGHT, LEFT, BELOW, ABOVE, GAP = 360, 260, 70, 44, 34, 24  # of a panel and its margins, in pixels
MOST_COLUMNS = 3
TICKS = 5
LONGEST_LABEL = 14


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def label(value):
    text = f"{value:.3g}" if is_number(value) else value if isinstance(value, str) else json.dumps(value)
    return html.escape(text if len(text) <= LONGEST_LABEL else text[:LONGEST_LABEL - 1] + "\u2026")


class Axis:
    """Where values are between 0 and 1, and where its ticks are: numbers on a scale, anything else side by side."""

    def __init__(self, values, logarithmic):
        distinct = list(dict.fromkeys(json.dumps(v) for v in values))
        self.words = None if values and all(map(is_number, values)) and len(distinct) > 1 else distinct
        if self.words is not None:
            return
        self.scale = math.log10 if logarithmic and min(values) > 0 else float
        low, high = self.scale(min(values)), self.scale(max(values))
        pad = 0.05 * (high - low) or 0.5
        self.low, self.high = low - pad, high + pad

    def __call__(self, value):
        if self.words is not None:
            return (self.words.index(json.dumps(value)) + 0.5) / len(self.words)
        return (self.scale(value) - self.low) / (self.high - self.low)

    def ticks(self):
        """[(place, label)]"""
        if self.words is not None:
            step = max(1, -(-len(self.words) // 8))
            return [((i + 0.5) / len(self.words), label(json.loads(w))) for i, w in enumerate(self.words) if i % step == 0]
        return [(self(value), label(value)) for value in self.round_values()]

    def round_values(self):
        """Some round numbers between the ends."""
        if self.scale is math.log10:
            low, high = math.ceil(self.low), math.floor(self.high)
            if high - low >= 1:
                return [10.0 ** power for power in range(low, high + 1, -(-(high - low + 1) // TICKS))]
            inside = [digit * 10.0 ** power for power in range(low - 1, high + 2) for digit in (1, 2, 3, 5, 7)]
            inside = [value for value in inside if self.low <= math.log10(value) <= self.high]
            return inside or [10 ** ((self.low + self.high) / 2)]
        rough = (self.high - self.low) / (TICKS - 1)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first = math.ceil(self.low / step)
        return [at * step for at in range(first, math.floor(self.high / step) + 1)]


def spread(values):
    """Whether a logarithmic scale shows more: positive numbers over more than two powers of ten."""
    return bool(values) and all(map(is_number, values)) and min(values) > 0 and max(values) / min(values) > 100


def panel(key, rows, title, best, logarithmic):
    across = Axis([row["settings"][key] for row in rows], logarithmic or spread([row["settings"][key] for row in rows]))
    heights = [row["objective"] for row in rows]
    up = Axis(heights, spread(heights))
    wide, high = WIDTH - LEFT - GAP, HEIGHT - BELOW - ABOVE
    parts = [f'<rect x="{LEFT}" y="{ABOVE}" width="{wide}" height="{high}" fill="none" stroke="#888"/>',
             f'<text x="{LEFT + wide / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle" font-weight="bold">{label(key)}</text>',
             f'<text x="{LEFT}" y="{ABOVE - 10}">{label(title)}</text>']
    for place, text in across.ticks():
        x = LEFT + place * wide
        parts.append(f'<path d="M{x:.1f} {ABOVE + high}v4" stroke="#888"/><text x="{x:.1f}" y="{ABOVE + high + 17}" '
                     f'text-anchor="middle">{text}</text>')
    for place, text in up.ticks():
        y = ABOVE + (1 - place) * high
        parts.append(f'<path d="M{LEFT - 4} {y:.1f}h4" stroke="#888"/><text x="{LEFT - 7}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{text}</text>')
    for row in reversed(rows):  # the best one on top
        x, y = LEFT + across(row["settings"][key]) * wide, ABOVE + (1 - up(row["objective"])) * high
        words = html.escape(" ".join(f"{k}={json.dumps(v)}" for k, v in row["settings"].items()))
        style = 'r="6" fill="#c33"' if row is best else 'r="4" fill="none" stroke="#36c" stroke-width="1.5"'
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" {style}><title>{words}: {row["objective"]:.6g}</title></circle>')
    return "".join(parts)


def plot(keys, rows, title, maximize=False, logarithmic=()):
    """SVG. `rows`: as sweep.py sorts them, the best first. `logarithmic`: keys with such a scale."""
    good = [row for row in rows if row["objective"] is not None]
    columns = min(len(keys), MOST_COLUMNS)
    lines = -(-len(keys) // columns)
    words = f"{len(rows)} points, {len(rows) - len(good)} failed"
    if good:
        words += f"; the {'largest' if maximize else 'smallest'} {title} is {good[0]['objective']:.6g}"
    body = []
    for at, key in enumerate(keys if good else ()):
        x, y = at % columns * WIDTH, at // columns * HEIGHT + 24
        body.append(f'<g transform="translate({x} {y})">{panel(key, good, title, good[0], key in logarithmic)}</g>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" height="{lines * HEIGHT + 24}" '
            'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
            f'<text x="10" y="18">{html.escape(words)}</text>{"".join(body)}</svg>\n')

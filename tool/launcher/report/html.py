# SPDX-License-Identifier: BSD-3-Clause
"""Pieces of HTML. Everything that a user, a program or a file has written goes through `text` or `json_for_script`."""
import json
import os
from html import escape

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_PRINTED = 20000  # characters of a config or a log in a page


def text(value):
    """Any value as text of the page. Control characters and those that change the direction of writing are shown by number."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in str(value))
    return escape(shown, quote=True)


def json_for_script(value):
    """JSON that may stand in a script element: no `</script>` or `<!--` can end it."""
    return json.dumps(value, allow_nan=False).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def file_text(*names):
    with open(os.path.join(HERE, *names), encoding="utf-8") as file:
        return file.read()


def table(head, rows, texts=()):
    """`texts`: numbers of columns with words, which may be broken."""
    def row(cells, tag):
        return "<tr>" + "".join(f'<{tag}{" class=text" if i in texts else ""}>{text(c)}</{tag}>'
                                for i, c in enumerate(cells)) + "</tr>"
    top = f'<thead>{row(head, "th")}</thead>' if any(head) else ""
    return (f"<div class=scroll><table>{top}<tbody>" + "".join(row(r, "td") for r in rows)
            + "</tbody></table></div>")


def facts(pairs):
    return "<dl class=facts>" + "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>"
                                        for k, v in pairs if v is not None) + "</dl>"


def bars(parts_of, numbers, names):
    """Rows of stacked bars. `parts_of`: [(label, [amounts])]; `numbers`: what to write at the end of each; `names`: of the parts,
    with the numbers of their colours."""
    key = "".join(f'<li><i class=k{c}></i>{text(name)}</li>' for name, c in names)
    rows, longest = [], max((sum(amounts) for _, amounts in parts_of), default=0) or 1
    for (label, amounts), number in zip(parts_of, numbers):
        pieces = "".join(f'<i class=k{c} style="width:{100 * amount / longest:.3f}%" title="{text(name)}"></i>'
                         for amount, (name, c) in zip(amounts, names) if amount > 0)
        rows.append(f"<span>{text(label)}</span><span class=bar>{pieces}</span><span class=number>{text(number)}</span>")
    return f'<ul class=key>{key}</ul><div class=bars>{"".join(rows)}</div>'


def preformatted(what):
    what = str(what)
    rest = f"\n... {len(what) - MOST_PRINTED:,} more characters" if len(what) > MOST_PRINTED else ""
    return f"<pre>{text(what[:MOST_PRINTED] + rest)}</pre>"


class Page:
    """Collects the parts of a page and its charts."""

    def __init__(self, title):
        self.title, self.parts, self.charts = title, [], []

    def add(self, *html):
        self.parts += html

    def section(self, title, *html):
        html = [part for part in html if part]
        if html:
            self.add(f"<h2>{text(title)}</h2>", *html)

    def figure(self, chart, wide=False):
        """The HTML of a chart; empty if there is nothing to draw."""
        if not chart:
            return ""
        self.charts.append(chart)
        names = [name for name, _ in chart.curves]
        key = "" if len(names) < 2 else "<ul class=key>" + "".join(
            f"<li><i class=k{i % 8}></i>{text(name)}</li>" for i, name in enumerate(names)) + "</ul>"
        scale = " (logarithmic scale)" if chart.log else ""
        note = f"<figcaption>{text(chart.note)}</figcaption>" if chart.note else ""
        return (f'<figure{" class=wide" if wide else ""} data-chart={len(self.charts) - 1}><h3>{text(chart.title + scale)}</h3>'
                f"<div class=drawing>{key}{chart.svg()}</div>{note}</figure>")

    def html(self):
        script = ""
        if self.charts:
            data = json_for_script([chart.data() for chart in self.charts])
            library = file_text("uplot", "uPlot.iife.min.js").replace("</", "<\\/")
            script = (f'<script type="application/json" id="charts">{data}</script>\n<script>{library}</script>\n'
                      f'<script>{file_text("page.js")}</script>\n')
        licence = file_text("uplot", "LICENSE").replace("-->", "")
        return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                f"<title>{text(self.title)}</title>\n<link rel=icon href=\"data:,\">\n"
                f'<style>{file_text("uplot", "uPlot.min.css")}</style>\n<style>{file_text("page.css")}</style>\n</head>\n<body>\n'
                f"<main>\n" + "\n".join(self.parts) + f"\n</main>\n<!-- Curves: uPlot. {licence} -->\n{script}</body>\n</html>\n")

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Batch size and delay: the time, the iterations and the rows that late workers (bench_straggler) need until the objective of a
logistic regression is reached, for each batch size and staleness. Prints the tables of doc/batch_and_delay.md; --svg writes a
plot."""
import argparse
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import running  # noqa: E402

BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
ROW_MS = 0.032  # the work of a row; one iteration in ten takes five times as long
COLOURS = ("#1b6ca8", "#c0392b", "#27864b", "#8e44ad", "#b9770e", "#444444")


def measure(options, batch, staleness):
    """Medians of the runs: seconds (None: not reached), iterations of worker 0, iterations a second."""
    command = [running.built(BUILD, "bench_straggler"), "--batch", str(batch), "--objective", str(options.objective),
               "--alpha", str(options.alpha), "--workers", str(options.workers), "--seconds", str(options.limit)]
    command += ["--late_ms", f"{4 * ROW_MS * batch:g}", "--row_ms", f"{ROW_MS:g}"]
    command += ["--consistency", "asp"] if staleness == "asp" else ["--staleness", staleness]
    runs = []
    for run in range(options.runs):
        runs.append(running.figures_of(command + ["--seed", str(run + 1)]))
    reached = [r for r in runs if r["objective_seconds"] is not None]
    if len(reached) <= len(runs) // 2:
        return None, None, statistics.median(r["iterations_per_second"] for r in runs)
    return (statistics.median(r["objective_seconds"] for r in reached),
            statistics.median(r["objective_iterations"] for r in reached),
            statistics.median(r["iterations_per_second"] for r in runs))


def table(title, options, cell):
    print(f"{title}\n\n| rows a step | " + " | ".join("asp" if s == "asp" else f"s = {s}" for s in options.staleness) + " |")
    print("|---" * (len(options.staleness) + 1) + "|")
    for batch in options.batch:
        print(f"| {batch} | " + " | ".join(cell(batch, s) for s in options.staleness) + " |")
    print()


def svg(options, results):
    """Seconds by staleness, a line for each batch size; both axes are linear in their index or value."""
    width, height, left, bottom = 640, 360, 56, 44
    known = [r[0] for r in results.values() if r[0] is not None]
    top = max(known) * 1.08
    step = (width - left - 120) / max(1, len(options.staleness) - 1)

    def at(i, seconds):
        return f"{left + i * step:.1f},{height - bottom - seconds / top * (height - bottom - 16):.1f}"

    def label(x, y, text, anchor="middle", colour="#333"):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           f'<path d="M{left},16 V{height - bottom} H{width - 100}" fill="none" stroke="#333"/>']
    for i, s in enumerate(options.staleness):
        out.append(label(left + i * step, height - bottom + 18, "asp" if s == "asp" else s))
    out.append(label((width - 100 + left) / 2, height - 8, "staleness"))
    for part in (0, 0.25, 0.5, 0.75, 1):
        x, y = at(0, part * top).split(",")
        out.append(label(float(x) - 6, float(y) + 4, f"{part * top:.1f}", "end"))
    out.append(label(12, 12, "seconds to the objective", "start"))
    for batch, colour in zip(options.batch, COLOURS):
        points = [(i, results[batch, s][0]) for i, s in enumerate(options.staleness) if results[batch, s][0] is not None]
        if not points:
            continue
        out.append(f'<polyline points="{" ".join(at(i, v) for i, v in points)}" fill="none" stroke="{colour}" '
                   'stroke-width="2"/>')
        x, y = at(*points[-1]).split(",")
        out.append(label(float(x) + 8, float(y) + 4, f"{batch} rows", "start", colour))
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", nargs="+", type=int, default=[4, 13, 104, 312], help="rows per step of a worker")
    parser.add_argument("--staleness", nargs="+", default=["0", "4", "16", "asp"])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--objective", type=float, default=0.45)
    parser.add_argument("--alpha", type=float, default=0.2)
    parser.add_argument("--limit", type=float, default=6, help="maximum seconds of a run")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--svg", metavar="FILE")
    options = parser.parse_args()
    results = {}
    for b in options.batch:
        for s in options.staleness:
            results[b, s] = measure(options, b, s)
            print(b, s, results[b, s], file=sys.stderr, flush=True)

    def of(index, form):
        return lambda b, s: "-" if results[b, s][index] is None else form.format(results[b, s][index])
    table("Seconds until the objective is reached:", options, of(0, "{:.2f}"))
    table("Rows that a worker has read until then (iterations of worker 0 times the batch):", options,
          lambda b, s: "-" if results[b, s][1] is None else f"{results[b, s][1] * b:.0f}")
    table("Iterations of worker 0 until then:", options, of(1, "{:.0f}"))
    table("Iterations a second of a worker:", options, of(2, "{:.1f}"))
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(svg(options, results))


if __name__ == "__main__":
    running.run(main)

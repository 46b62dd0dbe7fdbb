#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a run has recorded, as numbers, words and curves, without a job: from files with any content."""
import json
import math
import os
import re
import shutil
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in (os.path.join(SOURCE, "tool"), os.path.join(SOURCE, "test", "process")):
    sys.path.insert(0, folder)

from launcher.common.figures import byte_text, seconds_text, share_list, short  # noqa: E402
from launcher.report.charts import MOST_POINTS, Chart, summarised, thinned, ticks  # noqa: E402
from launcher.report.compare import compare_page, compare_text  # noqa: E402
from launcher.report.html import json_for_script, text  # noqa: E402
from launcher.report.page import report_page  # noqa: E402
from launcher.report.run_record import RunRecord  # noqa: E402
from launcher.report.summary import summary_lines  # noqa: E402
from launcher.report.top import sparkline  # noqa: E402
from made_runs import EVIL, descent, job_events, usage, write_run  # noqa: E402


class Numbers(unittest.TestCase):
    def test_numbers_have_four_digits(self):
        for value, want in ((0, "0"), (0.21838019, "0.2184"), (2500, "2,500"), (123456.7, "123,457"), (1.23456e-9, "1.235e-9"),
                            (-0.5, "-0.5"), (12345678.9, "1.235e7"), (1e300, "1e300"), (None, "–"), (math.nan, "not a number"),
                            (math.inf, "infinite"), (9999.5, "10,000"), (1e6, "1,000,000")):
            self.assertEqual(short(value), want)
        self.assertEqual([byte_text(v) for v in (0, 999, 1000, 3045126, 5e12)], ["0 B", "999 B", "1 kB", "3.05 MB", "5 TB"])
        self.assertEqual([seconds_text(v) for v in (0, 0.0123, 1.5, 99.9, 100, 3725)],
                         ["0 s", "12.3 ms", "1.5 s", "99.9 s", "1 min 40 s", "1 h 02 min"])
        self.assertEqual(share_list([("a", 1), ("b", 3), ("c", 0.001)]), "75 % b, 25 % a")

    def test_ticks_are_round_numbers_inside_the_axis(self):
        for low, high in ((0, 1), (0, 0.0007), (-3, 12345), (99.999, 100.001), (0, 1e12)):
            found = ticks(low, high, 5)
            self.assertTrue(2 <= len(found) <= 8, (low, high, found))
            self.assertTrue(all(low - 1e-9 * abs(high) <= t <= high + 1e-9 * abs(high) for t in found), found)

    def test_a_sparkline_fits_and_shows_the_range(self):
        self.assertEqual(sparkline([0, 1, 2, 3], 4, "abcd"), "abcd")
        self.assertEqual(sparkline([5, 5, 5], 10, "ab"), "aaa")
        self.assertLessEqual(len(sparkline(list(range(1000)), 30)), 30)
        self.assertEqual(sparkline([], 30), "")


class Curves(unittest.TestCase):
    def test_a_thinned_curve_keeps_its_peaks_its_gaps_and_its_ends(self):
        points = [(float(i), math.sin(i / 1000)) for i in range(100000)]
        points[54321] = (54321.0, 1e6)
        points[70000] = (70000.0, None)
        kept = thinned(points)
        self.assertLess(len(kept), 2 * MOST_POINTS)
        for i in (0, 54321, 70000, 99999):
            self.assertIn(points[i], kept)
        self.assertEqual(kept, sorted(kept, key=lambda p: p[0]))
        self.assertEqual(thinned(points[:10]), points[:10])

    def test_values_over_many_powers_of_ten_are_drawn_on_a_logarithmic_scale(self):
        self.assertTrue(Chart("x", [("x", [(1, 1e-6), (2, 10.0)])], from_zero=False).log)
        self.assertFalse(Chart("x", [("x", [(1, 0.0), (2, 10.0)])], from_zero=False).log)
        self.assertFalse(Chart("x", [("x", [(1, 5.0), (2, 10.0)])], from_zero=False).log)
        self.assertFalse(Chart("x", [("x", [(1, None)])]), "nothing to draw")

    def test_odd_curves_are_drawn(self):
        for points in ([(0, 1.0)], [(0, 1.0), (0, 2.0)], [(5, -1e-300), (6, 1e-300)], [(0, 1e308), (1, -1e308)],
                       [(0, 3.0), (1, 3.0)], [(0, None), (1, 2.0), (2, None)]):
            chart = Chart("x", [("x", points)], from_zero=False)
            self.assertRegex(chart.svg(), "<(polyline|circle)")
            self.assertNotIn("nan", chart.svg())
            json.dumps(chart.data(), allow_nan=False)

    def test_more_curves_than_colours_become_three(self):
        curves = [(f"worker {i}", [(t + 0.01 * i, float(i)) for t in range(50)]) for i in range(100)]
        found = summarised(curves)
        self.assertEqual([name for name, _ in found], ["greatest of 100", "median", "least"])
        self.assertEqual(max(y for _, y in found[0][1]), 99.0)
        self.assertEqual(min(y for _, y in found[2][1]), 0.0)
        self.assertEqual(summarised(curves[:8]), curves[:8])


class Escaping(unittest.TestCase):
    def test_text_and_json_cannot_end_their_place(self):
        self.assertNotIn("<", text(EVIL))
        self.assertNotIn("\u202e", text(EVIL))
        shown = json_for_script([EVIL])
        self.assertNotIn("<", shown)
        self.assertEqual(json.loads(shown), [EVIL])


class Records(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="paracel-report-")
        self.addCleanup(shutil.rmtree, self.folder, True)

    def record(self, *arguments, **more):
        return RunRecord(write_run(self.folder, *arguments, **more))

    def page(self, record):
        html = report_page(record)
        found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.DOTALL)
        charts = json.loads(found[1], parse_constant=self.fail) if found else []
        self.assertEqual(html.count("<figure"), len(charts))
        return html, charts

    def test_a_run_in_three_lines(self):
        record = self.record(job_events(10.5), descent(100, 9.0), log="accuracy 0.93125\noutput result\n")
        lines = summary_lines(record)
        self.assertEqual(lines[0], "lr: 2,500 rows, 100 features, 3.05 MB; 2 workers, 1 server; 100 rounds")
        self.assertEqual(
            lines[1],
            "result: objective 0.06364, at first 0.6364, still falling, by 9.1 % in the last 10 rounds; accuracy 0.9313")
        self.assertRegex(lines[2], r"^time: 10\.5 s, of which 86 % rounds, 13 % ending, 1 % starting; the workers: \d+ % ")
        self.assertEqual(len(lines), 3)
        self.assertAlmostEqual(sum(s for _, s in record.phases()), 10.5)
        for _, shares in record.worker_shares():
            self.assertAlmostEqual(sum(shares.values()), record.of("worker")[0].samples[-1][1]["seconds"], places=6)

    def test_a_page_has_curves_of_everything(self):
        html, charts = self.page(self.record(job_events(10.5) + [], descent(100, 9.0)))
        self.assertEqual([c["title"] for c in charts], [
            "objective", "gradient_norm", "Computing, as a share of the time", "Staleness: rounds ahead of the slowest worker",
            "Rounds per second", "Bytes per second, sent and received", "Messages per second", "Requests per second",
            "Bytes per second, in and out", "Memory of the processes", "Processors used"])
        rates = charts[4]["data"]
        self.assertTrue(all(abs(v - 10) < 2 for v in rates[1][1:] if v is not None), rates)
        self.assertNotIn("http://", re.sub(r'"http://www\.w3\.org/[^"]*"', "", html))
        self.assertIn("The MIT License", html)
        self.assertIn("Load of the shards", html)
        self.assertIn("Hot partitions", html)

    def test_what_users_write_is_shown_and_not_run(self):
        events = [dict(e) for e in job_events(5.5, status=10, cause=f"worker 1 (pid 3 on {EVIL}) lost: {EVIL}")]
        events[0]["host"] = EVIL
        events[-2]["workers"][0]["usage"]["cpu"] = EVIL
        events.insert(3, {"t": 0.3, "event": "warning", "text": EVIL})
        events.insert(3, {"t": 0.3, "event": "loaded", "what": {"names": [EVIL], "rows": EVIL, "features": None, "bytes": [1]}})
        record = self.record(events, [{"round": 1, EVIL: 0.5, "seconds": 1}, {"round": 2, EVIL: 0.25, "seconds": 2}], log=EVIL,
                             config=EVIL, program=EVIL, job=EVIL, host=EVIL, command=[EVIL], output=EVIL, config_file=EVIL)
        html, charts = self.page(record)
        self.assertEqual(charts[0]["title"], EVIL)
        self.assertEqual(html.count("</script>"), 3, "one ends the data, one uPlot, one page.js")
        for word in ("<img", "<script>window"):
            self.assertFalse(word in html, word)
        self.assertFalse("\u202e" in re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL))

    def test_runs_without_much_in_them(self):
        failed = {"t": 0.4, "event": "end", "status": 12, "cause": "the job did not start within 60 s: worker 1 did not join"}
        short_one = [{"t": 0.1, "event": "started"}, {"t": 0.2, "event": "end", "status": 0, "cause": ""}]
        for name, events, metrics in (
                ("nothing", [], []), ("failed at the start", [failed], []), ("no metrics", job_events(5.5), []),
                ("one sample", job_events(2.5, every=2.0), descent(1, 0.1)), ("no samples", short_one, descent(3, 0.05))):
            with self.subTest(name):
                record = self.record(events, metrics)
                html, _ = self.page(record)
                lines = summary_lines(record)
                self.assertTrue(1 <= len(lines) <= 3, lines)
                self.assertIn(text(lines[0]), html)
                self.assertNotIn("nan", " ".join(lines).lower())
        html, _ = self.page(self.record([failed]))
        self.assertIn("worker 1 did not join", html)
        self.assertIn("exit status 12 (timeout)", html)

    def test_files_with_anything_in_them(self):
        with open(os.path.join(self.folder, "timeline.jsonl"), "wb") as file:
            file.write(b'{"t": 1, "event": "started"}\nnot JSON\n[1]\n{"t": null, "event": "end"}\n{"t": 2, "event": 7}\n'
                       b'{"t": 3, "event": "sample", "workers": [3, {"index": "x"}, {"index": 0, "usage": 5}], "servers": 7}\n'
                       b'{"t": 4, "event": "usage", "role": "worker", "index": 0, "usage": {"seconds": "long", "cpu": {}}}\n'
                       b'{"t": 4, "event": "progress", "round": [], "metric": {}}\n{"t": 4, "event": "checkpoint"}\n'
                       b'{"t": 5, "event": "lost"}\n\xff\xfe\n' + b"[" * 100000 + b'\n{"t": 6, "event": "end", "status": 0')
        with open(os.path.join(self.folder, "run_metrics.jsonl"), "wb") as file:
            file.write(b'{"round": 1, "loss": 1, "seconds": 0.1}\n{"round": 2, "loss": NaN, "seconds": "x"}\n'
                       b'{"round": "a", "loss": Infinity}\n{"loss": 1e999}\n{}\n7\n{"round": 5, "loss": true, "seconds": 1e308}\n'
                       b'{"round": 1' + b"0" * 5000 + b', "loss": 1}\n')
        record = RunRecord(self.folder)
        html, _ = self.page(record)
        self.assertIn("its launcher was killed", html)
        summary_lines(record)

    def test_metrics_that_are_no_numbers_are_gaps_and_are_named(self):
        lines = descent(20, 2.0)
        lines[6]["objective"] = None
        lines[9] = '{"round": 10, "objective": NaN, "seconds": 1.0}'
        record = self.record(job_events(5.5), lines)
        self.assertIn("objective was not a finite number in 2 rounds, first in round 7", summary_lines(record)[1])
        html, charts = self.page(record)
        self.assertIn("2 values were not a finite number, first in round 7.", html)
        self.assertEqual(charts[0]["data"][1].count(None), 2)

    def test_a_hundred_thousand_rounds(self):
        lines = [json.dumps(line) for line in descent(100000, 50.0)]
        html, charts = self.page(self.record(job_events(60.5), lines))
        self.assertLess(len(html), 1_500_000)
        self.assertLess(len(charts[0]["data"][0]), 2 * MOST_POINTS)
        self.assertIn("100,000", html)

    def test_rounds_that_begin_again_go_on_in_time(self):
        lines = descent(10, 2.0) + descent(10, 2.0)  # another stage, whose seconds begin at 0 too
        record = self.record(job_events(5.5), lines)
        seconds = record.main().seconds
        self.assertEqual(seconds, sorted(seconds))
        self.assertTrue(record.has_stages())
        self.assertEqual(record.round_count()[0], 20)

    def test_a_clock_that_is_set_does_not_matter(self):
        """Times of the timeline are of a steady clock; if they go back all the same, the last one counts."""
        events = job_events(8.5)
        events[-3]["t"] = -1e9
        events[-2]["t"] = 1.0
        record = self.record(events, descent(10, 2.0), wall=-5)
        self.page(record)
        self.assertEqual(record.took(), 8.5)
        self.record(events, descent(10, 2.0), wall=1e300)  # no such date
        self.page(RunRecord(self.folder))

    def test_a_worker_that_is_replaced_counts_from_zero_again(self):
        events = job_events(8.5)
        for e in events:
            if e["event"] == "sample" and e["t"] > 4:
                e["workers"][1]["usage"] = usage(e["t"] - 4.0)
        record = self.record(events, descent(10, 2.0))
        times = [t for t, _ in record.of("worker")[1].samples]
        self.assertEqual(times, sorted(times))
        self.assertTrue(all(v >= 0 for _, v in record.of("worker")[1].rate("sent_bytes")))
        self.page(record)

    def test_a_thousand_workers(self):
        html, charts = self.page(self.record(job_events(6.5, workers=1000, servers=20), descent(50, 5.0)))
        self.assertTrue(all(len(c["names"]) <= 8 for c in charts))
        self.assertIn("936 more are not shown", html)
        self.assertLess(len(html), 400_000)

    def test_runs_are_compared(self):
        records = []
        for name, seconds, rounds, config in (("a", 10.5, 100, '{"alpha": 1, "same": [1, 2]}'),
                                              ("b", 5.5, 50, '{"alpha": 2, "same": [1, 2], "more": {"x": "<b>"}}')):
            folder = os.path.join(self.folder, name)
            records.append(RunRecord(write_run(folder, job_events(seconds), descent(rounds, seconds - 1), config=config)))
        said = compare_text(records)
        self.assertRegex(said, r"(?m)^rounds +100 +50$")
        self.assertRegex(said, r"(?m)^objective, last +0\.06364 +0\.1167$")
        self.assertRegex(said, r"(?m)^config: alpha +1 +2$")
        self.assertRegex(said, r"(?m)^config: more\.x +– +\"<b>\"$")
        self.assertNotIn("same", said)
        html = compare_page(records)
        self.assertIn("objective by round", html)
        self.assertNotIn("<b>", html)
        changed = RunRecord(write_run(os.path.join(self.folder, "d"), job_events(10.5), config='{"alpha": 1, "a": {"b": 2}}',
                                      set=["alpha=3", "a.b=[4]", "name=x y", "odd"]))
        said = compare_text([records[0], changed])
        for words in (r"alpha +1 +3", r"a\.b +– +\[4\]", r"name +– +\"x y\""):
            self.assertRegex(said, rf"(?m)^config: {words}$")
        self.assertIn("alpha=3  a.b=[4]  name=x y", report_page(changed))
        empty = RunRecord(write_run(os.path.join(self.folder, "c"), []))
        self.assertIn("no metric in common", compare_page([records[0], empty]))
        compare_text([empty, empty])


if __name__ == "__main__":
    unittest.main()

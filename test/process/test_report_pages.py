#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reports and comparisons in headless Chromium, on a desktop and a phone, light and dark, without JavaScript, and on paper: no
errors, nothing wider than the window, and curves that are drawn. With PARACEL_PICTURES=FOLDER the pictures are left there to be
looked at."""
import os
import sys
import tempfile
import unittest

from browser import CHROMIUM, WHY_NOT, Browser
from made_runs import EVIL, descent, job_events, write_run
from process_support import BIN, SOURCE, JobTest, main

sys.path.insert(0, os.path.join(SOURCE, "tool"))
from launcher.report.compare import compare_page  # noqa: E402
from launcher.report.page import report_page  # noqa: E402
from launcher.report.run_record import RunRecord  # noqa: E402

PICTURES = os.environ.get("PARACEL_PICTURES")
# Points of a canvas that have the colour of a curve: saturated, unlike the axes.
DRAWN = """[...document.querySelectorAll("figure canvas")].map((c) => {
  const p = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  let n = 0;
  for (let i = 0; i < p.length; i += 4)
    if (p[i + 3] > 200 && Math.max(p[i], p[i + 1], p[i + 2]) - Math.min(p[i], p[i + 1], p[i + 2]) > 60) ++n;
  return n;
})"""
# Words that stick out of the window, except in what scrolls by itself.
OUTSIDE = """[...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, pre, .drawing") &&
  e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""


@unittest.skipUnless(CHROMIUM, WHY_NOT)
class Pages(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.browser.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        super().tearDownClass()

    def page(self, name, html):
        path = os.path.join(tempfile.mkdtemp(dir=self.folder), f"{name}.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(html)
        return path

    def made(self, name, *arguments, **more):
        return RunRecord(write_run(os.path.join(tempfile.mkdtemp(dir=self.folder), name), *arguments, **more))

    def look(self, path, figures=None):
        """Opens the page in all ways."""
        b, name = self.browser, os.path.basename(path)[:-5]
        for width in (1280, 390):
            for dark in (False, True):
                with self.subTest(page=name, width=width, dark=dark):
                    b.errors.clear()
                    b.show(path, width, dark)
                    self.assertEqual(b.value("window.hacked"), None)
                    self.assertEqual(b.value("document.documentElement.scrollWidth"), width)
                    self.assertEqual(b.value(OUTSIDE), [])
                    count = b.value("document.querySelectorAll('figure').length")
                    if figures is not None:
                        self.assertEqual(count, figures)
                    self.assertEqual(b.value("document.querySelectorAll('figure.live canvas').length"), count)
                    drawn = b.value(DRAWN)
                    self.assertTrue(all(n > 8 for n in drawn), drawn)
                    ground = b.value("getComputedStyle(document.body).backgroundColor")
                    self.assertEqual(ground, "rgb(18, 21, 27)" if dark else "rgb(245, 246, 248)")
                    self.assertEqual(b.errors, [])
                    if PICTURES:
                        b.picture(os.path.join(PICTURES, f"{name}-{width}-{'dark' if dark else 'light'}.png"))
        with self.subTest(page=name, scripts=False):
            b.show(path, 390, scripts=False)
            self.assertEqual(b.value("document.querySelectorAll('figure canvas').length"), 0)
            seen = b.value("[...document.querySelectorAll('figure svg')].map((s) => s.getBoundingClientRect().height > 100 && "
                           "s.querySelectorAll('polyline, circle').length > 0)")
            self.assertEqual(seen, [True] * len(seen))
            self.assertEqual(b.value("document.documentElement.scrollWidth"), 390)
            if PICTURES:
                b.picture(os.path.join(PICTURES, f"{name}-without-scripts.png"))
        with self.subTest(page=name, paper=True):
            b.show(path, 1280)
            b.call("Emulation.setEmulatedMedia", media="print")
            self.assertEqual(
                b.value("[...document.querySelectorAll('figure .uplot')].every((e) => e.getClientRects().length === 0)"), True)
            self.assertEqual(b.value("[...document.querySelectorAll('figure svg')].every((e) => e.getClientRects().length > 0)"),
                             True)
            if PICTURES:
                b.picture(os.path.join(PICTURES, f"{name}-paper.png"))
            b.call("Emulation.setEmulatedMedia", media="")

    def test_a_real_run(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        run = self.start("-w", "2", "-p", "2", "--report", "--run-dir", os.path.join(folder, "run"),
                         os.path.join(BIN, "test_metrics"), os.path.join(folder, "out"), "60", "60")
        self.assertEqual(run.wait(), 0, run.err())
        path = os.path.join(folder, "run", "report.html")
        self.look(path)
        b = self.browser
        b.show(path, 1280)
        self.assertGreaterEqual(b.value("document.querySelectorAll('figure').length"), 8)  # of the samples, too
        # The charts are alive: one under the pointer shows its values, and those of all others at that time.
        box = b.value("(({x, y, width, height}) => [x + width / 2, y + height / 2])(document.querySelector('.u-over')."
                      "getBoundingClientRect())")
        b.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        b.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 2, y=box[1])
        shown = b.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("
                        "[...document.querySelectorAll('.u-legend')].map((l) => l.querySelector('.u-value').textContent)))))")
        self.assertRegex(shown[0], r"^[\d.]+ m?s$")
        self.assertEqual([s == "–" for s in shown], [False] * len(shown), shown)
        self.assertEqual(b.errors, [])

    def test_a_run_with_losses_and_one_that_failed(self):
        events = job_events(45.5, workers=4, servers=2)
        at = next(i for i, e in enumerate(events) if e["t"] > 12)
        events[at:at] = [
            {"t": 12.2, "event": "lost", "role": "server", "index": 1, "cause": "server s1 (pid 101 on here) lost: no heartbeat"},
            {"t": 12.6, "event": "joined", "role": "server", "index": 1, "pid": 333, "host": "here"}]
        losses = self.made("losses", events, descent(400, 43.0), log="accuracy 0.93\nauc 0.97\n")
        self.look(self.page("losses", report_page(losses)), 11)
        failed = self.made("failed", job_events(8.5, status=10, cause="worker 1 (pid 201) was killed by SIGSEGV"),
                           descent(60, 7.0))
        with open(os.path.join(failed.folder, "worker_1.log"), "w", encoding="utf-8") as file:
            file.write("what():  vector::_M_range_check: __n (which is 101) >= this->size() (which is 100)\n")
        self.look(self.page("failed", report_page(failed)), 11)

    def test_runs_with_little_and_with_much(self):
        lines = [dict(line, objective=None if line["round"] % 7 == 0 else line["objective"]) for line in descent(100000, 50.0)]
        failed = [{"t": 0.3, "event": "end", "status": 3, "cause": "cfg.json:1:1"}]
        for name, figures, events, metrics in (
                ("nothing", 0, [], []), ("failed_at_the_start", 0, failed, []),
                ("one_round", 1, job_events(1.5), descent(1, 0.3)), ("many_rounds", 11, job_events(60.5), lines),
                ("many_processes", 11, job_events(30.5, workers=200, servers=16), descent(300, 28.0))):
            self.look(self.page(name, report_page(self.made(name, events, metrics))), figures)

    def test_nothing_that_users_write_runs(self):
        events = job_events(6.5, status=10, cause=f"worker 0 lost: {EVIL}")
        events.insert(4, {"t": 1.0, "event": "warning", "text": EVIL + "x" * 300})
        metrics = [{"round": i, EVIL: 1.0 / i, "seconds": 0.5 * i, "other" + EVIL: i} for i in range(1, 12)]
        record = self.made("evil", events, metrics, log=EVIL, config=EVIL, program=EVIL, host=EVIL,
                           command=["/tmp/" + EVIL, "x" * 500])
        self.look(self.page("evil", report_page(record)))
        self.look(self.page("evil_compared", compare_page([record, record])))

    def test_a_comparison(self):
        one = self.made("one", job_events(45.5), descent(400, 43.0), config='{"alpha": 1.0, "rounds": 400}')
        two = self.made("two", job_events(30.5), [dict(line, objective=1.1 * line["objective"]) for line in descent(300, 28.0)],
                        config='{"alpha": 0.5, "rounds": 300}')
        self.look(self.page("compare", compare_page([one, two])), 4)


if __name__ == "__main__":
    main()

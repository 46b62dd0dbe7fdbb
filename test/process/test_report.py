#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a run says and leaves about itself: the three lines at its end, its report, metrics of a program's own, comparisons. The
pages are looked at by test_report_pages.py, made-up runs are in test/unit/report_test.py."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from process_support import BIN, LR, MPI, PRUN, JobTest, clean_environment, main, patient, wait_until

METRICS = os.path.join(BIN, "test_metrics")


def launcher(*arguments, folder, environment=None):
    return subprocess.run([sys.executable, PRUN, *arguments], cwd=folder, capture_output=True, text=True, check=False,
                          timeout=patient(60), stdin=subprocess.DEVNULL, env=environment or clean_environment())


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Runs(JobTest):
    def run_folder(self, run):
        return re.search(r"logs in (\S+)", run.err()).group(1)

    def test_a_run_ends_with_three_lines_that_are_right(self):
        run = self.start("-w", "3", "-p", "2", "-c", "cfg.json", LR)
        self.assertEqual(run.wait(), 0, run.err())
        said = [line[6:] for line in run.err().splitlines() if line.startswith("prun: ")]
        at = next(i for i, line in enumerate(said) if line.startswith("lr: "))
        self.assertRegex(said[at], r"^lr: 300 rows, 10 features, [\d.]+ kB; 3 workers, 2 servers; 30 rounds$")
        printed = float(re.search(r"(?m)^objective (\S+)$", run.out()).group(1))
        self.assertTrue(said[at + 1].startswith(f"result: objective {printed:.4g}, at first 0."), said)
        self.assertRegex(said[at + 2], r"^time: [\d.]+ m?s, of which (\d+ % \w+(, |; ))+the workers: .*\d+ % computing")
        self.assertTrue(said[at + 3].startswith("done in "), said)
        self.assertFalse(os.path.exists(os.path.join(self.run_folder(run), "report.html")))
        # what it is made of
        events = lines_of(os.path.join(self.run_folder(run), "timeline.jsonl"))
        times = [e["t"] for e in events]
        self.assertEqual(times, sorted(times))
        self.assertEqual((events[0]["event"], events[-1]["event"], events[-1]["status"]), ("run", "end", 0))
        used = {(e["role"], e["index"]): e["usage"] for e in events if e["event"] == "usage"}
        self.assertEqual(sorted(used), [("server", 0), ("server", 1), ("worker", 0), ("worker", 1), ("worker", 2)])
        sent = sum(used["worker", i]["sent_bytes"] for i in range(3))
        requests = sum(used["worker", i]["requests"] for i in range(3))
        # Servers count the same messages, and clock ticks go to another thread of theirs.
        self.assertGreater(requests, 3 * 30)
        self.assertLessEqual(sum(used["server", i]["requests"] for i in range(2)), requests + 60)
        self.assertGreater(sum(used["server", i]["bytes_in"] for i in range(2)), sent / 2)
        for i in range(3):
            worker = used["worker", i]
            self.assertLessEqual(worker["cpu"] + worker["delayed"], 1.05 * worker["seconds"] + 0.05)
            self.assertTrue(0 <= worker["system"] <= worker["cpu"], worker)
            self.assertEqual(next(e["clock"] for e in events if e["event"] == "usage" and e["role"] == "worker"), 30)
        with open(os.path.join(self.folder, "out", "metrics.jsonl"), "rb") as one, \
                open(os.path.join(self.run_folder(run), "run_metrics.jsonl"), "rb") as other:
            self.assertEqual(one.read(), other.read())
        quiet = self.start("-w", "3", "-p", "2", "-c", "cfg.json", "--no-summary", LR)
        self.assertEqual(quiet.wait(), 0, quiet.err())
        self.assertNotRegex(quiet.err(), r"(?m)^prun: (lr|result|time): ")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_the_same_under_mpirun(self):
        run = self.start("-w", "2", "-p", "1", "-c", "cfg.json", "-m", "mpi", "--report", LR)
        self.assertEqual(run.wait(), 0, run.err())
        self.assertRegex(run.err(), r"prun: lr: 300 rows, 10 features, [\d.]+ kB; 2 workers, 1 server; 30 rounds\n")
        self.assertTrue(os.path.getsize(os.path.join(self.run_folder(run), "report.html")) > 50000)

    def test_a_worker_that_sleeps_waits(self):
        """Whatever runs beside it: the time is neither computing nor that without a processor."""
        folder = tempfile.mkdtemp(dir=self.folder)
        run = self.start("-w", "1", "--run-dir", os.path.join(folder, "run"), METRICS, os.path.join(folder, "out"), "8", "250")
        self.assertEqual(run.wait(), 0, run.err())
        used = [e["usage"] for e in lines_of(os.path.join(folder, "run", "timeline.jsonl"))
                if e["event"] == "usage" and e["role"] == "worker"][-1]
        self.assertGreater(used["seconds"] - used["cpu"] - used["delayed"], 0.95 * 8 * 0.25, used)

    def test_an_own_program_writes_metrics_with_one_call(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        run = self.start("-w", "2", "-p", "2", "--report", "--run-dir", os.path.join(folder, "run"), METRICS,
                         os.path.join(folder, "out"), "30", "60")
        self.assertEqual(run.wait(), 0, run.err())
        lines = lines_of(os.path.join(folder, "out", "metrics.jsonl"))
        self.assertEqual([line["round"] for line in lines], [r for r in range(1, 31) for _ in range(2)])
        self.assertEqual([line["loss"] for line in lines[::2]], [None if r == 3 else 1 / r for r in range(1, 31)])
        for line, r in zip(lines[1::2], range(1, 31)):
            self.assertAlmostEqual(line["rmse"], (12.5 / r / r) ** 0.5, places=12)
        seconds = [line["seconds"] for line in lines]
        self.assertEqual(seconds, sorted(seconds))
        self.assertIn("prun: test_metrics: 2 workers, 2 servers; 30 rounds\n", run.err())
        self.assertRegex(
            run.err(), r"result: loss 0\.03333, at first 1, still falling, .*; loss was not a finite number in 1 round, "
            r"first in round 3\n")
        self.assertEqual(lines_of(os.path.join(folder, "run", "run_metrics.jsonl")), lines)
        # The same in one process, and an output folder that is not given twice.
        alone = subprocess.run([METRICS, os.path.join(folder, "alone"), "3", "0"], check=False, timeout=patient(60),
                               env=clean_environment())
        self.assertEqual(alone.returncode, 0)
        self.assertEqual(len(lines_of(os.path.join(folder, "alone", "metrics.jsonl"))), 6)
        # The samples of two seconds became curves.
        with open(os.path.join(folder, "run", "report.html"), encoding="utf-8") as file:
            html = file.read()
        for title in ("loss", "rmse", "Where the time went", "Load of the shards", "Hot partitions"):
            self.assertTrue(f">{title}" in html, title)

    def test_metrics_of_an_earlier_run_are_not_taken_for_those_of_one_that_failed(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        self.write_config(os.path.join(folder, "fails.json"), output=os.path.join(folder, "out"), training_input="/nowhere/x")
        self.write_config(os.path.join(folder, "works.json"), output=os.path.join(folder, "out"))
        run = self.start("-c", os.path.join(folder, "works.json"), "--run-dir", os.path.join(folder, "one"), LR)
        self.assertEqual(run.wait(), 0, run.err())
        self.assertTrue(os.path.exists(os.path.join(folder, "out", "metrics.jsonl")))
        bad = os.path.join(folder, "bad.dat")
        with open(bad, "w", encoding="utf-8") as file:
            file.write("1,2,x\n")
        self.write_config(os.path.join(folder, "fails.json"), output=os.path.join(folder, "out"), training_input=bad)
        run = self.start("-c", os.path.join(folder, "fails.json"), "--run-dir", os.path.join(folder, "two"), LR)
        self.assertEqual(run.wait(), 4, run.err())
        with open(os.path.join(folder, "two", "report.html"), encoding="utf-8") as file:
            html = file.read()
        self.assertIn("exit status 4 (data)", html)
        self.assertIn("bad.dat: found only the label x", html)
        self.assertNotIn("<figure", html)
        self.assertIn("report in ", run.err())

    def test_a_worker_that_is_killed_leaves_a_report_with_the_cause(self):
        run = self.start_paced("paced.json", "-w", "2", rounds=100000, output="paced/")
        wait_until(lambda: "prun: round" in run.err(), 20)
        victim = run.find("worker")
        victim.kill(signal.SIGSEGV)
        self.assertEqual(run.wait(), 10, run.err())
        with open(os.path.join(self.run_folder(run), "report.html"), encoding="utf-8") as file:
            html = file.read()
        self.assertTrue("was killed by SIGSEGV" in html)
        self.assertTrue("Why it ended" in html)
        self.assertTrue(run.err().rstrip().endswith(f"logs in {self.run_folder(run)}"), run.err())

    def test_a_full_disk_costs_the_report_and_not_the_run(self):
        parent = tempfile.mkdtemp(dir=self.folder)
        script = 'mount -t tmpfs -o size=60k none "$1" 2>/dev/null || exit 77; shift; exec "$@"'
        command = [sys.executable, PRUN, "--report", "--run-dir", os.path.join(parent, "run"), "-c", "cfg.json", LR]
        done = subprocess.run(["unshare", "-rm", "/bin/sh", "-c", script, "sh", parent, *command], cwd=self.folder,
                              env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=patient(60), check=False)
        if done.returncode == 77 or "unshare:" in done.stderr:
            self.skipTest("no file system can be mounted here")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("prun: lr: 300 rows, 10 features", done.stderr)
        self.assertIn("prun: warning: no summary or report of this run: No space left on device\n", done.stderr)
        self.assertIn("prun: done in ", done.stderr)

    def test_the_folder_of_the_logs_may_be_that_of_the_results(self):
        self.write_config("both.json", output="both/")
        for _ in range(2):
            run = self.start("-c", "both.json", "--run-dir", "both", "--report", LR)
            self.assertEqual(run.wait(), 0, run.err())
            self.assertLessEqual({"metrics.jsonl", "run_metrics.jsonl", "timeline.jsonl", "report.html"},
                                 set(os.listdir(os.path.join(self.folder, "both"))))

    def test_runs_are_compared_and_reports_made_later(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        for name, alpha in (("one", 0.1), ("two with a space é", 0.2)):
            self.write_config(os.path.join(folder, "c.json"), alpha=0.1)
            run = self.start("-c", os.path.join(folder, "c.json"), "--set", f"alpha={alpha}", "--run-dir",
                             os.path.join(folder, name), LR)
            self.assertEqual(run.wait(), 0, run.err())
        done = launcher("compare", "--run", "./one", "--run", "./two with a space é", folder=folder)
        self.assertEqual((done.returncode, done.stderr), (0, "prun.py: wrote compare.html\n"))
        self.assertRegex(done.stdout, r"(?m)^ +one +two with a space é$")
        self.assertRegex(done.stdout, r"(?m)^config: alpha +0\.1 +0\.2$")
        self.assertTrue(os.path.getsize(os.path.join(folder, "compare.html")) > 50000)
        done = launcher("report", "--run", "./one", "--output", "r.html", folder=folder)
        self.assertEqual((done.returncode, done.stderr), (0, "prun.py: wrote r.html\n"))
        for arguments, status, said in (
                (("compare", "--run", "./one"), 2, "given 1 times, want 2 to 8 runs"),
                (("compare", "--run", "./one", "--run", "nowhere"), 2, "--run nowhere: no such folder"),
                (("report", "--run", "./one", "--output", "/nowhere/r"), 1, "/nowhere/r cannot be written: No such file"),
                (("report", "--run", "."), 2, "the folder has no run.json"),
                (("report",), 2, "--run")):
            done = launcher(*arguments, folder=folder)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(said, done.stderr)
            self.assertEqual(os.listdir(folder).count("r.html.tmp"), 0)

    def test_starting_a_job_loads_nothing_that_shows_runs(self):
        done = subprocess.run([sys.executable, "-S", "-X", "importtime", PRUN, "--dry-run", "-c", "cfg.json", LR],
                              cwd=self.folder, capture_output=True, text=True, check=True, env=clean_environment())
        loaded = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
        self.assertIn("launcher.job.timeline", loaded)
        for module in ("report", "traces", "common.figures", "common.optional"):
            self.assertNotIn("launcher." + module, loaded)
        self.assertNotIn("html", loaded)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py top`: on a real terminal (tmux) that changes its size, without one, for runs that end, fail, or do not exist."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from process_support import BIN, PRUN, JobTest, clean_environment, main, patient, processes_of, wait_until

TMUX = shutil.which("tmux")
PYTHON = "/usr/bin/python3"  # which has Debian's rich
RICH = subprocess.run([PYTHON, "-c", "import rich"], capture_output=True, check=False).returncode == 0
METRICS = os.path.join(BIN, "test_metrics")


class TopTest(JobTest):
    def job(self, *options, pause=20, rounds=100000):
        """A job that runs until it is stopped: (Run, folder of its logs)"""
        folder = tempfile.mkdtemp(dir=self.folder)
        run = self.start("-w", "2", "-p", "2", "--run-dir", os.path.join(folder, "run"), *options, METRICS,
                         os.path.join(folder, "out"), str(rounds), str(pause))
        wait_until(lambda: "prun: round" in run.err(), 20)
        return run, os.path.join(folder, "run")

    def lines(self, run_dir, *options):
        """A `top` whose output is a file: (process, path)"""
        path = os.path.join(tempfile.mkdtemp(dir=self.folder), "lines")
        with open(path, "wb") as out:
            process = subprocess.Popen([sys.executable, "-S", PRUN, "top", "--run", run_dir, *options], stdout=out,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=clean_environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, path

    @staticmethod
    def read(path):
        with open(path, encoding="utf-8") as file:
            return file.read()


class Lines(TopTest):
    def test_lines_without_a_terminal_until_the_run_ends(self):
        run, folder = self.job()
        process, path = self.lines(folder, "--interval", "0.5")
        found = wait_until(
            lambda: re.search(
                r"(?m)^test_metrics: running for [\d.]+ .*, round \d+, [\d.]+ rounds/s, loss 0\.\d+, clocks? \d+.*, "
                r"servers [\d.,]+ requests/s, [\d.]+ MB, hottest key busy$", self.read(path)), 30)
        self.assertTrue(found, self.read(path))
        self.assertIsNone(process.poll())
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(), 130)
        self.assertEqual(process.wait(patient(20)), 0)
        last = self.read(path).splitlines()[-4:]
        self.assertRegex(last[0], r"^test_metrics: 2 workers, 2 servers; \d+ rounds$")
        self.assertRegex(last[-1], r"^the job [0-9a-f]{16} is over: exit status 130 \(interrupted\)")
        # Of a run that is over it says how it ended.
        done = subprocess.run([sys.executable, PRUN, "top", "--run", folder], capture_output=True, text=True, check=False,
                              env=clean_environment(), stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, last[-1]))

    def test_a_job_that_fails_and_one_whose_launcher_is_killed(self):
        run, folder = self.job()
        process, path = self.lines(folder, "--interval", "0.2")
        wait_until(lambda: "rounds/s" in self.read(path), 20)
        random.choice([p for p in processes_of(run.job()) if p.command[0] == METRICS]).kill()
        self.assertEqual(run.wait(), 10, run.err())
        self.assertEqual(process.wait(patient(20)), 0)
        self.assertRegex(self.read(path),
                         r"is over: exit status 10 \(worker lost\): worker \d \(pid \d+\) was killed by SIGKILL\n$")
        run, folder = self.job()
        process, path = self.lines(folder, "--interval", "0.2")
        wait_until(lambda: "rounds/s" in self.read(path), 20)
        run.process.kill()
        self.assertEqual(process.wait(patient(20)), 13)
        self.assertIn("prun.py: error: the scheduler of job ", self.read(path))

    def test_it_ends_when_its_reader_does(self):
        _, folder = self.job()
        done = subprocess.run(["sh", "-c", f"'{sys.executable}' -S '{PRUN}' top --interval 0.2 --run '{folder}' | head -n 2"],
                              capture_output=True, text=True, check=True, timeout=patient(30), env=clean_environment())
        self.assertEqual(len(done.stdout.splitlines()), 2)
        self.assertEqual(done.stderr, "")

    def test_runs_that_do_not_exist(self):
        for name, words in (("nowhere", "--run nowhere: no such folder"), (self.folder, "the folder has no run.json"),
                            ("", "shell variable")):
            done = subprocess.run([sys.executable, PRUN, "top", "--run", name], capture_output=True, text=True, check=False,
                                  env=clean_environment(), stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")


@unittest.skipUnless(TMUX, "tmux is not installed (tool/setup.sh --long installs it)")
class Terminals(TopTest):
    """In a tmux of its own."""

    def setUp(self):
        self.socket = os.path.join(tempfile.mkdtemp(prefix="paracel-tmux-"), "s")
        self.addCleanup(shutil.rmtree, os.path.dirname(self.socket), True)
        self.addCleanup(self.tmux, "kill-server", check=False)

    def tmux(self, *words, check=True):
        done = subprocess.run([TMUX, "-S", self.socket, "-f", "/dev/null", *words], capture_output=True, text=True, check=False,
                              env=clean_environment(LC_ALL="C.UTF-8"))
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "top", check=False)

    def shown(self, accepts, limit=30):
        """The screen once `accepts(screen)`."""
        def look():
            screen = self.screen()
            return screen if accepts(screen) else ""
        found = wait_until(look, limit)
        self.assertTrue(found, self.screen())
        return found

    def open(self, *arguments, width=100, height=30, python=PYTHON):
        """Runs `prun.py top` on a terminal of this size; afterwards the pane shows its status until Enter is pressed."""
        command = " ".join(["env", "-u", "COLUMNS", "-u", "LINES", "LC_ALL=C.UTF-8", python, "-S", PRUN, "top", *arguments])
        self.tmux("new-session", "-d", "-s", "top", "-x", str(width), "-y", str(height), f"{command}; echo status $?; read x")

    @unittest.skipUnless(RICH, "rich is not installed (tool/setup.sh --long installs python3-rich)")
    def test_a_live_view_follows_the_size_of_its_terminal(self):
        run, folder = self.job()
        self.open("--run", folder, "--interval", "0.5")
        parts = (r"busy +s\d +about [\d,]+",
                 r"(?m)^test_metrics: running for [\d.]+ .*round [\d,]+, [\d.]+ rounds/s, loss 0\.\d+",
                 r"(?m)^(loss|rmse) \S+ [▁▂▃▄▅▆▇█]{3,} [\d.]+$",
                 r"(?m)^worker +state +clock +ahead +computing +sends +receives",
                 r"(?m)^[01] +up +\d+ +\d+ +\S+ (< )?\d+ % +[\d.]+ [kM]?B/s +[\d.]+ [kM]?B/s",
                 r"(?m)^s[01] +up +[\d.,]+ +[\d.]+ [kM]?B/s +[\d.]+ +[\d.]+ k?B +[\d.]+ MB +[\d,.]+ +\d+ \(\d+ %\)")
        self.shown(lambda s: all(re.search(part, s) for part in parts))
        for width, height in ((60, 14), (140, 40), (30, 6)):
            self.tmux("resize-window", "-t", "top", "-x", str(width), "-y", str(height))
            time.sleep(1.0)
            shown = self.shown(lambda s, w=width: "test_metrics" in s and all(len(line) <= w for line in s.split("\n")))
            self.assertLessEqual(len(shown.rstrip("\n").split("\n")), height)
            self.assertEqual(shown.count("test_metrics: running"), 1, shown)  # nothing of the old size is left
        self.tmux("resize-window", "-t", "top", "-x", "100", "-y", "30")
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 143)
        shown = self.shown(lambda s: "status 0" in s)
        self.assertRegex(shown, r"is over: exit status 143")
        self.assertNotIn("worker  state", shown)  # the screen is as it was before

    @unittest.skipUnless(RICH, "rich is not installed (tool/setup.sh --long installs python3-rich)")
    def test_ctrl_c_ends_it_and_not_the_job(self):
        run, folder = self.job()
        self.open("--run", folder)
        self.shown(lambda s: "rounds/s" in s)
        self.tmux("send-keys", "-t", "top", "C-c")
        shown = self.shown(lambda s: re.search("status \\d", s))
        self.assertRegex(shown, r"(?m)^status 0$")
        self.assertNotIn("Traceback", shown)
        self.assertIsNone(run.process.poll())

    def test_lines_on_a_terminal_where_rich_is_missing(self):
        run, folder = self.job()
        empty = tempfile.mkdtemp(dir=self.folder)
        # An interpreter without packages of its own.
        self.assertEqual(subprocess.run([PYTHON, "-m", "venv", "--without-pip", empty], check=False).returncode, 0)
        self.open("--run", folder, "--interval", "0.5", python=os.path.join(empty, "bin", "python"), width=200)
        shown = self.shown(lambda s: s.count("rounds/s") > 1)
        self.assertIn("lines instead of a live view: pip install rich, or apt-get install python3-rich", shown)
        self.assertIsNone(run.process.poll())


if __name__ == "__main__":
    main()

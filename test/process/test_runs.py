#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The folders below paracel_runs/: `prun.py runs` lists them, and old ones of finished runs are removed, but never anything
else."""
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import LR, PRUN, JobTest, Run, main, wait_until  # noqa: E402


class Runs(JobTest):
    def setUp(self):
        self.here = tempfile.mkdtemp(dir=self.folder)
        self.runs = os.path.join(self.here, "paracel_runs")
        self.program = self.write_program("brief", "exit 0")

    def launch(self, *arguments):
        run = Run(["--output-dir", self.here, *arguments], self.folder)
        self.addCleanup(run.destroy)
        return run

    def end_one(self, *arguments, status=0):
        """The name of its folder."""
        run = self.launch(*arguments)
        self.assertEqual(run.wait(), status, run.err())
        return os.path.basename(run.logs())

    def make(self, name, note, *files):
        path = os.path.join(self.runs, name)
        os.makedirs(path, mode=0o700)
        for file in files:
            self.touch(os.path.join(path, file))
        if note is not None:
            with open(os.path.join(path, "run.json"), "w", encoding="utf-8") as file:
                file.write(note if isinstance(note, str) else json.dumps(note))
        return name

    def over(self, name, *files, **note):
        return self.make(name, {"job": "1" * 16, "status": 0, "cause": "", "host": os.uname().nodename, "pid": 1, **note},
                         "scheduler.log", "worker_0.log", *files)

    def names(self):
        return sorted(os.listdir(self.runs))

    def command(self, *arguments):
        done = subprocess.run([sys.executable, PRUN, "runs", "--output-dir", self.here, *arguments], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_the_newest_runs_stay_when_a_job_ends(self):
        old = [self.over(f"20200101-00000{i}-{i}") for i in range(5)]
        last = self.end_one("--keep", "3", self.program)
        self.assertEqual(self.names(), old[3:] + [last])
        for i in range(30):
            self.over(f"20210101-0000{i:02}-7")
        last = self.end_one(self.write_program("failing", "exit 3"), status=3)
        self.assertEqual(len(self.names()), 20)
        self.assertIn(last, self.names())

    def test_a_run_that_is_not_over_is_never_removed(self):
        run = self.launch("-w", "1", "-p", "1", "-c", "long.json", LR)
        self.assertTrue(wait_until(lambda: os.path.isdir(self.runs) and any(
            os.path.exists(os.path.join(self.runs, n, "run.json")) for n in self.names()), 60), run.err())
        running = self.names()
        status, out, err = self.command("--keep", "0")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, rf"{running[0]} +running +lr +\d+\n")
        self.assertEqual(self.names(), running)
        # Nor is one whose launcher has recorded the end but still holds the folder.
        with open(os.path.join(self.runs, running[0], "run.json"), encoding="utf-8") as file:
            note = json.load(file)
        with open(os.path.join(self.runs, running[0], "run.json"), "w", encoding="utf-8") as file:
            json.dump(dict(note, status=0, cause=""), file)
        self.command("--keep", "0")
        self.assertEqual(self.names(), running)
        os.kill(run.pid, signal.SIGTERM)
        self.assertEqual(run.wait(), 143)
        self.assertEqual(self.command("--keep", "0")[0], 0)
        self.assertEqual(self.names(), [])

    def test_a_run_whose_launcher_was_killed_is_over_and_one_of_another_host_may_not_be(self):
        run = self.launch("-w", "1", "-p", "1", "-c", "long.json", LR)
        self.assertTrue(wait_until(lambda: os.path.isdir(self.runs) and any(
            os.path.exists(os.path.join(self.runs, n, "run.json")) for n in self.names()), 60), run.err())
        killed = self.names()
        run.process.kill()
        run.wait()
        elsewhere = self.make("20200101-000000-1", {"job": "1" * 16, "host": "elsewhere", "pid": 1}, "scheduler.log")
        self.assertRegex(self.command()[1], rf"{killed[0]} +killed +lr +\d+\n{elsewhere} +unknown +- +\d+\n")
        self.command("--keep", "0")
        self.assertEqual(self.names(), [elsewhere])

    def test_what_is_no_folder_of_a_run_is_never_removed(self):
        kept = [self.over("20200101-000000-1", "results.csv"),
                self.make("20200101-000000-2", None, "scheduler.log"),
                self.make("20200101-000000-3", "{", "scheduler.log"),
                self.make("20200101-000000-4", {"status": 0}),
                self.make("20200101-000000-5", "[" * 100_000),
                self.over("my_run"),
                self.over("20200101-000000-6")]
        os.mkdir(os.path.join(self.runs, kept[-1], "worker_1.log"))
        outside = os.path.join(self.here, "outside")
        os.mkdir(outside)
        os.rename(os.path.join(self.runs, self.over("20200101-000000-7")), os.path.join(outside, "a"))
        os.symlink(os.path.join(outside, "a"), os.path.join(self.runs, "20200101-000000-7"))
        target = self.over("20200101-000000-8")
        os.unlink(os.path.join(self.runs, target, "worker_0.log"))
        os.symlink(os.path.join(outside, "a", "worker_0.log"), os.path.join(self.runs, target, "worker_0.log"))
        before = self.names()
        self.touch(os.path.join(self.runs, "20200101-000000-9"))
        gone = self.over("20200101-000001-1", "core", "core.123", "server_0.log", "mpirun_workers.log", "run.lock",
                         "worker-0.kept0", "worker-0.clients")
        self.assertIn(gone, self.names())
        self.assertEqual(self.command("--keep", "0")[0], 0)
        self.assertEqual(self.names(), sorted(before + ["20200101-000000-9"]))
        self.assertEqual(sorted(os.listdir(os.path.join(outside, "a"))), ["run.json", "scheduler.log", "worker_0.log"])

    def test_a_list_says_how_runs_ended(self):
        first = self.end_one(self.program)
        self.over("20200101-000000-1", status=11, cause="server s0\nwas killed", program="lr")
        self.over("20200101-000000-2", status=7)
        status, out, err = self.command()
        self.assertEqual((status, err), (0, ""))
        head, *rows = out.splitlines()
        self.assertEqual(head.split(), ["run", "state", "program", "bytes", "cause"])
        self.assertRegex(rows[0], rf"^{first} +0 \(ok\) +brief +\d+$")
        self.assertRegex(rows[1], r"^20200101-000000-2 +7 +- +\d+$")
        self.assertRegex(rows[2], r"^20200101-000000-1 +11 \(server lost\) +lr +\d+ +server s0 was killed$")
        self.assertEqual(subprocess.run([sys.executable, PRUN, "runs", "--output-dir", "/nowhere"], capture_output=True,
                                        check=False).returncode, 2)

    def test_a_folder_that_the_user_names_keeps_what_is_in_it(self):
        mine = os.path.join(self.here, "experiments")
        os.mkdir(mine)
        for name in ("results.log", "data.clients", "model.kept0"):
            with open(os.path.join(mine, name), "w", encoding="utf-8") as file:
                file.write("my measurements\n")
        for _ in range(2):
            status, out, err = self.prun("-c", "cfg.json", "--run-dir", mine, "--on-worker-death", "wait:5", LR)
            self.assertEqual(status, 0, err + out)
        for name in ("results.log", "data.clients", "model.kept0"):
            with open(os.path.join(mine, name), encoding="utf-8") as file:
                self.assertEqual(file.read(), "my measurements\n")

    def test_a_folder_that_was_named_is_nobodys_to_remove(self):
        named = os.path.join(self.here, "named")
        self.over("20200101-000000-1")
        self.end_one("--run-dir", named, "--keep", "1", self.program)
        self.assertTrue(os.path.exists(os.path.join(named, "run.json")))
        self.assertEqual(self.names(), ["20200101-000000-1"])


if __name__ == "__main__":
    main()

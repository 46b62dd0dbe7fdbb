#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py status`: its output for a running job, for a finished one, and for folders that are not those of a run."""
import json
import os
import re
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, LR, PRUN, JobTest, main, read_bytes, wait_until  # noqa: E402


class Status(JobTest):
    def status(self, *arguments):
        done = subprocess.run([sys.executable, PRUN, "status", *arguments], cwd=self.folder, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_a_running_job_is_described(self):
        run = self.start("-w", "3", "-p", "2", "-c", "long.json", "--run-dir", "mine", LR)
        self.assertTrue(wait_until(lambda: "round" in run.err(), 20), run.err())

        def clocks():
            status, out, err = self.status("--run", os.path.join(self.folder, "mine"))
            self.assertEqual(status, 0, err)
            rows = [line.split() for line in out.splitlines()]
            return out, [int(r[-1]) for r in rows if r[0].isdigit()]
        self.assertTrue(wait_until(lambda: min(clocks()[1]) > 0, 20))
        out, first = clocks()
        self.assertEqual(len(first), 3)
        self.assertIn(f"job {run.job()}: running for ", out)
        self.assertRegex(out, r"progress: .*round \d+")
        # All keys of lr are pieces of one vector, on which all that is asked falls.
        self.assertRegex(out, r"(?m)^server +state .* resident +keys/s +hot partition +incarnation$")
        loads = re.compile(r"(?m)^s[01] +up .* MB +[\d,.]+ +\d+ \(\d+ %\) +[0-9a-f]{16}$")
        self.assertTrue(wait_until(lambda: loads.search(clocks()[0]), 20), clocks()[0])
        for program, name in ((b"start_server", "s0"), (b"start_server", "s1"), (b"lr", "0"), (b"lr", "2")):
            row = next(line.split() for line in out.splitlines() if line.split()[0] == name)
            self.assertEqual(row[1], "up")
            self.assertTrue(read_bytes(f"/proc/{row[2]}/cmdline").split(b"\0")[0].endswith(program), row)
            self.assertIn(run.job().encode(), read_bytes(f"/proc/{row[2]}/cmdline"))
        self.assertTrue(wait_until(lambda: min(clocks()[1]) > max(first), 20), "the clocks stand")

        run.process.terminate()
        run.wait()
        status, out, err = self.status("--run", "mine")
        self.assertEqual((status, out), (1, ""))
        self.assertIn(f"the job {run.job()} is over: exit status 143 (terminated)", err)

    def test_a_program_is_told_of_dead_servers_and_workers(self):
        run = self.start("-w", "3", "-p", "3", "--replicas", "2", "--max-restarts", "0", "--on-worker-death", "eject",
                         os.path.join(BIN, "test_nodes"), "2")
        self.assertTrue(wait_until(lambda: "6 nodes" in run.out(), 20), run.err())
        run.server(1).kill()
        self.assertTrue(wait_until(lambda: "dead: s1 down\n" in run.out(), 20), run.out() + run.err())
        run.worker(2).kill()
        self.assertEqual(run.wait(60), 0, run.err())
        self.assertIn("dead: s1 down w2 ejected\n", run.out())

    def test_the_folder_of_a_run_is_its_owners_and_found_by_name(self):
        status, _, err = self.prun("-c", "cfg.json", LR)
        self.assertEqual(status, 0, err)
        folder = err.split("prun: logs in ", 1)[1].split("\n", 1)[0]
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, "run.json")).st_mode), 0o600)
        status, _, err = self.status("--run", os.path.basename(folder))
        self.assertEqual(status, 1)
        self.assertIn("is over: exit status 0 (ok)", err)

    def test_a_failed_job_is_named_with_its_cause(self):
        status, _, err = self.prun("-w", "2", "--run-dir", "failed", self.write_program("fails", "exit 7"))
        self.assertEqual(status, 7, err)
        self.assertRegex(self.status("--run", "failed")[2], r"exit status 7 .*: worker \d \(pid \d+\) exited with status 7")

    def test_what_is_no_run_is_refused(self):
        for text, run in (("--run nowhere: no such folder, nor below paracel_runs/", "nowhere"),
                          ("--run ./nowhere: no such folder", "./nowhere"),
                          ("has no run.json, so it is not the folder of a run", ".")):
            with self.subTest(run=run):
                status, out, err = self.status("--run", run)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(text, err)
                self.assertEqual(err.count("\n"), 1, err)
        for text, note in (("cannot be read", "{"), ("was not written by prun.py", "[]"),
                           ("was not written by prun.py", '{"job":"x"}')):
            os.makedirs(os.path.join(self.folder, "odd"), exist_ok=True)
            with open(os.path.join(self.folder, "odd", "run.json"), "w", encoding="utf-8") as file:
                file.write(note)
            with self.subTest(note=note):
                status, out, err = self.status("--run", "odd")
                self.assertEqual((status, out), (2, ""))
                self.assertIn(text, err)

    def test_a_scheduler_that_is_not_there_is_said(self):
        os.makedirs(os.path.join(self.folder, "dead"), exist_ok=True)
        with open(os.path.join(self.folder, "dead", "run.json"), "w", encoding="utf-8") as file:
            json.dump({"job": "0" * 16, "scheduler": f"ipc://{self.folder}/none", "framework": BIN, "host": "here"}, file)
        status, out, err = self.status("--run", "dead")
        self.assertEqual((status, out), (13, ""))
        self.assertIn("does not answer", err)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py tell`: commands to real workers and servers from another process, and how a program is notified of deaths."""
import concurrent.futures
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, PRUN, JobTest, clean_environment, main, patient, processes_of  # noqa: E402
from process_support import wait_until  # noqa: E402

TOLD = os.path.join(BIN, "test_told")


class Tell(JobTest):
    def tell(self, run, *arguments, folder=None):
        done = subprocess.run([sys.executable, PRUN, "tell", "--run", folder or run.logs(), *arguments],
                              cwd=self.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stdout, done.stderr

    def start_told(self, mode, *options):
        run = self.start(*options, TOLD, mode)
        self.assertTrue(wait_until(lambda: "ready" in run.out(), 30), run.err())
        return run

    def told_all(self, run, *arguments):
        """Like `tell`, once every worker has registered its functions."""
        self.assertTrue(wait_until(lambda: "accepts no commands" not in self.tell(run, "--timeout", "20", "echo", "?")[2], 30))
        return self.tell(run, *arguments)

    def test_workers_answer_by_rank_and_the_order_of_a_sender_is_kept(self):
        for mode in ("commit", "barrier"):
            with self.subTest(mode):
                run = self.start_told(mode, "-w", "3", "-p", "2")
                status, out, err = self.told_all(run, "echo", "grüße $HOME \"x\"")
                self.assertEqual(status, 0, err)
                lines = out.splitlines()
                self.assertEqual([line.split(":")[0] for line in lines], ["worker 0", "worker 1", "worker 2"])
                self.assertTrue(all(line.endswith(':grüße $HOME "x"') for line in lines), out)
                first = int(lines[1].split(": ")[1].split(":")[0])
                for i in range(1, 4):
                    self.assertEqual(self.tell(run, "--worker", "1", "echo", "again"),
                                     (0, f"worker 1: {first + i}:again\n", ""))
                self.assertEqual(self.tell(run, "--worker", "0", "stop")[:2], (0, "worker 0: bye\n"))
                if mode == "commit":
                    self.assertEqual(self.tell(run, "--worker", "1", "stop")[0], 0)
                    self.assertEqual(self.tell(run, "--worker", "2", "stop")[0], 0)
                self.assertEqual(run.wait(), 0, run.err())
                status, out, err = self.tell(run, "echo")
                self.assertEqual((status, out), (1, ""))
                self.assertIn("is over", err)

    def test_what_goes_wrong_is_said_and_the_job_continues(self):
        run = self.start_told("commit", "-w", "2", "-p", "1")
        self.told_all(run, "echo")
        status, out, err = self.tell(run, "dance")
        self.assertEqual((status, out), (1, ""))
        known = "echo, fail, die, sleep, bytes, stop"
        self.assertEqual(err, "".join(f'prun.py: worker {r}: no command "dance": this program has {known}\n'
                                      for r in (0, 1)))
        self.assertEqual(self.tell(run, "--worker", "1", "fail"), (1, "", "prun.py: worker 1: a.csv:1: bad\n"))
        status, out, err = self.tell(run, "--worker", "2", "echo")
        self.assertEqual((status, out), (1, ""))
        self.assertIn('"index" is 2, not a whole number up to 1', err)
        begin = time.monotonic()
        status, out, err = self.tell(run, "--worker", "1", "--timeout", "0.5", "sleep", "1.5")
        self.assertLess(time.monotonic() - begin, patient(3))
        self.assertEqual((status, out), (1, ""))
        self.assertEqual(err, "prun.py: worker 1: no answer within 0.5 s; it may still run the command, at its next commit or "
                              "barrier\n")
        self.assertEqual(self.tell(run, "--worker", "1", "echo", "x")[0], 0)
        self.assertEqual(self.tell(run, "stop")[1], "worker 0: bye\nworker 1: bye\n")
        self.assertEqual(run.wait(), 0, run.err())

    def test_no_answer_ends_the_job_and_none_moves_the_cursor(self):
        run = self.start_told("commit", "-w", "2", "-p", "1")
        self.told_all(run, "echo")
        # JSON writes each of these bytes as six: more than a control message together.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            told = [pool.submit(self.tell, run, "--worker", "1", "bytes", "65536 1") for _ in range(6)]
            for one in told:
                status, out, err = one.result()
                self.assertEqual((status, err), (0, ""))
                self.assertEqual(out, "worker 1: " + r"\x01" * 65536 + "\n")
        for body, words in (("30000 255", "its answer is not UTF-8"),
                            ("65537 65", "its answer has 65537 bytes, want at most 65536")):
            self.assertEqual(self.tell(run, "--worker", "1", "bytes", body), (1, "", f"prun.py: worker 1: {words}\n"))
        self.assertRegex(self.tell(run, "--worker", "1", "echo", "\x1b[2J\nprun.py: done")[1],
                         r"^worker 1: \d+:\\x1b\[2J\n    prun.py: done\n$")
        self.assertEqual(self.tell(run, "stop")[0], 0)
        self.assertEqual(run.wait(), 0, run.err())

    def test_the_body_is_in_no_command_line(self):
        run = self.start_told("commit", "-w", "1", "-p", "1")
        self.told_all(run, "echo")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            told = pool.submit(self.tell, run, "sleep", "1.0000000000625")  # the secret
            asking = []
            while not told.done():
                for process in processes_of(run.job()):
                    if process.command[0].endswith("send_request"):
                        asking.append(process.command)
            self.assertEqual(told.result()[0], 0)
        self.assertTrue(asking)
        self.assertNotIn("0000000625", str(asking))
        self.assertEqual(self.tell(run, "stop")[0], 0)
        self.assertEqual(run.wait(), 0, run.err())

    def test_wrong_usage_and_wrong_runs_are_refused(self):
        run = self.start_told("deaf", "-w", "2", "-p", "1")
        status, out, err = self.tell(run, "echo")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("prun.py: worker 1: it accepts no commands: its program registers no function for them "
                      "(paracel_on_command)\n", err)
        for arguments, words in ((("--worker", "x", "echo"), "'x' is not a whole number"), ((), "COMMAND"),
                                 (("--timeout", "0", "echo"), "'0' is not a number of seconds above 0"),
                                 (("--timeout", "nan", "echo"), "'nan' is not a number of seconds above 0"),
                                 (("--servers", "--worker", "1", "echo"), "not allowed with")):
            status, out, err = self.tell(run, *arguments)
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertIn(words, err)
        status, _, err = self.tell(run, "echo", folder="nowhere")
        self.assertEqual(status, 2)
        self.assertIn("--run nowhere: no such folder", err)

    def test_only_who_has_the_jobs_key_may_give_commands(self):
        """As for the other requests to a scheduler: the job's id alone is not enough where others can connect."""
        run = self.start("--host", "127.0.0.1", "-w", "1", "-p", "1", TOLD, "commit")
        self.assertTrue(wait_until(lambda: "ready" in run.out(), 30), run.err())
        folder = os.path.join(self.folder, run.logs())
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
            note = json.load(file)
        command = [os.path.join(BIN, "send_request"), "--rendezvous", note["scheduler"], "--job", note["job"], "--verb", "tell",
                   "--body", json.dumps({"to": "workers", "command": "stop"})]
        done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("this is the scheduler of job", done.stderr)
        self.assertEqual(self.tell(run, "stop")[0], 0)
        self.assertEqual(run.wait(), 0, run.err())

    def test_a_local_job_listens_at_the_address_of_an_interface(self):
        """The scheduler's port is chosen before it runs, and the others wait for it, as with --host."""
        run = self.start_told("commit", "--bind-interface", "lo", "-w", "2", "-p", "2")
        with open(os.path.join(self.folder, run.logs(), "run.json"), encoding="utf-8") as file:
            self.assertRegex(json.load(file)["scheduler"], r"^tcp://127\.0\.0\.1:[0-9]+$")
        status, out, err = self.tell(run, "--servers", "stats")
        self.assertEqual(status, 0, err)
        self.assertEqual(len(out.splitlines()), 2, out)
        self.assertEqual(self.told_all(run, "stop")[0], 0)
        self.assertEqual(run.wait(), 0, run.err())

    def test_servers_answer_stats(self):
        run = self.start_told("commit", "-w", "1", "-p", "2")
        status, out, err = self.tell(run, "--servers", "stats")
        self.assertEqual(status, 0, err)
        for slot, line in enumerate(out.splitlines()):
            who, text = line.split(": ", 1)
            self.assertEqual(who, f"server s{slot}")
            self.assertEqual(json.loads(text)["slot"], slot)
        self.assertEqual(self.tell(run, "--server", "1", "stats")[1].split(":")[0], "server s1")
        status, _, err = self.tell(run, "--servers", "dance")
        self.assertEqual(status, 1)
        self.assertIn('no command "dance": servers accept one command, stats', err)
        self.assertEqual(self.tell(run, "stop")[0], 0)
        self.assertEqual(run.wait(), 0, run.err())

    def test_a_worker_that_dies_in_a_command_is_reported(self):
        run = self.start_told("commit", "-w", "3", "-p", "1", "--on-worker-death", "eject")
        self.told_all(run, "echo")
        begin = time.monotonic()
        status, out, err = self.tell(run, "--worker", "2", "die")
        self.assertLess(time.monotonic() - begin, patient(10))
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err, r"worker 2: worker 2 \(pid \d+ on .*\) lost: .*; it is unknown whether it has run the command\n")
        self.assertTrue(wait_until(lambda: "w2 ejected (dead)\n" in run.out(), 20), run.out())
        status, out, err = self.tell(run, "stop")
        self.assertEqual((status, out), (1, "worker 0: bye\nworker 1: bye\n"))
        self.assertIn("worker 2: worker 2 (pid", err)
        self.assertEqual(run.wait(), 0, run.err())

    def test_the_answer_is_the_end_of_the_job_when_the_job_ends(self):
        run = self.start_told("commit", "-w", "2", "-p", "1")
        self.told_all(run, "echo")
        status, out, err = self.tell(run, "--worker", "1", "die")
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err, r"(the job ends|is over: exit status 10 \(worker lost\)): worker 1 ")
        self.assertEqual(run.wait(), 10, run.err())

    def test_a_replacement_takes_the_next_command_and_the_program_is_told_of_it_and_of_servers(self):
        run = self.start_told("commit", "-w", "2", "-p", "3", "--replicas", "2", "--on-worker-death", "wait:60")
        self.told_all(run, "echo")
        self.assertIn("it is unknown whether it has run the command", self.tell(run, "--worker", "1", "die")[2])
        self.assertTrue(wait_until(lambda: self.tell(run, "--worker", "1", "echo")[0] == 0, 60))
        self.assertTrue(wait_until(lambda: "w1 awaited (dead)\nw1 catching up\nw1 up\n" in run.out(), 30), run.out())
        run.server(1).kill()
        self.assertTrue(wait_until(lambda: "s1 down (dead)\ns1 joining\ns1 up\n" in run.out(), 60), run.out())
        self.assertEqual(self.tell(run, "stop")[0], 0)
        self.assertEqual(run.wait(), 0, run.err())

    def test_a_program_that_is_a_job_of_its_own_can_only_tell_itself(self):
        done = subprocess.run([TOLD, "self"], capture_output=True, text=True, env=clean_environment(), cwd=self.folder,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (1, "0 1:x\n"))
        self.assertIn("told: error: a job without a scheduler has one process, which takes commands as worker 0", done.stderr)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Workers are killed and stopped at random moments under --on-worker-death wait:T: each is replaced, and a bsp run is
bit-identical to an undisturbed one. PARACEL_KILL_RUNS (default 1): the number of repetitions."""
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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from document_samples import check_samples  # noqa: E402
from process_support import BIN, END_LIMIT, LR, MPI, JobTest, main, patient, read_bytes, wait_until  # noqa: E402

RUNS = int(os.environ.get("PARACEL_KILL_RUNS", "1"))
STEPS = os.path.join(BIN, "test_steps")
COUNTERS = os.path.join(BIN, "test_counters")
QUEUE = os.path.join(BIN, "test_queue_steps")
ROUNDS = 1000


class Wait(JobTest):
    models = {}
    steps = {}

    def start_lr(self, name, *options, rounds=ROUNDS, wait="20", **more):
        return self.start_paced(name + ".json", "-w", "4", "-p", "2", "--on-worker-death", "wait:" + wait, "--heartbeat-limit",
                                f"{patient(1.5):.1f}", *options, output=name + "/", rounds=rounds, **more)

    def workers(self, run, count=4):
        """The processes of the workers, by rank."""
        return wait_until(lambda: len(found := run.workers()) == count and found, 20) or self.fail(run.err())

    def under_way(self, run, count=4):
        self.says(run, "round")
        return self.workers(run, count)

    def assert_replaced(self, run, rank):
        self.says(run, f"worker {rank} is restarted", 30)
        self.touch(run.enough)
        self.assertEqual(run.wait(60), 0, run.err() + run.out())
        self.assertRegex(run.err(), rf"worker {rank} \(pid \d+ on \S+\) lost: .*; the others wait at most 20 s for a "
                                    r"replacement\n")
        self.assertRegex(run.err(), rf"worker {rank} is restarted \(pid \d+\); \d restarts? left\n")
        self.assertRegex(run.err(), rf"worker {rank} \(pid \d+\) has caught up\n")
        check_samples(self, "doc/workers.md", "test_wait", run.err(), containing="is restarted")
        check_samples(self, "doc/workers.md", "test_wait", run.err(), containing="caught up")
        self.assert_nothing_left(run.job(), 1)
        self.assertEqual([name for name in os.listdir(run.logs()) if not name.endswith((".log", ".json", ".jsonl"))], [])

    def model(self, name):
        return read_bytes(os.path.join(self.folder, name, "lr_theta_0"))

    def undisturbed(self, method="dgd"):
        if method not in self.models:
            run = self.start_lr("alone", method=method)
            self.touch(run.enough)
            self.assertEqual(run.wait(60), 0, run.err())
            self.models[method] = self.model("alone")
            self.assertTrue(self.models[method])
        return self.models[method]

    # -- programs that cannot be replaced

    def test_a_program_whose_schema_says_that_it_is_not_resumable_is_refused_before_the_start(self):
        facts = '{"plugins": [], "program": "restarts", "resumable": false}'
        program = self.write_program("restarts", "# paracel-schema-v1", f"case $1 in --check=*) echo '{facts}'; exit;; esac",
                                     "echo it was started >&2")
        self.write_config("nothing.json", **dict.fromkeys(("training_input", "output", "method", "rounds", "alpha", "beta")))
        err = self.assert_refused("no process can replace a worker of restarts, because it uses neither first_iteration nor "
                                  "resumable_loop", "-c", "nothing.json", "--on-worker-death", "wait:5", program)
        self.assertNotIn("it was started", err)
        status, _, err = self.prun("-c", "nothing.json", "--dry-run", program)
        self.assertEqual(status, 0, err)

    def test_a_program_that_never_asks_where_its_loop_begins_warns_at_its_first_commit(self):
        program = os.path.join(BIN, "test_last_update")
        for options, warns in (("--on-worker-death", "wait:5"), 1), ((), 0):
            status, _, err = self.prun("-w", "2", *options, program, "bsp", "fits")
            self.assertEqual(status, 0, err)
            self.assertEqual(err.count("warning: a dead worker cannot be replaced"), warns, err)

    def test_a_program_with_messages_between_workers_warns_at_the_first_one(self):
        program = os.path.join(BIN, "test_last_update")
        for options, warns in (("--on-worker-death", "wait:5"), 1), ((), 0):
            status, _, err = self.prun("-w", "3", *options, program, "bsp", "messages")
            self.assertEqual(status, 0, err)
            lines = re.findall(r"prun: worker \d: warning: (.*)\n", err)  # every worker says it
            self.assertEqual(lines, ["a dead worker cannot be replaced (--on-worker-death): it has exchanged messages with other "
                                     "workers, which are not saved"] * warns, err)

    # -- a full disk under the run folder

    def start_on_small_disk(self, *options):
        """Its run folder has 256 KiB, a worker's state 320 KB."""
        parent = tempfile.mkdtemp(dir=self.folder)
        script = 'mount -t tmpfs -o size=256k none "$1" 2>/dev/null || exit 77; shift; exec "$@"'
        run = self.start("-w", "3", "-p", "1", "--run-dir", os.path.join(parent, "run"), "--on-worker-death", "wait:20",
                         *options, prefix=("unshare", "-rm", "/bin/sh", "-c", script, "sh", parent))
        wait_until(lambda: run.err() or run.process.poll() is not None, 20)
        if "unshare:" in run.err() or run.process.poll() == 77:
            self.skipTest("no file system can be mounted here")
        return run

    def test_a_job_whose_workers_cannot_save_their_state_warns_and_continues(self):
        _, undisturbed, _ = self.prun("-w", "3", "-p", "1", QUEUE, "20")
        run = self.start_on_small_disk(QUEUE, "20")
        self.assertEqual(run.wait(60), 0, run.err())
        self.assertEqual(run.out(), undisturbed)
        warnings = re.findall(r"prun: worker \d: warning: (.*)\n", run.err())
        self.assertEqual(len(warnings), 3, run.err())
        for text in warnings:
            self.assertRegex(text, r"^a dead worker cannot be replaced \(--on-worker-death\): its state cannot be saved: "
                                   r"\S+\.kept: cannot be written: No space left on device$")

    def test_a_worker_whose_state_could_not_be_saved_is_not_replaced_by_an_older_one(self):
        run = self.start_on_small_disk(QUEUE, "4000", "slow")
        self.says(run, "its state cannot be saved")
        self.workers(run, 3)[1].kill()
        self.assertEqual(run.wait(60), 10, run.err())
        self.assertRegex(run.err(), r"no other process can replace it: its state cannot be saved: \S+\.kept: cannot be written")

    # -- a host that crashes

    def calls_of_a_worker(self, name, *options, prefix=()):
        """(call, file) of worker 1: what it writes for its replacement, and what it does next in the same thread."""
        calls = self.not_there("calls")
        program = self.write_program(name, 'test "$PARACEL_RANK" = 1 || exec "$@"', f"exec strace -f -y -qq -o {calls} -e "
                                     'trace=pwrite64,fdatasync,fsync,write,writev,sendto,sendmsg,poll "$@"')
        self.write_config("few.json", output="few/", rounds=5)
        status, _, err = self.prun("-w", "2", "-p", "1", "-c", "few.json", "--on-worker-death", "wait:20", *options, program, LR,
                                   prefix=prefix)
        self.assertEqual(status, 0, err)
        threads = {}
        for line in read_bytes(calls).decode("utf-8", "replace").splitlines():
            found = re.match(r"(\d+) +(\w+)\((?:\d+<([^>]*)>)?", line)
            if found:
                threads.setdefault(found[1], []).append((found[2], os.path.basename(found[3] or "")))
        pairs = [pair for of in threads.values() for pair in zip(of, of[1:]) if pair[0][1].startswith("worker-1.")]
        folders = [file for of in threads.values() for call, file in of if call == "fsync"]
        return [pair for pair in pairs if pair[0][0] == "pwrite64"], folders

    @unittest.skipUnless(shutil.which("strace"), "needs strace")
    def test_what_a_replacement_on_another_host_needs_is_on_disk_before_it_counts(self):
        alone, folders = self.calls_of_a_worker("traced_alone")
        self.assertGreaterEqual(len(alone), 6, "its client, and each commit")
        self.assertNotIn("fdatasync", {then[0] for _, then in alone}, "all processes are on one host, and die with it")
        self.assertEqual(folders, [])
        script = 'ip link set lo up && ip addr add 192.0.2.1/32 dev lo || exit 77; exec "$@"'
        if subprocess.run(["unshare", "-rn", "/bin/sh", "-c", script, "sh", "true"], check=False).returncode != 0:
            self.skipTest("no network of its own can be made here")
        run = self.not_there("run")
        pairs, folders = self.calls_of_a_worker("traced", "--host", "192.0.2.1", "--run-dir", run,
                                                prefix=("unshare", "-rn", "/bin/sh", "-c", script, "sh"))
        self.assertGreaterEqual(len(pairs), 6)
        self.assertEqual({written[1] for written, _ in pairs}, {"worker-1.kept0", "worker-1.kept1", "worker-1.clients"})
        for written, then in pairs:
            self.assertEqual(then, ("fdatasync", written[1]))
        self.assertEqual(folders, ["run"], "their names, too")

    # -- a model

    def test_the_model_has_the_bits_of_the_undisturbed_one(self):
        for turn in range(RUNS):
            for method in ("dgd", "ipm"):
                with self.subTest(turn=turn, method=method):
                    expected = self.undisturbed(method)
                    run = self.start_lr("killed", method=method)
                    workers = self.under_way(run)
                    time.sleep(random.uniform(0, 0.3))
                    rank = random.randrange(4)
                    workers[rank].kill()
                    self.assert_replaced(run, rank)
                    self.assertEqual(self.model("killed"), expected)

    def test_a_worker_killed_while_it_loads_is_replaced(self):
        expected = self.undisturbed()
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run = self.start_lr("early", "-v")
                workers = self.workers(run)
                self.says(run, "event started")
                time.sleep(random.uniform(0, 0.03))
                rank = random.randrange(4)
                workers[rank].kill()
                self.assert_replaced(run, rank)
                self.assertEqual(self.model("early"), expected)

    def test_a_stopped_worker_is_killed_and_replaced(self):
        expected = self.undisturbed()
        run = self.start_lr("stopped")
        workers = self.under_way(run)
        rank = random.randrange(4)
        workers[rank].kill(signal.SIGSTOP)
        self.assert_replaced(run, rank)
        self.assertIn("no heartbeat for", run.err())
        self.assertEqual(self.model("stopped"), expected)

    def test_with_copies_of_the_parameters(self):
        expected = self.undisturbed()
        run = self.start_lr("copies", "--replicas", "2")
        workers = self.under_way(run)
        rank = random.randrange(4)
        workers[rank].kill()
        self.assert_replaced(run, rank)
        self.assertEqual(self.model("copies"), expected)

    def test_without_bsp_the_run_continues_to_its_end(self):
        for consistency, more in (("asp", {}), ("auto", {"method": "downpour"})):
            with self.subTest(consistency=consistency):
                run = self.start_lr("loose", consistency=consistency, **more)
                workers = self.under_way(run)
                rank = random.randrange(4)
                workers[rank].kill()
                self.assert_replaced(run, rank)
                self.assertTrue(self.model("loose"))

    # -- collectives in the iterations, random states, rows, one algorithm after another

    def start_steps(self, rounds, *options):
        """Each round takes at least 20 ms until `run.enough` exists."""
        enough = self.not_there("enough")
        run = self.start("-w", "3", "-p", "2", "--on-worker-death", "wait:20", *options, STEPS, str(rounds), "20000", enough)
        run.enough = enough
        return run

    def undisturbed_steps(self, rounds):
        if rounds not in self.steps:
            run = self.start_steps(rounds)
            self.touch(run.enough)
            self.assertEqual(run.wait(60), 0, run.err())
            self.assertRegex(run.out(), r"^first \S+\nsecond \S+\n$")
            self.steps[rounds] = run.out()
        return self.steps[rounds]

    def test_collectives_and_random_states_go_on_where_they_were(self):
        expected = self.undisturbed_steps(150)
        for turn in range(max(2, RUNS)):
            for options in ([], ["--replicas", "2"]):
                with self.subTest(turn=turn, options=options):
                    run = self.start_steps(150, *options)
                    workers = self.under_way(run, 3)
                    time.sleep(random.uniform(0, 0.5))
                    rank = random.randrange(3)
                    workers[rank].kill()
                    self.assert_replaced(run, rank)
                    # A worker 0 that was replaced after its first algorithm prints that one's result again.
                    self.assertEqual(list(dict.fromkeys(run.out().splitlines())), expected.splitlines(), run.err())

    def test_one_after_the_other_may_die_and_those_in_their_places_too(self):
        expected = self.undisturbed_steps(150)
        run = self.start_steps(150, "--max-restarts", "4")
        self.under_way(run, 3)
        for kill in range(4):
            workers = self.workers(run, 3)
            rank = kill // 2 + 1
            workers[rank].kill()
            self.assertTrue(wait_until(lambda n=kill + 1: run.err().count("is restarted") == n, 20), run.err())
            time.sleep(random.choice([0, 0.05, 0.3]))
        self.touch(run.enough)
        self.assertEqual(run.wait(60), 0, run.err() + run.out())
        self.assertEqual(list(dict.fromkeys(run.out().splitlines())), expected.splitlines(), run.err())
        self.assert_nothing_left(run.job(), 1)

    # -- other ways in which it ends

    def test_status_shows_it(self):
        run = self.start_lr("long", rounds=100000)
        workers = self.under_way(run)
        workers[1].kill()
        self.says(run, "has caught up")
        check_samples(self, "doc/workers.md", "test_wait", run.err())  # of a worker that was killed
        shown = self.status_of(run)
        self.assertRegex(shown, r"\n1 +up ")
        self.assertRegex(shown, r" s ago: worker 1 \(pid \d+ on \S+\) lost: it was killed by SIGKILL\n")
        run.process.terminate()
        self.assertEqual(run.wait(END_LIMIT), 143)
        self.assert_nothing_left(run.job(), 1)

    def test_after_that_time_the_job_ends(self):
        self.write_config("late.json", output="late/", rounds=100000)
        program = self.write_program("comes_late", 'if [ -e "seen$PARACEL_RANK" ]; then exec sleep 60; fi',
                                     'touch "seen$PARACEL_RANK"', f'exec {LR} "$@"')
        run = self.start("-w", "3", "-c", "late.json", "--on-worker-death", "wait:1", program)
        workers = self.under_way(run, 3)
        workers[1].kill()
        self.assertEqual(run.wait(1 + END_LIMIT), 10, run.err())
        self.assertRegex(run.err(), r"worker 1 \(pid \d+ on \S+\) lost: it was killed by SIGKILL; no replacement had caught up "
                                    r"within 1 s \(--on-worker-death\)\n")
        self.assert_nothing_left(run.job(), 1)

    def test_when_no_restart_is_left_the_job_ends(self):
        run = self.start_lr("last", "--max-restarts", "0", rounds=100000)
        self.under_way(run)[2].kill()
        self.assertEqual(run.wait(END_LIMIT), 10, run.err())
        self.assertRegex(run.err(), r"worker 2 \(pid \d+\) was killed by SIGKILL, and no restart is left \(--max-restarts\)\n")
        self.assert_nothing_left(run.job(), 1)

    def test_a_program_that_cannot_go_on_ends_with_that_cause(self):
        run = self.start("-w", "2", "--on-worker-death", "wait:20", COUNTERS, "100000", "5")
        workers = self.under_way(run, 2)
        # An uncommitted first iteration can be repeated.
        self.assertTrue(wait_until(lambda: re.search(r"\n1 +up .* [1-9]\d*\n", self.status_of(run) + "\n"), 20), run.err())
        workers[1].kill()
        self.assertEqual(run.wait(2 * END_LIMIT), 10, run.err())
        self.assertRegex(run.err(), r"worker 1 \(pid \d+ on \S+\) lost: it was killed by SIGKILL; no other process can replace "
                                    r"it: its program uses neither first_iteration nor resumable_loop\n")
        self.assert_nothing_left(run.job(), 1)

    def test_what_may_count_twice_is_told_at_the_end(self):
        run = self.start_steps(0, "-v", "-w", "2")
        workers = self.workers(run, 2)
        self.says(run, "event started")
        time.sleep(random.uniform(0, 0.3))
        workers[1].kill()
        self.says(run, "worker 1 is restarted")
        self.touch(run.enough)
        self.assertEqual(run.wait(20), 10, run.err())
        self.assertIn("worker 1 is the replacement of a dead process, and its program uses neither first_iteration nor "
                      "resumable_loop: what that process had done may count twice\n", run.err())
        self.assert_nothing_left(run.job(), 1)

    def test_a_worker_that_fails_by_itself_ends_the_job(self):
        program = self.write_program("fails", 'if [ "$PARACEL_RANK" = 1 ]; then sleep 0.3; exit 4; fi', "sleep 30")
        status, _, err = self.prun("-w", "2", "--on-worker-death", "wait:5", program)
        self.assertEqual(status, 4, err)

    def test_what_cannot_be_is_refused(self):
        for text, *options in (("--on-worker-death wait: want abort, eject or wait:T", "--on-worker-death", "wait"),
                               ("'x' is not a number of seconds above 0", "--on-worker-death", "wait:x"),
                               ("want 0.1 to 1000000 seconds", "--on-worker-death", "wait:0.01"),
                               ("MPI cannot continue after losing a rank", "-m", "mpi", "--on-worker-death", "wait:5")):
            if "mpi" in options and not MPI:
                continue
            self.assert_refused(text, *options, LR)


if __name__ == "__main__":
    main()

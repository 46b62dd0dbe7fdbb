#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Workers are killed and stopped at random moments under --on-worker-death eject: the others finish, with a model of the
remaining data, and the missing data is reported. PARACEL_KILL_RUNS (default 1): the number of repetitions."""
import os
import random
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, END_LIMIT, LR, MPI, JobTest, main, patient, read_bytes, wait_until  # noqa: E402

RUNS = int(os.environ.get("PARACEL_KILL_RUNS", "1"))
COUNTERS = os.path.join(BIN, "test_counters")
AGAIN = "replicas of everything exist again"


class Eject(JobTest):
    def start_lr(self, name, rounds=1500, **more):
        return self.start_paced(name + ".json", "-w", "4", "-p", "2", "--on-worker-death", "eject", "--heartbeat-limit",
                                f"{patient(1.5):.1f}", output=name + "/", rounds=rounds, **more)

    def under_way(self, run, count=4):
        """Waits until the job has started; returns the worker processes by rank."""
        self.says(run, "round")
        found = run.workers()
        self.assertEqual(sorted(found), list(range(count)), run.err())
        return found

    def kill_worker_and_server(self, run, worker, slot, pause):
        """`pause`: seconds between the worker's death and the server's; below 0 the server dies first."""
        server = run.server(slot)
        first, second = (worker, server) if pause >= 0 else (server, worker)
        first.kill()
        time.sleep(abs(pause))
        second.kill()

    def theta(self, name):
        text = read_bytes(os.path.join(self.folder, name, "lr_theta_0")).decode()
        return [float(word) for word in text.strip().split("|")]

    def assert_finished_without(self, run, rank, name):
        lost = rf"worker {rank} \(pid \d+ on \S+\) lost: .*; the job continues without it"
        self.assertTrue(wait_until(lambda: re.search(lost, run.err()) or run.process.poll() is not None, 30), run.err())
        self.touch(run.enough)
        self.assertEqual(run.wait(60), 0, run.err())
        self.assertRegex(run.err(), lost)
        self.assertRegex(run.err(), rf"worker {rank} was ejected after \d+ iterations, as of its last heartbeat: from then on "
                                    r"its share of the data, 1 of 4 parts, was not used\n")
        self.assert_nothing_left(run.job(), 1)
        theta = self.theta(name)
        self.assertEqual(len(theta), 11)
        # All samples have the same distribution, so the model of three quarters of them points in the same direction.
        whole = self.theta("whole")
        cosine = (sum(a * b for a, b in zip(theta, whole))
                  / (sum(a * a for a in theta) * sum(b * b for b in whole)) ** 0.5)
        self.assertGreater(cosine, 0.9, (theta, whole))

    def setUp(self):
        if not os.path.exists(os.path.join(self.folder, "whole", "lr_theta_0")):
            run = self.start_lr("whole")
            self.touch(run.enough)
            self.assertEqual(run.wait(60), 0, run.err())
            self.assertNotIn("ejected", run.err())

    def test_the_others_go_on_when_a_worker_is_killed(self):
        for turn in range(RUNS):
            for method in ("dgd", "downpour"):  # bsp; ssp
                with self.subTest(turn=turn, method=method):
                    run = self.start_lr("killed", method=method)
                    workers = self.under_way(run)
                    time.sleep(random.uniform(0, 0.3))
                    rank = random.randrange(1, 4)
                    workers[rank].kill()
                    self.assert_finished_without(run, rank, "killed")

    def test_a_worker_is_ejected_while_servers_change(self):
        # The clock has advanced, or is about to, when the worker is to be removed from it.
        for turn in range(4 * RUNS):
            with self.subTest(turn=turn):
                run = self.start_paced("both.json", "-w", "4", "-p", "3", "--replicas", "2", "--on-worker-death", "eject",
                                       output="both/", rounds=3000)
                workers = self.under_way(run)
                rank = random.randrange(1, 4)
                self.kill_worker_and_server(run, workers[rank], turn % 3, random.uniform(-0.02, 0.02))
                self.assert_finished_without(run, rank, "both")

    def test_what_the_others_count_is_exact_when_a_server_dies_with_the_ejected(self):
        for turn in range(2 * RUNS):
            with self.subTest(turn=turn):
                enough = self.not_there("enough")
                run = self.start("-w", "3", "-p", "3", "--replicas", "2", "--on-worker-death", "eject", COUNTERS, enough,
                                 "2")
                workers = self.under_way(run, 3)
                self.kill_worker_and_server(run, workers[1], random.randrange(3), random.uniform(-0.02, 0.02))
                self.assertTrue(wait_until(lambda r=run: AGAIN in r.err() or r.process.poll() is not None, 20), run.err())
                self.assertIsNone(run.process.poll(), run.err() + run.out())
                time.sleep(0.5)  # after that they have counted longer without it than with it
                self.touch(enough)
                # The program expects the counts of all three, and reports each sum that it got.
                self.assertEqual(run.wait(60), 1, run.err() + run.out())
                self.assert_only_its_counts_are_missing(run.out())

    def assert_only_its_counts_are_missing(self, out):
        said = re.findall(r"^worker 0: (.*): (\d+), want (\d+)$", out, re.MULTILINE)
        units = {"a shared counter": 2, "a counter of a set": 1, "a row": 1, "an element of an array": 1}  # in a round
        sums = {"a shared counter": 2, "a counter of a set": 2, "a row": 8, "an element of an array": 3,
                "a swapped value": 1}
        self.assertEqual({what: sum(w == what for w, _, _ in said) for what, _, _ in said}, sums, out)
        other = [line for line in out.splitlines() if not re.match(r"worker 0: .*, want |WRONG, longest round ", line)]
        self.assertEqual(other, [])  # no counters of a single worker
        its_rounds, rounds = next((int(got), int(want)) for what, got, want in said if what == "a swapped value")
        for what, got, _ in said:
            # The others have counted in every round, the ejected one in its rounds, possibly not to the end of the last one.
            if what in units:
                missing = units[what] * (2 * rounds + its_rounds) - int(got)
                self.assertLessEqual(abs(missing), units[what], (what, got, its_rounds, rounds))

    def test_a_stopped_worker_is_killed_and_the_others_go_on(self):
        run = self.start_lr("stopped")
        workers = self.under_way(run)
        workers[2].kill(signal.SIGSTOP)
        self.assert_finished_without(run, 2, "stopped")

    def test_one_after_the_other_may_die(self):
        run = self.start_lr("two")
        workers = self.under_way(run)
        workers[1].kill()
        self.assertTrue(wait_until(lambda: "without it" in run.err(), 10), run.err())
        workers[3].kill()
        self.assert_finished_without(run, 3, "two")
        self.assertIn("worker 1 was ejected after", run.err())

    def test_status_names_the_ejected(self):
        run = self.start_lr("long", rounds=100000)
        workers = self.under_way(run)
        workers[1].kill()
        self.assertTrue(wait_until(lambda: "without it" in run.err(), 10), run.err())
        shown = self.status_of(run)
        self.assertRegex(shown, r"\n1 +ejected ")
        self.assertRegex(shown, r" s ago: worker 1 \(pid \d+ on \S+\) lost: it was killed by SIGKILL\n")
        run.process.terminate()
        self.assertEqual(run.wait(END_LIMIT), 143)
        self.assert_nothing_left(run.job(), 1)

    def test_worker_0_writes_the_results_and_cannot_be_spared(self):
        run = self.start_lr("first", rounds=100000)
        self.under_way(run)[0].kill()
        self.assertEqual(run.wait(END_LIMIT), 10, run.err())
        self.assertRegex(run.err(), r"worker 0 \(pid \d+\) was killed by SIGKILL; worker 0 writes the results: it cannot be "
                                    r"ejected\n")
        self.assertNotIn("prun: round", run.err().split("was killed by SIGKILL", 1)[1], "how far it was is said before the cause")
        self.assert_nothing_left(run.job(), 1)

    def test_a_worker_that_fails_by_itself_ends_the_job(self):
        program = self.write_program("fails", 'if [ "$PARACEL_RANK" = 1 ]; then sleep 0.3; exit 4; fi', "sleep 30")
        status, _, err = self.prun("-w", "2", "--on-worker-death", "eject", program)
        self.assertEqual(status, 4, err)

    def test_what_cannot_be_is_refused(self):
        for text, *options in (("--on-worker-death maybe: want abort, eject or wait:T", "--on-worker-death", "maybe"),
                               ("MPI cannot continue after losing a rank", "-m", "mpi", "--on-worker-death", "eject")):
            if "mpi" in options and not MPI:
                continue
            self.assert_refused(text, *options, LR)


if __name__ == "__main__":
    main()

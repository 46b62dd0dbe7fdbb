#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of a Comm in real processes: the same bits in shared memory, over messages, by the scheduler's log and under
mpirun; and jobs in which a worker dies, leaves, fails or calls something else while the others wait."""
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, END_LIMIT, MPI, JobTest, clean_environment, main, patient, wait_until  # noqa: E402

STEPS = os.path.join(BIN, "test_comm_steps")
WAYS = (("memory", "1", ()), ("messages", "0", ()))


class Comm(JobTest):
    def run_steps(self, *options, shares="1", workers="3"):
        return self.prun("-w", workers, "-p", "1", *options, environment=clean_environment(PARACEL_SHARED_MEMORY=shares))

    def start_steps(self, *options, shares="1"):
        return self.start("-w", "3", "-p", "1", *options, environment=clean_environment(PARACEL_SHARED_MEMORY=shares))

    def test_results_have_the_same_bits_in_every_way(self):
        for workers in ("1", "2", "3", "5"):
            outs = {}
            ways = [("1", ()), ("0", ())]
            if workers != "1":
                ways += [("1", ("--on-worker-death", "eject"))]
            if MPI:
                ways += [("1", ("-m", "mpi")), ("0", ("-m", "mpi"))]
            for shares, options in ways:
                status, out, err = self.run_steps(*options, STEPS, "40", shares=shares, workers=workers)
                self.assertEqual(status, 0, err)
                outs[shares, options] = out
            self.assertEqual(len(set(outs.values())), 1, outs)
            self.assertRegex(next(iter(outs.values())), r"^-?0x[0-9a-f.]+p[-+]\d+\n$")

    def test_a_limit_on_files_ends_nobody(self):
        """Shared memory is a file, too: beyond the limit there is none, and messages are sent."""
        status, unlimited, err = self.run_steps(STEPS, "40")
        self.assertEqual(status, 0, err)
        status, out, err = self.prun("-w", "3", "-p", "1", STEPS, "40", prefix=("sh", "-c", 'ulimit -f 200; exec "$@"', "sh"))
        self.assertEqual((status, out), (0, unlimited), err)

    def test_a_replaced_worker_repeats_its_collectives(self):
        status, undisturbed, err = self.run_steps(STEPS, "300", "sums")
        self.assertEqual(status, 0, err)
        run = self.start_steps("--on-worker-death", "wait:20", STEPS, "300", "sums")
        self.says(run, "round")
        wait_until(lambda: run.worker(1), 20).kill()
        self.assertEqual(run.wait(60), 0, run.err())
        self.assertIn("worker 1 is restarted", run.err())
        self.assertEqual(run.out(), undisturbed)

    def test_sums_leave_out_a_worker_that_was_ejected(self):
        status, undisturbed, err = self.run_steps(STEPS, "400", "sums")
        self.assertEqual(status, 0, err)
        run = self.start_steps("--on-worker-death", "eject", STEPS, "400", "sums")
        self.says(run, "round")
        wait_until(lambda: run.worker(1), 20).kill()
        self.assertEqual(run.wait(60), 0, run.err())
        self.assertRegex(run.err(), "worker 1 .*ejected|without worker 1")
        self.assertNotEqual(run.out(), undisturbed)

    def test_a_worker_that_is_killed_ends_the_wait_of_the_others(self):
        for name, shares, options in WAYS:
            for rank in (0, 1, 2):
                with self.subTest(way=name, rank=rank):
                    run = self.start_steps(*options, STEPS, "100000", "slow", shares=shares)
                    self.says(run, "round")
                    time.sleep(random.uniform(0, 0.2))
                    wait_until(lambda: run.worker(rank), 20).kill()
                    self.assertEqual(run.wait(END_LIMIT), 10, run.err())
                    self.assertRegex(run.err(), rf"worker {rank} \(pid \d+\) was killed by SIGKILL")
                    self.assert_nothing_left(run.job(), END_LIMIT)

    def test_a_worker_that_is_killed_while_the_others_wait_for_it_is_named_at_once(self):
        for name, shares, options in WAYS:
            with self.subTest(way=name):
                # Heartbeats are rare, so nobody learns of the death from them.
                run = self.start_steps("--heartbeat-limit", "60", *options, STEPS, "100000", "late", shares=shares)
                self.says(run, "round")
                time.sleep(0.5)
                begin = time.monotonic()
                wait_until(lambda: run.worker(1), 20).kill()
                self.assertEqual(run.wait(END_LIMIT), 10, run.err())
                self.assertLess(time.monotonic() - begin, patient(2))
                self.assertRegex(run.err(), r"worker 1 \(pid \d+\) was killed by SIGKILL")
                self.assert_nothing_left(run.job(), END_LIMIT)

    def test_calls_that_differ_are_an_error_that_names_both(self):
        modes = [(n, s, ("-m", "mpi")) for n, s, _ in WAYS if MPI]
        for name, shares, options in [*WAYS, *modes]:
            with self.subTest(way=name, options=options):
                status, _, err = self.run_steps(*options, STEPS, "20", "differ", shares=shares)
                self.assertEqual(status, 1, err)
                self.assertRegex(err, r"the tasks differ: task 0 calls all_reduce of 9000 f64, sum, task 1 calls barrier|"
                                      r"the tasks differ: task 1 calls barrier, task 2 calls all_reduce of 9000 f64, sum")
        status, _, err = self.run_steps("--on-worker-death", "eject", STEPS, "20", "differ")
        self.assertEqual(status, 1, err)
        self.assertIn("the ranks disagree", err)

    def test_a_worker_that_leaves_early_is_an_error_of_those_that_wait(self):
        for name, shares, options in [*WAYS, ("log", "1", ("--on-worker-death", "eject"))]:
            with self.subTest(way=name):
                run = self.start_steps(*options, STEPS, "20", "leave", shares=shares)
                self.assertEqual(run.wait(END_LIMIT + 5), 1, run.err())
                self.assertRegex(run.err(), "worker 1.* has left the job")

    def test_a_worker_that_fails_ends_the_others_with_its_error(self):
        for name, shares, options in [*WAYS, ("log", "1", ("--on-worker-death", "eject"))]:
            with self.subTest(way=name):
                status, _, err = self.run_steps(*options, STEPS, "20", "fail", shares=shares)
                self.assertEqual(status, 4, err)
                self.assertIn("on purpose", err)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs on com_queue as jobs: the example of doc/com_queue.md in every mode and with several numbers of workers, a resumed
one, and one whose workers are replaced."""
import glob
import os
import random
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, END_LIMIT, MPI, SOURCE, JobTest, clean_environment, main,  # noqa: E402
                             processes_of, read_bytes, wait_until)

KMEANS = os.path.join(BIN, "test_queue_kmeans")
STEPS = os.path.join(BIN, "test_queue_steps")
ROWS = os.path.join(BIN, "test_queue_rows")
FOLDS = os.path.join(BIN, "test_queue_folds")
MESSAGES = os.path.join(BIN, "test_message_order")
LATE = os.path.join(BIN, "test_late_messages")
COUNTS = os.path.join(BIN, "test_mpi_counts")


def serial_kmeans(rows, k):
    """The same arithmetic: sums of whole numbers are exact in any order."""
    centres = [list(map(float, row)) for row in rows[:k]]
    for _ in range(300):
        sums = [[0] * (len(rows[0]) + 1) for _ in range(k)]
        for row in rows:
            distances = []
            for centre in centres:
                distance = 0.0
                for x, y in zip(row, centre):
                    distance += (x - y) * (x - y)
                distances.append(distance)
            best = distances.index(min(distances))
            for j, x in enumerate(row):
                sums[best][j] += x
            sums[best][-1] += 1
        moved = [[x / s[-1] for x in s[:-1]] if s[-1] else c for s, c in zip(sums, centres)]
        if moved == centres:
            break
        centres = moved
    return centres


class ComQueue(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(5)
        cls.rows = [[dice.randrange(17) + 20 * (i % 4 == j) for j in range(6)] for i in range(400)]
        with open(os.path.join(cls.folder, "points.csv"), "w", encoding="utf-8") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in cls.rows)
        cls.centres = serial_kmeans(cls.rows, 5)

    def test_pages_show_parts_of_programs_as_they_are(self):
        shown = {}
        for path in glob.glob(os.path.join(SOURCE, "doc", "*.md")):
            page = read_bytes(path).decode()
            parts = re.findall(r"<!-- part of: (\S+) -->\n```cpp\n(.*?)\n```", page, re.DOTALL)
            self.assertEqual(len(parts), page.count("<!-- part of:"), path)
            for program, part in parts:
                self.assertIn(part, read_bytes(os.path.join(SOURCE, program)).decode(), path)
            if parts:
                shown[os.path.basename(path)] = parts
        self.assertEqual(sorted(shown), ["com_queue.md", "optim.md"])
        self.assertLessEqual(len(shown["com_queue.md"][0][1].splitlines()), 40)

    def test_kmeans_has_the_same_bits_in_every_mode_and_for_every_number_of_workers(self):
        texts = set()
        for mode in ("local", "mpi") if MPI else ("local",):
            for workers in ("1", "2", "3"):
                with self.subTest(mode=mode, workers=workers):
                    status, out, err = self.prun("-w", workers, "-p", "1", "-m", mode, KMEANS, "points.csv", "5")
                    self.assertEqual(status, 0, err)
                    texts.add(out)
                    found = [[float.fromhex(x) for x in line.split()] for line in out.splitlines()]
                    self.assertEqual(found, self.centres)
        self.assertEqual(len(texts), 1)

    def test_kmeans_runs_in_one_process(self):
        done = subprocess.run([KMEANS, "points.csv", "5"], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([[float.fromhex(x) for x in line.split()] for line in done.stdout.splitlines()], self.centres)

    def run_steps(self, *options, status=0):
        result, out, err = self.prun("-w", "3", "-p", "1", *options)
        self.assertEqual(result, status, err)
        return out, err

    def test_a_resumed_run_prints_the_bits_of_one_that_was_never_stopped(self):
        undisturbed, _ = self.run_steps(STEPS, "20")
        folder = os.path.join(self.folder, "kept")
        _, err = self.run_steps("--checkpoint-dir", folder, "--checkpoint-every", "3", STEPS, "20", "fail", status=1)
        self.assertRegex(err, r"superstep 11, item \d, task 1: on purpose")
        self.assertTrue(glob.glob(os.path.join(folder, "0000000009", "manifest.json")), os.listdir(folder))
        resumed, _ = self.run_steps("--resume", folder, STEPS, "20")
        self.assertEqual(resumed, undisturbed)

    def test_a_queue_goes_on_with_a_replaced_worker(self):
        undisturbed, _ = self.run_steps(STEPS, "400")
        run = self.start("-w", "3", "-p", "1", "--on-worker-death", "wait:20", STEPS, "400", "slow")
        self.kill_worker(run, 1)
        self.assertEqual(run.wait(60), 0, run.err())
        self.assertIn("worker 1 is restarted", run.err())
        self.assertEqual(run.out(), undisturbed)

    def test_a_queue_survives_a_death_in_any_of_its_supersteps(self):
        undisturbed, _ = self.run_steps(STEPS, "60")
        hit = 0
        for superstep in (1, 2, 5, 11, 23, 41):
            folder = os.path.join(self.folder, f"death{superstep}")
            run = self.start("-w", "3", "-p", "1", "--on-worker-death", "wait:20", "--checkpoint-dir", folder,
                             "--checkpoint-every", "1", "--checkpoint-keep", "60", STEPS, "60")
            made = os.path.join(folder, f"{superstep:010d}", "manifest.json")
            wait_until(lambda: os.path.exists(made) or run.process.poll() is not None, 20, 0.001)
            victim = run.worker(2)
            if victim is not None:
                victim.kill()
            self.assertEqual(run.wait(60), 0, run.err())
            self.assertEqual(run.out(), undisturbed)
            hit += "worker 2 is restarted" in run.err()
        self.assertGreaterEqual(hit, 3)

    def test_work_stealing_keeps_the_bits_in_every_mode(self):
        for mode in ("local", "mpi") if MPI else ("local",):
            with self.subTest(mode=mode):
                plain, _ = self.run_steps("-m", mode, ROWS, "5", "off")
                late, _ = self.run_steps("-m", mode, ROWS, "5", "on", "2", "6")
                self.assertEqual(late.splitlines()[0], plain.splitlines()[0])
                self.assertEqual(plain.splitlines()[1], "0")
                self.assertGreaterEqual(int(late.splitlines()[1]), 5)

    def test_work_stealing_keeps_the_bits_when_a_worker_dies_and_is_replaced(self):
        plain, _ = self.run_steps(ROWS, "60", "off")
        for victim in (0, 1, 2):
            with self.subTest(victim=victim):
                run = self.start("-w", "3", "-p", "1", "--on-worker-death", "wait:20", ROWS, "60", "on", "2", "4")
                self.kill_worker(run, victim)
                self.assertEqual(run.wait(60), 0, run.err())
                self.assertIn(f"worker {victim} is restarted", run.err())
                self.assertEqual(run.out().splitlines()[0], plain.splitlines()[0])

    def test_work_stealing_goes_on_without_a_worker_that_was_ejected(self):
        for victim, late in ((1, "2"), (2, "2"), (2, "1")):
            with self.subTest(victim=victim, late=late):
                run = self.start("-w", "3", "-p", "1", "--on-worker-death", "eject", ROWS, "60", "on", late, "4")
                self.kill_worker(run, victim)
                self.assertEqual(run.wait(60), 0, run.err())
                self.assertRegex(run.err(), f"worker {victim} .*ejected|without worker {victim}")
                self.assertEqual(len(run.out().splitlines()[0].split()), 8)

    def test_every_operation_has_the_same_bits_in_every_mode(self):
        for workers in ("1", "2", "4"):
            outs = []
            if workers == "1":
                outs.append(subprocess.run([FOLDS, "6"], cwd=self.folder, capture_output=True, text=True, timeout=60,
                                           check=False).stdout)
            for shares in ("1", "0"):
                run = self.start("-w", workers, "-p", "1", FOLDS, "6",
                                 environment=clean_environment(PARACEL_SHARED_MEMORY=shares))
                self.assertEqual(run.wait(60), 0, run.err())
                outs.append(run.out())
            for shares, options in [("1", ("--on-worker-death", "wait:20"))] + [(s, ("-m", "mpi")) for s in "10" if MPI]:
                status, out, err = self.prun("-w", workers, "-p", "1", *options, FOLDS, "6",
                                             environment=clean_environment(PARACEL_SHARED_MEMORY=shares))
                self.assertEqual(status, 0, err)
                outs.append(out)
            self.assertEqual(set(outs), {outs[0]}, workers)
            self.assertRegex(outs[0], r"^[0-9a-f]{16}\n$")

    def test_messages_come_in_the_same_order_in_every_mode(self):
        for mode in ("local", "mpi") if MPI else ("local",):
            for shares in "10":
                with self.subTest(mode=mode, shares=shares):
                    got = self.prun("-w", "2", "-p", "1", "-m", mode, MESSAGES,
                                    environment=clean_environment(PARACEL_SHARED_MEMORY=shares))
                    self.assertEqual(got[:2], (0, "in order\n"), got[2])

    def test_a_message_that_comes_when_its_receiver_looks_elsewhere_is_received(self):
        for mode, workers, steps in (("mpi", 5, 250), ("local", 3, 50)):
            if mode == "mpi" and not MPI:
                continue
            with self.subTest(mode=mode):
                status, out, err = self.prun("-w", str(workers), "-p", "1", "-m", mode, "--timeout", "120", LATE, str(steps))
                self.assertEqual(status, 0, err)
                self.assertEqual(out, f"task 0: {steps * (workers - 1)} received\n")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_what_is_longer_than_mpi_can_count_is_exchanged_in_parts(self):
        for shares in "10":
            with self.subTest(shares=shares):
                got = self.prun("-w", "3", "-p", "1", "-m", "mpi", "--timeout", "60", COUNTS,
                                environment=clean_environment(PARACEL_SHARED_MEMORY=shares))
                self.assertEqual(got[:2], (0, "complete\n"), got[2])

    def test_a_killed_server_with_replicas_does_not_disturb_a_queue(self):
        undisturbed, _ = self.run_steps(STEPS, "400")
        run = self.start("-w", "3", "-p", "3", "--replicas", "2", "--on-worker-death", "wait:20", STEPS, "400", "slow")
        self.says(run, "round")
        run.find("server").kill()
        self.assertEqual(run.wait(60), 0, run.err())
        self.assertRegex(run.err(), r"server s\d .*lost")
        self.assertEqual(run.out(), undisturbed)

    def shares_memory(self, run, rank):
        """Whether a worker of a running job maps the shared memory of its group."""
        def maps():
            for process in processes_of(run.job()):
                names = read_bytes(f"/proc/{process.pid}/environ").split(b"\0")
                if b"PARACEL_RANK=%d" % rank in names or b"OMPI_COMM_WORLD_RANK=%d" % rank in names and process.command \
                        and process.command[0].endswith("test_queue_steps"):
                    return read_bytes(f"/proc/{process.pid}/maps")
            return b""
        wait_until(lambda: "round" in run.err() or run.process.poll() is not None, 20)
        return b"memfd:paracel_ranks" in maps()

    def test_workers_of_one_host_share_memory_and_print_the_same_bits_as_those_that_do_not(self):
        outs = set()
        for mode in ("local", "mpi") if MPI else ("local",):
            for shares in ("1", "0"):
                run = self.start("-w", "3", "-p", "1", "-m", mode, STEPS, "100", "slow",
                                 environment=clean_environment(PARACEL_SHARED_MEMORY=shares))
                self.assertEqual(self.shares_memory(run, 1), shares == "1", run.err())
                self.assertEqual(run.wait(60), 0, run.err())
                outs.add(run.out())
        self.assertEqual(len(outs), 1)

    def test_a_worker_that_is_killed_in_shared_memory_is_named_and_leaves_nothing(self):
        for how in ("slow", ""):
            for rank in (0, 1, 2):
                with self.subTest(how=how, rank=rank):
                    run = self.start("-w", "3", "-p", "1", STEPS, "100000", *how.split())
                    self.assertTrue(self.shares_memory(run, rank), run.err())
                    time.sleep(random.uniform(0, 0.2))
                    self.kill_worker(run, rank)
                    self.assertEqual(run.wait(END_LIMIT), 10, run.err())
                    self.assertRegex(run.err(), rf"worker {rank} \(pid \d+\) was killed by SIGKILL")
                    self.assert_nothing_left(run.job(), END_LIMIT)

    def kill_worker(self, run, rank):
        self.says(run, "round")
        wait_until(lambda: run.worker(rank), 20).kill()

    def test_sums_leave_out_a_worker_that_was_ejected(self):
        undisturbed, _ = self.run_steps(STEPS, "400")
        run = self.start("-w", "3", "-p", "1", "--on-worker-death", "eject", STEPS, "400", "slow")
        self.kill_worker(run, 1)
        self.assertEqual(run.wait(60), 0, run.err())
        self.assertRegex(run.err(), "worker 1 .*ejected|without worker 1")
        self.assertEqual(len(run.out().split()), 3)
        self.assertNotEqual(run.out(), undisturbed)

    def test_a_failing_task_ends_the_job_with_its_text(self):
        for mode in ("local", "mpi") if MPI else ("local",):
            with self.subTest(mode=mode):
                _, err = self.run_steps("-m", mode, STEPS, "20", "fail", status=1)
                self.assertIn("superstep 11, item 1, task 1: on purpose", err)


if __name__ == "__main__":
    main()

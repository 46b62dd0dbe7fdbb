#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the launcher reads of Slurm, and makes for it, without a cluster. test/process/test_slurm.py has one."""
import argparse
import os
import signal
import sys
import tempfile
import time
import unittest
from unittest import mock

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tool"))

from launcher.common.exit_status import USAGE, WORKER_LOST, Failure  # noqa: E402
from launcher.engines import before_limit, slurm  # noqa: E402
from launcher.engines.sbatch import without_sbatch  # noqa: E402
from launcher.job.ending import has_lost_its_node, status_of  # noqa: E402
from launcher.job.plan import Child  # noqa: E402
from launcher.job.recovery import exited, lost_its_host  # noqa: E402


class Reading(unittest.TestCase):
    def test_a_number_for_each_node(self):
        for text, found in (("4", [4]), ("2(x3),1", [2, 2, 2, 1]), ("1,16(x2)", [1, 16, 16])):
            self.assertEqual(slurm.counts(text), found)
        for text in ("", "x", "2(x3", "2,,1", "-1", "2(3)"):
            with self.subTest(text=text), self.assertRaises(Failure) as failure:
                slurm.counts(text)
            self.assertIn("want numbers as 2(x3),1", str(failure.exception))

    def allocation(self, tasks, cpus):
        allocation = slurm.Allocation.__new__(slurm.Allocation)
        allocation.job, allocation.nodes = "7", list(tasks)
        allocation.tasks, allocation.cpus = tasks, cpus
        return allocation

    def test_workers_take_tasks_and_else_cpus(self):
        allocation = self.allocation({"a": 1, "b": 2}, {"a": 4, "b": 2})
        self.assertEqual(allocation.slots(3), [("a", 1), ("b", 2)])
        self.assertEqual(allocation.slots(4), [("a", 4), ("b", 2)])
        with self.assertRaises(Failure) as failure:
            allocation.slots(7)
        self.assertEqual(failure.exception.status, USAGE)
        self.assertIn("has 3 tasks and 6 CPUs on 2 nodes", str(failure.exception))

    def test_outside_an_allocation(self):
        with mock.patch.dict(os.environ):
            for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
                os.environ.pop(name, None)
            with self.assertRaises(Failure) as failure:
                slurm.Allocation()
        self.assertIn("salloc -N 2 -n 4", str(failure.exception))

    def test_a_step_gets_no_size_of_an_outer_one(self):
        for name in ("SLURM_MEM_PER_CPU", "SLURM_NTASKS", "SLURM_EXACT", "SRUN_CPUS_PER_TASK", "SLURMD_NODENAME"):
            self.assertFalse(slurm.for_srun(name), name)
        for name in ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_WORKING_CLUSTER", "PATH", "OMP_NUM_THREADS"):
            self.assertTrue(slurm.for_srun(name), name)


class Submitting(unittest.TestCase):
    def test_the_script_has_all_other_arguments(self):
        rest = ["-m", "slurm", "-w", "4", "lr", "--sbatch", "of the program"]
        for given in (["--sbatch", "-N 2"], ["--sbatch=-N 2"], ["--sbatch", ""]):
            self.assertEqual(without_sbatch(["-c", "a b.json", *given, *rest]), ["-c", "a b.json", *rest])


class LostNodes(unittest.TestCase):
    """srun says so, whatever its status is."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = os.path.join(folder.name, "worker_2.log")

    def child(self, text, before="", by="srun", host="n2"):
        with open(self.log, "w", encoding="utf-8") as file:
            file.write(before + text)
        child = Child("worker", 2, [], self.log, host=host)
        child.by, child.log_begins, child.pid = by, len(before), 7
        child.ended = os.waitid_result((7, 0, signal.SIGCHLD, 0, os.CLD_EXITED))
        child.lost_node = has_lost_its_node(child)
        return child

    def test_an_srun_that_says_it_has_not_exited_by_itself(self):
        for text in ("srun: error: Node failure on n2\n", '{"message": "srun: error: Node failure on n2"}\n',
                     "x" * 5000 + "\nsrun: error: Node failure on n2\nsrun: error: more\n"):
            child = self.child(text)
            self.assertTrue(child.lost_node)
            self.assertFalse(exited(child))
            self.assertTrue(lost_its_host(child))
            self.assertEqual(status_of(child), (WORKER_LOST, "worker 2 (on n2, by srun, pid 7) has lost its node, as Slurm says"))

    def test_what_an_earlier_process_or_another_command_has_said_does_not_count(self):
        words = "srun: error: Node failure on n2\n"
        for child in (self.child("result\n", before=words), self.child(words, by="ssh"), self.child(words, host=None),
                      self.child("srun: error: Unable to create step\n"), self.child("")):
            self.assertFalse(child.lost_node)
            self.assertTrue(exited(child))
        os.unlink(self.log)
        self.assertFalse(has_lost_its_node(child))


class Limits(unittest.TestCase):
    def is_limit(self, end_at_start, now_says, before=120.0):
        """Whether a signal is that of the limit. Times are seconds from now."""
        limit = before_limit.BeforeLimit.__new__(before_limit.BeforeLimit)
        limit.end = None if end_at_start is None else time.time() + end_at_start
        limit.options = argparse.Namespace(before_limit=before)
        limit.allocation = argparse.Namespace(job="7")
        state, end = now_says
        answer = "" if state is None else f"{state} {'NONE' if end is None else round(time.time() + end)}\n"
        with mock.patch.object(before_limit, "ask", return_value=answer):
            return limit.is_limit()

    def test_the_end_time_tells_the_limit(self):
        for end_at_start, now_says, found in (
                (100, ("RUNNING", 100), True),       # sbatch --signal
                (170, ("RUNNING", 170), True),       # a minute early
                (600, ("RUNNING", 600), False),      # scancel of a signal
                (600, ("COMPLETING", 0), False),     # scancel: it has ended just now
                (-1, ("COMPLETING", -1), True),      # the limit itself
                (100, ("RUNNING", 3600), False),     # a limit that was changed
                (3600, ("RUNNING", 30), True),       # preemption
                (100, (None, None), True),           # Slurm does not answer
                (None, ("RUNNING", None), False)):   # no limit
            with self.subTest(end_at_start=end_at_start, now_says=now_says):
                self.assertEqual(self.is_limit(end_at_start, now_says), found)


if __name__ == "__main__":
    unittest.main()

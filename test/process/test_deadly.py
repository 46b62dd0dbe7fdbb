#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""User functions that terminate their server: the error names function and key, and with replicas only one server is lost, since
the function is not called again."""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, ENCRYPTED, MPI, JobTest, main, read_bytes  # noqa: E402

DEADLY = os.path.join(BIN, "test_deadly")
PLUGINS = os.path.join(os.path.dirname(BIN), "lib", "test_plugins")
SANITIZED = b"__asan_init" in read_bytes(os.path.join(BIN, "start_server")) or \
    b"__tsan_init" in read_bytes(os.path.join(BIN, "start_server"))
WAYS = {"segv": "SIGSEGV", "overflow": "SIGSEGV", "abort": "SIGABRT", "exit": r"exit\(3\)", "fpe": "SIGFPE",
        "thread": "SIGSEGV of a thread that was started", "close": r"[\w ]+ after all descriptors were closed"}
if not SANITIZED:  # these need filters of system calls, which disturb a sanitizer's reports
    WAYS.update({"exit_at_once": r"_exit\(77\)", "exit_by_system_call": r"_exit\(3\)", "stop": r"kill\(SIGSTOP\)",
                 "exit_in_a_thread": r"_exit\(77\) of a thread that was started"})
# Where other threads end the process the key may be gone by then.
WITHOUT_KEY = ("thread", "close", "exit_in_a_thread")


class Deadly(JobTest):
    def job(self, what, function, *options, replicas=2):
        return self.prun("-w", "2", "-p", "3", "--replicas", str(replicas), "--plugin-dir", PLUGINS, *options, DEADLY, what,
                         "deadly_" + function)

    def assert_one_loss(self, function, how, where, outcome):
        status, out, err = outcome
        self.assertEqual(status, 0, err + out)
        at = f"(?: at {where})?" if function in WITHOUT_KEY else f" at {where}"
        named = rf"libdeadly_updates.so:deadly_{function}{at}"
        self.assertRegex(err, rf"server s\d \(pid \d+ on \S+\) lost: {how} in {named}; the job continues")
        self.assertEqual(len(re.findall(r"\) lost: ", err)), 1, err)
        self.assertRegex(out, rf"worker 0 was told: .*it is no longer called: it brought down server s\d .*, {how} in {named}\n")
        self.assertRegex(out, r"counted 200, deadly 1 is 1\n")

    def test_one_server_is_lost_and_the_function_is_named_with_its_key(self):
        for function, how in WAYS.items():
            with self.subTest(function):
                self.assert_one_loss(function, how, '"deadly 1"', self.job("key", function))

    @unittest.skipIf(ENCRYPTED, "tcp")
    def test_descriptors_are_closed_whoever_reads_the_sockets(self):
        for over in ("zmq", "unix"):
            with self.subTest(over):
                self.assert_one_loss("close", WAYS["close"], '"deadly 1"', self.job("key", "close", "--transport", over))

    def test_however_it_is_called(self):
        for what, function, where in (("set", "in_place", '"deadly 1"'), ("rows", "in_place", 'row 7 of table "rows"'),
                                      ("filter", "filter_segv", '"deadly 1"')):
            with self.subTest(what):
                self.assert_one_loss(function, "SIGSEGV", where, self.job(what, function))

    def test_whoever_else_calls_it_ends_no_server(self):
        self.assert_one_loss("segv", "SIGSEGV", '"deadly 1"', self.job("many", "segv"))

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_under_mpirun(self):
        self.assert_one_loss("segv", "SIGSEGV", '"deadly 1"', self.job("key", "segv", "-m", "mpi", "--m_server", "mpi"))

    def test_one_that_hangs_is_not_called_again(self):
        status, out, err = self.job("key", "hang", "--function-timeout", "0.5", "--hang-limit", "1")
        self.assertEqual(status, 0, err + out)
        self.assertEqual(len(re.findall(r"\) lost: ", err)), 1, err)
        self.assertRegex(err, r'lost: libdeadly_updates.so:deadly_hang has been running for \S+ s in thread \d: '
                              r'libdeadly_updates.so:deadly_hang at "deadly 1"; the job continues')
        self.assertRegex(out, r'was told: .*it is no longer called: .*deadly_hang at "deadly 1"\n')

    def test_an_alarm_ends_nothing(self):
        status, out, err = self.job("key", "alarm")
        self.assertEqual(status, 0, err + out)
        self.assertNotIn(" lost: ", err)
        self.assertIn("counted 200, deadly 1 is 0\n", out)

    def test_a_staged_update_ends_the_program_and_one_server(self):
        status, out, err = self.job("staged", "segv")
        self.assertNotEqual(status, 0, out)
        self.assertEqual(len(re.findall(r"\) lost: ", err)), 1, err)
        self.assertRegex(err, r'lost: SIGSEGV in libdeadly_updates.so:deadly_segv at "deadly 1"; the job continues')
        self.assertIn("it is no longer called", err)

    def test_without_copies_the_cause_of_the_end_is_the_function(self):
        for function, how in WAYS.items():
            with self.subTest(function):
                status, _, err = self.job("key", function, replicas=1)
                self.assertEqual(status, 11, err)
                where = '(?: at "deadly 1")?' if function in WITHOUT_KEY else ' at "deadly 1"'
                self.assertRegex(err, rf'server s\d \(pid \d+ on \S+\) lost: {how} in libdeadly_updates.so:deadly_{function}'
                                      rf'{where}\n')


if __name__ == "__main__":
    main()

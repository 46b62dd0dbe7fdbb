#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A user function cannot leave processes behind, in the server or in its sandbox, however the job ends. The one called here tries
to start some in every way, with their own groups and sessions, so that nothing that ends with the job would end them."""
import contextlib
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, MPI, JobTest, clean_environment, main, processes_of, read_bytes, role_of,  # noqa: E402
                             wait_until)

DEADLY = os.path.join(BIN, "test_deadly")
PLUGINS = os.path.join(os.path.dirname(BIN), "lib", "test_plugins")
SANITIZED = b"__asan_init" in read_bytes(os.path.join(BIN, "start_server")) or \
    b"__tsan_init" in read_bytes(os.path.join(BIN, "start_server"))
WHERE = {"in the server": (), "in a sandbox": ("--plugin-sandbox",)}


def marked(mark):
    """The processes of a job, and what they have started."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and
            f"MARK={mark}".encode() in read_bytes(f"/proc/{name}/environ").split(b"\0")]


@unittest.skipIf(SANITIZED, "a sanitizer build starts processes itself")
class UserProcesses(JobTest):
    def words(self, function, options):
        return ("-w", "2", "-p", "2", "--plugin-dir", PLUGINS, *options, DEADLY, "key", function)

    def assert_nothing_is_left(self, mark):
        left = [] if wait_until(lambda: not marked(mark), 15) else marked(mark)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.assertFalse(left)

    def test_none_is_started_and_the_function_goes_on(self):
        ways = dict(WHERE, **({"under mpirun": ("-m", "mpi", "--m_server", "mpi")} if MPI else {}))
        for where, options in ways.items():
            with self.subTest(where):
                mark = f"{os.getpid()}-ends-{where[-6:]}"
                status, out, err = self.prun(*self.words("deadly_processes", options), environment=clean_environment(MARK=mark))
                self.assertEqual(status, 0, err + out)
                self.assertIn("deadly 1 is 1\n", out, "the number of processes is added to it")
                self.assert_nothing_is_left(mark)

    def killed(self, of_job, options, mark):
        folder = self.not_there("run")
        run = self.start(*self.words("deadly_processes_hang", ("--run-dir", folder, *options)),
                         environment=clean_environment(MARK=mark))
        logs = [os.path.join(folder, f"server_{slot}.log") for slot in range(2)]
        self.assertTrue(wait_until(lambda: any(b"processes were started" in read_bytes(log) for log in logs), 40), run.err())
        of_job(run)
        run.wait()
        self.assert_nothing_is_left(mark)

    def test_none_is_left_when_the_servers_are_killed_or_the_launcher(self):
        def kill_servers(run):
            for process in processes_of(run.job()):
                if role_of(process) == "server":
                    process.kill()

        for where, options in WHERE.items():
            for what, deed in (("servers", kill_servers), ("launcher", lambda run: run.process.kill())):
                with self.subTest(f"{what}, {where}"):
                    self.killed(deed, options, f"{os.getpid()}-{what}-{where[-6:]}")


if __name__ == "__main__":
    main()

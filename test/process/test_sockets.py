#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""How a job's processes communicate: without sockets in a single process, with sockets in a private folder if all are on one
host. So two jobs on one host do not interfere."""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import LR, JobTest, Run, clean_environment, main, processes_of, role_of, wait_until  # noqa: E402


def inodes(pid):
    """The sockets of a process."""
    found = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for name in names:
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
        if match:
            found.add(match.group(1))
    return found


def table(pid, name):
    """A table of the sockets in the process's network namespace: rows of fields, without the heading."""
    try:
        with open(f"/proc/{pid}/net/{name}", encoding="utf-8") as file:
            return [line.split() for line in file.read().splitlines()[1:]]
    except OSError:
        return []


def internet_sockets(pid):
    own = inodes(pid)
    return [row for name in ("tcp", "tcp6", "udp", "udp6") for row in table(pid, name) if row[9] in own]


def paths_of(pid):
    """The names of the process's Unix sockets: listening ones, and those of accepted connections."""
    own = inodes(pid)
    return {row[7] for row in table(pid, "unix") if len(row) > 7 and row[6] in own}


class Sockets(JobTest):
    def running(self, name):
        """A job that computes, in its own folder."""
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        self.write_config(f"{name}.json", training_input=os.path.join(self.folder, "training.dat"), rounds=10**8)
        run = Run(["-w", "3", "-p", "2", "-c", os.path.join(self.folder, f"{name}.json"), "-m", "local", "-v", LR], folder)
        self.addCleanup(run.destroy)
        self.assertTrue(wait_until(lambda: "round" in run.err(), 20), run.err())
        return run

    def nodes(self, run):
        found = [p for p in processes_of(run.job()) if role_of(p) in ("worker", "server", "scheduler")]
        self.assertEqual(len(found), 6, found)
        return found

    def test_one_process_opens_no_socket(self):
        process = subprocess.Popen([LR, "--cfg_file", "long.json"], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
        try:
            threads = f"/proc/{process.pid}/task"
            self.assertTrue(wait_until(lambda: len(os.listdir(threads)) >= 4, 20), "the server inside never started")
            for _ in range(20):
                self.assertIsNone(process.poll())
                self.assertEqual(inodes(process.pid), set())
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()

    def test_processes_of_one_host_use_no_network(self):
        run = self.running("alone")
        folder = run.socket_folder()
        self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        named = set()
        for process in self.nodes(run):
            self.assertEqual(internet_sockets(process.pid), [], process)
            named |= paths_of(process.pid)
        self.assertEqual({os.path.dirname(path) for path in named}, {folder})

    def test_two_jobs_side_by_side_share_no_socket(self):
        first, second = self.running("first"), self.running("second")
        self.assertNotEqual(first.job(), second.job())
        folders = [first.socket_folder(), second.socket_folder()]
        self.assertEqual(len(set(folders)), 2)
        for run, folder in zip((first, second), folders, strict=True):
            for process in self.nodes(run):
                for path in paths_of(process.pid):
                    self.assertTrue(path.startswith(folder + "/"), f"{process}: {path}")
        # The end of one does not affect the other.
        first.process.terminate()
        self.assertIsNotNone(first.wait(20))
        self.assertFalse(os.path.exists(folders[0]))
        rounds = second.err().count("round")
        self.assertTrue(wait_until(lambda: second.err().count("round") > rounds, 20), second.err())
        self.assertIsNone(second.process.poll())
        self.assertEqual(len(self.nodes(second)), 6)


if __name__ == "__main__":
    main()

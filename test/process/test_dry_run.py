#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""prun.py --dry-run: the command lines of every process, and how options change them."""
import os
import shlex
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, LR, MPI, PRUN, JobTest, main  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(PRUN), "tool"))
from launcher.engines.hosts import usable_cores  # noqa: E402


class DryRun(JobTest):
    def lines(self, *arguments):
        status, out, err = self.prun("--dry-run", *arguments)
        self.assertEqual((status, err), (0, ""))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "paracel_runs")))
        return [shlex.split(line) for line in out.splitlines()]

    def test_ppn_is_for_the_workers_of_mpirun(self):
        self.assertIn("ppr:2:node", self.lines("-m", "mpi", "-w", "4", "--ppn", "2", "-c", "cfg.json", LR)[-1])

    def test_it_prints_every_command_and_starts_nothing(self):
        lines = self.lines("-w", "3", "-p", "2", "--threads", "4", "--max-memory", "4G", "-c", "cfg.json", LR, "--flag", "a b")
        self.assertEqual(len(lines), 6)
        scheduler, server, worker = lines[0], lines[2], lines[4]
        self.assertEqual(scheduler[0], os.path.join(BIN, "start_scheduler"))
        for pair in (("--workers", "3"), ("--servers", "2")):
            self.assertIn(pair, list(zip(scheduler, scheduler[1:])))
        self.assertEqual(server[0], os.path.join(BIN, "start_server"))
        for pair in (("--slot", "1"), ("--threads", "4"), ("--max-memory", "4G")):
            self.assertIn(pair, list(zip(server, server[1:])))
        self.assertNotIn("--max-value-bytes", server)
        variables = dict(word.split("=", 1) for word in worker if word.startswith("PARACEL_"))
        self.assertEqual(variables["PARACEL_RANK"], "1")
        self.assertEqual(variables["PARACEL_SIZE"], "3")
        self.assertEqual(variables["PARACEL_MODE"], "local")
        command = worker[worker.index(LR):]
        self.assertEqual(command[1:3], ["--flag", "a b"])
        self.assertEqual(command[3], "--server_info")
        self.assertRegex(command[4], r"^paracel1;[0-9a-f]{16};ipc:///tmp/prc-X+/s$")
        self.assertEqual(command[5:], ["--cfg_file", "cfg.json"])

    def test_a_python_program_is_run_by_the_interpreter_of_the_launcher_unless_it_is_executable(self):
        program = os.path.join(self.folder, "mine.py")
        self.touch(program)
        os.chmod(program, 0o644)
        worker = self.lines("mine.py")[-1]
        self.assertEqual(worker[worker.index(program) - 1], sys.executable)
        os.chmod(program, 0o755)
        self.assertNotIn(sys.executable, self.lines("mine.py")[-1])

    def test_threads_share_connections_in_large_jobs_and_when_asked(self):
        for shared, options in ((1, "-w 65 --threads 4"), (0, "-w 64 --threads 4"), (1, "-p 33 --threads 8"),
                                (0, "-w 300 --threads 1"), (1, "--threads 2 --connections shared"),
                                (0, "-w 99 --threads 4 --connections each")):
            self.assertEqual("--shared-connections" in self.lines("-c", "cfg.json", *options.split(), LR)[1], shared, options)

    def threads(self, *arguments):
        """--threads of each server."""
        return [line[line.index("--threads") + 1] for line in self.lines("-c", "cfg.json", *arguments, LR) if "--threads" in line]

    def test_servers_share_the_cores_that_they_may_use(self):
        mine = os.sched_getaffinity(0)
        cores = usable_cores()
        self.assertEqual(self.threads("-p", "1"), [str(cores)])
        self.assertEqual(self.threads("-p", "2"), [str(max(1, cores // 2))] * 2)
        self.assertEqual(self.threads("-p", "1", "--threads", "7"), ["7"])
        os.sched_setaffinity(0, {min(mine)})
        try:
            self.assertEqual(self.threads("-p", "1"), ["1"])
        finally:
            os.sched_setaffinity(0, mine)

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_servers_on_other_hosts_count_their_cores_themselves(self):
        with open(os.path.join(self.folder, "far"), "w", encoding="utf-8") as file:
            file.write("far1 slots=2\nfar2 slots=1\n")
        hosts = ("-m", "mpi", "--hostfile", "far", "--host", "127.0.0.1", "-p", "3")
        self.assertEqual(self.threads(*hosts), ["auto"])
        self.assertEqual(self.threads(*hosts, "--replicas", "2"), ["auto/2", "auto/1", "auto/2"])
        self.assertEqual(self.threads(*hosts, "--threads", "5"), ["5"])
        self.assertEqual(self.threads(*hosts, "--m_server", "local"), [str(max(1, usable_cores() // 3))] * 3)
        for above, *options in (("85",), ("2", "-w", "100"), ("1", "--connections", "shared"), ("1024", "--connections", "each")):
            server = self.lines("-c", "cfg.json", *hosts, *options, LR)[1]
            self.assertEqual(server[server.index("--share-connections-above") + 1], above)

    def test_a_quota_of_the_control_group_limits_the_cores(self):
        group = os.path.join(self.folder, "cgroup")
        os.makedirs(os.path.join(group, "jobs", "mine"))
        own = os.path.join(self.folder, "own")
        for path, text in ((own, "0::/jobs/mine\n"), (os.path.join(group, "jobs", "mine", "cpu.max"), "max 100000\n")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        self.assertEqual(usable_cores(group, own), len(os.sched_getaffinity(0)))
        with open(os.path.join(group, "jobs", "cpu.max"), "w", encoding="utf-8") as file:
            file.write("150000 100000\n")
        self.assertEqual(usable_cores(group, own), 1)

    def test_the_folder_of_update_file_and_others_are_allowed_to_the_servers(self):
        os.makedirs(os.path.join(self.folder, "plug"), exist_ok=True)
        with open(os.path.join(self.folder, "plug", "mine.so"), "wb"):
            pass
        self.write_config("plug.json", update_file="plug/mine.so")
        server = self.lines("-c", "plug.json", "--plugin-dir", "/usr", LR)[1]
        folders = server[server.index("--plugin-dirs") + 1].split(":")
        self.assertEqual(folders, [os.path.join(self.folder, "plug"), "/usr", self.folder, BIN,
                                   os.path.join(os.path.dirname(BIN), "lib")])

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_mpi_jobs_have_one_mpirun_for_the_servers_and_one_for_the_workers(self):
        lines = self.lines("-w", "3", "-p", "2", "-m", "mpi", "-c", "cfg.json", LR)
        self.assertEqual(len(lines), 3)
        for line, count, program in ((lines[1], "2", os.path.join(BIN, "start_server")), (lines[2], "3", LR)):
            mpirun = line[[os.path.basename(word) for word in line].index("mpirun"):]
            self.assertEqual(mpirun[1:3], ["-np", count])
            self.assertIn(program, mpirun)
        self.assertIn(("--slot", "auto"), list(zip(lines[1], lines[1][1:])))
        self.assertIn(("-x", "PARACEL_RENDEZVOUS"), list(zip(lines[2], lines[2][1:])))

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_servers_may_be_started_otherwise_than_workers(self):
        lines = self.lines("-w", "2", "-p", "2", "-m", "mpi", "--m_server", "local", "-c", "cfg.json", LR)
        self.assertEqual(len(lines), 4)
        self.assertIn("ipc:///tmp/prc-XXXXXX", lines[1])
        lines = self.lines("-w", "2", "-p", "2", "-m", "mpi", "--m_server", "local", "--host", "127.0.0.1", "-c", "cfg.json", LR)
        self.assertIn("tcp://127.0.0.1:*", lines[1])


if __name__ == "__main__":
    main()

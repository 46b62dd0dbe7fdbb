#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs written for ps-lite (test/ps), as real processes: started by prun.py and by a script that sets DMLC_*;
nodes that die and are replaced, messages that are lost, bytes from strangers."""
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, SOURCE, JobTest, clean_environment, free_port, main, patient,  # noqa: E402
                             wait_until)

LOCAL = os.path.join(SOURCE, "test", "ps", "local.sh")


def program(name):
    return os.path.join(BIN, name)


def memory_available():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


class Nodes:
    """Processes of one job, started one by one."""

    def __init__(self, test, workers, servers, *command, start_workers=None, **environment):
        self.test, self.command = test, [program(command[0]), *command[1:]]
        self.port = free_port()
        self.environment = dict(clean_environment(), DMLC_NUM_WORKER=str(workers), DMLC_NUM_SERVER=str(servers),
                                DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(self.port), **environment)
        self.processes = []
        self.scheduler = self.start("scheduler")
        self.servers = [self.start("server", i) for i in range(servers)]
        self.workers = [self.start("worker", i) for i in range(workers if start_workers is None else start_workers)]

    def start(self, role, rank=-1, **more):
        path = os.path.join(self.test.folder, f"{role}_{rank}_{len(self.processes)}")
        with open(path, "wb") as out:
            process = subprocess.Popen(self.command, env=dict(self.environment, DMLC_ROLE=role, DMLC_RANK=str(rank), **more),
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        process.path = path
        self.processes.append(process)
        return process

    @staticmethod
    def output(process):
        with open(process.path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_for(self, process, text):
        self.test.assertTrue(wait_until(lambda: text in self.output(process), 20), f"no {text!r} in: {self.output(process)}")

    def statuses(self, *processes, limit=20):
        try:
            return [p.wait(patient(limit)) for p in processes]
        except subprocess.TimeoutExpired:
            self.test.fail("still running: " + "\n".join(f"{p.args} {p.path}: {self.output(p)}" for p in processes))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()


class Ps(JobTest):
    def local(self, servers, workers, *command, **environment):
        """(exit status, output) of a job that the script starts."""
        done = subprocess.run([LOCAL, str(servers), str(workers), program(command[0]), *command[1:]], capture_output=True,
                              text=True, check=False, timeout=patient(120), cwd=self.folder,
                              env=dict(clean_environment(), DMLC_PS_ROOT_PORT=str(free_port()), **environment))
        return done.returncode, done.stdout + done.stderr

    def test_the_script_starts_every_program(self):
        for servers, workers in ((1, 1), (2, 3), (3, 4)):
            with self.subTest(servers=servers, workers=workers):
                status, text = self.local(servers, workers, "ps_connection")
                self.assertEqual(status, 0, text)
                self.assertEqual(sorted(re.findall(r"^\w+ \d \(node (\d+)\)", text, re.M), key=int),
                                 [str(n) for n in sorted([1] + [8 + 2 * s for s in range(servers)]
                                                         + [9 + 2 * w for w in range(workers)])])
                for name in ("ps_key_value", "ps_key_value_32"):
                    status, text = self.local(servers, workers, name, "300", "10")
                    self.assertEqual((status, text.count("the sums are right")), (0, workers), text)
                status, text = self.local(servers, workers, "ps_simple_app")
                self.assertEqual((status, text.count("200 requests")), (0, 1 + servers + workers), text)
                status, text = self.local(servers, workers, "ps_benchmark", "1000", "50", "4")
                self.assertEqual((status, text.count("push_per_s")), (0, workers), text)
        status, text = self.local(2, 4, "ps_many_customers", "2", PROCESSES="2")
        self.assertEqual((status, text.count("the sums are right")), (0, 4), text)

    def test_tcp_is_encrypted_where_a_key_is_given(self):
        def key(name):
            path = os.path.join(self.folder, name)
            command = f"(umask 077; od -An -v -tx1 -N32 /dev/urandom | tr -d ' \\n' > {path})"  # as in doc/security.md
            made = subprocess.run(["sh", "-c", command], check=False)
            self.assertEqual((made.returncode, os.stat(path).st_size, os.stat(path).st_mode & 0o777), (0, 64, 0o600))
            return path
        own, other = key("own.key"), key("other.key")
        with Nodes(self, 2, 1, "ps_key_value", "200", "5", PARACEL_JOB_KEY_FILE=own) as nodes:
            self.assertEqual(nodes.statuses(nodes.scheduler, *nodes.servers, *nodes.workers), [0] * 4)
            self.assertIn("the sums are right", nodes.output(nodes.workers[0]))
        # A worker with another key, or with none, does not get in, and does not disturb those that do.
        for wrong in (other, ""):
            with self.subTest(wrong=wrong), Nodes(self, 1, 1, "ps_key_value", "200", "5", start_workers=0,
                                                  PARACEL_JOB_KEY_FILE=own) as nodes:
                environment = dict(nodes.environment)
                if wrong:
                    environment["PARACEL_JOB_KEY_FILE"] = wrong
                else:
                    del environment["PARACEL_JOB_KEY_FILE"]
                nodes.environment, kept = environment, nodes.environment
                stranger = nodes.start("worker", 0)
                time.sleep(1)
                nodes.environment = kept
                worker = nodes.start("worker", 0)
                self.assertEqual(nodes.statuses(nodes.scheduler, *nodes.servers, worker), [0] * 3)
                self.assertIsNone(stranger.poll(), nodes.output(stranger))

    def test_prun_starts_a_program_in_all_roles(self):
        status, out, err = self.prun("-w", "3", "-p", "2", program("ps_key_value"), "200", "5")
        self.assertEqual((status, out), (0, "worker 0: the sums are right\n"), err)
        shares = r"(\d+ % (computing|in system calls|waiting or without a processor)(, )?){1,3}"
        self.assertRegex(err, r"\Aprun.py: ps_key_value: 3 workers, 2 servers; \d\S* m?s\n"
                              rf"prun.py: the workers: {shares}( \(worker \d computes .* as the mean\))?\n"
                              rf"prun.py: the servers: {shares}( \(server \d computes .* as the mean\))?\n\Z")
        status, _, err = self.prun("--no-summary", program("ps_key_value"), "20", "5")
        self.assertEqual((status, err), (0, ""))
        status, out, err = self.prun("-w", "2", "-p", "2", "--customers", "2", program("ps_many_customers"))
        self.assertEqual((status, out.count("the sums are right")), (0, 2), err)
        status, out, err = self.prun("-w", "1", "-p", "2", "--dry-run", program("ps_key_value"), "200")
        self.assertEqual([re.search(r"DMLC_ROLE=(\w+)", line)[1] for line in out.splitlines()],
                         ["scheduler", "server", "server", "worker"], err)
        status, out, err = self.prun("-w", "2", "-p", "2", "--replicas", "2", program("ps_key_value"))
        self.assertEqual(status, 2)
        self.assertIn("--replicas does not apply to ps_key_value, which is written for ps-lite", err)
        status, out, err = self.prun("-w", "2", "--customers", "2", program("test_counters"))
        self.assertEqual(status, 2)
        self.assertIn("--customers: only for programs written for ps-lite", err)
        # One more customer than are started: no node gets past the start.
        status, out, err = self.prun("-w", "1", "--customers", "2", "--timeout", "1", program("ps_connection"))
        self.assertEqual(status, 12, err)

    def test_prun_keeps_the_sockets_in_a_private_folder(self):
        run = self.start("-w", "1", "-p", "1", program("ps_survivor"))
        self.assertTrue(wait_until(lambda: "pushed" in run.out(), 20), run.err())
        children = self.pids_of(run.pid, "", "")
        with open(f"/proc/{children[0]}/environ", "rb") as file:
            uri = re.search(rb"DMLC_PS_ROOT_URI=ipc://([^\0]+)", file.read())[1].decode()
        about = os.stat(uri)
        self.assertEqual((about.st_mode & 0o777, about.st_uid), (0o700, os.geteuid()))
        sockets = [entry for entry in os.scandir(uri) if stat.S_ISSOCK(entry.stat().st_mode)]
        self.assertEqual(len(sockets), len(children), "one each")
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
            self.assertNotIn("@paracel-ps", file.read())
        with open("/proc/net/tcp", encoding="ascii") as file:
            tcp = {f"socket:[{line.split()[9]}]" for line in file.readlines()[1:]}
        for pid in children:
            links = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            self.assertEqual(links & tcp, set())
        run.process.send_signal(signal.SIGTERM)
        run.process.wait(patient(20))
        self.assertFalse(os.path.exists(uri))

    def test_nohup_is_respected(self):
        earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as prun.py inherits it from nohup
        try:
            run = self.start("-w", "1", "-p", "1", program("ps_survivor"))
        finally:
            signal.signal(signal.SIGHUP, earlier)
        self.assertTrue(wait_until(lambda: "pushed" in run.out(), 20), run.err())
        run.process.send_signal(signal.SIGHUP)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.process.wait(patient(20)), 143)

    def test_a_node_that_dies_before_the_job_is_complete_is_replaced(self):
        for how, text in ((signal.SIGKILL, ""), (signal.SIGSTOP, "this process was considered dead: no heartbeat for")):
            with self.subTest(how.name), Nodes(self, 2, 1, "ps_survivor", "replace", PS_HEARTBEAT_INTERVAL="0.2", PS_VERBOSE="1",
                                               PS_HEARTBEAT_TIMEOUT=str(patient(2)), start_workers=0) as nodes:
                first = nodes.start("worker", 1)
                nodes.wait_for(nodes.scheduler, f"pid {first.pid}\n")
                first.send_signal(how)
                # Two others complete the job only when the scheduler has given up the first.
                time.sleep(patient(3))
                nodes.workers = [nodes.start("worker", i) for i in range(2)]
                for w in nodes.workers:
                    nodes.wait_for(w, "pushed")
                first.send_signal(signal.SIGCONT)
                self.assertNotEqual(nodes.statuses(first), [0])
                self.assertIn(text, nodes.output(first))

    def test_prun_ends_a_job_whose_server_is_killed(self):
        run = self.start("-w", "1", "-p", "2", program("ps_survivor"))
        self.assertTrue(wait_until(lambda: "pushed" in run.out(), 20), run.err())
        server = self.pids_of(run.pid, "server", "1")[0]
        os.kill(server, signal.SIGKILL)
        self.assertEqual(run.process.wait(patient(20)), 11, run.err())
        self.assertIn("server s1", run.err())
        self.assertIn("was killed by SIGKILL", run.err())
        self.assertEqual(self.pids_of(run.pid, "", ""), [])

    def test_a_run_folder_belongs_to_one_job_of_either_kind(self):
        ours = os.path.join(BIN, "test_told")
        for first, second in ((ours, "ps_key_value"), ("ps_survivor", "ps_key_value"), ("ps_survivor", ours)):
            with self.subTest(first=first, second=second):
                arguments = ["commit"] if first == ours else []
                run = self.start("-w", "1", "-p", "1", "--run-dir", "mine", program(first), *arguments)
                ready = "ready" if first == ours else "pushed"
                self.assertTrue(wait_until(lambda: ready in run.out(), 20), run.err())
                note = os.path.join(self.folder, "mine", "run.json")
                with open(note, encoding="utf-8") as file:
                    before = file.read()
                self.assert_refused("belongs to a job that is running (pid ", "-w", "1", "-p", "1", "--run-dir", "mine",
                                    program(second))
                with open(note, encoding="utf-8") as file:
                    self.assertEqual(file.read(), before)
                self.assertTrue(os.path.exists(os.path.join(self.folder, "mine", "server_0.log")))
                if first != ours:
                    for command in (("status",), ("tell", "x"), ("--servers", "+1")):
                        self.assert_refused("a run of ps_survivor, which is written for ps-lite", *command, "--run", "mine")
                run.process.terminate()
                run.process.wait(patient(20))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "mine", "run.lock")))

    def test_a_script_that_starts_such_a_program_needs_the_option(self):
        script = os.path.join(self.folder, "start.sh")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {program("ps_key_value")} "$@"\n')
        os.chmod(script, 0o755)
        status, out, err = self.prun("-w", "2", "-p", "1", "--ps", script, "200", "5")
        self.assertEqual((status, out), (0, "worker 0: the sums are right\n"), err)

    @staticmethod
    def pids_of(parent, role, rank):
        """Children of a launcher, by their environment."""
        found = []
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    state, of = file.read().rpartition(")")[2].split()[:2]
                with open(f"/proc/{name}/environ", "rb") as file:
                    words = file.read().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            if of == str(parent) and state != "Z" and (not role or {f"DMLC_ROLE={role}", f"DMLC_RANK={rank}"} <= set(words)):
                found.append(int(name))
        return found

    def test_a_dead_server_fails_requests_and_barriers(self):
        with Nodes(self, 2, 2, "ps_survivor") as nodes:
            for w in nodes.workers:
                nodes.wait_for(w, "pushed")
            nodes.servers[0].kill()
            self.assertEqual(nodes.statuses(*nodes.workers), [7, 7])
            pid = nodes.servers[0].pid
            for w in nodes.workers:
                self.assertIn(f"server 0 (node 8): its process (pid {pid}) has ended", nodes.output(w))
            for node in (nodes.scheduler, nodes.servers[1]):  # their last barrier
                self.assertNotEqual(nodes.statuses(node), [0])
                self.assertRegex(nodes.output(node),
                                 r"barrier of group 7: \w+ \d \(node \d+\): its process \(pid \d+\) has ended")
            for node in (nodes.servers[1], *nodes.workers):
                self.assertIn(f"server 0 (node 8) is gone: its process (pid {pid}) has ended", nodes.output(node))

    def test_the_death_of_the_scheduler_ends_the_job(self):
        with Nodes(self, 1, 2, "ps_survivor") as nodes:
            nodes.wait_for(nodes.workers[0], "pushed")
            nodes.scheduler.kill()
            self.assertEqual(nodes.statuses(*nodes.workers), [7])
            self.assertIn("the scheduler has ended", nodes.output(nodes.workers[0]))
            for server in nodes.servers:
                self.assertNotEqual(nodes.statuses(server), [0])
                self.assertIn("barrier of group 7: the scheduler has ended", nodes.output(server))

    def test_requests_to_a_dead_scheduler_fail(self):
        with Nodes(self, 1, 1, "ps_survivor", "scheduler") as nodes:
            nodes.wait_for(nodes.workers[0], "pushed")
            nodes.scheduler.kill()
            self.assertEqual(nodes.statuses(*nodes.workers), [7])
            self.assertIn("the scheduler has ended", nodes.output(nodes.workers[0]))

    def test_a_node_without_heartbeat_is_dead(self):
        with Nodes(self, 1, 1, "ps_survivor", PS_HEARTBEAT_INTERVAL="0.2", PS_HEARTBEAT_TIMEOUT=str(patient(2))) as nodes:
            nodes.wait_for(nodes.workers[0], "pushed")
            nodes.servers[0].send_signal(signal.SIGSTOP)
            self.assertEqual(nodes.statuses(*nodes.workers), [7])
            self.assertRegex(nodes.output(nodes.workers[0]), r"server 0 \(node 8\): no heartbeat for \S+ s")

    def test_a_replacement_takes_the_place_of_a_dead_server(self):
        with Nodes(self, 2, 2, "ps_survivor", "replace", PS_RECOVERY_TIMEOUT="60") as nodes:
            for w in nodes.workers:
                nodes.wait_for(w, "pushed")
            nodes.servers[1].kill()
            for w in nodes.workers:
                nodes.wait_for(w, "failed: ")
            new = nodes.start("server", 1)
            self.assertEqual(nodes.statuses(nodes.scheduler, nodes.servers[0], new, *nodes.workers), [0] * 5)
            for w in nodes.workers:
                self.assertIn("pushed again", nodes.output(w))
                self.assertIn("server 1 (node 10) has joined", nodes.output(w))

    def test_one_process_too_many_is_refused(self):
        with Nodes(self, 1, 1, "ps_survivor") as nodes:
            nodes.wait_for(nodes.workers[0], "pushed")
            extra = nodes.start("worker", 3)
            self.assertNotEqual(nodes.statuses(extra), [0])
            self.assertIn("the scheduler refuses this process: all 1 workers have joined already", nodes.output(extra))
            other = nodes.start("worker", 3, DMLC_NUM_WORKER="5")
            self.assertNotEqual(nodes.statuses(other), [0])
            self.assertIn("it was started for 5 workers and 1 servers, the scheduler for 1 and 1", nodes.output(other))

    def test_lost_messages_are_sent_again(self):
        status, text = self.local(2, 2, "ps_key_value", "100", "10", PS_DROP_MSG="20", PS_RESEND="1", PS_RESEND_TIMEOUT="50")
        self.assertEqual((status, text.count("the sums are right")), (0, 2), text)

    def test_bytes_of_strangers_are_ignored(self):
        with Nodes(self, 1, 1, "ps_survivor", "replace", PS_RECOVERY_TIMEOUT="60") as nodes:
            nodes.wait_for(nodes.workers[0], "pushed")
            greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
            command = b"\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
            for content in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), greeting + os.urandom(2000),
                            greeting + command + b"\x01\x00\x00\x05hello", greeting + command + b"\x01\x00\x02" + b"\xff" * 9):
                with socket.create_connection(("127.0.0.1", nodes.port), timeout=5) as s:
                    s.sendall(content)
                    time.sleep(0.05)
            nodes.servers[0].kill()  # and the scheduler still works
            nodes.wait_for(nodes.workers[0], "failed: ")
            new = nodes.start("server", 0)
            self.assertEqual(nodes.statuses(nodes.scheduler, new, *nodes.workers), [0] * 3)

    def test_wrong_environments_are_refused(self):
        right = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1",
                 "DMLC_PS_ROOT_PORT": "8000"}
        for changed, text in (({"DMLC_ROLE": "boss"}, "DMLC_ROLE='boss': want worker, server or scheduler"),
                              ({"DMLC_ROLE": ""}, "DMLC_ROLE is not set: start the program with prun.py"),
                              ({"DMLC_NUM_WORKER": "two"}, "DMLC_NUM_WORKER='two': want a number"),
                              ({"DMLC_PS_ROOT_PORT": "80000"}, "DMLC_PS_ROOT_PORT='80000': want 1 to 65535"),
                              ({"DMLC_PS_ROOT_URI": "no.such.host.invalid"}, "'no.such.host.invalid' has no address"),
                              ({"PS_DROP_MSG": "100"}, "PS_DROP_MSG='100': want a percentage from 0 to 90")):
            with self.subTest(text):
                done = subprocess.run([program("ps_connection")], capture_output=True, text=True, check=False,
                                      timeout=patient(20), env=dict(clean_environment(), **dict(right, **changed)))
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(text, done.stderr)

    def test_values_above_two_gib(self):
        if memory_available() < 12 << 30:
            self.skipTest("needs 12 GiB of memory")
        status, text = self.local(1, 1, "ps_large", str((2 << 30) + 4097), PS_HEARTBEAT_TIMEOUT=str(patient(10)))
        self.assertEqual(status, 0, text)
        self.assertIn("2147487745 bytes came back", text)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Other users of the machine cannot affect a job or the user who starts it. Root creates files of another user and starts
processes as another user; without root these tests are skipped."""
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, LR, MPI, PRUN, JobTest, clean_environment, main, processes_of,  # noqa: E402
                             read_bytes, role_of, wait_until)
from server_support import Client, Zmq  # noqa: E402

OTHER = 65534  # the user nobody
PUSH, PING, STATS, STOP = 2, 65, 66, 67
WRONG_JOB = 11


def own_files(test):
    return unittest.skipUnless(os.geteuid() == 0, "needs root")(test)


class Folders(JobTest):
    """Each test has a victim's file, to which another user's link points."""

    def setUp(self):
        self.place = tempfile.mkdtemp(dir=self.folder)
        self.victim = os.path.join(self.place, "victim")
        with open(self.victim, "w", encoding="ascii") as file:
            file.write("precious")
        self.theirs = os.path.join(self.place, "theirs")
        os.mkdir(self.theirs)

    def give_away(self, path=None):
        path = path or self.theirs
        for folder, _, names in os.walk(path):
            for name in names:
                os.lchown(os.path.join(folder, name), OTHER, OTHER)
            os.lchown(folder, OTHER, OTHER)

    def assert_untouched(self):
        self.assertEqual(read_bytes(self.victim), b"precious")

    def note(self, **more):
        with open(os.path.join(self.theirs, "run.json"), "w", encoding="utf-8") as file:
            json.dump(dict({"job": "0" * 16, "scheduler": f"ipc://{self.place}/none", "framework": self.place, "host": "here"},
                           **more), file)

    def test_what_a_run_folder_names_is_not_executed(self):
        executed = os.path.join(self.place, "executed")
        fake = os.path.join(self.place, "send_request")
        with open(fake, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\ntouch {executed}\necho '{{}}'\n")
        os.chmod(fake, 0o755)
        self.note()
        for command in (["status"], ["--servers", "+1"]):
            # Nor programs built in the working folder.
            os.makedirs(os.path.join(self.place, "build", "bin"), exist_ok=True)
            for name in ("send_request", "paracel_checkpoint"):
                shutil.copy(fake, os.path.join(self.place, "build", "bin", name))
            done = subprocess.run([sys.executable, PRUN, *command, "--run", self.theirs], capture_output=True, text=True,
                                  cwd=self.place, stdin=subprocess.DEVNULL, check=False,
                                  env=clean_environment(PARACEL_FRAMEWORK=BIN))
            self.assertEqual(done.returncode, 13, done.stderr)
            self.assertIn("does not answer", done.stderr)
        subprocess.run([sys.executable, PRUN, "checkpoint", "list", "."], capture_output=True, cwd=self.place,
                       stdin=subprocess.DEVNULL, check=False, env=clean_environment(PARACEL_FRAMEWORK=BIN))
        self.assertFalse(os.path.exists(executed))

    def test_a_note_that_lacks_something_is_told_in_one_line(self):
        for note, text in (('{"scheduler": "x"}', 'its run.json has no text "job": it was not written by prun.py'),
                           ('{"job": "x", "scheduler": 3}', 'its run.json has no text "scheduler"'),
                           ('{"job": "x", "scheduler": "y", "status": "z"}', 'its run.json has no number "status"'),
                           ("3", "its run.json is not an object"), ("[" * 100000, "nested too deep")):
            with open(os.path.join(self.theirs, "run.json"), "w", encoding="ascii") as file:
                file.write(note)
            with self.subTest(note=note[:50]):
                status, out, err = self.prun("status", "--run", self.theirs)
                self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
                self.assertIn(text, err)

    @own_files
    def test_a_run_of_another_user_is_refused(self):
        self.note()
        self.give_away()
        status, out, err = self.prun("status", "--run", self.theirs)
        self.assertEqual((status, out, err.count("\n")), (2, "", 1))
        self.assertIn(f"theirs belongs to another user (uid {OTHER}, this is uid {os.geteuid()})", err)
        os.chown(self.theirs, 0, 0)  # the file alone
        self.assert_refused(f"run.json belongs to another user (uid {OTHER}", "--servers", "+1", "--run", self.theirs)

    def test_a_note_that_is_a_link_is_refused(self):
        os.symlink(self.victim, os.path.join(self.theirs, "run.json"))
        self.assertIn("run.json is a symbolic link", self.prun("status", "--run", self.theirs)[2])
        os.unlink(os.path.join(self.theirs, "run.json"))
        os.mkfifo(os.path.join(self.theirs, "run.json"))  # nothing is written to it
        self.assertIn("run.json is not a regular file", self.prun("status", "--run", self.theirs)[2])

    @own_files
    def test_folders_of_another_user_are_refused_for_runs_and_checkpoints(self):
        nothing = self.write_program("nothing", "exit 0")
        for name in ("run.json.tmp", "run.json", "run.lock", "checkpoints.lock", "worker_0.log", "scheduler.log"):
            os.symlink(self.victim, os.path.join(self.theirs, name))
        self.give_away()
        before = sorted(os.listdir(self.theirs))
        for option in ("--run-dir", "--checkpoint-dir", "--resume"):
            with self.subTest(option=option):
                self.assert_refused(f"theirs belongs to another user (uid {OTHER}, this is uid 0)", option, self.theirs, nothing)
        self.assertEqual(sorted(os.listdir(self.theirs)), before)
        # Another user's paracel_runs/, in which that user could replace the run's folder.
        os.mkdir(os.path.join(self.place, "paracel_runs"))
        self.give_away(os.path.join(self.place, "paracel_runs"))
        self.assert_refused("paracel_runs belongs to another user", "--output-dir", self.place, nothing)
        self.assert_untouched()

    def test_links_in_a_folder_of_ones_own_are_not_followed(self):
        lines = ("echo out", "exit 0")
        for name in ("run.json.tmp", "run.json", "worker_0.log", "server_0.log", "scheduler.log", "job.key", "job.key.tmp"):
            os.symlink(self.victim, os.path.join(self.theirs, name))
        self.assert_refused("it has a file job.key that no run of prun.py has left there",
                            "--run-dir", self.theirs, self.write_program("says", *lines))
        with open(os.path.join(self.theirs, "run.lock"), "w", encoding="utf-8") as file:
            file.write("pid 1 on somewhere\n")  # now it is the folder of a run that was killed
        status, _, err = self.prun("--run-dir", self.theirs, self.write_program("says", *lines))
        self.assertEqual(status, 0, err)
        self.assertEqual(read_bytes(os.path.join(self.theirs, "worker_0.log")), b"out\n")
        for option, name in (("--run-dir", "run.lock"), ("--checkpoint-dir", "checkpoints.lock")):
            os.symlink(self.victim, os.path.join(self.theirs, name))
            self.assert_refused(f"{name} is a symbolic link", option, self.theirs, self.write_program("says", *lines))
            os.unlink(os.path.join(self.theirs, name))
        self.assert_untouched()

    def test_a_log_that_becomes_a_link_while_the_job_runs_is_not_followed(self):
        """Like a server that is restarted: its log is opened once more."""
        run = self.start("-w", "2", "-p", "2", "--replicas", "2", "-c", "long.json", "--run-dir", self.theirs, LR)
        server = run.find("server")
        self.assertTrue(wait_until(lambda: "round" in run.err(), 30), run.err())
        for slot in range(2):
            os.unlink(os.path.join(self.theirs, f"server_{slot}.log"))
            os.symlink(self.victim, os.path.join(self.theirs, f"server_{slot}.log"))
        server.kill()
        self.assertTrue(wait_until(lambda: "is restarted" in run.err(), 30), run.err())
        self.assertTrue(wait_until(lambda: "replicas of everything exist again" in run.err(), 30), run.err())
        self.assertRegex(run.err(), r"server_\d\.log cannot be written: is a symbolic link; the job continues")
        self.assert_untouched()

    def test_what_workers_keep_for_others_in_their_places_is_written_through_no_link(self):
        run = self.start("-w", "2", "-c", "long.json", "--on-worker-death", "wait:30", "--run-dir", self.theirs, LR)
        self.assertTrue(wait_until(lambda: "round" in run.err(), 30), run.err())
        for name in os.listdir(self.theirs):
            if name.startswith("worker-1."):
                os.unlink(os.path.join(self.theirs, name))
                os.symlink(self.victim, os.path.join(self.theirs, name))
        run.worker(1).kill()
        self.assertEqual(run.wait(60), 1, run.err())
        self.assertRegex(run.err(), r"worker-1\.\w+: cannot be created: Too many levels of symbolic links")
        self.assert_untouched()

    @staticmethod
    def workers(run):
        return [p for p in processes_of(run.job()) if role_of(p) == "worker"]


def as_other(what):
    """The result of `what()`, executed by a process of another user."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out)
            os.setgroups([])
            os.setresgid(OTHER, OTHER, OTHER)
            os.setresuid(OTHER, OTHER, OTHER)
            os.write(into, json.dumps(what()).encode())
        except BaseException as error:  # pylint: disable=broad-except
            os.write(into, json.dumps(f"failed: {error!r}").encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    answer = json.loads(text)
    if isinstance(answer, str) and answer.startswith("failed: "):
        raise RuntimeError(answer)
    return answer


@unittest.skipUnless(MPI, "mpirun is not installed")
@unittest.skipUnless(os.geteuid() == 0, "needs root")
class Attacks(JobTest):
    """Another user reads everything that is readable and connects to everything that is reachable."""

    @staticmethod
    def seen_by_everybody(job):
        """The command lines that contain the job's id."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                command = read_bytes(f"/proc/{name}/cmdline").decode("utf-8", "replace").split("\0")
                if any(job in word for word in command):
                    found.append(command)
        return found

    @staticmethod
    def listening(pids):
        """The loopback and other TCP ports on which these processes listen."""
        inodes = set()
        for pid in pids:
            for name in os.listdir(f"/proc/{pid}/fd"):
                try:
                    inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
                except OSError:
                    continue
        ports = []
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in read_bytes(table).decode().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                    ports.append(int(words[1].split(":")[1], 16))
        return ports

    def attack(self, job, addresses):
        """The reply to each of these verbs at each address, with and without the job's id."""
        def requests():
            zmq, answers = Zmq(), []
            for address in addresses:
                for verb in (PING, STATS, PUSH, STOP):
                    for number in (int(job, 16), 0):
                        client = Client(zmq, address, number, client=7)
                        reply = client.ask(verb, b"theta", b"\0" * 16, 0x14)
                        answers.append([reply.status, reply.server, reply.body.decode("latin-1")])
                        client.close()
            return answers
        return as_other(requests)

    def pids(self, run):
        return {p.pid: role_of(p) for p in processes_of(run.job())}

    def running(self, *options):
        run = self.start("-w", "2", "-p", "1", "-c", "long.json", "-m", "mpi", *options, LR)
        self.assertTrue(wait_until(lambda: "round" in run.err(), 60), run.err())
        return run

    def test_another_user_cannot_reach_an_mpi_job_on_one_host(self):
        run = self.running()
        job = run.job()
        commands = as_other(lambda: self.seen_by_everybody(job))
        addresses = sorted({word for command in commands for word in re.findall(r"ipc://[^;\s]+", " ".join(command))})
        self.assertTrue(addresses, commands)
        self.assertNotIn("tcp://", str(commands))
        pids = [pid for pid, role in self.pids(run).items() if role in ("server", "scheduler")]
        self.assertGreaterEqual(len(pids), 2)
        self.assertEqual(self.listening(pids), [])
        folder = run.socket_folder()
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        sockets = [os.path.join(folder, name) for name in os.listdir(folder)
                   if stat.S_ISSOCK(os.stat(os.path.join(folder, name)).st_mode)]
        self.assertGreaterEqual(len(sockets), 4)  # the scheduler, a shard, the clock, the control thread

        def connect():
            refused = 0
            for path in sockets:
                with socket.socket(socket.AF_UNIX) as line:
                    try:
                        line.connect(path)
                    except PermissionError:
                        refused += 1
            return refused
        self.assertEqual(as_other(connect), len(sockets))

    def test_another_user_who_knows_the_id_of_a_job_on_tcp_is_refused_by_all_of_it(self):
        run = self.running("--host", "127.0.0.1")
        job = run.job()
        self.assertTrue(as_other(lambda: self.seen_by_everybody(job)))
        pids = [pid for pid, role in self.pids(run).items() if role in ("server", "scheduler")]
        ports = self.listening(pids)
        self.assertGreaterEqual(len(ports), 4)  # the scheduler, a shard, the clock, the control thread
        folder = run.logs()
        key = read_bytes(os.path.join(folder, "job.key")).decode()
        self.assertRegex(key, r"^[0-9a-f]{16}$")
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, "job.key")).st_mode), 0o600)
        self.assertEqual(as_other(lambda: read_bytes(os.path.join(folder, "job.key")).decode()), "")
        everything = as_other(lambda: [(read_bytes(f"/proc/{n}/cmdline") + read_bytes(f"/proc/{n}/environ")).decode("latin-1")
                                       for n in os.listdir("/proc") if n.isdigit()])
        self.assertNotIn(key, str(everything))
        answers = self.attack(run.job(), [f"tcp://127.0.0.1:{port}" for port in ports])
        self.assertEqual(len(answers), 8 * len(ports))
        for answer in answers:
            status, server, text = answer
            self.assertEqual(status, WRONG_JOB, text)
            # Neither the key nor anything derived from it is in the reply.
            for secret in (int(key, 16), int(key, 16) ^ int(run.job(), 16)):
                self.assertNotIn(f"{secret:016x}", text)
                self.assertNotEqual(server, secret)
        # With the key requests are served, and the job has continued.
        status = self.status_of(run)
        self.assertIn("running for", status)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(30), 143)
        self.assertFalse(os.path.exists(os.path.join(folder, "job.key")))

    def test_another_user_cannot_even_ask_an_encrypted_job(self):
        run = self.running("--encrypt")
        job = run.job()
        pids = [pid for pid, role in self.pids(run).items() if role in ("server", "scheduler")]
        ports = self.listening(pids)
        self.assertGreaterEqual(len(ports), 4)
        path = os.path.join(run.socket_folder(), "job.key")
        secret = bytes.fromhex(read_bytes(path).decode())
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

        def requests():
            self.assertEqual(read_bytes(path), b"")
            zmq, answers = Zmq(), []
            own = os.urandom(32)
            # Without encryption, with keys of another job, and with the public key of this one.
            for keys in (None, 2 * (zmq.public_key(own),) + (own,), (zmq.public_key(secret), zmq.public_key(own), own)):
                for port in ports:
                    client = Client(zmq, f"tcp://127.0.0.1:{port}", int(job, 16), client=7, timeout=0.3, keys=keys)
                    answers.append(client.ask(STATS) is not None)
                    client.close()
            return answers
        self.assertEqual(as_other(requests), [False] * (3 * len(ports)))
        self.assertIn("running for", self.status_of(run))
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(30), 143)
        self.assertFalse(os.path.exists(path))

    def test_a_key_that_others_may_read_is_refused(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        path = os.path.join(folder, "job.key")
        for text, mode, owner, words in (("0" * 16, 0o640, 0, "may be read by others"), ("xyz", 0o600, 0, "want 16 hex digits"),
                                         ("0" * 16, 0o600, OTHER, f"belongs to another user (uid {OTHER})"),
                                         (None, 0, 0, "cannot be opened: No such file")):
            with self.subTest(words=words):
                if os.path.exists(path):
                    os.unlink(path)
                if text is not None:
                    with open(path, "w", encoding="ascii") as file:
                        file.write(text)
                    os.chmod(path, mode)
                    os.chown(path, owner, owner)
                done = subprocess.run([os.path.join(BIN, "start_scheduler"), "--job", "0" * 16], capture_output=True, text=True,
                                      stdin=subprocess.DEVNULL, check=False, env=clean_environment(PARACEL_JOB_KEY_FILE=path))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    main()

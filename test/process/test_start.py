#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""How the server and the scheduler start in unusual environments: few descriptors, a host name that is not UTF-8, limits that
cannot be met."""
import ctypes
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, main, wait_until  # noqa: E402
from server_support import STATS, ZMQ_LIBRARY, Client, Server, Zmq  # noqa: E402

CLONE_NEWUTS, CLONE_NEWUSER = 0x04000000, 0x10000000
NAME = b"h\xff\xfest"


def another_host_name():
    """In a child: a host name that no other process sees."""
    libc = ctypes.CDLL(None, use_errno=True)
    kinds = CLONE_NEWUTS if os.geteuid() == 0 else CLONE_NEWUTS | CLONE_NEWUSER
    if libc.unshare(kinds) != 0 or libc.sethostname(NAME, len(NAME)) != 0:
        raise OSError(ctypes.get_errno(), "no host name of our own")


def can_rename():
    try:
        return subprocess.run(["true"], preexec_fn=another_host_name, check=False).returncode == 0
    except subprocess.SubprocessError:
        return False


class Start(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="paracel-test-")
        self.addCleanup(shutil.rmtree, self.folder, True)

    @unittest.skipUnless(ZMQ_LIBRARY and can_rename(), "needs libzmq and a host name of its own (unshare)")
    def test_a_host_name_that_is_no_utf8_is_borne(self):
        server = Server(before=another_host_name)
        self.addCleanup(server.close)
        zmq = Zmq()
        self.addCleanup(zmq.close)
        self.assertTrue(wait_until(lambda: os.path.exists(server.address("c").removeprefix("ipc://")), 30, 0.02))
        client = Client(zmq, server.address("c"), server.job)
        self.addCleanup(client.close)
        self.assertTrue(wait_until(lambda: json.loads(client.ask(STATS).body)["epoch"] == 1, 30, 0.02), server.log())
        self.assertIsNone(server.process.poll())
        self.assertEqual(server.log(), "")

    def test_too_few_descriptors_are_said_and_no_abort(self):
        server = ("start_server", "--slot", "0", "--rendezvous", "ipc:///nowhere/at/all", "--bind", f"ipc://{self.folder}")
        scheduler = ("start_scheduler", "--bind", f"ipc://{self.folder}/s")
        for limit, name, *options in ((24, *server, "--threads", "8"), (8, *server), (12, *server), (8, *scheduler),
                                      (12, *scheduler)):
            with self.subTest(limit=limit, name=name):
                done = subprocess.run([os.path.join(BIN, name), "--job", "0" * 15 + "1", *options],
                                      preexec_fn=lambda n=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)),
                                      check=False, capture_output=True, timeout=60)
                text = done.stderr.decode()
                self.assertGreater(done.returncode, 0, text)
                self.assertIn(f"Too many open files; the limit of this process is {limit} (ulimit -n)", text)
                self.assertEqual(text.count("\n"), 1, text)

    @unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
    def test_of_silent_connections_beyond_the_descriptors_the_oldest_go(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
        server = Server(before=few)
        self.addCleanup(server.close)
        zmq = Zmq()
        self.addCleanup(zmq.close)
        path = server.address("0").removeprefix("ipc://")
        self.assertTrue(wait_until(lambda: os.path.exists(server.address("c").removeprefix("ipc://")), 30, 0.02))
        many = []
        for _ in range(100):
            many.append(socket.socket(socket.AF_UNIX))
            many[-1].settimeout(20)
            many[-1].connect(path)
        # A client that is turned away reads end of file instead of hanging.
        many[-1].setblocking(True)
        self.assertIn(len(many[-1].recv(1)), (0, 1))
        for one in many:
            one.close()
        self.assertIsNone(server.process.poll(), server.log())
        self.assertIn("too many connections have not sent a message yet", server.log())
        client = Client(zmq, server.address("c"), server.job)
        self.addCleanup(client.close)
        self.assertGreater(json.loads(client.ask(STATS).body)["connections_dropped"], 0)

    @unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
    def test_a_server_counts_its_cores(self):
        cores = sorted(os.sched_getaffinity(0))[:2]
        for threads, cpus, here in ((len(cores), cores, None), (1, cores[:1], None), (max(1, len(cores) // 2), cores, "2")):
            def before(cpus=cpus, here=here):
                os.sched_setaffinity(0, cpus)
                if here:
                    os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"] = here
            for text in ("auto", "auto/" + here if here else "auto/1"):
                with self.subTest(threads=threads, text=text):
                    server = Server(threads=text, before=before if text == "auto" else lambda c=cpus: os.sched_setaffinity(0, c))
                    self.addCleanup(server.close)
                    self.assertTrue(wait_until(lambda s=server: os.path.exists(s.address("c").removeprefix("ipc://")), 30, 0.02),
                                    server.log())
                    self.assertEqual(sum(n[2:].isdigit() for n in os.listdir(server.folder) if n.startswith("0_")), threads)
        for text in ("auto/0", "auto/", "2x", "-1"):
            done = subprocess.run([os.path.join(BIN, "start_server"), "--job", "0" * 15 + "1", "--rendezvous", "ipc:///nowhere",
                                   "--bind", f"ipc://{self.folder}", "--threads", text], check=False, capture_output=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(b"--threads must be a number, auto or auto/K, not '" + text.encode(), done.stderr)

    def test_a_heartbeat_limit_below_two_beats_is_refused(self):
        for name, options in (("start_scheduler", ("--workers", "1", "--servers", "1")),
                              ("start_server", ("--slot", "0", "--rendezvous", "ipc:///nowhere/at/all"))):
            with self.subTest(name=name):
                done = subprocess.run([os.path.join(BIN, name), "--job", "0" * 15 + "1", "--bind", f"ipc://{self.folder}/x",
                                       "--heartbeat-limit", "0.9", *options], check=False, capture_output=True, timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(b"beat every 0.5 s", done.stderr)


if __name__ == "__main__":
    main()

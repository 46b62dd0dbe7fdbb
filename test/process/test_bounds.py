#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A client that can connect to a server, or belongs to its job, cannot make it exceed its limits: messages with endless parts,
requests that wait for a membership, requests of another job. Nor can anybody who can connect to any process of a job."""
import json
import os
import resource
import socket
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, JobTest, main, processes_of, role_of, wait_until  # noqa: E402
from server_support import (CLOCK_WAIT, F64_ARRAY, NOT_FOUND, PULL, PUSH, STATS, ZMQ_LIBRARY, Client,  # noqa: E402
                            Server, Zmq)

MB = 1 << 20
WRONG_JOB = 11
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
MORE = b"\x01"


def ready():
    """The command with which a DEALER completes the handshake."""
    body = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    return b"\x04" + bytes([len(body)]) + body


class Raw:
    """A connection to a port that implements ZMTP without libzmq."""

    def __init__(self, address, greets=True):
        tcp = address.startswith("tcp://")
        self.socket = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        self.socket.settimeout(20)
        if tcp:
            host, port = address.removeprefix("tcp://").split(":")
            self.socket.connect((host, int(port)))
        else:
            self.socket.connect(address.removeprefix("ipc://"))
        if greets:
            self.socket.sendall(GREETING + ready())

    def send(self, what):
        """Returns False if the other side has closed the connection."""
        try:
            self.socket.sendall(what)
            return True
        except OSError:
            return False

    def is_dropped(self):
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self):
        self.socket.close()


@unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
class Bounds(unittest.TestCase):
    def start(self, **more):
        self.server = Server(**more)
        self.addCleanup(self.server.close)
        self.zmq = Zmq()
        self.clients = []
        self.addCleanup(self.zmq.close)
        self.addCleanup(lambda: [c.close() for c in self.clients])
        wait_until(lambda: os.path.exists(self.server.address("c").removeprefix("ipc://")), 30, 0.02)
        self.stats()

    def client(self, thread="0", job=None, **more):
        job = self.server.job if job is None else job
        self.clients.append(Client(self.zmq, self.server.address(thread), job, **more))
        return self.clients[-1]

    def stats(self):
        return json.loads(self.client("c").ask(STATS).body)

    def test_a_message_of_endless_parts_ends_its_connection_and_nothing_else(self):
        self.start()
        bystander = self.client(client=8)
        self.assertEqual(bystander.ask(PULL, b"key").status, NOT_FOUND)
        before = self.server.memory()
        attackers = [Raw(self.server.address(thread)) for thread in ("0", "c", "k")]
        parts = (MORE + b"\0") * (1 << 16)
        for attacker in attackers:
            self.addCleanup(attacker.close)
            for _ in range(128):  # 16 MB
                if not attacker.send(parts):
                    break
        for attacker in attackers:
            self.assertTrue(attacker.is_dropped())
        self.assertLess(self.server.memory() - before, 64 * MB)
        self.assertEqual(self.stats()["connections_dropped"], 3)
        self.assertIn("too many parts", self.server.log())
        self.assertEqual(bystander.ask(PULL, b"key").status, NOT_FOUND)

    def test_what_is_no_zmtp_is_dropped_at_once(self):
        self.start()
        for what in (b"GET / HTTP/1.0\r\n\r\n" * 10, b"\x01\x00" * 64, GREETING + b"\x80" * 10,
                     GREETING + b"\x06" + struct.pack(">Q", 1 << 40)):
            with self.subTest(what=what[:20]):
                attacker = socket.socket(socket.AF_UNIX)
                self.addCleanup(attacker.close)
                attacker.settimeout(20)
                attacker.connect(self.server.address().removeprefix("ipc://"))
                attacker.sendall(what)
                try:
                    while attacker.recv(1 << 16):
                        pass
                except ConnectionError:
                    pass
        self.assertEqual(self.client().ask(PULL, b"key").status, NOT_FOUND)

    def test_the_parts_of_a_message_have_a_limit_of_bytes_together(self):
        self.start(options=("--max-message-bytes", "32M", "--max-value-bytes", "16M"))
        before = self.server.memory()
        attacker = Raw(self.server.address())
        self.addCleanup(attacker.close)
        part = b"\x03" + struct.pack(">Q", 31 * MB) + bytes(31 * MB)
        for _ in range(4):
            if not attacker.send(part):
                break
        self.assertTrue(attacker.is_dropped())
        self.assertTrue(wait_until(lambda: self.server.memory() - before < 80 * MB, 20, 0.1))

    def test_what_waits_for_a_membership_is_bounded_in_bytes_over_all_threads(self):
        self.start(threads=2, servers=2)  # the other one never joins
        before = self.server.memory()
        body = bytes(64 * MB)
        for thread, verb in (("0", PUSH), ("1", PUSH), ("k", CLOCK_WAIT)):
            sender = self.client(thread, client=7)
            for _ in range(6):
                sender.send(verb, b"key", body, tag=F64_ARRAY, epoch=5)
        self.assertTrue(wait_until(lambda: self.stats()["held"]["parked"]["refused"] >= 15, 60, 0.1))
        held = self.stats()["held"]["parked"]
        self.assertEqual(held["limit_bytes"], 256 * MB)
        self.assertLessEqual(held["bytes"], held["limit_bytes"])
        self.assertGreater(held["bytes"], 190 * MB)
        # Memory of rejected requests is released, whichever thread of the process requested it.
        self.assertTrue(wait_until(lambda: self.server.memory() - before < 400 * MB, 20, 0.1))

    def test_nothing_is_kept_of_a_request_of_another_job(self):
        self.start(threads=1, servers=2)
        before = self.server.memory()
        body = bytes(64 * MB)
        for thread in ("0", "k"):
            stranger = self.client(thread, job=self.server.job ^ 1, client=7)
            for _ in range(4):
                self.assertEqual(stranger.ask(PUSH, b"key", body, tag=F64_ARRAY, epoch=5).status, WRONG_JOB)
        self.assertEqual(self.stats()["held"]["parked"]["bytes"], 0)
        self.assertTrue(wait_until(lambda: self.server.memory() - before < 200 * MB, 20, 0.1))


def listening(pid):
    """The addresses at which a process accepts TCP connections."""
    own = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            own.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    found = []
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as table:
        for words in (line.split() for line in table):
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                host, port = words[1].split(":")
                found.append(f"tcp://{socket.inet_ntoa(bytes.fromhex(host)[::-1])}:{int(port, 16)}")
    return found


def memory(pid):
    """Resident bytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Strangers(JobTest):
    """A job over TCP. Strangers do their worst at every port of every process, and know no key."""

    def test_no_process_buffers_what_strangers_send(self):
        enough = self.not_there("enough")
        run = self.start("-w", "2", "-p", "1", "--threads", "2", "--bind-interface", "lo", os.path.join(BIN, "test_counters"),
                         enough, "20")
        self.assertTrue(wait_until(lambda: "round" in run.err(), 30), run.err())
        nodes = {p.pid: role_of(p) for p in processes_of(run.job()) if role_of(p) in ("worker", "server", "scheduler")}
        ports = {pid: listening(pid) for pid in nodes}
        self.assertEqual({nodes[pid] for pid in nodes if ports[pid]}, {"worker", "server", "scheduler"})
        before = {pid: memory(pid) for pid in nodes}
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        idle = []
        self.addCleanup(lambda: [raw.close() for raw in idle])
        for pid, addresses in ports.items():
            for address in addresses:
                with self.subTest(role=nodes[pid], address=address):
                    self.send_endlessly(address, (MORE + b"\0") * (1 << 16), 16 * MB)
                    self.send_endlessly(address, b"\x03" + struct.pack(">Q", MB) + bytes(MB), 64 * MB)
            idle += [Raw(addresses[0], greets=False) for _ in range(300)]
        begin = time.monotonic()
        slow = [Raw(addresses[0], greets=False) for addresses in ports.values()]
        idle += slow
        for byte in GREETING[:10]:
            for raw in slow:
                raw.send(bytes([byte]))
            time.sleep(0.1)
        for pid, role in nodes.items():
            self.assertLess(memory(pid) - before[pid], 96 * MB, role)
        for raw in slow:
            self.assertTrue(raw.is_dropped())
        self.assertLess(time.monotonic() - begin, 15)
        self.touch(enough)
        self.assertEqual(run.wait(60), 0, run.err() + run.out())
        self.assertRegex(run.out(), "^exact")

    def send_endlessly(self, address, what, limit):
        attacker = Raw(address)
        self.addCleanup(attacker.close)
        for _ in range(limit // len(what)):
            if not attacker.send(what):
                break
        self.assertTrue(attacker.is_dropped())


if __name__ == "__main__":
    main()

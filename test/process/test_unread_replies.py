#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A client that sends requests and never reads the replies cannot make a server grow without bound, and other clients are not
affected."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import main, wait_until  # noqa: E402
from server_support import (F64_ARRAY, OK, PULL, PUSH, REQ, STATS, TOO_LARGE, ZMQ_LIBRARY, Client, Server,  # noqa: E402
                            Zmq)

MB = 1 << 20
LIMIT = 16 * MB


@unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
class UnreadReplies(unittest.TestCase):
    def setUp(self):
        self.server = Server(options=("--max-unread-bytes", "16M"))
        self.addCleanup(self.server.close)
        self.zmq = Zmq()
        self.clients = []
        self.addCleanup(self.zmq.close)
        self.addCleanup(lambda: [c.close() for c in self.clients])

    def client(self, thread="0", **more):
        self.clients.append(Client(self.zmq, self.server.address(thread), self.server.job, **more))
        return self.clients[-1]

    def unread(self):
        return json.loads(self.client("c").ask(STATS).body)["unread"]

    def ask_without_reading(self, value_bytes, asked_bytes):
        """Returns the client, and how many pulls of this value it has sent: until the server has dropped some, or this many bytes
        have been requested."""
        lazy = self.client(client=7, rank=3, most_replies=10)
        value = bytes(value_bytes)
        if value_bytes > 65536:
            self.assertEqual(lazy.ask(PUSH, b"key", tag=F64_ARRAY, tail=value).status, OK)
        else:
            self.assertEqual(lazy.ask(PUSH, b"key", value, tag=F64_ARRAY).status, OK)
        sent = 0
        while sent * (value_bytes + 64) < asked_bytes:
            for _ in range(1000):
                lazy.send(PULL, b"key")
            sent += 1000
        # The server has looked at all of them when it has handled or rejected this many.
        wait_until(lambda: self.handled() >= sent, 60, 0.1)
        return lazy, sent

    def handled(self):
        stats = json.loads(self.client("c").ask(STATS).body)
        return stats["shards"][0]["requests"].get("pull", 0) + stats["unread"]["refused"] + stats["unread"]["dropped"]

    def test_the_server_stays_within_its_limit_and_continues(self):
        before = self.server.memory()
        lazy, sent = self.ask_without_reading(32 * 1024, 320 * MB)
        self.assertLess(self.server.memory() - before, 4 * LIMIT)
        unread = self.unread()
        self.assertEqual(unread["limit_bytes"], LIMIT)
        self.assertGreater(unread["refused"], 0)
        self.assertIn("client 7 of rank 3 has not read", self.server.log())
        self.assertEqual(self.server.log().count("has not read"), 1)
        # Others are served, including a plain REQ socket that never acknowledges replies.
        other = self.client(client=8)
        plain = self.client(client=9, kind=REQ)
        for _ in range(2000):
            self.assertEqual(other.ask(PULL, b"key").status, OK)
        for _ in range(2000):
            self.assertEqual(plain.ask(PULL, b"key").status, OK)
        # When the client finally reads, it finds its values, then rejections with the reason, and is served again.
        statuses = []
        for _ in range(sent - unread["dropped"]):
            reply = lazy.receive()
            self.assertIsNotNone(reply)
            statuses.append(reply.status)
            if reply.status == TOO_LARGE:
                self.assertIn(b"wait to be read", reply.body)
        self.assertGreater(statuses.count(OK), LIMIT // (33 * 1024) // 2)
        self.assertEqual(statuses.count(OK) + statuses.count(TOO_LARGE), len(statuses))
        self.assertEqual(lazy.ask(PULL, b"key").status, OK)

    def test_small_replies_count_with_what_they_cost(self):
        before = self.server.memory()
        _, sent = self.ask_without_reading(8, 40 * MB)  # 580,000 replies; 160 MB of memory without a limit
        # On a loaded machine requests that wait for the server's threads count too.
        self.assertLess(self.server.memory() - before, 4 * LIMIT)
        self.assertGreater(self.unread()["dropped"], sent // 10)

    def test_a_value_in_a_frame_of_its_own_counts_too(self):
        before = self.server.memory()
        lazy, sent = self.ask_without_reading(512 * 1024, 512 * MB)
        self.assertLess(self.server.memory() - before, 4 * LIMIT)
        # How much the connection buffers depends on the machine; unless such frames were counted, nothing would be rejected.
        self.assertGreater(self.unread()["refused"], sent // 4)
        lazy.close()
        self.clients.remove(lazy)
        # Its queue is released with its connection.
        again = self.client(client=7)
        self.assertEqual(again.ask(PUSH, b"key", bytes(8), tag=F64_ARRAY).status, OK)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The memory of keys and rows in a real server: less than 88 resident bytes for a key of 20 characters with one double, and what
is removed is given back to the system. PARACEL_MEMORY_KEYS: the number of keys (1,000,000)."""
import json
import os
import random
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import main, wait_until  # noqa: E402
from server_support import (OK, PULL_MULTI, PUSH_MULTI, REMOVE_MULTI, STATS, ZMQ_LIBRARY, Client, Server, Zmq,  # noqa: E402
                            items)

KEYS = int(os.environ.get("PARACEL_MEMORY_KEYS", "1000000"))
KEYS_A_CALL = 10_000
MOST_BYTES_A_KEY = 88  # 71 to 83, depending on the names and on how busy the machine is
# Message buffers, and what malloc keeps of them.
GROWTH_BYTES = 4 << 20
MB = 1 << 20
TABLE_OPEN, ROWS_PULL, ROWS_REMOVE = 96, 97, 100
TABLE = b"t"
TABLE_ID = 4037867821  # the low half of XXH3-64 of its name
F32, F64, PACKED = 0x03, 0x04, 0x0f


@unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
class Memory(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        self.zmq = Zmq()
        self.client = Client(self.zmq, self.server.address(), self.server.job)
        self.addCleanup(self.zmq.close)
        self.addCleanup(self.client.close)

    def for_all(self, verb, keys, value=None):
        for first in range(0, len(keys), KEYS_A_CALL):
            part = keys[first:first + KEYS_A_CALL]
            reply = self.client.ask(verb, b"", items(part, value), count=len(part))
            self.assertEqual((reply.status, reply.count), (OK, len(part)))
            # Every item: 16 bytes without a value, its status at offset 6.
            self.assertFalse(any(struct.unpack_from("<H", reply.body, 16 * i + 6)[0] for i in range(0, len(part), 97)))

    def test_a_million_keys_and_a_million_in_and_out(self):
        empty = self.server.memory()
        value = struct.pack("<d", 1.5)
        loaded = []
        for turn in range(3):
            # New names each time: a table must not depend on finding its old ones again.
            salt = random.randrange(10**6)
            keys = [b"key:%d:%06d:%07d" % (turn, salt, i) for i in range(KEYS)]
            self.assertEqual(len(keys[0]), 20)
            self.for_all(PUSH_MULTI, keys, value)
            loaded.append(self.server.memory())
            self.for_all(REMOVE_MULTI, keys)
        print(f"bytes a key: {(loaded[0] - empty) / KEYS:.1f}; after three turns {loaded[-1] - loaded[0]:+d} bytes",
              file=sys.stderr)
        self.assertLess((loaded[0] - empty) / KEYS, MOST_BYTES_A_KEY)
        self.assertLess(loaded[-1] - loaded[0], GROWTH_BYTES)

    def stats(self):
        control = Client(self.zmq, self.server.address("c"), self.server.job)
        try:
            return json.loads(control.ask(STATS).body)
        finally:
            control.close()

    def assert_given_back(self, what, allowed):
        """Of what is not live, only so much stays; `stats` shows the same."""
        def excess():
            now = self.stats()
            return self.server.memory() - now["memory_bytes"] * 1.15
        loaded = self.server.memory()
        begin = time.monotonic()
        done = wait_until(lambda: excess() < allowed, 30, 0.2)
        now = self.stats()
        print(f"{what}: {loaded / MB:.0f} MB -> {self.server.memory() / MB:.0f} MB resident in {time.monotonic() - begin:.1f} s, "
              f"live {now['memory_bytes'] / MB:.1f} MB", file=sys.stderr)
        self.assertTrue(done)
        self.assertLess(abs(now["resident_bytes"] - self.server.memory()), 8 * MB)

    def test_what_removed_keys_leave_is_given_back_and_the_others_keep_their_values(self):
        empty = self.server.memory()
        keys = [b"key:%08d:%07d" % (i * 7919 % 10**8, i) for i in range(KEYS)]
        for first in range(0, KEYS, KEYS_A_CALL):
            part = keys[first:first + KEYS_A_CALL]
            values = b"".join(struct.pack("<IIB3x", len(k), 8, F64) + k + struct.pack("<d", first + i)
                              for i, k in enumerate(part))
            self.assertEqual(self.client.ask(PUSH_MULTI, b"", values, count=len(part)).status, OK)
        self.for_all(REMOVE_MULTI, keys[1::2])
        self.assert_given_back("every second key removed", empty + 20 * MB)
        for first in range(0, KEYS, 2 * KEYS_A_CALL):
            part = keys[first:first + 2 * KEYS_A_CALL:2]
            reply = self.client.ask(PULL_MULTI, b"", items(part), count=len(part))
            # An item: 16 bytes and the value.
            self.assertEqual([struct.unpack_from("<d", reply.body, 24 * i + 16)[0] for i in range(len(part))],
                             [first + 2 * i for i in range(len(part))])
        self.for_all(REMOVE_MULTI, keys[::2])
        self.assert_given_back("all keys removed", empty + 20 * MB)

    def test_what_removed_values_of_the_allocator_leave_is_given_back(self):
        empty = self.server.memory()
        keys = [b"key:%05d" % i for i in range(40_000)]
        for i in range(0, len(keys), 500):
            part = keys[i:i + 500]
            self.assertEqual(self.client.ask(PUSH_MULTI, b"", items(part, b"x" * 12_000, PACKED), count=len(part)).status, OK)
        self.for_all(REMOVE_MULTI, keys)
        self.assert_given_back("480 MB of values removed", empty + 40 * MB)

    def test_what_removed_rows_leave_is_given_back(self):
        empty = self.server.memory()
        definition = struct.pack("<BBHIddQ", F32, 0, 0, 8, 0, 0, 0)
        self.assertEqual(self.client.ask(TABLE_OPEN, TABLE, definition).status, OK)
        count = KEYS

        def for_rows(verb, first, step):
            for i in range(first, count, KEYS_A_CALL * step):
                ids = range(i, min(count, i + KEYS_A_CALL * step), step)
                reply = self.client.ask(verb, b"", struct.pack(f"<{len(ids)}Q", *ids), tag=F32, count=len(ids), table=TABLE_ID)
                self.assertEqual(reply.status, OK, reply.body)

        for_rows(ROWS_PULL, 0, 1)
        self.assertGreater(self.stats()["memory_bytes"], 40 * count)
        for_rows(ROWS_REMOVE, 0, 1)
        self.assert_given_back("all rows removed", empty + 20 * MB)


if __name__ == "__main__":
    main()

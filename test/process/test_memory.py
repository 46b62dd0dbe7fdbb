#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The memory of keys in a real server: less than 88 resident bytes for a key of 20 characters with one double, and none after
they have been removed."""
import os
import random
import struct
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import main  # noqa: E402
from server_support import OK, PUSH_MULTI, REMOVE_MULTI, ZMQ_LIBRARY, Client, Server, Zmq, items  # noqa: E402

KEYS = 1_000_000
KEYS_A_CALL = 10_000
MOST_BYTES_A_KEY = 88  # 71 to 80, depending on the names and on how busy the machine is
# Message buffers, and what malloc keeps of them.
GROWTH_BYTES = 4 << 20


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


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""More clients than the default limit of descriptors allows: a server raises its limit and accepts all of them."""
import os
import resource
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import main  # noqa: E402
from server_support import NOT_FOUND, PULL, ZMQ_LIBRARY, Client, Server, Zmq  # noqa: E402

LOW = 100
CLIENTS = 250
_, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


@unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
@unittest.skipUnless(HARD == resource.RLIM_INFINITY or HARD >= 4 * CLIENTS, "the hard limit of descriptors is too low")
class Connections(unittest.TestCase):
    def test_a_server_is_not_bound_by_the_soft_limit_of_descriptors(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, hard))
        try:
            server = Server()  # inherits it
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * CLIENTS), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        self.addCleanup(server.close)
        zmq = Zmq()
        self.addCleanup(zmq.close)
        clients = [Client(zmq, server.address(), server.job, client=i + 1) for i in range(CLIENTS)]
        self.addCleanup(lambda: [c.close() for c in clients])
        for c in clients:
            reply = c.ask(PULL, b"key")
            self.assertIsNotNone(reply)
            self.assertEqual(reply.status, NOT_FOUND)


if __name__ == "__main__":
    main()

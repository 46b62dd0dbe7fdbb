# SPDX-License-Identifier: BSD-3-Clause
"""The pipes through which a launcher hears what its processes print."""
import os
import select

from .mpirun import Tagged

MOST_LEFT_IN_PIPE = 1 << 20  # bytes that a process may have left in its pipe


class Pipes:
    """Each has a reader: a function of bytes, called with b"" at the end, or a Tagged."""

    def __init__(self, poll, is_full):
        """`poll` looks at those that are to be read. `is_full()`: too much waits to be printed already."""
        self.poll, self.is_full = poll, is_full
        self.readers = {}    # descriptor -> reader
        self.urgent = set()  # those that are read however much waits to be printed
        self.heard = set()   # those that the poll looks at

    def open(self, reader, urgent=False):
        """A new pipe: the end that is read here, and the one that a process gets, which the caller closes."""
        source, into = os.pipe()
        os.set_blocking(source, False)
        self.readers[source] = reader
        if urgent:
            self.urgent.add(source)
        return source, into

    def sources(self):
        return list(self.readers)

    def listen(self):
        """While too much waits to be printed nobody listens to those who print more."""
        full = self.is_full()
        for fd in self.readers:
            if not full or fd in self.urgent:
                if fd not in self.heard:
                    self.poll.register(fd, select.POLLIN)
                    self.heard.add(fd)
            elif fd in self.heard:
                self.poll.unregister(fd)
                self.heard.remove(fd)

    def read(self, fd, final=False):
        """Reads `fd` as long as there is something. `final`: what its process has left there, however full the output is."""
        reader = self.readers[fd]
        feed = reader.feed if isinstance(reader, Tagged) else reader
        left = MOST_LEFT_IN_PIPE
        while left > 0:
            # What cannot be written stays with the one who printed it.
            if not final and self.is_full() and fd not in self.urgent:
                return
            try:
                data = os.read(fd, 1 << 16)
            except BlockingIOError:
                return
            if data:
                feed(data)
                left -= len(data) if final else 0
                continue
            if fd in self.heard:
                self.poll.unregister(fd)
                self.heard.remove(fd)
            os.close(fd)
            del self.readers[fd]
            self.urgent.discard(fd)
            if isinstance(reader, Tagged):
                reader.close()
            else:
                reader(b"")
            return

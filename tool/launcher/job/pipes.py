# SPDX-License-Identifier: BSD-3-Clause
"""The pipes through which a launcher reads the output of its processes."""
import os
import select

from ..engines.mpirun import Tagged

MOST_LEFT_IN_PIPE = 1 << 20  # bytes that a process may have left in its pipe


class Pipes:
    """Each pipe has a reader: a function of bytes, called with b"" at the end, or a Tagged."""

    def __init__(self, poll, is_full):
        """`poll`: the poll object of the event loop. `is_full()`: whether too much output is waiting to be printed."""
        self.poll, self.is_full = poll, is_full
        self.readers = {}    # descriptor -> reader
        self.urgent = set()  # those that are read even if too much output is waiting
        self.polled = set()   # descriptors registered with `poll`

    def open(self, reader, urgent=False):
        """Creates a pipe: returns the end that is read here, and the one for the process, which the caller closes."""
        source, into = os.pipe()
        os.set_blocking(source, False)
        self.readers[source] = reader
        if urgent:
            self.urgent.add(source)
        return source, into

    def sources(self):
        return list(self.readers)

    def listen(self):
        """Polls only the urgent descriptors while too much output is waiting to be printed."""
        full = self.is_full()
        for fd in self.readers:
            if not full or fd in self.urgent:
                if fd not in self.polled:
                    self.poll.register(fd, select.POLLIN)
                    self.polled.add(fd)
            elif fd in self.polled:
                self.poll.unregister(fd)
                self.polled.remove(fd)

    def close(self):
        """Nothing more is read: tells the readers, of what descendants of processes may still hold open."""
        for fd in self.sources():
            self.drop(fd)

    def drop(self, fd):
        reader = self.readers.pop(fd)
        if fd in self.polled:
            self.poll.unregister(fd)
            self.polled.remove(fd)
        os.close(fd)
        self.urgent.discard(fd)
        if isinstance(reader, Tagged):
            reader.close()
        else:
            reader(b"")

    def read(self, fd, final=False):
        """Reads all available data from `fd`. `final`: its process has exited, so all that is left is read however full the
        output is."""
        reader = self.readers[fd]
        feed = reader.feed if isinstance(reader, Tagged) else reader
        left = MOST_LEFT_IN_PIPE
        while left > 0:
            # Backpressure: data that cannot be printed stays in the pipe.
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
            self.drop(fd)
            return

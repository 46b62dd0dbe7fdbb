# SPDX-License-Identifier: BSD-3-Clause
"""Standard output and standard error, written by separate threads, so that the caller never waits for a reader."""
import collections
import os
import select
import threading
import time

from .durable import write_durably
from .exit_status import FAILURE, Failure

CHUNK = select.PIPE_BUF     # bytes in a write: atomic on a pipe
MOST_WAITING = 1 << 20      # bytes waiting for a reader at which `is_full` becomes true


def write_all(fd, data):
    """Blocks, even on a non-blocking descriptor (the flag is shared with other processes that have the descriptor)."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view[:CHUNK]):]
        except BlockingIOError:
            wait_for_room(fd)


def write_quietly(fd, data):
    try:
        write_all(fd, data)
    except OSError:  # there is no reader
        pass


def write_file(path, pieces):
    """As write_durably. Raises Failure."""
    try:
        write_durably(path, pieces)
    except OSError as error:
        raise Failure(FAILURE, f"{path} cannot be written: {error.strerror}") from None


def write_out(text):
    """Writes to standard output, for commands that run no job. Raises Failure on an error, but not if the reader has closed
    it."""
    try:
        write_all(1, text.encode("utf-8", "replace"))
    except BrokenPipeError:
        pass
    except OSError as error:
        raise Failure(FAILURE, f"standard output: {error.strerror}") from None


def wait_for_room(fd):
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()


def are_same_file(one, other):
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False


class Stream:
    """A descriptor and the data waiting to be written to it. Two streams of the same file share a thread, which preserves their
    order. That thread calls `on_room` when all data has been written, when the stream is no longer full, or when a write has
    failed."""

    def __init__(self, fd, beside=None):
        self.fd = fd
        self.waiting = 0                # bytes
        self.error = None               # an OSError; later data is dropped
        self.taken = 0.0                # time of the reader's last progress
        self.on_room = lambda: None
        self.thread = beside.thread if beside is not None and are_same_file(fd, beside.fd) else WriterThread()

    def put(self, data):
        self.thread.put(self, data)

    def is_full(self):
        return self.waiting > MOST_WAITING

    def wait(self, limit):
        """Waits until all data is written, at most `limit` seconds from now or from the reader's last progress. Returns whether
        it was."""
        begin = time.monotonic()
        with self.thread.changed:
            while self.waiting:
                left = max(begin, self.taken) + limit - time.monotonic()
                if left <= 0:
                    return False
                self.thread.changed.wait(left)
        return True


class WriterThread:
    def __init__(self):
        self.changed = threading.Condition()
        self.queue = collections.deque()    # (stream, remaining data)
        self.started = False

    def put(self, stream, data):
        with self.changed:
            if stream.error is not None or not data:
                return
            if not stream.waiting:
                stream.taken = time.monotonic()
            self.queue.append((stream, memoryview(data)))
            stream.waiting += len(data)
            self.changed.notify_all()
            if not self.started:
                self.started = True
                threading.Thread(target=self.run, daemon=True).start()  # a daemon: not joined at exit

    def run(self):
        while True:
            with self.changed:
                while not self.queue:
                    self.changed.wait()
                stream, data = self.queue[0]
            try:
                written = os.write(stream.fd, data[:CHUNK])
            except BlockingIOError:
                wait_for_room(stream.fd)
                continue
            except OSError as error:
                self.fail(stream, error)
                continue
            with self.changed:
                before = stream.waiting
                stream.waiting -= written
                stream.taken = time.monotonic()
                if written == len(data):
                    self.queue.popleft()
                else:
                    self.queue[0] = stream, data[written:]
                done = not stream.waiting
                if done:
                    self.changed.notify_all()
            if done or before > MOST_WAITING >= before - written:
                stream.on_room()

    def fail(self, stream, error):
        with self.changed:
            stream.error = error
            self.queue = collections.deque(entry for entry in self.queue if entry[0] is not stream)
            stream.waiting = 0
            self.changed.notify_all()
        stream.on_room()

# SPDX-License-Identifier: BSD-3-Clause
"""Signals and exits of child processes as bytes in a pipe, for a loop that polls."""
import os
import signal


def wake_at(numbers, handler=lambda *_: None):
    """From here on each of these signals, and the exit of a child, writes its number into a pipe, after `handler` has run. SIGHUP
    stays ignored if it is, as under nohup. Returns: the pipe's ends."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in {signal.SIGCHLD, *numbers}:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    return read, write


def signals_in(pipe):
    """The numbers that have come; zero bytes only wake (Terminal.wake_with)."""
    try:
        return os.read(pipe, 4096).replace(b"\0", b"")
    except BlockingIOError:
        return b""

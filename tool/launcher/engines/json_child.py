# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py join --log-format json`: what the process prints, and prun.py before it becomes the process, passes through a parent,
which writes each line as an object (json_log.py): of standard output to standard output, of standard error to standard error.
The parent gets the signals and passes them on, and has the process's exit status; if it is killed, the process is, too."""
import os
import select
import signal

from ..common.exit_status import FAILURE
from ..common.output import write_quietly
from ..job.json_log import JsonLog
from ..job.wake_up import signals_in, wake_at

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PIECE = 1 << 16
DEATH_SIGNAL = 1  # of prctl


class Output:
    """A descriptor as JsonLog needs it."""

    def __init__(self, fd):
        self.fd = fd

    def write(self, data):
        write_quietly(self.fd, data)

    def close(self):
        pass


def as_child(run, role, index):
    """Forks. In the child it returns a function of the place's index, to call when that is known. The parent ends with the
    child. `run`: the job's id."""
    import ctypes
    prctl = ctypes.CDLL(None).prctl
    out, err, told = os.pipe(), os.pipe(), os.pipe()
    woken = wake_at(PASSED_ON)[0]
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *PASSED_ON):
            signal.signal(number, signal.SIG_DFL)
        prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # also of what it becomes
        if os.getppid() != parent:
            os._exit(FAILURE)
        os.dup2(out[1], 1)
        os.dup2(err[1], 2)
        return lambda index: os.write(told[1], b"%d" % index)
    for _, end in (out, err, told):
        os.close(end)
    logs = {out[0]: JsonLog(Output(1), run, role, index), err[0]: JsonLog(Output(2), run, role, index)}
    status = pass_on(pid, woken, told[0], logs)
    for log in logs.values():
        log.close()
    os._exit(status)


def pass_on(pid, woken, told, logs):
    """Until the child has ended. Returns its exit status, 128 and a number for a signal, as a shell does."""
    poll, ended = select.poll(), None
    for fd in (woken, told, *logs):
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    while ended is None:
        ready = {fd for fd, _ in poll.poll()}
        for number in signals_in(woken) if woken in ready else ():
            if number != signal.SIGCHLD:
                os.kill(pid, number)
            elif ended is None:
                ended = status_of(pid)
        # What it has told comes before what it has printed later; after its end all that is left is read, and what others hold
        # open is not waited for.
        for fd in sorted(ready & {told, *logs} if ended is None else {told, *logs}, key=lambda fd: fd != told):
            while data := piece_of(fd):
                if fd != told:
                    logs[fd].write(data)
                    continue
                for log in logs.values():
                    log.index = int(data)
            if data == b"" and ended is None:
                poll.unregister(fd)
    return ended


def piece_of(fd):
    """b"": its end; None: there is nothing now."""
    try:
        return os.read(fd, PIECE)
    except BlockingIOError:
        return None


def status_of(pid):
    """None while it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        return None
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

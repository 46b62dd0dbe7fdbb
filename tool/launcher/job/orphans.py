# SPDX-License-Identifier: BSD-3-Clause
"""Exits of children, and processes whose mpirun was killed: they become children of this launcher, which terminates them."""
import os
import signal


def reap(by_pid):
    """The children that have exited, and the ids of other processes that have. The rest of a child's process group is killed
    before its id can be reused."""
    dead, others = [], []
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return dead, others
        if ended is None:
            return dead, others
        child = by_pid.get(ended.si_pid)
        if child is not None:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except OSError:
                pass
        os.waitpid(ended.si_pid, 0)
        if child is None:
            others.append(ended.si_pid)
        else:
            child.ended = ended
            dead.append(child)


def become_subreaper():
    """Makes orphans of a killed mpirun children of this process. False if the system does not support it."""
    try:
        import ctypes
        return ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        return False


def signal_orphans(number, known):
    """Sends a signal to every living child whose process id is not in `known`. Returns their number."""
    found = 0
    me = str(os.getpid())
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in known:
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
            if parent == me and state != "Z":
                found += 1
                os.kill(int(name), number)
        except OSError:
            continue
    return found

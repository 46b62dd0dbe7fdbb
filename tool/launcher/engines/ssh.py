# SPDX-License-Identifier: BSD-3-Clause
"""-m ssh: each process on another host is started by an ssh of its own, whose output is the process's.

    prun.py --stdin, never written--> ssh --> sshd --> sh: starts the process in a session of its own, and waits
                                                       stdin ends (prun.py, ssh or the connection is gone): TERM, 1 s, KILL
                                                       the process ends: its status is ssh's

Environment and arguments are in ssh's command line, which others can read; the job's key is not among them (key_holders.py)."""
import os

from ..common.exit_status import USAGE, Failure
from .hosts import logins, slots_in

LOST_CONNECTION = 255  # ssh's status when it fails itself
AT_ONCE = 8            # sshd refuses some of more than ten connections that have not logged in (MaxStartups)
LOGIN_LIMIT = 3.0      # seconds
# A dash takes `kill -TERM -- -1` for wrong, so `-s`.
WATCH = ("cd {folder} || exit 2; {before}exec 3<&0; env {environment} setsid {command} </dev/null 3<&- & p=$!; "
         "{{ cat <&3; kill -s TERM -- -$p; sleep 1; kill -s KILL -- -$p; }} >/dev/null 2>&1 & w=$!; "
         "exec 3<&-; wait $p; s=$?; kill $w 2>/dev/null; exit $s")


def command_there(login, command, environment):
    """The command that runs another one on a host, in the current folder's place there."""
    import shlex
    traces = environment.get("PARACEL_TRACE")  # a host that does not see the run's folder gets one of its own there
    before = f"(umask 077; mkdir -p {shlex.quote(traces)}) 2>/dev/null; " if traces else ""
    script = WATCH.format(folder=shlex.quote(os.getcwd()), before=before,
                          command=" ".join(shlex.quote(word) for word in command),
                          environment=" ".join(shlex.quote(f"{k}={v}") for k, v in environment.items()) or "PARACEL_MODE=")
    from .key_holders import agent, for_any_shell
    words = agent()
    found = (os.path.join(folder, words[0]) for folder in os.get_exec_path())
    path = next((name for name in found if os.access(name, os.X_OK)), None)
    return [path or words[0], *words[1:], login, for_any_shell(script)]


class Hosts:
    """Where the processes of a job run. Threads and addresses are as under mpirun."""

    def __init__(self, options, remote):
        self.options = options
        self.login = dict(zip(remote, logins(options, remote)))  # of other hosts
        slots = [host for host, count in slots_in(options.hostfile) for _ in range(count)] if options.method == "ssh" else []
        if options.method == "ssh" and len(slots) < options.wnum:
            raise Failure(USAGE, f"-w {options.wnum}: {options.hostfile} has {len(slots)} slots, one for each worker")
        self.of_worker, self.spare = slots[:options.wnum], slots[options.wnum:]

    def move(self, rank):
        """The next process of this worker starts on another host, if one has a free slot. Returns: otherwise the host where it
        starts again; None if it starts on another one, or all are on this one."""
        if not self.of_worker:  # all processes are on this host
            return None
        old = self.of_worker[rank]
        new = next((host for host in self.spare if host != old), None)
        if new is None:
            return old
        self.spare.remove(new)
        self.spare.append(old)
        self.of_worker[rank] = new
        return None

    def is_here(self, host):
        return host is None or host not in self.login

    def place(self, child, environment):
        """Makes the child one that is started on `child.host`, if that is another one."""
        if self.is_here(child.host):
            child.host = None
            return child
        keep = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        child.command = command_there(self.login[child.host], child.command, {**keep, **environment, **child.environment})
        return child


class Startups:
    """Children that are started as fast as their hosts admit them."""

    def __init__(self):
        self.waiting = []
        self.begun = []  # (child, when)
        self.at = 0.0    # when to try again, if nobody joins

    def take(self, joined, now):
        """Those that may be started now: all on this host, and AT_ONCE on each other one whose ssh may still be logging in. A
        process that has joined is in `joined`; one that never joins counts for LOGIN_LIMIT."""
        if not self.waiting:
            return []
        self.begun = [(child, when) for child, when in self.begun
                      if when + LOGIN_LIMIT > now and child.ended is None and (child.role, child.index) not in joined]
        busy = [child.host for child, _ in self.begun]
        taken, rest = [], []
        for child in self.waiting:
            if child.host is not None and busy.count(child.host) >= AT_ONCE:
                rest.append(child)
                continue
            taken.append(child)
            if child.host is not None:
                busy.append(child.host)
                self.begun.append((child, now))
        self.waiting = rest
        self.at = min((when for _, when in self.begun), default=now) + LOGIN_LIMIT
        return taken


class LifeLine:
    """The standard input of all ssh: it ends with this process."""

    def __init__(self):
        self.ends = None

    def end(self):
        if self.ends is None:
            self.ends = os.pipe()  # children do not inherit the other end
        return self.ends[0]

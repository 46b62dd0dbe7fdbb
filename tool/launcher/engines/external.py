# SPDX-License-Identifier: BSD-3-Clause
"""-m external: prun.py runs the scheduler alone, and anything else starts the servers and workers, on any host, in any order,
each by `prun.py join` (join.py) with two variables:

    PARACEL_RENDEZVOUS=HOST:PORT#JOB   where the scheduler is, or will be: a name or an address; which job
    PARACEL_JOB_KEY_FILE=FILE          the job's key, mode 0600

What else a process must know it gets from the scheduler, with its place (server/scheduler/scheduler_places.cpp)."""
import json
import os
import re
import stat
import time

from ..common.durable import write_durably
from ..common.exit_status import FAILURE, USAGE, Failure
from .hosts import is_loopback, own_address

VARIABLE, KEY_VARIABLE = "PARACEL_RENDEZVOUS", "PARACEL_JOB_KEY_FILE"
WAYS = ("PARACEL_SHARED_MEMORY", "PARACEL_DIRECT_LINKS")  # 0: workers exchange messages in another way
INTERNAL = "paracel1;"  # what a process of a job has in that variable
SETTINGS = "external.json"
REMINDER = 10.0  # seconds until the first line that names the missing; then twice as long, and so on
JOIN_LIMIT = 600.0
KEY_DIGITS = 64  # net/job_key.cpp


class Rendezvous:
    def __init__(self, text):
        """HOST:PORT#JOB; an IPv6 address is in brackets. Raises Failure."""
        found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:#/\s]+)):(\d{1,5})#([\w.-]{1,64})", text, re.ASCII)
        if found is None or not 0 < int(found[3]) < 1 << 16:
            raise Failure(USAGE, f"{VARIABLE}={text}: want HOST:PORT#JOB, such as node1:7077#train or [fd00::1]:7077#train; JOB: "
                                 "at most 64 letters, digits, dots, dashes")
        self.host, self.port, self.job = found[1] or found[2], found[3], found[4]

    def __str__(self):
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}#{self.job}"

    def id(self):
        """The job's id on the wire: 16 hex digits, those of the name if it consists of them."""
        if re.fullmatch("[0-9a-f]{16}", self.job):
            return self.job
        import hashlib
        return hashlib.sha256(self.job.encode()).hexdigest()[:16]


def rendezvous_in(environment):
    text = environment.get(VARIABLE, "")
    return None if not text or text.startswith(INTERNAL) else Rendezvous(text)


class External:
    """The job's address and key, on the scheduler's host."""

    def __init__(self, options):
        """Raises Failure."""
        self.where = Rendezvous(options.rendezvous) if options.rendezvous else rendezvous_in(os.environ)
        own = options.host or options.bind_interface
        if self.where is not None and own:
            raise Failure(USAGE, f"{self.where} names this host: want neither --host nor --bind-interface")
        if self.where is None:  # the port is the system's choice
            host = (own_address(options, []) if own else "127.0.0.1").strip("[]")
            self.where = Rendezvous(f"{f'[{host}]' if ':' in host else host}:1#{os.urandom(8).hex()}")
            self.where.port = "*"
        self.pause = REMINDER
        self.key = os.path.abspath(os.environ[KEY_VARIABLE]) if os.environ.get(KEY_VARIABLE) else None

    def is_reachable(self):
        return not (self.where.host == "localhost" or is_loopback(self.where.host))

    def bind(self):
        """Where the scheduler listens. The host of a rendezvous may be a name that leads here by other means, as that of a
        service; then all interfaces are meant."""
        host = self.where.host
        if self.is_reachable():
            host = "[::]" if ":" in host else "*"
        elif ":" in host:
            host = f"[{host}]"
        return f"tcp://{'127.0.0.1' if host == 'localhost' else host}:{self.where.port}"

    def bound(self, address):
        """Takes the address that the scheduler has bound. Returns: where this host reaches it."""
        self.where.port = address.rpartition(":")[2]
        return address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")

    def make_key(self, folder, name):
        """Makes the file with the job's key, or takes the one that is there. `folder`: for it, if none is named. Raises
        Failure."""
        self.key = self.key or os.path.join(folder, name)
        try:
            write_durably(self.key, [os.urandom(KEY_DIGITS // 2).hex()], 0o600, replaces=False)  # others may wait for it
            return
        except FileExistsError:
            pass
        except OSError as error:
            raise Failure(FAILURE, f"{KEY_VARIABLE}: {self.key} cannot be written: {error.strerror}") from None
        check_key(self.key)

    def settings(self, plan):
        """JSON for the processes that join."""
        o = plan.options
        server = plan.server_command("", "", plan.threads or "auto")[1:]
        at = server.index("--bind")
        from ..programs.config import overriding
        from ..programs.program import command_of
        return json.dumps({
            "server": server[4:at] + ["--bind", "tcp://*:*"] + server[at + 2:],
            "worker": {**{k: v for k, v in plan.worker_environment("").items() if k != VARIABLE},
                       **({"PARACEL_STATE_DIR": plan.run_dir} if o.worker_wait else {})},
            "server_variables": plan.trace_environment(),
            "program": command_of(plan.program) + o.arguments, "folder": os.getcwd(),
            "config": ["--cfg_file", o.cfg_file, *overriding(o.set)] if o.cfg_file else []})

    def begin(self, job):
        """The scheduler is there."""
        for line in self.commands(job.options.snum, job.options.wnum, job.options.log_format):
            job.terminal.say(line, matters=True)
        job.deadlines["missing"] = time.monotonic() + self.pause

    def remind(self, job, now):
        job.terminal.say(f"waits for {missing(job.nodes, job.options.snum, job.options.wnum)}")
        self.pause *= 2
        job.deadlines["missing"] = now + self.pause

    def commands(self, servers, workers, log_format="text"):
        """What to run for the others, in lines."""
        variables = f"{VARIABLE}='{self.where}' {KEY_VARIABLE}='{self.key}'"
        yield "start each of them anywhere, in any order, with"
        option = "--log-format json " if log_format == "json" else ""
        yield f"  {variables} prun.py join {option}server    # {servers} of these"
        yield f"  {variables} prun.py join {option}worker    # {workers} of these"


def check_key(path):
    """Raises Failure, unless it is a file with a key that this user alone can read."""
    try:
        about = os.stat(path)
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read(KEY_DIGITS + 1)
    except OSError as error:
        raise Failure(USAGE, f"{KEY_VARIABLE}: {path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise Failure(USAGE, f"{KEY_VARIABLE}: {path}: want a file of this user that no other may read, mode 0600")
    if len(text) != KEY_DIGITS or not all(c in "0123456789abcdefABCDEF" for c in text):
        raise Failure(USAGE, f"{KEY_VARIABLE}: {path}: want {KEY_DIGITS} hex digits and nothing else")


def missing(nodes, servers, workers):
    """The places without a process, as `servers s1 and s3, workers 0 to 7`. `nodes`: (role, index) of those that have joined."""
    parts = []
    for role, count, letter in (("server", servers, "s"), ("worker", workers, "")):
        gone = [i for i in range(count) if (role, i) not in nodes]
        runs = []
        for i in gone:
            if runs and runs[-1][1] == i - 1:
                runs[-1][1] = i
            else:
                runs.append([i, i])
        words = [f"{letter}{a}" if a == b else f"{letter}{a} to {letter}{b}" for a, b in runs]
        words = words[:8] + ([f"{len(words) - 8} more"] if len(words) > 8 else [])
        if gone:
            parts.append(role + "s" * (len(gone) > 1) + " " + (words[0] if len(words) == 1 else
                                                                ", ".join(words[:-1]) + " and " + words[-1]))
    return " and ".join(parts) if len(parts) < 2 else ", ".join(parts)

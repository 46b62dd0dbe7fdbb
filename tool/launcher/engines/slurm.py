# SPDX-License-Identifier: BSD-3-Clause
"""-m slurm: a job in an allocation of Slurm. prun.py runs on one of its nodes, as a script of sbatch, or beside them, in salloc.
The processes on prun.py's own node are started directly; each on another node is a step of its own:

    prun.py --> srun --overlap --> slurmd --> sh: ignores the signals that announce the end, and becomes the process

A srun whose node is down says so in the process's log, and exits with any status (job/ending.py).

A step for each process, and not one for each role, because then its output arrives as it was written (`srun --label` completes
lines), its exit status is its own, and a replacement is started like the first. Not --exact: steps that overlap with --exact are
given the same cores. So all processes of a node share what the allocation has there, as on one host.

Slurm sends the signals of `scancel` and of the time limit to all processes of a job at once. Only prun.py acts on them, as the
others are needed for a checkpoint (before_limit.py)."""
import os
import re
import signal

from ..common.exit_status import FAILURE, USAGE, Failure
from ..programs.program import dies_with_us
from .ssh import Hosts

LIMIT = 30  # seconds for an answer of Slurm's
# Variables for srun itself; the others that begin with SLURM_ and SRUN_ are sizes of the allocation or of an outer step.
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JOB_ID", "SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER", "SLURM_JWT")
WITHOUT_SIGNALS = ["/bin/sh", "-c", "trap '' HUP TERM USR1 USR2; exec \"$@\"", "sh"]


def is_used(options):
    return "slurm" in (options.method, options.m_server)


def ask(*words, limit=LIMIT, **environment):
    """What a command of Slurm's prints. Raises Failure."""
    import subprocess
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=limit, text=True,
                              errors="replace", env={**os.environ, **environment})
    except FileNotFoundError:
        raise Failure(USAGE, f"-m slurm: {words[0]} is not installed (Debian: slurm-client)") from None
    except subprocess.TimeoutExpired:
        raise Failure(FAILURE, f"-m slurm: `{' '.join(words)}` has not answered in {limit} s: does slurmctld run "
                               "(`scontrol ping`)?") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise Failure(FAILURE, f"-m slurm: `{' '.join(words)}`: {why}")
    return done.stdout


def counts(text):
    """[2, 2, 1] of 2(x2),1: how Slurm writes a number for each node. Raises Failure."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise Failure(USAGE, f"found {text} in Slurm's variables, want numbers as 2(x3),1")
        found += [int(match[1])] * int(match[2] or 1)
    return found


class Allocation:
    """What Slurm says of the job in which this process runs."""

    def __init__(self):
        """Raises Failure."""
        self.job = os.environ.get("SLURM_JOB_ID", "")
        nodes = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST", "")
        if not self.job or not nodes:
            raise Failure(USAGE, "-m slurm: this is no allocation of Slurm's (SLURM_JOB_ID and SLURM_JOB_NODELIST are not set): "
                                 "run it in `salloc -N 2 -n 4`, in a script for sbatch (tool/slurm/job.sbatch), or "
                                 "with --sbatch '-N 2'")
        self.settings = None
        self.nodes = ask("scontrol", "show", "hostnames", nodes).split()
        self.cpus = dict(zip(self.nodes, counts(os.environ.get("SLURM_JOB_CPUS_PER_NODE", f"1(x{len(self.nodes)})"))))
        self.tasks = dict(zip(self.nodes, counts(os.environ.get("SLURM_TASKS_PER_NODE", f"1(x{len(self.nodes)})"))))
        own = (os.environ.get("SLURMD_NODENAME", ""), os.uname().nodename, os.uname().nodename.split(".")[0])
        self.here = next((name for name in own if name in self.nodes), None)  # None: beside the allocation, as in salloc

    def others(self):
        return [node for node in self.nodes if node != self.here]

    def slots(self, workers):
        """(node, workers that it takes) for each: the tasks of the allocation, or if these are too few, its CPUs. Raises
        Failure."""
        for each in (self.tasks, self.cpus):
            if sum(each.values()) >= workers:
                return list(each.items())
        tasks, cpus = sum(self.tasks.values()), sum(self.cpus.values())
        raise Failure(USAGE, f"-w {workers}: the allocation {self.job} has {tasks} tasks and {cpus} CPUs on "
                             f"{len(self.nodes)} nodes: want one for each worker: ask Slurm for more (-n {workers}), also on "
                             "fewer CPUs (--overcommit), or give fewer workers")

    def setting(self, name):
        """One of the cluster's settings, or ""."""
        if self.settings is None:
            self.settings = ask("scontrol", "show", "config")
        found = re.search(rf"^{name} *= (.*)$", self.settings, re.M)
        return found[1].strip() if found else ""

    def kill_wait(self):
        """Seconds from the signal at the limit, or of scancel, to the death of all processes."""
        found = re.match(r"\d+", self.setting("KillWait"))
        return int(found[0]) if found else 30

    def address(self, node):
        """Where Slurm itself reaches a node: its name need not be one of a host."""
        found = re.search(r"NodeAddr=(\S+)", ask("scontrol", "show", "node", node, "-o"))
        return found[1] if found else node


def step(allocation, node, name, command, takes_input=False):
    """The command that runs another one as a step on a node. Every size is said: srun takes those that are not from the
    environment, where an outer step may have left its own."""
    import shutil
    srun = shutil.which("srun")
    if srun is None:
        raise Failure(USAGE, "-m slurm: srun is not installed (Debian: slurm-client)")
    words = [srun, f"--jobid={allocation.job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--mem=0",
             "--mpi=none", "--kill-on-bad-exit=0", "--wait=0", "--unbuffered", "--export=ALL",
             f"--chdir={os.getcwd()}", f"--job-name={name}", "--input=" + ("all" if takes_input else "none")]
    if allocation.setting("TaskPlugin") not in ("", "task/none", "(null)"):  # others take it, and say so
        words.append("--cpu-bind=none")
    return words + command


def for_srun(variable):
    """Whether a step gets this variable from us. Those of its size are Slurm's own."""
    return variable in KEPT or not variable.startswith(("SLURM_", "SRUN_", "SLURMD_"))


class Steps(Hosts):
    """Where the processes of a job in an allocation run."""

    def __init__(self, options, allocation):
        self.options, self.allocation = options, allocation
        self.login = {node: node for node in allocation.others()}
        slots = allocation.slots(options.wnum) if options.method == "slurm" else []
        slots = [node for node, count in slots for _ in range(count)]
        self.of_worker, self.spare = slots[:options.wnum], slots[options.wnum:]

    def place(self, child, environment):
        if self.is_here(child.host):
            child.host = None
            return self.shield(child)
        name = f"{child.role}-{child.index}"
        child.by, child.keeps = "srun", for_srun
        child.environment = {**environment, **child.environment}
        # srun ends its step at a SIGTERM; it does not notice our death.
        child.command = dies_with_us(step(self.allocation, child.host, name, WITHOUT_SIGNALS + child.command), "TERM")
        return child

    def shield(self, child):
        """Makes the child one on this node that Slurm's signals do not end."""
        child.command = WITHOUT_SIGNALS + child.command
        child.end_signal = signal.SIGINT
        return child


class Carrier:
    """How the job's key is brought to another node: through the standard input of a step, which srun does not encrypt. So munge
    does, with the key that the cluster's nodes share; there only this user, and root, can open it, and only once."""
    name = "srun"
    hint = ": does that node answer? `sinfo -R` says so, and `squeue -s` shows the job's steps"

    def __init__(self, allocation):
        self.allocation = allocation
        self.environment = {name: value for name, value in os.environ.items() if for_srun(name)}
        found = re.search(r"(?:^|,)socket=([^,]+)", allocation.setting("AuthInfo"))
        self.socket = ["--socket=" + found[1]] if found else []
        import shutil
        self.munge = shutil.which("munge")

    def note(self):
        """What a person should know of it, or None."""
        return None if self.munge else ("warning: munge is not installed here: the job's key goes to the other nodes through "
                                        "srun, which does not encrypt it, and who can read that network can take part in the job")

    def command(self, node, folder, name, size):
        import shlex
        from .key_holders import script
        # A credential ends with a line end, its only one.
        opened = shlex.join(["unmunge", "--metadata=/dev/null", *self.socket])
        read = "IFS= read -r c && printf '%s\\n' \"$c\" | " + opened if self.munge else None
        text = script(folder, name, size, read)
        return step(self.allocation, node, "paracel-key", [*WITHOUT_SIGNALS, "/bin/sh", "-c", text], takes_input=True)

    def sealed(self, key):
        """What one node is told. Raises Failure."""
        if not self.munge:
            return key.encode()
        import subprocess
        done = subprocess.run([self.munge, f"--restrict-uid={os.geteuid()}", *self.socket], input=key.encode(),
                              capture_output=True, check=False)
        if done.returncode != 0:
            why = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
            raise Failure(FAILURE, f"munge cannot encrypt the job's key for the other nodes: {why}: does munged run here?")
        return done.stdout

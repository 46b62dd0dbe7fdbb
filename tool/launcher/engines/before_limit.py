# SPDX-License-Identifier: BSD-3-Clause
"""A job in Slurm is told to end by a signal: before its time limit (`sbatch --signal`), at it, by scancel, by preemption. At the
first one it writes a checkpoint.

    near the time limit      checkpoint, then the job ends with status 12, or with --requeue goes back into the queue and resumes
    SIGTERM, SIGHUP before   checkpoint, then the job ends: somebody has cancelled it
    SIGUSR1, SIGUSR2 before  checkpoint, and the job goes on

With --requeue a job that loses a worker or a server, as when a node dies, goes back into the queue, too: Slurm may take minutes
to notice a dead node, and then the job has ended. But only if it has written a checkpoint since it started: otherwise it would
come to the same end again.

Which signal comes at the limit is up to the script, so the job's end time tells whether it is the limit. A job that has been
cancelled has ended for Slurm just now, so its end time counts only while it is running."""
import signal
import time

from ..common.exit_status import SERVER_LOST, TIMEOUT, USAGE, WORKER_LOST, Failure
from ..common.terminal import duration
from .mpirun import signal_name
from .slurm import ask

ANNOUNCING = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
RESOLUTION = 60.0  # seconds that Slurm may send a signal too early
STANDING = 30.0    # seconds after which a start is explained
LEAST_PATIENCE = 5.0  # seconds for a checkpoint
LAST_STEPS = 5.0  # seconds to end the job after it


def end_time(job, limit):
    """(whether the job runs, when it ends) by Slurm; the time is None if there is no limit, or Slurm does not answer."""
    try:
        state, _, end = ask("squeue", "-h", "-j", job, "-o", "%T %e", limit=limit, SLURM_TIME_FORMAT="%s").strip().partition(" ")
        return state == "RUNNING", float(end)
    except (Failure, ValueError):
        return False, None


class BeforeLimit:
    def __init__(self, job):
        self.job, self.options, self.allocation = job, job.options, job.plan.allocation
        _, self.end = end_time(self.allocation.job, 30)
        self.number = None  # the signal that came first
        self.reached = self.ends = False
        self.queue_again = self.written = False
        left = None if self.end is None else self.end - time.time()
        if left is not None and left < self.options.before_limit and self.options.requeue:
            raise Failure(USAGE, f"--before-limit {self.options.before_limit:g}: the time limit of job {self.allocation.job} is "
                                 f"in {duration(max(left, 0.0))}, so it would be queued again at once: want a later limit "
                                 "(--time) or less before it")
        self.job.deadlines["standing"] = time.monotonic() + STANDING

    def meet_deadlines(self, now):
        deadlines, say = self.job.deadlines, self.job.terminal.say
        if deadlines.get("standing", now + 1) <= now:
            deadlines.pop("standing")
            for words in standing(self.job) if not self.job.running else ():
                say(words, matters=True)
        if deadlines.get("checkpoint", now + 1) <= now:
            deadlines.pop("checkpoint")
            say("the checkpoint was not complete in time", matters=True)
            self.done()

    def is_limit(self):
        """Whether the job's time is over, or nearly."""
        runs, end = end_time(self.allocation.job, 5)
        if runs and end is not None:
            self.end = end  # it may have been changed
        return self.end is not None and time.time() > self.end - self.options.before_limit - RESOLUTION

    def on_signal(self, number):
        job = self.job
        if self.number is not None or job.stopping or job.cause is not None:
            return
        self.number = number
        self.reached = self.is_limit()
        self.ends = self.reached or number in (signal.SIGHUP, signal.SIGTERM)
        job.terminal.end_progress()
        words = f"{signal_name(number)}: {self.describe()}"
        if not (job.plan.checkpoints.folder and job.running):
            why = "before all processes have joined" if job.plan.checkpoints.folder else "want --checkpoint-dir"
            job.terminal.say(f"{words}: nothing is saved, {why}", matters=True)
            self.done()
            return
        job.terminal.say(f"{words}: a checkpoint, and then the job {'ends' if self.ends else 'goes on'}", matters=True)
        job.send(job.alive("scheduler"), signal.SIGUSR1)
        if self.ends:
            job.deadlines["checkpoint"] = time.monotonic() + self.patience()

    def describe(self):
        if not self.reached:
            return f"job {self.allocation.job} is told to end" if self.ends else "not near the time limit"
        left = self.end - time.time()
        return f"the time limit of job {self.allocation.job} is " + (f"in {duration(left)}" if left > 1 else "reached")

    def patience(self):
        """Seconds for a checkpoint, until Slurm kills everything."""
        left = max(0.0, self.end - time.time()) if self.reached else 0.0
        return max(LEAST_PATIENCE, left + self.allocation.kill_wait() - LAST_STEPS)

    def on_checkpoint(self, text):
        """A checkpoint has been written, or has failed: `text` says why."""
        self.written = self.written or not text
        if self.number is None:
            return
        if not text:
            self.job.terminal.say(f"the checkpoint is in {self.job.plan.checkpoints.folder}", matters=True)
        self.done()

    def done(self):
        job = self.job
        if not self.ends:
            self.number = None
            return
        status = TIMEOUT if self.reached else 128 + self.number
        text = "the time limit of Slurm" if self.reached else ""
        self.queue_again = self.reached and self.options.requeue
        job.interrupts = 1
        job.cause = (status, text)
        job.stop(3.0)

    def finish(self):
        """The last words of a job that has ended so."""
        say, folder = self.job.terminal.say, self.job.plan.checkpoints.folder
        lost = self.number is None and self.job.cause is not None and self.job.cause[0] in (WORKER_LOST, SERVER_LOST)
        if lost and self.options.requeue and not self.written:
            say("not queued again: no checkpoint has been written since the start (--checkpoint-every)", matters=True)
        if lost and not self.options.requeue:
            say("if a node has died (`sinfo -R` says so): with --checkpoint-dir DIR --checkpoint-every N --requeue such a job is "
                "queued again, and resumes", matters=True)
        if self.queue_again or lost and self.options.requeue and self.written:
            try:
                ask("scontrol", "requeue", self.allocation.job)
                say(f"job {self.allocation.job} is queued again, and resumes from its last checkpoint", matters=True)
                return
            except Failure as failure:
                say(f"the job cannot be queued again: {failure}", matters=True)
        if folder and (self.ends or lost):
            say(f"to go on, submit the same with --resume {folder} for --checkpoint-dir {folder}", matters=True)


def standing(job):
    """What a person should know of a start that takes long."""
    missing = [c for c in job.alive("server", "worker") if (c.role, c.index) not in job.nodes]
    allocation = job.plan.allocation
    try:
        lines = ask("squeue", "-s", "-h", "-j", allocation.job, "-o", "%i %j %N %M", limit=5).splitlines()
    except Failure as failure:
        yield str(failure)
        lines = []
    yield f"not all processes have joined; `squeue -s -j {allocation.job}` (step, name, node, running for):"
    yield from ("    " + line for line in lines)
    names = {line.split()[1] for line in lines if len(line.split()) > 1}
    for child in missing:
        log = f"its log is {child.log}"
        if child.host is None:
            yield f"{child.name()} runs on this node, and has not joined: {log}"
        elif f"{child.role}-{child.index}" in names:
            yield f"{child.name()} has a step, and has not joined: it cannot reach this node at {job.plan.address} " \
                  f"(--bind-interface names another network), or has much to load: {log}"
        else:
            yield f"{child.name()} has no step yet: srun waits for Slurm, because {child.host} does not answer (`sinfo -R`), " \
                  f"or a step without --overlap has all of it: {log}"
    if not missing:
        yield "those that have not been started wait for the ones before them"

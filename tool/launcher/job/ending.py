# SPDX-License-Identifier: BSD-3-Clause
"""What a process's exit means for the job, the last lines of its log, delivering worker 0's output at the end, and the last words
about the job."""
import os
import re
import signal
import time

from ..common.exit_status import FAILURE, MEANING, SCHEDULER_LOST, SERVER_LOST, TIMEOUT, WORKER_LOST, words_of
from ..common.terminal import duration, number_of
from ..engines.mpirun import signal_name
from ..engines.ssh import LOST_CONNECTION
from .json_log import message_in
from .timeline import REPORT
from .wake_up import signals_in

LOG_TAIL_LINES = 10
CALLS = ", in these calls:"  # ends the line before the calls of a crash: src/worker/job/crash_report.cpp
MOST_CALLS = 40
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP")
READER_LIMIT = 2.0  # seconds without progress after which slow readers are abandoned, if the job has failed
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def last_lines(path):
    """The last lines of a log, or those from its last crash on; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - (16 << 10)))
            lines = [message_in(line) for line in file.read().decode("utf-8", "replace").splitlines()]
        crash = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].endswith(CALLS)), None)
        return lines[-LOG_TAIL_LINES:] if crash is None else lines[crash:][:MOST_CALLS]
    except OSError:
        return None


def has_lost_its_node(child):
    """Whether the srun of this child has ended because Slurm counts the node as down."""
    if child.host is None or child.by != "srun":
        return False
    try:
        with open(child.log, "rb") as file:
            file.seek(max(child.log_begins, file.seek(0, os.SEEK_END) - (4 << 10)))
            return b"srun: error: Node failure on " in file.read()
    except OSError:
        return False


def next_step(text, command):
    """How to find the cause of a death that its log may not explain, or None. `text`: how the process ended. `command`: a job in
    one process."""
    number = re.search(r"was killed by (SIG[A-Z]+)", text)
    if number is None:
        return None
    if number[1] == "SIGKILL":
        return "if nobody has killed it, the system has run out of memory: `dmesg` then names the process"
    if number[1] in CRASHES:
        import shlex
        return (f"to find the cause: `gdb --args {' '.join(shlex.quote(word) for word in command)}` runs the whole job in one "
                "process; after `ulimit -c unlimited` a process that crashes leaves a core file")
    return None


def status_of(child, joined=False):
    """The job's exit status after this child's exit, and a description. `joined`: it was a part of the job. A server that fails
    by itself does so before, with one of our statuses, or tells the scheduler; later a plug-in may end the process with any."""
    ended = child.ended
    lost = {"scheduler": SCHEDULER_LOST, "server": SERVER_LOST, "worker": WORKER_LOST}[child.role]
    if ended.si_code != os.CLD_EXITED:
        return lost, f"{child.name()} was killed by {signal_name(ended.si_status)}"
    code = ended.si_status
    if child.lost_node:
        return lost, f"{child.name()} has lost its node, as Slurm says"
    text = f"{child.name()} exited with status {code}"
    if child.mpirun:
        _, words = child.first_failure or (None, None)
        text = words or text
        if code > 128:  # mpirun's status for a killed rank
            return lost, words or f"{child.name()}: one of its processes was killed by {signal_name(code - 128)}"
    if child.host is not None and code > 128:  # as a shell says it, and ssh of itself
        return lost, (f"{child.name()} has lost its {child.by}, whose words are in its log" if code == LOST_CONNECTION else
                      f"{child.name()} was killed by {signal_name(code - 128)}")
    if 1 <= code <= (9 if child.role == "worker" else 5) and not (child.role == "server" and joined):
        return code, text
    if code == SCHEDULER_LOST or code == TIMEOUT and child.role == "worker":  # the first to find out
        return code, text
    return (FAILURE if child.role == "worker" else lost), text


def deliver(job, end):
    """Worker 0's output is data: after a complete job we wait until its reader has consumed all of it, like any program, but at
    most until `end`, the deadline of --timeout. After a failure we wait only while the reader makes progress."""
    out, status = job.terminal.out, None
    while out.waiting and status is None:
        ends = ([] if end is None else [end]) + ([] if job.cause is None else [out.taken + READER_LIMIT])
        now = time.monotonic()
        if ends and min(ends) <= now:
            status = TIMEOUT
            break
        job.poll.poll((min(ends) - now) * 1000 if ends else None)
        status = next((128 + number for number in signals_in(job.wake) if number in ENDING_SIGNALS), None)
    text = f"{number_of(out.waiting, 'byte')} that worker 0 printed have not been read"
    error = job.terminal.out_error()
    if error is not None:
        status, text = FAILURE, f"standard output cannot be written: {error.strerror}"
    if status is None:
        return
    job.terminal.say(f"{text}; all that worker 0 printed is in {job.plan.log_of('worker', 0)}", matters=True)
    if job.cause is None:
        job.cause = (status, text)
        job.write_end()


def finish(job, took):
    """Says how the job has ended."""
    job.terminal.finish_progress()
    job.recovery.report()
    summarise(job)
    if job.cause is None:
        where = f", results in {job.plan.output}" if job.plan.output else ""
        job.terminal.say(f"done in {duration(took)}{where}", matters=True)
    else:
        status = job.cause[0]
        meaning = f" ({MEANING[status]})" if status in MEANING else ""
        job.terminal.say(f"exit status {status}{meaning}, logs in {job.plan.run_dir}", matters=True)
    if job.before_limit is not None:
        job.before_limit.finish()


def summarise(job):
    """Says in a line each what was run, how good the result is, and where the time went, and writes the report if it is wanted.
    No error of these changes the job's status."""
    if job.options.no_summary:
        return
    try:
        from ..report.run_record import RunRecord
        from ..report.summary import summary_lines
        record = RunRecord(job.plan.run_dir)
        for line in summary_lines(record):
            job.terminal.say(line)
        if job.options.report or job.cause is not None and not job.interrupts:
            from ..report.page import report_page
            job.plan.run_folder.write(REPORT, report_page(record))
            job.terminal.say(f"report in {os.path.join(job.plan.run_dir, REPORT)}", matters=True)
    except Exception as error:  # whatever the files of a run may hold
        job.terminal.say(f"warning: no summary or report of this run: {words_of(error) or type(error).__name__}")

# SPDX-License-Identifier: BSD-3-Clause
"""Runs that others started: the note in a run's folder that says where its scheduler is, and what `prun.py status` asks it."""
import json
import os

from .options import name_given
from .status import FAILURE, MEANING, OK, SCHEDULER_LOST, USAGE, Failure
from .terminal import duration, write_quietly

NOTE = "run.json"
ANSWER_LIMIT = 3.0  # seconds
COMMANDS = ("status",)


def write_note(run_dir, note):
    """Whole or not at all, and for its owner only: with it one can talk to the job."""
    path = os.path.join(run_dir, NOTE)
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(note, file)
    os.replace(path + ".tmp", path)


def read_note(run):
    """The note of a run, given by its folder or by the name of that folder below paracel_runs/. Raises Failure."""
    tried = [run] if os.sep in run else [os.path.join("paracel_runs", run), run]
    folder = next((f for f in tried if os.path.isdir(f)), None)
    if folder is None:
        raise Failure(USAGE, f"--run {run}: no such folder" + (", nor below paracel_runs/" if len(tried) > 1 else ""))
    try:
        with open(os.path.join(folder, NOTE), encoding="utf-8") as file:
            note = json.load(file)
    except FileNotFoundError:
        raise Failure(USAGE, f"--run {run}: the folder has no {NOTE}, so it is not that of a run") from None
    except (OSError, ValueError) as error:
        raise Failure(USAGE, f"--run {run}: its {NOTE} cannot be read: {error}") from None
    if not isinstance(note, dict) or not all(isinstance(note.get(k), str) for k in ("job", "scheduler", "framework", "host")):
        raise Failure(USAGE, f"--run {run}: its {NOTE} is not one that prun.py wrote")
    return note


def question(framework, address, job, verb, body=None, **header):
    """The command that asks a scheduler, or who else is at that address."""
    return [os.path.join(framework, "ask_scheduler"), "--rendezvous", address, "--job", job, "--verb", verb,
            "--timeout", f"{ANSWER_LIMIT:g}"] + ([] if body is None else ["--body", json.dumps(body)]) + [
                f"--{name}={value}" for name, value in header.items()]


def ask(run, verb, body=None):
    """What the scheduler of a run answers. Raises Failure, also when the run is over."""
    import subprocess
    note = read_note(run)
    if "status" in note:
        status = note["status"]
        words = MEANING.get(status, "failure")
        raise Failure(FAILURE, f"the job {note['job']} is over: exit status {status} ({words})"
                               + (f": {note['cause']}" if note.get("cause") else ""))
    command = question(note["framework"], note["scheduler"], note["job"], verb, body)
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=ANSWER_LIMIT + 2, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(FAILURE, f"{command[0]}: {error}") from None
    if done.returncode == SCHEDULER_LOST:
        raise Failure(SCHEDULER_LOST, f"the scheduler of job {note['job']} does not answer at {note['scheduler']}, and no end "
                                      "of the job is noted: it or prun.py was killed, or hangs")
    if done.returncode != OK:
        raise Failure(FAILURE, "the scheduler: " + done.stderr.decode("utf-8", "replace").strip())
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise Failure(FAILURE, "the scheduler's answer is no JSON") from None


def table(head, rows):
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [head] + rows]


def status_text(report):
    def common(node):
        silent = f"{node['silent']:.1f} s ago" if "silent" in node else "-"
        return [node["state"], str(node.get("pid", "-")), node.get("host", "-"), silent]

    lines = [f"job {report['job']}: {report['phase']} for {duration(report['seconds'])}, epoch {report['epoch']}"]
    if "cause" in report:
        lines.append(f"ends with status {report['status']}: {report['cause']}")
    progress = report.get("progress")
    if isinstance(progress, dict):
        lines.append("progress: " + "  ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}"
                                              for k, v in progress.items() if k != "event"))
    lines += table(["server", "state", "pid", "host", "heartbeat", "threads", "incarnation"],
                   [[f"s{s['slot']}"] + common(s) + [str(s.get("threads", "-")), s.get("incarnation", "-")]
                    for s in report["servers"]])
    lines += table(["worker", "state", "pid", "host", "heartbeat", "clock"],
                   [[str(w["rank"])] + common(w) + [str(w["clock"])] for w in report["workers"]])
    if "replicas" in report:
        lines.append(f"{report['replicas']} copies; servers that may still be lost: {report['spare']}")
    for loss in report.get("losses", []):
        lines.append(f"{duration(loss['seconds'])} ago: {loss['cause']}")
    return "\n".join(lines) + "\n"


def parse_command(arguments):
    import argparse
    parser = argparse.ArgumentParser(prog="prun.py status", allow_abbrev=False,
                                     description="Shows who is in a running job, and how far it is.")
    parser.add_argument("--run", required=True, type=name_given, metavar="RUN",
                        help="the folder of its logs, or that folder's name below paracel_runs/")
    return parser.parse_args(arguments)


def run_command(arguments):
    """`prun.py status ...`. Returns the exit status."""
    options = parse_command(arguments[1:])
    write_quietly(1, status_text(ask(options.run, "stats")).encode("utf-8", "replace"))
    return OK

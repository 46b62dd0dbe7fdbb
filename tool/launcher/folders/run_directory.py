# SPDX-License-Identifier: BSD-3-Clause
"""Other runs: the note in a run's folder with the address of its scheduler, and the requests of `prun.py status`."""
import json
import os
import time

from ..common.command_line import name_given, new_parser
from ..common.exit_status import FAILURE, MEANING, OK, SCHEDULER_LOST, USAGE, Failure, words_of
from ..common.output import write_out
from ..common.printable import in_a_line, printable
from ..common.terminal import duration
from ..programs.program import own_program
from .own_folder import NotOwn, OwnFolder

NOTE = "run.json"
KEY = "job.key"  # as PARACEL_JOB_KEY_FILE names it: in the run's folder, that of an encrypted job in its folder for sockets
MOST_NOTE_CHARACTERS = 1 << 20
ANSWER_LIMIT = 3.0  # seconds
NOTE_INTERVAL = 0.5  # seconds between checks whether a job that owes an answer has ended
SEND_REQUEST = "send_request"
COMMANDS = ("status",)
PS_JOB = "ps"  # the "job" in the note of a program written for ps-lite, which has no id and no scheduler that could be asked


def write_note(folder, note):
    """Writes the note atomically, readable by its owner only, because it gives access to the job. `folder`: an OwnFolder."""
    folder.write(NOTE, json.dumps(note))


def read_note(run):
    """The note of a run and the path of its folder, given by the folder or its name below paracel_runs/. Raises Failure."""
    tried = [run] if os.sep in run else [os.path.join("paracel_runs", run), run]
    path = next((f for f in tried if os.path.isdir(f)), None)
    if path is None:
        raise Failure(USAGE, f"--run {run}: no such folder" + (", nor below paracel_runs/" if len(tried) > 1 else ""))
    try:
        folder = OwnFolder(path)
        try:
            with os.fdopen(folder.open(NOTE, os.O_RDONLY), encoding="utf-8") as file:
                note = json.loads(file.read(MOST_NOTE_CHARACTERS))
        finally:
            folder.close()
    except FileNotFoundError:
        raise Failure(USAGE, f"--run {run}: the folder has no {NOTE}, so it is not the folder of a run") from None
    except NotOwn as error:
        raise Failure(USAGE, f"--run {run}: {error.filename} {error.strerror}") from None
    except RecursionError:
        raise Failure(USAGE, f"--run {run}: its {NOTE} cannot be read: nested too deep") from None
    except (OSError, ValueError) as error:
        raise Failure(USAGE, f"--run {run}: its {NOTE} cannot be read: {words_of(error)}") from None
    if isinstance(note, dict) and note.get("job") == PS_JOB and "scheduler" not in note:
        raise Failure(USAGE, f"--run {run}: a run of {note.get('program', 'a program')}, which is written for ps-lite: status, "
                             "tell and --servers ask the scheduler of a Paracel job, and it has none; its logs are there")
    wrong = "is not an object" if not isinstance(note, dict) else next(
        (f'has no text "{key}"' for key in ("job", "scheduler") if not isinstance(note.get(key), str)),
        None if isinstance(note.get("key", ""), str) else 'has no text "key"')
    if wrong is None and "status" in note and not isinstance(note["status"], int):
        wrong = 'has no number "status"'
    if wrong is not None:
        raise Failure(USAGE, f"--run {run}: its {NOTE} {wrong}: it was not written by prun.py")
    return note, path


def request_command(program, address, job, verb, body=None, timeout=ANSWER_LIMIT):
    """The command that asks a scheduler. `program`: the path of send_request. `body`: JSON, or "-" for standard input. Every user
    of the host can read a command line."""
    return [program, "--rendezvous", address, "--job", job, "--verb", verb,
            "--timeout", f"{timeout:g}"] + ([] if body is None else ["--body", body])


def refuse_if_over(note):
    if "status" in note:
        status = note["status"]
        words = MEANING.get(status, "failure")
        raise Failure(FAILURE, f"the job {note['job']} is over: exit status {status} ({words})"
                               + (f": {note['cause']}" if note.get("cause") else ""))


def finish(asking, given, run, limit):
    """The output of the command, whose standard input is `given`. Raises Failure when the job ends first: its scheduler may be
    killed before it replies."""
    import subprocess
    end = time.monotonic() + limit
    while True:
        try:
            return asking.communicate(given, timeout=NOTE_INTERVAL)
        except subprocess.TimeoutExpired:
            given = None  # it has been passed on
            refuse_if_over(read_note(run)[0])
            if time.monotonic() > end:
                raise Failure(FAILURE, f"{asking.args[0]}: has not ended after {limit:g} s") from None


def ask(run, verb, body=None, limit=ANSWER_LIMIT):
    """The reply of a run's scheduler, within `limit` seconds. Raises Failure, also when the run has ended."""
    import subprocess
    note, folder = read_note(run)
    refuse_if_over(note)
    command = request_command(own_program(SEND_REQUEST), note["scheduler"], note["job"], verb,
                              None if body is None else "-", limit)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
    key = note.get("key") or os.path.join(folder, KEY)
    if os.path.lexists(key):
        environment["PARACEL_JOB_KEY_FILE"] = key
    elif "key" in note:
        raise Failure(FAILURE, f"the job {note['job']} is encrypted, and its key {key} is not on this host: run this command on "
                               f"{note.get('host')}, where its prun.py runs, if it still does")
    try:
        asking = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=environment)
    except OSError as error:
        raise Failure(FAILURE, f"{command[0]} cannot be run: {words_of(error)}") from None
    with asking:
        try:
            out, err = finish(asking, json.dumps(body).encode(), run, limit + 2)
        finally:
            asking.kill()
    if asking.returncode == SCHEDULER_LOST:
        refuse_if_over(read_note(run)[0])
        raise Failure(SCHEDULER_LOST, f"the scheduler of job {note['job']} does not answer at {note['scheduler']}, and no end "
                                      "of the job is recorded: it or prun.py was killed, or hangs")
    if asking.returncode != OK:
        words = err.decode("utf-8", "replace").strip()
        try:
            words = "the job ends: " + json.loads(words)["cause"]
        except (ValueError, TypeError, KeyError):
            pass
        raise Failure(FAILURE, "the scheduler: " + words)
    try:
        return json.loads(out)
    except ValueError:
        raise Failure(FAILURE, "the scheduler's answer is not JSON") from None


class understood:  # noqa: N801
    """A context for parsing a reply."""

    def __enter__(self):
        pass

    def __exit__(self, kind, *_):
        if kind is not None and issubclass(kind, (KeyError, TypeError, ValueError, AttributeError)):
            raise Failure(FAILURE, "this prun.py does not understand the scheduler's answer: is it of another version?") from None


def table(head, rows):
    rows = [[in_a_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [head] + rows]


def load_cells(server, nothing):
    """Keys a second of a server, and its hottest partition with that one's part of them, from the scheduler's report."""
    from ..common.figures import short  # not for the start of a job
    load = server.get("load")
    if not load or not load["threads"]:
        return [nothing, nothing]
    keys = sum(load["threads"])
    if not load["partitions"] or not keys:
        return [short(keys, 3), nothing]
    number, most, _ = load["partitions"][0]
    return [short(keys, 3), f"{number} ({100 * most / keys:.0f} %)"]


def status_text(report):
    def common(node):
        silent = f"{node['silent']:.1f} s ago" if "silent" in node else "-"
        return [node["state"], str(node.get("pid", "-")), node.get("host", "-"), silent]

    lines = [f"job {report['job']}: {report['phase']} for {duration(report['seconds'])}, epoch {report['epoch']}"]
    if "cause" in report:
        lines.append(printable(f"ends with status {report['status']}: {report['cause']}"))
    progress = report.get("progress")
    if isinstance(progress, dict):
        lines.append("progress: " + "  ".join(in_a_line(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}")
                                              for k, v in progress.items() if k != "event"))
    def megabytes(server, key):
        return f"{server[key] / 2**20:.1f} MB" if key in server else "-"

    lines += table(["server", "state", "pid", "host", "heartbeat", "threads", "live", "resident", "keys/s", "hot partition",
                    "incarnation"],
                   [[f"s{s['slot']}"] + common(s) + [str(s.get("threads", "-")), megabytes(s, "memory_bytes"),
                                                     megabytes(s, "resident_bytes")] + load_cells(s, "-")
                    + [s.get("incarnation", "-")] for s in report["servers"]])
    if report.get("placed") or report.get("moving"):
        lines.append(f"partitions that were given to other servers because of the load: {report['placed']}; moving now: "
                     f"{report['moving']}")
    lines += table(["worker", "state", "pid", "host", "heartbeat", "clock"],
                   [[str(w["rank"])] + common(w) + [str(w["clock"])] for w in report["workers"]])
    if "replicas" in report:
        lines.append(f"{report['replicas']} replicas; " + (
            "no server may be lost before all processes have joined" if report["phase"] == "joining" else
            f"servers that may still be lost: {report['spare']}"))
    for loss in report.get("losses", []):
        lines.append(printable(f"{duration(loss['seconds'])} ago: {loss['cause']}"))
    return "\n".join(lines) + "\n"


def parse_command(arguments):
    parser = new_parser(prog="prun.py status", description="Shows the processes of a running job, and its progress.")
    parser.add_argument("--run", required=True, type=name_given, metavar="RUN",
                        help="the folder of its logs, or that folder's name below paracel_runs/")
    return parser.parse_args(arguments)


def run_command(arguments):
    """`prun.py status ...`. Returns the exit status."""
    options = parse_command(arguments[1:])
    report = ask(options.run, "stats")
    with understood():
        text = status_text(report)
    write_out(text)
    return OK

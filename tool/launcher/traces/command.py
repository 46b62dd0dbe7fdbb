# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py trace`."""
import os

from ..common.command_line import name_given, new_parser
from ..common.exit_status import OK
from ..common.figures import count_of
from ..common.output import write_file, write_quietly
from ..common.printable import printable
from ..folders.run_directory import read_note
from ..job.timeline import TIMELINE
from ..report.run_record import objects_in
from .files import REQUEST, read_folder
from .formats import chrome, perfetto
from .spans import Trace

FILES = {"chrome": "trace.json", "perfetto": "trace.pftrace"}


def folder_of(run):
    """A folder with traces, of whatever wrote them, or a run. Raises Failure."""
    if os.path.isdir(run) and any(name.endswith(".trace") for name in os.listdir(run)):
        return run
    return read_note(run)[1]


def elsewhere(folder, files):
    """Sentences about hosts that had processes of the run, of which no trace is here."""
    here, missing = {file.host for file in files}, {}
    for event in objects_in(os.path.join(folder, TIMELINE)):
        role, index, host = event.get("role"), event.get("index"), event.get("host")
        if event.get("event") in ("joined", "joining") and isinstance(host, str) and host not in here:
            missing.setdefault(host, set()).add((str(role), index if isinstance(index, int) else 0))
    said = []
    for host, processes in missing.items():
        names = ", ".join(f"server s{index}" if role == "server" else f"{role} {index}" for role, index in sorted(processes))
        said.append(f"nothing is here of {host}, which had {names}: if {os.path.abspath(folder)} is another folder there, its "
                    ".trace files are in it: copy them into this one")
    return said


def say(line):
    write_quietly(2, (printable(f"prun.py: {line}") + "\n").encode("utf-8", "replace"))


def trace_command(arguments):
    parser = new_parser(prog="prun.py trace", description="Writes what a run with --trace has recorded for a viewer of traces, "
                                                          "such as ui.perfetto.dev or chrome://tracing.")
    parser.add_argument("--run", required=True, type=name_given, metavar="RUN",
                        help="the folder of its logs, or that folder's name below paracel_runs/, or the folder of PARACEL_TRACE")
    parser.add_argument("--format", choices=tuple(FILES), default="perfetto",
                        help="chrome: JSON; perfetto: its protobuf messages (default)")
    parser.add_argument("-o", "--output", type=name_given, metavar="FILE",
                        help="the file to write (default: trace.json or trace.pftrace in that folder)")
    options = parser.parse_args(arguments)
    folder = folder_of(options.run)
    files, left_out = read_folder(folder)
    trace = Trace(files)
    path = options.output or os.path.join(folder, FILES[options.format])
    write_file(path, (chrome if options.format == "chrome" else perfetto)(trace))
    for why in left_out:
        say(f"left out {why}")
    for note in trace.notes + elsewhere(folder, files):
        say(note)
    if trace.dropped:
        say(f"{count_of(trace.dropped, 'record')} did not fit into --trace-bytes")
    say(f"wrote {path}: {count_of(trace.counts[REQUEST], 'request')}, {count_of(sum(trace.counts.values()), 'record')} of "
        f"{count_of(len(files), 'thread')}")
    return OK

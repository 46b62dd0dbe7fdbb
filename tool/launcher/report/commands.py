# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py report` and `prun.py compare`."""
import os

from ..common.command_line import name_given, new_parser
from ..common.exit_status import OK, USAGE, Failure
from ..common.output import write_file, write_out, write_quietly
from ..common.printable import printable
from ..folders.run_directory import read_note
from ..job.timeline import REPORT, TIMELINE
from .run_record import RunRecord

MOST_RUNS = 8  # as many as there are colours
RUN_HELP = "the folder of its logs, or that folder's name below paracel_runs/"


def record_of(run):
    """Raises Failure."""
    _, folder = read_note(run)
    if not os.path.exists(os.path.join(folder, TIMELINE)):
        raise Failure(USAGE, f"--run {run}: has no {TIMELINE}: it was made by an earlier version, or its disk was full")
    return RunRecord(folder)


def write_page(path, html):
    """Raises Failure."""
    write_file(path, [html])
    write_quietly(2, f"prun.py: wrote {printable(path)}\n".encode("utf-8", "replace"))


def report_command(arguments):
    from .page import report_page
    parser = new_parser(prog="prun.py report", description="Writes the report of a run, or of what has run until now, as one "
                                                           "HTML file that needs no network.")
    parser.add_argument("--run", required=True, type=name_given, metavar="RUN", help=RUN_HELP)
    parser.add_argument("--output", type=name_given, metavar="FILE", help=f"the file to write (default: {REPORT} in that folder)")
    options = parser.parse_args(arguments)
    record = record_of(options.run)
    write_page(options.output or os.path.join(record.folder, REPORT), report_page(record))
    return OK


def compare_command(arguments):
    from .compare import compare_page, compare_text
    parser = new_parser(prog="prun.py compare",
                        description="Prints a table of two or more runs, and writes a page with their curves.")
    parser.add_argument("--run", required=True, action="append", type=name_given, metavar="RUN",
                        help=RUN_HELP + f"; 2 to {MOST_RUNS} times")
    parser.add_argument("--output", type=name_given, default="compare.html", metavar="FILE",
                        help="the page to write (default compare.html)")
    options = parser.parse_args(arguments)
    if not 2 <= len(options.run) <= MOST_RUNS:
        parser.error(f"argument --run: given {len(options.run)} times, want 2 to {MOST_RUNS} runs")
    records = [record_of(run) for run in options.run]
    write_out(compare_text(records))
    write_page(options.output, compare_page(records))
    return OK

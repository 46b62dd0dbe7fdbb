# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py tell`: sends a command to the workers or servers of a running job, and prints their answers."""
from ..common.command_line import name_given, new_parser
from ..common.exit_status import FAILURE, OK, USAGE, Failure
from ..common.numbers import seconds_between, whole_number
from ..common.output import write_out, write_quietly
from ..common.printable import printable
from ..folders.run_directory import ask, understood

LATE = 2.0  # seconds in which the scheduler answers after the limit


def parse_command(arguments):
    parser = new_parser(
        prog="prun.py tell",
        description="Sends a command to all workers of a running job, or to one, or to servers, and prints their answers. Exit "
                    "status 0: all have answered, 1: not all of them.")
    parser.add_argument("--run", required=True, type=name_given, metavar="RUN",
                        help="the folder of its logs, or that folder's name below paracel_runs/")
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--worker", type=whole_number, metavar="RANK", help="send it only to this worker")
    to.add_argument("--servers", action="store_true", help="send it to all servers, which have the command stats")
    to.add_argument("--server", type=whole_number, metavar="N", help="send it only to server sN")
    parser.add_argument("--timeout", type=seconds_between(0.001, 86400), default=60.0, metavar="SECONDS",
                        help="time to wait for the answers (default 60); a worker runs the command at its next commit or barrier")
    parser.add_argument("command", metavar="COMMAND", help="a name that the program has registered (paracel_on_command)")
    parser.add_argument("body", nargs="?", default="", metavar="BODY", help="text that the function of the command receives")
    return parser.parse_args(arguments)


def tell_command(arguments):
    """`prun.py tell ...`. Returns the exit status."""
    options = parse_command(arguments)
    to_servers = options.servers or options.server is not None
    body = {"to": "servers" if to_servers else "workers", "command": options.command, "body": options.body,
            "seconds": options.timeout}
    for name in ("command", "body"):
        try:
            body[name].encode("utf-8")
        except UnicodeEncodeError:
            raise Failure(USAGE, f"{name.upper()} is not UTF-8") from None
    one = options.server if to_servers else options.worker
    if one is not None:
        body["index"] = one
    reply = ask(options.run, "tell", body, options.timeout + LATE)
    with understood():
        lines = [(a["ok"], (f"server s{a['slot']}" if to_servers else f"worker {a['rank']}") + f": {printable(a['text'])}\n")
                 for a in reply["answers"]]
    write_out("".join(line for ok, line in lines if ok))
    write_quietly(2, "".join(f"prun.py: {line}" for ok, line in lines if not ok).encode("utf-8", "replace"))
    return OK if all(ok for ok, _ in lines) else FAILURE

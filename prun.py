#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Starts a Paracel job: one scheduler, the servers, the workers; watches them; ends them all.

    prun.py -w 4 -p 2 -c cfg.json -m local build/bin/lr
    prun.py -w 4 -p 2 -c cfg.json -m mpi --hostfile hosts build/bin/lr
    prun.py status --run RUN
    prun.py --servers +1|-1 --run RUN
    prun.py checkpoint list|verify DIR

Its parts are in tool/launcher/. One loop (job.py) waits for everything at once: signals and deaths of children (a wake-up
descriptor), the scheduler's events, the output of worker 0. The first cause of a failure decides the exit status; the table
is in README.md and in --help.

What is printed by worker 0 goes to standard output, everything that this launcher has to say to standard error.
"""
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
# launcher/: in tool/ of the source tree, in lib/paracel/ once installed
for folder in (os.path.join(HERE, "tool"), os.path.join(HERE, "..", "lib", "paracel")):
    if os.path.isdir(os.path.join(folder, "launcher")):
        sys.path.insert(0, folder)
        break
else:
    sys.exit(f"prun.py: error: its folder launcher/ is neither in {HERE}/tool nor in {HERE}/../lib/paracel")

from launcher.checkpoints import checkpoint_command  # noqa: E402
from launcher.config import check_config, read_config  # noqa: E402
from launcher.job import Job  # noqa: E402
from launcher.options import parse_command_line  # noqa: E402
from launcher.plan import Plan  # noqa: E402
from launcher.program import ask_schema, find_framework, find_program, marks_in  # noqa: E402
from launcher.resizing import resize_command  # noqa: E402
from launcher.running import COMMANDS, run_command  # noqa: E402
from launcher.status import OK, Failure  # noqa: E402
from launcher.terminal import write_quietly  # noqa: E402


def main(arguments):
    job = None
    try:
        if arguments and arguments[0] in COMMANDS:
            return run_command(arguments)
        if arguments[:1] == ["checkpoint"]:
            return checkpoint_command(arguments[1:])
        if arguments and arguments[0].split("=")[0] in ("--servers", "--run"):
            return resize_command(arguments)
        options = parse_command_line(arguments)
        program = find_program(options.program)
        framework = find_framework(program)
        publishes, linked = marks_in(program)
        schema = ask_schema(program) if publishes else None
        entries = read_config(options.cfg_file) if options.cfg_file else {}
        plan = Plan(options, program, framework, schema, entries, linked)
        job = Job(plan)
        if schema is not None:
            # Files on other hosts are looked at there, by the program itself.
            check_config(schema, options.cfg_file, entries, look_at_files=not plan.remote)
        plan.make_folders()
        if options.dry_run:
            plan.print_dry_run()
            return OK
        return job.run()
    except Failure as failure:
        write_quietly(2, f"prun.py: error: {failure}\n".encode("utf-8", "replace"))
        return failure.status
    except KeyboardInterrupt:  # before the loop took the signals over
        return 130
    finally:
        if job is not None:
            job.clean_up()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

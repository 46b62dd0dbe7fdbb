#!/usr/bin/env -S python3 -S
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a Paracel job: starts one scheduler, the servers and the workers, watches them, and stops them all.

    prun.py -w 4 -p 2 -c cfg.json -m local build/bin/lr
    prun.py -w 4 -p 2 -c cfg.json -m mpi --hostfile hosts build/bin/lr
    prun.py -w 4 -p 2 -c cfg.json -m external --rendezvous node1:7077#train build/bin/lr
    prun.py join server|worker
    prun.py status --run RUN
    prun.py tell --run RUN COMMAND [BODY]
    prun.py --servers +1|-1 --run RUN
    prun.py runs [--keep N]
    prun.py top --run RUN
    prun.py report --run RUN
    prun.py compare --run RUN --run RUN
    prun.py export --run RUN --tensorboard DIR | --mlflow
    prun.py trace --run RUN
    prun.py checkpoint list|verify DIR
    prun.py sweep CONFIG --grid KEY=A,B,C ... build/bin/lr
    prun.py new FOLDER [--python]
    prun.py doctor

The implementation is in tool/launcher/ (tool/README.md has its rooms). One event loop (job/job.py) waits for all inputs: signals
and exits of children (a wake-up descriptor), the scheduler's events, the output of worker 0. The first cause of a failure
determines the exit status; the table is in doc/operations.md and in --help.

Worker 0's output goes to standard output, the launcher's own messages to standard error.
"""
# Before all other imports, and with built-in modules: `signal` and `os` take milliseconds to load.
import _signal
import posix


def interrupted(*_):
    """The SIGINT handler until main() installs its own: nothing has been started or created yet."""
    posix.write(2, b"prun.py: interrupted\n")
    posix._exit(130)


_signal.signal(_signal.SIGINT, interrupted)

import os  # noqa: E402
import sys  # noqa: E402

for number in (0, 1, 2):  # the next file opened would get the number of a closed one
    try:
        os.fstat(number)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)

HERE = os.path.dirname(os.path.realpath(__file__))
# launcher/ is in tool/ of the source tree and in lib/paracel/ of the installed one
for folder in (os.path.join(HERE, "tool"), os.path.join(HERE, "..", "lib", "paracel")):
    if os.path.isdir(os.path.join(folder, "launcher")):
        sys.path.insert(0, folder)
        break
else:
    sys.exit(f"prun.py: error: its folder launcher/ is neither in {HERE}/tool nor in {HERE}/../lib/paracel")

from launcher.commands.tell import tell_command  # noqa: E402
from launcher.commands.views import VIEWS, view_command  # noqa: E402
from launcher.common.exit_status import FAILURE, OK, USAGE, Failure, words_of  # noqa: E402
from launcher.common.output import write_quietly  # noqa: E402
from launcher.common.printable import printable  # noqa: E402
from launcher.engines.hosts import remote_hosts  # noqa: E402
from launcher.folders.run_directory import COMMANDS, run_command  # noqa: E402
from launcher.folders.runs import runs_command  # noqa: E402
from launcher.job.checkpoints import checkpoint_command  # noqa: E402
from launcher.job.job import Job  # noqa: E402
from launcher.job.options import parse_command_line, take_config  # noqa: E402
from launcher.job.plan import Plan  # noqa: E402
from launcher.job.scaling import resize_command  # noqa: E402
from launcher.programs.config import check_config  # noqa: E402
from launcher.programs.program import find_framework, find_program, marks_in  # noqa: E402


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP, before the event loop handles signals."""


def end(number, _):
    for other in (_signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(other, _signal.SIG_IGN)  # while folders are removed
    raise Ended(number)


def main(arguments):
    job = None
    words, log_format = "", "text"
    try:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        try:
            os.getcwd()
        except OSError as error:
            raise Failure(USAGE, f"the current folder cannot be read: {error.strerror}: cd to one that exists") from None
        if arguments and arguments[0] in COMMANDS:
            return run_command(arguments)
        if arguments[:1] == ["runs"]:
            return runs_command(arguments[1:])
        if arguments and arguments[0] in VIEWS:
            return view_command(arguments)
        if arguments[:1] == ["join"]:
            from launcher.engines.join import join_command
            return join_command(arguments[1:])
        if arguments[:1] == ["tell"]:
            return tell_command(arguments[1:])
        if arguments[:1] == ["checkpoint"]:
            return checkpoint_command(arguments[1:])
        if arguments[:1] == ["__complete"]:
            from launcher.commands.completion import complete_command
            return complete_command(arguments[1:])
        if arguments[:1] == ["new"]:
            from launcher.commands.new_project import new_command
            return new_command(arguments[1:])
        if arguments[:1] == ["doctor"]:
            from launcher.commands.doctor import doctor_command
            return doctor_command(arguments[1:])
        if arguments[:1] == ["sweep"]:
            from launcher.commands.sweep import sweep_command
            return sweep_command(arguments[1:])
        if arguments and arguments[0].split("=")[0] in ("--servers", "--run"):
            return resize_command(arguments)
        options = parse_command_line(arguments)
        if options.method == "k8s":
            take_config(options)
            from launcher.engines.k8s import manifests_command
            return manifests_command(options)
        log_format = options.log_format
        program = find_program(options.program)
        publishes, linked, written_for_ps = marks_in(program)
        if written_for_ps or options.ps:
            from launcher.engines.ps_job import PsJob
            return PsJob(options, program).run()
        if options.customers != 1:
            raise Failure(USAGE, "--customers: only for programs written for ps-lite")
        take_config(options, publishes)
        framework = find_framework(program)
        remote = remote_hosts(options)
        # Files on other hosts are checked there, by the program itself.
        facts = check_config(framework, program, publishes, linked, options,
                             check_files=not remote and options.method != "external")
        if options.sbatch is not None:
            from launcher.engines.sbatch import submit
            return submit(options, arguments)
        plan = Plan(options, program, framework, facts, linked, remote)
        job = Job(plan)
        if options.worker_wait and not facts.resumable:
            key = f"{facts.not_resumable_key}: with it " if facts.not_resumable_key else ""
            raise Failure(USAGE, f"--on-worker-death {options.on_worker_death}: {key}no process can replace a worker of "
                                 f"{facts.program}, because it uses neither first_iteration nor resumable_loop")
        for number in (_signal.SIGTERM, _signal.SIGHUP):
            if _signal.getsignal(number) == _signal.SIG_DFL:
                _signal.signal(number, end)
        plan.make_folders()
        if options.dry_run:
            plan.print_dry_run()
            return OK
        return job.run()
    except Failure as failure:
        words, status = f"error: {failure}", failure.status
    except OSError as error:  # for example, out of file descriptors
        words, status = f"error: {words_of(error)}", FAILURE
    except Ended as ended:
        number = ended.args[0]
        words, status = "SIGTERM" if number == _signal.SIGTERM else "SIGHUP", 128 + number
    except KeyboardInterrupt:  # before the event loop handles signals
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        words, status = "interrupted", 130
    finally:
        if job is not None:
            job.clean_up(words)
    if job is None:
        line = f"prun.py: {printable(words)}\n".encode("utf-8", "replace")
        if log_format == "json":
            from launcher.job.json_log import record
            line = record(None, "launcher", None, words, "error")
        write_quietly(2, line)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

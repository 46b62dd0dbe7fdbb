# SPDX-License-Identifier: BSD-3-Clause
"""What prun.py does with its arguments. Each command loads its own modules, and a job those that run it while the program already
checks the config: importing takes as long as starting all processes does."""
import _signal
import os

from .common.exit_status import FAILURE, OK, USAGE, Failure, words_of
from .common.output import write_quietly
from .common.printable import printable


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP, before the event loop handles signals."""


def end(number, _):
    for other in (_signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(other, _signal.SIG_IGN)  # while folders are removed
    raise Ended(number)


def command_in(arguments):
    """The function for a command; None for the start of a job."""
    first, rest = arguments[0] if arguments else "", arguments[1:]
    if first.split("=")[0] in ("--servers", "--run"):
        from .job.scaling import resize_command
        return lambda: resize_command(arguments)
    if first[:1] in ("", "-"):
        return None
    from .commands.views import VIEWS, view_command
    if first in VIEWS:
        return lambda: view_command(arguments)
    if first == "status":
        from .folders.run_directory import run_command
        return lambda: run_command(arguments)
    if first == "runs":
        from .folders.runs import runs_command
        return lambda: runs_command(rest)
    if first == "join":
        from .engines.join import join_command
        return lambda: join_command(rest)
    if first == "tell":
        from .commands.tell import tell_command
        return lambda: tell_command(rest)
    if first == "checkpoint":
        from .job.checkpoints import checkpoint_command
        return lambda: checkpoint_command(rest)
    if first == "__complete":
        from .commands.completion import complete_command
        return lambda: complete_command(rest)
    if first == "new":
        from .commands.new_project import new_command
        return lambda: new_command(rest)
    if first == "doctor":
        from .commands.doctor import doctor_command
        return lambda: doctor_command(rest)
    if first == "sweep":
        from .commands.sweep import sweep_command
        return lambda: sweep_command(rest)
    return None


def main(arguments):
    """Returns the exit status."""
    job = None
    words, log_format = "", "text"
    try:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        try:
            os.getcwd()
        except OSError as error:
            raise Failure(USAGE, f"the current folder cannot be read: {error.strerror}: cd to one that exists") from None
        command = command_in(arguments)
        if command is not None:
            return command()
        from .job.options import parse_command_line, take_config
        options = parse_command_line(arguments)
        if options.method == "k8s":
            take_config(options)
            from .engines.k8s import manifests_command
            return manifests_command(options)
        log_format = options.log_format
        from .programs.program import find_framework, find_program, marks_in
        program = find_program(options.program)
        publishes, linked, written_for_ps = marks_in(program)
        if written_for_ps or options.ps:
            from .engines.ps_job import PsJob
            return PsJob(options, program).run()
        if options.customers != 1:
            raise Failure(USAGE, "--customers: only for programs written for ps-lite")
        take_config(options, publishes)
        framework = find_framework(program)
        from .engines.hosts import remote_hosts
        from .programs.config import Check
        remote = remote_hosts(options)
        # Files on other hosts are checked there, by the program itself.
        with Check(framework, program, publishes, linked, options,
                   check_files=not remote and options.method != "external") as check:
            from .job.job import Job
            from .job.plan import Plan
            facts = check.facts()
        if options.sbatch is not None:
            from .engines.sbatch import submit
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
            from .job.json_log import record
            line = record(None, "launcher", None, words, "error")
        write_quietly(2, line)
    return status

# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py join server|worker`: this process becomes a server or a worker of a job that `prun.py -m external` runs, or will run
(external.py). It waits for the scheduler, and for a place: one that another process has is given away only when the scheduler
has declared that process lost."""
import json
import os
import socket
import subprocess
import sys
import time

from ..common.command_line import new_parser
from ..common.exit_status import FAILURE, OK, SCHEDULER_LOST, TIMEOUT, USAGE, Failure, words_of
from ..common.numbers import seconds, whole_number
from ..common.output import write_quietly
from ..common.printable import printable
from ..folders.run_directory import SEND_REQUEST, request_command
from ..programs.program import command_of, find_program, own_program
from .external import JOIN_LIMIT, KEY_VARIABLE, VARIABLE, WAYS, check_key, rendezvous_in

ROLES = ("server", "worker")
INDICES = ("PARACEL_INDEX", "JOB_COMPLETION_INDEX", "SLURM_PROCID")
PAUSE = 0.5            # seconds between two attempts
CONNECT_LIMIT = 2.0
QUIET = 2.0            # seconds before the first word about waiting
REMINDER = 30.0
ALIVE_LIMIT = 10.0


def parse_command(arguments):
    import argparse
    parser = new_parser(
        prog="prun.py join",
        usage="prun.py join [options] server|worker [program [arguments]]",
        description=f"Becomes a server or a worker of the job in {VARIABLE}=HOST:PORT#JOB, with the key in the file "
                    f"{KEY_VARIABLE}. Waits until the scheduler is there and has a place. PARACEL_ROLE may name the role.")
    parser.add_argument("--index", metavar="N", default=None,
                        help="which one, from 0; auto: any free one (default: " + ", ".join(INDICES) + ", or else auto)")
    parser.add_argument("--wait", type=seconds, default=JOIN_LIMIT, metavar="SECONDS",
                        help=f"time within which there must be a place (default {JOIN_LIMIT:g})")
    parser.add_argument("--plugin-dir", action="append", default=[], metavar="DIR",
                        help="of a server: another folder from which it may load plug-ins")
    parser.add_argument("--advertise", default="", metavar="HOST",
                        help="of a server: the name or address by which the others reach it, if it cannot see that itself")
    parser.add_argument("--log-format", choices=("text", "json"), default="text",
                        help="json: each line that the process prints is a JSON object with time, level, role, index, run and "
                             "message (default text)")
    parser.add_argument("--alive", action="store_true",
                        help="only ask the scheduler whether it hears this server or worker: the status is 1 if not")
    # Options may stand on either side of the role; those after the program are its own.
    own, words = [], list(arguments)

    def take_options():
        while words and words[0].startswith("-"):
            own.append(words.pop(0))
            action = parser._option_string_actions.get(own[-1])
            if words and action is not None and action.nargs is None:
                own.append(words.pop(0))

    take_options()
    role = words.pop(0) if words and words[0] in ROLES else None
    take_options()
    options = parser.parse_args(own)
    options.words, options.role = words, role or os.environ.get("PARACEL_ROLE", "")
    if options.role not in ROLES:
        parser.error(f"found {words[0] if words else options.role or 'no role'}, want server or worker")
    if options.role == "server" and words:
        parser.error(f"found {words[0]} after server, want nothing: servers run start_server")
    name = "--index"
    if options.index is None:
        name = next((n for n in INDICES if os.environ.get(n)), None)
        options.index = os.environ[name] if name else "auto"
    try:
        options.index = None if options.index == "auto" else whole_number(options.index)
    except argparse.ArgumentTypeError as error:
        parser.error(f"{name}: {error}")
    if options.alive and options.index is None:
        parser.error("--alive: want --index, too: which one is meant?")
    return options


class Waiting(Exception):
    """There is no place yet, for this reason."""


class Joining:
    def __init__(self, options, where):
        self.options, self.where = options, where
        self.send_request = own_program(SEND_REQUEST)
        self.body = {"role": options.role, "host": os.uname().nodename, "pid": os.getpid()}
        if options.index is not None:
            self.body["slot" if options.role == "server" else "rank"] = options.index

    def name(self):
        number = "" if self.options.index is None else f" {'s' * (self.options.role == 'server')}{self.options.index}"
        return self.options.role + number

    def addresses(self):
        """The numeric addresses of the scheduler. Raises Waiting."""
        try:
            found = socket.getaddrinfo(self.where.host, int(self.where.port), type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Waiting(f"the name {self.where.host} is unknown: {words_of(error)}") from None
        return list(dict.fromkeys(address[:2] for _, _, _, _, address in found))

    def place(self):
        """(the scheduler's address, its answer). Raises Waiting, Failure."""
        key = os.environ[KEY_VARIABLE]
        if not os.path.exists(key):
            raise Waiting(f"there is no key in {key} ({KEY_VARIABLE})")
        check_key(key)
        why = []
        for host, port in self.addresses():
            at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            try:
                socket.create_connection((host, port), CONNECT_LIMIT).close()
                return "tcp://" + at, self.ask("tcp://" + at)
            except OSError as error:
                why.append(f"{at}: {words_of(error)}")
            except Waiting as waiting:
                why.append(f"{at}: {waiting}")
        raise Waiting("; ".join(why))

    def ask(self, address):
        command = request_command(self.send_request, address, self.where.id(), "reserve", json.dumps(self.body))
        asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        if asked.returncode == SCHEDULER_LOST:
            raise Waiting("it does not answer: is it of another job, or its key another one?")
        if asked.returncode != OK:
            words = asked.stderr.strip()
            try:
                ended = json.loads(words)
                status, cause = int(ended["status"]), str(ended["cause"])
            except (ValueError, KeyError, TypeError):
                if "the request is of another" in words:
                    raise Waiting(words) from None
                raise Failure(USAGE, f"{self.where}: {words}") from None
            raise Failure(status, f"{self.where}: the job is over: " + (cause if status else "it is done"))
        try:
            answer = json.loads(asked.stdout)
            if "taken" not in answer:
                return int(answer["index"]), int(answer["workers"]), answer["settings"]
            text = str(answer["taken"])
        except (ValueError, KeyError, TypeError):
            raise Failure(FAILURE, f"{self.where}: its answer is not understood: is its prun.py of another version?") from None
        raise Waiting(f"{text}, and a place becomes free when the scheduler loses its process")

    def wait(self):
        """As `place`. Raises Failure."""
        begin = said_at = time.monotonic()
        said = None
        while True:
            try:
                return self.place()
            except Waiting as waiting:
                why = str(waiting)
            now = time.monotonic()
            if now - begin > self.options.wait:
                raise Failure(TIMEOUT, f"{self.name()}: no place in {self.where} within {self.options.wait:g} s: {why}")
            if now - begin > QUIET and why != said or now - said_at > REMINDER:
                said, said_at = why, now
                say(f"{self.name()} waits for {self.where}: {why}")
            time.sleep(PAUSE)


def say(text):
    write_quietly(2, f"prun.py: {printable(text)}\n".encode("utf-8", "replace"))


def check_alive(joining):
    """Raises Failure, unless the scheduler has a process in this place and hears it. A process that hangs does not end: what has
    started it may ask this, and end it."""
    role, index = joining.options.role, joining.options.index
    try:
        host, port = joining.addresses()[0]
    except Waiting as waiting:
        raise Failure(FAILURE, str(waiting)) from None
    address = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
    asked = subprocess.run(request_command(joining.send_request, address, joining.where.id(), "stats", timeout=ALIVE_LIMIT),
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    try:
        state = json.loads(asked.stdout)[role + "s"][index]["state"]
    except (ValueError, KeyError, TypeError, IndexError):
        raise Failure(FAILURE, f"{joining.where}: {asked.stderr.strip() or f'it has no {joining.name()}'}") from None
    if state not in ("up", "catching up"):
        raise Failure(FAILURE, f"{joining.where}: {joining.name()} is {state}")


def server_command(options, address, job, index, settings):
    program = own_program("start_server")
    flags = list(settings["server"])
    at = flags.index("--plugin-dirs") + 1
    prefix = os.path.dirname(os.path.dirname(program))
    own = [os.path.abspath(folder) for folder in options.plugin_dir]
    own += [f for f in (os.path.join(prefix, name) for name in ("lib", "lib/paracel", "_lib", "_plugins")) if os.path.isdir(f)]
    flags[at] = ":".join(dict.fromkeys([*(f for f in flags[at].split(":") if f), *own]))
    advertise = ["--advertise", options.advertise] if options.advertise else []
    return [program, "--rendezvous", address, "--job", job, "--slot", str(index), *flags, *advertise]


def worker_command(options, info, settings):
    """Without a program that of `prun.py -m external`, in its folder. Raises Failure."""
    if options.words:
        return command_of(find_program(options.words[0])) + options.words[1:] + ["--server_info", info]
    try:
        os.chdir(settings["folder"])
    except OSError as error:
        raise Failure(USAGE, f"{settings['folder']}, the folder of the job's prun.py, is not here: {error.strerror}; want "
                             "the program after worker") from None
    return [*settings["program"], "--server_info", info, *settings["config"]]


def join_command(arguments):
    """`prun.py join ...`. Does not return, but becomes that process, unless --alive is given; raises Failure."""
    options = parse_command(arguments)
    where = rendezvous_in(os.environ)
    if where is None:
        raise Failure(USAGE, f"{VARIABLE} is not set: want HOST:PORT#JOB of a prun.py -m external")
    if not os.environ.get(KEY_VARIABLE):
        raise Failure(USAGE, f"{KEY_VARIABLE} is not set: want the file with the key of {where}")
    if options.alive:
        check_alive(Joining(options, where))
        return OK
    tell_index = None
    if options.log_format == "json":
        from .json_child import as_child
        tell_index = as_child(where.id(), options.role, options.index)
    if options.words:
        find_program(options.words[0])  # before the wait
    address, (index, workers, settings) = Joining(options, where).wait()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PARACEL_", "OMPI_", "PMIX_"))}
    environment[KEY_VARIABLE] = os.path.realpath(os.environ[KEY_VARIABLE])
    environment.update((name, os.environ[name]) for name in WAYS if name in os.environ)
    if options.role == "server":
        environment.update(settings["server_variables"])
        command = server_command(options, address, where.id(), index, settings)
        command += ["--parent", str(os.getppid())] if tell_index is not None else []
    else:
        info = f"paracel1;{where.id()};{address}"
        environment.update(settings["worker"], PARACEL_RENDEZVOUS=info, PARACEL_RANK=str(index), PARACEL_SIZE=str(workers))
        if tell_index is not None:
            environment["PARACEL_PARENT"] = str(os.getppid())
        command = worker_command(options, info, settings)
    if tell_index is not None:
        tell_index(index)
    say(f"{options.role} {'s' * (options.role == 'server')}{index} of {where}, pid {os.getpid()}")
    sys.stdout.flush()
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        raise Failure(FAILURE, f"{command[0]} cannot be run: {error.strerror}") from None

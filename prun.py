#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Starts a Paracel job: one scheduler, the servers, the workers; watches them; ends them all.

    prun.py -w 4 -p 2 -c cfg.json -m local build/bin/lr
    prun.py -w 4 -p 2 -c cfg.json -m mpi --hostfile hosts build/bin/lr

One loop waits for everything at once: signals and deaths of children (a wake-up descriptor), the scheduler's events, the
output of worker 0. The first cause of a failure decides the exit status; the table is in README.md and in --help.

What is printed by worker 0 goes to standard output, everything that this launcher has to say to standard error.
"""
import os
import select
import signal
import sys
import time

OK, FAILURE, USAGE, CONFIG, DATA, PLUGIN = 0, 1, 2, 3, 4, 5
WORKER_LOST, SERVER_LOST, TIMEOUT, SCHEDULER_LOST = 10, 11, 12, 13
MEANING = {OK: "ok", FAILURE: "failure", USAGE: "usage", CONFIG: "config", DATA: "data", PLUGIN: "plug-in",
           WORKER_LOST: "worker lost", SERVER_LOST: "server lost", TIMEOUT: "timeout", SCHEDULER_LOST: "scheduler lost",
           130: "interrupted", 143: "terminated"}

HERE = os.path.dirname(os.path.realpath(__file__))
SCHEMA_MARK = b"paracel-schema-v1"  # these bytes in a program say that it answers --schema
SCHEMA_LIMIT = 5.0                  # seconds for that answer
LOG_TAIL_LINES = 10
READY_LIMIT = 10.0                  # seconds until the scheduler must have bound its port
# A job that was told to end by the scheduler ends by itself, with its own last words in the logs; seconds.
LAST_WORDS = 0.3
FAILURE_KILL = 2.0                  # seconds from SIGTERM to SIGKILL
INTERRUPT_KILL = 3.0
MAX_TERMINAL_BACKLOG = 1 << 20      # bytes; beyond it worker 0 waits for the reader of our output
QUIET_PROGRESS = 2.0                # seconds between progress lines where they cannot be rewritten in place
TTY_PROGRESS = 0.1


class Failure(Exception):
    """Ends the launcher before or while it starts the job: one line and an exit status."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


# ---- command line ------------------------------------------------------------------------------------------------

# Options of Paracel 0.3 that belong to Mesos.
GONE_OPTIONS = {
    "--ppn": "Mesos is not supported; where processes run is written in --hostfile",
    "--ppn_server": "Mesos is not supported; where servers run is written in --hostfile_server",
    "--mem_limit": "Mesos is not supported; limit memory with ulimit -v or a cgroup",
    "--mem_limit_server": "Mesos is not supported; limit memory with ulimit -v or a cgroup",
    "--replicas": "replication is not there yet",
}


def parse_command_line(arguments):
    import argparse

    def positive(text):
        if not text.isdigit() or int(text) == 0:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
        return int(text)

    def seconds(text):
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e9:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
        return value

    # The width is given because argparse otherwise imports shutil to ask the terminal.
    parser = argparse.ArgumentParser(
        prog="prun.py", allow_abbrev=False, add_help=True, usage="prun.py [options] program [arguments of the program]",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=118, max_help_position=30),
        description="Starts a Paracel job, watches it, and ends all of it.",
        epilog="exit status: " + ", ".join(f"{number} {word}" for number, word in MEANING.items())
               + "; a worker's own statuses 1 to 9 are passed on")
    add = parser.add_argument
    add("-w", "--wnum", type=positive, default=1, metavar="N", help="workers (default 1)")
    add("-p", "--snum", type=positive, default=1, metavar="N", help="parameter servers (default 1)")
    add("-c", "--cfg_file", default="", metavar="FILE", help="the program's config, JSON")
    add("-m", "--method", default="local", metavar="local|mpi", help="how workers are started (default local)")
    add("--m_server", default=None, metavar="local|mpi", help="how servers are started (default: as the workers)")
    add("--hostfile", default="", metavar="FILE", help="mpirun's file of hosts for the workers")
    add("--hostfile_server", default="", metavar="FILE", help="the same for the servers (default: --hostfile)")
    add("--threads", type=positive, default=1, metavar="N", help="shard threads of each server (default 1)")
    add("--output-dir", default=".", metavar="DIR", help="where the folder paracel_runs/ with the logs goes (default .)")
    add("--run-dir", default="", metavar="DIR", help="the folder for the logs itself")
    add("--timeout", type=seconds, default=None, metavar="SECONDS", help="end the job after this time, with status 12")
    add("--heartbeat-limit", type=seconds, default=3.0, metavar="SECONDS",
        help="silence after which a process is lost (default 3)")
    add("--join-timeout", type=seconds, default=60.0, metavar="SECONDS",
        help="time in which all processes must have started (default 60)")
    add("--function-timeout", type=seconds, default=30.0, metavar="SECONDS",
        help="name a user function in a server that runs longer (default 30)")
    add("--plugin-dir", action="append", default=[], metavar="DIR",
        help="one more folder that the servers may load plug-ins from; the folder of update_file always is")
    add("--host", default="", metavar="ADDRESS", help="this host's address for other hosts (default: towards --hostfile)")
    add("--bind-interface", default="", metavar="NAME", help="the same by the name of a network interface")
    add("--insecure", action="store_true", help="talk to other hosts although nothing is encrypted or authenticated yet")
    add("--dry-run", action="store_true", help="print what would be started, and start nothing")
    add("-v", "--verbose", action="store_true", help="print commands and events")
    add("program", help=argparse.SUPPRESS)
    add("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    for argument in arguments:
        name = argument.split("=", 1)[0]
        if name in GONE_OPTIONS:
            parser.error(f"{name}: {GONE_OPTIONS[name]}")
        if not argument.startswith("-"):
            break
    options = parser.parse_args(arguments)
    if options.m_server is None:
        options.m_server = options.method
    for name, value in (("-m", options.method), ("--m_server", options.m_server)):
        if value not in ("local", "mpi"):
            parser.error(f"{name} {value}: want local or mpi" + ("; Mesos is not supported" if value == "mesos" else ""))
    if not options.hostfile_server:
        options.hostfile_server = options.hostfile
    for name, value, method in (("--hostfile", options.hostfile, options.method),
                                ("--hostfile_server", options.hostfile_server, options.m_server)):
        if value and "mpi" not in (options.method, options.m_server):
            parser.error(f"{name} means something with -m mpi only")
        if value and not os.access(value, os.R_OK):
            parser.error(f"{name} {value}: cannot be read")
    if options.host and options.bind_interface:
        parser.error("--host and --bind-interface both name this host's address: give one")
    return options


# ---- programs ----------------------------------------------------------------------------------------------------

def find_program(name):
    """The path of the user's program. Raises Failure."""
    if os.sep in name or os.path.exists(name):
        path = name
    else:
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        candidates = (os.path.join(folder, name) for folder in folders)
        path = next((p for p in candidates if os.access(p, os.X_OK) and os.path.isfile(p)), name)
    if not os.path.exists(path):
        raise Failure(USAGE, f"{name}: no such program")
    if os.path.isdir(path):
        raise Failure(USAGE, f"{name} is a folder, want a program")
    if not os.access(path, os.X_OK):
        raise Failure(USAGE, f"{name} is not executable")
    return os.path.abspath(path)


def find_framework(program):
    """The folder with start_server and start_scheduler: that of the program first, so that a build folder of any name is
    used as a whole; then the build beside this file; then this file's own folder, which is bin/ once installed."""
    tried = [os.path.dirname(os.path.realpath(program)), os.path.join(HERE, "build", "bin"), HERE,
             os.path.join(HERE, "..", "bin")]
    for folder in tried:
        if all(os.access(os.path.join(folder, name), os.X_OK) for name in ("start_server", "start_scheduler")):
            return os.path.abspath(folder)
    raise Failure(USAGE, "start_server and start_scheduler are not built: looked in "
                         + ", ".join(map(os.path.normpath, tried)))


def marks_in(path):
    """(publishes a schema, is linked with the framework), from the bytes of the program."""
    import mmap
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(SCHEMA_MARK) >= 0, content.find(b"libparacel") >= 0
    except (OSError, ValueError):  # unreadable or empty
        return False, False


def ask_schema(program):
    """What `program --schema` prints, or None when that is no schema. It is stopped after SCHEMA_LIMIT seconds."""
    out, into = os.pipe()
    devnull = os.open(os.devnull, os.O_RDWR)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
    try:
        pid = os.posix_spawn(program, [program, "--schema"], environment, setpgroup=0, setsigdef=DEFAULT_SIGNALS,
                             file_actions=[(os.POSIX_SPAWN_DUP2, devnull, 0), (os.POSIX_SPAWN_DUP2, into, 1),
                                           (os.POSIX_SPAWN_DUP2, devnull, 2)])
    except OSError as error:
        raise Failure(USAGE, f"{program} cannot be run: {error.strerror}") from None
    finally:
        os.close(into)
        os.close(devnull)
    text = bytearray()
    end = time.monotonic() + SCHEMA_LIMIT
    with open(out, "rb", buffering=0) as pipe:
        poll = select.poll()
        poll.register(out, select.POLLIN)
        while (left := end - time.monotonic()) > 0 and len(text) < 1 << 24:
            if poll.poll(left * 1000):
                chunk = pipe.read(1 << 16)
                if not chunk:
                    break
                text += chunk
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
    import json
    try:
        schema = json.loads(text)
    except ValueError:
        return None
    return schema if isinstance(schema, dict) and "program" in schema and isinstance(schema.get("keys"), list) else None


# ---- config ------------------------------------------------------------------------------------------------------

class Entry:
    """A key of the config: where it stands and what was written."""

    def __init__(self, name, place, value, written):
        self.name, self.place, self.value, self.written = name, place, value, written

    def found(self):
        if isinstance(self.value, str):
            return f'string "{self.value}"'
        if isinstance(self.value, list):
            return "a list"
        if isinstance(self.value, dict):
            return "an object"
        if self.value is None or isinstance(self.value, bool):
            return self.written
        return f"number {self.written}"


def read_config(path):
    """The entries of a config file, in file order. Raises Failure with file:line:column."""
    from json import JSONDecodeError, JSONDecoder
    from json.decoder import scanstring
    try:
        with open(path, "rb") as file:
            data = file.read()
        text = data.decode("utf-8")
    except OSError as error:
        raise Failure(CONFIG, f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Failure(CONFIG, f"{path}: byte {error.start + 1} is not UTF-8") from None

    def at(offset):
        line = text.count("\n", 0, offset) + 1
        return f"{path}:{line}:{offset - text.rfind(chr(10), 0, offset)}"

    def constant(name):
        raise Failure(CONFIG, f"{at(text.find(name))}: not JSON: {name} is no number")

    decoder = JSONDecoder(parse_constant=constant)
    try:
        whole = decoder.decode(text)
    except JSONDecodeError as error:
        raise Failure(CONFIG, f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise Failure(CONFIG, f"{path}: nested too deep") from None
    if not isinstance(whole, dict):
        found = Entry("", "", whole, text.strip()).found()
        raise Failure(CONFIG, f'{path}:1:1: found {found}, want an object {{"key": value, ...}}')

    # The text is right; walk over its outermost keys again to learn where they stand.
    entries = {}
    blank = " \t\r\n"

    def skip(position):
        while text[position] in blank:
            position += 1
        return position

    position = skip(skip(0) + 1)
    while text[position] != "}":
        place = at(position)
        name, position = scanstring(text, position + 1)
        position = skip(skip(position) + 1)  # over the colon
        begin = position
        value, position = decoder.raw_decode(text, position)
        if name in entries:
            raise Failure(CONFIG, f'{place}: key "{name}" is given twice, first at {entries[name].place}')
        entries[name] = Entry(name, place, value, text[begin:position])
        position = skip(position)
        if text[position] == ",":
            position = skip(position + 1)
    return entries


def nearest(word, words):
    """', did you mean ...' or nothing."""
    import difflib
    close = difflib.get_close_matches(word, words, 1, 0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def limits_of(spec):
    least, most = spec.get("min"), spec.get("max")
    text = ""
    if least is not None:
        text += (" > " if spec.get("exclusive_min") else " >= ") + f"{least:.17g}".rstrip()
    if most is not None:
        text += (" and" if text else "") + f" <= {most:.17g}"
    return text


def file_exists(name):
    if os.path.exists(name):
        return True
    import glob
    return bool(glob.glob(os.path.expanduser(name)))


def why_not_input(name):
    if not file_exists(name):
        return f"no such file or folder: {name}"
    if os.path.isfile(name) and not os.access(name, os.R_OK):
        return f"cannot be read: {name}"
    return ""


def why_not_output(name):
    folder = os.path.abspath(name)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        return f"{folder} is not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is not writable"


def number_in(value):
    """The number that a config's value stands for, or None. Numbers in quotes count, as they do in the programs."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    return value if isinstance(value, (int, float)) and abs(value) != float("inf") and value == value else None


def check_entry(spec, entry, look_at_files):
    """Raises Failure when the entry does not fit what the schema says about its key."""
    kind = spec.get("type", "string")
    place = f'{entry.place}: key "{entry.name}"'

    def wrong(want):
        raise Failure(CONFIG, f"{place}: found {entry.found()}, want {want}")

    if kind in ("int", "double"):
        number = number_in(entry.value)
        want = ("an integer" if kind == "int" else "a number") + limits_of(spec)
        if number is None or (kind == "int" and number != int(number)):
            wrong(want)
        least, most = spec.get("min"), spec.get("max")
        if least is not None and (number <= least if spec.get("exclusive_min") else number < least):
            wrong(want)
        if most is not None and number > most:
            wrong(want)
        return
    if kind == "bool":
        if not isinstance(entry.value, bool) and str(entry.value) not in ("0", "1", "true", "false"):
            wrong("true or false")
        return
    if kind == "files":
        names = entry.value if isinstance(entry.value, list) else [entry.value]
        if not all(isinstance(name, str) for name in names):
            wrong("a file, folder or pattern, or a list of them")
        if not spec.get("required") and names == [""]:
            return
        if not names:
            wrong("at least one file")
        for name in names if look_at_files else []:
            why = why_not_input(name)
            if why:
                raise Failure(CONFIG, f"{place}: {why}")
        return
    text = entry.value
    if not isinstance(text, str):
        wrong("a string")
    choices = spec.get("choices")
    if choices and text not in choices:
        wrong("one of " + ", ".join(choices) + nearest(text, choices))
    if not text:
        if spec.get("required"):
            wrong("a name")
        return
    why = ""
    if kind == "file" and look_at_files:
        why = why_not_input(text) or (f"is a folder, want a file: {text}" if os.path.isdir(text) else "")
    elif kind == "plugin" and "/" in text and look_at_files:
        why = "" if os.path.exists(text) else f"no such file: {text}"
    elif kind == "folder_out" and look_at_files:
        why = why_not_output(text)
        why = why and f"cannot write to {text}: {why}"
    if why:
        raise Failure(CONFIG, f"{place}: {why}")


def check_config(schema, path, entries, look_at_files):
    """Raises Failure for the first thing that is wrong, in file order; missing keys come last."""
    specs = {spec["name"]: spec for spec in schema["keys"] if isinstance(spec, dict) and "name" in spec}
    for entry in entries.values():
        if entry.name not in specs:
            raise Failure(CONFIG, f'{entry.place}: key "{entry.name}" is unknown{nearest(entry.name, list(specs))} '
                                  "(allowed keys: " + ", ".join(specs) + ")")
        check_entry(specs[entry.name], entry, look_at_files)
    for spec in specs.values():
        if spec.get("required") and spec["name"] not in entries:
            allowed = spec.get("type", "string") + limits_of(spec)
            if spec.get("choices"):
                allowed += ": " + ", ".join(spec["choices"])
            raise Failure(CONFIG, f'{path or "no -c given"}: key "{spec["name"]}" is missing ({allowed}): '
                                  + spec.get("help", ""))


def plugin_folders(schema, entries):
    """The folders of the plug-ins that the config names by path."""
    keys = ["update_file"]
    if schema:
        keys += [spec["name"] for spec in schema["keys"] if isinstance(spec, dict) and spec.get("type") == "plugin"]
    values = [entries[key].value for key in dict.fromkeys(keys) if key in entries]
    return [os.path.dirname(os.path.abspath(value)) for value in values if isinstance(value, str) and "/" in value]


# ---- hosts -------------------------------------------------------------------------------------------------------

def hosts_in(path):
    names = []
    if path:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.split("#", 1)[0].split()
                if words:
                    names.append(words[0].split("@")[-1])
    return names


def remote_hosts(options):
    names = []
    if options.method == "mpi":
        names += hosts_in(options.hostfile)
    if options.m_server == "mpi":
        names += hosts_in(options.hostfile_server)
    own = {"localhost", os.uname().nodename, os.uname().nodename.split(".")[0], "::1"}
    return [name for name in dict.fromkeys(names) if name not in own and not name.startswith("127.")]


def own_address(options, remote):
    """The address at which other hosts find this one. Raises Failure."""
    import socket
    if options.host:
        return options.host
    if options.bind_interface:
        import fcntl
        import struct
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                reply = fcntl.ioctl(s, 0x8915, struct.pack("256s", options.bind_interface.encode()[:15]))  # SIOCGIFADDR
            except OSError as error:
                raise Failure(USAGE, f"--bind-interface {options.bind_interface}: {error.strerror}") from None
        return socket.inet_ntoa(reply[20:24])
    for name in remote:  # a socket towards another host, to which nothing is sent
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as s:
                s.connect(address)
                found = s.getsockname()[0]
        except OSError:
            continue
        # A host of the file may be this one under another name or address.
        if not found.startswith("127.") and found not in ("::1", address[0]):
            return f"[{found}]" if ":" in found else found
    raise Failure(USAGE, f"no way from this host to {', '.join(remote)}: name this host's address with --host")


# ---- the job -----------------------------------------------------------------------------------------------------

# Python ignores SIGPIPE; what it starts should not.
DEFAULT_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD]
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Child:
    """A process that this launcher started: the scheduler, a server, a worker, or an mpirun for all servers or workers."""

    def __init__(self, role, index, command, log, environment=None):
        self.role, self.index, self.command, self.log = role, index, command, log
        self.environment = environment or {}
        self.pid = 0
        self.ended = None     # waitid's answer
        self.mpirun = index is None

    def name(self):
        if self.mpirun:
            return f"mpirun of the {self.role}s (pid {self.pid})"
        number = {"scheduler": "", "server": f" s{self.index}", "worker": f" {self.index}"}[self.role]
        return f"the {self.role} (pid {self.pid})" if self.role == "scheduler" else f"{self.role}{number} (pid {self.pid})"


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Tagged:
    """Takes the output of mpirun --tag-output apart: each rank's lines go to that rank's log."""

    def __init__(self, job, child):
        self.job, self.child = job, child
        self.rest = b""
        self.logs = {}
        self.last_rank = None

    def feed(self, data):
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.line(line + b"\n")

    def close(self):
        if self.rest:
            self.line(self.rest)
            self.rest = b""

    def line(self, line):
        rank, stream, text = self.split(line)
        log = self.logs.get(rank)
        if log is None:
            path = self.child.log if rank is None else self.job.log_of(self.child.role, rank)
            log = self.logs[rank] = os.open(path, APPEND, 0o644)
        write_all(log, text)
        if rank is None:
            self.job.hear_mpirun(self.child, line.decode("utf-8", "replace"))
        elif rank == 0 and stream == b"stdout" and self.child.role == "worker":
            self.job.pass_through(text)

    @staticmethod
    def split(line):
        """[1,RANK]<STREAM>:TEXT; a line without it is mpirun's own."""
        if line.startswith(b"[") and b"]<" in line:
            front, _, rest = line.partition(b"]<")
            _, _, rank = front.partition(b",")
            stream, colon, text = rest.partition(b">:")
            if rank.isdigit() and colon and stream in (b"stdout", b"stderr", b"stddiag"):
                return int(rank), stream, text
        return None, b"", line


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


class Job:
    def __init__(self, options, program, framework, schema, entries, linked):
        self.options, self.program, self.framework, self.linked = options, program, framework, linked
        self.id = os.urandom(8).hex()
        self.remote = remote_hosts(options) if "mpi" in (options.method, options.m_server) else []
        self.sockets = ""
        self.socket_lock = -1
        self.run_dir = ""
        self.plugin_dirs = self.find_plugin_dirs(schema, entries)
        self.children = []
        self.by_pid = {}
        self.nodes = {}            # (role, index) -> (pid, host), from the scheduler
        self.readers = {}          # descriptor -> function of bytes; called with b"" at the end
        self.poll = select.poll()
        self.mpirun_rank = {}      # role -> (rank, how it ended), from mpirun's own words
        self.mpirun_named = None   # the rank that its last words were about
        self.event_rest = b""
        self.subreaper = False
        self.address = ""
        self.started = False
        # how it ends
        self.cause = None          # (status, text)
        self.told = False          # the scheduler has announced the end of the job
        self.done = False          # the scheduler says that all workers have left with 0
        self.stopping = False
        self.interrupts = 0
        self.kill_at = None
        self.deadlines = {}        # name -> time
        # terminal
        self.tty = os.isatty(2)
        self.out = bytearray()
        self.out_closed = False
        self.progress = None
        self.progress_first = None
        self.progress_shown = 0.0
        self.progress_pending = False
        self.progress_on_screen = False

    # -- what is started

    def find_plugin_dirs(self, schema, entries):
        prefix = os.path.dirname(self.framework)
        folders = [os.path.join(prefix, "lib"), os.path.join(prefix, "lib", "paracel")]
        folders = [f for f in folders if os.path.isdir(f)] + plugin_folders(schema, entries)
        for folder in self.options.plugin_dir:
            if not os.path.isdir(folder):
                raise Failure(USAGE, f"--plugin-dir {folder}: no such folder")
            folders.append(os.path.abspath(folder))
        bad = next((f for f in folders if ":" in f), None)
        if bad:
            raise Failure(USAGE, f"the plug-in folder {bad} has a colon in its name, which separates folders")
        return list(dict.fromkeys(folders))

    def all_local(self):
        return self.options.method == "local" and self.options.m_server == "local"

    def scheduler_bind(self):
        if self.all_local():
            return f"ipc://{self.sockets}/s"
        host = "127.0.0.1"
        if self.options.host or self.options.bind_interface or self.remote:
            host = own_address(self.options, self.remote)
            if not self.options.insecure and not host.startswith("127."):
                raise Failure(USAGE, f"the job would listen at {host}, where anybody can reach it and nothing is encrypted: "
                                     "add --insecure if that network is trusted")
        return f"tcp://{host}:*"

    def make_scheduler(self):
        o = self.options
        command = [os.path.join(self.framework, "start_scheduler"), "--bind", self.scheduler_bind(), "--job", self.id,
                   "--workers", str(o.wnum), "--servers", str(o.snum), "--heartbeat-limit", f"{o.heartbeat_limit:g}",
                   "--join-timeout", f"{o.join_timeout:g}", "--run-dir", self.run_dir, "--parent", str(os.getpid())]
        return Child("scheduler", 0, command + (["--insecure"] if o.insecure else []), self.log_of("scheduler", 0))

    def make_servers(self, address):
        o = self.options
        if self.all_local():
            bind = f"ipc://{self.sockets}"
        elif self.remote or not address.startswith("tcp://127."):
            bind = "tcp://*:*"  # the interface towards the scheduler
        else:
            bind = "tcp://127.0.0.1:*"
        command = [os.path.join(self.framework, "start_server"), "--rendezvous", address, "--job", self.id,
                   "--threads", str(o.threads), "--bind", bind, "--plugin-dirs", ":".join(self.plugin_dirs),
                   "--function-timeout", f"{o.function_timeout:g}", "--heartbeat-limit", f"{o.heartbeat_limit:g}"]
        if o.insecure:
            command.append("--insecure")
        if o.m_server == "mpi":
            return [Child("server", None, self.mpirun("server", {}) + command + ["--slot", "auto"],
                          os.path.join(self.run_dir, "mpirun_servers.log"), {"TMPDIR": self.sockets + "/server"})]
        command += ["--parent", str(os.getpid())]
        return [Child("server", slot, command + ["--slot", str(slot)], self.log_of("server", slot))
                for slot in range(o.snum)]

    def make_workers(self, address):
        o = self.options
        info = f"paracel1;{self.id};{address}"
        command = [self.program] + o.arguments + ["--server_info", info]
        if o.cfg_file:
            command += ["--cfg_file", o.cfg_file]
        environment = {"PARACEL_RENDEZVOUS": info, "PARACEL_RUN_DIR": self.run_dir, "PARACEL_MODE": o.method,
                       "PARACEL_HEARTBEAT_LIMIT_MS": str(round(o.heartbeat_limit * 1000))}
        if o.method == "mpi":
            return [Child("worker", None, self.mpirun("worker", environment) + command,
                          os.path.join(self.run_dir, "mpirun_workers.log"),
                          dict(environment, TMPDIR=self.sockets + "/worker"))]
        if not self.linked:
            # A program that does not ask the kernel itself to die with its parent is made to, by setpriv (util-linux).
            setpriv = "/usr/bin/setpriv"
            if os.access(setpriv, os.X_OK):
                command = [setpriv, "--pdeathsig", "KILL"] + command
        environment.update(PARACEL_SIZE=str(o.wnum), PARACEL_PARENT=str(os.getpid()))
        return [Child("worker", rank, command, self.log_of("worker", rank), dict(environment, PARACEL_RANK=str(rank)))
                for rank in range(o.wnum)]

    def mpirun(self, role, environment):
        import shutil
        o = self.options
        count, hostfile = (o.snum, o.hostfile_server) if role == "server" else (o.wnum, o.hostfile)
        path = shutil.which("mpirun")
        if path is None:
            raise Failure(USAGE, "-m mpi: mpirun is not installed (Debian: openmpi-bin)")
        # Two mpiruns know nothing of each other: without --bind-to none both would bind to the same cores, and in a common
        # folder for their files each can remove what the other is just making ("orte_session_dir failed"). TMPDIR says where
        # that folder is; the programs get their own back.
        command = [path, "-np", str(count), "--tag-output", "--bind-to", "none",
                   "-x", "TMPDIR=" + os.environ.get("TMPDIR", "/tmp")]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        if hostfile:
            command += ["--hostfile", os.path.abspath(hostfile)]
        else:
            command.append("--oversubscribe")
            if shutil.which("ssh") is None and shutil.which("rsh") is None:
                command += ["--mca", "plm", "isolated"]
        for name in list(environment) + [n for n in ("LD_LIBRARY_PATH",) if n in os.environ]:
            command += ["-x", name]
        # mpirun ends its ranks when it is told to; when this launcher is killed, the kernel tells it.
        if os.access("/usr/bin/setpriv", os.X_OK):
            command = ["/usr/bin/setpriv", "--pdeathsig", "TERM"] + command
        return command

    def log_of(self, role, index):
        return os.path.join(self.run_dir, "scheduler.log" if role == "scheduler" else f"{role}_{index}.log")

    def make_folders(self):
        o = self.options
        self.run_dir = os.path.abspath(o.run_dir or os.path.join(
            o.output_dir, "paracel_runs", f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"))
        if o.dry_run:
            self.sockets = "/tmp/prc-XXXXXX"
            return
        try:
            os.makedirs(self.run_dir, exist_ok=True)
            for name in os.listdir(self.run_dir):  # logs of an earlier run in the same --run-dir
                if name.endswith(".log"):
                    os.unlink(os.path.join(self.run_dir, name))
        except OSError as error:
            raise Failure(USAGE, f"the run folder {self.run_dir} cannot be made: {error.strerror}") from None
        self.make_socket_folder()

    def make_socket_folder(self):
        """A short private folder for sockets, and for mpirun's own files: the path of a Unix socket ends at 107 bytes. It
        stays locked while this process lives, so that a later launcher can tell a folder that nobody will remove."""
        import fcntl
        base = "/tmp"
        sweep_socket_folders(base, fcntl)
        for _ in range(100):
            path = os.path.join(base, "prc-" + os.urandom(4).hex())
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise Failure(FAILURE, f"no folder for sockets in {base}: {error.strerror}") from None
            self.socket_lock = os.open(path, os.O_RDONLY)
            fcntl.flock(self.socket_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.sockets = path
            for role, method in (("server", self.options.m_server), ("worker", self.options.method)):
                if method == "mpi":
                    os.mkdir(os.path.join(path, role), 0o700)
            return
        raise Failure(FAILURE, f"no free name for a folder for sockets in {base}")

    def print_dry_run(self):
        import shlex
        address = self.scheduler_bind()
        address = address.replace("*", "PORT") if address.startswith("tcp") else address
        for child in [self.make_scheduler()] + self.make_servers(address) + self.make_workers(address):
            words = [f"{k}={shlex.quote(v)}" for k, v in child.environment.items()] + [shlex.quote(w) for w in child.command]
            print(" ".join(words))

    def spawn(self, child):
        """Starts a process in a process group of its own, so that Ctrl-C reaches only the launcher and a child can be killed
        with all it started."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
        environment.update(child.environment)
        log = os.open(child.log, APPEND, 0o644)
        devnull = os.open(os.devnull, os.O_RDONLY)
        into = -1
        reader = None
        if child.role == "scheduler":
            reader = self.hear_events
        elif child.mpirun:
            reader = Tagged(self, child)
        elif child.role == "worker" and child.index == 0:
            reader = self.copier(child)
        try:
            out = log
            if reader is not None:
                source, into = os.pipe()
                os.set_blocking(source, False)
                self.readers[source] = reader
                self.poll.register(source, select.POLLIN)
                out = into
            actions = [(os.POSIX_SPAWN_DUP2, devnull, 0), (os.POSIX_SPAWN_DUP2, out, 1),
                       (os.POSIX_SPAWN_DUP2, into if child.mpirun else log, 2)]
            if self.options.verbose:
                import shlex
                self.say("starts " + " ".join(shlex.quote(w) for w in child.command))
            try:
                child.pid = os.posix_spawn(child.command[0], child.command, environment, file_actions=actions,
                                           setpgroup=0, setsigdef=DEFAULT_SIGNALS)
            except OSError as error:
                raise Failure(FAILURE, f"{child.command[0]} cannot be run: {error.strerror}") from None
        finally:
            os.close(log)
            os.close(devnull)
            if into >= 0:
                os.close(into)
        self.children.append(child)
        self.by_pid[child.pid] = child

    def start_nodes(self, address):
        self.started = True
        self.address = address
        self.deadlines.pop("ready", None)
        for child in self.make_servers(address):
            self.spawn(child)
        if not self.remote:
            self.start_workers()

    def start_workers(self):
        """With other hosts, only after all servers have joined: there the two mpiruns share the folder for their files."""
        for child in self.make_workers(self.address):
            self.spawn(child)

    # -- the terminal

    def say(self, text):
        self.wipe_progress()
        write_quietly(2, f"prun: {text}\n".encode("utf-8", "replace"))

    def pass_through(self, data):
        if not self.out_closed:
            self.out += data
            self.flush_out()

    def flush_out(self, wait=0.0):
        """Writes what standard output takes without blocking; a reader that does not read must not keep us from the job."""
        end = time.monotonic() + wait
        while self.out and not self.out_closed:
            poll = select.poll()
            poll.register(1, select.POLLOUT)
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return
            self.wipe_progress()
            try:
                written = os.write(1, self.out[:select.PIPE_BUF])
            except OSError:
                self.out_closed = True
                self.out.clear()
                return
            del self.out[:written]

    def copier(self, child):
        log = os.open(child.log, APPEND, 0o644)

        def copy(data):
            if data:
                write_all(log, data)
                self.pass_through(data)
            else:
                os.close(log)
        return copy

    def note_progress(self, event, now):
        if self.progress_first is None and isinstance(event.get("round"), (int, float)):
            self.progress_first = (event["round"], now)
        self.progress = event
        self.progress_pending = True
        self.show_progress(now)

    def show_progress(self, now, last=False):
        if not self.progress_pending:
            return
        if not last and now - self.progress_shown < (TTY_PROGRESS if self.tty else QUIET_PROGRESS):
            return
        if self.out and self.tty:
            return
        self.progress_pending = False
        text = self.progress_text(now)
        if self.tty:
            write_quietly(2, f"\r{text}\x1b[K".encode())
            self.progress_on_screen = True
        else:
            write_quietly(2, f"prun: {text}\n".encode())
        self.progress_shown = now

    def progress_text(self, now):
        event = self.progress
        number, total = event.get("round"), event.get("rounds")
        parts = []
        if number is not None:
            parts.append(f"round {number}/{total}" if total is not None else f"round {number}")
        for key in ("objective", "loss"):
            if isinstance(event.get(key), (int, float)):
                parts.append(f"{key} {event[key]:.6g}")
        if self.progress_first is not None and isinstance(number, (int, float)):
            first, since = self.progress_first
            if now > since and number > first:
                rate = (number - first) / (now - since)
                parts.append(f"{rate:.3g} rounds/s" if rate < 1000 else f"{rate:.0f} rounds/s")
                if isinstance(total, (int, float)) and total > number and self.cause is None:
                    parts.append(duration((total - number) / rate) + " left")
        return "  ".join(parts)

    def wipe_progress(self):
        if self.progress_on_screen:
            write_quietly(2, b"\r\x1b[K")
            self.progress_on_screen = False
            self.progress_pending = True

    # -- what is heard

    def hear_events(self, data):
        """Takes the scheduler's JSON lines."""
        import json
        *lines, self.event_rest = (self.event_rest + data).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self.hear_event(event)

    def hear_event(self, event):
        kind = event.get("event")
        if kind == "progress":
            self.note_progress(event, time.monotonic())
            return
        if self.options.verbose:
            self.say(f"event {kind} " + " ".join(f"{k}={v}" for k, v in event.items() if k != "event"))
        if kind == "ready":
            if not self.started and not self.stopping:
                self.start_nodes(event["address"])
        elif kind == "joined":
            self.nodes[event["role"], event["index"]] = (event["pid"], event["host"])
            if self.remote and event["role"] == "server" and len(self.nodes) == self.options.snum and not self.stopping:
                self.start_workers()
        elif kind == "busy" and not self.options.verbose:
            self.say(f"server s{event['index']} (pid {event['pid']} on {event['host']}), shard {event['shard']}: "
                     f"{event['function']} has been running for {event['seconds']:.0f} s")
        elif kind == "lost":
            self.told = True
            self.fail(event["status"], event["cause"], (event["role"], event["index"]))
        elif kind == "abort":
            self.told = True
            self.fail(event["status"], event["cause"], None, LAST_WORDS)
        elif kind == "done":
            self.done = True
        elif kind == "error":
            self.say("the scheduler: " + str(event.get("text")))

    def hear_mpirun(self, child, line):
        """mpirun says in passing which rank was the first to fail."""
        import re
        if child.role in self.mpirun_rank:
            return
        killed = re.search(r"process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)", line)
        if killed:
            rank, pid, host, number = killed.groups()
            pid, host = self.nodes.get((child.role, int(rank)), (pid, host))
            self.mpirun_rank[child.role] = (int(rank), f"{self.short(child.role, rank)} (pid {pid} on {host}) was killed by "
                                                       f"{signal_name(int(number))}")
            return
        named = re.search(r"Process name: \[\[\d+,\d+\],(\d+)\]", line)
        if named:
            self.mpirun_named = int(named.group(1))
        code = re.search(r"Exit code: +(\d+)", line)
        if code and self.mpirun_named is not None:
            rank = self.mpirun_named
            where = "(pid {} on {}) ".format(*self.nodes[child.role, rank]) if (child.role, rank) in self.nodes else ""
            words = f"{self.short(child.role, rank)} {where}exited with status {code.group(1)}"
            self.mpirun_rank[child.role] = (rank, words)

    @staticmethod
    def short(role, index):
        return f"server s{index}" if role == "server" else f"{role} {index}"

    # -- how it ends

    def fail(self, status, text, who=None, patience=0.0):
        """The first cause stays. `who` is (role, index): the last lines of its log are shown."""
        if self.cause is not None or (self.stopping and self.interrupts == 0):
            return
        self.cause = (status, text)
        if not self.interrupts:
            self.say(text)
            self.show_tail(who)
        if patience > 0:
            self.deadlines["stop"] = time.monotonic() + patience
        else:
            self.stop(FAILURE_KILL)

    def show_tail(self, who):
        if who is None:
            return
        path = who if isinstance(who, str) else self.log_of(*who)
        try:
            with open(path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - (16 << 10)))
                lines = file.read().decode("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
        except OSError:
            return
        if not lines:
            self.say(f"its log {path} is empty")
            return
        self.say(f"the last lines of its log {path}:")
        write_quietly(2, "".join(f"    {line}\n" for line in lines).encode("utf-8", "replace"))

    def status_of(self, child):
        """The exit status that the death of a child means for the job, and the words for it."""
        ended = child.ended
        lost = {"scheduler": SCHEDULER_LOST, "server": SERVER_LOST, "worker": WORKER_LOST}[child.role]
        if ended.si_code != os.CLD_EXITED:
            return lost, f"{child.name()} was killed by {signal_name(ended.si_status)}"
        code = ended.si_status
        text = f"{child.name()} exited with status {code}"
        if child.mpirun:
            _, words = self.mpirun_rank.get(child.role, (None, None))
            text = words or text
            if code > 128:  # how mpirun reports a rank that was killed
                return lost, words or f"{child.name()}: one of its processes was killed by {signal_name(code - 128)}"
        if 1 <= code <= (9 if child.role == "worker" else 5):
            return code, text
        if child.role == "worker":
            return (code if code in MEANING else FAILURE), text
        return (code if code == SCHEDULER_LOST else lost), text

    def handle_death(self, child):
        clean = child.ended.si_code == os.CLD_EXITED and child.ended.si_status == 0
        if self.stopping:
            if self.cause is None and not clean and not self.interrupts and child.role != "scheduler":
                status, text = self.status_of(child)
                if not (child.ended.si_code == os.CLD_EXITED or child.ended.si_status in (signal.SIGTERM, signal.SIGKILL)):
                    self.say(f"after the job was complete, {text}")
            return
        if clean and (child.role == "worker" or self.done):
            if all(c.ended for c in self.children if c.role == "worker"):
                self.stop(FAILURE_KILL)
            return
        if child.role == "scheduler" and self.done:
            return
        status, text = self.status_of(child)
        who = (child.role, child.index)
        if child.mpirun:
            rank, _ = self.mpirun_rank.get(child.role, (None, None))
            who = child.log if rank is None else (child.role, rank)
        self.fail(status, text, who)

    def alive(self, *roles):
        return [c for c in self.children if c.ended is None and (not roles or c.role in roles)]

    def send(self, children, number):
        for child in children:
            for send in (os.killpg, os.kill):  # the group may not be there yet
                try:
                    send(child.pid, number)
                    break
                except OSError:
                    continue

    def stop(self, limit):
        """Begins the end: SIGTERM now, SIGKILL after `limit` seconds; `go_on_stopping` does the rest."""
        if self.stopping:
            return
        self.stopping = True
        self.deadlines.clear()
        self.kill_at = time.monotonic() + limit
        self.asked = set()
        self.go_on_stopping()

    def ask(self, children):
        children = [c for c in children if c.pid not in self.asked]
        self.asked.update(c.pid for c in children)
        self.send(children, signal.SIGTERM)
        self.send(children, signal.SIGCONT)  # one that was stopped hears of it, too

    def go_on_stopping(self):
        """Workers, then servers, then the scheduler; after a failure workers and servers at once."""
        failed = self.cause is not None and not self.interrupts
        if failed and "mpi" in (self.options.method, self.options.m_server) and not self.told:
            self.told = True
            self.ask(self.alive("scheduler"))  # it tells those processes that no mpirun reaches any more
        if self.alive("worker"):
            self.ask(self.alive("worker"))
            if not failed:
                return
        if self.alive("server"):
            self.ask(self.alive("server"))
            return
        if self.alive("worker") or self.orphans(signal.SIGTERM):
            return
        for child in self.alive("scheduler"):
            if not self.done and self.all_local():
                self.send([child], signal.SIGKILL)  # it would wait for those who do not know yet, and nobody is left
            elif child.pid not in self.asked:
                if self.remote and self.cause is not None and self.told:
                    return  # it ends by itself when every process on other hosts knows, or at kill_at
                self.ask([child])

    def orphans(self, number):
        """Processes that came to us because the mpirun above them has died; sends them a signal. Returns their number."""
        if not self.subreaper:
            return 0
        found = 0
        me = str(os.getpid())
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in self.by_pid:
                continue
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
                if parent == me and state != "Z":
                    found += 1
                    os.kill(int(name), number)
            except OSError:
                continue
        return found

    def kill(self):
        self.send(self.alive(), signal.SIGKILL)
        self.orphans(signal.SIGKILL)

    def hear_signal(self, number):
        if number == signal.SIGCHLD:
            return
        if number == signal.SIGINT and self.interrupts:
            self.say("interrupted again: killing everything")
            self.kill_at = time.monotonic()
            return
        if self.interrupts:
            return
        self.interrupts = 1
        status = 128 + number
        if self.cause is not None:   # already failing: only hurry
            self.stop(0)
            self.kill_at = time.monotonic()
            return
        self.cause = (status, "")
        self.say("interrupted: stopping the job (Ctrl-C again kills it)" if number == signal.SIGINT
                 else f"{signal_name(number)}: stopping the job")
        self.stopping = False
        self.stop(INTERRUPT_KILL)

    # -- the loop

    def reap(self):
        """The children that have ended. What is left of their groups is killed before their ids can be used again."""
        dead = []
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return dead
            if ended is None:
                return dead
            child = self.by_pid.get(ended.si_pid)
            if child is not None:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except OSError:
                    pass
            os.waitpid(ended.si_pid, 0)
            if child is not None:
                child.ended = ended
                dead.append(child)

    def read_all(self, fd, final=False):
        """Reads one descriptor as long as there is something."""
        reader = self.readers[fd]
        feed = reader.feed if isinstance(reader, Tagged) else reader
        while True:
            # What cannot be written stays with the one who printed it.
            if not final and len(self.out) > MAX_TERMINAL_BACKLOG and reader != self.hear_events:
                return
            try:
                data = os.read(fd, 1 << 16)
            except BlockingIOError:
                return
            if data:
                feed(data)
                continue
            self.poll.unregister(fd)
            os.close(fd)
            del self.readers[fd]
            if isinstance(reader, Tagged):
                reader.close()
            else:
                reader(b"")
            return

    def wait_time(self, now):
        ends = list(self.deadlines.values())
        if self.kill_at is not None:
            ends.append(self.kill_at)
        if self.progress_pending:
            ends.append(self.progress_shown + (TTY_PROGRESS if self.tty else QUIET_PROGRESS))
        if self.subreaper and self.stopping:
            ends.append(now + 0.1)  # orphans arrive without a signal
        return None if not ends else max(0.0, min(ends) - now) * 1000

    def run(self):
        """Returns the exit status."""
        o = self.options
        self.subreaper = "mpi" in (o.method, o.m_server) and become_subreaper()
        wake, wake_in = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_in, False)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # the byte in the pipe is what counts
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        self.poll.register(wake, select.POLLIN)
        self.say(f"job {self.id}: {o.snum} server{'s' * (o.snum > 1)} ({o.m_server}), {o.wnum} worker{'s' * (o.wnum > 1)} "
                 f"({o.method}): {os.path.relpath(self.program) if self.program.startswith(os.getcwd()) else self.program}")
        self.say(f"logs in {self.run_dir}")
        begin = time.monotonic()
        if o.timeout is not None:
            self.deadlines["timeout"] = begin + o.timeout
        scheduler = self.make_scheduler()
        self.spawn(scheduler)
        if self.all_local():
            self.start_nodes(scheduler.command[scheduler.command.index("--bind") + 1])
        else:
            self.deadlines["ready"] = begin + READY_LIMIT

        waiting_for_out = False
        while self.alive() or (self.subreaper and self.stopping and self.orphans(0)):
            if bool(self.out) != waiting_for_out:
                waiting_for_out = bool(self.out)
                if waiting_for_out:
                    self.poll.register(1, select.POLLOUT)
                else:
                    self.poll.unregister(1)
            ready = [fd for fd, _ in self.poll.poll(self.wait_time(time.monotonic()))]
            signals = b""
            try:
                signals = os.read(wake, 4096)
            except BlockingIOError:
                pass
            # Deaths are looked at before what the dead have said, and judged after it: an event of the scheduler that
            # explains a death was written before it.
            dead = self.reap()
            if len(self.out) > MAX_TERMINAL_BACKLOG and 1 not in ready:
                time.sleep(0.01)  # a full pipe of worker 0 keeps poll from waiting
            for fd in list(self.readers):
                if dead or fd in ready:
                    self.read_all(fd)
            self.flush_out()
            for number in signals:
                self.hear_signal(number)
            for child in dead:
                self.handle_death(child)
            now = time.monotonic()
            if self.deadlines.get("timeout", now + 1) <= now:
                self.deadlines.pop("timeout")
                self.fail(TIMEOUT, f"the job was not complete within {o.timeout:g} s")
            if self.deadlines.get("ready", now + 1) <= now:
                self.deadlines.pop("ready")
                self.fail(SCHEDULER_LOST, "the scheduler did not start", ("scheduler", 0))
            if self.deadlines.get("stop", now + 1) <= now:
                self.deadlines.pop("stop")
                self.stop(FAILURE_KILL)
            if self.stopping:
                if self.kill_at <= now:
                    self.kill()
                    self.kill_at = now + 0.2  # again, for what was born meanwhile
                else:
                    self.go_on_stopping()
            self.show_progress(now)
        for fd in list(self.readers):
            self.read_all(fd, final=True)
        self.flush_out(wait=2.0)
        self.finish(time.monotonic() - begin)
        return self.cause[0] if self.cause is not None else OK

    def finish(self, took):
        if self.tty and self.progress is not None and self.progress_on_screen and not self.progress_pending:
            write_quietly(2, b"\n")
            self.progress_on_screen = False
        else:
            self.show_progress(time.monotonic(), last=True)
            if self.progress_on_screen:
                write_quietly(2, b"\n")
                self.progress_on_screen = False
        if self.cause is None:
            self.say(f"done in {duration(took)}")
        else:
            status = self.cause[0]
            meaning = f" ({MEANING[status]})" if status in MEANING else ""
            self.say(f"exit status {status}{meaning}, logs in {self.run_dir}")

    def clean_up(self):
        """Whatever happened: no process and no socket stays."""
        while self.alive():
            self.kill()
            for child in self.alive():
                try:
                    os.waitpid(child.pid, 0)
                except ChildProcessError:
                    pass
                child.ended = True
        if self.sockets and not self.options.dry_run:
            remove_folder(self.sockets)


def write_quietly(fd, data):
    try:
        write_all(fd, data)
    except OSError:  # nobody is there to read it
        pass


def duration(seconds):
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def remove_folder(path):
    try:
        for name in os.listdir(path):
            inner = os.path.join(path, name)
            if os.path.isdir(inner) and not os.path.islink(inner):
                import shutil
                shutil.rmtree(inner, ignore_errors=True)
            else:
                os.unlink(inner)
        os.rmdir(path)
    except OSError:
        pass


def sweep_socket_folders(base, fcntl):
    """Removes the socket folders of launchers that were killed: ours, a minute old, and locked by nobody."""
    now = time.time()
    for name in os.listdir(base):
        if len(name) != 12 or not name.startswith("prc-") or not all(c in "0123456789abcdef" for c in name[4:]):
            continue
        path = os.path.join(base, name)
        try:
            about = os.lstat(path)
            if about.st_uid != os.geteuid() or now - about.st_mtime < 60 or os.path.islink(path):
                continue
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(path)
        except OSError:
            pass
        finally:
            os.close(fd)


def become_subreaper():
    """Orphans of an mpirun that was killed become our children. False where the system cannot do that."""
    try:
        import ctypes
        return ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        return False


def main(arguments):
    job = None
    try:
        options = parse_command_line(arguments)
        program = find_program(options.program)
        framework = find_framework(program)
        publishes, linked = marks_in(program)
        schema = ask_schema(program) if publishes else None
        entries = read_config(options.cfg_file) if options.cfg_file else {}
        job = Job(options, program, framework, schema, entries, linked)
        if schema is not None:
            # Files on other hosts are looked at there, by the program itself.
            check_config(schema, options.cfg_file, entries, look_at_files=not job.remote)
        job.make_folders()
        if options.dry_run:
            job.print_dry_run()
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

# SPDX-License-Identifier: BSD-3-Clause
"""The command line, and the hosts that it names."""
import os

from .status import MEANING, USAGE, Failure

# Options of Paracel 0.3 that belong to Mesos.
GONE_OPTIONS = {
    "--ppn": "Mesos is not supported; where processes run is written in --hostfile",
    "--ppn_server": "Mesos is not supported; where servers run is written in --hostfile_server",
    "--mem_limit": "Mesos is not supported; limit memory with ulimit -v or a cgroup",
    "--mem_limit_server": "Mesos is not supported; limit memory with ulimit -v or a cgroup",
    "--replicas": "replication is not there yet",
}
# Limits of the servers, as start_server names them.
SERVER_LIMITS = {
    "--max-memory": "what the keys and values of a server may take in all (default: no limit)",
    "--max-value-bytes": "largest value that a server takes (default 256M)",
    "--max-message-bytes": "largest message of servers and workers (default 1G)",
    "--max-unread-bytes": "replies that a worker may leave unread at one thread of a server (default 1G)",
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

    def byte_count(text):
        digits = text[:-1] if text[-1:] in ("K", "M", "G", "T") else text
        if not digits.isascii() or not digits.isdigit() or int(digits) == 0:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes such as 1000000, 64K, 256M or 4G")
        return text

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
    for name, meaning in SERVER_LIMITS.items():
        add(name, type=byte_count, default=None, metavar="BYTES", help=meaning)
    add("--plugin-dir", action="append", default=[], metavar="DIR",
        help="one more folder that the servers may load plug-ins from; those of update_file, filter_file and handle_file "
             "always are")
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

# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a job: the commands of its processes and the folders that it needs."""
import os
import signal
import time

from ..common.exit_status import FAILURE, USAGE, Failure
from ..common.output import write_out
from ..common.terminal import number_of
from ..engines.external import SETTINGS, WAYS
from ..engines.hosts import Places, is_loopback, logins, own_address, slots_in, usable_cores
from ..engines.slurm import Allocation, Carrier, Steps, is_used
from ..engines.ssh import Hosts
from ..folders import runs
from ..folders.own_folder import APPEND
from ..folders.run_directory import KEY, SEND_REQUEST
from ..folders.run_folder import release_folder, remove_kept, take_folder
from ..folders.socket_folder import MEMORY, SocketFolder, remove_folder
from ..programs.config import overriding
from ..programs.program import command_of, dies_with_us
from .checkpoints import Checkpoints
from .options import HEARTBEAT_INTERVAL, MOST_THREADS, RESEND_AFTER, SERVER_LIMITS

MOST_CONNECTIONS = 256  # of a process, before the threads of a server share one: doc/scale.md has the figures


def remove_metrics(path):
    """Of a scheduler that was killed; the others remove their file themselves."""
    folder, name = os.path.split(path)
    try:
        for left in os.listdir(folder):
            if left == name or left.startswith(name + "."):
                os.unlink(os.path.join(folder, left))
    except OSError:  # best effort
        pass


class Child:
    """A process started by this launcher: the scheduler, a server, a worker, a send_request to one of them, an mpirun for all
    servers, one server, or all workers, or an ssh or srun for one process."""

    def __init__(self, role, index, command, log, environment=None, mpirun=False, host=None):
        self.role, self.index, self.command, self.log = role, index, command, log
        self.environment = environment or {}
        self.pid = 0
        self.sources = []          # descriptors of its output
        self.ended = None          # result of waitid
        self.first_failure = None  # of an mpirun: (rank, how it ended), from its messages
        self.joined_before = None  # of a replacement: (pid, host) of its predecessor
        self.answer = b""          # of a send_request
        self.mpirun = mpirun
        self.host = host           # another one on which an ssh or srun runs the process
        self.by = "ssh"
        self.log_begins = 0        # bytes that were in its log before
        self.lost_node = False     # says srun, which then exits with any status, also 0
        self.keeps = lambda variable: True  # whether it gets that of this process's environment
        self.end_signal = signal.SIGTERM  # asks it to end

    def in_logs(self):
        """(role, index) in the lines of its log."""
        if self.role in ("scheduler", "request"):
            return "scheduler", None
        return self.role, self.index

    def name(self):
        if self.mpirun:
            of = f"the {self.role}s" if self.index is None else f"{self.role} s{self.index}"
            return f"mpirun of {of} (pid {self.pid})"
        number = {"scheduler": "", "server": f" s{self.index}", "worker": f" {self.index}"}[self.role]
        if self.host is not None:
            return f"{self.role}{number} (on {self.host}, by {self.by}, pid {self.pid})"
        return f"the {self.role} (pid {self.pid})" if self.role == "scheduler" else f"{self.role}{number} (pid {self.pid})"


class Plan:
    def __init__(self, options, program, framework, facts, linked, remote):
        self.options, self.program, self.framework, self.linked = options, program, framework, linked
        self.send_request = os.path.join(framework, SEND_REQUEST)
        self.id = os.urandom(8).hex()
        self.external = None  # with -m external
        if options.method == "external":
            from ..engines.external import External
            self.external = External(options)
            self.id = self.external.where.id()
        self.address = "127.0.0.1"  # of this host for the others
        self.reachable = False  # by other hosts
        self.encrypted = False
        self.key = ""  # set if other users can reach the sockets
        self.key_holders = None  # on other hosts
        self.remote = remote
        self.sockets = ""
        self.socket_folder = None
        self.memory_folder = None  # of MPI's ranks, if all are on this host
        self.run_dir = ""
        self.run_folder = None  # run_dir as an OwnFolder
        self.locks = []
        self.run_lock = None  # None until this job has locked the folder
        self.plugin_dirs = self.find_plugin_dirs(facts)
        self.allocation = Allocation() if is_used(options) else None  # of Slurm's
        self.places = Places(list(self.allocation.cpus.items()) if options.m_server == "slurm" else
                             slots_in(options.hostfile_server) if options.m_server in ("mpi", "ssh") else [])
        # of processes that ssh or srun starts
        self.hosts = Steps(options, self.allocation) if self.allocation is not None else Hosts(options, remote)
        self.threads = options.threads  # of each server; None: those on other hosts count their cores themselves
        self.threads_of = {}            # slot -> threads of the server there, which a replacement must have, too
        if self.threads is None and not self.external and not (remote and options.m_server in ("mpi", "ssh", "slurm")):
            self.threads = min(max(1, usable_cores() // options.snum), MOST_THREADS)
        self.notes = [f"warning: {remark}" for remark in facts.remarks]  # for a person, when the job starts
        self.output = facts.output
        self.checkpoints = Checkpoints(options, framework, program)
        self.reads_standard_input = bool(facts.standard_input) and not os.isatty(0)
        self.find_address()

    def find_plugin_dirs(self, facts):
        """Where the servers search for plug-ins, in this order: the folders of paths in the config, --plugin-dir, the folder of
        the config, that of the program, the framework's, that of the user's functions in Python. A job in one process (src/embed)
        uses the same."""
        asked = facts.plugin_folders()
        for folder in self.options.plugin_dir:
            if not os.path.isdir(folder):
                raise Failure(USAGE, f"--plugin-dir {folder}: no such folder")
            asked.append(os.path.abspath(folder))
        bad = next((f for f in asked if ":" in f), None)
        if bad:
            raise Failure(USAGE, f"the plug-in folder {bad} has a colon in its name, which separates folders")
        prefix = os.path.dirname(self.framework)
        beside = [os.path.dirname(os.path.abspath(self.options.cfg_file))] if self.options.cfg_file else []
        beside += [os.path.dirname(self.program), os.path.join(prefix, "lib"), os.path.join(prefix, "lib", "paracel"),
                   os.path.join(prefix, "_lib"), os.path.join(prefix, "_plugins")]  # the last two: of the Python package
        there = [f for f in beside if os.path.isdir(f)]
        if not self.linked:  # the workers make it: src/python/paracel/_update.py
            base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
            there.append(os.path.join(os.path.abspath(base), "paracel", "plugins"))
        return list(dict.fromkeys(asked + [f for f in there if ":" not in f]))

    def all_local(self):
        return self.options.method == "local" and self.options.m_server == "local"

    def uses_ipc(self):
        """If so, all sockets are files in a folder that no other user can access."""
        o = self.options
        return not (self.remote or o.host or o.bind_interface or o.encrypt or self.external)

    def find_address(self):
        """Raises Failure."""
        o = self.options
        if o.transport == "unix" and not self.uses_ipc():
            raise Failure(USAGE, "--transport unix: some processes are on other hosts, or connections are encrypted; want "
                                 "--transport zmq")
        if self.external:
            self.address, self.reachable = self.external.where.host, self.external.is_reachable()
        elif o.host or o.bind_interface or self.remote:
            reached = self.remote if self.allocation is None else [self.allocation.address(node) for node in self.remote]
            self.address = own_address(o, reached)
            self.reachable = bool(self.remote) or not is_loopback(self.address)
        self.encrypted = o.encrypt or bool(self.external) or (self.reachable and not o.insecure)
        if self.reachable and not self.encrypted:
            self.notes.append(f"warning: --insecure: the job listens at {self.address} and nothing is encrypted: who can read "
                              "that network can read the job's data, and who can change what it carries controls the job")

        if o.metrics_bind and not is_loopback(o.metrics_bind):
            self.notes.append(f"warning: --metrics-bind {o.metrics_bind}: who can reach that address can read the job's metrics, "
                              "which have the names of its hottest keys")

    def scheduler_bind(self):
        if self.external:
            return self.external.bind()
        return f"ipc://{self.sockets}/s" if self.uses_ipc() else f"tcp://{self.address}:*"

    def make_scheduler(self):
        o = self.options
        command = [os.path.join(self.framework, "start_scheduler"), "--bind", self.scheduler_bind(), "--job", self.id,
                   "--workers", str(o.wnum), "--servers", str(o.snum), "--heartbeat-limit", f"{o.heartbeat_limit:g}",
                   "--join-timeout", f"{o.join_timeout:g}", "--run-dir", self.run_dir, "--parent", str(os.getpid())]
        if o.heartbeat_interval != HEARTBEAT_INTERVAL:
            command += ["--heartbeat-interval", f"{o.heartbeat_interval:g}"]
        if o.replicas > 1:
            command += ["--replicas", str(o.replicas)]
        if o.hang_limit is not None:
            command += ["--hang-limit", f"{o.hang_limit:g}"]
        if o.elastic:
            command += ["--elastic"]
        if o.rebalance:
            command += ["--rebalance"]
        if o.on_worker_death != "abort":
            command += ["--on-worker-death", o.on_worker_death]
        command += self.checkpoints.flags(self.program) + self.metrics_flags()
        if self.external:
            command += ["--external", os.path.join(self.run_dir, SETTINGS)]
        child = Child("scheduler", 0, command + (["--insecure"] if o.insecure else []), self.log_of("scheduler", 0))
        return child if self.allocation is None else self.hosts.shield(child)

    def exports_metrics(self):
        return self.options.metrics_port is not None or self.options.metrics_file is not None

    def metrics_file(self):
        """The path; other jobs may have theirs in the same folder."""
        folder = self.options.metrics_file
        return os.path.join(os.path.abspath(folder), f"paracel_{self.id}.prom") if folder is not None else None

    def metrics_flags(self):
        o = self.options
        flags = ["--program", os.path.basename(self.program)] if self.exports_metrics() else []
        if o.metrics_port is not None:
            flags += ["--metrics-port", str(o.metrics_port)] + (["--metrics-bind", o.metrics_bind] if o.metrics_bind else [])
        return flags + (["--metrics-file", self.metrics_file()] if o.metrics_file is not None else [])

    def delivery(self):
        """(flag of start_server, value, variable of a worker, value) of each setting that is not the default."""
        o, unusual = self.options, []
        after = o.resend_after or min(RESEND_AFTER if o.drop_messages is None else 0.1, o.heartbeat_limit / 2)
        for flag, value, usual in (("heartbeat-interval", o.heartbeat_interval, HEARTBEAT_INTERVAL),
                                   ("resend-after", after, RESEND_AFTER)):
            if value != usual:
                variable = "PARACEL_" + flag.upper().replace("-", "_") + "_MS"
                unusual.append(("--" + flag, f"{value:g}", variable, str(round(value * 1000))))
        if o.drop_messages is not None:
            percent, seed = f"{o.drop_messages:g}", str(1 if o.seed is None else o.seed)
            unusual += [("--drop-messages", percent, "PARACEL_DROP_MESSAGES", percent),
                        ("--seed", seed, "PARACEL_DROP_SEED", seed)]
        return unusual

    def server_transport(self, threads):
        """Servers with replicas send each other messages for each batch of requests, which cost less than half without ZeroMQ's
        threads. Both kinds of sockets speak the same protocol, so workers keep theirs."""
        o = self.options
        if o.transport is not None:
            return o.transport
        return "unix" if o.replicas > 1 and self.uses_ipc() and not self.shared_connections(threads) else "zmq"

    def make_servers(self, address):
        o = self.options
        if self.external:
            return []
        if o.m_server == "mpi" and not o.may_change():
            # One mpirun starts faster than several (2 servers: 120 and 140 ms; 4: 140 and 205 ms), and terminates all ranks when
            # one dies.
            command = self.server_command(address, f"ipc://{self.sockets}", self.threads or "auto") + ["--slot", "auto"]
            traced = self.trace_environment()
            return [Child("server", None, self.mpirun("server", o.snum, traced) + command,
                          os.path.join(self.run_dir, "mpirun_servers.log"), {"TMPDIR": self.sockets + "/server", **traced}, True)]
        hosts = [self.places.take(slot) for slot in range(o.snum)]
        return [self.make_server(slot, address, 0, host) for slot, host in enumerate(hosts)]

    def make_server(self, slot, address, turn, host=None):
        """`turn`: the number of previous processes in this slot. `host`: where to start it, if that is known."""
        own = self.sockets if turn == 0 else f"{self.sockets}/s{slot}.{turn}"
        if self.options.m_server == "mpi":
            own = f"{self.sockets}/s{slot}.{turn}"  # for mpirun's files
        if turn != 0:
            self.remove_sockets(slot, turn - 1)
        if own != self.sockets and not self.options.dry_run:
            try:
                os.mkdir(own, 0o700)
            except OSError as error:
                raise Failure(FAILURE, f"cannot create {own} for sockets of server s{slot}: {error.strerror}") from None
        host = host or self.places.take(slot)
        threads = self.threads or self.threads_of.get(slot) or f"auto/{self.places.servers_at(host)}"
        command = self.server_command(address, f"ipc://{own}", threads)
        traced = self.trace_environment()
        if self.options.m_server == "mpi":
            return Child("server", slot, self.mpirun("server", 1, traced, host) + command + ["--slot", str(slot)],
                         os.path.join(self.run_dir, f"mpirun_server_{slot}.log"), {"TMPDIR": own, **traced}, True)
        if self.options.m_server in ("ssh", "slurm") and not self.hosts.is_here(host):
            child = Child("server", slot, command + ["--slot", str(slot)], self.log_of("server", slot), traced, host=host)
            return self.hosts.place(child, self.key_environment(False))
        child = Child("server", slot, command + ["--parent", str(os.getpid()), "--slot", str(slot)], self.log_of("server", slot),
                      traced)
        return child if self.allocation is None else self.hosts.shield(child)

    def trace_environment(self):
        """For servers and workers: src/net/trace_file.hpp."""
        o = self.options
        if not o.trace:
            return {}
        found = {"PARACEL_TRACE": self.run_dir}
        if o.trace_bytes:
            found["PARACEL_TRACE_BYTES"] = o.trace_bytes
        if o.trace_every:
            found["PARACEL_TRACE_EVERY"] = str(o.trace_every)
        return found

    def remove_sockets(self, slot, turn):
        """Removes the sockets of a process that is being replaced."""
        remove_folder(f"{self.sockets}/s{slot}.{turn}")
        if turn != 0:
            return
        try:
            for name in os.listdir(self.sockets):
                if name.startswith(f"{slot}_"):
                    os.unlink(os.path.join(self.sockets, name))
        except OSError:  # best effort
            pass

    def server_command(self, address, folder, threads):
        """The command without the slot. `folder`: for its sockets if all processes are on this host."""
        o = self.options
        if self.uses_ipc():
            bind = folder
        elif self.reachable:
            bind = "tcp://*:*"  # the server uses the interface towards the scheduler
        else:
            bind = "tcp://127.0.0.1:*"
        command = [os.path.join(self.framework, "start_server"), "--rendezvous", address, "--job", self.id,
                   "--threads", str(threads), "--bind", bind, "--plugin-dirs", ":".join(self.plugin_dirs),
                   "--function-timeout", ",".join(f"{name}={limit:g}" if name else f"{limit:g}"
                                                  for name, limit in o.function_timeout.items()),
                   "--heartbeat-limit", f"{o.heartbeat_limit:g}"]
        for flag, value, _, _ in self.delivery():
            command += [flag, value]
        if o.plugin_sandbox:
            command.append("--plugin-sandbox")
        if self.exports_metrics():
            command.append("--metrics")
        for name in SERVER_LIMITS:
            limit = getattr(o, name[2:].replace("-", "_"))
            if limit:
                command += [name, limit]
        over = self.server_transport(threads)
        command += ["--transport", over] if over != "zmq" else self.shared_connections(threads)
        if o.insecure:
            command.append("--insecure")
        return command

    def shared_connections(self, threads):
        """Flags for threads that share connections. Otherwise a server has a connection for each worker and thread, a worker one
        for each thread of each server."""
        o = self.options
        most = {"each": MOST_THREADS, "shared": 1, "auto": max(1, MOST_CONNECTIONS // max(o.wnum, o.snum))}[o.connections]
        if isinstance(threads, str):  # the server counts its cores itself
            return ["--share-connections-above", str(most)]
        return ["--shared-connections"] if threads > most else []

    def worker_environment(self, info):
        """What a worker must know, apart from which one it is. `info`: the job's address."""
        o = self.options
        # What MPI sends to other hosts is not encrypted: there mpirun only starts the workers, and their messages are ours.
        mode = "local" if o.method in ("ssh", "slurm") else o.method
        if self.external or o.method in ("mpi", "ssh", "slurm") and self.remote and not o.mpi_messages:
            mode = "spread"
        environment = {"PARACEL_RENDEZVOUS": info, "PARACEL_RUN_DIR": self.run_dir, "PARACEL_MODE": mode,
                       "PARACEL_HEARTBEAT_LIMIT_MS": str(round(o.heartbeat_limit * 1000))}
        environment.update((variable, value) for _, _, variable, value in self.delivery())
        if o.transport == "unix":
            environment["PARACEL_TRANSPORT"] = o.transport
        environment.update(self.trace_environment())
        if o.delivery == "fail":
            environment["PARACEL_DELIVERY"] = o.delivery
        environment.update((name, os.environ[name]) for name in WAYS if name in os.environ)
        if o.insecure:
            environment["PARACEL_INSECURE"] = "1"
        if o.max_message_bytes:
            environment["PARACEL_MAX_MESSAGE_BYTES"] = o.max_message_bytes
        return environment

    def make_workers(self, address):
        o = self.options
        if self.external:
            return []
        info = f"paracel1;{self.id};{address}"
        command = command_of(self.program) + o.arguments + ["--server_info", info]
        if o.cfg_file:
            command += ["--cfg_file", o.cfg_file, *overriding(o.set)]
        environment = self.worker_environment(info)
        if os.isatty(1):
            environment["PARACEL_PRINTS_TO_TERMINAL"] = "1"
        if o.method == "mpi":
            if not self.linked and not o.hostfile:
                command = dies_with_us(command)  # with mpirun
            return [Child("worker", None, self.mpirun("worker", o.wnum, environment) + command,
                          os.path.join(self.run_dir, "mpirun_workers.log"),
                          dict(environment, TMPDIR=self.sockets + "/worker"), True)]
        if o.worker_wait:
            environment["PARACEL_STATE_DIR"] = self.run_dir
        if o.on_worker_death == "eject":
            environment["PARACEL_EJECT"] = "1"
        if o.method in ("ssh", "slurm"):
            return self.make_ssh_workers(command, dict(environment, PARACEL_SIZE=str(o.wnum)))
        if not self.linked:
            command = dies_with_us(command)  # it does not request that itself
        environment.update(PARACEL_SIZE=str(o.wnum), PARACEL_PARENT=str(os.getpid()))
        return [Child("worker", rank, command, self.log_of("worker", rank), dict(environment, PARACEL_RANK=str(rank)))
                for rank in range(o.wnum)]

    def make_ssh_workers(self, command, environment):
        if self.reads_standard_input and not self.hosts.is_here(self.hosts.of_worker[0]):
            raise Failure(USAGE, f"{os.path.basename(self.program)} reads standard input, which worker 0 on "
                                 f"{self.hosts.of_worker[0]} has not got: want this host first in --hostfile, or under "
                                 "Slurm prun.py on the first node")
        workers = []
        for rank, host in enumerate(self.hosts.of_worker):
            here = self.hosts.is_here(host)
            mine = dict(environment, PARACEL_RANK=str(rank), **({"PARACEL_PARENT": str(os.getpid())} if here else {}))
            workers.append(self.hosts.place(
                Child("worker", rank, command if self.linked or not here else dies_with_us(command), self.log_of("worker", rank),
                      mine, host=host), self.key_environment(False)))
        return workers

    def mpirun(self, role, count, environment, host=None):
        """`host`: the host in the hostfile to start on."""
        import shutil
        hostfile = self.options.hostfile_server if role == "server" else self.options.hostfile
        path = shutil.which("mpirun")
        if path is None:
            raise Failure(USAGE, "-m mpi: mpirun is not installed (Debian: openmpi-bin)")
        # Several mpiruns are independent: without --bind-to none all would bind to the same cores, and in a shared session folder
        # one may remove what another is creating ("orte_session_dir failed"). TMPDIR sets that folder; the programs get their
        # original TMPDIR back.
        command = [path, "-np", str(count), "--tag-output", "--bind-to", "none",
                   "-x", "TMPDIR=" + os.environ.get("TMPDIR", "/tmp")]
        if role == "worker" and self.options.ppn:
            command += ["--map-by", f"ppr:{self.options.ppn}:node"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        if hostfile:
            command += ["--hostfile", os.path.abspath(hostfile)] + (["--host", host] if host else [])
        else:
            command.append("--oversubscribe")
            if role == "worker" and self.memory_folder is not None:
                command += ["--mca", "btl_vader_backing_directory", self.memory_folder.path]
            if shutil.which("ssh") is None and shutil.which("rsh") is None:
                command += ["--mca", "plm", "isolated"]
        for name in list(environment) + list(self.key_environment(True)) + [n for n in ("LD_LIBRARY_PATH",) if n in os.environ]:
            command += ["-x", name]
        # mpirun terminates its ranks on SIGTERM, which the kernel sends when this launcher is killed: once for each of its
        # threads, as they die one after the other. The second one makes mpirun exit at once, without its ranks. Therefore these
        # request a signal at its death.
        return dies_with_us(command, "TERM")

    def key_environment(self, mpirun):
        """The environment variable that gives a process the job's key. There is a key if other users can reach the sockets,
        because everyone can see the job's id in command lines. That of an encrypted job is only in files, on each of its hosts.
        Otherwise processes of mpirun, which may be unable to read this host's files, have it in their environment, which their
        owner alone can read, and mpirun's own connections."""
        if self.uses_ipc():
            return {}
        if self.encrypted:
            return {"PARACEL_JOB_KEY_FILE": self.key_file()}
        return {"PARACEL_JOB_KEY": self.key} if mpirun else {"PARACEL_JOB_KEY_FILE": os.path.join(self.run_dir, KEY)}

    def key_file(self):
        """The file with the key of an encrypted job, on any of its hosts."""
        return self.external and self.external.key or os.path.join(self.sockets, KEY)

    def described(self):
        o, program = self.options, self.program
        name = self.external.where if self.external else self.id
        return (f"job {name}: {number_of(o.snum, 'server')} ({o.m_server}), {number_of(o.wnum, 'worker')} ({o.method}): "
                f"{os.path.relpath(program) if program.startswith(os.getcwd()) else program}")

    def embedded_command(self):
        """The job in one process, for a debugger."""
        o = self.options
        config = ["--cfg_file", o.cfg_file, *overriding(o.set)] if o.cfg_file else []
        return command_of(self.program) + o.arguments + config

    def log_of(self, role, index):
        return os.path.join(self.run_dir, "scheduler.log" if role == "scheduler" else f"{role}_{index}.log")

    def open_log(self, path):
        return self.run_folder.open(os.path.basename(path), APPEND, 0o644)

    def make_folders(self):
        o = self.options
        self.run_dir = os.path.abspath(o.run_dir or os.path.join(
            o.output_dir, runs.FOLDER, f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"))
        if o.dry_run:
            self.sockets = "/tmp/prc-XXXXXX"
            return
        self.locks += self.checkpoints.lock()
        self.run_folder, self.run_lock = take_folder(self.run_dir, bool(o.run_dir),
                                                     "--run-dir" if o.run_dir else "--output-dir")
        if not self.uses_ipc() and not self.encrypted:
            self.key = os.urandom(8).hex()
            try:
                self.run_folder.write(KEY, self.key)
            except OSError as error:
                raise Failure(USAGE, f"{os.path.join(self.run_dir, KEY)} cannot be written: {error.strerror}") from None
        self.make_socket_folder()
        if self.external:
            self.external.make_key(self.sockets, KEY)
            self.run_folder.write(SETTINGS, self.external.settings(self))
        elif self.encrypted:
            self.make_encryption_key()

    def make_encryption_key(self):
        """Not in the run's folder, which may be on a disk that others share, and be kept or copied. Raises Failure."""
        key = os.urandom(32).hex()
        try:
            fd = os.open(self.key_file(), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(key)
        except OSError as error:
            raise Failure(FAILURE, f"{self.key_file()} cannot be written: {error.strerror}") from None
        if self.remote:
            from ..engines.key_holders import KeyHolders, agent_note
            carrier = None if self.allocation is None else Carrier(self.allocation)
            note = agent_note() if carrier is None else carrier.note()
            if note:
                self.notes.append(note)
            self.key_holders = KeyHolders(self.sockets, KEY, key, logins(self.options, self.remote), carrier)

    def key_holder_pids(self):
        return self.key_holders.pids() if self.key_holders is not None else []

    def lost_keys(self, pids):
        """A warning for each host that no longer keeps the key, because the process that held it there has ended."""
        return [f"warning: the connection that keeps the job's key on {host} has ended: a process that is started there "
                "from now on has no key, and cannot join; those that run are not affected"
                for host in (self.key_holders.ended(pids) if pids and self.key_holders is not None else ())]

    def key_note(self):
        """For the run's note: where `prun.py status` finds the key."""
        return {"key": self.key_file()} if self.encrypted else {}

    def make_socket_folder(self):
        self.socket_folder = SocketFolder()
        self.sockets = self.socket_folder.path
        for role, method in (("server", self.options.m_server), ("worker", self.options.method)):
            if method == "mpi":
                try:
                    os.mkdir(os.path.join(self.sockets, role), 0o700)
                except OSError as error:
                    raise Failure(FAILURE, f"cannot create a folder for mpirun in {self.sockets}: {error.strerror}") from None
        if self.options.method == "mpi" and not self.options.hostfile:
            try:
                self.memory_folder = SocketFolder(MEMORY)
            except Failure:  # then MPI chooses a place itself
                pass

    def print_dry_run(self):
        import shlex
        address = self.scheduler_bind()
        address = address.replace("*", "PORT") if address.startswith("tcp") else address
        for child in [self.make_scheduler()] + self.make_servers(address) + self.make_workers(address):
            environment = dict(self.key_environment(child.mpirun), **child.environment)
            words = [f"{k}={shlex.quote(v)}" for k, v in environment.items()] + [shlex.quote(w) for w in child.command]
            write_out(" ".join(words) + "\n")
        if self.external:
            self.external.key = self.key_file()
            write_out("\n".join(self.external.commands(self.options.snum, self.options.wnum,
                                                         self.options.log_format)) + "\n")

    def remove_kept(self):
        if self.options.worker_wait and self.run_lock is not None:
            remove_kept(self.run_folder)

    def remove_folders(self):
        if self.key_holders is not None:
            self.key_holders.end()
            self.key_holders = None
        if self.socket_folder is not None:
            self.socket_folder.remove()
            self.socket_folder = None
        if self.memory_folder is not None:
            self.memory_folder.remove()
            self.memory_folder = None
        if self.options.metrics_file is not None and not self.options.dry_run:
            remove_metrics(self.metrics_file())
        if self.key:
            try:
                self.run_folder.remove(KEY)
            except OSError:  # harmless: the job is over
                pass
        for lock in self.locks:
            lock.release()
        release_folder(self.run_folder, self.run_lock)
        if self.run_lock is not None and not self.options.run_dir:
            runs.sweep(os.path.dirname(self.run_dir), self.options.keep)

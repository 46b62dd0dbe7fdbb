# SPDX-License-Identifier: BSD-3-Clause
"""The command line."""
import os

from ..common.command_line import name_given, new_parser
from ..common.exit_status import MEANING, USAGE, Failure
from ..common.numbers import (MOST_BYTES, byte_count, bytes_of, percentage, port_number, positive, seconds, seconds_between,
                              whole_number)
from ..common.terminal import QUIET_PROGRESS

# Options of Paracel 0.3 that belong to Mesos and have no meaning without it.
NO_GROUPS = "groups belong to Mesos, which is not supported; the hosts of processes are listed in --hostfile"
GONE_OPTIONS = {
    "-g": NO_GROUPS,
    "--group": NO_GROUPS,
    "--group_server": NO_GROUPS + "_server",
    "--ppn_server": "Mesos is not supported; the hosts of servers are listed in --hostfile_server",
    "--mem_limit": "a limit of Mesos, which is not supported; limit workers with ulimit -v or a cgroup, servers with "
                   "--mem_limit_server",
}
MOST_REPLICAS = 8  # as membership::most_replicas
MOST_THREADS = 1024  # as membership::most_threads
HEARTBEAT_INTERVAL, RESEND_AFTER = 0.5, 1.0  # seconds, as in start_server and src/worker/job/session.hpp
LEAST_RESEND_AFTER = 0.01  # seconds; a reply takes up to a few milliseconds
MOST_DROPPED = 50  # percent, as in net/lossy_transport.cpp
LEAST_TRACE = 64 << 10  # bytes, as in src/net/trace_file.cpp
LEASE = 2.0  # seconds, of a server whose partitions have replicas or may move: server/start_server.cpp
# Limits of the servers, by the names of start_server's options.
SERVER_LIMITS = {
    "--max-memory": "memory limit for all keys and values of a server (default: none)",
    "--max-value-bytes": "largest value that a server accepts (default 256M)",
    "--max-message-bytes": "largest message of servers and workers (default 1G)",
    "--sandbox-memory": "memory limit of each process of --plugin-sandbox (default 4G)",
    "--max-unread-bytes": "unread replies that a server thread keeps for one worker, at most (default 1G)",
}


def parse_command_line(arguments):
    import argparse
    job_seconds = seconds_between(0.1, 1e6)

    class Gone(argparse.Action):
        def __call__(self, parser, namespace, values, option_string=None):
            parser.error(f"{self.option_strings[0]}: {GONE_OPTIONS[self.option_strings[0]]}")

    def resources(text):
        from ..engines.k8s import resources
        return resources(text)

    def function_seconds(text):
        """(name of a function, or None for all, seconds)"""
        name, equals, limit = text.rpartition("=")
        if equals and (not name or "," in name):
            raise argparse.ArgumentTypeError(f"{text!r}: want SECONDS, or libx.so:f=SECONDS for one function")
        return name or None, seconds(limit)

    # With an explicit width argparse does not import shutil to query the terminal.
    parser = new_parser(
        prog="prun.py",
        usage="prun.py [options] program [arguments of the program]\n       prun.py status --run RUN\n"
              "       prun.py tell --run RUN COMMAND [BODY]\n"
              "       prun.py --servers +1|-1 --run RUN\n       prun.py runs [--output-dir DIR] [--keep N]\n"
              "       prun.py top|report --run RUN\n       prun.py compare --run RUN --run RUN\n"
              "       prun.py export --run RUN --tensorboard DIR|--mlflow\n"
              "       prun.py trace --run RUN [--format chrome|perfetto]\n"
              "       prun.py checkpoint list|verify DIR\n"
              "       prun.py sweep CONFIG --grid KEY=A,B,C ... [options] program\n"
              "       prun.py join [options] server|worker [program [arguments]]\n"
              "       prun.py new FOLDER [--python]\n       prun.py doctor [--json]",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=118, max_help_position=30),
        description="Starts a Paracel job, watches it, and ends all of it.",
        epilog="exit status: " + ", ".join(f"{number} {word}" for number, word in MEANING.items())
               + "; a worker's own statuses 1 to 9 are passed on")
    add = parser.add_argument
    add("-w", "--wnum", type=positive(1 << 16), default=1, metavar="N", help="workers (default 1)")
    add("-p", "--snum", type=positive(4096), default=1, metavar="N", help="parameter servers (default 1)")
    add("--customers", type=positive(1024), default=1, metavar="N",
        help="of a program written for ps-lite: customers that each worker process starts (default 1)")
    add("--ps", action="store_true",
        help="the program is written for ps-lite: needed for a script that starts one; a program linked with libparacel_ps is "
             "recognised")
    add("-c", "--cfg_file", default="", metavar="FILE", help="the program's config, JSON")
    add("--set", action="append", default=[], type=override, metavar="KEY=VALUE",
        help="replaces a key of the config; VALUE is JSON, or else a text (alpha=0.5, output=/tmp/out); may be repeated")
    add("-m", "--method", default="local", metavar="local|mpi|ssh|slurm|k8s|external",
        help="how workers are started (default local); k8s: print manifests for Kubernetes, and start nothing; external: not by "
             "prun.py, but by anything that runs prun.py join")
    add("--m_server", default=None, metavar="local|mpi|ssh|slurm", help="how servers are started (default: as the workers)")
    add("--rendezvous", default="", metavar="HOST:PORT#JOB",
        help="of -m external: where the scheduler is reached, and which job it is (default: PARACEL_RENDEZVOUS, or else a free "
             "port of --host or 127.0.0.1)")
    add("--hostfile", default="", metavar="FILE", help="Open MPI's hostfile for the workers, also of -m ssh")
    add("--hostfile_server", default="", metavar="FILE", help="the same for the servers (default: --hostfile)")
    add("--ppn", type=positive(1 << 16), default=0, metavar="N",
        help="workers on a host, at most: with -m mpi mpirun's --map-by ppr:N:node (with local all are on this one)")
    add("--mem_limit_server", type=positive(MOST_BYTES >> 20), default=0, metavar="MB",
        help="0.3's name of --max-memory, in megabytes")
    add("--replicas", type=positive(1 << 30), default=1, metavar="R",
        help="replicas of every parameter, on R servers: up to R - 1 of them may die at once (default 1)")
    add("--elastic", action="store_true",
        help="servers may join and leave while the job runs (prun.py --servers +1 --run RUN); with --replicas above 1 they "
             "always may")
    add("--rebalance", action="store_true",
        help="partitions that are asked for much move to servers with less to do while the job runs, when the measured load says "
             "that this pays; implies --elastic")
    add("--max-restarts", type=whole_number, default=3, metavar="N",
        help="how many dead servers (with --replicas above 1) and workers (with --on-worker-death wait:T) are replaced, at most, "
             "in the whole run (default 3)")
    add("--on-worker-death", default="abort", metavar="abort|eject|wait:T",
        help="eject: the others continue without a dead worker, unless it is worker 0; wait:T: they wait for a replacement, at "
             "most T seconds (default abort; eject with -m local only, wait:T not with -m mpi)")
    add("--threads", type=positive(MOST_THREADS), default=None, metavar="N",
        help="shard threads of each server (default: the cores that it may use, divided among the servers of its host)")
    add("--connections", choices=("auto", "each", "shared"), default="auto",
        help="connections of a client to the threads of a server: one each, which is faster, or a shared one, which large jobs "
             "need; auto: shared if a process would otherwise have more than 256 of them (default auto)")
    add("--output-dir", type=name_given, default=".", metavar="DIR",
        help="where to create the folder paracel_runs/ for the logs (default .)")
    add("--run-dir", type=name_given, default=None, metavar="DIR",
        help="the folder for the logs, instead of one below paracel_runs/")
    add("--keep", type=positive(1 << 20), default=20, metavar="N",
        help="when the job has ended, remove the folders of finished runs below paracel_runs/ except the N newest "
             "(default 20)")
    add("--progress-every", type=seconds_between(0.1, 1e6), default=QUIET_PROGRESS, metavar="SECONDS",
        help="time between lines of progress where standard error is no terminal (default 2)")
    add("--timeout", type=seconds, default=None, metavar="SECONDS", help="end the job after this time, with status 12")
    add("--heartbeat-limit", type=job_seconds, default=3.0, metavar="SECONDS",
        help="silence after which a process counts as lost, at least two heartbeats; three times as long for the scheduler "
             "(default 3)")
    add("--heartbeat-interval", type=job_seconds, default=HEARTBEAT_INTERVAL, metavar="SECONDS",
        help="time from one heartbeat of a process to the next (default 0.5)")
    add("--resend-after", type=seconds, default=None, metavar="SECONDS",
        help="time after which a process checks whether a late reply, or its request, was lost with its connection; lost "
             "messages are sent again (default 1; with --drop-messages 0.1)")
    add("--delivery", choices=("resend", "fail"), default="resend",
        help="requests lost with a broken connection to a server are sent again, or end the job; fail makes each request a "
             "little faster (default resend; fail: without replicas only)")
    add("--transport", choices=("zmq", "unix"), default=None,
        help="between servers and workers of one host: ZeroMQ, or unix, which reads and writes the same sockets without "
             "ZeroMQ's thread and is faster (default zmq; with --replicas 2 or more, servers use unix and workers zmq)")
    add("--drop-messages", type=percentage(MOST_DROPPED), default=None, metavar="P",
        help="disturb P percent of the messages between processes: a third of these are lost, a third arrive twice, a third "
             "are delayed. The results must not change")
    add("--seed", type=whole_number, default=None, metavar="S", help="which messages --drop-messages chooses (default 1)")
    add("--join-timeout", type=job_seconds, default=None, metavar="SECONDS",
        help="time within which all processes must have joined the job (default 60, with -m external 600)")
    add("--function-timeout", type=function_seconds, action="append", default=[], metavar="[FUNCTION=]SECONDS",
        help="report a user function that runs longer in a server, or with --plugin-sandbox stop it (default 30); libx.so:f=2: "
             "for one function")
    add("--plugin-sandbox", action="store_true",
        help="run user functions in separate processes: if one crashes, exits, exhausts its memory or exceeds "
             "--function-timeout, its request fails and the server continues")
    add("--hang-limit", type=job_seconds, default=None, metavar="SECONDS",
        help="treat a server whose user function runs longer as lost (default: wait for it)")
    for name, meaning in SERVER_LIMITS.items():
        add(name, type=byte_count, default=None, metavar="BYTES", help=meaning)
    add("--checkpoint-dir", type=name_given, default=None, metavar="DIR",
        help="write checkpoints there, on SIGUSR1 and with --checkpoint-every")
    add("--checkpoint-every", type=positive(1 << 30), default=0, metavar="N",
        help="write a checkpoint every N iterations of the workers")
    add("--checkpoint-keep", type=positive(1 << 20), default=None, metavar="K",
        help="number of checkpoints to keep (default 3)")
    add("--checkpoint-wait", type=job_seconds, default=None, metavar="SECONDS",
        help="abandon a checkpoint when a worker arrives this much later than the first (default 300)")
    add("--resume", type=name_given, default=None, metavar="DIR",
        help="resume from the newest valid checkpoint in DIR, or from DIR itself if it is one; later checkpoints are written "
             "there too unless --checkpoint-dir is given")
    add("--resume-newest", action="store_true",
        help="resume from the newest valid checkpoint in --checkpoint-dir, if there is one: for what starts a job again")
    add("--plugin-dir", action="append", default=[], metavar="DIR",
        help="another folder from which servers may load plug-ins; the folders of update_file, filter_file and handle_file are "
             "always allowed")
    add("--sbatch", default=None, metavar="OPTIONS",
        help="-m slurm: submit the job with these options of sbatch ('' if none are needed), instead of running it in an "
             "allocation")
    add("--requeue", action="store_true",
        help="-m slurm: at the time limit, or when a worker or server is lost, go back into the queue, and then resume from the "
             "last checkpoint")
    add("--before-limit", type=job_seconds, default=120.0, metavar="SECONDS",
        help="-m slurm: how long before the time limit a signal counts as that of the limit; --sbatch asks for it then (default "
             "120)")
    add("--host", default="", metavar="ADDRESS",
        help="this host's address, or a name for it, for other hosts (default: found from --hostfile)")
    add("--bind-interface", default="", metavar="NAME", help="network interface whose address that is")
    add("--encrypt", action="store_true",
        help="encrypt connections, and admit no process but the job's own, on one host, too; what other hosts can reach always "
             "is, unless --insecure")
    add("--insecure", action="store_true", help="communicate with other hosts without encryption")
    add("--mpi-messages", action="store_true",
        help="-m mpi: workers exchange messages through MPI with other hosts, too, for networks that it drives better than tcp "
             "(InfiniBand); requires --insecure, because MPI does not encrypt. On one host they always do")
    add("--image", default="", metavar="IMAGE", help="with -m k8s: the image of the pods; tool/k8s/Containerfile makes one")
    add("--jobset", action="store_true", help="with -m k8s: print a JobSet instead of three Jobs and a Service")
    add("--name", default="", metavar="NAME", help="with -m k8s: the job's name (default: the program's and a number)")
    add("--volume", default="", metavar="CLAIM",
        help="with -m k8s: the PersistentVolumeClaim with input, output and checkpoints (default: print one of 10Gi)")
    add("--resources", type=resources, action="append", default=[], metavar="[ROLE=]CPUS:MEMORY",
        help="with -m k8s: of each server and worker, or of one role: scheduler, server, worker (default 1:4G)")
    add("--no-summary", action="store_true", help="say nothing at the end about the run as a whole, and write no report")
    add("--report", action="store_true",
        help="write report.html, with the curves of the run, into the folder of its logs; after a failure it is always written")
    add("--log-format", choices=("text", "json"), default="text",
        help="json: each line of the logs, and of what prun.py says on standard error, is a JSON object with time, level, role, "
             "index, run and message (default text)")
    add("--metrics-port", type=port_number, default=None, metavar="PORT",
        help="serve the job's metrics for Prometheus at http://127.0.0.1:PORT/metrics while it runs; 0: a free port, which is "
             "printed")
    add("--metrics-bind", default=None, metavar="ADDRESS",
        help="the address of this host at which --metrics-port listens (default 127.0.0.1: for this host alone); what is read "
             "there is not encrypted")
    add("--metrics-file", type=name_given, default=None, metavar="DIR",
        help="keep the metrics in a file in DIR while the job runs, for the textfile collector of node_exporter")
    add("--trace", action="store_true",
        help="record into the folder of the logs when each process did what, for prun.py trace")
    add("--trace-bytes", type=byte_count, default=None, metavar="BYTES",
        help="what is recorded of each thread, at most; the rest is counted (default 32M)")
    add("--trace-every", type=positive((1 << 32) - 1), default=None, metavar="N",
        help="record one in N of the requests that are sent while four or more others are unanswered (default 16; 1: all)")
    add("--dry-run", action="store_true", help="print what would be started, and start nothing")
    add("-v", "--verbose", action="store_true", help="print commands and events")
    for name in GONE_OPTIONS:
        add(name, nargs="?", action=Gone, help=argparse.SUPPRESS)
    add("program", help=argparse.SUPPRESS)
    add("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    options = parser.parse_args(arguments)
    if options.m_server is None:
        options.m_server = options.method
    for name, value in (("-m", options.method), ("--m_server", options.m_server)):
        if value not in ("local", "mpi", "ssh", "slurm", "k8s", "external") or value == "k8s" != options.method:
            parser.error(f"{name} {value}: want local, mpi, ssh, slurm, external or (-m only) k8s" +
                         ("; Mesos is not supported" if value == "mesos" else ""))
    if not options.hostfile_server:
        options.hostfile_server = options.hostfile
    for name, value, method in (("--hostfile", options.hostfile, options.method),
                                ("--hostfile_server", options.hostfile_server, options.m_server)):
        if value and not {"mpi", "ssh"} & {options.method, options.m_server}:
            parser.error(f"{name} requires -m mpi or ssh")
        if value and not os.access(value, os.R_OK):
            parser.error(f"{name} {value}: cannot be read")
    if options.mem_limit_server:
        if options.max_memory:
            parser.error("--mem_limit_server and --max-memory are the same limit: give one")
        options.max_memory = f"{options.mem_limit_server}M"
    options.elastic |= options.rebalance
    options.may_change = lambda: options.replicas > 1 or options.elastic
    options.worker_wait = 0.0
    if options.on_worker_death.startswith("wait:"):
        try:
            options.worker_wait = job_seconds(options.on_worker_death[5:])
        except argparse.ArgumentTypeError as error:
            parser.error(f"--on-worker-death {options.on_worker_death}: {error}")
    elif options.on_worker_death not in ("abort", "eject"):
        parser.error(f"--on-worker-death {options.on_worker_death}: want abort, eject or wait:T")
    if options.on_worker_death != "abort" and options.method == "mpi":
        parser.error(f"--on-worker-death {options.on_worker_death}: MPI cannot continue after losing a rank, so with -m mpi a "
                     "worker's death ends the job")
    if options.on_worker_death == "eject" and options.method in ("ssh", "slurm"):
        parser.error(f"--on-worker-death eject: with -m {options.method} a worker on a host that falls silent may still be "
                     "alive, and would take part again later: want abort or wait:T")
    check_times(parser, options)
    options.function_timeout = {None: 30.0, **dict(options.function_timeout)}
    longest = max(options.function_timeout.values())
    if options.hang_limit is not None and options.hang_limit < longest:
        parser.error(f"--hang-limit {options.hang_limit:g}: want at least --function-timeout, {longest:g} s: a function is "
                     "checked only after that time")
    for name in ("bytes", "every"):
        if getattr(options, "trace_" + name) is not None and not options.trace:
            parser.error(f"--trace-{name} requires --trace")
    if options.trace_bytes and bytes_of(options.trace_bytes) < LEAST_TRACE:
        parser.error(f"--trace-bytes {options.trace_bytes}: want at least 64K")
    if options.sandbox_memory and not options.plugin_sandbox:
        parser.error("--sandbox-memory requires --plugin-sandbox")
    for name, otherwise in (("every", 0), ("keep", 3), ("wait", 300.0)):
        value = getattr(options, "checkpoint_" + name)
        if value and not (options.checkpoint_dir or options.resume):
            parser.error(f"--checkpoint-{name} requires --checkpoint-dir or --resume")
        setattr(options, "checkpoint_" + name, value or otherwise)
    if options.resume_newest and (options.resume or not options.checkpoint_dir):
        parser.error("--resume-newest requires --checkpoint-dir, and no --resume")
    if options.replicas > min(options.snum, MOST_REPLICAS):
        parser.error(f"--replicas {options.replicas}: want at most {MOST_REPLICAS}" if options.replicas > MOST_REPLICAS else
                     f"--replicas {options.replicas} needs as many servers, and there "
                     f"{'is' if options.snum == 1 else 'are'} {options.snum} (-p)")
    check_slurm(parser, options)
    if options.metrics_bind is not None and options.metrics_port is None:
        parser.error("--metrics-bind requires --metrics-port")
    if options.metrics_file is not None and options.method != "k8s":  # otherwise it is a folder of the volume
        if not os.path.isdir(options.metrics_file):
            parser.error(f"--metrics-file {options.metrics_file}: no such folder")
        if not os.access(options.metrics_file, os.W_OK | os.X_OK):
            parser.error(f"--metrics-file {options.metrics_file}: no permission to write there")
    if options.host and options.bind_interface:
        parser.error("--host and --bind-interface both name this host's address: give one")
    if options.encrypt and options.insecure:
        parser.error("--encrypt and --insecure exclude each other")
    if options.mpi_messages and not (options.method == "mpi" and options.insecure):
        parser.error("--mpi-messages: what MPI sends is not encrypted: want -m mpi --insecure, too")
    external = options.method == "external"
    if external != (options.m_server == "external"):
        parser.error("-m external: want --m_server external, too: nothing is started but the scheduler")
    if options.rendezvous and not external:
        parser.error("--rendezvous requires -m external")
    if external and options.insecure:
        parser.error("--insecure: with -m external jobs are encrypted")
    if external and options.on_worker_death == "eject":
        parser.error("--on-worker-death eject: with -m external nobody reports that a worker is dead: want abort or wait:T")
    if options.join_timeout is None:
        options.join_timeout = 600.0 if external else 60.0
    if "k8s" in (options.method, options.m_server):
        from ..engines.k8s import check_options
        check_options(parser, options, arguments)
    elif options.image or options.jobset or options.name or options.volume or options.resources:
        parser.error("--image, --jobset, --name, --volume and --resources require -m k8s")
    if "ssh" in (options.method, options.m_server):
        if options.insecure:
            parser.error("--insecure: with -m ssh jobs are encrypted: ssh brings the key")
        if options.ppn:
            parser.error("--ppn: with -m ssh the slots of --hostfile say how many workers a host has")
        if not options.hostfile_server or (options.method == "ssh" and not options.hostfile):
            parser.error("-m ssh requires --hostfile")
    return options


def check_slurm(parser, options):
    used = "slurm" in (options.method, options.m_server)
    for name, given in (("--sbatch", options.sbatch is not None), ("--requeue", options.requeue)):
        if given and not used:
            parser.error(f"{name} requires -m slurm")
    if options.requeue and not (options.checkpoint_dir or options.resume):
        parser.error("--requeue requires --checkpoint-dir: the job resumes from there")
    if not used:
        return
    if {"mpi", "ssh"} & {options.method, options.m_server}:
        parser.error(f"-m {options.method} --m_server {options.m_server}: want slurm or local for both")
    if options.ppn:
        parser.error("--ppn: with -m slurm the allocation says how many workers a node has (sbatch --ntasks-per-node)")
    from .checkpoints import holds_checkpoints
    if options.requeue and options.checkpoint_dir and os.environ.get("SLURM_RESTART_COUNT", "0") != "0" and \
            holds_checkpoints(options.checkpoint_dir):
        options.resume = options.checkpoint_dir


def override(text):
    """The type of --set."""
    if not text.partition("=")[0] or "=" not in text:
        import argparse
        raise argparse.ArgumentTypeError(f"found {text!r}, want KEY=VALUE")
    return text


def take_config(options, publishes=False):
    """`program --cfg_file FILE --set KEY=VALUE`, as the program itself takes them outside a job, are the same as -c FILE and
    --set. `publishes`: whether it has a schema; another program may mean something else by --set. Raises Failure."""
    words, rest = options.arguments, []
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        if publishes and name in ("--set", "-set") and at + (not equals) < len(words):
            options.set.append(value if equals else words[at + 1])
            at += 1 if equals else 2
            continue
        if name not in ("--cfg_file", "-cfg_file") or not equals and at + 1 == len(words):
            rest.append(words[at])
            at += 1
            continue
        if not equals:
            value = words[at + 1]
        at += 1 if equals else 2
        if options.cfg_file and options.cfg_file != value:
            raise Failure(USAGE, f"two configs: {options.cfg_file} and {value}; want one, as -c FILE before the program or "
                                 "--cfg_file FILE after it")
        options.cfg_file = value
    options.arguments = rest


def check_times(parser, options):
    """Checks the times of heartbeats and of lost messages, which depend on each other."""
    limit, interval, after = options.heartbeat_limit, options.heartbeat_interval, options.resend_after
    if limit < 2 * interval:
        least = f"{2 * interval:g} second" + ("" if 2 * interval == 1 else "s")
        parser.error(f"argument --heartbeat-limit: {limit:g}: want at least {least}: processes send a heartbeat every "
                     f"{interval:g} s, and one may be late (--heartbeat-interval)")
    if options.may_change() and interval > LEASE / 2:
        parser.error(f"argument --heartbeat-interval: {interval:g}: want at most {LEASE / 2:g}: with --replicas 2 or --elastic "
                     f"heartbeats renew the lease of a server, {LEASE:g} s, and one may be late")
    if after is not None and after < LEAST_RESEND_AFTER:
        parser.error(f"argument --resend-after: {after:g}: want at least {LEAST_RESEND_AFTER:g} seconds: even replies "
                     "that are on time would be checked")
    if after is not None and after >= limit:
        parser.error(f"argument --resend-after: {after:g}: want less than --heartbeat-limit, {limit:g} s: a process that is "
                     "silent for that long counts as lost before anything is sent again")
    if options.delivery == "fail":
        for name, given in (("--replicas 2 or more", options.replicas > 1), ("--rebalance", options.rebalance),
                            ("--elastic", options.elastic), ("--drop-messages", options.drop_messages is not None)):
            if given:
                parser.error(f"--delivery fail: with {name} lost messages have to be sent again")
    if options.transport == "unix":
        for name, given in (("--connections shared", options.connections == "shared"), ("--encrypt", options.encrypt),
                            ("--host", options.host), ("--bind-interface", options.bind_interface)):
            if given:
                parser.error(f"--transport unix: not with {name}: it has one connection a thread, over sockets of this host")
    if options.seed is not None and options.drop_messages is None:
        parser.error("--seed requires --drop-messages")

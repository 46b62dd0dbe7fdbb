# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py doctor`: what this machine lacks for running jobs, and what to do. Each check is a function that returns (state, what
was found, what to do): OK; NOTE and WARNING, with which jobs run, but perhaps not all or not as fast; PROBLEM, with which they do
not."""
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from ..common.command_line import new_parser
from ..common.exit_status import FAILURE, OK as STATUS_OK, Failure, words_of
from ..common.output import write_out
from ..common.printable import in_a_line
from ..engines.hosts import usable_cores
from ..folders.socket_folder import BASE, MEMORY
from ..programs.program import find_framework, own_folders

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"
FEW_DESCRIPTORS, MANY_DESCRIPTORS = 256, 4096
LITTLE_MEMORY = 64 << 20      # bytes of /dev/shm, Docker's default
LITTLE_DISK = 64 << 20
SLOW_CONNECT = 0.001          # seconds on loopback; usually 0.00005
SLOW_NAME = 1.0               # seconds of a look-up
SLOW_CLOCK = 1e-6             # seconds of a look at the clock; usually 0.00000005, with a system call ten times that
COMMAND_LIMIT = 20.0          # seconds
FEW_PORTS = 1000
FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")


def first_line(path):
    """Of a file of the system, or None."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return None


def megabytes(count):
    return f"{count / 2**20:.0f} MB" if count < 10 << 30 else f"{count / 2**30:.0f} GB"


def output_of(*command):
    """(status or None, its output) of a command."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=COMMAND_LIMIT, check=False)
        return done.returncode, done.stdout.decode("utf-8", "replace").strip()
    except subprocess.TimeoutExpired:
        return None, f"no end after {COMMAND_LIMIT:.0f} s"
    except OSError as error:
        return None, words_of(error)


def check_python():
    found = ".".join(map(str, sys.version_info[:3]))
    return (OK, found, "") if sys.version_info >= (3, 9) else (PROBLEM, found, "want Python 3.9 or newer for prun.py")


def check_framework():
    """Whether its programs are there and find their libraries."""
    try:
        folder = find_framework(os.path.join(own_folders()[0], "none"))
    except Failure as failure:
        return PROBLEM, str(failure), "build it (README.md), or name its folder in PARACEL_FRAMEWORK"
    for name, word in (("start_scheduler", "--print_config=/"), ("start_server", "--version"), ("send_request", "--version")):
        status, said = output_of(os.path.join(folder, name), word)
        if status != 0:
            return PROBLEM, f"{folder}/{name}: {last_line(said) or f'status {status}'}", \
                "install the libraries that it needs (tool/setup.sh), or build it on this kind of machine"
    return OK, folder, ""


def last_line(text):
    return text.splitlines()[-1] if text else ""


def check_system():
    name = os.uname()
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    found = f"{name.sysname} {name.release}, {name.machine}, {libc or 'another C library'}"
    if name.sysname != "Linux" or libc is None:
        return PROBLEM, found, "want Linux with glibc"
    return OK, found, ""


def check_cores():
    cores = usable_cores()
    return OK, f"{cores} usable of {os.cpu_count()}", ""


def check_memory():
    facts = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            facts[name] = int(rest.split()[0]) << 10
    free, limit = facts.get("MemAvailable", 0), memory_limit()
    found = f"{megabytes(free)} free of {megabytes(facts['MemTotal'])}"
    if limit is not None and limit < facts["MemTotal"]:
        found += f", the control group may use {megabytes(limit)}"
    if min(free, limit or free) < 256 << 20:
        return WARNING, found, "end other processes, or raise the limit of the container"
    return OK, found, ""


def memory_limit():
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = first_line(path)
        if text and text.isdigit():
            return int(text)
    return None


def check_descriptors():
    """The programs raise their soft limit to the hard one."""
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    found = f"{soft} for this shell, {text} at most"
    advice = "raise the hard limit: ulimit -Hn (as root), /etc/security/limits.conf, or docker run --ulimit nofile=65536"
    if hard != resource.RLIM_INFINITY and hard < FEW_DESCRIPTORS:
        return PROBLEM, found, advice
    if hard != resource.RLIM_INFINITY and hard < MANY_DESCRIPTORS:
        return WARNING, found, "enough for some dozens of processes; " + advice
    return OK, found, ""


def check_limits():
    """Other limits of ulimit."""
    import resource
    low, said = [], []
    for name, number, flag, least in (("address space", resource.RLIMIT_AS, "-v", 4 << 30),
                                      ("processes and threads", resource.RLIMIT_NPROC, "-u", 512),
                                      ("file size", resource.RLIMIT_FSIZE, "-f", 1 << 30),
                                      ("processor time", resource.RLIMIT_CPU, "-t", 86400)):
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            said.append(f"{name} {soft}")
            if soft < least:
                low.append(f"ulimit {flag} unlimited")
    pids = first_line("/sys/fs/cgroup/pids.max")
    if pids and pids.isdigit():
        said.append(f"processes of the control group {pids}")
        if int(pids) < 256:
            low.append("docker run --pids-limit -1")
    found = ", ".join(said) or "none"
    return (WARNING, found, "raise what is low: " + "; ".join(low)) if low else (OK, found, "")


def check_core_files():
    import resource
    soft, _ = resource.getrlimit(resource.RLIMIT_CORE)
    pattern = first_line("/proc/sys/kernel/core_pattern") or "?"
    if soft == 0:
        return NOTE, "a process that crashes leaves none", "ulimit -c unlimited, if you want to look at one with gdb"
    return OK, f"written as {pattern}", ""


def check_sockets():
    """Unix sockets in BASE, where those of a job on one host are."""
    try:
        folder = tempfile.mkdtemp(prefix="prc-doctor-", dir=BASE)
    except OSError as error:
        return PROBLEM, f"no folder can be made in {BASE}: {error.strerror}", \
            f"make {BASE} writable (chmod 1777 {BASE}), or free its disk"
    try:
        took = connect_time(socket.AF_UNIX, os.path.join(folder, "s"))
    except OSError as error:
        return PROBLEM, f"{folder}: {error.strerror}", f"{BASE} must be a file system that has Unix sockets"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return OK, f"{took * 1e6:.0f} us for a connection in {BASE}", ""


def check_ports():
    """TCP on loopback: jobs on several hosts, and those of mpirun."""
    try:
        took = connect_time(socket.AF_INET, ("127.0.0.1", 0))
    except OSError as error:
        return PROBLEM, f"127.0.0.1: {words_of(error)}", "bring up the loopback interface: ip link set lo up"
    low, high = map(int, (first_line("/proc/sys/net/ipv4/ip_local_port_range") or "32768 60999").split())
    found = f"{took * 1e6:.0f} us for a connection to 127.0.0.1, {high - low + 1} free ports from {low}"
    if high - low < FEW_PORTS:
        return WARNING, found, "sysctl net.ipv4.ip_local_port_range='32768 60999'"
    if took > SLOW_CONNECT:
        return WARNING, found, "slow: is the machine overloaded, or does a firewall look at loopback?"
    return OK, found, ""


def connect_time(family, address):
    """The median of some connections, in seconds. Raises OSError."""
    times = []
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)
        server.listen()
        for _ in range(50):
            begin = time.perf_counter()
            with socket.socket(family, socket.SOCK_STREAM) as client:
                client.settimeout(5)
                client.connect(server.getsockname())
                times.append(time.perf_counter() - begin)
                server.accept()[0].close()
    return statistics.median(times)


def check_shared_memory():
    """For mpirun's ranks and the Python package; workers of -m local share memory without a file system."""
    try:
        about = os.statvfs(MEMORY)
        with tempfile.NamedTemporaryFile(dir=MEMORY, prefix="prc-doctor-") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
    except OSError as error:
        return WARNING, f"{MEMORY}: {error.strerror}", f"needed by -m mpi: mount -t tmpfs tmpfs {MEMORY}; chmod 1777 {MEMORY}"
    size, free = about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize
    found = f"{megabytes(free)} free of {megabytes(size)} in {MEMORY}"
    if free < LITTLE_MEMORY:
        return WARNING, found, f"enlarge it: mount -o remount,size=1G {MEMORY}, or docker run --shm-size=1g"
    if size <= LITTLE_MEMORY:
        return NOTE, found, "little for -m mpi with large messages: docker run --shm-size=1g"
    return OK, found, ""


def check_disk():
    about = os.statvfs(".")
    free = about.f_bavail * about.f_frsize
    if not os.access(".", os.W_OK):
        return NOTE, "the current folder is not writable", "name another place for logs: --output-dir DIR"
    found = f"{megabytes(free)} free for logs in the current folder"
    return (WARNING, found, "free some, or name another place: --output-dir DIR") if free < LITTLE_DISK else (OK, found, "")


def check_clock():
    source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "?"
    begin = time.perf_counter()
    for _ in range(10000):
        time.monotonic()
    each = (time.perf_counter() - begin) / 10000
    found = f"{source}, {each * 1e9:.0f} ns a look, {'' if is_synchronised() else 'not '}synchronised"
    if time.time() < 1.6e9:
        return WARNING, found + f", and the year is {time.gmtime().tm_year}", "set the clock: names of runs are times"
    if each > SLOW_CLOCK:
        return WARNING, found, "a slow clock source: " + ("is tsc available? " if source not in FAST_CLOCKS else "")  \
            + "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"
    return OK, found, ""


def is_synchronised():
    """Whether the kernel believes so. Jobs do not need it; logs of several hosts are easier to read with it."""
    import ctypes
    buffer = ctypes.create_string_buffer(512)  # struct timex, whose modes are 0: look only
    try:
        return ctypes.CDLL(None).adjtimex(buffer) not in (-1, 5)
    except (OSError, AttributeError):
        return False


def check_hostname():
    name = socket.gethostname()
    begin = time.monotonic()
    try:
        address = socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0]
        found, problem = f"{name} is {address}", ""
    except OSError as error:
        found, problem = f"{name}: {words_of(error)}", f"add it to /etc/hosts: 127.0.1.1 {name}"
    took = time.monotonic() - begin
    if problem:
        return NOTE, found, "-m mpi may be slow or fail; " + problem
    if took > SLOW_NAME:
        return WARNING, f"{found}, after {took:.1f} s", f"a slow name server: add it to /etc/hosts: {address} {name}"
    return OK, found, ""


def check_mpi():
    path = shutil.which("mpirun")
    if path is None:
        return NOTE, "no mpirun", "only for -m mpi: apt-get install openmpi-bin"
    status, said = output_of(path, "--version")
    if status != 0 or "Open MPI" not in said:
        return WARNING, f"{path}: {last_line(said)}", \
            "-m mpi wants Open MPI 4: apt-get install openmpi-bin, and put it first on PATH"
    version = said.splitlines()[0].split()[-1]
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    isolated = [] if shutil.which("ssh") or shutil.which("rsh") else ["--mca", "plm", "isolated"]
    begin = time.monotonic()
    status, said = output_of(path, *as_root, *isolated, "--oversubscribe", "-np", "2", "true")
    if status != 0:
        return WARNING, f"Open MPI {version}, but it does not start two processes: {last_line(said)}", \
            "only for -m mpi: mpirun -np 2 true must work"
    return OK, f"Open MPI {version}, two processes in {time.monotonic() - begin:.1f} s", ""


def check_remote_shell():
    if shutil.which("ssh") is None:
        return NOTE, "no ssh", "only for other hosts (--hostfile): apt-get install openssh-client"
    return OK, shutil.which("ssh"), ""


def check_sandbox():
    """What --plugin-sandbox needs: system call filters."""
    actions = first_line("/proc/sys/kernel/seccomp/actions_avail")
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        facts = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    mode = {"0": "none", "1": "strict", "2": "a filter"}.get(facts.get("Seccomp", "?"), "?")
    if actions is None:
        return WARNING, "the kernel has no system call filters", \
            "--plugin-sandbox does not work: want a kernel with CONFIG_SECCOMP_FILTER"
    return OK, f"system call filters can be made; on this process: {mode}", ""


def check_debugger():
    scope = first_line("/proc/sys/kernel/yama/ptrace_scope")
    tools = [name for name in ("gdb", "addr2line") if shutil.which(name) is None]
    found = f"ptrace {'of any process of yours' if scope in (None, '0') else f'restricted (ptrace_scope {scope})'}"
    if tools:
        return NOTE, f"{found}; no {' and no '.join(tools)}", \
            f"for looking into crashes: apt-get install {' '.join('binutils' if n == 'addr2line' else n for n in tools)}"
    if scope not in (None, "0", "1"):
        return NOTE, found, "gdb -p works for root only: sysctl kernel.yama.ptrace_scope=1"
    return OK, found, ""


def check_children():
    """By setpriv processes of other programs end with the launcher; /proc must be that of all processes of the user."""
    if not os.path.isdir(f"/proc/{os.getpid()}"):
        return PROBLEM, "/proc is not mounted", "mount -t proc proc /proc"
    if not os.access("/usr/bin/setpriv", os.X_OK):
        return WARNING, "no /usr/bin/setpriv", "programs that are not linked with the framework outlive a killed prun.py: " \
            "apt-get install util-linux"
    return OK, "/proc, setpriv", ""


CHECKS = {"system": check_system, "python": check_python, "framework": check_framework, "cores": check_cores,
          "memory": check_memory, "descriptors": check_descriptors, "limits": check_limits, "core files": check_core_files,
          "sockets": check_sockets, "ports": check_ports, "shared memory": check_shared_memory, "disk": check_disk,
          "clock": check_clock, "host name": check_hostname, "MPI": check_mpi, "remote shell": check_remote_shell,
          "sandbox": check_sandbox, "debugger": check_debugger, "processes": check_children}


def examine():
    """[{name, state, found, advice}]"""
    results = []
    for name, check in CHECKS.items():
        try:
            state, found, advice = check()
        except (OSError, ValueError, KeyError) as error:
            state, found, advice = WARNING, f"cannot be examined: {words_of(error)}", "is /proc or /sys restricted?"
        results.append({"name": name, "state": state, "found": in_a_line(found), "advice": advice})
    return results


def report_of(results):
    width = max(len(r["name"]) for r in results)
    lines = []
    for r in results:
        lines.append(f"{r['state']:<8}{r['name']:<{width}}  {r['found']}")
        if r["advice"]:
            lines.append(f"{'':{8 + width}}  -> {r['advice']}")
    problems = sum(r["state"] == PROBLEM for r in results)
    lines.append(f"jobs cannot run here: {problems} of {len(results)} checks failed" if problems else "jobs can run here")
    return "\n".join(lines) + "\n"


def doctor_command(arguments):
    """`prun.py doctor ...`. Returns the exit status: 1 if jobs cannot run here."""
    parser = new_parser(prog="prun.py doctor", description="Says what this machine lacks for running jobs, and what to do.")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args(arguments)
    results = examine()
    healthy = all(r["state"] != PROBLEM for r in results)
    if options.json:
        import json
        write_out(json.dumps({"can_run": healthy, "checks": results}, indent=1) + "\n")
    else:
        write_out(report_of(results))
    return STATUS_OK if healthy else FAILURE

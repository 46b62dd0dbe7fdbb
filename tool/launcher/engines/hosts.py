# SPDX-License-Identifier: BSD-3-Clause
"""Hosts: reading hostfiles, placing servers, and finding this host's address."""
import os

from ..common.exit_status import USAGE, Failure, words_of


def usable_cores(root="/sys/fs/cgroup", own="/proc/self/cgroup"):
    """The same as server/node/usable_cores.hpp."""
    cores = len(os.sched_getaffinity(0))
    group = root
    try:
        with open(own, encoding="utf-8") as file:
            names = next((line[4:].strip() for line in file if line.startswith("0::/")), "").split("/")
    except OSError:
        names = []
    for name in [""] + names:
        group = os.path.join(group, name)
        try:
            with open(os.path.join(group, "cpu.max"), encoding="utf-8") as file:
                quota, period = file.read().split()
            cores = min(cores, int(quota) // int(period))
        except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
            pass
    return max(1, cores)


def lines_in(path):
    """(path:line, words) of each line of mpirun's hostfile that names a host. Raises Failure."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            words = line.split("#", 1)[0].replace("=", " = ").split()
            if words:
                if words[0].startswith("-") or words[0].split("@")[-1][:1] in ("", "-"):
                    raise Failure(USAGE, f"{path}:{number}: found {words[0]}, want HOST or USER@HOST, and no dash in front")
                yield f"{path}:{number}", words


def slots_in(path):
    """(host, slots) of each line of mpirun's hostfile. A line without slots= counts as one slot, and may be repeated."""
    found = []
    for _, words in lines_in(path) if path else ():
        at = words.index("slots") if "slots" in words else len(words)
        count = words[at + 2] if words[at + 1:at + 2] == ["="] and len(words) > at + 2 else "1"
        found.append((words[0].split("@")[-1], int(count) if count.isascii() and count.isdigit() else 1))
    return found


def logins(options, hosts):
    """Each of the hosts with the user that a line of a hostfile names for it: user@host. Raises Failure."""
    user = {}
    for path in (options.hostfile_server, options.hostfile):
        for place, words in lines_in(path) if path else ():
            if "@" in words[0]:
                host = words[0].split("@")[-1]
                before = user.setdefault(host, words[0])
                if before != words[0]:
                    raise Failure(USAGE, f"{place}: found {words[0]}, and {before} before: want one user for each host")
    return [user.get(host, host) for host in hosts]


def hosts_in(path):
    return [name for name, _ in slots_in(path)]


class Places:
    """The hosts of servers that have their own mpirun: assigned round-robin, so that replicas are on different hosts; a
    replacement is placed in a free slot of another host, if there is one."""

    def __init__(self, slots):
        self.free = {}  # host -> free slots
        for host, count in slots:
            self.free[host] = self.free.get(host, 0) + count
        self.of = {}    # server -> host
        self.last = -1

    def take(self, server):
        """The host for this server, or None without a hostfile."""
        if not self.free:
            return None
        before = self.of.get(server)
        if before is not None:
            self.free[before] += 1
        hosts = list(self.free)
        turn = hosts[self.last + 1:] + hosts[:self.last + 1]
        # Without a free slot, use the least overcommitted host.
        host = (next((h for h in turn if self.free[h] > 0 and h != before), None)
                or (before if before is not None and self.free[before] > 0 else None) or max(turn, key=self.free.get))
        self.last = hosts.index(host)
        self.free[host] -= 1
        self.of[server] = host
        return host

    def servers_at(self, host):
        """The number of servers on this host, at least 1."""
        return max(1, sum(h == host for h in self.of.values()))


def is_loopback(address):
    """Whether it is an address of the loopback network, of IPv4 or IPv6 (in brackets or not), and no name, whatever it begins
    with: what a name stands for is for each host to say."""
    import ipaddress
    try:
        found = ipaddress.ip_address(address[1:-1] if address[:1] + address[-1:] == "[]" else address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def remote_hosts(options):
    names = []
    if options.method in ("mpi", "ssh"):
        names += hosts_in(options.hostfile)
    if options.m_server in ("mpi", "ssh"):
        names += hosts_in(options.hostfile_server)
    if "slurm" in (options.method, options.m_server) and options.sbatch is None:
        from .slurm import Allocation
        return Allocation().others()
    own = {"localhost", os.uname().nodename, os.uname().nodename.split(".")[0]}
    return [name for name in dict.fromkeys(names) if name not in own and not is_loopback(name)]


def address_of(host, remote):
    """What --host stands for, as an address that can be listened at; one of IPv6 is in brackets. Raises Failure."""
    import ipaddress
    import socket
    try:
        found = ipaddress.ip_address(host[1:-1] if host[:1] + host[-1:] == "[]" else host)
        return f"[{found}]" if found.version == 6 else str(found)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except (OSError, UnicodeError) as error:
        raise Failure(USAGE, f"--host {host}: {words_of(error) or 'no name of a host'}: want an address of this host, or a name "
                             "for one") from None
    if remote and is_loopback(found):
        raise Failure(USAGE, f"--host {host}: that is {found} here, which {', '.join(remote[:3])} cannot reach: want an address "
                             "of this host for others")
    return f"[{found}]" if ":" in found else found


def own_address(options, remote):
    """The address at which other hosts reach this one. Raises Failure."""
    import socket
    if options.host:
        return address_of(options.host, remote)
    if options.bind_interface:
        import fcntl
        import struct
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                reply = fcntl.ioctl(s, 0x8915, struct.pack("256s", os.fsencode(options.bind_interface)[:15]))  # SIOCGIFADDR
            except OSError as error:
                raise Failure(USAGE, f"--bind-interface {options.bind_interface}: {error.strerror}") from None
        return socket.inet_ntoa(reply[20:24])
    for name in remote:  # connecting a UDP socket sends nothing, but selects the interface
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as s:
                s.connect(address)
                found = s.getsockname()[0]
        except OSError:
            continue
        # A host in the file may be this one under another name or address.
        if found != address[0] and not is_loopback(found):
            return f"[{found}]" if ":" in found else found
    raise Failure(USAGE, f"no route from this host to {', '.join(remote)}: give this host's address with --host")

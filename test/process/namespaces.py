# SPDX-License-Identifier: BSD-3-Clause
"""What tests need that make hosts of network namespaces."""
import os
import shutil
import subprocess


def tools_of(*names):
    """Name -> path, None if it is not installed."""
    return {name: shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") for name in names}


def why_not(tools, *inside):
    """Why such hosts cannot be made here, or "". `inside`: a command that must run in one."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        return f"not installed: {', '.join(missing)} (tool/setup.sh --long)"
    name = f"prc{os.getpid()}"
    if subprocess.run([tools["ip"], "netns", "add", name], capture_output=True).returncode != 0:
        return "network namespaces cannot be made here"
    tried = subprocess.run([tools["ip"], "netns", "exec", name, *(inside or ("true",))], capture_output=True, text=True)
    subprocess.run([tools["ip"], "netns", "delete", name], capture_output=True)
    return "" if tried.returncode == 0 else f"namespaces cannot be made here: {tried.stderr.strip()}"


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


def join_by_cable(tools, hosts):
    """Hosts with names, addresses and commands to `enter` them: a virtual cable between the eth0 of two; of more, the first one's
    is a bridge, with a cable to each other one."""
    a, *others = hosts
    ports = ["eth0"] if len(others) == 1 else [f"port{i}" for i in range(len(others))]
    if len(others) > 1:
        run(*a.enter, tools["ip"], "link", "add", "eth0", "type", "bridge")
    for port, other in zip(ports, others):
        run(tools["ip"], "link", "add", port, "netns", a.name, "type", "veth", "peer", "name", "eth0", "netns", other.name)
        if len(others) > 1:
            run(*a.enter, tools["ip"], "link", "set", port, "master", "eth0", "up")
    for host in hosts:
        run(*host.enter, tools["ip"], "address", "add", host.address + "/24", "dev", "eth0")
        run(*host.enter, tools["ip"], "link", "set", "eth0", "up")

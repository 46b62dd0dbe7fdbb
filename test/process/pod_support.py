# SPDX-License-Identifier: BSD-3-Clause
"""Runs the manifests of prun.py -m k8s on this machine as a cluster would: each pod has namespaces of its own for network,
processes and host name, mounts as its manifest says, and the names that the Service gives; Jobs replace pods that have failed."""
import os
import shutil
import signal
import subprocess
import time

from namespaces import run, tools_of, why_not
from process_support import BIN, PRUN, clean_environment, read_bytes

TOOLS = tools_of("ip", "unshare", "nsenter")
REASON = why_not(TOOLS, "unshare", "--uts", "--pid", "--fork", "--mount-proc", "true")  # they cannot be made here, or ""
# 10.<random>.<random>.0/24: concurrent tests do not collide.
NET = "10.{}.{}".format(*(128 + b % 120 for b in os.urandom(2)))
# Process 1 is the pause of the pod. The pod's end is that of its container.
START = 'hostname "$0"; cd "$1"; shift; "$@" & wait $!'
# The same in the root of an image, whose mounts are in this file: a source and a target a line.
START_INSIDE = ('hostname "$0"; root=$2; while read -r from to; do mount --bind "$from" "$root$to"; done <"$1"; '
                'mount -t proc proc "$root/proc"; cwd=$3; shift 3; '
                'chroot "$root" sh -c \'cd "$0"; exec "$@"\' "$cwd" "$@" & wait $!')


class Pod:
    def __init__(self, cluster, job, index):
        self.cluster, self.job, self.index = cluster, job, index
        self.role = job["metadata"]["labels"]["app.kubernetes.io/component"]
        self.host = f"{job['metadata']['name']}-{index}"
        number = len(cluster.pods) + 1
        self.name = f"prc{os.getpid()}p{number}"  # of its network
        self.address = f"{NET}.{number}"
        self.log = os.path.join(cluster.folder, f"{self.host}-{number}.log")
        pod = job["spec"]["template"]["spec"]
        container, = pod["containers"]
        places = cluster.mounts(pod, container)
        run(TOOLS["ip"], "netns", "add", self.name)
        os.makedirs(f"/etc/netns/{self.name}")
        cluster.pods.append(self)
        cluster.write_hosts()
        outside = f"v{number}"
        run(TOOLS["ip"], "link", "add", "eth0", "netns", self.name, "type", "veth", "peer", "name", outside, "netns",
            cluster.name)
        run(TOOLS["ip"], "-n", cluster.name, "link", "set", outside, "master", "bridge", "up")
        for words in (("link", "set", "lo", "up"), ("address", "add", self.address + "/24", "dev", "eth0"),
                      ("link", "set", "eth0", "up")):
            run(TOOLS["ip"], "-n", self.name, *words)
        variables = {"JOB_COMPLETION_INDEX": str(index), **cluster.environment}
        variables.update((one["name"], one["value"]) for one in container["env"])
        command = [word.replace("$$", "$") for word in container["command"]]
        if cluster.root:
            mounts = self.log + ".mounts"
            for target, source in {**places, "/etc/hosts": "", "/dev": "/dev", "/proc": "/proc"}.items():
                place = cluster.root + target
                os.makedirs(place if os.path.isdir(source) else os.path.dirname(place), exist_ok=True)
                if not os.path.exists(place):
                    open(place, "w", encoding="ascii").close()
            with open(mounts, "w", encoding="utf-8") as file:
                file.write("".join(f"{source} {target}\n" for target, source in places.items())
                           + f"/etc/netns/{self.name}/hosts /etc/hosts\n/dev /dev\n")
            start = [START_INSIDE, self.host, mounts, cluster.root, container["workingDir"], *command]
            variables["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
        else:
            places = {"/usr/lib/paracel/bin/prun.py": PRUN, "/usr/lib/paracel/bin": BIN, **places}
            command = [self.placed(word, places) for word in command]
            variables = {name: self.placed(value, places) for name, value in variables.items()}
            start = [START, self.host, places[container["workingDir"]], *command]
        self.enter = [TOOLS["ip"], "netns", "exec", self.name]
        self.container, self.places, self.variables = container, places, variables
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*self.enter, TOOLS["unshare"], "--uts", "--pid", "--fork", "--kill-child",
                                             "--mount-proc", "sh", "-c", *start], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=clean_environment(**variables))

    @staticmethod
    def placed(word, places):
        """The word with a path of the pod as one of this machine."""
        found = max((path for path in places if word == path or word.startswith(path + "/")), key=len, default=None)
        return word if found is None else places[found] + word[len(found):]

    def probe(self, kind="livenessProbe"):
        """Whether it succeeds, as the kubelet asks it. Not in the root of an image."""
        words = [self.placed(word, self.places) for word in self.container[kind]["exec"]["command"]]
        asked = subprocess.run([*self.enter, *words], stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True,
                               env=clean_environment(**self.variables))
        self.probed = asked.stderr
        return asked.returncode == 0

    def pids(self, program):
        """Of its processes that run this program."""
        found = subprocess.run([TOOLS["ip"], "netns", "pids", self.name], capture_output=True, text=True).stdout.split()
        return [int(pid) for pid in found if read_bytes(f"/proc/{pid}/cmdline").startswith(os.fsencode(program) + b"\0")]

    def said(self):
        return read_bytes(self.log).decode("utf-8", "replace")

    def kill(self):
        """With all that runs in it."""
        os.kill(self.process.pid, signal.SIGKILL)

    def cut(self, whether=True):
        run(TOOLS["ip"], "-n", self.name, "link", "set", "eth0", "down" if whether else "up")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        subprocess.run([TOOLS["ip"], "netns", "delete", self.name], capture_output=True)
        shutil.rmtree(f"/etc/netns/{self.name}", ignore_errors=True)


class Cluster:
    """`root`: of the image, or None: this machine's programs. Pods restart after `backoff` seconds."""
    backoff = 1.0

    def __init__(self, folder, manifests, environment=None, root=None):
        self.folder, self.root, self.environment = folder, root, environment or {}
        self.by_kind = {}
        for one in manifests:
            self.by_kind.setdefault(one["kind"], []).append(one)
        self.jobs = {job["metadata"]["labels"]["app.kubernetes.io/component"]: job for job in self.by_kind["Job"]}
        self.service = self.by_kind["Service"][0]["metadata"]["name"]
        self.pods, self.last = [], {}  # (role, index) -> (pod, when it was seen to have ended)
        self.failures = {}
        self.name = f"prc{os.getpid()}n"
        self.volume = os.path.join(folder, "volume")
        os.makedirs(self.volume, exist_ok=True)
        self.write_secret()
        run(TOOLS["ip"], "netns", "add", self.name)
        run(TOOLS["ip"], "-n", self.name, "link", "add", "bridge", "type", "bridge")
        run(TOOLS["ip"], "-n", self.name, "link", "set", "bridge", "up")

    def write_secret(self):
        """As the kubelet does it: files are links into a folder."""
        for kind, name, values in (("Secret", "secret", "stringData"), ("ConfigMap", "config", "data")):
            for one in self.by_kind.get(kind, ()):
                hidden = os.path.join(self.folder, name, "..2026")
                os.makedirs(hidden)
                for file_name, text in one[values].items():
                    mode = 0o400 if kind == "Secret" else 0o644
                    fd = os.open(os.path.join(hidden, file_name), os.O_WRONLY | os.O_CREAT, mode)
                    with open(fd, "w", encoding="utf-8") as file:
                        file.write(text)
                    os.symlink(f"..2026/{file_name}", os.path.join(self.folder, name, file_name))

    def mounts(self, pod, container):
        """{path in the pod: path here}"""
        kinds = {volume["name"]: next(kind for kind in volume if kind != "name") for volume in pod["volumes"]}
        folders = {"persistentVolumeClaim": self.volume, "secret": os.path.join(self.folder, "secret"),
                   "configMap": os.path.join(self.folder, "config")}
        found = {}
        for mount in container["volumeMounts"]:
            path = folders[kinds[mount["name"]]]
            if "subPath" in mount:
                path = os.path.realpath(os.path.join(path, mount["subPath"]))  # the file itself
                if not os.path.exists(path):
                    os.makedirs(path)
            found[mount["mountPath"]] = path
        return found

    def write_hosts(self):
        """The names of the newest pods, in place: the files are mounted."""
        newest = {pod.host: pod.address for pod in self.pods}
        text = "127.0.0.1 localhost\n" + "".join(f"{address} {host}.{self.service}\n" for host, address in newest.items())
        for pod in self.pods:
            with open(f"/etc/netns/{pod.name}/hosts", "w", encoding="ascii") as file:
                file.write(text)

    def start(self, role, index=None):
        """A pod of a Job, or all of them."""
        count = self.jobs[role]["spec"]["completions"]
        for i in range(count) if index is None else [index]:
            self.last[role, i] = (Pod(self, self.jobs[role], i), None)
        return self.last[role, i][0]

    def pod(self, role, index=0):
        return self.last[role, index][0]

    def turn(self):
        """What the controller of Jobs does now and then. Returns whether all have ended well. Raises AssertionError if one has
        failed for good."""
        for (role, index), (pod, since) in list(self.last.items()):
            status = pod.process.poll()
            if status in (None, 0):
                continue
            if since is None:
                self.last[role, index] = (pod, time.monotonic())
                spec = self.jobs[role]["spec"]
                rule = next(r["onExitCodes"] for r in spec["podFailurePolicy"]["rules"] if "onExitCodes" in r)
                self.failures[role, index] = self.failures.get((role, index), 0) + 1
                if status in rule["values"] or self.failures[role, index] > spec["backoffLimitPerIndex"]:
                    raise AssertionError(f"{pod.host} has failed with {status}: {pod.said()[-3000:]}")
            elif time.monotonic() - since > self.backoff:
                self.start(role, index)
        return all(pod.process.poll() == 0 for pod, _ in self.last.values())

    def close(self):
        for pod in self.pods:
            pod.close()
        subprocess.run([TOOLS["ip"], "netns", "delete", self.name], capture_output=True)

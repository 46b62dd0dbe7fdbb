# SPDX-License-Identifier: BSD-3-Clause
"""A cluster of Slurm for tests, of Debian's packages: two hosts or three (network namespaces, as in test_two_hosts.py) with a
slurmd each, a slurmctld on the first one, and a munged with a key of its own."""
import os
import re
import signal
import subprocess
import sys

from namespaces import join_by_cable, tools_of, why_not
from process_support import (BIN, END_LIMIT, LR, PACED, PRUN, JobTest, clean_environment, patient, processes_of, read_bytes,
                             wait_until)
from test_two_hosts import Host

TOOLS = tools_of("slurmctld", "slurmd", "munged", "munge", "srun", "sbatch", "salloc", "scontrol", "squeue", "scancel", "ip",
                 "unshare", "nsenter")
REASON = why_not(TOOLS)
KILL_WAIT = 15  # seconds from the signal at the limit to SIGKILL
CONFIG = """ClusterName=test
SlurmctldHost={a.name}({a.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n.spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
JobRequeue=1
ReturnToService=2
SlurmdTimeout=5
InactiveLimit=0
KillWait={kill_wait}
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES MaxTime=60 OverSubscribe=FORCE:8
"""


class Cluster:
    def __init__(self, folder, hosts=2):
        self.folder = os.path.join(folder, "slurm")
        os.mkdir(self.folder, 0o755)
        self.hosts = [Host(i) for i in range(hosts)]
        self.daemons = {}
        self.config = os.path.join(self.folder, "slurm.conf")
        self.environment = {"SLURM_CONF": self.config}

    def open(self):
        a = self.hosts[0]
        for host in self.hosts:
            host.open(self.folder)
        join_by_cable(TOOLS, self.hosts)
        with open(self.config, "w", encoding="utf-8") as file:
            nodes = "\n".join(f"NodeName=n{i} NodeHostname={host.name} NodeAddr={host.address} CPUs=2 RealMemory=500"
                              for i, host in enumerate(self.hosts, 1))
            file.write(CONFIG.format(a=a, nodes=nodes, count=len(self.hosts), folder=self.folder, kill_wait=KILL_WAIT))
        os.mkdir(os.path.join(self.folder, "state"))
        key = os.path.join(self.folder, "munge.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(128))
        names = {"key-file": "munge.key", "socket": "munge.socket", "log-file": "munge.log", "pid-file": "munge.pid",
                 "seed-file": "munge.seed"}
        self.start("munged", [TOOLS["munged"], "--foreground", "--force", "--num-threads=2"] +
                   [f"--{option}={self.folder}/{name}" for option, name in names.items()])
        wait_until(lambda: os.path.exists(f"{self.folder}/munge.socket"), 10)
        self.start("slurmctld", [*a.enter, TOOLS["slurmctld"], "-D", "-c"])
        for number in range(len(self.hosts)):
            self.start_slurmd(number)
        if not self.wait_for_nodes():
            raise RuntimeError("the nodes do not come up: " + self.ask("sinfo", "-N", "-l"))

    def start(self, name, command):
        with open(os.path.join(self.folder, name + ".out"), "ab") as out:
            self.daemons[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                  env={**os.environ, **self.environment})

    def start_slurmd(self, number):
        """All but the first one have a /tmp of their own, in which the test's folder is where it is on the first one."""
        command = [*self.hosts[number].enter, TOOLS["slurmd"], "-D", "-N", f"n{number + 1}"]
        if number != 0:
            shared = os.path.dirname(self.folder)
            tmp = os.path.join(self.folder, f"tmp{number}")
            inside = os.path.join(tmp, os.path.relpath(shared, "/tmp"))
            os.makedirs(inside, 0o1777, exist_ok=True)
            command = [TOOLS["unshare"], "--mount", "sh", "-c",
                       f'mount --bind {shared} {inside} && mount --rbind {tmp} /tmp && exec "$@"', "sh", *command]
            self.other_tmp = tmp
        self.start(f"slurmd{number}", command)

    def wait_for_nodes(self):
        # A node that was down and answers again is asked by slurmctld once in a while.
        ready = [[state, str(len(self.hosts))] for state in ("idle", "allocated")]
        return wait_until(lambda: self.ask("sinfo", "-h", "-o", "%T %D").split() in ready, 60, 0.2)

    def ask(self, *words):
        done = subprocess.run([*self.hosts[0].enter, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, **self.environment})
        return done.stdout or done.stderr

    def kill_host(self, number):
        """All of a host at once, but for what keeps its name and network."""
        host = self.hosts[number]
        for _ in range(3):
            for pid in host.pids():
                if pid != host.holder.pid and not read_bytes(f"/proc/{pid}/cmdline").startswith(b"sleep\x001000000"):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        self.daemons[f"slurmd{number}"].wait()

    def state(self, job):
        """(state, exit code as STATUS:SIGNAL, restarts)"""
        text = self.ask("scontrol", "show", "job", str(job), "-o")
        return tuple(re.search(rf"\b{key}=(\S+)", text)[1] for key in ("JobState", "ExitCode", "Restarts"))

    def wait_for_end(self, job, limit=60):
        """Its state, or None."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        return self.state(job) if wait_until(lambda: self.state(job)[0] in over, limit, 0.2) else None

    def close(self):
        self.ask("scancel", "--user=root", "--signal=KILL", "--full")
        for host in self.hosts:
            host.close()
        for process in self.daemons.values():
            process.kill()
            process.wait(patient(10))


class SlurmTest(JobTest):
    """Tests of jobs in a cluster of `hosts` hosts."""
    hosts = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster(cls.folder, cls.hosts)
        try:
            cls.cluster.open()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()  # while its config is there
        super().tearDownClass()

    def environment(self, **more):
        return clean_environment(**self.cluster.environment, **more)

    def submit(self, *arguments, asked="-N2 -n4", output=None, **more):
        """A job submitted by prun.py --sbatch from the first host. Its output is in `self.output`."""
        self.output = output or self.not_there("out")
        done = subprocess.run([*self.cluster.hosts[0].enter, sys.executable, PRUN, "-m", "slurm",
                               f"--sbatch={asked} --output={self.output}", "--heartbeat-limit", f"{patient(3.0):.1f}",
                               *arguments],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=self.folder,
                              env=self.environment(**more), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = int(done.stdout)
        self.addCleanup(self.cancel, job)
        return job

    def cancel(self, job):
        if self.cluster.state(job)[0] in ("PENDING", "RUNNING"):
            self.cluster.ask("scancel", str(job))
            self.cluster.ask("scancel", "--signal=KILL", "--full", str(job))
            self.cluster.wait_for_end(job)

    def said(self):
        return read_bytes(self.output).decode("utf-8", "replace")

    def wait_for(self, words, limit=30):
        self.assertTrue(wait_until(lambda: re.search(words, self.said()), limit), f"{words} is not in: {self.said()}")

    def host_of(self, process):
        pids = [host.pids() for host in self.cluster.hosts]
        return next((i for i, p in enumerate(pids) if process.pid in p), None)

    def processes(self):
        """(name, host, process) of those of the job."""
        return self.processes_of(self.said())

    def processes_of(self, said):
        mark = re.search(r"prun: job (\w{16})", said)[1]
        return [(os.path.basename(p.command[0]), self.host_of(p), p) for p in processes_of(mark) if p.command[0].startswith(BIN)]

    undisturbed = {}  # (workers, rounds) -> the model of a job on one host

    def assert_bits_of_one_host(self, output, workers, rounds=600):
        if (workers, rounds) not in self.undisturbed:
            config = self.write_config("undisturbed.json", output="undisturbed/", rounds=rounds)
            run = self.start("-w", str(workers), "-c", config, LR)
            self.assertEqual(run.wait(), 0, run.err())
            self.undisturbed[workers, rounds] = read_bytes(os.path.join(self.folder, "undisturbed", "lr_theta_0"))
        self.assertTrue(self.undisturbed[workers, rounds])
        self.assertEqual(read_bytes(os.path.join(self.folder, output, "lr_theta_0")), self.undisturbed[workers, rounds])

    def paced(self, name, rounds=600, **changes):
        """(config, environment, the file that lets it go on): rounds take at least 20 ms until then."""
        self.write_config(name, **PACED, rounds=rounds, **changes)
        enough = self.not_there("enough")
        return name, {"TEST_ENOUGH": enough}, enough

    def assert_nothing_runs(self):
        self.assertTrue(wait_until(lambda: not self.processes(), END_LIMIT), self.processes())

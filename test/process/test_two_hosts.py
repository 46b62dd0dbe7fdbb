#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs on two hosts, by mpirun and by ssh: two network namespaces joined by a virtual cable, each with its own host name, address
and sshd. Servers run on one of them, workers on both, encrypted unless a test says otherwise. Needs root, ip, unshare, sshd, ssh
and mpirun; otherwise skipped with the reason."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import observed  # noqa: E402
from namespaces import join_by_cable, run, tools_of, why_not  # noqa: E402
from process_support import (BIN, END_LIMIT, LR, PACED, PRUN, JobTest, clean_environment, main, patient,  # noqa: E402
                             processes_of, read_bytes, wait_until)

TOOLS = tools_of("ip", "unshare", "nsenter", "sshd", "ssh", "ssh-keygen", "mpirun")
# 10.<random>.<random>.0/24: concurrent tests do not collide.
NET = "10.{}.{}".format(*(128 + b % 120 for b in os.urandom(2)))


class Host:
    """A network namespace and a host name, held by a sleeping process; an sshd inside."""

    def __init__(self, number):
        self.name = f"prc{os.getpid()}{'abc'[number]}"
        self.address = f"{NET}.{number + 1}"
        self.processes = []

    def open(self, folder):
        run(TOOLS["ip"], "netns", "add", self.name)
        # The host name is set in its own namespace, which its first process keeps alive.
        self.holder = subprocess.Popen(
            [TOOLS["ip"], "netns", "exec", self.name, TOOLS["unshare"], "--uts", "sh", "-c",
             f"hostname {self.name}; echo ready; exec sleep 1000000"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.processes.append(self.holder)
        self.holder.stdout.readline()
        self.enter = [TOOLS["nsenter"], "--target", str(self.holder.pid), "--uts", "--net"]
        run(*self.enter, TOOLS["ip"], "link", "set", "lo", "up")
        self.key = os.path.join(folder, "key")
        config = os.path.join(folder, self.name + ".sshd")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"ListenAddress {self.address}\nHostKey {folder}/host_key\nAuthorizedKeysFile {self.key}.pub\n"
                       "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
                       "MaxStartups 9:100:9\nAcceptEnv TEST_ENOUGH\n")
        self.config = config

    def start_sshd(self):
        os.makedirs("/run/sshd", exist_ok=True)
        self.sshd = subprocess.Popen([*self.enter, TOOLS["sshd"], "-D", "-e", "-f", self.config], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(self.sshd)

    def close(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        subprocess.run([TOOLS["ip"], "netns", "delete", self.name], capture_output=True)

    def pids(self):
        done = subprocess.run([TOOLS["ip"], "netns", "pids", self.name], capture_output=True, text=True)
        return [int(word) for word in done.stdout.split()]


REASON = why_not(TOOLS)


@unittest.skipIf(REASON, REASON)
class TwoHosts(JobTest):
    method = "mpi"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hosts = [Host(0), Host(1)]
        cls.addClassCleanup(cls.close_hosts)
        for name in ("key", "host_key"):
            run(TOOLS["ssh-keygen"], "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(cls.folder, name))
        for host in cls.hosts:
            host.open(cls.folder)
        a, b = cls.hosts
        join_by_cable(TOOLS, cls.hosts)
        for host in cls.hosts:
            host.start_sshd()
        # mpirun finds hosts by address, independently of this machine's ssh configuration.
        cls.ssh = (f"{TOOLS['ssh']} -F none -i {cls.folder}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
                   "-o LogLevel=ERROR -o BatchMode=yes")
        for host in cls.hosts:
            cls.await_sshd(host)
        for name, lines in (("workers", [f"{a.address} slots=2", f"{b.address} slots=2"]),
                            ("servers", [f"{b.address} slots=2"]),
                            ("here", [f"{a.address} slots=2"]),
                            ("room", [f"{b.address} slots=1", f"{a.address} slots=4"]),
                            ("spare", [f"{a.address} slots=1", f"{b.address} slots=2"])):
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    @classmethod
    def await_sshd(cls, host):
        command = [*cls.hosts[0].enter, *cls.ssh.split(), host.address, "true"]
        if not wait_until(lambda: subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0,
                          10, 0.1):
            raise unittest.SkipTest("sshd does not answer in the network namespaces")

    @classmethod
    def close_hosts(cls):
        for host in cls.hosts:
            host.close()

    def assert_hosts_empty(self, limit):
        """No processes of a job run on the hosts, including mpirun's helpers and their ssh connections."""
        def left():
            commands = [read_bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode() for host in self.hosts
                        for pid in host.pids()]
            return [c for c in commands if c and not c.startswith("sleep ") and "sshd" not in c]
        self.assertTrue(wait_until(lambda: not left(), limit), left())

    def start_job(self, config, *options, servers="servers", agent=None, enough=""):
        # The launching host's name in mpirun must be reachable from the other host.
        environment = clean_environment(
            OMPI_MCA_plm_rsh_agent=agent or self.ssh, TEST_ENOUGH=enough, OMPI_MCA_oob_tcp_if_include=NET + ".0/24",
            OMPI_MCA_btl_tcp_if_include=NET + ".0/24", OMPI_MCA_btl="self,tcp", OMPI_MCA_orte_keep_fqdn_hostnames="1")
        return self.start("-w", "4", "-p", "2", "-c", config, "-m", self.method, "--hostfile", "workers", "--hostfile_server",
                          servers, "--timeout", f"{patient(60):.0f}", *options, LR, prefix=self.hosts[0].enter,
                          environment=environment)

    def host_of(self, process):
        pids = [host.pids() for host in self.hosts]
        return next((i for i, p in enumerate(pids) if process.pid in p), None)

    def test_servers_on_one_host_and_workers_on_both_train(self):
        """By our messages, encrypted and not, and by MPI's: the same bits as on one host."""
        local = self.start("-w", "4", "-p", "2", "-c", "cfg.json", "-m", "local", LR)
        self.assertEqual(local.wait(), 0, local.err())
        clear = (("--insecure",), ("--insecure", "--mpi-messages")) if self.method == "mpi" else ()
        for options in ((), *clear):
            job = self.start_job("cfg.json", *options)
            self.assertEqual(job.wait(), 0, job.err())
            self.assertEqual(job.out(), local.out())
            self.assertEqual("nothing is encrypted" in job.err(), bool(options), job.err())
            self.assert_hosts_empty(END_LIMIT)  # mpirun's daemon on the other host exits slightly later than its ranks

    def test_the_key_is_on_each_host_while_the_job_runs_and_not_in_what_others_see(self):
        private = self.own_temporary_folder(self.hosts[1])
        job = self.start_job("long.json")
        self.assertTrue(wait_until(lambda: "round" in job.err(), 30), job.err())
        path = os.path.join(job.socket_folder(), "job.key")
        key = read_bytes(path)
        self.assertRegex(key, rb"^[0-9a-f]{64}$")
        there = os.path.join(private, os.path.relpath(path, "/tmp"))
        self.assertEqual(read_bytes(there), key)
        self.assertEqual(os.stat(there).st_mode & 0o7777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(there)).st_mode & 0o7777, 0o700)
        for host in self.hosts:
            for pid in host.pids():
                for name in ("cmdline", "environ"):
                    self.assertNotIn(key, read_bytes(f"/proc/{pid}/{name}"), pid)
        os.kill(job.pid, signal.SIGKILL)  # with the launcher the key goes, too
        self.assertTrue(wait_until(lambda: not os.path.exists(os.path.dirname(there)), 10))
        self.assert_nothing_left(job.job(), END_LIMIT)
        self.assert_hosts_empty(END_LIMIT)

    def test_a_lost_connection_that_kept_the_key_is_said_once(self):
        job = self.start_job("long.json")
        self.assertTrue(wait_until(lambda: "round" in job.err(), 30), job.err())
        os.kill(next(p for p in self.hosts[0].pids() if b"ServerAliveInterval" in read_bytes(f"/proc/{p}/cmdline")
                     and self.hosts[1].address.encode() in read_bytes(f"/proc/{p}/cmdline")), signal.SIGKILL)
        words = f"warning: the connection that keeps the job's key on {self.hosts[1].address} has ended"
        self.assertTrue(wait_until(lambda: words in job.err(), 10), job.err())
        before = job.err().count("prun: round")
        self.assertTrue(wait_until(lambda: job.err().count("prun: round") > before + 1, 10), "it stands still")
        self.assertEqual(job.err().count(words), 1)
        job.process.terminate()
        self.assertEqual(job.wait(END_LIMIT), 143, job.err())
        self.assert_hosts_empty(END_LIMIT)

    def own_temporary_folder(self, host):
        """The other host gets a /tmp of its own: its sshd, and what it starts, have another mount namespace. Returns where this
        host sees it."""
        folder = os.path.join(self.folder, "tmp-of-" + host.name)
        os.makedirs(folder, 0o1777, exist_ok=True)
        visible = os.path.join(folder, os.path.relpath(self.folder, "/tmp"))  # the test's own folder is in /tmp
        os.makedirs(visible, exist_ok=True)
        host.sshd.kill()
        host.sshd.wait()
        before = host.enter
        host.enter = [*before, TOOLS["unshare"], "--mount", "sh", "-c",
                      f'mount --bind {self.folder} {visible} && mount --rbind {folder} /tmp && exec "$@"', "sh"]
        host.start_sshd()
        host.enter = before

        def restore():
            host.sshd.kill()
            host.sshd.wait()
            host.start_sshd()
            self.await_sshd(host)
        self.addCleanup(restore)
        self.await_sshd(host)
        return folder

    def test_a_host_that_cannot_be_given_the_key_is_named_and_nothing_starts(self):
        refuses = self.write_program("refuses", "echo no entry >&2", "exit 255")
        job = self.start_job("cfg.json", agent=refuses)
        self.assertEqual(job.wait(), 1)
        self.assertRegex(job.err(), rf"the job's key cannot be brought to {NET}\S+ by {refuses}: no entry; --insecure: without")
        self.assertEqual(job.out(), "")

    def test_processes_are_where_the_hostfiles_say(self):
        job = self.start_job("long.json")
        self.assertTrue(wait_until(lambda: "round" in job.err(), 30), job.err())
        found = processes_of(job.job())
        where = {"lr": [], "start_server": [], "start_scheduler": []}
        for process in found:
            name = os.path.basename(process.command[0])
            if name in where and process.command[0].startswith(BIN):
                where[name].append(self.host_of(process))
        self.assertEqual({k: sorted(v) for k, v in where.items()},
                         {"lr": [0, 0, 1, 1], "start_server": [1, 1], "start_scheduler": [0]})

    def end_by(self, choose, status, cause):
        job = self.start_job("long.json")
        self.assertTrue(wait_until(lambda: "round" in job.err(), 30), job.err())
        victim = choose([p for p in processes_of(job.job())], job)
        os.kill(victim, signal.SIGKILL)
        begin = time.monotonic()
        ended = job.wait(END_LIMIT)
        if status is not None:
            self.assertEqual(ended, status, f"after {time.monotonic() - begin:.1f} s: {job.err()}")
            self.assertRegex(job.err(), cause)
        self.assert_nothing_left(job.job(), max(0.5, END_LIMIT - (time.monotonic() - begin)))
        self.assert_hosts_empty(END_LIMIT)  # mpirun's daemon on the other host exits slightly later than its ranks

    def pick(self, name, host):
        return lambda processes, _: next(p.pid for p in processes if p.command[0] == os.path.join(BIN, name)
                                         and self.host_of(p) == host)

    # mpirun reports the signal after its daemons have terminated the other ranks, which takes a second or more; on a loaded
    # machine the heartbeat limit of 3 s is reached first. Either message names the process and its host.
    KILLED = r" \((pid \d+ on prc\d+b|on \S+, by ssh, pid \d+)\) (was killed by SIGKILL|lost: no heartbeat for)"

    def test_a_worker_on_the_other_host_is_killed(self):
        self.end_by(self.pick("lr", 1), 10, r"worker \d" + self.KILLED)

    def test_a_server_on_the_other_host_is_killed(self):
        self.end_by(self.pick("start_server", 1), 11, r"server s\d" + self.KILLED)

    def test_a_killed_server_is_replaced_on_a_spare_slot_of_the_other_host(self):
        job = self.start_job("long.json", "--replicas", "2", "-v", servers="spare")
        self.assertTrue(wait_until(lambda: "round" in job.err(), 30), job.err())
        where = {self.host_of(p): p for p in processes_of(job.job()) if p.command[0] == os.path.join(BIN, "start_server")}
        self.assertEqual(sorted(where), [0, 1], job.err())  # each replica on a different host
        where[0].kill()
        self.assertTrue(wait_until(lambda: "replicas of everything exist again" in job.err(), 20), job.err())
        self.assertEqual([self.host_of(p) for p in processes_of(job.job())
                          if p.command[0] == os.path.join(BIN, "start_server")], [1, 1])
        before = job.err().count("prun: round")
        self.assertTrue(wait_until(lambda: job.err().count("prun: round") > before + 1, 10), "it stands still")
        job.process.terminate()
        self.assertEqual(job.wait(END_LIMIT), 143, job.err())
        self.assert_nothing_left(job.job(), END_LIMIT)
        self.assert_hosts_empty(END_LIMIT)

    def test_prun_is_killed(self):
        self.end_by(lambda _, job: job.pid, None, "")

    def test_the_cable_is_pulled(self):
        """The other host falls silent, which is not the death of any process visible to this one."""
        job = self.start_job("long.json")
        self.assertTrue(wait_until(lambda: "round" in job.err(), 30), job.err())
        run(*self.hosts[1].enter, TOOLS["ip"], "link", "set", "eth0", "down")
        try:
            # 3 s of silence, and the termination of all reachable processes.
            ended = job.wait(3 + END_LIMIT)
            self.assertIn(ended, (10, 11), job.err())
            self.assertIn("lost: no heartbeat for", job.err())
            # The other host waits three times as long for the scheduler.
            self.assert_nothing_left(job.job(), 2 * 3 + END_LIMIT)
        finally:
            run(*self.hosts[1].enter, TOOLS["ip"], "link", "set", "eth0", "up")


@unittest.skipIf(REASON, REASON)
class BySsh(TwoHosts):
    """The same without MPI."""
    method = "ssh"

    def test_what_a_process_on_another_host_says_and_returns_arrives(self):
        words = ("echo out $PARACEL_RANK $(hostname)", "echo err $PARACEL_RANK >&2",
                 "if [ $PARACEL_RANK = 0 ]; then touch said_0; else while ! [ -e said_0 ]; do sleep .1; done; sleep 1; fi",
                 "exit $PARACEL_RANK")
        says = self.write_program("says", *words)
        environment = clean_environment(PARACEL_SSH=self.ssh)
        job = self.start("-w", "4", "-p", "1", "-m", "ssh", "--hostfile", "workers", "--hostfile_server", "servers", "--run-dir",
                         "said", says, prefix=self.hosts[0].enter, environment=environment)
        self.assertIn(job.wait(), (1, 2, 3), job.err())  # of the one that ended first
        self.assertEqual(job.out(), f"out 0 {self.hosts[0].name}\n")
        self.assertRegex(job.err(), r"worker \d \(on \S+, by ssh, pid \d+\) exited with status [123]")
        log = read_bytes(os.path.join(self.folder, "said", "worker_0.log")).decode()
        self.assertEqual(sorted(log.splitlines()), ["err 0", f"out 0 {self.hosts[0].name}"])
        self.assert_hosts_empty(END_LIMIT)

    def start_paced_job(self, name, *options, **more):
        """(a job whose rounds take at least 20 ms until `enough` exists, that file)"""
        self.write_config(name + ".json", **PACED, output=name + "/", rounds=600)
        enough = self.not_there("enough")
        job = self.start_job(name + ".json", "--heartbeat-limit", f"{patient(1.5):.1f}", *options, enough=enough,
                             agent=f"{self.ssh} -o SetEnv=TEST_ENOUGH={enough}", **more)
        self.assertTrue(wait_until(lambda: "round" in job.err(), 30), job.err())
        return job, enough

    def workers_on(self, host, job):
        return [p for p in processes_of(job.job()) if p.command[0] == LR and self.host_of(p) == host]

    def assert_goes_on_with_another_worker(self, job, enough, name, cause):
        """To the bits of an undisturbed job."""
        self.assertTrue(wait_until(lambda: "has caught up" in job.err() or job.process.poll() is not None, 30), job.err())
        self.touch(enough)
        self.assertEqual(job.wait(), 0, job.err())
        self.assertRegex(job.err(), rf"worker \d \(pid \d+ on {self.hosts[1].name}\) lost: {cause}; the others wait at most 20 s")
        self.assertRegex(job.err(), r"worker \d \(pid \d+\) has caught up")
        if not self.undisturbed:
            alone = self.start("-w", "4", "-p", "2", "-c", name + ".json", "--set", "output=alone/", LR)
            self.assertEqual(alone.wait(), 0, alone.err())
            self.undisturbed.append(read_bytes(os.path.join(self.folder, "alone", "lr_theta_0")))
        self.assertTrue(self.undisturbed[0])
        self.assertEqual(read_bytes(os.path.join(self.folder, name, "lr_theta_0")), self.undisturbed[0])
        self.assert_nothing_left(job.job(), END_LIMIT)
        self.assert_hosts_empty(END_LIMIT)

    undisturbed = []  # the model of a paced job

    def test_a_killed_worker_is_started_again_on_its_host(self):
        job, enough = self.start_paced_job("killed", "--on-worker-death", "wait:20")
        self.workers_on(1, job)[0].kill()
        self.assertTrue(wait_until(lambda: "has caught up" in job.err(), 30), job.err())
        self.assertEqual(len(self.workers_on(1, job)), 2)
        self.assert_goes_on_with_another_worker(job, enough, "killed", "it was killed by SIGKILL")

    def test_a_stopped_worker_is_killed_on_its_host_and_started_again(self):
        job, enough = self.start_paced_job("stopped", "--on-worker-death", "wait:20")
        victim = self.workers_on(1, job)[0]
        victim.kill(signal.SIGSTOP)
        self.assertTrue(wait_until(lambda: "has caught up" in job.err(), 30), job.err())
        self.assertTrue(wait_until(lambda: not os.path.exists(f"/proc/{victim.pid}/exe"), 10), "it is still there")
        self.assert_goes_on_with_another_worker(job, enough, "stopped", r"no heartbeat for \S+ s")

    def test_the_ssh_of_a_worker_dies_and_the_job_goes_on(self):
        job, enough = self.start_paced_job("unheld", "--on-worker-death", "wait:20")
        ssh = next(p for p in processes_of(job.job()) if p.command[0] == TOOLS["ssh"] and "PARACEL_RANK=3" in p.command[-1])
        ssh.kill()
        self.assert_goes_on_with_another_worker(job, enough, "unheld", "it was killed by SIGKILL")

    def test_a_worker_whose_host_is_cut_off_is_started_on_a_spare_slot(self):
        """What runs on the other host meanwhile is not the job's any more, also when the cable is back before it has ended."""
        for back in (False, True):
            with self.subTest(back=back):
                name = f"cut_{back}"
                job, enough = self.start_paced_job(name, "--on-worker-death", "wait:20", "--hostfile", "room", servers="here")
                old = self.workers_on(1, job)
                self.assertEqual(len(old), 1)
                run(*self.hosts[1].enter, TOOLS["ip"], "link", "set", "eth0", "down")
                try:
                    self.assertTrue(wait_until(lambda: "is restarted" in job.err(), 20), job.err())
                    if back:
                        run(*self.hosts[1].enter, TOOLS["ip"], "link", "set", "eth0", "up")
                    self.assertTrue(wait_until(lambda: "has caught up" in job.err(), 30), job.err())
                    self.assertEqual(len(self.workers_on(0, job)), 4)
                    self.assertTrue(wait_until(lambda: not self.workers_on(1, job), 30), old)
                finally:
                    run(*self.hosts[1].enter, TOOLS["ip"], "link", "set", "eth0", "up")
                self.assert_goes_on_with_another_worker(job, enough, name, r"no heartbeat for \S+ s")

    def test_no_job_without_a_worker_that_may_still_be_alive(self):
        job = self.start_job("cfg.json", "--on-worker-death", "eject")
        self.assertEqual(job.wait(), 2)
        self.assertIn("--on-worker-death eject: with -m ssh a worker on a host that falls silent may still be alive", job.err())

    def test_a_job_is_observed_as_on_one_host_and_traces_of_another_one_are_named(self):
        """The other host does not see the folder of the run."""
        private = self.own_temporary_folder(self.hosts[1])
        unseen = tempfile.mkdtemp(prefix="paracel-unseen-")
        self.addCleanup(shutil.rmtree, unseen)
        run, metrics = os.path.join(unseen, "run"), tempfile.mkdtemp(dir=self.folder)
        job, enough = self.start_paced_job("observed", "--run-dir", run, *observed.options(metrics))
        name = observed.wait_for_metrics(self, run, metrics, 4, 2, self.hosts[0].enter)
        self.touch(enough)
        self.assertEqual(job.wait(), 0, job.err())
        observed.assert_json(self, job.err(), name, "launcher")
        observed.assert_json_logs(self, run, name, 4, 2)
        there = os.path.join(private, os.path.relpath(run, "/tmp"))
        self.assertTrue(os.listdir(there))
        self.assertEqual(os.stat(there).st_mode & 0o777, 0o700)
        a, b = (host.name for host in self.hosts)
        done = subprocess.run([sys.executable, PRUN, "trace", "--run", run, "--format", "chrome"], capture_output=True, text=True,
                              check=False, env=clean_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"prun.py: nothing is here of {b}, which had server s0, server s1, worker 2, worker 3: if {run} is another "
                      "folder there, its .trace files are in it: copy them into this one\n", done.stderr)
        shutil.copytree(there, run, dirs_exist_ok=True)
        self.assertNotIn("nothing is here of", observed.assert_recorded(self, run, metrics, 4, 2, [a, b]))

    def test_more_workers_than_sshd_lets_in_at_once(self):
        """Those that join, and those of a program that does not."""
        with open(os.path.join(self.folder, "many"), "w", encoding="utf-8") as file:
            file.write(f"{self.hosts[1].address} slots=20\n")
        job = self.start_job("cfg.json", "-w", "20", "--hostfile", "many")
        self.assertEqual(job.wait(), 0, job.err())
        says = self.write_program("idle", "sleep 1")
        job = self.start("-w", "20", "-p", "1", "-m", "ssh", "--hostfile", "many", "--run-dir", "idle_run", says,
                         prefix=self.hosts[0].enter, environment=clean_environment(PARACEL_SSH=self.ssh))
        self.assertEqual(job.wait(), 0, job.err())
        self.assert_hosts_empty(END_LIMIT)

    def test_more_workers_than_slots_are_refused(self):
        job = self.start_job("cfg.json", "-w", "5")
        self.assertEqual(job.wait(), 2)
        self.assertIn("-w 5: workers has 4 slots, one for each worker", job.err())

    def test_a_host_that_cannot_be_reached_is_named(self):
        job = self.start_job("cfg.json", agent=self.ssh.replace(self.folder + "/key", self.folder + "/host_key"))
        self.assertEqual(job.wait(), 1)
        self.assertRegex(job.err(), rf"the job's key cannot be brought to {NET}\S+ by \S*ssh: .*Permission denied")


if __name__ == "__main__":
    main()

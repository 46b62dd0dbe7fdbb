#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs in Slurm, Debian's own: slurmctld, munged and a slurmd on each of two hosts (slurm_support.py). Needs root and these
packages; otherwise skipped with the reason."""
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import observed  # noqa: E402
from process_support import BUILD, LR, PRUN, SOURCE, main, read_bytes, wait_until  # noqa: E402
from slurm_support import REASON, SlurmTest  # noqa: E402


@unittest.skipIf(REASON, REASON)
class Slurm(SlurmTest):
    def local(self, config, *options):
        run = self.start("-w", "4", "-p", "2", "-c", config, "-m", "local", *options, LR)
        self.assertEqual(run.wait(), 0, run.err())
        return run

    def test_the_first_job(self):
        """On two hosts, encrypted or not, with the bits of one host; worker 0's output is the job's."""
        local = self.local("cfg.json")
        model = read_bytes(os.path.join(self.folder, "out", "lr_theta_0"))
        self.assertTrue(model)
        for folder, options in (("there", ()), ("clear", ("--insecure",))):
            self.write_config(folder + ".json", output=folder + "/")
            job = self.submit("-w", "4", "-p", "2", *options, "-c", folder + ".json", LR)
            self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())
            self.assertEqual(read_bytes(os.path.join(self.folder, folder, "lr_theta_0")), model)
            self.assertEqual("nothing is encrypted" in self.said(), bool(options), self.said())
            for line in local.out().splitlines()[:-1]:
                self.assertIn(line, self.said())

    def test_a_killed_server_is_replaced_on_the_other_node(self):
        name, environment, enough = self.paced("replaced.json", output="replaced/")
        job = self.submit("-w", "3", "-p", "2", "--replicas", "2", "-c", name, LR, **environment)
        self.wait_for("prun: round")
        victim = next(p for name, host, p in self.processes() if name == "start_server" and host == 1)
        victim.kill()
        self.wait_for("replicas of everything exist again")
        self.assertRegex(self.said(), r"server s\d \(pid \d+ on prc\d+b\) lost: it was killed by SIGKILL")
        self.touch(enough)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())
        self.assert_bits_of_one_host("replaced", 3)

    def test_a_killed_worker_ends_the_job_and_is_named(self):
        job = self.submit("-w", "4", "-p", "2", "-c", "long.json", LR)
        self.wait_for("prun: round")
        next(p for name, host, p in self.processes() if name == "lr" and host == 1).kill()
        self.assertEqual(self.cluster.wait_for_end(job), ("FAILED", "10:0", "0"), self.said())
        self.assertRegex(self.said(), r"worker \d \(on n2, by srun, pid \d+\) was killed by SIGKILL")
        self.assertIn("--checkpoint-every N --requeue such a job is queued again", self.said())
        self.assert_nothing_runs()

    def test_a_killed_worker_is_started_again_on_its_node(self):
        name, environment, enough = self.paced("again.json", output="again/")
        job = self.submit("-w", "3", "-p", "2", "--on-worker-death", "wait:20", "-c", name, LR, **environment)
        self.wait_for("prun: round")
        next(p for name, host, p in self.processes() if name == "lr" and host == 1).kill()
        self.wait_for(r"worker 2 \(pid \d+\) has caught up")
        self.assertRegex(self.said(), r"worker 2 \(pid \d+ on prc\d+b\) lost: it was killed by SIGKILL; the others wait at most")
        self.assertEqual([host for name, host, _ in self.processes() if name == "lr"].count(1), 1)
        self.touch(enough)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())
        self.assert_bits_of_one_host("again", 3)

    def test_a_stopped_worker_is_ended_and_started_where_a_task_is_free(self):
        """Both workers are on the first node, and the second one has room for two."""
        name, environment, enough = self.paced("stopped.json", output="stopped/")
        run = self.start("-m", "slurm", "-w", "2", "-p", "2", "--on-worker-death", "wait:30", "-c", name, LR,
                         environment=self.environment(**environment),
                         prefix=[*self.cluster.hosts[0].enter, "salloc", "-N2", "-n4", "--quiet"])
        self.assertTrue(wait_until(lambda: "prun: round" in run.err(), 30), run.err())

        def workers():
            return [(host, p) for name, host, p in self.processes_of(run.err()) if name == "lr"]
        self.assertEqual([host for host, _ in workers()], [0, 0])
        victim = workers()[0][1]
        victim.kill(signal.SIGSTOP)
        self.assertTrue(wait_until(lambda: "has caught up" in run.err(), 40), run.err())
        self.assertTrue(wait_until(lambda: not os.path.exists(f"/proc/{victim.pid}/exe"), 10), "it is still there")
        self.assertEqual(sorted(host for host, _ in workers()), [0, 1])
        self.touch(enough)
        self.assertEqual(run.wait(), 0, run.err())
        self.assert_bits_of_one_host("stopped", 2)

    def test_the_key_is_on_the_other_node_as_long_as_the_job_runs_and_nowhere_else(self):
        job = self.submit("-w", "4", "-p", "2", "-c", "long.json", LR)
        self.wait_for("prun: round")
        commands = [p for host in self.cluster.hosts for p in host.pids()]
        here = next(path for path in glob.glob("/tmp/prc-*/job.key") if os.path.exists(
            os.path.join(self.cluster.other_tmp, os.path.relpath(path, "/tmp"))))
        key = read_bytes(here)
        self.assertRegex(key, rb"^[0-9a-f]{64}$")
        there = os.path.join(self.cluster.other_tmp, os.path.relpath(here, "/tmp"))
        self.assertEqual(read_bytes(there), key)
        self.assertEqual((os.stat(there).st_mode & 0o7777, os.stat(os.path.dirname(there)).st_mode & 0o7777), (0o600, 0o700))
        self.assertTrue(commands)
        for pid in commands:
            for name in ("cmdline", "environ"):
                self.assertNotIn(key, read_bytes(f"/proc/{pid}/{name}"), pid)
        self.assertNotIn(key.decode(), self.said())
        prun = next(p for p in commands if b"prun.py" in read_bytes(f"/proc/{p}/cmdline")
                    and b"--sbatch" not in read_bytes(f"/proc/{p}/cmdline"))
        os.kill(prun, signal.SIGKILL)  # with prun.py the key goes, and all processes on both nodes
        self.assertTrue(wait_until(lambda: not os.path.exists(there), 10))
        self.assert_nothing_runs()
        self.cluster.wait_for_end(job)

    def test_without_munge_the_key_comes_in_clear_text_with_a_warning(self):
        tools = tempfile.mkdtemp(dir=self.folder)
        for folder in ("/usr/bin", "/usr/sbin"):
            for name in set(os.listdir(folder)) - {"munge"} - set(os.listdir(tools)):
                os.symlink(os.path.join(folder, name), os.path.join(tools, name))
        job = self.submit("-w", "4", "-p", "2", "-c", "cfg.json", LR, PATH=tools)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())
        self.assertIn("prun: warning: munge is not installed here: the job's key goes to the other nodes through srun",
                      self.said())

    def test_scancel_leaves_a_checkpoint_from_which_the_same_bits_come(self):
        name, environment, enough = self.paced("cancelled.json", output="cancelled/")
        checkpoints = self.not_there("ckpt")
        arguments = ("-w", "4", "-p", "2", "-c", name, "--checkpoint-dir", checkpoints)
        job = self.submit(*arguments, LR, **environment)
        self.wait_for("prun: round [2-9]")
        self.cluster.ask("scancel", str(job))
        self.wait_for(r"SIGTERM: job \d+ is told to end: a checkpoint, and then the job ends")
        self.assertEqual(self.cluster.wait_for_end(job)[0], "CANCELLED", self.said())
        self.wait_for("prun: the checkpoint is in " + checkpoints)
        self.assertIn(f"submit the same with --resume {checkpoints}", self.said())
        self.assert_nothing_runs()
        self.touch(enough)
        job = self.submit("-w", "4", "-p", "2", "-c", name, "--resume", checkpoints, LR, **environment)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())
        self.assertIn("resuming from", self.said())
        self.assert_bits_of_one_host("cancelled", 4)

    def test_a_signal_long_before_the_limit_asks_for_a_checkpoint_and_no_end(self):
        name, environment, enough = self.paced("asked.json", output="asked/")
        checkpoints = self.not_there("ckpt")
        job = self.submit("-w", "4", "-p", "2", "-c", name, "--checkpoint-dir", checkpoints, LR, **environment)
        self.wait_for("prun: round [2-9]")
        for number in ("USR2", "USR1"):  # to all processes, those on the other node, too
            before = self.said().count("the checkpoint is in")
            self.cluster.ask("scancel", "--full", f"--signal={number}", str(job))
            self.wait_for(f"SIG{number}: not near the time limit: a checkpoint, and then the job goes on")
            self.assertTrue(wait_until(lambda: self.said().count("the checkpoint is in") > before, 20), self.said())
        self.touch(enough)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())

    def test_at_the_time_limit_it_is_queued_again_and_comes_to_the_same_bits(self):
        name, environment, enough = self.paced("limited.json", output="limited/", rounds=2000)
        checkpoints = self.not_there("ckpt")
        job = self.submit("-w", "4", "-p", "2", "-c", name, "--checkpoint-dir", checkpoints, "--requeue", "--before-limit", "40",
                          LR, asked="-N2 -n4 --time=1", **environment)
        self.wait_for(r"SIGUSR1: the time limit of job \d+ is in \d+ s: a checkpoint, and then the job ends", 90)
        self.touch(enough)
        self.wait_for(r"job \d+ is queued again")
        state, code, restarts = self.cluster.wait_for_end(job, 150)
        self.assertEqual((state, code), ("COMPLETED", "0:0"), self.said())
        self.assertGreater(int(restarts), 0)
        self.wait_for("resuming from " + checkpoints)
        self.assert_bits_of_one_host("limited", 4, 2000)

    def test_a_host_dies_and_the_job_goes_on(self):
        """With --no-kill, and replicas on both nodes; all workers on the first one."""
        name, environment, enough = self.paced("survivor.json", output="survivor/")
        job = self.submit("-w", "2", "-p", "2", "--replicas", "2", "-c", name, LR, asked="-N2 -n4 --no-kill", **environment)
        self.wait_for("prun: round")
        self.addCleanup(self.cluster.wait_for_nodes)
        self.addCleanup(self.cluster.start_slurmd, 1)
        self.cluster.kill_host(1)
        self.wait_for("replicas of everything exist again")
        self.assertEqual({host for _, host, _ in self.processes()}, {0})
        self.touch(enough)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())
        self.assert_bits_of_one_host("survivor", 2)

    def test_a_job_is_observed_as_on_one_host(self):
        name, environment, enough = self.paced("observed.json", output="observed/")
        run, metrics = self.not_there("run"), tempfile.mkdtemp(dir=self.folder)
        job = self.submit("-w", "4", "-p", "2", "--run-dir", run, *observed.options(metrics), "-c", name, LR, **environment)
        mark = observed.wait_for_metrics(self, run, metrics, 4, 2, self.cluster.hosts[0].enter)
        self.touch(enough)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())
        said = self.said().splitlines(keepends=True)
        observed.assert_json(self, "".join(line for line in said if line.startswith("{")), mark, "launcher")
        self.assertTrue(any(line.startswith("objective ") for line in said), said)  # of worker 0, as it was written
        observed.assert_json_logs(self, run, mark, 4, 2)
        observed.assert_recorded(self, run, metrics, 4, 2, [host.name for host in self.cluster.hosts])

    def test_what_the_page_says_from_a_clone_to_the_result(self):
        """The lines of doc/operations.md, word for word, on the first host, which is the login node here."""
        folder = tempfile.mkdtemp(dir=self.folder)
        for name, path in (("prun.py", PRUN), ("build", BUILD), ("training.dat", os.path.join(self.folder, "training.dat"))):
            os.symlink(path, os.path.join(folder, name))
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            config = re.search(r"<!-- file: cfg\.json -->\n```json\n(.*?)```", file.read(), re.S)[1]
        with open(os.path.join(folder, "cfg.json"), "w", encoding="utf-8") as file:
            file.write(config)
        with open(os.path.join(SOURCE, "doc", "operations.md"), encoding="utf-8") as file:
            lines = re.findall(r"^    (\S.*?) *(?:#.*)?$", file.read().split("\n## Slurm\n", 1)[1].split("\n## ", 1)[0], re.M)
        self.assertEqual([line.split()[0] for line in lines], ["./prun.py", "squeue", "cat"])

        def enter(line):
            return subprocess.run([*self.cluster.hosts[0].enter, "sh", "-c", line], capture_output=True, text=True, check=False,
                                  stdin=subprocess.DEVNULL, cwd=folder, env=self.environment())
        begin = time.monotonic()
        submitted = enter(lines[0])
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        job = submitted.stdout.strip()
        self.addCleanup(self.cancel, int(job))
        after = time.monotonic()
        self.assertRegex(enter(lines[1]).stdout, rf"(?m)^ +{job} ")
        self.output = os.path.join(folder, f"slurm-{job}.out")
        self.assertEqual(self.cluster.wait_for_end(int(job)), ("COMPLETED", "0:0", "0"), self.said())
        print(f"submitted in {after - begin:.1f} s, completed after {time.monotonic() - after:.1f} s more")
        self.assertIn("objective ", enter(lines[2].replace("NUMBER", job)).stdout)
        self.assertTrue(os.path.getsize(os.path.join(folder, "result", "lr_theta_0")))

    def test_the_example_script(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        for name, path in (("prun.py", PRUN), ("build", BUILD)):
            os.symlink(path, os.path.join(folder, name))
        self.write_config(os.path.join(folder, "cfg.json"), training_input=os.path.join(self.folder, "training.dat"),
                          output="example/", rounds=200)
        self.output = os.path.join(folder, "out")
        done = subprocess.run([*self.cluster.hosts[0].enter, "sbatch", "--parsable", "--output", self.output,
                               os.path.join(SOURCE, "tool", "slurm", "job.sbatch")], capture_output=True, text=True, cwd=folder,
                              env=self.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(self.cancel, int(done.stdout))
        self.assertEqual(self.cluster.wait_for_end(int(done.stdout)), ("COMPLETED", "0:0", "0"), self.said())
        self.assertTrue(os.path.exists(os.path.join(folder, "ckpt")), self.said())
        self.assertTrue(os.path.exists(os.path.join(folder, "example", "lr_theta_0")), self.said())

    def test_beside_the_allocation(self):
        """In salloc prun.py and the scheduler run where it was called, and all others on the nodes."""
        name, environment, enough = self.paced("beside.json", output="beside/")
        run = self.start("-m", "slurm", "-w", "3", "-p", "2", "-c", name, LR, environment=self.environment(**environment),
                         prefix=[*self.cluster.hosts[0].enter, "salloc", "-N2", "-n3", "--quiet"])
        self.assertTrue(wait_until(lambda: "prun: round" in run.err(), 30), run.err())
        names = self.cluster.ask("squeue", "-s", "-h", "-o", "%j").split()
        self.touch(enough)
        self.assertEqual(run.wait(), 0, run.err())
        self.assertEqual(sorted(names), ["paracel-key", "paracel-key", "server-0", "server-1",
                                         "worker-0", "worker-1", "worker-2"])
        self.assertTrue(run.out().startswith("objective "), run.out())  # of worker 0, as it was written
        self.assert_bits_of_one_host("beside", 3)

    def test_a_start_that_stands_is_explained(self):
        enough = self.not_there("enough")
        program = self.write_program("stands", f"while ! [ -e {enough} ]; do sleep .1; done")
        job = self.submit("-w", "4", "-p", "2", program)
        self.wait_for(r"not all processes have joined; `squeue -s -j \d+`", 40)
        self.wait_for(r"worker 3 \(on n2, by srun, pid \d+\) has a step, and has not joined: it cannot reach this node at ")
        self.assertRegex(self.said(), r"worker 0 \(pid \d+\) runs on this node, and has not joined: its log is ")
        self.assertRegex(self.said(), r"prun:     \d+\.\d+ worker-3 n2 ")
        self.touch(enough)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())

    def test_a_host_dies_and_the_job_is_queued_again(self):
        """Without replicas. It waits until the host is back."""
        name, environment, enough = self.paced("dies.json", output="dies/")
        job = self.submit("-w", "4", "-p", "2", "-c", name, "--checkpoint-dir", self.not_there("ckpt"), "--checkpoint-every",
                          "20", "--requeue", LR, **environment)
        self.wait_for("prun: round [3-9][0-9]")
        self.cluster.kill_host(1)
        self.touch(enough)
        self.wait_for(r"job \d+ is queued again, and resumes from its last checkpoint|DUE TO NODE FAILURE")
        self.cluster.start_slurmd(1)
        self.assertTrue(self.cluster.wait_for_nodes())
        state, code, restarts = self.cluster.wait_for_end(job, 120)
        self.assertEqual((state, code), ("COMPLETED", "0:0"), self.said())
        self.assertGreater(int(restarts), 0)
        self.assertIn("resuming from", self.said())
        self.assert_bits_of_one_host("dies", 4)

    def test_what_is_wrong_is_said_with_what_to_do(self):
        self.assert_refused("this is no allocation of Slurm's", "-m", "slurm", LR)
        for arguments, words in ((("--requeue", "-m", "slurm"), "--requeue requires --checkpoint-dir"),
                                 (("--requeue",), "--requeue requires -m slurm"),
                                 (("--sbatch", ""), "--sbatch requires -m slurm"),
                                 (("-m", "slurm", "--m_server", "mpi"), "want slurm or local for both"),
                                 (("-m", "slurm", "--ppn", "2"), "sbatch --ntasks-per-node"),
                                 (("-m", "slurm", "--hostfile", "cfg.json"), "--hostfile requires -m mpi or ssh"),
                                 (("-m", "slurm", "--sbatch", "'"), "No closing quotation")):
            self.assert_refused(words, *arguments, "-c", "cfg.json", LR)
        job = self.submit("-w", "5", "-p", "2", "-c", "cfg.json", LR, asked="-N2 -n4")
        self.assertEqual(self.cluster.wait_for_end(job), ("FAILED", "2:0", "0"), self.said())
        self.assertRegex(self.said(), r"-w 5: the allocation \d+ has 4 tasks and 4 CPUs on 2 nodes: want one for each worker")
        job = self.submit("-w", "4", "-p", "2", "-c", "cfg.json", "--requeue", "--checkpoint-dir", self.not_there("ckpt"), LR,
                          asked="-N2 -n4 --time=1")
        self.assertEqual(self.cluster.wait_for_end(job), ("FAILED", "2:0", "0"), self.said())
        self.assertRegex(self.said(), r"--before-limit 120: the time limit of job \d+ is in .*, so it would be queued again at "
                                      "once")
        done = subprocess.run([*self.cluster.hosts[0].enter, sys.executable, PRUN, "-m", "slurm", "--sbatch=-p nowhere", "-c",
                               "cfg.json", LR], capture_output=True, text=True, cwd=self.folder, env=self.environment(),
                              check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"--sbatch: sbatch .*: .*invalid partition specified: nowhere")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of real jobs: killed between and during checkpoints, resumed with other numbers of processes, rejected if damaged,
and disks that are full or not writable."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from document_samples import check_samples  # noqa: E402
from process_support import (BIN, LR, PACED, PRUN, JobTest, Run, clean_environment, main, patient,  # noqa: E402
                             processes_of, wait_until)

RIDGE = os.path.join(BIN, "ridge")
TOOL = os.path.join(BIN, "paracel_checkpoint")


def checkpoints_in(folder):
    """The clocks of checkpoints that have a manifest."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(n) for n in names if re.fullmatch(r"\d{10}", n)
                  and os.path.exists(os.path.join(folder, n, "manifest.json")))


def flat(tree, name=""):
    if not isinstance(tree, dict):
        return {name: tree}
    return {k: v for key, part in tree.items() for k, v in flat(part, f"{name}.{key}").items()}


def folder_of(where, clock):
    return os.path.join(where, f"{clock:010d}")


class Checkpoints(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.symlink(os.path.dirname(BIN), os.path.join(cls.folder, "build"))  # as `prun.py checkpoint` finds it

    def setUp(self):
        self.dir = os.path.join(self.folder, f"ckpt-{self.id().rsplit('.', 1)[1][:40]}")
        shutil.rmtree(self.dir, ignore_errors=True)

    def config(self, output, program, **changes):
        """Under bsp, so that runs can be compared bit by bit."""
        if program == RIDGE:
            with open(os.path.join(self.folder, "ridge.csv"), "w", encoding="utf-8") as file:
                rng = random.Random(3)
                for _ in range(200):
                    x = [rng.uniform(-1, 1) for _ in range(6)]
                    file.write(",".join(map(repr, x + [sum(x) + rng.gauss(0, 0.1)])) + "\n")
            text = {"training_input": "ridge.csv", "output": output + "/", "rounds": 500, "alpha": 0.001, "beta": 0.01,
                    "method": "sgd", **PACED, **changes}
            name = output + ".json"
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                json.dump(text, file)
            return name
        return self.write_config(output + ".json", output=output + "/", **{"rounds": 500, "alpha": 0.05, **PACED, **changes})

    def theta(self, output, program):
        name = "lr_theta_0" if program == LR else "ridge_theta_0"
        with open(os.path.join(self.folder, output, name), "rb") as file:
            return file.read()

    def objective(self, output):
        with open(os.path.join(self.folder, output, "model.json"), encoding="utf-8") as file:
            model = json.load(file)
        return next(v for k, v in sorted(flat(model).items()) if k.endswith("objective"))

    def checkpoint(self, *arguments):
        done = subprocess.run([sys.executable, PRUN, "checkpoint", *arguments], cwd=self.folder, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False, env=clean_environment())
        return done.returncode, done.stdout, done.stderr

    def started(self, config, program, *options, workers=3, servers=2, **more):
        return self.start("-w", str(workers), "-p", str(servers), "-c", config, *options, program, **more)

    def finished(self, config, program, *options, workers=3, servers=2):
        status, out, err = self.prun("-w", str(workers), "-p", str(servers), "-c", config, *options, program)
        self.assertEqual(status, 0, err)
        return err

    def wait_for_checkpoints(self, run, count):
        self.assertTrue(wait_until(lambda: len(checkpoints_in(self.dir)) >= count or run.process.poll() is not None, 60))
        self.assertIsNone(run.process.poll(), "the run was over before it was killed: " + run.err())

    def killed_and_resumed(self, program, role, other_servers, number=signal.SIGKILL):
        self.finished(self.config("whole", program), program)
        config = self.config("parts", program)
        # Nodes give up on a silent scheduler after a multiple of this limit (net::patience_with_scheduler).
        limit = ["--heartbeat-limit", f"{patient(1.5):.1f}"] if number == signal.SIGSTOP else []
        run = self.started(config, program, "--checkpoint-dir", self.dir, "--checkpoint-every", "25", *limit,
                           environment=clean_environment(TEST_ENOUGH="/nonexistent"))
        self.wait_for_checkpoints(run, 2)
        if role == "prun":
            run.process.kill()
        else:
            run.find(role).kill(number)
        status = run.wait()
        meaning = {"prun": -signal.SIGKILL, "worker": 10, "server": 11, "scheduler": 13}
        self.assertEqual(status, meaning[role], run.err())
        self.assertTrue(wait_until(lambda: not processes_of(run.job()), 10))
        last = checkpoints_in(self.dir)[-1]
        err = self.finished(config, program, "--resume", self.dir, servers=other_servers)
        self.assertIn(f"resuming from {folder_of(self.dir, last)}: clock {last}, taken with 3 workers and 2 servers", err)
        self.assertEqual(self.theta("parts", program), self.theta("whole", program))
        self.assertEqual(self.objective("parts"), self.objective("whole"))

    def test_lr_that_lost_a_server_ends_with_the_same_bits(self):
        self.killed_and_resumed(LR, "server", 5)

    def test_lr_that_lost_a_worker_ends_with_the_same_bits(self):
        self.killed_and_resumed(LR, "worker", 1)

    def test_lr_whose_launcher_was_killed_ends_with_the_same_bits(self):
        self.killed_and_resumed(LR, "prun", 2)

    def test_lr_that_lost_its_scheduler_ends_with_the_same_bits(self):
        self.killed_and_resumed(LR, "scheduler", 2)

    def test_lr_whose_scheduler_was_stopped_ends_with_the_same_bits(self):
        self.killed_and_resumed(LR, "scheduler", 2, signal.SIGSTOP)

    def test_ridge_ends_with_the_same_bits(self):
        self.killed_and_resumed(RIDGE, "server", 3)

    def test_kills_in_the_midst_of_checkpoints_leave_one_that_restores(self):
        config = self.config("storm", LR, rounds=100000000)
        seen = {"nothing": 0, "workers": 0, "servers": 0, "all but the manifest": 0, "whole": 0}
        last = 0
        for turn in range(8):
            go_on = ["--resume", self.dir] if turn else ["--checkpoint-dir", self.dir]
            run = self.started(config, LR, *go_on, "--checkpoint-every", "1")
            self.assertTrue(wait_until(lambda: (checkpoints_in(self.dir) or [0])[-1] > last, 60), run.err())
            time.sleep(random.uniform(0, 0.1))
            run.process.kill()  # and the kernel kills all others
            run.wait()
            self.assertTrue(wait_until(lambda: not processes_of(run.job()), 10))
            newest = max(n for n in os.listdir(self.dir) if re.fullmatch(r"\d{10}", n))
            seen[self.stage(newest)] += 1
            chosen = json.loads(subprocess.run([TOOL, "choose", self.dir], capture_output=True, text=True, check=True).stdout)
            self.assertGreater(chosen["clock"], last)
            # An unfinished checkpoint has no manifest; one that has a manifest is complete.
            for broken in chosen["passed_over"]:
                self.assertIn("manifest.json: cannot be opened", broken["why"])
            last = chosen["clock"]
        print("stages of the kills:", seen, file=sys.stderr)
        # Each may have been killed between a manifest and the removal of the oldest; a run that goes on makes up for it.
        run = self.started(config, LR, "--resume", self.dir, "--checkpoint-every", "1")
        self.assertTrue(wait_until(lambda: checkpoints_in(self.dir)[-1] > last + 1 and len(checkpoints_in(self.dir)) <= 4, 60),
                        (checkpoints_in(self.dir), run.err()))

    def stage(self, name):
        names = os.listdir(os.path.join(self.dir, name))
        if "manifest.json" in names:
            return "whole"
        servers = sum(n.startswith("server") for n in names)
        if servers == 2:
            return "all but the manifest"
        if servers:
            return "servers"
        return "workers" if any(n.startswith("worker") for n in names) else "nothing"

    def test_a_signal_asks_for_one(self):
        run = self.started(self.config("asked", LR, rounds=100000000), LR, "--checkpoint-dir", self.dir)
        self.assertTrue(wait_until(lambda: "round" in run.err(), 30), run.err())
        run.process.send_signal(signal.SIGUSR1)
        self.assertTrue(wait_until(lambda: "bytes in" in run.err(), 30), run.err())
        self.assertIn("prun: all workers will stop for a checkpoint at clock ", run.err())
        clock = checkpoints_in(self.dir)[0]
        self.assertRegex(run.err(), rf"prun: checkpoint at clock {clock}: \d+ bytes in ")
        run.process.send_signal(signal.SIGUSR1)
        self.assertTrue(wait_until(lambda: len(checkpoints_in(self.dir)) == 2, 30))
        run.process.terminate()
        run.wait()
        status, out, _ = self.checkpoint("verify", self.dir)
        self.assertEqual(status, 0)
        self.assertEqual(len(out.splitlines()), 2)
        self.assertIn(f"{folder_of(self.dir, clock)}   valid   clock {clock}   3 workers   2 servers   5 files", out)
        self.assertIn("   lr   job " + run.job(), out)

    def test_without_a_folder_a_signal_says_so(self):
        run = self.started(self.config("nowhere", LR, rounds=100000000), LR)
        self.assertTrue(wait_until(lambda: "round" in run.err(), 30))
        run.process.send_signal(signal.SIGUSR1)
        self.assertTrue(wait_until(lambda: "without --checkpoint-dir" in run.err(), 10), run.err())
        self.assertIsNone(run.process.poll())

    def test_damaged_ones_are_passed_over_with_file_and_offset(self):
        config = self.config("damaged", LR, rounds=200)
        self.finished(config, LR, "--checkpoint-dir", self.dir, "--checkpoint-every", "60")
        self.assertEqual(checkpoints_in(self.dir), [60, 120, 180])
        victim = os.path.join(folder_of(self.dir, 180), "server-1-0.ckpt")
        with open(victim, "r+b") as file:
            file.seek(70)
            byte = file.read(1)[0]
            file.seek(70)
            file.write(bytes([byte ^ 16]))
        os.truncate(os.path.join(folder_of(self.dir, 120), "worker-2.ckpt"), 100)
        status, out, _ = self.checkpoint("verify", self.dir)
        self.assertEqual(status, 4)
        self.assertIn(f"broken   {victim}: byte 64: ", out)
        check_samples(self, "doc/checkpoints.md", "test_checkpoints", out, containing="   valid   ")
        err = self.finished(config, LR, "--resume", self.dir, "--checkpoint-every", "60")
        self.assertIn(f"prun: warning: {folder_of(self.dir, 180)} is damaged: {victim}: byte 64: ", err)
        self.assertRegex(err, r"0000000120/worker-2.ckpt: byte \d+: ")
        self.assertIn(f"resuming from {folder_of(self.dir, 60)}", err)
        self.assertEqual(checkpoints_in(self.dir), [60, 120, 180])
        self.assertEqual(self.checkpoint("verify", self.dir)[0], 0)
        self.assertTrue(os.path.isdir(folder_of(self.dir, 180) + ".old"))
        for clock in (60, 120, 180):
            os.unlink(os.path.join(folder_of(self.dir, clock), "worker-0.ckpt"))
        self.assert_refused("no checkpoint in it is valid", "-w", "3", "-c", config, "--resume", self.dir, LR, status=4)

    def test_the_folder_of_another_run_is_not_written_to(self):
        config = self.config("first", LR, rounds=20)
        self.finished(config, LR, "--checkpoint-dir", self.dir, "--checkpoint-every", "10")
        self.assert_refused("holds checkpoints of another run", "-c", config, "--checkpoint-dir", self.dir, LR)

    def test_a_folder_takes_the_checkpoints_of_one_job_at_a_time(self):
        config = self.config("holder", LR, rounds=100000000, training_input=os.path.join(self.folder, "training.dat"))
        first = self.started(config, LR, "--checkpoint-dir", self.dir)
        self.assertTrue(wait_until(lambda: "round" in first.err(), 30), first.err())
        words = rf"the checkpoints of a job that is running \(pid {first.pid} on \S+\) go to {self.dir}: name another folder"
        self.refused_elsewhere(2, "error: --checkpoint-dir: " + words, config, "--checkpoint-dir", self.dir)
        first.process.send_signal(signal.SIGUSR1)
        self.wait_for_checkpoints(first, 1)
        self.assertIn("checkpoints.lock", os.listdir(self.dir))
        self.assertEqual(self.checkpoint("verify", self.dir)[0], 0)
        self.assertEqual(len(self.checkpoint("list", self.dir)[1].splitlines()), 1)
        self.refused_elsewhere(2, "error: --resume: " + words, config, "--resume", self.dir)
        first.process.terminate()
        self.assertEqual(first.wait(), 143)
        self.assertNotIn("checkpoints.lock", os.listdir(self.dir))
        self.assertEqual(self.checkpoint("verify", self.dir)[0], 0)

    def refused_elsewhere(self, status, words, config, *options):
        """With a prun.py in another folder, with its own run folder."""
        with tempfile.TemporaryDirectory() as other:
            run = Run(["-w", "3", "-c", os.path.join(self.folder, config), *options, LR], other)
            self.addCleanup(run.destroy)
            self.assertEqual(run.wait(), status, run.err())
            self.assertRegex(run.err(), words)
            self.assertFalse(os.path.exists(os.path.join(other, "paracel_runs")))

    def test_the_checkpoint_of_another_program_is_refused(self):
        self.finished(self.config("mine", LR, rounds=20), LR, "--checkpoint-dir", self.dir, "--checkpoint-every", "10",
                      servers=1)
        status, _, err = self.prun("-w", "3", "-c", self.config("theirs", RIDGE), "--resume", self.dir, RIDGE)
        self.assertEqual(status, 4, err)
        self.assertEqual(err, f"prun.py: error: --resume {folder_of(self.dir, 20)}: a checkpoint of the program lr, which ridge "
                              "cannot resume from: want one of ridge\n")
        err = self.finished(self.config("mine", LR, rounds=21), LR, "--resume", self.dir)
        self.assertIn(f"warning: {folder_of(self.dir, 20)} was made with another config: rounds was 20, is 21\n", err)
        self.assertIn("clock 20, taken with 3 workers and 1 server\n", err)

    def test_what_differs_in_the_config_is_named_when_a_run_is_resumed(self):
        def write(name, text):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(json.dumps(text, indent=1))
            return name
        with open(os.path.join(self.folder, self.config("whole", LR, rounds=20)), encoding="utf-8") as file:
            base = write("base.json", json.load(file))
        config = write("including.json", {"include": base, "output": "first"})

        def again(*options):
            """Resumes from clock 10; what the warning says."""
            nonlocal err
            err = self.finished(config, LR, "--resume", folder_of(self.dir, 10), "--checkpoint-dir", self.dir, *options)
            said = re.findall(r"warning: (\S+) was made with another config: (.*)", err)
            self.assertEqual([where for where, _ in said], [folder_of(self.dir, 10)] * len(said))
            return [text for _, text in said]
        err = self.finished(config, LR, "--checkpoint-dir", self.dir, "--checkpoint-every", "10", "--set", "alpha=0.25", "--set",
                            "decay=0.5")
        self.assertEqual(again("--set", "decay=5e-1", "--set", "alpha=0.25"), [])
        self.assertEqual(again("--set", "alpha=0.5"), ["alpha was 0.25, is 0.5; decay was 0.5, is not given"])
        check_samples(self, "doc/checkpoints.md", "test_checkpoints", err, containing="another config")
        # In an included file, whose keys are in another order; the config itself is the same.
        with open(os.path.join(self.folder, base), encoding="utf-8") as file:
            keys = json.load(file)
        write(base, dict(reversed({**keys, "debug": True, "beta": 0.125}.items())))
        self.assertEqual(again("--set", "alpha=0.25", "--set", "decay=0.5"),
                         [f"beta was {keys['beta']}, is 0.125; debug was not given, is true"])

    def test_another_number_of_workers_ends_near_the_same_model(self):
        config = self.config("more", LR, rounds=300)
        self.finished(self.config("same", LR, rounds=300), LR)
        self.finished(config, LR, "--checkpoint-dir", self.dir, "--checkpoint-every", "100")
        self.finished(config, LR, "--resume", folder_of(self.dir, 100), "--checkpoint-dir", self.dir + "-2", workers=5,
                      servers=3)

        same, more = ([float(x) for x in self.theta(output, LR).split(b"|")] for output in ("same", "more"))
        for x, y in zip(same, more, strict=True):  # sums over five workers' rows round differently from sums over three
            self.assertAlmostEqual(x, y, delta=1e-9)

    def test_a_folder_that_cannot_be_written_is_told_and_the_run_continues(self):
        # A file instead of the folder: this stops root as well.
        with open(self.dir, "w", encoding="utf-8"):
            pass
        err = self.finished(self.config("refused", LR, rounds=40), LR, "--checkpoint-dir", os.path.join(self.dir, "in"),
                            "--checkpoint-every", "20")
        self.assertIn("prun: the checkpoint at clock 20 failed, and the job continues: worker ", err)
        os.unlink(self.dir)

    @unittest.skipUnless(os.geteuid() == 0, "only root may mount a small file system")
    def test_a_full_disk_is_told_and_the_previous_checkpoint_stays(self):
        os.makedirs(self.dir)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", self.dir], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("mount is not allowed here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.dir], check=False)
        self.finished(self.config("plenty", LR, rounds=300), LR)
        config = self.config("full", LR, rounds=300)
        run = self.started(config, LR, "--checkpoint-dir", self.dir, "--checkpoint-every", "100", "--checkpoint-keep", "5",
                           environment=clean_environment(TEST_ENOUGH=os.path.join(self.folder, "disk_is_full")))
        self.wait_for_checkpoints(run, 1)
        with open(os.path.join(self.dir, "ballast"), "wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"x" * 512)
            except OSError:
                pass
        self.touch(os.path.join(self.folder, "disk_is_full"))
        status = run.wait()
        self.assertEqual(status, 0, run.err())
        self.assertIn("No space left on device", run.err())
        if "/server-" in run.err():  # a worker may be the first to find the disk full
            check_samples(self, "doc/checkpoints.md", "test_checkpoints", run.err(), containing="prun: the checkpoint ")
        first = checkpoints_in(self.dir)[0]
        chosen = json.loads(subprocess.run([TOOL, "choose", self.dir], capture_output=True, text=True, check=True).stdout)
        self.assertEqual(chosen["clock"], checkpoints_in(self.dir)[-1])
        os.unlink(os.path.join(self.dir, "ballast"))
        shutil.rmtree(os.path.join(self.folder, "full"))
        self.finished(config, LR, "--resume", folder_of(self.dir, first))
        self.assertEqual(self.theta("full", LR), self.theta("plenty", LR))


if __name__ == "__main__":
    main()

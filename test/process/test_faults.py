#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""One loss at a time under three workloads: a server is killed, stopped temporarily or permanently, or its connections are cut,
break, or are silent for a while; a worker is killed or stopped. Nothing acknowledged is lost or counts twice, a bsp model is
bit-identical to that of an undisturbed run, failovers are quick, no process hangs, nothing is left behind. PARACEL_FAULT_RUNS
(default 10): the number of runs. Each run has its own seed, which a failure prints: PARACEL_FAULT_SEED=<seed>
PARACEL_FAULT_RUNS=1 repeats it (except for the timing)."""
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from link_proxy import Links  # noqa: E402
from process_support import (BIN, LR, PACED, JobTest, clean_environment, main, patient, read_bytes,  # noqa: E402
                             wait_until)

RUNS = int(os.environ.get("PARACEL_FAULT_RUNS", "10"))
COUNTERS, RIDGE = os.path.join(BIN, "test_counters"), os.path.join(BIN, "ridge")
SERVERS = 3
LEASE = 2.0 * 1.1            # seconds; includes clock drift
HANG = 120                   # seconds after which a job counts as hung
# Seconds; the longest that a round of the counters may take.
LIMITS = {"kill": 2.0, "stop": LEASE + 1, "pause": LEASE + 1, "long pause": LEASE + 1,
          # through a proxy that shares the cores with all other processes: only detects hanging
          "cut": 15.0, "break": 15.0, "silence": 15.0}
LOSES = ("kill", "stop", "cut")
WORKER_FAULTS = ("kill", "stop")


class Plan:
    """The plan of a run."""

    def __init__(self, seed):
        draw = random.Random(seed)
        # Consecutive seeds have different faults, so that ten runs cover all of them.
        turn = seed % (len(LIMITS) + 2)
        self.victim = "server" if turn < len(LIMITS) else "worker"
        self.fault = (list(LIMITS) + list(WORKER_FAULTS))[turn]
        self.workload = draw.choice(("lr", "counters")) if self.victim == "worker" else draw.choice(
            ("counters", "counters", "lr", "ridge"))
        self.on_worker_death = "eject" if self.workload == "lr" else "abort"
        self.slot = draw.randrange(SERVERS)
        self.rank = draw.randrange(1, 4)
        self.moment = draw.uniform(0, 0.6)
        self.length = draw.uniform(LEASE - 0.3, LEASE + 0.8) if self.fault == "long pause" else draw.uniform(0.1, 1.4)
        self.links = self.fault in ("cut", "break", "silence")
        self.rounds = 100 if self.links else 1500  # of a model: long enough for the fault, and the proxy is slow

    def __repr__(self):
        return f"{self.workload}: {self.fault} of {self.victim} {self.slot if self.victim == 'server' else self.rank}" + (
            f" for {self.length:.2f} s" if self.fault in ("pause", "long pause", "silence") else "")


class Faults(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(3)
        with open(os.path.join(cls.folder, "ridge.csv"), "w", encoding="utf-8") as file:
            for _ in range(200):
                x = [draw.uniform(-1, 1) for _ in range(6)]
                file.write(",".join(map(repr, x + [sum(x) + draw.gauss(0, 0.1)])) + "\n")

    # -- workloads

    def config(self, workload, name, rounds):
        if workload == "lr":
            return self.write_config(name + ".json", output=name + "/", rounds=rounds, **PACED)
        text = {"training_input": "ridge.csv", "output": name + "/", "rounds": rounds, "alpha": 0.001, "beta": 0.01,
                "method": "sgd", **PACED}
        with open(os.path.join(self.folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(text, file)
        return name + ".json"

    def model(self, workload, name):
        return read_bytes(os.path.join(self.folder, name, workload + "_theta_0"))

    def undisturbed(self, workload, rounds):
        name = f"alone_{workload}{rounds}"
        if not self.model(workload, name):
            run = self.start("-w", "4", "-p", str(SERVERS), "-c", self.config(workload, name, rounds),
                             LR if workload == "lr" else RIDGE)
            self.assertEqual(run.wait(HANG), 0, run.err())
        return self.model(workload, name)

    def begin(self, plan, name):
        """The run, its proxy if there is one, and its time limit."""
        program = {"counters": COUNTERS, "lr": LR, "ridge": RIDGE}[plan.workload]
        links = None
        if plan.links:
            links = Links(tempfile.mkdtemp(prefix="links", dir=self.folder), program, SERVERS)
            self.addCleanup(links.close)
            program = links.program
        options = ["-p", str(SERVERS), "--replicas", "2", "--heartbeat-limit", f"{patient(3):.1f}"]
        if plan.victim == "worker":
            options += ["--on-worker-death", plan.on_worker_death]
        if plan.workload == "counters":
            run = self.start("-w", "8", *options, program, plan.enough, "10", "20000")
        else:
            run = self.start("-w", "4", *options, "-c", self.config(plan.workload, name, plan.rounds), program,
                             environment=clean_environment(TEST_ENOUGH=plan.enough))
        self.assertTrue(wait_until(lambda: "round" in run.err() or run.process.poll() is not None, 60), run.err())
        return run, links

    # -- faults

    def victim(self, run, plan):
        return run.server(plan.slot) if plan.victim == "server" else run.worker(plan.rank)

    def strike(self, run, links, plan):
        """Returns whether it was in time."""
        if plan.links:
            if run.process.poll() is not None:
                return False
            if plan.fault == "break":
                links.reset(plan.slot, 0.05)
                return True
            links.silence(plan.slot)
            if plan.fault == "silence":
                time.sleep(plan.length)
            else:
                wait_until(lambda: "the job continues" in run.err() or run.process.poll() is not None, 20)
            links.restore(plan.slot)
            return True
        victim = self.victim(run, plan)
        if victim is None:
            return False
        try:
            victim.kill(signal.SIGKILL if plan.fault == "kill" else signal.SIGSTOP)
            if "pause" in plan.fault:
                time.sleep(plan.length)
                victim.kill(signal.SIGCONT)
        except ProcessLookupError:
            return plan.fault == "long pause"  # it counts as lost, and is killed
        return True

    # -- invariants

    def run_one(self, seed, number):
        plan = Plan(seed)
        expected = self.undisturbed(plan.workload, plan.rounds) if plan.workload != "counters" else b""
        name = f"run{number}"
        plan.enough = self.not_there("enough")
        run, links = self.begin(plan, name)
        time.sleep(plan.moment)
        in_time = self.strike(run, links, plan)
        if in_time and plan.fault in LOSES:
            wait_until(lambda: "the job continues" in run.err() or run.process.poll() is not None, 20)
        self.touch(plan.enough)
        status = run.wait(HANG)
        said = f"{plan}\n{run.err()}{run.out()}"
        self.assertIsNotNone(status, "it hangs: " + said)
        stall = None
        if plan.victim == "worker" and plan.on_worker_death == "abort":
            self.assertEqual(status, 10, said)
        else:
            self.assertEqual(status, 0, said)
        self.assert_nothing_left(run.job(), 1)
        if plan.victim == "server" and plan.workload == "counters":
            match = re.fullmatch(r"exact, longest round (\S+) s\n", run.out())
            self.assertTrue(match, said)
            stall = float(match.group(1))
            self.assertLess(stall, patient(LIMITS[plan.fault]), said)
        elif plan.victim == "server":
            self.assertEqual(self.model(plan.workload, name), expected, said)
        elif plan.on_worker_death == "eject" and in_time and "ejected" in run.err():
            self.assertRegex(run.err(), rf"worker {plan.rank} was ejected after", said)
        if plan.fault in LOSES:
            in_time = in_time and ("the job continues" in run.err() or status == 10)
        shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        return plan, in_time, stall

    def test_one_loss_at_a_time(self):
        first = int(os.environ.get("PARACEL_FAULT_SEED", random.randrange(10**9)))
        worst, in_time = {}, 0
        for number in range(RUNS):
            seed = first + number
            with self.subTest(f"PARACEL_FAULT_SEED={seed} PARACEL_FAULT_RUNS=1", number=number):
                try:
                    plan, hit, stall = self.run_one(seed, number)
                except AssertionError as e:
                    print(f"{number} {seed} FAILED: {e}", file=sys.stderr, flush=True)
                    raise
                in_time += hit
                print(f"{number} {seed} {plan}{'' if hit else ' (too late)'}"
                      f"{'' if stall is None else f': longest round {stall:.3f} s'}", file=sys.stderr, flush=True)
                if stall is not None:
                    worst[plan.fault] = max(worst.get(plan.fault, 0), stall)
            self.doCleanups()
        print(f"{RUNS} runs, {in_time} hit in time; longest rounds: "
              + ", ".join(f"{fault} {seconds:.2f} s" for fault, seconds in sorted(worst.items())), file=sys.stderr)
        self.assertGreater(in_time, RUNS // 2)


if __name__ == "__main__":
    main()

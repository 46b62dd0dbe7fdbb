#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Algorithms in Python, in one process and as jobs: the package's README, every call, failures, and what an interpreter makes
possible: threads, forks, Ctrl-C, objects that outlive their job."""
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PACKAGE, PROGRAMS, SOURCE, PackageTest, paced  # noqa: E402
from process_support import MPI, main, processes_of, role_of, wait_until  # noqa: E402


class Algorithms(PackageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
            blocks = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", file.read(), re.DOTALL))
        for name, text in blocks.items():
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        cls.config = json.loads(blocks["cfg.json"])
        cls.inputs = {"lines": "a,b,2\nb,c,3\nc,a,4\n", "csv": "1,2,1\n3,4,2\n5,6,3\n7,8,4\n",
                      "libsvm": "1 1:1 3:2.5\n-1 2:3 5:4\n"}
        for name, text in cls.inputs.items():
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        cls.configure("output.json", output="calls_out")
        cls.configure("inputs.json", **{name: name for name in cls.inputs})

    @classmethod
    def configure(cls, name, **config):
        with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return name

    def theta(self, folder="result"):
        return np.load(os.path.join(self.folder, folder, "theta.npy"))

    # ---- metrics

    def test_metrics_are_recorded_with_one_call(self):
        self.configure("measured.json", output="measured")
        self.program("metrics.py", '''
import paracel
class Program(paracel.Paralg):
    def solve(self):
        for round in range(1, 4):
            self.iter_commit()
            self.report_metric("loss", 1 / round)
            self.report_metric("auc", float("nan"), round=10 * round)
        for name, round in (("", 0), ("seconds", 0), ("loss", -1)):
            try:
                self.report_metric(name, 1.0, round)
            except paracel.ConfigError as error:
                if self.worker_id == 0:
                    print(error)
paracel.run(Program)
''')
        wrong = ('report_metric: the name is "", want one that', 'report_metric: the name is "seconds", want one that',
                 "report_metric: the round is -1, want 0 or more")
        want = [(r if name == "loss" else 10 * r, name, 1 / r if name == "loss" else None)
                for r in (1, 2, 3) for name in ("loss", "auc")]
        for name, job in (("alone", False), ("as a job", True)):
            with self.subTest(name):
                status, out, err = self.prun("-w", "2", "-c", "measured.json", "metrics.py") if job else \
                    self.python("metrics.py", "--cfg_file", "measured.json")
                self.assertEqual(status, 0, err)
                for words in wrong:
                    self.assertIn(words, out)
                with open(os.path.join(self.folder, "measured", "metrics.jsonl"), encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
                self.assertEqual([(line["round"], n, line[n]) for line in lines for n in line if n in ("loss", "auc")], want)

    # ---- the README

    def test_lr_of_the_readme_in_one_process_and_as_a_job(self):
        status, out, err = self.python("lr.py", "--cfg_file", "cfg.json")
        self.assertEqual((status, err), (0, ""))
        one = self.theta()
        shutil.rmtree(os.path.join(self.folder, "result"))
        status, job_out, err = self.prun("-w", "4", "-p", "2", "-c", "cfg.json", "lr.py")
        self.assertEqual((status, job_out), (0, out), err)
        np.testing.assert_allclose(self.theta(), one, rtol=1e-10)
        self.assertLess(float(out.split()[1]), 0.5)  # 0.69 before the first step

    def test_a_killed_server_does_not_change_the_result(self):
        self.program("paced.py", paced("lr.py"))
        self.configure("kill.json", **dict(self.config, output="killed", rounds=400))
        self.configure("calm.json", **dict(self.config, output="calm", rounds=400))
        self.assertEqual(self.prun("-w", "4", "-p", "2", "--replicas", "2", "-c", "calm.json", "lr.py")[0], 0)
        enough = self.not_there("enough")
        run = self.start("-w", "4", "-p", "2", "--replicas", "2", "-c", "kill.json", "paced.py",
                         environment=self.environment(TEST_ENOUGH=enough))
        self.assertTrue(wait_until(lambda: "round" in run.err(), 30), run.err())
        run.find("server").kill()
        self.assertTrue(wait_until(lambda: ") lost: " in run.err() or run.process.poll() is not None, 30), run.err())
        self.assertIn(") lost: ", run.err())
        self.touch(enough)
        self.assertEqual(run.wait(), 0, run.err())
        np.testing.assert_allclose(self.theta("killed"), self.theta("calm"), rtol=1e-10)

    # ---- the calls

    def test_every_call_in_one_process(self):
        for name, more in (("calls.py", ("--cfg_file", "output.json")), ("queue_and_input.py", ("--cfg_file", "inputs.json"))):
            status, out, err = self.python(os.path.join(PROGRAMS, name), *more)
            self.assertEqual((status, err), (0, ""), out)

    def test_every_call_as_a_job(self):
        for name, more in (("calls.py", ("-c", "output.json")), ("queue_and_input.py", ("-c", "inputs.json"))):
            status, out, err = self.prun("-w", "3", "-p", "2", *more, os.path.join(PROGRAMS, name))
            self.assertEqual(status, 0, out + err)

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_every_call_under_mpirun(self):
        for name, more in (("calls.py", ()), ("queue_and_input.py", ("-c", "inputs.json"))):
            status, out, err = self.prun("-w", "2", "-p", "1", "-m", "mpi", *more, os.path.join(PROGRAMS, name))
            self.assertEqual(status, 0, out + err)

    def test_commands(self):
        self.program("told.py", """
import paracel
class Told(paracel.Paralg):
    def solve(self):
        done = []
        self.on_command("add", lambda body: str(self.worker_id + int(body)))
        self.on_command("fail", lambda body: 1 / 0)
        self.on_command("stop", lambda body: done.append(body))
        self.sync()
        if self.worker_id == 0:
            assert self.tell("worker", None, "add", "5") == [(0, True, "5"), (1, True, "6")]
            (answer,) = self.tell("worker", 1, "fail")
            assert not answer[1] and "ZeroDivisionError: division by zero" in answer[2], answer
            assert [n["role"] for n in self.nodes()] == ["server", "worker", "worker"], self.nodes()
            self.tell("worker", None, "stop")
        while not done:
            self.take_commands(10)
paracel.run(Told)
""")
        status, out, err = self.prun("-w", "2", "-p", "1", "told.py")
        self.assertEqual(status, 0, out + err)

    # ---- checkpoints

    def test_a_resumed_job_continues(self):
        self.program("resumed.py", """
import os, signal
import numpy as np
import paracel
class Counted(paracel.Paralg):
    def solve(self):
        self.seen = []
        self.weights = np.zeros(2)
        if not self.resumed:
            self.write(f"own_{self.worker_id}", 0)
        self.sync()
        for r in range(self.first_iteration(), 8):
            if r == 5 and not self.resumed and self.worker_id == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            self.update(f"own_{self.worker_id}", 1)
            self.seen.append(r)
            self.weights += r
            self.iter_commit()
        assert self.read(f"own_{self.worker_id}") == 8
        assert self.seen == list(range(8)), self.seen
        assert self.weights.tolist() == [28, 28], self.weights
        print(f"worker {self.worker_id} resumed: {self.resumed}")
    def checkpoint_state(self):
        return {"seen": self.seen, "weights": self.weights}
    def restore_state(self, state, all_states):
        assert all_states is None
        self.seen, self.weights = list(state["seen"]), state["weights"]
paracel.run(Counted)
""")
        options = ["-w", "2", "-p", "1", "--checkpoint-dir", "saved", "--checkpoint-every", "2"]
        self.assertNotEqual(self.prun(*options, "resumed.py")[0], 0)
        status, out, err = self.prun(*options, "--resume", "saved", "resumed.py")
        self.assertEqual((status, out), (0, "worker 0 resumed: True\n"), err)

    def test_a_resumed_loop_continues(self):
        self.program("loop.py", """
import os, signal
import numpy as np
import paracel
class Looped(paracel.Paralg):
    def solve(self):
        kept = {"total": 0, "order": np.arange(3)}
        loop = self.loop(kept)
        first = True
        while loop.next(6):
            if loop.iteration == 4 and not self.resumed:
                os.kill(os.getpid(), signal.SIGKILL)
            if first and self.resumed:
                print("from", loop.iteration)
            first = False
            kept["total"] += loop.iteration
            kept["order"] = np.roll(kept["order"], 1)
        print(kept["total"], kept["order"])
paracel.run(Looped)
""")
        options = ["-w", "1", "-p", "1", "--checkpoint-dir", "loop_saved", "--checkpoint-every", "2"]
        self.assertNotEqual(self.prun(*options, "loop.py")[0], 0)
        status, out, err = self.prun(*options, "--resume", "loop_saved", "loop.py")
        self.assertEqual((status, out), (0, "from 4\n15 [0 1 2]\n"), err)

    # ---- failures

    def test_an_error_is_one_line_and_its_status(self):
        cases = {"raise paracel.DataError('points.csv:3: found x')": ("points.csv:3: found x", 4),
                 "self.load('no such file')": ("no such file", 4), "self.read('none')": ('key "none" does not exist', 1),
                 "self.register_update('none.so', 'f')": ("none.so", 5), "self.set_consistency('x')": ("want", 3),
                 "1 / 0": ("ZeroDivisionError: division by zero", 1),
                 "import sys; sys.exit(0)": ("exit() before the algorithm had ended", 1)}
        for body, (words, wanted) in cases.items():
            with self.subTest(body):
                self.program("failing.py", "import paracel\nclass Failing(paracel.Paralg):\n    def solve(self):\n"
                                           f"        {body}\nparacel.run(Failing)\n")
                status, out, err = self.python("failing.py")
                self.assertEqual((status, out), (wanted, ""), err)
                last = err.splitlines()[-1]
                self.assertTrue(last.startswith("failing.py: error: ") and words in last, err)
                self.assertTrue("Traceback" in err if "ZeroDivision" in words else err.count("\n") == 1, err)
                status, out, err = self.prun("-w", "2", "-p", "1", "failing.py")
                self.assertEqual(status, wanted, err)
        status, out, err = self.python("lr.py", "--cfg_file", "none.json")
        self.assertEqual((status, err), (3, "lr.py: error: none.json: cannot be read: No such file or directory\n"))
        self.assertEqual(self.python("lr.py", "--rounds", "3")[0], 2)

    def test_the_error_of_an_update_that_nobody_waits_for_ends_the_program(self):
        for text in ("import paracel\np = paracel.Paralg()\np.write('x', 'text')\np.update('x', 1.0)\n",
                     "import paracel\nclass P(paracel.Paralg):\n    def solve(self):\n        self.write('x', 'text')\n"
                     "        self.update('x', 1.0)\nparacel.run(P)\n"):
            self.program("late.py", text)
            status, out, err = self.python("late.py")
            self.assertEqual((status, out), (5, ""), err)
            self.assertRegex(err, r'^late.py: error: .*"x".*\n$')

    # ---- an interpreter

    def test_other_threads_run_while_a_call_waits(self):
        self.program("threads.py", """
import threading, time
import paracel
class Waits(paracel.Paralg):
    def solve(self):
        if self.worker_id == 1:
            time.sleep(1)
            return self.comm.synchronize()
        counted, stop = [0], threading.Event()
        def count():
            while not stop.is_set():
                counted[0] += 1
                time.sleep(0.001)
        thread = threading.Thread(target=count)
        thread.start()
        self.comm.synchronize()  # a second
        stop.set()
        thread.join()
        assert counted[0] > 100, counted
        failed = []
        def call():
            try:
                self.read("x")
            except paracel.Error as error:
                failed.append(str(error))
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        assert failed and "another thread" in failed[0], failed
        print("done")
paracel.run(Waits)
""")
        status, out, err = self.prun("-w", "2", "-p", "1", "threads.py")
        self.assertEqual((status, out), (0, "done\n"), err)

    def test_ctrl_c_ends_a_wait(self):
        self.program("waits.py", """
import os, sys
import paracel
class Waits(paracel.Paralg):
    def solve(self):
        if self.worker_id == 0:
            print("waiting", flush=True)
            if sys.argv[-1].endswith("clock.json"):
                self.set_consistency("bsp")
                self.iter_commit()
                self.read("x")
            elif sys.argv[-1].endswith("collective.json"):
                self.comm.allreduce(1)
            else:
                self.comm.recv(1)
        else:
            while True:
                self.take_commands(60)
paracel.run(Waits)
""")
        launchers = ("local", "mpi") if MPI else ("local",)
        for config, launcher in itertools.product(("message.json", "clock.json", "collective.json"), launchers):
            with self.subTest(config=config, launcher=launcher):
                self.configure(config)
                run = self.start("-w", "2", "-p", "1", "-m", launcher, "-c", config, "waits.py")
                self.assertTrue(wait_until(lambda run=run: "waiting" in run.out(), 30), run.err())
                time.sleep(0.2)
                workers = [p for p in processes_of(run.job()) if "waits.py" in " ".join(p.command) and role_of(p) == "other"]
                first = min(workers, key=lambda p: p.pid)
                begin = time.monotonic()
                first.kill(signal.SIGINT)
                self.assertNotEqual(run.wait(), 0)
                self.assertLess(time.monotonic() - begin, 10)
                self.assertIn("waits.py: interrupted", self.log(run, 0))

    def log(self, run, rank):
        with open(os.path.join(run.logs(), f"worker_{rank}.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def test_ctrl_c_in_one_process(self):
        """A function of a plug-in in C++ sleeps."""
        plugin = os.path.join(SOURCE, "test", "support", "plugins", "slow_updates.cpp")
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", "-I", os.path.join(SOURCE, "include"), plugin, "-o",
                        os.path.join(self.folder, "libslow.so")], check=True)
        os.chmod(os.path.join(self.folder, "libslow.so"), 0o755)
        self.program("busy.py", """
import paracel
p = paracel.Paralg()
p.write("x", 1.0)
print("waiting", flush=True)
try:
    p.bupdate("x", 3.0, function=("libslow.so", "sleep_for"))
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert p.read("x") == 4.0  # the job goes on
""")
        with self.running("busy.py") as process:
            self.assertEqual(process.stdout.readline(), "waiting\n")
            time.sleep(0.2)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.stdout.readline(), "interrupted\n")
            self.assertLess(time.monotonic() - begin, 2)
            self.assertEqual(process.wait(30), 0, process.stderr.read())

    def test_a_forked_process_is_refused(self):
        self.program("forks.py", """
import os, subprocess
import paracel
p = paracel.Paralg()
p.write("x", 1.0)
array = paracel.Array(p, "a", 10)
child = os.fork()
if child == 0:
    for call in (lambda: p.read("x"), array.read, paracel.Paralg):
        try:
            call()
        except paracel.Error as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError(call)
    p.close(), paracel.leave()
    raise SystemExit(7)  # with all destructors
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
subprocess.run(["true"], check=True)
assert p.read("x") == 1.0
""")
        status, out, err = self.python("forks.py")
        self.assertEqual((status, out, err), (0, "", ""))

    def test_what_outlives_its_job_is_safe(self):
        self.program("outlives.py", """
import gc
import numpy as np
import paracel
def refuses(call):
    try:
        call()
    except paracel.Error as error:
        assert "closed" in str(error) or "gone" in str(error) or "left" in str(error), error
    else:
        raise AssertionError(call)
for turn in range(3):
    p = paracel.Paralg(consistency="ssp", staleness=1)
    p.write("x", np.arange(1e6))
    p.write("k", 1.0)
    array, table, keys = paracel.Array(p, "a", 10), paracel.Table(p, "t", 4), p.prepare(["k"])
    value, rows, future = p.read("x"), table.pull([1, 2]), p.read_async("x")
    dropped = p.read_async("x")
    comm, loop, queue = p.comm, p.loop({"n": 1}), paracel.ComQueue(p)
    del dropped
    if turn == 0:
        p.close()
        p.close()
    elif turn == 1:
        del p
        gc.collect()
        assert array.read().sum() == 0  # keeps the algorithm
        p = array
        paracel.leave()
    else:
        paracel.leave()
    refuses(array.read), refuses(lambda: table.pull([1])), refuses(future.get), refuses(lambda: comm.allreduce(1))
    refuses(loop.next), refuses(queue.exec)
    if turn != 1:
        refuses(lambda: p.read(keys)), refuses(p.iter_commit)
    assert value.sum() == 499999500000.0 and rows.shape == (2, 4)
    paracel.leave()
    del p, array, table, keys, future, loop, queue
    gc.collect()
    assert value[-1] == 999999
""")
        status, out, err = self.python("outlives.py")
        self.assertEqual((status, err), (0, ""), out)

    def test_an_error_of_a_callback_is_raised_as_it_is(self):
        self.program("callbacks.py", """
import paracel
p = paracel.Paralg()
p.write("x", 1.0)
class Own(Exception):
    pass
def fail(value):
    raise Own("mine")
p.read_then("x", fail)
try:
    p.wait()
except Own as error:
    assert str(error) == "mine"
else:
    raise AssertionError
assert p.read("x") == 1.0
for end in (p.close, paracel.leave):
    p.read_then("x", lambda value: end())
    try:
        p.wait()
    except paracel.Error as error:
        assert "callback" in str(error), error
    else:
        raise AssertionError
try:
    p.read("none")
except paracel.MissingKeyError as error:
    assert error.__cause__ is None
try:
    paracel.Array(p, "x", 5)
except paracel.Error:
    pass
else:
    raise AssertionError
""")
        self.assertEqual(self.python("callbacks.py"), (0, "", ""))


if __name__ == "__main__":
    main()

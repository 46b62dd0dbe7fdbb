#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py export`: what it writes is read back by the packages themselves, tensorboardX's records and MLflow's client."""
import os
import struct
import subprocess
import sys
import tempfile
import unittest

from made_runs import descent, job_events, write_run
from process_support import PRUN, SOURCE, JobTest, clean_environment, main, patient

PYTHON = os.path.join(SOURCE, "build", "python-tools", "bin", "python")
EXPORTS = os.path.join(SOURCE, "build", "python-tools", "exports")
HAS = os.path.exists(os.path.join(EXPORTS, "complete"))
WHY_NOT = f"no {EXPORTS}: tool/setup.sh --long fills it, from PyPI"


class Exports(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = descent(50, 9.0)
        lines[4]["objective"] = None
        cls.run_folder = write_run(os.path.join(cls.folder, "a run é"), job_events(10.5), lines, log="accuracy 0.93\n",
                                   config='{"alpha": 0.1, "nested": {"x y": [1, 2]}, "files": "' + "f" * 300 + '"}')

    def export(self, *arguments, python=PYTHON, **environment):
        return subprocess.run([python, "-S", PRUN, "export", "--run", self.run_folder, *arguments], capture_output=True,
                              text=True, check=False, timeout=patient(120), stdin=subprocess.DEVNULL, cwd=self.folder,
                              env=clean_environment(PYTHONPATH=EXPORTS, **environment))

    def ask(self, script, *arguments):
        done = subprocess.run([PYTHON, "-c", script, *arguments], capture_output=True, text=True, check=False,
                              timeout=patient(120), env=clean_environment(PYTHONPATH=EXPORTS, MLFLOW_ALLOW_FILE_STORE="true"))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    @unittest.skipUnless(HAS, WHY_NOT)
    def test_tensorboard(self):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "tb")
        done = self.export("--tensorboard", folder)
        self.assertEqual((done.returncode, done.stderr), (0, f"prun.py: wrote 100 values to {folder}\n"))
        name, = os.listdir(folder)
        # A record: its length, a checksum, the event, a checksum.
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        records, at = [], 0
        while at < len(data):
            size, = struct.unpack_from("<Q", data, at)
            records.append(data[at + 12:at + 12 + size].hex())
            at += 16 + size
        found = self.ask("""
import sys
from tensorboardX.proto.event_pb2 import Event
for line in sys.argv[1].split():
    e = Event.FromString(bytes.fromhex(line))
    for v in e.summary.value:
        if v.HasField("simple_value"):
            print(v.tag, e.step, round(v.simple_value, 6), round(e.wall_time, 3))
        else:
            print("text", v.tag)
""", " ".join(records)).splitlines()
        objective = [line.split() for line in found if line.startswith("objective ")]
        self.assertEqual([(int(w[1]), float(w[2])) for w in objective],
                         [(r, round(0.7 / (1 + 0.1 * r), 6)) for r in range(1, 51) if r != 5])
        times = [float(w[3]) for w in objective]
        self.assertAlmostEqual(times[-1] - times[0], 9.0 * 49 / 50, places=2)
        self.assertTrue(1.7e9 < times[0] < 1.7e9 + 1, times[0])
        self.assertEqual(len([line for line in found if line.startswith("gradient_norm ")]), 50)
        self.assertIn("result/accuracy 0 0.93", " ".join(found))
        self.assertEqual([line for line in found if line.startswith("text")],
                         ["text run/text_summary", "text config/text_summary"])

    @unittest.skipUnless(HAS, WHY_NOT)
    def test_mlflow(self):
        where = "file:" + os.path.join(tempfile.mkdtemp(dir=self.folder), "ml")
        done = self.export("--mlflow", "--tracking-uri", where, "--experiment", "mine", MLFLOW_ALLOW_FILE_STORE="true")
        self.assertRegex(done.stderr, r"^prun.py: wrote 100 values to run [0-9a-f]{32} of experiment mine\n$")
        self.assertEqual(done.returncode, 0)
        found = self.ask("""
import sys
from mlflow import MlflowClient
c = MlflowClient(tracking_uri=sys.argv[1])
e = c.get_experiment_by_name("mine")
run, = c.search_runs([e.experiment_id])
print(run.info.status, run.info.run_name, run.info.start_time, run.info.end_time - run.info.start_time)
print(sorted(run.data.params.items()))
for m in c.get_metric_history(run.info.run_id, "objective"):
    print(m.step, round(m.value, 6), m.timestamp)
print("accuracy", run.data.metrics["result/accuracy"])
""", where).splitlines()
        self.assertEqual(found[0], "FINISHED a run é 1700000000000 10500")
        for parameter in (("config.alpha", "0.1"), ("config.nested.x y", "[1, 2]"), ("workers", "2"), ("program", "lr")):
            self.assertIn(str(parameter), found[1])
        self.assertEqual([tuple(map(float, line.split()[:2])) for line in found[2:-1]],
                         [(r, round(0.7 / (1 + 0.1 * r), 6)) for r in range(1, 51) if r != 5])
        self.assertEqual(found[-1], "accuracy 0.93")

    @unittest.skipUnless(HAS, WHY_NOT)
    def test_a_server_that_is_not_there(self):
        done = self.export("--mlflow", "--tracking-uri", "http://127.0.0.1:9", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0",
                           MLFLOW_HTTP_REQUEST_TIMEOUT="2")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"prun\.py: error: --mlflow: .*127\.0\.0\.1")
        self.assertNotIn("Traceback", done.stderr)

    def test_without_the_packages(self):
        empty = tempfile.mkdtemp(dir=self.folder)
        self.assertEqual(subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", empty], check=False).returncode, 0)
        for flags, package in ((("--tensorboard", "x"), "tensorboardX"), (("--mlflow",), "mlflow-skinny")):
            done = subprocess.run([os.path.join(empty, "bin", "python"), "-S", PRUN, "export", "--run", self.run_folder, *flags],
                                  capture_output=True, text=True, check=False, env=clean_environment(), cwd=self.folder)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"needs the package {package}: pip install {package}", done.stderr)

    def test_what_cannot_be_exported(self):
        nothing = write_run(os.path.join(self.folder, "nothing"), job_events(1.5))
        for arguments, said in ((("--run", nothing, "--tensorboard", "x"), "has recorded no metrics"),
                                (("--run", self.run_folder), "one of the arguments --tensorboard --mlflow is required"),
                                (("--run", "nowhere", "--mlflow"), "--run nowhere: no such folder"),
                                (("--run", nothing, "--tensorboard", "x", "--tracking-uri", "u"), "is for --mlflow")):
            done = subprocess.run([sys.executable, PRUN, "export", *arguments], capture_output=True, text=True, check=False,
                                  env=clean_environment(), cwd=self.folder)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    main()

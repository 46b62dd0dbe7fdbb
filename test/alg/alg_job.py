# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests of algorithms: a folder, a config, running a job in any mode, its `name value` lines and its files."""
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
DATA = os.environ.get("PARACEL_SHARED_DATA") or os.path.join(os.path.dirname(SOURCE), "shared", "data")
PRUN = os.path.join(SOURCE, "prun.py")
BIN = os.path.join(BUILD, "bin")
MPI = shutil.which("mpirun") is not None
LONG = os.environ.get("PARACEL_LONG") == "1"
ONLY_LONG = "only with PARACEL_LONG=1, as in tool/test.sh --full"


class AlgorithmCase(unittest.TestCase):
    """Base class; subclasses name the program, and may set the keys of `fit`."""
    program = ""
    defaults = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix=f"{cls.program}_test_")
        cls.count = 0

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def shared(self, *name):
        """A file in shared/data; skips the test if it does not exist."""
        path = os.path.join(DATA, *name)
        if not os.path.exists(path):
            self.skipTest(f"no {os.path.join(*name)} in {DATA} (PARACEL_SHARED_DATA)")
        return path

    def path(self, name, text=None):
        """A path in the test's folder; writes `text` to it if given."""
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def library(self, name):
        """That module, the oracle of a test; skips the test where it is not installed."""
        try:
            return importlib.import_module(name)
        except ImportError:
            self.skipTest(f"no {name}")

    def job(self, workers=1, servers=1, mode="local", status=0, program=None, timeout=300, options=(), standard_input=None,
            **keys):
        """Runs a job with this config, in a new output folder unless the keys contain one; without workers in one process.
        Returns its output: stdout if the status is 0, otherwise stderr and stdout. `options`: of prun.py; `standard_input`: a
        text."""
        type(self).count += 1
        self.output = keys.setdefault("output", os.path.join(self.folder, f"out{self.count}"))
        config = self.path(f"config{self.count}.json", json.dumps(keys))
        binary = os.path.join(BIN, program or self.program)
        command = [binary, "--cfg_file", config]
        if workers > 0 and mode != "embedded":
            command = [sys.executable, "-B", PRUN, "-w", str(workers), "-p", str(servers), "-c", config, "-m", mode,
                       "--output-dir", config + ".run", *options, binary]
        stdin = {"stdin": subprocess.DEVNULL} if standard_input is None else {"input": standard_input}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=SOURCE, **stdin,
                              env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.stderr = done.stderr
        return done.stdout if status == 0 else done.stderr + done.stdout

    def refused(self, status, text, **keys):
        """In one process and as a job the config or its files end the program so."""
        for workers in (0, 2):
            self.job(workers, status=status, **keys)
            self.assertIn(text, self.stderr)

    def fit(self, *where, **keys):
        """Runs a job with `defaults` and these keys; returns its results."""
        return self.results(self.job(*where, **{**self.defaults, **keys}))

    def serial(self, program, *arguments):
        """Runs an oracle of tool/serial; returns its `name value` lines."""
        done = subprocess.run([os.path.join(BIN, program), *map(str, arguments)], capture_output=True, text=True, check=True,
                              timeout=300)
        return self.results(done.stdout)

    @staticmethod
    def results(text):
        """{name: value} of the `name value` lines; numbers are converted."""
        found = {}
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            try:
                found[name] = float(value)
            except ValueError:
                found[name] = value
        return found

    @classmethod
    def generate(cls, name, kind, *options):
        """A file in the test's folder that tool/datagen.py wrote."""
        path = os.path.join(cls.folder, name)
        subprocess.run([sys.executable, "-B", os.path.join(SOURCE, "tool", "datagen.py"), "--binary",
                        os.path.join(BIN, "datagen"), "-m", kind, "-o", path, *map(str, options)], check=True, timeout=120)
        return path


    def assert_known_keys(self, *name):
        """The config alg/<name> has no keys that the program does not know."""
        with open(os.path.join(SOURCE, "alg", *name), encoding="utf-8") as file:
            shipped = json.load(file)
        schema = subprocess.run([os.path.join(BIN, self.program), "--schema"], capture_output=True, check=True, timeout=60)
        self.assertLessEqual(set(shipped), {key["name"] for key in json.loads(schema.stdout)["keys"]})

    def lines(self, name, workers):
        """The lines of <output>/<name>_<rank> of all ranks, in rank order."""
        found = []
        for rank in range(workers):
            with open(os.path.join(self.output, f"{name}_{rank}"), encoding="utf-8") as file:
                found += file.read().splitlines()
        return found

    def curve(self):
        """The lines of metrics.jsonl."""
        with open(os.path.join(self.output, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def manifest(self, folder=None):
        with open(os.path.join(folder or self.output, "model.json"), encoding="utf-8") as file:
            return json.load(file)

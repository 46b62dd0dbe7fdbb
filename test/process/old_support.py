# SPDX-License-Identifier: BSD-3-Clause
"""For tests of programs in the style of Paracel 0.3: compiles those of test/compat with the installed tree, and runs them
embedded, with local processes and under MPI."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
# A folder with bin/prun.py and one with existing programs, for developing these tests.
PREFIX = os.environ.get("PARACEL_PREFIX")
PROJECT = os.environ.get("PARACEL_PROJECT")


def run(*command, timeout=300, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def dictionary(path, kind=float):
    """Lines key<tab>value; the files of all workers are merged, and must agree where they overlap."""
    found = {}
    for name in path if isinstance(path, list) else [path]:
        with open(name, encoding="utf-8") as file:
            for line in file:
                key, value = line.rstrip("\n").split("\t")
                if found.setdefault(key, kind(value)) != kind(value):
                    raise AssertionError(f"{key} is {found[key]} and {value}")
    return found


def words(text):
    """The `name value` lines of a program's output."""
    return dict(line.split() for line in text.splitlines() if len(line.split()) == 2)


class OldPrograms(unittest.TestCase):
    targets = ()  # what a test needs from test/compat

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="paracel_old_programs_")
        cls.prefix, cls.project = PREFIX, PROJECT
        if not cls.prefix:
            cls.prefix = os.path.join(cls.folder, "prefix")
            run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        if not cls.project:
            cls.project = os.path.join(cls.folder, "project")
            run("cmake", "-S", os.path.join(SOURCE, "test", "compat"), "-B", cls.project, "-G", "Ninja",
                "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror -O0",
                f"-DCMAKE_PREFIX_PATH={cls.prefix}")
            run("cmake", "--build", cls.project, "--target", *cls.targets, timeout=1000)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def in_every_way(self, program, ways, **keys):
        """Yields (output folder, output, number of workers) for each mode."""
        path = os.path.join(self.project, program)
        prun = os.path.join(self.prefix, "bin", "prun.py")
        for way, workers in ways:
            output = os.path.join(self.folder, f"{program}_{way}_{workers}")
            config = self.write(f"{program}_{way}_{workers}.json", json.dumps(dict(keys, output=output)))
            if way == "embedded":
                said = run(path, f"--cfg_file={config}", cwd=self.folder)
            else:
                said = run(prun, "-w", str(workers), "-p", "2", "-c", config, "-m", way, path, cwd=self.folder)
            try:
                yield output, said, workers
            except GeneratorExit:  # the check of this result has failed
                print(f"{program}, {way}, {workers} workers:\n{said}", file=sys.stderr)
                raise

    @staticmethod
    def of_all(output, name, workers):
        return [os.path.join(output, f"{name}{rank}") for rank in range(workers)]

    def nearly(self, got, want):
        self.assertEqual(sorted(got), sorted(want))
        for key, value in want.items():
            self.assertAlmostEqual(got[key], value, delta=1e-9 * max(1.0, abs(value)), msg=key)

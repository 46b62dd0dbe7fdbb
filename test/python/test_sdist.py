#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""tool/wheel.sh: the source distribution has all that its build needs, and with PARACEL_LONG=1 the wheel that is built from it
has the files of one that is built from the clone. The framework itself is not built again."""
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import BUILD, PYTHON, SOURCE, build_wheel, why_not  # noqa: E402
from process_support import clean_environment, main  # noqa: E402

# Objects of a build folder that a build of the package makes, too.
OWN = re.compile(r"(CMakeFiles|alg|tool/CMakeFiles/(datagen|paracel_checkpoint)\.dir)/")


def run(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=1800,
                          env=clean_environment(PARACEL_PYTHON=PYTHON), **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def make(*words):
    return run(os.path.join(SOURCE, "tool", "wheel.sh"), *words).split()


class SourceDistribution(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_not():
            raise unittest.SkipTest(reason)
        if shutil.which("git") is None or \
                subprocess.run(["git", "-C", SOURCE, "rev-parse"], capture_output=True, check=False).returncode != 0:
            raise unittest.SkipTest("not a clone, or git is not installed")
        cls.folder = tempfile.mkdtemp(prefix="paracel-sdist-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        (cls.sdist,) = make("--sdist", cls.folder)
        with tarfile.open(cls.sdist) as archive:
            cls.names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
            archive.extractall(cls.folder)
        cls.tree = cls.sdist.removesuffix(".tar.gz")

    def test_it_has_no_tests_and_no_benchmarks(self):
        self.assertIn("framework/prun.py", self.names)
        self.assertEqual([name for name in self.names if re.match(r"framework/(test|doc|src/python|tool/bench)/", name)], [])
        self.assertLess(os.path.getsize(self.sdist), 5e6)

    def test_a_build_of_everything_can_be_configured(self):
        nanobind = run(PYTHON, "-m", "nanobind", "--cmake_dir").strip()
        build = os.path.join(self.folder, "configured")
        run("cmake", "-S", self.tree, "-B", build, "-G", "Ninja", f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={PYTHON}")
        self.assertTrue(os.path.exists(os.path.join(build, "build.ninja")))

    def test_every_header_that_the_framework_includes_is_inside(self):
        if not os.path.exists(os.path.join(BUILD, ".ninja_deps")):
            self.skipTest(f"no record of includes in {BUILD}")
        needed, own = set(), False
        for line in run("ninja", "-C", BUILD, "-t", "deps").splitlines():
            if not line.startswith(" "):
                own = OWN.match(line) is not None
            elif own and line.strip():
                path = os.path.relpath(os.path.realpath(os.path.join(BUILD, line.strip())), os.path.realpath(SOURCE))
                if not path.startswith(("../", "build")):  # neither the system's nor generated
                    needed.add(path)
        self.assertGreater(len(needed), 500)
        self.assertEqual([path for path in sorted(needed) if "framework/" + path not in self.names], [])

    @unittest.skipUnless(os.environ.get("PARACEL_LONG") == "1", "PARACEL_LONG is not 1")
    def test_its_wheel_is_that_of_the_clone(self):
        _, wheel = make("--build", BUILD, os.path.join(self.folder, "out"))
        self.assertEqual(os.path.basename(wheel), os.path.basename(build_wheel()))
        with zipfile.ZipFile(wheel) as mine, zipfile.ZipFile(build_wheel()) as other:
            self.assertEqual(sorted(mine.namelist()), sorted(other.namelist()))


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The bindings under AddressSanitizer and UndefinedBehaviorSanitizer: the tests of test_algorithms.py in one process, and the
examples. The framework's library is that of the build folder. Only with PARACEL_LONG=1: it compiles the extension."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import BUILD, GIVEN, PACKAGE, PYTHON, SITE, SOURCE, build_wheel, why_not  # noqa: E402
from process_support import clean_environment, main  # noqa: E402

PLACE = os.path.join(BUILD, "python", "sanitized")
TESTS = {"test_algorithms.py": ["Algorithms." + name for name in (
    "test_every_call_in_one_process", "test_every_call_as_a_job", "test_an_error_of_a_callback_is_raised_as_it_is",
    "test_the_error_of_an_update_that_nobody_waits_for_ends_the_program", "test_a_forked_process_is_refused",
    "test_what_outlives_its_job_is_safe")], "test_doctests.py": []}
# An error that must be found, so that silence means something.
WRONG = "import ctypes, paracel; ctypes.memset(ctypes.create_string_buffer(1000), 0, 1001)"


def run(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, timeout=1800, **options)


def library(name):
    return run("c++", f"-print-file-name={name}").stdout.strip()


class Sanitized(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.environ.get("PARACEL_LONG") != "1":
            raise unittest.SkipTest("PARACEL_LONG is not 1")
        if reason := why_not():
            raise unittest.SkipTest(reason)
        if not GIVEN:
            build_wheel()
        build = os.path.join(PLACE, "build")
        nanobind = run(PYTHON, "-m", "nanobind", "--cmake_dir").stdout.strip()
        for command in (["cmake", "-S", PACKAGE, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Sanitize",
                         "-DPARACEL_SANITIZE=address,undefined", f"-DPARACEL_BUILD={BUILD}", f"-Dnanobind_DIR={nanobind}",
                         f"-DPython_EXECUTABLE={PYTHON}"],
                        ["cmake", "--build", build, "--target", "_core"]):
            done = run(*command, env=clean_environment(PATH=os.path.dirname(PYTHON) + os.pathsep + os.environ["PATH"]))
            if done.returncode != 0:
                raise AssertionError(f"{' '.join(command)}:\n{done.stdout[-4000:]}")
        cls.site = os.path.join(PLACE, "site")
        shutil.rmtree(cls.site, ignore_errors=True)
        shutil.copytree(SITE, cls.site)
        shutil.copy(os.path.join(build, "_core.abi3.so"), os.path.join(cls.site, "paracel"))
        # The interpreter links neither; libstdc++ must be there when they look for its functions. Without Python's own allocator
        # they see its objects, too. It leaves objects behind when it ends.
        cls.environment = dict(
            LD_PRELOAD=" ".join(library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")),
            ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="print_stacktrace=1", PYTHONMALLOC="malloc")

    def test_an_error_is_found(self):
        done = run(PYTHON, "-c", WRONG, env=clean_environment(PYTHONPATH=self.site, **self.environment))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("AddressSanitizer: heap-buffer-overflow", done.stdout)

    def test_the_bindings(self):
        for file, names in TESTS.items():
            with self.subTest(file):
                done = run("/usr/bin/python3", "-B", os.path.join(SOURCE, "test", "python", file), *names,
                           env={**os.environ, "PARACEL_PYTHON_SITE": self.site, **self.environment})
                self.assertEqual(done.returncode, 0, done.stdout[-8000:])
                self.assertNotIn("skipped", done.stdout)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""paracel.update, with numba: functions in Python run in servers, and what cannot run there is refused."""
import glob
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PACKAGE, PROGRAMS, PYTHON, PackageTest  # noqa: E402
from process_support import main  # noqa: E402

UPDATES = os.path.join(PROGRAMS, "updates.py")

# What is wrong, and words of its error.
REFUSED = {
    "def f(value): pass": r"^f\(value\): want f\(value, delta\)$",
    "def f(value, delta, rate): pass": r"^f\(value, delta, rate\): want f\(value, delta\)$",
    "f = lambda value, delta: None": "a name of ASCII letters, found <lambda>",
    "def f(value, delta): value[0] = unknown": "^f cannot be compiled for float64: NameError: name 'unknown' is not defined",
    "def f(value, delta): return value[0]": "cannot be compiled for float64: .*changes value in place and returns nothing",
    "def f(value, delta): delta[0] = 1": "readonly array",
    "def f(value, delta): value[0] = {}": "cannot be compiled for float64",
    "def f(value, delta): print(value[0])": "^f cannot run in a server: it calls Python or numba's own library .it needs .*Py",
    "def f(value, delta): value[:] = value - np.minimum(delta, 1)":
        "^f cannot run in a server: it allocates arrays: write a loop over the elements .it needs .*NRT_",
}
CALLS = """
import re, sys
import numpy as np
import paracel
for text, words in {refused!r}.items():
    names = {{"np": np}}
    exec(text, names)
    try:
        paracel.update(names["f"])
    except paracel.PluginError as error:
        assert re.search(words, str(error), re.DOTALL), (text, str(error))
    else:
        raise AssertionError(text)
def twice(value, delta):
    value += 2 * delta
def larger(value, delta):
    return max(value, delta)
for error, words, call in (
        (paracel.PluginError, r"^twice is declared additive, but makes \\[10.*\\] where value \\+ delta is \\[5",
         lambda: paracel.update(twice, additive=True)),
        (paracel.PluginError, "^larger is declared additive", lambda: paracel.update(larger, elementwise=True, additive=True)),
        (TypeError, "found <built-in function max>, want a function written in Python", lambda: paracel.update(max)),
        (paracel.PluginError, "cannot be compiled for float64: .*elementwise returns the new value",
         lambda: paracel.update(twice, elementwise=True)),
        (ValueError, "dtypes is .*want some of int32, int64, float32, float64", lambda: paracel.update(twice, dtypes="float16"))):
    try:
        call()
    except error as e:
        assert re.search(words, str(e), re.DOTALL), str(e)
    else:
        raise AssertionError(words)
"""
ONE = """
import sys
for name in sys.argv[2:]:
    sys.modules[name] = None
import paracel
try:
    @paracel.update(dtypes="float64", elementwise=True)
    def one(value, delta):
        return value - delta
    p = paracel.Paralg()
    p.write("x", 3.0)
    p.bupdate("x", 1.0, function=one)
    print(p.read("x"))
except (ImportError, paracel.PluginError) as error:
    print(type(error).__name__, error)
"""


class Updates(PackageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if subprocess.run([PYTHON, "-c", "import numba"], capture_output=True, check=False).returncode != 0:
            raise unittest.SkipTest("no numba: tool/setup.sh --long installs python3-numba")
        cls.cache = os.path.join(cls.folder, "cache")

    def environment(self, **more):
        more.setdefault("XDG_CACHE_HOME", self.cache)
        return PackageTest.environment(**more)

    def plugins(self):
        return sorted(glob.glob(os.path.join(self.cache, "paracel", "plugins", "*.so")))

    def test_functions_in_one_process_and_as_a_job(self):
        status, one, err = self.python(UPDATES, limit=300)
        self.assertEqual((status, err), (0, ""), one)
        first = self.plugins()
        self.assertTrue(first)
        self.assertEqual(os.stat(os.path.dirname(first[0])).st_mode & 0o777, 0o700)
        for options in ((), ("--plugin-sandbox",)):
            status, out, err = self.prun("-w", "2", "-p", "2", *options, UPDATES)
            self.assertEqual((status, out), (0, one), err)
        self.assertEqual(self.plugins(), first)  # the same functions are the same files

    def test_the_readme_as_a_job_that_makes_the_plugin(self):
        with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
            self.program("steps.py", re.search(r"<!-- file: steps.py -->\n```python\n(.*?)```", file.read(), re.DOTALL)[1])
        environment = self.environment(XDG_CACHE_HOME=self.not_there("new"))
        status, out, err = self.prun("-w", "2", "-p", "2", "steps.py", environment=environment)
        self.assertEqual((status, out), (0, "[-0.1 -0.2  0.2]\n"), err)

    def test_a_folder_that_others_may_write_is_refused(self):
        cache = self.not_there("open")
        os.makedirs(os.path.join(cache, "paracel", "plugins"))
        if os.geteuid() != 0:
            self.skipTest("this user cannot give a folder to a group of others")
        os.chown(os.path.join(cache, "paracel", "plugins"), 0, 1)  # daemon
        os.chmod(os.path.join(cache, "paracel", "plugins"), 0o770)
        self.program("one.py", ONE)
        status, out, err = self.python("one.py", "x", XDG_CACHE_HOME=cache)
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, "^PluginError .*may be written by its group")

    def test_functions_that_cannot_run_in_a_server_are_refused(self):
        self.program("refused.py", CALLS.format(refused=REFUSED))
        self.assertEqual(self.python("refused.py", limit=300), (0, "", ""))

    def test_what_is_missing_is_named(self):
        self.program("one.py", ONE)
        file = os.path.join(self.folder, "one.py")
        for words, missing, environment in (
                ("ImportError paracel.update needs numba, which is not installed: pip install numba", ("numba",), {}),
                ("PluginError one: no C compiler no_such_cc: paracel.update needs one (apt-get install gcc), or set CC", (),
                 {"CC": "no_such_cc", "XDG_CACHE_HOME": self.not_there("empty")}),
                ("PluginError one: false failed: ", (), {"CC": "false", "XDG_CACHE_HOME": self.not_there("empty")}),
                (f"PluginError one: its plug-in cannot be written to {file}/paracel/plugins: Not a directory", (),
                 {"XDG_CACHE_HOME": file}),
                ("2.0", (), {}), ("2.0", (), {"CC": "no_such_cc"})):  # the last one is there already
            status, out, err = self.python("one.py", "x", *missing, **environment)
            self.assertEqual((status, out, err), (0, words + "\n", ""))


if __name__ == "__main__":
    main()

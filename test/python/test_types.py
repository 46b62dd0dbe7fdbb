#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The package's annotations and the stubs of its extensions, with mypy: the package's own files, and users' programs."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import GIVEN, PACKAGE, PROGRAMS, PYTHON, SITE, TOOLS, build_wheel, why_not  # noqa: E402
from process_support import clean_environment, main  # noqa: E402

TOOL_PYTHON = os.path.join(TOOLS, "bin", "python")
# What a checker must find in a program, by line.
WRONG = """
import numpy as np
import paracel
class Job(paracel.Paralg):
    def solve(self) -> None:
        self.read(7)  # want: No overload variant of "read"
        self.write_multi(3, 4)  # want: Argument 1 to "write_multi"
        self.sync(1)  # want: Too many arguments for "sync"
        self.update("x", np.zeros(2), function="libx.so")  # want: No overload variant of "update"
        paracel.Table(self, "rows")  # want: Missing positional argument "width"
        paracel.ComQueue(self).add(lambda a, b: None)  # want: Argument 1 to "add"
        self.load_samples("x").labels  # want: "Samples" has no attribute "labels"
        self.no_such_call()  # want: "Job" has no attribute "no_such_call"
        rank: str = self.comm.rank  # want: Incompatible types in assignment
X = np.zeros((10, 2))
good = paracel.KMeans(n_clusters=3, n_workers=2, random_state=None).fit(X)
centres: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]" = good.cluster_centers_
labels: str = paracel.KMeans(n_clusters=3).fit(X).labels_  # want: Incompatible types in assignment
paracel.KMeans(n_cluster=3)  # want: Unexpected keyword argument "n_cluster" for "KMeans"
paracel.KMeans(3)  # want: Too many positional arguments
paracel.Lasso(alpha="1")  # want: Argument "alpha" to "Lasso" has incompatible type "str"; expected "float"
paracel.KMean()  # want: Module has no attribute "KMean"
good.label_  # want: "KMeans" has no attribute "label_"
good.fit_predct(X)  # want: "KMeans" has no attribute "fit_predct"
paracel.GradientBoostingRegressor(max_leaf_nodes=None, objective=lambda y, raw: (raw - y, y)).fit(X, X[:, 0], eval_set=(X, X))
paracel.GradientBoostingRegressor(objective=3)  # want: Argument "objective" to "GradientBoostingRegressor"
ranks = paracel.pagerank([(0, 1)], damping=0.8, n_workers=2).values
paracel.pagerank([(0, 1)], n_worker=2)  # want: Unexpected keyword argument "n_worker"
score: int = paracel.Ridge(alpha=1).fit(X, X[:, 0]).score(X, X[:, 0])  # want: Incompatible types in assignment
"""


class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_not():
            raise unittest.SkipTest(reason)
        if subprocess.run([TOOL_PYTHON, "-c", "import mypy"], capture_output=True, check=False).returncode != 0:
            raise unittest.SkipTest(f"no mypy in {TOOLS}: tool/setup.sh --test installs it from PyPI")
        if not GIVEN:
            build_wheel()
        cls.folder = tempfile.mkdtemp(prefix="paracel-types-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        # An environment in which the package is installed.
        cls.environment = os.path.join(cls.folder, "environment")
        subprocess.run([PYTHON, "-m", "venv", "--system-site-packages", "--without-pip", cls.environment], check=True)
        (site,) = glob.glob(os.path.join(cls.environment, "lib", "*", "site-packages"))
        with open(os.path.join(site, "paracel.pth"), "w", encoding="utf-8") as file:
            file.write(SITE + "\n")

    def mypy(self, *words):
        """(status, output)."""
        done = subprocess.run([TOOL_PYTHON, "-m", "mypy", "--python-executable", os.path.join(self.environment, "bin", "python"),
                               "--cache-dir", os.path.join(self.folder, "cache"), "--no-error-summary", *words],
                              cwd=self.folder, capture_output=True, text=True, check=False, timeout=600,
                              env=clean_environment())
        return done.returncode, done.stdout + done.stderr

    def assert_clean(self, *words):
        status, said = self.mypy(*words)
        self.assertEqual((status, said), (0, ""))

    def test_the_package(self):
        self.assert_clean("--config-file", os.path.join(PACKAGE, "pyproject.toml"), "-p", "paracel")

    def test_the_program_of_the_readme_and_every_call(self):
        with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
            program = re.search(r"<!-- file: lr\.py -->\n```python\n(.*?)```", file.read(), re.DOTALL)[1]
        with open(os.path.join(self.folder, "lr.py"), "w", encoding="utf-8") as file:
            file.write(program)
        for path in ("lr.py", os.path.join(PROGRAMS, "calls.py"), os.path.join(PROGRAMS, "queue_and_input.py")):
            with self.subTest(path):
                self.assert_clean("--check-untyped-defs", path)

    def test_mistakes_are_found(self):
        with open(os.path.join(self.folder, "wrong.py"), "w", encoding="utf-8") as file:
            file.write(WRONG)
        said = self.mypy("wrong.py")[1]
        wanted = {number: line.split("# want: ")[1] for number, line in enumerate(WRONG.splitlines(), 1) if "# want" in line}
        found = {int(number): text for number, text in re.findall(r"^wrong\.py:(\d+): error: (.*)$", said, re.MULTILINE)}
        self.assertEqual(found.keys(), wanted.keys(), said)
        for number, words in wanted.items():
            self.assertIn(words, found[number])

    def test_the_extensions_have_stubs(self):
        for name in ("py.typed", "_core.pyi", "_programs.pyi", "_toolbox.pyi"):
            self.assertTrue(os.path.isfile(os.path.join(SITE, "paracel", name)), name)
        with open(os.path.join(SITE, "paracel", "_core.pyi"), encoding="utf-8") as file:
            stub = file.read()
        self.assertIn("def read_at(self, indices: numpy.typing.ArrayLike) -> numpy.typing.NDArray[Any]:", stub)
        self.assertNotRegex(stub, r"-> object|\bhandle\b|std::|nanobind")


if __name__ == "__main__":
    main()

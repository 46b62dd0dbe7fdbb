#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The same wheel on Debian 13's Python 3.13: a minimal system in a folder, with packages from the mirrors of this machine. Needs
root, mmdebstrap, a mirror and PyPI; skipped otherwise, and unless PARACEL_LONG=1."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PYTHON, build_wheel, why_not  # noqa: E402
from process_support import main  # noqa: E402
from test_fresh_machine import missing, root_with_wheel, run_inside  # noqa: E402

REQUIRED = ("numpy", "nanobind-backend>=1,<2")
PROGRAM = """
import sys
import numpy as np
import paracel

class Job(paracel.Paralg):
    def solve(self):
        self.update("sum", np.array([1.0, self.worker_id]))
        self.sync()
        total = self.read("sum")
        assert total.tolist() == [2, 1], total
        assert self.comm.allgather({"rank": self.worker_id}) == [{"rank": 0}, {"rank": 1}]
        if self.worker_id == 0:
            print("sum", total, "on Python", sys.version.split()[0])

paracel.run(Job)
"""


class OtherPython(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.environ.get("PARACEL_LONG") != "1":
            raise unittest.SkipTest("PARACEL_LONG is not 1")
        if reason := why_not() or missing():
            raise unittest.SkipTest(reason)
        cls.folder = tempfile.mkdtemp(prefix="paracel_trixie_")
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", "--one-file-system", cls.folder], check=False)
        wheel = build_wheel()
        downloaded = os.path.join(cls.folder, "downloaded")
        found = subprocess.run([PYTHON, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--only-binary=:all:",
                                "--python-version=3.13", "-d", downloaded, *REQUIRED], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if found.returncode != 0:
            raise unittest.SkipTest("PyPI gave no packages: " + found.stdout.strip().splitlines()[-1])
        cls.root = root_with_wheel(cls.folder, "trixie", wheel, downloaded)

    def inside(self, line):
        return run_inside(self.root, "/trial", line)

    def write(self, name, text):
        with open(os.path.join(self.root, "trial", name), "w", encoding="utf-8") as file:
            file.write(text)

    def test_a_job_of_two_workers(self):
        self.write("job.py", PROGRAM)
        self.assertIn("sum [2. 1.] on Python 3.13.", self.inside("environment/bin/prun -w 2 -p 1 job.py"))

    def test_a_program_of_the_toolbox_on_arrays(self):
        self.write("fit.py", "import numpy as np\nimport paracel\nX = np.arange(20.0).reshape(-1, 1)\n"
                             "model = paracel.Ridge(alpha=1e-9).fit(X, 3 * X[:, 0] + 1)\nprint(model.coef_.round(6))\n")
        self.assertIn("[3.]", self.inside("environment/bin/python fit.py"))


if __name__ == "__main__":
    main()

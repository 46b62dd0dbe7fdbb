#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tools and the launcher's options that keep their Paracel 0.3 names."""
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
sys.path.insert(0, os.path.join(SOURCE, "tool"))

from launcher.job.options import parse_command_line  # noqa: E402


class Tools(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="old_tools_")
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def run_tool(self, name, *arguments):
        return subprocess.run([sys.executable, "-B", os.path.join(SOURCE, "tool", name), *arguments], cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def test_split_validate_holds_out_items_by_their_last_digit(self):
        self.write("r.csv", "1,10,3\n1,13,4\n\n2,42,5\n2,7,1")
        done = self.run_tool("split_validate.py", "r.csv", "train", "test")
        self.assertEqual((done.returncode, done.stdout), (0, "training 2\nvalidation 2\n"))
        self.assertEqual((self.read("train"), self.read("test")), ("1,13,4\n2,7,1\n", "1,10,3\n2,42,5\n"))
        self.write("bad.csv", "1,10,3\nno rating\n")
        done = self.run_tool("split_validate.py", "bad.csv", "train", "test")
        self.assertEqual((done.returncode, "bad.csv:2: found 'no rating'" in done.stderr), (1, True), done.stderr)

    def test_generate_data_subtracts_mean_and_bias_and_adds_a_constant_factor(self):
        self.write("bias", "a\t0.5\nb\t-1\n")
        self.write("ratings", "u,a,4\nu,b,2\nv,c,3\n")
        self.write("factors", "a\t0.1|0.2\n")
        done = self.run_tool("generate_data.py", "--mean", "3", "--item_bias", "bias", "--ratings", "ratings", "--item_factors",
                             "factors", "--new_ratings", "nr", "--new_item_factors", "nf")
        self.assertEqual((done.returncode, done.stdout), (0, "ratings 2\ndropped 1\n"), done.stderr)
        self.assertEqual((self.read("nr"), self.read("nf")), ("u,a,0.5\nu,b,0.0\n", "a\t1.0|0.1|0.2\n"))

    def test_data_clean_leaves_each_edge_once_and_no_vertex_without_one(self):
        self.write("edges", "1,2\n1,2\n2,3\n4,3,x\n\n4,1\n")
        done = self.run_tool("data_clean.py", "edges", "out")
        self.assertEqual((done.returncode, done.stdout), (0, "edges 3\ndropped 2\nsentinels 1\n"))
        self.assertEqual(self.read("out"), "1,2\n2,3\n4,1\n3,2147483648\n")
        self.run_tool("data_clean.py", "edges", "out", "--no_sentinel")
        self.assertEqual(self.read("out"), "1,2\n2,3\n4,1\n")

    def test_lasso_serial_rigid_comes_to_the_minimum(self):
        program = os.path.join(BUILD, "bin", "lasso_serial_rigid")
        rows = [(x, z, 3 * x - 2 * z + 1) for x in (-2.0, -1.0, 1.0, 2.0) for z in (-1.0, 1.0)]
        self.write("rows.csv", "".join(",".join(map(str, row)) + "\n" for row in rows))

        def run(*options):
            done = subprocess.run([program, "rows.csv", *options, "--theta", "theta"], cwd=self.folder, capture_output=True,
                                  text=True, stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            said = dict(re.fullmatch(r"(.*?):? (\S+)", line).groups() for line in done.stdout.splitlines())
            return list(map(float, self.read("theta").split("|"))), {name: float(value) for name, value in said.items()}

        # The columns are orthogonal, so each weight is soft-thresholded on its own; their squared lengths are 8, 20 and 8.
        theta, said = run("--lambda", "4", "--rounds", "400")
        for found, want in zip(theta, (1 - 4 / 8, 3 - 4 / 20, -2 + 4 / 8), strict=True):
            self.assertAlmostEqual(found, want, delta=1e-12)
        errors = 8 * 0.5**2 + 20 * 0.2**2 + 8 * 0.5**2
        self.assertAlmostEqual(said["total error"], errors / 8, delta=1e-12)
        self.assertAlmostEqual(said["objective"], errors / 2 + 4 * (0.5 + 2.8 + 1.5), delta=1e-12)
        self.assertEqual(run("--lambda", "1000", "--rounds", "400")[0], [0, 0, 0])
        self.assertNotEqual(run("--lambda", "4", "--rounds", "2", "--seed", "1"), run("--lambda", "4", "--rounds", "2"))


class Options(unittest.TestCase):
    def refused(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            parse_command_line([*arguments, "prog"])
        return said.getvalue()

    def test_those_that_belong_to_mesos_are_refused_with_the_reason(self):
        for arguments, reason in ((("-g", "dev"), "-g: groups belong to Mesos"),
                                  (("--group=dev",), "--group: groups belong to Mesos"),
                                  (("--group_server", "dev"), "--group_server: groups belong to Mesos"),
                                  (("--ppn_server", "2"), "--ppn_server: Mesos is not supported"),
                                  (("--mem_limit=200",), "--mem_limit: a limit of Mesos"),
                                  (("--ppn", "0"), "--ppn: '0' is not a whole number above 0"),
                                  (("--mem_limit_server=3", "--max-memory=3M"), "the same limit")):
            self.assertIn(reason, self.refused(*arguments))

    def test_those_with_a_meaning_keep_it(self):
        self.assertEqual(parse_command_line(["--mem_limit_server", "300", "prog"]).max_memory, "300M")
        self.assertEqual(parse_command_line(["--ppn", "2", "prog"]).ppn, 2)
        self.assertEqual(parse_command_line(["prog"]).ppn, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

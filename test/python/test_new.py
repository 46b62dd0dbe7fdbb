#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""prun new --python from the package, and configs of programs in Python: --set and includes, in one process and as jobs."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PYTHON, SITE, PackageTest  # noqa: E402
from process_support import main  # noqa: E402

SHOW = """
import json
import paracel

class Show(paracel.Paralg):
    def solve(self):
        if self.worker_id == 0:
            print(json.dumps(self.config, sort_keys=True))

paracel.run(Show)
"""


class New(PackageTest):
    def test_a_project_passes_its_test(self):
        status, out, err = self.prun("new", "--python", "line_fit")
        self.assertEqual(status, 0, err)
        project = os.path.join(self.folder, "line_fit")
        done = subprocess.run([PYTHON, "test.py"], cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600, check=False, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("Ran 2 tests", done.stdout)
        status, out, err = self.prun("sweep", "line_fit/line_fit.json", "--grid", "alpha=0.1,0.5", "--set",
                                     "training_input=line_fit/points.csv", "--set", "rounds=5", "line_fit/line_fit.py")
        self.assertEqual(status, 0, err)
        self.assertEqual([line.split()[1] for line in out.splitlines()], ["alpha", "0.5", "0.1"])

    def test_the_package_has_no_headers_for_a_project_in_cxx(self):
        self.assert_refused("the Python package has no headers for programs in C++: add --python", "new", "fit")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "fit")))

    def test_a_config_is_read_as_in_cxx(self):
        os.makedirs(os.path.join(self.folder, "in"), exist_ok=True)
        for name, keys in (("in/base.json", {"a": 1, "model": {"width": 3, "depth": 2}, "t": "base"}),
                           ("config.json", {"include": "in/base.json", "a": 2, "big": 12345678901234567890123, "x": 1e-300})):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                json.dump(keys, file)
        program = self.program("show.py", SHOW)
        want = {"a": 2, "model": {"width": 3, "depth": [1, "\u00e9"]}, "t": "x=y", "big": 12345678901234567890123, "x": 1e-300,
                "none.n": True}
        sets = ("--set", 'model.depth=[1, "\u00e9"]', "--set=t=x=y", "--set", "none.n=true")
        status, out, err = self.python(program, "--cfg_file", "config.json", *sets)
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out), want)
        status, out, err = self.prun("-w", "2", "-c", "config.json", *sets, program)
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out), want)
        for words, said in (((), "config.json:2:1: not JSON: "), (("--set", "a"), '--set: found "a", want KEY=VALUE')):
            with open(os.path.join(self.folder, "config.json"), "w", encoding="utf-8") as file:
                file.write('{"a": 1}' if words else '{"a": 1,\n}')
            status, _, err = self.python(program, "--cfg_file", "config.json", *words)
            self.assertEqual(status, 2 if words else 3, err)
            self.assertIn(f"show.py: error: {said}", err)
        self.assertEqual(self.python(program, "--set", "a=1")[0], 2)
        self.assertIn("found --cfg_fiel, want --cfg_file FILE: did you mean --cfg_file?",
                      self.python(program, "--cfg_fiel", "x")[2])
        self.assertTrue(os.path.isdir(os.path.join(SITE, "paracel", "_bin", "tool", "template", "python")))


if __name__ == "__main__":
    main()

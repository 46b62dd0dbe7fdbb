#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""doc/tutorial.md works as it stands there: its files are written, its commands run, and their output is what the page says."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)),
                os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python")]
from document_samples import BLOCK, normal, run_group, samples, text_of  # noqa: E402
from python_support import BUILD, PYTHON, SITE, SOURCE, build_wheel, why_not  # noqa: E402

PAGE = "doc/tutorial.md"
DATA = "breast_cancer.csv"
# Done before: the build, whose folder is linked. Installing the package, whose wheel the build folder has.
DONE = ("./tool/setup.sh", "cmake -S . -B build ", "python3 -m venv ")
LOSS = re.compile(r"^loss (\d\.\d{4})(?:, (\d+\.\d)% of 142 test rows are right)?$", re.MULTILINE)


def has_data():
    listed = subprocess.run(["dpkg", "-L", "python3-sklearn"], capture_output=True, text=True, check=False).stdout
    return f"/{DATA}\n" in listed


class Tutorial(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="paracel_tutorial_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name in ("prun.py", "tool", "src"):
            os.symlink(os.path.join(SOURCE, name), os.path.join(self.folder, name))
        os.symlink(BUILD, os.path.join(self.folder, "build"))

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)

    def run_block(self, text):
        """Its commands, in one shell: what each has said."""
        text = "".join(line + "\n" for line in text.splitlines() if not line.startswith(DONE))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
        environment["HOME"] = self.folder
        status, said = run_group(["bash", "-euc", text], 300, cwd=self.folder, env=environment)
        self.assertEqual(status, 0, f"{text}\n{said}")
        return said

    def package(self):
        """What the page's `pip install` makes of `prun`."""
        build_wheel()
        prun = f'#!/bin/sh\nPYTHONPATH={SITE} exec {PYTHON} {SITE}/paracel/_bin/prun.py "$@"\n'
        self.write("tumours/venv/bin/prun", prun, 0o755)

    def test_it_works_as_it_stands_there(self):
        if not has_data():
            self.skipTest(f"no {DATA}: python3-sklearn is not installed (tool/setup.sh installs it)")
        said = {}  # by section
        python = not why_not()
        for section in text_of(PAGE).split("\n## ")[1:]:
            number = section.split(".")[0]
            for block in BLOCK.finditer(section):
                mark = block["mark"] or ""
                if mark.startswith("file: "):
                    self.write(mark[len("file: "):], block["text"])
                else:
                    self.assertIn(mark, ("run", "run together"), block["text"])
                    if "venv/bin" in block["text"]:
                        if not python:
                            continue
                        self.package()
                    said[number] = said.get(number, "") + self.run_block(block["text"])
        self.assertIn("142 tumours/test.csv", said["1"])
        everything = "".join(said.values())
        lines = samples(PAGE, "test_tutorial")
        self.assertGreater(len(lines), 20)
        for line in lines:
            self.assertIn(normal(re.sub("^prun: time: .*", "prun: time:", line)), normal(everything), line)
            if "rows are right" in line:  # `normal` has no numbers
                self.assertIn(line, everything)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "tumours", "run", "report.html")), said["6"])
        losses = {n: LOSS.findall(text) for n, text in said.items()}
        one, four = losses["3"]
        self.assertIn(f"round 499: loss {one[0]}\n", said["2"])  # a server's steps are the loop's
        self.assertGreater(float(four[1]), 90)
        late, ahead = (float(s) for s in re.findall(r"prun: done in ([\d.]+) s,", said["4"]))
        self.assertLess(ahead, 0.8 * late, said["4"])
        self.assertAlmostEqual(float(losses["4"][0][0]), float(losses["4"][1][0]), delta=0.1)
        self.assertRegex(said["5"], r"tumours/ckpt/\d{10}   clock \d+   4 workers   2 servers")
        self.assertEqual(losses["5"], losses["6"], said["6"])  # a kill -9 of all, or of a server: the same in all digits
        self.assertEqual(len(losses["5"]), 1)
        self.assertIn("s2", said["6"])
        self.assertEqual(losses["7"], [four])
        steps = int(re.search(r"after (\d+) supersteps", said["8"])[1])
        self.assertTrue(400 < steps < 500, said["8"])  # of the loop: 0.2121 after 400, 0.2041 after 499
        if python:
            self.assertEqual(losses["9"][0][0], four[0])
        else:
            self.skipTest(f"all but the section about Python: {why_not()}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

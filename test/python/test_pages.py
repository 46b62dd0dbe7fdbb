#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The pages for users of Python, step by step as they stand there, in an environment that they create: files, commands, and the
Python of a page as one session. What they show as output is what the steps before it print."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PYTHON, SOURCE, TOOLS, build_wheel, why_not  # noqa: E402
from process_support import clean_environment, main, patient  # noqa: E402

WHEELHOUSE = os.path.join(TOOLS, "wheels")
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```\n", re.DOTALL)
MAKES_THE_WHEEL = "tool/wheel.sh --build build wheels\n"  # test_sdist.py runs it
LINK = re.compile(r"\]\(([^)#\s]+)[)#]")
SESSION = """
import json, sys, traceback
scope = {"__name__": "__main__"}
for block in sys.stdin:
    try:
        exec(compile(json.loads(block), "page", "exec"), scope)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    print("\\x04", flush=True)
"""


class Session:
    """An interpreter that executes one block after the other."""

    def __init__(self, python, **options):
        self.process = subprocess.Popen([python, "-u", "-c", SESSION], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, **options)

    def execute(self, block):
        """(whether it has ended without an exception, what it has printed)."""
        self.process.stdin.write(json.dumps(block) + "\n")
        self.process.stdin.flush()
        said = []
        for line in self.process.stdout:
            if line == "\x04\n":
                return True, "".join(said)
            said.append(line)
        return False, "".join(said)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_not():
            raise unittest.SkipTest(reason)
        if not glob.glob(WHEELHOUSE + "/scikit_learn-*.whl"):
            raise unittest.SkipTest(f"no scikit-learn in {WHEELHOUSE}: tool/setup.sh --test gets it from PyPI")
        cls.wheel = build_wheel()

    def follow(self, page):
        """Does what a page says. Returns its folder and what each step has printed."""
        folder = tempfile.mkdtemp(prefix="paracel-page-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
            text = file.read()
        for target in LINK.findall(BLOCK.sub("", text)):
            self.assertTrue(target.startswith("https://") or
                            os.path.exists(os.path.join(SOURCE, os.path.dirname(page), target)), f"{page}: {target}")
        system = os.path.dirname(os.path.realpath(PYTHON))  # the python3 that the environment begins with
        path = os.pathsep.join([os.path.join(folder, "environment", "bin"), system, os.environ["PATH"]])
        options = {"cwd": folder, "env": clean_environment(PIP_NO_INDEX="1", PIP_FIND_LINKS=WHEELHOUSE, PIP_NO_COMPILE="1",
                                                           HOME=folder, PATH=path)}
        os.mkdir(os.path.join(folder, "wheels"))
        shutil.copy(self.wheel, os.path.join(folder, "wheels"))
        session, steps = None, []
        for block in BLOCK.finditer(text):
            mark, language, words = block["mark"] or "", block["language"], block["text"]
            if mark.startswith("file: "):
                with open(os.path.join(folder, mark[len("file: "):]), "w", encoding="utf-8") as file:
                    file.write(words)
            elif mark == "output":
                for line in words.splitlines():
                    self.assertIn(line, steps[-1].splitlines(), page)
            elif mark == "run":
                if words == MAKES_THE_WHEEL:
                    continue
                done = subprocess.run(["bash", "-euc", words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, check=False, timeout=patient(300), **options)
                self.assertEqual(done.returncode, 0, f"{page}: {words}\n{done.stdout}")
                steps.append(done.stdout)
            else:
                self.assertEqual((mark, language), ("", "python"), f"{page}: a block that nothing tests:\n{words}")
                if session is None:
                    session = Session(os.path.join(folder, "environment", "bin", "python"), **options)
                    self.addCleanup(session.end)
                good, said = session.execute(words)
                self.assertTrue(good, f"{page}:\n{words}\n{said}")
                self.assertNotIn("Warning", said, words)
                steps.append(said)
        return folder, steps

    def test_for_users_of_scikit_learn(self):
        _, steps = self.follow("doc/python_estimators.md")
        self.assertTrue(any("killed server" in said for said in steps), steps)

    def test_for_own_algorithms(self):
        _, steps = self.follow("doc/python_algorithms.md")
        said = "\n".join(steps)
        self.assertEqual(said.count("loss 0.384818 [0.502, 0.303, -0.192, 0.013, 0.394]\n"), 3, said)
        ends = [(int(begin), float(loss), json.loads(theta)) for begin, loss, theta in
                re.findall(r"^from iteration (\d+): loss (\S+) in the end, 2500 batches (\[.*\])$", said, re.MULTILINE)]
        self.assertEqual([begin == 0 for begin, _, _ in ends], [True, True, False], said)
        for _, loss, theta in ends:
            self.assertAlmostEqual(loss, 0.38, delta=0.05)
            for mine, true in zip(theta, (0.5, 0.3, -0.2, 0.0, 0.4), strict=True):
                self.assertAlmostEqual(mine, true, delta=0.11)
        self.assertRegex(said, r"server s\d .* lost: it was killed by SIGKILL; the job continues")
        self.assertIn("prun has ended with status 11\n", said)
        self.assertEqual(len(re.findall(r"^\d+ supersteps \[\[-0.06, 0.04\], \[0.02, 8.99\], \[9.01, 0.04\]\]$", said,
                                        re.MULTILINE)), 2, said)
        ranks = re.findall(r"^\[\[0\..*\]\]$", said, re.MULTILINE)
        self.assertEqual((len(ranks), len(set(ranks))), (3, 1), ranks)


if __name__ == "__main__":
    main()

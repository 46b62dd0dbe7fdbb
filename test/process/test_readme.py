#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""README.md and the documents that build on it are correct: their files are written and their commands run unchanged, their
tables agree with the programs, their links are valid."""
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
from document_samples import BLOCK, SOURCE, run_group, text_of  # noqa: E402

BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")

# The two commands that install packages and take minutes; the second one runs this test.
NOT_HERE = ("./tool/demo.sh", "./tool/test.sh")
# The build already exists.
DONE = "cmake -S . -B build -G Ninja -DPARACEL_UNITY=ON -DPARACEL_TESTS=OFF -DPARACEL_BENCH=OFF && cmake --build build"

# In this order: each builds on the previous ones.
PAGES = ("README.md", "doc/operations.md", "doc/writing_algorithms.md", "doc/coming_from_paracel.md",
         "doc/coming_from_ps_lite.md", "doc/driver.md")
OF_OTHERS = ("--force", "--ntasks-per-node", "--signal")  # kubectl's and sbatch's options
LONGEST_README = 200  # lines
QUICK = os.environ.get("PARACEL_QUICK") == "1"  # the first job only


def rows_of(text, heading):
    """The cells of the table whose first row begins with this."""
    table = text[text.index(heading):].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def anchors_of(page):
    """Those of its headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="paracel_readme_")
        for name in ("prun.py", "tool", "alg", "test"):
            os.symlink(os.path.join(SOURCE, name), os.path.join(cls.folder, name))
        os.symlink(BUILD, os.path.join(cls.folder, "build"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def run_line(self, line, limit=300):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
        environment["HOME"] = self.folder
        environment["CMAKE_GENERATOR"] = "Ninja"
        status, said = run_group(["bash", "-euc", line], limit, cwd=self.folder, env=environment)
        self.assertEqual(status, 0, f"{line}\n{said}")
        return said

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def test_the_first_job_runs_as_it_stands_there(self):
        section = text_of("README.md").split("\n## A first job\n")[1].split("\n## ")[0]
        for block in BLOCK.finditer(section):
            if (block["mark"] or "").startswith("file: "):
                with open(os.path.join(self.folder, block["mark"][len("file: "):]), "w", encoding="utf-8") as file:
                    file.write(block["text"])
            else:
                for line in block["text"].splitlines():
                    if line != DONE:
                        self.run_line(line)
        self.assertLess(json.loads(self.read("result/model.json"))["objective"], 0.4)

    @unittest.skipIf(QUICK, "the first job only")
    def test_commands_run_as_they_stand_there(self):
        ran = together = 0
        thetas = []
        lines_fitted = []
        for block in (b for page in PAGES for b in BLOCK.finditer(text_of(page))):
            mark, language, text = block["mark"] or "", block["language"], block["text"]
            if mark.startswith("file: "):
                path = os.path.join(self.folder, mark[len("file: "):])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            elif mark == "run together":  # one line needs a remote shell
                said = self.run_line(text)
                together += 1
                wanted = ("server s2 serves, after ", 'server s0: {"', "server s2 has left, after ") if "--servers +1" in text \
                    else ("prun: metrics at http://127.0.0.1:", 'paracel_worker_clock{run="')
                for words in (*wanted, "prun: interrupted: stopping the job"):
                    self.assertIn(words, said)
            elif mark == "run":
                for line in text.replace("\\\n", "").splitlines():
                    if line == DONE:
                        continue
                    said = self.run_line(line)
                    ran += 1
                    if line.endswith("tour"):
                        for words in ("w999 is 2997\n", "theta[700000] is 9\n", "2 rows\n", "3 workers were here\n"):
                            self.assertIn(words, said)
                    if "bin/lr" in line and "cfg.json" in line:
                        thetas.append([float(v) for v in self.read("result/lr_theta_0").strip().split("|")])
                    if line.split(" #")[0].rstrip().endswith("/fit"):
                        self.assertIn("y = 2.000000 -3.000000 x\n", said)
                    if line.split(" #")[0].rstrip().endswith("/ring"):
                        self.assertIn("3 workers, sum 3\n", said)
                    if line.split(" #")[0].rstrip().endswith("/sgd"):
                        self.assertRegex(said, r"round 0: loss 3\.7\d+\nround 20: loss 0\.0\d+\n(.*\n)?round 60: loss 0")
                    if line.split(" #")[0].rstrip().endswith("/sync_sgd"):
                        self.assertRegex(said, r"round 0: loss 3\.\d+\nround 20: loss 0\.\d+\n(.*\n)*round 60: loss 0\.0\d+\n")
                    if "old_lr.json" in line:
                        self.assertLess(json.loads(self.read("old_lr_result/model.json"))["objective"], 0.26)
                    if "line_fit" in line:
                        self.assertIn("y = 2.000000 -3.000000 x\n", said)
                        lines_fitted.append(json.loads("[" + self.read("line/theta_0").strip() + "]"))
            elif language == "sh":
                for line in text.splitlines():
                    self.assertTrue(line.startswith(NOT_HERE), f"{line}: say <!-- run --> before its block")
            else:
                self.assertEqual(language, "", f"a block of {language} that nothing tests")
        self.assertEqual((ran, together), (55, 2))
        self.assertEqual(len(thetas), 16)
        for theta in thetas[1:]:
            for a, b in zip(theta, thetas[0], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-9)
        self.assertEqual(len(lines_fitted), 2)
        for theta in lines_fitted:
            self.assertAlmostEqual(theta[0], 2, delta=1e-9)
            self.assertAlmostEqual(theta[1], -3, delta=1e-9)
        self.check_the_example_of_a_line()
        self.check_the_example_of_a_vertex_program()

    def check_the_example_of_a_vertex_program(self):
        block = next(b for b in BLOCK.finditer(text_of("doc/pregel.md")) if b["mark"] == "file: mine/distances.cpp")
        with open(os.path.join(self.folder, "mine", "distances.cpp"), "w", encoding="utf-8") as file:
            file.write(block["text"])
        with open(os.path.join(self.folder, "graph.txt"), "w", encoding="utf-8") as file:
            file.write("0 1 1.5\n1 2 2\n0 2 5\n2 0 1\n")
        self.run_line("c++ -std=c++20 -Wall -I opt/paracel/include $(pkg-config --cflags eigen3) mine/distances.cpp "
                      "-o mine/distances -L opt/paracel/lib -lparacel -Wl,-rpath,$PWD/opt/paracel/lib")
        said = self.run_line("mine/distances")
        for line in ("0\t0\n", "1\t1.5\n", "2\t3.5\n", "supersteps\n"):
            self.assertIn(line, said)

    def check_the_example_of_a_line(self):
        """The README's program, built and executed before: a wrong line is an error, and a wrong config prevents the start."""
        def fit(**changes):
            with open(os.path.join(self.folder, "mine", "line.json"), encoding="utf-8") as file:
                keys = dict(json.load(file), **changes)
            with open(os.path.join(self.folder, "line.json"), "w", encoding="utf-8") as file:
                json.dump(keys, file)
            prun = os.path.join(self.folder, "opt", "paracel", "bin", "prun.py")
            done = subprocess.run([prun, "-w", "3", "-p", "2", "-c", "line.json", "mine/build/line_fit"], cwd=self.folder,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
            return done.returncode, done.stdout + done.stderr

        status, said = fit(rounds=5)
        self.assertEqual(status, 1, said)
        self.assertIn("line_fit: error: not converged after 5 rounds", said)
        for key, value, text in (("alpha", 1.5, 'key "alpha": found number 1.5, want a number > 0 and <= 1'),
                                 ("round", 5, 'key "round" is unknown')):
            status, said = fit(**{key: value})
            self.assertEqual(status, 3, said)
            self.assertIn(text, said)
            self.assertNotIn("logs in", said)  # nothing was started
        for text, words in (("1,2\nx,3\n", "found x,3, want x,y"), ("1,2\n1,3\n", "at least two different x")):
            with open(os.path.join(self.folder, "bad.csv"), "w", encoding="utf-8") as file:
                file.write(text)
            status, said = fit(training_input="bad.csv")
            self.assertEqual(status, 4, said)
            self.assertIn(words, said)

    def test_the_two_commands_exist(self):
        for name in NOT_HERE:
            self.assertIn(name, text_of("README.md"))
            self.assertTrue(os.access(os.path.join(SOURCE, name), os.X_OK))

    def test_the_table_of_keys_is_that_of_the_program(self):
        schema = json.loads(subprocess.run([os.path.join(BUILD, "bin", "lr"), "--schema"], stdin=subprocess.DEVNULL,
                                           capture_output=True, text=True, check=True).stdout)
        page = text_of("alg/logistic_regression/README.md")
        said = {}
        for names, _, default in rows_of(page, "| key |"):
            names = re.findall(r"`(\w+)`", names)
            defaults = default.split(", ") if ", " in default else [default] * len(names)
            said.update(zip(names, defaults, strict=True))
        self.assertEqual(set(said), {key["name"] for key in schema["keys"]})
        for key in schema["keys"]:
            self.assertEqual(said[key["name"]] == "required", key["required"], key["name"])
            self.assertEqual(said[key["name"]] == "required without `model`", key.get("required_unless") == ["model"])
            if key.get("default") is not None:
                self.assertEqual(json.dumps(key["default"]).strip('"').removesuffix(".0"), said[key["name"]], key["name"])
        methods = next(key["choices"] for key in schema["keys"] if key["name"] == "method")
        self.assertEqual([row[0].strip("`") for row in rows_of(page, "| `method` | a round")], methods)

    def test_the_table_of_statuses_is_that_of_the_sources(self):
        said = {row[0]: row[1] for row in rows_of(text_of("doc/operations.md"), "| status |")}
        with open(os.path.join(SOURCE, "include", "paracel", "error.hpp"), encoding="utf-8") as file:
            for name, number in re.findall(r"inline constexpr int (\w+) = (\d+);", file.read()):
                self.assertTrue(said.pop(number).replace("-", "").startswith(name.replace("_", " ")), name)
        self.assertEqual(list(said), ["129, 130, 143"])
        listed = re.search(r"exit status: (.*)", self.run_line("./prun.py --help"))[1]
        for number in re.findall(r"\b\d+(?= [a-z])", listed.split(";")[0]):
            self.assertRegex(text_of("doc/operations.md"), rf"\| .*\b{number}\b.* \|", number)

    def test_the_options_it_names_exist(self):
        known = self.run_line("./prun.py --help") + self.run_line("./prun.py join --help")
        for page in PAGES + ("doc/guarantees.md",):
            if page == "doc/coming_from_paracel.md":  # it names Paracel's too; test_prun.py covers those that are rejected
                continue
            for option in set(re.findall(r"`(--[a-z][a-z_-]*)`", text_of(page))):
                if option not in ("--schema", "--help", "--cfg_file") + OF_OTHERS:
                    self.assertIn(option, known, page)

    def test_the_readme_is_short(self):
        self.assertLessEqual(len(text_of("README.md").splitlines()), LONGEST_README)

    def test_links_lead_somewhere(self):
        pages = ["README.md", *(page for pattern in ("doc/*.md", "*/**/README.md")
                                for page in glob.glob(pattern, root_dir=SOURCE, recursive=True) if not page.startswith("build"))]
        for page in pages:
            text = re.sub(r"`[^`\n]*`", "", re.sub(r"^ {4}.*$", "", BLOCK.sub("", text_of(page)), flags=re.MULTILINE))
            for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
                if target.startswith("https://"):
                    continue
                path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
                self.assertTrue(os.path.exists(os.path.join(SOURCE, path)), f"{page}: {target}")
                if anchor:
                    self.assertTrue(os.path.isfile(os.path.join(SOURCE, path)), f"{page}: {target}: a folder has no heading")
                    self.assertIn(anchor, anchors_of(path), f"{page}: {target}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

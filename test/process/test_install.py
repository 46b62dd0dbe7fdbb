#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The installed tree works from its prefix, wherever it is moved, and an external project compiles with it: a program and a
plug-in in the style of Paracel 0.3, which compute the same model in every mode."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")


def run(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class InstalledTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="paracel_install_")
        first = os.path.join(cls.folder, "first")
        cls.prefix = os.path.join(cls.folder, "moved", "prefix")
        run("cmake", "--install", BUILD, "--prefix", first)
        os.mkdir(os.path.dirname(cls.prefix))
        os.rename(first, cls.prefix)

        cls.project = os.path.join(cls.folder, "project")
        run("cmake", "-S", os.path.join(SOURCE, "test", "compat"), "-B", cls.project, "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", f"-DCMAKE_PREFIX_PATH={cls.prefix}")
        run("cmake", "--build", cls.project, "--target", "old_style", "old_update")

        rng = random.Random(7)
        weights = [1.5, -2.0, 0.5]
        with open(os.path.join(cls.folder, "train.csv"), "w", encoding="utf-8") as file:
            for _ in range(300):
                x = [rng.gauss(0, 1) for _ in weights]
                y = 3.0 + sum(a * b for a, b in zip(weights, x)) + rng.gauss(0, 0.1)
                file.write(",".join(repr(v) for v in x + [y]) + "\n")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def config(self, name, **changes):
        keys = {"training_input": os.path.join(self.folder, "train.csv"), "output": os.path.join(self.folder, name),
                "update_file": os.path.join(self.project, "libold_update.so"), "update_func": "theta_step", "rounds": 60,
                "alpha": 0.5, "beta": 0.01, "debug": "true", "scales": [1.0, 2.0]}
        keys.update(changes)
        path = os.path.join(self.folder, name + ".json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(keys, file)
        return path

    def prun(self, *options):
        return run(os.path.join(self.prefix, "bin", "prun.py"), *options, cwd=self.folder)

    def theta_of(self, name):
        with open(os.path.join(self.folder, name, "theta_0"), encoding="utf-8") as file:
            return [float(v) for v in file.read().strip().split("|")]

    def test_what_was_not_built_is_left_out(self):
        # A build tree as left by tool/demo.sh: configured without tests, and with one program of the toolbox built.
        build = os.path.join(self.folder, "part")
        run("cmake", "-S", SOURCE, "-B", build, "-G", "Ninja", "-DPARACEL_TESTS=OFF", "-DPARACEL_BENCH=OFF")
        programs = ["lr", "start_server", "start_sandbox", "start_scheduler", "send_request", "paracel_checkpoint"]
        for name in [f"bin/{p}" for p in programs] + [f"lib/lib{n}.so" for n in ("paracel", "paracel_default", "paracel_mpi",
                                                                               "lr_update")]:
            os.makedirs(os.path.dirname(os.path.join(build, name)), exist_ok=True)
            shutil.copy2(os.path.join(BUILD, name), os.path.join(build, name))
        prefix = os.path.join(self.folder, "part_prefix")
        run("cmake", "--install", build, "--prefix", prefix)
        self.assertEqual(sorted(os.listdir(os.path.join(prefix, "bin"))), sorted(programs + ["prun.py", "datagen.py"]))
        self.assertIn("training_input", run(os.path.join(prefix, "bin", "lr"), "--help"))

    def test_a_new_project_is_built_against_it(self):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
        self.prun("new", "line_fit")
        project = os.path.join(self.folder, "line_fit")
        run("cmake", "-S", project, "-B", os.path.join(project, "build"), "-G", "Ninja", env=environment)
        run("cmake", "--build", os.path.join(project, "build"))
        self.assertIn("100% tests passed", run("ctest", "--test-dir", os.path.join(project, "build"), "--output-on-failure",
                                               env=environment))
        with open(os.path.join(project, "build", "CMakeCache.txt"), encoding="utf-8") as file:
            self.assertIn(f"paracel_DIR:PATH={os.path.join(self.prefix, 'lib', 'cmake', 'paracel')}\n", file.read())

    def test_pkg_config_finds_it_wherever_it_is(self):
        environment = dict(os.environ, PKG_CONFIG_PATH=os.path.join(self.prefix, "lib", "pkgconfig"))
        self.prun("new", "other_fit")
        run("bash", "-euc", "c++ other_fit/other_fit.cpp $(pkg-config --cflags --libs paracel) -o other_fit/fit && "
            "c++ -shared -fPIC other_fit/other_fit_update.cpp $(pkg-config --cflags paracel) -o other_fit/libother_fit_update.so",
            cwd=self.folder, env=environment)
        said = run("bash", "-euc", "cd other_fit && $(pkg-config --variable=prun paracel) -w 2 -c other_fit.json ./fit",
                   cwd=self.folder, env=environment)
        self.assertRegex(said, r"y = 1\.9\d+ -3\.0\d+ x\n")

    def test_editors_shells_and_man_find_their_files(self):
        share = os.path.join(self.prefix, "share")
        programs = {name for name in os.listdir(os.path.join(self.prefix, "bin"))
                    if os.path.exists(os.path.join(share, "paracel", "schema", name + ".json"))}
        self.assertGreater(len(programs), 30)
        for name in programs:
            self.assertTrue(os.path.exists(os.path.join(share, "man", "man1", f"paracel-{name}.1")), name)
        for path in ("man/man1/prun.py.1", "bash-completion/completions/prun.py", "zsh/site-functions/_prun.py"):
            self.assertTrue(os.path.exists(os.path.join(share, path)), path)

    def test_data_is_made_by_what_is_installed(self):
        self.assertTrue(os.access(os.path.join(self.prefix, "bin", "datagen"), os.X_OK))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
        # rmat can be generated by the program only, not in Python.
        run(os.path.join(self.prefix, "bin", "datagen.py"), "-m", "rmat", "-o", "edges.txt", "-n", "100", cwd=self.folder,
            env=environment)
        with open(os.path.join(self.folder, "edges.txt"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 100)

    def test_reports_are_made_by_what_is_installed(self):
        program = os.path.join(self.project, "old_style")
        self.prun("-w", "2", "-p", "1", "--report", "--run-dir", "seen", "-c", self.config("reported"), program)
        with open(os.path.join(self.folder, "seen", "report.html"), encoding="utf-8") as file:
            html = file.read()
        for words in ("The MIT License", "<td>Paracel</td><td class=text>0.1.0</td>"):
            self.assertTrue(words in html, words)
        # So short a run may have no curves.
        for name in ("page.js", "uplot/uPlot.iife.min.js", "uplot/uPlot.min.css"):
            self.assertTrue(os.path.exists(os.path.join(self.prefix, "lib", "paracel", "launcher", "report", name)), name)

    def test_documents_are_there_and_lead_to_each_other(self):
        documents = os.path.join(self.prefix, "share", "doc", "paracel")
        found = 0
        for folder, _, names in os.walk(documents):
            for name in names:
                if not name.endswith(".md"):
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    links = re.findall(r"\]\(([^):#]+\.(?:md|json))[)#]", file.read())
                for link in links:
                    self.assertTrue(os.path.exists(os.path.join(folder, link)), f"{os.path.join(folder, name)}: {link}")
                found += len(links)
        self.assertGreater(found, 10)
        self.assertTrue(os.path.isfile(os.path.join(documents, "alg", "logistic_regression", "README.md")))

    def test_nothing_in_it_points_at_the_build_tree(self):
        for folder, _, names in os.walk(self.prefix):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    data = file.read()
                if name.startswith("paracel") and name.endswith(".cmake"):
                    self.assertNotIn(BUILD.encode(), data, path)
                if folder.endswith(("/bin", "/lib")) and data.startswith(b"\x7fELF"):
                    dynamic = run("readelf", "-d", path)
                    paths = [line for line in dynamic.splitlines() if "RPATH" in line or "RUNPATH" in line]
                    for line in paths:
                        self.assertRegex(line, r"\[\$ORIGIN:\$ORIGIN/\.\./lib\]", path)

    def test_building_without_cppzmq_says_which_package_is_missing(self):
        done = subprocess.run(["cmake", "-S", SOURCE, "-B", os.path.join(self.folder, "no_cppzmq"), "-G", "Ninja",
                               "-DCMAKE_DISABLE_FIND_PACKAGE_cppzmq=ON"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        self.assertNotEqual(done.returncode, 0)
        said = [line.strip() for line in done.stderr.splitlines() if "cppzmq" in line]
        self.assertEqual(said, ["cppzmq 4.9 is missing (Debian: cppzmq-dev; tool/setup.sh installs it)"])

    def test_an_old_program_gives_the_same_model_in_every_way_to_run_it(self):
        program = os.path.join(self.project, "old_style")
        said = {
            "embedded": run(program, f"--cfg_file={self.config('embedded')}", cwd=self.folder),
            "local": self.prun("-w", "3", "-p", "2", "-c", self.config("local"), "-m", "local", program),
            "mpi": self.prun("-w", "3", "-p", "2", "-c", self.config("mpi"), "-m", "mpi", program),
        }
        want = self.theta_of("embedded")
        self.assertEqual(len(want), 4)
        self.assertAlmostEqual(want[0], 3.0, delta=0.1)
        for name, text in said.items():
            self.assertIn("checks: good", text, name)
            got = self.theta_of(name)
            for a, b in zip(got, want, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-9, msg=name)
        self.assertIn("workers: 1", said["embedded"])
        for name in ("local", "mpi"):
            self.assertIn("workers: 3", said[name])
            rows = 0
            for rank in range(3):
                with open(os.path.join(self.folder, name, f"pred_v_{rank}"), encoding="utf-8") as file:
                    rows += len(file.read().split())
            self.assertEqual(rows, 300, name)

    def test_the_shipped_algorithm_runs_from_the_prefix(self):
        run("/usr/bin/python3", os.path.join(SOURCE, "tool", "datagen.py"), "-m", "classification", "-o", "lr.csv", "-n",
            "500", "-k", "10", cwd=self.folder)
        data = os.path.join(self.folder, "lr.csv")
        path = os.path.join(self.folder, "lr.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"training_input": data, "test_input": data, "predict_input": data,
                       "output": os.path.join(self.folder, "lr_output"), "method": "dgd", "rounds": 20, "alpha": 1.0,
                       "beta": 0.001, "update_file": os.path.join(self.prefix, "lib", "liblr_update.so"),
                       "update_func": "lr_theta_update", "debug": False}, file)
        self.prun("-w", "2", "-p", "1", "-c", path, "-m", "local", os.path.join(self.prefix, "bin", "lr"))
        with open(os.path.join(self.folder, "lr_output", "lr_theta_0"), encoding="utf-8") as file:
            self.assertEqual(len(file.read().strip().split("|")), 11)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

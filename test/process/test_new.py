#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""prun.py new: what it makes from a source tree builds, runs and tests at once; test_install.py and test/python do the same with
an installed tree and the Python package."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, PRUN, clean_environment, main  # noqa: E402


class New(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="paracel new ")  # with spaces
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_command(self, *command, cwd=None, status=0):
        done = subprocess.run(command, cwd=cwd or self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
                              env=clean_environment(PARACEL_FRAMEWORK=BIN, CMAKE_GENERATOR="Ninja"))
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def new(self, *arguments, status=0):
        return self.run_command(sys.executable, PRUN, "new", *arguments, status=status)

    def files(self, *below):
        return sorted(os.listdir(os.path.join(self.folder, *below)))

    def test_a_project_in_cxx_builds_and_passes_its_test(self):
        said = self.new("deep/line_fit")
        self.assertIn("cd deep/line_fit && cmake -S . -B build && cmake --build build\n", said)
        self.assertEqual(self.files("deep", "line_fit"), ["CMakeLists.txt", "README.md", "line_fit.cpp", "line_fit.json",
                                                          "line_fit_update.cpp", "points.csv", "test.py"])
        project = os.path.join(self.folder, "deep", "line_fit")
        for name in self.files("deep", "line_fit"):
            with open(os.path.join(project, name), encoding="utf-8") as file:
                text = file.read()
            for word in ("my_algorithm", "MyAlgorithm", "PARACEL_TREE", "SPDX"):
                self.assertNotIn(word, text, name)
        self.run_command("cmake", "-S", ".", "-B", "build", cwd=project)
        self.run_command("cmake", "--build", "build", cwd=project)
        self.assertIn("100% tests passed", self.run_command("ctest", "--test-dir", "build", "--output-on-failure", cwd=project))
        # The commands of its README.
        with open(os.path.join(project, "README.md"), encoding="utf-8") as file:
            commands = file.read().split("Run:\n\n```sh\n")[1].split("```")[0].splitlines()
        self.assertEqual(len(commands), 5)
        for line in commands:
            said = self.run_command("bash", "-euc", line, cwd=project)
            self.assertIn("alpha  " if "--help" in line else "objective", said)


    def test_a_project_in_python_has_its_files(self):
        self.assertIn("python3 test.py", self.new("--python", "line_fit"))
        self.assertEqual(self.files("line_fit"), ["README.md", "line_fit.json", "line_fit.py", "points.csv", "test.py"])
        with open(os.path.join(self.folder, "line_fit", "line_fit.py"), encoding="utf-8") as file:
            text = file.read()
        compile(text, "line_fit.py", "exec")
        self.assertIn("class LineFit(paracel.Paralg):", text)

    def test_an_empty_folder_is_taken_and_another_one_is_left_alone(self):
        os.mkdir(os.path.join(self.folder, "fit"))
        self.new("fit")
        before = self.files("fit")
        self.assertIn("new: fit is not empty: it has CMakeLists.txt; want a new folder, or an empty one",
                      self.new("fit", status=2))
        self.assertEqual(self.files("fit"), before)
        with open(os.path.join(self.folder, "file"), "w", encoding="ascii"):
            pass
        self.assertIn("new: file: Not a directory", self.new("file", status=2))
        self.assertIn("cannot be written", self.new("file/fit", status=1) if os.geteuid() else self.new("/proc/fit", status=1))

    def test_a_name_that_cannot_be_that_of_a_class_is_refused(self):
        for name, words in (("my-fit", "my-fit is no name of a class: want letters, digits and single _, such as my_fit"),
                            ("2fit", "such as fit"), ("f\u00e4n", "is no name of a class"), ("a__b", "such as a_b"),
                            ("class", "has another meaning"), ("test", "has another meaning"), ("json", "has another meaning"),
                            ("a" * 65, "at most 64 characters"), ("", "'' is not a folder name")):
            with self.subTest(name):
                self.assertIn(words, self.new(name, status=2))
        self.assertEqual(self.files(), [])

    def test_a_folder_that_cannot_be_written_is_named(self):
        os.mkdir(os.path.join(self.folder, "closed"), 0o500)
        if os.geteuid() != 0:
            self.assertIn("new: closed/fit cannot be written: closed/fit: Permission denied", self.new("closed/fit", status=1))
            return
        for options, words in (("ro", "closed/fit: Read-only file system"), ("size=8k", "No space left on device")):
            line = f'mount -t tmpfs -o {options} tmpfs closed; "$@"; status=$?; test ! -e closed/fit && exit $status; exit 77'
            said = self.run_command("unshare", "--mount", "sh", "-c", line, "sh", sys.executable, PRUN, "new", "closed/fit",
                                    status=1)
            self.assertIn("new: closed/fit cannot be written: ", said)
            self.assertIn(words, said)

    def test_a_command_or_option_that_is_misspelt_names_the_nearest(self):
        self.assertIn("unknown option --pyhton: did you mean --python?", self.new("fit", "--pyhton", status=2))
        said = self.run_command(sys.executable, PRUN, "nwe", "fit", status=2)
        self.assertIn("nwe: no such program: did you mean new?", said)


if __name__ == "__main__":
    main()

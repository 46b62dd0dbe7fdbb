#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Files with locks and with invariants pass .clang-tidy and clang's thread safety analysis, and made-up files that violate them
are rejected; with PARACEL_LONG=1 all files of the framework and of the algorithms pass. Skipped if clang-tidy is not installed
(Debian: clang-tidy)."""
import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Small files: each takes a second or two, mostly for the headers of the standard library.
FILES = ["src/net/inproc_transport.cpp", "src/core/ssp_clock.cpp"]
FLAGS = ["-std=c++20", "-Isrc", "-I.", "-Iinclude", "-Iinclude/paracel/ps", "-isystem", "/usr/include/eigen3", "-Wall",
         "-Wextra", "-Wthread-safety"]

UNLOCKED = """
#include "net/mutex.hpp"
class counter {
 public:
  void count() { %s++count_; }
 private:
  paracel::mutex mutex_;
  int count_ PARACEL_GUARDED_BY(mutex_) = 0;
};
void use(counter& c) { c.count(); }
"""


@unittest.skipUnless(shutil.which("clang-tidy"), "clang-tidy is not installed")
class ClangTidy(unittest.TestCase):
    def tidy(self, *files):
        done = subprocess.run(["clang-tidy", "--quiet", *files, "--", *FLAGS], cwd=SOURCE, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stdout + done.stderr

    def combined(self, name, files):
        """The files as one, so that headers, which take most of the time, are parsed once. They are also compiled this way
        (PARACEL_UNITY)."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name.replace("/", "_") + ".cpp")
            with open(path, "w", encoding="ascii") as file:
                file.writelines(f'#include "{f}"\n' for f in files)
            # Names in src/ps are those of ps-lite.
            names = ["--checks=-readability-identifier-naming"] if name == "src/ps" else []
            return self.tidy("--config-file=.clang-tidy", *names, path)

    @unittest.skipUnless(os.environ.get("PARACEL_LONG") == "1", "only with PARACEL_LONG=1, as in tool/test.sh --full")
    def test_all_files_are_clean(self):
        groups = {}
        for path in glob.glob("src/**/*.cpp", root_dir=SOURCE, recursive=True) + glob.glob("server/*/*.cpp", root_dir=SOURCE) \
                + glob.glob("alg/*/*.cpp", root_dir=SOURCE):
            words = path.split("/")
            if words[1] == "python":  # needs nanobind's headers
                continue
            alone = words[0] == "alg" or words[1] == "ps"
            # Not programs and plug-ins, which define C names in a file each, nor _mpi.cpp, which needs a path to mpi.h.
            if not path.endswith(("_main.cpp", "_update.cpp", "_handle.cpp", "_filter.cpp", "_mpi.cpp")):
                groups.setdefault("/".join(words[:2]) if alone else words[0], []).append(path)
        self.assertGreater(len(groups), 30)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            runs = {name: threads.submit(self.combined, name, sorted(files)) for name, files in groups.items()}
        for name, done in runs.items():
            status, said = done.result()
            with self.subTest(name):
                self.assertEqual(status, 0, said)

    def made_up(self, text):
        """The diagnostics for a file with this text, checked like a file in src/."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(SOURCE, ".clang-tidy"), folder)
            path = os.path.join(folder, "made_up.cpp")
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            return self.tidy(path)

    def test_the_files_are_clean(self):
        status, said = self.tidy(*FILES)
        self.assertEqual(status, 0, said)

    def test_a_member_that_is_touched_without_its_lock_is_refused(self):
        status, said = self.made_up(UNLOCKED % "const paracel::mutex_lock lock(mutex_); ")
        self.assertEqual(status, 0, said)
        status, said = self.made_up(UNLOCKED % "")
        self.assertNotEqual(status, 0, said)
        self.assertIn("requires holding mutex 'mutex_' exclusively", said)

    def test_a_name_of_another_style_is_refused(self):
        status, said = self.made_up("class CamelCase {};\n")
        self.assertNotEqual(status, 0, said)
        self.assertIn("invalid case style for class 'CamelCase'", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

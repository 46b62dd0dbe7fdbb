#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Where a plug-in may be: the same for a job in one process and for one started by prun.py."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, BUILD, LR, SOURCE, JobTest, clean_environment, main  # noqa: E402

sys.path.insert(0, os.path.join(SOURCE, "tool"))
from launcher.programs.config import Facts  # noqa: E402

PLUGIN = os.path.join(BUILD, "lib", "liblr_update.so")

DAEMON = 1  # the group of this name, which is not the private one of any user who runs this


class Plugins(JobTest):
    def setUp(self):
        # The job runs in a folder that contains neither the config nor the program.
        self.here = tempfile.mkdtemp(dir=self.folder)
        self.beside = tempfile.mkdtemp(dir=self.folder)
        self.config = os.path.join(self.beside, "cfg.json")
        self.environment = clean_environment(LD_LIBRARY_PATH=os.path.join(BUILD, "lib"))

    def put(self, *path):
        path = os.path.join(*path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(PLUGIN, path)
        os.chmod(path, 0o755)

    def both(self, name, program=LR):
        """(status, standard error) of the job in one process and of one started by prun.py."""
        self.write_config(self.config, update_file=name, training_input=os.path.join(self.folder, "training.dat"))
        done = subprocess.run([program, "--cfg_file", self.config], cwd=self.here, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=self.environment, check=False)
        prun = subprocess.run([sys.executable, os.path.join(SOURCE, "prun.py"), "-w", "2", "-c", self.config, program],
                              cwd=self.here, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=self.environment,
                              check=False)
        return [(done.returncode, done.stderr), (prun.returncode, prun.stderr)]

    def assert_found(self, name, **more):
        for status, err in self.both(name, **more):
            self.assertEqual(status, 0, err)

    def test_a_path_in_the_config_allows_its_folder(self):
        self.put(self.here, "libmine.so")
        self.put(self.here, "sub", "libother.so")
        for name in ("./libmine.so", "sub/libother.so", os.path.join(self.here, "libmine.so")):
            with self.subTest(name=name):
                self.assert_found(name)

    def test_a_bare_name_is_looked_for_beside_the_config(self):
        self.put(self.beside, "libmine.so")
        self.assert_found("libmine.so")
        self.assert_found("mine")

    def test_a_bare_name_is_looked_for_beside_the_program(self):
        place = tempfile.mkdtemp(dir=self.folder)
        for name in ("start_server", "start_scheduler", "send_request"):
            os.symlink(os.path.join(BIN, name), os.path.join(place, name))
        program = os.path.join(place, "lr")
        shutil.copy(LR, program)
        self.put(place, "libmine.so")
        self.assert_found("libmine.so", program=program)

    def test_a_bare_name_is_looked_for_in_the_lib_of_the_framework(self):
        self.assert_found("liblr_update.so")

    def test_one_that_is_nowhere_is_told_alike_with_what_was_written(self):
        self.put(self.here, "libmine.so")  # not on the search path
        with open(os.path.join(self.beside, "libtext.so"), "w", encoding="ascii") as file:
            file.write("no library")
        self.put(self.beside, "libtheirs.so")
        for status, err in self.both("libmine.so"):
            self.assertEqual(status, 5, err)
            self.assertIn('no plug-in "libmine.so": looked for libmine.so', err)
            for words in (self.beside, BIN, os.path.join(BUILD, "lib"), "--plugin-dir", "; plug-ins there: lib"):
                self.assertIn(words, err)
            for words in ("libparacel.so", "libparacel_mpi.so", "libtext.so"):
                self.assertNotIn(words, err)

    def test_one_that_others_may_write_is_refused_alike(self):
        self.put(self.beside, "libmine.so")
        if os.geteuid() != 0:
            self.skipTest("this user cannot give a file to a group of others")
        os.chown(os.path.join(self.beside, "libmine.so"), 0, DAEMON)
        os.chmod(os.path.join(self.beside, "libmine.so"), 0o775)
        for status, err in self.both("libmine.so"):
            self.assertEqual(status, 5, err)
            self.assertIn(f"plug-in {self.beside}/libmine.so may be written by its group: chmod g-w it", err)

    def test_the_folders_of_paths_are_allowed_and_names_mean_none(self):
        here = os.getcwd()
        facts = Facts({"plugins": ["./libhll_update.so", "x/y.so", "/z/w.so", "libname.so", "./other.so"]})
        self.assertEqual(facts.plugin_folders(), [here, os.path.join(here, "x"), "/z"])


if __name__ == "__main__":
    main()

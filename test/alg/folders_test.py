#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What all folders of alg/ have in common: their files, --help and --schema, a README that lists the existing keys and whose
commands work, and an example config that the schema accepts."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
ALG = os.path.join(SOURCE, "alg")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def folders():
    return sorted(f for f in os.listdir(ALG) if os.path.isdir(os.path.join(ALG, f)) and f != "common")


def binaries(folder):
    return sorted(n[:-len("_main.cpp")] for n in os.listdir(os.path.join(ALG, folder)) if n.endswith("_main.cpp"))


def commands(folder):
    """The indented lines in the section Use of the README that start a program. A trailing backslash continues the line."""
    section = re.search(r"^## Use\n(.*?)(?=^## |\Z)", read(ALG, folder, "README.md"), re.DOTALL | re.MULTILINE)
    if section is None:
        return []
    text = re.sub(r"\\\n +", " ", section.group(1))
    return [line.strip() for line in text.splitlines() if re.match(r"    (\./|tail )\S", line)]


def environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}


class Folders(unittest.TestCase):
    def run_program(self, *command):
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), stdin=subprocess.DEVNULL)

    def schema(self, binary):
        done = self.run_program(os.path.join(BUILD, "bin", binary), "--schema")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_every_folder_has_its_files(self):
        for folder in folders():
            with self.subTest(folder):
                names = os.listdir(os.path.join(ALG, folder))
                self.assertIn("README.md", names)
                for ending in ("_main.cpp", ".hpp", ".cpp", ".json"):
                    self.assertTrue(any(n.endswith(ending) for n in names), f"{folder} has no *{ending}")

    def test_help_names_every_key(self):
        for folder in folders():
            for binary in binaries(folder):
                with self.subTest(binary):
                    done = self.run_program(os.path.join(BUILD, "bin", binary), "--help")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    for key in self.schema(binary)["keys"]:
                        self.assertIn(key["name"], done.stdout)
                        self.assertGreater(len(key["help"]), 2, key["name"])

    def test_the_readme_has_every_key_and_no_other(self):
        for folder in folders():
            with self.subTest(folder):
                text = read(ALG, folder, "README.md")
                rows = re.findall(r"^\| *(`[^|]*`[^|]*)\|", text, re.MULTILINE)
                named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
                keys = {k["name"] for b in binaries(folder) for k in self.schema(b)["keys"]}
                self.assertEqual(sorted(keys - named), [], "keys of the schema that no table of the README has")

    def test_a_config_with_an_unknown_key_is_refused(self):
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "cfg.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write('{"no_such_key": 1}')
            for folder in folders():
                for binary in binaries(folder):
                    with self.subTest(binary):
                        done = self.run_program(os.path.join(BUILD, "bin", binary), "--cfg_file", path)
                        self.assertEqual(done.returncode, 3, done.stderr)
                        self.assertRegex(done.stderr, r"^%s: error: .*cfg\.json:1:2: .*no_such_key" % binary)
                        self.assertEqual(done.stderr.count("\n"), 1)

    def test_the_commands_of_the_readme_run(self):
        for folder in folders():
            with self.subTest(folder):
                lines = commands(folder)
                self.assertTrue(any("prun.py" in line for line in lines), "no command of prun.py under ## Use")
                work = tempfile.mkdtemp(prefix="paracel_alg_")
                self.addCleanup(shutil.rmtree, work, ignore_errors=True)
                for name in ("prun.py", "tool", "alg"):
                    os.symlink(os.path.join(SOURCE, name), os.path.join(work, name))
                os.symlink(BUILD, os.path.join(work, "build"))
                for line in lines:
                    done = subprocess.run(["bash", "-euc", line], cwd=work, env=environment(), stdin=subprocess.DEVNULL,
                                          capture_output=True, text=True, timeout=120)
                    self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What programs say of themselves, for others: JSON Schemas, which judge configs as the programs do (by PyPI's jsonschema),
manual pages without warnings of groff, completions in real shells."""
import glob
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, BUILD, LR, PRUN, SOURCE, clean_environment, main, patient  # noqa: E402

sys.path += glob.glob(os.path.join(BUILD, "python-tools", "lib", "python3.*", "site-packages"))
try:
    import jsonschema
except ImportError:
    jsonschema = None

# A value that no key of a type takes; of a text a list.
BAD = {"int": "x", "double": "x", "bool": "x", "doubles": ["x"], "strings": {}, "files": {}}


def run(*command, **more):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=300, env=clean_environment(PARACEL_FRAMEWORK=BIN), **more)


def example_configs():
    """{program: paths} of those that the repository has."""
    found = {}
    for path in sorted(glob.glob(os.path.join(SOURCE, "alg", "*", "*.json"))):
        with open(os.path.join(os.path.dirname(path), "README.md"), encoding="utf-8") as file:
            text = file.read()
        for line in re.findall(rf".*\b{re.escape(os.path.basename(path))}.*", text):
            for program in re.findall(r"build/bin/(\w+)", line):
                found.setdefault(program, set()).add(path)
    return found


class SharedFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="paracel_shared_")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        mains = glob.glob(os.path.join(SOURCE, "alg", "*", "*_main.cpp"))
        cls.programs = sorted(os.path.basename(path).removesuffix("_main.cpp") for path in mains)
        done = run(sys.executable, "-B", os.path.join(SOURCE, "tool", "shared_files.py"), cls.folder,
                   *(os.path.join(BIN, name) for name in cls.programs))
        if done.returncode != 0:
            raise AssertionError(done.stdout)

    def schema(self, name):
        with open(os.path.join(self.folder, "paracel", "schema", f"{name}.json"), encoding="utf-8") as file:
            return json.load(file)

    @unittest.skipIf(jsonschema is None, "no jsonschema: tool/setup.sh --test installs it")
    def test_a_schema_judges_as_its_program_does(self):
        examples, judged = example_configs(), 0
        for name in self.programs:
            schema = self.schema(name)
            jsonschema.Draft7Validator.check_schema(schema)
            validator = jsonschema.Draft7Validator(schema)
            own = json.loads(run(os.path.join(BIN, name), "--schema").stdout)
            for path in examples.get(name, ()):
                with open(path, encoding="utf-8") as file:
                    config = json.load(file)
                self.assertEqual([error.message for error in validator.iter_errors(config)], [], path)
                self.assertEqual(self.refusal(name, config), "", path)
                wrong = [{**config, "no_such_key": 1}]
                for key in own["keys"]:
                    bad = BAD.get(key["type"], [])
                    wrong.append({**config, key["name"]: bad})
                    if "min" in key:
                        wrong.append({**config, key["name"]: key["min"] - (0 if key.get("exclusive_min") else 1)})
                    if "max" in key:
                        wrong.append({**config, key["name"]: key["max"] + 1})
                    if "choices" in key:
                        wrong.append({**config, key["name"]: "no such word"})
                    if key["required"]:
                        wrong.append({k: v for k, v in config.items() if k != key["name"]})
                        self.assertTrue(validator.is_valid({**wrong[-1], "include": "more.json"}))
                for changed in wrong:
                    self.assertFalse(validator.is_valid(changed), f"{name}: {changed}")
                    self.assertNotEqual(self.refusal(name, changed), "", f"{name}: {changed}")
                judged += len(wrong)
        self.assertGreater(judged, 300)

    def refusal(self, name, config):
        path = os.path.join(self.folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"$schema": "x.json", **config}, file)
        return json.loads(run(os.path.join(BIN, name), f"--check={path}", "--no_files").stdout.splitlines()[0]).get("error", "")

    @unittest.skipIf(shutil.which("groff") is None, "no groff")
    def test_manual_pages_are_read_without_a_warning(self):
        pages = glob.glob(os.path.join(self.folder, "man", "man1", "*.1"))
        self.assertEqual(len(pages), len(self.programs) + 2)
        for page in pages:
            done = run("groff", "-man", "-Tascii", "-ww", page)
            self.assertNotIn("warning", done.stdout)
            text = re.sub(r"\x1b\[\d+m|.\x08", "", done.stdout)
            with self.subTest(page):
                self.assertIn("SYNOPSIS", text)
                if page.endswith("/prun.py.1"):
                    for word in ("--replicas R", "doctor", "--grid KEY=A,B,C", "EXIT STATUS"):
                        self.assertIn(word, text)
                elif page.endswith("-lr.1"):
                    self.assertIn("gradient_tolerance", text)

    def completed(self, at, *words):
        done = run(sys.executable, "-S", PRUN, "__complete", str(at), *words)
        self.assertEqual(done.returncode, 0, done.stdout)
        found = done.stdout.split()
        return found if found == ["__files__"] else [word for word in found if word != "__files__"]

    def test_candidates_are_those_of_the_place(self):
        self.assertEqual(self.completed(1, "prun.py", "doc"), ["doctor"])
        self.assertEqual(self.completed(1, "prun.py", "--repl"), ["--replicas"])
        self.assertEqual(self.completed(2, "prun.py", "doctor", "--"), ["--help", "--json"])
        self.assertEqual(self.completed(1, "prun.py", "rep"), ["report"])
        self.assertEqual(self.completed(2, "prun.py", "export", "--ten"), ["--tensorboard"])
        self.assertEqual(self.completed(2, "prun.py", "-m", ""), ["local", "mpi", "ssh", "slurm", "k8s", "external"])
        self.assertEqual(self.completed(2, "prun.py", "-c", ""), ["__files__"])
        self.assertIn("lr", self.completed(3, "prun.py", "-w", "4", "l"))
        self.assertIn("lr", self.completed(5, "prun.py", "sweep", "a.json", "--grid", "x=1", "l"))
        for words in (("prun.py", "--set", "gradient_t", LR), ("prun.py", LR, "--set", "gradient_t"), (LR, "--set", "gradient_t"),
                      ("prun.py", "sweep", "a.json", "--grid", "gradient_t", LR)):
            with self.subTest(words):
                self.assertEqual(self.completed(words.index("gradient_t"), *words), ["gradient_tolerance="])
        self.assertEqual(self.completed(2, LR, "--set", "method=n"), ["method=newton"])
        self.assertEqual(self.completed(2, LR, "--set", "debug=t"), ["debug=true"])
        self.assertEqual(self.completed(1, LR, "--sc"), ["--schema"])
        for strange in (("x",), ("7",), ("1", "prun.py"), ("9", "prun.py", "--set"), ("-1", "prun.py"), ()):
            self.assertIsInstance(self.completed(*strange) if strange else self.completed(""), list)

    def typed(self, shell, *lines, wanted):
        """What an interactive shell shows after these keys, until it shows all of `wanted`."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.environ.update(clean_environment(PARACEL_FRAMEWORK=BIN, PS1="$ ", TERM="dumb", HOME=self.folder, HISTFILE=""))
            os.execvp(shell[0], shell)
        said = ""
        try:
            for line in lines:
                os.write(terminal, line.encode())
                end = time.monotonic() + patient(10 if line is lines[-1] else 1)
                while time.monotonic() < end and not all(word in said for word in wanted):
                    if select.select([terminal], [], [], 0.1)[0]:
                        said += os.read(terminal, 1 << 16).decode("utf-8", "replace")
                    elif line is not lines[-1] and said.endswith(("$ ", "% ")):
                        break
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(terminal)
        return said

    def in_path(self):
        folder = os.path.join(self.folder, "bin")
        os.makedirs(folder, exist_ok=True)
        if not os.path.lexists(os.path.join(folder, "prun.py")):
            os.symlink(PRUN, os.path.join(folder, "prun.py"))
        return f"PATH={folder}:$PATH"

    def test_bash_completes_options_keys_and_files(self):
        source = f"{self.in_path()}; source {SOURCE}/tool/completion/prun.bash\n"
        shell = ["bash", "--norc", "--noprofile", "-i"]
        with open(os.path.join(self.folder, "a_config.json"), "w", encoding="ascii"):
            pass
        for keys, wanted in (("prun.py --repl\t", "--replicas "), (f"prun.py {LR} --set gradient_t\t", "gradient_tolerance="),
                             (f"prun.py {LR} --set method=new\t", "method=newton "), ("prun.py -c a_con\t", "a_config.json "),
                             (f"prun.py {LR} --set training_input=a_con\t", "training_input=a_config.json ")):
            with self.subTest(keys):
                self.assertIn(wanted, self.typed(shell, source, keys, wanted=[wanted]))

    @unittest.skipIf(shutil.which("zsh") is None, "no zsh")
    def test_zsh_completes_options_and_keys(self):
        functions = os.path.join(self.folder, "functions")
        os.makedirs(functions, exist_ok=True)
        shutil.copy(os.path.join(SOURCE, "tool", "completion", "prun.zsh"), os.path.join(functions, "_prun.py"))
        begin = f"{self.in_path()}; fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -D\n"
        for keys, wanted in (("prun.py --repl\t", "--replicas"), (f"prun.py {LR} --set gradient_t\t", "gradient_tolerance="),
                             (f"prun.py {LR} --set method=new\t", "method=newton")):
            with self.subTest(keys):
                self.assertIn(wanted, self.typed(["zsh", "-f", "-i"], begin, keys, wanted=[wanted]))


if __name__ == "__main__":
    main()

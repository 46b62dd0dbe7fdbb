#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Settings that an algorithm in Python declares: their checks are those of programs in C++, by themselves and in jobs."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PACKAGE, SITE, PackageTest  # noqa: E402
from process_support import clean_environment, main  # noqa: E402

PROGRAM = '''
import paracel


class Fit(paracel.Paralg):
    """A straight line through points.

    More about it."""

    settings = {
        "training_input": paracel.setting("files", help="points x,y", required=True),
        "output": paracel.setting("output_folder", help="folder of the results"),
        "rounds": paracel.setting(int, 100, "maximum number of rounds", at_least=1, at_most=1000),
        "alpha": paracel.setting(float, help="step size; default: found by a search", above=0),
        "method": paracel.setting(str, "sgd", "how it is found", one_of=["sgd", "cg"]),
        "debug": paracel.setting(bool, False, "print more"),
        "penalties": paracel.setting(list[float], help="of the weights", at_least=0),
        "names": paracel.setting(list[str], help="of the columns"),
    }

    def solve(self):
        if self.worker_id == 0:
            print(sorted(self.config.items()), self.get_consistency())


if __name__ == "__main__":
    paracel.run(Fit)
'''
# Keys that lasso, in C++, declares alike.
LIKE_LASSO = '''
import paracel
class Lasso(paracel.Paralg):
    settings = {
        "training_input": paracel.setting("files", help="x", required=True),
        "output": paracel.setting("output_folder", help="x", required=True),
        "rounds": paracel.setting(int, 1000, "x", at_least=1, at_most=1000000000),
        "tolerance": paracel.setting(float, 1e-4, "x", at_least=1e-12, at_most=0.1),
        "format": paracel.setting(str, "text", "x", one_of=["text", "npy"]),
        "debug": paracel.setting(bool, False, "x"),
    }
    def solve(self):
        print("solved")
paracel.run(Lasso)
'''


class Settings(PackageTest):
    def setUp(self):
        super().setUp()
        self.program("fit.py", PROGRAM)
        self.written("points.csv", "1,2\n")

    def written(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def fit(self, config):
        self.written("cfg.json", config)
        return self.python("fit.py", "--cfg_file", "cfg.json")

    def test_values_and_defaults(self):
        status, out, err = self.fit('{"training_input": "points.csv", "alpha": 1, "penalties": 0.5, "names": ["a", "é"],\n'
                                    ' "consistency": "bsp"}')
        self.assertEqual((status, err), (0, ""))
        config = [("alpha", 1.0), ("consistency", "bsp"), ("debug", False), ("method", "sgd"), ("names", ["a", "é"]),
                  ("output", None), ("penalties", [0.5]), ("rounds", 100), ("training_input", ["points.csv"])]
        self.assertEqual(out, f"{config} ('bsp', 0)\n")
        status, out, err = self.fit('{"training_input": "points.csv", "ssp_switch": true, "limit_s": 3, "debug": true}')
        self.assertEqual((status, err), (0, ""))
        self.assertIn("('ssp', 3)", out)
        self.assertIn("('alpha', None)", out)
        status, out, err = self.prun("-w", "2", "-p", "1", "-c", "cfg.json", "fit.py")
        self.assertEqual(status, 0, err)
        self.assertIn("('debug', True)", out)

    def test_what_is_refused(self):
        for config, words in (
                ('{"training_input": "points.csv",\n  "roundz": 3}', 'cfg.json:2:3: key "roundz"'),
                ('{"training_input": "points.csv", "rounds": "ten"}', 'key "rounds": found string "ten", want an integer'),
                ('{"training_input": "points.csv", "rounds": 0}', 'key "rounds": found number 0, want an integer >= 1'),
                ('{"training_input": "points.csv", "alpha": 0}', 'key "alpha": found number 0, want '),
                ('{"training_input": "points.csv", "penalties": [1, -1]}', 'key "penalties"'),
                ('{"training_input": "points.csv", "method": "cgg"}',
                 'key "method": found string "cgg", want one of sgd, cg; did you mean "cg"?'),
                ('{"training_input": "nothing.csv"}', 'key "training_input"'),
                ('{"rounds": 3}', 'key "training_input"'),
                ('{"training_input": "points.csv", "consistency": "bsp", "limit_s": 3}', 'key "limit_s": found 3'),
                ('{"training_input": "points.csv"', "cfg.json:1:")):
            with self.subTest(config):
                status, out, err = self.fit(config)
                self.assertEqual((status, out, err.count("\n")), (3, "", 1), err)
                self.assertTrue(err.startswith("fit.py: error: cfg.json:"), err)
                self.assertIn(words, err)
                text = err.partition("fit.py: error: ")[2]
        status, out, err = self.prun("-w", "2", "-p", "1", "-c", "cfg.json", "fit.py")  # before any process has started
        self.assertEqual((status, out, err), (3, "", f"prun.py: error: {text}"))

    def test_the_words_are_those_of_cpp(self):
        self.program("like_lasso.py", LIKE_LASSO)
        base = '{"training_input": "points.csv", "output": "result"'
        for more in ('"rounds": "ten"', '"rounds": 0', '"rounds": 1.5', '"rounds": 1e99', '"tolerance": 0', '"tolerance": "x"',
                     '"format": "np"', '"format": 7', '"debug": "yes"', '"rounds": 3, "rounds": 4', '"roundz": 3', '"": 3',
                     '"debug": null', '"rounds": [1]'):
            with self.subTest(more):
                self.written("cfg.json", f"{base},\n  {more}}}")
                own = self.python("like_lasso.py", "--cfg_file", "cfg.json")
                cpp = subprocess.run([os.path.join(SITE, "paracel", "_bin", "lasso"), "--cfg_file", "cfg.json"], cwd=self.folder,
                                     capture_output=True, text=True, check=False, env=clean_environment())
                self.assertEqual((own[0], cpp.returncode), (3, 3), own[2] + cpp.stderr)
                said, wanted = own[2].replace("like_lasso.py: ", "lasso: "), cpp.stderr
                self.assertEqual(said.partition("allowed keys: ")[0], wanted.partition("allowed keys: ")[0])

    def test_help_and_schema(self):
        status, out, err = self.python("fit.py", "--help")
        self.assertEqual((status, err), (0, ""))
        for words in ("A straight line through points.", "training_input", "maximum number of rounds", "sgd", "consistency"):
            self.assertIn(words, out)
        status, out, err = self.python("fit.py", "--schema")
        self.assertEqual((status, err), (0, ""))
        schema = json.loads(out)
        keys = {key["name"]: key for key in schema["keys"]}
        self.assertEqual(schema["program"], "fit.py")
        self.assertEqual({name: keys["rounds"][name] for name in ("type", "default", "min", "max")},
                         {"type": "int", "default": 100, "min": 1, "max": 1000})
        self.assertEqual((keys["method"]["choices"], keys["training_input"]["required"]), (["sgd", "cg"], True))
        self.written("cfg.json", '{"training_input": "points.csv", "output": "out"}')
        status, out, err = self.python("fit.py", "--check=cfg.json")
        self.assertEqual((status, err, json.loads(out)["output"], os.path.exists(os.path.join(self.folder, "out"))),
                         (0, "", "out", False))
        status, out, err = self.python("fit.py", "--check", "none.json")
        self.assertEqual((status, json.loads(out)["status"]), (3, 3))
        for words in (("--no_such",), ("--help=1",), ("--cfg_file",), ("x",)):
            status, out, err = self.python("fit.py", *words)
            self.assertEqual((status, out), (2, ""), err)
            self.assertIn(f"fit.py: error: found {words[0]}", err)

    def test_the_readme(self):
        with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
            text = file.read()
        self.program("settings.py", re.search(r"<!-- file: settings\.py -->\n```python\n(.*?)```", text, re.DOTALL)[1])
        self.written("cfg.json", '{"training_input": "points.csv",\n  "rounds": 3}')
        self.assertEqual(self.python("settings.py", "--cfg_file", "cfg.json"), (0, "3 sgd None\n", ""))
        self.written("cfg.json", '{"training_input": "points.csv",\n  "roundz": 3}')
        status, out, err = self.python("settings.py", "--cfg_file", "cfg.json")
        self.assertEqual((status, out), (3, ""))
        self.assertIn('cfg.json:2:3: key "roundz" is unknown; did you mean "rounds"?', err)

    def test_no_config_is_one_that_lacks_what_is_required(self):
        status, out, err = self.python("fit.py")
        self.assertEqual((status, out, err.count("\n")), (3, "", 1), err)

    def test_settings_that_are_wrong_themselves(self):
        for declaration, words in (("paracel.setting(dict)", "TypeError: found type <class 'dict'> of a setting"),
                                   ("3", "TypeError: setting x: found 3, want paracel.setting"),
                                   ("paracel.setting(list[float], [1.0])", "TypeError: a list has no default"),
                                   ("paracel.setting(str, one_of='ab')", "TypeError: found a str as required_unless or one_of")):
            with self.subTest(declaration):
                self.program("wrong.py", "import paracel\nclass W(paracel.Paralg):\n    settings = {'x': " + declaration + "}\n"
                                         "paracel.run(W)\n")
                status, out, err = self.python("wrong.py")
                self.assertEqual((status, out), (1, ""), err)
                self.assertIn(words, err)


if __name__ == "__main__":
    main()

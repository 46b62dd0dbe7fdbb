#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What lr says about bad data, bad configs and steps that diverge; its schema."""
import json
import os
import sys
import unittest

import numpy

from lr_case import LR, PRUN, SOURCE, LrCase, run


class Refusals(LrCase):
    def refused(self, status, text, done):
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, status, said)
        self.assertIn(text, said)
        self.assertNotIn("terminate called", said)

    def test_bad_data_is_refused_with_file_line_and_column(self):
        good = "1,2,1\n3,4,0\n"
        table = [
            (good + "5,abc,1\n", ':3:3: found "abc", want a number'),
            (good + "5,nan,1\n", ':3:3: found "nan", want a finite number'),
            (good + "inf,6,1\n", ':3:1: found "inf", want a finite number'),
            (good + "5,1\n", ":3:4: found 2 fields, want 3 as in the first line"),
            (good + "5,6,7,1\n", ":3:6: found 4 fields, want 3 as in the first line"),
            (good + "5,6,2\n", ':3:5: found label "2" after 1 and 0, want two classes'),
            ("1 1:1\n-1 0:1\n", ":2:4: found index 0, want 1 or more"),
            ("1 1:1\n-1 4000000000:1\n", ":2:4: found index 4000000000, want at most 134217728"),
            ("1 2:1 1:1\n", ":1:7: found index 1 after 2, want increasing indices"),
            ("7,1\n8,3\n9,0\n", ':3:3: found label "0" after 1 and 3, want two classes'),
            ("1 1:1 x\n", ':1:7: found "x", want index:value'),
            ("", ":1:1: found no line, want samples"),
            ("\n\n", ":1:1: found no line, want samples"),
        ]
        for number, (text, message) in enumerate(table):
            with self.subTest(message):
                path = os.path.join(self.folder, f"bad{number}")
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                self.refused(4, path + message, self.job(1, 1, "embedded", training_input=path))
                if text.count(",") != 0:
                    continue  # as test input it would have a different number of columns
                self.refused(4, path + message, self.job(1, 1, "embedded", test_input=path))

    def test_bad_data_in_the_last_part_ends_the_job_with_status_4(self):
        path = os.path.join(self.folder, "late")
        with open(self.small, encoding="ascii") as rows, open(path, "w", encoding="ascii") as file:
            file.write(rows.read() + "oops,1,2,3,4,1\n")
        self.refused(4, path + ':204:1: found "oops", want a number', self.job(4, 2, training_input=path))

    def test_labels_of_three_kinds_over_several_workers_are_refused(self):
        path = os.path.join(self.folder, "labels")
        with open(path, "w", encoding="ascii") as file:
            file.write("0 1:1\n1 1:2\n" * 22 + "-1 1:1\n1 1:2\n" * 20)
        self.refused(4, "found labels 0 and -1", self.job(2, 1, training_input=path))

    def test_a_test_input_of_another_width_is_refused_before_training(self):
        path = os.path.join(self.folder, "narrow")
        with open(path, "w", encoding="ascii") as file:
            file.write("1,2,1\n")
        done = self.job(1, 1, "embedded", test_input=path)
        self.refused(4, "found 3 fields in the first line, want 6: 5 features and a label", done)
        self.assertFalse(os.path.exists(os.path.join(self.output, "metrics.jsonl")))

    def test_a_bad_config_is_refused_before_any_process_starts(self):
        keys = {"training_input": self.small, "method": "dgd", "rounds": 20, "alpha": 1.0, "beta": 0.01}
        table = [
            ({"alhpa": 1}, 'key "alhpa" is unknown; did you mean "alpha"?'),
            ({"rounds": "ten"}, 'key "rounds": found string "ten", want an integer >= 1'),
            ({"rounds": 0}, 'key "rounds": found number 0, want an integer >= 1'),
            ({"alpha": 0}, 'key "alpha": found number 0, want a number > 0'),
            ({"method": "sgd"}, 'key "method": found string "sgd", want one of dgd, ipm, downpour, agd'),
            ({"training_input": "/no/such"}, 'key "training_input": no such file or folder: /no/such'),
            ({"output": self.small + "/out"}, 'key "output"'),
            ({"debug": "maybe"}, 'key "debug": found string "maybe", want true or false'),
        ]
        for change, message in table:
            with self.subTest(message):
                config = self.config(**{**keys, **change})
                done = run([LR, "--cfg_file", config])
                self.refused(3, message, done)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn(config, done.stderr)
                name = next(iter(change))
                done = run([sys.executable, "-B", PRUN, "-w", "2", "-p", "1", "-c", config, "-m", "local", "--output-dir",
                            config + ".run", LR])
                self.refused(3, name, done)
                self.assertFalse(os.path.exists(config + ".run"))
        missing = dict(keys)
        del missing["alpha"]
        self.refused(3, 'key "alpha" is missing', run([LR, "--cfg_file", self.config(**missing)]))
        self.refused(3, "not JSON", run([LR, "--cfg_file", self.config(text='{"rounds": 1,}')]))
        self.refused(3, "cannot be read", run([LR, "--cfg_file", "/no/such.json"]))
        self.refused(3, "no config file given", run([LR]))

    def test_bsp_is_refused_for_methods_whose_updates_are_immediate(self):
        self.refused(3, 'key "consistency": found "bsp"', self.job(1, 1, "embedded", method="agd", consistency="bsp"))

    def test_a_plug_in_that_cannot_act_is_refused(self):
        for key in ("update_file", "update_func"):
            config = self.config(model=self.small, output=os.path.join(self.folder, "out"), **{key: "lr_update"})
            done = run([LR, "--cfg_file", config])
            self.refused(3, f'key "{key}": not with a model: nothing is trained', done)
            self.assertRegex(done.stderr, rf"error: {config}:\d+:3: ")
            for method in ("lbfgs", "newton", "owlqn"):
                self.refused(3, f'key "{key}": not with method {method}, which updates nothing in the servers',
                             self.job(1, 1, "embedded", method=method, **{key: "lr_update"}))

    def test_an_unknown_option_is_a_usage_error(self):
        self.refused(2, "nonsense", run([LR, "--nonsense"]))
        self.refused(2, "extra", run([LR, "--cfg_file", "x", "extra"]))

    def test_a_step_that_is_too_large_is_said_to_diverge(self):
        for mode in ("embedded", "local"):
            for method, alpha in (("dgd", 1e5), ("ipm", 1e3), ("downpour", 1e3), ("agd", 1e3)):
                with self.subTest(mode=mode, method=method):
                    done = self.job(2, 1, mode, method=method, alpha=alpha, rounds=50, beta=0.1)
                    self.refused(1, "diverged", done)
                    self.assertIn("lower alpha", done.stdout + done.stderr)
                    self.assertFalse(os.path.exists(os.path.join(self.output, "model.json")))

    def test_labels_that_are_noise_end_with_a_model_and_a_warning(self):
        random = numpy.random.default_rng(1)
        rows = numpy.column_stack([numpy.round(random.normal(size=(300, 4)), 3), random.integers(0, 2, 300)])
        path = os.path.join(self.folder, "noise.csv")
        numpy.savetxt(path, rows, fmt="%.17g", delimiter=",")
        for method in ("ipm", "downpour", "agd"):
            done = self.job(1, 1, "embedded", training_input=path, method=method, alpha=0.3, rounds=10, beta=0)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("warning: after 10 rounds the objective is", done.stderr)
            self.assertTrue(os.path.exists(os.path.join(self.output, "model.json")))

    def test_an_update_function_that_is_not_there_ends_the_job_with_status_5(self):
        self.refused(5, "no_such_function", self.job(2, 1, update_func="no_such_function"))
        self.refused(5, "libnothing.so", self.job(2, 1, update_file="libnothing.so"))


class Schema(LrCase):
    def test_the_program_publishes_its_keys(self):
        done = run([LR, "--schema"])
        self.assertEqual(done.returncode, 0)
        schema = json.loads(done.stdout)
        self.assertEqual(schema["format"], "paracel-schema-v1")
        names = {key["name"] for key in schema["keys"]}
        self.assertLessEqual({"training_input", "test_input", "predict_input", "output", "update_file", "update_func",
                              "model", "format", "method", "rounds", "alpha", "beta", "debug", "seed", "ssp_switch",
                              "limit_s", "batch_size", "tolerance", "bias", "penalize_bias", "gradient",
                              "consistency"}, names)
        with open(LR, "rb") as file:
            self.assertIn(b"paracel-schema-v1", file.read())

    def test_help_explains_every_key(self):
        done = run([LR, "--help"])
        self.assertEqual(done.returncode, 0)
        for name in ("training_input", "limit_s", "consistency"):
            self.assertIn(f"\n  {name} ", done.stdout)

    def test_the_config_that_is_shipped_has_only_known_keys(self):
        with open(os.path.join(SOURCE, "alg", "logistic_regression", "lr.json"), encoding="utf-8") as file:
            shipped = json.load(file)
        names = {key["name"] for key in json.loads(run([LR, "--schema"]).stdout)["keys"]}
        self.assertLessEqual(set(shipped), names)


if __name__ == "__main__":
    unittest.main()

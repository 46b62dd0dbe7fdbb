#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A saved model of logistic regression predicts what numpy computes from it, or is refused."""
import os
import sys
import unittest

import numpy

from lr_case import LR, PRUN, LrCase, run


class Models(LrCase):
    """The predictions of a saved model in either format equal those computed with NumPy."""

    def setUp(self):
        super().setUp()
        self.sparse = os.path.join(self.folder, "models.svm")
        table = numpy.loadtxt(self.small, delimiter=",")
        self.dense = table[:, :-1]
        self.positive = table[:, -1] == 1
        # Feature 6 is unknown to the models of small.csv.
        self.holed = self.dense.copy()
        with open(self.sparse, "w", encoding="ascii") as file:
            for number, (row, label) in enumerate(zip(self.holed, self.positive)):
                row[number % 5] = 0
                file.write(" ".join(["+1" if label else "-1"] + [f"{j + 1}:{row[j]:.17g}" for j in numpy.flatnonzero(row)])
                           + " 6:3\n")

    def use(self, model, workers, servers=1, mode="local", **keys):
        """The job's output and the lines of pred_v_*, with a saved model and no training keys in the config."""
        config = self.config(model=model, **keys)
        command = [LR, "--cfg_file", config] if mode == "embedded" else [
            sys.executable, "-B", PRUN, "-w", str(workers), "-p", str(servers), "-c", config, "-m", "local", "--output-dir",
            config + ".run", LR]
        done = run(command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = []
        for rank in range(workers):
            with open(os.path.join(self.output, f"pred_v_{rank}"), encoding="ascii") as file:
                lines += file.read().splitlines()
        self.assertFalse(os.path.exists(os.path.join(self.output, "model.json")))
        return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line), lines

    def saved(self, form, **keys):
        """Trains; returns the folder of the model, and its theta as read by NumPy."""
        manifest = self.train_model(2, 2, format=form, test_input=self.small, predict_input=self.small, **keys)
        entry = manifest["arrays"]["lr_theta"]
        self.assertEqual((manifest["format"], manifest["algorithm"], entry["dtype"]), (form, "lr", "<f8"))
        path = os.path.join(self.output, entry["files"][0])
        theta = numpy.load(path) if form == "npy" else numpy.loadtxt(path, delimiter="|")
        self.assertEqual(list(theta.shape), entry["shape"])
        return self.output, theta, manifest["test"]

    def test_both_forms_predict_what_numpy_computes(self):
        for bias in (True, False):
            thetas = []
            for form in ("text", "npy"):
                folder, theta, tested = self.saved(form, bias=bias)
                thetas.append(theta.tolist())
                self.assertEqual(len(theta), 6 if bias else 5)
                with open(os.path.join(folder, "pred_v_0"), encoding="ascii") as file:
                    first = file.read().splitlines()
                with open(os.path.join(folder, "pred_v_1"), encoding="ascii") as file:
                    first += file.read().splitlines()
                for path, x in ((self.small, self.dense), (self.sparse, self.holed)):
                    margin = x @ theta[-5:] + (theta[0] if bias else 0)
                    wanted = 1 / (1 + numpy.exp(-margin))
                    for place in ((1, 1, "embedded"), (1, 1), (3, 2)):
                        with self.subTest(form=form, bias=bias, input=path, place=place):
                            said, lines = self.use(folder, *place, test_input=path, predict_input=path)
                            dense = path == self.small
                            found = [float(line.rsplit(":", 1)[1] if dense else line.split()[0]) for line in lines]
                            numpy.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
                            self.assertAlmostEqual(float(said["accuracy"]), numpy.mean((margin >= 0) == self.positive), 9)
                            if dense:  # the training run reported the same
                                self.assertEqual(lines, first)
                                self.assertAlmostEqual(float(said["auc"]), tested["auc"], 9)
                                self.assertAlmostEqual(float(said["log_loss"]), tested["log_loss"], 9)
            self.assertEqual(thetas[0], thetas[1])

    def test_the_manifest_is_a_model_too(self):
        folder, _, _ = self.saved("npy")
        self.assertEqual(self.use(folder, 2, predict_input=self.small)[1],
                         self.use(os.path.join(folder, "model.json"), 1, mode="embedded", predict_input=self.small)[1])

    def refused(self, status, text, workers=2, **keys):
        config = self.config(**keys)
        for command in ([LR, "--cfg_file", config],
                        [sys.executable, "-B", PRUN, "-w", str(workers), "-p", "1", "-c", config, "-m", "local",
                         "--output-dir", config + ".run", LR]):
            done = run(command)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(text, done.stdout + done.stderr)

    def test_a_wrong_model_ends_the_job_with_status_4(self):
        folder, theta, _ = self.saved("npy")
        with open(os.path.join(folder, "model.json"), encoding="utf-8") as file:
            good = file.read()
        narrow = os.path.join(self.folder, "narrow.csv")
        with open(narrow, "w", encoding="ascii") as file:
            file.write("1,2\n")
        self.refused(4, narrow + ":1:", model=folder, predict_input=narrow)
        wrong = os.path.join(self.folder, "wrong")
        os.makedirs(wrong)
        path = os.path.join(wrong, "model.json")
        array = os.path.join(wrong, "lr_theta_0.npy")
        changes = [
            (good.replace('"algorithm": "lr"', '"algorithm": "ridge"'), theta, "found a model of ridge, want one of lr"),
            ('{"format": "paracel-lr-v1"}', theta, "found no model, want a manifest"),
            (good[:len(good) // 2], theta, "model.json"),
            (good, theta[:-1], "array lr_theta: found 5 elements in its files, want the shape"),
            (good, theta.astype("f4"), "found elements of type <f4, want <f8"),
            (good, None, "lr_theta_0.npy"),
            (good.replace("lr_theta_0.npy", "../lr_theta_0.npy"), theta, "want one in the folder of the manifest"),
            (good.replace('"shape": [6]', '"shape": [1]'), theta[:1], "found no weights"),
        ]
        for text, values, said in changes:
            with self.subTest(said):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                if values is None:
                    os.remove(array)
                else:
                    numpy.save(array, values)
                self.refused(4, said, model=wrong, predict_input=self.small)
        with open(path, "w", encoding="utf-8") as file:
            file.write(good.replace('"format": "npy"', '"format": "text"').replace("lr_theta_0.npy", "lr_theta_0"))
        with open(os.path.join(wrong, "lr_theta_0"), "w", encoding="ascii") as file:
            file.write("1|2|x|4|5|6\n")
        self.refused(4, 'lr_theta_0:1: found "x|4|5|6", want numbers separated by |', model=wrong,
                     predict_input=self.small)

    def test_a_model_and_training_exclude_each_other_and_one_is_needed(self):
        folder, _, _ = self.saved("text")
        self.refused(3, 'key "model": not with training_input', model=folder, training_input=self.small)
        keys = {"training_input": self.small, "method": "dgd", "rounds": 20, "alpha": 1.0, "beta": 0.01}
        for name in keys:
            self.refused(3, f'key "{name}" is missing', **{k: v for k, v in keys.items() if k != name})
        self.refused(3, 'key "model": no such file or folder', model="/no/such", predict_input=self.small)


if __name__ == "__main__":
    unittest.main()

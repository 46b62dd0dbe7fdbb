#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""initial_model of linear models: a run that continues a saved model ends at the minimum of its own rows, from there at once;
methods whose steps have one size go on where they were. For 1 and 2 workers. Options: names of tests."""
import json
import os
import shutil
import unittest

import numpy

from initial_model_case import InitialModelCase

ROWS, FEATURES = 600, 8


class Fit:
    """A program, its kind of labels and keys; to which fraction the objectives of two runs agree; and the steps of a run that
    begins at its minimum: 1 where the step that finds out counts."""

    def __init__(self, program, labels, near=1e-7, at_minimum=1, **keys):
        self.program, self.labels, self.near, self.at_minimum, self.keys = program, labels, near, at_minimum, keys


FITS = {
    "lr newton": Fit("lr", "two", method="newton", rounds=100, beta=1e-3),
    "lr lbfgs": Fit("lr", "two", method="lbfgs", rounds=500, beta=1e-3, penalize_bias=False),
    "lr owlqn": Fit("lr", "two", method="owlqn", rounds=2000, beta=1e-3, l1=1e-2, penalize_bias=False),
    "lr without bias": Fit("lr", "two", method="newton", rounds=100, beta=1e-3, bias=False),
    "lr_l1": Fit("lr_l1", "two", at_minimum=0, C=0.1, bias=True),
    "lr_l1 without bias": Fit("lr_l1", "two", at_minimum=0, C=0.1),
    "lr_l1 owlqn": Fit("lr_l1", "two", at_minimum=0, C=0.1, bias=True, method="owlqn", rounds=5000),
    "softmax newton": Fit("softmax", "three", C=0.5),
    "softmax lbfgs": Fit("softmax", "three", C=0.5, method="lbfgs", bias=False),
    "svm newton": Fit("linear_svm", "two", C=0.1),
    "svm lbfgs": Fit("linear_svm", "two", C=0.1, method="lbfgs", penalize_bias=False),
    "svm hinge": Fit("linear_svm", "two", 2e-4, 0, C=0.1, loss="hinge", penalize_bias=False),
    "svm hinge, accurate": Fit("linear_svm", "two", 2e-8, 0, C=0.1, loss="hinge", penalize_bias=False, tolerance=1e-8),
    "svm dual": Fit("linear_svm", "two", 2e-4, None, C=0.001, loss="hinge", method="dual"),
    "svr": Fit("linear_svr", "numbers", 2e-4, 0, C=0.1),
    "svr squared": Fit("linear_svr", "numbers", C=0.1, loss="squared_epsilon_insensitive"),
    "svr dual": Fit("linear_svr", "numbers", 2e-4, None, C=0.001, method="dual"),
    "lasso": Fit("lasso", "numbers", 1e-9, 0, penalty=0.1, standardize=True),
    "elastic net": Fit("lasso", "numbers", 1e-9, 0, penalty=0.1, l1_ratio=0.5),
    "ridge": Fit("ridge", "numbers", 1e-10, penalty=1.0, standardize=True),
}
STEPS = {"dgd": {"alpha": 0.5}, "ipm": {"alpha": 0.02}, "downpour": {"alpha": 0.02, "batch_size": 50}, "agd": {"alpha": 0.02}}


class InitialLinearTest(InitialModelCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = numpy.random.RandomState(3)
        cls.x = dice.normal(size=(ROWS, FEATURES)) * [1, 10, 1, 0.1, 1, 1, 1, 1] + [100, 0, 3, 0, 0, 0, 0, 0]
        weights = dice.normal(size=FEATURES) * (numpy.arange(FEATURES) % 3 > 0)
        cls.y = (cls.x - cls.x.mean(0)) / cls.x.std(0) @ weights + dice.normal(size=ROWS)

    def labels(self, kind):
        return {"two": (self.y > 0).astype(int), "numbers": self.y.round(4),
                "three": numpy.array(["high", "low", "middle"])[numpy.digitize(self.y, [-1, 1])]}[kind]

    def table(self, name, kind, rows=range(ROWS), columns=range(FEATURES), header=True):
        y = self.labels(kind)
        lines = [",".join([*(f"f{c}" for c in columns), "y"])] if header else []
        lines += [",".join([*(repr(float(self.x[i, c])) for c in columns), str(y[i])]) for i in rows]
        return self.path(name, "\n".join(lines) + "\n")

    def sparse(self, name, kind, rows=range(ROWS), columns=range(FEATURES)):
        """libsvm: some entries of some columns."""
        y = numpy.digitize(self.y, [-1, 1]) if kind == "three" else self.labels(kind)
        return self.path(name, "".join(
            f"{y[i]} " + " ".join(f"{c + 1}:{self.x[i, c]!r}" for c in columns if (i + c) % 3) + "\n" for i in rows))

    def each(self, test, names=tuple(FITS), workers=(0, 2)):
        for name in names:
            for w in workers:
                with self.subTest(name=name, workers=w):
                    test(FITS[name], w)

    def run_fit(self, fit, workers, **keys):
        """(results, steps, folder)."""
        found, _ = self.run_program(fit.program, workers, **{**fit.keys, **keys})
        return found, self.manifest()["rounds"], self.output

    def assert_near(self, found, wanted, part):
        self.assertAlmostEqual(found["objective"] / wanted["objective"], 1, delta=part)

    # ---- minima

    def test_all_starts_end_at_the_same_minimum(self):
        def check(fit, workers):
            whole = self.table("whole.csv", fit.labels)
            half = self.table("half.csv", fit.labels, range(0, ROWS, 2))
            wanted, steps, folder = self.run_fit(fit, workers, training_input=whole, test_input=whole)
            form = {0: "npy", 2: "text"}[workers]
            _, _, of_half = self.run_fit(fit, 2 - workers, training_input=half, format=form)
            found, more_steps, _ = self.run_fit(fit, workers, training_input=whole, test_input=whole, initial_model=of_half)
            self.assert_near(found, wanted, fit.near)
            if fit.at_minimum is not None and "hinge" not in fit.keys.values() and fit.program != "linear_svr":
                self.assertLessEqual(more_steps, steps)
            found, more_steps, _ = self.run_fit(fit, workers, training_input=whole, test_input=whole, initial_model=folder)
            self.assert_near(found, wanted, fit.near if fit.at_minimum is None else 1e-12)
            if fit.at_minimum is None:
                self.assertLess(more_steps, steps)
            else:
                self.assertEqual(more_steps, fit.at_minimum)
            for quality in ("accuracy", "auc", "log_loss", "rmse"):
                self.assertAlmostEqual(found.get(quality, 0), wanted.get(quality, 0), delta=1e-2)

        self.each(check)

    def test_one_against_the_rest_from_the_minimum(self):
        whole = self.table("whole.csv", "three")
        for loss, steps in (("squared_hinge", 3), ("hinge", 0)):
            wanted, _ = self.run_program("linear_svm", 0, training_input=whole, C=0.1, loss=loss)
            weights = self.numbers(self.arrays()["linear_svm_weight"])
            found, arrays = self.run_program("linear_svm", 2, training_input=whole, C=0.1, loss=loss, initial_model=self.output)
            self.assertEqual(found["rounds"], steps)
            numpy.testing.assert_allclose(self.numbers(arrays["linear_svm_weight"]), weights, rtol=1e-11)
            self.assert_near(found, wanted, 1e-12)

    def test_a_reference_that_is_the_minimum(self):
        """Labels that say nothing about the features: no weights are best, so the gradient of the reference is 0."""
        rows = self.path("level.csv", "".join(f"{x},{y}\n" for x in (-2, -1, 1, 2) for y in (0, 1)))
        first = self.path("slope.csv", "".join(f"{x},{int(x > 0)}\n" for x in (-2, -1, 1, 2)))
        for program, keys in (("lr", {"method": "newton", "rounds": 100, "beta": 0.1}), ("softmax", {}), ("linear_svm", {})):
            with self.subTest(program=program):
                self.run_program(program, training_input=first, **keys)
                model = self.output
                wanted, _ = self.run_program(program, training_input=rows, **keys)
                found, _ = self.run_program(program, training_input=rows, initial_model=model, **keys)
                self.assert_near(found, wanted, 1e-9)

    def test_columns_are_matched_by_name(self):
        def check(fit, _workers):
            self.run_fit(fit, 0, training_input=self.table("whole.csv", fit.labels))
            model = self.output
            turned = self.table("turned.csv", fit.labels, columns=(3, 0, 1, 2, 7, 6, 5, 4))
            _, steps, _ = self.run_fit(fit, 0, training_input=turned, initial_model=model)
            self.assertEqual(steps, fit.at_minimum)
            self.assertEqual(self.manifest()["names"], [f"f{c}" for c in range(FEATURES)])

        self.each(check, ("lr newton", "lr_l1", "softmax newton", "svm newton", "svr", "lasso", "ridge"), (0,))

    def test_new_and_absent_features(self):
        def check(fit, workers):
            narrow = self.sparse("narrow.svm", fit.labels, columns=(0, 1, 2, 3, 4, 5))
            wide = self.sparse("wide.svm", fit.labels, columns=(0, 1, 3, 4, 5, 6, 7))
            wanted, _, _ = self.run_fit(fit, workers, training_input=wide)
            _, _, model = self.run_fit(fit, workers, training_input=narrow)
            found, _, wider = self.run_fit(fit, workers, training_input=wide, initial_model=model)
            self.assert_near(found, wanted, fit.near)
            wanted, _, _ = self.run_fit(fit, workers, training_input=narrow)
            found, _, _ = self.run_fit(fit, workers, training_input=narrow, initial_model=wider)
            self.assert_near(found, wanted, fit.near)
            array = max(self.manifest()["arrays"].values(), key=lambda a: numpy.prod(a["shape"]))
            self.assertGreaterEqual(max(array["shape"]), FEATURES)

        self.each(check, tuple(n for n in FITS if n != "svm hinge, accurate"))

    def test_ridge_by_conjugate_gradients(self):
        dice = numpy.random.RandomState(1)
        text = []
        for _ in range(400):
            at = numpy.sort(dice.choice(2100, 30, replace=False))
            text.append(f"{at[0] / 100 + dice.normal():.4f} " + " ".join(f"{c + 1}:{dice.normal():.4f}" for c in at))
        text.append("0 2100:1")
        whole, most = (self.path(name, "\n".join(lines) + "\n") for name, lines in (("whole.svm", text), ("most.svm", text[20:])))
        for workers in (0, 2):
            keys = {"penalty": 5.0, "tolerance": 1e-11}
            wanted, _ = self.run_program("ridge", workers, training_input=whole, **keys)
            steps, folder = self.manifest()["rounds"], self.output
            self.run_program("ridge", workers, training_input=most, **keys)
            found, _ = self.run_program("ridge", workers, training_input=whole, initial_model=self.output, **keys)
            self.assert_near(found, wanted, 1e-12)
            self.assertLess(self.manifest()["rounds"], steps)
            found, _ = self.run_program("ridge", workers, training_input=whole, initial_model=folder, **keys)
            self.assert_near(found, wanted, 1e-12)
            self.assertLessEqual(self.manifest()["rounds"], 1)

    def test_more_features_than_the_working_set_of_lasso(self):
        dice = numpy.random.RandomState(2)
        x = dice.normal(size=(900, 700))
        y = x[:, :400] @ dice.normal(size=400) + dice.normal(size=900)
        rows = [",".join(map(repr, map(float, [*a, b]))) for a, b in zip(x, y)]
        whole, half = (self.path(n, "\n".join(r) + "\n") for n, r in (("whole.csv", rows), ("half.csv", rows[100:])))
        wanted, _ = self.run_program("lasso", training_input=whole, penalty=0.05)
        steps, folder = self.manifest()["rounds"], self.output
        self.run_program("lasso", training_input=half, penalty=0.05)
        found, _ = self.run_program("lasso", training_input=whole, penalty=0.05, initial_model=self.output)
        self.assert_near(found, wanted, 1e-10)
        self.assertLess(self.manifest()["rounds"], steps)
        self.run_program("lasso", training_input=whole, penalty=0.05, initial_model=folder)
        self.assertEqual(self.manifest()["rounds"], 0)

    def test_a_path_of_lasso(self):
        whole = self.table("whole.csv", "numbers")
        keys = {"training_input": whole, "path": 5, "standardize": True}
        wanted, _ = self.run_program("lasso", **keys)
        found, _ = self.run_program("lasso", initial_model=self.output, **keys)
        self.assertAlmostEqual(found["penalty"], wanted["penalty"], delta=1e-12)
        self.assert_near(found, wanted, 1e-9)

    # ---- classes

    def test_new_classes_of_softmax_begin_at_0(self):
        is_high = self.labels("three") == "high"
        keys = {"C": 0.5, "tolerance": 1e-9}
        two = self.table("two.csv", "three", numpy.flatnonzero(~is_high))
        self.run_program("softmax", training_input=two, **keys)
        model = self.output
        whole = self.table("whole.csv", "three")
        wanted, _ = self.run_program("softmax", training_input=whole, **keys)
        for workers in (0, 2):
            found, _ = self.run_program("softmax", workers, training_input=whole, initial_model=model, **keys)
            self.assert_near(found, wanted, 1e-10)
            self.assertEqual(self.manifest()["classes"], ["high", "low", "middle"])
        self.refused("softmax", "two.csv: found no row of the class high of ", initial_model=self.output, training_input=two)

    def test_classes_of_others_are_those_of_the_model(self):
        is_high = self.labels("three") == "high"
        whole, two = self.table("whole.csv", "three"), self.table("two.csv", "three", numpy.flatnonzero(~is_high))
        self.run_program("linear_svm", training_input=whole)
        self.run_program("linear_svm", training_input=two, test_input=whole, initial_model=self.output)
        self.assertEqual((self.manifest()["classes"], self.manifest()["class_rows"][0]), (["high", "low", "middle"], 0))
        for program, keys in (("lr", FITS["lr newton"].keys), ("lr_l1", {"C": 1}), ("linear_svm", {})):
            self.run_program(program, training_input=two, **keys)
            self.refused(program, 'found label "high", want a class of the model: low, middle', training_input=whole,
                         initial_model=self.output, **keys)

    # ---- held-out rows

    def test_a_start_that_no_step_improves_is_kept(self):
        """Rows with wrong labels: each step makes the held-out loss worse."""
        whole = self.table("whole.csv", "three")
        other = {"high": "low", "low": "middle", "middle": "high", "y": "y"}
        with open(whole, encoding="utf-8") as file:
            fields = [line.strip().rpartition(",") for line in file]
        wrong = self.path("wrong.csv", "".join(f"{features},{other[label]}\n" for features, _, label in fields))
        for program, keys in (("softmax", {}), ("linear_svm", {"loss": "squared_hinge"}),
                              ("linear_svm", {"loss": "hinge", "method": "newton"})):
            with self.subTest(program=program, **keys):
                self.run_program(program, training_input=whole, C=0.1, **keys)
                model, wanted = self.output, self.arrays()
                self.run_program(program, training_input=wrong, initial_model=model, C=0.1, validation_input=whole, patience=3,
                                 **keys)
                for name, found in self.arrays().items():
                    numpy.testing.assert_allclose(self.numbers(found), self.numbers(wanted[name]), rtol=1e-9, atol=1e-9)

    # ---- steps of one size

    def test_lr_goes_on_where_it_was(self):
        whole = self.table("scaled.csv", "two", columns=(2, 4, 5, 6, 7))
        for method, more in STEPS.items():
            for workers in (0, 2) if method in ("dgd", "ipm") else (0,):
                with self.subTest(method=method, workers=workers):
                    keys = {"training_input": whole, "method": method, "beta": 1e-3, "decay": 0.3, "seed": 4, **more}
                    found, arrays = self.run_program("lr", workers, rounds=7, **keys)
                    self.run_program("lr", workers, rounds=4, **keys)
                    again, both = self.run_program("lr", workers, rounds=3, initial_model=self.output, **keys)
                    self.assertEqual((both, again["objective"], self.manifest()["rounds"]), (arrays, found["objective"], 7))
        # Of another method the rounds do not count.
        self.run_program("lr", training_input=whole, rounds=3, initial_model=self.output, beta=1e-3, method="dgd", alpha=0.5)
        self.assertEqual(self.manifest()["rounds"], 3)
        model = self.output
        self.path(os.path.join(model, "model.json"), json.dumps({**self.manifest(), "rounds": -1}))
        self.refused("lr", 'key "rounds": found -1, want 0 to 1000000000', training_input=whole, rounds=3, initial_model=model,
                     beta=1e-3, method="dgd", alpha=0.5)

    def test_ridge_by_sgd_goes_on_where_it_was(self):
        for name, train in (("dense", self.table("whole.csv", "numbers")), ("sparse", self.sparse("whole.svm", "numbers"))):
            for workers in (0, 2):
                with self.subTest(name=name, workers=workers):
                    keys = {"training_input": train, "method": "sgd", "beta": 1e-3, "decay": 0.3, "alpha": 0.01,
                            "standardize": True}
                    found, arrays = self.run_program("ridge", workers, rounds=7, **keys)
                    self.run_program("ridge", workers, rounds=4, **keys)
                    again, both = self.run_program("ridge", workers, rounds=3, initial_model=self.output, **keys)
                    self.assertEqual(self.manifest()["rounds"], 7)
                    self.assert_near(again, found, 1e-12)
                    one, other = (self.numbers(a["ridge_theta"]) for a in (both, arrays))
                    numpy.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)

    def test_lr_of_steps_ends_at_the_minimum(self):
        whole = self.table("scaled.csv", "two", columns=(2, 4, 5, 6, 7))
        keys = {"training_input": whole, "beta": 1e-3, "rounds": 5000, "tolerance": 1e-12}
        found, _ = self.run_program("lr", method="newton", **keys)
        again, _ = self.run_program("lr", method="dgd", alpha=0.1, initial_model=self.output, **keys)
        self.assertLess(self.manifest()["rounds"], 5)
        self.assert_near(again, found, 1e-10)

    # ---- what is refused

    def test_refusals(self):
        first = {}
        def check(fit, _workers):
            train = self.table(f"{fit.labels}.csv", fit.labels)
            self.run_fit(fit, 0, training_input=train)
            first[fit.program] = self.output, {"training_input": train, **fit.keys}

        self.each(check, ("lr newton", "lr_l1", "softmax newton", "svm newton", "svr", "lasso", "ridge"), (0,))
        programs = list(first)
        for at, (program, (model, keys)) in enumerate(first.items()):
            with self.subTest(program=program):
                other = programs[at - 1]
                self.refused(program, f"{first[other][0]}/model.json: found a model of {other}, want one of {program}",
                             initial_model=first[other][0], **keys)
                self.refused(program, "no such file or folder", 3, initial_model=model + "/none", **keys)
                self.refused(program, "model.json: cannot be read: No such file", initial_model=self.folder, **keys)
                self.refused(program, "not with model, which is used as it is", 3, initial_model=model, model=model)
                self.refused(program, 'key "initial_model": found 2 names, want one', 3, initial_model=[model, model], **keys)
                kind = next(f.labels for f in FITS.values() if f.program == program)
                self.refused(program, 'found no field "f7" in the header', initial_model=model,
                             **{**keys, "training_input": self.table("few.csv", kind, columns=range(7))})
                self.refused(program, "found 7 features, want 8, those of the initial model", initial_model=model,
                             **{**keys, "training_input": self.table("bare.csv", kind, columns=range(7), header=False)})
                self.refused(program, "found other features than those of the model", 3, initial_model=model,
                             features=["f1", "f2"], **keys)
                if program not in ("lasso", "ridge"):
                    has = keys.get("bias", True)
                    found, want = ("false", "true") if has else ("true", "false")
                    self.refused(program, f'key "bias": found {found}, want {want} as in the initial model', 3,
                                 initial_model=model, **{**keys, "bias": not has})
                self.refuse_changed(program, model, keys)

    def refuse_changed(self, program, model, keys):
        """A model that is cut off, or has numbers that are none."""
        name, array = next(iter(self.manifest(model)["arrays"].items()))
        file = array["files"][0]
        for say, change in (("found no end of the last line, want the whole file", lambda t: t[:-5]),
                            (f"array {name}: found ", lambda t: t[:len(t) // 2].rsplit("|", 1)[0] + "\n"),
                            (", want finite numbers", lambda t: "nan|" + t.split("|", 1)[1]),
                            ("want numbers separated by |", lambda t: t.replace("|", " ", 1))):
            with self.subTest(say=say):
                copy = self.path("changed")
                shutil.copytree(model, copy, dirs_exist_ok=True)
                with open(os.path.join(copy, file), "r+", encoding="utf-8") as out:
                    lines = out.read()
                    if array.get("keyed") and say.startswith(", want"):
                        lines = lines.replace("\t", "\tnan|", 1).replace("|" + lines.split("\t")[1].split("|")[0], "", 1)
                    else:
                        lines = change(lines)
                    out.seek(0)
                    out.truncate()
                    out.write(lines)
                self.refused(program, say, initial_model=copy, **keys)
        manifest = self.manifest(model)
        manifest["names"] = manifest["names"][:-1]
        copy = self.path("renamed")
        shutil.copytree(model, copy, dirs_exist_ok=True)
        self.path("renamed/model.json", json.dumps(manifest))
        self.refused(program, "found names and fields that do not match the features", initial_model=copy, **keys)


if __name__ == "__main__":
    unittest.main()

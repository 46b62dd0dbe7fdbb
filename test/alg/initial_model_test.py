#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""initial_model: a run that continues a saved model. Two halves beside one whole run, for 1 and 2 workers; new features, users and
words; what is refused. Options: names of tests."""
import os
import random
import unittest

import numpy

from alg_job import AlgorithmCase

ROWS = 300
NAMES = ["age", "income", "ratio", "colour"]


class Trees:
    """Keys of a program, and what says how many trees are added."""

    def __init__(self, program, count, labels="numbers", **keys):
        self.program, self.count, self.labels, self.keys = program, count, labels, keys


TREES = {
    "squared": Trees("gbdt", "rounds", loss="squared", min_child_rows=5),
    "squared, samples": Trees("gbdt", "rounds", loss="squared", subsample=0.6, colsample=0.6, seed=3, min_child_rows=5),
    "log": Trees("gbdt", "rounds", "two", loss="log", growth="depth", max_depth=3),
    "softmax": Trees("gbdt", "rounds", "words", loss="softmax", categorical=["colour"], subsample=0.8),
    "lambdamart": Trees("gbdt", "rounds", "relevance", loss="lambdamart", group="group"),
    "classification": Trees("random_forest", "trees", "words", type="classification", categorical=["colour"]),
    "regression": Trees("random_forest", "trees", type="regression", seed=5),
}


class InitialModelTest(AlgorithmCase):
    program = "initial_model"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(5)
        cls.x = [[dice.randrange(20, 70), round(1e7 + dice.gauss(0, 3), 2), round(dice.random(), 4), dice.choice(["red", "blue"])]
                 for _ in range(ROWS)]
        cls.y = [round(x[0] / 10 + (x[1] - 1e7) * x[2] + (x[3] == "red") + dice.gauss(0, 0.1), 4) for x in cls.x]

    def table(self, name, labels="numbers", rows=range(ROWS), columns=range(len(NAMES)), numbers=False):
        """A CSV file with a header. numbers: the colours are numbers. relevance: with groups."""
        label_of = {"numbers": lambda y: y, "two": lambda y: int(y > 5), "relevance": lambda y: max(0, min(4, int(y / 2))),
                    "words": lambda y: "low" if y < 4 else "middle" if y < 6 else "high"}[labels]
        number = {"red": 1, "blue": 0}
        lines = [",".join([*(NAMES[c] for c in columns), "group" if labels == "relevance" else "row", "label"])]
        for i in rows:
            x = [number.get(v, v) if numbers or labels in ("numbers", "two", "relevance") else v for v in self.x[i]]
            lines.append(",".join(map(str, [*(x[c] for c in columns), i // 10, label_of(self.y[i])])))
        return self.path(name, "\n".join(lines) + "\n")

    def arrays(self, folder=None):
        """The bytes of every array of a model, and its ids."""
        folder = folder or self.output
        found = {}
        for name, array in self.manifest(folder)["arrays"].items():
            for file in [*array["files"], *array.get("ids", [])]:
                with open(os.path.join(folder, file), "rb") as part:
                    found[name] = found.get(name, b"") + part.read()
        return found

    def run_program(self, program, workers=0, **keys):
        """(results, arrays) of a run; without workers in one process."""
        return self.results(self.job(workers, program=program, **keys)), self.arrays()

    def refused(self, program, message, status=4, **keys):
        self.assertIn(message, self.job(0, program=program, status=status, **keys))

    def npy(self, name, rows):
        path = self.path(name)
        numpy.save(path, numpy.array(rows))
        return path

    # ---- trees

    def test_trees_are_added(self):
        for name, case in TREES.items():
            with self.subTest(case=name):
                train = self.table("trees.csv", case.labels)
                keys = {"training_input": train, "test_input": train, "features": NAMES, **case.keys}
                found, whole = self.run_program(case.program, **keys, **{case.count: 12})
                for workers, form in ((0, "text"), (2, "npy")):
                    first, half = self.run_program(case.program, workers, **keys, format=form, **{case.count: 7})
                    model = self.output
                    self.assertNotEqual(half, whole)
                    again, both = self.run_program(case.program, 2 - workers, **keys, initial_model=model, **{case.count: 5})
                    self.assertEqual(both, whole)
                    for result in set(found) - {"output", "oob_rows", "oob_accuracy", "oob_rmse"}:
                        self.assertEqual(again[result], found[result], result)
                    self.assertEqual(first["trees"] * 12, found["trees"] * 7)
                    fields = "first_margin", "centre", "names", "fields", "classes", "words", "categorical"
                    self.assertEqual([self.manifest().get(field) for field in fields],
                                     [self.manifest(model).get(field) for field in fields])

    def test_trees_of_other_rows_match_columns_by_name(self):
        for name in ("squared", "softmax", "classification"):
            case = TREES[name]
            with self.subTest(case=name):
                keys = {key: value for key, value in case.keys.items() if key != "categorical"}
                first = self.table("first.csv", case.labels, range(0, ROWS, 2))
                ordered, turned = (self.table(f"{n}.csv", case.labels, range(1, ROWS, 2), c)
                                   for n, c in (("ordered", (0, 1, 2, 3)), ("turned", (3, 1, 0, 2))))
                self.run_program(case.program, training_input=first, features=NAMES, **{case.count: 3}, **case.keys)
                model = self.output
                found = [self.run_program(case.program, training_input=file, initial_model=model, test_input=first,
                                          **{case.count: 4}, **keys) for file in (ordered, turned)]
                self.assertEqual(found[0][1], found[1][1])
                self.assertEqual(len(found[0][1]["tree_begin"].split(b"|")), found[0][0]["trees"] + 1)
                loss = "loss" if case.program == "gbdt" else "type"
                keys.pop(loss)
                self.assertEqual(self.run_program(case.program, training_input=ordered, initial_model=model, test_input=first,
                                                  **{case.count: 4}, **keys)[1], found[0][1])
                self.assertEqual(self.manifest()["settings"][loss], case.keys[loss])

    def test_gbdt_keeps_the_initial_trees_if_no_round_improves_them(self):
        keys = {"features": NAMES, "loss": "squared", "min_child_rows": 5}
        validation = self.table("validation.csv", rows=range(0, ROWS, 3))
        train = self.table("early.csv", rows=[i for i in range(ROWS) if i % 3])
        found, whole = self.run_program("gbdt", training_input=train, rounds=60, validation_input=validation, early_stopping=60,
                                        **keys)
        best = self.output
        self.assertLess(found["trees"], 60)
        noise = self.path("noise.csv", ",".join([*NAMES, "row", "label"]) + "\n" + "".join(
            f"{x[0]},{x[1]},{x[2]},1,0,{-50 * y}\n" for x, y in zip(self.x, self.y)))
        again, both = self.run_program("gbdt", training_input=noise, rounds=4, validation_input=validation, early_stopping=2,
                                       initial_model=best, **keys)
        self.assertEqual((both, again["trees"], again["validate_rmse"]), (whole, found["trees"], found["validate_rmse"]))

    def test_trees_of_libsvm_rows_with_new_features(self):
        for program, keys in (("gbdt", {"loss": "log", "min_child_rows": 5, "rounds": 3}), ("random_forest", {"trees": 3})):
            with self.subTest(program=program):
                narrow = self.path("narrow.svm", "".join(f"{i % 2} 1:{i % 7} 2:{i % 5 + i % 2}\n" for i in range(ROWS)))
                wide = self.path("wide.svm", "".join(f"{i % 2} 1:{i % 7} 4:{3 * (i % 2)}\n" for i in range(ROWS)))
                named = {"type": "classification"} if program == "random_forest" else {}
                self.run_program(program, training_input=narrow, **named, **keys)
                model = self.output
                found, _ = self.run_program(program, 2, training_input=wide, test_input=wide, initial_model=model, **keys)
                self.assertEqual((self.manifest()["features"], found["trees"]), (4, 6))
                wider = self.output
                self.run_program(program, training_input=narrow, test_input=wide, initial_model=wider, **keys)
                self.assertEqual(self.manifest()["features"], 4)

    def test_trees_refuse(self):
        train = self.table("trees.csv", "words")
        keys = {"training_input": train, "features": NAMES, "categorical": ["colour"]}
        models = {}
        for program, more in (("gbdt", {"loss": "softmax", "rounds": 2}), ("random_forest", {"type": "classification", "trees": 2})):
            self.run_program(program, **keys, **more)
            models[program] = self.output
        other = {"gbdt": "random_forest", "random_forest": "gbdt"}
        for program, model in models.items():
            with self.subTest(program=program):
                self.refused(program, f"found a model of {other[program]}, want one of {program}", training_input=train,
                             initial_model=models[other[program]])
                self.refused(program, "no field \"income\" in the header",
                             training_input=self.table("few.csv", "words", columns=(0, 2, 3)), initial_model=model)
                self.refused(program, "found label \"1\", want a class of the model: high, low, middle", initial_model=model,
                             training_input=self.table("two.csv", "two"))
                self.refused(program, "not with model, which is used as it is", 3, initial_model=model, model=model,
                             test_input=train)
                self.refused(program, "found other features than those of the model", 3, initial_model=model,
                             training_input=train, features=NAMES[:3])
        self.refused("gbdt", "found squared, want softmax as in the initial model", 3, training_input=train,
                     initial_model=models["gbdt"], loss="squared")
        self.refused("random_forest", "found regression, want classification as in the initial model", 3, training_input=train,
                     initial_model=models["random_forest"], type="regression")
        self.refused("gbdt", "no such file or folder", 3, training_input=train, initial_model=self.folder + "/none", loss="squared")

    # ---- clusters

    def points(self, name, columns=3):
        dice = random.Random(8)
        lines = [",".join(NAMES[:columns])]
        lines += [",".join(str(round(dice.gauss(1, 1), 3)) for _ in range(columns)) for _ in range(ROWS)]
        return self.path(name, "\n".join(lines) + "\n")

    def test_kmeans_goes_on(self):
        points = self.points("points.csv")
        weights = self.path("weights.txt", "".join(f"{1 + i % 3}\n" for i in range(ROWS)))
        for name, more in (("lloyd", {}), ("cosine", {"metric": "cosine"}), ("weights", {"row_weights": weights}),
                           ("batches", {"batch_size": 40, "rounds": 8}),
                           ("batches, weights", {"batch_size": 40, "rounds": 8, "row_weights": weights})):
            for workers in (0, 2):
                with self.subTest(case=name, workers=workers):
                    keys = {"input": points, "kclusters": 7, **more}
                    found, whole = self.run_program("kmeans", workers, **keys)
                    converged = self.output
                    self.run_program("kmeans", workers, **{**keys, "rounds": 3})
                    keys.pop("kclusters")
                    rest = {"rounds": 5} if "rounds" in more else {}
                    again, both = self.run_program("kmeans", workers, initial_model=self.output, n_init=4, **{**keys, **rest})
                    self.assertEqual(both, whole)
                    self.assertEqual((again["inertia"], again["converged"]), (found["inertia"], found["converged"]))
                    if rest:
                        continue
                    self.assertGreater(found["rounds"], 4)
                    self.assertEqual(again["rounds"], found["rounds"] - 3)
                    for other in (0, 2):
                        again, both = self.run_program("kmeans", other, initial_model=converged, **keys)
                        self.assertEqual((again["rounds"], both["centers"], both["counts"]),
                                         (1, whole["centers"], whole["counts"]))
                        self.assertAlmostEqual(again["inertia"] / found["inertia"], 1, delta=1e-12)

    def test_kmeans_with_new_features_and_few_points(self):
        narrow = self.path("narrow.svm", "".join(f"0 1:{x[0]} 2:{10 * x[2]}\n" for x in self.x))
        wide = self.path("wide.svm", "0 1:45 4:3\n0 1:30 2:1\n")
        self.run_program("kmeans", input=narrow, kclusters=5)
        model = self.output
        centers = self.lines("centers", 1)
        self.run_program("kmeans", input=wide, initial_model=model, batch_size=2, rounds=1, seed=1)
        moved = [line.split("\t")[1].split("|") for line in self.lines("centers", 1)]
        self.assertEqual([len(row) for row in moved], [4] * 5)
        self.assertEqual(sum("\t" + "|".join(row[:2]) in line for row in moved for line in centers), 4)

    def test_kmeans_refuses(self):
        points = self.points("points.csv")
        self.run_program("kmeans", input=points, kclusters=3, rounds=2)
        model = self.output
        self.refused("kmeans", "found 4, want 3 as in the initial model", 3, input=points, initial_model=model, kclusters=4)
        self.refused("kmeans", "found cosine, want euclidean as in the initial model", 3, input=points, initial_model=model,
                     metric="cosine")
        self.refused("kmeans", "found no field \"ratio\" in the header", input=self.points("other.csv", columns=2),
                     initial_model=model)
        self.refused("kmeans", "found 2 features, want 3, those of the initial model", input=self.npy("two.npy", [[0.0, 1.0]] * 5), initial_model=model)
        self.refused("kmeans", "not with model, which is used as it is", 3, input=points, initial_model=model, model=model)

    # ---- sums

    def bayes(self, name, distribution, rows, sparse=False, more=""):
        """Rows of four features, the last of which only odd rows have."""
        dice = random.Random(9)
        lines = []
        for i in range(ROWS):
            x = [dice.randrange(5), round(dice.gauss(1e6, 2), 2) if distribution == "gaussian" else dice.randrange(3),
                 dice.randrange(2), dice.randrange(4) * (i % 2)]
            label = dice.choice("abc")
            if i in rows and sparse:
                lines.append(" ".join([label, *(f"{j}:{v}" for j, v in enumerate(x, 1) if v)]))
            elif i in rows:
                lines.append(",".join(map(str, [*x, 1 + i % 3, label])))
        head = [] if sparse else [",".join([*NAMES, "weight", "label"])]
        return self.path(name, "\n".join([*head, *lines]) + "\n")

    def test_naive_bayes_adds_rows(self):
        halves = range(0, ROWS, 2), range(1, ROWS, 2)
        for distribution in ("multinomial", "bernoulli", "gaussian"):
            for sparse in (False, True):
                form = "svm" if sparse else "csv"
                whole, first, second = (self.bayes(f"{n}.{form}", distribution, rows, sparse)
                                        for n, rows in (("whole", range(ROWS)), ("first", halves[0]), ("second", halves[1])))
                keys = {} if sparse else {"weight": "weight"}
                with self.subTest(distribution=distribution, sparse=sparse):
                    chosen = {"distribution": distribution}
                    found, all_rows = self.run_program("naive_bayes", training_input=whole, test_input=whole, **keys, **chosen)
                    fields = self.manifest()
                    for workers in (0, 2):
                        self.run_program("naive_bayes", workers, training_input=first, format="npy", **keys, **chosen)
                        again, both = self.run_program("naive_bayes", 2 - workers, training_input=second, test_input=whole,
                                                       initial_model=self.output, **keys)
                        for field in ("rows", "class_rows", "classes", "names"):
                            self.assertEqual(self.manifest()[field], fields[field])
                        self.assertEqual(again["accuracy"], found["accuracy"])
                        self.assertEqual(set(both), set(all_rows))
                        if distribution != "gaussian":
                            self.assertEqual(both, all_rows)
                            continue
                        for name in both:
                            one, other = self.numbers(both[name]), self.numbers(all_rows[name])
                            numpy.testing.assert_allclose(one, other, rtol=1e-10, err_msg=name)

    def numbers(self, text):
        """Of the lines of an array, without their names."""
        return numpy.array([float(v) for line in text.decode().splitlines() for v in line.split("\t")[-1].split("|")])

    def test_naive_bayes_refuses(self):
        rows = self.bayes("rows.csv", "multinomial", range(ROWS))
        self.run_program("naive_bayes", training_input=rows, distribution="bernoulli", weight="weight", binarize=1)
        model = self.output
        keys = {"training_input": rows, "initial_model": model, "weight": "weight"}
        self.refused("naive_bayes", "found multinomial, want bernoulli as in the initial model", 3, distribution="multinomial",
                     **keys)
        self.refused("naive_bayes", "found 2, want 1 as in the initial model", 3, binarize=2, **keys)
        self.refused("naive_bayes", "found no field \"weight\" in the header",
                     **{**keys, "training_input": self.table("t.csv")})
        self.refused("naive_bayes", "want a class of the model: a, b, c",
                     **{**keys, "training_input": self.path("d.csv", ",".join([*NAMES, "weight", "label"]) + "\n1,1,1,1,1,d\n")})
        os.rename(os.path.join(model, "model.json"), os.path.join(model, "new.json"))
        with open(os.path.join(model, "new.json"), encoding="utf-8") as file:
            self.path(os.path.join(model, "model.json"), file.read().replace("naive_bayes_count", "naive_bayes_old"))
        self.refused("naive_bayes", "found no sums over rows, which models of earlier versions lack", **keys)

    # ---- factors

    def ratings(self, name, users=range(40), items=range(30), names=False):
        """About a third of the cells of these users and items."""
        dice = random.Random(6)
        cells = [(u, i, dice.random(), dice.choice([1, 2, 3, 4, 4.5, 5])) for u in range(40) for i in range(30)]
        prefix = "user " if names else ""
        return self.path(name, "".join(f"{prefix}{u},{i},{r}\n" for u, i, draw, r in cells
                                       if draw < 0.3 and u in users and i in items))

    def rows(self, name, workers, folder=None):
        """{id: line} of an array."""
        self.output = folder or self.output
        return dict(line.split("\t") for line in self.lines(name, workers))

    def test_factors_go_on(self):
        ratings = self.ratings("ratings.csv")
        for name, program, input_key, more in (
                ("sgd", "mf", "input", {"alpha": 0.01}), ("sgd float64", "mf", "input", {"alpha": 0.01, "factors": "float64"}),
                ("als", "als", "rating_input", {}), ("als implicit", "als", "rating_input", {"implicit": True, "cg_steps": 2})):
            for workers in (0, 2):
                with self.subTest(case=name, workers=workers):
                    keys = {input_key: ratings, "test_input": ratings, **more}
                    found, whole = self.run_program(program, workers, k=3, rounds=7, **keys)
                    self.run_program(program, workers, k=3, rounds=4, **keys)
                    again, both = self.run_program(program, workers, initial_model=self.output, rounds=3, **keys)
                    self.assertEqual(both, whole)
                    for result in ("objective", "test_rmse"):
                        self.assertEqual(again[result], found[result])

    def test_mf_by_bfgs_starts_at_the_model(self):
        ratings = self.ratings("ratings.csv")
        for method in ("bfgs", "cg"):
            keys = {"input": ratings, "method": method, "lambda": 0.3, "tolerance": 1e-9}
            found, _ = self.run_program("mf", k=2, **keys)
            again, _ = self.run_program("mf", initial_model=self.output, **keys)
            self.assertLess(again["rounds"], found["rounds"] / 2)
            self.assertLessEqual(again["objective"], found["objective"] * (1 + 1e-12))

    def test_factors_of_new_and_of_absent_users_and_items(self):
        first = self.ratings("first.csv", users=range(30), items=range(25))
        second = self.ratings("second.csv", users=range(20, 40), items=range(20, 30))
        pairs = self.path("pairs.csv", "3,4\n35,27\n3,28\n99,4\n")
        for program, input_key, more in (("mf", "input", {}), ("mf", "input", {"factors": "float64"}),
                                         ("mf", "input", {"method": "cg"}), ("als", "rating_input", {})):
            for workers in (1, 2):
                with self.subTest(program=program, more=more, workers=workers):
                    self.run_program(program, workers, k=3, rounds=3, **{input_key: first}, predict_input=pairs, **more)
                    model = self.output
                    predicted = sorted(self.lines("pred_v", workers))
                    before = {name: self.rows(name, workers) for name in ("W", "H", "ubias", "ibias")}
                    mean = self.manifest()["mean"]
                    self.run_program(program, workers, rounds=3, initial_model=model, predict_input=pairs,
                                     **{input_key: second}, **more)
                    self.assertEqual(self.manifest()["mean"], mean)
                    self.assertEqual(self.manifest()["k"], 3)
                    for name, seen in (("W", range(20)), ("ubias", range(20)), ("H", range(20)), ("ibias", range(20))):
                        after = self.rows(name, workers)
                        self.assertEqual(set(after), {str(n) for n in range(40 if name in ("W", "ubias") else 30)})
                        for n in seen:  # those without new ratings
                            self.assertEqual(after[str(n)], before[name][str(n)])
                        self.assertNotEqual(after["24"], before[name]["24"])
                    now = sorted(self.lines("pred_v", workers))
                    same = {line for line in now if line.startswith(("3,4,", "99,4,"))}
                    self.assertEqual(len(same), 2)
                    self.assertLessEqual(same, set(predicted))
                    self.assertEqual(len(set(now) - set(predicted)), 2)

    def test_mf_of_names_after_numbers(self):
        self.run_program("mf", input=self.ratings("numbers.csv"), k=2)
        self.run_program("mf", 2, input=self.ratings("names.csv", users=range(5), names=True), initial_model=self.output)
        self.assertEqual(set(self.rows("W", 2)), {*map(str, range(40)), *(f"user {n}" for n in range(5))})

    def samples(self, name, rows=range(ROWS), columns=12, classes=False):
        """libsvm: three ones of these columns, the last of which occurs."""
        dice = random.Random(4)
        lines = []
        for i in range(ROWS):
            at = sorted(dice.sample(range(1, 13), 3))
            label = 3 + at[0] / 5 + (at[1] % 3) * (at[2] % 2) + dice.gauss(0, 0.1)
            if i in rows and at[2] <= columns:
                lines.append(f"{int(label > 4.5) if classes else round(label, 4)} " + " ".join(f"{j}:1" for j in at))
        return self.path(name, "\n".join(lines) + "\n")

    def test_fm_goes_on(self):
        for name, classes, more in (("sgd", False, {"method": "sgd", "alpha": 0.005}), ("als", False, {"method": "als"}),
                                    ("adagrad", False, {}), ("adagrad log", True, {"loss": "log", "beta_v": 0.01})):
            rows = self.samples("rows.svm", classes=classes)
            for workers in (0, 2):
                with self.subTest(case=name, workers=workers):
                    keys = {"training_input": rows, "test_input": rows, **({} if name == "als" else {"batch_size": 50}), **more}
                    found, whole = self.run_program("fm", workers, k=3, rounds=7, **keys)
                    self.run_program("fm", workers, k=3, rounds=4, **keys)
                    again, both = self.run_program("fm", workers, initial_model=self.output, rounds=3, **keys)
                    self.assertEqual(self.manifest()["rounds"], 7)
                    if name == "sgd":
                        self.assertEqual(both, whole)
                    self.assertEqual(set(both), set(whole))
                    for array in both:
                        numpy.testing.assert_allclose(self.numbers(both[array]), self.numbers(whole[array]), rtol=1e-9,
                                                      atol=1e-12, err_msg=array)
                    self.assertAlmostEqual(again["objective"], found["objective"], delta=1e-9 * found["objective"])

    def test_fm_with_new_features(self):
        first, second = self.samples("first.svm", columns=8), self.samples("second.svm", rows=range(0, ROWS, 2))
        for workers, method in ((0, "adagrad"), (2, "adagrad"), (2, "als")):
            with self.subTest(workers=workers, method=method):
                self.run_program("fm", workers, training_input=first, k=2, rounds=5, method=method)
                model = self.output
                before = self.rows("fm_row", max(workers, 1))
                few = self.path("few.svm", "3 1:1 9:1\n4 9:1 12:1\n")
                self.run_program("fm", workers, training_input=few, test_input=second, initial_model=model, rounds=2,
                                 method=method)
                after = self.rows("fm_row", max(workers, 1))
                self.assertEqual(len(after), 13)
                for feature in "2345678":  # those without new samples
                    self.assertEqual(*(numpy.array(rows[feature].split("|"), float).tolist() for rows in (after, before)))
                self.assertNotEqual(after["1"], before["1"])
                self.assertEqual({feature for feature, row in after.items() if set(row.split("|")) == {"0"}}, {"10", "11"})

    def test_fm_refuses(self):
        rows = self.samples("rows.svm")
        self.run_program("fm", training_input=rows, k=2, rounds=1)
        keys = {"training_input": rows, "initial_model": self.output}
        self.refused("fm", "found 3, want 2 as in the initial model", 3, k=3, **keys)
        self.refused("fm", "found log, want squared as in the initial model", 3, loss="log", **keys)
        self.refused("fm", "found false, want true as in the initial model", 3, bias=False, **keys)

    def test_factors_refuse(self):
        ratings = self.ratings("ratings.csv")
        self.run_program("mf", input=ratings, k=2)
        model = self.output
        self.run_program("als", rating_input=ratings, k=2)
        als = self.output
        self.refused("mf", "found 3, want 2 as in the initial model", 3, input=ratings, k=3, initial_model=model)
        self.refused("mf", "found a model of als, want one of mf", input=ratings, initial_model=als)
        self.refused("mf", "not with model_input, which is used as it is", 3, initial_model=model, model_input=model)
        self.refused("als", "found a model of mf, want one of als", rating_input=ratings, initial_model=model)
        self.refused("als", "found true, want false as in the initial model", 3, rating_input=ratings, initial_model=als,
                     implicit=True)
        self.refused("als", "not with initial_model: the one step has given factors", 3, rating_input=ratings,
                     initial_model=als, factor_input=ratings)

    # ---- words

    def text(self, name, lines, words=40, seed=1):
        """Sentences of eight words, each of one of two sets."""
        dice = random.Random(seed)
        return self.path(name, "".join(" ".join(f"{'ab'[s % 2]}{int(words * dice.random() ** 2)}" for _ in range(8)) + "\n"
                                       for s in range(lines)))

    def vectors(self, workers, folder):
        names, rows = [], []
        for rank in range(max(workers, 1)):
            with open(os.path.join(folder, f"vectors_id_{rank}.txt"), encoding="utf-8") as file:
                names += file.read().split()
            rows += list(numpy.load(os.path.join(folder, f"vectors_{rank}.npy")))
        return names, dict(zip(names, rows))

    def separation(self, vectors):
        """How much nearer words of one set are than those of different ones, by cosine."""
        rows = {name: row / numpy.linalg.norm(row) for name, row in vectors.items() if int(name[1:]) < 20}
        mean = lambda same: numpy.mean([a @ b for x, a in rows.items() for y, b in rows.items()
                                        if x != y and (x[0] == y[0]) == same])
        return mean(True) - mean(False)

    def test_word2vec_goes_on(self):
        first, second = self.text("first.txt", 800), self.text("second.txt", 300, words=60, seed=2)
        with open(first, "a", encoding="utf-8") as file:
            file.write("a1 a101 a2 a101\n")
        texts = []
        for part in (first, second):
            with open(part, encoding="utf-8") as file:
                texts.append(file.read())
        both = self.path("both.txt", "".join(texts))
        keys = {"k": 8, "min_count": 1, "sample": 0, "format": "npy", "rounds": 4, "alpha": 0.1}
        self.run_program("word2vec", input=both, **keys)
        whole_words, _ = self.vectors(0, self.output)
        whole_counts = numpy.load(os.path.join(self.output, "counts_0.npy"))
        for workers in (0, 2):
            for method in ("skip_gram", "cbow"):
                with self.subTest(workers=workers, method=method):
                    self.run_program("word2vec", workers, input=first, method=method, **keys)
                    model = self.output
                    _, before = self.vectors(workers, model)
                    learned = self.separation(before)
                    # A step size near 0: what is known stays, what is new begins near 0, of length k^-1/2 at most.
                    more = {**keys, "input": second, "initial_model": model, "method": method}
                    more.pop("k")
                    found, _ = self.run_program("word2vec", workers, **{**more, "alpha": 1e-9, "rounds": 1})
                    words, after = self.vectors(workers, self.output)
                    self.assertEqual((words, found["words"], found["tokens"]), (whole_words, len(whole_words), 2400))
                    counts = numpy.load(os.path.join(self.output, "counts_0.npy"))
                    self.assertEqual(counts.tolist(), whole_counts.tolist())
                    for word in words:
                        if word in before:
                            numpy.testing.assert_allclose(after[word], before[word], atol=1e-5)
                        else:
                            self.assertLess(numpy.linalg.norm(after[word]), 1 / 8 ** 0.5)
                    new = [word for word in words if word not in before]
                    self.assertGreater(len(new), 10)
                    self.run_program("word2vec", workers, **more)
                    _, after = self.vectors(workers, self.output)
                    absent = set(before) - set(texts[1].split())
                    self.assertIn("a101", absent)
                    self.assertGreater(learned, 0.3)
                    self.assertGreater(self.separation(after), 0.8 * learned)
                    for word in absent:
                        self.assertEqual(after[word].tolist(), before[word].tolist())
                    self.assertGreater(min(numpy.linalg.norm(after[word]) for word in new), 0.1)

    def test_word2vec_refuses(self):
        text = self.text("first.txt", 100)
        keys = {"input": text, "min_count": 1, "rounds": 1}
        self.run_program("word2vec", k=4, format="npy", **keys)
        model = self.output
        self.refused("word2vec", "found 5, want 4 as in the initial model", 3, initial_model=model, k=5, **keys)
        self.refused("word2vec", "found cbow, want skip_gram as in the initial model", 3, initial_model=model, method="cbow", **keys)
        self.refused("word2vec", "its tree is that of one text's counts", 3, initial_model=model, loss="hierarchical_softmax",
                     **keys)
        self.run_program("word2vec", k=4, format="npy", loss="hierarchical_softmax", **keys)
        self.refused("word2vec", "found no outputs and counts", initial_model=self.output, **keys)

    # ---- topics

    def documents(self, name, number, words=30, seed=1, sparse=False):
        """Documents of 20 words of three sets, two topics each; `words` of a set."""
        dice = random.Random(seed)
        lines = []
        for _ in range(number):
            topics = dice.sample(range(3), 2)
            tokens = [(dice.choice(topics), int(words * dice.random() ** 2)) for _ in range(20)]
            lines.append(" ".join([f"{3 * w + t + 1}:1" for t, w in tokens] if sparse else [f"{'abc'[t]}{w}" for t, w in tokens]))
        return self.path(name, "\n".join(lines) + "\n")

    def counts_by_word(self, workers):
        """{word: counts by topic}"""
        return {word: numpy.array(row.split("|"), float) for word, row in self.rows("word_topic", max(workers, 1)).items()}

    def test_lda_by_sampling_adds_documents(self):
        for sparse in (False, True):
            first, second = self.documents("first.txt", 150, sparse=sparse), self.documents("second.txt", 40, 45, 2, sparse)
            test = self.documents("test.txt", 60, seed=3, sparse=sparse)
            keys = {"alpha": 0.2, "check_counts": True, "test_input": test}
            for workers in (0, 2):
                with self.subTest(sparse=sparse, workers=workers):
                    found, _ = self.run_program("gLDA", workers, input=first, k_topics=3, iters=60, **keys)
                    model, before = self.output, self.counts_by_word(workers)
                    alone, _ = self.run_program("gLDA", workers, input=second, k_topics=3, iters=60, **keys)
                    again, _ = self.run_program("gLDA", workers, input=second, initial_model=model, iters=5, **keys)
                    after = self.counts_by_word(workers)
                    words = {w for file in (first, second) for w in self.read(file).replace(":1", "").split()}
                    self.assertEqual(set(after), set(map(str, range(1, 136))) if sparse else words)
                    self.assertGreater(len(set(after) - set(before)), 10)
                    for word, counts in before.items():  # no count is less, because the documents are not sampled again
                        self.assertTrue((after[word] >= counts).all(), word)
                    self.assertEqual(sum(map(sum, after.values())), 190 * 20)
                    self.assertEqual(again["tokens"], 800)
                    # What was learned first is what is known of the words that the new documents do not have.
                    self.assertLess(again["perplexity"], alone["perplexity"])
                    self.assertLess(again["perplexity"], 1.05 * found["perplexity"])

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_lda_online_goes_on(self):
        documents = self.documents("documents.txt", 120)
        keys = {"input": documents, "method": "online", "batch_size": 32, "beta": 0.05}
        for workers in (0, 2):
            with self.subTest(workers=workers):
                found, _ = self.run_program("gLDA", workers, k_topics=3, iters=7, **keys)
                whole = self.counts_by_word(workers)
                self.run_program("gLDA", workers, k_topics=3, iters=4, **keys)
                self.assertEqual(self.manifest()["steps"], 16)
                again, _ = self.run_program("gLDA", workers, initial_model=self.output, iters=3, **keys)
                both = self.counts_by_word(workers)
                self.assertEqual(set(both), set(whole))
                for word in both:
                    numpy.testing.assert_allclose(both[word], whole[word], rtol=1e-7, atol=1e-9)
                self.assertAlmostEqual(again["bound"], found["bound"], delta=1e-9)

    def test_lda_refuses(self):
        text, sparse = self.documents("text.txt", 20), self.documents("sparse.txt", 20, sparse=True)
        self.run_program("gLDA", input=text, k_topics=3, iters=2, optimize_every=1)
        gibbs = self.output
        self.run_program("gLDA", input=text, k_topics=3, iters=1, method="online")
        online = self.output
        self.refused("gLDA", "found 4, want 3 as in the initial model", 3, input=text, initial_model=gibbs, k_topics=4)
        self.refused("gLDA", "found documents of indices, want words as in the initial model", input=sparse, initial_model=gibbs)
        self.refused("gLDA", "whose counts are fractions, want method online", input=text, initial_model=online)
        self.refused("gLDA", "found an alpha for each topic, want method gibbs, or the key alpha", input=text,
                     initial_model=gibbs, method="online")
        self.refused("gLDA", "not with model_input, which is used as it is", 3, input=text, initial_model=gibbs,
                     model_input=gibbs)
        names = self.path("names.txt", "one\ntwo\n")
        self.run_program("gLDA", input=sparse, k_topics=2, iters=1)
        self.refused("gLDA", "found other names than those of the initial model", input=sparse, vocabulary=names,
                     initial_model=self.output)


if __name__ == "__main__":
    unittest.main()

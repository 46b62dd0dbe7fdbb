#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""initial_model of programs that read tables: a run that continues a saved model. Two halves beside one whole run, for 1 and 2
workers; new features; what is refused. Options: names of tests."""
import os
import random
import unittest

import numpy

from initial_model_case import InitialModelCase

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


class InitialModelTest(InitialModelCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(5)
        cls.x = [[dice.randrange(20, 70), round(1e7 + dice.gauss(0, 3), 2), round(dice.random(), 4), dice.choice(["red", "blue"])]
                 for _ in range(ROWS)]
        cls.y = [round(x[0] / 10 + (x[1] - 1e7) * x[2] + (x[3] == "red") + dice.gauss(0, 0.1), 4) for x in cls.x]

    def table(self, name, labels="numbers", rows=range(ROWS), columns=range(len(NAMES))):
        """A CSV file with a header; colours are words if labels are. relevance: with groups."""
        label_of = {"numbers": lambda y: y, "two": lambda y: int(y > 5), "relevance": lambda y: max(0, min(4, int(y / 2))),
                    "words": lambda y: "low" if y < 4 else "middle" if y < 6 else "high"}[labels]
        number = {} if labels == "words" else {"red": 1, "blue": 0}
        lines = [",".join([*(NAMES[c] for c in columns), "group" if labels == "relevance" else "row", "label"])]
        for i in rows:
            x = [number.get(v, v) for v in self.x[i]]
            lines.append(",".join(map(str, [*(x[c] for c in columns), i // 10, label_of(self.y[i])])))
        return self.path(name, "\n".join(lines) + "\n")

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
        for program, more in (("gbdt", {"loss": "softmax", "rounds": 2}),
                              ("random_forest", {"type": "classification", "trees": 2})):
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
        self.refused("gbdt", "no such file or folder", 3, training_input=train, initial_model=model + "/none", loss="squared")

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
        self.refused("kmeans", "found 2 features, want 3, those of the initial model", initial_model=model,
                     input=self.npy("two.npy", [[0.0, 1.0]] * 5))
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


if __name__ == "__main__":
    unittest.main()

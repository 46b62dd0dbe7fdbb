#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Data frames, Arrow tables and Parquet files in estimators and algorithms: the same models as of arrays, and of the command line
on CSV. XGBoost and gensim read what the package writes."""
import datetime
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import NEWEST, in_package, in_site, run_program  # noqa: E402
from python_support import PACKAGE, PYTHON, SITE  # noqa: E402

in_package("pyarrow", "polars", "pandas", "sklearn", newest=True)

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import paracel  # noqa: E402
import polars as pl  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.dataset  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from paracel import _frames, loading  # noqa: E402
from paracel._model import Model  # noqa: E402
from test_estimators import Folder, classification, regression  # noqa: E402

CITIES = np.array(["Ulm", "Köln", "São Paulo", "a \"b\", c", "Bonn"])


def table(rows=300, seed=1):
    """Columns: two numbers, a text, a class; of the text depends the class."""
    r = np.random.RandomState(seed)
    city = r.randint(0, 5, rows)
    x = r.randn(rows, 2)
    y = np.where(np.isin(city, [1, 3]) ^ (x[:, 0] > 0.5), "yes", "no")
    return {"x": x[:, 0], "city": CITIES[city], "n": np.round(x[:, 1] * 3), "target": y}


def forms(columns, folder):
    """The same table in each form, by name."""
    arrow = pa.table({k: pa.array(v.tolist()) for k, v in columns.items()})
    pq.write_table(arrow, os.path.join(folder, "part-0.parquet"), row_group_size=70)
    names = {"pandas": pd.DataFrame(columns), "polars": pl.DataFrame({k: v.tolist() for k, v in columns.items()}),
             "lazy": pl.LazyFrame({k: v.tolist() for k, v in columns.items()}), "arrow": arrow,
             "chunks": pa.concat_tables([arrow.slice(0, 100), arrow.slice(100)]),
             "parquet": os.path.join(folder, "part-*.parquet"),
             "dataset": pyarrow.dataset.dataset(os.path.join(folder, "part-0.parquet"))}
    texts = [k for k, v in columns.items() if v.dtype.kind == "U"]
    names["categories"] = names["pandas"].astype(dict.fromkeys(texts, "category"))
    names["polars categories"] = names["polars"].with_columns(pl.col(t).cast(pl.Categorical) for t in texts)
    names["enums"] = names["polars"].with_columns(pl.col(t).cast(pl.Enum(["?", *np.unique(columns[t])])) for t in texts)
    names["views"] = pa.table({k: arrow[k].cast(pa.string_view()) if k in texts else arrow[k] for k in arrow.column_names})
    names["dictionaries"] = pa.table({k: arrow[k].dictionary_encode() if k in texts else arrow[k] for k in arrow.column_names})
    pyarrow.feather.write_feather(names["dictionaries"], os.path.join(folder, "all.feather"), compression="uncompressed",
                                  chunksize=90)
    names["feather"] = os.path.join(folder, "all.feather")
    return names


class Readme(Folder):
    def test_example(self):
        with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
            (text,) = re.findall(r"<!-- file: frames.py -->\n```python\n(.*?)```", file.read(), re.DOTALL)
        done = subprocess.run([sys.executable, "-c", text], cwd=self.folder, capture_output=True, text=True, check=False)
        said = re.search(r"print.*# (.*)\n", text)[1]
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", said + "\n"))


class Numbers(Folder):
    def test_same_bits_in_every_form(self):
        X, y = classification()
        columns = {**{name: X[:, j] for j, name in enumerate("abcdef")}, "y": y}
        for estimator in (paracel.LogisticRegression(), paracel.LinearSVC(n_workers=2), paracel.GaussianNB(),
                          paracel.RandomForestClassifier(n_estimators=5)):
            expected = estimator.fit(X, y).model_
            predicted, score = estimator.predict(X), estimator.score(X, y)
            for name, frame in forms(columns, self.folder).items():
                if estimator.n_workers and name not in ("pandas", "chunks", "parquet"):
                    continue  # a job takes its time
                with self.subTest(f"{estimator}: {name}"):
                    fitted = estimator.fit(frame, "y")
                    self.same_arrays(fitted.model_, expected)
                    self.assertEqual(fitted.feature_names_in_.tolist(), list("abcdef"))
                    self.assertEqual(fitted.predict(paracel.Frame(frame, list("abcdef"))).tolist(), predicted.tolist())
                    self.assertEqual(fitted.predict(frame).tolist(), predicted.tolist())
                    self.assertEqual(fitted.score(frame, "y"), score)

    def test_saved_models_have_the_names(self):
        X, y = classification()
        frame = pd.DataFrame(X, columns=list("abcdef"))
        np.savetxt(self.path("rows.csv"), X[:, ::-1], delimiter=",", header="f,e,d,c,b,a", comments="", fmt="%.17g")
        for estimator in (paracel.LogisticRegression(), paracel.GaussianNB(), paracel.LinearSVC(), paracel.SoftmaxRegression(),
                          paracel.RandomForestClassifier(n_estimators=3), paracel.FactorizationMachineClassifier(n_factors=2)):
            with self.subTest(repr(estimator)):
                fitted = estimator.fit(pa.Table.from_pandas(frame), y)
                fitted.save(self.path("model"))
                loaded = paracel.load_model(self.path("model"))
                self.assertEqual(loaded.feature_names_in_.tolist(), list("abcdef"))
                self.assertEqual(loaded.predict(frame).tolist(), fitted.predict(frame).tolist())
                config = {"model": self.path("model"), "predict_input": self.path("rows.csv"), "output": self.path("out")}
                run_program("lr" if estimator._program == "lr" else estimator._program, self.config("config.json", config))
                with open(self.path("out/pred_v_0"), encoding="utf-8") as lines:
                    found = [float(line.split("\t")[0].rsplit(":", 1)[-1]) for line in lines]
                if estimator._program == "lr":
                    found = [float(p > 0.5) for p in found]
                self.assertEqual(found, fitted.predict(frame).tolist())

    def test_regressors_clusters_and_components(self):
        X, y = regression()
        arrow = pa.table({**{name: X[:, j] for j, name in enumerate("abcdef")}, "y": y})
        self.same_arrays(paracel.Ridge().fit(arrow, "y").model_, paracel.Ridge().fit(X, y).model_)
        features = arrow.select(list("abcdef"))
        for estimator in (paracel.KMeans(n_clusters=3), paracel.TruncatedSVD(n_components=2)):
            self.same_arrays(estimator.fit(features).model_, type(estimator)(**estimator.get_params()).fit(X).model_)
        weights = np.where(np.arange(len(y)) % 3 == 0, 0.0, 2.0)
        weighed = paracel.Ridge().fit(arrow.append_column("w", pa.array(weights)), "y", "w")
        self.same_arrays(weighed.model_, paracel.Ridge().fit(X, y, weights).model_)

    def test_types_and_missing_values(self):
        frame = {"i": [1, 2, None, 4] * 20, "b": [True, None, False, True] * 20, "f": [0.5, None, 1.5, -1.0] * 20,
                 "d": [1, 2, 3, 4] * 20, "none": [None] * 80}
        y = np.arange(80) % 4 >= 2
        expected = np.array([[np.nan if v is None else float(v) for v in c] for c in frame.values()]).T
        arrow = pa.table({**frame, "none": pa.nulls(80)}).cast(pa.schema(
            [("i", pa.int16()), ("b", pa.bool_()), ("f", pa.float32()), ("d", pa.decimal128(25, 2)), ("none", pa.null())]))
        for form in (arrow, pl.DataFrame(frame), pd.DataFrame({"i": pd.array(frame["i"], "Int32"), "b": pd.array(
                frame["b"], "boolean"), "f": frame["f"], "d": pd.Series(frame["d"], dtype=object), "none": pd.Series(
                [np.nan] * 80, dtype=object)})):
            rows = np.asarray(_frames.FrameRows(_frames.frame_of(form)))
            np.testing.assert_array_equal(rows, expected)
            model = paracel.GradientBoostingClassifier(n_estimators=3, min_samples_leaf=1).fit(form, y)
            self.assertEqual(model.score(form, y), 1.0)
            with self.assertRaisesRegex(ValueError, "(column i: found NaN, infinity or a missing value|contains NaN)"):
                paracel.LogisticRegression().fit(form, y)

    def test_columns_are_not_copied(self):
        values = np.arange(1000.0)
        for form in (pa.table({"a": values}), pl.DataFrame({"a": values}), pd.DataFrame({"a": values})):
            frame = _frames.frame_of(form)
            (first,), (second,) = next(frame._batches()), next(frame._batches())
            self.assertTrue(np.shares_memory(first, second))

    def test_memory(self):
        rows, width = 200_000, 10
        r = np.random.RandomState(0)
        pq.write_table(pa.table({**{f"c{j}": r.randn(rows) for j in range(width)}, "y": r.randn(rows)}), self.path("a.parquet"),
                       row_group_size=10_000)
        pq.write_table(pq.read_table(self.path("a.parquet")).slice(0, 20), self.path("few.parquet"))
        data = rows * (width + 1) * 8
        program = (
            "import sys, tracemalloc, paracel, pyarrow\n"
            "workers = None if sys.argv[2] == 'None' else int(sys.argv[2])\n"
            "paracel.Ridge().fit(sys.argv[3], 'y')\n"  # imports
            "tracemalloc.start()\n"
            "model = paracel.Ridge(n_workers=workers).fit(sys.argv[1], 'y')\n"
            "print(tracemalloc.get_traced_memory()[1], pyarrow.default_memory_pool().max_memory())\n"
            "print(model.coef_.tolist())\n")
        found = []
        for workers in ("None", "2"):
            done = subprocess.run([sys.executable, "-c", program, self.path("a.parquet"), workers, self.path("few.parquet")],
                                  capture_output=True, text=True, env=in_site(NEWEST), check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            sizes, coefficients = done.stdout.splitlines()
            found.append(coefficients)
            of_numpy, of_arrow = map(int, sizes.split())
            # Arrow's columns are the data, which NumPy does not copy but for the target; those of a job are read group by group.
            self.assertLess(of_numpy, 0.35 * data)
            self.assertLess(of_arrow, (1.3 if workers == "None" else 0.3) * data)
        self.assertEqual(*(np.round(json.loads(c), 12).tolist() for c in found))

    def test_wrong_columns(self):
        X, y = classification()
        arrow = pa.table({name: X[:, j] for j, name in enumerate("abcdef")})
        model = paracel.LogisticRegression().fit(arrow, y)
        shuffled = arrow.select(list("fedcba")).append_column("more", pa.array(y))
        self.assertEqual(model.predict(shuffled).tolist(), model.predict(X).tolist())
        for wrong, words in ((lambda: model.predict(arrow.select(["a", "b"])), "found no column c, want those of the fit: a, b"),
                             (lambda: model.predict(pl.from_arrow(shuffled)), "feature names should match.*found f, e"),
                             (lambda: model.fit(arrow, "z"), "found no column z, want one of a, b"),
                             (lambda: model.fit(X, "a"), "LogisticRegression: found 'a' in place of values"),
                             (lambda: model.fit(arrow.append_column("t", pa.array(["u"] * len(y))), y), "column t: found texts"),
                             (lambda: model.fit("data.csv", "y"), r"found the name 'data.csv', want names of files that end in"),
                             (lambda: model.fit("none-*.parquet", "y"), "none-.*found no such file"),
                             (lambda: model.fit(arrow.slice(0, 0), y[:0]), "found 0 rows of 6 columns"),
                             (lambda: model.fit(arrow.append_column("when", pa.array([0] * len(y), pa.timestamp("s"))), y),
                              "column when: found timestamp"),
                             (lambda: model.fit(arrow, pa.array([None, *y[1:]]).to_pylist()), "y|NaN|None")):
            with self.assertRaisesRegex((ValueError, FileNotFoundError, TypeError), words):
                wrong()
        gap = arrow.set_column(2, "c", pa.array([1.0] * 5 + [None] + [2.0] * (len(y) - 6)))
        pq.write_table(gap.append_column("y", pa.array(y)), self.path("gap.parquet"))
        with self.assertRaisesRegex(ValueError, "^LinearSVC: X:6:3: found nan, want a finite number"):
            paracel.LinearSVC(n_workers=2).fit(self.path("gap.parquet"), "y")
        with open(self.path("bad.parquet"), "w", encoding="utf-8") as out:
            out.write("no table")
        with self.assertRaisesRegex(ValueError, "bad.parquet: cannot be read"):
            model.fit(self.path("bad.parquet"), "y")


class Texts(Folder):
    def test_categories_are_the_command_lines(self):
        columns = table()
        with open(self.path("data.csv"), "w", encoding="utf-8") as out:
            out.write("x,city,n,target\n")
            for x, city, n, y in zip(*(columns[c].tolist() for c in ("x", "city", "n", "target"))):
                quoted = city.replace('"', '""')
                out.write(f'{x!r},"{quoted}",{n!r},{y}\n')
        for estimator, config in ((paracel.GradientBoostingClassifier(n_estimators=8), {"loss": "log", "rounds": 8}),
                                  (paracel.RandomForestClassifier(n_estimators=8), {"type": "classification", "trees": 8})):
            config = {"training_input": self.path("data.csv"), "categorical": ["city"], "output": self.path("out"),
                      "format": "npy", **config}
            run_program(estimator._program, self.config("config.json", config))
            expected = Model.read(self.path("out"))
            for name, frame in forms(columns, self.folder).items():
                with self.subTest(f"{estimator}: {name}"):
                    fitted = estimator.fit(frame, "target")
                    self.same_arrays(fitted.model_, expected)
                    self.assertEqual(fitted.model_.manifest["words"], expected.manifest["words"])
                    self.assertGreater(fitted.score(frame, "target"), 0.8)
            # Of each other's models, on texts that training had, others, and none.
            rows = pa.table({"city": ["Ulm", "Paris", None, "Köln"], "n": [0.0, 1.0, 2.0, 3.0], "x": [0.1, 0.2, 0.9, 1.0]})
            expected = fitted.predict_proba(rows).tolist()
            self.assertEqual(paracel.load_model(self.path("out")).predict_proba(rows).tolist(), expected)
            fitted.save(self.path("saved"))
            self.assertEqual(paracel.load_model(self.path("saved")).predict_proba(rows).tolist(), expected)
            with open(self.path("rows.csv"), "w", encoding="utf-8") as out:
                out.write("x,city,n\n0.1,Ulm,0\n0.2,Paris,1\n0.9,,2\n1.0,Köln,3\n")
            config = {"model": self.path("saved"), "predict_input": self.path("rows.csv"), "output": self.path("predicted")}
            run_program(estimator._program, self.config("config.json", config))
            with open(self.path("predicted/pred_v_0"), encoding="utf-8") as lines:
                found = [[float(p) for p in line.split("\t")[1].split("|")] for line in lines]
            np.testing.assert_allclose(found, expected, rtol=1e-12)

    def test_further_trees_and_jobs(self):
        columns = table()
        frame = forms(columns, self.folder)["parquet"]
        whole = paracel.GradientBoostingClassifier(n_estimators=8).fit(frame, "target")
        job = paracel.GradientBoostingClassifier(n_estimators=8, n_workers=2).fit(frame, "target")
        self.same_arrays(job.model_, whole.model_)
        half = paracel.GradientBoostingClassifier(n_estimators=4, warm_start=True).fit(frame, "target")
        half.set_params(n_estimators=8).fit(frame, "target")
        self.same_arrays(half.model_, whole.model_)
        self.assertEqual(half.model_.manifest["words"], whole.model_.manifest["words"])

    def test_categories_that_are_numbers(self):
        r = np.random.RandomState(2)
        zone = r.randint(0, 9, 400) * 3
        y = np.isin(zone, [3, 12, 24]).astype(float)
        expected = paracel.GradientBoostingRegressor(n_estimators=5, categorical_features=[0]).fit(zone[:, None], y)
        frame = pd.DataFrame({"zone": pd.Categorical(zone), "y": y})
        by_type = paracel.GradientBoostingRegressor(n_estimators=5).fit(frame, "y")
        by_name = paracel.GradientBoostingRegressor(n_estimators=5, categorical_features=["zone"])
        by_name.fit(pa.table({"zone": zone}), y)
        for model in (by_type, by_name):
            self.same_arrays(model.model_, expected.model_)
            self.assertEqual(model.predict(frame[["zone"]]).tolist(), expected.predict(zone[:, None]).tolist())
        with self.assertRaisesRegex(ValueError, "categorical_features: found 'zones'"):
            by_name.set_params(categorical_features=["zones"]).fit(frame, "y")
        by_type.fit(zone[:, None], y)
        self.assertFalse(hasattr(by_type, "feature_names_in_") or by_type.model_.manifest["categorical"])
        with self.assertRaisesRegex(ValueError, "column city: found numbers, want texts"):
            model = paracel.RandomForestClassifier(n_estimators=2).fit(pa.table(table()), "target")
            model.predict(pa.table({"x": [1.0], "city": [1], "n": [1.0]}))

    def test_empty_and_wrong_texts(self):
        y = [0.0, 1.0] * 20
        frame = pa.table({"t": ["", "a", None, "b"] * 10})
        model = paracel.RandomForestRegressor(n_estimators=3).fit(frame, y)
        self.assertEqual(model.model_.manifest["words"], {"0": ["a", "b"]})
        nothing = model.predict(pa.table({"t": pa.nulls(1)}))
        self.assertEqual(nothing.tolist(), model.predict(pa.table({"t": [""]})).tolist())
        unused = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 3] * 10), pa.array(["", "unused", "a", "b"]))
        again = paracel.RandomForestRegressor(n_estimators=3).fit(pa.table({"t": unused}), y)
        self.same_arrays(again.model_, model.model_)
        with self.assertRaisesRegex(ValueError, r"found category 'a\\x01', want texts"):
            model.fit(pa.table({"t": ["a\x01"] * 40}), y)
        with self.assertRaisesRegex(ValueError, "found 70000 different texts, want at most 65536"):
            model.fit(pd.DataFrame({"t": [str(i) + "x" for i in range(70_000)]}), np.zeros(70_000))
        with self.assertRaisesRegex(ValueError, "column t: found date"):
            model.fit(pd.DataFrame({"t": [datetime.date(2020, 1, 1)] * 40}), y)

    def test_ranker_and_evaluation(self):
        r = np.random.RandomState(4)
        frame = pd.DataFrame(r.randn(200, 3), columns=list("abc"))
        frame["relevance"], frame["query"] = (frame.a > 0).astype(int), [f"q{i // 10}" for i in range(200)]
        arrow = pa.Table.from_pandas(frame, preserve_index=False)
        how = {"n_estimators": 20, "early_stopping_rounds": 3}
        by_name = paracel.GradientBoostingRanker(**how).fit(arrow, "relevance", "query", eval_set=(arrow, "relevance", "query"))
        X = frame[list("abc")].to_numpy()
        plain = paracel.GradientBoostingRanker(**how).fit(X, frame.relevance, frame["query"],
                                                          eval_set=(X, frame.relevance, frame["query"]))
        self.same_arrays(by_name.model_, plain.model_)
        self.assertEqual(by_name.predict(frame).tolist(), plain.predict(X).tolist())


class IdsAndEdges(Folder):
    def test_ratings(self):
        r = np.random.RandomState(5)
        users, items = r.randint(0, 20, 200), r.randint(0, 15, 200)
        names = np.array([f"né {u}" for u in users])
        columns = {"when": np.arange(200), "rating": r.randint(1, 6, 200).astype(float), "user": names, "item": items}
        expected = paracel.ALS(n_factors=3).fit(names, items, columns["rating"])
        for name, frame in forms(columns, self.folder).items():
            with self.subTest(name):
                chosen = paracel.Frame(frame, ["user", "item", "rating"])
                found = paracel.ALS(n_factors=3).fit(chosen)
                self.same_arrays(found.model_, expected.model_)
                self.assertEqual(found.recommend(["né 3"], 5, seen=chosen).items.tolist(),
                                 expected.recommend(["né 3"], 5, seen=(names, items)).items.tolist())
        with self.assertRaisesRegex(ValueError, "found the columns when, rating, user, item, want user, item, rating of ratings"):
            paracel.ALS().fit(frame)
        with self.assertRaisesRegex(ValueError, "column user: row 1: found nothing, want a user in each row"):
            paracel.ALS().fit(pa.table({"user": ["a", None], "item": [1, 2], "rating": [1.0, 2.0]}))

    def test_edges(self):
        edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "d")]
        for form in (pd.DataFrame, pl.DataFrame, pa.table):
            frame = form({"from": [e[0] for e in edges], "to": [e[1] for e in edges], "km": [1.0, 2.0, 5.0, 0.0]})
            found = paracel.sssp(frame, "a")
            self.assertEqual(dict(zip(found.ids.tolist(), found.values.tolist())), {"a": 0, "b": 1, "c": 3, "d": np.inf})
            self.assertEqual(paracel.wcc(paracel.Frame(frame, ["to", "from"])).values.tolist(), list("aaad"))
            ranks = paracel.pagerank(frame)
            expected = paracel.pagerank(np.array(edges), np.array([1.0, 2.0, 5.0, 0.0]))
            self.assertEqual(ranks.values.tolist(), expected.values.tolist())


PROGRAM = """
import json, sys
import numpy as np
import paracel

class Loads(paracel.Paralg):
    def solve(self):
        of = self.config
        data = self.load_samples(of["samples"], target="y", features=["a", "city"], categorical=["city"], weight="w",
                                 missing=True)
        columns = self.load_parquet(of["samples"], ["city", "w"])
        sparse = self.load_sparse(of["edges"], columns=["from", "to", "km"])
        graph = self.load_graph(of["edges"], columns=["from", "to", "km"], weighted=True)
        plain = self.load_graph(of["edges"], columns=["from", "to", "from"])
        assert len(plain.weights) == 0 and plain.edges_total == graph.edges_total
        ratings = self.load_sparse([of["ratings"]], duplicates="last", values="need")
        found = {"X": data.X.tolist(), "y": data.y.tolist(), "weight": data.weight.tolist(), "classes": data.classes,
                 "names": data.names, "words": data.words[1], "first": data.first_row, "total": data.rows_total,
                 "city": columns.columns["city"].tolist(), "w": columns.columns["w"].tolist(),
                 "edges": [(sparse.row_ids[i], sparse.column_ids[sparse.X.indices[k]], sparse.X.data[k])
                           for i in range(len(sparse.row_ids)) for k in range(*sparse.X.indptr[i:i + 2])],
                 "ids": list(graph.ids), "weights": graph.weights.tolist(), "edges_total": graph.edges_total,
                 "vertices": graph.vertices_total,
                 "ratings": [(int(ratings.row_ids[i]), int(ratings.column_ids[ratings.X.indices[k]]), ratings.X.data[k])
                             for i in range(len(ratings.row_ids)) for k in range(*ratings.X.indptr[i:i + 2])]}
        texts = []
        for wrong in (lambda: self.load_samples(of["samples"], target="no"), lambda: self.load_samples(of["samples"], target="y"),
                      lambda: self.load_parquet("none.parquet"), lambda: self.load_sparse(of["samples"], columns=["a", "y"]),
                      lambda: self.load_sparse(of["ratings"], duplicates="refuse"),
                      lambda: self.load_sparse(of["edges"], columns=["from", "to", "km"], ids="number")):
            try:
                wrong()
            except ValueError as e:
                texts.append(f"{type(e).__name__}: {e}")
        found["errors"] = texts
        with open(f"{of['out']}_{self.worker_id}.json", "w") as out:
            json.dump(found, out)

paracel.run(Loads)
"""


class Algorithms(Folder):
    def run_job(self, workers):
        """What each worker has found."""
        out = self.path(f"out{workers}")
        config = self.config("config.json", {"samples": self.path("part-*.parquet"), "edges": self.path("edges.parquet"),
                                             "ratings": self.path("ratings.feather"), "out": out})
        with open(self.path("loads.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        command = [PYTHON, "loads.py", "--cfg_file", config]
        if workers > 1:
            prun = os.path.join(SITE, "paracel", "_bin", "prun.py")
            command = [PYTHON, "-S", prun, "-w", str(workers), "-p", "1", "-c", config, "loads.py"]
        done = subprocess.run(command, cwd=self.folder, env=in_site(NEWEST), capture_output=True, text=True, check=False,
                              timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = []
        for w in range(workers):
            with open(f"{out}_{w}.json", encoding="utf-8") as file:
                found.append(json.load(file))
        return found

    def test_each_worker_its_row_groups(self):
        r = np.random.RandomState(6)
        columns = {"a": r.randn(230), "city": CITIES[r.randint(0, 5, 230)], "w": r.rand(230), "y": r.randint(0, 2, 230)}
        columns["a"][5] = np.nan
        arrow = pa.table(columns)
        pq.write_table(arrow.slice(0, 130), self.path("part-0.parquet"), row_group_size=13)
        pq.write_table(arrow.slice(130), self.path("part-1.parquet"), row_group_size=10, use_dictionary=False)
        edges = np.unique(r.randint(0, 12, (60, 2)), axis=0)
        names = np.array([f"ö{i:02}" for i in range(12)])
        km = r.rand(len(edges))
        pq.write_table(pa.table({"km": km, "from": names[edges[:, 0]], "to": names[edges[:, 1]]}), self.path("edges.parquet"),
                       row_group_size=7)
        ratings = [(int(u), int(i), float(v)) for u, i, v in zip(r.randint(0, 9, 50), r.randint(0, 5, 50), r.rand(50))]
        pyarrow.feather.write_feather(pa.table(dict(zip(("user", "item", "rating"), map(list, zip(*ratings))))),
                                      self.path("ratings.feather"), compression="uncompressed", chunksize=9)
        last = sorted((u, i, v) for (u, i), v in {(u, i): v for u, i, v in ratings}.items())
        words = sorted(CITIES.tolist())
        for workers in (1, 3):
            found = self.run_job(workers)
            rows = sum((f["X"] for f in found), [])
            expected = [[a, float(words.index(c))] for a, c in zip(columns["a"], columns["city"].tolist())]
            np.testing.assert_array_equal(rows, expected)
            self.assertEqual(sum((f["y"] for f in found), []), (2.0 * columns["y"] - 1).tolist())
            self.assertEqual(sum((f["weight"] for f in found), []), columns["w"].tolist())
            self.assertEqual(sum((f["city"] for f in found), []), columns["city"].tolist())
            self.assertEqual(sum((f["w"] for f in found), []), columns["w"].tolist())
            for f, first in zip(found, np.cumsum([0, *(len(f["X"]) for f in found)]).tolist()):
                self.assertEqual((f["classes"], f["names"], f["words"], f["first"], f["total"]),
                                 (["0", "1"], ["a", "city"], words, first, 230))
                self.assertLess(abs(len(f["X"]) - 230 / workers), 13)  # half a row group on each side
                self.assertEqual((f["edges_total"], f["vertices"]), (len(edges), len(np.unique(edges))))
            self.assertEqual(sum((f["edges"] for f in found), []),
                             [[names[a], names[b], v] for (a, b), v in zip(edges.tolist(), km.tolist())])
            self.assertEqual(sorted(sum((f["weights"] for f in found), [])), sorted(km.tolist()))
            self.assertEqual(sum((f["ids"] for f in found), []), names[np.unique(edges)].tolist())
            self.assertEqual([tuple(e) for e in sum((f["ratings"] for f in found), [])], last)
            for f in found:
                self.assertEqual(f["errors"], found[0]["errors"])
            wanted = ("DataError: found no column no", "DataError: .*column city: found texts, want numbers",
                      "DataError: none.parquet: found no such file", "DataError: column a: found an id",
                      "DataError: .*ratings.feather: found an entry of row .* for the second time",
                      "DataError: .*edges.parquet: found ids that are names, want numbers")
            for text, want in zip(f["errors"], wanted, strict=True):
                self.assertRegex(text, want)

    def test_shares(self):
        for rows in ([10], [1] * 7, [5, 0, 5, 100, 5], [3, 3, 3], [0, 4]):
            for workers in (1, 2, 3, 8):
                parts = loading.split_by_rows(rows, workers)
                self.assertEqual([i for first, last in parts for i in range(first, last)], list(range(len(rows))))
                for first, last in parts:
                    self.assertLessEqual(sum(rows[first:last]), sum(rows) / workers + max(rows))


class OthersReadIt(Folder):
    def test_xgboost(self):
        try:
            import xgboost
        except ImportError:
            self.skipTest("no package xgboost")
        columns = table(500)
        frame = pa.table(columns)
        X, y = classification(classes=3)
        R, t = regression()
        ranker = paracel.GradientBoostingRanker(n_estimators=10).fit(X, y, np.arange(len(y)) // 20)
        binary = paracel.GradientBoostingClassifier(n_estimators=10).fit(frame, "target")
        codes = pd.DataFrame({"x": columns["x"], "city": pd.Categorical(columns["city"], categories=sorted(CITIES)).codes,
                              "n": columns["n"]})
        numbers = xgboost.DMatrix(codes.to_numpy(dtype=float), feature_types=["float", "c", "float"],
                                  feature_names=["x", "city", "n"], enable_categorical=True)
        binary.save(self.path("saved"))
        cases = [(paracel.GradientBoostingClassifier(n_estimators=10).fit(X, y), X, lambda m: m.predict_proba(X)),
                 (paracel.GradientBoostingRegressor(n_estimators=10).fit(R, t), R, lambda m: m.predict(R)),
                 (ranker, X, lambda m: m.predict(X)), (binary, numbers, lambda m: m.predict_proba(frame)[:, 1]),
                 (paracel.load_model(self.path("saved")), numbers, lambda m: m.predict_proba(frame)[:, 1])]
        for model, rows, predict in cases:
            with self.subTest(repr(model)):
                model.save_xgboost(self.path("model.json"))
                booster = xgboost.Booster(model_file=self.path("model.json"))
                rows = rows if isinstance(rows, xgboost.DMatrix) else xgboost.DMatrix(rows)
                np.testing.assert_allclose(booster.predict(rows), predict(model), rtol=2e-6, atol=2e-6)

    def test_gensim(self):
        try:
            from gensim.models import KeyedVectors
        except ImportError:
            self.skipTest("no package gensim")
        r = np.random.RandomState(0)
        words = [f"wört{i}" for i in range(30)]
        model = paracel.Word2Vec(vector_size=12, min_count=1).fit([r.choice(words, 9).tolist() for _ in range(200)])
        for binary in (False, True):
            model.wv.save_word2vec_format(self.path("vectors"), binary=binary)
            theirs = KeyedVectors.load_word2vec_format(self.path("vectors"), binary=binary)
            self.assertEqual(theirs.index_to_key, model.wv.index_to_key)
            self.assertEqual(theirs.vectors.tobytes(), model.wv.vectors.tobytes())
            theirs.save_word2vec_format(self.path("theirs"), binary=binary)
            again = paracel.WordVectors.load_word2vec_format(self.path("theirs"), binary=binary)
            self.assertEqual((again.index_to_key, again.vectors.tobytes()), (model.wv.index_to_key, model.wv.vectors.tobytes()))
        for positive, negative in ((["wört3"], []), (["wört3", "wört5"], ["wört7"]), ("wört1", ["wört2"])):
            found, expected = model.wv.most_similar(positive, negative, topn=6), theirs.most_similar(positive, negative, topn=6)
            self.assertEqual([w for w, _ in found], [w for w, _ in expected])
            np.testing.assert_allclose([c for _, c in found], [c for _, c in expected], rtol=1e-5, atol=1e-6)
        self.assertAlmostEqual(model.wv.similarity("wört1", "wört2"), float(theirs.similarity("wört1", "wört2")), 5)
        self.assertEqual(model.wv[["wört1", "wört2"]].tolist(), theirs[["wört1", "wört2"]].tolist())
        self.assertEqual(model.wv.key_to_index, theirs.key_to_index)


if __name__ == "__main__":
    unittest.main()

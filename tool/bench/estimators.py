#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fits of the Python package's estimators beside scikit-learn's on the same arrays, or beside the program on them in .npy.

    tool/bench/estimators.py                             every estimator, at a fiftieth of its size
    tool/bench/estimators.py --full --rows Ridge,KMeans  at full size
    tool/bench/estimators.py --newest                    with the newest scikit-learn instead of Debian's (tool/setup.sh --test)
    tool/bench/estimators.py --beside program            time and memory of a fit relative to the program's

Each fit has a process of its own, on two processors, with two threads of BLAS and OpenMP for scikit-learn; ours has one thread in
its process, or two workers (`2 w`). Time is that of `fit`; memory the peak of the process and of those that it starts. A row runs
both alternately; ratios are medians of the pairs: scikit-learn's seconds divided by ours, so above 1 ours is faster. Beside a
program, which like the fit has one thread, time is that of the processor, from the start of the program to its end; memory is
what a run needs beyond one on few rows, of the fit beyond the arrays that it is given; and ratios are ours divided by the
program's. The package is the one that the tests have built from the build folder (build/python/site).
"""
import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import cost  # noqa: E402
from cost_rows import figure  # noqa: E402

DEFAULT_SCALE = 0.02
FEW = 200  # rows of the fit before the measured one, which imports what a fit imports

# ---- data: (X, y) of n rows


def classes(n, features=50, of=2):
    import numpy as np
    r = np.random.RandomState(1)
    X = r.randn(n, features)
    return X, np.argmax(X @ r.randn(features, of) + 3 * r.randn(n, of), axis=1)


def numbers(n, features=50):
    import numpy as np
    r = np.random.RandomState(2)
    X = r.randn(n, features)
    return X, X @ r.randn(features) + r.randn(n)


def counts(n, features=200):
    import numpy as np
    r = np.random.RandomState(3)
    topics = r.dirichlet(np.full(features, 0.05), 10)
    of = r.randint(10, size=n)
    return r.poisson(60 * topics[of]).astype(float), np.where(r.rand(n) < 0.2, 1 - of % 2, of % 2)


def blobs(n, features=20):
    import numpy as np
    r = np.random.RandomState(4)
    return 6 * r.randn(30, features)[r.randint(30, size=n)] + r.randn(n, features), None


def sparse(n, features=2000):
    from scipy.sparse import random
    return random(n, features, 0.01, "csr", random_state=5), None


def partition(n, parts=4):
    import numpy as np
    from scipy.sparse import csr_matrix
    r = np.random.RandomState(6)
    a = r.randint(n, size=10 * n)
    b = (a + parts * r.randint(n // parts, size=10 * n) + (r.rand(10 * n) < 0.05)) % (n // parts * parts)
    a %= n // parts * parts
    w = csr_matrix((np.ones(len(a)), (a, b)), shape=(n, n))
    w = ((w + w.T) > 0).astype(float)
    w.setdiag(0)
    w.eliminate_zeros()
    return w, np.arange(n) % parts


# ---- quality: a number of a fitted model, by the same formula for both

def penalty(model):
    return (model.coef_ ** 2).sum()


def log_loss(model, X, y):
    import numpy as np
    return -np.log(np.maximum(model.predict_proba(X)[np.arange(len(y)), y], 1e-300)).mean()


def logistic(model, X, y):
    return penalty(model) / 2 + log_loss(model, X, y) * len(y)


def squared_hinge(model, X, y):
    import numpy as np
    margin = (2 * y - 1) * model.decision_function(X)
    return penalty(model) / 2 + float(model.intercept_[0]) ** 2 / 2 + (np.maximum(0, 1 - margin) ** 2).sum()


def squared_tube(model, X, y):
    import numpy as np
    rest = np.maximum(0, abs(y - model.predict(X)) - 0.1)
    return penalty(model) / 2 + float(np.ravel(model.intercept_)[0]) ** 2 / 2 + (rest ** 2).sum()


def error(model, X, y):
    return ((y - model.predict(X)) ** 2).mean()


def ridge(model, X, y):
    return error(model, X, y) * len(y) + penalty(model)


def lasso(part):
    def objective(model, X, y):
        return error(model, X, y) / 2 + 0.1 * (part * abs(model.coef_).sum() + (1 - part) * penalty(model) / 2)
    return objective


def wrong(model, X, y):
    return (model.predict(X) != y).mean()


def inertia(model, X, y):
    return model.inertia_


def lost_of_spectrum(model, X, y):
    return 1 / model.singular_values_.sum()


def perplexity(model, X, y):
    import numpy as np
    shares, words = model.transform(X), model.components_
    shares = shares / shares.sum(axis=1, keepdims=True)
    p = shares @ (words / words.sum(axis=1, keepdims=True))
    return np.exp(-(X * np.log(np.maximum(p, 1e-300))).sum() / X.sum())


def apart(model, X, y):
    """The share of neighbours within a part that have different labels."""
    return (model.labels_[:-4] != model.labels_[4:]).mean()


# ---- rows

class Row:
    """An estimator beside one of scikit-learn. `n`: rows at full size. `part`: by what fraction its quality, of which less is
    better, may be greater (or by `least`, of numbers near 0). `held_out`: rows for the quality that fit does not see. `why`: why
    it is slower, if it is. `program`: its config keys."""

    def __init__(self, name, data, n, quality, ours, theirs, part=1e-4, least=0.0, held_out=0, why="", program=None):
        self.name, self.data, self.n, self.quality, self.ours, self.theirs = name, data, n, quality, ours, theirs
        self.part, self.least, self.held_out, self.why, self.program = part, least, held_out, why, program

    @property
    def estimator(self):
        return self.name.split()[0]


ONE_THREAD = "one thread beside two of BLAS"
A_JOB = "2 w: a job takes half a second, and writes the rows to files in memory"
BOOSTING = {"n_estimators": 100, "max_leaf_nodes": 31, "learning_rate": 0.1, "l2_regularization": 1.0}
HISTOGRAMS = {"max_iter": 100, "max_leaf_nodes": 31, "learning_rate": 0.1, "l2_regularization": 1.0, "early_stopping": False}
ROWS = [
    Row("LogisticRegression", classes, 1e6, logistic, {}, ("linear_model.LogisticRegression", {"max_iter": 1000, "tol": 1e-5}),
        why="Newton steps by one thread beside L-BFGS on BLAS with two",
        program=("lr", {"method": "newton", "rounds": 1000, "beta": lambda n: 0.5 / n, "penalize_bias": False})),
    Row("SoftmaxRegression", lambda n: classes(n, of=5), 3e5, logistic, {},
        ("linear_model.LogisticRegression", {"max_iter": 1000, "tol": 1e-5})),
    Row("LinearSVC", classes, 5e5, squared_hinge, {"tol": 1e-5}, ("svm.LinearSVC", {"dual": False, "tol": 1e-5})),
    Row("LinearSVR", numbers, 5e5, squared_tube, {"loss": "squared_epsilon_insensitive", "epsilon": 0.1, "tol": 1e-5},
        ("svm.LinearSVR", {"loss": "squared_epsilon_insensitive", "epsilon": 0.1, "dual": False, "tol": 1e-5})),
    Row("Ridge", numbers, 2e6, ridge, {}, ("linear_model.Ridge", {"solver": "cholesky"}), why=ONE_THREAD,
        program=("ridge", {"penalty": 1})),
    Row("Lasso", numbers, 2e6, lasso(1), {"alpha": 0.1}, ("linear_model.Lasso", {"alpha": 0.1, "tol": 1e-7}), why=ONE_THREAD),
    Row("ElasticNet", numbers, 2e6, lasso(0.5), {"alpha": 0.1}, ("linear_model.ElasticNet", {"alpha": 0.1, "tol": 1e-7}),
        why=ONE_THREAD),
    Row("GaussianNB", lambda n: classes(n, of=5), 2e6, log_loss, {}, ("naive_bayes.GaussianNB", {})),
    Row("MultinomialNB", counts, 5e5, log_loss, {}, ("naive_bayes.MultinomialNB", {}),
        why="it copies the rows; scikit-learn sums them in place by BLAS"),
    Row("BernoulliNB", counts, 5e5, log_loss, {}, ("naive_bayes.BernoulliNB", {})),
    Row("GradientBoostingClassifier", lambda n: classes(n, 28), 5e5, log_loss, BOOSTING,
        ("ensemble.HistGradientBoostingClassifier", HISTOGRAMS), part=0.01, program=("gbdt", {"loss": "log", "rounds": 100})),
    Row("GradientBoostingRegressor", lambda n: numbers(n, 28), 5e5, error, BOOSTING,
        ("ensemble.HistGradientBoostingRegressor", HISTOGRAMS), part=0.02),
    Row("RandomForestClassifier", lambda n: classes(n, 28), 2e5, wrong, {"n_estimators": 100},
        ("ensemble.RandomForestClassifier", {"n_estimators": 100, "n_jobs": 2}), part=0.05, held_out=5000),
    Row("RandomForestRegressor", lambda n: numbers(n, 28), 1e5, error, {"n_estimators": 100},
        ("ensemble.RandomForestRegressor", {"n_estimators": 100, "max_features": 1 / 3, "n_jobs": 2}), part=0.05,
        held_out=5000),
    Row("KMeans", blobs, 1e6, inertia, {"n_clusters": 30, "n_init": 3},
        ("cluster.KMeans", {"n_clusters": 30, "n_init": 3, "tol": 0.0, "random_state": 0}), part=0.05,
        program=("kmeans", {"kclusters": 30, "n_init": 3, "type": "rows"})),
    Row("SpectralClustering", partition, 5e4, apart, {"n_clusters": 4},
        ("cluster.SpectralClustering", {"n_clusters": 4, "affinity": "precomputed", "random_state": 0}), part=0.05, least=0.01),
    Row("TruncatedSVD", sparse, 2e5, lost_of_spectrum, {"n_components": 10},
        ("decomposition.TruncatedSVD", {"n_components": 10, "algorithm": "arpack"}), part=1e-6),
    # Twice as many topics as planted: with as many, results of different seeds differ by half.
    Row("LatentDirichletAllocation", counts, 2e5, perplexity, {"n_components": 20, "method": "online", "max_iter": 10},
        ("decomposition.LatentDirichletAllocation", {"n_components": 20, "learning_method": "online", "max_iter": 10, "n_jobs": 2,
                                                     "random_state": 0}), part=0.1),
]
# scikit-learn has no such estimator; cost.py has their programs beside other tools.
WITHOUT = ["GradientBoostingRanker", "FactorizationMachineClassifier", "FactorizationMachineRegressor", "ALS",
           "MatrixFactorization", "Word2Vec"]


# ---- one fit, in a process of its own

def peak():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


def fit(row, n, side, workers):
    """Prints seconds, quality, and by how many bytes the fit has raised the peak, beside the arrays that it was given."""
    import importlib
    import warnings
    warnings.simplefilter("ignore")
    if side == "ours":
        import paracel
        model = getattr(paracel, row.estimator)(**row.ours, n_workers=workers or None)
    else:
        module, name = row.theirs[0].split(".")
        model = getattr(importlib.import_module("sklearn." + module), name)(**row.theirs[1])
    few = row.data(FEW)
    type(model)(**{**model.get_params(), **({"n_workers": None} if side == "ours" else {})}).fit(*few)
    X, y = row.data(n + row.held_out)
    X, y, *test = (X[:n], y[:n], X[n:], y[n:]) if row.held_out else (X, y)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    before = peak()
    begin, used = time.perf_counter(), time.process_time()
    model.fit(X, y)
    print("seconds %.6f" % (time.perf_counter() - begin))
    print("processor %.6f" % (time.process_time() - used))
    print("raised %d" % (peak() - before))
    print("quality %.12g" % row.quality(model, *(test or (X, y))), flush=True)


# ---- measuring

class Bench:
    def __init__(self, options):
        self.options = options
        site = os.path.join(options.build, "python", "site")
        tools = os.path.join(cost.ROOT, "build", "python-tools")
        self.python = options.python or os.path.join(tools, "bin", "python")
        if not os.path.isdir(os.path.join(site, "paracel")):
            sys.exit(f"no {site}: a test of the package builds it, such as tool/test.sh python.test_doctests")
        places = [site, *([os.path.join(tools, "newest")] if options.newest else [])]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "2",
                            "OPENBLAS_NUM_THREADS": "2"}
        self.bin = os.path.join(site, "paracel", "_bin")

    def rows_of(self, row):
        return max(FEW, int(row.n * (1 if self.options.full else self.options.scale)))

    def run(self, words):
        return cost.run_watched(["taskset", "-c", "0,1", *words], self.environment, self.options.limit, True)

    def fit(self, row, side, workers=0):
        found = self.run([self.python, "-B", os.path.abspath(__file__), "--fit", row.name, side, str(self.rows_of(row)),
                          str(workers)])
        found.seconds = figure(found.output, "seconds", row.name)
        return found

    def program(self, row, folder, few=False):
        """The program on the data in .npy, or on few rows of it."""
        name, keys = row.program
        n = FEW if few else self.rows_of(row)
        path = os.path.join(folder, "%d.npy" % n)
        if not os.path.exists(path):
            self.run([self.python, "-B", os.path.abspath(__file__), "--save", row.name, path, str(n)])
        config = {"input" if name == "kmeans" else "training_input": path, "output": os.path.join(folder, "out"), "format": "npy"}
        config.update((k, v(n) if callable(v) else v) for k, v in keys.items())
        file = os.path.join(folder, "config.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(config, out)
        cost.warm(path)
        before = processor_time()
        found = self.run([os.path.join(self.bin, name), "--cfg_file", file])
        found.seconds = processor_time() - before
        return found

    def beside_sklearn(self, row):
        pairs = [{side: self.fit(row, *side) for side in (("theirs", 0), ("ours", 0), ("ours", 2))}
                 for _ in range(self.options.runs)]
        theirs = ("theirs", 0)
        qualities = {side: max(figure(p[side].output, "quality", row.name) for p in pairs) for side in pairs[0]}
        limit = max(qualities[theirs] + abs(qualities[theirs]) * row.part, qualities[theirs] + row.least)
        result = {"row": row.name, "rows": self.rows_of(row), "tool_seconds": statistics.median(p[theirs].seconds for p in pairs),
                  "tool_bytes": max(p[theirs].bytes for p in pairs), "equal_quality": True, "workers": {},
                  "quality": {"tool": qualities[theirs]}}
        for workers in (0, 2):
            side = ("ours", workers)
            result["equal_quality"] &= qualities[side] <= limit
            result["quality"][str(workers)] = qualities[side]
            result["workers"][str(workers)] = {
                "seconds": statistics.median(p[side].seconds for p in pairs), "bytes": max(p[side].bytes for p in pairs),
                "ratio": statistics.median(p[theirs].seconds / p[side].seconds for p in pairs)}
        slower = [result["workers"][w]["ratio"] < 1 for w in ("0", "2")]
        result["why"] = "; ".join([row.why or "not explained"] * slower[0] + [A_JOB] * slower[1])
        return result

    def beside_program(self, row):
        with tempfile.TemporaryDirectory(prefix="paracel-estimators-", dir=self.options.folder) as folder:
            small = min(self.program(row, folder, few=True).bytes for _ in range(3))
            pairs = [(self.fit(row, "ours").output, self.program(row, folder)) for _ in range(self.options.runs)]
        seconds = [(figure(said, "processor", row.name), p.seconds) for said, p in pairs]
        raised = [(figure(said, "raised", row.name), p.bytes - small) for said, p in pairs]
        result = {"row": row.name, "rows": self.rows_of(row)}
        for name, figures in (("seconds", seconds), ("bytes", raised)):
            result["fit_" + name], result["program_" + name] = (statistics.median(f) for f in zip(*figures))
            result[name + "_ratio"] = statistics.median(a / b for a, b in figures)
        return result


def processor_time():
    """Of the processes that have been waited for."""
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


def line_of(result, beside):
    if beside == "program":
        return "| {row} | {rows} | {fit_seconds:.2f} | {program_seconds:.2f} | {seconds_ratio:.2f} | {0:.0f} | {1:.0f} | " \
               "{bytes_ratio:.2f} |".format(result["fit_bytes"] / 1e6, result["program_bytes"] / 1e6, **result)
    alone, job = result["workers"]["0"], result["workers"]["2"]
    q = result["quality"]
    return "| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | %.0f | %.0f | %s%.6g, %.6g, %.6g | %s |" % (
        result["row"], result["rows"], result["tool_seconds"], alone["seconds"], job["seconds"], alone["ratio"], job["ratio"],
        result["tool_bytes"] / 1e6, alone["bytes"] / 1e6, job["bytes"] / 1e6, "" if result["equal_quality"] else "NOT THE SAME: ",
        q["tool"], q["0"], q["2"], result["why"])


HEADS = {"sklearn": "| estimator | rows | scikit-learn s | ours s | 2 w s | ratio | ratio 2 w | scikit-learn MB | ours MB | "
                    "2 w MB | quality (less is better) | why below 1 |",
         "program": "| estimator | rows | fit, processor s | program, processor s | ratio | fit MB | program MB | ratio |"}


def main(argv=None):
    parser = argparse.ArgumentParser(description="Fits of estimators beside scikit-learn or the programs.")
    parser.add_argument("--beside", choices=list(HEADS), default="sklearn")
    parser.add_argument("--scale", type=float, default=DEFAULT_SCALE, help="fraction of the full size (%g)" % DEFAULT_SCALE)
    parser.add_argument("--full", action="store_true", help="the full size")
    parser.add_argument("--rows", default="", help="names of estimators, separated by commas (all)")
    parser.add_argument("--runs", type=int, default=3, help="alternating runs (3)")
    parser.add_argument("--newest", action="store_true", help="the newest scikit-learn, of build/python-tools")
    parser.add_argument("--python", help="the interpreter (of build/python-tools)")
    parser.add_argument("--limit", type=float, default=900, help="maximum seconds of a run (900)")
    parser.add_argument("--build", default=os.path.join(cost.ROOT, "build"), help="the build (build/)")
    parser.add_argument("--folder", help="folder for data while it is needed (a temporary one)")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--fit", nargs=4, metavar=("ROW", "SIDE", "N", "WORKERS"), help=argparse.SUPPRESS)
    parser.add_argument("--save", nargs=3, metavar=("ROW", "FILE", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    named = {row.name: row for row in ROWS}
    if options.fit:
        name, side, n, workers = options.fit
        fit(named[name], int(n), side, int(workers))
        return 0
    if options.save:
        import numpy as np
        name, path, n = options.save
        X, y = named[name].data(int(n))
        np.save(path, X if y is None else np.column_stack([X, y]))
        return 0
    options.build = os.path.abspath(options.build)
    wanted = [name for name in options.rows.split(",") if name]
    rows = [row for row in ROWS if (not wanted or row.name in wanted) and (options.beside == "sklearn" or row.program)]
    if not rows or options.runs < 1 or not 0 < options.scale <= 1:
        parser.error("want --runs of at least 1, --scale above 0 and at most 1, --rows of " + ", ".join(named))
    bench = Bench(options)
    print(HEADS[options.beside] + "\n" + "|---" * (HEADS[options.beside].count("|") - 1) + "|", flush=True)
    found = {"machine": cost.machine(), "beside": options.beside, "runs": options.runs, "rows": []}
    for row in rows:
        try:
            found["rows"].append(bench.beside_sklearn(row) if options.beside == "sklearn" else bench.beside_program(row))
            print(line_of(found["rows"][-1], options.beside), flush=True)
        except cost.CannotMeasure as e:
            found["rows"].append({"row": row.name, "why": " ".join(str(e).split())})
            print("| %s | not measured: %s |" % (row.name, found["rows"][-1]["why"]), flush=True)
    if options.beside == "sklearn" and not wanted:
        print("\nwithout a counterpart in scikit-learn: " + ", ".join(WITHOUT))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

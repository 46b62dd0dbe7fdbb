#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tables of doc/which_algorithm.md: programs on the same generated data, time and quality side by side.

    tool/bench/which_algorithm.py                 every table at full size
    tool/bench/which_algorithm.py --scale 0.01    smaller
    tool/bench/which_algorithm.py --sets ratings  some of them

Jobs of two workers and one server, one after the other. `seconds` are those of the whole job, from its start until the results
are written; `CPU` the processor seconds of all its processes, which a busy machine changes less.
"""
import argparse
import json
import os
import re
import resource
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import running  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EVERY = 5  # one line in this many is for testing


class Set:
    """Generated data, and the programs that it is for: (name, program, keys)."""

    def __init__(self, name, text, generate, rows, quality, programs):
        self.name, self.text, self.generate = name, text, generate
        self.rows, self.quality, self.programs = rows, quality, programs


LR = ("lr", "lr", {"method": "lbfgs", "beta": 1e-5, "rounds": 200})
LR_L1 = ("lr_l1", "lr_l1", {"C": 1, "bias": True})
HINGE = ("linear_svm, hinge", "linear_svm", {"loss": "hinge"})
FM = {"loss": "log", "k": 8}
SOFTMAX = ("softmax", "softmax", {})
TREES = (("gbdt", "gbdt", {"loss": "log", "rounds": 100}), ("random_forest", "random_forest", {"type": "classification"}))
GAUSSIAN = ("naive_bayes, Gaussian", "naive_bayes", {"distribution": "gaussian"})
LINEAR = (LR, LR_L1, ("linear_svm, squared hinge", "linear_svm", {}), HINGE, SOFTMAX, GAUSSIAN)
FM_ROWS = (("fm, adagrad", "fm", {**FM, "rounds": 10, "beta_v": 0.005}),
           ("fm, als", "fm", {**FM, "method": "als", "rounds": 20, "beta_w": 0.001, "beta_v": 0.01}))
REGRESSIONS = (("ridge", "ridge", {"method": "exact", "penalty": 1}), ("lasso", "lasso", {"penalty": 0.01}),
               ("linear_svr", "linear_svr", {}),
               ("fm, adagrad", "fm", {"k": 8, "rounds": 20, "alpha": 0.1}),
               ("fm, als", "fm", {"k": 8, "method": "als", "rounds": 20, "beta_w": 0.001, "beta_v": 0.01}),
               ("gbdt", "gbdt", {"loss": "squared", "rounds": 100}), ("random_forest", "random_forest", {"type": "regression"}))
RATINGS = (("mf, sgd", "mf", {"k": 16, "rounds": 30, "alpha": 0.005, "beta": 0.24}),
           ("mf, bfgs", "mf", {"k": 16, "method": "bfgs", "lambda": 0.1, "lambda_bias": 0.05, "rounds": 100}),
           ("als", "als", {"k": 16, "rounds": 10, "lambda": 0.1, "lambda_bias": 0.05}),
           ("fm, adagrad", "fm", {"k": 16, "rounds": 20, "alpha": 0.05, "beta_w": 0.12, "beta_v": 0.12, "start": 0.1,
                                  "batch_size": 20000, "clamp": True}),
           ("fm, als", "fm", {"k": 16, "method": "als", "rounds": 10, "beta_w": 0.1, "beta_v": 0.1, "start": 0.1, "clamp": True}))
SETS = (
    Set("lines", "two classes on the sides of a hyperplane, 50 columns of numbers", "-m classification -k 50", 20e3, "accuracy",
        (*LINEAR, *FM_ROWS, *TREES)),
    Set("curves", "two classes whose border is curved, 20 columns of numbers", "-m friedman_classes -k 20", 20e3, "accuracy",
        (*LINEAR, *FM_ROWS, *TREES)),
    Set("words", "two classes, 20,000 features of which a row has 40", "-m sparse_classification -k 20000 --nnz 40", 20e3,
        "accuracy", (LR, LR_L1, HINGE, SOFTMAX, ("naive_bayes, Bernoulli", "naive_bayes", {"distribution": "bernoulli"}),
                                ("fm, adagrad", "fm", {**FM, "rounds": 5, "beta_v": 0.005}))),
    Set("targets on a plane", "a target, 50 columns of numbers", "-m regression -k 50", 20e3, "rmse", REGRESSIONS),
    Set("curved targets", "a target, 20 columns of numbers", "-m friedman -k 20", 20e3, "rmse", REGRESSIONS),
    Set("ratings", "users and items", "-m mf -k 10 --items 2000", 5e3, "test_rmse", RATINGS),
)


def generate(path, what, rows, build):
    """Returns: the files for training and for testing."""
    running.output_of([os.path.join(ROOT, "tool", "datagen.py"), *what.split(), "--seed", "1", "--no_truth", "-n", str(rows),
                       "-o", path], env={**os.environ, "PARACEL_BUILD": build})
    parts = [path + ".train", path + ".test"]
    with open(path, encoding="ascii") as source, open(parts[0], "w", encoding="ascii") as train, \
            open(parts[1], "w", encoding="ascii") as test:
        for number, line in enumerate(source):
            (test if number % EVERY == EVERY - 1 else train).write(line)
    os.remove(path)
    return parts


def measure(folder, program, keys, build, workers):
    config = os.path.join(folder, "config.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({**keys, "output": os.path.join(folder, "out")}, file)
    command = [os.path.join(ROOT, "prun.py"), "-w", str(workers), "-p", "1", "-c", config, "-m", "local", "--output-dir",
               os.path.join(folder, "runs"), running.built(build, program)]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    said = running.output_of(command, cwd=folder)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, dict(line.split(" ", 1) for line in said.splitlines() if re.match(r"\w+ \S+$", line))


def input_of(program, ratings, train, test):
    if not ratings:
        return {"training_input": train, "test_input": test}
    return {"rating_input" if program == "als" else "input": train, "test_input": test}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="rows, as a fraction of the page's (1)")
    parser.add_argument("--sets", default=",".join(s.name for s in SETS), help="names of data sets, separated by commas")
    parser.add_argument("--build", default=os.environ.get("PARACEL_BUILD") or os.path.join(ROOT, "build"))
    parser.add_argument("-w", "--workers", type=int, default=2)
    o = parser.parse_args()
    chosen = o.sets.split(",")
    for name in chosen:
        if name not in [s.name for s in SETS]:
            parser.error("argument --sets: found %s, want some of %s" % (name, ", ".join(s.name for s in SETS)))
    for name in sorted({"datagen", *(program for s in SETS if s.name in chosen for _, program, _ in s.programs)}):
        running.built(o.build, name)  # before some of them have run for an hour
    with tempfile.TemporaryDirectory(prefix="which_algorithm_") as folder:
        for s in SETS:
            if s.name not in chosen:
                continue
            rows = max(40, int(s.rows * o.scale))
            ratings = s.quality == "test_rmse"
            files = one_hot = generate(os.path.join(folder, "samples"), s.generate, rows, o.build)
            if ratings:  # the same ratings as features
                one_hot = generate(os.path.join(folder, "one_hot"), s.generate.replace("-m mf", "-m fm"), rows, o.build)
            print("\n%s: %s (`%s -n %d`)\n\n| program | seconds | CPU | %s |\n|---|---|---|---|" %
                  (s.name, s.text, s.generate, rows, "RMSE" if "rmse" in s.quality else s.quality), flush=True)
            for name, program, keys in s.programs:
                own = {**input_of(program, ratings and program != "fm", *(one_hot if program == "fm" else files)), **keys}
                seconds, used, found = measure(folder, program, own, o.build, o.workers)
                quality = next(found[key] for key in (s.quality, "rmse", "test_rmse", "test_accuracy") if key in found)
                print("| %s | %.1f | %.1f | %.4f |" % (name, seconds, used, float(quality)), flush=True)


if __name__ == "__main__":
    running.run(main)

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The iterative programs of the toolbox: each is resumed from an early checkpoint, loses a worker that is replaced, and loses a
server whose parameters have replicas, and ends every time with the files of an undisturbed run, byte for byte. Those without
iterations lose a worker and a server. (The programs on graphs: test_resume_graphs.py.)"""
import glob
import json
import os
import random
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, BUILD, SOURCE, JobTest, Run, main, read_bytes, wait_until  # noqa: E402

WORKERS = 3
KILL_AT = 4  # the clock whose checkpoint is waited for
ATTEMPTS = 5


def ratings(dice):
    lines = []
    for user in range(60):
        for item in dice.sample(range(40), 12):
            lines.append(f"u{user},i{item},{1 + (user * item + dice.randrange(3)) % 5}\n")
    return lines


def samples(dice, label):
    weights = [dice.gauss(0, 1) if j % 3 == 0 else 0 for j in range(30)]
    lines = []
    for _ in range(300):
        x = [round(dice.gauss(0, 1), 4) for _ in weights]
        lines.append(",".join(map(str, x + [label(sum(a * b for a, b in zip(x, weights)) + dice.gauss(0, 1))])) + "\n")
    return lines


def points(dice):
    return [",".join(str(round(dice.gauss(3 * (i % 7) * (j % 2), 2), 4)) for j in range(5)) + "\n" for i in range(700)]


def documents(dice):
    return [" ".join(f"w{(d % 4) * 10 + int(abs(dice.gauss(0, 5)))}" for _ in range(25)) + "\n" for d in range(150)]


def edges(dice):
    """Four groups with more edges inside than between them."""
    found = set()
    while len(found) < 900:
        a, b = dice.randrange(160), dice.randrange(160)
        if a != b and (a % 4 == b % 4 or dice.randrange(8) == 0):
            found.add((min(a, b), max(a, b)))
    return [f"{a} {b}\n" for a, b in sorted(found)]


class Resume(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(11)
        for name, lines in (("ratings.csv", ratings(dice)), ("targets.csv", samples(dice, lambda m: round(m, 4))),
                            ("labels.csv", samples(dice, lambda m: int(m > 0))),
                            ("words.csv", samples(dice, lambda m: "low" if m < -2 else "high" if m > 2 else "mid")),
                            ("words.svm", [f"{'yes' if i % 3 else 'no'} {1 + i % 7}:1 {9 + i % 11}:2\n" for i in range(300)]),
                            ("queries.svm", [f"{(i * 7 + i // 9) % 4} qid:{i // 9} 1:{i * 7 % 11} 2:{i * i % 13} "
                                             f"3:{dice.random()}\n" for i in range(300)]),
                            ("kinds.csv", [f"{dice.choice(('red', 'green', 'blue', '?'))},{dice.random()},{i % 7 * i % 5}\n"
                                           for i in range(300)]),
                            ("points.csv", points(dice)),
                            ("documents.txt", documents(dice)), ("edges.txt", edges(dice)),
                            ("path.txt", [f"{i} {i + 1}\n" for i in range(150)])):
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                file.writelines(lines)

    def files(self, output, out, printed=False):
        """What the run has written, or printed, without its timings. The files are removed for the next run."""
        if printed:
            return [line for line in out.splitlines() if not line.startswith("output ")]
        found = {}
        folder = os.path.join(self.folder, output)
        for path in sorted(glob.glob(folder + "/**", recursive=True)):
            name = os.path.relpath(path, folder)
            if os.path.isfile(path) and name != "metrics.jsonl":
                found[name] = read_bytes(path)
        shutil.rmtree(folder)
        return found

    def run_and_kill(self, program, find, rank, *options, output, **config):
        """A run that loses a process once the checkpoint of clock KILL_AT is complete. Repeated if the run has ended before that,
        as it may on a fast machine."""
        for attempt in range(ATTEMPTS):
            self.write_config("killed.json", output=output, **config)
            folder = self.not_there("checkpoints")
            run = self.start("-w", str(WORKERS), "-c", "killed.json", "--checkpoint-dir", folder, "--checkpoint-every", "1",
                             "--replicas", "2", "-p", "2", *options, program)
            made = os.path.join(folder, f"{KILL_AT:010d}", "manifest.json")
            wait_until(lambda: os.path.exists(made) or run.process.poll() is not None, 40, 0.002)
            victim = find(run, rank) if run.process.poll() is None else None
            if victim is not None:
                victim.kill()
            self.assertEqual(run.wait(60), 0, run.err() + run.out())
            if victim is not None and "lost" in run.err():
                return run.err(), run.out()
        self.fail(f"the job ended {ATTEMPTS} times before it could be disturbed: " + run.err())

    def check(self, name, printed=False, **config):
        program = os.path.join(BIN, name)
        config = {**dict.fromkeys(("training_input", "method", "rounds", "alpha", "beta")), **config}
        self.write_config("alone.json", output="alone/", **config)
        status, out, err = self.prun("-w", str(WORKERS), "-p", "2", "-c", "alone.json", program)
        self.assertEqual(status, 0, err)
        expected = self.files("alone", out, printed)
        self.assertTrue(expected)

        with self.subTest(what="checkpoints change nothing"):
            folder = self.not_there("checkpoints")
            self.write_config("made.json", output="made/", **config)
            status, out, err = self.prun("-w", str(WORKERS), "-p", "2", "-c", "made.json", "--checkpoint-dir", folder,
                                         "--checkpoint-every", "1", "--checkpoint-keep", "1000", program)
            self.assertEqual(status, 0, err)
            self.assertEqual(self.files("made", out, printed), expected)
        clocks = sorted(os.listdir(folder))
        clocks = [c for c in clocks if c.isdigit()]
        self.assertGreater(len(clocks), KILL_AT)
        for clock in (clocks[1], clocks[len(clocks) // 2], clocks[-1]):
            with self.subTest(what="resumed", clock=clock):
                self.write_config("resumed.json", output="resumed/", **config)
                status, out, err = self.prun("-w", str(WORKERS), "-p", "1", "-c", "resumed.json", "--resume",
                                             os.path.join(folder, clock), "--checkpoint-dir", self.not_there("more"), program)
                self.assertEqual(status, 0, err)
                self.assertEqual(self.files("resumed", out, printed), expected)
        with self.subTest(what="a worker is killed"):
            err, out = self.run_and_kill(program, Run.worker, 1, "--on-worker-death", "wait:30", output="replaced/", **config)
            self.assertIn("worker 1 is restarted", err)
            self.assertEqual(self.files("replaced", out, printed), expected)
        with self.subTest(what="a server is killed"):
            _, out = self.run_and_kill(program, Run.server, 0, output="failover/", **config)
            self.assertEqual(self.files("failover", out, printed), expected)

    def test_lr(self):
        for method in ("dgd", "ipm"):
            with self.subTest(method=method):
                self.check("lr", training_input="labels.csv", method=method, rounds=12, alpha=0.01, beta=0.01)

    def test_lr_with_immediate_updates(self):
        """No two runs are the same: their objectives are compared."""
        for method in ("downpour", "agd"):
            config = {"training_input": "labels.csv", "method": method, "rounds": 20, "alpha": 0.01, "beta": 0.01}
            self.write_config("alone.json", output="alone/", **config)
            status, _, err = self.prun("-w", str(WORKERS), "-c", "alone.json", os.path.join(BIN, "lr"))
            self.assertEqual(status, 0, err)
            objective = self.objective("alone")
            for find, number, options in ((Run.worker, 1, ("--on-worker-death", "wait:30")), (Run.server, 0, ())):
                with self.subTest(method=method, find=find.__name__):
                    self.run_and_kill(os.path.join(BIN, "lr"), find, number, *options, output="killed/", **config)
                    self.assertAlmostEqual(self.objective("killed"), objective, delta=0.1 * objective)

    def objective(self, output):
        return json.loads(self.files(output, "")["model.json"])["objective"]

    def test_ridge(self):
        self.check("ridge", training_input="targets.csv", method="sgd", rounds=12, alpha=0.001, beta=0.01)

    def test_als_validate(self):
        nothing = dict.fromkeys(("training_input", "method", "rounds", "alpha", "beta"))
        self.write_config("factors.json", **nothing, output="factors/", rating_input="ratings.csv", k=4)
        status, _, err = self.prun("-w", "1", "-c", "factors.json", os.path.join(BIN, "als"))
        self.assertEqual(status, 0, err)
        # It has no files: what it prints is compared.
        self.check("als_validate", printed=True, rating_input="ratings.csv", factor_input="factors/H_*",
                   validate_input="ratings.csv", lambdas=[0.01 * 2 ** i for i in range(12)])

    def test_als(self):
        for form in ({}, {"implicit": True}, {"implicit": True, "cg_steps": 2}):
            with self.subTest(form=form):
                self.check("als", rating_input="ratings.csv", k=4, rounds=20, **form, **{"lambda": 0.1})

    def test_mf(self):
        self.check("mf", input="ratings.csv", k=4, rounds=12, alpha=0.01, beta=0.1, clocks_per_round=3)

    def test_mf_by_minimisers(self):
        for method in ("cg", "bfgs"):
            with self.subTest(method=method):
                self.check("mf", input="ratings.csv", k=4, method=method, rounds=60, tolerance=0, **{"lambda": 0.1})

    def test_fm(self):
        self.check("fm", training_input="targets.csv", validation_input="targets.csv", patience=3, k=3, rounds=5, batch_size=60,
                   start=0.1)
        self.check("fm", training_input="words.svm", loss="log", method="sgd", k=3, rounds=4, batch_size=60)

    def test_fm_by_als(self):
        self.check("fm", training_input="targets.csv", validation_input="targets.csv", patience=30, method="als", k=3, rounds=12,
                   beta_w=0.1, beta_v=0.1)
        self.check("fm", training_input="words.svm", loss="log", method="als", k=3, rounds=12, beta_v=0.1)

    def test_word2vec(self):
        for method, loss in (("skip_gram", "negative_sampling"), ("cbow", "hierarchical_softmax")):
            with self.subTest(method=method):
                self.check("word2vec", input="documents.txt", method=method, loss=loss, k=8, rounds=3, batch_size=1000,
                           min_count=1)

    def test_lda(self):
        self.check("gLDA", input="documents.txt", k_topics=4, iters=12, clocks_per_round=2, alpha=0.1, beta=0.1,
                   optimize_every=3, report_every=2)

    def test_lda_online(self):
        self.check("gLDA", input="documents.txt", method="online", k_topics=4, iters=3, batch_size=40, alpha=0.1, beta=0.1,
                   report_every=2, dump_documents=True)
        # Each batch takes the place of rows that are removed.
        self.check("gLDA", input="documents.txt", method="online", k_topics=4, iters=10, batch_size=1000, learning_decay=0,
                   alpha=0.1, beta=0.1)

    def test_kmeans(self):
        self.check("kmeans", input="points.csv", type="rows", kclusters=9, rounds=100, n_init=3)
        self.check("kmeans", input="points.csv", type="rows", kclusters=9, rounds=12, batch_size=64)

    def test_lasso(self):
        self.check("lasso", training_input="targets.csv", path=12, rounds=1000)

    def test_lr_l1(self):
        self.check("lr_l1", input="labels.csv", C=50.0, rounds=1000, block_size=4)

    def test_gbdt(self):
        self.check("gbdt", training_input="labels.csv", loss="log", rounds=12, max_leaves=6, subsample=0.8, colsample=0.5,
                   validation_input="labels.csv", early_stopping=5)
        self.check("gbdt", training_input="queries.svm", loss="lambdamart", group="qid", rounds=12, max_leaves=6,
                   validation_input="queries.svm", early_stopping=8)
        self.check("gbdt", training_input="kinds.csv", loss="squared", categorical=["0"], rounds=12, max_leaves=6)

    def test_random_forest(self):
        self.check("random_forest", training_input="labels.csv", type="classification", trees=12)

    def test_runs_that_continue_a_model(self):
        for name, rounds, first, config in (
                ("gbdt", "rounds", 3, {"training_input": "labels.csv", "loss": "log", "max_leaves": 6, "subsample": 0.8}),
                ("random_forest", "trees", 3, {"training_input": "labels.csv", "type": "classification"}),
                ("kmeans", "rounds", 2, {"input": "points.csv", "type": "rows", "kclusters": 9, "batch_size": 64}),
                ("mf", "rounds", 3, {"input": "ratings.csv", "k": 4, "alpha": 0.01}),
                ("als", "rounds", 2, {"rating_input": "ratings.csv", "k": 4}),
                ("fm", "rounds", 2, {"training_input": "targets.csv", "k": 3, "batch_size": 60}),
                ("word2vec", "rounds", 1,
                 {"input": "documents.txt", "k": 8, "batch_size": 1000, "min_count": 1, "format": "npy"}),
                ("gLDA", "iters", 3, {"input": "documents.txt", "k_topics": 4}),
                ("gLDA", "iters", 2, {"input": "documents.txt", "method": "online", "k_topics": 4, "batch_size": 40})):
            with self.subTest(name=name, config=config):
                self.check_continued(name, rounds, first, config)

    def check_continued(self, name, rounds, first, config):
        self.write_config("model.json", output="model/", **{"training_input": None, "method": None, "rounds": None, "alpha": None,
                                                           "beta": None, **config, rounds: first})
        status, _, err = self.prun("-w", str(WORKERS), "-c", "model.json", os.path.join(BIN, name))
        self.assertEqual(status, 0, err)
        self.check(name, initial_model="model", **config, **{rounds: 12})

    def test_linear_models_that_continue_one(self):
        steps = {"alpha": 0.01, "beta": 1e-3, "decay": 0.5}
        margins = {"training_input": "words.csv", "validation_input": "words.csv", "patience": 100, "loss": "hinge", "C": 5.0}
        for name, config in (("lr", {"training_input": "labels.csv", "method": "ipm", **steps}),
                             ("lr", {"training_input": "labels.csv", "method": "lbfgs", "beta": 1e-4, "gradient_tolerance": 0}),
                             ("ridge", {"training_input": "targets.csv", "method": "sgd", **steps}),
                             ("linear_svm", {**margins, "method": "newton"}), ("linear_svm", {**margins, "method": "dual"})):
            with self.subTest(name=name, config=config):
                self.check_continued(name, "rounds", 2, config)

    def test_lr_by_minimisers(self):
        for method, more in (("lbfgs", {}), ("newton", {}), ("owlqn", {"l1": 0.01})):
            with self.subTest(method=method):
                self.check("lr", training_input="labels.csv", method=method, rounds=200, alpha=1.0, beta=1e-4,
                           tolerance=1e-13, **more)

    def test_softmax(self):
        for method in ("newton", "lbfgs"):
            with self.subTest(method=method):
                self.check("softmax", training_input="words.csv", validation_input="words.csv", method=method, C=50.0, rounds=200)

    def test_a_pass_of_naive_bayes(self):
        for distribution in ("gaussian", "bernoulli"):
            config = {**dict.fromkeys(("training_input", "method", "rounds", "alpha", "beta")), "distribution": distribution,
                      "input": "words.csv"}
            self.write_config("alone.json", output="alone/", **config)
            folder = self.not_there("checkpoints")
            program = os.path.join(BIN, "naive_bayes")
            expected = None
            for options in ((), ("--checkpoint-dir", folder, "--checkpoint-every", "1"), ("--resume", folder)):
                with self.subTest(distribution=distribution, options=options):
                    status, out, err = self.prun("-w", str(WORKERS), "-p", "2", "-c", "alone.json", *options, program)
                    self.assertEqual(status, 0, err)
                    found = self.files("alone", out)
                    self.assertEqual(found, expected or found)
                    expected = found
            self.assertIn(f"{1:010d}", os.listdir(folder))

    def test_linear_svm(self):
        for loss, method in (("hinge", "dual"), ("hinge", "newton"), ("squared_hinge", "newton")):
            with self.subTest(loss=loss, method=method):
                self.check("linear_svm", training_input="words.csv", validation_input="words.csv", patience=100, loss=loss, C=5.0,
                           method=method, rounds=60)

    def test_linear_svr(self):
        self.check("linear_svr", training_input="targets.csv", rounds=200)

    def test_spectral_clustering(self):
        self.check("spectral_clustering", input="edges.txt", kclusters=4, n_init=6)
        self.check("spectral_clustering", input="path.txt", kclusters=2, n_init=1, rounds=60)  # with a basis that grows

    def test_lda_under_ssp_has_no_replacements(self):
        nothing = dict.fromkeys(("training_input", "method", "rounds", "alpha", "beta"))
        self.write_config("ssp.json", **nothing, input="documents.txt", k_topics=4, iters=2, consistency="ssp")
        status, _, err = self.prun("-w", "2", "-c", "ssp.json", "--on-worker-death", "wait:5", os.path.join(BIN, "gLDA"))
        self.assertEqual(status, 2, err)
        self.assertRegex(err, r'ssp.json:\d+:\d+: key "consistency": with it no process can replace a worker of gLDA')

    def test_programs_without_iterations_go_on_with_a_replaced_worker_or_server(self):
        dice = random.Random(8)
        words = [" ".join(f"w{dice.randrange(5000)}" for _ in range(40)) + "\n" for _ in range(20000)]
        rows = [f"r{r},c{c},{dice.randrange(1, 6)}\n" for r in range(3000) for c in dice.sample(range(300), 20)]
        labelled = [",".join(f"{dice.gauss(i % 3, 1):.6f}" for _ in range(20)) + f",class {i % 3}\n" for i in range(20000)]
        similar = [f"r{r}\t" + "|".join(f"r{s}:{(r * s) % 100 / 100}" for s in dice.sample(range(3000), 20) if s != r) + "\n"
                   for r in range(3000)]
        vectors = [f"v{i}," + ",".join(f"{dice.gauss(0, 1):.4f}" for _ in range(12)) + "\n" for i in range(1500)]
        for name, lines in (("words.txt", words), ("rows.csv", rows), ("samples.csv", labelled), ("vectors.csv", vectors),
                            ("others.csv", vectors[:700]), ("similar.txt", similar)):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.writelines(lines)
        nothing = dict.fromkeys(("training_input", "method", "rounds", "alpha", "beta"))
        for program, config in (("wc", {"input": "words.txt", "dump": True}), ("sim_sparse", {"input": "rows.csv", "topk": 5}),
                                ("naive_bayes", {"input": "samples.csv", "distribution": "gaussian"}),
                                ("sim_dense", {"input": "vectors.csv", "topk": 5, "simbar": 0.0}),
                                ("ab_sim_dense", {"input_a": "vectors.csv", "input_b": "others.csv", "topk": 5, "simbar": 0.0}),
                                ("adjust_ktop_sparse",
                                 {"rating_input": "rows.csv", "sim_input": "similar.txt", "lower bound": 1})):
            with self.subTest(program=program):
                self.write_config("alone.json", output="alone/", **nothing, **config)
                status, out, err = self.prun("-w", str(WORKERS), "-c", "alone.json", os.path.join(BIN, program))
                self.assertEqual(status, 0, err)
                expected = self.files("alone", out)
                self.assertTrue(expected)
                for victim, number, said in ((Run.worker, 1, "worker 1 is restarted"), (Run.server, 0, "server s0 is restarted")):
                    self.kill_after_the_start(program, victim, number, said, output="killed/", **nothing, **config)
                    self.assertEqual(self.files("killed", out), expected)

    def kill_after_the_start(self, program, find, number, said, **config):
        self.write_config("killed.json", **config)
        for _ in range(ATTEMPTS):
            run = self.start("-v", "-w", str(WORKERS), "-p", "2", "--replicas", "2", "-c", "killed.json", "--on-worker-death",
                             "wait:30", os.path.join(BIN, program))
            wait_until(lambda: "event started" in run.err() or run.process.poll() is not None, 20, 0.002)
            victim = find(run, number)
            if victim is not None:
                victim.kill()
            self.assertEqual(run.wait(60), 0, run.err() + run.out())
            if said in run.err():
                return
        self.fail(f"the job ended {ATTEMPTS} times before a process could be killed: " + run.err())

    def test_svd(self):
        self.check("svd", input="ratings.csv", k=3, tolerance=1e-12)
        self.check("svd", input="ratings.csv", k=3, tolerance=1e-12, basis=15)
        # The third singular value is small, so that bases on both sides are used.
        with open(os.path.join(self.folder, "small.csv"), "w", encoding="utf-8") as file:
            file.writelines(f"{i},{j},{(i + 1) * (j + 1) + 1e-3 * (i % 7) * (j % 5) + 1e-7 * ((i * j) % 11)}\n"
                            for i in range(50) for j in range(40))
        self.check("svd", input="small.csv", k=3, tolerance=1e-13, rounds=6)

    def generate(self, kind, name, *options):
        subprocess.run([sys.executable, "-B", os.path.join(SOURCE, "tool", "datagen.py"), "-m", kind, "-o",
                        os.path.join(self.folder, name), *options], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "PARACEL_BUILD": BUILD})

    def test_steady_state(self):
        self.generate("steady_state", "graph", "-n", "400", "--items", "60", "--seed", "3")
        self.check("steady_state_inversion", bigraph_input="graph", distribution_input="graph.dis", rounds=300, ktop=5)

    def test_dtr(self):
        self.generate("factors", "users", "-n", "400", "-k", "5", "--seed", "1")
        self.generate("factors", "items", "-n", "60", "-k", "5", "--seed", "2")
        self.check("dtr", user_fac_input="users", item_fac_input="items", level=4, tree_start_index=0, tree_end_index=3)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""initial_model of programs of factors, words and topics: a run that continues a saved model. Two halves beside one whole run
where they are equal, for 1 and 2 workers; new users, items, features and words; what is refused. Options: names of tests."""
import os
import random
import unittest

import numpy

from initial_model_case import InitialModelCase

ROWS = 300


class InitialFactorsTest(InitialModelCase):
    # ---- factors

    def ratings(self, name, users=range(40), items=range(30), names=False):
        """About a third of the cells of these users and items."""
        dice = random.Random(6)
        cells = [(u, i, dice.random(), dice.choice([1, 2, 3, 4, 4.5, 5])) for u in range(40) for i in range(30)]
        prefix = "user " if names else ""
        return self.path(name, "".join(f"{prefix}{u},{i},{r}\n" for u, i, draw, r in cells
                                       if draw < 0.3 and u in users and i in items))

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
        self.refused("word2vec", "found cbow, want skip_gram as in the initial model", 3, initial_model=model, method="cbow",
                     **keys)
        self.refused("word2vec", "its tree is that of one text's counts", 3, initial_model=model, loss="hierarchical_softmax",
                     **keys)
        self.run_program("word2vec", k=4, format="npy", loss="hierarchical_softmax", **keys)
        self.refused("word2vec", "found no outputs and counts", initial_model=self.output, **keys)

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

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

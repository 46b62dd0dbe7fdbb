#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Topics by online variational inference, tested by running jobs: the parameters and the bound of an oracle that follows the
paper in logarithms, scikit-learn's perplexity, any number of workers in every mode, the bound that batches of all documents
never lower, saved models."""
import math
import os
import random
import unittest

import numpy

from alg_job import LONG, MPI, ONLY_LONG, AlgorithmCase


def digamma(x):
    """By the recurrence, 20 steps up, and from there asymptotically."""
    x = numpy.asarray(x, float)
    y = x + 20
    r = 1 / (y * y)
    return (numpy.log(y) - 0.5 / y - r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r / 132))))
            - (1 / (x[..., None] + numpy.arange(20))).sum(-1))


def log_gamma(x):
    return numpy.vectorize(math.lgamma)(x)


def expected_log(x):
    """E[log] under the Dirichlet distributions that are the rows."""
    return digamma(x) - digamma(x.sum(-1, keepdims=True))


class Oracle:
    """lambda_ is K x V. Documents are pairs of word numbers and counts."""

    def __init__(self, documents, start, alpha, beta):
        self.documents, self.lambda_, self.alpha, self.beta = documents, start, alpha, beta
        self.steps = 0

    def infer(self, words, counts, log_beta):
        gamma = numpy.ones(len(self.lambda_))
        for _ in range(100):
            p = self.responsibilities(gamma, log_beta[:, words])[0]
            before, gamma = gamma, self.alpha + p @ counts
            if abs(gamma - before).mean() < 1e-3:
                break
        return gamma, *self.responsibilities(gamma, log_beta[:, words])

    @staticmethod
    def responsibilities(gamma, log_beta):
        log_p = expected_log(gamma)[:, None] + log_beta
        most = log_p.max(0)
        log_sum = most + numpy.log(numpy.exp(log_p - most).sum(0))
        return numpy.exp(log_p - log_sum), log_sum

    def train(self, passes, batch_size, offset, decay):
        for _ in range(passes):
            for begin in range(0, len(self.documents), batch_size):
                batch = self.documents[begin:begin + batch_size]
                log_beta = expected_log(self.lambda_)
                expected = numpy.zeros_like(self.lambda_)
                for words, counts in batch:
                    expected[:, words] += self.infer(words, counts, log_beta)[1] * counts
                self.steps += 1
                rho = (offset + self.steps) ** -decay
                self.lambda_ = (1 - rho) * self.lambda_ + rho * (self.beta + len(self.documents) / len(batch) * expected)

    def bound(self):
        """Of all tokens, and the documents' shares of topics."""
        log_beta = expected_log(self.lambda_)
        topics, words_total = self.lambda_.shape
        shares = []
        value = ((self.beta - self.lambda_) * log_beta + log_gamma(self.lambda_) - math.lgamma(self.beta)).sum()
        value += (math.lgamma(words_total * self.beta) - log_gamma(self.lambda_.sum(1))).sum()
        for words, counts in self.documents:
            gamma, _, log_sum = self.infer(words, counts, log_beta)
            value += log_sum @ counts + ((self.alpha - gamma) * expected_log(gamma) + log_gamma(gamma)).sum()
            value += math.lgamma(topics * self.alpha) - math.lgamma(gamma.sum()) - topics * math.lgamma(self.alpha)
            shares.append(gamma / gamma.sum())
        return value, shares


def completion(phi, documents, alpha):
    """Perplexity of every other word of these lists of words, given the words between them. phi: K x V."""
    total = count = 0
    for words in documents:
        theta = numpy.full(len(phi), 1 / len(phi))
        p = phi[:, words[::2]]
        for _ in range(100):
            theta = alpha + theta * (p / (theta @ p)).sum(1)
            theta /= theta.sum()
        total += numpy.log(theta @ phi[:, words[1::2]]).sum()
        count += len(words[1::2])
    return math.exp(-total / count)


class LdaOnlineTest(AlgorithmCase):
    program = "gLDA"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Three topics of ten words each; a document mostly contains one of them. Line 70 has no word.
        generator = random.Random(2)
        cls.text = os.path.join(cls.folder, "libsvm")
        cls.documents = []
        with open(cls.text, "w", encoding="ascii") as file:
            for document in range(150):
                topic = document % 3
                words = [10 * (topic if generator.random() < 0.9 else generator.randrange(3)) + generator.randrange(10)
                         for _ in range(generator.randrange(20, 60) if document != 69 else 0)]
                distinct = sorted(set(words))
                cls.documents.append((numpy.array(distinct, int), numpy.array([words.count(w) for w in distinct], float)))
                file.write("0 " + " ".join(f"{w + 1}:{words.count(w)}" for w in distinct) + "\n")

    def train(self, workers=1, servers=1, mode="embedded", **keys):
        return self.results(self.job(workers, servers, mode, **{
            "input": self.text, "k_topics": 3, "alpha": 0.1, "beta": 0.01, "iters": 3, "top_words": 10, "seed": 1,
            "method": "online", "batch_size": 40, **keys}))

    def rows(self, name, workers):
        """{number or word: numbers} of a result."""
        lines = (line.split("\t") for line in self.lines(name, workers))
        return {int(key): numpy.array([float(v) for v in values.split("|")]) for key, values in lines}

    def model(self, workers=1, beta=0.01):
        """lambda, K x V."""
        rows = self.rows("word_topic", workers)
        found = numpy.array([rows[key] for key in sorted(rows)]).T + beta
        totals = [float(v) for v in self.lines("topic_counts", 1)[0].split("|")]
        numpy.testing.assert_allclose(found.sum(1), numpy.array(totals) + found.shape[1] * beta, rtol=1e-9)
        return found

    def test_it_is_the_algorithm_of_the_paper(self):
        for keys in ({"batch_size": 150}, {}, {"learning_offset": 0, "learning_decay": 1, "k_topics": 7},
                     {"beta": 1e-4, "alpha": 1e-3},              # exp(psi(1e-4)) is 0
                     {"learning_decay": 0, "batch_size": 1000},  # batch variational inference
                     {"learning_decay": 0.001, "learning_offset": 0, "batch_size": 5, "iters": 4}):  # a factor below 1e-250
            with self.subTest(keys=keys):
                beta, alpha = keys.get("beta", 0.01), keys.get("alpha", 0.1)
                self.train(**{**keys, "iters": 0})
                start = self.model(beta=beta)
                self.assertAlmostEqual(start.mean(), 1, delta=0.1)
                oracle = Oracle(self.documents, start, alpha, beta)
                oracle.train(keys.get("iters", 3), keys.get("batch_size", 40), keys.get("learning_offset", 10),
                             keys.get("learning_decay", 0.7))
                said = self.train(dump_documents=True, **keys)
                numpy.testing.assert_allclose(self.model(beta=beta), oracle.lambda_, rtol=1e-6)
                bound, shares = oracle.bound()
                self.assertAlmostEqual(said["bound"] * said["tokens"] / bound, 1, delta=1e-9)
                self.assertEqual(said["bound"], self.curve()[-1]["bound"])
                found = self.rows("documents", 1)
                numpy.testing.assert_allclose([found[d] for d in range(150)], shares, rtol=1e-6)

    def test_any_number_of_workers_and_servers_is_the_same(self):
        for keys in ({}, {"batch_size": 3, "iters": 1}, {"batch_size": 1000, "learning_decay": 0}):
            said = self.train(dump_documents=True, test_stride=10, **keys)
            one, shares = self.model(), self.rows("documents", 1)
            self.assertEqual(said["test_tokens"], sum(int(c.sum()) // 2 for _, c in self.documents[9::10]))
            for workers, servers, mode in ((2, 1, "local"), (4, 3, "local"), (2, 2, "mpi")):
                if mode == "mpi" and not MPI:
                    continue
                with self.subTest(keys=keys, workers=workers, mode=mode):
                    again = self.train(workers, servers, mode, dump_documents=True, test_stride=10, **keys)
                    numpy.testing.assert_allclose(self.model(workers), one, rtol=1e-6)
                    found = self.rows("documents", workers)
                    self.assertEqual(sorted(found), sorted(shares))
                    for d, share in shares.items():
                        numpy.testing.assert_allclose(found[d], share, rtol=1e-6)
                    for name in ("bound", "perplexity"):
                        self.assertAlmostEqual(again[name] / said[name], 1, delta=1e-9)

    def test_the_same_seed_gives_the_same_bits(self):
        runs = []
        for seed in (1, 1, 2):
            self.train(2, 3, "local", seed=seed)
            runs.append(self.lines("word_topic", 2))
        self.assertEqual(runs[0], runs[1])
        self.assertNotEqual(runs[0], runs[2])

    def test_batches_of_all_documents_never_lower_the_bound(self):
        self.train(2, 1, "local", batch_size=150, learning_decay=0, report_every=1, iters=30, document_tolerance=1e-9,
                   document_steps=1000)
        values = [line["bound"] for line in self.curve()]
        self.assertEqual(len(values), 30)
        for before, after in zip(values, values[1:]):
            self.assertGreaterEqual(after, before - 1e-9)
        self.assertGreater(values[-1], values[0] + 0.1)

    def test_planted_topics_are_found_and_a_model_is_read_back(self):
        for form in ("text", "npy"):
            new = self.path("new", "0 2:2 4:1 6:1 8:1 99:1\n0 26:1 22:1\n\n0 99:1\n")
            self.train(2, 1, "local", format=form, iters=10, predict_input=new)
            topics = [line.split("\t")[1].split("|") for line in self.lines("lda_topics", 1)]
            self.assertEqual(sorted(sorted(int(entry.rsplit(":", 1)[0]) for entry in topic) for topic in topics),
                             [list(range(10 * t + 1, 10 * t + 11)) for t in range(3)])
            model = self.output
            if form == "text":
                at_once = self.lines("predictions", 2)
            self.job(3, model_input=model, predict_input=new)
            self.assertEqual(self.lines("predictions", 3), at_once)
        found = self.rows("predictions", 3)
        self.assertGreater(found[0].max(), 0.9)
        self.assertNotEqual(found[0].argmax(), found[1].argmax())

    def test_it_stops_when_the_bound_does_not_change(self):
        said = self.train(iters=500, report_every=5, tolerance=1e-3)
        self.assertLess(said["sweeps"], 200)
        self.assertEqual(self.curve()[-1]["round"], said["sweeps"])

    def test_keys_of_the_other_method_are_refused(self):
        online = {"method": "online", "input": self.text}
        for keys in ({"sampler": "mh"}, {"clocks_per_round": 2}, {"optimize_every": 5}, {"check_counts": True}):
            said = self.job(1, 1, "embedded", status=3, **online, **keys)
            self.assertIn(f'key "{next(iter(keys))}": not with method online', said)
        self.assertIn("want bsp", self.job(1, 1, "embedded", status=3, **online, ssp_switch=True, limit_s=2))
        self.assertIn("want bsp", self.job(1, 1, "embedded", status=3, **online, consistency="ssp"))
        for key in ("batch_size", "learning_offset", "learning_decay", "document_steps", "document_tolerance"):
            said = self.job(1, 1, "embedded", status=3, input=self.text, **{key: 1})
            self.assertIn(f'key "{key}": only with method online', said)
        for keys in ({"batch_size": 0}, {"learning_offset": -1}, {"learning_decay": 1.5}, {"document_steps": 0},
                     {"method": "batch"}):
            self.assertIn(f'"{next(iter(keys))}"', self.job(1, 1, "embedded", status=3, **{**online, **keys}))

    def scikit_learn(self, training, words, passes, seed, **settings):
        """Its topics, K x V, from lists of words."""
        csr_matrix = self.library("scipy.sparse").csr_matrix
        LatentDirichletAllocation = self.library("sklearn.decomposition").LatentDirichletAllocation
        rows = numpy.repeat(numpy.arange(len(training)), [len(t) for t in training])
        matrix = csr_matrix((numpy.ones(len(rows)), (rows, numpy.concatenate(training))), shape=(len(training), words))
        found = LatentDirichletAllocation(learning_method="online", learning_offset=10, learning_decay=0.7, max_iter=passes,
                                          random_state=seed, **settings).fit(matrix).components_
        return found / found.sum(1, keepdims=True)

    def compare(self, path, passes, seeds, workers, k, alpha, beta, batch_size):
        """Mean perplexities over seeds, here and in scikit-learn; every tenth document is for testing."""
        with open(path, encoding="ascii") as file:
            documents = [[int(w) - 1 for field in line.split()[1:] for w, n in (field.split(":"),) for _ in range(int(n))]
                         for line in file]
        training = [d for i, d in enumerate(documents) if i % 10 != 9]
        test = documents[9::10]
        words = 1 + max(w for d in documents for w in d)
        here, there = [], []
        for seed in seeds:
            phi = self.scikit_learn(training, words, passes, seed, n_components=k, batch_size=batch_size, doc_topic_prior=alpha,
                                    topic_word_prior=beta)
            there.append(completion(phi, test, alpha))
            said = self.train(workers, 1, "local", input=path, k_topics=k, alpha=alpha, beta=beta, iters=passes, seed=seed,
                              batch_size=batch_size, test_stride=10, report_every=0)
            here.append(said["perplexity"])
            found = self.model(workers, beta)
            self.assertAlmostEqual(completion(found / found.sum(1, keepdims=True), test, alpha) / here[-1], 1, delta=1e-9)
        print(f"{os.path.basename(path)}, {passes} passes: perplexity {here}, scikit-learn {there}")
        return sum(here) / len(here), sum(there) / len(there)

    def test_generated_documents_have_the_perplexity_of_scikit_learn(self):
        dice = numpy.random.default_rng(5)
        phi = dice.dirichlet(numpy.full(300, 0.05), 6)
        path = os.path.join(self.folder, "generated")
        with open(path, "w", encoding="ascii") as file:
            for _ in range(500):
                counts = dice.multinomial(dice.integers(30, 90), dice.dirichlet(numpy.full(6, 0.1)) @ phi)
                file.write("0 " + " ".join(f"{w + 1}:{n}" for w, n in enumerate(counts) if n) + "\n")
        here, there = self.compare(path, 15, range(3), 2, 10, 0.1, 0.01, 50)
        self.assertLessEqual(here, 1.05 * there)

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_the_bible_has_the_perplexity_of_scikit_learn(self):
        here, there = self.compare(self.shared("bible-kjv", "lda.libsvm"), 10, range(2), 2, 20, 0.1, 0.01, 128)
        self.assertLessEqual(here, 1.05 * there)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Topics, tested by running jobs: perplexity of the Bible, consistent counts at every clock, saved models. With PARACEL_LONG=1
all targets of TOOLBOX.md, over seeds, workers and samplers."""
import os
import random
import unittest

from alg_job import LONG, MPI, ONLY_LONG, AlgorithmCase


class LdaTest(AlgorithmCase):
    program = "gLDA"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Three topics of ten words each; a document mostly contains one of them.
        generator = random.Random(2)
        cls.text = os.path.join(cls.folder, "text")
        cls.libsvm = os.path.join(cls.folder, "libsvm")
        with open(cls.text, "w", encoding="utf-8") as text, open(cls.libsvm, "w", encoding="ascii") as libsvm:
            for document in range(150):
                topic = document % 3
                words = [10 * (topic if generator.random() < 0.9 else generator.randrange(3)) + generator.randrange(10)
                         for _ in range(generator.randrange(20, 60))]
                text.write("\t ".join(f"w{w:02d}" for w in words) + generator.choice(["\n", "\r\n", "\n\n"]))
                libsvm.write("0 " + " ".join(f"{w + 1}:{words.count(w)}" for w in sorted(set(words))) + "\n")

    def train(self, workers=1, servers=1, mode="local", **keys):
        return self.results(self.job(workers, servers, mode, **{
            "input": self.text, "k_topics": 3, "alpha": 0.1, "beta": 0.1, "iters": 60, "top_words": 10, "seed": 1,
            "check_counts": not keys.get("ssp_switch", False), **keys}))

    def found_topics(self, workers=1):
        """The sets of words of the topics; every word belongs to the topic in which it was planted."""
        topics = [line.split("\t")[1].split("|") for line in self.lines("lda_topics", 1)]
        return sorted(tuple(sorted(entry.rsplit(":", 1)[0] for entry in topic)) for topic in topics)

    def test_planted_topics_are_found_by_both_samplers_in_every_mode(self):
        planted = [tuple(f"w{10 * t + w:02d}" for w in range(10)) for t in range(3)]
        for workers, servers, mode, keys in ((1, 1, "embedded", {}), (2, 1, "local", {"sampler": "mh"}),
                                             (4, 3, "local", {"clocks_per_round": 3}),
                                             (4, 1, "local", {"ssp_switch": True, "limit_s": 3}),
                                             (2, 1, "mpi", {"optimize_every": 20})):
            if mode == "mpi" and not MPI:
                continue
            with self.subTest(workers=workers, mode=mode, keys=keys):
                said = self.train(workers, servers, mode, **keys)
                self.assertEqual(self.found_topics(), planted)
                self.assertEqual(said["documents"], 150)
                self.assertEqual(said["words"], 30)

    def test_libsvm_and_text_are_the_same_documents(self):
        text = self.train(2)
        libsvm = self.train(2, input=self.libsvm)
        for name in ("documents", "tokens", "words"):
            self.assertEqual(text[name], libsvm[name])
        self.assertEqual(self.found_topics(), sorted(
            tuple(sorted(str(10 * t + w + 1) for w in range(10))) for t in range(3)))
        names = self.path("names", "".join(f"n{w}\n" for w in range(30)))
        self.train(2, input=self.libsvm, vocabulary=names)
        self.assertEqual(self.found_topics()[0][0], "n0")

    def test_the_same_seed_gives_the_same_bits(self):
        runs = []
        for _ in range(2):
            self.train(2, 3, dump_documents=True, iters=15)
            runs.append([self.lines(name, 2) for name in ("word_topic", "documents")])
        self.assertEqual(runs[0], runs[1])
        self.train(2, 3, dump_documents=True, iters=15, seed=2)
        self.assertNotEqual(runs[0][1], self.lines("documents", 2))

    def test_a_model_is_read_back_and_predicts(self):
        for form in ("text", "npy"):
            with self.subTest(form):
                new = self.path("new", "w01 w03 w05 w01 w07 unknown\nw25 w21\n\nunknown\n")
                self.train(2, format=form, predict_input=new)
                model = self.output
                if form == "text":
                    at_once = self.lines("predictions", 2)
                self.job(3, model_input=model, predict_input=new)
                later = self.lines("predictions", 3)
                self.assertEqual(later, at_once)
        theta = [[float(v) for v in line.split("\t")[1].split("|")] for line in later]
        self.assertEqual([line.split("\t")[0] for line in later], ["0", "1", "2"])
        for row in theta:
            self.assertAlmostEqual(sum(row), 1, delta=1e-12)
        self.assertGreater(max(theta[0]), 0.9)
        self.assertNotEqual(theta[0].index(max(theta[0])), theta[1].index(max(theta[1])))
        self.assertAlmostEqual(max(theta[2]), 1 / 3, delta=1e-12)

    def test_it_stops_when_the_likelihood_does_not_change(self):
        self.assertLess(self.train(1, iters=500, report_every=5, tolerance=0.01)["sweeps"], 100)

    def test_workers_that_are_clocks_apart_stop_at_the_same_sweep(self):
        for seed in range(3):
            found = self.train(3, seed=seed, iters=300, ssp_switch=True, limit_s=3, report_every=1, optimize_every=2,
                               tolerance=1e-3)
            self.assertLess(found["sweeps"], 300)

    def test_configs_that_would_do_something_else_are_refused(self):
        self.assertIn("test_stride", self.job(1, 1, "embedded", status=3, model_input="m", test_stride=5))
        self.assertIn("not with test_input", self.job(1, 1, "embedded", status=3, input=self.text, test_input=self.text,
                                                      test_stride=5))
        self.assertIn("standard input", self.job(1, 1, "embedded", status=3, input="-"))

    def test_bad_input_is_refused(self):
        bad = self.path("bad", "0 1:2 3:4\n0 1:2 3:x\n")
        for workers, mode in ((1, "embedded"), (2, "local")):
            self.assertIn("bad:2:7", self.job(workers, 1, mode, status=4, input=bad))
        empty = self.path("empty", "\n \n")
        self.assertIn("found no document", self.job(2, status=4, input=empty))
        self.assertIn("found no word", self.job(1, 1, "embedded", status=4, input=self.path("labels", "0\n0\n"),
                                                input_format="libsvm"))
        self.assertIn("vocabulary", self.job(1, 1, "embedded", status=3, input=bad, vocabulary="/no/such/vocabulary"))
        self.assertIn('"input"', self.job(1, 1, "embedded", status=3))

    def bible(self, workers, **keys):
        path = self.shared("bible-kjv", "lda.libsvm")
        said = self.train(workers, input=path, k_topics=20, beta=0.01, iters=keys.pop("iters", 200), test_stride=10, **keys)
        self.assertEqual((said["documents"], said["tokens"], said["words"]), (1071, 254732, 5012))
        self.assertEqual(said["test_tokens"], 13564)
        return said["perplexity"]

    def test_the_bible(self):
        # The target is the mean of three seeds; this is one of them, with a margin.
        self.assertLessEqual(self.bible(2, seed=0), 815)

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_the_bars_of_the_bible(self):
        for keys, bar in (({}, 810), ({"sampler": "mh"}, 840), ({"sampler": "mh", "iters": 400}, 825)):
            for workers in (1, 2, 4):
                with self.subTest(keys=keys, workers=workers):
                    found = [self.bible(workers, seed=seed, **keys) for seed in range(3)]
                    self.assertLessEqual(sum(found) / 3, bar, found)
        self.assertLessEqual(self.bible(4, seed=0, ssp_switch=True, limit_s=3), 815)
        self.assertLessEqual(self.bible(2, seed=0, optimize_every=20), 800)


if __name__ == "__main__":
    unittest.main()

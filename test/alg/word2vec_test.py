#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""word2vec, tested by running jobs: planted clusters, the serial oracle, the two forms of files, questions, quality on a real
text, errors in the input. (Gradients: unit.Word2vecKernel; rows a batch: cluster.Word2vecTraffic.) Options: names of tests."""
import os
import unittest

import numpy
import scipy.stats

from alg_job import LONG, MPI, ONLY_LONG, AlgorithmCase

KINDS = [(method, loss) for method in ("skip_gram", "cbow") for loss in ("negative_sampling", "hierarchical_softmax")]


def read_text(path):
    """(words, vectors) of a file in the text form of word2vec.c."""
    with open(path, encoding="utf-8") as file:
        words, width = map(int, file.readline().split())
        rows = [line.rstrip("\n").split(" ") for line in file]
    if len(rows) != words or any(len(row) != width + 2 or row[-1] for row in rows):
        raise ValueError("the header says %d words of %d numbers" % (words, width))
    return [row[0] for row in rows], numpy.array([row[1:-1] for row in rows], dtype=numpy.float32)


def read_binary(path):
    """The same for its binary form."""
    with open(path, "rb") as file:
        data = file.read()
    end = data.index(b"\n")
    count, width = map(int, data[:end].split())
    names, rows, at = [], [], end + 1
    for _ in range(count):
        blank = data.index(b" ", at)
        names.append(data[at:blank].decode())
        rows.append(numpy.frombuffer(data, "<f4", width, blank + 1))
        at = blank + 1 + 4 * width
        if data[at:at + 1] != b"\n":
            raise ValueError("want a line feed after each vector")
        at += 1
    if at != len(data):
        raise ValueError("%d bytes after the last vector" % (len(data) - at))
    return names, numpy.array(rows)


class Word2vecTest(AlgorithmCase):
    program = "word2vec"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.generate("text.txt", "word2vec", "-n", 6000, "--parts", 8, "--vocabulary", 400, "--seed", 5)
        with open(cls.text + ".truth", encoding="ascii") as file:
            cls.cluster = dict(line.split() for line in file)
        cls.defaults = {"input": cls.text, "k": 32, "rounds": 10, "sample": 0.01, "batch_size": 10000, "noise_words": 500,
                        "alpha": 0.05}

    def fit(self, *where, **keys):
        keys = {**self.defaults, **keys}
        if keys.get("loss") == "hierarchical_softmax":
            del keys["noise_words"]
        return self.results(self.job(*where, **keys))

    def vectors(self):
        return read_text(os.path.join(self.output, "vectors.txt"))

    def in_cluster(self, words, rows):
        """The fraction of the three nearest words that are in the word's planted cluster."""
        unit = rows / numpy.linalg.norm(rows, axis=1)[:, None]
        known = [i for i, w in enumerate(words) if w in self.cluster]
        likeness = unit[known] @ unit[known].T
        numpy.fill_diagonal(likeness, -2)
        names = numpy.array([self.cluster[words[i]] for i in known])
        best = numpy.argsort(-likeness, axis=1)[:, :3]
        return (names[best] == names[:, None]).mean()

    def test_neighbours_are_in_the_planted_cluster(self):
        for method, loss in KINDS:
            for workers, servers in ((1, 1), (2, 1), (4, 3)):
                for seed in (0, 1) if LONG else (workers,):
                    found = self.fit(workers, servers, method=method, loss=loss, seed=seed,
                                     alpha=0.1 if method == "cbow" else 0.05)
                    words, rows = self.vectors()
                    with self.subTest(method=method, loss=loss, workers=workers, seed=seed):
                        self.assertEqual(len(words), found["words"])
                        self.assertGreater(self.in_cluster(words, rows), 0.9)
                        losses = [line["running_loss"] for line in self.curve()]
                        self.assertEqual(len(losses), 10)
                        self.assertLess(losses[-1], 0.97 * losses[0])

    def test_with_default_keys_vectors_are_as_good_as_those_of_the_original_program(self):
        text = self.generate("clusters.txt", "word2vec", "-n", 3000, "--parts", 60, "--vocabulary", 3000, "--length", 20,
                             "--seed", 1)
        original = self.serial("word2vec_serial", text, "--threads", 2, "--k", 50, "--test", text + ".pairs")
        for workers in (1, 2, 4):
            with self.subTest(workers=workers):
                found = self.results(self.job(workers, 1, input=text, k=50, test_input=text + ".pairs"))
                self.assertEqual(found["pairs"], original["pairs"])
                self.assertGreater(found["spearman"], 0.95 * original["spearman"])

    def test_one_worker_is_the_serial_program(self):
        path = os.path.join(self.folder, "serial.txt")
        for method, loss in KINDS:
            numbers = {"k": 20, "rounds": 2, "sample": 0.02, "batch_size": 7000, "alpha": 0.05, "seed": 3, "min_count": 3,
                       "window": 4}
            if loss == "negative_sampling":
                numbers.update(noise_words=300 if method == "cbow" else 0, negatives=4)
            words = [w for key, value in numbers.items() for w in (f"--{key}", value)]
            serial = self.serial("word2vec_serial", self.text, "--method", method, "--loss", loss, "--check", 1, "--output", path,
                                 *words)
            expected_words, expected = read_text(path)
            self.assertLess(serial["gradient_error"], 1e-7)
            for place in ((1, 1), (1, 3), (1, 1, "embedded")) + (((1, 1, "mpi"),) if MPI and LONG else ()):
                with self.subTest(method=method, loss=loss, place=place):
                    self.fit(*place, **{**numbers, "method": method, "loss": loss})
                    found_words, found = self.vectors()
                    self.assertEqual(found_words, expected_words)
                    numpy.testing.assert_allclose(found, expected, atol=2e-4)
                    self.assertGreater(abs(expected).max(), 0.1)

    def test_runs_are_the_same_bits_and_seeds_are_not(self):
        seen = []
        for seed in (1, 1, 2):
            self.fit(3, 2, seed=seed, rounds=2)
            seen.append(self.vectors()[1])
        numpy.testing.assert_array_equal(seen[0], seen[1])
        self.assertGreater(abs(seen[0] - seen[2]).max(), 0.01)

    def test_both_forms_and_npy_have_the_same_vectors(self):
        for workers in (1, 3):
            forms = {}
            for form in ("text", "binary", "npy"):
                self.fit(workers, 2, format=form, rounds=1)
                if form == "text":
                    forms[form] = self.vectors()
                elif form == "binary":
                    forms[form] = read_binary(os.path.join(self.output, "vectors.bin"))
                else:
                    of = self.manifest()["arrays"]["vectors"]
                    self.assertEqual(of["shape"], list(forms["text"][1].shape))
                    rows = numpy.concatenate([numpy.load(os.path.join(self.output, f)) for f in of["files"]])
                    words = []
                    for name in of["ids"]:
                        with open(os.path.join(self.output, name), encoding="utf-8") as file:
                            words += file.read().splitlines()
                    forms[form] = words, rows
            for words, rows in forms.values():
                self.assertEqual(words, forms["text"][0])
                numpy.testing.assert_array_equal(rows, forms["text"][1])
            # Words by frequency, ties by their bytes.
            with open(self.text, encoding="ascii") as file:
                counts = {}
                for word in file.read().split():
                    counts[word] = counts.get(word, 0) + 1
            expected = sorted((w for w, n in counts.items() if n >= 5), key=lambda w: (-counts[w], w))
            self.assertEqual(forms["text"][0], expected)

    def test_questions_are_answered_alike_after_training_and_from_every_form(self):
        some = sorted(self.cluster)
        questions = self.path("questions.txt", f"{some[0]}\nnot_there\n\n {some[1]}\t{some[2]}  {some[3]}\n{some[4]}\n")
        pairs = self.path("pairs.txt", "".join(f"{some[i]}\t{some[i + 1]} {i % 7}\n" for i in range(0, 60)) + "not_there x 1\n")
        answers = []
        for form in ("text", "binary", "npy"):
            first = self.fit(2, 1, rounds=2, format=form, test_input=pairs, predict_input=questions, topk=4)
            answers.append((first["spearman"], self.lines("pred_v", 2)))
            if form == "text":
                words, rows = self.vectors()
            model = self.output if form == "npy" else os.path.join(self.output, "vectors.txt" if form == "text"
                                                                   else "vectors.bin")
            for place in ((1, 1, "embedded"), (3, 1)):
                again = self.results(self.job(*place, model=model, test_input=pairs, predict_input=questions, topk=4))
                self.assertEqual((again["pairs"], again["unknown_pairs"]), (60, 1))
                answers.append((again["spearman"], self.lines("pred_v", place[0])))
        for answer in answers:
            self.assertEqual(answer, answers[0])
        one = self.path("one.txt", f"{some[0]} {some[1]} 3\n")
        self.assertEqual(self.results(self.job(1, 1, "embedded", model=model, test_input=one))["spearman"], "null")
        # By another route.
        unit = rows.astype(float) / numpy.linalg.norm(rows.astype(float), axis=1)[:, None]
        number = {w: i for i, w in enumerate(words)}
        lines = [line.split("\t") for line in answers[0][1]]
        self.assertEqual([line[0] for line in lines], [some[0], "not_there", " ".join(some[1:4]), some[4]])
        self.assertEqual(lines[1][1], "")
        for question, said in lines:
            if question == "not_there":
                continue
            asked = [number[w] for w in question.split()]
            wanted = unit[asked[0]] if len(asked) == 1 else unit[asked[1]] - unit[asked[0]] + unit[asked[2]]
            likeness = unit @ wanted / numpy.linalg.norm(wanted)
            likeness[asked] = -2
            best = numpy.argsort(-likeness)[:4]
            found = [item.rsplit(":", 1) for item in said.split("|")]
            self.assertEqual([w for w, _ in found], [words[i] for i in best])
            numpy.testing.assert_allclose([float(v) for _, v in found], likeness[best], atol=1e-5)
        cosine = [unit[number[some[i]]] @ unit[number[some[i + 1]]] for i in range(60)]
        self.assertAlmostEqual(answers[0][0], scipy.stats.spearmanr(cosine, [i % 7 for i in range(60)])[0], places=4)

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_gcide_reaches_the_bar(self):
        text, pairs = self.shared("gcide", "gcide.txt"), self.shared("wordsim353", "wordsim353.tsv")
        for workers, servers in ((1, 1), (2, 1), (4, 2)):
            found = self.results(self.job(workers, servers, input=text, test_input=pairs, k=100, window=5, negatives=5, rounds=5,
                                          timeout=3000))
            with self.subTest(workers=workers):
                self.assertGreaterEqual(found["spearman"], 0.48)
                self.assertGreater(found["pairs"], 300)

    def test_bounded_staleness_learns_too(self):
        self.fit(3, 2, consistency="ssp", limit_s=3)
        self.assertGreater(self.in_cluster(*self.vectors()), 0.9)
        self.assertLessEqual(max(line["staleness"] for line in self.curve()), 3)

    def test_small_texts_and_workers_without_lines(self):
        few = self.path("few.txt", "a b a b\na\n\nb c a\n")
        for workers in (1, 2, 5):
            for method, loss in KINDS:
                with self.subTest(workers=workers, method=method, loss=loss):
                    self.results(self.job(workers, 2, input=few, min_count=1, k=3, method=method, loss=loss))
                    words, rows = self.vectors()
                    self.assertEqual((words, rows.shape), (["a", "b", "c"], (3, 3)))
        one = self.path("one.txt", "a\na\n")
        for _, loss in KINDS[:2]:
            self.results(self.job(2, 1, input=one, min_count=1, k=3, loss=loss))
            self.assertEqual(self.vectors()[0], ["a"])
        dashes = self.path("dashes.txt", "x-y, x-y. é\n")
        self.job(1, 1, input=dashes, min_count=1, tokens="paracel", k=2)
        self.assertEqual(self.vectors()[0], ["x-y"])

    def test_bad_input_and_bad_configs(self):
        self.assertIn("found no word that occurs at least 5 times", self.job(2, status=4, input=self.path("rare.txt", "a b c\n")))
        model = self.path("model.txt", "2 2\na 1 0\nb 0 1\n")
        for name, text, said in (("q", "a b\n", ":1:1: found 2 words, want one or three"),):
            self.assertIn(said, self.job(1, status=4, model=model, predict_input=self.path(name, text)))
        for text, said in (("a b\n", ":1:1: want two words and a number"), ("a b 1\na b x\n", ':2:5: found "x", want a number')):
            self.assertIn(said, self.job(1, status=4, model=model, test_input=self.path("pairs", text)))
        self.assertIn("bad.txt:2:5: want number 2 of 2",
                      self.job(2, status=4, model=self.path("bad.txt", "1 2\na 1 x\n"), predict_input=self.path("q", "a\n")))
        for keys, said in (({"model": model}, '"model": found neither test_input nor predict_input'),
                           ({"window": 0}, 'key "window"'),
                           ({"input": self.text, "loss": "hierarchical_softmax", "negatives": 5}, '"negatives": not with'),
                           ({"input": self.text, "alpha": 0}, 'key "alpha"'), ({"input": self.text, "k": 0}, 'key "k"'),
                           ({"input": self.text, "consistency": "asp"}, "consistency"),
                           ({"input": self.text, "format": "json"}, 'key "format"'), ({}, "input")):
            self.assertIn(said, self.job(mode="embedded", status=3, **keys))
        self.assertIn("diverged at round", self.job(1, status=1, **{**self.defaults, "alpha": 1e30}))


if __name__ == "__main__":
    unittest.main()

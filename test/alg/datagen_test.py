#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""tool/datagen.py: the formats, the seed, the options, and that the planted structure is present. Kinds other than classification
and regression need bin/datagen of the build."""
import collections
import math
import os
import subprocess
import sys
import tempfile
import unittest

import numpy

import oracles
from lr_case import samples_of

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
TOOL = os.path.join(SOURCE, "tool", "datagen.py")
BINARY = os.path.join(BUILD, "bin", "datagen")
KINDS = ("classification", "classes", "mixed", "ranking", "regression", "friedman", "friedman_classes", "sparse_classification",
         "sparse_regression", "similarity", "kmeans", "factors", "mf", "fm", "als", "svd", "pagerank", "rmat", "partition",
         "steady_state", "wc", "lda", "word2vec")


def datagen(*options, build=BUILD):
    environment = {name: value for name, value in os.environ.items() if name != "PARACEL_BUILD"}
    if build:
        environment["PARACEL_BUILD"] = build
    return subprocess.run([sys.executable, "-B", TOOL, *options], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env=environment)


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Datagen(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "out.dat")

    def rows(self, *options):
        done = datagen("-o", self.path, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path, encoding="ascii") as file:
            return file.read().splitlines()

    def test_classification_has_n_lines_of_k_features_and_a_label(self):
        rows = self.rows("-m", "classification", "-n", "200", "-k", "7")
        self.assertEqual(len(rows), 200)
        labels = []
        for row in rows:
            fields = row.split(",")
            self.assertEqual(len(fields), 8)
            [float(field) for field in fields[:-1]]
            labels.append(fields[-1])
        self.assertEqual(set(labels), {"0", "1"})

    def test_classes_are_words_around_their_centres(self):
        rows = [row.split(",") for row in self.rows("-m", "classes", "-n", "3000", "-k", "6", "--ncenters", "4")]
        labels = numpy.array([row[-1] for row in rows])
        self.assertEqual(sorted(set(labels)), [f"class_{c}" for c in range(4)])
        x = numpy.array([row[:-1] for row in rows], float)
        self.assertEqual(x.shape, (3000, 6))
        centres = numpy.array([x[labels == f"class_{c}"].mean(0) for c in range(4)])
        nearest = ((x[:, None] - centres) ** 2).sum(2).argmin(1)
        hits = (labels == numpy.char.add("class_", nearest.astype(str))).mean()
        self.assertTrue(0.6 < hits < 0.999, hits)

    def test_regression_has_a_real_target(self):
        rows = self.rows("-m", "regression", "-n", "50", "-k", "3")
        self.assertTrue(all(len(row.split(",")) == 4 for row in rows))
        self.assertGreater(len({row.split(",")[-1] for row in rows}), 45)

    def test_the_size_is_2500_by_100_unless_said(self):
        rows = self.rows("-m", "classification")
        self.assertEqual((len(rows), rows[0].count(",")), (2500, 100))

    def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(self):
        first = self.rows("-m", "classification", "-n", "20", "-k", "5", "--seed", "3")
        self.assertEqual(first, self.rows("-m", "classification", "-n", "20", "-k", "5", "--seed", "3"))
        self.assertNotEqual(first, self.rows("-m", "classification", "-n", "20", "-k", "5", "--seed", "4"))

    def test_the_separator_can_be_chosen(self):
        for separator in ("\t", ";", "%", "%%"):
            row = self.rows("-m", "classification", "-n", "2", "-k", "3", "-s", separator)[0]
            self.assertEqual(len(row.split(separator)), 4)

    def test_what_it_makes_can_be_learned(self):
        self.rows("-m", "classification", "-n", "2000", "-k", "30")
        x, y = samples_of(self.path)
        _, theta = oracles.lr(x, y, 0.001)
        accuracy = ((x @ theta[1:] + theta[0] >= 0) == (y > 0)).mean()
        self.assertGreater(accuracy, 0.88)
        self.assertLess(accuracy, 0.999)

    def test_a_wrong_option_is_a_usage_error(self):
        for options in (["-m", "nothing", "-o", self.path], ["-m", "classification"],
                        ["-m", "classification", "-o", self.path, "-n", "0"]):
            done = datagen(*options)
            self.assertEqual(done.returncode, 2)
            self.assertFalse(os.path.exists(self.path))

    def test_a_file_that_cannot_be_written_is_said(self):
        done = datagen("-m", "classification", "-o", os.path.join(self.folder.name, "no", "out.dat"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("No such file or directory", done.stderr)


@unittest.skipUnless(os.path.exists(BINARY), "bin/datagen is not built")
class Program(unittest.TestCase):
    """Tests that need the built program."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "out.dat")

    def make(self, *options, build=BUILD):
        done = datagen("-o", self.path, *options, build=build)
        self.assertEqual(done.returncode, 0, done.stderr)
        return read(self.path)

    def table(self, *options, sep=","):
        """The fields of the lines as numbers, without the letters of steady_state."""
        text = self.make(*options).decode().replace("L", "").replace("R", "")
        return numpy.array([[float(f) for f in line.replace("\t", sep).split(sep)] for line in text.splitlines()])

    def truth(self):
        return [line.split("\t") for line in read(self.path + ".truth").decode().splitlines()]

    def test_the_bytes_are_those_that_python_makes_without_a_build(self):
        for kind in ("classification", "regression"):
            for options in (["-n", "301", "-k", "7", "--seed", "12345678901234"], ["-n", "40", "-k", "1", "--seed", "-3"],
                            ["--size", "60k", "-k", "20", "-s", ";;"], ["-n", "30", "-k", "500", "--seed", "1"]):
                with self.subTest(kind=kind, options=options):
                    words = ["-m", kind, "--truth", self.path + ".truth", *options]
                    quick = self.make(*words, "--jobs", "3")
                    planted = read(self.path + ".truth")
                    # PARACEL_BUILD names a folder without the program, and build/ must not be used by this test.
                    code = "import datagen; datagen.find_binary = lambda o: None; datagen.main()"
                    subprocess.run([sys.executable, "-B", "-c", code, "-o", self.path, *words], check=True,
                                   cwd=os.path.dirname(TOOL), stdin=subprocess.DEVNULL)
                    self.assertEqual(quick, read(self.path))
                    self.assertEqual(planted, read(self.path + ".truth"))

    def test_the_bytes_do_not_depend_on_the_number_of_threads_but_on_the_seed(self):
        for kind in KINDS:
            with self.subTest(kind):
                # More than one block of each kind.
                options = ["-m", kind, "--size", "700k", "--seed", "9"]
                first = self.make(*options)
                files = {name: read(os.path.join(self.folder.name, name)) for name in os.listdir(self.folder.name)}
                self.assertEqual(first, self.make(*options, "--jobs", "3"))
                for name, content in files.items():
                    self.assertEqual(content, read(os.path.join(self.folder.name, name)), name)
                self.assertNotEqual(first, self.make("-m", kind, "--size", "700k", "--seed", "10"))
                for name in files:
                    os.remove(os.path.join(self.folder.name, name))

    def test_a_size_is_reached_with_the_row_that_passes_it(self):
        for kind in KINDS:
            with self.subTest(kind):
                content = self.make("-m", kind, "--size", "100k", "-k", "4", "--no_truth")
                self.assertEqual(content[-1:], b"\n")
                if kind not in ("partition", "steady_state"):  # the number of rows is estimated there
                    self.assertGreaterEqual(len(content), 102400)
                self.assertLess(abs(len(content) / 102400 - 1), 0.25)
                self.assertFalse(os.path.exists(self.path + ".truth"))

    def test_rows_are_those_of_a_longer_file(self):
        for kind in ("kmeans", "similarity", "mf", "lda", "wc", "sparse_classification", "factors"):
            with self.subTest(kind):
                short = self.make("-m", kind, "-n", "30")
                self.assertTrue(self.make("-m", kind, "-n", "60").startswith(short))

    def test_friedman_is_his_function_and_noise_of_spread_one(self):
        rows = self.table("-m", "friedman", "-n", "4000", "-k", "8")
        f = rows[:, :-1]
        self.assertEqual(f.shape, (4000, 8))
        self.assertTrue(((f >= 0) & (f <= 1)).all())
        wanted = 10 * numpy.sin(math.pi * f[:, 0] * f[:, 1]) + 20 * (f[:, 2] - 0.5) ** 2 + 10 * f[:, 3] + 5 * f[:, 4]
        noise = rows[:, -1] - wanted
        self.assertLess(abs(noise.mean()), 0.06)
        self.assertLess(abs(noise.std() - 1), 0.05)
        labels = self.table("-m", "friedman_classes", "-n", "4000", "-k", "8")
        self.assertTrue((labels[:, :-1] == f).all())
        self.assertTrue((labels[:, -1] == (rows[:, -1] > 14.4)).all())
        self.assertLess(abs(labels[:, -1].mean() - 0.5), 0.05)

    def test_the_side_of_the_planted_hyperplane_is_the_label(self):
        rows = self.table("-m", "classification", "-n", "3000", "-k", "20", "--truth", self.path + ".truth")
        w = numpy.array([float(x) for x in self.truth()[0][1].split("|")])
        self.assertAlmostEqual(w @ w, 1)
        agree = ((rows[:, :len(w)] @ w > 0) == (rows[:, -1] > 0)).mean()
        self.assertGreater(agree, 0.9)
        self.assertLess(abs(rows[:, :-1].mean()), 0.02)
        self.assertLess(abs(rows[:, :-1].std() - 1), 0.02)

    def test_mixed_rows_have_words_missing_values_and_a_label_that_can_be_learned(self):
        header, *lines = self.make("-m", "mixed", "-n", "4000", "-k", "7").decode().splitlines()
        self.assertEqual(header, "kind_1,kind_2,x_1,x_2,x_3,x_4,x_5,label")
        rows = [line.split(",") for line in lines]
        self.assertEqual((len(rows), {len(row) for row in rows}), (4000, {8}))
        self.assertEqual({row[0] for row in rows}, {"", "w0", "w1", "w2", "w3"})
        self.assertEqual(len({row[1] for row in rows}), 17)
        missing = sum(field == "" for row in rows for field in row)
        self.assertLess(abs(missing / 28000 - 0.05), 0.005)
        y = numpy.array([row[-1] == "yes" for row in rows], float)
        x = [[float(f or 0) for f in row[2:-1]] + [float(row[0] == f"w{w}") for w in range(4)] +
             [float(row[1] == f"w{w}") for w in range(16)] + [1.0] for row in rows]
        w, *_ = numpy.linalg.lstsq(numpy.array(x), y, rcond=None)
        hits = ((numpy.array(x) @ w > 0.5) == (y > 0.5)).mean()
        self.assertTrue(0.8 < hits < 0.98, hits)

    def test_documents_of_a_query_share_features_and_their_relevance_can_be_learned(self):
        found = [line.split() for line in
                 self.make("-m", "ranking", "-n", "300", "-k", "8", "--documents", "15", "--seed", "2").decode().splitlines()]
        relevance = numpy.array([int(fields[0]) for fields in found])
        query = numpy.array([int(fields[1].removeprefix("qid:")) for fields in found])
        x = numpy.array([[float(f.split(":")[1]) for f in fields[2:]] for fields in found])
        self.assertEqual([f.split(":")[0] for f in found[0][2:]], [str(j) for j in range(1, 9)])
        self.assertEqual(query.tolist(), sorted(query))
        self.assertEqual(set(query), set(range(1, 301)))
        self.assertLess(abs(len(found) / 300 - 15), 2)
        shares = numpy.bincount(relevance) / len(found)
        self.assertEqual(len(shares), 5)
        self.assertTrue(all(shares[:-1] > shares[1:]), shares)
        for q in range(1, 301):
            self.assertTrue((x[query == q, :2] == x[query == q, :2][0]).all())
        columns = numpy.column_stack([x[:, 2:], x[:, :1] * x[:, 2:], numpy.ones(len(x))])
        w, *_ = numpy.linalg.lstsq(columns, relevance, rcond=None)
        self.assertGreater(numpy.corrcoef(columns @ w, relevance)[0, 1], 0.75)

    def libsvm(self, *options):
        labels, rows = [], []
        for line in self.make(*options).decode().splitlines():
            label, *fields = line.split()
            labels.append(float(label))
            rows.append({int(f.split(":")[0]): float(f.split(":")[1]) for f in fields})
            self.assertEqual(sorted(rows[-1]), [int(f.split(":")[0]) for f in fields])
        return numpy.array(labels), rows

    def test_sparse_labels_are_planted_and_features_follow_zipfs_law(self):
        labels, rows = self.libsvm("-m", "sparse_classification", "-n", "4000", "-k", "5000", "--informative", "200",
                                   "--nnz", "30")
        self.assertEqual(set(labels), {-1, 1})
        w = {int(j): float(v) for j, v in self.truth()}
        self.assertEqual(len(w), 200)
        side = numpy.array([sum(w.get(j, 0) * v for j, v in row.items()) for row in rows])
        self.assertGreater((labels * side > 0).mean(), 0.95)
        count = collections.Counter(j for row in rows for j in row)
        self.assertLessEqual(max(count), 5000)
        # P(j) is approximately 1/j: 20 to 40 and 200 to 400 are equally likely.
        near = sum(count[j] for j in range(20, 40))
        far = sum(count[j] for j in range(200, 400))
        self.assertLess(abs(far / near - 1), 0.15)
        targets, rows = self.libsvm("-m", "sparse_regression", "-n", "1000", "-k", "100", "--binary_values", "--seed", "2")
        w = {int(j): float(v) for j, v in self.truth()}
        rest = targets - numpy.array([sum(w[j] * v for j, v in row.items()) for row in rows])
        self.assertLess(rest.std(), 0.12)

    def test_kmeans_rows_lie_around_their_centres(self):
        rows = self.table("-m", "kmeans", "-n", "2000", "-k", "5", "--ncenters", "7")
        part = numpy.array([int(p) for _, p in self.truth()])
        self.assertEqual([int(i) for i, _ in self.truth()], list(range(2000)))
        centers = [line.split("\t")[1].split("|") for line in read(self.path + ".centers").decode().splitlines()]
        centers = numpy.array(centers, dtype=float)
        self.assertEqual(centers.shape, (7, 5))
        self.assertEqual(set(part), set(range(7)))
        rest = rows[:, 1:] - centers[part]
        self.assertLess(abs(rest.mean()), 0.05)
        self.assertLess(abs(rest.std() - 1), 0.03)
        self.assertEqual(self.table("-m", "kmeans", "-n", "3", "-k", "5", "--no_ids").shape, (3, 5))

    def planted_factors(self):
        truth = {row[0]: [float(x) for x in row[1].split("|")] for row in self.truth() if "|" in row[1]}
        side = {}
        for name in ("user_", "item_"):
            ids = sorted(int(key[5:]) for key in truth if key.startswith(name))
            self.assertEqual(ids, list(range(len(ids))))
            side[name] = numpy.array([truth[name + str(i)] for i in ids])
        return side["user_"], side["item_"]

    def test_ratings_are_planted_factors_and_noise(self):
        for kind, noise in (("als", 0.1), ("svd", 0.3)):
            rows = self.table("-m", kind, "-n", "300", "--items", "200", "-k", "4", "--nnz", "30", "--noise", str(noise))
            w, h = self.planted_factors()
            self.assertEqual((w.shape, h.shape), ((300, 4), (200, 4)))
            u, i = rows[:, 0].astype(int), rows[:, 1].astype(int)
            self.assertEqual(len(set(zip(u, i))), len(rows))
            planted = (w[u] * h[i]).sum(axis=1)
            self.assertLess(abs(planted.std() - 1), 0.35)
            self.assertLess(abs((rows[:, 2] - planted).std() / noise - 1), 0.05)
        self.make("-m", "als", "-n", "5", "--items", "9", "-k", "3")
        h = [line.split("\t") for line in read(self.path + ".H").decode().splitlines()]
        self.assertEqual([int(i) for i, _ in h], list(range(9)))
        self.assertTrue(all(v.count("|") == 2 for _, v in h))

    def test_mf_has_half_stars_and_biases(self):
        rows = self.table("-m", "mf", "-n", "800", "--items", "300", "-k", "4", "--noise", "0.3")
        self.assertEqual(set(rows[:, 2]), {x / 2 for x in range(1, 11)})
        w, h = self.planted_factors()
        u, i = rows[:, 0].astype(int), rows[:, 1].astype(int)
        planted = 3.5 + w[u, 0] + h[i, 0] + (w[u, 1:] * h[i, 1:]).sum(axis=1)
        self.assertLess((rows[:, 2] - numpy.clip(planted, 0.5, 5)).std(), 0.4)
        self.assertGreater(rows[:, 2].std(), 0.6)
        count = numpy.bincount(i)
        self.assertGreater(count[:30].sum(), 2 * count[-100:].sum())

    def test_fm_has_the_ratings_of_mf_with_a_feature_for_each_side(self):
        size = ("-n", "50", "--items", "30", "-k", "4", "--nnz", "8")
        ratings = [line.split(",") for line in self.make("-m", "mf", *size).decode().splitlines()]
        wanted = [f"{r} {int(i) + 1}:1 {30 + int(u) + 1}:1" for u, i, r in ratings]
        self.assertEqual(self.make("-m", "fm", *size).decode().splitlines(), wanted)

    def test_rmat_has_the_law_of_its_quarters(self):
        rows = self.table("-m", "rmat", "-n", "60000", "--vertices", "1000", sep="\t").astype(int)
        self.assertLess(rows.max(), 1024)
        # The vertex of highest degree of 2^10 is the source of a fraction .76^10 of the edges.
        share = numpy.bincount(rows[:, 0]).max() / len(rows)
        self.assertLess(abs(share / 0.76**10 - 1), 0.1)
        degree = numpy.sort(numpy.bincount(rows[:, 1], minlength=1024))
        self.assertGreater(degree[-10:].sum(), 50 * degree[:300].sum() / 30)
        weights = self.table("-m", "rmat", "-n", "1000", "--weighted", sep="\t")[:, 2]
        self.assertTrue(((weights > 0) & (weights <= 1)).all())

    def test_links_go_to_the_first_vertices(self):
        rows = self.table("-m", "pagerank", "-n", "50000", "--vertices", "5000", sep="\t").astype(int)
        self.assertLess(rows.max(), 5000)
        self.assertLess(abs(rows[:, 0].mean() / 2500 - 1), 0.02)
        self.assertGreater((rows[:, 1] < 500).mean(), 0.4)

    def test_a_planted_partition_has_its_probabilities_and_every_pair_once(self):
        n, parts = 1200, 3
        rows = self.table("-m", "partition", "-n", str(n), "--parts", str(parts), "--p_in", "0.1", "--p_out", "0.02",
                          sep="\t").astype(int)
        part = numpy.array([int(p) for _, p in self.truth()])
        self.assertTrue((rows[:, 0] < rows[:, 1]).all())
        self.assertEqual(len({(a, b) for a, b in rows}), len(rows))
        same = part[rows[:, 0]] == part[rows[:, 1]]
        inside = parts * (n // parts) * (n // parts - 1) / 2
        for found, pairs, p in ((same.sum(), inside, 0.1), ((~same).sum(), n * (n - 1) / 2 - inside, 0.02)):
            self.assertLess(abs(found - pairs * p), 5 * math.sqrt(pairs * p))
        whole = self.table("-m", "partition", "-n", "7", "--parts", "2", "--p_in", "1", "--p_out", "1", sep="\t")
        self.assertEqual(len(whole), 21)

    def test_a_steady_state_receives_what_it_is_to_have(self):
        rows = self.table("-m", "steady_state", "-n", "500", "--items", "80")
        i, j, w = rows[:, 0].astype(int), rows[:, 1].astype(int), rows[:, 2]
        p = {}
        for line in read(self.path + ".dis").decode().splitlines():
            name, value = line.split(",")
            p.setdefault(name[-1], {})[int(name[:-1])] = float(value)
        left = numpy.array([p["L"][k] for k in range(500)])
        right = numpy.array([p["R"][k] for k in range(80)])
        self.assertAlmostEqual(left.sum(), 1)
        self.assertAlmostEqual(right.sum(), 1)
        s = numpy.array([float(line[0].split(",")[1]) for line in self.truth()])
        flow = w * s[j]
        received = numpy.zeros(80)
        numpy.add.at(received, j, left[i] * flow / numpy.bincount(i, flow)[i])
        self.assertLess(abs(received - right).max(), 1e-12)

    def test_words_follow_zipfs_law(self):
        text = self.make("-m", "wc", "-n", "20000", "--vocabulary", "300").decode()
        words = collections.Counter(text.replace(",", " ").replace(".", " ").split())
        self.assertEqual(len(words), 300)
        top = [n for _, n in words.most_common(300)]
        # P(k) is log(1 + 1/k) / log(301).
        self.assertLess(abs(top[0] / sum(top) * math.log(301) / math.log(2) - 1), 0.05)
        self.assertLess(abs(sum(top[9:30]) / sum(top) * math.log(301) / math.log(31 / 10) - 1), 0.05)

    def test_sentences_have_words_of_one_planted_cluster_and_shared_ones(self):
        text = self.make("-m", "word2vec", "-n", "4000", "--vocabulary", "300", "--parts", "6", "--length", "12").decode()
        lines = text.splitlines()
        self.assertEqual(len(lines), 4000)
        cluster = dict(self.truth())
        self.assertEqual(len(cluster), 270)
        self.assertEqual(set(cluster.values()), {str(c) for c in range(6)})
        shared = words = 0
        for line in lines:
            of = [cluster.get(word) for word in line.split()]
            self.assertGreaterEqual(len(of), 3)
            self.assertLessEqual(len(set(of) - {None}), 1)
            shared += of.count(None)
            words += len(of)
        self.assertLess(abs(shared / words - 0.4), 0.02)
        with open(self.path + ".pairs", encoding="ascii") as file:
            pairs = [line.split() for line in file]
        self.assertEqual(len(pairs), 1000)
        self.assertTrue(all((cluster[a] == cluster[b]) == (same == "1") for a, b, same in pairs))
        self.assertLess(abs(sum(same == "1" for *_, same in pairs) / 1000 - 7 / 12), 0.05)

    def test_documents_are_mixtures_of_the_planted_topics(self):
        _, rows = self.libsvm("-m", "lda", "-n", "3000", "-k", "3", "--vocabulary", "200", "--alpha", "0.5,0.2,0.1")
        truth = self.truth()
        self.assertEqual(truth[0], ["alpha", "0.5|0.2|0.1"])
        phi = numpy.array([[float(x) for x in row[1].split("|")] for row in truth[1:]])
        self.assertLess(abs(phi.sum(axis=1) - 1).max(), 1e-4)
        share = numpy.zeros(200)
        for row in rows:
            for word, count in row.items():
                share[word - 1] += count / sum(row.values()) / len(rows)
        expected = numpy.array([0.5, 0.2, 0.1]) / 0.8 @ phi
        self.assertLess(abs(share - expected).sum(), 0.1)
        text = self.make("-m", "lda", "-n", "10", "--as_text").decode().splitlines()
        self.assertEqual(len(text), 10)
        self.assertTrue(all(word[0] == "w" for line in text for word in line.split(" ")))

    def test_a_wrong_option_is_a_usage_error_and_writes_nothing(self):
        for options in (["-m", "mf", "--vertices", "3"], ["-m", "mf", "--nnz", "0"], ["-m", "mf", "-n", "5", "--size", "5k"],
                        ["-m", "mf", "--size", "5 apples"], ["-m", "partition", "--p_in", "1.5"],
                        ["-m", "rmat", "--jobs", "0"],
                        ["-m", "lda", "-k", "3", "--alpha", "1,2"], ["-m", "lda", "--alpha", "1,-2"],
                        ["-m", "wc", "--vocabulary", "100000000"], ["-m", "rmat", "--truth", "x"],
                        ["-m", "steady_state", "-n", "5", "--items", "6"],
                        ["-m", "sparse_classification", "-k", "5", "--informative", "6"]):
            with self.subTest(options):
                done = datagen("-o", self.path, *options)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("error", done.stderr)
                self.assertEqual(os.listdir(self.folder.name), [])

    def test_the_output_may_be_a_pipe(self):
        done = datagen("-m", "kmeans", "-o", "-", "-n", "4", "-k", "2")
        self.assertEqual(done.stdout.count("\n"), 4)
        self.assertEqual(done.stdout.encode(), self.make("-m", "kmeans", "-n", "4", "-k", "2"))

    def test_without_the_program_it_says_how_to_build_it(self):
        code = "import datagen, sys; datagen.find_binary = lambda o: None; sys.exit(datagen.main())"
        done = subprocess.run([sys.executable, "-B", "-c", code, "-m", "rmat", "-o", self.path], capture_output=True,
                              text=True, cwd=os.path.dirname(TOOL), stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--target datagen", done.stderr)
        done = datagen("-m", "rmat", "-o", self.path, "--binary", "/no/such")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/no/such", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

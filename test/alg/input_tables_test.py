#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What all programs that read samples make of a table: fields by name and by number, headers, models, inputs without rows,
foreign formats. Options: names of tests."""
import bz2
import io
import lzma
import os
import subprocess
import unittest
import zipfile

import numpy

from alg_job import AlgorithmCase

CLASSES, NUMBERS, NONE = "classes", "numbers", "none"
# (program, keys, what its labels are, whether it has validation_input)
PROGRAMS = (("lr", {"method": "newton", "rounds": 5, "beta": 0.1}, CLASSES, False), ("lr_l1", {"C": 1.0}, CLASSES, False),
            ("softmax", {}, CLASSES, True), ("linear_svm", {}, CLASSES, True),
            ("naive_bayes", {"distribution": "gaussian"}, CLASSES, False),
            ("fm", {"loss": "log", "method": "als", "k": 2, "beta_v": 0.1, "rounds": 3}, CLASSES, True),
            ("gbdt", {"loss": "log", "rounds": 3}, CLASSES, True),
            ("random_forest", {"type": "classification", "trees": 3}, CLASSES, False),
            ("ridge", {"penalty": 1}, NUMBERS, False), ("lasso", {"penalty": 0.01}, NUMBERS, False),
            ("linear_svr", {"rounds": 10000}, NUMBERS, True),
            ("fm", {"method": "als", "k": 2, "beta_w": 0.1, "beta_v": 0.1, "rounds": 3}, NUMBERS, True),
            ("gbdt", {"loss": "squared", "rounds": 3}, NUMBERS, True),
            ("random_forest", {"type": "regression", "trees": 3}, NUMBERS, False))
QUALITY = {"accuracy", "auc", "log_loss", "rmse", "test_rmse"}


def utf16(text):
    return text.encode("utf-16")


def zipped(text):
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w") as archive:
        archive.writestr("rows.csv", text)
    return to.getvalue()


class InputTablesTest(AlgorithmCase):
    program = "tables"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(5)
        cls.x = numpy.round(random.normal(size=(60, 2)), 3)
        score = 5 * cls.x[:, 0] - cls.x[:, 1]
        cls.labels = {NUMBERS: [f"{v:.4f}" for v in score], NONE: ["0"] * 60,
                      CLASSES: ["yes" if v > 0 else "no" for v in score + random.normal(size=60)]}

    def table(self, kind, fields, header=True):
        """CSV with these fields: a, b, y, others are words."""
        columns = {"a": [f"{v:g}" for v in self.x[:, 0]], "b": [f"{v:g}" for v in self.x[:, 1]], "y": self.labels[kind]}
        lines = [",".join(fields)] if header else []
        lines += [",".join(columns[f][i] if f in columns else "word" for f in fields) for i in range(60)]
        return self.path(f"{kind}_{'_'.join(fields)}_{header}.csv", "\n".join(lines) + "\n")

    def run_one(self, program, keys, status=0, **more):
        return self.job(mode="embedded", program=program, status=status, **{**keys, **more})

    def quality(self, *job, **keys):
        return {k: v for k, v in self.results(self.run_one(*job, **keys)).items() if k in QUALITY}

    def test_test_inputs_are_matched_by_name_and_else_by_position(self):
        for program, keys, kind, _ in PROGRAMS:
            with self.subTest(program=program, keys=keys):
                train = self.table(kind, ["a", "b", "y"])
                right = self.quality(program, keys, training_input=train, test_input=train)
                self.assertTrue(right)
                for fields, header in ((["b", "a", "y"], True), (["y", "junk", "b", "x", "a"], True), (["a", "b", "y"], False)):
                    test = self.table(kind, fields, header)
                    self.assertEqual(self.quality(program, keys, training_input=train, test_input=test), right, fields)
                for fields, missing in ((["b", "c", "y"], "a"), (["a", "b", "z"], "y")):
                    text = self.run_one(program, keys, 4, training_input=train, test_input=self.table(kind, fields))
                    self.assertIn(f'found no field "{missing}" in the header, which has {", ".join(fields)}', text)

    def test_a_model_keeps_its_fields(self):
        for program, keys, kind, _ in PROGRAMS:
            with self.subTest(program=program, keys=keys):
                train = self.table(kind, ["a", "junk", "b", "y"])
                plain = self.table(kind, ["a", "b"])
                self.run_one(program, keys, training_input=train, features=["a", "b"], target="y", predict_input=plain)
                model, right = self.output, self.lines("pred_v", 1)
                again = {k: v for k, v in keys.items() if program == "fm" and k == "loss"}
                for fields, header in ((["b", "a"], True), (["y", "x", "b", "a"], True), (["a", "b"], False),
                                       (["a", "junk", "b", "y"], False)):
                    self.run_one(program, again, model=model, predict_input=self.table(kind, fields, header))
                    self.assertEqual(self.lines("pred_v", 1), right, (fields, header))
                text = self.run_one(program, again, 4, model=model, predict_input=self.table(kind, ["a", "c"]))
                self.assertIn('found no field "b" in the header, which has a, c', text)
                text = self.run_one(program, again, 3, model=model, predict_input=plain, features=["b", "a"])
                self.assertIn("found other features than those of the model: a, b; want these, or no key", text)

    def test_a_model_without_names_reads_by_position(self):
        for program, keys, kind, _ in PROGRAMS:
            with self.subTest(program=program, keys=keys):
                train = self.table(kind, ["y", "a", "b"], header=False)
                self.run_one(program, keys, training_input=train, target=0, features=["1", 2], predict_input=train)
                model, right = self.output, self.lines("pred_v", 1)
                for fields, header in ((["a", "b"], False), (["y", "a", "b"], True)):
                    self.run_one(program, {}, model=model, predict_input=self.table(kind, fields, header))
                    self.assertEqual(self.lines("pred_v", 1), right, (fields, header))

    def test_numbers_are_those_of_the_training_rows(self):
        for program, keys, kind, _ in PROGRAMS:
            with self.subTest(program=program, keys=keys):
                train = self.table(kind, ["y", "b", "a"])
                keys = {**keys, "target": 0, "features": [2, 1]}
                right = self.quality(program, keys, training_input=train, test_input=train)
                self.assertEqual(self.quality(program, keys, training_input=train, test_input=self.table(kind, ["a", "b", "y"])),
                                 right)

    def test_a_target_by_number_is_that_field_without_a_header(self):
        for program, keys, kind, _ in PROGRAMS:
            with self.subTest(program=program, keys=keys):
                train = self.table(kind, ["a", "junk", "b", "y"], header=False)
                right = self.quality(program, {**keys, "features": [0, 2], "target": 3}, training_input=train, test_input=train)
                again = {"model": self.output, **{k: v for k, v in keys.items() if program == "fm" and k == "loss"}}
                moved = self.table(kind, ["a", "y", "b", "junk"], header=False)
                self.assertEqual(self.quality(program, again, test_input=moved, target=1), right)
                self.assertEqual(self.quality(program, again, test_input=train, target=3), right)
                for role in ("test_input", "predict_input"):
                    self.assertIn('field "0" is the label, too', self.run_one(program, again, 4, target=0, **{role: train}))
                    short = self.table(kind, ["a", "b", "y"], header=False)
                    self.assertIn('found the label in field "0", want it in the last one',
                                  self.run_one(program, again, 4, target=0, **{role: short}))
                    self.run_one(program, again, target=2, **{role: short})

    def test_features_without_names_are_numbered_as_in_configs(self):
        bare = self.table(CLASSES, ["a", "b", "y"], header=False)
        for program, keys, name, wanted in (("softmax", {}, "softmax_weight", ["bias", "0", "1"]),
                                            ("naive_bayes", {"distribution": "gaussian"}, "naive_bayes_mean", ["0", "1"]),
                                            ("gbdt", {"loss": "log", "rounds": 3}, "importance", ["0", "1"])):
            self.run_one(program, keys, training_input=bare)
            if name == "importance":
                with open(os.path.join(self.output, name), encoding="utf-8") as file:
                    lines = file.read().splitlines()
            else:
                lines = self.lines(name, 1)
            self.assertEqual(sorted(line.split("\t")[0] for line in lines), sorted(wanted))

    def test_a_header_of_numbers_needs_the_key(self):
        for program, keys, kind, _ in PROGRAMS:
            with self.subTest(program=program, keys=keys):
                rows = self.table(kind, ["a", "b", "y"], header=False)
                with open(rows, encoding="utf-8") as file:
                    numbered = self.path("numbered.csv", "0,1,2\n" + file.read())
                self.run_one(program, keys, training_input=rows, predict_input=rows)
                right = self.lines("pred_v", 1)
                self.run_one(program, keys, training_input=numbered, predict_input=numbered, header="yes")
                self.assertEqual(self.lines("pred_v", 1), right)
                words = self.path("words.csv", "x,z,w\n" + "".join("1,2,3\n" for _ in range(3)))
                self.assertIn("words.csv:1:", self.run_one(program, keys, 4, training_input=words, header="no"))

    def roles(self, program, keys, kind, validation):
        """Pairs of a role and the keys of a job that reads another input in it."""
        train = self.table(kind, ["a", "b", "y"])
        others = ["test_input", "predict_input"] + (["validation_input"] if validation else [])
        return [("training_input", {})] + [(role, {"training_input": train}) for role in others]

    def test_inputs_without_rows_are_refused_in_every_role(self):
        empty = self.path("zero.csv", "")
        header = self.path("header.csv", "a,b,y\n")
        comments = self.path("comments.svm", "# 1 1:2\n")
        for program, keys, kind, validation in PROGRAMS:
            for role, more in self.roles(program, keys, kind, validation):
                with self.subTest(program=program, keys=keys, role=role):
                    self.assertIn("header.csv: found no row, want samples",
                                  self.run_one(program, keys, 4, **{**more, role: header}))
                    self.assertIn("zero.csv:1:1: found no line, want samples",
                                  self.run_one(program, keys, 4, **{**more, role: empty}))
            self.assertIn("comments.svm: found no row, want samples",
                          self.run_one(program, keys, 4, training_input=comments))
        for path, what in ((header, "header.csv: found no row"), (empty, "zero.csv:1:1: found no line")):
            self.assertIn(what, self.run_one("kmeans", {"kclusters": 1}, 4, input=path))
        # Not only in one process.
        self.assertIn("header.csv: found no row", self.job(2, program="softmax", status=4, training_input=header))

    def test_foreign_formats_are_named_by_every_reader(self):
        with open(self.table(NUMBERS, ["a", "b", "y"]), encoding="utf-8") as file:
            text = file.read()
        inputs = {"bzip2 data": bz2.compress(text.encode()), "xz data": lzma.compress(text.encode()),
                  "a zip archive": zipped(text), "text in UTF-16": utf16(text),
                  "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(64),
                  "a Parquet file": b"PAR1\x15\x04" + bytes(64), "a Python pickle": b"\x80\x04\x95" + bytes(64),
                  "lz4 data": b"\x04\x22\x4d\x18" + bytes(64), "a 7z archive": b"7z\xbc\xaf\x27\x1c" + bytes(64)}
        paths = {}
        for number, (name, content) in enumerate(inputs.items()):
            paths[name] = self.path(f"foreign{number}")
            with open(paths[name], "wb") as file:
                file.write(content)
        readers = [(program, keys, "training_input") for program, keys, *_ in PROGRAMS]
        readers += [("kmeans", {"kclusters": 2}, "input"), ("wcc", {}, "input"), ("mf", {"k": 2}, "input"),
                    ("wc", {}, "input"), ("sim_dense", {}, "input"), ("gLDA", {"k_topics": 2}, "input"),
                    ("word2vec", {}, "input")]
        for reader, (program, keys, role) in enumerate(readers):
            for name, path in list(paths.items())[:None if reader == 0 else 2]:
                with self.subTest(program=program, name=name):
                    self.assertIn(f"{os.path.basename(path)}: found {name}", self.run_one(program, keys, 4, **{role: path}))
        # The content of a compressed file, and standard input.
        packed = self.path("utf16.gz")
        with open(packed, "wb") as file:
            file.write(subprocess.run(["gzip"], input=utf16(text), capture_output=True, check=True).stdout)
        self.assertIn("utf16.gz: found text in UTF-16", self.run_one("ridge", {"penalty": 1}, 4, training_input=packed))

    def test_a_wrong_index_is_no_allocation(self):
        rows = self.path("index.svm", "0 1:1 2:2\n1 2:1\n0 1:3 2000000000:1\n1 1:2\n")
        for program, keys, *_ in PROGRAMS:
            limit = 2 ** 20 if program in ("gbdt", "random_forest") else 2 ** 27
            with self.subTest(program=program):
                self.assertIn(f"index.svm:3:7: found index 2000000000, want at most {limit}",
                              self.run_one(program, keys, 4, training_input=rows))
        self.assertIn("index.svm:3:7: found index 2000000000", self.run_one("kmeans", {"kclusters": 1}, 4, input=rows))
        documents = self.path("words.svm", "1:1 2:2\n1:3 2000000000:1\n")
        self.assertIn("words.svm:2:5: found", self.run_one("gLDA", {"k_topics": 2}, 4, input=documents))

    def test_times_of_day_are_no_libsvm(self):
        for text, field in (("05:25,3,0\n05:26,4,1\n" * 2, "0"), ("3,05:25,0\n4,05:26,1\n" * 2, "1"),
                            ('"05:25",3,0\n"05:26",4,1\n' * 2, "0")):
            self.run_one("gbdt", {"loss": "squared", "rounds": 3, "min_child_rows": 1}, categorical=[int(field)],
                         training_input=self.path("times.csv", text))
            with open(os.path.join(self.output, "importance"), encoding="utf-8") as file:
                self.assertEqual(sorted(line.split("\t")[0] for line in file), ["0", "1"])

    def test_comments_of_svmlight_are_skipped(self):
        rows = self.path("rows.svm", "# of LETOR\n2 qid:1 1:3 #docid = A\n0 qid:1 1:1 #docid = B\n1 qid:2 1:2 #docid = C\n"
                         "0 qid:2 1:1 #docid = D\n")
        found = self.run_one("gbdt", {"loss": "lambdamart", "group": "qid", "rounds": 3, "min_child_rows": 1},
                             training_input=rows)
        self.assertEqual(float(self.results(found)["train_ndcg"]), 1)

    def test_the_row_numbers_of_pandas_are_no_feature(self):
        rows = self.path("pandas.csv", ",x,y\n0,1,2\n1,2,3\n2,5,9\n")
        alone = self.path("alone.csv", "1,2\n2,3\n5,9\n")
        right = self.results(self.run_one("ridge", {"penalty": 1}, training_input=alone))["objective"]
        for keys in ({}, {"target": "y"}, {"target": "y", "features": ["x"]}):
            found = self.results(self.run_one("ridge", {"penalty": 1}, training_input=rows, **keys))
            self.assertEqual(found["objective"], right)

    def test_models_may_have_line_ends_of_windows(self):
        for program, keys, kind, _ in PROGRAMS:
            with self.subTest(program=program, keys=keys):
                train = self.table(kind, ["a", "b", "y"])
                self.run_one(program, keys, training_input=train, predict_input=train)
                model, right = self.output, self.lines("pred_v", 1)
                for name in os.listdir(model):
                    if not os.path.isfile(os.path.join(model, name)):
                        continue
                    with open(os.path.join(model, name), "rb") as file:
                        content = file.read()
                    with open(os.path.join(model, name), "wb") as file:
                        file.write(content.replace(b"\n", b"\r\n"))
                self.run_one(program, {}, model=model, predict_input=train)
                self.assertEqual(self.lines("pred_v", 1), right)

    def test_equal_numbers_are_the_same_class(self):
        rows = self.path("classes.csv", "1,1.0\n2,0\n3,1.0\n4,0\n0,0\n")
        for program, keys, kind, _ in PROGRAMS:
            if kind == CLASSES:
                found = []
                for weight in (["1.0=2"], ["1=2"], ["+1=2"]):
                    self.run_one(program, keys, training_input=rows, predict_input=rows, class_weight=weight)
                    found.append(self.lines("pred_v", 1))
                self.assertEqual(found[0], found[1])
                self.assertEqual(found[0], found[2])

    def test_words_are_labels_of_lr(self):
        words = self.table(CLASSES, ["a", "b", "y"])
        with open(words, encoding="utf-8") as file:
            numbers = self.path("numbers.csv", file.read().replace(",yes", ",1").replace(",no", ",0"))
        for program, keys, *_ in PROGRAMS[:2]:
            outcomes = []
            for path in (words, numbers):
                quality = self.quality(program, keys, training_input=path, test_input=path, predict_input=path)
                outcomes.append((quality, self.lines("pred_v", 1)))
                model = self.output
                self.run_one(program, {}, model=model, test_input=path, predict_input=path)
                self.assertEqual(self.lines("pred_v", 1), outcomes[-1][1])
            self.assertEqual(*outcomes)
            self.assertIn(', want a class of the model: 0, 1',
                          self.run_one(program, {}, 4, model=model, test_input=words))
            three = self.path("three.csv", "1,a\n2,b\n3,c\n4,a\n")
            self.assertIn('three.csv:3:3: found label "c" after a and b, want two classes',
                          self.run_one(program, keys, 4, training_input=three))
            text = self.job(2, program=program, status=4, training_input=self.path("parts.csv", "1,a\n2,b\n3,c\n4,d\n"), **keys)
            self.assertIn("parts.csv: found the labels a, b, c, d, want two classes", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)

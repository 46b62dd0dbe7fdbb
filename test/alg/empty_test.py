#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Inputs without anything in them: every program refuses them with status 4, naming the file, in each role that a file can have.
The programs are those of alg/, the roles their keys of type `files`; one that is missing in the table below fails the test."""
import bz2
import glob
import json
import lzma
import os
import subprocess
import sys
import unittest
import zipfile

from alg_job import BIN, LONG, SOURCE, AlgorithmCase

# What an input may consist of: nothing; blank lines; comments; a header; compressed in another way than gzip and zstd.
BINARY = ("rows.bz2", "rows.xz", "rows.zip")
NOTHING = {"zero_bytes": "", "blank_lines": "\n \r\n\n", "comments": "# a b\n% c d\n// e f\n"}
TABLE = "".join(f"{i % 5},{i * i % 7},{i % 2}\n" for i in range(24))
REAL = "".join(f"{i % 5},{i * i % 7},{i % 5 + i % 3 / 4}\n" for i in range(24))
RATINGS = "".join(f"{u},{i},{(u * i) % 5 + 1}\n" for u in range(6) for i in range(5) if (u + i) % 4)
EDGES = "1 2\n2 3\n3 1\n3 4\n4 5\n5 3\n"
VECTORS = "".join(f"{i}\t{i % 3 + 0.5}|{i % 4 - 1.5}\n" for i in range(8))
SENTENCES = "a b c d e\nb c d e a\nc a b d\n" * 4

HEADED = {"header": "x,y,z\n"}
NAMED = {"header": "source,target\n"}
SAMPLES = {**NOTHING, **HEADED}
del SAMPLES["comments"]
ENTRIES = {**NOTHING, "header": "user,item,rating\n"}
EDGE_LINES = {**NOTHING, **NAMED}
LINES = {k: v for k, v in NOTHING.items() if k != "comments"}


class role:
    """The file of a key: what is right in it, and what is nothing."""

    def __init__(self, text, nothing):
        self.text = text
        self.nothing = nothing


def samples(text=TABLE, *more, **keys):
    """Keys of a program that trains on a table."""
    names = ("training_input", "test_input", "predict_input", *more)
    return {**{name: role(text, SAMPLES) for name in names}, "row_weights": role("1\n" * 24, LINES), **keys}


def graph(**keys):
    """Two configs, as edges may be missing where vertices are given."""
    roles = {name: value for name, value in keys.items() if isinstance(value, role)}
    plain = {name: value for name, value in keys.items() if name not in roles}
    return [{"input": role(EDGES, EDGE_LINES), **keys},
            {"vertices": role("1\n2\n3\n4\n5\n6\n", NOTHING), "input": "EDGES", **plain}]


ratings = lambda: role(RATINGS, ENTRIES)
vectors = lambda: role(VECTORS, {**LINES, "header": "id,x,y\n"})

# program: the configs in which its roles occur. The file of each role in turn is replaced by one with nothing in it.
PROGRAMS = {
    "adjust_ktop_sparse": [{"rating_input": ratings(), "sim_input": role("1\t2:0.5\n2\t1:0.5\n", LINES)}],
    "als": [{"rating_input": ratings(), "test_input": ratings(), "predict_input": ratings(), "k": 2, "rounds": 2},
            {"rating_input": ratings(), "factor_input": role(VECTORS, LINES), "validate_input": ratings()}],
    "als_validate": [{"rating_input": ratings(), "factor_input": role(VECTORS, LINES), "validate_input": ratings(),
                      "lambdas": [0.1]}],
    "bfs": graph(source="1"),
    "wcc": graph(),
    "dtr": [{"user_fac_input": vectors(), "item_fac_input": vectors(), "level": 2},
            {"model": "DTR_MODEL", "predict_input": role("1,2,1\n1,3,-1\n", ENTRIES)}],
    "fm": [samples(TABLE, "validation_input", k=2, rounds=2)],
    "gbdt": [samples(TABLE, "validation_input", loss="log", rounds=2, min_child_rows=1)],
    "k_core": graph(),
    "kmeans": [{"input": role(TABLE, SAMPLES), "row_weights": role("1\n" * 24, LINES), "kclusters": 2, "rounds": 3}],
    "label_propagation": graph(),
    "lasso": [samples(REAL, penalty=0.1)],
    "gLDA": [{"input": role(SENTENCES, LINES), "test_input": role(SENTENCES, LINES), "predict_input": role(SENTENCES, LINES),
              "k_topics": 2, "iters": 2, "alpha": 0.1, "beta": 0.1},
             {"input": role("1:2 2:1\n2:1 3:4\n", LINES), "vocabulary": role("a\nb\nc\n", LINES), "k_topics": 2, "iters": 2,
              "alpha": 0.1, "beta": 0.1}],
    "linear_svm": [samples(TABLE, "validation_input")],
    "linear_svr": [samples(REAL, "validation_input")],
    "lr": [samples(method="newton", rounds=5, beta=0.1)],
    "lr_l1": [samples(C=1)],
    "mf": [{"input": ratings(), "test_input": ratings(), "predict_input": ratings(), "k": 2, "rounds": 2}],
    "mvv": graph(),
    "mvv_pregel": graph(),
    "naive_bayes": [samples(distribution="gaussian")],
    "pagerank": graph(personalization=role("1 1\n", NOTHING)),
    "random_forest": [samples(trees=3, type="classification")],
    "ridge": [samples(REAL, penalty=1)],
    "scc": graph(),
    "ab_sim_dense": [{"input_a": vectors(), "input_b": vectors()}],
    "sim_dense": [{"input": vectors()}],
    "sim_sparse": [{"input": ratings()}],
    "softmax": [samples(TABLE, "validation_input")],
    "spectral_clustering": graph(kclusters=2),
    "sssp": graph(source="1"),
    "steady_state_inversion": [{"bigraph_input": role("AL,BR,1\n", ENTRIES),
                                "distribution_input": role("AL,1\nBR,1\n", {**LINES, "header": "id,p\n"})}],
    "svd": [{"input": ratings(), "k": 2}],
    "triangle_count": graph(),
    "word2vec": [{"input": role(SENTENCES, LINES), "test_input": role("a b 1\nb c 2\n", LINES),
                  "predict_input": role("a\n", LINES), "k": 4, "rounds": 1, "min_count": 1}],
    "wc": [{"input": role("a b\n", LINES)}],
}
# Keys of type `files` that name a model; and another name of a key in the table.
NO_ROLE = {"model", "model_input", "initial_model"}
ALIAS = {"input": "training_input"}


class Empty(AlgorithmCase):
    program = "empty"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.files = 0
        os.mkdir(os.path.join(cls.folder, "empty_folder"))
        packed = {"rows.bz2": bz2.compress(TABLE.encode()), "rows.xz": lzma.compress(TABLE.encode())}
        for name, content in packed.items():
            with open(os.path.join(cls.folder, name), "wb") as file:
                file.write(content)
        with zipfile.ZipFile(os.path.join(cls.folder, "rows.zip"), "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("rows", TABLE)

    def file(self, text):
        type(self).files += 1
        return self.path(f"file{self.files}", text)

    def complete(self, config):
        """The config with a right file for each role."""
        keys = {}
        for name, value in config.items():
            keys[name] = self.file(value.text) if isinstance(value, role) else value
        if keys.get("input") == "EDGES":
            keys["input"] = self.file(EDGES)
        if keys.get("model") == "DTR_MODEL":
            self.job(mode="embedded", program="dtr", **self.complete(PROGRAMS["dtr"][0]))
            keys["model"] = self.output
        return keys

    def schema(self, program):
        done = subprocess.run([os.path.join(BIN, program), "--schema"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["keys"]

    def test_the_table_has_every_program_and_each_of_its_roles(self):
        built = {os.path.basename(name).removesuffix("_main.cpp") for name in glob.glob(os.path.join(SOURCE, "alg/*/*_main.cpp"))}
        self.assertEqual(set(PROGRAMS), built)
        for program, configs in PROGRAMS.items():
            roles = {name for config in configs for name, value in config.items() if isinstance(value, role)}
            keys = self.schema(program)
            keys = keys.items() if isinstance(keys, dict) else ((key["name"], key) for key in keys)
            files = {name for name, key in keys if key["type"] in ("files", "file") and name not in NO_ROLE}
            files -= {name for name, other in ALIAS.items() if other in files}
            self.assertEqual(roles, files, program)

    def refuse(self, program, keys, name, path):
        said = self.job(mode="embedded", program=program, status=4, **{**keys, name: path})
        self.assertIn(os.path.basename(path), said, (program, name))
        self.assertNotIn("bad_alloc", said)

    def test_nothing_is_refused_in_each_role(self):
        for program, configs in PROGRAMS.items():
            for config in configs:
                keys = self.complete(config)
                # What the file replaces is right, or nothing would follow from the refusals.
                with self.subTest(program, keys=sorted(keys)):
                    self.job(mode="embedded", program=program, **keys)
                for name, value in config.items():
                    if not isinstance(value, role):
                        continue
                    kinds = value.nothing if LONG else {k: v for k, v in value.nothing.items() if k != "blank_lines"}
                    for kind, text in kinds.items():
                        with self.subTest(program, role=name, kind=kind):
                            self.refuse(program, keys, name, self.file(text))

    def test_so_are_empty_folders_and_unknown_compressions(self):
        for program, configs in PROGRAMS.items():
            config = configs[0]
            keys = self.complete(config)
            roles = [name for name, value in config.items() if isinstance(value, role)]
            for name in roles if LONG else roles[:1]:
                for path in ("empty_folder", *(BINARY if LONG else BINARY[:1])):
                    with self.subTest(program, role=name, path=path):
                        self.refuse(program, keys, name, os.path.join(self.folder, path))

    def test_with_vertices_a_graph_needs_no_edges(self):
        for program in ("wcc", "pagerank"):
            keys = self.complete(PROGRAMS[program][1])
            found = self.results(self.job(mode="embedded", program=program, **{**keys, "input": self.file("")}))
            self.assertEqual(found["vertices"], 6)

    def test_workers_without_a_part_refuse_too(self):
        for program in ("wcc", "mf", "sim_dense", "ridge", "wc"):
            keys = self.complete(PROGRAMS[program][0])
            name = next(iter(PROGRAMS[program][0]))
            with self.subTest(program):
                self.job(workers=3, program=program, status=4, **{**keys, name: self.file("")})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])

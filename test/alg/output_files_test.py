#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The key output_files of every program: a single file instead of one for each worker, with the same contents in rank order. The
jobs are those of the READMEs, as text and with PARACEL_LONG=1 as arrays; later jobs of a README read what earlier ones have
merged."""
import ast
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from alg_job import LONG
from folders_test import BUILD, SOURCE, binaries, commands, environment, folders

KEY = "output_files"
# A file of a rank; the number in dtr's average_user_factor_<tree> is that of a tree.
PART = re.compile(r"(?!average_user_factor_)(.+)_(\d+)(\.npy|\.txt|)$")
# Programs whose files have no rank.
NO_FILES = {"als_validate"}
# Files that are written only if the config requests them. (All jobs of the READMEs are bit-identical each time.)
MORE = {"wc": {"dump": True}, "triangle_count": {"per_vertex": True}, "gLDA": {"dump_documents": True},
        "mf": {"recommend": 3}}
# Programs that their README mentions but does not start.
ONLY_NAMED = {
    "max_vertex_value": ["./prun.py -w 2 -p 1 -c alg/max_vertex_value/mvv.json -m local build/bin/mvv_pregel"]}


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def npy(content):
    """(shape, type, bytes of the elements)"""
    end = 10 + struct.unpack("<H", content[8:10])[0]
    header = ast.literal_eval(content[10:end].decode())
    return header["shape"], header["descr"], content[end:]


def results(folder):
    return {name for name in os.listdir(folder) if name != ".paracel"}


def joined(folder):
    """{name of the single file: its content, merged from the workers' files}, and the names of the other files."""
    parts, others = {}, set()
    for name in results(folder):
        match = PART.match(name)
        if match:
            parts.setdefault((match[1], match[3]), {})[int(match[2])] = read(folder, name)
        else:
            others.add(name)
    whole = {}
    for (stem, ending), by_rank in parts.items():
        contents = [by_rank[rank] for rank in sorted(by_rank)]
        if ending == ".npy":
            arrays = [npy(c) for c in contents]
            shape = (sum(a[0][0] for a in arrays), *arrays[0][0][1:])
            whole[stem + ending] = (shape, arrays[0][1], b"".join(a[2] for a in arrays))
        else:
            whole[stem + (ending or ".txt")] = b"".join(contents)
    return whole, others


class OutputFiles(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="paracel_one_")
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        for name in ("prun.py", "tool", "alg"):
            os.symlink(os.path.join(SOURCE, name), os.path.join(self.work, name))
        os.symlink(BUILD, os.path.join(self.work, "build"))

    def run_line(self, words, status=0):
        done = subprocess.run(words, cwd=self.work, env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, status, f"{words}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def prun(self, program, workers, config, servers="1", status=0):
        return self.run_line([sys.executable, "-B", "prun.py", "-w", workers, "-p", servers, "-c", config, "-m", "local",
                              "build/bin/" + program], status)

    def config(self, name, keys):
        with open(os.path.join(self.work, name), "w", encoding="utf-8") as file:
            json.dump(keys, file)
        return name

    def schema(self, program):
        done = self.run_line(["build/bin/" + program, "--schema"])
        return {key["name"]: key for key in json.loads(done.stdout)["keys"]}

    def compare(self, program, one, parts, text):
        expected, others = joined(parts)
        self.assertTrue(expected, f"{program} wrote no file of a worker")
        self.assertEqual(results(one), set(expected) | others)
        for name, content in expected.items():
            found = read(one, name)
            found = npy(found) if name.endswith(".npy") else found
            self.assertEqual(found, content, f"{program}: {name}")
        if "model.json" not in others:
            return
        manifest = json.loads(read(one, "model.json"))
        for name, array in manifest["arrays"].items():
            self.assertEqual(array["files"], [name + (".txt" if text else ".npy")])
            self.assertTrue(set(array.get("ids", [])) <= set(expected), array)
        self.assertEqual(manifest["settings"].get(KEY), 1)
        self.assertNotIn(KEY, json.loads(read(parts, "model.json"))["settings"])

    def job(self, program, workers, servers, keys):
        """A README's job both ways: {whether it merges: folder}. Later jobs use the results of the one that does."""
        output = os.path.normpath(keys["output"])
        both = {}
        for one in (False, True):
            folder = output if one else output + "_parts"
            config = dict(keys, output=folder, **MORE.get(program, {}))
            if one:
                config[KEY] = 1
            self.prun(program, workers, self.config("readme.json", config), servers)
            both[one] = os.path.join(self.work, folder)
        return both

    def test_every_program_writes_what_its_workers_would_have_written(self):
        seen = set()
        for folder in folders():
            for form in ("text", "npy") if LONG else ("text",):
                with self.subTest(folder, form=form):
                    self.jobs_of(folder, form, seen)
        self.assertEqual(seen, {b for f in folders() for b in binaries(f)})

    def jobs_of(self, folder, form, seen):
        done = set()
        for line in commands(folder) + ONLY_NAMED.get(folder, []):
            words = shlex.split(line, comments=True)
            if words[0].startswith("./build/bin/"):
                words = ["./prun.py", "-w", "2", "-p", "1", "-c", words[2], "-m", "local", words[0]]
                if os.path.basename(words[-1]) in done:
                    continue  # the same job in one process
            if words[0] != "./prun.py":
                self.run_line(["bash", "-euc", line])
                continue
            program = os.path.basename(words[-1])
            workers, servers, config = (words[words.index(option) + 1] for option in ("-w", "-p", "-c"))
            done.add(program)
            schema = self.schema(program)
            keys = json.loads(read(self.work, config))
            # Inputs that an earlier job has merged: their names have no rank.
            for key, value in keys.items():
                if isinstance(value, str) and value.endswith("_*"):
                    keys[key] = value[:-2] + ".txt"
            # Lists of neighbours are read as text; a model is read in both forms.
            forms = [k for k in ("output_format", "format") if schema.get(k, {}).get("choices") == ["text", "npy"]]
            if form == "npy" and forms and not (folder == "adjust_ktop_sparse" and program == "sim_sparse"):
                keys[forms[0]] = "npy"
            if program in NO_FILES:
                self.assertNotIn(KEY, schema)
                seen.add(program)
                if form == "text":
                    self.prun(program, workers, self.config("none.json", keys), servers)
                continue
            self.assertIn(KEY, schema, program)
            both = self.job(program, workers, servers, keys)
            self.compare(program, both[True], both[False], form == "text")
            seen.add(program)

    def test_other_numbers_of_files_are_refused_before_anything_starts(self):
        for program in ("kmeans", "wc", "pagerank", "lr"):
            schema = self.schema(program)
            for wrong in (0, 2, -1, 1.5, "all", True):
                keys = {KEY: wrong}
                if "input" in schema:
                    self.config("input.txt", {})
                    keys["input"] = "input.txt"
                name = self.config("bad.json", keys)
                want = r'key "output_files": found .*, want 1, or the key left out'
                done = self.prun(program, "2", name, status=3)
                self.assertRegex(done.stderr, "bad.json:1:2: " + want)
                done = self.run_line(["build/bin/" + program, "--cfg_file", name], status=3)
                self.assertRegex(done.stderr, "bad.json:1:2: " + want)
                self.assertFalse(os.path.exists(os.path.join(self.work, "paracel_runs")), "a job has begun")

    def test_a_merged_model_is_used_as_one_of_parts_is(self):
        self.run_line(["./tool/datagen.py", "-m", "kmeans", "-o", "points.csv", "-n", "500", "-k", "5"])
        for form in ("text", "npy"):
            labels = []
            for one in (0, 1):
                keys = {"input": "points.csv", "type": "fvec", "format": form, "output": f"model_{form}_{one}"}
                more = {KEY: 1} if one else {}
                name = self.config("train.json", dict(keys, kclusters=7, **more))
                self.prun("kmeans", "3", name)
                used = dict(keys, output=f"used_{form}_{one}", model=keys["output"], **{KEY: 1})
                self.prun("kmeans", "3", self.config("use.json", used))
                labels.append(read(self.work, used["output"], "labels.txt" if form == "text" else "labels.npy"))
            self.assertEqual(*labels)

    def test_a_run_that_merges_removes_the_parts_of_the_run_before_it(self):
        with open(os.path.join(self.work, "words.txt"), "w", encoding="ascii") as file:
            file.write("some words and some others\n")
        for more in ({}, {KEY: 1}, {}):
            name = self.config("wc.json", {"input": "words.txt", "output": "out", "dump": True, **more})
            self.prun("wc", "2", name)
            expected = {"wc.txt", "wc_top.txt"} if more else {"wc_0", "wc_1", "wc_top_0"}
            self.assertEqual(results(os.path.join(self.work, "out")), expected | {"metrics.jsonl"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The samples of output in the documents are what programs print: those of doc/loading.md are compared here, the others by the
test that is named before them."""
import bz2
import ctypes
import glob
import gzip
import json
import os
import re
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from document_samples import MARK, SOURCE, normal, samples, text_of  # noqa: E402
from process_support import BIN, JobTest, clean_environment, main, patient  # noqa: E402

PAGES = ["README.md", *(page for pattern in ("doc/*.md", "alg/**/README.md") for page in glob.glob(pattern, root_dir=SOURCE))]
# Lines that look like output of a program.
OUTPUT = re.compile(r"prun: |error: |infeasible: |superstep \d|the tasks differ|\S+   valid   |"
                    r"\S+\.(csv|svm|npy|log|gz|zst)(:\d+|: )")


def zstd(text):
    """Compressed by the library: its command need not be installed."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(len(text) + 1024)
    size = library.ZSTD_compress(room, ctypes.c_size_t(len(room)), text, ctypes.c_size_t(len(text)), 3)
    return room.raw[:size]


def damaged(text):
    return text[:40] + bytes(b ^ 0x55 for b in text[40:60]) + text[60:]


class Documents(JobTest):
    def said_of(self, program, files, stdin="", **keys):
        for name, content in files.items():
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        with open(os.path.join(self.folder, "c.json"), "w", encoding="utf-8") as file:
            json.dump(dict(keys, output="result", **({"penalty": 1} if program == "ridge" else {})), file)
        done = subprocess.run([os.path.join(BIN, program), "--cfg_file", "c.json"], cwd=self.folder, capture_output=True,
                              text=True, input=stdin, timeout=patient(60), check=False, env=clean_environment())
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        return done.stderr

    def test_errors_in_input_are_those_of_the_page(self):
        def train(program, text, name="train.csv", stdin="", **keys):
            return self.said_of(program, {name: text}, stdin, training_input=name, **keys)

        def compressed(suffix, change):
            words = "".join(f"{i * 7919 % 10007} words\n" for i in range(30000)).encode()
            content = gzip.compress(words) if suffix == "gz" else zstd(words)
            return self.said_of("wc", {"log." + suffix: change(content)}, input="log." + suffix)

        rows = numpy.arange(60.0).reshape(20, 3)
        rows[16, 2] = numpy.nan
        numpy.save(os.path.join(self.folder, "whole.npy"), rows)
        with open(os.path.join(self.folder, "whole.npy"), "rb") as file:
            npy = file.read()
        plain = "1,2\n2,1\n3,3\n"
        said = [
            train("ridge", "1,2\n3,4\nabc,5\n"),
            self.said_of("softmax", {"train.csv": "1,black\n2,white\n", "test.csv": "1,black\n2,white\n3,grey\n"},
                         training_input="train.csv", test_input="test.csv"),
            train("ridge", "1,2,3\n4,5,6\n1,2,3,4\n"),
            train("gbdt", "0,1,2\n1,2,1\n3.5,1,2\n", categorical=["0"], loss="squared"),
            train("gbdt", "0,1,2\n1,-1,1\n3,1,2\n", weight="1", loss="squared"),
            train("ridge", '1,2\n3,"4\n'),
            train("ridge", "1 1:2\n2 0:1\n", "train.svm"),
            train("ridge", "1 1:2\n2 1:1\n3 1:1 2000000000:1\n", "train.svm"),
            train("ridge", "1 1:2\n2 3:1 2:4\n", "train.svm"),
            train("ridge", "day,count\n1,2\n", "hour.csv", target="cnt"),
            train("lr_l1", "1,no\n2,yes\n3,maybe\n", C=1),
            self.said_of("ridge", {"train.csv": plain, "test.csv": "x,y\n"}, training_input="train.csv", test_input="test.csv"),
            train("ridge", bz2.compress(plain.encode()), "train.csv.bz2"),
            train("ridge", npy, "x.npy"),
            train("ridge", npy[:128].replace(b"(20, 3)", b"(3, 3) ") + npy[128:176], "x.npy"),
            compressed("gz", lambda b: b[:-2000]),
            compressed("zst", damaged),
            self.said_of("ridge", {}, plain + "x,1\n", training_input="-"),
            self.said_of("wcc", {"edges.csv": "source target\n"}, input="edges.csv", header="yes"),
        ]
        all_said = normal("\n".join(said))
        lines = samples("doc/loading.md", "test_documents")
        self.assertEqual(len(lines), len(said))
        for line in lines:
            self.assertIn(normal(line), all_said, "\n".join(said))

    def test_names_in_the_architecture_exist(self):
        sources = "".join(text_of(path) for pattern in ("include", "src", "server", "alg", "tool")
                          for suffix in ("hpp", "cpp", "py")
                          for path in glob.glob(f"{pattern}/**/*.{suffix}", root_dir=SOURCE, recursive=True))
        known = set(re.findall(r"\w+", sources))
        names = re.findall(r"`([a-z]\w*(?:::\w+)+)(?:\(\))?`", text_of("doc/architecture.md"))
        self.assertGreater(len(names), 25)
        for name in names:
            self.assertLessEqual(set(name.split("::")), known, name)

    def test_tests_that_a_page_names_exist(self):
        there = {os.path.basename(path) for path in glob.glob("test/**/*.*", root_dir=SOURCE, recursive=True)}
        pages = ["README.md", *(path for top in ("doc", "src", "server", "tool", "test", "alg")
                                for path in glob.glob(f"{top}/**/*.md", root_dir=SOURCE, recursive=True))]
        named = {(page, name) for page in pages for name in re.findall(
            r"`(?:\w+/)*(test_\w+\.py|\w+_test\.(?:cpp|py)|fuzz_\w+)`", text_of(page))}
        self.assertGreater(len(named), 60)
        for page, name in sorted(named):
            self.assertIn(name + ".cpp" * name.startswith("fuzz_"), there, page)

    def test_every_sample_is_compared(self):
        for page in PAGES:
            text = text_of(page)
            for name, block in MARK.findall(text):
                paths = [p for suffix in ("py", "cpp")
                         for p in glob.glob(f"test/**/{name}.{suffix}", root_dir=SOURCE, recursive=True)]
                self.assertTrue(any("samples(" in text_of(path) for path in paths), f"{page}: {name}")
                text = text.replace(block, "")
            for line in text.splitlines():
                self.assertFalse(line.startswith("    ") and OUTPUT.match(line.strip()), f"{page}: {line}: say what prints it")


if __name__ == "__main__":
    main()

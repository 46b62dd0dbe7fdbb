#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A common vocabulary for the metrics of runs (doc/metrics.md): the commands of all READMEs, with what they write and print."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from folders_test import ALG, BUILD, SOURCE, binaries, commands, environment, folders, read



def vocabulary():
    """The names in the table."""
    rows = re.findall(r"^\| *(`[^|]*)\|", read(SOURCE, "doc", "metrics.md"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


class Metrics(unittest.TestCase):
    def run_commands(self, folder):
        """Runs the commands of a README; yields (program, config, result of the command)."""
        work = tempfile.mkdtemp(prefix="paracel_metrics_")
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)
        for name in ("prun.py", "tool", "alg"):
            os.symlink(os.path.join(SOURCE, name), os.path.join(work, name))
        os.symlink(BUILD, os.path.join(work, "build"))
        for line in commands(folder):
            done = subprocess.run(["bash", "-euc", line], cwd=work, env=environment(), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            program = re.search(r"build/bin/(\w+)", line)
            config = re.search(r"-c (\S+)", line)
            if "prun.py" not in line or program is None or config is None:
                continue
            with open(os.path.join(work, config.group(1)), encoding="utf-8") as file:
                settings = json.load(file)
            yield program.group(1), settings, os.path.join(work, settings["output"]), done

    def check_lines(self, program, settings, lines):
        words = vocabulary()
        place = {}
        for line in lines:
            self.assertEqual(list(line)[0], "round", program)
            self.assertEqual(set(line) - words, set(), f"{program}: names that doc/metrics.md does not have")
            self.assertIn("seconds", line)
            part = (line.get("run"), line.get("stage"))
            self.assertGreater(line["round"], place.get(part, 0), f"{program}: {line}")
            place[part] = line["round"]
            if isinstance(settings.get("rounds"), int) and line.get("stage") != 1:
                self.assertLessEqual(line["round"], settings["rounds"], f"{program}: {line}")

    def check_progress(self, program, said):
        words = vocabulary()
        for number, total, metric in re.findall(r"round (\d+)/(\d+)(?:  (\w+) )?", said):
            self.assertLessEqual(int(number), int(total), program)
            if metric:
                self.assertIn(metric, words, program)

    def test_every_program_says_what_it_does_in_the_words_of_the_vocabulary(self):
        ran = set()
        for folder in folders():
            for program, settings, output, done in self.run_commands(folder):
                with self.subTest(program=program):
                    ran.add(program)
                    self.check_progress(program, done.stderr)
                    printed = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.count(" ") == 1)
                    lines = []
                    if os.path.exists(os.path.join(output, "metrics.jsonl")):
                        lines = [json.loads(line) for line in read(output, "metrics.jsonl").splitlines()]
                    self.check_lines(program, settings, lines)
                    # An objective is the same quantity during the run and at the end.
                    for name in ("objective", "inertia", "l1", "rmse"):
                        watched = [line[name] for line in lines if list(line)[1] == name]
                        if watched and name in printed and program != "als_validate":
                            self.assertTrue(any(near(w, float(printed[name])) for w in watched),
                                            f"{program}: {name} {printed[name]} at the end, {watched[-1]} in the last round")
                    if os.path.exists(os.path.join(output, "model.json")):
                        model = json.loads(read(output, "model.json"))
                        schema = json.loads(subprocess.run([os.path.join(BUILD, "bin", program), "--schema"], text=True,
                                                           capture_output=True, check=True, env=environment()).stdout)
                        keys = {k["name"] for k in schema["keys"]
                                if k["type"] not in ("file", "files", "plugin", "folder_out")}
                        # If given, it is 1; otherwise it has no default.
                        self.assertEqual(keys - set(model["settings"]), {"output_files"} & keys - set(settings), program)
                        for key in keys & set(settings) & {"k", "rounds", "seed", "damping_factor", "topk"}:
                            self.assertEqual(model["settings"][key], settings[key], f"{program}: {key}")
        shipped = {b for folder in os.listdir(ALG) if folder in folders() for b in binaries(folder)}
        self.assertEqual(shipped - ran, {"mvv_pregel", "ab_sim_dense"}, "programs that no README's command starts")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

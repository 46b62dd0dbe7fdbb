#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""prun.py sweep: real runs of lr over grids and random draws; killed and continued; its table, CSV and plot."""
import csv
import json
import math
import os
import signal
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import LR, JobTest, main, wait_until  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


class Sweep(JobTest):
    def sweep(self, folder, *arguments, program=LR, status=0):
        """(standard output, standard error) of a sweep that ends with this status."""
        found, out, err = self.prun("sweep", "cfg.json", "--sweep-dir", folder, *arguments, program)
        self.assertEqual(found, status, out + err)
        return out, err

    def rows(self, folder):
        with open(os.path.join(self.folder, folder, "table.csv"), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def finished(self, folder):
        try:
            with open(os.path.join(self.folder, folder, "points.jsonl"), "rb") as file:
                return [json.loads(line) for line in file]
        except FileNotFoundError:
            return []

    def circles(self, folder):
        return list(xml.etree.ElementTree.parse(os.path.join(self.folder, folder, "plot.svg")).iter(SVG + "circle"))

    def test_a_grid_is_every_pair_sorted_by_the_objective(self):
        out, err = self.sweep("grid", "--grid", "alpha=0.01,0.1,1", "--grid", "rounds=2,40", "--jobs", "3")
        rows = self.rows("grid")
        self.assertEqual({(row["alpha"], row["rounds"]) for row in rows},
                         {(alpha, rounds) for alpha in ("0.01", "0.1", "1") for rounds in ("2", "40")})
        objectives = [float(row["objective"]) for row in rows]
        self.assertEqual(objectives, sorted(objectives))
        self.assertEqual((rows[0]["alpha"], rows[0]["rounds"]), ("1", "40"))
        lines = out.splitlines()
        self.assertEqual(lines[0].split(), ["objective", "alpha", "rounds", "seconds", "cause"])
        self.assertEqual([line.split()[1:3] for line in lines[1:]], [[row["alpha"], row["rounds"]] for row in rows])
        # By another route: the program itself, with the command that it prints.
        best = next(line for line in err.splitlines() if "the best: " in line).split("the best: ")[1].split()
        self.assertEqual(best[1:], ["--cfg_file", "cfg.json", "--set", "alpha=1", "--set", "rounds=40"])
        self.assertEqual(self.prun("-c", "cfg.json", *best[3:], "--set", "output=best", LR)[0], 0)
        with open(os.path.join(self.folder, "best", "model.json"), encoding="utf-8") as file:
            self.assertAlmostEqual(json.load(file)["objective"], objectives[0], delta=1e-9)
        circles = self.circles("grid")
        self.assertEqual(len(circles), 2 * 6)
        self.assertEqual(sum(circle.get("fill") == "#c33" for circle in circles), 2)
        # As large as possible: the same points, the other way round; nothing runs again.
        _, err = self.sweep("grid", "--grid", "rounds=2,40", "--grid", "alpha=0.01,0.1,1", "--maximize", status=0)
        self.assertIn("prun: 6 of 6 points have finished before", err)
        self.assertEqual([float(row["objective"]) for row in self.rows("grid")], objectives[::-1])

    def test_a_point_that_fails_is_a_row_with_its_cause(self):
        out, _ = self.sweep("bad", "--grid", "alpha=0.1,-1", "--grid", "training_input=[\"training.dat\",\"no, \\\"such\\\"\"]")
        rows = self.rows("bad")
        self.assertEqual([bool(row["objective"]) for row in rows], [True, False, False, False])
        causes = {(row["alpha"], row["training_input"]): row["cause"] for row in rows}
        self.assertIn('--set: key "alpha": found number -1', causes["-1", "training.dat"])
        self.assertIn('no such file or folder: no, "such"', causes["0.1", 'no, "such"'])
        self.assertEqual({row["status"] for row in rows}, {"0", "3"})
        self.assertEqual(out.splitlines()[-1].split()[0], "-")
        _, err = self.sweep("bad2", "--grid", "alpha=-1,-2", status=1)
        self.assertNotIn("the best", err)
        self.assertEqual(self.circles("bad2"), [])
        killed = self.write_program("killed", "kill -KILL $$")
        self.sweep("bad3", "--grid", "a=1", program=killed, status=1)
        self.assertEqual(self.rows("bad3")[0]["cause"], "killed by SIGKILL")
        late = self.write_program("late", "sleep 60")
        self.sweep("bad4", "--grid", "a=1", "--timeout", "0.3", program=late, status=1)
        self.assertEqual(self.rows("bad4")[0]["cause"], "not done after 0.3 s")
        silent = self.write_program("silent", "echo objective: nan")
        self.sweep("bad5", "--grid", "a=1", program=silent, status=1)
        self.assertEqual(self.rows("bad5")[0]["cause"], "objective is not finite")
        self.sweep("bad6", "--grid", "a=1", "--objective", "auc", program=silent, status=1)
        self.assertEqual(self.rows("bad6")[0]["cause"], "no auc in what it has printed")

    def test_random_draws_are_those_of_the_seed_and_a_larger_n_adds_to_them(self):
        echo = self.write_program("echo_objective", 'echo "objective 1"')
        draws = ("--random", "lr=0.001:1:log", "--random", "k=2:5", "--random", "x=-1.5:1.5")
        self.sweep("random", *draws, "-n", "20", "--seed", "7", "--jobs", "4", program=echo)
        first = {row["lr"]: row for row in self.rows("random")}
        self.assertEqual(len(first), 20)
        self.assertEqual({row["k"] for row in first.values()}, {"2", "3", "4", "5"})
        for row in first.values():
            self.assertTrue(0.001 <= float(row["lr"]) <= 1 and -1.5 <= float(row["x"]) <= 1.5)
        # Evenly on a logarithmic scale: about a third of the draws in each power of ten.
        tens = [math.floor(math.log10(float(row["lr"]))) for row in first.values()]
        self.assertTrue(all(2 <= tens.count(ten) <= 12 for ten in (-3, -2, -1)), tens)
        _, err = self.sweep("random", *draws, "-n", "30", "--seed", "7", "--jobs", "4", program=echo)
        self.assertIn("20 of 30 points have finished before", err)
        more = {row["lr"]: row for row in self.rows("random")}
        self.assertEqual({lr: row["x"] for lr, row in more.items() if lr in first}, {lr: row["x"] for lr, row in first.items()})
        self.sweep("other", *draws, "-n", "20", "--seed", "8", program=echo)
        self.assertFalse(set(first) & {row["lr"] for row in self.rows("other")})

    def test_what_has_finished_before_a_kill_does_not_run_again(self):
        # Each run leaves a mark; points with a number above 3 wait until they may go on.
        script = self.write_program("marks", 'for w; do case $w in n=*) n=${w#n=};; esac; done', f"echo $n >> {self.folder}/ran",
                                    f"while [ $n -gt 3 ] && [ ! -e {self.folder}/enough ]; do sleep 0.05; done",
                                    'echo "objective $n"')
        arguments = ("sweep", "cfg.json", "--sweep-dir", "continued", "--grid", "n=1,2,3,4,5,6", "--jobs", "2", script)
        run = self.start(*arguments)
        marks = os.path.join(self.folder, "ran")

        def has_marks(count):
            with open(marks, encoding="ascii") as file:
                return len(file.readlines()) == count
        self.assertTrue(wait_until(lambda: len(self.finished("continued")) == 3 and has_marks(5), 30))
        self.assert_refused("belongs to a sweep that is running", *arguments)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        with open(os.path.join(self.folder, "continued", "points.jsonl"), "a", encoding="ascii") as file:
            file.write('{"settings": {"n": 4}, "obj')  # as a kill within a write leaves it
        self.touch(os.path.join(self.folder, "enough"))
        status, _, err = self.prun(*arguments)
        self.assertEqual(status, 0, err)
        self.assertIn("3 of 6 points have finished before", err)
        with open(marks, encoding="ascii") as file:
            self.assertEqual(sorted(file.read().split()), ["1", "2", "3", "4", "4", "5", "5", "6"])
        self.assertEqual([row["objective"] for row in self.rows("continued")], ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0"])
        self.assertEqual(len(self.finished("continued")), 6)

    def test_ctrl_c_ends_the_points_that_run(self):
        script = self.write_program("endless", f"echo $$ > {self.folder}/pid", "exec sleep 600")
        run = self.start("sweep", "cfg.json", "--sweep-dir", "ended", "--grid", "n=1,2", "--jobs", "1", script)
        path = os.path.join(self.folder, "pid")
        self.assertTrue(wait_until(lambda: os.path.exists(path) and os.path.getsize(path), 30))
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(), 130)
        with open(path, encoding="ascii") as file:
            self.assertFalse(os.path.exists(f"/proc/{file.read().strip()}"))
        self.assertEqual(self.finished("ended"), [])

    def test_failed_points_run_again_when_asked_to(self):
        script = self.write_program("later", f"[ -e {self.folder}/there ] && echo objective 1")
        self.sweep("retry", "--grid", "n=1,2", program=script, status=1)
        self.touch(os.path.join(self.folder, "there"))
        self.sweep("retry", "--grid", "n=1,2", program=script, status=1)
        self.sweep("retry", "--grid", "n=1,2", "--retry", program=script)
        self.assertEqual([row["objective"] for row in self.rows("retry")], ["1.0", "1.0"])

    def test_points_may_be_jobs_of_several_workers(self):
        self.sweep("jobs", "--grid", "alpha=0.1,1", "-w", "2", "-p", "2", "--jobs", "1")
        alone = {row["alpha"]: float(row["objective"]) for row in self.rows("jobs")}
        self.sweep("alone", "--grid", "alpha=0.1,1", "--jobs", "1")
        for row in self.rows("alone"):
            self.assertAlmostEqual(float(row["objective"]), alone[row["alpha"]], delta=1e-9)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "jobs", self.rows("jobs")[0]["folder"], "run", "server_1.log")))

    def test_another_config_needs_another_folder(self):
        echo = self.write_program("one", 'echo "objective 1"')
        self.write_config("inner.json", rounds=3)
        with open(os.path.join(self.folder, "outer.json"), "w", encoding="utf-8") as file:
            file.write('{"include": "inner.json"}')
        command = ("sweep", "outer.json", "--grid", "n=1", echo)
        self.assertEqual(self.prun(*command)[0], 0)
        self.assertEqual(self.prun(*command)[0], 0)
        self.write_config("inner.json", rounds=4)
        self.assert_refused("sweep_outer has a sweep with another config: name another folder with --sweep-dir, or remove it",
                            *command)

    def test_a_wrong_command_line_says_what_it_wants(self):
        for arguments, words in (((), "want --grid KEY=A,B,C or --random KEY=LOW:HIGH"),
                                 (("--grid", "alpha"), "found 'alpha', want KEY=A,B,C"),
                                 (("--grid", "alpha=1,,2"), "a value is empty"),
                                 (("--grid", "alpha=1,1"), "1 is given twice"),
                                 (("--grid", "alpha=1", "--random", "alpha=0:1"), "the key alpha is given twice"),
                                 (("--grid", "alpha=1", "--set", "alpha=2"), "the key alpha is given twice"),
                                 (("--grid", "output=a,b"), "each point has an output folder of its own"),
                                 (("--random", "alpha=1:0"), "the lower one first"),
                                 (("--random", "alpha=0:1:log"), "want LOW above 0 with log"),
                                 (("--random", "alpha=1"), "want KEY=LOW:HIGH, or KEY=LOW:HIGH:log"),
                                 (("--random", "alpha=0:1e999"), "want finite numbers"),
                                 (("--grid", "alpha=1", "--job", "2"), "unknown option --job: did you mean --jobs?"),
                                 (("--random", "alpha=0:1", "-n", "0"), "'0' is not a whole number above 0")):
            with self.subTest(arguments):
                _, err = self.sweep("wrong", *arguments, status=2)
                self.assertIn(words, err)
        _, err = self.sweep("wrong", "--grid", "alpa=1", status=3)
        self.assertIn("the program has no key alpa: did you mean alpha?", err)
        status, _, err = self.prun("sweep", "none.json", "--grid", "alpha=1", LR)
        self.assertEqual((status, err), (3, "prun.py: error: none.json: cannot be read: No such file or directory\n"))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "wrong")))


if __name__ == "__main__":
    main()

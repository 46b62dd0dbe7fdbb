#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic and the table of tool/bench/cost.py, with made-up figures, and its measurements, with generated programs."""
import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("bench_cost", os.path.join(SOURCE, "tool", "bench", "cost.py"))
cost = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cost)
import cost_rows  # noqa: E402  (cost.py has put its folder on the path)


def row(quality=cost_rows.same("objective"), judged=True):
    return cost_rows.Row("made up", "program", "", {}, "tool {data}", {}, quality, judged=judged)


def pair(tool, ours, objective=(2, 2), memory=(10**6, 2 * 10**6)):
    return {"tool": cost.Measured(tool, memory[0], "objective %s\n" % objective[1]),
            1: cost.Measured(ours, memory[1], "users 5\nobjective %s\noutput x\n" % objective[0]),
            2: cost.Measured(ours / 2, 2 * memory[1], "objective %s\n" % objective[0])}


class Figures(unittest.TestCase):
    def test_ratios_are_medians_of_the_pairs_and_memory_is_the_greatest(self):
        # The machine was three times as slow during the second pair.
        found = cost.summary(row(), [pair(10, 8), pair(30, 30), pair(9, 6, memory=(3 * 10**6, 10**6))], [1, 2], 10**8)
        self.assertEqual(found["tool_seconds"], 10)
        self.assertEqual(found["workers"]["1"]["seconds"], 8)
        self.assertEqual(found["workers"]["1"]["ratios"], [10 / 8, 1, 1.5])
        self.assertEqual(found["workers"]["1"]["ratio"], 1.25)
        self.assertEqual(found["workers"]["2"]["ratio"], 2.5)
        self.assertEqual((found["tool_bytes"], found["workers"]["1"]["bytes"]), (3 * 10**6, 2 * 10**6))
        self.assertTrue(found["equal_quality"])

    def test_one_run_of_less_quality_is_enough_for_a_row_to_be_unequal(self):
        found = cost.summary(row(), [pair(1, 1), pair(1, 1, (2.1, 2)), pair(1, 1)], [1, 2], 1)
        self.assertFalse(found["equal_quality"])
        self.assertEqual(found["quality"], "objective 2.1, 2")

    def test_qualities(self):
        line = "objective {}\nrank 3\n".format
        for check, ours, theirs, good in ((cost_rows.same("objective"), 1.00009, 1, True),
                                          (cost_rows.same("objective"), 1.00011, 1, False),
                                          (cost_rows.same("objective"), -1.00011, -1, False),
                                          (cost_rows.same("objective", part=0), 3, 3, True),
                                          (cost_rows.at_most("objective"), 0.5, 1, True),
                                          (cost_rows.at_most("objective"), 1.01, 1, False),
                                          (cost_rows.at_most("objective", part=0.02), 1.01, 1, True),
                                          (cost_rows.at_most("objective"), -1.01, -1, True),
                                          (cost_rows.both(cost_rows.same("rank"), cost_rows.same("objective")), 1, 1, True),
                                          (cost_rows.both(cost_rows.same("rank"), cost_rows.same("objective")), 1, 2, False)):
            self.assertEqual(check(line(ours), line(theirs))[0], good, (ours, theirs))
        # A word that is not a number, and a missing one.
        for output in ("objective none\n", "an objective 5\n"):
            with self.assertRaisesRegex(cost.CannotMeasure, "ours: no figure objective"):
                cost_rows.same("objective")(output, line(1))

    def test_the_time_of_the_rounds_is_found_in_any_unit(self):
        check = cost_rows.computing(cost_rows.same("objective"))
        theirs = "objective 1\ntrain_seconds 2.5\n"
        for time, seconds in (("673 ms, of which 50 % rounds, 13 % ending", "0.34"),
                              ("2 s, of which 9 % loading, 50 % rounds", "1.00"),
                              ("12.5 s, of which 50 % rounds, 10 % loading, 3 % ending; the worker: 73 % computing", "6.25"),
                              ("2 min 05 s, of which 10 % rounds", "12.50"), ("1 h 02 min, of which 100 % rounds", "3720.00")):
            good, text = check("objective 1\nprun: result: rmse 1, 2\nprun: time: %s\nprun: done in 1 s\n" % time, theirs)
            self.assertTrue(good)
            self.assertTrue(text.endswith("computing alone %s s, 2.50 s" % seconds), text)
        with self.assertRaisesRegex(cost_rows.CannotMeasure, "no time of the rounds"):
            check("objective 1\nprun: time: 2 s, of which 99 % running", theirs)

    def test_liblinears_objective_is_found(self):
        self.assertEqual(cost_rows.figure("iter 3\nObjective value = 10558.7\n#nonzeros = 98\n", "Objective", "it"), 10558.7)

    def test_two_workers_win_by_time_at_equal_quality(self):
        results = [cost.summary(row(), [pair(2, 3)], [1, 2], 1),                   # 1.33
                   cost.summary(row(), [pair(1, 3)], [1, 2], 1),                   # 0.67
                   cost.summary(row(), [pair(9, 3, (3, 2))], [1, 2], 1),           # not the same
                   cost.summary(row(judged=False), [pair(9, 3)], [1, 2], 1),       # does not count
                   {"row": "absent", "why": "it is not built"}]
        better, counting = cost.won(results)
        self.assertEqual((len(better), len(counting)), (1, 3))

    def test_the_table_has_a_cell_for_each_head_and_says_why_a_row_is_empty(self):
        results = [cost.summary(row(judged=False), [pair(2, 3, (3, 2))], [1, 2], 5 * 10**7),
                   {"row": "absent", "why": "it is not built"}]
        lines = cost.table(results, [1, 2]).split("\n")
        self.assertEqual({line.count("|") for line in lines}, {lines[0].count("|")})
        self.assertEqual([cell.strip() for cell in lines[2].split("|")[1:-1]],
                         ["made up (for orientation)", "50", "2.00", "3.00", "1.50", "0.67", "1.33", "1", "2", "4",
                          "NOT THE SAME: objective 3, 2"])
        self.assertIn("not measured: it is not built", lines[3])


class Rows(unittest.TestCase):
    def test_every_row_names_files_that_are_there_and_fields_that_are_filled(self):
        names = {"data": "D", "bin": "B", "work": "W", "first": "F", "also0": "A", "folder": "G", "python": "P"}
        for r in cost_rows.ROWS:
            for text in (r.tool, *(v for v in r.config.values() if isinstance(v, str))):
                filled = cost.fill(text, names)
                if not filled.startswith("mawk"):
                    self.assertNotRegex(filled, r"[{}]", r.name)
                for word in filled.split():
                    if word.startswith(cost_rows.BASELINES):
                        self.assertTrue(os.path.exists(word), word)
        self.assertEqual(len({r.name for r in cost_rows.ROWS}), len(cost_rows.ROWS))


class Measuring(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="bench_cost_test_")
        self.addCleanup(shutil.rmtree, self.folder)

    def test_peak_memory_is_the_sum_over_a_tree_of_processes(self):
        # Three Python processes of at least 30 MB each, two of them for half a second.
        code = ("import subprocess, sys, time\n"
                "if len(sys.argv) == 1:\n"
                "    children = [subprocess.Popen([sys.executable, __file__, 'x']) for _ in range(2)]\n"
                "    [c.wait() for c in children]\n"
                "kept = b'x' * 30_000_000\n"
                "time.sleep(0.5)\n"
                "print('done 1')\n")
        path = os.path.join(self.folder, "tree.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(code)
        found = cost.run_watched(["/usr/bin/python3", path], dict(os.environ), 30, True)
        self.assertEqual(cost_rows.figure(found.output, "done", "it"), 1)
        self.assertGreater(found.bytes, 90e6)
        self.assertLess(found.bytes, 200e6)
        self.assertGreater(found.seconds, 0.9)

    def test_the_tool_has_one_processor_and_one_thread(self):
        found = cost.run_alone("sh -c 'nproc; echo $OPENBLAS_NUM_THREADS $OMP_NUM_THREADS'", 30)
        self.assertEqual(found.output.split()[-2:], ["1", "1"])
        self.assertGreater(found.bytes, 0)

    def test_what_fails_or_does_not_end_is_said(self):
        with self.assertRaisesRegex(cost.CannotMeasure, "status 3: no"):
            cost.run_alone("sh -c 'echo no; exit 3'", 30)
        with self.assertRaisesRegex(cost.CannotMeasure, "not done after 0"):
            cost.run_alone("sleep 60", 0.2)

    def test_held_out_lines_are_in_one_file_alone(self):
        path = os.path.join(self.folder, "ratings")
        lines = ["%d,1,2\n" % i for i in range(25)]
        with open(path, "w", encoding="ascii") as file:
            file.writelines(lines)
        with open(cost.hold_out(path), encoding="ascii") as held, open(path, encoding="ascii") as rest:
            self.assertEqual((held.readlines(), rest.readlines()),
                             ([lines[9], lines[19]], [x for i, x in enumerate(lines) if i not in (9, 19)]))

    def test_rows_whose_programs_are_not_built_say_so(self):
        out, errors = io.StringIO(), io.StringIO()
        file = os.path.join(self.folder, "figures.json")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            self.assertEqual(cost.main(["--build", self.folder, "--rows", "pagerank,wc", "--json", file]), 0)
        self.assertEqual(out.getvalue().count("is not built"), 3)
        with open(file, encoding="utf-8") as figures:
            self.assertEqual(len(json.load(figures)["rows"]), 3)
        with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit):
            cost.main(["--rows", "nothing"])

    def test_rows_of_tools_that_no_registry_has_name_the_option(self):
        os.makedirs(os.path.join(self.folder, "bin"))
        for name in ("bfs", "sssp", "datagen"):
            os.symlink("/bin/true", os.path.join(self.folder, "bin", name))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            cost.main(["--build", self.folder, "--rows", "bfs (GAPBS),sssp (GAPBS),sssp (libgrape-lite)"])
        self.assertEqual(out.getvalue().count("--gapbs FOLDER names the folder in which it is built"), 2, out.getvalue())
        self.assertEqual(out.getvalue().count("--grape FOLDER"), 1)

    def test_graphs_are_written_as_gapbs_reads_them(self):
        path = os.path.join(self.folder, "edges")
        with open(path, "w", encoding="ascii") as file:
            file.write("3\t14\t0.001\n14\t5\t0.9996\n")
        weighted = cost_rows.whole_weights(path)
        with open(weighted, encoding="ascii") as file:
            self.assertEqual((os.path.basename(weighted), file.read()), ("edges.wel", "3 14 1\n14 5 1000\n"))
        self.assertEqual(os.listdir(self.folder), ["edges.wel"])
        with open(path, "w", encoding="ascii") as file:
            file.write("1\t2\n")
        self.assertEqual(cost_rows.edge_list(path), path + ".el")

    def test_what_a_search_of_gapbs_has_reached_is_compared(self):
        said = "Graph has 9 nodes\nTrial Time:          0.00012\nBFS Tree has 7 nodes and 12 edges\nAverage Time: 0.00012\n"
        self.assertEqual(cost_rows.gapbs_reached("reached 7\n", said), (True, "reached 7, 7; its search alone 0.00012 s"))
        self.assertFalse(cost_rows.gapbs_reached("reached 8\n", said)[0])
        self.assertTrue(cost_rows.gapbs_reached("reached 5\n", "Trial Time: 1\nSSSP Tree reaches 5 nodes\n")[0])
        with self.assertRaisesRegex(cost.CannotMeasure, "GAPBS: no Tree"):
            cost_rows.gapbs_reached("reached 5\n", "Read Time: 1\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

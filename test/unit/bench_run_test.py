#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic of tool/bench/run.py, with programs that print given figures."""
import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import time
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("bench_run", os.path.join(SOURCE, "tool", "bench", "run.py"))
bench_run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench_run)

KV = {"calls": 1, "p50_us": 1, "p99_us": 2, "request_bytes": 104, "reply_bytes": 72, "tail_request_bytes": 0,
      "tail_reply_bytes": 7}


class Arithmetic(unittest.TestCase):
    def test_the_commit_is_unknown_where_git_is_not_installed(self):
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = "/nonexistent"
        self.assertIsNone(bench_run.commit())

    def test_the_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_the_medians(self):
        # The machine was three times as fast during the second pair.
        pair = bench_run.paired([90, 300, 80], [100, 300, 100])
        self.assertEqual(pair["ratio"], 0.9)
        self.assertEqual(pair["ratios"], [0.9, 1.0, 0.8])
        self.assertEqual(bench_run.paired([1, 1, 1, 1], [1, 2, 4, 8])["ratio"], 0.375)

    def test_aims_have_two_directions(self):
        self.assertTrue(bench_run.is_met(0.95, ">= 0.95"))
        self.assertFalse(bench_run.is_met(0.9499, ">= 0.95"))
        self.assertTrue(bench_run.is_met(80, "<= 80"))
        self.assertFalse(bench_run.is_met(80.1, "<= 80"))
        self.assertIsNone(bench_run.is_met(1, None))

    def test_the_floor_gets_the_frames_the_window_and_the_processes_of_bench_kv(self):
        words = bench_run.floor_words("--verb pull --window 8 --workers 4 --servers 2 --transport tcp".split(), KV)
        self.assertEqual(words[0], "bench_zmq_floor")
        options = dict(zip(words[1::2], words[2::2]))
        self.assertEqual(options, {"--request_bytes": "104", "--reply_bytes": "72", "--tail_request_bytes": "0",
                                   "--tail_reply_bytes": "7", "--window": "8", "--clients": "4", "--servers": "2",
                                   "--transport": "tcp"})
        words = bench_run.floor_words("--verb pull --window 8 --transport unix".split(), KV)
        self.assertEqual(words, "bench_unix_floor --request_bytes 104 --reply_bytes 72 --tail_request_bytes 0 "
                                "--tail_reply_bytes 7 --window 8".split())

    def test_the_first_figure_that_is_there_counts(self):
        self.assertEqual(bench_run.figure_in({"b": 2, "c": 3}, ("a", "b", "c"), "p"), 2.0)
        self.assertEqual(bench_run.figure_in({"b": {"c": {"d": 4}}, "x": 1}, ("b.x", "b.c.d", "x"), "p"), 4.0)
        with self.assertRaisesRegex(bench_run.CannotMeasure, "p prints no a or d; it has b, c"):
            bench_run.figure_in({"b": 2, "c": 3, "text": "x", "a": None}, ("a", "d"), "p")

    def test_every_row_has_an_aim_that_can_be_judged_and_a_name_of_its_own(self):
        names = [r[1] for r in bench_run.KV_ROWS + bench_run.PROGRAM_ROWS] + [name for name, _ in bench_run.HOT_ROWS]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertLess(len(name), bench_run.WIDTHS[0], name)
        for row in bench_run.PROGRAM_ROWS:
            self.assertIn(bench_run.is_met(1.0, row[4]), (True, False, None))
        self.assertTrue(bench_run.is_met(1.0, bench_run.HOT_AIM))
        ways = bench_run.hot_keys.arguments(["--ways", ",".join(way for _, way in bench_run.HOT_ROWS)]).ways
        self.assertEqual(ways, [way for _, way in bench_run.HOT_ROWS])


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="paracel-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        os.mkdir(os.path.join(self.folder, "bin"))
        self.rows = (bench_run.KV_ROWS, bench_run.PROGRAM_ROWS)
        self.addCleanup(lambda: setattr(bench_run, "PROGRAM_ROWS", self.rows[1]))
        self.addCleanup(lambda: setattr(bench_run, "KV_ROWS", self.rows[0]))
        bench_run.KV_ROWS, bench_run.PROGRAM_ROWS = [], []

    def program(self, name, lines, status=0):
        """A program that prints the next of the lines on each call, and records its arguments."""
        path = os.path.join(self.folder, "bin", name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n"
                    f"n=$(cat {path}.n 2>/dev/null || echo 0)\n"
                    f"echo $((n + 1)) > {path}.n\n"
                    f"echo \"$*\" >> {path}.calls\n"
                    "case $n in\n")
            for i, line in enumerate(lines):
                f.write(f"{i}) echo '{json.dumps(line) if isinstance(line, dict) else line}';;\n")
            f.write(f"esac\nexit {status}\n")
        os.chmod(path, 0o755)

    def calls(self, name):
        with open(os.path.join(self.folder, "bin", name + ".calls"), encoding="utf-8") as f:
            return f.read().splitlines()

    def main(self, *words, pinned=False):
        """Returns the status, the output, and the JSON."""
        path = os.path.join(self.folder, "out.json")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = bench_run.main(["--bin-dir", os.path.join(self.folder, "bin"), "--json", path, *words]
                                    + ([] if pinned else ["--free"]))
        with open(path, encoding="utf-8") as f:
            return status, out.getvalue(), json.load(f)

    def test_bench_kv_and_the_floor_run_alternately(self):
        bench_run.KV_ROWS = [("one", "row", "--verb pull --window 8", 0.85)]
        self.program("bench_kv", [dict(KV, calls_per_second=r) for r in (90, 300, 80)])
        self.program("bench_zmq_floor", [dict(KV, calls_per_second=r) for r in (100, 300, 100)])
        status, out, result = self.main("--pairs", "3", "--group", "one")
        self.assertEqual(status, 0)
        row = result["rows"][0]
        self.assertEqual((row["figure"], row["floor"], row["ratio"], row["met"]), (90, 100, 0.9, True))
        self.assertEqual(row["ratios"], [0.9, 1.0, 0.8])
        self.assertRegex(out, r"row +90.00 +100.00 +0.900 +0.8-1.00 +>= 0.85  met")
        self.assertIn("1 of 1 aims met", out)
        self.assertIn("--window 8", self.calls("bench_zmq_floor")[0])
        self.assertIn("--tail_reply_bytes 7", self.calls("bench_zmq_floor")[0])
        for fact in ("platform", "cores", "commit", "libzmq", "load_before"):
            self.assertIn(fact, result["machine"])

    def test_over_unix_sockets_the_floor_is_an_echo_over_one(self):
        bench_run.KV_ROWS = [("unix", "row", "--verb pull --transport unix", 0.8)]
        self.program("bench_kv", [dict(KV, calls_per_second=r) for r in (90, 40)])
        self.program("bench_unix_floor", [dict(KV, calls_per_second=r) for r in (100, 100)])
        status, _, result = self.main("--pairs", "1", "--group", "unix", pinned=True)
        row = result["rows"][0]
        self.assertEqual((status, row["ratio"], row["met"], row["pinned"]["ratio"]), (0, 0.9, True, 0.4))
        self.assertNotIn("--transport", self.calls("bench_unix_floor")[0])

    def test_a_whole_run_over_unix_sockets_is_compared_with_one_over_zeromq(self):
        self.addCleanup(setattr, bench_run, "LR_ROWS", bench_run.LR_ROWS)
        self.addCleanup(setattr, bench_run, "output_of", bench_run.output_of)
        bench_run.LR_ROWS = [("agd", "", "<= 9"), ("agd", "unix", "<= 0.8")]
        self.program("lr", [])
        ran = []

        def run(words, _limit, **_):
            ran.append("--transport unix" in " ".join(words))
            time.sleep(0.05 if ran[-1] else 0.1)
        bench_run.output_of = run
        status, out, result = self.main("--pairs", "2", "--group", "lr")
        alone, pair = result["rows"]
        self.assertEqual((status, ran), (0, [False, False, False, True, False, True]))
        self.assertEqual((alone["met"], pair["met"], len(pair["ratios"])), (True, True, 2))
        self.assertRegex(out, r"lr agd, unix, to ZeroMQ .*<= 0.8  met")

    def test_rows_of_one_program_share_its_runs_and_a_ratio_is_taken_run_by_run(self):
        bench_run.PROGRAM_ROWS = [("rows", "pulled", "bench_x", ("pulled",), ">= 15", ""),
                                  ("rows", "added", "bench_x", ("gone", "added"), "<= 10", ""),
                                  ("rows", "twice", "bench_y --twice", ("added",), ">= 2", "bench_x")]
        self.program("bench_x", [{"pulled": 10, "added": 5}, {"pulled": 20, "added": 50}, {"pulled": 30, "added": 5}])
        self.program("bench_y", [{"added": 11}, {"added": 90}, {"added": 12}])
        status, out, result = self.main("--pairs", "3", "--group", "rows")
        self.assertEqual(status, 0)
        self.assertEqual(len(self.calls("bench_x")), 3)
        pulled, added, twice = result["rows"]
        self.assertEqual((pulled["figure"], pulled["met"]), (20, True))
        self.assertEqual((added["figure"], added["met"]), (5, True))
        self.assertEqual((twice["ratio"], twice["met"]), (2.2, True))
        self.assertIn("3 of 3 aims met", out)

    def test_what_cannot_be_measured_is_named_and_the_rest_continues(self):
        bench_run.KV_ROWS = [("one", "no such verb", "--verb set_pull", 0.8)]
        bench_run.PROGRAM_ROWS = [("rows", "not there", "bench_gone", ("a",), ">= 1", ""),
                                  ("rows", "other name", "bench_x", ("a",), ">= 1", ""),
                                  ("rows", "no json", "bench_z", ("a",), ">= 1", ""),
                                  ("rows", "good", "bench_x", ("b",), ">= 3", "")]
        self.program("bench_kv", ["--verb set_pull is not one of pull, push"], status=1)
        self.program("bench_x", [{"b": 2}])
        self.program("bench_z", ["done"])
        status, out, result = self.main("--pairs", "1", "--group", "one,rows")
        self.assertEqual(status, 1)
        errors = [r.get("error", "") for r in result["rows"]]
        for found, wanted in zip(errors, ("set_pull is not one of", "bench_gone is not built", "prints no a; it has b",
                                          "object of JSON", "")):
            self.assertIn(wanted, found)
        self.assertRegex(out, r"good +2.00 .*MISSED")
        self.assertIn("0 of 1 aims met; 4 rows not measured", out)

    def test_rows_about_servers_are_measured_on_one_processor_too_with_what_a_key_costs(self):
        bench_run.PROGRAM_ROWS = [("rows", "free and pinned", "bench_x", ("processors",), None, "bench_y"),
                                  ("scan", "free", "bench_x", ("processors",), None, "")]
        for name, ns in (("bench_x", 7), ("bench_y", 9)):
            path = os.path.join(self.folder, "bin", name)
            with open(path, "w", encoding="utf-8") as f:
                f.write('#!/bin/sh\necho "{\\"processors\\": $(nproc), \\"ns_per_key\\": %d, '
                        '\\"cpu_s_per_million\\": 0.25}"\n' % ns)
            os.chmod(path, 0o755)
        status, out, result = self.main("--pairs", "3", "--group", "rows,scan", pinned=True)
        self.assertEqual(status, 0)
        both, free = result["rows"]
        processors = len(os.sched_getaffinity(0))
        self.assertEqual((both["figure"], both["floor"], both["ratio"]), (processors, processors, 1))
        self.assertEqual({k: both["pinned"][k] for k in ("figure", "floor", "ratio", "ns_per_key", "cpu_s_per_million")},
                         {"figure": 1, "floor": 1, "ratio": 1, "ns_per_key": 7, "cpu_s_per_million": 0.25})
        self.assertNotIn("pinned", free)
        self.assertRegex(out, r"free and pinned .* 1.000 +7.00 +0.25\n")

    def test_json_of_several_lines_counts_too(self):
        bench_run.PROGRAM_ROWS = [("scan", "nested", "bench_x", ("top.ms",), "<= 3", "")]
        self.program("bench_x", ["{\n \"top\":\n {\"ms\": 2}\n}"])
        status, _, result = self.main("--pairs", "1", "--group", "scan")
        self.assertEqual((status, result["rows"][0]["figure"], result["rows"][0]["met"]), (0, 2, True))

    def test_only_and_group_select(self):
        bench_run.PROGRAM_ROWS = [("a", "first", "x", ("f",), None, ""), ("b", "second", "y", ("f",), None, "")]
        for words, names in ((("--group", "b"), ["second"]), (("--only", "irs"), ["first"]), (("--group", "a,b"), 2)):
            rows = bench_run.all_rows(bench_run.arguments(list(words)))
            self.assertEqual([r[1] for r in rows] if isinstance(names, list) else len(rows), names)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            bench_run.arguments(["--group", "c"])


if __name__ == "__main__":
    unittest.main()

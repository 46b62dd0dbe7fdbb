#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each benchmark of tool/bench, started with a build in which nothing is built, names the program that is missing and what builds
it."""
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(SOURCE, "tool", "bench")
# Options; {build} is the folder. Exit status; rows that name several programs; what builds them.
PROGRAMS = {
    "batch_delay.py": ([], 1, ["bench_straggler"], "-DPARACEL_BENCH=ON"),
    "between_hosts.py": ([], 1, ["bench_collectives"], "-DPARACEL_BENCH=ON"),
    "cost.py": (["--rows", "wc,bfs"], 0, ["wc", "bfs"], "--target bfs"),
    "estimators.py": ([], 1, [], "a test of the package builds it"),
    "failover.py": ([], 1, ["bench_kv", "test_counters"], "-DPARACEL_TESTS=ON"),
    "hot_keys.py": ([], 1, ["bench_hot_keys"], "-DPARACEL_BENCH=ON"),
    "ps.py": ([], 1, ["ps_benchmark"], "-DPARACEL_TESTS=ON"),
    "python_calls.py": ([], 1, ["bench_kv"], "-DPARACEL_BENCH=ON"),
    "run.py": (["--bin-dir", "{build}/bin", "--group", "one,hot,lr", "--pairs", "1"], 1, ["bench_kv", "bench_hot_keys", "lr"],
               "-DPARACEL_BENCH=ON"),
    "trace.py": ([], 1, ["bench_kv"], "-DPARACEL_BENCH=ON"),
    "which_algorithm.py": (["--sets", "ratings"], 1, ["als"], "--target als"),
}


class NotBuilt(unittest.TestCase):
    def test_all_benchmarks_are_here(self):
        modules = {"cost_rows.py", "run_rows.py", "running.py"}
        self.assertEqual({name for name in os.listdir(BENCH) if name.endswith(".py")} - modules, set(PROGRAMS))

    def test_the_program_and_its_target_are_named(self):
        with tempfile.TemporaryDirectory(prefix="not built ") as folder:
            build = os.path.join(folder, "a build")
            os.makedirs(os.path.join(build, "bin"))
            for name, (words, status, missing, hint) in PROGRAMS.items():
                with self.subTest(name):
                    where = [] if name in ("run.py", "batch_delay.py") else ["--build", build]
                    done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, name), *where,
                                           *(word.replace("{build}", build) for word in words)], capture_output=True, text=True,
                                          stdin=subprocess.DEVNULL, env={**os.environ, "PARACEL_BUILD": build}, check=False)
                    said = done.stdout + done.stderr
                    self.assertEqual(done.returncode, status, said)
                    self.assertNotIn("Traceback", said)
                    for program in missing:
                        self.assertIn(f"{program} is not built: cmake -S . -B '{build}' ", said)
                    self.assertIn(hint, said)

    def test_serial_programs_belong_to_the_benchmarks(self):
        sys.path.insert(0, BENCH)
        import running
        with self.assertRaisesRegex(running.CannotMeasure, "sssp_serial is not built: .*-DPARACEL_BENCH=ON.*sssp_serial"):
            running.built("/nonexistent", "sssp_serial")

    def test_what_fails_is_said_in_a_line(self):
        sys.path.insert(0, BENCH)
        import running
        for words, limit, said in ((["sh", "-c", "echo first >&2; echo why >&2; exit 3"], None, "^sh ended with 3: why$"),
                                   (["false"], None, "^false ended with 1: it said nothing$"),
                                   (["sleep", "60"], 0.2, "^sleep took longer than 0.2 s$"),
                                   (["/nonexistent/x"], None, "^cannot start /nonexistent/x: No such file or directory$"),
                                   (["echo", "[1]"], None, "^echo did not print an object of JSON$"),
                                   (["true"], None, "^true did not print an object of JSON$")):
            with self.subTest(words), self.assertRaisesRegex(running.CannotMeasure, said):
                running.figures_of(words, limit)
        self.assertEqual(running.figures_of(["printf", '1\n{"a": 2}\n']), {"a": 2})


if __name__ == "__main__":
    unittest.main()

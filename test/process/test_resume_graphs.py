#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The graph programs resume from checkpoints, and continue with replaced workers and with replaced servers; their results are
byte-identical to those of an undisturbed run."""
import glob
import json
import os
import random
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, JobTest, main, read_bytes, wait_until  # noqa: E402

# program: keys of its config. Each has as many iterations as the path of the graph is long, wcc up to 100, scc more.
PROGRAMS = {
    "bfs": {"source": "{start}"},
    "sssp": {"source": "{start}"},
    "wcc": {},
    "mvv": {},
    "mvv_pregel": {},
    "scc": {"gather_limit": 0},
    "label_propagation": {"rounds": "{length}"},
    "pagerank": {"rounds": "{length}", "tolerance": 0},
}
SHORT, LONG = 40, 200


def path_with_tangle(length, others, seed):
    """Lines of a graph and the id where the path begins: a path whose vertices alternate between two workers, with an edge
    back from its middle to its beginning, entered from the greatest id, which is one of a random graph of the others."""
    rng = random.Random(seed)
    half = (length + others) // 2
    path = [half * (p % 2) + p // 2 for p in range(length)]
    rest = sorted(set(range(2 * half)) - set(path))
    edges = list(zip(path, path[1:])) + [(path[length // 2], path[0]), (rest[-1], path[0])]
    edges += [tuple(rng.sample(rest, 2)) for _ in range(4 * others)] + list(zip(rest, rest[1:]))
    return [f"{a} {b} {rng.randrange(1, 64) / 16}\n" for a, b in dict.fromkeys(edges)], rest[-1]


class ResumeGraphs(JobTest):
    undisturbed = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.start_of = {}
        for length in (SHORT, LONG):
            lines, cls.start_of[length] = path_with_tangle(length, 60, seed=length)
            with open(os.path.join(cls.folder, f"graph{length}.txt"), "w", encoding="utf-8") as file:
                file.writelines(lines)

    def config(self, program, length, **more):
        """Its name, and the folder of the results."""
        folder = tempfile.mkdtemp(dir=self.folder)
        keys = {"input": f"graph{length}.txt", "output": folder}
        for key, value in PROGRAMS.get(program, {}).items():
            keys[key] = value
            if isinstance(value, str):
                text = value.format(start=self.start_of[length], length=length)
                keys[key] = text if key == "source" else int(text)
        with open(folder + ".json", "w", encoding="utf-8") as file:
            json.dump({**keys, **more}, file)
        return folder + ".json", folder

    @staticmethod
    def results(run, folder):
        """The bytes of the files, and the summary without the folder."""
        files = {name: read_bytes(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if re.search(r"_\d$", name)}
        lines = [line for line in run.out().splitlines() if not line.startswith("output ")]
        return files, list(dict.fromkeys(lines))

    def begin(self, program, config, *options, servers=1):
        return self.start("-w", "2", "-p", str(servers), "-c", config, *options, os.path.join(BIN, program))

    def finished(self, program, length, *options, **more):
        config, folder = self.config(program, length, **more)
        run = self.begin(program, config, *options)
        self.assertEqual(run.wait(), 0, run.err())
        return self.results(run, folder)

    def expected(self, program, length, **more):
        if (program, length) not in self.undisturbed:
            self.undisturbed[program, length] = self.finished(program, length, **more)
        files, _ = self.undisturbed[program, length]
        self.assertEqual(len(files), 2)
        self.assertTrue(all(files.values()))
        return self.undisturbed[program, length]

    # -- checkpoints

    def test_a_run_resumed_from_a_checkpoint_writes_the_bytes_of_an_undisturbed_one(self):
        for program in PROGRAMS:
            with self.subTest(program):
                expected = self.expected(program, SHORT)
                kept = self.not_there("kept")
                self.assertEqual(self.finished(program, SHORT, "--checkpoint-dir", kept, "--checkpoint-every", "2",
                                               "--checkpoint-keep", "1000"), expected)
                made = sorted(glob.glob(os.path.join(kept, "0*")))
                self.assertGreaterEqual(len(made), 8)
                # One of the second half, then an early one: resuming from a checkpoint puts the later ones away.
                somewhere = random.randrange(len(made) // 2, len(made))
                for at in (somewhere, 2):
                    self.assertEqual(self.finished(program, SHORT, "--resume", made[at]), expected, made[at])

    def test_a_checkpoint_of_another_graph_is_refused(self):
        lines, _ = path_with_tangle(SHORT + 2, 60, seed=1)
        with open(os.path.join(self.folder, "other.txt"), "w", encoding="utf-8") as file:
            file.writelines(lines)
        for program in ("mvv_pregel", "pagerank"):
            with self.subTest(program):
                kept = self.not_there("kept")
                self.finished(program, SHORT, "--checkpoint-dir", kept, "--checkpoint-every", "10")
                run = self.begin(program, self.config(program, SHORT, input="other.txt")[0], "--resume", kept)
                self.assertEqual(run.wait(), 1, run.err())
                self.assertIn("the checkpoint is of another graph", run.err())

    # -- processes that die

    def workers(self, run):
        """The processes of both workers, by rank."""
        return wait_until(lambda: len(found := run.workers()) == 2 and found, 20) or self.fail(run.err())

    def in_the_middle(self, run, rank):
        """Returns when that worker has committed a few iterations."""
        self.assertTrue(wait_until(lambda: "prun: logs in " in run.err(), 20), run.err())
        folder = os.path.join(self.folder, run.logs())
        clock = random.randrange(2, 30)
        # src/worker/job/recovery_file.hpp: the two newest commits; three numbers of 8 bytes, then the clock.
        def committed():
            kept = (read_bytes(os.path.join(folder, f"worker-{rank}.kept{i}"))[24:28] for i in (0, 1))
            return max(int.from_bytes(number, "little") for number in kept) >= clock
        self.assertTrue(wait_until(committed, 20, 0.001), run.err())

    def test_a_replaced_worker_changes_no_byte(self):
        for program in PROGRAMS:
            with self.subTest(program):
                expected = self.expected(program, LONG)
                # A vertex program continues to write its own checkpoints meanwhile.
                more = {"checkpoint_every": 20} if program == "mvv_pregel" else {}
                config, folder = self.config(program, LONG, **more)
                run = self.begin(program, config, "--on-worker-death", "wait:20")
                workers = self.workers(run)
                rank = random.randrange(2)
                self.in_the_middle(run, rank)
                workers[rank].kill()
                self.assertEqual(run.wait(), 0, run.err())
                self.assertRegex(run.err(), rf"worker {rank} \(pid \d+\) has caught up\n")
                self.assertEqual(self.results(run, folder), expected)

    def test_a_replaced_server_changes_no_byte(self):
        for program in PROGRAMS:
            with self.subTest(program):
                expected = self.expected(program, LONG)
                config, folder = self.config(program, LONG)
                run = self.begin(program, config, "--on-worker-death", "wait:20", "--replicas", "2", servers=2)
                victim = run.find("server")
                self.in_the_middle(run, 0)
                victim.kill()
                self.assertEqual(run.wait(), 0, run.err())
                self.assertRegex(run.err(), r"server s\d \(pid \d+ on \S+\) lost: it was killed by SIGKILL; the job continues")
                self.assertEqual(self.results(run, folder), expected)

    def test_a_program_without_iterations_goes_on_with_a_replaced_worker_or_server(self):
        for program, more in (("triangle_count", {"per_vertex": True}), ("k_core", {}), ("k_core", {"gather_limit": 0})):
            for role, said in (("worker", "worker 1 is restarted"), ("server", "server s0 is restarted")):
                with self.subTest(program=program, role=role, **more):
                    self.goes_on(program, role, said, **more)

    def goes_on(self, program, role, said, **more):
        expected = self.finished(program, LONG, **more)
        for _ in range(5):  # on a fast machine the job may end before it is disturbed
            config, folder = self.config(program, LONG, **more)
            run = self.begin(program, config, "-v", "--on-worker-death", "wait:20", "--replicas", "2", servers=2)
            wait_until(lambda e=run.err: "event started" in e(), 20, 0.002)
            victim = run.worker(1) if role == "worker" else run.server(0)
            if victim is not None:
                victim.kill()
            self.assertEqual(run.wait(), 0, run.err())
            self.assertEqual(self.results(run, folder), expected)
            if said in run.err():
                return
        self.fail(f"the job always ended before its {role} could be killed: " + run.err())

    def test_what_a_plug_in_would_count_twice_is_refused(self):
        config, _ = self.config("mvv", SHORT, update_func="paracel_max")
        run = self.begin("mvv", config, "--on-worker-death", "wait:20")
        self.assertEqual(run.wait(), 2, run.err())
        self.assertIn('key "update_func"', run.err())


if __name__ == "__main__":
    main()

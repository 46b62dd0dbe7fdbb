#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""--log-format json: every line of the logs and of standard error is a JSON object, whatever bytes programs print, and nothing of
them is lost; what reads logs understands both formats."""
import datetime
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import LR, MPI, PRUN, JobTest, clean_environment, main, processes_of, read_bytes, wait_until  # noqa: E402

MEMBERS = {"time", "level", "role", "index", "run", "message"}


def shown(line):
    return line.decode("utf-8", "backslashreplace")


class JsonLogs(JobTest):
    def job(self, *arguments, **more):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "run")
        run = self.start("--log-format", "json", "--run-dir", folder, *arguments, **more)
        status = run.wait()
        self.out_path = run.out_path
        return status, run.out(), run.err(), folder

    def objects(self, text, run=None):
        """Of a log or of standard error."""
        found = []
        for line in text.split("\n")[:-1]:
            one = json.loads(line)
            self.assertEqual(set(one) - {"continues"}, MEMBERS, line)
            self.assertIn(one["level"], ("info", "warning", "error"))
            self.assertIn(one["role"], ("scheduler", "server", "worker", "mpirun", "launcher"))
            self.assertEqual(isinstance(one["index"], int), one["role"] in ("server", "worker"), line)
            self.assertRegex(one["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(one["time"])
            self.assertTrue(-1 < age.total_seconds() < 3600, line)
            if run is not None:
                self.assertEqual(one["run"], run)
            found.append(one)
        self.assertTrue(not text or text.endswith("\n"), text[-200:])
        return found

    def logs(self, folder):
        """name -> objects"""
        found = {}
        for path in glob.glob(os.path.join(folder, "*.log")):
            found[os.path.basename(path)] = self.objects(read_bytes(path).decode("ascii"))
        return found

    def messages(self, objects):
        lines, rest = [], ""
        for one in objects:
            rest += one["message"]
            if not one.get("continues"):
                lines.append(rest)
                rest = ""
        return lines

    def test_odd_bytes_of_a_program_are_kept(self):
        seed = random.randrange(1 << 30)
        chance = random.Random(seed)
        odd = [b"", b"\0", b"\xff\xfe", "ä€😀".encode(), "ä€😀".encode()[:-2], b"\x1b[31mred\x1b[0m", b"tab\tand\rreturn",
               b'"quoted" \\',
               "line\u2028separator".encode(), b"\xed\xa0\x80 half a pair", b'{"time": "1", "message": "not ours"}',
               b"error: said by it", b"prog: warning: said too", b"x" * 200_000,
               bytes(chance.randrange(256) for _ in range(5000)).replace(b"\n", b"")]
        odd += [bytes(chance.randrange(256) for _ in range(chance.randrange(90))).replace(b"\n", b" ") for _ in range(300)]
        data = b"\n".join(odd) + b"\nlast line without an end"
        content = os.path.join(self.folder, "odd bytes")
        with open(content, "wb") as file:
            file.write(data)
        # In pieces, so that lines and characters are cut.
        program = self.write_program("odd.sh", f"dd if='{content}' bs=777 2>/dev/null",
                                     f"dd if='{content}' bs=333 status=none >&2")
        status, out, err, folder = self.job("-w", "2", program)
        self.assertEqual(status, 0, (seed, err))
        launcher = self.objects(err)
        self.assertEqual(read_bytes(self.out_path), data, seed)  # as it is
        logs = self.logs(folder)
        wanted = [shown(line) for line in data.split(b"\n")]
        # Worker 0's two outputs are separate lines, worker 1's are one after the other.
        both = [shown(line) for line in (data + data).split(b"\n")]
        self.assertEqual(self.messages(logs["worker_1.log"]), both, seed)
        self.assertEqual(sorted(self.messages([o for o in logs["worker_0.log"] if not o.get("continues")])),
                         sorted(2 * [w if len(w) < 1 << 16 else w[len(w) - len(w) % (1 << 16):] for w in wanted]), seed)
        levels = {o["message"]: o["level"] for o in logs["worker_1.log"]}
        self.assertEqual([levels[m] for m in ("error: said by it", "prog: warning: said too", "\0")],
                         ["error", "warning", "info"])
        for name, role, index in (("worker_1.log", "worker", 1), ("worker_0.log", "worker", 0)):
            self.assertEqual({(o["role"], o["index"], o["run"]) for o in logs[name]}, {(role, index, launcher[0]["run"])})

    def test_a_run_says_the_same_in_both_formats(self):
        text = self.prun("-w", "2", "-p", "2", "-c", "cfg.json", "--report", "--run-dir", "text_run", LR)
        status, out, err, folder = self.job("-w", "2", "-p", "2", "-c", "cfg.json", "--report", LR)
        self.assertEqual((status, text[0]), (0, 0), err)
        self.assertEqual(out, text[1])
        said = self.objects(err)
        run = said[0]["run"]
        self.assertEqual({(o["role"], o["run"], o["level"]) for o in said}, {("launcher", run, "info")})
        messages = self.messages(said)
        self.assertRegex(messages[0], rf"^job {run}: 2 servers \(local\), 2 workers")
        heads = [re.split("[ :0-9]", line.removeprefix("prun: "))[0] for line in text[2].splitlines() if "round" not in line]
        self.assertEqual([re.split("[ :0-9]", m)[0] for m in messages if "round" not in m], heads)
        # The summary has read the log of worker 0.
        self.assertTrue([m for m in messages if m.startswith("result: ")], err)
        results = self.messages(self.logs(folder)["worker_0.log"])
        self.assertEqual([line for line in out.splitlines() if line], [line for line in results if line])
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["job"], run)

    def test_a_failure_and_what_its_process_said(self):
        self.write_config("broken.json", training_input="broken.dat")
        with open(os.path.join(self.folder, "broken.dat"), "w", encoding="ascii") as file:
            file.write("1,x,0\n")
        status, _, err, folder = self.job("-w", "2", "-c", "broken.json", LR)
        self.assertEqual(status, 4, err)
        said = self.objects(err)
        errors = [o["message"] for o in said if o["level"] == "error"]
        self.assertTrue([m for m in errors if "broken.dat:1:" in m], err)  # from the log
        self.assertIn("broken.dat:1:", read_bytes(os.path.join(folder, "report.html")).decode())
        failed = [o for name in ("worker_0.log", "worker_1.log") for o in self.logs(folder)[name] if o["level"] == "error"]
        self.assertTrue(failed)
        # Before there is a job.
        status, _, err = self.prun("--log-format", "json", "-c", "nowhere.json", LR)
        self.assertNotEqual(status, 0)
        (said,) = self.objects(err)
        self.assertEqual((said["level"], said["run"], said["role"]), ("error", None, "launcher"))
        self.assertIn("nowhere.json", said["message"])
        done = subprocess.run([sys.executable, PRUN, "--log-format", "xml", LR], capture_output=True, text=True, check=False,
                              env=clean_environment(), stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--log-format", done.stderr)

    def test_the_last_words_of_killed_processes(self):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "run")
        run = self.start("--log-format", "json", "--run-dir", folder, "-w", "2", "-p", "2", "-c", "long.json", "-v", LR)
        self.assertTrue(wait_until(lambda: '"message": "round' in run.err(), 30), run.err())
        job = json.loads(run.err().split("\n", 1)[0])["run"]
        next(p for p in processes_of(job) if p.command[0].endswith("start_server")).kill()
        self.assertEqual(run.wait(), 11, run.err())
        said = self.objects(run.err(), job)
        self.assertTrue([o for o in said if o["level"] == "error" and "was killed by SIGKILL" in o["message"]], run.err())
        self.logs(folder)
        self.assert_nothing_left(job, 10)

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_ranks_of_mpirun(self):
        status, out, err, folder = self.job("-m", "mpi", "-w", "2", "-p", "2", "-c", "cfg.json", LR)
        self.assertEqual(status, 0, err)
        run = self.objects(err)[0]["run"]
        logs = self.logs(folder)
        self.assertTrue({"worker_0.log"} <= set(logs), logs)
        for name, objects in logs.items():
            for one in objects:
                self.assertEqual(one["run"], run)
                role, _, index = name.removesuffix(".log").partition("_")
                if role == "worker":
                    self.assertEqual((one["role"], one["index"]), (role, int(index)))
        self.assertEqual([m for m in self.messages(logs["worker_0.log"]) if m], [line for line in out.splitlines() if line])


if __name__ == "__main__":
    main()

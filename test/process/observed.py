# SPDX-License-Identifier: BSD-3-Clause
"""What --metrics-port, --metrics-file, --trace, --log-format json and --report must show of a job on several hosts."""
import glob
import json
import os
import subprocess
import sys

from process_support import PRUN, clean_environment, patient, read_bytes, wait_until

READ_URL = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"
MEMBERS = {"time", "level", "role", "index", "run", "message"}


def options(metrics):
    """`metrics`: the folder for --metrics-file."""
    return ["--metrics-port", "0", "--metrics-file", metrics, "--trace", "--log-format", "json", "--report"]


def wait_for_metrics(test, run, metrics, workers, servers, enter=()):
    """The running job exports all its processes, by HTTP and as a file. `run`: its folder. `enter`: the words that run a command
    on the scheduler's host. Returns the job's id."""
    def note():
        return json.loads(read_bytes(os.path.join(run, "run.json")) or b"{}")
    test.assertTrue(wait_until(lambda: "metrics" in note(), 30), note())

    def is_complete(text):
        clocks = [line for line in text.splitlines() if line.startswith("paracel_worker_clock{")]
        keys = [line for line in text.splitlines() if line.startswith("paracel_server_keys{")]
        return len(clocks) == workers and len(keys) == servers and all(float(c.split()[-1]) > 0 for c in clocks)

    def served():
        return subprocess.run([*enter, sys.executable, "-S", "-c", READ_URL, note()["metrics"]], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL).stdout

    def kept():
        return b"".join(read_bytes(path) for path in glob.glob(os.path.join(metrics, "paracel_*.prom"))).decode()
    for what in (served, kept):
        test.assertTrue(wait_until(lambda: is_complete(what()), 30, 0.2), what())
    return note()["job"]


def assert_json(test, text, job, role, index=None):
    """Each line of a log, or of standard error."""
    test.assertTrue(text)
    for line in text.splitlines():
        one = json.loads(line)
        test.assertEqual(set(one) - {"continues"}, MEMBERS)
        test.assertEqual((one["run"], one["role"], one["index"]), (job, role, index), line)


def assert_json_logs(test, run, job, workers, servers):
    """Of processes on all hosts: a worker's has a line at least when there is something to say."""
    for role, count in (("worker", workers), ("server", servers)):
        for i in range(count):
            text = read_bytes(os.path.join(run, f"{role}_{i}.log")).decode()
            if text:
                assert_json(test, text, job, role, i)


def assert_recorded(test, run, metrics, workers, servers, hosts):
    """After the end: traces, and a report. `hosts`: the names of those that had processes. Returns what `prun.py trace` has
    said."""
    test.assertEqual(os.listdir(metrics), [])  # removed at the end
    target = os.path.join(run, "as.json")
    done = subprocess.run([sys.executable, "-S", PRUN, "trace", "--run", run, "--format", "chrome", "-o", target], text=True,
                          capture_output=True, check=False, timeout=patient(120), env=clean_environment(), cwd=test.folder)
    test.assertEqual(done.returncode, 0, done.stderr)
    with open(target, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    wanted = [f"worker {i} " for i in range(workers)] + [f"server s{i} " for i in range(servers)]
    for start in wanted:
        test.assertTrue(any(name.startswith(start) for name in names), (start, names))
    test.assertEqual({name.rpartition(" on ")[2].rstrip(")") for name in names}, set(hosts))
    test.assertGreater(sum(e["ph"] == "s" for e in events), 100)  # arrows from requests to the servers' threads
    page = read_bytes(os.path.join(run, "report.html")).decode()
    for text in (*hosts, *(f"worker {i}" for i in range(workers)), *(f"s{i}" for i in range(servers))):
        test.assertIn(text, page)
    return done.stderr

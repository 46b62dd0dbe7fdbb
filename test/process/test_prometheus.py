#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""--metrics-port and --metrics-file: what a running job exports is what its own commands say, only this host can read it, and a
real Prometheus and the dashboard for Grafana understand it."""
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, PRUN, SOURCE, JobTest, clean_environment, free_port, main, patient,  # noqa: E402
                             processes_of, read_bytes, role_of, slot_of, wait_until)

METRICS = os.path.join(BIN, "test_metrics")
DASHBOARD = os.path.join(SOURCE, "tool", "grafana", "paracel.json")
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')
# From the package that Grafana's makers generate from its schema.
SCHEMA = os.path.join(SOURCE, "build", "python-tools", "exports")
READ_BACK = """
import json, sys
from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
plugins.register_default_plugins()
print(encoder.JSONEncoder().encode(Dashboard.from_json(json.load(sys.stdin))))
"""
DURATION = "paracel_request_duration_seconds"
HEARTBEAT = 0.5  # seconds between two reports of a process


class Exposition:
    """Prometheus' text format, parsed strictly."""

    def __init__(self, text):
        self.types, self.helps, self.samples = {}, {}, {}  # samples: (name, sorted labels) -> value
        assert text.endswith("\n"), text[-100:]
        for line in text.splitlines():
            if line.startswith("# "):
                _, what, name, rest = line.split(" ", 3)
                kept = {"TYPE": self.types, "HELP": self.helps}[what]
                assert name not in kept, line
                kept[name] = rest
                continue
            found = SAMPLE.fullmatch(line)
            assert found, line
            labels = LABEL.findall(found[2] or "")
            assert LABEL.sub("", found[2] or "") == "", line
            key = (found[1], tuple(sorted(labels)))
            assert key not in self.samples, f"twice: {line}"
            self.samples[key] = float(found[3])

    def names(self):
        return {name for name, _ in self.samples}

    def get(self, name, **labels):
        """The sum of all samples with these labels; None if there are none."""
        found = [v for (n, own), v in self.samples.items() if n == name and labels.items() <= dict(own).items()]
        return sum(found) if found else None

    def of(self, name):
        """[(labels, value)]"""
        return [(dict(own), v) for (n, own), v in self.samples.items() if n == name]

    def type_of(self, name):
        return self.types.get(name) or self.types.get(re.sub(r"_(bucket|sum|count)$", "", name))


def read_url(url):
    with urllib.request.urlopen(url, timeout=patient(20)) as reply:
        return reply.read().decode()


class MetricsTest(JobTest):
    def job(self, *options, pause=20):
        """(Run, folder of its logs, URL) of a job that runs until it is stopped."""
        folder = tempfile.mkdtemp(dir=self.folder)
        run = self.start("-w", "2", "-p", "2", "--run-dir", os.path.join(folder, "run"), "--metrics-port", "0", *options,
                         METRICS, os.path.join(folder, "out"), "100000", str(pause))
        self.assertTrue(wait_until(lambda: "prun: round" in run.err(), 30), run.err())
        url = re.search(r"prun: metrics at (http://\S+)", run.err())[1]
        # The first heartbeats come half a second later.
        self.assertTrue(wait_until(lambda: {"pull", "push", "clock_tick"} <= {labels["verb"] for labels, _ in Exposition(
            read_url(url)).of(DURATION + "_count")}, 30, 0.2), run.err())
        return run, os.path.join(folder, "run"), url

    def tell(self, run_dir):
        """slot -> counters of a server."""
        done = subprocess.run([sys.executable, PRUN, "tell", "--servers", "stats", "--run", run_dir], capture_output=True,
                              text=True, check=False, env=clean_environment(), stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = [json.loads(line.partition(": ")[2]) for line in done.stdout.splitlines()]
        return {answer["slot"]: answer for answer in answers}


class Endpoint(MetricsTest):
    def test_values_are_those_of_the_servers_and_workers(self):
        run, run_dir, url = self.job("--heartbeat-limit", "200")
        before = Exposition(read_url(url))
        workers = [p for p in processes_of(run.job()) if p.command[0] == METRICS]
        self.assertEqual(len(workers), 2)
        time.sleep(2 * HEARTBEAT)
        for worker in workers:
            worker.kill(signal.SIGSTOP)
        self.addCleanup(lambda: [w.kill(signal.SIGCONT) for w in workers if os.path.exists(f"/proc/{w.pid}")])

        def settled():
            """Both at a time at which the servers have nothing to do."""
            first, now, again = self.tell(run_dir), Exposition(read_url(url)), self.tell(run_dir)
            same = all(first[s]["shards"] == again[s]["shards"] and now.get("paracel_server_requests_total", server=f"s{s}")
                       == sum(sum(shard["requests"].values()) for shard in first[s]["shards"]) for s in first)
            return (first, now) if same else None
        settled = wait_until(settled, 30, 0.3)
        self.assertTrue(settled)
        servers, now = settled
        run_label = run.job()
        self.assertEqual(sorted(servers), [0, 1])
        for slot, counters in servers.items():
            server = f"s{slot}"
            verbs = {}
            for shard in counters["shards"]:
                for verb, count in shard["requests"].items():
                    verbs[verb] = verbs.get(verb, 0) + count
            timed = {labels["verb"]: value for labels, value in now.of(DURATION + "_count")
                     if labels["server"] == server and not labels["verb"].startswith("clock_")}
            self.assertEqual(timed, verbs)
            for name, key in (("received_bytes_total", "bytes_in"), ("sent_bytes_total", "bytes_out"), ("keys", "keys"),
                              ("rows", "rows"), ("staged_updates", "staged"), ("failures_total", "failures")):
                self.assertEqual(now.get("paracel_server_" + name, server=server), sum(s[key] for s in counters["shards"]), name)
            self.assertEqual(now.get("paracel_server_live_bytes", server=server), counters["memory_bytes"])
            self.assertAlmostEqual(now.get("paracel_server_resident_bytes", server=server) / counters["resident_bytes"], 1, 0)
            self.assertEqual(now.get("paracel_shard_requests_total", server=server), sum(verbs.values()))
            hot = {h["key"]: h["requests"] for h in counters["hot"]}
            self.assertEqual({labels["key"]: value for labels, value in now.of("paracel_hot_key_requests")
                              if labels["server"] == server}, hot)
        self.assertGreater(now.get(DURATION + "_count", verb="pull"), 600)
        # 300 reads of both workers in each round.
        clocks = [now.get("paracel_worker_clock", worker=str(rank)) for rank in range(2)]
        self.assertGreaterEqual(now.get(DURATION + "_count", verb="pull"), 300 * sum(clocks))
        ticks = now.get(DURATION + "_count", verb="clock_tick")  # the clocks are those of the last heartbeats
        self.assertGreaterEqual(ticks, sum(clocks))
        self.assertGreaterEqual(now.get(DURATION + "_count", verb="pull"), 300 * (ticks - 2))
        self.assertGreaterEqual(now.get("paracel_worker_requests_total"), 300 * (sum(clocks) - 2))
        self.assertEqual(now.get("paracel_hot_key_requests", key="busy") > 0, True)
        # 300 reads of one key in each round: at its server nearly all falls on one partition.
        busiest = max((value, labels["server"]) for labels, value in now.of("paracel_partition_keys_per_second"))
        self.assertGreater(busiest[0], 0.8 * now.get("paracel_shard_keys_per_second", server=busiest[1]))
        self.assertEqual(now.get("paracel_joins_total", role="server"), 2)
        self.assertEqual(now.get("paracel_joins_total", role="worker"), 2)
        self.assertEqual(now.get("paracel_losses_total"), 0)
        self.assertEqual(now.get("paracel_job_phase", phase="running"), 1)
        self.assertEqual(now.get("paracel_job_phase"), 1)
        self.assertEqual(now.get("paracel_job_info", program="test_metrics", folder=run_dir, run=run_label), 1)
        self.assertLess(abs(now.get("paracel_job_start_time_seconds") - time.time()), patient(120))
        self.assertIsNotNone(now.get("paracel_objective", metric="loss") or now.get("paracel_objective", metric="rmse"))
        for _, labels in [key for key in now.samples if key[0].startswith("paracel_")]:
            self.assertIn(("run", run_label), labels)
        self.check_form(now)
        self.check_histograms(now)
        self.check_growth(before, now)
        # The parts of a worker's time are all of it.
        age = time.time() - now.get("paracel_job_start_time_seconds")
        for rank in "01":
            spent = now.get("paracel_worker_seconds_total", worker=rank)
            self.assertTrue(0 < spent < age + 0.2, (spent, age))

    def check_form(self, now):
        for name in now.names():
            kind = now.type_of(name)
            self.assertIn(kind, ("counter", "gauge", "histogram", "summary"), name)
            if name.startswith("paracel_"):
                self.assertEqual(name.endswith("_total"), kind == "counter", name)
                self.assertRegex(now.helps[re.sub(r"(?<=seconds)_(bucket|sum|count)$", "", name)], r"^\S.*\.$")

    def check_histograms(self, now):
        series = {}
        for labels, value in now.of(DURATION + "_bucket"):
            bound = labels.pop("le")
            series.setdefault(tuple(sorted(labels.items())), []).append((float(bound), value))
        self.assertGreaterEqual(len(series), 3)
        for key, buckets in series.items():
            labels = dict(key)
            buckets.sort()
            self.assertEqual(buckets[-1], (math.inf, now.get(DURATION + "_count", **labels)))
            self.assertEqual([v for _, v in buckets], sorted(v for _, v in buckets))
            self.assertEqual(len(buckets), 28)
            counts = [b[1] - a[1] for a, b in zip([(0, 0), *buckets], buckets)]
            lower = sum(n * (0 if i == 0 else buckets[i - 1][0]) for i, n in enumerate(counts))
            upper = sum(n * bound for n, (bound, _) in zip(counts, buckets) if n)
            self.assertTrue(lower <= now.get(DURATION + "_sum", **labels) <= upper, (labels, lower, upper))

    def check_growth(self, before, now):
        for (name, labels), value in before.samples.items():
            if before.type_of(name) in ("counter", "histogram"):
                self.assertGreaterEqual(now.samples[name, labels], value, (name, labels))
        self.assertGreater(now.get(DURATION + "_count", verb="pull"), before.get(DURATION + "_count", verb="pull") or 0)

    def test_counters_never_fall_while_the_job_runs(self):
        _, _, url = self.job(pause=1)
        before = Exposition(read_url(url))
        for _ in range(10):
            time.sleep(0.3)
            now = Exposition(read_url(url))
            for (name, labels), value in before.samples.items():
                if before.type_of(name) in ("counter", "histogram"):
                    self.assertGreaterEqual(now.samples[name, labels], value, (name, labels))
            self.check_histograms(now)
            before = now

    def test_a_loss_is_counted_and_its_process_is_down(self):
        run, _, url = self.job("--replicas", "2", "--max-restarts", "0")
        self.assertEqual(Exposition(read_url(url)).get("paracel_spare_servers"), 1)
        servers = [p for p in processes_of(run.job()) if role_of(p) == "server"]
        servers[0].kill()
        now = wait_until(lambda: (e := Exposition(read_url(url))).get("paracel_losses_total", role="server") == 1 and e, 30, 0.2)
        self.assertTrue(now)
        self.assertEqual(now.get("paracel_server_up", server=f"s{slot_of(servers[0])}"), 0)
        self.assertEqual(now.get("paracel_server_up"), 1)
        self.assertEqual(now.get("paracel_spare_servers"), 0)

    def test_a_port_that_is_taken_and_options_that_are_wrong(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            self.assert_refused(f"start_scheduler: error: --metrics-port {port}: cannot listen at 127.0.0.1: another process "
                                "uses that port: want another one, or 0 for one that is free",
                                "--metrics-port", port, METRICS, "never", "1", "1")
        file = os.path.join(self.folder, "training.dat")
        for options, words in ((("--metrics-port", "65536"), "65536: want a port, at most 65535"),
                               (("--metrics-port", "-1"), "'-1' is not a whole number"),
                               (("--metrics-port", "http"), "'http' is not a whole number"),
                               (("--metrics-bind", "127.0.0.1"), "--metrics-bind requires --metrics-port"),
                               (("--metrics-file", self.folder + "/none"), f"--metrics-file {self.folder}/none: no such folder"),
                               (("--metrics-file", file), f"--metrics-file {file}: no such folder"),
                               (("--metrics-port", "0", "--metrics-bind", "no.such.host.invalid"),
                                "cannot listen at no.such.host.invalid: ")):
            with self.subTest(options=options):
                self.assert_refused(words, *options, METRICS, "never", "1", "1")

    def test_a_job_does_not_wait_for_the_port_to_close(self):
        took = []
        for _ in range(3):  # the server's own thread would take two seconds, each time
            folder = tempfile.mkdtemp(dir=self.folder)
            begin = time.monotonic()
            status, _, err = self.prun("-w", "2", "--metrics-port", "0", METRICS, os.path.join(folder, "out"), "3", "1")
            took.append(time.monotonic() - begin)
            self.assertEqual(status, 0, err)
        self.assertLess(min(took), 1.9)

    def test_only_this_host_can_read_it_unless_it_is_bound_elsewhere(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                s.connect(("192.0.2.1", 9))  # nothing is sent
            except OSError:
                self.skipTest("this host has no other address")
            own = s.getsockname()[0]
        run, _, url = self.job()
        port = urllib.parse.urlsplit(url).port
        self.assertEqual(urllib.parse.urlsplit(url).hostname, "127.0.0.1")
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection((own, port), 20)
        run.process.send_signal(signal.SIGINT)  # the next one writes to the same files
        self.assertEqual(run.wait(), 130)
        run, _, url = self.job("--metrics-bind", own)
        self.assertEqual(urllib.parse.urlsplit(url).hostname, own)
        self.assertIn("paracel_job_info", read_url(url))
        self.assertIn(f"warning: --metrics-bind {own}: who can reach that address can read the job's metrics", run.err())
        with self.assertRaises(urllib.error.HTTPError):
            read_url(url.replace("/metrics", "/../../etc/passwd"))


class File(MetricsTest):
    def test_a_file_that_is_replaced_while_the_job_runs(self):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "with spaces ä")
        os.mkdir(folder)
        out = os.path.join(self.folder, "file_out")
        odd = os.path.join(tempfile.mkdtemp(dir=self.folder), "run \"\\\n\udcff")  # with a byte that is not UTF-8
        run = self.start("--run-dir", odd, "-w", "2", "-p", "2", "--metrics-file", os.path.relpath(folder, self.folder),
                         METRICS, out, "100000", "20")
        self.assertTrue(wait_until(lambda: "prun: round" in run.err(), 30), run.err())
        self.assertNotIn("metrics at", run.err())
        path = os.path.join(folder, f"paracel_{run.job()}.prom")

        def pulls():
            self.assertEqual([n for n in os.listdir(folder) if n.endswith(".prom")], [os.path.basename(path)])
            text = read_bytes(path).decode()  # empty before the job has begun
            return text and Exposition(text).get(DURATION + "_count", verb="pull") or 0
        first = wait_until(pulls, 20, 0.05)
        self.assertTrue(first)
        self.assertTrue(wait_until(lambda: pulls() > first, 20, 0.01))
        (info, _), = Exposition(read_bytes(path).decode()).of("paracel_job_info")
        self.assertEqual(info["folder"].encode().decode("unicode_escape").encode("latin-1").decode(),
                         odd.replace("\udcff", "\ufffd"))
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o666 & ~self.umask())
        if PROMTOOL:
            with open(path, encoding="utf-8") as file:
                done = subprocess.run([PROMTOOL, "check", "metrics"], stdin=file, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(), 130)
        self.assertEqual(os.listdir(folder), [])

    @staticmethod
    def umask():
        mask = os.umask(0)
        os.umask(mask)
        return mask

    def test_the_file_of_a_job_that_ends_or_is_killed_is_gone(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        status, _, err = self.prun("--metrics-file", folder, METRICS, os.path.join(self.folder, "short_out"), "3", "1")
        self.assertEqual((status, os.listdir(folder)), (0, []), err)
        run = self.start("--metrics-file", folder, METRICS, os.path.join(self.folder, "killed_out"), "100000", "20")
        self.assertTrue(wait_until(lambda: os.listdir(folder), 30), run.err())
        run.find("scheduler").kill()
        self.assertEqual(run.wait(), 13, run.err())
        self.assertEqual(os.listdir(folder), [])


def expressions(board):
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]


class Readers(MetricsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(DASHBOARD, encoding="utf-8") as file:
            cls.board = json.load(file)

    @unittest.skipUnless(os.path.isdir(os.path.join(SCHEMA, "grafana_foundation_sdk")),
                         f"no grafana-foundation-sdk in {SCHEMA}: tool/setup.sh --long installs it, from PyPI")
    def test_grafanas_schema_knows_each_key_of_the_dashboard(self):
        def read_back(board):
            done = subprocess.run([sys.executable, "-c", READ_BACK], input=json.dumps(board), capture_output=True, text=True,
                                  check=False, env=clean_environment(PYTHONPATH=SCHEMA))
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        def lost(ours, theirs, where=""):
            """What the schema's classes, which ignore unknown keys, have not kept."""
            if isinstance(ours, dict) and isinstance(theirs, dict):
                return [w for k, v in ours.items() for w in lost(v, theirs.get(k), f"{where}.{k}")]
            if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
                return [w for i, v in enumerate(ours) for w in lost(v, theirs[i], f"{where}.{i}")]
            return [] if ours == theirs else [where]
        self.assertEqual(lost(self.board, read_back(self.board)), [])
        wrong = json.loads(json.dumps(self.board))
        wrong["panels"][1]["targets"][0]["legendFormt"] = "{{metric}}"
        self.assertEqual(lost(wrong, read_back(wrong)), [".panels.1.targets.0.legendFormt"])

    def test_each_expression_of_the_dashboard_names_metrics_that_are_there(self):
        _, _, url = self.job()
        now = wait_until(lambda: (e := Exposition(read_url(url))).get("paracel_hot_key_requests") and e, 20, 0.2)
        known = {n for n in now.names() if n.startswith("paracel_")}
        used = set()
        for title, expression in expressions(self.board):
            named = set(re.findall(r"\b(?:paracel|exposer)_\w+", expression))
            self.assertTrue(named and named <= known, (title, named - known))
            used |= named
            for labels in re.findall(r"\{([^}]*)\}", expression):
                self.assertIn('run=~"$run"', labels, title)
        query = self.board["templating"]["list"][1]["query"]
        self.assertEqual(query, "label_values(paracel_job_info, run)")
        ids = [panel["id"] for panel in self.board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for title, group in (("latency", DURATION + "_bucket"), ("staleness", "paracel_worker_staleness"),
                             ("hot keys", "paracel_hot_key_requests"), ("losses", "paracel_losses_total")):
            self.assertIn(group, used, title)

    @unittest.skipUnless(PROMETHEUS and PROMTOOL, "prometheus is not installed (tool/setup.sh --long installs it)")
    def test_prometheus_scrapes_it_and_answers_queries(self):
        run, _, url = self.job()
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=read_url(url), capture_output=True, text=True, check=False)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        folder = tempfile.mkdtemp(dir=self.folder)
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w", encoding="ascii") as file:
            file.write("global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs:\n  - job_name: paracel\n"
                       f"    static_configs: [{{targets: ['{urllib.parse.urlsplit(url).netloc}']}}]\n")
        here = f"127.0.0.1:{free_port()}"
        with open(os.path.join(folder, "log"), "wb") as log:
            server = subprocess.Popen([PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                                       f"--web.listen-address={here}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)

        def ask(expression):
            try:
                answer = json.loads(read_url(f"http://{here}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
            except OSError:
                return []
            self.assertEqual(answer["status"], "success", (expression, answer))
            return answer["data"]["result"]
        ready = 'min_over_time(up{job="paracel"}[1m]) == 1 and count_over_time(up{job="paracel"}[1m]) > 6'
        self.assertTrue(wait_until(lambda: ask(ready), 60, 0.3), read_bytes(os.path.join(folder, "log")))
        self.assertTrue(wait_until(lambda: ask("rate(paracel_round[1m])"), 20, 0.3))
        clocks = ask(f'paracel_worker_clock{{run="{run.job()}"}}')
        self.assertEqual([c["metric"]["worker"] for c in clocks], ["0", "1"])
        self.assertTrue(all(float(c["value"][1]) > 0 for c in clocks))
        grown = ask(f'increase({DURATION}_count{{verb="pull"}}[1m])')
        self.assertTrue(grown and max(float(g["value"][1]) for g in grown) > 0)
        for title, expression in expressions(self.board):
            with self.subTest(title=title):
                real = expression.replace("$__rate_interval", "1m").replace("$run", run.job())
                self.assertTrue(wait_until(lambda e=real: ask(e), 20, 0.5), real)


if __name__ == "__main__":
    main()

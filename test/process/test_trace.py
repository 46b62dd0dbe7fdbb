#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`--trace` and `prun.py trace`: what the processes of real jobs record, as Perfetto's own protobuf classes and a check of the
structure of Chrome's JSON read it; kills, full disks, and files that are no traces."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from collections import defaultdict

import made_traces
from made_traces import APPLY, HOLD, PHASE, REPLICATE, REQUEST, SERVE, Host
from process_support import LR, PRUN, SOURCE, JobTest, clean_environment, main, patient, slot_of, wait_until

sys.path.insert(0, os.path.join(SOURCE, "tool"))
from launcher.common.exit_status import Failure  # noqa: E402
from launcher.traces.files import read_folder  # noqa: E402
from launcher.traces.formats import chrome, perfetto  # noqa: E402
from launcher.traces.spans import Trace  # noqa: E402

PYTHON = os.path.join(SOURCE, "build", "python-tools", "bin", "python")
HAS = os.path.exists(PYTHON) and subprocess.run([PYTHON, "-c", "import perfetto"], stderr=subprocess.DEVNULL,
                                                check=False).returncode == 0
# Reads a trace by Perfetto's classes, and prints its tracks and slices.
READER = """
import json, sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
trace = pb.Trace.FromString(open(sys.argv[1], "rb").read())
tracks, events = {}, []
for p in trace.packet:
    if p.HasField("track_descriptor"):
        d = p.track_descriptor
        assert d.uuid not in tracks
        tracks[d.uuid] = [d.process.process_name if d.HasField("process") else d.name, d.parent_uuid]
    elif p.HasField("track_event"):
        e = p.track_event
        assert e.track_uuid in tracks
        args = {a.name: a.uint_value if a.HasField("uint_value") else a.string_value for a in e.debug_annotations}
        kind = pb.TrackEvent.Type.Name(e.type)
        events.append([e.track_uuid, kind, p.timestamp, e.name, list(e.categories), list(e.flow_ids), args])
json.dump([[[k, *v] for k, v in tracks.items()], events], sys.stdout)
"""


class Slice:
    def __init__(self, process, track, begin, name, category, args):
        self.process, self.track, self.begin, self.name, self.category, self.args = process, track, begin, name, category, args
        self.end, self.flows, self.parent = None, set(), None

    def key(self):
        return (self.process, self.track, round(self.begin), round(self.end), self.name, self.category,
                json.dumps(self.args, sort_keys=True))


class TraceTest(JobTest):
    def traced(self, *arguments, run="run", **more):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), run)
        status, out, err = self.prun("--trace", "--run-dir", folder, *arguments, **more)
        self.assertEqual(status, 0, out + err)
        return folder

    def convert(self, folder, form, status=0):
        target = os.path.join(tempfile.mkdtemp(dir=self.folder), "out")
        done = subprocess.run([sys.executable, "-S", PRUN, "trace", "--run", folder, "--format", form, "-o", target],
                              capture_output=True, text=True, check=False, timeout=patient(120), cwd=self.folder,
                              env=clean_environment())
        self.assertEqual(done.returncode, status, done.stderr)
        return target, done.stderr

    def chrome(self, folder):
        """The slices, after a check of the structure: each begin has its end, slices nest, flows join slices."""
        path, said = self.convert(folder, "chrome")
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        processes, threads = {}, {}
        stacks, slices, flows = defaultdict(list), [], defaultdict(lambda: defaultdict(list))
        last = defaultdict(float)
        for e in events:
            at = (e["pid"], e.get("tid"))
            if e["ph"] == "M":
                if e["name"] == "process_name":
                    processes[e["pid"]] = e["args"]["name"]
                elif e["name"] == "thread_name":
                    threads[at] = e["args"]["name"]
                continue
            self.assertGreaterEqual(e["ts"], last[at], "a track is in order of time")
            last[at] = e["ts"]
            if e["ph"] == "B":
                s = Slice(processes[e["pid"]], threads[at], 1000 * e["ts"], e["name"], e["cat"], e["args"])
                s.parent = stacks[at][-1] if stacks[at] else None
                stacks[at].append(s)
                slices.append(s)
            elif e["ph"] == "E":
                stacks[at].pop().end = 1000 * e["ts"]
            else:
                self.assertIn(e["ph"], "sf")
                flows[e["id"]][e["ph"]].append(stacks[at][-1])
        self.assertFalse(any(stacks.values()), "every begin has its end")
        for s in slices:
            self.assertGreaterEqual(s.end, s.begin)
            if s.parent:
                self.assertTrue(s.parent.begin <= s.begin and s.end <= s.parent.end)
        for number, ends in flows.items():
            self.assertEqual((len(ends["s"]), len(ends["f"])), (1, 1))
            for s in ends["s"] + ends["f"]:
                s.flows.add(number)
        return slices, said

    def perfetto(self, folder):
        path, _ = self.convert(folder, "perfetto")
        done = subprocess.run([PYTHON, "-c", READER, path], capture_output=True, text=True, check=False, timeout=patient(120))
        self.assertEqual(done.returncode, 0, done.stderr)
        tracks, events = json.loads(done.stdout)
        tracks = {uuid: (name, parent) for uuid, name, parent in tracks}
        slices, stacks = [], defaultdict(list)
        for track, kind, time, name, categories, flows, args in events:
            if kind == "TYPE_SLICE_END":
                stacks[track].pop().end = time
                continue
            self.assertEqual(kind, "TYPE_SLICE_BEGIN")
            own, parent = tracks[track]
            s = Slice(tracks[parent][0], own, time, name, *categories, args)
            s.flows.update(flows)
            stacks[track].append(s)
            slices.append(s)
        self.assertFalse(any(stacks.values()))
        return slices

    @staticmethod
    def after(slices, category):
        """Slice -> those of this category that a flow leads to or comes from."""
        by_flow = defaultdict(list)
        for s in slices:
            for number in s.flows:
                by_flow[number].append(s)
        return lambda s: [o for n in s.flows for o in by_flow[n] if o is not s and o.category == category]


class Traces(TraceTest):
    def test_a_replicated_request_is_followed_from_client_to_replica(self):
        folder = self.traced("--trace-every", "1", "-w", "2", "-p", "3", "--replicas", "2", "--threads", "2", "-c", "cfg.json",
                             LR)
        slices, said = self.chrome(folder)
        requests = [s for s in slices if s.category == "request"]
        self.assertRegex(said, rf"(?m)^prun.py: wrote .*: {len(requests)} requests, [\d,]+ records of \d+ threads$")
        self.assertEqual({s.process.split(" (")[0] for s in slices},
                         {"worker 0", "worker 1", "server s0", "server s1", "server s2"})
        serve, messages, applied = (self.after(slices, c) for c in ("serve", "replicate", "replica"))
        joined = 0
        for r in requests:
            served = serve(r)
            self.assertTrue(served, f"{r.name} {r.args} was served")
            for s in served:
                self.assertEqual((s.name, s.args["sequence"], s.args["client"]), (r.name, r.args["sequence"], r.args["client"]))
                self.assertIn(f"server {r.args['server']} ", s.process)
                self.assertTrue(r.begin <= s.begin and s.end <= r.end, "the client's span contains the shard's")
            if r.name not in ("update", "push"):
                continue
            sent = [m for s in served for m in messages(s)]
            self.assertTrue(sent, f"{r.name} reached a replica")
            for m in sent:
                replica, = applied(m)
                self.assertTrue(m.begin <= replica.begin <= m.end)
                self.assertIn(f"server {m.name.split()[-1]} ", replica.process)
                self.assertTrue(r.begin <= m.begin and m.end <= r.end, "a reply waits for the replicas")
                joined += 1
        self.assertGreater(joined, 30)
        for rank in (0, 1):
            names = [s.name for s in slices if s.process.startswith(f"worker {rank} ") and s.category == "phase"]
            self.assertEqual([n for n in names if n.startswith("iteration")], [f"iteration {n}" for n in range(1, 31)])
            self.assertEqual(sum(n.startswith("commit") for n in names), 30)
            self.assertIn("load", names)
            self.assertIn("all_gather", names)
        commits = [s for s in slices if s.name.startswith("commit ")]
        self.assertTrue(all(s.parent.name == s.name.replace("commit", "iteration") for s in commits))

    @unittest.skipUnless(HAS, "no package perfetto in build/python-tools: tool/setup.sh --test installs it")
    def test_perfetto_reads_the_same(self):
        folder = self.traced("-w", "2", "-p", "2", "--replicas", "2", "-c", "cfg.json", LR)
        slices, _ = self.chrome(folder)
        read = self.perfetto(folder)
        self.assertEqual(sorted(s.key() for s in read), sorted(s.key() for s in slices))
        self.assertEqual(sorted(len(s.flows) for s in read), sorted(len(s.flows) for s in slices))
        self.assertGreater(len({n for s in read for n in s.flows}), 100)

    def test_the_spans_of_a_shard_are_the_requests_that_the_run_has_counted(self):
        self.write_config("asp.json", consistency="asp")  # no messages about the clock between servers
        folder = self.traced("-w", "2", "-p", "2", "--threads", "2", "--trace-every", "1", "-c", "asp.json", LR)
        slices, _ = self.chrome(folder)
        with open(os.path.join(folder, "timeline.jsonl"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        counted = {}
        for e in events:
            if e["event"] == "usage" and e["role"] == "server":
                for number, shard in enumerate(e["usage"]["shards"]):
                    counted[f"server s{e['index']}", f"shard {number}"] = shard[0]
        found = defaultdict(int)
        for s in slices:
            if s.category == "serve" and s.track.startswith("shard"):
                found[s.process.split(" (")[0], s.track] += 1
        self.assertEqual(dict(found), {k: v for k, v in counted.items() if v})
        self.assertEqual(sum(s.category == "request" for s in slices), sum(s.category == "serve" for s in slices))

    def test_a_program_in_one_process_is_traced_by_its_environment(self):
        self.write_config("alone.json", output="alone/")
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "ünd more")
        done = subprocess.run([LR, "--cfg_file", "alone.json"], cwd=self.folder, capture_output=True, text=True, check=False,
                              env=clean_environment(PARACEL_TRACE=folder, PARACEL_TRACE_EVERY="1"), timeout=patient(60))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        slices, _ = self.chrome(folder)
        self.assertEqual({s.category for s in slices}, {"request", "serve", "phase"})
        done = subprocess.run([LR, "--cfg_file", "alone.json"], cwd=self.folder, capture_output=True, text=True, check=False,
                              env=clean_environment(PARACEL_TRACE=folder, PARACEL_TRACE_EVERY="no"), timeout=patient(60))
        self.assertEqual(done.returncode, 2)
        self.assertIn("PARACEL_TRACE_EVERY=no: want a whole number, at least 1", done.stderr)

    def test_without_the_option_nothing_is_recorded(self):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "run")
        status, _, err = self.prun("--run-dir", folder, "-c", "cfg.json", LR)
        self.assertEqual(status, 0, err)
        self.assertEqual([name for name in os.listdir(folder) if name.endswith(".trace")], [])
        _, said = self.convert(folder, "chrome", status=2)
        self.assertIn("nothing was traced there (prun.py --trace, or PARACEL_TRACE): it has no files like worker_0.0.trace", said)

    def test_options_without_trace_are_refused(self):
        for option, value in (("--trace-bytes", "1M"), ("--trace-every", "3")):
            self.assertIn(f"{option} requires --trace", self.prun(option, value, "-c", "cfg.json", LR)[2])
        self.assertIn("--trace-bytes 9K: want at least 64K", self.prun("--trace", "--trace-bytes", "9K", "-c", "cfg.json", LR)[2])

    def test_a_run_folder_with_traces_is_used_again(self):
        folder = self.traced("-w", "2", "-c", "cfg.json", LR)
        before = sorted(name for name in os.listdir(folder) if name.endswith(".trace"))
        self.convert(folder, "perfetto")
        subprocess.run([sys.executable, "-S", PRUN, "trace", "--run", folder], check=True, capture_output=True)
        self.assertIn("trace.pftrace", os.listdir(folder))
        status, _, err = self.prun("--trace", "--run-dir", folder, "-w", "2", "-c", "cfg.json", LR)
        self.assertEqual(status, 0, err)
        self.assertEqual(sorted(name for name in os.listdir(folder) if name.endswith(".trace")), before)
        self.assertNotIn("trace.pftrace", os.listdir(folder))

    def test_a_killed_server_leaves_what_it_has_recorded(self):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "run")
        run = self.start("--trace", "--run-dir", folder, "-w", "2", "-p", "3", "--replicas", "2", "-c", "long.json", LR)
        server = run.find("server")
        mine = re.compile(rf"server_{slot_of(server)}\.\d+\.trace")

        def sizes():
            return {n: os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder) if mine.fullmatch(n)}
        self.assertTrue(wait_until(lambda: max(sizes().values(), default=0) > 20000, 60))
        server.kill()
        before = set(sizes())
        self.assertTrue(wait_until(lambda: max((size for n, size in sizes().items() if n not in before), default=0) > 5000,
                                   60), "its replacement has files of its own")
        slices, _ = self.chrome(folder)  # while it runs
        self.assertEqual(len({s.process for s in slices if s.process.startswith(f"server s{slot_of(server)} ")}), 2)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(), 130)
        slices, _ = self.chrome(folder)
        self.assertGreater(sum(f"(pid {server.pid} " in s.process for s in slices), 100)

    def test_a_killed_job_leaves_what_it_has_recorded(self):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "run")
        run = self.start("--trace", "--run-dir", folder, "-w", "2", "-c", "long.json", LR)
        self.assertTrue(wait_until(lambda: os.path.exists(os.path.join(folder, "worker_0.0.trace")) and
                                   os.path.getsize(os.path.join(folder, "worker_0.0.trace")) > 20000, 60))
        run.process.kill()
        self.assert_nothing_left(run.job(), 20)
        slices, _ = self.chrome(folder)
        self.assertGreater(sum(s.category == "request" for s in slices), 20)

    def test_what_does_not_fit_is_counted(self):
        self.write_config("many.json", rounds=3000, output="many/")
        folder = self.traced("--trace-bytes", "64K", "-w", "2", "-c", "many.json", LR)
        for name in os.listdir(folder):
            if name.endswith(".trace"):
                self.assertLessEqual(os.path.getsize(os.path.join(folder, name)), 64 << 10)
        _, said = self.chrome(folder)
        self.assertRegex(said, r"(?m)^prun.py: [\d,]{4,} records did not fit into --trace-bytes$")

    def test_a_full_disk_does_not_touch_the_job(self):
        self.write_config("longer.json", rounds=3000, output="longer/")
        plain = os.path.join(self.folder, "longer")
        status, out, err = self.prun("-w", "2", "-c", "longer.json", LR)
        self.assertEqual(status, 0, err)
        shutil.move(plain, plain + "_before")
        parent = tempfile.mkdtemp(dir=self.folder)
        script = ('mount -t tmpfs -o size=160k none "$1" 2>/dev/null || exit 77; at=$1; shift; "$@"; s=$?; '
                  'grep -h "cannot be written" $at/run/*.log >&2; exit $s')
        done = subprocess.run(["unshare", "-rm", "/bin/sh", "-c", script, "sh", parent, sys.executable, PRUN, "--trace",
                               "--run-dir", os.path.join(parent, "run"), "-w", "2", "-c", "longer.json", LR], cwd=self.folder,
                              capture_output=True, text=True, check=False, timeout=patient(120), env=clean_environment())
        if done.returncode == 77 or "unshare:" in done.stderr:
            self.skipTest("no file system can be mounted here")
        self.assertEqual((done.returncode, done.stdout), (0, out), done.stderr)
        self.assertEqual(sorted(os.listdir(plain)), sorted(os.listdir(plain + "_before")))

    def test_a_folder_that_cannot_be_made_is_named(self):
        self.write_config("alone2.json", output="alone2/")
        done = subprocess.run([LR, "--cfg_file", "alone2.json"], cwd=self.folder, capture_output=True, text=True, check=False,
                              env=clean_environment(PARACEL_TRACE="/no/such/folder"), timeout=patient(60))
        self.assertEqual((done.returncode, done.stderr),
                         (0, "warning: this process is not traced: /no/such/folder: No such file or directory\n"))

    def test_the_supersteps_and_collectives_of_a_queue(self):
        self.write_config("lbfgs.json", method="lbfgs", output="lbfgs/")
        folder = self.traced("-w", "2", "-c", "lbfgs.json", LR)
        slices, _ = self.chrome(folder)
        names = {s.name for s in slices if s.process.startswith("worker 1 ")}
        self.assertIn("superstep 1", names)
        inside = [s for s in slices if s.parent and s.parent.name.startswith("superstep")]
        self.assertTrue({"all_reduce", "broadcast", "barrier"} & {s.name for s in inside}, names)


class MadeTraces(TraceTest):
    """Files that no run has written."""

    def setUp(self):
        self.at = os.path.join(tempfile.mkdtemp(dir=self.folder), "traces")

    def refused(self, words, *parts):
        made_traces.write(self.at, "worker_0.0.trace", *parts)
        _, said = self.convert(self.at, "chrome", status=2)
        self.assertIn(f"{self.at}/worker_0.0.trace: {words}", said)

    def test_files_that_are_no_traces_are_named(self):
        good = made_traces.header("worker", 0)
        self.refused("empty")
        self.refused("cut off after 20 bytes", good[:20])
        self.refused("cut off after 100 bytes", good[:100])
        self.refused("begins with b'\\x7fELF", b"\x7fELF" + good)
        self.refused("its header says records of 40 bytes", good[:12] + b"\x28" + good[13:])
        self.refused("its header says records of 48 bytes and 4294967295 bytes of header", good[:8] + b"\xff" * 4 + good[12:])
        self.refused("its header is not what a trace has: JSONDecodeError", good[:32] + b"!" + good[33:])
        self.refused("its header is not what a trace has: KeyError", good.replace(b'"host"', b'"hose"'))
        self.refused("record 2: found kind 9", good, made_traces.clock(1, 1, 1), made_traces.record(9, 1, 2))
        self.refused("record 1: found kind 1 from 5 to 4", good, made_traces.record(REQUEST, 5, 4))
        made_traces.write(self.at, "worker_0.0.trace", good)
        self.assertIn("its files have no records", self.convert(self.at, "chrome", status=2)[1])

    def test_a_file_that_is_cut_off_anywhere_is_read(self):
        host = Host("b1", 10**12, 2.5, 10**9, 10**18)
        path = host.write(self.at, "worker_0.0.trace", "worker", 0, "x",
                          [(REQUEST, 1000 * i, 1000 * i + 500, {"sequence": i}) for i in range(1, 20)])
        with open(path, "rb") as file:
            data = file.read()
        first = len(data) - 20 * 48
        for cut in range(first + 48, len(data), 101):
            with open(path, "wb") as file:
                file.write(data[:cut])
            slices, _ = self.chrome(self.at)
            self.assertEqual(len(slices), min(19, (cut - first) // 48))
        with open(path, "wb") as file:
            file.write(data + bytes(96))  # a file system after a crash of the host
        self.assertEqual(len(self.chrome(self.at)[0]), 19)

    def test_a_file_that_was_cut_off_in_its_header_is_left_out(self):
        host = Host("b1", 10**12, 2.5, 10**9, 10**18)
        host.write(self.at, "worker_0.0.trace", "worker", 0, "x", [(PHASE, 5, 10, {"what": 1})])
        made_traces.write(self.at, "worker_1.0.trace", b"PRCT")
        slices, said = self.chrome(self.at)
        self.assertEqual([s.name for s in slices], ["load"])
        self.assertIn(f"left out {self.at}/worker_1.0.trace: cut off after 4 bytes", said)

    def test_whatever_is_in_a_file_there_is_a_trace_or_a_failure_that_names_it(self):
        host = Host("b1", 10**12, 2.5, 10**9, 10**18)
        records = [(kind, 1000 * i + kind, 1000 * i + 900, {"sequence": i}) for i in range(1, 8) for kind in range(1, 7)]
        with open(host.write(self.at, "worker_0.0.trace", "worker", 0, "x", records), "rb") as file:
            data = file.read()
        read = 0
        for _ in range(400):
            bad = bytearray(data)
            for _ in range(random.choice((1, 1, 3, 20))):
                at = random.randrange(len(bad)) if random.random() < 0.5 else random.randrange(400)
                bad[at] = random.choice((0, 255, 0x7f, ord("9"), ord("e"), random.randrange(256)))
            length = random.choice((len(bad), random.randrange(1, len(bad))))
            made_traces.write(self.at, "worker_0.0.trace", bytes(bad[:length]))
            try:
                trace = Trace(read_folder(self.at)[0])
            except Failure as why:
                self.assertIn(self.at, str(why))
                continue
            read += 1
            text, data2 = "".join(chrome(trace)), b"".join(perfetto(trace))
            depth = 0
            for event in json.loads(text)["traceEvents"]:
                depth += {"B": 1, "E": -1}.get(event["ph"], 0)
                self.assertGreaterEqual(depth, 0)
            self.assertEqual(depth, 0)
            self.assertTrue(data2)
        self.assertGreater(read, 50)

    def two_hosts(self, wall):
        a, b = Host("b1", 10**12, 2.5, 10**9, 10**18), Host("b2", 77, 3.1, 10**15, wall)
        a.write(self.at, "worker_0.0.trace", "worker", 0, "x",
                [(REQUEST, 10**6 * i, 10**6 * i + 100_000, {"sequence": i}) for i in range(1, 100)])
        # The way there takes 30 us, the way back at least 40, and often longer.
        b.write(self.at, "server_0.0.trace", "server", 0, "shard 0",
                [(SERVE, 10**6 * i + 30_000 + 100 * i, 10**6 * i + 60_000, {"sequence": i}) for i in range(1, 100)])

    def test_clocks_of_two_hosts_are_set_by_their_requests(self):
        self.two_hosts(0)
        slices, said = self.chrome(self.at)
        self.assertIn("the clocks of 2 hosts were set by the requests between them, to within 35 us", said)
        begins = {(s.category, s.args["sequence"]): s.begin for s in slices}
        for i in range(1, 100):
            self.assertAlmostEqual(begins["serve", i] - begins["request", i], 30_100 + 100 * (i - 1), delta=36_000)

    def test_hosts_without_a_request_between_them_are_named(self):
        Host("b1", 10**12, 2.5, 10**9, 10**18).write(self.at, "worker_0.0.trace", "worker", 0, "x", [(PHASE, 5000, 9000, {})])
        Host("b2", 10**12, 2.5, 0, 10**18 + 7000).write(self.at, "worker_1.0.trace", "worker", 1, "x", [(PHASE, 5000, 9000, {})])
        slices, said = self.chrome(self.at)
        self.assertIn("no traced request joins b2 to the others: there the wall clock was taken", said)
        self.assertEqual(sorted(round(s.begin) for s in slices), [0, 7000])

    def test_flows_of_a_batch(self):
        host = Host("b1", 0, 1.0, 10**9, 10**18)
        host.write(self.at, "worker_0.0.trace", "worker", 0, "x",
                   [(REQUEST, 100, 900, {"sequence": 1}), (REQUEST, 110, 900, {"sequence": 2}),
                    (REQUEST, 950, 990, {"sequence": 3})])
        host.write(self.at, "server_0.0.trace", "server", 0, "shard 0",
                   [(SERVE, 200, 210, {"sequence": 1}), (SERVE, 220, 230, {"sequence": 2}),
                    (REPLICATE, 240, 600, {"client": 7, "sequence": 4, "slot": 1}),
                    (HOLD, 250, 700, {"client": 7, "sequence": 4}),
                    (SERVE, 960, 970, {"sequence": 3})])
        host.write(self.at, "server_1.0.trace", "server", 1, "shard 0",
                   [(APPLY, 300, 400, {"client": 7, "sequence": 4}),
                    (REPLICATE, 350, 390, {"client": 8, "sequence": 1, "slot": 2})])
        host.write(self.at, "server_2.0.trace", "server", 2, "shard 0", [(APPLY, 360, 370, {"client": 8, "sequence": 1})])
        slices, _ = self.chrome(self.at)
        joined = sorted((a.name, a.args["sequence" if "sequence" in a.args else "number"], b.name, b.process.split(" (")[0])
                        for a in slices for b in slices if a.begin < b.begin and a.flows & b.flows)
        self.assertEqual(joined, [
            ("apply", 4, "replicate to s2", "server s1"),
            ("pull", 1, "pull", "server s0"), ("pull", 1, "replicate to s1", "server s0"),
            ("pull", 2, "pull", "server s0"), ("pull", 2, "replicate to s1", "server s0"), ("pull", 3, "pull", "server s0"),
            ("replicate to s1", 4, "apply", "server s1"), ("replicate to s2", 1, "apply", "server s2")])


if __name__ == "__main__":
    main()

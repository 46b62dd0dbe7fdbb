#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The cost of distribution: each algorithm with 1, 2 and 4 workers compared with the best single-threaded tool.

    tool/bench/cost.py                       every row, at a hundredth of its size
    tool/bench/cost.py --full --rows wc,svd  at full size: the tool takes at least 20 seconds

Complete commands including loading, with a warm page cache. The tool is pinned to one processor with a single BLAS thread, those
of word2vec, gbdt, random_forest, daal4py, LIBMF, GAPBS and libgrape-lite to two, with two threads; ours may use all processors.
A row runs the tool and ours alternately; its times are medians, its ratios medians of the pairs: seconds of the tool divided by
ours, so above 1 ours is faster. Quality is compared each time: the same objective within 1e-4, or as the row defines. Peak memory
of ours is the sum of the peaks of all its processes, including launcher, scheduler and servers.
"""
import argparse
import ctypes
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from cost_rows import OPTIONAL, ROWS  # noqa: E402
from running import CannotMeasure, built, output_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
PYTHON = "/usr/bin/python3"  # for which tool/setup.sh --bench installs packages
POLL = 0.05  # seconds between two samples of our memory
DEFAULT_SCALE = 0.01


# ---- measuring

class Measured:
    def __init__(self, seconds, bytes_, output):
        self.seconds, self.bytes, self.output = seconds, bytes_, output


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def run_alone(command, limit, threads=1):
    """Runs the tool, pinned to `threads` processors; its peak memory is that of its largest process."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C"}
    return run_watched(["taskset", "-c", "0-%d" % (threads - 1), *shlex.split(command)], environment, limit, False)


def run_watched(words, environment, limit, whole_tree):
    with tempfile.TemporaryFile() as out:
        begin = time.monotonic()
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment,
                                   preexec_fn=die_with_parent, cwd=ROOT)
        peaks = {}
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid != 0:
                break
            if whole_tree:
                look_at_memory(process.pid, peaks)
            if time.monotonic() - begin > limit:
                stop_tree(process.pid)
                os.wait4(process.pid, 0)
                process.returncode = -1
                raise CannotMeasure("%s: not done after %d s" % (shown(words), limit))
            time.sleep(POLL if time.monotonic() - begin > 1 else POLL / 10)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = out.read().decode("utf-8", "replace")
    if process.returncode != 0:
        raise CannotMeasure("%s: status %d: %s" % (shown(words), process.returncode, output[-300:].strip()))
    return Measured(seconds, sum(peaks.values()) if whole_tree else usage.ru_maxrss * 1024, output)


def shown(words):
    return " ".join(words)[:100]


def children():
    """{parent: [pid]} of all processes."""
    tree = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
            tree.setdefault(parent, []).append(int(name))
    return tree


def descendants(pid):
    tree, found, ahead = children(), [], [pid]
    while ahead:
        p = ahead.pop()
        found.append(p)
        ahead += tree.get(p, [])
    return found


def look_at_memory(pid, peaks):
    """The kernel records the peak of each process; the last value read before its exit is used."""
    for p in descendants(pid):
        try:
            with open("/proc/%d/status" % p, "rb") as file:
                match = re.search(rb"VmHWM:\s+(\d+) kB", file.read())
        except OSError:
            continue
        if match:
            peaks[p] = max(peaks.get(p, 0), int(match[1]) * 1024)


def stop_tree(pid):
    for p in descendants(pid):
        try:
            os.kill(p, signal.SIGKILL)
        except ProcessLookupError:
            pass


def warm(*paths):
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.bin = os.path.join(options.build, "bin")
        self.made = {}

    def program(self, name):
        return built(self.options.build, name)

    def generate(self, words):
        """The file that datagen.py generates with these options; cached."""
        key = " ".join(words)
        if key not in self.made:
            path = os.path.join(self.folder, "data%d" % len(self.made))
            words = [PYTHON, "-B", os.path.join(ROOT, "tool", "datagen.py"), "--binary", self.program("datagen"), "--jobs",
                     "2", "-o", path, *words]
            output_of(words)
            self.made[key] = path
        return self.made[key]

    def folder_of(self, row):
        """Of a tool that no registry has."""
        if row.folder is None:
            return ""
        folder = getattr(self.options, row.folder)
        if not folder:
            raise CannotMeasure("no registry has this tool: --%s FOLDER names the folder in which it is built" % row.folder)
        return os.path.abspath(folder)

    def also(self, kind, data, scale):
        """A second input."""
        if kind == "factors":
            return self.generate(["-m", "factors", "--seed", "2", "-k", "32", "-n", str(max(100, int(4000 * scale)))])
        if kind == "similarity":
            return self.generate(["-m", "similarity", "--seed", "2", "-k", "100", "-n", str(max(100, int(30e3 * scale)))])
        if kind == "held_out":
            return hold_out(data)
        config = {"input": data, "topk": 50}
        out = os.path.join(self.folder, "similar")
        self.ours("sim_sparse", config, 1, out)
        # The tool reads a single file.
        path = out + "_all"
        with open(path, "w", encoding="ascii") as all_lists:
            for name in sorted(os.listdir(out)):
                if name.startswith("sim") and not name.endswith(".jsonl"):
                    with open(os.path.join(out, name), encoding="ascii") as part:
                        shutil.copyfileobj(part, all_lists)
        return path

    def ours(self, program, config, workers, out):
        path = self.program(program)
        schema = json.loads(output_of([path, "--schema"]))
        known = {key["name"] for key in schema["keys"]}
        config = {k: v for k, v in config.items() if k in known or k not in OPTIONAL}
        file = os.path.join(self.folder, "config.json")
        with open(file, "w", encoding="utf-8") as to:
            json.dump({**config, "output": out}, to)
        shutil.rmtree(out, ignore_errors=True)
        words = [PYTHON, "-B", os.path.join(ROOT, "prun.py"), "-w", str(workers), "-p", str(self.options.servers),
                 "--threads", "1", "-c", file, "-m", "local", "--output-dir", os.path.join(self.folder, "run"), path]
        return run_watched(words, dict(os.environ), self.options.limit, True)

    def measure(self, row):
        scale = 1 if self.options.full else self.options.scale
        self.program(row.program)
        folder = self.folder_of(row)
        if row.counts:
            words = shlex.split(row.data)
            for name, count in row.counts.items():
                words += [name, str(max(100, int(count * scale)))]
            data = self.generate(words)
        else:
            data = os.path.join(folder, row.data)
        if row.prepare:
            data = row.prepare(data)
        names = {"data": data, "bin": self.bin, "work": self.folder, "first": first_field(data), "folder": folder,
                 "python": self.options.python}
        for i, kind in enumerate(row.also):
            names["also%d" % i] = self.also(kind, data, scale)
        tool = row.tool
        for name, value in names.items():
            tool = tool.replace("{%s}" % name, value)
        config = {k: fill(v, names) for k, v in row.config.items()}
        executable = shlex.split(tool)[0]
        if os.path.dirname(executable) == self.bin:
            self.program(os.path.basename(executable))
        if shutil.which(executable) is None:
            raise CannotMeasure("%s is not installed (tool/setup.sh --bench)" % os.path.basename(executable))
        warm(data, *[names["also%d" % i] for i in range(len(row.also))])
        pairs = []
        for _ in range(self.options.pairs):
            pair = {"tool": run_alone(tool, self.options.limit, row.threads)}
            for workers in self.options.workers:
                pair[workers] = self.ours(row.program, config, workers, os.path.join(self.folder, "out"))
            pairs.append(pair)
        return summary(row, pairs, self.options.workers, os.path.getsize(data), tool)


def hold_out(path):
    """Moves every tenth line of a file to another file."""
    rest, out = path + ".rest", path + ".held_out"
    with open(path, "rb") as file, open(rest, "wb") as kept, open(out, "wb") as held:
        for number, line in enumerate(file):
            (held if number % 10 == 9 else kept).write(line)
    os.replace(rest, path)
    return out


def fill(value, names):
    if not isinstance(value, str):
        return value
    for name, text in names.items():
        value = value.replace("{%s}" % name, text)
    return value


def first_field(path):
    with open(path, "rb") as file:
        return re.split(rb"[\s,:]", file.readline(), maxsplit=1)[0].decode()


# ---- figures

def summary(row, pairs, workers, data_bytes, command=""):
    """Medians of the runs, medians of the pairs' ratios, and the worst quality found."""
    said, equal = "", True
    for pair in pairs:
        for w in workers:
            good, text = row.quality(pair[w].output, pair["tool"].output)
            if equal and (not good or not said):
                said = text
            equal = equal and good
    result = {"row": row.name, "tool": command, "data_bytes": data_bytes, "judged": row.judged, "equal_quality": equal,
              "quality": said, "tool_seconds": statistics.median(p["tool"].seconds for p in pairs),
              "tool_bytes": max(p["tool"].bytes for p in pairs), "workers": {}}
    for w in workers:
        ratios = [p["tool"].seconds / p[w].seconds for p in pairs]
        result["workers"][str(w)] = {"seconds": statistics.median(p[w].seconds for p in pairs),
                                     "ratio": statistics.median(ratios), "ratios": ratios,
                                     "bytes": max(p[w].bytes for p in pairs)}
    return result


def table(results, workers):
    """A table in Markdown."""
    heads = ["row", "MB", "tool s"] + ["%d w s" % w for w in workers] + ["ratio %d w" % w for w in workers]
    heads += ["tool MB"] + ["%d w MB" % w for w in workers] + ["quality"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for r in results:
        if "why" in r:
            lines.append("| %s | " % r["row"] + " | ".join([""] * (len(heads) - 2)) + " | not measured: %s |" % r["why"])
            continue
        of = [r["workers"][str(w)] for w in workers]
        cells = [r["row"] + ("" if r["judged"] else " (for orientation)"), "%.0f" % (r["data_bytes"] / 1e6),
                 "%.2f" % r["tool_seconds"]]
        cells += ["%.2f" % w["seconds"] for w in of] + ["%.2f" % w["ratio"] for w in of]
        cells += ["%.0f" % (r["tool_bytes"] / 1e6)] + ["%.0f" % (w["bytes"] / 1e6) for w in of]
        cells.append(("same: " if r["equal_quality"] else "NOT THE SAME: ") + r["quality"])
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def won(results):
    """The rows in which two workers beat the tool at equal quality, and all rows that are judged."""
    counting = [r for r in results if "why" not in r and r["judged"] and "2" in r["workers"]]
    return [r for r in counting if r["equal_quality"] and r["workers"]["2"]["ratio"] > 1], counting


def machine():
    def first_line(*words):
        try:
            done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            return done.stdout.strip().split("\n")[0]
        except OSError:
            return ""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "processor": model[1] if model else platform.machine(), "cores": os.cpu_count(),
            "blas": os.path.realpath("/usr/lib/%s-linux-gnu/libblas.so.3" % platform.machine()),
            "commit": first_line("git", "-C", ROOT, "rev-parse", "--short", "HEAD"), "load": os.getloadavg()[0]}


def main(argv=None):
    parser = argparse.ArgumentParser(description="Measure the algorithms against single-threaded tools.")
    parser.add_argument("--scale", type=float, default=DEFAULT_SCALE, help="fraction of the full size (%g)" % DEFAULT_SCALE)
    parser.add_argument("--full", action="store_true", help="the full size")
    parser.add_argument("--rows", default="", help="names of rows, or their first words, separated by commas (all)")
    parser.add_argument("--pairs", type=int, default=3, help="alternating runs of the tool and of ours (3)")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers (1,2,4)")
    parser.add_argument("--servers", type=int, default=1, help="number of our servers (1)")
    parser.add_argument("--limit", type=float, default=900, help="maximum seconds of a run (900)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="the build (build/)")
    parser.add_argument("--python", default=PYTHON, help="interpreter of the tools that are Python packages (%s)" % PYTHON)
    parser.add_argument("--gapbs", metavar="FOLDER", help="folder of the GAP benchmark suite, built")
    parser.add_argument("--grape", metavar="FOLDER", help="folder of libgrape-lite, built in its build/")
    parser.add_argument("--folder", help="folder for data while it is needed (a temporary one)")
    parser.add_argument("--json", help="write all figures to this file")
    options = parser.parse_args(argv)
    options.build = os.path.abspath(options.build)
    options.folder = os.path.abspath(options.folder) if options.folder else None
    options.workers = [int(w) for w in options.workers.split(",")]
    if options.pairs < 1 or not 0 < options.scale <= 1:
        parser.error("--pairs wants 1 or more, --scale more than 0 and at most 1")
    wanted = [name for name in options.rows.split(",") if name]
    rows = [r for r in ROWS if not wanted or r.name in wanted or r.name.split()[0] in wanted]
    if not rows:
        parser.error("--rows: found none of these names; there are " + ", ".join(r.name for r in ROWS))

    found = {"machine": machine(), "scale": 1 if options.full else options.scale, "pairs": options.pairs, "rows": []}
    if "openblas" not in found["machine"]["blas"]:
        print("the tools' BLAS is %s: not OpenBLAS, so those that use it are slower than they could be" %
              found["machine"]["blas"], file=sys.stderr)
    for row in rows:
        # One folder for each row, because data is large.
        with tempfile.TemporaryDirectory(prefix="paracel-cost-", dir=options.folder) as folder:
            print("%s ..." % row.name, file=sys.stderr, flush=True)
            try:
                found["rows"].append(Bench(options, folder).measure(row))
            except CannotMeasure as e:
                found["rows"].append({"row": row.name, "why": " ".join(str(e).split())})
    print(table(found["rows"], options.workers))
    if 2 in options.workers:
        better, counting = won(found["rows"])
        print("\ntwo workers beat the tool in %d of %d rows" % (len(better), len(counting)))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

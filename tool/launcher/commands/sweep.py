# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py sweep`: runs a program at the points of a grid, or at random ones, some at a time, and tells which is best.

The folder of a sweep has what was asked for (sweep.json), a line for each finished point (points.jsonl, appended and synced, so
that a sweep that was killed continues), each point's output and log (points/<number>/), and the table as CSV and as a plot."""
import fcntl
import hashlib
import itertools
import json
import math
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import time

from ..common.command_line import name_given, new_parser
from ..common.durable import sync_folder
from ..common.exit_status import CONFIG, FAILURE, MEANING, OK, USAGE, Failure, words_of
from ..common.numbers import positive, seconds, whole_number
from ..common.output import write_file, write_out
from ..common.printable import in_a_line, printable
from ..engines.hosts import usable_cores
from ..folders.run_directory import table
from ..job.options import override
from ..programs.config import overriding
from ..programs.program import command_of, dies_with_us, find_program, marks_in, output_of
from .sweep_plot import plot

STATE, FINISHED, LOCK = "sweep.json", "points.jsonl", "sweep.lock"
MOST_POINTS = 100000
CHECK_LIMIT = 30.0   # seconds
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
USUAL_OBJECTIVES = ("objective", "loss", "rmse")


def value_of(text):
    """JSON, or else the text."""
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def text_of(value):
    """As --set takes it."""
    if not isinstance(value, str):
        return json.dumps(value)
    return value if value_of(value) == value else json.dumps(value)


def grid_of(text):
    """(key, values): KEY=A,B,C, or a JSON list of values that may have commas."""
    import argparse
    key, equals, rest = text.partition("=")
    if not key or not equals or not rest:
        raise argparse.ArgumentTypeError(f"found {text!r}, want KEY=A,B,C")
    whole = value_of(rest)
    values = whole if isinstance(whole, list) else [value_of(part) for part in rest.split(",")]
    for at, value in enumerate(values):
        if value in values[:at] or value == "":
            raise argparse.ArgumentTypeError(f"{text!r}: " + (f"{value} is given twice" if value else "a value is empty"))
    return key, values


def range_of(text):
    """(key, low, high, logarithmic): KEY=LOW:HIGH or KEY=LOW:HIGH:log. Two whole numbers are a range of whole numbers."""
    import argparse
    match = re.fullmatch(rf"([^=]+)=({NUMBER}):({NUMBER})(:log)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, want KEY=LOW:HIGH, or KEY=LOW:HIGH:log")
    whole = all(re.fullmatch(r"[-+]?\d{1,15}", match[i]) for i in (2, 3))
    low, high = ((int if whole else float)(match[i]) for i in (2, 3))
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise argparse.ArgumentTypeError(f"{text!r}: want finite numbers, the lower one first")
    if match[4] and low <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: want LOW above 0 with log")
    return match[1], low, high, bool(match[4])


def draw(seed, number, key, low, high, logarithmic):
    """A value of the range. It does not depend on how many are drawn, so a sweep can be continued with a larger -n."""
    where = random.Random(f"{seed}:{key}:{number}").random()
    if logarithmic:
        top = high + (isinstance(low, int))
        value = math.exp(math.log(low) + where * (math.log(top) - math.log(low)))
    else:
        value = low + where * (high - low + isinstance(low, int))
    return min(int(value), high) if isinstance(low, int) else float(f"{min(max(value, low), high):.6g}")


def points_of(options):
    """The settings of each point, in order: [{key: value}]"""
    keys = [key for key, *_ in options.grid + options.random]
    for key in keys:
        if keys.count(key) > 1 or any(text.partition("=")[0] == key for text in options.set):
            raise Failure(USAGE, f"sweep: the key {key} is given twice: want it in one of --grid, --random and --set")
    if not keys:
        raise Failure(USAGE, "sweep: want --grid KEY=A,B,C or --random KEY=LOW:HIGH")
    draws = options.n if options.random else 1
    if draws * math.prod(len(values) for _, values in options.grid) > MOST_POINTS:
        raise Failure(USAGE, f"sweep: want at most {MOST_POINTS} points")
    points, names = [], set()
    for number in range(draws):
        drawn = {key: draw(options.seed, number, key, *rest) for key, *rest in options.random}
        for values in itertools.product(*(values for _, values in options.grid)):
            point = {**dict(zip((key for key, _ in options.grid), values)), **drawn}
            if name_of(point) not in names:  # whole numbers may be drawn twice
                names.add(name_of(point))
                points.append(point)
    return points


def name_of(point):
    """A name that does not depend on the other points."""
    return hashlib.sha256(json.dumps(point, sort_keys=True).encode()).hexdigest()[:12]


def config_digest(path, chain=()):
    """Of a config and the files that it includes; the program reports what is wrong with them."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            text = file.read()
        digest.update(text)
        names = json.loads(text).get("include", [])
        for name in [names] if isinstance(names, str) else names:
            inner = os.path.join(os.path.dirname(path), name)
            if inner not in chain and len(chain) < 32:
                digest.update(config_digest(inner, (*chain, inner)).encode())
    except OSError as error:
        if not chain:
            raise Failure(CONFIG, f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        pass
    return digest.hexdigest()


class Sweep:
    def __init__(self, options, program):
        self.options, self.program = options, program
        self.points = points_of(options)
        self.folder = os.path.abspath(options.sweep_dir or f"sweep_{os.path.splitext(os.path.basename(options.config))[0]}")
        self.finished = {}  # name -> row
        self.interrupted = self.waiting = False
        self.schema = {}
        if marks_in(program)[0]:
            try:
                self.schema = json.loads(output_of([program, "--schema"], CHECK_LIMIT))
            except ValueError:
                pass
        of_output = [key["name"] for key in self.schema.get("keys", []) if key.get("type") == "folder_out"]
        self.output_key = of_output[0] if of_output else "output"
        if any(self.output_key in point for point in self.points) or any(
                text.partition("=")[0] == self.output_key for text in options.set):
            raise Failure(USAGE, f"sweep: the key {self.output_key}: each point has an output folder of its own")
        self.refuse_unknown_keys()

    def refuse_unknown_keys(self):
        """A key that is misspelt would fail every point."""
        names = [key["name"] for key in self.schema.get("keys", [])]
        for key in self.points[0] if names else ():
            if key not in names:
                import difflib
                near = difflib.get_close_matches(key, names, 1)
                raise Failure(CONFIG, f"sweep: the program has no key {key}" + (f": did you mean {near[0]}?" if near else
                                                                               f"; it has {', '.join(names)}"))

    # -- the folder

    def open(self):
        """Takes the folder, and reads what has finished. Raises Failure."""
        o = self.options
        about = {"program": os.path.abspath(self.program), "config": config_digest(o.config), "set": sorted(o.set),
                 "workers": o.wnum, "servers": o.snum}
        try:
            os.makedirs(os.path.join(self.folder, "points"), exist_ok=True)
            self.lock = open(os.path.join(self.folder, LOCK), "a", encoding="ascii")
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path = os.path.join(self.folder, STATE)
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    before = json.load(file)
                differs = [key for key in about if before.get(key) != about[key]] if isinstance(before, dict) else ["form"]
                if differs:
                    raise Failure(USAGE, f"sweep: {self.folder} has a sweep with another {' and '.join(differs)}: name another "
                                         "folder with --sweep-dir, or remove it")
            else:
                write_file(path, [json.dumps(about)])
            self.read_finished()
        except BlockingIOError:
            raise Failure(USAGE, f"sweep: {self.folder} belongs to a sweep that is running: name another one with "
                                 "--sweep-dir") from None
        except (OSError, ValueError) as error:
            raise Failure(USAGE, f"sweep: {self.folder} cannot be used: {words_of(error)}") from None

    def read_finished(self):
        path = os.path.join(self.folder, FINISHED)
        torn = False
        try:
            with open(path, "rb") as file:
                for line in file:
                    try:
                        row = json.loads(line)
                        self.finished[name_of(row["settings"])] = row
                    except (ValueError, KeyError, TypeError):
                        torn = True  # the sweep was killed while it wrote the line: that point runs again
                    torn = torn or not line.endswith(b"\n")
        except FileNotFoundError:
            pass
        if self.options.retry:
            self.finished = {name: row for name, row in self.finished.items() if row.get("objective") is not None}
        if torn or self.options.retry:
            write_file(path, (json.dumps(row) + "\n" for row in self.finished.values()))

    def note(self, row):
        self.finished[name_of(row["settings"])] = row
        with open(os.path.join(self.folder, FINISHED), "a", encoding="utf-8") as file:
            is_new = file.tell() == 0
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self.folder)

    # -- running

    def command(self, point, folder):
        o = self.options
        settings = {**point, self.output_key: os.path.join(folder, "output")}
        config = overriding(o.set + [f"{key}={text_of(value)}" for key, value in settings.items()])
        if o.wnum is None and o.snum is None:
            return command_of(self.program) + ["--cfg_file", o.config, *config] + o.arguments
        launcher = [sys.executable, "-S", os.path.realpath(sys.argv[0])]
        return launcher + ["-w", str(o.wnum or 1), "-p", str(o.snum or 1), "--run-dir", os.path.join(folder, "run"),
                           "-c", o.config, *config, self.program, *o.arguments]

    def on_interrupt(self, *_):
        """Ctrl-C is an exception only while this waits: between the start of a point and its entry in `running` the point would
        be forgotten."""
        self.interrupted = True
        if self.waiting:
            raise KeyboardInterrupt

    def wait(self, poll, end):
        """The descriptors that are ready, at most until `end`. Raises KeyboardInterrupt."""
        self.waiting = True
        try:
            if self.interrupted:
                raise KeyboardInterrupt
            return poll.poll(None if end is None else max(0, end - time.monotonic()) * 1000)
        finally:
            self.waiting = False

    def run(self):
        """Runs what has not finished."""
        signal.signal(signal.SIGINT, self.on_interrupt)
        waiting = [p for p in self.points if name_of(p) not in self.finished]
        done, total = len(self.points) - len(waiting), len(self.points)
        if done:
            self.say(f"{done} of {total} points have finished before")
        running, poll = {}, select.poll()
        try:
            while waiting or running:
                while waiting and len(running) < self.options.jobs:
                    started = Running(self, waiting.pop(0))
                    running[started.fd] = started
                    poll.register(started.fd, select.POLLIN)
                ready = self.wait(poll, min((r.end for r in running.values() if r.end is not None), default=None))
                for r in [r for r in running.values() if r.end is not None and r.end <= time.monotonic()]:
                    r.expire()
                for fd, _ in ready:
                    poll.unregister(fd)
                    row = running.pop(fd).row()
                    self.note(row)
                    done += 1
                    self.say(f"{done} of {total}: {in_words(row['settings'])}: "
                             + (f"{row['name']} {row['objective']:.6g}" if row["objective"] is not None else row["cause"]))
        finally:
            for r in running.values():
                r.kill()

    @staticmethod
    def say(text):
        sys.stderr.write(f"prun: {printable(text)}\n")
        sys.stderr.flush()


class Running:
    """The run of a point."""

    def __init__(self, sweep, point):
        self.sweep, self.point = sweep, point
        self.folder = os.path.join(sweep.folder, "points", name_of(point))
        shutil.rmtree(self.folder, ignore_errors=True)  # of a run that was killed
        os.makedirs(self.folder)
        self.begin = time.monotonic()
        limit = sweep.options.timeout
        self.end = None if limit is None else self.begin + limit
        self.late = False
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
        with open(os.path.join(self.folder, "out"), "wb") as out, open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(dies_with_us(sweep.command(point, self.folder), "TERM"), stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=log, env=environment, start_new_session=True)
        self.fd = os.pidfd_open(self.process.pid)

    def expire(self):
        self.late, self.end = True, None
        self.process.terminate()

    def kill(self):
        """With all that it has started."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        os.close(self.fd)

    def row(self):
        status = self.process.wait()
        os.close(self.fd)
        row = {"settings": self.point, "status": status, "seconds": round(time.monotonic() - self.begin, 3), "objective": None,
               "name": "", "cause": "", "folder": os.path.relpath(self.folder, self.sweep.folder)}
        if self.late:
            row["cause"] = f"not done after {self.sweep.options.timeout:g} s"
        elif status != 0:
            row["cause"] = self.cause(status)
        else:
            row["name"], row["objective"] = objective_of(self.folder, self.sweep.options.objective)
            if row["objective"] is None:
                wanted = self.sweep.options.objective or " or ".join(USUAL_OBJECTIVES)
                row["cause"] = f"{row['name']} is not finite" if row["name"] else f"no {wanted} in what it has printed"
        return row

    def cause(self, status):
        with open(os.path.join(self.folder, "log"), "rb") as file:
            lines = file.read()[-(1 << 16):].decode("utf-8", "replace").splitlines()
        said = [line.partition("error: ")[2] for line in lines if "error: " in line]
        if said:
            return said[0]
        if status < 0:
            from ..engines.mpirun import signal_name
            return f"killed by {signal_name(-status)}"
        return f"status {status}" + (f" ({MEANING[status]})" if status in MEANING else "") + (f": {lines[-1]}" if lines else "")


def objective_of(folder, wanted):
    """(name, value) of what the point has printed last as `NAME VALUE`, or has in its model.json; (name, None) if it is not
    finite, ("", None) without any."""
    with open(os.path.join(folder, "out"), "rb") as file:
        said = file.read()[-(1 << 20):].decode("utf-8", "replace")
    try:
        with open(os.path.join(folder, "output", "model.json"), encoding="utf-8") as file:
            model = json.load(file)
    except (OSError, ValueError):
        model = {}
    for name in (wanted,) if wanted else USUAL_OBJECTIVES:
        found = re.findall(rf"(?:^|[\s,;(]){re.escape(name)}\s*[ :=]\s*({NUMBER})", said, re.MULTILINE)
        value = float(found[-1]) if found else model.get(name) if isinstance(model, dict) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return name, float(value) if math.isfinite(value) else None
    return "", None


def in_words(settings):
    return " ".join(f"{key}={text_of(value)}" for key, value in settings.items())


def csv_text(keys, rows):
    def cell(value):
        text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
        return '"' + text.replace('"', '""') + '"' if re.search(r'[",\r\n]', text) else text
    lines = [[*keys, "objective", "status", "seconds", "cause", "folder"]]
    lines += [[*(row["settings"].get(key) for key in keys), *(row[name] for name in lines[0][len(keys):])] for row in rows]
    return "".join(",".join(map(cell, line)) + "\n" for line in lines)


def report(sweep):
    """Writes CSV and plot, prints the table. Returns the exit status."""
    o = sweep.options
    keys = list(sweep.points[0])
    rows = [sweep.finished[name_of(point)] for point in sweep.points]
    sign = -1 if o.maximize else 1
    rows.sort(key=lambda row: (row["objective"] is None, sign * (row["objective"] or 0)))
    title = next((row["name"] for row in rows if row["name"]), o.objective or "objective")
    logarithmic = {key for key, _, _, log in o.random if log}
    for name, text in (("table.csv", csv_text(keys, rows)), ("plot.svg", plot(keys, rows, title, o.maximize, logarithmic))):
        write_file(os.path.join(sweep.folder, name), [text])
    cells = [["-" if row["objective"] is None else f"{row['objective']:.6g}",
              *(text_of(row["settings"].get(key)) for key in keys), f"{row['seconds']:.2f}", in_a_line(row["cause"])]
             for row in rows]
    write_out("\n".join(table([title, *keys, "seconds", "cause"], cells)) + "\n")
    where = os.path.relpath(sweep.folder)
    sweep.say(f"table in {where}/table.csv, plot in {where}/plot.svg")
    if rows[0]["objective"] is None:
        return FAILURE
    best = [*command_of(sweep.program), "--cfg_file", o.config, *overriding(o.set + [
        f"{key}={text_of(value)}" for key, value in rows[0]["settings"].items()])]
    import shlex
    sweep.say("the best: " + " ".join(map(shlex.quote, best)))
    return OK


def parse_command(arguments):
    import argparse
    parser = new_parser(
        prog="prun.py sweep", usage="prun.py sweep CONFIG --grid KEY=A,B,C ... [options] program [arguments of the program]",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=118, max_help_position=30),
        description="Runs a program at the points of a grid or at random ones, and prints them sorted by their objective.")
    add = parser.add_argument
    add("config", metavar="CONFIG", help="the program's config, JSON")
    add("--grid", action="append", default=[], type=grid_of, metavar="KEY=A,B,C", help="values of a key; with others, all pairs")
    add("--random", action="append", default=[], type=range_of, metavar="KEY=LOW:HIGH[:log]",
        help="values drawn from a range, evenly or on a logarithmic scale; whole numbers from whole ones")
    add("-n", type=positive(MOST_POINTS), default=10, metavar="N", help="number of random draws (default 10)")
    add("--seed", type=whole_number, default=1, metavar="S", help="which are drawn (default 1)")
    add("--set", action="append", default=[], type=override, metavar="KEY=VALUE", help="replaces a key of the config for all")
    add("--jobs", type=positive(1024), default=max(1, usable_cores() // 2), metavar="N",
        help="points that run at the same time (default: half as many as there are cores)")
    add("-w", "--wnum", type=positive(1 << 16), default=None, metavar="N",
        help="workers of each point; without -w and -p each point is one process with the server inside")
    add("-p", "--snum", type=positive(4096), default=None, metavar="N", help="servers of each point")
    add("--objective", default="", metavar="NAME",
        help="what the program prints as `NAME VALUE`, or has in its model.json (default: objective, loss or rmse)")
    add("--maximize", action="store_true", help="the best objective is the largest one")
    add("--timeout", type=seconds, default=None, metavar="SECONDS", help="limit of each point")
    add("--retry", action="store_true", help="run points again that have failed")
    add("--sweep-dir", type=name_given, default=None, metavar="DIR",
        help="the folder of the sweep (default: sweep_ and the name of the config); one that was ended continues there")
    add("program", help=argparse.SUPPRESS)
    add("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def sweep_command(arguments):
    """`prun.py sweep ...`. Returns the exit status: 0 if a point has an objective."""
    options = parse_command(arguments)
    sweep = Sweep(options, find_program(options.program))
    sweep.open()
    sweep.run()
    return report(sweep)

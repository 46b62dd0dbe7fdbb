# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py top`: a running job on a terminal, by the package rich; without a terminal, or without rich, a line now and then."""
import os
import sys
import time

from ..common.command_line import name_given, new_parser
from ..common.exit_status import MEANING, OK
from ..common.figures import byte_text, percent, seconds_text, short
from ..common.numbers import seconds_between
from ..common.optional import add_site_packages
from ..common.output import write_all, write_out, write_quietly
from ..common.printable import in_a_line
from ..folders.run_directory import load_cells
from .watch import Watch

BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
SHARE = 8            # characters of a bar


def parse_command(arguments):
    parser = new_parser(
        prog="prun.py top", description="Shows a running job: the rounds and the objective, what each worker and server "
        "does, the hottest keys, and losses. Ctrl-C ends it; the job goes on.")
    parser.add_argument("--run", required=True, type=name_given, metavar="RUN",
                        help="the folder of its logs, or that folder's name below paracel_runs/")
    parser.add_argument("--interval", type=seconds_between(0.1, 3600), default=None, metavar="SECONDS",
                        help="time between two looks (default 1; without a terminal 5)")
    parser.add_argument("--plain", action="store_true", help="print lines even on a terminal")
    return parser.parse_args(arguments)


def sparkline(values, width, blocks=BLOCKS):
    """The last values as a row of blocks; each is the mean of as many values as are needed for the row to show all."""
    if not values or width < 1:
        return ""
    per = -(-len(values) // width)
    means = [sum(values[i:i + per]) / len(values[i:i + per]) for i in range(0, len(values), per)]
    low, high = min(means), max(means)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((v - low) * scale)] for v in means)


def share_bar(shares, blocks):
    """computing, without a processor, waiting"""
    if shares is None:
        return "–"
    busy = shares["computing"] + shares["system"]
    full = round(busy * SHARE)
    return blocks[-1] * full + blocks[0] * (SHARE - full) + f" {percent(busy, 1.0)}"


class Screen:
    """The display by rich."""

    def __init__(self, watch, rich):
        self.watch, self.rich = watch, rich

    def text(self, words, style=""):
        """No markup: names of keys and hosts may contain anything."""
        return self.rich.text.Text(in_a_line(words), style=style, no_wrap=True, overflow="ellipsis")

    def table(self, columns, rows):
        table = self.rich.table.Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for name in columns:
            table.add_column(name, justify="left" if name in ("worker", "server", "state", "key", "at") else "right",
                             no_wrap=True)
        for row in rows:
            table.add_row(*[self.text(cell) for cell in row])
        return table

    def render(self, console):
        watch, blocks = self.watch, BLOCKS if (console.encoding or "").lower().startswith("utf") else PLAIN_BLOCKS
        report = watch.report or {}
        parts = [self.text(", ".join(watch.headline()), "bold")]
        if "cause" in report:
            parts.append(self.text(f"ends with status {report.get('status')}: {report['cause']}", "bold red"))
        name, values = watch.objective()
        if len(values) > 1:
            line = sparkline(values, max(8, console.width - 40), blocks)
            parts.append(self.text(f"{name} {short(values[0])} {line} {short(values[-1])}"))
        servers, workers = report.get("servers", []), report.get("workers", [])
        room = max(6, console.height - len(parts) - 4 - min(len(watch.hot), 4) - min(3, len(report.get("losses", []))))
        room_servers = min(len(servers), max(2, room // 3))
        room_workers = max(2, room - room_servers - 3)
        parts += self.workers(workers, room_workers, blocks)
        parts += self.servers(servers, room_servers)
        if watch.hot:
            parts += [self.table(["key", "at", "requests"], [[key, at, "about " + short(n)] for n, key, at in watch.hot[:4]])]
        for loss in report.get("losses", [])[-3:]:
            parts.append(self.text(f"{seconds_text(loss['seconds'])} ago: {loss['cause']}", "red"))
        return self.rich.console.Group(*parts)

    def workers(self, workers, room, blocks):
        slowest = min((w["clock"] for w in workers), default=0)
        shown = sorted(workers, key=lambda w: (w["clock"], w["rank"]))[:room] if len(workers) > room else workers
        rows = []
        for w in shown:
            key = ("worker", w["rank"])
            sent, received = self.watch.rates.of(key, "sent_bytes"), self.watch.rates.of(key, "received_bytes")
            rows.append([
                str(w["rank"]), w["state"],
                short(w["clock"]),
                short(w["clock"] - slowest),
                share_bar(self.watch.rates.shares(key), blocks),
                byte_text(sent) + "/s" if sent is not None else "–",
                byte_text(received) + "/s" if received is not None else "–"
            ])
        parts = [self.table(["worker", "state", "clock", "ahead", "computing", "sends", "receives"], rows)] if rows else []
        if len(shown) < len(workers):
            parts.append(self.text(f"and {len(workers) - len(shown):,} that are not slower", "dim"))
        return parts

    def servers(self, servers, room):
        rows = []
        for s in servers[:room]:
            key = ("server", s["slot"])
            rate, load = self.watch.rates.of(key, "requests"), self.watch.rates.of(key, "cpu")
            moved = [self.watch.rates.of(key, k) for k in ("bytes_in", "bytes_out")]
            rows.append([
                f"s{s['slot']}", s["state"],
                short(rate, 3) if rate is not None else "–",
                byte_text(sum(moved)) + "/s" if None not in moved else "–",
                short(load, 2) if load is not None else "–",
                byte_text(s.get("memory_bytes")),
                byte_text(s.get("resident_bytes")),
                *load_cells(s, "–")
            ])
        columns = ["server", "state", "requests/s", "bytes", "processors", "live", "resident", "keys/s", "hot partition"]
        parts = [self.table(columns, rows)] if rows else []
        if len(servers) > room:
            parts.append(self.text(f"and {len(servers) - room:,} more servers", "dim"))
        return parts


def load_rich():
    """The package with the parts that are used; None if it is not installed."""
    add_site_packages()
    try:
        import rich
        import rich.console
        import rich.live
        import rich.table
        import rich.text
        return rich
    except ImportError:
        return None


def show_live(watch, rich, interval):
    console = rich.console.Console()
    screen = Screen(watch, rich)
    with rich.live.Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        size = None
        while not watch.is_over():
            live.update(screen.render(console), refresh=True)
            begin = time.monotonic()
            # A terminal that changes its size is drawn again at once.
            while time.monotonic() - begin < interval:
                time.sleep(min(0.1, interval))
                if size is not None and console.size != size:
                    live.update(screen.render(console), refresh=True)
                size = console.size
            watch.look()


def show_lines(watch, interval):
    """Until the run ends, or nobody reads the lines any more."""
    while not watch.is_over():
        write_all(1, (in_a_line(watch.plain_line()) + "\n").encode("utf-8", "replace"))
        time.sleep(interval)
        watch.look()


def top_command(arguments):
    """Returns the exit status."""
    options = parse_command(arguments)
    watch = Watch(options.run)
    watch.look()
    terminal = sys.stdout.isatty() and not options.plain and os.environ.get("TERM", "dumb") != "dumb"
    rich = load_rich() if terminal and not watch.is_over() else None
    if terminal and rich is None and not watch.is_over():
        write_quietly(2, b"prun.py: lines instead of a live view: pip install rich, or apt-get install python3-rich\n")
    try:
        if rich is not None:
            show_live(watch, rich, options.interval or 1.0)
        else:
            show_lines(watch, options.interval or 5.0)
    except (KeyboardInterrupt, BrokenPipeError):
        return OK
    write_out(last_words(watch))
    return OK


def last_words(watch):
    """How the run has ended."""
    from .run_record import RunRecord
    from .summary import summary_lines
    status = watch.note["status"]
    lines = summary_lines(RunRecord(watch.folder))
    words = f"the job {watch.note.get('job')} is over: exit status {status} ({MEANING.get(status, 'failure')})"
    if watch.note.get("cause"):
        words += f": {watch.note['cause']}"
    return "".join(in_a_line(line) + "\n" for line in lines + [words])

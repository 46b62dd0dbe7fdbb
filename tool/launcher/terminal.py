# SPDX-License-Identifier: BSD-3-Clause
"""What the launcher prints: worker 0's output on standard output, its own words and the progress on standard error."""
import os
import select
import time

QUIET_PROGRESS = 2.0  # seconds between progress lines where they cannot be rewritten in place
TTY_PROGRESS = 0.1


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def write_quietly(fd, data):
    try:
        write_all(fd, data)
    except OSError:  # nobody is there to read it
        pass


def duration(seconds):
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def number_of(count, what):
    return f"{count} {what}{'s' * (count != 1)}"


def size_pair(done, total):
    """Two numbers of bytes in the unit of the greater one."""
    unit, power = next((u for u in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if total >= u[1]), ("bytes", 1))
    digits = 1 if power > 1 else 0
    return f"{done / power:.{digits}f}", f"{total / power:.{digits}f} {unit}"


def loading_text(done, total):
    """Of standard input nobody knows the whole."""
    if not isinstance(done, (int, float)):
        return "loading"
    if not isinstance(total, (int, float)) or total <= 0:
        return "loading " + size_pair(done, done)[1]
    some, whole = size_pair(done, total)
    return f"loading {100 * done / total:.0f} % ({some} of {whole})"


class Terminal:
    """Never blocks: a reader that does not read must not keep the launcher from the job."""

    def __init__(self):
        self.tty = os.isatty(2)
        self.out = bytearray()     # of worker 0, not yet taken by standard output
        self.out_closed = False
        self.progress = None       # the last event of that kind
        self.first = None          # (round, time) of the first one
        self.shown = 0.0
        self.pending = False
        self.on_screen = False
        self.ending = False        # the job will not get to its last round

    def say(self, text):
        self.wipe_progress()
        write_quietly(2, f"prun: {text}\n".encode("utf-8", "replace"))

    def pass_through(self, data):
        if not self.out_closed:
            self.out += data
            self.flush_out()

    def flush_out(self, wait=0.0):
        """Writes what standard output takes without blocking."""
        end = time.monotonic() + wait
        while self.out and not self.out_closed:
            poll = select.poll()
            poll.register(1, select.POLLOUT)
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return
            self.wipe_progress()
            try:
                written = os.write(1, self.out[:select.PIPE_BUF])
            except OSError:
                self.out_closed = True
                self.out.clear()
                return
            del self.out[:written]

    def note_progress(self, event, now):
        if self.first is None and isinstance(event.get("round"), (int, float)):
            self.first = (event["round"], now)
        self.progress = event
        self.pending = True
        self.show_progress(now)

    def show_progress(self, now, last=False):
        if not self.pending:
            return
        if not last and now < self.due():
            return
        if self.out and self.tty:
            return
        self.pending = False
        text = self.progress_text(now)
        if self.tty:
            write_quietly(2, f"\r{text}\x1b[K".encode())
            self.on_screen = True
        else:
            write_quietly(2, f"prun: {text}\n".encode())
        self.shown = now

    def progress_text(self, now):
        event = self.progress
        if "loading" in event:
            return loading_text(event["loading"], event.get("of"))
        number, total = event.get("round"), event.get("rounds")
        parts = []
        if number is not None:
            parts.append(f"round {number}/{total}" if total is not None else f"round {number}")
        for key in ("objective", "loss"):
            if isinstance(event.get(key), (int, float)):
                parts.append(f"{key} {event[key]:.6g}")
        if self.first is not None and isinstance(number, (int, float)):
            first, since = self.first
            if now > since and number > first:
                rate = (number - first) / (now - since)
                parts.append(f"{rate:.3g} rounds/s" if rate < 1000 else f"{rate:.0f} rounds/s")
                if isinstance(total, (int, float)) and total > number and not self.ending:
                    parts.append(duration((total - number) / rate) + " left")
        return "  ".join(parts)

    def wipe_progress(self):
        if self.on_screen:
            write_quietly(2, b"\r\x1b[K")
            self.on_screen = False
            self.pending = True

    def due(self):
        """When the next progress line may be shown; None: there is none."""
        return self.shown + (TTY_PROGRESS if self.tty else QUIET_PROGRESS) if self.pending else None

    def finish_progress(self):
        """The last progress line, and the end of it."""
        if self.tty and self.progress is not None and self.on_screen and not self.pending:
            write_quietly(2, b"\n")
            self.on_screen = False
        else:
            self.show_progress(time.monotonic(), last=True)
            if self.on_screen:
                write_quietly(2, b"\n")
                self.on_screen = False

# SPDX-License-Identifier: BSD-3-Clause
"""What the launcher prints: worker 0's output on standard output, its own messages and the progress on standard error."""
import os
import time

from .output import Stream
from .printable import in_a_line, printable

QUIET_PROGRESS = 2.0  # seconds between progress lines that cannot be rewritten in place
TTY_PROGRESS = 0.1
LONGEST_WORD = 60     # characters of a text in a progress line
LONGEST_LEFT = 1e8    # seconds; nobody waits for longer
MOST_WORDS = 1 << 18  # bytes that may wait for the reader of standard error; messages about the end of the job are exempt


def short(value):
    """A number or a text of the program, which may have any value and any length."""
    if isinstance(value, (int, float)) and abs(value) > 1e15:
        return f"{value:.6g}"
    text = in_a_line(value)
    return text if len(text) <= LONGEST_WORD else text[:LONGEST_WORD] + "..."


def duration(seconds):
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def number_of(count, what):
    return f"{count} {what}{'s' * (count != 1)}"


def size_pair(done, total):
    """Two byte counts in the unit of the larger one."""
    unit, power = next((u for u in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if total >= u[1]), ("bytes", 1))
    digits = 1 if power > 1 else 0
    return f"{done / power:.{digits}f}", f"{total / power:.{digits}f} {unit}"


def loading_text(done, total):
    """The total is unknown for standard input."""
    if not isinstance(done, (int, float)):
        return "loading"
    if not isinstance(total, (int, float)) or total <= 0:
        return "loading " + size_pair(done, done)[1]
    some, whole = size_pair(done, total)
    return f"loading {100 * done / total:.0f} % ({some} of {whole})"


class Terminal:
    """Never blocks: a reader that stops reading must not keep the launcher from managing the job."""

    def __init__(self, quiet_progress=QUIET_PROGRESS, json_of=None):
        """`json_of`: the id of a job with --log-format json."""
        self.quiet_progress, self.json_of = quiet_progress, json_of
        self.tty = os.isatty(2) and json_of is None
        self.err = Stream(2)
        self.out = Stream(1, self.err)  # of worker 0
        self.out_failed = False
        self.left_out = 0          # dropped lines, because the reader is slow
        self.progress = None       # the last progress event
        self.first = None          # (round, time) of the first one
        self.shown = 0.0
        self.pending = False
        self.on_screen = False
        self.ending = False        # the job has failed, so no more progress is shown

    def wake_with(self, fd):
        """Writes a zero byte to `fd` when there is space again for waiting output, or when progress can be shown."""
        def wake():
            try:
                os.write(fd, b"\0")
            except OSError:  # the pipe is full, so the loop wakes up anyway
                pass
        self.err.on_room = self.out.on_room = wake

    def line(self, text, name="prun", level=None):
        """As it is written."""
        if self.json_of is not None:
            from ..job.json_log import record
            return record(self.json_of, "launcher", None, text, level)
        return f"{name}: {printable(text)}\n".encode("utf-8", "replace")

    def say(self, text, matters=False, **more):
        """`matters`: never dropped, however much is waiting. The others are those of `line`."""
        self.wipe_progress()
        if self.left_out and self.err.waiting <= MOST_WORDS:
            self.err.put(self.line(f"{number_of(self.left_out, 'line')} left out here, because stderr was not read"))
            self.left_out = 0
        if matters or self.err.waiting <= MOST_WORDS:
            self.err.put(self.line(text, **more))
        else:
            self.left_out += 1

    def say_lines(self, lines):
        """Of the log that was named before."""
        if self.json_of is not None:
            self.err.put(b"".join(self.line(text) for text in lines))
        else:
            self.err.put("".join(f"    {printable(line)}\n" for line in lines).encode("utf-8", "replace"))

    def pass_through(self, data):
        error = self.out_error()
        if error is not None and not self.out_failed:
            self.out_failed = True
            self.say(f"standard output cannot be written: {error.strerror}; the job continues, but will fail", matters=True)
        self.wipe_progress()
        self.out.put(data)

    def out_error(self):
        """None also if the reader of standard output has closed it."""
        return None if isinstance(self.out.error, BrokenPipeError) else self.out.error

    def note_progress(self, event, now):
        if self.ending:
            return
        if self.first is None and isinstance(event.get("round"), (int, float)):
            self.first = (event["round"], now)
        self.progress = event
        self.pending = True
        self.show_progress(now)

    def show_progress(self, now, last=False):
        if not self.pending:
            return
        due = self.due()
        if not last and (due is None or now < due):
            return
        self.pending = False
        text = self.progress_text(now, last)
        if self.tty:
            self.err.put(f"\r{text}\x1b[K".encode("utf-8", "replace"))
            self.on_screen = True
        else:
            self.err.put(self.line(text))
        self.shown = now

    def progress_text(self, now, last=False):
        event = self.progress
        if "loading" in event:
            return loading_text(event["loading"], event.get("of"))
        number, total = event.get("round"), event.get("rounds")
        parts = []
        if number is not None:
            parts.append(f"round {short(number)}" + (f"/{short(total)}" if total is not None else ""))
        for key in (event["metric"],) if isinstance(event.get("metric"), str) else ("objective", "loss"):
            if isinstance(event.get(key), (int, float)):
                parts.append(f"{short(key)} {event[key]:.6g}")
        if self.first is not None and isinstance(number, (int, float)):
            first, since = self.first
            if now > since and number > first:
                rate = (number - first) / (now - since)
                parts.append(f"{rate:.3g} rounds/s" if rate < 1000 or rate > 1e9 else f"{rate:.0f} rounds/s")
                if isinstance(total, (int, float)) and total > number and not last and (total - number) / rate < LONGEST_LEFT:
                    parts.append(duration((total - number) / rate) + " left")
        return "  ".join(parts)

    def wipe_progress(self):
        if self.on_screen:
            self.err.put(b"\r\x1b[K")
            self.on_screen = False
            self.pending = True

    def due(self):
        """When the next progress line may be shown; None if there is none, or previous output has not been read yet."""
        if not self.pending or self.err.waiting or self.out.waiting and self.tty:
            return None
        return self.shown + (TTY_PROGRESS if self.tty else self.quiet_progress)

    def end_progress(self):
        """The job has failed: shows the last progress before the cause, and none afterwards."""
        self.finish_progress()
        self.ending = True
        self.pending = False
        self.progress = None

    def finish_progress(self):
        """Shows the last progress line and ends it."""
        if self.tty and self.progress is not None and self.on_screen and not self.pending:
            self.err.put(b"\n")
            self.on_screen = False
        else:
            self.show_progress(time.monotonic(), last=True)
            if self.on_screen:
                self.err.put(b"\n")
                self.on_screen = False

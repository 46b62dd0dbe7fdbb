# SPDX-License-Identifier: BSD-3-Clause
"""The progress of a run, shown with tqdm where it is installed, otherwise as lines on stderr."""
import sys
import time

_BETWEEN_LINES = 1.0  # seconds


def progress_of(title):
    """What shows the progress of one run: `report(round, rounds, value, metric)` after each round, or some of them; `rounds`: 0
    if their number is unknown. Then `close()`."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Lines(title)
    return _Bar(title, tqdm)


class _Bar:
    def __init__(self, title, tqdm):
        self.title, self.tqdm, self.bar = title, tqdm, None

    def report(self, number, rounds, value, metric):
        if self.bar is not None and number < self.bar.n:  # the next run of several, or the next stage
            self.bar.close()
            self.bar = None
        if self.bar is None:
            self.bar = self.tqdm(total=rounds or None, desc=self.title, unit="round")
        self.bar.set_postfix({metric: f"{value:.6g}"}, refresh=False)
        self.bar.update(number - self.bar.n)

    def close(self):
        if self.bar is not None:
            self.bar.close()


class _Lines:
    """At most one each second, and the last one."""

    def __init__(self, title):
        self.title, self.shown, self.waiting = title, -_BETWEEN_LINES, None

    def report(self, number, rounds, value, metric):
        self.waiting = f"{self.title}: round {number}{f'/{rounds}' if rounds else ''}  {metric} {value:.6g}"
        if time.monotonic() - self.shown >= _BETWEEN_LINES:
            self.close()

    def close(self):
        if self.waiting is not None:
            print(self.waiting, file=sys.stderr, flush=True)
            self.shown, self.waiting = time.monotonic(), None

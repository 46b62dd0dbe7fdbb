# SPDX-License-Identifier: BSD-3-Clause
"""A worker without whom the others go on is taken out of the clock; a tick without a clock says that.

The scheduler's event says who keeps the clock, and in which epoch. When the servers change meanwhile, that server
refuses or is gone. Then the scheduler is asked for the membership, and after it each server that serves: the one that
keeps the clock takes the tick, the others refuse it. A tick that comes twice does no harm, so that one without an
answer is sent again."""
import json
import os
import time

from .plan import Child
from .run_directory import question
from .exit_status import WORKER_LOST

LIMIT = 20.0  # seconds; a server that is lost is replaced in three
PAUSE = 0.2   # seconds


class Ejection:
    def __init__(self, job, rank, event):
        self.job, self.rank, self.event = job, rank, event
        self.until = time.monotonic() + LIMIT
        self.epoch, self.places = event["epoch"], [event["clock_thread"]]
        self.again_at = None  # when the scheduler is asked
        self.asked = None     # the process that asks
        self.ask(self.places.pop(), "clock_tick", epoch=self.epoch)

    def ask(self, address, verb, body=None, **header):
        plan = self.job.plan
        command = question(plan.asker, address, plan.id, verb, body, rank=self.rank, **header)
        self.asked = Child("question", 0, command, plan.log_of("scheduler", 0))
        self.job.spawn(self.asked)

    def answered(self):
        """The process that asked has ended. Returns whether the worker is out of the clock."""
        asked = self.asked
        good = asked.ended.si_code == os.CLD_EXITED and asked.ended.si_status == 0
        if "watch" in asked.command:
            if good:
                self.read_membership(asked.answer)
        elif good:
            return True
        if time.monotonic() > self.until:
            self.job.fail(WORKER_LOST, self.event["cause"] + ", and the others could not be told",
                          ("worker", self.rank), 1.0)
        elif self.places:
            self.ask(self.places.pop(0), "clock_tick", epoch=self.epoch)
        else:
            self.again_at = time.monotonic() + PAUSE
        return False

    def read_membership(self, answer):
        try:
            members = json.loads(answer)
            serving = [s for s in members["servers"] if s.get("state", "up") in ("up", "leaving")]
            self.epoch, self.places = members["epoch"], [s["clock"] for s in serving]
        except (ValueError, KeyError, TypeError):
            self.places = []

    def go_on(self, now):
        if self.again_at is not None and self.again_at <= now:
            self.again_at = None
            # No membership has the epoch 0, so that the answer comes at once.
            self.ask(self.job.address, "watch", {"role": "worker", "rank": self.rank}, epoch=0)

# SPDX-License-Identifier: BSD-3-Clause
"""Exit statuses of a job, and the error that carries one."""
import os

OK, FAILURE, USAGE, CONFIG, DATA, PLUGIN = 0, 1, 2, 3, 4, 5
WORKER_LOST, SERVER_LOST, TIMEOUT, SCHEDULER_LOST = 10, 11, 12, 13
MEANING = {OK: "ok", FAILURE: "failure", USAGE: "usage", CONFIG: "config", DATA: "data", PLUGIN: "plug-in",
           WORKER_LOST: "worker lost", SERVER_LOST: "server lost", TIMEOUT: "timeout", SCHEDULER_LOST: "scheduler lost",
           129: "hung up", 130: "interrupted", 143: "terminated"}


class Failure(Exception):
    """Ends the launcher before or while it starts the job: one line and an exit status."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def words_of(error):
    """An exception for a person: an OSError without its number, and with the file that it is about."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"

# SPDX-License-Identifier: BSD-3-Clause
"""The logs of a job's processes. A full disk or a deleted folder does not end the job; it is reported once."""
import os


class Logs:
    def __init__(self, say, open_log):
        """`open_log(path)` returns a descriptor to append to."""
        self.say, self.open_log = say, open_log
        self.told = set()  # errno values already reported

    def open(self, path):
        """A descriptor to append to; /dev/null if the log cannot be opened."""
        try:
            return self.open_log(path)
        except OSError as error:
            self.tell(path, error)
            return os.open(os.devnull, os.O_WRONLY)

    def write(self, path, fd, data):
        """Data that does not fit is dropped; later data is written when there is space again."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view):]
        except OSError as error:
            self.tell(path, error)

    def tell(self, path, error):
        if error.errno not in self.told:
            self.told.add(error.errno)
            self.say(f"warning: {path} cannot be written: {error.strerror}; the job continues, and logs may have gaps")

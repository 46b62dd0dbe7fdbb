# SPDX-License-Identifier: BSD-3-Clause
"""The logs of a job's processes. A full disk or a deleted folder does not end the job; it is reported once."""
import os

MOST_FILES = 1 << 17  # that a launcher opens: for 65,536 workers


class TextLog:
    """A log that gets what it is given."""

    def __init__(self, files, path):
        self.files, self.path = files, path
        self.fd = files.open(path)

    def write(self, data):
        self.files.write(self.path, self.fd, data)

    def close(self):
        os.close(self.fd)


class Logs:
    def __init__(self, say, open_log, json_of=None):
        """`open_log(path)` returns a descriptor to append to. `json_of`: the id of a job with --log-format json."""
        self.say, self.open_log, self.json_of = say, open_log, json_of
        self.told = set()  # errno values already reported
        if json_of is not None:  # a pipe and a log for each process
            import resource
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, MOST_FILES)), hard))

    def log(self, path, role, index):
        """What this process prints is to be written there: a TextLog or JsonLog."""
        log = TextLog(self, path)
        if self.json_of is None:
            return log
        from .json_log import JsonLog
        return JsonLog(log, self.json_of, role, index)

    def reader(self, path, role, index, also=lambda _: None):
        """The same for Pipes, as a function of bytes. `also` gets them, too."""
        log = self.log(path, role, index)

        def take(data):
            if data:
                log.write(data)
                also(data)
            else:
                log.close()
        return take

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

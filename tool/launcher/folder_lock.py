# SPDX-License-Identifier: BSD-3-Clause
"""Folders that belong to one running job: a locked file in them. The kernel unlocks it however the launcher ends."""
import os

from .own_folder import NotOwn
from .exit_status import USAGE, Failure

# Two names, so that one job may have both in one folder.
OF_RUN, OF_CHECKPOINTS = "run.lock", "checkpoints.lock"


class FolderLock:
    def __init__(self, folder, name, refusal):
        """`folder`: an OwnFolder. `refusal(who)`: what is said when another job has it, whose launcher is `who`. A folder
        that cannot be written, or whose file system has no locks, stays without one. Raises Failure, and NotOwn when
        the lock is not the caller's file."""
        import fcntl
        self.folder, self.name, self.fd = folder, name, -1
        while self.fd < 0:
            try:
                fd = folder.open(name, os.O_RDWR | os.O_CREAT, 0o644)
            except NotOwn:
                raise
            except OSError:
                return
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = os.pread(fd, 100, 0).decode("utf-8", "replace").strip()
                os.close(fd)
                raise Failure(USAGE, refusal(who or "another prun.py")) from None
            except OSError:
                os.close(fd)
                return
            if self.is_there(fd):
                self.fd = fd
            else:  # the job before has just removed it, and the next one makes another
                os.close(fd)
        try:
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, f"pid {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        except OSError:  # a full disk
            pass

    def is_there(self, fd):
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.name, dir_fd=self.folder.fd, follow_symlinks=False))
        except OSError:
            return False

    def release(self):
        if self.fd < 0:
            return
        try:
            self.folder.remove(self.name)  # before others can have the lock
        except OSError:
            pass
        os.close(self.fd)
        self.fd = -1

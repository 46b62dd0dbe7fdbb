# SPDX-License-Identifier: BSD-3-Clause
"""Exclusive use of a folder by one running job: a locked file in it. The kernel releases the lock however the launcher ends."""
import os

from ..common.exit_status import USAGE, Failure
from .own_folder import NotOwn

# Two names, so that a job can lock one folder for both purposes.
OF_RUN, OF_CHECKPOINTS = "run.lock", "checkpoints.lock"
OWNER = b"pid "  # begins the text of a lock


class FolderLock:
    def __init__(self, folder, name, refusal):
        """`folder`: an OwnFolder. `refusal(who)`: the message when another job holds the lock, whose launcher is `who`. A folder
        that cannot be written, or whose file system has no locks, is left unlocked. Raises Failure, and NotOwn when the lock file
        does not belong to the caller."""
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
                found = os.pread(fd, 100, 0)
                if found and not found.startswith(OWNER):
                    os.close(fd)
                    raise Failure(USAGE, f"{os.path.join(folder.path, name)} is not the lock of a job: name another folder")
            else:  # the previous job has just removed the file: try again
                os.close(fd)
        try:
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, OWNER + f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        except OSError:  # a full disk
            pass

    def is_there(self, fd):
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.name, dir_fd=self.folder.fd, follow_symlinks=False))
        except OSError:
            return False

    def release(self, keeps_file=False):
        """`keeps_file`: as evidence that a job has used the folder."""
        if self.fd < 0:
            return
        try:
            if not keeps_file:
                self.folder.remove(self.name)  # while the lock is still held
        except OSError:
            pass
        os.close(self.fd)
        self.fd = -1

# SPDX-License-Identifier: BSD-3-Clause
"""A private folder with a short path for the sockets of a job (the path of a Unix socket has at most 107 bytes) and for mpirun's
own files, or one for the memory that ranks of MPI share. It stays locked while its launcher lives, so that later launchers can
recognise and remove an orphaned one."""
import os
import time

from ..common.exit_status import FAILURE, Failure

BASE = "/tmp"
MEMORY = "/dev/shm"  # a file system in memory
PREFIX = "prc-"
MARK = ".prun"    # an empty file: the folder is one of a launcher, whatever else has such a name
LEAST_AGE = 60.0  # seconds: a younger one may not be locked yet


class SocketFolder:
    def __init__(self, base=BASE):
        """Raises Failure."""
        import fcntl
        for place in (BASE, MEMORY):
            sweep(place)
        for _ in range(100):
            self.path = os.path.join(base, PREFIX + os.urandom(4).hex())
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise Failure(FAILURE, f"cannot create a folder for sockets in {base}: {error.strerror}") from None
            self.lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                os.close(os.open(MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.lock))
            except OSError as error:
                self.remove()
                raise Failure(FAILURE, f"cannot create a file in {self.path}: {error.strerror}") from None
            return
        raise Failure(FAILURE, f"no free name for a folder for sockets in {base}")

    def remove(self):
        remove_folder(self.path)
        os.close(self.lock)


def remove_folder(path):
    try:
        for name in os.listdir(path):
            inner = os.path.join(path, name)
            if os.path.isdir(inner) and not os.path.islink(inner):
                import shutil
                shutil.rmtree(inner, ignore_errors=True)
            else:
                os.unlink(inner)
        os.rmdir(path)
    except OSError:
        pass


def sweep(base):
    """Removes the folders of launchers that were killed: marked, owned by this user, at least a minute old, and unlocked."""
    import fcntl
    now = time.time()
    try:
        names = os.listdir(base)
    except OSError:
        return
    for name in names:
        if len(name) != len(PREFIX) + 8 or not name.startswith(PREFIX) or not all(c in "0123456789abcdef" for c in name[4:]):
            continue
        path = os.path.join(base, name)
        try:
            about = os.lstat(path)
            if about.st_uid != os.geteuid() or now - about.st_mtime < LEAST_AGE or os.path.islink(path):
                continue
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if MARK in os.listdir(fd):
                remove_folder(path)
        except OSError:
            pass
        finally:
            os.close(fd)

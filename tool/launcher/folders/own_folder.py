# SPDX-License-Identifier: BSD-3-Clause
"""Folders of runs and of checkpoints: they and the files read in them must belong to the caller, and nothing opened or created in
them may be a symbolic link. Files are accessed relative to the opened folder, so replacing a component of the path has no
effect."""
import errno
import os
import stat

from ..common.durable import write_durably

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class NotOwn(OSError):
    """The file or folder belongs to another user, or has the wrong type."""

    def __init__(self, path, why):
        super().__init__(1, why, path)


def own(about, path, is_wanted, wanted):
    """Raises NotOwn unless it has the type `wanted` and belongs to the caller."""
    if not is_wanted(about.st_mode):
        raise NotOwn(path, f"is not a {wanted}")
    if about.st_uid != os.geteuid():
        raise NotOwn(path, f"belongs to another user (uid {about.st_uid}, this is uid {os.geteuid()})")


class OwnFolder:
    def __init__(self, path):
        """The path may contain symbolic links; the folder it resolves to is checked. Raises OSError."""
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)  # children do not inherit it
        try:
            own(os.fstat(self.fd), path, stat.S_ISDIR, "folder")
        except OSError:
            self.close()
            raise

    def open(self, name, flags, mode=0o600):
        """A descriptor of a file in the folder. Raises OSError."""
        path = os.path.join(self.path, name)
        # O_NONBLOCK: opening a named pipe must not block.
        try:
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode, dir_fd=self.fd)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise NotOwn(path, "is a symbolic link") from None
        try:
            own(os.fstat(fd), path, stat.S_ISREG, "regular file")
        except OSError:
            os.close(fd)
            raise
        return fd

    def write(self, name, text):
        """Writes a file as write_durably does, readable by its owner only. Raises OSError."""
        write_durably(name, [text], 0o600, self.fd, name + ".tmp")

    def remove(self, name):
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass

    def names(self):
        return os.listdir(self.fd)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

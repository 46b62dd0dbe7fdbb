# SPDX-License-Identifier: BSD-3-Clause
"""Folders of runs and of checkpoints: they and what is read in them belong to whoever calls, and nothing that is opened or made
in them is a symbolic link. Files are reached from the opened folder, so that a path that is exchanged meanwhile leads nowhere."""
import errno
import os
import stat

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class NotOwn(OSError):
    """A file or folder of another user, or something that is neither."""

    def __init__(self, path, why):
        super().__init__(1, why, path)


def own(about, path, is_wanted, wanted):
    """Raises NotOwn unless that is what `wanted` says, and the caller's."""
    if not is_wanted(about.st_mode):
        raise NotOwn(path, f"is no {wanted}")
    if about.st_uid != os.geteuid():
        raise NotOwn(path, f"belongs to another user (uid {about.st_uid}, this is uid {os.geteuid()})")


class OwnFolder:
    def __init__(self, path):
        """The path may lead over symbolic links; what counts is the folder at its end. Raises OSError."""
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)  # children do not inherit it
        try:
            own(os.fstat(self.fd), path, stat.S_ISDIR, "folder")
        except OSError:
            self.close()
            raise

    def open(self, name, flags, mode=0o600):
        """A descriptor of a file in it. Raises OSError."""
        path = os.path.join(self.path, name)
        # O_NONBLOCK: a named pipe must not keep the caller waiting.
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
        """Whole or not at all, and for its owner only."""
        temporary = name + ".tmp"
        self.remove(temporary)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self.fd)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

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

# SPDX-License-Identifier: BSD-3-Clause
"""Files of the launcher that something later relies on, also after a crash of the host: all are written here. What the servers
and workers write so is in src/storage/file_system.hpp; doc/guarantees.md lists both."""
import errno
import os


def sync_folder(path, folder=None):
    """Makes the names in a folder durable. `folder`: the descriptor to which `path` is relative. Raises OSError."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system on which a folder cannot be synchronised
            raise
    finally:
        os.close(fd)


def write_durably(path, pieces, mode=0o666, folder=None, temporary=None, replaces=True):
    """Writes texts and bytes to a file, which appears as a whole: a temporary file beside it is written and synchronised, gets
    the name, and the folder is synchronised. After a crash at any moment there is the old file or the new one. `folder`: a
    descriptor to which the paths are relative. `replaces` False: FileExistsError if there is a file already. Raises OSError;
    the temporary file is then removed. Cost: two fsync, milliseconds on a disk."""
    temporary = temporary or f"{path}.{os.getpid()}.tmp"
    try:
        os.unlink(temporary, dir_fd=folder)  # of a process that was killed
    except FileNotFoundError:
        pass
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            for piece in pieces:
                file.write(piece if isinstance(piece, bytes) else piece.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        if replaces:
            os.rename(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.link(temporary, path, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(temporary, dir_fd=folder)
    except BaseException:
        try:
            os.unlink(temporary, dir_fd=folder)
        except OSError:
            pass
        raise
    sync_folder(os.path.dirname(path), folder)

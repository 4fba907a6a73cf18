"""Writing a file as a whole: whoever reads it sees the old content or the new one."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lamina.runtime.cache import replacing

_NO_SYNC = (errno.EACCES, errno.EINVAL, errno.ENOTSUP)  # a folder that cannot be read or synced


@contextlib.contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file whose content takes the place of `path` when the ``with`` block ends.

    The content is on disk before the old file goes, and the folder is synced after that, so a crash
    of the machine leaves one of the two. Where the block fails, the old file stays and the new one
    is removed. A new file has the mode that the umask leaves, a replaced one keeps its mode, and
    a symbolic link stays one: its target is replaced. Pipes and devices are written to as they are.
    Raises OSError, before anything is written where `path` is a folder or may not be written; where
    its folder is missing, the error names the folder.
    """
    target = Path(os.path.realpath(path))
    old = _mode_of(path)
    if old is not None and not stat.S_ISREG(old):
        with open(target, "wb") as file:
            yield file
        return
    if old is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    with replacing(target, 0o666 if old is None else stat.S_IMODE(old)) as file:
        if old is not None:  # bits that the umask took away
            os.fchmod(file.fileno(), stat.S_IMODE(old))
        yield file
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(target.parent)


def _mode_of(path: str | os.PathLike[str]) -> int | None:
    """Type and permissions of a file, or None when there is none."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable, where its file system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise

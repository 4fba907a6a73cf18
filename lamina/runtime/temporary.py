"""Folders for what one process needs for a while, which vanish with it, even if it is killed.

A folder lies in the system's temporary directory. Its owner holds a lock on it, which the kernel
releases when the owner dies, whatever the reason. The first folder that a later process makes
clears every folder whose lock is free.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = ".lamina-private-"


def claim() -> tuple[Path, int]:
    """A new, empty folder that no other user can read, and the descriptor that holds its lock."""
    _clear_abandoned(Path(tempfile.gettempdir()))
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):  # until it is locked, it looks abandoned
            lock = os.open(folder, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks, where none is cleared
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def remove(folder: Path, lock: int) -> None:
    """Remove a folder that this process has claimed."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A folder of this process for the length of a ``with`` block."""
    folder, lock = claim()
    try:
        yield folder
    finally:
        remove(folder, lock)


@functools.cache  # once a process
def _clear_abandoned(parent: Path) -> None:
    """Remove the folders in `parent` whose owners have died."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, gone, or another user's
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)

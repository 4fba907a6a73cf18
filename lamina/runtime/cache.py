"""The disk cache: files named by the hash of everything that decides their content.

Processes share the folder without locks. An entry is written to a file of its own and renamed,
so that a reader sees all of it or nothing, and a digest beside it shows an entry that a crash of
the machine has cut short. A folder that cannot be used costs a warning, never a result.
"""

import contextlib
import errno
import hashlib
import os
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lamina.errors import DeviceError
from lamina.runtime.temporary import claim, remove

_STALE_SECONDS = 3600  # a temporary file this old was left by a process that died
_TEMPORARY = ".tmp-"


class CacheWarning(UserWarning):
    """The disk cache cannot be used; this process keeps its files to itself."""


def digest(*parts: str | bytes) -> str:
    """A key for `parts`: 40 hexadecimal digits; where one part ends is part of the key."""
    data = [part.encode() if isinstance(part, str) else part for part in parts]
    lengths = str([len(one) for one in data]).encode()
    return hashlib.blake2b(b"".join([lengths, *data]), digest_size=20).hexdigest()


class DiskCache:
    """Named files in `folder`: the one `wanted`, or this process's own when that fails."""

    def __init__(self, folder: Path | str) -> None:
        self.wanted = self.folder = Path(folder)
        try:
            _prepare(self.folder)
        except OSError as error:
            self._fall_back(error)

    def load(self, name: str) -> Path | None:
        """The file of that name when it is there and whole."""
        path, check = self.folder / name, self.folder / f"{name}.sum"
        with contextlib.suppress(OSError):
            if check.read_bytes() == digest(path.read_bytes()).encode():
                return path
        return None

    def store(self, name: str, content: bytes) -> Path:
        """Write a file; raises DeviceError when neither `wanted` nor a temporary one takes it."""
        try:  # a kill between the two leaves a digest that fits nothing
            for each, data in ((f"{name}.sum", digest(content).encode()), (name, content)):
                with replacing(self.folder / each) as file:
                    file.write(data)
        except OSError as error:
            self._fall_back(error)
            return self.store(name, content)
        return self.folder / name

    def _fall_back(self, error: OSError) -> None:
        """From now on use a private folder that goes away with this process."""
        if self.folder != self.wanted:
            raise DeviceError(f"{self.folder} cannot be written: {error.strerror}") from error
        warnings.warn(
            f"the cache folder {self.wanted} cannot be used ({error.strerror}); compiled kernels "
            "are kept for this process only. Set LAMINA_CACHE_DIR to a folder of your own",
            CacheWarning,
            stacklevel=3,
        )
        try:
            self.folder, lock = claim()
        except OSError as full:
            raise DeviceError(f"no folder for temporary files: {full.strerror}") from full
        clean = weakref.finalize(self, remove, self.folder, lock)
        os.register_at_fork(after_in_child=clean.detach)  # the folder is not the child's


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends, and vanishes if it fails: others
    see the old file or the new one, never a part. It has the bits of `mode` that the umask leaves.
    """
    temporary = path.with_name(f"{_TEMPORARY}{os.urandom(8).hex()}")
    try:
        with _created(temporary, mode) as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _created(path: Path, mode: int) -> BinaryIO:
    """A new file. An error names the folder: the caller knows no temporary file."""
    try:
        return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))
    except OSError as error:
        error.filename = os.fspath(path.parent)
        raise


def _prepare(folder: Path) -> None:
    """Make `folder` private to this user, and clear what dead processes left in it. Libraries are
    loaded from here, so a folder that another user can write is refused."""
    for parent in reversed((folder, *folder.parents)):
        parent.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user")
    folder.chmod(0o700)
    oldest = time.time() - _STALE_SECONDS
    for file in folder.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            if file.stat().st_mtime < oldest:
                file.unlink()

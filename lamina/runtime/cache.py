"""The disk cache: files named by the hash of everything that decides their content.

Processes share the folder without locks. An entry is written to a file of its own and renamed,
so that a reader sees all of it or nothing, and a digest beside it shows an entry that a crash of
the machine has cut short. A folder that cannot be used costs a warning, never a result.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from lamina.errors import DeviceError

_STALE_SECONDS = 3600  # a temporary file this old was left by a process that died
_TEMPORARY = ".tmp-"
_DIGEST = ".sum"


class CacheWarning(UserWarning):
    """The disk cache cannot be used; this process keeps its files to itself."""


def digest(*parts: str | bytes) -> str:
    """A key for `parts`: 40 hexadecimal digits; where one part ends is part of the key."""
    state = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


class DiskCache:
    """Files in `folder` by key and suffix; `folder` need not exist."""

    def __init__(self, folder: Path | str) -> None:
        self.wanted = Path(folder)
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder in use: the wanted one, or this process's own when that cannot be used."""
        if self._folder is None:
            try:
                _prepare(self.wanted)
                self._folder = self.wanted
            except OSError as error:
                self._fall_back(error)
        assert self._folder is not None
        return self._folder

    def path(self, key: str, suffix: str = "") -> Path:
        """Where the entry is, or would be."""
        return self.folder / (key + suffix)

    def load(self, key: str, suffix: str) -> Path | None:
        """The entry's file when it is there and whole; a damaged one is removed."""
        path = self.path(key, suffix)
        try:
            expected = _beside(path).read_bytes()
            if expected == _checksum(path.read_bytes()):
                return path
        except FileNotFoundError:
            return None
        except OSError:
            pass  # it cannot be read, which is as good as damaged
        self.remove(key, suffix)
        return None

    def store(self, key: str, suffix: str, content: bytes | Callable[[], bytes]) -> Path:
        """Write an entry and return its file; a producer is called for the content.

        Raises DeviceError when neither the folder nor a temporary one takes the file.
        """
        data = content if isinstance(content, bytes) else content()
        path = self.path(key, suffix)
        try:
            return self._write(path, data)
        except OSError as error:
            if not self._fall_back(error):
                raise DeviceError(f"{path} cannot be written: {_reason(error)}") from error
        path = self.path(key, suffix)
        try:
            return self._write(path, data)
        except OSError as error:
            raise DeviceError(f"{path} cannot be written: {_reason(error)}") from error

    def remove(self, key: str, suffix: str) -> None:
        """Delete an entry; it is fine when there is none."""
        path = self.path(key, suffix)
        for file in (_beside(path), path):
            try:
                file.unlink(missing_ok=True)
            except OSError:
                return  # the next `store` meets the same obstacle and says so

    def size(self) -> int:
        """The bytes of all entries."""
        with os.scandir(self.folder) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())

    def writable(self) -> bool:
        """Whether the wanted folder itself is in use and takes files."""
        if self.folder != self.wanted:
            return False
        try:
            os.unlink(_temporary_file(self.wanted, b""))
        except OSError:
            return False
        return True

    def _write(self, path: Path, data: bytes) -> Path:
        # The digest goes first: a kill in between leaves a digest that fits nothing.
        _replace(_beside(path), _checksum(data))
        _replace(path, data)
        return path

    def _fall_back(self, error: OSError) -> bool:
        """Use this process's own folder from now on; False when it is in use already."""
        own = _own_folder()
        if self._folder == own:
            return False
        warnings.warn(
            f"the cache folder {self.wanted} cannot be used ({_reason(error)}); compiled kernels "
            f"are kept for this process only. Set LAMINA_CACHE_DIR to a folder of your own",
            CacheWarning,
            stacklevel=2,
        )
        self._folder = own
        return True


def _beside(path: Path) -> Path:
    return path.with_name(path.name + _DIGEST)


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=20).hexdigest().encode()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _prepare(folder: Path) -> None:
    """Make `folder` private to this user, and clear what dead processes left in it.

    Libraries are loaded from here, so a folder that another user can write is refused.
    """
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700, exist_ok=True)
    status = os.stat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "Not a directory")
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise PermissionError(1, "it belongs to another user")
    if stat.S_IMODE(status.st_mode) != 0o700:
        os.chmod(folder, 0o700)
    _clear_stale(folder)


def _clear_stale(folder: Path) -> None:
    oldest = time.time() - _STALE_SECONDS
    for entry in os.scandir(folder):
        if not entry.name.startswith(_TEMPORARY):
            continue
        try:
            if entry.stat().st_mtime < oldest:
                os.unlink(entry.path)
        except FileNotFoundError:
            continue  # another process was quicker


def _temporary_file(folder: Path, data: bytes) -> str:
    """A new file in `folder` that holds `data`; nothing is left behind when writing fails."""
    handle, name = tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except BaseException:
        os.unlink(name)
        raise
    return name


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that others see the old one or the new one, never a part."""
    name = _temporary_file(path.parent, data)
    try:
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@functools.cache
def _folder_of(process: int) -> Path:
    try:
        folder = Path(tempfile.mkdtemp(prefix="lamina-"))
    except OSError as error:
        raise DeviceError(f"no folder for temporary files: {_reason(error)}") from error
    atexit.register(_remove_own, folder, process)
    return folder


def _remove_own(folder: Path, process: int) -> None:
    if process == os.getpid():  # a forked child inherits the registration, not the folder
        shutil.rmtree(folder, ignore_errors=True)


def _own_folder() -> Path:
    """A private folder that goes away with this process."""
    return _folder_of(os.getpid())

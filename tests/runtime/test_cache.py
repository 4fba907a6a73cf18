"""The disk cache under hostile folders, full disks, kills and other processes."""

from __future__ import annotations

import builtins
import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lamina.core.options import Options
from lamina.errors import DeviceError
from lamina.runtime.buffer import Buffer
from lamina.runtime.cache import CacheWarning, DiskCache, digest
from lamina.runtime.cpu import CpuProgram, disk_cache

from .sources import ADD_INDEX, numbers

HERE = Path(__file__).parent

CHILD = """
import sys
sys.path[:0] = ["../..", ".."]
from runtime.sources import ADD_INDEX
from runtime.test_cache import works
from lamina.core.options import Options
from lamina.runtime.cpu import CpuProgram
sys.exit(0 if works(CpuProgram(ADD_INDEX, Options(cache_dir=sys.argv[1]))) else 1)
"""


def works(program: CpuProgram) -> bool:
    memory = Buffer(80)
    memory.view()[:] = bytes(80)
    program.run([memory, numbers(10)])
    return bool((np.frombuffer(memory.view(), np.int64) == np.arange(1, 11)).all())


def with_two_entries(folder: Path) -> tuple[DiskCache, list[Path]]:
    cache = DiskCache(folder)
    return cache, [cache.store(f"{key}.txt", b"content") for key in ("one", "two")]


def leftovers(folder: Path) -> list[Path]:
    return list(folder.glob(".tmp-*"))


def test_round_trip_and_mode(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "a" / "b")
    assert cache.load("key.txt") is None
    path = cache.store("key.txt", b"content")
    assert path == tmp_path / "a" / "b" / "key.txt" == cache.load("key.txt")
    assert path.read_bytes() == b"content"
    assert DiskCache(tmp_path / "a" / "b").load("key.txt") == path
    assert cache.load("key.so") is None
    cache.store("key.txt", b"newer")
    assert path.read_bytes() == b"newer"
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not leftovers(cache.folder)


def test_digest_knows_where_a_part_ends() -> None:
    keys = [digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", ""), digest()]
    assert len(set(keys)) == 5
    assert digest("é") == digest("é".encode())


def test_an_open_folder_becomes_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert DiskCache(tmp_path).folder == tmp_path
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.warns(CacheWarning, match="belongs to another user"):
        assert DiskCache(tmp_path).folder != tmp_path


@pytest.mark.parametrize("damage", [b"", b"conten", b"content and more", b"\0" * 7])
def test_a_damaged_entry_is_not_used_and_mended(tmp_path: Path, damage: bytes) -> None:
    cache = DiskCache(tmp_path)
    path = cache.store("key.txt", b"content")
    path.write_bytes(damage)
    assert cache.load("key.txt") is None
    assert cache.store("key.txt", b"content") == cache.load("key.txt") == path
    path.with_name("key.txt.sum").write_bytes(b"\xff" + damage)
    assert cache.load("key.txt") is None


def test_stale_temporary_files_are_cleared(tmp_path: Path) -> None:
    old, young = tmp_path / ".tmp-old", tmp_path / ".tmp-young"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    before = time.time() - 7200
    os.utime(old, (before, before))
    DiskCache(tmp_path).store("key", b"content")
    assert leftovers(tmp_path) == [young]


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_place_of_the_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(CacheWarning, match="LAMINA_CACHE_DIR") as caught:
        cache, (path, _) = with_two_entries(tmp_path / "file" / below)
    assert len(caught) == 1
    assert cache.load("one.txt") == path
    assert (tmp_path / "file").read_text() == "in the way"
    assert path.parent.stat().st_mode & 0o077 == 0
    assert cache.folder != cache.wanted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_folder_of_this_process_outlives_its_children_but_not_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    program = (
        "import os, sys; from lamina.runtime.cache import DiskCache\n"
        "cache = DiskCache(sys.argv[1])\n"
        "if child := os.fork(): print(cache.folder, os.waitpid(child, 0)[1], "
        "cache.store('key', b'content').read_bytes() == b'content')\n"
    )
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "file")],
        cwd=HERE.parent.parent, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    folder, *results = answer.stdout.split()
    assert results == ["0", "True"]
    assert Path(folder).is_absolute()
    assert not Path(folder).exists()


def fail_below(folder: Path, call: Callable[..., object], code: int) -> Callable[..., object]:
    """`call`, which fails with `code` when it is about something in `folder`."""

    def wrapped(path: str, *arguments: object, **named: object) -> object:
        if str(path).startswith(str(folder)):
            raise OSError(code, os.strerror(code))
        return call(path, *arguments, **named)

    return wrapped


@pytest.mark.parametrize("name", ["open", "replace", "mkdir", "chmod"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_an_unwritable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    folder = tmp_path / "cache"
    if name == "chmod":
        folder.mkdir(mode=0o755)
    module = builtins if name == "open" else os
    monkeypatch.setattr(module, name, fail_below(folder, getattr(module, name), code))
    with pytest.warns(CacheWarning, match=os.strerror(code)) as caught:
        cache, paths = with_two_entries(folder)
    assert len(caught) == 1
    assert paths == [cache.load(f"{key}.txt") for key in ("one", "two")]
    assert folder not in paths[0].parents
    assert not folder.exists() or not leftovers(folder)


def test_a_disk_that_fills_up_while_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DiskCache(tmp_path / "cache")
    cache.store("before.txt", b"kept")
    original = open

    def full(path: Path, mode: str, **named: object) -> object:
        """Files in the cache accept nothing: /dev/full refuses every write."""
        file = original(path, mode, **named)
        if tmp_path in path.parents:
            file.close()
            return original("/dev/full", "wb")
        return file

    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    monkeypatch.setattr(builtins, "open", full)
    with pytest.warns(CacheWarning, match="No space left"):
        path = cache.store("key.txt", b"content")
    assert path.read_bytes() == b"content"
    assert not leftovers(tmp_path / "cache")
    monkeypatch.undo()
    assert DiskCache(tmp_path / "cache").load("before.txt") is not None


def test_no_room_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = DiskCache(tmp_path)
    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning), pytest.raises(DeviceError, match="No space left"):
        cache.store("key.txt", b"content")


def test_no_room_for_compiling(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    CpuProgram(ADD_INDEX, options)

    def full(*arguments: object, **named: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(DeviceError, match=r"cannot compile: .*No space left"):
        CpuProgram(ADD_INDEX + "\n", options)


def test_programs_run_without_a_cache_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = Options(cache_dir=str(tmp_path / "file"), threads=2)
    with pytest.warns(CacheWarning):
        assert works(CpuProgram(ADD_INDEX, options))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert works(CpuProgram(ADD_INDEX + "\n", options))


def run_child(cache_dir: str) -> int:
    command = [sys.executable, "-c", CHILD, cache_dir]
    return subprocess.run(command, check=False, timeout=60, cwd=HERE).returncode


@pytest.mark.parametrize("digest_fits", [False, True])
@pytest.mark.parametrize("damaged", [b"", b"\x7fELF" + bytes(10), b"\x7fELF" + bytes(3000)])
def test_a_corrupt_library_is_rebuilt(options: Options, damaged: bytes, digest_fits: bool) -> None:
    """With a digest that fits, the damage shows only when the library is loaded.

    Another process builds it: the loader of this one would remember the path.
    """
    assert run_child(options.cache_dir) == 0
    cache = disk_cache(options)
    (source,) = [file for file in cache.folder.glob("*.c") if file.read_text() == ADD_INDEX]
    path = source.with_suffix(".so")
    whole = path.stat().st_size
    if digest_fits:
        cache.store(f"{source.stem}.so", damaged)
    else:
        path.write_bytes(damaged)
    assert works(CpuProgram(ADD_INDEX, options))
    assert cache.load(f"{source.stem}.so") == path
    assert path.stat().st_size == whole


def test_a_second_process_compiles_nothing(options: Options) -> None:
    assert works(CpuProgram(ADD_INDEX, options))
    stamps = {path: path.stat().st_mtime_ns for path in disk_cache(options).folder.iterdir()}
    assert run_child(options.cache_dir) == 0
    after = {path: path.stat().st_mtime_ns for path in disk_cache(options).folder.iterdir()}
    assert {path: stamp for path, stamp in after.items() if path in stamps} == stamps


def test_processes_that_compile_the_same_source_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", CHILD, str(tmp_path / "cache")]
    children = [subprocess.Popen(command, cwd=HERE) for _ in range(4)]
    assert [child.wait(60) for child in children] == [0, 0, 0, 0]
    folder = tmp_path / "cache" / "cpu"
    assert not leftovers(folder)
    assert len(list(folder.glob("*.so"))) == 2  # the program and the pool


WRITER = """
import os, sys, time
sys.path[:0] = ["../.."]
from lamina.runtime.cache import DiskCache
cache = DiskCache(sys.argv[1])
number = 0
print("ready", flush=True)
while True:
    cache.store("key.bin", bytes([number % 256]) * 3_000_000)
    number += 1
"""


@pytest.mark.parametrize("delay", [0.01, 0.033, 0.07, 0.11])
def test_a_kill_during_a_write(tmp_path: Path, delay: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], cwd=HERE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    path = tmp_path / "key.bin"
    if path.exists():  # what is under the final name is whole, whichever version it is
        content = path.read_bytes()
        assert len(content) == 3_000_000
        assert len(set(content)) == 1
    assert len(leftovers(tmp_path)) <= 1
    cache = DiskCache(tmp_path)
    cache.load("key.bin")
    cache.store("key.bin", b"new")
    path = tmp_path / "key.bin"
    assert cache.load("key.bin") == path
    assert path.read_bytes() == b"new"

"""Saved files: their mode, links, durability, and what stays when writing fails."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lamina import Tensor
from lamina.errors import ArgumentError
from lamina.io import safetensors
from lamina.io.files import replaced_file
from tests.test_layers import ROOT


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def save(path: Path, value: float) -> None:
    safetensors.save(path, {"a": Tensor([value])})


def saved(path: Path) -> float:
    return float(safetensors.load(path)["a"].numpy()[0])


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o027, 0o077])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        save(tmp_path / "model", 1.0)
    assert mode(tmp_path / "model") == 0o666 & ~mask


@pytest.mark.parametrize("before", [0o600, 0o640, 0o644, 0o666])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, before: int) -> None:
    path = tmp_path / "model"
    path.touch()
    path.chmod(before)
    with umask(0o077):
        save(path, 1.0)
    assert mode(path) == before
    assert saved(path) == 1.0


def test_nobody_can_open_what_will_be_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even before its mode is set: who has a file open may read what is written later."""
    path, modes = tmp_path / "model", []
    path.touch(0o600)
    monkeypatch.setattr(
        os, "fchmod", lambda descriptor, _: modes.append(os.fstat(descriptor).st_mode & 0o777)
    )
    with umask(0o000), replaced_file(path):
        assert modes == [0o600]


@pytest.mark.parametrize("relative", [False, True])
def test_the_target_of_a_link_is_written(tmp_path: Path, relative: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    target, link, second = folder / "target", tmp_path / "link", tmp_path / "second"
    link.symlink_to("folder/target" if relative else target)
    second.symlink_to(link)
    for value, path in enumerate((link, second, link)):  # the first makes the target
        save(path, float(value))
        assert link.is_symlink()
        assert second.is_symlink()
        assert saved(target) == value
    assert os.listdir(folder) == ["target"]


def test_a_file_is_on_disk_before_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content is synced, then the file is renamed, then the folder is synced."""
    path, events = tmp_path / "model", []
    replace, fsync = os.replace, os.fsync

    def recorded_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        fsync(descriptor)
        is_folder = stat.S_ISDIR(status.st_mode)
        events.append("folder" if is_folder else (status.st_ino, status.st_size))

    def recorded_replace(source: Path, target: Path) -> None:
        replace(source, target)
        events.append("replace")

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    save(path, 1.0)
    status = path.stat()
    assert events == [(status.st_ino, status.st_size), "replace", "folder"]


FULL = """
import resource, signal, sys
import numpy as np
from lamina import Tensor
from lamina.io import safetensors
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
tensors = {"a": Tensor(np.zeros(1 << 20, np.float32)).realize()}
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    safetensors.save(sys.argv[1], tensors)
except OSError as error:
    print(error.strerror)
"""


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    save(path, 1.0)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "File too large\n"
    assert saved(path) == 1.0
    assert os.listdir(tmp_path) == ["model"]


WRITER = """
import itertools, sys
import numpy as np
from lamina import Tensor
from lamina.io import safetensors
for number in itertools.count():
    safetensors.save(sys.argv[1], {"a": Tensor(np.full(500_000, number % 100, np.float32))})
    print("saved", flush=True)
"""


@pytest.mark.parametrize("delay", [0.001, 0.004, 0.01])
def test_a_kill_leaves_a_whole_file(tmp_path: Path, delay: float) -> None:
    path = tmp_path / "model"
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"saved\n"
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    values = safetensors.load(path)["a"].numpy()
    assert values.shape == (500_000,)
    assert len(np.unique(values)) == 1


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        save(tmp_path, 1.0)
    with pytest.raises(FileNotFoundError) as missing:
        save(tmp_path / "no" / "model", 1.0)
    assert missing.value.filename == str(tmp_path / "no")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        save(tmp_path / "loop", 1.0)
    assert (tmp_path / "loop").is_symlink()
    assert os.listdir(tmp_path) == ["loop"]


def test_a_file_that_may_not_be_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    save(path, 1.0)
    path.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda name, wanted: path.stat().st_mode & 0o200 > 0)  # root
    with pytest.raises(PermissionError, match="model"):
        save(path, 2.0)
    assert saved(path) == 1.0
    assert os.listdir(tmp_path) == ["model"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    save(pipe, 3.0)
    reader.join(10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    (tmp_path / "model").write_bytes(received[0])
    assert saved(tmp_path / "model") == 3.0


def test_names_and_metadata_are_texts(tmp_path: Path) -> None:
    for tensors, metadata in (({1: Tensor([1.0])}, {}), ({}, {"step": 20}), ({}, {20: "step"})):
        with pytest.raises(ArgumentError, match="is no text"):
            safetensors.save(tmp_path / "model", tensors, metadata)  # type: ignore[arg-type]
    assert not os.listdir(tmp_path)


def test_values_are_aligned_and_in_order(tmp_path: Path) -> None:
    """Wide elements come first, so each tensor begins at a multiple of its element's size."""
    tensors = {
        "bytes": Tensor(np.arange(3, dtype=np.uint8)),
        "words": Tensor(np.arange(5, dtype=np.float64)),
        "halves": Tensor(np.arange(7, dtype=np.float16)),
    }
    safetensors.save(tmp_path / "model", tensors)
    content = (tmp_path / "model").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    assert start % 8 == 0
    assert content[start:] == b"".join(
        tensors[name].numpy().tobytes() for name in ("words", "halves", "bytes")
    )
    loaded = safetensors.load(tmp_path / "model")
    assert all((loaded[name].numpy() == one.numpy()).all() for name, one in tensors.items())

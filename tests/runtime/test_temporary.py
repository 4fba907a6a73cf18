"""Private folders: they go away with their owner, however that ends, and with nobody else."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from lamina.runtime import temporary
from lamina.runtime.temporary import claim, private_folder, remove
from tests.test_layers import ROOT

OWNER = """
import sys, time
from lamina.runtime.temporary import claim
folder, lock = claim()
(folder / "program.so").write_bytes(b"half")
print(folder, flush=True)
time.sleep(60)
"""
# A compiler that says what it is, and then takes for ever to compile.
SLOW_COMPILER = """#!/bin/sh
case "$*" in
*-dM*) echo '#define __VERSION__ "12.2.0"' ;;
*) touch "$TMPDIR/assembly.s"; echo started > "$0.started"; exec sleep 60 ;;
esac
"""
COMPILING = """
import sys
from lamina.core.options import Options
from lamina.runtime.cpu import build
build("int x;", Options(cc=sys.argv[1], cache_dir=sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def folder_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of this test, for it and its children."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    temporary._clear_abandoned.cache_clear()
    return folder


def start(*command: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", *map(str, command)], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def end(child: subprocess.Popen[str]) -> None:
    """Kill it, and the compiler that it runs."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait(10)
    if child.stdout is not None:
        child.stdout.close()


def test_a_folder_is_private_and_goes_away(folder_of_all: Path) -> None:
    with private_folder() as folder:
        assert folder.parent == folder_of_all
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "below").mkdir()
    assert not list(folder_of_all.iterdir())


def test_a_folder_goes_away_with_an_error(folder_of_all: Path) -> None:
    with pytest.raises(FileNotFoundError), private_folder() as folder:
        (folder / "no" / "such").mkdir()
    assert not list(folder_of_all.iterdir())


def test_a_later_process_clears_the_dead_ones_alone(folder_of_all: Path) -> None:
    (folder_of_all / "lamina-data").mkdir()  # somebody else's
    children = [start(OWNER), start(OWNER)]
    dead, living = (Path(child.stdout.readline().strip()) for child in children if child.stdout)
    end(children[0])
    assert dead.exists()
    with private_folder() as folder:
        assert {*folder_of_all.iterdir()} == {living, folder, folder_of_all / "lamina-data"}
    assert (living / "program.so").read_bytes() == b"half"
    end(children[1])


def test_a_child_neither_keeps_nor_removes_the_folder_of_its_parent(folder_of_all: Path) -> None:
    with private_folder() as folder:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert folder.exists()


def test_folders_that_are_made_while_others_are_cleared(
    folder_of_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock a folder looks abandoned; its owner makes another one."""
    made: list[Path] = []
    make = tempfile.mkdtemp

    def unlucky(prefix: str) -> str:
        made.append(Path(make(prefix=prefix)))
        if len(made) < 3:
            temporary._clear_abandoned.__wrapped__(folder_of_all)
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", unlucky)
    folder, lock = claim()
    assert folder == made[2]
    assert [path.exists() for path in made] == [False, False, True]
    remove(folder, lock)


def test_many_threads_and_clearers(folder_of_all: Path) -> None:
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(30):
                temporary._clear_abandoned.__wrapped__(folder_of_all)
                with private_folder() as folder:
                    (folder / "file").write_bytes(b"content")
                    temporary._clear_abandoned.__wrapped__(folder_of_all)
                    assert (folder / "file").read_bytes() == b"content"
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert not list(folder_of_all.iterdir())


def test_a_kill_while_a_program_compiles(folder_of_all: Path, tmp_path: Path) -> None:
    """What compilers themselves keep for a while lies in the folder too."""
    compiler, begun = tmp_path / "slow", tmp_path / "slow.started"
    compiler.write_text(SLOW_COMPILER)
    compiler.chmod(0o755)
    child = start(COMPILING, compiler, tmp_path / "cache")
    while not begun.exists() and child.poll() is None:
        time.sleep(0.01)
    (folder,) = folder_of_all.iterdir()
    assert [path.name for path in folder.iterdir()] == ["assembly.s"]
    end(child)
    assert folder.exists()
    with private_folder() as other:
        assert list(folder_of_all.iterdir()) == [other]

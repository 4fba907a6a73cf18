"""A program that spins without end, as pools of threads do for a while after their work: a thread
of it, and one of a process that it starts. Argument: a folder, where each of the two processes
counts its turns of the loop, and holds a lock until it ends."""

from __future__ import annotations

import fcntl
import json
import mmap
import subprocess
import sys
import threading
from pathlib import Path

PARENT, CHILD = PROCESSES = ("parent", "child")


def counter(folder: Path, process: str) -> memoryview:
    """The number of turns of a process, shared with whoever asks for it."""
    path = folder / process
    if not path.exists():
        path.write_bytes(bytes(8))
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8)).cast("q")


def spin(number: memoryview) -> None:
    """Count for ever."""
    while True:
        number[0] += 1


def answer(numbers: list[memoryview]) -> None:
    """Print a line once every number has grown."""
    before = [number[0] for number in numbers]
    while any(number[0] == old for number, old in zip(numbers, before, strict=True)):
        pass
    print(json.dumps({"counted": True}), flush=True)


def main(folder: Path, process: str) -> None:
    """Spin until nobody writes to this process any more."""
    with (folder / f"{process}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        numbers = [counter(folder, name) for name in PROCESSES]
        own = numbers[PROCESSES.index(process)]
        threading.Thread(target=spin, args=(own,), daemon=True).start()
        if process == PARENT:
            command = [sys.executable, "-m", "tests.bench.spinning", str(folder), CHILD]
            with subprocess.Popen(command, stdin=subprocess.PIPE):
                answer(numbers)
                for _ in sys.stdin:
                    answer(numbers)
        else:
            sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

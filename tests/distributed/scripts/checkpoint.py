"""Trains a small GPT whose parameters are sharded, and goes on from the last checkpoint.

    checkpoint.py FOLDER                     to the end
    checkpoint.py FOLDER STAGE RANK          a rank kills itself at a stage of the third save
    checkpoint.py FOLDER training RANK SEED  it does so at a random moment of a step, or of a save,
    checkpoint.py FOLDER saving RANK SEED    and says when
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np

import lamina as lm
from lamina import distributed, nn
from lamina.distributed import checkpoint
from tests.distributed.gpt import LENGTH, Gpt

LETTERS, ROWS, STEPS, FATAL = 12, 4, 6, 3
folder, *fault = sys.argv[1:]
rank, size = distributed.rank(), distributed.size()
mesh = distributed.Mesh(data=size)
saves = [0]
print(f"process {os.getpid()}", flush=True)


class Whole:
    """The model as a layer from text to its loss."""

    def __init__(self) -> None:
        self.model = Gpt(LETTERS)

    def __call__(self, text: np.ndarray) -> lm.Tensor:
        return self.model.loss(text)


def fatal(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, in which this process ends at the third save."""

    def called(*arguments: Any) -> Any:
        if saves[0] == FATAL:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return called


def end_at_once() -> None:
    print(f"killed at {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


class Moment:
    """A random moment of a phase, at which this process ends: each time that the phase comes up
    again, one of as many seconds as it took the time before. If it is over by then, the next one;
    and the last one of the run ends with the process."""

    def __init__(self, phase: str, seed: int) -> None:
        self.phase, self._random = phase, Random(seed)
        self._seconds: float | None = None

    @contextmanager
    def within(self, phase: str, *, is_last: bool) -> Iterator[None]:
        """During one phase."""
        if phase != self.phase:
            yield
            return
        started = time.monotonic()
        if self._seconds is None:
            yield
        else:
            timer = threading.Timer(self._random.uniform(0.0, self._seconds), end_at_once)
            timer.start()
            yield
            timer.cancel()
            if is_last:
                end_at_once()
        self._seconds = time.monotonic() - started


PHASES = ("training", "saving")
is_victim = bool(fault) and int(fault[1]) == rank
moment = Moment("none", 0)
if is_victim and fault[0] in PHASES:
    moment = Moment(fault[0], int(fault[2]))
elif is_victim and fault[0] != "step":
    name = {"boxes": "_write_pieces", "tensors": "_write_tensors", "index": "_write_index",
            "end": "_wait_for_all"}[fault[0]]  # fmt: skip
    setattr(checkpoint, name, fatal(getattr(checkpoint, name)))

lm.random.manual_seed(5)
model = distributed.FullySharded(Whole(), mesh["data"])
optimizer = nn.optim.Adam(nn.parameters(model), lr=0.01)
first = 0
if os.path.exists(os.path.join(folder, "index.json")):
    texts = distributed.load_checkpoint(folder, model, optimizer)
    first = int(texts["step"]) + 1
    print(f"goes on at {first}", flush=True)
for step in range(first, STEPS):
    is_last = step == STEPS - 1
    batch = np.random.default_rng(step).integers(0, LETTERS, (ROWS, LENGTH + 1))
    with moment.within("training", is_last=is_last):
        loss = model(batch[distributed.rows_of(ROWS)]) / size
        loss.backward()
        total = distributed.all_reduce(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        value = total.item()
    if rank == 0:
        print(f"step {step}: {value:.5f}", flush=True)
    if is_victim and fault[0] == "step" and step == FATAL:
        os.kill(os.getpid(), signal.SIGKILL)
    saves[0] += 1
    with moment.within("saving", is_last=is_last):
        distributed.save_checkpoint(folder, model, optimizer, {"step": str(step)})
print(f"rank {rank}: all is well", flush=True)

"""Trains a small GPT whose parameters are sharded, and goes on from the last checkpoint.

    checkpoint.py FOLDER [STAGE RANK]: a rank kills itself at a stage of the third save, or "step"
"""

import os
import signal
import sys
from collections.abc import Callable
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


if fault and int(fault[1]) == rank and fault[0] != "step":
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
    batch = np.random.default_rng(step).integers(0, LETTERS, (ROWS, LENGTH + 1))
    loss = model(batch[distributed.rows_of(ROWS)]) / size
    loss.backward()
    total = distributed.all_reduce(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step}: {total.item():.5f}", flush=True)
    else:
        total.item()
    if fault and fault[0] == "step" and step == FATAL and int(fault[1]) == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    saves[0] += 1
    distributed.save_checkpoint(folder, model, optimizer, {"step": str(step)})
print(f"rank {rank}: all is well", flush=True)

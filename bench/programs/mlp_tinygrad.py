"""One MLP training step with Adam in tinygrad, unjitted. Argument: the .npz of `mlp_data`."""

from __future__ import annotations

import sys
import time

from tinygrad import Tensor, nn
from tinygrad.helpers import TRAINING, GlobalCounters

from bench.programs.mlp_data import LEARNING_RATE, PARAMETERS, read
from bench.programs.protocol import emit, serve

data = read(sys.argv[1])
TRAINING.value = 1
parameters = [Tensor(data[name]).is_param_(True) for name in PARAMETERS]
x, y = Tensor(data["x"]), Tensor(data["y"])
optimizer = nn.optim.Adam(parameters, lr=LEARNING_RATE)


def step() -> float:
    """One step; the loss before it."""
    w1, b1, w2, b2 = parameters
    optimizer.zero_grad()
    loss = ((x @ w1 + b1).relu() @ w2 + b2).sparse_categorical_crossentropy(y).backward()
    loss.realize(*optimizer.schedule_step())
    return float(loss.item())


losses = [step()]
emit(ended=time.time(), value=losses[0])
before = GlobalCounters.kernel_count
losses.append(step())
emit(kernels=GlobalCounters.kernel_count - before, value=losses[1])
serve({"step": step})

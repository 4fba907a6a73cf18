"""One MLP training step with Adam in lamina, unjitted, or with "jit" as second argument jitted.
First argument: the .npz of `mlp_data`."""

from __future__ import annotations

import sys
import time

import lamina as lm
from bench.programs.mlp_data import LEARNING_RATE, PARAMETERS, read
from bench.programs.protocol import emit, serve
from lamina import nn
from lamina.pipeline import counter

data = read(sys.argv[1])
parameters = [lm.Tensor(data[name], requires_grad=True) for name in PARAMETERS]
x, y = lm.asarray(data["x"]), lm.asarray(data["y"])
optimizer = nn.optim.Adam(parameters, lr=LEARNING_RATE)


def update(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
    """One step; the loss before it."""
    w1, b1, w2, b2 = parameters
    loss = lm.cross_entropy(lm.relu(x @ w1 + b1) @ w2 + b2, y)
    optimizer.step(lm.gradient(loss, parameters))
    return loss


program = lm.jit(update) if sys.argv[2:] == ["jit"] else update


def step() -> float:
    """One step and its result on the host."""
    return float(program(x, y).item())


losses = [step()]
emit(ended=time.time(), value=losses[0])
before = counter.kernels
losses.append(step())
emit(kernels=counter.kernels - before, value=losses[1])
serve({"step": step})

"""One MLP training step with Adam in PyTorch, eager. Argument: the .npz of `mlp_data`."""

from __future__ import annotations

import sys
import time

import torch

from bench.programs.mlp_data import LEARNING_RATE, PARAMETERS, read
from bench.programs.protocol import emit, serve

data = read(sys.argv[1])
parameters = [torch.from_numpy(data[name]).requires_grad_() for name in PARAMETERS]
x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)


def step() -> float:
    """One step; the loss before it."""
    w1, b1, w2, b2 = parameters
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(torch.relu(x @ w1 + b1) @ w2 + b2, y)
    loss.backward()
    optimizer.step()
    return float(loss.item())


losses = [step()]
emit(ended=time.time(), value=losses[0])
losses.append(step())
emit(kernels=None, value=losses[1])
serve({"step": step})

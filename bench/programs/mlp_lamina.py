"""One MLP training step with Adam in lamina, unjitted. Argument: the .npz of `mlp_data`."""

from __future__ import annotations

import sys
import time

import lamina as lm
from bench.programs.mlp_data import LEARNING_RATE, PARAMETERS, read
from bench.programs.protocol import emit, serve
from lamina.pipeline import counter

data = read(sys.argv[1])
parameters = [lm.asarray(data[name]) for name in PARAMETERS]
means = [lm.zeros(one.shape).contiguous() for one in parameters]
squares = [lm.zeros(one.shape).contiguous() for one in parameters]
count = lm.asarray(0.0)
x, y = lm.asarray(data["x"]), lm.asarray(data["y"])


def step() -> float:
    """One step; the loss before it."""
    w1, b1, w2, b2 = parameters
    loss = lm.cross_entropy(lm.relu(x @ w1 + b1) @ w2 + b2, y)
    count.assign(count + 1)
    gradients = lm.gradient(loss, parameters)
    for one, mean, square, gradient in zip(parameters, means, squares, gradients, strict=True):
        mean.assign(0.9 * mean + 0.1 * gradient)
        square.assign(0.999 * square + 0.001 * gradient * gradient)
        unbiased = mean / (1 - 0.9**count)
        scale = lm.sqrt(square / (1 - 0.999**count)) + 1e-8
        one.assign(one - LEARNING_RATE * unbiased / scale)
    lm.realize(loss, count, *means, *squares, *parameters)
    return float(loss.item())


losses = [step()]
emit(ended=time.time(), value=losses[0])
before = counter.kernels
losses.append(step())
emit(kernels=counter.kernels - before, value=losses[1])
serve({"step": step})

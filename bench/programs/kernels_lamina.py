"""Single kernels in lamina. Arguments: the seed, a folder for results; LAMINA_THREADS counts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import lamina as lm
from bench.programs.kernel_data import SHAPES, key, make
from bench.programs.protocol import emit, serve
from lamina.pipeline import profile

FUNCTIONS: dict[str, Callable[..., lm.Tensor]] = {
    "gemm": lambda a, b: a @ b,
    "softmax": lambda a: lm.softmax(a, axis=-1),
    "layer_norm": lambda a: lm.layer_norm(a, (1024,)),
    "gelu": lambda a: 0.5 * a * (1 + lm.tanh(0.7978845608 * (a + 0.044715 * a * a * a))),
    "sum": lambda a: lm.sum(a),
    "conv": lambda a, b: lm.conv2d(a, b, padding=1),
}


def bound(name: str) -> Callable[[], float]:
    """The kernel on its own inputs: from the call to the computed result."""
    inputs = [lm.asarray(array) for array in make(name, int(sys.argv[1]))]
    function = FUNCTIONS[name.split()[0]]
    np.save(Path(sys.argv[2]) / f"{key(name)}.npy", function(*inputs).numpy())
    with profile() as records:
        lm.realize(function(*inputs))
    kernels = sum(one.seconds for one in records)

    def step() -> float:
        lm.realize(function(*inputs))
        return kernels

    return step


steps = {key(name): bound(name) for name in SHAPES}
emit(ready=True)
serve(steps)

"""Single kernels in PyTorch. Arguments: the seed, a folder for results, threads (0: all)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from bench.programs.kernel_data import SHAPES, key, make
from bench.programs.protocol import emit, serve

FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "gemm": lambda a, b: a @ b,
    "softmax": lambda a: torch.softmax(a, -1),
    "layer_norm": lambda a: functional.layer_norm(a, (1024,)),
    "gelu": lambda a: functional.gelu(a, approximate="tanh"),
    "sum": lambda a: a.sum(),
    "conv": lambda a, b: functional.conv2d(a, b, padding=1),
}


def bound(name: str) -> Callable[[], None]:
    """The kernel on its own inputs."""
    inputs = [torch.from_numpy(array) for array in make(name, int(sys.argv[1]))]
    function = FUNCTIONS[name.split()[0]]
    np.save(Path(sys.argv[2]) / f"{key(name)}.npy", function(*inputs).numpy())

    def step() -> None:
        function(*inputs)

    return step


torch.set_grad_enabled(False)
if int(sys.argv[3]):
    torch.set_num_threads(int(sys.argv[3]))
steps = {key(name): bound(name) for name in SHAPES}
emit(ready=True)
serve(steps)

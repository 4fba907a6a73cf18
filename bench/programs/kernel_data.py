"""The inputs of single kernels, equal in every framework for one seed."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "gemm 256": ((256, 256), (256, 256)),
    "gemm 512": ((512, 512), (512, 512)),
    "gemm 1024": ((1024, 1024), (1024, 1024)),
    "softmax 4096x1024": ((4096, 1024),),
    "layer_norm 4096x1024": ((4096, 1024),),
    "gelu 4M": ((4 << 20,),),
    "sum 4096x4096": ((4096, 4096),),
    "conv 3x3 8x64x56x56": ((8, 64, 56, 56), (64, 64, 3, 3)),
}


def make(name: str, seed: int) -> list[Array]:
    """Normal float32 numbers for the kernel `name`; positive ones where they are summed up."""
    random = np.random.default_rng(seed)
    if name.startswith("sum"):
        return [random.random(shape, dtype=np.float32) for shape in SHAPES[name]]
    return [random.standard_normal(shape, dtype=np.float32) for shape in SHAPES[name]]


def key(name: str) -> str:
    """`name` as one word, for commands and file names."""
    return name.replace(" ", "_")

"""The training problem of the MLP programs: 784-512-10, a batch of 64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
PARAMETERS = ("w1", "b1", "w2", "b2")
LEARNING_RATE = 1e-3


def make(path: Path, seed: int) -> None:
    """Write random weights and one batch to `path` (.npz)."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray[Any, np.dtype[Any]]:
        return random.standard_normal(shape, dtype=np.float32)

    np.savez(
        path,
        w1=normal(784, 512) * np.float32(0.05),
        b1=normal(512) * np.float32(0.05),
        w2=normal(512, 10) * np.float32(0.05),
        b2=normal(10) * np.float32(0.05),
        x=normal(64, 784),
        y=random.integers(0, 10, 64),
    )


def read(path: str) -> Arrays:
    """What `make` wrote."""
    with np.load(path) as archive:
        return dict(archive)

"""A GPT-2-small with random weights in one flat file, and 64 random tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, TOKENS = 50257, 1024, 768, 12, 12, 64
_BLOCK = {
    "gain1": (WIDTH,), "bias1": (WIDTH,),
    "qkv": (WIDTH, 3 * WIDTH), "qkv_bias": (3 * WIDTH,),
    "out": (WIDTH, WIDTH), "out_bias": (WIDTH,),
    "gain2": (WIDTH,), "bias2": (WIDTH,),
    "up": (WIDTH, 4 * WIDTH), "up_bias": (4 * WIDTH,),
    "down": (4 * WIDTH, WIDTH), "down_bias": (WIDTH,),
}  # fmt: skip


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names and shapes of every weight, in the order of the file."""
    yield "tokens", (VOCABULARY, WIDTH)
    yield "positions", (CONTEXT, WIDTH)
    for layer in range(LAYERS):
        for name, shape in _BLOCK.items():
            yield f"{layer}.{name}", shape
    yield "gain", (WIDTH,)
    yield "bias", (WIDTH,)


def make(path: Path, seed: int) -> None:
    """Write the weights to `path` and the tokens beside it."""
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        for name, shape in shapes():
            values = random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
            if "gain" in name:
                values += 1
            values.tofile(file)
    random.integers(0, VOCABULARY, (1, TOKENS)).tofile(path.with_suffix(".ids"))


def read(path: str) -> tuple[dict[str, Array], Array]:
    """The weights, copied into memory one by one, and the tokens."""
    weights = {}
    with open(path, "rb") as file:
        for name, shape in shapes():
            size = int(np.prod(shape))
            weights[name] = np.fromfile(file, np.float32, size).reshape(shape)
    return weights, np.fromfile(Path(path).with_suffix(".ids"), np.int64).reshape(1, TOKENS)

"""Weights as blocks of small integers with scales: the way back from `lamina.io.blocks`.

Rows of float32 become the bytes of blocks of 32, as ggml's reference does it, to the last bit.
Source: https://github.com/ggml-org/llama.cpp, ggml/src/ggml-quants.c, ``quantize_row_*_ref``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lamina.errors import ArgumentError, ShapeError

__all__ = ["ENCODERS", "encode"]

_BLOCK = 32  # weights
_LEAST_SCALE = 1e-37


def encode(kind: str, weights: Any) -> Any:
    """The blocks of `weights`, NumPy's float32 (..., n), n a multiple of 32: uint8 (..., n / 32,
    bytes of a block). kind: one of `ENCODERS`.

    Raises ArgumentError for another kind, and ShapeError where rows are no whole blocks."""
    if kind not in ENCODERS:
        raise ArgumentError(f"{kind!r} is none of {', '.join(ENCODERS)}", operation="encode")
    if not weights.ndim or weights.shape[-1] % _BLOCK:
        raise ShapeError(
            f"{weights.shape}: {kind} needs rows of a multiple of {_BLOCK}", operation="encode"
        )
    blocks = weights.astype(np.float32).reshape((*weights.shape[:-1], -1, _BLOCK))
    return ENCODERS[kind](blocks)


def _q8_0(blocks: Any) -> Any:
    """The largest weight of a block becomes 127 or -127."""
    scales = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    numbers = _rounded(blocks * _inverses(scales))
    return np.concatenate([_halves(scales), numbers.astype(np.int8).view(np.uint8)], axis=-1)


def _q4_0(blocks: Any) -> Any:
    """The weight that is farthest from 0 becomes -8. Byte i has number i, and number i + 16 in its
    high half."""
    places = np.abs(blocks).argmax(axis=-1)[..., None]
    scales = np.take_along_axis(blocks, places, axis=-1) / np.float32(-8)
    # In float64, as the reference rounds once: some processors fuse the product and the sum.
    shifted = blocks.astype(np.float64) * _inverses(scales) + 8.5
    numbers = np.minimum(np.trunc(shifted), 15).astype(np.uint8)
    low, high = numbers[..., :16], numbers[..., 16:]
    return np.concatenate([_halves(scales), low | (high << 4)], axis=-1)


def _inverses(scales: Any) -> Any:
    """1 / scale; 0 for blocks of zeros, and where float32 has no inverse: as float16, these scales
    are 0."""
    return np.divide(1, scales, out=np.zeros_like(scales), where=np.abs(scales) > _LEAST_SCALE)


def _rounded(x: Any) -> Any:
    """To the nearest integer, ties away from 0, as C's roundf does."""
    size = np.abs(x)
    whole = np.floor(size)
    return np.copysign(whole + (size - whole >= 0.5), x)


def _halves(scales: Any) -> Any:
    """Scales (..., 1) as the bytes of float16: (..., 2)."""
    return scales.astype("<f2").view(np.uint8)


ENCODERS: dict[str, Callable[[Any], Any]] = {"Q8_0": _q8_0, "Q4_0": _q4_0}

"""Weights as blocks of small integers with scales; `lamina.io.blocks` decodes them.

Rows of float32 become the bytes of blocks. Those of Q8_0 and Q4_0 are the ones of ggml's reference,
to the last bit; those of Q4_K are found by the same search, in sums of another order.
Source: https://github.com/ggml-org/llama.cpp, ggml/src/ggml-quants.c, ``quantize_row_*_ref``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamina.errors import ArgumentError, ShapeError

__all__ = ["ENCODERS", "Encoder", "encode"]

_LEAST_SCALE = 1e-37


def encode(kind: str, weights: Any) -> Any:
    """The blocks of `weights`, NumPy's float32 (..., n), n a multiple of the weights of a block:
    uint8 (..., blocks, bytes of a block). kind: one of `ENCODERS`.

    Raises ArgumentError for another kind, and ShapeError where rows are no whole blocks."""
    if kind not in ENCODERS:
        raise ArgumentError(f"{kind!r} is none of {', '.join(ENCODERS)}", operation="encode")
    encoder = ENCODERS[kind]
    if not weights.ndim or weights.shape[-1] % encoder.weights:
        raise ShapeError(
            f"{weights.shape}: {kind} needs rows of a multiple of {encoder.weights}",
            operation="encode",
        )
    blocks = weights.astype(np.float32).reshape((*weights.shape[:-1], -1, encoder.weights))
    return encoder.encode(blocks)


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


def _q4_k(blocks: Any) -> Any:
    """A weight is scale * number - minimum, with numbers from 0 to 15. Each 32 weights have a scale
    and a minimum, which are numbers from 0 to 63 times two factors of the block."""
    groups = blocks.reshape((*blocks.shape[:-1], 8, 32))
    lines = _searched(groups)
    scales, scale_factors = _six_bits(lines.scales)
    minima, minimum_factors = _six_bits(-lines.minima)
    decoded_scales = _decoded_halves(scale_factors) * scales
    decoded_minima = _decoded_halves(minimum_factors) * minima
    shifted = groups + decoded_minima[..., None]
    numbers = _numbers(shifted, _inverses(decoded_scales)[..., None])
    low, high = numbers[..., 0::2, :], numbers[..., 1::2, :]  # of two groups in 32 bytes
    packed = (low | (high << 4)).reshape((*blocks.shape[:-1], 128))
    header = [_halves(scale_factors), _halves(minimum_factors), _packed_sixes(scales, minima)]
    return np.concatenate([*header, packed], axis=-1)


def _six_bits(values: Any) -> tuple[Any, Any]:
    """Values (..., 8), not negative, as numbers from 0 to 63 and their factor (..., 1)."""
    factors = values.max(axis=-1, keepdims=True) / np.float32(63)
    return np.minimum(np.rint(values * _inverses(factors)), 63).astype(np.uint8), factors


def _packed_sixes(scales: Any, minima: Any) -> Any:
    """12 bytes: 4 scales and 4 minima of 6 bits; of the 4 last of each, the low 4 bits in 4 bytes,
    and the high 2 bits above those first ones."""
    first = scales[..., :4] | ((scales[..., 4:] >> 4) << 6)
    second = minima[..., :4] | ((minima[..., 4:] >> 4) << 6)
    third = (scales[..., 4:] & 15) | ((minima[..., 4:] & 15) << 4)
    return np.concatenate([first, second, third], axis=-1)


@dataclass(frozen=True)
class _Lines:
    """Of each group, (...): weights are near scale * number + minimum, with a weighted sum of
    squares as the error; minima are not above 0."""

    scales: Any
    minima: Any
    errors: Any


_SPREADS = [15 + step / 10 for step in range(-10, 11)]  # numbers that weights are spread over


def _searched(groups: Any) -> _Lines:
    """The lines of groups (..., 32) with the least squares, of which errors of large weights count
    for more. The weights above the minimum are spread over 14 to 16 numbers, and the best line
    through them is kept; the next trial is from its minimum on."""
    root_mean_square = np.sqrt((groups * groups).mean(axis=-1, keepdims=True))
    importance = root_mean_square + np.abs(groups)
    minima, maxima = np.minimum(groups.min(axis=-1), 0), groups.max(axis=-1)
    scales = (maxima - minima) / np.float32(15)
    numbers = _numbers(groups - minima[..., None], _inverses(scales)[..., None])
    best = _Lines(scales, minima, _errors(groups, importance, numbers, scales, minima))
    for count in _SPREADS:
        inverses = np.float32(count) * _inverses(maxima - best.minima)
        numbers = _numbers(groups - best.minima[..., None], inverses[..., None])
        best = _better(best, _fitted(groups, importance, numbers))
    return best


def _fitted(groups: Any, importance: Any, numbers: Any) -> _Lines:
    """The line of least squares through the weights at their `numbers`. Where its minimum is above
    0, the one through 0; where all numbers are equal, one whose error is infinite.

    With sums S over a group, weighted by importance, of numbers n and weights w, the line solves
    ``S(nn) * scale + S(n) * minimum = S(nw)`` and ``S(n) * scale + S(1) * minimum = S(w)``."""
    weighted = importance * numbers
    s_1, s_n = importance.sum(axis=-1), weighted.sum(axis=-1)
    s_nn = (weighted * numbers).sum(axis=-1)
    s_w, s_nw = (importance * groups).sum(axis=-1), (weighted * groups).sum(axis=-1)
    determinant = s_1 * s_nn - s_n * s_n
    inverse = _inverses(determinant)
    scales = (s_1 * s_nw - s_w * s_n) * inverse
    minima = (s_nn * s_w - s_n * s_nw) * inverse
    is_above = minima > 0
    scales = np.where(is_above, s_nw * _inverses(s_nn), scales)
    minima = np.where(is_above, np.float32(0), minima)
    errors = _errors(groups, importance, numbers, scales, minima)
    return _Lines(scales, minima, np.where(determinant > 0, errors, np.inf))


def _better(old: _Lines, new: _Lines) -> _Lines:
    """Of each group the line with the smaller error."""
    is_better = new.errors < old.errors
    return _Lines(
        np.where(is_better, new.scales, old.scales),
        np.where(is_better, new.minima, old.minima),
        np.where(is_better, new.errors, old.errors),
    )


def _errors(groups: Any, importance: Any, numbers: Any, scales: Any, minima: Any) -> Any:
    """The sum of squares, weighted by importance, of each group's distances from its line."""
    distances = scales[..., None] * numbers + minima[..., None] - groups
    return (importance * distances * distances).sum(axis=-1)


def _numbers(shifted: Any, inverses: Any) -> Any:
    """The nearest numbers from 0 to 15."""
    return np.clip(np.rint(shifted * inverses), 0, 15).astype(np.uint8)


def _inverses(scales: Any) -> Any:
    """1 / scale; 0 for blocks of zeros, and where float32 has no inverse: as float16, these scales
    are 0."""
    return np.divide(1, scales, out=np.zeros_like(scales), where=np.abs(scales) > _LEAST_SCALE)


def _rounded(x: Any) -> Any:
    """To the nearest integer, ties away from 0, as C's roundf does."""
    magnitude = np.abs(x)
    whole = np.floor(magnitude)
    return np.copysign(whole + (magnitude - whole >= 0.5), x)


def _halves(scales: Any) -> Any:
    """Scales (..., 1) as the bytes of float16: (..., 2)."""
    return scales.astype("<f2").view(np.uint8)


def _decoded_halves(scales: Any) -> Any:
    """What the bytes of `_halves` decode to: float32 of float16."""
    return scales.astype(np.float16).astype(np.float32)


@dataclass(frozen=True)
class Encoder:
    """weights: of a block. encode: float32 (..., weights) to uint8 (..., bytes of a block)."""

    weights: int
    encode: Callable[[Any], Any]


ENCODERS: dict[str, Encoder] = {
    "Q8_0": Encoder(32, _q8_0),
    "Q4_0": Encoder(32, _q4_0),
    "Q4_K": Encoder(256, _q4_k),
}

"""Rows of signals: discrete Fourier transforms as products with a matrix, and filter banks.

The matrix is computed on the host in float64. A product takes length² steps instead of those of a
fast transform, which for the frames of speech and music (400 to 2,048) is one matrix product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import check_table, numpy_dtype, tensor

Array = np.ndarray[Any, Any]


def _as_real(matrix: Array) -> Array:
    """Complex (m, n) as a map of pairs (real, imaginary): (m, 2, n, 2)."""
    columns = [[matrix.real, -matrix.imag], [matrix.imag, matrix.real]]
    return np.array(columns).transpose(2, 0, 3, 1)


def _transform(size: int, length: int, inverse: bool, onesided: bool) -> Array:
    """The matrix from `size` elements to the transform of `length`, complex."""
    count = length // 2 + 1 if onesided and not inverse else length
    check_table(size, count)
    # Products are reduced to one turn while they are integers, which are exact.
    turns = np.outer(np.arange(count), np.arange(size)) % length / length
    matrix: Array = np.exp((2j if inverse else -2j) * np.pi * turns)
    if inverse:
        matrix = matrix / length
        if onesided:
            # Each frequency stands for its mirror image too, except for 0 and half of `length`.
            mirrored = (np.arange(size) > 0) & (2 * np.arange(size) < length)
            matrix = matrix * np.where(mirrored, 2, 1)
    return matrix


def fourier(x: Tensor, length: int | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
    """The transform along `axis` of x, (..., 1) real or (..., 2) complex; the result has pairs
    (real, imaginary), or is real for the inverse of a one-sided transform. Elements are cut off or
    zeros are added up to `length`."""
    axis = axis % x.ndim
    size = x.shape[axis]
    to_real = inverse and onesided
    if length is None:
        length = 2 * (size - 1) if to_real else size
    used = min(size, length // 2 + 1 if to_real else length)
    matrix = _as_real(_transform(used, length, inverse, onesided))
    matrix = matrix[:, : 1 if to_real else 2, :, : x.shape[-1]]
    count, parts = matrix.shape[:2]
    dtype = x.dtype if x.dtype is lm.float64 else lm.float32
    lines = lm.moveaxis(lm.take(x, lm.arange(used), axis=axis), axis, -2).cast(dtype)
    rows = lm.reshape(lines, (*lines.shape[:-2], used * x.shape[-1]))
    flat = lm.asarray(matrix.reshape(count * parts, -1).T.copy(), dtype=dtype)
    result = lm.reshape(lm.matmul(rows, flat), (*lines.shape[:-2], count, parts))
    return lm.moveaxis(result, -2, axis).cast(x.dtype)


def _length(context: Context, value: Any) -> int | None:
    return None if value is None else context.integers(value)[0]


@row("DFT", since=17)
def dft_along_attribute(
    context: Context, x: Any, length: Any = None, *, axis: int = 1, inverse: int = 0,
    onesided: int = 0,
) -> Any:  # fmt: skip
    return fourier(tensor(x), _length(context, length), axis, bool(inverse), bool(onesided))


@row("DFT", since=20)
def dft(
    context: Context, x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0,
    onesided: int = 0,
) -> Any:  # fmt: skip
    along = -2 if axis is None else context.integers(axis)[0]
    return fourier(tensor(x), _length(context, length), along, bool(inverse), bool(onesided))


@row("STFT")
def stft(
    context: Context, x: Any, step: Any, window: Any = None, length: Any = None, *,
    onesided: int = 1,
) -> Any:  # fmt: skip
    """(N, L, 1 or 2) to (N, frames, frequencies, 2): transforms of frames each `step` elements."""
    signal, hop = tensor(x), context.integers(step)[0]
    if length is not None:
        size = context.integers(length)[0]
    else:
        size = signal.shape[1] if window is None else window.shape[0]
    count = 1 + (signal.shape[1] - size) // hop
    check_table(count, size)
    places = np.arange(count)[:, None] * hop + np.arange(size)
    taken = lm.take(signal, lm.asarray(places.reshape(-1)), axis=1)
    frames = lm.reshape(taken, (signal.shape[0], count, size, signal.shape[2]))
    if window is not None:
        frames = frames * lm.reshape(tensor(window), (-1, 1))
    return fourier(frames, size, 2, False, bool(onesided))


@row("MelWeightMatrix")
def mel_weights(
    context: Context, bins: Any, length: Any, rate: Any, lowest: Any, highest: Any, *,
    output_datatype: int = 1,
) -> Any:  # fmt: skip
    """(length // 2 + 1, bins): triangles whose corners are equally apart on the mel scale, of
    ``2595 log10(1 + hertz / 700)`` (O'Shaughnessy 1987, "Speech communication")."""
    count, size = context.integers(bins)[0], context.integers(length)[0]
    low, high = (
        2595 * np.log10(1 + float(context.host(edge)) / 700) for edge in (lowest, highest)
    )
    check_table(size, count)
    mels = low + np.arange(count + 2) * ((high - low) / (count + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    corners = ((size + 1) * hertz // float(context.host(rate))).astype(int)
    begin, middle, end = corners[:-2], corners[1:-1], corners[2:]
    at = np.arange(size // 2 + 1)[:, None]
    # A side without width is only its corner, of height 1.
    rising = np.where(middle > begin, (at - begin) / np.maximum(middle - begin, 1), at == middle)
    falling = (end - at) / np.maximum(end - middle, 1)
    weights = np.where(at < middle, rising, np.where(end > middle, falling, rising))
    inside = (at >= begin) & (at <= np.maximum(middle, end))
    return np.where(inside, weights, 0).astype(numpy_dtype(output_datatype))

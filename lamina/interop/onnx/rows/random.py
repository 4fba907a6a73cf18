"""Rows of random numbers.

ONNX leaves the generator open. Without a seed lamina's generator draws (see `lm.manual_seed`).
With a seed, a float, a node draws the same numbers in each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.casts import converted
from lamina.interop.onnx.values import dtype_of, numpy_dtype, tensor


def key_of(seed: float | None) -> Tensor | None:
    """The key that a seed stands for: the seeds 0.5 and 0 are different."""
    if seed is None:
        return None
    return lm.random.key(int(np.float32(seed).view(np.uint32)))


@row("RandomUniform")
def random_uniform(
    context: Context, *, shape: Sequence[int], dtype: int = 1, high: float = 1.0, low: float = 0.0,
    seed: float | None = None,
) -> Any:  # fmt: skip
    values = lm.random.uniform(tuple(shape), key=key_of(seed)) * (high - low) + low
    return converted(context, values, numpy_dtype(dtype))


@row("RandomNormal")
def random_normal(
    context: Context, *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0,
    scale: float = 1.0, seed: float | None = None,
) -> Any:  # fmt: skip
    values = lm.random.normal(tuple(shape), key=key_of(seed)) * scale + mean
    return converted(context, values, numpy_dtype(dtype))


def _dtype_like(x: Any, dtype: int | None) -> int:
    from onnx.helper import np_dtype_to_tensor_dtype

    return np_dtype_to_tensor_dtype(dtype_of(x)) if dtype is None else dtype


@row("RandomUniformLike")
def random_uniform_like(
    context: Context, x: Any, *, dtype: int | None = None, **options: Any
) -> Any:
    return random_uniform(context, shape=x.shape, dtype=_dtype_like(x, dtype), **options)


@row("RandomNormalLike")
def random_normal_like(
    context: Context, x: Any, *, dtype: int | None = None, **options: Any
) -> Any:
    return random_normal(context, shape=x.shape, dtype=_dtype_like(x, dtype), **options)


@row("Multinomial")
def multinomial(
    context: Context, x: Any, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Any:
    """(N, classes) of logarithms of weights to (N, sample_size) classes, by the largest of the
    logarithms plus noise of Gumbel's distribution."""
    logits = tensor(x).cast(lm.float32)
    batch, classes = logits.shape
    noise = lm.random.gumbel((batch, sample_size, classes), key=key_of(seed))
    drawn = lm.argmax(logits[:, None, :] + noise, axis=-1)
    return converted(context, drawn, numpy_dtype(dtype))

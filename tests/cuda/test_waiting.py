"""Values that wait for the products of the next tile before they become results: what a GPU
computes of them, and which values these are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.runtime.source import KERNELS
from tests.cuda.test_tiles import run, text_of, wide


def gelu(x: Any) -> Any:
    if isinstance(x, Tensor):
        return lm.gelu(x)
    return x * (1 + np.vectorize(math.erf)(x * 0.5**0.5)) / 2


def double(x: Any) -> Any:
    return x.cast(lm.float64) if isinstance(x, Tensor) else x


def eighths(x: Any) -> Any:
    """Eighths, toward zero. Sums in float32 and results of 16 bits may be on the other side of a
    whole number than exact ones: 150.99 is 151.0 in float16. In float16 that is one eighth, which
    the tolerance of `run` covers: of the largest, about 900 eighths, it is 1.8."""
    return (x * 8).cast(lm.int16) if isinstance(x, Tensor) else np.trunc(x * 8)


# Of 16-bit factors, a row, what has as many elements as the product, and a column. The number is
# that of a thread's sums in a slice; 0 where nothing of 16 bits tells all results.
FORMS: dict[str, tuple[Callable[..., object], int]] = {
    "plain": (lambda a, b, c, r, s: a @ b, 16),
    "turned": (lambda a, b, c, r, s: (a @ b).T, 16),
    "bias": (lambda a, b, c, r, s: a @ b + c, 16),
    "rest": (lambda a, b, c, r, s: a @ b + c + r, 16),
    "wide": (lambda a, b, c, r, s: wide(a @ b) + wide(c), 16),
    "known twice": (lambda a, b, c, r, s: (wide(a @ b) + 1, a @ b), 16),
    "long": (lambda a, b, c, r, s: gelu(a @ b + c), 8),
    "long, then a row and a column": (lambda a, b, c, r, s: gelu(a @ b + c) * c + s, 8),
    "long, then the rest": (lambda a, b, c, r, s: gelu(a @ b) * r, 8),
    "long of a column": (lambda a, b, c, r, s: gelu(a @ b + s) * s, 8),
    "long, twice": (lambda a, b, c, r, s: (a @ b + c, gelu(a @ b + c)), 8),
    "signed numbers": (lambda a, b, c, r, s: eighths(a @ b), 16),
    "of 32 bits": (lambda a, b, c, r, s: gelu(wide(a) @ wide(b)), 0),
    "by elements": (lambda a, b, c, r, s: double(a @ b), 0),
}


def shapes(m: int, k: int, n: int) -> list[tuple[int, ...]]:
    return [(m, k), (k, n), (n,), (m, n), (m, 1)]


# More tiles than multiprocessors, of 128 columns and of 256, the last ones not whole, and steps of
# 64 elements: too few for slices, as few as results without and with long arithmetic need, more.
SIZES = [*((1600, 64 * steps - 24, 2824) for steps in (7, 8, 12, 13)),
         *((4200, 64 * steps - 24, 2040) for steps in (12, 20))]  # fmt: skip


@pytest.mark.parametrize("dtype", [lm.bfloat16, lm.float16])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.usefixtures("device")
def test_results_of_several_tiles_a_block(
    name: str, size: tuple[int, int, int], dtype: lm.DType
) -> None:
    run(FORMS[name][0], shapes(*size), dtype)


@pytest.mark.parametrize("name", FORMS)
def test_what_waits(name: str) -> None:
    """The last value before long arithmetic."""
    form, size = FORMS[name]
    text = text_of(form, shapes(3000, 2000, 3208), lm.bfloat16).partition(KERNELS)[2]
    slices = text.count("const auto store_slice")
    assert text.count(" kept.put(") == slices * size
    assert (slices > 0) == (size > 0)
    if slices:  # a text of steps beside short slices, one for each long slice, and of the others
        assert text.count("next_step();") == (slices if size == 8 else 1) + 1
    if size == 8:
        _, _, slices_and_tiles = text.partition("const auto store_slice0")
        of_slices, _, of_tiles = slices_and_tiles.partition("for (u32 tile")
        assert "short_" in of_slices
        assert "short_" not in of_tiles

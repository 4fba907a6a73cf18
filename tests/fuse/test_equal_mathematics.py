"""Equal mathematics gets equal kernels, however it is spelled.

A kernel may not depend on which function of lamina built its graph. For each function: spellings by
hand that a user might write, each compiled for CUDA and for the CPU. Where a spelling still gets
another text, the table says why; the test fails too when that has stopped being true.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import lamina as lm
from lamina.core.dtypes import DType
from tests.replay.text import normalised

Function = Callable[..., lm.Tensor]
DEVICES = ("cuda:0", "cpu")
ROOT_HALF = 0.5**0.5

DIVIDES = "a division rounds once, the function's product with a reciprocal twice"
FINITE = "the function keeps a finite maximum for rows of -inf, and leaves out ignore_index"
BY_ROOT_TWO = "x / sqrt(2) rounds otherwise than x * sqrt(0.5)"
BY_POWER = "a power with a negative exponent is the library's"
OTHER_TERMS = "log(sum) + max is added before x is subtracted, which rounds differently"
ONE_HOT = "a sum of products with a one-hot mask reads whole rows, the function one element"
DEFERRED = "the function divides after the second product, and keeps rows without keys from NaN"


@dataclass(frozen=True)
class Spelling:
    """A function by hand, and why its text differs from the reference's ("" where it is equal)."""

    function: Function
    difference: str = ""


@dataclass(frozen=True)
class Family:
    """A function of lamina and its spellings, on arguments of these shapes and dtypes."""

    reference: Function
    spellings: tuple[Spelling, ...]
    arguments: tuple[tuple[tuple[int, ...], DType], ...]


def shifted(x: lm.Tensor) -> lm.Tensor:
    return x - lm.max(x, axis=1, keepdims=True)


def divided(e: lm.Tensor) -> lm.Tensor:
    return e / lm.sum(e, axis=1, keepdims=True)


def times_reciprocal(e: lm.Tensor) -> lm.Tensor:
    return e * (1 / lm.sum(e, axis=1, keepdims=True))


def reciprocal_times(e: lm.Tensor) -> lm.Tensor:
    return lm.reciprocal(e.sum(axis=1))[:, None] * e


def centred(x: lm.Tensor) -> lm.Tensor:
    return x - lm.mean(x, axis=1, keepdims=True)


def inverse_deviation(c: lm.Tensor) -> lm.Tensor:
    return lm.rsqrt(1e-5 + lm.mean(c**2, axis=1, keepdims=True))


def deviation(x: lm.Tensor) -> lm.Tensor:
    return lm.sqrt(lm.var(x, axis=1, keepdims=True) + 1e-5)


def chosen(x: lm.Tensor, classes: lm.Tensor) -> lm.Tensor:
    return lm.take_along_axis(x, classes[:, None], axis=1)[:, 0]


def in_float32(function: Function) -> Function:
    """`function` in float32, and its result in the dtype of the first argument."""

    def spelled(x: lm.Tensor, *rest: Any) -> lm.Tensor:
        return function(x.astype(lm.float32), *rest).astype(x.dtype)

    return spelled


def rows_and_columns() -> tuple[lm.Tensor, lm.Tensor]:
    return lm.arange(256)[:, None], lm.arange(256)[None, :]


def by_hand(mask: Callable[[lm.Tensor], lm.Tensor] = lambda s: s) -> Function:
    return lambda q, k, v: lm.softmax(mask(q @ k.mT * 0.125), axis=-1) @ v


def masked(seen: Callable[[Any, Any], lm.Tensor]) -> Callable[[lm.Tensor], lm.Tensor]:
    return lambda s: lm.where(seen(*rows_and_columns()), s, -lm.inf)


def later(scores: lm.Tensor) -> lm.Tensor:
    row, column = rows_and_columns()
    return lm.broadcast_to(row < column, scores.shape)


MATRIX = ((64, 1000), lm.float32)
HALVES = ((64, 1024), lm.bfloat16)
HEADS = ((2, 4, 256, 64), lm.float32)
CLASSES = ((64,), lm.int64)
VECTOR = ((1000,), lm.float32)
GELU = (
    Spelling(lambda x: x * 0.5 * (1 + lm.erf(x * ROOT_HALF))),
    Spelling(lambda x: 0.5 * x * (lm.erf(ROOT_HALF * x) + 1)),
    Spelling(lambda x: x * (0.5 * lm.erf(ROOT_HALF * x) + 0.5)),
    Spelling(lambda x: (1 + lm.erf(x * ROOT_HALF)) * x / 2),
    Spelling(lambda x: x * ((lm.erf(x * ROOT_HALF) + 1) * 0.5)),
)
SILU = (
    Spelling(lambda x: x * lm.sigmoid(x)),
    Spelling(lambda x: lm.sigmoid(x) * x),
    Spelling(lambda x: x / (1 + lm.exp(-x))),
    Spelling(lambda x: x * (1 / (lm.exp(-x) + 1))),
)


def halves(spellings: tuple[Spelling, ...]) -> tuple[Spelling, ...]:
    """The same for bfloat16, computed in float32 as the functions are."""
    return tuple(Spelling(in_float32(each.function), each.difference) for each in spellings)


FAMILIES = {
    "sigmoid": Family(
        lm.sigmoid,
        (
            Spelling(lambda x: 1 / (1 + lm.exp(-x))),
            Spelling(lambda x: 1 / (lm.exp(-x) + 1)),
            Spelling(lambda x: lm.reciprocal(1 + lm.exp(-x))),
            Spelling(lambda x: (1 + lm.exp(-x)) ** -1, BY_POWER),
        ),
        (MATRIX,),
    ),
    "silu": Family(lm.silu, SILU, (MATRIX,)),
    "silu in bfloat16": Family(lm.silu, halves(SILU), (HALVES,)),
    "gelu": Family(
        lm.gelu,
        (*GELU, Spelling(lambda x: x * 0.5 * (1 + lm.erf(x / math.sqrt(2.0))), BY_ROOT_TWO)),
        (MATRIX,),
    ),
    "gelu in bfloat16": Family(lm.gelu, halves(GELU), (HALVES,)),
    "softmax": Family(
        lambda x: lm.softmax(x, axis=1),
        (
            Spelling(lambda x: times_reciprocal(lm.exp(shifted(x)))),
            Spelling(lambda x: times_reciprocal(lm.exp(-lm.max(x, axis=1, keepdims=True) + x))),
            Spelling(lambda x: reciprocal_times(lm.exp(shifted(x)))),
            Spelling(lambda x: divided(lm.exp(shifted(x))), DIVIDES),
        ),
        (MATRIX,),
    ),
    "layer norm": Family(
        lambda x, w, b: lm.layer_norm(x, 1000, w, b),
        (
            Spelling(lambda x, w, b: (lambda c: c * inverse_deviation(c) * w + b)(centred(x))),
            Spelling(lambda x, w, b: (lambda c: b + w * (c * inverse_deviation(c)))(centred(x))),
            Spelling(lambda x, w, b: (lambda c: inverse_deviation(c) * c * w + b)(centred(x))),
            Spelling(lambda x, w, b: centred(x) / deviation(x) * w + b, DIVIDES),
        ),
        (MATRIX, VECTOR, VECTOR),
    ),
    "cross-entropy": Family(
        lm.cross_entropy,
        (
            Spelling(lambda x, t: lm.nll_loss(lm.log_softmax(x, axis=1), t), FINITE),
            Spelling(lambda x, t: -lm.mean(chosen(lm.log_softmax(x, axis=1), t)), FINITE),
            Spelling(lambda x, t: lm.mean(lm.logsumexp(x, axis=1) - chosen(x, t)), OTHER_TERMS),
            Spelling(
                lambda x, t: -lm.mean(
                    lm.sum(lm.log_softmax(x, axis=1) * lm.one_hot(t, 1000), axis=1)
                ),
                ONE_HOT,
            ),
        ),
        (MATRIX, CLASSES),
    ),
    "cross-entropy by hand": Family(
        lambda x, t: -lm.mean(chosen(lm.log_softmax(x, axis=1), t)),
        (
            Spelling(lambda x, t: -(chosen(lm.log_softmax(x, axis=1), t).mean())),
            Spelling(lambda x, t: -(chosen(lm.log_softmax(x, axis=-1), t).sum() * (1 / 64))),
            Spelling(lambda x, t: -(chosen(lm.log_softmax(x, axis=1), t).sum() / 64)),
        ),
        (MATRIX, CLASSES),
    ),
    "attention": Family(
        lm.scaled_dot_product_attention,
        (
            Spelling(by_hand(), DEFERRED),
            Spelling(lambda q, k, v: lm.softmax(q @ k.mT / 8.0, axis=-1) @ v, DEFERRED),
            Spelling(lambda q, k, v: lm.softmax((q * 0.125) @ k.mT, axis=-1) @ v, DEFERRED),
        ),
        (HEADS,) * 3,
    ),
    "attention by hand": Family(
        by_hand(),
        (
            Spelling(lambda q, k, v: lm.softmax(q @ k.mT / 8.0, axis=-1) @ v),
            Spelling(lambda q, k, v: lm.softmax(0.125 * (q @ k.mT), axis=-1) @ v),
            Spelling(lambda q, k, v: lm.softmax(lm.matmul(q, k.mT) * 0.125, axis=-1) @ v),
        ),
        (HEADS,) * 3,
    ),
    "causal attention by hand": Family(
        by_hand(masked(lambda row, column: ~(row < column))),
        (
            Spelling(by_hand(masked(lambda row, column: column <= row))),
            Spelling(by_hand(masked(lambda row, column: row >= column))),
            Spelling(by_hand(masked(lambda row, column: ~(column > row)))),
            Spelling(by_hand(masked(lambda row, column: column < row + 1))),
            Spelling(by_hand(masked(lambda row, column: row + 1 > column))),
            Spelling(by_hand(masked(lambda row, column: ~(row + 1 <= column)))),
            Spelling(by_hand(masked(lambda row, column: row - column >= 0))),
            Spelling(by_hand(masked(lambda row, column: column - row < 1))),
            Spelling(by_hand(masked(lambda row, column: column.cast(lm.int32) <= row))),
            Spelling(by_hand(lambda s: lm.where(later(s), -lm.inf, s))),
        ),
        (HEADS,) * 3,
    ),
}
CASES = [
    pytest.param(family, spelling, device, id=f"{name}-{number}-{device}")
    for name, family in FAMILIES.items()
    for number, spelling in enumerate(family.spellings)
    for device in DEVICES
]


def texts(function: Function, family: Family, device: str) -> list[str]:
    """The kernels of a program, names and comments apart."""
    arguments = [lm.TensorSpec(shape, dtype) for shape, dtype in family.arguments]
    architecture = {} if device == "cpu" else {"arch": "sm_90a"}
    lowered = lm.jit(function).lower(*arguments, device=device, **architecture)
    return [normalised(kernel.source) for kernel in lowered.kernels]


@pytest.mark.parametrize(("family", "spelling", "device"), CASES)
def test_a_spelling_gets_the_kernels_of_the_function(
    family: Family, spelling: Spelling, device: str
) -> None:
    expected = texts(family.reference, family, device)
    spelled = texts(spelling.function, family, device)
    assert len(spelled) == len(expected)
    if spelling.difference:
        assert spelled != expected, f"equal by now; no longer true: {spelling.difference}"
    else:
        assert spelled == expected

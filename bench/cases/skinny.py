"""Products of a few rows with a large matrix, also with a block-quantised one.

Q8_0 keeps blocks of 32 weights along K as int8 with one float16 scale, Q4_0 as two numbers of 4
bits in a byte, less 8. Both are decoded inside the product; the activations stay float32, or are
rounded to int8 with a scale for each block, so that integers are multiplied. The weights then lie
as that needs them: of 16 rows in turn, 4 neighbours along K.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.cases import ANY, REFERENCE, Array, Case, Group
from bench.report import BEST, SHARE, Target

SIZE, BLOCK, LANES = 4096, 32, 16
BLOCKS = SIZE // BLOCK
PEERS = ("numpy", "torch", "jax")


def _case(m: int, transposed: bool) -> Case:
    goal = 1.3 if transposed and m > 1 else 1.0
    return Case(
        f"M={m} {'x @ W.T' if transposed else 'x @ W'}",
        ((m, SIZE), (SIZE, SIZE)),
        {ANY: (lambda _, x, w: x @ w.T) if transposed else (lambda _, x, w: x @ w)},
        PEERS,
        ("read", 4.0 * SIZE * SIZE),
        (Target(goal), Target(0.9, SHARE)) if m == 1 else (Target(goal),),
        quick=m < 32,
    )


def _scaled(random: np.random.Generator) -> tuple[Array, Array]:
    """Activations, and a float16 scale for every block."""
    x = random.standard_normal((1, SIZE), dtype=np.float32)
    scales = random.uniform(0.001, 0.002, (SIZE, BLOCKS)).astype(np.float16)
    return x, scales


def _q8(random: np.random.Generator) -> list[Array]:
    x, scales = _scaled(random)
    numbers = random.integers(-127, 128, (SIZE, BLOCKS, BLOCK), np.int8)
    return [x, numbers, scales, _float32(numbers, scales)]


def _q4(random: np.random.Generator) -> list[Array]:
    x, scales = _scaled(random)
    pairs = random.integers(0, 256, (SIZE, BLOCKS, BLOCK // 2), np.uint8)
    numbers = np.concatenate((pairs & 15, pairs >> 4), axis=-1).astype(np.int8) - np.int8(8)
    return [x, pairs, scales, _float32(numbers, scales)]


def _interleaved(quantised: Any) -> Any:
    """The inputs of `quantised`, the weights of 16 rows in turn; activations that 8 bits hold, so
    that every column has the same result."""

    def inputs(random: np.random.Generator) -> list[Array]:
        _, numbers, scales, w = quantised(random)
        x = random.integers(-127, 128, (BLOCKS, BLOCK)).astype(np.float32)
        x[:, 0] = 127
        x *= np.exp2(random.integers(-9, -5, (BLOCKS, 1))).astype(np.float32)
        groups = numbers.reshape(SIZE // LANES, LANES, BLOCKS, -1, 4).transpose(0, 2, 3, 1, 4)
        scales = scales.reshape(SIZE // LANES, LANES, BLOCKS).transpose(0, 2, 1)
        return [x.reshape(1, SIZE), *map(np.ascontiguousarray, (groups, scales)), w]

    return inputs


def _float32(numbers: Array, scales: Array) -> Array:
    values: Array = numbers.astype(np.float32) * scales.astype(np.float32)[..., None]
    return values.reshape(SIZE, SIZE)


def _lamina_q8(lm: Any, x: Any, numbers: Any, scales: Any, _: Any) -> Any:
    w = numbers.cast(lm.float32) * scales.cast(lm.float32)[..., None]
    return x @ w.reshape((SIZE, SIZE)).T


def _lamina_q4(lm: Any, x: Any, pairs: Any, scales: Any, _: Any) -> Any:
    shifts = lm.asarray([[0], [4]], dtype=lm.uint8)  # the low halves of a block come first
    numbers = (pairs[:, :, None, :] >> shifts) & 15
    w = (numbers.cast(lm.float32) - 8.0) * scales.cast(lm.float32)[..., None, None]
    return x @ w.reshape((SIZE, SIZE)).T


def _rounded(lm: Any, x: Any) -> tuple[Any, Any]:
    """Blocks of activations as int8, and their scales."""
    blocks = x.reshape((BLOCKS, BLOCK))
    scales = lm.max(lm.abs(blocks), axis=1, keepdims=True) / 127.0
    return lm.round(blocks / scales).cast(lm.int8).contiguous(), scales


def _integers(lm: Any, numbers: Any, x: Any, axis: tuple[int, ...]) -> Any:
    return lm.sum(numbers.cast(lm.int32) * x.cast(lm.int32), axis=axis, dtype=lm.int32)


def _scaled_sum(lm: Any, blocks: Any, scales: Any, x_scales: Any) -> Any:
    """Rows of the product, of integers for each block of 32."""
    parts = blocks.cast(lm.float32) * scales.cast(lm.float32) * x_scales
    return lm.sum(parts, axis=1).reshape((1, SIZE))


def _lamina_q8_rounded(lm: Any, x: Any, numbers: Any, scales: Any, _: Any) -> Any:
    x, x_scales = _rounded(lm, x)
    blocks = _integers(lm, numbers, x.reshape((BLOCKS, BLOCK // 4, 1, 4)), (2, 4))
    return _scaled_sum(lm, blocks, scales, x_scales)


def _lamina_q4_rounded(lm: Any, x: Any, pairs: Any, scales: Any, _: Any) -> Any:
    shifts = lm.asarray([0, 4], dtype=lm.uint8).reshape((2, 1, 1, 1))
    numbers = (pairs[:, :, None] >> shifts) & 15
    x, x_scales = _rounded(lm, x)
    blocks = _integers(lm, numbers, x.reshape((BLOCKS, 2, BLOCK // 8, 1, 4)), (2, 3, 5))
    eights = 8 * lm.sum(x.cast(lm.int32), axis=1, keepdims=True, dtype=lm.int32)
    return _scaled_sum(lm, blocks - eights, scales, x_scales)


def _product(_: Any, x: Any, numbers: Any, scales: Any, w: Any) -> Any:
    return x @ w.T


def _quantised(name: str, inputs: Any, function: Any, nbytes: float, goal: float) -> Case:
    columns = ("lamina f32", "torch")
    functions = {"lamina": function, "lamina f32": _product, ANY: _product, REFERENCE: _product}
    bound = ("read", nbytes * SIZE * SIZE)
    return Case(name, inputs, functions, columns, bound, (Target(goal, BEST),), quick=True)


GROUP = Group(
    f"Products of M rows with {SIZE} x {SIZE} weights",
    (
        *(_case(m, transposed) for m in (1, 8, 32) for transposed in (False, True)),
        _quantised("M=1, W in Q8_0", _q8, _lamina_q8, (BLOCK + 2) / BLOCK, 2.0),
        _quantised("M=1, W in Q4_0", _q4, _lamina_q4, (BLOCK / 2 + 2) / BLOCK, 2.3),
        _quantised(
            "M=1, W in Q8_0, x in 8 bits",
            _interleaved(_q8),
            _lamina_q8_rounded,
            (BLOCK + 2) / BLOCK,
            3.0,
        ),
        _quantised(
            "M=1, W in Q4_0, x in 8 bits",
            _interleaved(_q4),
            _lamina_q4_rounded,
            (BLOCK / 2 + 2) / BLOCK,
            5.0,
        ),
    ),
    (
        "Peers of the quantised products multiply with the same weights in float32; "
        "`lamina f32` is lamina doing that.",
        "The share is of the time in which the machine reads the weights.",
        "Where x is rounded to 8 bits, it is made of numbers that 8 bits hold, so that the results "
        "of all columns are the same.",
    ),
)

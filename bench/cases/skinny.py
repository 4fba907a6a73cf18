"""Products of a few rows with a large matrix, also with a block-quantised one.

Q8_0 keeps blocks of 32 weights along K as int8 with one float16 scale, Q4_0 as two numbers of 4
bits in a byte, less 8. Both are decoded inside the product; the activations stay float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.cases import ANY, REFERENCE, Array, Case, Group
from bench.report import BEST, SHARE, Target

SIZE, BLOCK = 4096, 32
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
    ),
    (
        "Peers of the quantised products multiply with the same weights in float32; "
        "`lamina f32` is lamina doing that.",
        "The share is of the time in which the machine reads the weights.",
    ),
)

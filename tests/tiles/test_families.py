"""Every family of tile programs computes what NumPy does, at small and ragged sizes:
factors that are computed as they fill tiles, windows of convolutions, what epilogues read and where
they store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import DType
from lamina.tiles.program import (
    Epilogue,
    Fill,
    TileProgram,
    statements,
)
from lamina.tiles.text import parse, to_text
from lamina.tiles.values import (
    Elements,
    Gather,
    Position,
    View,
)
from tests.tiles.test_lower import lowered, run

Array = Any  # numpy.ndarray


@dataclass(frozen=True)
class Family:
    """A function with one product in tiles, and NumPy's.

    shapes: of the arguments. dtypes: of these. has: what its tile program has, besides views
    """

    function: Callable[..., Tensor]
    numpy: Callable[..., Array]
    shapes: list[tuple[int, ...]]
    dtypes: tuple[DType, ...] = (lm.bfloat16, lm.bfloat16)
    has: type[object] = View


def windows(image: Array, size: int, padding: int, stride: int) -> Array:
    """The windows of images with the channels first: (N, C, H, W) becomes (N, H', W', C * size *
    size)."""
    padded = np.pad(image, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    chosen = view[:, :, ::stride, ::stride].transpose(0, 2, 3, 1, 4, 5)
    return chosen.reshape(*chosen.shape[:3], -1)


def convolved(image: Array, weight: Array, padding: int = 0, stride: int = 1) -> Array:
    """A convolution of images with the channels first."""
    rows = windows(image, weight.shape[2], padding, stride)
    return (rows @ weight.reshape(len(weight), -1).T).transpose(0, 3, 1, 2)


def channels_last(function: Callable[..., Any], image: Any, weight: Any) -> Any:
    """A convolution of images with the channels last."""
    order = function(image.transpose(0, 3, 1, 2), weight)
    return order.transpose(0, 2, 3, 1)


def conv_last(padding: int, stride: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A convolution of lamina with the channels last."""

    def function(image: Tensor, weight: Tensor) -> Tensor:
        first = image.permute(0, 3, 1, 2)
        return lm.conv2d(first, weight, stride=stride, padding=padding).permute(0, 2, 3, 1)

    return function


def by_weight(up: Tensor, image: Tensor) -> Tensor:
    """The derivative of a convolution by windows of 3 x 3 by its weight, of 16 channels to 32."""
    weight = lm.zeros((32, 16, 3, 3), dtype=image.dtype)
    result = lm.conv2d(image, weight, padding=1)
    return lm.gradient((result * up).cast(lm.float32).sum(), [weight])[0]


def weight_of(up: Array, image: Array) -> Array:
    """The same in NumPy."""
    rows = windows(image, 3, 1, 1).reshape(-1, 16 * 9)
    return (up.transpose(1, 0, 2, 3).reshape(32, -1) @ rows).reshape(32, 16, 3, 3)


BOTH_F16 = (lm.float16, lm.float16)
FLOATS = (lm.float32, lm.float32)
FAMILIES: dict[str, Family] = {
    "computed factor": Family(
        lambda a, b: (a * 0.5) @ b, lambda a, b: (a * 0.5) @ b, [(70, 100), (100, 136)],
        has=Elements,
    ),
    "computed factor that lies across": Family(
        lambda a, b: (a.T * 0.5) @ b, lambda a, b: (a.T * 0.5) @ b, [(100, 72), (100, 136)],
        has=Elements,
    ),
    "both factors computed": Family(
        lambda a, b: lm.relu(a) @ (b + 1), lambda a, b: np.maximum(a, 0) @ (b + 1),
        [(33, 65), (65, 99)], BOTH_F16,
        has=Elements,
    ),
    "computed tf32": Family(
        lambda a, b: (a * 0.5) @ b, lambda a, b: (a * 0.5) @ b, [(70, 100), (100, 136)], FLOATS,
        has=Elements,
    ),
    "lower triangle": Family(
        lambda a, b: lm.tril(a) @ b, lambda a, b: np.tril(a) @ b, [(130, 130), (130, 72)]
    ),
    "dequantised": Family(
        lambda a, b: a @ b.cast(a.dtype), lambda a, b: a @ b, [(40, 128), (128, 64)],
        (lm.bfloat16, lm.int8),
        has=Elements,
    ),
    "rows by index": Family(
        lambda table, index, b: table[index] @ b, lambda table, index, b: table[index] @ b,
        [(9, 72), (50,), (72, 64)], (lm.bfloat16, lm.int64, lm.bfloat16),
        has=Elements,
    ),
    "rows and heads as one": Family(
        lambda a, b: lm.relu(a.permute(1, 0, 2)).reshape(60, -1) @ b,
        lambda a, b: np.maximum(a.transpose(1, 0, 2).reshape(60, -1), 0) @ b,
        [(5, 12, 64), (64, 72)],
    ),
    "few rows of results that lie apart": Family(
        lambda a, b: (a @ b).mT, lambda a, b: (a @ b).swapaxes(1, 2), [(7, 20, 64), (64, 72)],
    ),
    "few places of results, in float32": Family(
        lambda a, b: (a @ b).mT, lambda a, b: (a @ b).swapaxes(1, 2), [(9, 25, 48), (48, 40)],
        FLOATS,
    ),
    "small images, channels second": Family(
        lambda x, w: lm.conv2d(x.permute(0, 3, 1, 2), w, padding=1),
        lambda x, w: convolved(x.transpose(0, 3, 1, 2), w, 1), [(10, 4, 4, 16), (40, 16, 3, 3)],
        has=Elements,
    ),
    "windows": Family(
        lambda x, w: lm.conv2d(x, w), convolved, [(2, 16, 9, 9), (24, 16, 3, 3)],
        has=Elements,
    ),
    "padded windows of few channels": Family(
        lambda x, w: lm.conv2d(x, w, padding=1, stride=2),
        lambda x, w: convolved(x, w, 1, 2), [(4, 3, 17, 17), (40, 3, 5, 5)],
        has=Elements,
    ),
    "padded windows, channels last": Family(
        conv_last(1, 1), lambda x, w: channels_last(lambda x, w: convolved(x, w, 1), x, w),
        [(2, 7, 7, 64), (72, 64, 3, 3)], BOTH_F16,
        has=Elements,
    ),
    "strided windows, channels last": Family(
        conv_last(1, 2), lambda x, w: channels_last(lambda x, w: convolved(x, w, 1, 2), x, w),
        [(3, 9, 9, 24), (64, 24, 3, 3)],
        has=Elements,
    ),
    "derivative by weights": Family(
        by_weight, weight_of, [(2, 32, 8, 8), (2, 16, 8, 8)],
        has=Elements,
    ),
    "a mask of columns": Family(
        lambda a, b: lm.where(lm.arange(136) < 50, a @ b, 0.0),
        lambda a, b: np.where(np.arange(136) < 50, a @ b, 0), [(70, 64), (64, 136)],
        has=Position,
    ),
    "the number of a row": Family(
        lambda a, b: (a @ b) + lm.arange(70).cast(a.dtype)[:, None],
        lambda a, b: a @ b + np.arange(70)[:, None], [(70, 64), (64, 136)],
        has=Position,
    ),
    "a mask of slices of columns": Family(
        lambda a, b: lm.where(lm.arange(128) < 50, a @ b, 0.0),
        lambda a, b: np.where(np.arange(128) < 50, a @ b, 0),
        [(256, 512), (512, 128)],
        has=Position,
    ),
    "float32 results": Family(
        lambda a, b: (a @ b).cast(lm.float32) * 0.5, lambda a, b: a @ b * 0.5, [(70, 64), (64, 99)]
    ),
    "computed, of shared steps": Family(
        lambda a, b: (a * 0.5) @ b, lambda a, b: (a * 0.5) @ b, [(64, 7680), (7680, 64)],
        has=Elements,
    ),
    "a bias by index": Family(
        lambda a, b, bias, index: a @ b + bias[index][:, None],
        lambda a, b, bias, index: a @ b + bias[index][:, None],
        [(70, 64), (64, 136), (9,), (70,)], (lm.bfloat16, lm.bfloat16, lm.bfloat16, lm.int64),
        has=Gather,
    ),
    "results by heads": Family(
        lambda a, b: (a @ b).reshape(70, 8, 17).permute(1, 0, 2),
        lambda a, b: (a @ b).reshape(70, 8, 17).transpose(1, 0, 2), [(70, 64), (64, 136)],
    ),
    "results in a longer array": Family(
        lambda a, b: lm.pad(a @ b, [(3, 2), (0, 0)]), lambda a, b: np.pad(a @ b, ((3, 2), (0, 0))),
        [(70, 64), (64, 136)], 
    ),
    "a bias of some columns": Family(
        lambda a, b, bias: a @ b + lm.pad(bias, [(30, 6)]),
        lambda a, b, bias: a @ b + np.pad(bias, (30, 6)),
        [(70, 64), (64, 136), (100,)], (lm.bfloat16,) * 3,
        has=Gather,
    ),
}  # fmt: skip


def arrays_of(family: Family) -> list[Array]:
    """Small integers, whose sums of products are exact in float32; rows for an index."""
    draw = np.random.default_rng(5)
    return [
        draw.integers(0, 9, shape) if dtype is lm.int64
        else draw.integers(-2, 3, shape).astype(dtype.numpy)
        for shape, dtype in zip(family.shapes, family.dtypes, strict=True)
    ]  # fmt: skip


def kinds_of(program: TileProgram) -> set[type[object]]:
    """What fills tiles, and what epilogues compute with."""
    every = [one for role in program.roles for one in statements(role.body)]
    sources = {type(one.source) for one in every if isinstance(one, Fill)}
    return sources | {type(part) for one in every if isinstance(one, Epilogue) for part in one.body}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_numpys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = FAMILIES[name]
    of = lowered(family.function, family.shapes, family.dtypes, monkeypatch)
    programs = [one for one in of.planned.tiles.values() if isinstance(one, TileProgram)]
    assert family.has in kinds_of(programs[-1])
    assert parse(to_text(programs[-1])) == programs[-1]
    inputs = arrays_of(family)
    numbers = [one if one.dtype == np.int64 else one.astype(np.float32) for one in inputs]
    want = family.numpy(*numbers)
    for seed in range(2):
        got, report = run(of, inputs, seed)
        rounded = want.astype(got.dtype).astype(np.float32)
        np.testing.assert_array_equal(got.astype(np.float32).reshape(want.shape), rounded)
        assert not any(count for what, count in report.conflicts.items() if "mma" in what), report

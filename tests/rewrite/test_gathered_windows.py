"""Which windows of 16-bit products are stored for tensor cores, and that values stay."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lamina as lm
from lamina.core import dtypes
from lamina.core.dtypes import bfloat16
from lamina.core.options import Options
from lamina.frontend.differentiate import gradient
from lamina.frontend.tensor import Tensor
from lamina.frontend.tensor import leaf as differentiable
from lamina.fuse import layout
from lamina.graph.algebra import ALGEBRA
from lamina.graph.movement import MOVEMENT
from lamina.graph.open_calls import open_without_detach
from lamina.graph.rewrite import rewrite
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import substitute
from lamina.pipeline import compile_source
from lamina.schedule.gpu import gathered_windows as subject
from lamina.schedule.gpu.gathered_windows import gathered_windows
from tests.generators import leaf
from tests.rewrite.agreement import same_values

Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def short_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel takes no time by itself, so that small arrays are worth one."""
    monkeypatch.setattr(layout, "COPY_KERNEL", 0.0)


def row(numbers: int) -> int:
    """The numbers of a row in memory: whole chunks of 16 bytes, or 8 numbers."""
    return -(-numbers // 8) * 8


def simplified(node: Node) -> Node:
    return rewrite(substitute([node], {}, open_without_detach), (*ALGEBRA, *MOVEMENT))[0]


def convolved(image: Shape, filters: Shape, **how: Any) -> Node:
    x = Tensor.of(leaf(0, image, bfloat16), "interp")
    w = Tensor.of(leaf(1, filters, bfloat16), "interp")
    convolution = {3: lm.conv1d, 4: lm.conv2d, 5: lm.conv3d}[len(image)]
    return simplified(convolution(x, w, None, **how).node)


def gradient_of_filters(image: Shape, filters: Shape, **how: Any) -> Node:
    x = Tensor.of(leaf(0, image, bfloat16), "interp")
    w = differentiable(leaf(1, filters, bfloat16), "interp")
    result = lm.conv2d(x, w, None, **how)
    upstream = Tensor.of(leaf(2, result.shape, bfloat16), "interp")
    (slope,) = gradient(result, [w], upstream)
    return simplified(slope.node)


def stored(node: Node) -> list[Shape]:
    """The shapes of what is stored, without axes of one element."""
    after = rewrite([node], (gathered_windows,))
    shapes = [one.shape for one in toposort(after) if one.op is Op.CONTIGUOUS]
    return [tuple(size for size in shape if size > 1) for shape in shapes]


def check_values(before: Node) -> None:
    (after,) = rewrite([before], (gathered_windows,))
    assert rewrite([after], (gathered_windows,)) == [after]
    random = np.random.default_rng(0)
    leaves = [node for node in toposort([before]) if node.op is Op.BUFFER]
    values = {
        one: random.integers(-3, 4, one.shape).astype(ml_dtypes.bfloat16) for one in leaves
    }
    assert same_values(*evaluate([before, after], values))


@pytest.mark.parametrize(
    ("image", "filters", "how", "rows"),
    [
        ((2, 3, 16, 16), (16, 3, 7, 7), {"stride": 2, "padding": 3}, (2, 8, 8, 147)),
        ((2, 3, 9, 8), (17, 3, 3, 3), {}, (2, 7, 6, 27)),
        ((2, 2, 9, 8), (16, 2, 3, 2), {"dilation": 2}, (2, 5, 6, 12)),
        ((3, 4, 20), (16, 4, 5), {"padding": 2}, (3, 20, 20)),
        ((1, 2, 6, 6, 6), (16, 2, 3, 3, 3), {}, (4, 4, 4, 54)),
        ((2, 3, 16, 12), (16, 3, 4, 4), {"stride": 4}, (2, 4, 3, 48)),  # patches
        ((2, 3, 15, 9), (16, 3, 3, 3), {"stride": 3}, (2, 5, 3, 27)),
    ],
)
def test_windows_and_filters_are_rows(
    image: Shape, filters: Shape, how: dict[str, Any], rows: Shape
) -> None:
    before = convolved(image, filters, **how)
    *outer, numbers = rows
    both = [(*outer, row(numbers)), (filters[0], row(numbers))]
    assert sorted(stored(before)) == sorted(both)
    check_values(before)


def test_the_gradient_of_filters_multiplies_the_same_rows() -> None:
    image, filters, how = (2, 3, 16, 16), (16, 3, 7, 7), {"stride": 2, "padding": 3}
    before = gradient_of_filters(image, filters, **how)
    assert stored(before) == [(2, 8, 8, row(147))]
    check_values(before)


def test_the_gradient_of_filters_multiplies_patches() -> None:
    before = gradient_of_filters((2, 3, 16, 12), (16, 3, 4, 4), stride=4)
    assert stored(before) == [(2, 4, 3, 48)]
    check_values(before)


@pytest.mark.parametrize(
    ("image", "filters", "groups"),
    [
        ((2, 16, 9, 8), (16, 16, 3, 3), 1),  # channels that tiles can have in lines
        ((2, 3, 9, 8), (15, 3, 3, 3), 1),  # few filters
        ((2, 32, 9, 8), (32, 1, 3, 3), 32),  # a filter for each channel
        ((2, 6, 9, 8), (32, 3, 3, 3), 2),  # two products
        ((2, 3, 9, 8), (32, 3, 1, 1), 1),  # no windows
        ((2, 16, 8, 8), (32, 16, 1, 1), 1),
    ],
)
def test_others_stay(image: Shape, filters: Shape, groups: int) -> None:
    assert stored(convolved(image, filters, groups=groups)) == []


def test_a_number_that_is_repeated_has_no_patches() -> None:
    number = Tensor.of(leaf(0, (), bfloat16), "interp")
    matrix = Tensor.of(leaf(1, (4, 32), bfloat16), "interp")
    repeated = lm.broadcast_to(number, (12,)).reshape((3, 4))
    assert stored(simplified((repeated @ matrix).node)) == []


def test_windows_are_gathered_where_a_kernel_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "COPY_KERNEL", 1.0)
    assert stored(convolved((2, 3, 9, 8), (17, 3, 3, 3))) == []


def test_windows_that_take_too_much_memory_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_BYTES", 2 * 2 * 7 * 6 * row(27) - 1)
    assert stored(convolved((2, 3, 9, 8), (17, 3, 3, 3))) == []


def test_float32_is_left_to_other_rules() -> None:
    x, w = (
        Tensor.of(leaf(n, shape, dtypes.float32), "interp")
        for n, shape in enumerate([(2, 3, 9, 8), (17, 3, 3, 3)])
    )
    assert stored(simplified(lm.conv2d(x, w, None).node)) == []


def test_an_image_that_filters_itself_is_left_alone() -> None:
    x = Tensor.of(leaf(0, (17, 3, 9, 8), bfloat16), "interp")
    assert stored(simplified(lm.conv2d(x, x[:, :, :3, :3], None).node)) == []


def test_the_copy_engine_fills_the_tiles_of_a_first_convolution() -> None:
    x = Tensor.of(leaf(0, (32, 3, 64, 64), bfloat16), "cpu")
    w = Tensor.of(leaf(1, (64, 3, 7, 7), bfloat16), "cpu")
    (sink,) = substitute([lm.conv2d(x, w, None, stride=2, padding=3).node], {}, open_without_detach)
    planned = compile_source([sink], Options(device="cuda:0", arch="sm_90a"))
    (product,) = [text for text in planned.source.kernels.values() if "wgmma" in text]
    assert product.count("copy_box(") == 2
    assert "filled." not in product


def test_filters_longer_than_images_are_windows_of_these() -> None:
    """Places of a filter are more than those of the image: rows are along the latter."""
    before = convolved((2, 16, 5, 4), (16, 16, 9, 9), padding=4)
    assert stored(before) == [(16, 9, 9, 40)]
    check_values(before)

"""Which sums of shifted products are one sum of products for tensor cores, and that values stay."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina.core.dtypes import DType, bfloat16, float32
from lamina.frontend.differentiate import gradient
from lamina.frontend.tensor import Tensor
from lamina.frontend.tensor import leaf as differentiable
from lamina.graph import folded_products as subject
from lamina.graph.algebra import ALGEBRA
from lamina.graph.folded_products import folded_products
from lamina.graph.movement import MOVEMENT
from lamina.graph.open_calls import open_without_detach
from lamina.graph.rewrite import rewrite
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.products import product_of
from lamina.ir.substitute import substitute
from tests.generators import leaf
from tests.rewrite.agreement import same_values

Shape = tuple[int, ...]


def simplified(node: Node) -> Node:
    return rewrite(substitute([node], {}, open_without_detach), (*ALGEBRA, *MOVEMENT))[0]


def transposed(image: Shape, weight: Shape, dtype: DType = bfloat16, **how: Any) -> Node:
    x = Tensor.of(leaf(0, image, dtype), "interp")
    w = Tensor.of(leaf(1, weight, dtype), "interp")
    convolution = {3: lm.conv_transpose1d, 4: lm.conv_transpose2d}[len(image)]
    return simplified(convolution(x, w, None, **how).node)


def gradient_of_image(image: Shape, filters: Shape, **how: Any) -> Node:
    x = differentiable(leaf(0, image, bfloat16), "interp")
    w = Tensor.of(leaf(1, filters, bfloat16), "interp")
    result = lm.conv2d(x, w, None, **how)
    upstream = Tensor.of(leaf(2, result.shape, bfloat16), "interp")
    (slope,) = gradient(result, [x], upstream)
    return simplified(slope.node)


def pooled_products(stride: int) -> Node:
    x = Tensor.of(leaf(0, (4, 64, 16, 16), bfloat16), "interp").cast(float32)
    w = Tensor.of(leaf(1, (64, 64, 1, 1), bfloat16), "interp").cast(float32)
    return simplified(lm.avg_pool2d(lm.conv2d(x, w), 3, stride).node)


def sums_of_products(node: Node) -> int:
    return sum(product_of(each) is not None for each in toposort([node]))


def folded(node: Node) -> Node:
    (after,) = rewrite([node], (folded_products, *ALGEBRA, *MOVEMENT))
    return after


IMAGE, WEIGHT = (32, 128, 16, 16), (128, 64, 4, 4)


def test_taps_are_no_array_of_their_own() -> None:
    before = transposed(IMAGE, WEIGHT, stride=2, padding=1)
    (sum_of_products,) = [each for each in toposort([before]) if product_of(each) is not None]
    taps = 4 * 4 * 32 * 64 * 16 * 16
    assert np.prod(sum_of_products.shape) == taps
    (after,) = [each for each in toposort([folded(before)]) if each.op is Op.REDUCE]
    assert product_of(after) is not None
    assert np.prod(after.shape) == 32 * 64 * 34 * 34


@pytest.mark.parametrize(
    "before",
    [
        gradient_of_image((16, 64, 56, 56), (64, 64, 3, 3), stride=2, padding=1),
        gradient_of_image((16, 64, 56, 56), (64, 64, 5, 5), stride=2, padding=2),
    ],
)
def test_gradients_of_windows_that_move_by_two_are_folded(before: Node) -> None:
    assert folded(before) is not before


@pytest.mark.parametrize(
    "before",
    [
        transposed(IMAGE, WEIGHT, float32, stride=2, padding=1),  # no 16 bits
        transposed(IMAGE, (128, 3, 4, 4), stride=2, padding=1),  # 12 columns
        transposed((32, 2048, 1, 1), (2048, 64, 4, 4)),  # 16 times the products
        transposed((256, 128, 4, 4), WEIGHT, stride=2, padding=1),  # 5 x 5 places
        transposed(IMAGE, (128, 64, 2, 2), stride=2),  # no windows overlap
        pooled_products(1),
        pooled_products(2),
    ],
)
def test_other_sums_stay(before: Node) -> None:
    assert folded(before) is before


@st.composite
def adjoints(draw: st.DrawFn) -> Node:
    """Transposed convolutions of small images."""
    rank = draw(st.integers(1, 2))
    sizes = st.integers(1, 4)
    image = (2, 3, *(draw(sizes) for _ in range(rank)))
    weight = (3, 2, *(draw(st.integers(2, 5)) for _ in range(rank)))
    stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    return transposed(image, weight, stride=stride, dilation=dilation)


@given(adjoints())
def test_values_stay(before: Node) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "MIN_SIDE", 1)
        patch.setattr(subject, "MIN_PLACES", 1)
        patch.setattr(subject, "PRODUCTS_PER_SECOND", np.inf)
        after = folded(before)
        assert folded(after) is after
    random = np.random.default_rng(0)
    leaves = [node for node in toposort([before]) if node.op is Op.BUFFER]
    values = {
        one: random.integers(-3, 4, one.shape).astype(ml_dtypes.bfloat16) for one in leaves
    }
    assert same_values(*evaluate([before, after], values), zeros=False)


def test_small_windows_are_folded_where_it_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test of values has something to compare."""
    monkeypatch.setattr(subject, "MIN_SIDE", 1)
    monkeypatch.setattr(subject, "MIN_PLACES", 1)
    monkeypatch.setattr(subject, "PRODUCTS_PER_SECOND", np.inf)
    before = transposed((2, 3, 4, 3), (3, 2, 3, 3), stride=2, dilation=1)
    assert sums_of_products(folded(before)) == sums_of_products(before) == 1
    assert folded(before) is not before


def test_tiles_add_up_all_taps() -> None:
    """The one kernel of products stores what is rounded to 16 bits, and no float32."""
    specs = [lm.TensorSpec(shape, bfloat16) for shape in (IMAGE, WEIGHT)]
    function = lm.jit(lambda x, w: lm.conv_transpose2d(x, w, None, 2, 1))
    kernels = function.lower(*specs, device="cuda:0", arch="sm_90a").kernels
    (tiled,) = [kernel for kernel in kernels if "tensorize" in str(kernel.schedule)]
    assert "POINTER(f32" not in tiled.source

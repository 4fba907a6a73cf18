"""Places that are arithmetic on indices are indices: no array says what a kernel reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core import options
from lamina.core.dtypes import bool_, int64
from lamina.graph import index as ix
from lamina.ir.ops import Op


@pytest.fixture(autouse=True)
def _on_the_compiler() -> Iterator[None]:
    with options.using(device="cpu"):
        yield


def pooled(x: Tensor, dy: Tensor) -> Any:
    """Windows of 8 and 7 elements: 22 in 3 begin at 0, 7 and 14, and end at 8, 15 and 22."""
    y = lm.adaptive_max_pool2d(x, dy.shape[2:])
    return y, *lm.gradient(y, [x], dy)


def test_windows_of_unequal_length_read_and_write_strides() -> None:
    shapes = (2, 3, 4, 22), (2, 3, 4, 3)
    lowered = lm.jit(pooled).lower(*map(lm.TensorSpec, shapes), device="cpu")
    kernels = [plan.nest.kernel for plan in lowered.planned.plans.values()]
    arrays = {parameter.dtype for kernel in kernels for parameter in kernel.parameters}
    assert arrays.isdisjoint((int64, bool_))
    indices = [store.index for kernel in kernels for store in kernel.stores]
    indices += [load.src[0] for kernel in kernels for load in kernel.of(Op.LOAD)]
    assert all(term.op is Op.AXIS for index in indices for term in ix.terms_of(index)[0])


@pytest.mark.parametrize(
    ("shape", "windows"),
    [((2, 3, 9, 22), (9, 3)), ((1, 2, 17, 10), (4, 7)), ((3, 1, 5, 9), (7, 2))],
)
def test_values_of_windows(shape: tuple[int, ...], windows: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(shape[-1])
    x = random.standard_normal(shape, dtype=np.float32)
    dy = random.standard_normal((*shape[:2], *windows), dtype=np.float32)
    images = torch.from_numpy(x).requires_grad_()
    right = torch.nn.functional.adaptive_max_pool2d(images, windows)
    right.backward(torch.from_numpy(dy))
    y, dx = lm.jit(pooled)(Tensor(x), Tensor(dy))
    np.testing.assert_array_equal(y.numpy(), right.detach().numpy())
    np.testing.assert_allclose(dx.numpy(), images.grad.numpy(), rtol=1e-5, atol=1e-6)

"""Convolutions against loops written out in NumPy, and against PyTorch."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core.dtypes import bfloat16
from lamina.errors import LaminaError, ShapeError
from lamina.frontend.functions import spatial as convolution
from lamina.frontend.functions.spatial import conv1d, conv2d, conv_transpose2d
from lamina.frontend.tensor import Tensor
from tests.functions.agreement import agree_with_differences, agree_with_torch, normals

Array = np.ndarray


def loops(x: Array, w: Array, stride: int, padding: int, dilation: int, groups: int) -> Array:
    """A 2-d convolution as its definition reads."""
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    reach = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    sizes = [(n - r) // stride + 1 for n, r in zip(x.shape[2:], reach, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    share, per_group = w.shape[1], w.shape[0] // groups
    for o, i, j in itertools.product(range(w.shape[0]), *map(range, sizes)):
        channels = slice(o // per_group * share, (o // per_group + 1) * share)
        rows = slice(i * stride, i * stride + reach[0], dilation)
        columns = slice(j * stride, j * stride + reach[1], dilation)
        out[:, o, i, j] = (x[:, channels, rows, columns] * w[o]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (3, 1, 2, 4), (2, 0, 1, 1)],
)
def test_conv2d_is_its_definition(stride: int, padding: int, dilation: int, groups: int) -> None:
    x, w = normals(2, 4, 7, 6), normals(8, 4 // groups, 3, 2, seed=1)
    got = conv2d(Tensor(x), Tensor(w), None, stride, padding, dilation, groups).numpy()
    np.testing.assert_allclose(got, loops(x, w, stride, padding, dilation, groups), atol=1e-12)


def test_transposed_convolution_is_the_adjoint() -> None:
    x, w = normals(2, 4, 5, 5), normals(6, 4, 3, 3, seed=1)
    y = normals(2, 6, 3, 3, seed=2)
    forward = conv2d(Tensor(x), Tensor(w), None, 2, 1).numpy()
    back = conv_transpose2d(Tensor(y), Tensor(w), None, 2, 1).numpy()
    assert back.shape == x.shape
    np.testing.assert_allclose((forward * y).sum(), (x * back).sum())


def test_derivatives() -> None:
    x, w, b = normals(1, 2, 4, 3), normals(2, 2, 2, 2, seed=1), normals(2, seed=2)
    agree_with_differences(lambda *a: conv2d(*a, 2, 1), x, w, b)
    agree_with_differences(lambda *a: conv_transpose2d(*a, 2, 1), x, w, b)


def test_halves_are_summed_in_float32() -> None:
    x, w = Tensor(np.ones((1, 1000, 1)), bfloat16), Tensor(np.ones((1, 1000, 1)), bfloat16)
    result = conv1d(x, w)
    assert result.dtype is bfloat16
    assert float(result.item()) == 1000.0


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        ((1, 3, 5), (4, 2, 3), {}, "channels"),
        ((1, 4, 5), (3, 2, 3), {"groups": 2}, "groups"),
        ((1, 2, 2), (4, 2, 3), {}, "does not fit"),
        ((1, 2, 5), (4, 2, 3, 3), {}, "axes"),
        ((2,), (4, 2, 3), {}, "input has shape"),
        ((1, 2, 5), (4, 2, 3), {"stride": 0}, "stride"),
        ((1, 2, 5), (4, 2, 3), {"stride": 2, "padding": "same"}, "same"),
        ((1, 2, 5), (4, 2, 3), {"padding": "full"}, "full"),
        ((1, 2, 5), (4, 2, 3), {"bias": (3,)}, "bias"),
    ],
)
def test_errors(x: Any, w: Any, options: dict[str, Any], message: str) -> None:
    if "bias" in options:
        options = {"bias": Tensor(normals(*options["bias"]))}
    with pytest.raises(ShapeError, match=message):
        conv1d(Tensor(normals(*x)), Tensor(normals(*w)), **options)


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    rank = draw(st.sampled_from([1, 1, 2, 2, 3]))
    groups = draw(st.integers(1, 2))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    stride = draw(st.one_of(st.integers(1, 3), st.just(each(1, 3))))
    return {
        "rank": rank, "groups": groups, "stride": stride, "kernel": each(1, 3),
        "dilation": draw(st.integers(1, 2)), "padding": each(0, 2), "sizes": each(1, 6),
        "batch": draw(st.sampled_from([None, 0, 1, 2])), "inputs": groups * draw(st.integers(1, 2)),
        "outputs": groups * draw(st.integers(1, 2)), "bias": draw(st.booleans()),
        "extra": each(0, 1),
    }  # fmt: skip


@settings(max_examples=60)
@given(cases(), st.booleans())
def test_against_torch(case: dict[str, Any], transposed: bool) -> None:
    torch = pytest.importorskip("torch")
    name = f"conv_transpose{case['rank']}d" if transposed else f"conv{case['rank']}d"
    batch = () if case["batch"] is None else (case["batch"],)
    x = normals(*batch, case["inputs"], *case["sizes"])
    rows, columns = case["outputs"], case["inputs"]
    if transposed:
        rows, columns = columns, rows
    w = normals(rows, columns // case["groups"], *case["kernel"], seed=1)
    bias = normals(case["outputs"], seed=2) if case["bias"] else None
    options = {one: case[one] for one in ("stride", "padding", "dilation", "groups")}
    if transposed:
        steps = np.broadcast_to(case["stride"], len(case["extra"]))
        options["output_padding"] = tuple(
            min(more, max(int(step), case["dilation"]) - 1)
            for more, step in zip(case["extra"], steps, strict=True)
        )
    mine, other = getattr(convolution, name), getattr(torch.nn.functional, name)
    probe = x if x.size else normals(1, *x.shape[1:])  # PyTorch checks less of empty batches
    try:
        other(*[None if one is None else torch.tensor(one) for one in (probe, w, bias)], **options)
    except RuntimeError:
        with pytest.raises(LaminaError):
            mine(*[None if one is None else Tensor(one) for one in (x, w, bias)], **options)
        return
    agree_with_torch(
        lambda *a: mine(*a, **options), lambda *a: other(*a, **options), x, w, bias
    )


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_named_padding_against_torch(padding: str, dilation: int) -> None:
    torch = pytest.importorskip("torch")
    options = {"padding": padding, "dilation": dilation}
    x, w = normals(2, 3, 7, 8), normals(4, 3, 2, 3, seed=1)
    with warnings.catch_warnings(action="ignore"):  # PyTorch's, about its own copies
        agree_with_torch(
            lambda *a: conv2d(*a, **options),
            lambda *a: torch.nn.functional.conv2d(*a, **options),
            x,
            w,
        )

"""Changing sizes by interpolation against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.functions.resize import interpolate
from lamina.frontend.jit import jit
from lamina.frontend.tensor import Tensor
from lamina.ir.node import toposort
from lamina.ir.ops import Op
from tests.functions.agreement import agree_with_differences, agree_with_torch, normals

LINEAR = ("linear", "bilinear", "trilinear")


def test_repeating_needs_no_index() -> None:
    x = normals(1, 2, 3, 2)
    got = interpolate(Tensor(x), scale_factor=2).numpy()
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize(("size", "between"), [((6, 1), (7, 1)), ((2, 80), (2, 90))])
@pytest.mark.parametrize("mode", ["nearest", "bicubic"])
def test_what_is_between_two_axes_is_small(
    mode: str, size: tuple[int, int], between: tuple[int, int]
) -> None:
    """The axis that shrinks most comes first, so that its gradient comes last."""
    result = interpolate(Tensor(normals(1, 1, 7, 90)), size, mode=mode)
    gathered = {node.shape[2:] for node in toposort([result.node]) if node.op is Op.GATHER}
    assert gathered == {between, size}


def test_derivatives() -> None:
    x = normals(1, 2, 5, 4)
    agree_with_differences(lambda a: interpolate(a, (7, 3), mode="bilinear"), x)
    agree_with_differences(lambda a: interpolate(a, (7, 3), mode="bicubic"), x)
    agree_with_differences(lambda a: interpolate(a, (2, 3), mode="bicubic", antialias=True), x)


@settings(max_examples=100)
@given(st.data())
def test_interpolation_against_torch(data: Any) -> None:
    torch = pytest.importorskip("torch")
    rank = data.draw(st.sampled_from([1, 2, 2, 2, 3]))
    blended = ["bicubic"] if rank == 2 else []
    blended.append(LINEAR[rank - 1])
    mode = data.draw(st.sampled_from(["nearest", "nearest-exact", "area", *blended]))
    options: dict[str, Any] = {"mode": mode}
    if mode in blended:
        options["align_corners"] = data.draw(st.booleans())
        options["antialias"] = rank == 2 and data.draw(st.booleans())
    sizes = tuple(data.draw(st.integers(1, 6)) for _ in range(rank))
    if data.draw(st.booleans()):
        options["size"] = tuple(data.draw(st.integers(1, 9)) for _ in range(rank))
    else:
        # Where 1.3 keeps a size, PyTorch's derivative of 'nearest' is not that of its values.
        odd = [] if mode.startswith("nearest") else [0.7, 1.3]
        factors = st.sampled_from([1.0, 1.5, 2.0, 2.5, 3.0, *odd])
        sizes = tuple(max(2, size) for size in sizes)
        options["scale_factor"] = tuple(data.draw(factors) for _ in range(rank))
        options["recompute_scale_factor"] = data.draw(st.sampled_from([None, False, True]))
    agree_with_torch(
        lambda a: interpolate(a, **options),
        lambda a: torch.nn.functional.interpolate(a, **options),
        normals(1, 2, *sizes),
    )


@pytest.mark.parametrize("recompute", [None, False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("factor", [1.3, 0.45])
def test_ratios_against_torch(factor: float, antialias: bool, recompute: bool | None) -> None:
    """Of 7 elements 1.3 makes 9: the ratio is 1 / 1.3, or 7 / 9 where it is computed again."""
    torch = pytest.importorskip("torch")
    options: dict[str, Any] = {
        "scale_factor": factor, "mode": "bilinear", "antialias": antialias,
        "recompute_scale_factor": recompute,
    }  # fmt: skip
    agree_with_torch(
        lambda a: interpolate(a, **options),
        lambda a: torch.nn.functional.interpolate(a, **options),
        normals(1, 2, 7, 5),
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 7), (64, 3), (16, 48)])
def test_antialiased_images_against_torch(mode: str, size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-9)):
        agree_with_torch(
            lambda a: interpolate(a, size, mode=mode, antialias=True),
            lambda a: torch.nn.functional.interpolate(a, size, mode=mode, antialias=True),
            normals(1, 3, 33, 40, dtype=dtype), tolerance=tolerance,
        )  # fmt: skip


def test_what_lies_outside_of_a_kernel_does_not_count() -> None:
    x = np.zeros((1, 1, 1, 16))
    x[..., 12] = np.nan
    result = interpolate(Tensor(x), (1, 4), mode="bilinear", antialias=True).numpy()
    assert np.isfinite(result[..., :2]).all()
    assert np.isnan(result[..., 3]).all()


def test_halves_are_blended_in_float32() -> None:
    x = normals(1, 2, 6, 6).astype(np.float16)
    for mode in ("bilinear", "bicubic", "area"):
        result = interpolate(Tensor(x), 4, mode=mode)
        exact = interpolate(Tensor(x.astype(np.float64)), 4, mode=mode).numpy()
        assert result.numpy().dtype == np.float16
        np.testing.assert_array_equal(result.numpy(), exact.astype(np.float16))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_traced(mode: str) -> None:
    x = Tensor(normals(1, 2, 5, 6))
    resize = lambda a: interpolate(a, (3, 8), mode=mode)  # noqa: E731
    compiled = jit(resize)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x).numpy(), resize(x).numpy(), 1e-12)


def test_errors() -> None:
    x = Tensor(np.ones((1, 1, 4)))
    with pytest.raises(ShapeError, match="exactly one"):
        interpolate(x)
    for mode in ("bilinear", "bicubic"):
        with pytest.raises(ShapeError, match="nearest-exact, linear, area"):
            interpolate(x, 3, mode=mode)
    for mode in ("nearest", "area"):
        with pytest.raises(ShapeError, match="align_corners"):
            interpolate(x, 3, mode=mode, align_corners=True)
    with pytest.raises(ArgumentError, match="antialias"):
        interpolate(x, 3, mode="linear", antialias=True)
    with pytest.raises(ArgumentError, match="recompute"):
        interpolate(x, 3, recompute_scale_factor=True)
    with pytest.raises(ShapeError, match="no mode"):
        interpolate(Tensor(np.ones((1, 1))), 3)

"""Padding against PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina.errors import ArgumentError, ShapeError
from tests.functions.agreement import agree_with_torch, normals

NUMPY = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@settings(max_examples=60)
@given(st.data(), st.sampled_from(list(NUMPY)))
def test_modes_are_pytorchs(data: Any, mode: str) -> None:
    torch = pytest.importorskip("torch")
    rank = data.draw(st.sampled_from([1, 2, 3]))
    sizes = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    padding: list[int] = []
    for size in reversed(sizes):
        most = size - 1 if mode == "reflect" else size
        padding += [data.draw(st.integers(0, most)) for _ in range(2)]
    agree_with_torch(
        lambda a: lm.pad(a, padding, mode),
        lambda a: torch.nn.functional.pad(a, padding, mode=mode),
        normals(2, 1, *sizes),
    )


@pytest.mark.parametrize("mode", NUMPY)
def test_any_axes_are_padded_as_numpy_does(mode: str) -> None:
    x = np.arange(60).reshape(3, 4, 5)
    pairs = [(1, 2), (0, 3), (2, 0)]
    expected = np.pad(x, pairs, mode=NUMPY[mode])  # type: ignore[call-overload]
    np.testing.assert_array_equal(lm.pad(lm.asarray(x), pairs, mode=mode).numpy(), expected)


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize("padding", [(-2, 3), (3, -2)])
def test_negative_amounts_cut_off(mode: str, padding: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    agree_with_torch(
        lambda a: lm.pad(a, padding, mode),
        lambda a: torch.nn.functional.pad(a, padding, mode=mode),
        normals(1, 6),
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("padding", [(2, -5), (-5, 2), (3, -6)])
def test_an_end_repeats_elements_that_the_other_end_cuts_off(
    mode: str, padding: tuple[int, int]
) -> None:
    torch = pytest.importorskip("torch")
    agree_with_torch(
        lambda a: lm.pad(a, padding, mode),
        lambda a: torch.nn.functional.pad(a, padding, mode=mode),
        normals(1, 6),
    )


@pytest.mark.parametrize("mode", NUMPY)
def test_traced(mode: str) -> None:
    x = lm.asarray(normals(2, 3, 4, 5))
    compiled = lm.jit(lambda a: lm.pad(a, (1, 2, 2, 1), mode=mode))
    expected = np.pad(x.numpy(), ((0, 0), (0, 0), (2, 1), (1, 2)), mode=NUMPY[mode])  # type: ignore[call-overload]
    for _ in range(2):
        np.testing.assert_array_equal(compiled(x).numpy(), expected)


def test_errors() -> None:
    x = lm.zeros((1, 4))
    with pytest.raises(ShapeError, match="at most 3 elements"):
        lm.pad(x, (4, 0), mode="reflect")
    with pytest.raises(ShapeError, match="at most 4 elements"):
        lm.pad(x, (0, 5), mode="circular")
    with pytest.raises(ShapeError, match="at most 0 elements"):
        lm.pad(lm.zeros((1, 0)), (0, 1), mode="replicate")
    with pytest.raises(ArgumentError, match="constant, reflect"):
        lm.pad(x, (1, 1), mode="mirror")
    with pytest.raises(ArgumentError, match="takes no value"):
        lm.pad(x, (1, 1), "reflect", 2.0)
    with pytest.raises(ArgumentError, match="given as value=2"):
        lm.pad(x, (1, 1), 2)  # type: ignore[arg-type]

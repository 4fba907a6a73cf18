"""Names in generated text say what loops run over and what values are."""

from __future__ import annotations

import re

import pytest

import lamina as lm
from lamina import TensorSpec

PARTS = ("", "_outer", "_middle", "_inner")


def kernel(function: object, *shapes: tuple[int, ...], device: str = "cpu") -> str:
    """The text of the only kernel of a function."""
    arguments = [TensorSpec(shape) for shape in shapes]
    (only,) = lm.jit(function).lower(*arguments, device=device).kernels
    return only.source


def axes_of(text: str) -> set[str]:
    """The variables that hold indices."""
    return set(re.findall(r"\bi(?:64|32) (\w+) =", text)) - {"thread_in_row"}


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "metal"])
def test_rows_and_columns(device: str) -> None:
    text = kernel(lambda x: (x * x).sum(axis=1), (64, 100), device=device)
    assert {name.partition("_")[0] for name in axes_of(text)} >= {"row"}
    assert axes_of(text) <= {f"{axis}{part}" for axis in ("row", "k") for part in PARTS}


def test_a_product() -> None:
    text = kernel(lambda a, b: a @ b, (60, 200), (200, 70))
    kinds = {name.partition("_")[0] for name in axes_of(text)}
    assert kinds == {"row", "column", "k"}


def test_several_axes_of_a_kind_are_numbered() -> None:
    moved = kernel(lambda x: x.permute(3, 1, 0, 2) + 1, (4, 5, 6, 7))
    kinds = {name.partition("_")[0] for name in axes_of(moved)}
    assert kinds <= {"batch0", "batch1", "row", "column"}
    reduced = kernel(lambda x: x.sum(axis=(0, 2)), (6, 5, 7))
    assert {"k0", "k1"} <= {name.partition("_")[0] for name in axes_of(reduced)}


def test_values_are_named_by_what_computes_them() -> None:
    text = kernel(lambda x: lm.exp(x) / (lm.sqrt(x) + 1), (100,))
    names = set(re.findall(r" ([a-z0-9]+)_\d+ =", text))
    assert {"load", "exp", "sqrt", "add", "div"} <= names
    argmax = kernel(lambda x: lm.argmax(x, axis=1), (8, 30))
    assert re.search(r" argmax_\d+ =", argmax)


def test_no_name_is_defined_twice_in_one_scope() -> None:
    text = kernel(lambda x: lm.softmax(x, axis=1), (64, 100))
    names = re.findall(r"const \w+ (\w+_\d+) =", text)
    assert len(names) == len(set(names)) > 5

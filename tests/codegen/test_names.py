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


def in_tiles(function: object, *shapes: tuple[int, ...], arch: str = "sm_90a") -> str:
    """The text of a kernel with products in tiles, of bfloat16, for an H100 or another GPU."""
    arguments = [TensorSpec(shape, "bfloat16") for shape in shapes]
    kernels = lm.jit(function).lower(*arguments, device="cuda:0", arch=arch).kernels
    (text,) = (kernel.source for kernel in kernels if "tensorize" in kernel.schedule)
    assert not re.search(r"\ba\d+\b", text)
    assert "% 1;" not in text
    return text


def test_a_product_in_tiles() -> None:
    text = in_tiles(lambda a, b: a @ b, (2048, 512), (512, 4096))
    rows = {f"row{part}" for part in ("", "_band", "_tile", "_group", "_warp", "_lane")}
    columns = {f"column{part}" for part in ("", "_band", "_tile", "_lane")}
    assert axes_of(text) == rows | columns | {"k"}
    assert "&left_map, full + slot, (int)(k), (int)(row));" in text
    assert "&right_map, full + slot, (int)(column), (int)(k));" in text


def test_a_batch_of_products_in_tiles() -> None:
    text = in_tiles(lambda a, b: a @ b, (3, 512, 512), (3, 512, 512))
    assert "batch" in axes_of(text)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_attention_in_tiles(arch: str) -> None:
    shape = (2, 3, 512, 64)
    text = in_tiles(lm.scaled_dot_product_attention, *[shape] * 3, arch=arch)
    begins = {"first", "from", "first_row", "first_k0", "first_k1"}
    kinds = {name.partition("_")[0] for name in axes_of(text) - begins}
    assert kinds == {"batch", "row", "column", "k0", "k1"}
    assert "const i32 k1_tile = number - before;" in text


def test_a_product_of_float32_in_tiles() -> None:
    text = kernel(lambda a, b: a @ b, (512, 512), (512, 512), device="cuda:0")
    assert {"row_band", "row_0", "column_band", "k"} <= axes_of(text)


def test_an_axis_of_one_iteration_has_the_index_0() -> None:
    text = in_tiles(lambda a, b: a @ b, (2048, 512), (512, 4096))
    assert "const i64 column_tile = 0;" in text

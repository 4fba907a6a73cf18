"""Contractions against NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina.core import dtypes
from lamina.errors import ShapeError
from lamina.frontend.functions import linalg
from lamina.frontend.tensor import Tensor
from tests.functions.agreement import agree_with_differences, agree_with_torch, normals

EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ba", [(2, 3)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iij->ji", [(2, 2, 3)]),
    ("iiii->i", [(2, 2, 2, 2)]),
    ("ij->", [(2, 3)]),
    ("i,j->ji", [(2,), (3,)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("i...,i...->...", [(3, 2), (3, 2)]),
    ("...,...", [(2, 3), (3,)]),
    ("b...i,oi->b...o", [(2, 4, 3), (5, 3)]),
    ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 2)]),
    ("abc,cd,a,be->de", [(2, 3, 4), (4, 2), (2,), (3, 5)]),
    ("ij,ik->i", [(2, 3), (2, 4)]),
    ("ij,jk->ik", [(0, 3), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    (",i->i", [(), (3,)]),
    ("Ab, bA -> A", [(2, 3), (3, 2)]),
    ("bhld,bhsd->bhls", [(2, 2, 3, 4), (2, 2, 5, 4)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum_like_numpy(equation: str, shapes: list[tuple[int, ...]]) -> None:
    given = [normals(*shape, seed=at) for at, shape in enumerate(shapes)]
    got = linalg.einsum(equation, *map(Tensor, given)).numpy()
    expected = np.einsum(equation, *given)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS[:17])
def test_einsum_derivatives_against_torch(equation: str, shapes: list[tuple[int, ...]]) -> None:
    torch = pytest.importorskip("torch")
    agree_with_torch(
        lambda *a: linalg.einsum(equation, *a),
        lambda *a: torch.einsum(equation, *a),
        *[normals(*shape, seed=at) for at, shape in enumerate(shapes)],
    )


@settings(max_examples=40)
@given(st.data())
def test_random_equations(data: Any) -> None:
    sizes = {letter: data.draw(st.integers(1, 3)) for letter in "abcd"}
    word = st.text("abcd", min_size=0, max_size=3)
    texts = data.draw(st.lists(word, min_size=1, max_size=3))
    used = sorted(set("".join(texts)))
    output = data.draw(st.lists(st.sampled_from(used), unique=True)) if used else []
    equation = ",".join(texts) + data.draw(st.sampled_from(["", "->" + "".join(output)]))
    given = [
        normals(*(sizes[letter] for letter in text), seed=at) for at, text in enumerate(texts)
    ]
    got = linalg.einsum(equation, *map(Tensor, given)).numpy()
    np.testing.assert_allclose(got, np.einsum(equation, *given), atol=1e-9)


def test_derivatives() -> None:
    x, y = normals(3, 3), normals(3, 2, seed=1)
    agree_with_differences(lambda a, b: linalg.einsum("ii,ij->j", a, b), x, y)
    agree_with_differences(lambda a: linalg.trace(a, offset=1), x)


def test_halves_are_summed_in_float32() -> None:
    x = Tensor(np.ones(3000), dtypes.bfloat16)
    assert float(linalg.dot(x, x).item()) == 3008.0  # 3000 rounded to bfloat16, not 256

def filled(shape: tuple[int, ...], value: float) -> Tensor:
    return lm.full(shape, value, dtype=lm.bfloat16)


PRODUCTS_WITH_SUMMANDS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda bias: lm.linear(filled((3, 257), 1), filled((1, 257), 1), bias),
    "conv1d": lambda bias: lm.conv1d(filled((1, 1, 257), 1), filled((1, 1, 257), 1), bias),
    "conv2d": lambda bias: lm.conv2d(
        filled((1, 1, 1, 257), 1), filled((1, 1, 1, 257), 1), bias
    ),
    "conv_transpose1d": lambda bias: lm.conv_transpose1d(
        filled((1, 257, 1), 1), filled((257, 1, 1), 1), bias
    ),
    "addmm": lambda bias: lm.addmm(bias, filled((3, 257), 1), filled((257, 2), 1)),
    "addmv": lambda bias: lm.addmv(bias, filled((3, 257), 1), filled((257,), 1)),
    "baddbmm": lambda bias: lm.baddbmm(bias, filled((2, 3, 257), 1), filled((2, 257, 2), 1)),
    "addbmm": lambda bias: lm.addbmm(bias, filled((2, 3, 257), 1), filled((2, 257, 2), 0.5)),
}


@pytest.mark.parametrize("name", PRODUCTS_WITH_SUMMANDS)
def test_a_summand_is_added_before_a_product_is_rounded(name: str) -> None:
    """257 is none of bfloat16's numbers, and 256 beside it, from which nothing would be left."""
    result = PRODUCTS_WITH_SUMMANDS[name](filled((1,), -256))
    assert result.dtype is lm.bfloat16
    assert {*result.numpy().astype(np.float64).flat} == {1.0}


def test_einsum_errors() -> None:
    a = Tensor(normals(2, 3))
    for equation, message in [
        ("ij,jk", "operands"), ("ijk", "axes"), ("i", "axes"), ("ij->k", "no operand"),
        ("ij->ii", "twice"), ("i.j", "letters"), ("ii", "stands for"), ("ij->...i.", "letters"),
    ]:  # fmt: skip
        with pytest.raises(ShapeError, match=message):
            linalg.einsum(equation, a)
    with pytest.raises(ShapeError, match="stands for 3 and 2"):
        linalg.einsum("ij,jk", a, a)


def test_products_of_bools_are_numpys() -> None:
    a, b = np.arange(6).reshape(2, 3) % 4 == 1, np.arange(12).reshape(3, 4) % 5 == 0
    for got, want in [
        (linalg.matmul(Tensor(a), Tensor(b)), a @ b),
        (linalg.dot(Tensor(a[0]), Tensor(a[1])), a[0] @ a[1]),
        (linalg.tensordot(Tensor(a), Tensor(b), axes=1), np.tensordot(a, b, axes=1)),
        (linalg.einsum("ij->i", Tensor(a)), np.einsum("ij->i", a)),
    ]:
        assert got.dtype is dtypes.bool_
        assert np.array_equal(got.numpy(), want)


def test_products_of_vectors() -> None:
    x, y = normals(3), normals(3, seed=1)
    np.testing.assert_allclose(linalg.dot(Tensor(x), Tensor(y)).numpy(), x @ y)
    np.testing.assert_allclose(linalg.outer(Tensor(x), Tensor(y)).numpy(), np.outer(x, y))
    with pytest.raises(ShapeError, match="vectors"):
        linalg.dot(Tensor(x), Tensor(y[:2]))


@pytest.mark.parametrize("offset", [-4, -1, 0, 2, 5])
def test_trace_like_numpy(offset: int) -> None:
    x = normals(2, 3, 4)
    expected = np.trace(x, offset, 1, 2)
    np.testing.assert_allclose(linalg.trace(Tensor(x), offset=offset).numpy(), expected)
    small = linalg.trace(Tensor(np.full((3, 3), 100, np.int8)))
    assert small.dtype is dtypes.int64
    assert small.item() == 300

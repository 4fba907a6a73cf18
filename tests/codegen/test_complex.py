"""Complex programs on the CPU: the pairs they are split into against NumPy's complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.graph.split_complex import split_complex
from lamina.ir import build, monoids
from lamina.ir.build import const, full, select
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Reduce, Scatter, Shear
from lamina.ir.verify import verify
from lamina.runtime.buffer import Buffer
from tests.codegen.running import leaf, run

DTYPES = (dtypes.complex64, dtypes.complex128)
SHAPE = (3, 4)


def numbers(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype.numpy)


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    double = actual.dtype.itemsize == 16 or actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=1e-13 if double else 2e-6, atol=1e-15)


BINARY: dict[str, tuple[Callable[[Node, Node], Node], Callable[..., np.ndarray]]] = {
    "add": (lambda x, y: x + y, np.add),
    "subtract": (lambda x, y: x - y, np.subtract),
    "multiply": (lambda x, y: x * y, np.multiply),
    "divide": (lambda x, y: x / y, np.divide),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_agrees_with_numpy(name: str, dtype: DType) -> None:
    a, b = numbers((5, 7), dtype, 1), numbers((5, 7), dtype, 2)
    ours, theirs = BINARY[name]
    close(run([ours(leaf(a), leaf(b))])[0], theirs(a, b))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_division_does_not_overflow_on_the_way(dtype: DType) -> None:
    largest = float(np.finfo(dtypes.real_of(dtype).numpy).max) / 4
    sizes = [1.0, -1.0, largest, -largest, 1 / largest]
    parts = np.array([complex(a, b) for a, b in product(sizes, sizes)], dtype.numpy)
    a, b = np.repeat(parts, len(parts)), np.tile(parts, len(parts))
    (quotient,) = run([leaf(a) / leaf(b)])
    with np.errstate(all="ignore"):
        expected = a / b
    finite = np.isfinite(expected)
    assert finite.any()
    assert np.isfinite(quotient[finite]).all()
    close(quotient[finite], expected[finite])


def test_division_at_the_edges() -> None:
    one, zero, inf = 1 + 1j, 0j, complex("inf")
    a = np.array([one, zero, one, inf], np.complex128)
    b = np.array([zero, zero, inf, one], np.complex128)
    (quotient,) = run([leaf(a) / leaf(b)])
    assert np.isinf(quotient[0].real)
    assert np.isinf(quotient[0].imag)
    assert np.isnan(quotient[1].real)
    assert np.isnan(quotient[1].imag)
    assert quotient[2] == 0
    assert np.isinf(quotient[3].real)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_negation_equality_choice_and_parts(dtype: DType) -> None:
    a, b = numbers(SHAPE, dtype, 3), numbers(SHAPE, dtype, 4)
    b[0] = a[0]
    b[1] = a[1].conj()
    x, y = leaf(a), leaf(b)
    same, chosen, re, im, negative = run(
        [x.eq(y), select(x.eq(y), x, -y), Node(Op.REAL, (x,)), Node(Op.IMAG, (x,)), -x]
    )
    assert np.array_equal(same, a == b)
    assert same.any()
    assert not same.all()
    assert np.array_equal(chosen, np.where(a == b, a, -b))
    assert np.array_equal(re, a.real)
    assert np.array_equal(im, a.imag)
    assert np.array_equal(negative, -a)


def test_casts() -> None:
    a = numbers(SHAPE, dtypes.complex128) * 10
    x = leaf(a)
    narrow, real, whole = run(
        [build.cast(x, dtypes.complex64), build.cast(x, dtypes.float32),
         build.cast(x, dtypes.int32)]
    )  # fmt: skip
    assert np.array_equal(narrow, a.astype(np.complex64))
    assert np.array_equal(real, a.real.astype(np.float32))
    assert np.array_equal(whole, a.real.astype(np.int32))
    for dtype in (dtypes.bool_, dtypes.int16, dtypes.float64):
        b = np.arange(6).astype(dtype.numpy)
        (made,) = run([build.cast(leaf(b), dtypes.complex64)])
        assert np.array_equal(made, b.astype(np.complex64))


def test_signed_zeros_nan_and_infinities_survive() -> None:
    parts = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0])
    re, im = np.repeat(parts, 6), np.tile(parts, 6)
    joined, negative, moved = run(
        [z := Node(Op.COMPLEX, (leaf(re), leaf(im))), -z, build.flip(z, (0,))]
    )
    for actual, (first, second) in (
        (joined, (re, im)), (negative, (-re, -im)), (moved, (re[::-1], im[::-1])),
    ):  # fmt: skip
        expected = np.empty(36, np.complex128)
        expected.real, expected.imag = first, second
        assert actual.view(np.int64).tolist() == expected.view(np.int64).tolist()


def test_bitcast_to_a_word_and_back() -> None:
    a = numbers((9,), dtypes.complex64)
    word = build.bitcast(leaf(a), dtypes.int64)
    words, back = run([word, build.bitcast(word, dtypes.complex64)])
    assert np.array_equal(words, a.view(np.int64))
    assert np.array_equal(back, a)


MOVEMENT: dict[str, tuple[Callable[[Node], Node], Callable[[np.ndarray], np.ndarray]]] = {
    "reshape": (lambda x: build.reshape(x, (2, 6)), lambda a: a.reshape(2, 6)),
    "expand": (lambda x: build.expand(x, (2, 3, 4)), lambda a: np.broadcast_to(a, (2, 3, 4))),
    "permute": (lambda x: build.permute(x, (1, 0)), lambda a: a.T),
    "pad": (
        lambda x: build.pad(x, (1, 0), (0, 2), 2 - 3j),
        lambda a: np.pad(a, ((1, 0), (0, 2)), constant_values=2 - 3j),
    ),
    "shrink": (lambda x: build.sliced(x, [range(1, 3), range(0, 4, 2)]), lambda a: a[1:3, 0:4:2]),
    "flip": (lambda x: build.flip(x, (1,)), lambda a: a[:, ::-1]),
    "contiguous": (lambda x: build.permute(Node(Op.CONTIGUOUS, (x,)), (1, 0)), lambda a: a.T),
    "detach": (lambda x: Node(Op.DETACH, (x,)), lambda a: a),
    "copy": (lambda x: Node(Op.COPY, (x,), "cpu"), lambda a: a),
    "constant": (lambda x: x + full(SHAPE, 1 - 2j, x.dtype), lambda a: a + (1 - 2j)),
    "sum": (lambda x: build.reduce(monoids.ADD, (1,), x), lambda a: a.sum(1)),
    "sum of all": (lambda x: build.reduce(monoids.ADD, (0, 1), x), lambda a: a.sum()),
    "product": (lambda x: build.reduce(monoids.MUL, (0,), x), lambda a: a.prod(0)),
    "running sum": (
        lambda x: Node(Op.SCAN, (x,), Reduce(monoids.ADD, (1,))), lambda a: a.cumsum(1),
    ),
    "running product": (
        lambda x: Node(Op.SCAN, (x,), Reduce(monoids.MUL, (0,))), lambda a: a.cumprod(0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MOVEMENT)
def test_movement_and_reductions_agree_with_numpy(name: str, dtype: DType) -> None:
    a = numbers(SHAPE, dtype, 5)
    ours, theirs = MOVEMENT[name]
    close(run([ours(leaf(a))])[0], np.asarray(theirs(a), dtype.numpy))


@pytest.mark.parametrize("make", [
    lambda x, y, i: Node(Op.GATHER, (x, i), 1),
    lambda x, y, i: Node(Op.SCATTER, (x, i, y), Scatter(1, None)),
    lambda x, y, i: Node(Op.SCATTER, (x, i, y), Scatter(1, monoids.ADD)),
    lambda x, y, i: Node(Op.SHEAR, (x,), Shear(1, 0, 2)),
    lambda x, y, i: const(1 + 2j, x.dtype),
], ids=["gather", "replace", "add", "shear", "constant"])  # fmt: skip
def test_the_rest_agrees_with_the_interpreter(make: Callable[..., Node]) -> None:
    places = leaf(np.array([[0, 3, 1, 3], [9, 0, 0, -1], [2, 2, 2, 2]]))
    sink = make(
        leaf(numbers(SHAPE, dtypes.complex64, 6)), leaf(numbers(SHAPE, dtypes.complex64, 7)), places
    )
    close(run([sink])[0], run([sink], "interp")[0])


def test_assignment_writes_the_storage_in_place() -> None:
    a = numbers(SHAPE, dtypes.complex128)
    target = leaf(a)
    storage = target.arg.storage
    assert isinstance(storage, Buffer)
    (result,) = run([Node(Op.ASSIGN, (target, target * target))])
    close(result, a * a)
    assert storage.view() == result.tobytes()


def test_an_assignment_used_as_a_value() -> None:
    a = numbers(SHAPE, dtypes.complex64)
    target = leaf(a)
    close(run([Node(Op.ASSIGN, (target, target + target)) * target])[0], (a + a) * a)


def test_matmul_and_a_shared_part() -> None:
    a, b = numbers((5, 8), dtypes.complex64, 8), numbers((8, 6), dtypes.complex64, 9)
    x = build.expand(build.reshape(leaf(a), (5, 8, 1)), (5, 8, 6))
    y = build.expand(build.reshape(leaf(b), (1, 8, 6)), (5, 8, 6))
    product_ = build.reduce(monoids.ADD, (1,), x * y)
    whole, imaginary = run([product_, Node(Op.IMAG, (product_,))])
    np.testing.assert_allclose(whole, a @ b, rtol=1e-5)
    assert np.array_equal(imaginary, whole.imag)


def test_empty_arrays_and_scalars() -> None:
    empty, scalar = np.zeros((0, 3), np.complex64), np.array(2 + 1j, np.complex128)
    x, y = leaf(empty), leaf(scalar)
    none, sums, one = run([-x, build.reduce(monoids.ADD, (0,), x), y / y])
    assert none.shape == (0, 3)
    assert np.array_equal(sums, np.zeros(3))
    assert one == 1


def test_nothing_complex_is_left() -> None:
    x = leaf(numbers(SHAPE, dtypes.complex64))
    (split,) = split_complex((build.reduce(monoids.MUL, (0,), x / (x + x)),))
    assert split.dtype is dtypes.float32
    assert split.shape == (4, 2)
    assert not any(node.dtype.is_complex for node in toposort([split]))
    verify([split])


def test_a_real_graph_is_left_alone() -> None:
    x = leaf(np.ones(3)) + 1.0
    assert split_complex((x,)) == (x,)


def test_a_graph_shares_its_real_part() -> None:
    real = leaf(np.ones(3)) * 2.0
    z = build.cast(real, dtypes.complex128)
    first, second = split_complex((real, Node(Op.REAL, (z * z,))))
    assert first is real
    assert real in toposort([second])

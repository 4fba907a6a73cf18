"""Functions of whole arrays against NumPy: shapes, views, dtypes and arguments that vary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

import lamina as lm
from lamina.core.dtypes import DType
from tests.compiled import EACH_TEST, Recorder
from tests.functions.sampling import ALL, SEEDS, SHAPES, Draw, Shape, joined, values, view_of
from tests.functions.tables import MOVEMENT, REDUCTIONS

Array = np.ndarray
TABLE = MOVEMENT | REDUCTIONS


@pytest.fixture(autouse=True)
def one_program_each(recorder: Recorder, also_compiled: None) -> None:
    """A table is long: one program of each row is compiled as well."""
    recorder.kept = EACH_TEST - 1


def operand(name: str, shape: Shape, dtype: DType, draw: Draw) -> tuple[lm.Tensor, Array]:
    """A view of numbers; where many add up, small ones without NaN."""
    view = view_of(shape, draw)
    base = values(view.base, dtype, draw)
    if name in REDUCTIONS and dtype.is_float and name not in ("any", "all", "count_nonzero"):
        base = draw.integers(-6, 7, view.base).astype(dtype.numpy) / 2
        base = np.asarray(base, dtype.numpy)
    return view.of_tensor(lm.asarray(base)), view.of_array(base)


def agree(got: Any, want: Any, what: object) -> None:
    """Equal sequences or tensors; results of arithmetic within rounding."""
    if isinstance(got, tuple | list):
        assert len(got) == len(want), what
        for one, other in zip(got, want, strict=True):
            agree(one, other, what)
        return
    found, want = got.numpy(), np.asarray(want)
    assert found.shape == want.shape, what
    assert found.dtype == want.dtype, what
    if want.dtype.kind == "f" and want.dtype.itemsize >= 4:
        units = 1e-12 if want.dtype == np.float64 else 2e-5
        np.testing.assert_allclose(found, want, units, units, err_msg=str(what))
    else:
        assert np.array_equal(found.astype(object), want.astype(object)) or np.array_equal(
            found.astype(np.complex128), want.astype(np.complex128), equal_nan=True
        ), (what, found, want)


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=20)
@given(shape=SHAPES, seed=SEEDS)
@example(shape=(3, 2), seed=0)
def test_values(name: str, shape: Shape, seed: int) -> None:
    row = TABLE[name]
    draw = np.random.default_rng([seed, len(shape)])
    dtype = row.dtypes[draw.integers(len(row.dtypes))]
    operands = [operand(name, one, dtype, draw) for one in row.shapes(shape, draw)]
    got = row.ours(np.random.default_rng(seed), *(tensor for tensor, _ in operands))
    want = row.theirs(np.random.default_rng(seed), *(array for _, array in operands))
    agree(got, want, (name, dtype, [array for _, array in operands]))


LIKE = {"zeros_like": 0, "ones_like": 1, "empty_like": 0}
MADE = {"zeros": np.zeros, "ones": np.ones, "empty": np.zeros}


@given(shape=SHAPES, seed=SEEDS)
def test_creation(shape: Shape, seed: int) -> None:
    draw = np.random.default_rng(seed)
    dtype = ALL[draw.integers(len(ALL))]
    x, _ = operand("full_like", shape, dtype, draw)
    for name, value in LIKE.items():
        agree(getattr(lm, name)(x), np.full(shape, value, dtype.numpy), name)
        assert getattr(lm, name)(x, dtype=lm.int8).dtype is lm.int8
    for name, theirs in MADE.items():
        agree(getattr(lm, name)(shape, dtype=dtype), theirs(shape, dtype.numpy), name)
    number = True if dtype is lm.bool else 3
    agree(lm.full_like(x, number), np.full(shape, number, dtype.numpy), "full_like")
    agree(lm.full_like(x, 2, dtype=lm.float64), np.full(shape, 2.0), "full_like")
    agree(lm.full(shape, number, dtype=dtype), np.full(shape, number, dtype.numpy), "full")
    assert lm.full_like(x, number, device="cpu").device == "cpu"


def test_kinds_of_dtypes() -> None:
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating",
             "complex floating", "numeric"]  # fmt: skip
    for dtype in ALL:
        if dtype is lm.bfloat16:  # not NumPy's
            assert lm.isdtype(dtype, "real floating")
            continue
        for kind in kinds:
            assert lm.isdtype(dtype, kind) is np.isdtype(dtype.numpy, kind)
        for other in ALL:
            assert lm.isdtype(dtype, other) is (dtype is other)
            pair = (other, "integral")
            assert lm.isdtype(dtype, pair) is (dtype is other or dtype.is_int)


def test_the_graph_of_a_sequence_is_joined_in_order() -> None:
    t = lm.asarray([[1, 2], [3, 4]])
    assert joined(lm.unstack(t, axis=1)).tolist() == [1, 3, 2, 4]

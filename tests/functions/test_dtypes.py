"""A matrix of core operations over every dtype, on the interpreter and as compiled C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.core.dtypes import DType, real_of
from lamina.errors import DTypeError
from tests.functions.sampling import ALL, FLOATS

Array = np.ndarray
DEVICES = ["interp", "cpu"]
Case = tuple[str, lm.Tensor, Array]


def numbers(dtype: DType, seed: int, shape: tuple[int, ...] = (3, 4)) -> Array:
    """Small numbers that every dtype of the kind holds exactly, products and sums of 12 too."""
    draw = np.random.default_rng(seed)
    if dtype is lm.bool:
        return draw.random(shape) < 0.5
    low = 0 if dtype.kind == "uint" else -3
    whole = draw.integers(low, 4, shape).astype(dtype.numpy)
    if dtype.is_complex:
        return (whole + 1j * draw.integers(-3, 4, shape)).astype(dtype.numpy)
    return (whole / 2).astype(dtype.numpy) if dtype.is_float else whole


def extremes(dtype: DType) -> Array:
    """The ends of a dtype's range, infinities, NaN, subnormal and ordinary numbers."""
    if dtype is lm.bool:
        return np.array([True, False])
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        return np.array([info.min, info.max, 0, 1, info.max // 2, info.max // 3], dtype.numpy)
    limits = lm.finfo(dtype)
    some = [0.0, -0.0, 1.0, -1.5, 2.75, 1 / 3, 100.7, 65519.0, 65520.0, 1e-6, 6e-8, 3.3895e38,
            limits.max, limits.smallest_normal, limits.smallest_normal / 2,
            np.inf, -np.inf, np.nan]  # fmt: skip
    with np.errstate(all="ignore"):
        real = np.array(some).astype(real_of(dtype).numpy)
        return (real + 1j * np.roll(real, 1)).astype(dtype.numpy) if dtype.is_complex else real


def within(array: Array, source: DType, target: DType) -> Array:
    """What C and NumPy convert alike: floats inside the range of an integer dtype."""
    if not (source.is_float and target.is_int):
        return array
    wide = array.astype(np.float64)
    info = np.iinfo(target.numpy)
    with np.errstate(all="ignore"):
        return array[(wide > float(info.min) - 1) & (wide < float(info.max))]


def arithmetic(dtype: DType, device: str) -> list[Case]:
    """Name, tensor and NumPy's answer of each operation."""
    x, y, m = numbers(dtype, 1), numbers(dtype, 2), numbers(lm.bool, 3)
    a, b = (lm.asarray(one, device=device) for one in (x, y))
    mask = lm.asarray(m, device=device)
    wide: Any = dtype.numpy
    total: Any = {"bool": np.int64, "int": np.int64, "uint": np.uint64}.get(dtype.kind, wide)
    wx, wy = x.astype(wide), y.astype(wide)
    cases = [
        ("add", lm.add(a, b), wx + wy),
        ("multiply", lm.multiply(a, b), wx * wy),
        ("where", lm.where(mask, a, b), np.where(m, x, y)),
        ("sum", lm.sum(a, axis=1), x.astype(total).sum(1)),
        ("sum of all", lm.sum(a), x.astype(total).sum()),
        ("flip", lm.flip(lm.reshape(a, (2, 6)), axis=1), np.flip(x.reshape(2, 6), 1)),
        ("transpose", lm.permute_dims(a, (1, 0)), x.T),
        ("equal", lm.equal(a, b), x == y),
        ("matmul", lm.matmul(a, b.mT), (wx @ wy.T).astype(dtype.numpy)),
    ]
    if not dtype.is_complex:
        cases += [("max", lm.max(a, axis=0), x.max(0)), ("less", lm.less(a, b), x < y),
                  ("sort", lm.sort(a, axis=0), np.sort(x, 0))]  # fmt: skip
    return [(f"{dtype.name} {name}", got, np.asarray(want)) for name, got, want in cases]


def conversions(dtype: DType, device: str) -> list[Case]:
    """Extreme values cast to every other dtype."""
    cases = []
    for target in ALL:
        if dtype.is_complex and target.kind in ("int", "uint", "float"):
            with pytest.raises(DTypeError, match="imaginary"):
                lm.astype(lm.zeros(1, dtype=dtype), target)
            continue
        x = within(extremes(dtype), dtype, target)
        with np.errstate(all="ignore"):
            want = x.astype(target.numpy)
        got = lm.astype(lm.asarray(x, device=device), target)
        cases.append((f"{dtype.name} to {target.name}", got, want))
    return cases


def check(cases: list[Case]) -> None:
    """All in one program; every result is exact, so equal."""
    lm.realize(*(got for _, got, _ in cases))
    wrong = []
    for name, got, want in cases:
        found = got.numpy()
        assert (found.shape, found.dtype) == (want.shape, want.dtype), name
        alike = found == want
        if want.dtype.kind not in "biu":
            alike |= (found != found) & (want != want)
        if not np.all(alike):
            wrong.append(f"{name}: {found[~alike]} but NumPy has {want[~alike]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_operations(device: str) -> None:
    check([case for dtype in ALL for case in arithmetic(dtype, device)])


@pytest.mark.parametrize("device", DEVICES)
def test_casts(device: str) -> None:
    check([case for dtype in ALL for case in conversions(dtype, device)])


@pytest.mark.parametrize("device", DEVICES)
def test_derivatives_have_the_dtype_of_their_tensor(device: str) -> None:
    cases = []
    for dtype in FLOATS:
        x, w = numbers(dtype, 1), numbers(dtype, 2)
        a, b = (lm.asarray(one, device=device) for one in (x, w))
        da, db = lm.gradient((a * b).sum(), [a, b])
        cases += [(f"{dtype.name} da", da, w), (f"{dtype.name} db", db, x)]
        (dw,) = lm.gradient((a @ b.mT).sum(), [a])
        want = np.broadcast_to(w.astype(np.float64).sum(0), x.shape).astype(dtype.numpy)
        cases.append((f"{dtype.name} matmul", dw, want))
    check(cases)


def test_numbers_of_numpy_say_what_arange_counts_in() -> None:
    quarter = np.float32(0.25)
    for numbers, dtype in (((0, 1, quarter), lm.float32), ((np.int8(3),), lm.int64)):
        found = lm.arange(*numbers)  # type: ignore[arg-type]
        assert found.dtype is dtype
        np.testing.assert_array_equal(found.numpy(), np.arange(*numbers))

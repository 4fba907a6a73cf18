"""Collectives of tensors against NumPy, and their derivatives against finite differences."""

from __future__ import annotations

import re

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, distributed
from lamina.distributed.mesh import Axis
from lamina.errors import ArgumentError, AxisError, DTypeError, ShapeError
from tests.distributed.cases import WORLD, Reference, cases, drawn
from tests.distributed.lockstep import gradients_on_ranks, on_ranks
from tests.test_layers import ROOT

ALL = Axis("all", 4, 1)
ROWS = Axis("rows", 2, 2)  # (0, 2) and (1, 3)
COLUMNS = Axis("columns", 2, 1)  # (0, 1) and (2, 3)
GROUPS = {ALL: [[0, 1, 2, 3]], ROWS: [[0, 2], [1, 3]], COLUMNS: [[0, 1], [2, 3]]}
AXES = pytest.mark.parametrize("over", GROUPS, ids=lambda axis: axis.name)



def expected(over: Axis, operands: list[np.ndarray], reference: Reference) -> list[np.ndarray]:
    """What `reference` gives each rank."""
    results: dict[int, np.ndarray] = {}
    for group in GROUPS[over]:
        of_group = reference(np.stack([operands[rank] for rank in group]))
        results.update(zip(group, of_group, strict=True))
    return [results[rank] for rank in range(WORLD)]


NAMES = pytest.mark.parametrize("name", cases(ALL))


@AXES
@NAMES
def test_values_are_numpys(name: str, over: Axis) -> None:
    function, reference = cases(over)[name]
    operands = drawn()
    for got, want in zip(
        on_ranks(function, operands), expected(over, operands, reference), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@AXES
@NAMES
def test_derivatives_are_those_of_the_sum_of_all_ranks(name: str, over: Axis) -> None:
    """By central differences of NumPy's values: one rank's operand changes, and the results of all
    ranks do."""
    function, reference = cases(over)[name]
    operands = drawn()
    generator = np.random.default_rng(1)
    shape = on_ranks(function, operands)[0].shape
    seeds = [generator.normal(size=shape) for _ in range(WORLD)]
    got = gradients_on_ranks(function, operands, seeds)

    def total() -> float:
        results = expected(over, operands, reference)
        return sum(float((seed * z).sum()) for seed, z in zip(seeds, results, strict=True))

    for rank, place in [(0, (0, 0)), (1, (3, 1)), (2, (1, 2)), (3, (2, 0))]:
        step = 1e-6
        operands[rank][place] += step
        above = total()
        operands[rank][place] -= 2 * step
        below = total()
        operands[rank][place] += step
        slope = (above - below) / (2 * step)
        np.testing.assert_allclose(got[rank][place], slope, rtol=1e-5, atol=1e-7)


def test_equal_extremes_share_the_derivative() -> None:
    operands = [np.full(3, 2.0) for _ in range(WORLD)]
    seeds = [np.ones(3) for _ in range(WORLD)]
    found = gradients_on_ranks(lambda x: distributed.all_reduce(x, "max", ALL), operands, seeds)
    np.testing.assert_allclose(found, np.ones((WORLD, 3)))  # 4 ranks use it, and 4 share it


def test_a_derivative_can_be_differentiated() -> None:
    """d/dx of sum over ranks of (sum of x over ranks)^3 is 12 s^2 on 4 ranks, and so on."""
    operands = [np.array([rank + 1.0]) for rank in range(WORLD)]

    def slope(x: Tensor) -> Tensor:
        (first,) = lm.gradient((distributed.all_reduce(x, over=ALL) ** 3).sum(), [x])
        return first

    np.testing.assert_allclose(on_ranks(slope, operands), [[1200.0]] * WORLD)
    second = gradients_on_ranks(slope, operands, [np.ones(1)] * WORLD)
    np.testing.assert_allclose(second, [[4 * 4 * 6 * 10.0]] * WORLD)


def test_what_a_where_left_out_keeps_the_gradients_of_other_ranks() -> None:
    """A rank that chooses 0 here has a derivative by way of the ranks that choose otherwise."""
    operands = [np.array([-1.0]), np.array([4.0]), np.array([9.0]), np.array([16.0])]

    def function(x: Tensor) -> Tensor:
        return lm.where(x > 0, distributed.all_reduce(x * x, over=ALL), 0.0)

    found = gradients_on_ranks(function, operands, [np.ones(1)] * WORLD)
    np.testing.assert_allclose(found, [2 * 3 * operand for operand in operands])


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8", "float16", "bfloat16", "float32"])
def test_dtypes_stay(dtype: str) -> None:
    x = Tensor(np.ones((4, 2))).cast(getattr(lm, dtype))
    assert distributed.all_reduce(x, "max", ALL).dtype == dtype
    assert distributed.reduce_scatter(x, "min", over=ALL).shape == (1, 2)
    assert distributed.all_gather(x, 1, ALL).shape == (4, 8)


def test_one_process_changes_nothing() -> None:
    x = Tensor(np.arange(6.0).reshape(2, 3))
    assert distributed.rank() == 0
    assert distributed.size() == 1
    for result in (
        distributed.all_reduce(x), distributed.all_gather(x), distributed.broadcast(x),
        distributed.reduce_scatter(x), distributed.all_to_all(x), distributed.permute(x, [(0, 0)]),
    ):  # fmt: skip
        np.testing.assert_array_equal(result.numpy(), x.numpy())
    np.testing.assert_array_equal(distributed.permute(x, []).numpy(), np.zeros((2, 3)))


def test_what_does_not_fit_is_refused() -> None:
    x = Tensor(np.ones((3, 2), np.float32))
    with pytest.raises(ArgumentError, match="combine='mean' is none of sum, product, max, min"):
        distributed.all_reduce(x, "mean", ALL)
    with pytest.raises(DTypeError, match="a sum of bools: use max for any"):
        distributed.all_reduce(x > 0, "sum", ALL)
    with pytest.raises(DTypeError, match=r"complex64 \(3, 2\): take the real and imaginary"):
        distributed.all_gather(x.cast(lm.complex64), 0, ALL)
    with pytest.raises(ShapeError, match=r"axis 0 of \(3, 2\) has 3 elements, no multiple of 4"):
        distributed.reduce_scatter(x, "sum", 0, ALL)
    with pytest.raises(AxisError, match="all_gather"):
        distributed.all_gather(x, 2, ALL)
    with pytest.raises(ArgumentError, match="no root 4 among 4 processes"):
        distributed.broadcast(x, 4, ALL)
    with pytest.raises(ArgumentError, match="each once on each side"):
        distributed.permute(x, [(0, 1), (2, 1)], ALL)


def test_without_an_engine_nothing_runs() -> None:
    x = Tensor(np.ones((3, 2), np.float32))
    with pytest.raises(lm.LaminaError, match=r"call lamina.distributed.init\(\)"):
        distributed.all_reduce(x, "sum", ALL).numpy()


def test_the_page_runs() -> None:
    """Every program of docs/distributed.md, one after the other, in one process."""
    text = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(programs) > 2
    names: dict[str, object] = {}
    for program in programs:
        exec(compile(program, "distributed.md", "exec"), names)

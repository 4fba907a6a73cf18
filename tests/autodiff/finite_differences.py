"""Derivatives by central differences, the oracle of these tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lamina.core import dtypes
from lamina.graph.autodiff import gradient
from lamina.ir.build import cast, reduce
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op

Build = Callable[..., Node]

SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
FILLED = st.lists(st.integers(1, 3), max_size=3).map(tuple)
SEEDS = st.integers(0, 10_000)


def buffer(name: str, array: Any) -> Node:
    """A leaf of the array's shape and dtype."""
    array = np.asarray(array)
    dtype = dtypes.BY_NAME[array.dtype.name]
    return Node(Op.BUFFER, (), BufferRef(name, array.shape, dtype, "cpu"))


def total(x: Node) -> Node:
    return reduce(ADD, range(len(x.shape)), x)


def apart(seed: int, shape: Sequence[int], low: float = -2.0, high: float = 2.0) -> Any:
    """Random numbers that lie apart from each other and from 0, so that no kink is near."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    grid = (np.arange(count) + 0.5 + 0.2 * rng.uniform(-1, 1, count)) / max(count, 1)
    values = low + (high - low) * rng.permutation(grid)
    return np.where(np.abs(values) < 0.02, 0.05, values).reshape(shape)


def gradients(build: Build, *arrays: Any) -> list[Any]:
    """The derivatives of ``sum(build(*arrays))`` by each array; None for a symbolic zero."""
    arrays = tuple(np.asarray(array, np.float64) for array in arrays)
    leaves = [buffer(f"x{i}", array) for i, array in enumerate(arrays)]
    found = gradient(total(build(*leaves)), leaves)
    known = [one for one in found if one is not None]
    values = iter(evaluate(known, dict(zip(leaves, arrays, strict=True))))
    return [None if one is None else next(values) for one in found]


def check(build: Build, *arrays: Any, order: int = 1, tolerance: float = 2e-6) -> None:
    """Compare `gradient` of ``sum(weights * build(*arrays))`` with central differences.

    order 2 differentiates each derivative again and compares that as well.
    """
    arrays = tuple(np.asarray(array, np.float64) for array in arrays)
    leaves = [buffer(f"x{i}", array) for i, array in enumerate(arrays)]
    y = build(*leaves)
    weights = np.random.default_rng(len(y.shape)).uniform(0.5, 1.5, y.shape)
    seed = buffer(f"weights{order}", weights)
    found = gradient(y, leaves, cast(seed, y.dtype))
    at = {seed: weights}
    for i, adjoint in enumerate(found):
        assert adjoint is not None
        assert (adjoint.shape, adjoint.dtype) == (leaves[i].shape, leaves[i].dtype)
        (exact,) = evaluate([adjoint], at | dict(zip(leaves, arrays, strict=True)))
        numeric = _differences(total(y * cast(seed, y.dtype)), leaves, arrays, i, at)
        np.testing.assert_allclose(exact, numeric, rtol=tolerance, atol=tolerance)
    if order == 2:
        for adjoint in found:
            _check_again(adjoint, leaves, arrays, at, tolerance)


def _check_again(
    y: Node | None, leaves: list[Node], arrays: tuple[Any, ...], at: dict[Node, Any], limit: float
) -> None:
    assert y is not None
    weights = np.random.default_rng(7).uniform(0.5, 1.5, y.shape)
    seed = buffer("again", weights)
    at = at | {seed: weights}
    for i, adjoint in enumerate(gradient(y, leaves, seed)):
        numeric = _differences(total(y * seed), leaves, arrays, i, at)
        if adjoint is None:
            exact = np.zeros(arrays[i].shape)
        else:
            (exact,) = evaluate([adjoint], at | dict(zip(leaves, arrays, strict=True)))
        np.testing.assert_allclose(exact, numeric, rtol=limit, atol=limit)


def _differences(
    y: Node, leaves: list[Node], arrays: tuple[Any, ...], number: int, at: dict[Node, Any]
) -> Any:
    step = 1e-6
    numeric = np.zeros(arrays[number].shape)
    for place in np.ndindex(numeric.shape):
        ends = []
        for move in (step, -step):
            moved = [np.array(array) for array in arrays]
            moved[number][place] += move
            (value,) = evaluate([y], at | dict(zip(leaves, moved, strict=True)))
            ends.append(value)
        numeric[place] = (ends[0] - ends[1]) / (2 * step)
    return numeric

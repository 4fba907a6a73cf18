"""Calls in few steps: results over those of the last call, where nobody has these any more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.runtime.buffer import heap_of

VALUES = np.linspace(-1, 1, 96, dtype=np.float32).reshape(8, 12)


def called(function: Any, *tensors: lm.Tensor) -> Any:
    """The result of a quick call: the second call with tensors of these kinds finds its program."""
    function(*tensors)
    function(*tensors)
    assert function._quick
    return function(*tensors)


def test_several_results_in_a_tree() -> None:
    @lm.jit
    def both(x: lm.Tensor) -> dict[str, Any]:
        return {"sum": x.sum(axis=1), "rest": (x * 2, [x + 1])}

    result = called(both, lm.asarray(VALUES))
    np.testing.assert_allclose(result["sum"].numpy(), VALUES.sum(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result["rest"][0].numpy(), VALUES * 2)
    np.testing.assert_array_equal(result["rest"][1][0].numpy(), VALUES + 1)


def test_results_that_somebody_has_stay() -> None:
    function = lm.jit(lambda x: (x * 2, x + 1))
    first = called(function, lm.asarray(VALUES))
    view = first[1].numpy()
    others = [function(lm.asarray(VALUES * scale)) for scale in (2, 3)]
    np.testing.assert_array_equal(first[0].numpy(), VALUES * 2)
    np.testing.assert_array_equal(view, VALUES + 1)
    for scale, (double, more) in zip((2, 3), others, strict=True):
        np.testing.assert_array_equal(double.numpy(), VALUES * scale * 2)
        np.testing.assert_array_equal(more.numpy(), VALUES * scale + 1)


def test_memory_of_a_result_that_nobody_has_is_used_again() -> None:
    function = lm.jit(lambda x: (x * 2, x + 1))
    x = lm.asarray(VALUES)
    addresses = set()
    called(function, x)
    for _ in range(5):
        double, more = function(x)
        del more
        addresses.add(lm.frontend.realize.memory_of(double).pointer)
        del double
    assert len(addresses) == 1


def test_who_has_the_last_result_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    function = lm.jit(lambda x: (x * 2, x - 1))
    arguments = [lm.asarray(VALUES * scale) for scale in range(6)]
    double, less = called(function, arguments[0])
    double, less = function(arguments[0])
    heap = heap_of(double.device)
    taken: list[int] = []
    take = heap.take
    monkeypatch.setattr(heap, "take", lambda size: taken.append(size) or take(size))
    for argument in arguments:
        double, less = function(argument)
    assert not taken
    np.testing.assert_array_equal(double.numpy(), VALUES * 10)
    np.testing.assert_array_equal(less.numpy(), VALUES * 5 - 1)


def test_a_result_that_got_another_value_is_written_again() -> None:
    function = lm.jit(lambda x: x * 2)
    x = lm.asarray(VALUES)
    for _ in range(4):
        double = called(function, x)
        double.assign(double + 1).realize()
        np.testing.assert_array_equal(double.numpy(), VALUES * 2 + 1)
        del double
        np.testing.assert_array_equal((function(x) + 1).numpy(), VALUES * 2 + 1)


def test_one_tensor_as_two_arguments() -> None:
    function = lm.jit(lambda x, y: x - 1 if x is y else x + y)
    x, y = lm.asarray(VALUES), lm.asarray(VALUES * 3)
    np.testing.assert_array_equal(called(function, x, y).numpy(), VALUES + VALUES * 3)
    np.testing.assert_array_equal(function(x, x).numpy(), VALUES - 1)


@pytest.mark.parametrize("shape", [(8, 12), (512, 512)])
def test_one_value_in_two_places(shape: tuple[int, int]) -> None:
    x = lm.asarray(np.resize(VALUES, shape))
    function = lm.jit(lambda x: ((y := x * 2), y, x + 1))
    for _ in range(3):
        one, same, more = function(x)
    np.testing.assert_array_equal(one.numpy(), x.numpy() * 2)
    np.testing.assert_array_equal(same.numpy(), x.numpy() * 2)
    np.testing.assert_array_equal(more.numpy(), x.numpy() + 1)


@pytest.mark.parametrize("shape", [(8, 12), (512, 512)])
@pytest.mark.parametrize("held", [0, 1])
def test_equal_results_are_tensors_of_their_own(shape: tuple[int, int], held: int) -> None:
    """Both derivatives of a sum are one value. Whoever has one of them keeps its memory; another
    value of the one leaves the other as it is."""
    values = np.resize(VALUES, shape)
    x, y = lm.asarray(values), lm.asarray(values * 2)

    def derivatives(x: lm.Tensor, y: lm.Tensor) -> Any:
        result = lm.square(x + y)
        return result, *lm.gradient(lm.sum(result), [x, y])

    function = lm.jit(derivatives)
    kept = called(function, x, y)[1 + held]
    later = function(x, lm.asarray(values))[1:]
    later[0].assign(later[0] * 0.0)
    np.testing.assert_allclose(kept.numpy(), values * 6, rtol=1e-6)
    np.testing.assert_array_equal(later[0].numpy(), np.zeros(shape, np.float32))
    np.testing.assert_allclose(later[1].numpy(), values * 4, rtol=1e-6)
    again = function(y, lm.asarray(values * 2))[1:]
    np.testing.assert_allclose(again[held].numpy(), values * 8, rtol=1e-6)
    np.testing.assert_allclose(kept.numpy(), values * 6, rtol=1e-6)


def test_an_argument_that_is_a_result() -> None:
    function = lm.jit(lambda x: (x, x * 2))
    x = lm.asarray(VALUES)
    for _ in range(3):
        same, double = function(x)
    np.testing.assert_array_equal(same.numpy(), VALUES)
    np.testing.assert_array_equal(double.numpy(), VALUES * 2)


@pytest.mark.parametrize("shape", [(8, 12), (512, 512)])
def test_a_result_that_another_tensor_reads_stays(shape: tuple[int, int]) -> None:
    values = np.resize(VALUES, shape)
    function = lm.jit(lambda x: x * 2)
    first = called(function, lm.asarray(values))
    more = first + 1  # which nothing has computed yet
    del first
    second = function(lm.asarray(values * 3))
    np.testing.assert_array_equal(second.numpy(), values * 6)
    np.testing.assert_array_equal(more.numpy(), values * 2 + 1)


@pytest.mark.parametrize("rows", [8, 512])
def test_scratch_memory_between_kernels(rows: int) -> None:
    values = np.resize(VALUES, (rows, 12))
    function = lm.jit(lambda x: (x.exp().sum(axis=0) * x).max(axis=1))
    for scale in (1, 2, 3):
        x = values * np.float32(scale)
        want = (np.exp(x).sum(axis=0) * x).max(axis=1)
        np.testing.assert_allclose(called(function, lm.asarray(x)).numpy(), want, rtol=1e-5)


def test_arguments_that_are_computed_or_assigned_since() -> None:
    function = lm.jit(lambda x: x * 2)
    x = lm.asarray(VALUES)
    called(function, x)
    np.testing.assert_array_equal(function(x + 1).numpy(), (VALUES + 1) * 2)
    x.assign(x + 3)
    np.testing.assert_array_equal(function(x).numpy(), (VALUES + 3) * 2)
    np.testing.assert_array_equal(function(x).numpy(), (VALUES + 3) * 2)
    x[2] = 7.0
    changed = VALUES + 3
    changed[2] = 7
    np.testing.assert_array_equal(function(x).numpy(), changed * 2)

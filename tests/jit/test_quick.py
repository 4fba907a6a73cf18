"""Calls in few steps: results over those of the last call, where nobody has these any more."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
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


def test_a_dropped_result_is_gone_at_once() -> None:
    function = lm.jit(lambda x: x * 2)
    x = lm.asarray(VALUES)
    for _ in range(3):
        result = called(function, x)
        result.grad = lm.ones(result.shape)
        references = [weakref.ref(result), weakref.ref(result.grad)]
        del result
        assert [reference() for reference in references] == [None, None]


def test_one_result_that_somebody_has_costs_its_memory_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = lm.jit(lambda x: (x * 2, x + 1, x - 3))
    x = lm.asarray(VALUES)
    held = [called(function, x)[1]]
    heap, taken = heap_of(x.device), list[int]()
    take = heap.take
    monkeypatch.setattr(heap, "take", lambda size: taken.append(size) or take(size))
    held += [function(x)[1] for _ in range(10)]
    assert len(taken) <= 10 + 3  # and a second job
    for result in held:
        np.testing.assert_array_equal(result.numpy(), VALUES + 1)


@pytest.mark.parametrize("size", [8, 300])
def test_scratch_memory_without_results(size: int) -> None:
    x = lm.asarray(np.eye(size, dtype=np.float32)).realize()
    total = lm.zeros((size,)).realize()

    @lm.jit
    def step(x: lm.Tensor) -> None:
        total.assign(total + lm.matmul(lm.matmul(x, x) + 1.0, x).sum(axis=1))

    for number in range(1, 5):
        step(x)
        np.testing.assert_allclose(total.numpy(), np.full(size, number * (1.0 + size)), rtol=1e-5)


def scaled(scale: lm.Tensor, repeats: bool) -> Any:
    """A jitted function that captured `scale`; with its result twice if it repeats."""
    return lm.jit(lambda x: [x * scale, x * scale] if repeats else x * scale)


@pytest.mark.parametrize("repeats", [False, True])
def test_a_function_takes_what_it_captured_with_it(repeats: bool) -> None:
    scale = lm.asarray(VALUES).realize()
    function = scaled(scale, repeats)
    x = lm.asarray(VALUES + 1)
    for _ in range(3):
        function(x)
    pure = lm.jit(lambda x: [x + 1, x + 1] if repeats else x + 1)
    called(pure, x)
    program = weakref.ref(next(iter(pure._programs.values())))
    reference = weakref.ref(scale)
    gc.collect()
    gc.disable()
    try:
        del scale, function, pure
        assert reference() is None
        assert program() is None
    finally:
        gc.enable()


def test_no_text_is_written_for_arguments_with_gradients() -> None:
    function = lm.jit(lambda x: x * 2)
    x = lm.asarray(VALUES)
    x.grad = lm.ones(x.shape)
    for _ in range(3):
        np.testing.assert_array_equal(function(x).numpy(), VALUES * 2)
    assert not function._quick


def _change_gradient(result: lm.Tensor) -> None:
    result.grad = lm.ones(result.shape)


def _require_derivative(result: lm.Tensor) -> None:
    result.requires_grad = True


def _require_and_stop(result: lm.Tensor) -> None:
    result.requires_grad = True
    result.requires_grad = False


def _assign(result: lm.Tensor) -> None:
    result.assign(lm.full(result.shape, 7.0))


def _assign_and_realize(result: lm.Tensor) -> None:
    result[0, 0] = 7.0
    result.realize()


@pytest.mark.parametrize(
    "change",
    [_change_gradient, _require_derivative, _require_and_stop, _assign, _assign_and_realize],
)
def test_changes_of_a_result_are_not_in_later_ones(change: Callable[[lm.Tensor], None]) -> None:
    function = lm.jit(lambda x: x * 2)
    x = lm.asarray(VALUES)
    for _ in range(4):
        result = called(function, x)
        assert result.grad is None
        assert not result.requires_grad
        np.testing.assert_array_equal(result.numpy(), VALUES * 2)
        change(result)
        del result


def test_calls_of_several_kinds_in_turns() -> None:
    function = lm.jit(lambda x, y: x * 2 + y)
    kinds = [VALUES, VALUES[:4], VALUES.astype(np.float64), VALUES[:1, :1]]
    pairs = [(lm.asarray(values), lm.asarray(values + 1)) for values in kinds]
    for x, y in pairs:
        called(function, x, y)
    for turn in range(3):
        for values, (x, y) in zip(kinds, pairs, strict=True):
            check = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
            check(function(x, y).numpy(), values * 3 + 1)
            check(function(x, x).numpy(), values * 3)
            check(function(x, y + turn).numpy(), values * 3 + 1 + turn)
            check(function(x=x, y=y).numpy(), values * 3 + 1)
    with pytest.raises(TypeError):
        function(pairs[0][0])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_each_number_of_arguments(count: int) -> None:
    function = lm.jit(lambda *parts: sum(part * scale for scale, part in enumerate(parts, 1)))
    parts = [VALUES + number for number in range(count)]
    expected = sum(part * scale for scale, part in enumerate(parts, 1))
    tensors = [lm.asarray(part) for part in parts]
    np.testing.assert_allclose(called(function, *tensors).numpy(), expected, rtol=1e-5)
    once = sum(parts[0] * scale for scale in range(1, count + 1))
    for _ in range(2):
        result = function(*[tensors[0]] * count)
        np.testing.assert_allclose(result.numpy(), once, rtol=1e-5)


def test_a_failure_names_the_line_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    function = lm.jit(lambda x: x * 2)
    called(function, lm.asarray(VALUES))

    def refuse(tensor: lm.Tensor) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setitem(function._latest.call.__globals__, "memory_of", refuse)
    with pytest.raises(RuntimeError, match="no memory") as error:
        function(lm.asarray(VALUES) + 1)
    assert "m0 = memory_of(a0)" in str(error.getrepr())

"""Equal graphs are one node: whose value a traced function reads is not what the node says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm


@pytest.mark.parametrize("kept", ["value", "user"])
@pytest.mark.parametrize(
    "change",
    [lambda x: x * 2.0, lambda x: x.detach(), lambda x: lm.softmax(x) + (x * 3.0).detach()],
)
def test_an_equal_value_from_outside_is_no_part_of_a_program(change: Any, kept: str) -> None:
    """The graph of what was computed outside is the one that is computed inside."""
    state, runs = lm.Tensor([1.0, 2.0]).realize(), []
    value = change(state).realize()
    user = value + 1.0
    if kept == "user":
        del value
    function = lm.jit(lambda: runs.append(1) or change(state) * 10.0)
    bump = lm.jit(lambda: state.assign(state + 1.0))
    for step in range(6):
        want = (change(lm.Tensor(state.numpy())) * 10.0).tolist()
        assert function().tolist() == want
        if kept == "value" and step == 3:
            value.assign(value + 7.0)
        if step % 2:
            bump()
        else:
            state.assign(state * 2.0)
    assert len(runs) <= 3
    assert user.shape == (2,)


def test_an_assigned_value_is_not_what_it_was_computed_from() -> None:
    state = lm.Tensor([1.0]).realize()
    first, second = state.detach(), state * 2.0

    @lm.jit
    def function(x: lm.Tensor) -> lm.Tensor:
        first.assign(first + x)
        second.assign(second + 100.0)
        return state.detach() + state * 2.0

    assert [function(lm.Tensor([1.0])).item() for _ in range(3)] == [3.0, 3.0, 3.0]
    assert (first.item(), second.item(), state.item()) == (4.0, 302.0, 1.0)


def test_gradients_that_are_numbers_are_read_anew_as_well() -> None:
    """The derivative of a sum is a number, which needs no memory until something asks for it."""
    weight, runs = lm.ones((2,), requires_grad=True).realize(), []
    weight.sum().backward()
    function = lm.jit(lambda x: runs.append(1) or x + weight.grad)
    for count in range(1, 5):
        assert function(lm.zeros((2,))).tolist() == [count] * 2
        weight.sum().backward()
    assert len(runs) <= 3  # the first one finds what needs memory


def test_numbers_that_a_function_leaves_behind_need_no_memory() -> None:
    weight, left = lm.ones((2,), requires_grad=True), []

    @lm.jit
    def function(x: lm.Tensor) -> lm.Tensor:
        left.append(lm.gradient(weight.sum(), [weight])[0])
        return x + left[-1]

    assert [function(lm.zeros(shape)).tolist() for shape in ((), (1,), (2,))] == [[1.0, 1.0]] * 3


def test_whether_there_is_a_gradient_may_be_all_that_is_asked() -> None:
    weight = lm.ones((2,), requires_grad=True)
    function = lm.jit(lambda x: x + (0.0 if weight.grad is None else 1.0))
    for there in (False, True, True, False):
        weight.grad = lm.ones((2,)) if there else None
        assert [function(lm.zeros(())).item() for _ in range(3)] == [float(there)] * 3


@pytest.mark.parametrize("given", [np.ones(2, np.float32), [1.0, 1.0], 1.0, 1])
@pytest.mark.parametrize("traced", [True, False])
def test_gradients_from_elsewhere_are_tensors(given: Any, traced: bool) -> None:
    weight = lm.Tensor([1.0, 2.0], requires_grad=True)
    weight.grad = given
    assert isinstance(weight.grad, lm.Tensor)

    def step(x: lm.Tensor) -> lm.Tensor:
        (weight * x).sum().backward()
        weight.assign(weight.detach() - weight.grad)
        return weight + 0.0

    function = lm.jit(step) if traced else step
    found = [function(lm.ones(())).tolist() for _ in range(3)]
    assert found == [[-1.0, 0.0], [-4.0, -3.0], [-8.0, -7.0]]


def _number(state: lm.Tensor) -> lm.Tensor:
    """A number, in the shape of `state`."""
    state[...] = 0.5
    return state


@pytest.mark.parametrize(
    "start",
    [_number, lambda x: x * 2.0, lambda x: lm.zeros_like(x) + 0.5,
     lambda x: lm.gradient(x.sum(), [x])[0]],
    ids=["number", "product", "sum", "derivative"],
)  # fmt: skip
@pytest.mark.parametrize(
    "use",
    [lambda x, state: x * state,
     lambda x, state: lm.grad(lambda z: (z * z * state).sum())(x) / 2.0,
     lambda x, state: lm.gradient((x * x * state).sum(), [x])[0] / 2.0],
    ids=["plain", "grad", "gradient"],
)  # fmt: skip
def test_what_had_no_memory_at_first_is_read_anew(start: Any, use: Any) -> None:
    x, state = lm.Tensor([1.0, 3.0]), start(lm.Tensor([2.0, 4.0]))
    function = lm.jit(lambda x: use(x, state))
    function(x)
    for new in ([5.0, 6.0], [7.0, 8.0]):
        state.assign(lm.Tensor(new))
        assert function(x).tolist() == [new[0], 3.0 * new[1]]
    state[...] = 0.25
    assert function(x).tolist() == [0.25, 0.75]


def test_of_equal_values_in_one_memory_each_is_read() -> None:
    like = lm.Tensor([1.0])
    first, second = lm.zeros_like(like) + 0.5, lm.zeros_like(like) + 0.5
    function = lm.jit(lambda x: lm.grad(lambda z: (z * (first + 10.0 * second)).sum())(x))
    assert function(like).item() == 5.5
    second.assign(lm.Tensor([2.0]))
    assert function(like).item() == 20.5


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("realized", [True, False])
def test_what_is_assigned_may_equal_what_is_there(whole: bool, realized: bool) -> None:
    """Where it is traced: later it does not."""
    weight = lm.Tensor([1.0])
    state = weight * 2.0
    if realized:
        state.realize()

    @lm.jit
    def function() -> None:
        if whole:
            state[...] = weight * 2.0
        else:
            state.assign(weight * 2.0)

    for number in (2.0, 10.0, 14.0):
        function()
        assert state.item() == number
        weight.assign(weight + 4.0 if number == 2.0 else 7.0)


def test_a_number_that_is_there_already_is_written_again() -> None:
    state = _number(lm.Tensor([1.0, 2.0]))
    function = lm.jit(lambda: _number(state) + 1.0)
    for _ in range(3):
        assert function().tolist() == [1.5, 1.5]
        assert state.tolist() == [0.5, 0.5]
        state.assign(lm.Tensor([7.0, 8.0]))

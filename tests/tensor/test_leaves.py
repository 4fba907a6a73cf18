"""Whose derivative it is where several tensors have one value, or one node of the graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.errors import GradientError

torch = pytest.importorskip("torch")

Pair = tuple[Tensor, Tensor]
VALUES = [1.0, 2.0, 3.0]


def source() -> Tensor:
    return Tensor(VALUES)


def changed_by(change: Callable[[Tensor, Tensor], object]) -> Pair:
    """Two tensors that require their derivative, after `change` of each by the same source."""
    x = source()
    a, b = lm.zeros(3, requires_grad=True), lm.zeros(3, requires_grad=True)
    change(a, x)
    change(b, x)
    return a, b


def required(a: Tensor, b: Tensor) -> Pair:
    a.requires_grad = b.requires_grad = True
    return a, b


def with_second_handle() -> Pair:
    x = source()
    return required(x, Tensor(x))


def results_of_a_program() -> Pair:
    return lm.jit(lambda x: (x * 2.0, x * 2.0))(source())


def gradients_of_a_program() -> Pair:
    """Of a compiled one: where functions are interpreted, gradients keep their expressions."""
    with lm.using(device="cpu"):
        x = source()
        a, b = Tensor(x, requires_grad=True), Tensor(x, requires_grad=True)
        lm.jit(lambda x: ((a + b) * x).sum().backward())(x)
    assert a.grad is not None
    assert b.grad is not None
    return a.grad, b.grad


def loaded() -> Pair:
    layers = [nn.LayerNorm(3), nn.LayerNorm(3)]
    state = {"weight": source(), "bias": lm.zeros(3)}
    for layer in layers:
        nn.load_state_dict(layer, state)
    return layers[0].weight, layers[1].weight


def after_a_step() -> Pair:
    pair = nn.BatchNorm(3).weight, nn.BatchNorm(3).weight
    optimizer = nn.optim.SGD(pair, lr=0.5)
    (pair[0] + pair[1]).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return pair


def copied() -> Pair:
    x = source()
    return x, copy.copy(x)


def averaged() -> Pair:
    layer = nn.LayerNorm(3)
    return layer.weight, nn.parameters(nn.optim.AveragedModel(layer))[0]


# Tensors of one value each, which PyTorch differentiates for one by one.
PAIRS = {
    "constants": lambda: (lm.ones(3), lm.ones(3)),
    "results of a program": results_of_a_program,
    "gradients of a program": gradients_of_a_program,
    "copy": copied,
    "deepcopy": lambda: (lambda x: (x, copy.deepcopy(x)))(source()),
    "second handle": with_second_handle,
    "equal expressions": lambda: (lambda x: required(x * 2.0, x * 2.0))(source()),
    "views": lambda: (lambda x: required(x, x.reshape(3)))(source()),
    "broadcast": lambda: required(*lm.broadcast_arrays(*[source()] * 2)),
    "assigned a tensor": lambda: changed_by(lambda a, x: a.assign(x)),
    "assigned an expression": lambda: changed_by(lambda a, x: a.assign(x * 2.0)),
    "assigned a number": lambda: changed_by(lambda a, x: a.assign(2.0)),
    "assigned in places": lambda: changed_by(lambda a, x: a.__setitem__(slice(2), x[:2] + 1.0)),
    "rebound": lambda: changed_by(lambda a, x: a.rebind(x)),
    "layers": lambda: (nn.LayerNorm(3).weight, nn.LayerNorm(3).weight),
    "loaded layers": loaded,
    "layers after a step": after_a_step,
    "an average of a layer": averaged,
}  # fmt: skip


def expected(a: Tensor, b: Tensor) -> list[np.ndarray]:
    """The derivatives of the sum of ``a * b * b`` by PyTorch."""
    leaves = [torch.tensor(x.numpy(), requires_grad=True) for x in (a, b)]
    (leaves[0] * leaves[1] * leaves[1]).sum().backward()
    return [leaf.grad.numpy() for leaf in leaves]


def agree(slopes: Iterable[Tensor], wanted: list[np.ndarray]) -> None:
    for slope, reference in zip(slopes, wanted, strict=True):
        np.testing.assert_array_equal(slope.numpy(), reference)


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("device", ["cpu", "interp"])
@pytest.mark.parametrize("name", PAIRS)
def test_each_has_its_derivative(name: str, device: str, realized: bool) -> None:
    with lm.using(device=device):
        a, b = PAIRS[name]()
        if realized:
            lm.realize(a, b)
        loss = (a * b * b).sum()
        slopes = lm.gradient(loss, [a, b])
        required(a, b)  # those that do not require it yet
        (a * b * b).sum().backward()
        wanted = expected(a, b)
        agree(slopes, wanted)
        agree((a.grad, b.grad), wanted)


@pytest.mark.parametrize("name", PAIRS)
def test_each_has_its_derivative_in_a_program(name: str) -> None:
    with lm.using(device="cpu"):
        a, b = required(*PAIRS[name]())

        @lm.jit
        def step() -> Pair:
            a.grad = b.grad = None
            (a * b * b).sum().backward()
            assert a.grad is not None
            assert b.grad is not None
            return a.grad, b.grad

        for _ in range(3):
            agree(step(), expected(a, b))


def test_results_of_a_program_that_share_memory_change_apart() -> None:
    with lm.using(device="cpu"):
        bump = lm.jit(lambda x: x.assign(x + 1.0))
        for first, second in (0, 1), (1, 0):
            pair = results_of_a_program()
            bump(pair[first])
            assert pair[first].tolist() == [3.0, 5.0, 7.0]
            assert pair[second].tolist() == [2.0, 4.0, 6.0]
            pair[second].assign(pair[second] * 10.0)
            bump(pair[second])
            assert pair[second].tolist() == [21.0, 41.0, 61.0]
            assert pair[first].tolist() == [3.0, 5.0, 7.0]


@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_a_result_given_twice_is_one_tensor(device: str) -> None:
    def twice(x: Tensor) -> Pair:
        y = x * 2.0
        return y, y

    with lm.using(device=device):
        first, second = lm.jit(twice)(source())
        assert first is second
        slope = lm.grad(lambda x: lm.jit(twice)(x)[0].sum())(source())
        assert slope.tolist() == [2.0] * 3


@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_results_of_a_program_have_no_history(device: str) -> None:
    with lm.using(device=device):
        x = source()
        assert lm.gradient(lm.jit(lambda x: x * 2.0)(x).sum(), x)[0].tolist() == [0.0] * 3


# Two names of one node: the graph does not know which of them was used.
NAMES = {
    "second handle": lambda x: (x, Tensor(x)),
    "view": lambda x: (x, x.reshape(3)),
    "equal expressions": lambda x: (x * 2.0, x * 2.0),
    "detached": lambda x: (x.detach(), x.detach()),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_cannot_be_told_apart_are_refused(name: str) -> None:
    a, b = NAMES[name](source())
    loss = (a * b * b).sum()
    with pytest.raises(GradientError, match=r"wrt\[1\] and wrt\[2\] are two names of one value"):
        lm.gradient(loss, [source(), a, b])
    wanted = expected(a, b)
    agree(lm.grad(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(a, b), wanted)
    required(a, b)
    agree(lm.gradient((a * b * b).sum(), [a, b]), wanted)


def test_one_tensor_may_be_asked_for_twice() -> None:
    x = source()
    for slope in lm.gradient((x * x).sum(), [x, x]):
        assert slope.tolist() == [2.0, 4.0, 6.0]
    unused = lm.gradient((source() * 2.0).sum(), [x * 3.0, x * 3.0])
    assert [slope.tolist() for slope in unused] == [[0.0] * 3] * 2


def test_a_copy_of_a_parameter_passes_no_derivative_to_it() -> None:
    """A network whose parameters are copied now and then from those of another, both trained."""
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    for original, copied in zip(nn.parameters(first), nn.parameters(second), strict=True):
        copied.assign(original)
    x = Tensor([VALUES])
    (first(x) - 3.0 * second(x)).sum().backward()
    assert first.weight.grad is not None
    assert second.weight.grad is not None
    assert first.weight.grad.tolist() == [VALUES] * 2
    assert second.weight.grad.tolist() == [[-3.0 * value for value in VALUES]] * 2


def test_what_was_computed_before_does_not_depend_on_a_new_leaf() -> None:
    """As in PyTorch."""
    x = source()
    before = (x * 5.0).sum()
    x.requires_grad = True
    assert x.is_realized()
    with pytest.raises(GradientError, match="requires_grad"):
        before.backward()
    (before + (x * 2.0).sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x * 2.0], ids=["leaf", "expression"])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_function_that_fails_leaves_requirements_as_they_were(
    make: Callable[[Tensor], Tensor], wanted: bool
) -> None:
    state = make(source())
    state.requires_grad = not wanted
    node = state.node

    @lm.jit
    def function(x: Tensor) -> None:
        state.requires_grad = wanted
        x.requires_grad = wanted
        raise KeyError

    with lm.using(device="cpu"):
        x = source()
        x.requires_grad = not wanted
        with pytest.raises(KeyError):
            function(x)
        with pytest.raises(KeyError):
            function.lower(x)
    assert state.requires_grad is x.requires_grad is not wanted
    assert state.node is node


@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_a_program_leaves_requirements_as_its_function_does(device: str) -> None:
    with lm.using(device=device):
        state, frozen = source() * 2.0, Tensor(VALUES, requires_grad=True)
        copies = Tensor(state), Tensor(frozen)

        @lm.jit
        def function(x: Tensor, w: Tensor) -> Tensor | None:
            state.requires_grad = w.requires_grad = True
            frozen.requires_grad = False
            w.grad = state.grad = None
            (state * w * x * frozen).sum().backward()
            return w.grad

        for number in range(1, 4):
            x, w = lm.full(3, float(number)), source()
            slope = function(x, w)
            assert slope is not None
            assert state.grad is not None
            assert w.grad is not None
            assert (state.requires_grad, w.requires_grad, frozen.requires_grad) == (
                True, True, False,
            )  # fmt: skip
            assert slope.tolist() == w.grad.tolist() == [2.0 * number * v * v for v in VALUES]
            assert state.grad.tolist() == [number * v * v for v in VALUES]
            assert frozen.grad is None
            function(x, w)
        assert [second.requires_grad for second in copies] == [False, False]
        (w * w + state).sum().backward()
        assert w.grad.tolist() == [2.0 * 3 * v * v + 2.0 * v for v in VALUES]
        lowered = function.lower(x, w, device="cpu")
        assert "assign" not in lowered.stages["graph"]


def test_a_requirement_does_not_mix_up_tensors_in_one_memory() -> None:
    with lm.using(device="cpu"):
        a, b = results_of_a_program()

        @lm.jit
        def function(x: Tensor) -> Tensor:
            b.requires_grad = True
            return x * b

        for _ in range(3):
            assert function(lm.ones(3)).tolist() == b.tolist()
            a.assign(a + 1.0)
            b.requires_grad = False
            b.assign(b * 10.0)

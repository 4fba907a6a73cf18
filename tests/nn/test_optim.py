"""Optimisers against torch.optim, step by step, and against their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.core import options
from lamina.errors import ArgumentError, DTypeError, GradientError, ShapeError
from lamina.frontend import execution
from lamina.ir.ops import Op
from lamina.nn import optim

Array = np.ndarray[Any, Any]
STEPS = 8  # RAdam's average of squares counts from the sixth step on
SHAPES = [(3, 4), (5,)]


def gradients(step: int, shapes: list[tuple[int, ...]]) -> list[Array]:
    generator = np.random.default_rng(step + 1)
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


def starts(shapes: list[tuple[int, ...]]) -> list[Array]:
    return [one * 2.0 for one in gradients(-1, shapes)]


def trajectory(
    make: Callable[..., optim.Optimizer], shapes: list[tuple[int, ...]] = SHAPES, **kwargs: Any
) -> list[list[Array]]:
    """The parameters after each step."""
    parameters = [Tensor(one, requires_grad=True) for one in starts(shapes)]
    optimizer = make(parameters, **kwargs)
    found = []
    for step in range(STEPS):
        optimizer.step([Tensor(one) for one in gradients(step, shapes)])
        found.append([one.numpy() for one in parameters])
    return found


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        ("Adam", {"lr": 0.1}),
        ("Adam", {"lr": 0.1, "betas": (0.5, 0.99), "eps": 1e-3, "weight_decay": 0.1}),
        ("Adam", {"lr": 0.1, "betas": (0.0, 0.9)}),
        ("AdamW", {"lr": 0.1}),
        ("AdamW", {"lr": 0.1, "weight_decay": 0.5}),
        ("RMSprop", {"lr": 0.1}),
        ("RMSprop", {"lr": 0.1, "alpha": 0.5, "momentum": 0.9, "centered": True,
                     "weight_decay": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "maximize": True}),
        ("Adam", {"lr": 0.1, "amsgrad": True, "foreach": False}),
        ("AdamW", {"lr": 0.1, "amsgrad": True, "maximize": True, "betas": (0.9, 0.5)}),
        ("Adamax", {}),
        ("Adamax", {"lr": 0.1, "betas": (0.5, 0.9), "eps": 0.1, "weight_decay": 0.1}),
        ("NAdam", {"lr": 0.1, "weight_decay": 0.1}),
        ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True,
                   "momentum_decay": 0.5}),
        ("RAdam", {"lr": 0.1, "weight_decay": 0.1}),
        ("RAdam", {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-3}),
        ("RAdam", {"lr": 0.1, "weight_decay": 0.5, "decoupled_weight_decay": True,
                   "betas": (0.5, 0.8)}),
        ("Adagrad", {}),
        ("Adagrad", {"lr": 0.1, "lr_decay": 0.3, "initial_accumulator_value": 0.5,
                     "weight_decay": 0.1, "maximize": True}),
        ("Adadelta", {}),
        ("Adadelta", {"lr": 0.5, "rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}),
    ],
)  # fmt: skip
def test_every_step_agrees_with_pytorch(name: str, kwargs: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    parameters = [torch.tensor(one, requires_grad=True) for one in starts(SHAPES)]
    theirs = getattr(torch.optim, name)(parameters, **kwargs)
    for step, found in enumerate(trajectory(getattr(optim, name), **kwargs)):
        for one, gradient in zip(parameters, gradients(step, SHAPES), strict=True):
            one.grad = torch.tensor(gradient)
        theirs.step()
        for mine, one in zip(found, parameters, strict=True):
            np.testing.assert_allclose(mine, one.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
@pytest.mark.parametrize("nesterov", [False, True])
def test_muon_agrees_with_pytorch_as_far_as_its_half_precision_goes(
    shape: tuple[int, int], nesterov: bool
) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this PyTorch has no Muon")
    parameter = torch.tensor(starts([shape])[0], requires_grad=True)
    theirs = torch.optim.Muon([parameter], lr=0.1, nesterov=nesterov)
    for step, found in enumerate(trajectory(optim.Muon, [shape], lr=0.1, nesterov=nesterov)):
        parameter.grad = torch.tensor(gradients(step, [shape])[0])
        theirs.step()
        np.testing.assert_allclose(found[0], parameter.detach().numpy(), atol=0.01 * (step + 1))


def muon_reference(shape: tuple[int, int], lr: float, decay: float) -> list[Array]:
    """Jordan's iteration as an odd polynomial of the singular values, in float64."""
    value = starts([shape])[0].astype(float)
    average = np.zeros(shape)
    found = []
    for step in range(STEPS):
        gradient = gradients(step, [shape])[0]
        average = 0.95 * average + 0.05 * gradient
        u, s, v = np.linalg.svd(0.05 * gradient + 0.95 * average, full_matrices=False)
        s = s / np.sqrt((s * s).sum())
        for _ in range(5):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        longer = math.sqrt(max(1.0, shape[0] / shape[1]))
        value = value * (1 - lr * decay) - lr * longer * (u * s) @ v
        found.append(value)
    return found


@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
def test_muon_follows_its_formula(shape: tuple[int, int]) -> None:
    wanted = muon_reference(shape, 0.1, 0.1)
    for one, (mine,) in zip(wanted, trajectory(optim.Muon, [shape], lr=0.1), strict=True):
        np.testing.assert_allclose(mine, one, rtol=2e-4, atol=2e-4)


def adam_reference(lr: float, decay: float, kind: str) -> list[list[Array]]:
    """Adam, AdamW and Lamb in float64, from their papers."""
    values = [one.astype(float) for one in starts(SHAPES)]
    means, squares = ([np.zeros(shape) for shape in SHAPES] for _ in range(2))
    found = []
    for step in range(STEPS):
        for at, gradient in enumerate(gradients(step, SHAPES)):
            value = values[at]
            exact = gradient + decay * value if kind == "Adam" else gradient.astype(float)
            means[at] = 0.9 * means[at] + 0.1 * exact
            squares[at] = 0.999 * squares[at] + 0.001 * exact**2
            mean = means[at] / (1 - 0.9 ** (step + 1))
            update = mean / (np.sqrt(squares[at] / (1 - 0.999 ** (step + 1))) + 1e-6)
            if kind == "AdamW":
                value = value * (1 - lr * decay)
            if kind == "Lamb":
                update = update + decay * value
                update = update * np.linalg.norm(value) / np.linalg.norm(update)
            values[at] = value - lr * update
        found.append([*values])
    return found


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "Lamb"])
def test_adam_and_its_relatives_follow_their_formulas(kind: str) -> None:
    wanted = adam_reference(0.1, 0.2, kind)
    mine = trajectory(getattr(optim, kind), lr=0.1, eps=1e-6, weight_decay=0.2)
    for row, expected in zip(mine, wanted, strict=True):
        for one, other in zip(row, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=5e-5, atol=5e-6)


def test_lamb_moves_a_parameter_of_zeros() -> None:
    parameter = Tensor(np.zeros(3, np.float32), requires_grad=True)
    optim.Lamb([parameter], lr=0.1).step([lm.ones((3,))])
    np.testing.assert_allclose(parameter.numpy(), -0.1, rtol=1e-3)


def test_sgd_and_rmsprop_follow_their_formulas() -> None:
    value = square = None
    for step, (found, other) in enumerate(zip(
        trajectory(optim.SGD, lr=0.1), trajectory(optim.RMSprop, lr=0.1), strict=True
    )):  # fmt: skip
        first = starts(SHAPES)[0].astype(float)
        gradient = gradients(step, SHAPES)[0].astype(float)
        value = (first if value is None else value) - 0.1 * gradient
        square = (0.0 if square is None else 0.99 * square) + 0.01 * gradient**2
        before = first if step == 0 else after  # noqa: F821
        after = before - 0.1 * gradient / (np.sqrt(square) + 1e-8)
        np.testing.assert_allclose(found[0], value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other[0], after, rtol=1e-5, atol=1e-6)


def test_half_precision_parameters_keep_exact_state() -> None:
    parameter = Tensor(np.ones(4), dtype=lm.bfloat16, requires_grad=True)
    optimizer = optim.AdamW([parameter], lr=0.5)
    optimizer.step([Tensor(np.full(4, 0.001), dtype=lm.bfloat16)])
    assert parameter.dtype is lm.bfloat16
    assert optimizer.state["exp_avg_sq"][0].dtype is lm.float32
    np.testing.assert_allclose(parameter.numpy().astype(float), 0.495, rtol=0.01)


def test_backward_step_and_zero_grad_learn() -> None:
    layer = nn.Linear(2, 1)
    optimizer = optim.SGD(nn.parameters(layer), lr=0.2)
    x = Tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    y = x @ Tensor([[2.0], [-3.0]]) + 0.5
    for _ in range(200):
        loss = lm.mse_loss(layer(x), y)
        loss.backward()
        optimizer.step()
        assert loss.is_realized()  # with the step, not by a second program
        optimizer.zero_grad()
        assert layer.weight.grad is None
    assert loss.item() < 1e-5
    np.testing.assert_allclose(layer.weight.numpy(), [[2.0, -3.0]], atol=0.02)


def test_a_parameter_without_a_gradient_stays() -> None:
    one, other = (Tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    optimizer = optim.AdamW([one, other], lr=0.1)
    optimizer.step([None, lm.ones((2,))])
    np.testing.assert_array_equal(one.numpy(), [1.0, 2.0])
    assert (other.numpy() < [1.0, 2.0]).all()


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("name", "kwargs"), [("Adam", {}), ("SGD", {"momentum": 0.9, "dampening": 0.5})]
)
def test_a_parameter_counts_its_own_steps(name: str, kwargs: dict[str, Any], traced: bool) -> None:
    torch = pytest.importorskip("torch")
    with options.using(device="cpu" if traced else "interp"):
        mine = [Tensor(one, requires_grad=True) for one in starts(SHAPES)]
        optimizer = getattr(optim, name)(mine, lr=0.1, **kwargs)
    other = [torch.tensor(one, requires_grad=True) for one in starts(SHAPES)]
    theirs = getattr(torch.optim, name)(other, lr=0.1, **kwargs)
    step = lm.jit(optimizer.step) if traced else optimizer.step
    for number, missing in enumerate([1, 1, None, 0, 1, None]):
        found = gradients(number, SHAPES)
        for at, one in enumerate(other):
            one.grad = None if at == missing else torch.tensor(found[at])
        theirs.step()
        step([None if at == missing else Tensor(found[at], device=one.device)
              for at, one in enumerate(mine)])  # fmt: skip
        for one, two in zip(mine, other, strict=True):
            np.testing.assert_allclose(one.numpy(), two.detach().numpy(), 2e-5, 2e-6)


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Lamb"])
def test_a_step_stores_parameters_and_state_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameter = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = getattr(optim, name)([parameter])
    gradient, sinks, execute = Tensor([0.5, -1.0]), [], execution.execute

    def watched(wanted: Any, *rest: Any) -> Any:
        sinks.extend(wanted)
        return execute(wanted, *rest)

    monkeypatch.setattr(execution, "execute", watched)
    optimizer.step([gradient])
    optimizer.step(lm.gradient((parameter * parameter).sum(), [parameter]))  # which nobody keeps
    assert {one.op for one in sinks} == {Op.ASSIGN}


def test_the_state_is_saved_and_restored() -> None:
    def made() -> tuple[Tensor, optim.Optimizer]:
        parameter = Tensor([1.0, 2.0], requires_grad=True)
        return parameter, optim.Adam([parameter], lr=0.1)

    (first, one), (second, two) = made(), made()
    one.step([Tensor([1.0, -3.0])])
    nn.load_state_dict(two.state, nn.state_dict(one.state))
    second.assign(first)
    for optimizer in (one, two):
        optimizer.step([Tensor([0.5, 0.5])])
    np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_the_rate_can_be_set_and_follows_a_schedule() -> None:
    parameter = Tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([parameter], lr=1.0)
    optimizer.step([lm.ones((1,))])
    assert parameter.item() == 0.0
    optimizer.lr = 0.25
    optimizer.step([lm.ones((1,))])
    assert parameter.item() == -0.25
    with pytest.raises(ArgumentError, match=r"SGD: lr is -2\.0"):
        optimizer.lr = -2.0
    assert optimizer.lr == 0.25  # as the tensor that steps read still says
    scheduled = optim.SGD([parameter], lr=lambda count: float(count))
    for wanted in (-0.25, -1.25, -3.25):
        scheduled.step([lm.ones((1,))])
        assert parameter.item() == wanted


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_gradients_are_clipped_by_norm(power: float, limit: float) -> None:
    torch = pytest.importorskip("torch")
    mine = [Tensor(one, requires_grad=True) for one in starts(SHAPES)]
    other = [torch.tensor(one, requires_grad=True) for one in starts(SHAPES)]
    for one, two, gradient in zip(mine, other, gradients(0, SHAPES), strict=True):
        one.grad, two.grad = Tensor(gradient), torch.tensor(gradient)
    norm = optim.clip_grad_norm([*mine, Tensor([1.0], requires_grad=True)], limit, power)
    wanted = torch.nn.utils.clip_grad_norm_(other, limit, power)
    assert norm.item() == pytest.approx(wanted.item(), rel=1e-5)
    for one, two in zip(mine, other, strict=True):
        assert one.grad is not None
        np.testing.assert_allclose(one.grad.numpy(), two.grad.numpy(), rtol=1e-5)


def test_gradients_are_clipped_by_value() -> None:
    parameter = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    parameter.grad = Tensor([-4.0, 0.25, 4.0])
    optim.clip_grad_value([parameter], 0.5)
    np.testing.assert_array_equal(parameter.grad.numpy(), [-0.5, 0.25, 0.5])


def test_gradients_of_one_parameter_are_clipped() -> None:
    parameter = Tensor([[1.0, 2.0]], requires_grad=True)
    parameter.grad = Tensor([[-3.0, 4.0]])
    assert optim.clip_grad_norm(parameter, 0.5).item() == pytest.approx(5.0)
    np.testing.assert_allclose(parameter.grad.numpy(), [[-0.3, 0.4]], rtol=1e-5)
    optim.clip_grad_value(parameter, 0.35)
    np.testing.assert_allclose(parameter.grad.numpy(), [[-0.3, 0.35]], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: optim.SGD([]), GradientError, "no parameters"),
        (lambda p: optim.SGD([Tensor([1.0])]), GradientError, "requires_grad=True"),
        (lambda p: optim.SGD([p], lr=-1.0), ValueError, "lr is -1.0"),
        (lambda p: optim.SGD([p], nesterov=True), ValueError, "nesterov needs"),
        (lambda p: optim.Adam([p], betas=(1.0, 0.9)), ArgumentError, r"betas are \(1\.0, 0\.9\)"),
        (lambda p: optim.AdamW([p], betas=(0.9,)), ArgumentError, r"^AdamW: betas.*not two in"),
        (lambda p: optim.Lamb([p], betas=(0, 0, 0)), ArgumentError, r"^Lamb: betas.*not two in"),
        (lambda p: optim.Muon([p]), ShapeError, r"\(2,\) is not a matrix"),
        (lambda p: optim.SGD([p]).step(), GradientError, "call loss.backward"),
        (lambda p: optim.SGD([p]).step([]), GradientError, "0 gradients for 1"),
        (lambda p: optim.SGD([p]).step(1.5), ShapeError, r"gradient \(\) of parameter \(2,\)"),
        (lambda p: optim.SGD([p]).step("x"), DTypeError, "str is not made of numbers"),
        (lambda p: optim.SGD([p]).step([lm.ones((3,))]), ShapeError, r"\(3,\).*\(2,\)"),
        (lambda p: optim.Adamax([p], betas=(2, 0)), ArgumentError, "^Adamax: betas"),
        (lambda p: optim.Adadelta([p], rho=2.0), ArgumentError, "rho is 2"),
        (lambda p: optim.SGD([{"params": [p], "momentum": 1}]), ArgumentError, "params, momentum"),
        (lambda p: optim.SGD([{"params": p, "lr": -1.0}]), ArgumentError, "lr is -1.0"),
        (lambda p: optim.SGD([{"params": p, "weight_decay": -1.0}]), ArgumentError, "decay is -1"),
    ],
)
def test_misuse_is_named(make: Callable[[Tensor], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=rf"{text}.*\n  at test_optim"):  # which has it as well
        make(Tensor([1.0, 2.0], requires_grad=True))


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Lamb"])
def test_groups_have_rates_and_decays_of_their_own(name: str) -> None:
    mine = [Tensor(one, requires_grad=True) for one in starts(SHAPES)]
    apart = [Tensor(one, requires_grad=True) for one in starts(SHAPES)]
    grouped = getattr(optim, name)(
        [{"params": mine[:1]}, {"params": mine[1], "lr": 0.5, "weight_decay": 0.0}],
        lr=0.1, weight_decay=0.3,
    )  # fmt: skip
    single = [getattr(optim, name)(apart[:1], lr=0.1, weight_decay=0.3),
              getattr(optim, name)(apart[1:], lr=0.5, weight_decay=0.0)]  # fmt: skip
    for step in range(3):
        if step == 2:
            grouped.lr = single[0].lr = 0.2  # of those without one of their own
        slopes = [Tensor(one) for one in gradients(step, SHAPES)]
        grouped.step(slopes)
        for one, slope in zip(single, slopes, strict=True):
            one.step([slope])
    # A GPU may fuse other multiplications with additions where groups share a kernel: parameters of
    # about 1 may then differ by some units of 2**-23.
    tolerance = 8 * 2.0**-23
    for one, other in zip(mine, apart, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta"])
def test_a_traced_step_is_the_same(name: str) -> None:
    def trained(traced: bool) -> list[Array]:
        with options.using(device="cpu"):
            own = [Tensor(one, requires_grad=True) for one in starts(SHAPES)]
            optimizer = getattr(optim, name)(own, lr=0.1)
            step = lm.jit(optimizer.step) if traced else optimizer.step
            for number in range(4):
                step([Tensor(one) for one in gradients(number, SHAPES)])
            return [one.numpy() for one in own]

    for one, other in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)

"""What stands beside the optimisers: loss scaling, averages of weights, and L-BFGS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.core import options
from lamina.errors import ArgumentError, GradientError
from lamina.frontend import execution
from lamina.nn import optim
from tests.nn.beside_pytorch import copied

torch = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]


def data(seed: int) -> tuple[Array, Array]:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((8, 3)).astype(np.float32)
    return x, np.tanh(x @ draw.standard_normal((3, 2))).astype(np.float32)


# Loss scaling.


@pytest.mark.parametrize("traced", [False, True])
def test_a_scaled_training_takes_the_same_steps(traced: bool) -> None:
    """PyTorch's scaler gets the same gradients; two of them are not finite."""
    with options.using(device="cpu" if traced else "interp"):
        mine = Tensor([1.0, 2.0, 3.0], requires_grad=True)
        optimizer = optim.Adam([mine], lr=0.1)
        scaler = optim.GradScaler(init_scale=8.0, growth_interval=2)

        def run(slopes: Tensor) -> None:
            scaler.scale((mine * slopes).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        step = lm.jit(run) if traced else run
        other = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        theirs = torch.optim.Adam([other], lr=0.1)
        wanted = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        for slope in (0.5, 1.0, np.inf, 0.25, np.nan, -1.0, 0.5, 2.0):
            slopes = np.array([slope, 1.0, -0.5], np.float32)
            step(Tensor(slopes))
            theirs.zero_grad()
            wanted.scale((other * torch.tensor(slopes)).sum()).backward()
            wanted.step(theirs)
            wanted.update()
            assert scaler.get_scale() == wanted.get_scale()
            np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), rtol=1e-5)


def test_gradients_in_half_precision_keep_small_values() -> None:
    def gradient(scaler: optim.GradScaler) -> Any:
        weight = Tensor([1.0], lm.float16, requires_grad=True)
        loss = ((weight * 1e-4).cast(lm.float32) * 1e-4).sum()  # 1e-8 is 0 in float16
        scaler.scale(loss).backward()
        optimizer = optim.SGD([weight], lr=1.0)
        scaler.unscale_(optimizer)
        assert weight.grad is not None
        return weight.grad.item()

    assert gradient(optim.GradScaler()) == pytest.approx(1e-8, rel=1e-2)
    assert gradient(optim.GradScaler(enabled=False)) == 0.0


def test_a_step_waits_for_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    optimizer, scaler = optim.SGD([weight], lr=0.1), optim.GradScaler(init_scale=4.0)
    runs, execute = [], execution.execute

    def watched(sinks: Any, *rest: Any) -> Any:
        runs.append(len(sinks))
        return execute(sinks, *rest)

    for _ in range(2):  # the second one has nothing to set up
        del runs[:]
        monkeypatch.setattr(execution, "execute", watched)
        scaler.scale((weight * weight).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert len(runs) == 1


def test_gradients_are_clipped_between_unscaling_and_the_step() -> None:
    weight = Tensor([3.0, 4.0], requires_grad=True)
    optimizer, scaler = optim.SGD([weight], lr=1.0), optim.GradScaler(init_scale=16.0)
    scaler.scale((weight * weight).sum() * 0.5).backward()
    scaler.unscale_(optimizer)
    assert optim.clip_grad_norm([weight], 1.0).item() == pytest.approx(5.0)
    with pytest.raises(ArgumentError, match="unscaled already"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose(weight.numpy(), [2.4, 3.2], rtol=1e-5)
    with pytest.raises(ArgumentError, match="backoff_factor 2"):
        optim.GradScaler(backoff_factor=2.0)


def test_a_second_step_before_the_update_is_refused() -> None:
    """It would divide the new gradients by nothing: PyTorch refuses it as well."""
    weight = Tensor([1.0], requires_grad=True)
    optimizer, scaler = optim.SGD([weight], lr=0.25), optim.GradScaler(init_scale=1024.0)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ArgumentError, match=r"^step: .* stepped already; call update\(\)"):
        scaler.step(optimizer)
    with pytest.raises(ArgumentError, match=r"call update\(\)"):
        scaler.unscale_(optimizer)
    assert weight.item() == 0.75
    scaler.update()
    scaler.step(optimizer)
    assert weight.item() == 0.5


def test_a_step_left_out_leaves_the_state_as_it_was() -> None:
    weight = Tensor([1.0], requires_grad=True)
    optimizer = optim.Adam([weight], lr=0.1)
    optimizer.step([Tensor([1.0])])
    before = {name: one.numpy() for name, one in nn.state_dict(optimizer.state).items()}
    value = weight.item()
    optimizer.step([Tensor([5.0])], when=Tensor(False))
    assert weight.item() == value
    for name, one in nn.state_dict(optimizer.state).items():
        np.testing.assert_array_equal(one.numpy(), before[name])
    optimizer.step([Tensor([5.0])], when=Tensor(True))
    assert weight.item() != value


# Averages of weights.


@pytest.mark.parametrize("decay", [None, 0.9])
@pytest.mark.parametrize("use_buffers", [False, True])
def test_averages_of_weights_are_pytorchs(decay: float | None, use_buffers: bool) -> None:
    swa = torch.optim.swa_utils
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    nn.load_state_dict(ours, copied(theirs))
    mine = optim.AveragedModel(
        ours, optim.get_swa_avg_fn() if decay is None else optim.get_ema_avg_fn(decay), use_buffers
    )
    wanted = swa.AveragedModel(
        theirs, avg_fn=None if decay is None else swa.get_ema_avg_fn(decay), use_buffers=use_buffers
    )
    for number in range(4):
        state = {
            name: np.full(one.shape, number + 1.5).astype(one.numpy().dtype)
            for name, one in theirs.state_dict().items()
        }
        nn.load_state_dict(ours, state)
        theirs.load_state_dict({name: torch.tensor(one) for name, one in state.items()})
        mine.update_parameters(ours)
        wanted.update_parameters(theirs)
    state = nn.state_dict(mine)
    for name, one in wanted.state_dict().items():
        if one.dtype.is_floating_point or not use_buffers:  # an average of integers is none
            np.testing.assert_allclose(state[name].numpy(), one.numpy(), rtol=1e-5, err_msg=name)
    nn.eval(mine)
    result = mine(data(0)[0]).numpy()
    np.testing.assert_allclose(
        result, wanted.eval()(torch.tensor(data(0)[0])).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_an_average_follows_a_traced_training() -> None:
    def trained(traced: bool) -> list[Array]:
        with options.using(device="cpu"):
            model = nn.Linear(3, 2)
            nn.load_state_dict(model, {"weight": np.ones((2, 3)), "bias": np.zeros(2)})
            average = optim.AveragedModel(model, optim.get_ema_avg_fn(0.8))
            optimizer = optim.SGD(nn.parameters(model), lr=0.1)

            def run(x: Tensor, y: Tensor) -> None:
                lm.mse_loss(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
                average.update_parameters(model)

            step = lm.jit(run) if traced else run
            for number in range(5):
                step(*map(Tensor, data(number)))
            return [one.numpy() for one in nn.state_dict(average).values()]

    for one, other in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


# L-BFGS.


@pytest.mark.parametrize(
    "settings",
    [{"lr": 0.1, "max_iter": 10}, {"line_search_fn": "strong_wolfe"},
     {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 7, "lr": 0.3},
     {"lr": 0.5, "max_iter": 5, "tolerance_change": 1e-3}],
)  # fmt: skip
def test_lbfgs_takes_pytorchs_steps(settings: dict[str, Any]) -> None:
    """Rosenbrock's valley in four dimensions, and a second parameter of another shape."""
    start = np.array([-1.2, 1.0, -0.5, 0.8])
    starts = start, np.array([[2.0, -1.0]])
    mine = [Tensor(one, requires_grad=True) for one in starts]
    other = [torch.tensor(one, requires_grad=True) for one in starts]
    ours, theirs = optim.LBFGS(mine, **settings), torch.optim.LBFGS(other, **settings)

    def loss(x: Any, y: Any) -> Any:
        valley = ((1.0 - x[:-1]) ** 2 + 10.0 * (x[1:] - x[:-1] ** 2) ** 2).sum()
        return valley + ((y - 0.5) ** 4).sum()

    counts = [0, 0]

    def closure_of(parameters: list[Any], optimizer: Any, which: int) -> Any:
        def closure() -> Any:
            counts[which] += 1
            optimizer.zero_grad()
            value = loss(*parameters)
            value.backward()
            return value

        return closure

    for _ in range(4):
        found = ours.step(closure_of(mine, ours, 0))
        wanted = theirs.step(closure_of(other, theirs, 1))
        assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
        for one, two in zip(mine, other, strict=True):
            np.testing.assert_allclose(one.numpy(), two.detach().numpy(), rtol=1e-6, atol=1e-9)
        assert counts[0] == counts[1]


def test_lbfgs_fits_a_layer() -> None:
    x, y = data(3)
    layer = nn.Linear(3, 2)
    optimizer = optim.LBFGS(nn.parameters(layer), line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = lm.mse_loss(layer(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    design = np.hstack([x, np.ones((8, 1))])
    best = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(layer.weight.numpy(), best[:3].T, atol=1e-3)


def test_lbfgs_misuse_is_named() -> None:
    with pytest.raises(GradientError, match="LBFGS: parameters made with"):
        optim.LBFGS([Tensor([1.0])])
    weight = Tensor([1.0], requires_grad=True)
    with pytest.raises(ArgumentError, match="line_search_fn 'armijo'"):
        optim.LBFGS([weight], line_search_fn="armijo")
    with pytest.raises(ArgumentError, match="max_iter 0"):
        optim.LBFGS([weight], max_iter=0)

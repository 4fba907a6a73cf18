"""Schedules against PyTorch's schedulers, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lamina import Tensor
from lamina.errors import ArgumentError
from lamina.nn import optim, schedules


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (schedules.step(0.5, 3, 0.2), ("StepLR", {"step_size": 3, "gamma": 0.2})),
        (schedules.exponential(0.5, 0.9), ("ExponentialLR", {"gamma": 0.9})),
        (schedules.cosine(0.5, 20, min_rate=0.1),
         ("CosineAnnealingLR", {"T_max": 20, "eta_min": 0.1})),
        (schedules.one_cycle(0.5, 20), ("OneCycleLR", {"max_lr": 0.5, "total_steps": 20})),
        (schedules.one_cycle(0.5, 20, rise=0.25, start=10.0, end=100.0, anneal="linear"),
         ("OneCycleLR", {"max_lr": 0.5, "total_steps": 20, "pct_start": 0.25, "div_factor": 10.0,
                         "final_div_factor": 100.0, "anneal_strategy": "linear"})),
        (schedules.one_cycle(0.5, 20, three_phase=True),
         ("OneCycleLR", {"max_lr": 0.5, "total_steps": 20, "three_phase": True})),
        (schedules.multi_step(0.5, [12, 3, 3], 0.5),
         ("MultiStepLR", {"milestones": [3, 3, 12], "gamma": 0.5})),
        (schedules.polynomial(0.5, 12, 2.0), ("PolynomialLR", {"total_iters": 12, "power": 2.0})),
        (schedules.linear(0.5, 7), ("LinearLR", {"total_iters": 7})),
        (schedules.linear(0.5, 7, 0.2, 0.9),
         ("LinearLR", {"total_iters": 7, "start_factor": 0.2, "end_factor": 0.9})),
        (schedules.constant(0.5, 5, 0.2), ("ConstantLR", {"total_iters": 5, "factor": 0.2})),
        (schedules.cosine_restarts(0.5, 4, min_rate=0.1),
         ("CosineAnnealingWarmRestarts", {"T_0": 4, "eta_min": 0.1})),
        (schedules.cosine_restarts(0.5, 3, 2), ("CosineAnnealingWarmRestarts", {"T_0": 3,
                                                                               "T_mult": 2})),
        (schedules.cyclic(0.1, 0.5, 3, 4, 0.9),
         ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 3, "step_size_down": 4,
                       "mode": "exp_range", "gamma": 0.9})),
        (lambda count: 0.5 * 0.9**count, ("LambdaLR", {"lr_lambda": lambda count: 0.9**count})),
    ],
)  # fmt: skip
def test_schedules_agree_with_pytorch(
    ours: schedules.Schedule, theirs: tuple[str, dict[str, Any]]
) -> None:
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule = getattr(torch.optim.lr_scheduler, theirs[0])(optimizer, **theirs[1])
    for step in range(20):
        assert ours(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6), step
        optimizer.step()
        if step < 19:
            schedule.step()


def test_a_cosine_is_pytorchs_up_to_its_end_alone() -> None:
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    ours = schedules.cosine(1.0, 4)
    for step in range(9):
        rate = optimizer.param_groups[0]["lr"]
        assert ours(step) == pytest.approx(rate if step < 5 else 0.0, abs=1e-7)
        optimizer.step()
        theirs.step()
    assert rate == pytest.approx(1.0)


def test_a_cosine_warms_up_first_and_stays_at_its_end() -> None:
    rate = schedules.cosine(1.0, 10, warmup=4, min_rate=0.1)
    assert [rate(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rate(7) == pytest.approx(0.55)
    assert rate(10) == rate(50) == pytest.approx(0.1)


def test_schedules_are_joined_as_pytorchs_are() -> None:
    torch = pytest.importorskip("torch")
    scheduler = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    parts = [scheduler.LinearLR(optimizer, 0.2, total_iters=4), scheduler.StepLR(optimizer, 3, 0.5)]
    theirs = scheduler.SequentialLR(optimizer, parts, [5])
    ours = schedules.sequential(
        [schedules.linear(0.5, 4, 0.2), schedules.step(0.5, 3, 0.5)], [5]
    )
    for step in range(15):
        assert ours(step) == pytest.approx(optimizer.param_groups[0]["lr"]), step
        optimizer.step()
        theirs.step()


def test_schedules_are_multiplied_as_pytorchs_are() -> None:
    torch = pytest.importorskip("torch")
    scheduler = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    parts = [scheduler.ConstantLR(optimizer, 0.2, 4), scheduler.ExponentialLR(optimizer, 0.9)]
    theirs = scheduler.ChainedScheduler(parts)
    ours = schedules.chained(
        0.5, [schedules.constant(0.5, 4, 0.2), schedules.exponential(0.5, 0.9)]
    )
    for step in range(10):
        assert ours(step) == pytest.approx(optimizer.param_groups[0]["lr"]), step
        optimizer.step()
        theirs.step()


def test_any_schedule_warms_up() -> None:
    rate = schedules.warmup(schedules.exponential(1.0, 0.5), 4, start=0.2)
    assert [rate(step) for step in range(7)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 0.5, 0.25])


METRICS = [3.0, 2.0, 2.5, 2.4, 1.99995, 2.2, 2.1, -1.0, -1.00001, 0.0, 0.1, -3.0, -2.0, -2.5, -1.0]


@pytest.mark.parametrize(
    "settings",
    [{}, {"cooldown": 2, "factor": 0.5}, {"threshold_mode": "abs", "threshold": 0.5},
     {"mode": "max", "threshold": 0.2}, {"min_lr": 0.02}],
)  # fmt: skip
def test_a_plateau_reduces_the_rate(settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    ours = optim.SGD([Tensor([0.0], requires_grad=True)], lr=0.5)
    given = {"patience": 1} | settings
    wanted = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **given)
    plateau = schedules.ReduceOnPlateau(ours, **given)
    for metric in METRICS:
        plateau.step(Tensor(metric))
        wanted.step(metric)
        assert ours.lr == pytest.approx(theirs.param_groups[0]["lr"]), metric


def test_a_plateau_reduces_the_rates_of_groups_as_pytorchs_does() -> None:
    torch = pytest.importorskip("torch")
    rates = [0.5, 0.01]
    theirs = torch.optim.SGD(
        [{"params": torch.zeros(1, requires_grad=True), "lr": rate} for rate in rates]
    )
    weights = [Tensor([0.0], requires_grad=True) for _ in rates]
    ours = optim.SGD([{"params": weights[0]}, {"params": weights[1], "lr": rates[1]}], lr=rates[0])
    given = {"patience": 0, "min_lr": 1e-4}
    wanted = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **given)
    plateau = schedules.ReduceOnPlateau(ours, **given)
    for metric in METRICS:
        plateau.step(metric)
        wanted.step(metric)
        before = [one.item() for one in weights]
        ours.step([Tensor([-1.0])] * 2)
        moved = [one.item() - old for one, old in zip(weights, before, strict=True)]
        assert moved == pytest.approx([one["lr"] for one in theirs.param_groups], rel=1e-2), metric


def test_a_plateau_reduces_the_rate_of_lbfgs() -> None:
    optimizer = optim.LBFGS([Tensor([0.0], requires_grad=True)], lr=0.5)
    plateau = schedules.ReduceOnPlateau(optimizer, patience=0)
    plateau.step(1.0)
    plateau.step(1.0)
    assert optimizer.lr == pytest.approx(0.05)


def test_rates_that_are_schedules_do_not_change() -> None:
    weight = Tensor([0.0], requires_grad=True)
    grouped = optim.SGD([{"params": weight, "lr": schedules.constant(0.1)}])
    with pytest.raises(ArgumentError, match="SGD: a rate is a schedule"):
        grouped.change_rates(lambda rate: rate / 2)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: schedules.step(1.0, 0), "every: 0 is less than 1"),
        (lambda: schedules.cosine(1.0, 5, warmup=5), "warmup: 0 is less than 1"),
        (lambda: schedules.cosine_restarts(1.0, 0), "steps: 0 is less than 1"),
        (lambda: schedules.cyclic(0.1, 1.0, 0), "up: 0 is less than 1"),
        (lambda: schedules.one_cycle(1.0, 5, anneal="cubic"), "anneal='cubic'"),
        (lambda: schedules.sequential([schedules.constant(1.0)], [3]), "1 schedules need"),
        (lambda: schedules.ReduceOnPlateau(optim.SGD([Tensor([1.0], requires_grad=True)]), "low"),
         "mode 'low'"),
    ],
)  # fmt: skip
def test_misuse_is_named(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=rf"{text}.*\n  at test_schedules"):
        make()

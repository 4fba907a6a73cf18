"""Learning rates as functions of the number of steps taken so far.

A schedule is any ``function(step) -> rate``; give it to an optimiser in place of a number. Rates
are those of PyTorch's schedulers with the names in parentheses, but for `cosine`, which stays at
its end where CosineAnnealingLR rises again.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lamina.errors import ArgumentError
from lamina.frontend.arguments import integer
from lamina.frontend.tensor import missing

__all__ = [
    "ReduceOnPlateau", "chained", "constant", "cosine", "cosine_restarts", "cyclic", "exponential",
    "linear", "multi_step", "one_cycle", "polynomial", "sequential", "step", "warmup",
]  # fmt: skip

Schedule = Callable[[int], float]


def step(rate: float, every: int, gamma: float = 0.1) -> Schedule:
    """`rate`, multiplied by `gamma` once every `every` steps (StepLR)."""
    integer("step", every, 1, "every")
    return lambda count: rate * gamma ** (count // every)


def multi_step(rate: float, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """`rate`, multiplied by `gamma` at each of the steps `milestones` (MultiStepLR)."""
    places = sorted(milestones)
    return lambda count: rate * gamma ** bisect_right(places, count)


def exponential(rate: float, gamma: float) -> Schedule:
    """`rate`, multiplied by `gamma` at every step (ExponentialLR)."""
    return lambda count: rate * gamma**count


def polynomial(rate: float, steps: int, power: float = 1.0) -> Schedule:
    """``rate * (1 - count / steps) ** power``, then 0 (PolynomialLR)."""
    integer("polynomial", steps, 1, "steps")
    return lambda count: rate * (1.0 - min(count, steps) / steps) ** power


def linear(rate: float, steps: int, start: float = 1.0 / 3.0, end: float = 1.0) -> Schedule:
    """A line from rate * start to rate * end in `steps` steps, then constant (LinearLR)."""
    integer("linear", steps, 1, "steps")
    return lambda count: rate * (start + (end - start) * min(count, steps) / steps)


def constant(rate: float, steps: int = 0, factor: float = 1.0 / 3.0) -> Schedule:
    """rate * factor for `steps` steps, then `rate` (ConstantLR)."""
    return lambda count: rate * factor if count < steps else rate


def cosine(rate: float, steps: int, warmup: int = 0, min_rate: float = 0.0) -> Schedule:
    """A straight rise to `rate` over `warmup` steps, then half a cosine down to `min_rate`
    (CosineAnnealingLR).

    `steps` includes the warmup; afterwards the rate stays at `min_rate`, where that of PyTorch
    rises again along the cosine.
    Source: Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts."""
    integer("cosine", steps - warmup, 1, "steps - warmup")
    return lambda count: (
        rate * (count + 1) / warmup if count < warmup
        else _cosine(rate, min_rate, (count - warmup) / (steps - warmup))
    )  # fmt: skip


def cosine_restarts(rate: float, steps: int, factor: int = 1, min_rate: float = 0.0) -> Schedule:
    """Half a cosine from `rate` down to `min_rate` in `steps` steps, again and again, each `factor`
    times as long as the one before (CosineAnnealingWarmRestarts).

    Source: Loshchilov and Hutter 2017, "SGDR", equation 5."""
    integer("cosine_restarts", steps, 1, "steps")
    integer("cosine_restarts", factor, 1, "factor")

    def schedule(count: int) -> float:
        length = steps
        while count >= length:
            count -= length
            length *= factor
            if factor == 1:
                count %= length
        return _cosine(rate, min_rate, count / length)

    return schedule


def one_cycle(
    rate: float, steps: int, rise: float = 0.3, start: float = 25.0, end: float = 1e4,
    anneal: str = "cos", three_phase: bool = False,
) -> Schedule:  # fmt: skip
    """From rate / start up to `rate` in the first `rise` of the steps, then down to
    rate / start / end (OneCycleLR).

    anneal: along half a 'cos' each, or 'linear'. three_phase: down to rate / start as fast as up,
    and then further in what is left of the steps.
    Source: Smith and Topin 2018, "Super-convergence"."""
    integer("one_cycle", steps, 1, "steps")
    if anneal not in ("cos", "linear"):
        raise ArgumentError(f"anneal={anneal!r} is not 'cos' or 'linear'", operation="one_cycle")
    between = _cosine if anneal == "cos" else _line
    top = rise * steps - 1.0
    last = steps - 1.0
    first = rate / start
    phases = [(top, first, rate)]
    if three_phase:
        phases.append((2.0 * rise * steps - 2.0, rate, first))
    phases.append((last, phases[-1][2], first / end))

    def schedule(count: int) -> float:
        begin = 0.0
        for stop, low, high in phases:
            if count <= stop or stop == last:
                length = stop - begin
                share = (count - begin) / length if length > 0.0 else 1.0
                return between(low, high, share)
            begin = stop
        return first / end

    return schedule


def cyclic(
    low: float, rate: float, up: int = 2000, down: int | None = None, gamma: float = 1.0
) -> Schedule:
    """From `low` up to `rate` in `up` steps along a line and down in `down`, by default as many,
    again and again (CyclicLR). gamma: the amplitude is multiplied by it at every step.

    Source: Smith 2017, "Cyclical learning rates for training neural networks", section 3.2."""
    rising = integer("cyclic", up, 1, "up")
    falling = rising if down is None else integer("cyclic", down, 1, "down")

    def schedule(count: int) -> float:
        place = count % (rising + falling)
        height = place / rising if place <= rising else (rising + falling - place) / falling
        return low + (rate - low) * height * gamma**count

    return schedule


def warmup(schedule: Schedule, steps: int, start: float = 0.0) -> Schedule:
    """`schedule`, which begins after `steps` steps along a line from `start` times its first rate
    to this rate."""
    integer("warmup", steps, 1, "steps")

    def warmed(count: int) -> float:
        if count >= steps:
            return schedule(count - steps)
        return schedule(0) * (start + (1.0 - start) * count / steps)

    return warmed


def sequential(schedules: Sequence[Schedule], milestones: Sequence[int]) -> Schedule:
    """One schedule after another, the next from each of the steps `milestones` on, where it begins
    with its step 0 (SequentialLR)."""
    if len(milestones) != len(schedules) - 1 or sorted(milestones) != list(milestones):
        raise ArgumentError(f"{len(schedules)} schedules need one milestone less, in "
                            f"order, not {list(milestones)}", operation="sequential")  # fmt: skip

    def schedule(count: int) -> float:
        at = bisect_right(milestones, count)
        return schedules[at](count - milestones[at - 1] if at else count)

    return schedule


def chained(rate: float, schedules: Sequence[Schedule]) -> Schedule:
    """`rate` times the factor by which each of `schedules` differs from it (ChainedScheduler)."""
    return lambda count: rate * math.prod(schedule(count) / rate for schedule in schedules)


class ReduceOnPlateau:
    """Multiplies an optimiser's rates, those of its groups too, by `factor` when a metric has not
    improved for more than `patience` calls (ReduceLROnPlateau)::

        plateau = schedules.ReduceOnPlateau(optimizer)
        plateau.step(validation_loss)

    mode: whether the metric is to fall ('min') or to rise ('max'). threshold: an improvement is
    greater than this share of the best value, or with ``threshold_mode='abs'`` than this amount.
    cooldown: calls after a reduction in which nothing counts. min_lr: the least rate. eps:
    smaller changes are left out."""

    def __init__(
        self, optimizer: Any, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
        min_lr: float = 0.0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ArgumentError(
                f"mode {mode!r} is 'min' or 'max', threshold_mode "
                f"{threshold_mode!r} is 'rel' or 'abs'",
                operation="ReduceOnPlateau",
            )
        if not 0.0 <= factor < 1.0 or callable(optimizer.lr):
            raise ArgumentError(
                f"factor {factor} and rate {optimizer.lr}; a "
                "factor below 1 and a number as rate are needed",
                operation="ReduceOnPlateau",
            )
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.eps = eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0

    def step(self, metric: Any) -> None:
        """Note one value of the metric, which is waited for, and reduce the rate if it is time."""
        value = float(metric)
        if self._is_better(value):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self.optimizer.change_rates(self._reduced)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0

    def _reduced(self, rate: float) -> float:
        smaller = max(rate * self.factor, self.min_lr)
        return smaller if rate - smaller > self.eps else rate

    def _is_better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        if math.isinf(self.best):
            return sign * value < sign * self.best
        margin = self.threshold
        if self.threshold_mode == "rel":
            margin *= self.best
        return sign * value < sign * self.best - margin


def _cosine(begin: float, end: float, share: float) -> float:
    return end + (begin - end) * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))


def _line(begin: float, end: float, share: float) -> float:
    return begin + (end - begin) * min(share, 1.0)


def __getattr__(name: str) -> NoReturn:
    raise missing("lamina.nn.schedules", name)

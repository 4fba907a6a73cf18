"""Optimisers: parameters and state are updated in place, one program a step.

    optimizer = nn.optim.AdamW(nn.parameters(model), lr=1e-3)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

or, without `backward`, ``optimizer.step(lm.gradient(loss, optimizer.parameters))``. The learning
rate and the step counter are tensors, so that every step runs the same compiled program; it also
computes the loss, the gradients and whatever else was pending.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lamina import dtypes
from lamina.dtypes import DType
from lamina.errors import ArgumentError, GradientError, ShapeError
from lamina.nn.schedules import Schedule
from lamina.nn.state import filled, settle
from lamina.tensor import reduction
from lamina.tensor.core import Tensor
from lamina.tensor.elementwise import clip, expm1, maximum, minimum, sqrt, where
from lamina.tensor.realize import live_tensors, realize

__all__ = [
    "SGD", "Adam", "AdamW", "Lamb", "Muon", "Optimizer", "RMSprop", "clip_grad_norm",
    "clip_grad_value",
]  # fmt: skip


class Optimizer:
    """What all optimisers share. `state` holds their tensors by name, one for each parameter.

    `nn.state_dict(optimizer.state)` and `nn.load_state_dict` save and restore it.
    """

    parameters: list[Tensor]
    state: dict[str, list[Tensor]]

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Schedule,
        weight_decay: float,
        slots: Sequence[str],
    ) -> None:
        self.parameters = list(parameters)
        what = type(self).__name__
        if not self.parameters:
            raise GradientError(f"{what}: no parameters; nn.parameters(model) lists them")
        for one in self.parameters:
            if not isinstance(one, Tensor) or not one.requires_grad:
                raise GradientError(f"{what}: {one!r} was not made with requires_grad=True")
        _check_range(what, weight_decay=(weight_decay, 0.0, math.inf))
        settle()
        self.weight_decay = weight_decay
        self._schedule = lr if callable(lr) else None
        self._rate_on_device: dict[str, Tensor] = {}
        self._rate = math.nan
        self.state = {
            name: [filled(one.shape, 0.0, _exact(one), one.device) for one in self.parameters]
            for name in slots
        }
        devices = dict.fromkeys(one.device for one in self.parameters)
        self.state["step"] = [filled((), 0.0, dtypes.float32, device) for device in devices]
        self._counters = dict(zip(devices, self.state["step"], strict=True))
        self.count = 0  # steps taken, for the schedule
        self._shares: dict[tuple[str, DType, float], Tensor] = {}  # of the step being built
        self.lr = self._schedule(0) if self._schedule else float(lr)  # type: ignore[arg-type]

    @property
    def lr(self) -> float:
        """The learning rate of the next step; with a schedule, it is set after every step."""
        return self._rate

    @lr.setter
    def lr(self, value: float) -> None:
        if not value >= 0.0:
            raise ArgumentError(f"{type(self).__name__}: lr is {value}; it cannot be negative")
        if value == self._rate:
            return
        self._rate = value
        for device in self._counters:
            fresh = filled((), value, dtypes.float32, device)
            held = self._rate_on_device.setdefault(device, fresh)
            if held is not fresh:
                held.assign(fresh)
        realize(*self._rate_on_device.values())

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for one in self.parameters:
            one.grad = None

    def step(self, gradients: Sequence[Tensor | None] | None = None) -> None:
        """Move every parameter against its gradient, all in one program.

        gradients: one for each of `parameters`, in this order; `grad` of each by default. A
        parameter whose gradient is None stays where it is.
        """
        given = [one.grad for one in self.parameters] if gradients is None else list(gradients)
        self._check(given)
        for counter in self._counters.values():
            counter.assign(counter + 1.0)
        for index, (one, gradient) in enumerate(zip(self.parameters, given, strict=True)):
            if gradient is not None:
                kind = _exact(one)
                new = self._update(index, one.detach().cast(kind), gradient.detach().cast(kind))
                one.assign(new)
        self._shares.clear()  # before the run, which would store what is still held
        # Whatever layers assigned on the way, such as running statistics, belongs to this step.
        realize(*(one for one in live_tensors() if one.assigned))
        self.count += 1
        if self._schedule:
            self.lr = self._schedule(self.count)

    def _check(self, gradients: list[Tensor | None]) -> None:
        what = type(self).__name__
        if len(gradients) != len(self.parameters):
            raise GradientError(
                f"{what}: {len(gradients)} gradients for {len(self.parameters)} parameters"
            )
        if all(one is None for one in gradients):
            raise GradientError(f"{what}: no parameter has a gradient; call loss.backward() first")
        for one, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None and gradient.shape != one.shape:
                raise ShapeError(
                    f"{what}: a gradient of shape {gradient.shape} for a parameter of shape "
                    f"{one.shape}"
                )

    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> Tensor:
        """The new value of parameter number `index`; assigns its state."""
        raise NotImplementedError

    def _next(self, name: str, index: int, value: Tensor) -> Tensor:
        """Assign one tensor of the state; returns its new value."""
        return self.state[name][index].assign(value)

    def _rate_of(self, like: Tensor) -> Tensor:
        return self._rate_on_device[like.device].cast(like.dtype)

    def _counter(self, like: Tensor) -> Tensor:
        """The number of this step, from 1."""
        return self._counters[like.device].cast(like.dtype)

    def _corrected(self, average: Tensor, beta: float) -> Tensor:
        """An average that started at zero, freed of that start: divided by 1 - beta ** step."""
        if beta == 0.0:
            return average
        key = (average.device, average.dtype, beta)
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = -expm1(self._counter(average) * math.log(beta))
        return average / found


class SGD(Optimizer):
    """Gradient descent with momentum (Polyak 1964; Nesterov 1983), as PyTorch defines it."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Schedule = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        if nesterov and (momentum <= 0.0 or dampening != 0.0):
            raise ArgumentError("SGD: nesterov needs a momentum and no dampening")
        _check_range("SGD", momentum=(momentum, 0.0, math.inf))
        self.momentum, self.dampening, self.nesterov = momentum, dampening, nesterov
        super().__init__(parameters, lr, weight_decay, ["momentum"] if momentum else [])

    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> Tensor:
        gradient = _decayed(gradient, parameter, self.weight_decay)
        if self.momentum:
            share: float | Tensor = 1.0
            if self.dampening:  # not on the first step, which starts the average
                share = where(self._counter(parameter) > 1.5, 1.0 - self.dampening, 1.0)
            old = self.state["momentum"][index]
            average = self._next("momentum", index, old * self.momentum + gradient * share)
            gradient = gradient + average * self.momentum if self.nesterov else average
        return parameter - gradient * self._rate_of(parameter)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1); `weight_decay` is added to the gradient."""

    _decoupled = False

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        what = type(self).__name__
        _check_range(what, beta1=(betas[0], 0.0, 1.0), beta2=(betas[1], 0.0, 1.0))
        _check_range(what, eps=(eps, 0.0, math.inf))
        self.betas, self.eps = betas, eps
        super().__init__(parameters, lr, weight_decay, ["exp_avg", "exp_avg_sq"])

    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> Tensor:
        rate = self._rate_of(parameter)
        if self._decoupled:
            parameter = parameter * (1.0 - rate * self.weight_decay)
        else:
            gradient = _decayed(gradient, parameter, self.weight_decay)
        return parameter - self._direction(index, gradient) * rate

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        means, squares = self.state["exp_avg"][index], self.state["exp_avg_sq"][index]
        first, second = self.betas
        mean = self._next("exp_avg", index, means * first + gradient * (1.0 - first))
        square = self._next(
            "exp_avg_sq", index, squares * second + gradient * gradient * (1.0 - second)
        )
        return self._corrected(mean, first) / (sqrt(self._corrected(square, second)) + self.eps)


class AdamW(Adam):
    """Adam whose weight decay is apart from the gradient (Loshchilov and Hutter 2019)."""

    _decoupled = True

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)


class Lamb(Adam):
    """Adam with a step as long as the parameter itself (You et al. 2020, algorithm 2).

    The trust ratio ``norm(parameter) / norm(update)`` is 1 where one of the norms is 0.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> Tensor:
        update = _decayed(self._direction(index, gradient), parameter, self.weight_decay)
        size, length = (_norm(one) for one in (parameter, update))
        useful = (size > 0.0) & (length > 0.0)
        ratio = where(useful, size / where(useful, length, 1.0), 1.0)
        return parameter - update * (ratio * self._rate_of(parameter))


class Muon(Optimizer):
    """Momentum, made orthogonal by Newton and Schulz's iteration; for matrices (Jordan 2024).

    Raises ShapeError for parameters that are not matrices: give those to AdamW.
    """

    _COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan 2024, for singular values near 1
    _LEAST_NORM = 1e-7

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Schedule = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
    ) -> None:
        _check_range("Muon", momentum=(momentum, 0.0, 1.0))
        self.momentum, self.nesterov, self.ns_steps = momentum, nesterov, ns_steps
        listed = list(parameters)
        for one in listed:
            if one.ndim != 2:
                raise ShapeError(f"Muon: a parameter of shape {one.shape} is not a matrix")
        super().__init__(listed, lr, weight_decay, ["momentum"])

    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> Tensor:
        old, keep = self.state["momentum"][index], self.momentum
        average = self._next("momentum", index, old * keep + gradient * (1.0 - keep))
        update = gradient * (1.0 - keep) + average * keep if self.nesterov else average
        rate = self._rate_of(parameter)
        rows, columns = parameter.shape
        longer = math.sqrt(max(1.0, rows / columns))
        kept = parameter * (1.0 - rate * self.weight_decay)
        return kept - self._orthogonal(update) * (rate * longer)

    def _orthogonal(self, x: Tensor) -> Tensor:
        a, b, c = self._COEFFICIENTS
        wide = x.shape[0] <= x.shape[1]
        x = x if wide else x.T
        x = x / maximum(_norm(x), self._LEAST_NORM)
        for _ in range(self.ns_steps):
            square = (x @ x.T).contiguous()
            x = (x * a + (square * b + square @ square * c) @ x).contiguous()
        return x if wide else x.T


class RMSprop(Optimizer):
    """Steps divided by the root of an average of squares (Tieleman and Hinton 2012)."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Schedule = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        _check_range("RMSprop", alpha=(alpha, 0.0, math.inf), momentum=(momentum, 0.0, math.inf))
        self.alpha, self.eps, self.momentum, self.centered = alpha, eps, momentum, centered
        slots = ["square_avg"] + ["grad_avg"] * centered + ["momentum"] * bool(momentum)
        super().__init__(parameters, lr, weight_decay, slots)

    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> Tensor:
        gradient = _decayed(gradient, parameter, self.weight_decay)
        share = 1.0 - self.alpha
        squares = self.state["square_avg"][index]
        spread = self._next(
            "square_avg", index, squares * self.alpha + gradient * gradient * share
        )
        if self.centered:
            means = self.state["grad_avg"][index]
            mean = self._next("grad_avg", index, means * self.alpha + gradient * share)
            spread = spread - mean * mean
        update = gradient / (sqrt(spread) + self.eps)
        if self.momentum:
            old = self.state["momentum"][index]
            update = self._next("momentum", index, old * self.momentum + update)
        return parameter - update * self._rate_of(parameter)


def clip_grad_norm(parameters: Iterable[Tensor], max_norm: float, ord: float = 2.0) -> Tensor:
    """Scale the gradients down so that their norm, taken together, is at most `max_norm`.

    Returns the norm before, float32 of shape (). Parameters without a gradient are ignored.
    """
    given = [one for one in parameters if one.grad is not None]
    gradients: list[Any] = [one.grad for one in given]
    if not given:
        return Tensor(0.0)
    parts = [one.cast(_exact(one)) for one in gradients]
    if ord == math.inf:
        total = reduction.max(abs(parts[0]))
        for one in parts[1:]:
            total = maximum(total, reduction.max(abs(one)).to(total.device))
    else:
        total = _power_sum(parts[0], ord)
        for one in parts[1:]:
            total = total + _power_sum(one, ord).to(total.device)
        total = total ** (1.0 / ord)
    factor = minimum(max_norm / (total + 1e-6), 1.0)  # the term keeps a norm of 0 finite
    for one, gradient in zip(given, gradients, strict=True):
        one.grad = (gradient * factor.to(gradient.device)).cast(gradient.dtype)
    return total


def clip_grad_value(parameters: Iterable[Tensor], limit: float) -> None:
    """Bring every element of the gradients into [-limit, limit]."""
    for one in parameters:
        if one.grad is not None:
            one.grad = clip(one.grad, -limit, limit)


def _power_sum(x: Tensor, power: float) -> Tensor:
    return reduction.sum(x * x) if power == 2.0 else reduction.sum(abs(x) ** power)


def _norm(x: Tensor) -> Tensor:
    return sqrt(reduction.sum(x * x))


def _decayed(gradient: Tensor, parameter: Tensor, weight_decay: float) -> Tensor:
    return gradient + parameter * weight_decay if weight_decay else gradient


def _exact(one: Tensor) -> DType:
    """The dtype of updates and of state: at least float32."""
    return dtypes.float64 if one.dtype is dtypes.float64 else dtypes.float32


def _check_range(what: str, **values: tuple[float, float, float]) -> None:
    for name, (value, low, high) in values.items():
        if not low <= value < high:
            raise ArgumentError(f"{what}: {name} is {value}; it must be in [{low}, {high})")

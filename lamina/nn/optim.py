"""Optimisers: parameters and state are updated in place, one program a step.

    optimizer = nn.optim.AdamW(nn.parameters(model), lr=1e-3)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

or, without `backward`, ``optimizer.step(lm.gradient(loss, optimizer.parameters))``. The learning
rate and the step counter are tensors, so that every step runs the same compiled program; it also
computes the loss, the gradients and whatever else was pending.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from lamina import dtypes
from lamina.dtypes import accumulator
from lamina.errors import ArgumentError, GradientError, JitError, ShapeError
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.nn.schedules import Schedule
from lamina.nn.state import filled
from lamina.tensor.core import Tensor, as_tensor, leaf
from lamina.tensor.elementwise import clip, exp, log, maximum, minimum, sqrt, where
from lamina.tensor.movement import stack
from lamina.tensor.realize import assigned, called, over, realize, stand_ins, stored
from lamina.tensor.reduction import norm

__all__ = [
    "SGD", "Adam", "AdamW", "Lamb", "Muon", "Optimizer", "RMSprop", "clip_grad_norm",
    "clip_grad_value",
]  # fmt: skip


@dataclass(eq=False, repr=False)
class Optimizer:
    """What all optimisers share. `state` holds their tensors by name, one for each parameter.

    lr: a number, or a function of the number of steps taken (see `nn.schedules`); it may be set
    between steps. `nn.state_dict(optimizer.state)` and `nn.load_state_dict` save and restore
    the state; set `count`, the steps that such a function is told, as well. Raises ArgumentError
    for settings out of range, GradientError for parameters that were not made with
    ``requires_grad=True``."""

    parameters: Sequence[Tensor]
    lr: float | Schedule = 1e-3

    weight_decay = 0.0  # a field of those that have one
    decay_is_apart = False  # it shrinks the parameter, and is not added to the gradient

    def __post_init__(self) -> None:
        self.parameters = list(self.parameters) if isinstance(self.parameters, Iterable) else []
        what = type(self).__name__
        if not self.parameters:
            raise GradientError(f"{what}: no parameters; nn.parameters(model) lists them")
        for one in self.parameters:
            if not isinstance(one, Tensor) or not one.requires_grad:
                raise GradientError(f"{what}: {one!r} was not made with requires_grad=True")
        for field in fields(self):
            if field.type in (float, int) and not (value := getattr(self, field.name)) >= 0.0:
                raise ArgumentError(f"{what}: {field.name} is {value}; it cannot be negative")
        realize()  # now parameters have the memory that steps write to
        self.count = 0  # steps taken
        like = [(one.shape, 0.0, accumulator(one.dtype), one.device) for one in self.parameters]
        self.state = {name: [filled(*one) for one in like] for name in self._slots()}
        devices = dict.fromkeys(one.device for one in self.parameters)
        self._counters = {one: filled(len(like), 0.0, dtypes.float32, one) for one in devices}
        self.state["step"] = [*self._counters.values()]  # that each parameter took, from 1
        self._rates = {one: filled((), 0.0, dtypes.float32, one) for one in devices}
        self._set_rate(self.lr)

    def _slots(self) -> Sequence[str]:
        """The names of the state that every parameter has."""
        raise NotImplementedError

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        """What parameter number `index` is to go against; assigns its state."""
        raise NotImplementedError

    def _update(self, index: int, parameter: Tensor, gradient: Tensor, rate: Tensor) -> Tensor:
        """The new value of parameter number `index`."""
        if self.decay_is_apart:
            parameter = parameter * (1.0 - rate * self.weight_decay)
        elif self.weight_decay:
            gradient = gradient + parameter * self.weight_decay
        return parameter - self._direction(index, gradient) * rate

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for one in self.parameters:
            one.grad = None

    def step(self, gradients: Sequence[Tensor | None] | None = None) -> None:
        """Move every parameter against its gradient, all in one program.

        gradients: one for each of `parameters`, in this order; `grad` of each by default. A
        parameter whose gradient is None stays where it is."""
        own, what = self.parameters, type(self).__name__
        if not isinstance(gradients, Iterable):
            gradients = [one.grad for one in own] if gradients is None else [gradients]
        given = [one if one is None else as_tensor(one) for one in gradients]
        if len(given) != len(own):
            raise GradientError(f"{what}: {len(given)} gradients for {len(own)} parameters")
        if all(one is None for one in given):
            raise GradientError(f"{what}: no parameter has a gradient; call loss.backward() first")
        for one, gradient in zip(own, given, strict=True):
            if gradient is not None and gradient.shape != one.shape:
                raise ShapeError(f"{what}: gradient {gradient.shape} of parameter {one.shape}")
        if callable(self.lr):
            if stand_ins.get():
                raise JitError("step: a schedule runs in Python, not in jit; set lr between calls")
            self._set_rate(self.lr)
        self._advance([None if one is None else leaf(one.node, one.device) for one in given])
        given, gradients, gradient = [], None, None  # the run would store whatever is still held
        # Whatever layers assigned on the way, such as running statistics, belongs to this step.
        realize(*assigned())
        self.count += 1

    def _advance(self, given: Sequence[Tensor | None]) -> None:
        """Assign the new parameters and state. Settings and types tell what the classes below
        assign, so it is built once; classes from elsewhere may look at anything."""
        changing = [*self.parameters, *(one for slot in self.state.values() for one in slot)]
        held = [*changing, *self._rates.values(), *given]
        nodes = [one.node for one in held if one is not None]
        leaves = {one for one in nodes if one.op is Op.BUFFER and stored(one) in (None, one)}

        def assign() -> list[Node]:
            steps = [float(one is not None) for one in given]
            for counter in self._counters.values():
                counter.assign(counter + (1.0 if all(steps) else Tensor(steps).to(counter.device)))
            for index, (one, gradient) in enumerate(zip(self.parameters, given, strict=True)):
                if gradient is not None:
                    kind, rate = accumulator(one.dtype), self._rates[one.device]
                    exact = (x.detach().cast(kind) for x in (one, gradient, rate))
                    one.assign(self._update(index, *exact))
            return over([one.node for one in changing], nodes)

        if len(leaves) < len(held) or type(self).__module__ != __name__:
            assign()
            return
        settings = repr([getattr(self, one.name) for one in fields(self)[len(fields(Optimizer)) :]])
        key = type(self), settings, *(one.arg[1:] for one in nodes)
        for one, node in zip(changing, called(key, nodes, assign), strict=True):
            one.assign(Tensor.of(node or one.node, one.device))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "lr" and hasattr(self, "_rates"):
            self._set_rate(value)  # which may refuse it
        super().__setattr__(name, value)

    def _set_rate(self, lr: float | Schedule) -> None:
        value = lr(self.count) if callable(lr) else lr
        if not value >= 0.0:
            raise ArgumentError(f"{type(self).__name__}: lr is {value}; it cannot be negative")
        for device, held in self._rates.items():
            held.assign(filled((), float(value), dtypes.float32, device))
        realize(*self._rates.values())

    def _next(self, name: str, index: int, keep: float, new: Tensor | float) -> Tensor:
        """Assign ``old * keep + new`` to one tensor of the state; returns its new value."""
        held = self.state[name][index]
        return held.assign(held * keep + new)

    def _average(self, name: str, index: int, beta: float, new: Tensor) -> Tensor:
        """Move one average of the state towards `new`; returns it freed of its start at zero:
        divided by 1 - beta ** step, whose reciprocal all elements share."""
        held = self._next(name, index, beta, new * (1.0 - beta))
        if beta == 0.0:
            return held
        power = self._counters[held.device].cast(held.dtype) * math.log(beta)
        kept = minimum(exp(power), 1.0 - 0.5**power.dtype.precision)
        # What exp loses near 1, log loses as well: expm1 in a few operations (Kahan).
        return held * (where(power < -1.0, 1.0, log(kept) / power) / (1.0 - kept))[index]


@dataclass(eq=False, repr=False)
class SGD(Optimizer):
    """Gradient descent with momentum (Polyak 1964; Nesterov 1983), as PyTorch defines it."""

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def _slots(self) -> Sequence[str]:
        if self.nesterov and (self.momentum <= 0.0 or self.dampening != 0.0):
            raise ArgumentError("SGD: nesterov needs a momentum and no dampening")
        return ["momentum"] if self.momentum else []

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        if not self.momentum:
            return gradient
        share: float | Tensor = 1.0
        if self.dampening:  # not on the first step, which starts the average
            share = where(self._counters[gradient.device][index] > 1.5, 1.0 - self.dampening, 1.0)
        average = self._next("momentum", index, self.momentum, gradient * share)
        return gradient + average * self.momentum if self.nesterov else average


@dataclass(eq=False, repr=False)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1); `weight_decay` is added to the gradient."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def _slots(self) -> Sequence[str]:
        if [0.0 <= one < 1.0 for one in self.betas] != [True, True]:
            raise ArgumentError(f"{type(self).__name__}: betas are {self.betas}, not two in [0, 1)")
        return ["exp_avg", "exp_avg_sq"]

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        first, second = self.betas
        mean = self._average("exp_avg", index, first, gradient)
        square = self._average("exp_avg_sq", index, second, gradient * gradient)
        return mean / (sqrt(square) + self.eps)


@dataclass(eq=False, repr=False)
class AdamW(Adam):
    """Adam whose weight decay is apart from the gradient (Loshchilov and Hutter 2019)."""

    weight_decay: float = 1e-2
    decay_is_apart = True


@dataclass(eq=False, repr=False)
class Lamb(Adam):
    """Adam with a step as long as the parameter itself (You et al. 2020, algorithm 2).

    The trust ratio ``norm(parameter) / norm(update)`` is 1 where one of the norms is 0."""

    eps: float = 1e-6
    weight_decay: float = 1e-2

    def _update(self, index: int, parameter: Tensor, gradient: Tensor, rate: Tensor) -> Tensor:
        update = self._direction(index, gradient) + parameter * self.weight_decay
        size, length = (norm(one) for one in (parameter, update))
        useful = (size > 0.0) & (length > 0.0)
        ratio = where(useful, size / where(useful, length, 1.0), 1.0)
        return parameter - update * (ratio * rate)


@dataclass(eq=False, repr=False)
class Muon(Optimizer):
    """Momentum, made orthogonal by Newton and Schulz's iteration; for matrices (Jordan 2024).

    Raises ShapeError for parameters that are not matrices: give those to AdamW."""

    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_steps: int = 5
    decay_is_apart = True

    def _slots(self) -> Sequence[str]:
        for one in self.parameters:
            if one.ndim != 2:
                raise ShapeError(f"Muon: a parameter of shape {one.shape} is not a matrix")
        return ["momentum"]

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        rows, columns = gradient.shape
        gradient = gradient * (1.0 - self.momentum)
        average = self._next("momentum", index, self.momentum, gradient)
        update = gradient + average * self.momentum if self.nesterov else average
        return self._orthogonal(update) * math.sqrt(max(1.0, rows / columns))

    def _orthogonal(self, x: Tensor) -> Tensor:
        a, b, c = 3.4445, -4.7750, 2.0315  # Jordan 2024, for singular values near 1
        wide = x.shape[0] <= x.shape[1]
        x = x if wide else x.T
        x = x / maximum(norm(x), 1e-7)
        for _ in range(self.ns_steps):
            square = (x @ x.T).contiguous()
            x = (x * a + (square * b + square @ square * c) @ x).contiguous()
        return x if wide else x.T


@dataclass(eq=False, repr=False)
class RMSprop(Optimizer):
    """Steps divided by the root of an average of squares (Tieleman and Hinton 2012)."""

    lr: float | Schedule = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def _slots(self) -> Sequence[str]:
        return ["square_avg"] + ["grad_avg"] * self.centered + ["momentum"] * bool(self.momentum)

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        share = 1.0 - self.alpha
        spread = self._next("square_avg", index, self.alpha, gradient * gradient * share)
        if self.centered:
            mean = self._next("grad_avg", index, self.alpha, gradient * share)
            spread = spread - mean * mean
        update = gradient / (sqrt(spread) + self.eps)
        return self._next("momentum", index, self.momentum, update) if self.momentum else update


def clip_grad_norm(
    parameters: Iterable[Tensor] | Tensor, max_norm: float, ord: float = 2.0
) -> Tensor:
    """Scale the gradients down so that their norm, taken together, is at most `max_norm`.

    Returns the norm before, float32 of shape (). Parameters without a gradient are ignored."""
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    given = [(one, one.grad) for one in parameters if one.grad is not None]
    if not given:
        return Tensor(0.0)
    exact = (gradient.cast(accumulator(gradient.dtype)) for _, gradient in given)
    total = norm(stack([norm(x, ord).to(given[0][1].device) for x in exact]), ord)
    factor = minimum(max_norm / (total + 1e-6), 1.0)  # the term keeps a norm of 0 finite
    for one, gradient in given:
        one.grad = (gradient * factor.to(gradient.device)).cast(gradient.dtype)
    return total


def clip_grad_value(parameters: Iterable[Tensor] | Tensor, limit: float) -> None:
    """Bring every element of the gradients into [-limit, limit]."""
    for one in [parameters] if isinstance(parameters, Tensor) else parameters:
        if one.grad is not None:
            one.grad = clip(one.grad, -limit, limit)

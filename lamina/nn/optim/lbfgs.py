"""The limited-memory quasi-Newton method, which runs eagerly: it looks at values between steps."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.errors import ArgumentError, GradientError
from lamina.frontend.functions.creation import zeros
from lamina.frontend.functions.elementwise import abs
from lamina.frontend.functions.movement import concat, reshape, split
from lamina.frontend.functions.reduction import max as greatest
from lamina.frontend.functions.reduction import sum as total
from lamina.frontend.realize import realize
from lamina.frontend.tensor import Tensor

__all__ = ["LBFGS"]

SUFFICIENT = 1e-4  # the share of the predicted decrease that a step must bring
CURVATURE = 0.9  # the share of the first slope that may be left at its end
SEARCHES = 25  # evaluations of a line search at most


@dataclass
class Point:
    """The objective at one step along a line."""

    step: float
    value: float
    gradient: Tensor  # of all parameters, flat
    slope: float  # along the line


@dataclass
class Pair:
    """A past move of all parameters, and how it changed the gradient."""

    move: Tensor
    change: Tensor
    curvature: float  # the product of both


class LBFGS:
    """The method of Broyden, Fletcher, Goldfarb and Shanno with the last `history_size` moves
    (Nocedal and Wright 2006, "Numerical optimization", algorithms 7.4 and 7.5).

        def closure():
            optimizer.zero_grad()
            loss = ...
            loss.backward()
            return loss
        optimizer.step(closure)

    max_iter: moves a step. max_eval: evaluations of `closure` a step, 1.25 max_iter by default.
    tolerance_grad: it ends where no derivative is greater. tolerance_change: it ends where no
    parameter, or the loss, changes by more. line_search_fn: 'strong_wolfe' looks for a length of
    each move that satisfies Wolfe's conditions; None takes `lr`. Parameters are of one dtype, on
    one device. A step waits for values, so that `lamina.jit` cannot trace it."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 1.0, max_iter: int = 20,
        max_eval: int | None = None, tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9,
        history_size: int = 100, line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        self.parameters = list(parameters)
        if not self.parameters or not all(parameter.requires_grad for parameter in self.parameters):
            raise GradientError(
                "parameters made with requires_grad=True are needed", operation="LBFGS"
            )
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError(
                f"line_search_fn {line_search_fn!r} is not 'strong_wolfe'", operation="LBFGS"
            )
        if not lr > 0.0 or max_iter < 1 or history_size < 1:
            raise ArgumentError(
                f"lr {lr}, max_iter {max_iter} and history_size {history_size} must be positive",
                operation="LBFGS",
            )
        self.lr = lr
        self.max_iter = max_iter
        self.max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        self.tolerance_grad = tolerance_grad
        self.tolerance_change = tolerance_change
        self.history_size = history_size
        self.line_search_fn = line_search_fn
        self._pairs: list[Pair] = []
        self._scale = 1.0  # of the inverse Hessian before any pair
        self._direction: Tensor | None = None
        self._length = 0.0
        self._gradient: Tensor | None = None  # where the last move began

    def change_rates(self, change: Callable[[float], float]) -> None:
        """Replace `lr` by ``change(lr)``, as other optimisers do with all of their rates."""
        self.lr = change(self.lr)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, closure: Callable[[], Any]) -> Any:
        """Minimise the loss that `closure` returns after its `backward`; returns the first one."""
        first = closure()
        loss, gradient = float(first), self._flat_gradient()
        evaluations = 1
        if _largest(gradient) <= self.tolerance_grad:
            return first
        for iteration in range(1, self.max_iter + 1):
            begins = self._gradient is None
            direction = self._next_direction(gradient)
            self._gradient, before = gradient, loss
            length = self.lr
            if begins:
                length *= min(1.0, 1.0 / _number(total(abs(gradient))))
            self._direction, self._length = direction, length
            slope = _product(gradient, direction)
            if slope > -self.tolerance_change:
                break
            last = iteration == self.max_iter
            if self.line_search_fn is None:
                self._move(direction, length)
                if not last:  # the value after the last move is asked for by nobody
                    loss, gradient = float(closure()), self._flat_gradient()
                evaluations += 1
            else:
                start = Point(0.0, loss, gradient, slope)
                search = _LineSearch(self._evaluator(closure, direction), start,
                                     _largest(direction), self.tolerance_change)  # fmt: skip
                point = search.run(length)
                loss, gradient, self._length = point.value, point.gradient, point.step
                evaluations += search.evaluations
                self._move(direction, self._length)
            if last or evaluations >= self.max_eval or _largest(gradient) <= self.tolerance_grad:
                break
            if _largest(direction) * math.fabs(self._length) <= self.tolerance_change:
                break
            if math.fabs(loss - before) < self.tolerance_change:
                break
        return first

    def _flat_gradient(self) -> Tensor:
        parts = [
            zeros((parameter.size,), dtype=parameter.dtype, device=parameter.device)
            if parameter.grad is None else reshape(parameter.grad, (-1,))
            for parameter in self.parameters
        ]  # fmt: skip
        return _now(concat(parts).detach())

    def _move(self, direction: Tensor, length: float) -> None:
        sizes = [parameter.size for parameter in self.parameters]
        for parameter, part in zip(self.parameters, split(direction, sizes), strict=True):
            parameter.assign(parameter.detach() + reshape(part, parameter.shape) * length)
        realize(*self.parameters)

    def _evaluator(self, closure: Callable[[], Any], direction: Tensor) -> Callable[[float], Point]:
        """The objective as a function of the step along `direction` from here."""
        start = [parameter.detach().clone() for parameter in self.parameters]
        realize(*start)

        def evaluate(step: float) -> Point:
            self._move(direction, step)
            value, gradient = float(closure()), self._flat_gradient()
            for parameter, old in zip(self.parameters, start, strict=True):
                parameter.assign(old)
            realize(*self.parameters)
            return Point(step, value, gradient, _product(gradient, direction))

        return evaluate

    def _next_direction(self, gradient: Tensor) -> Tensor:
        """Minus the gradient times an approximation of the inverse Hessian, in two loops over the
        past moves. Each turn is the same small program."""
        if self._gradient is None or self._direction is None:
            return _now(-gradient)
        change = _now(gradient - self._gradient)
        move = _now(self._direction * self._length)
        curvature = _product(change, move)
        if curvature > 1e-10:
            self._pairs = [*self._pairs, Pair(move, change, curvature)][-self.history_size :]
            self._scale = curvature / _product(change, change)
        result = _now(-gradient)
        shares = []
        for pair in reversed(self._pairs):
            share = _product(pair.move, result) / pair.curvature
            result = _plus(result, pair.change, -share)
            shares.append(share)
        result = _now(result * self._scale)
        for pair, share in zip(self._pairs, reversed(shares), strict=True):
            back = _product(pair.change, result) / pair.curvature
            result = _plus(result, pair.move, share - back)
        return result


class _LineSearch:
    """A step along a line that satisfies the strong conditions of Wolfe (Nocedal and Wright 2006,
    algorithms 3.5 and 3.6)."""

    def __init__(
        self, evaluate: Callable[[float], Point], start: Point, size: float, tolerance: float
    ) -> None:
        self._evaluate = evaluate
        self._start = start
        self._size = size  # the greatest element of the direction
        self._tolerance = tolerance
        self.evaluations = 0

    def run(self, step: float) -> Point:
        """The best point found, from a first try of `step`."""
        ends = self._bracket(step)
        return ends[0] if len(ends) == 1 else self._zoom(ends)

    def _at(self, step: float) -> Point:
        self.evaluations += 1
        return self._evaluate(step)

    def _is_too_high(self, point: Point) -> bool:
        allowed = self._start.value + SUFFICIENT * point.step * self._start.slope
        return point.value > allowed

    def _is_flat(self, point: Point) -> bool:
        return math.fabs(point.slope) <= -CURVATURE * self._start.slope

    def _bracket(self, step: float) -> list[Point]:
        """A point that satisfies the conditions, or two with such a point between them."""
        before, point = self._start, self._at(step)
        while self.evaluations <= SEARCHES:
            worse = self.evaluations > 2 and point.value >= before.value
            if self._is_too_high(point) or worse:
                return [before, point]
            if self._is_flat(point):
                return [point]
            if point.slope >= 0.0:
                return [before, point]
            low = point.step + 0.01 * (point.step - before.step)
            further = _cubic(before, point, low, 10.0 * point.step)
            before, point = point, self._at(further)
        return [self._start, point]

    def _zoom(self, ends: Sequence[Point]) -> Point:
        low, high = sorted(ends, key=lambda end: end.value)
        stalled = False
        while self.evaluations <= SEARCHES:
            left, right = sorted((low.step, high.step))
            if (right - left) * self._size < self._tolerance:
                break
            step = _cubic(low, high, left, right)
            margin = 0.1 * (right - left)
            if min(right - step, step - left) < margin:
                # Near an end twice in a row, or beyond it: away from it by a tenth.
                if stalled or not left < step < right:
                    nearer_right = right - step < step - left
                    step = right - margin if nearer_right else left + margin
                    stalled = False
                else:
                    stalled = True
            else:
                stalled = False
            point = self._at(step)
            if self._is_too_high(point) or point.value >= low.value:
                low, high = sorted((low, point), key=lambda end: end.value)
                continue
            if self._is_flat(point):
                return point
            if point.slope * (high.step - low.step) >= 0.0:
                high = low
            low = point
        return low


def _cubic(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two values with their slopes is least, within low..high; their middle
    if it has no minimum (Nocedal and Wright 2006, equation 3.59)."""
    first, second = (a, b) if a.step <= b.step else (b, a)
    if first.step == second.step:
        return (low + high) / 2.0
    mean = (first.value - second.value) / (first.step - second.step)
    bend = first.slope + second.slope - 3.0 * mean
    square = bend * bend - first.slope * second.slope
    if not square >= 0.0:
        return (low + high) / 2.0
    root = math.sqrt(square)
    width = second.slope - first.slope + 2.0 * root
    if width == 0.0:
        return (low + high) / 2.0
    place = second.step - (second.step - first.step) * (second.slope + root - bend) / width
    return min(max(place, low), high)


def _now(x: Tensor) -> Tensor:
    return x.realize()


def _number(x: Tensor) -> float:
    return float(x.item())


def _product(a: Tensor, b: Tensor) -> float:
    return _number(total(a * b))


def _largest(x: Tensor) -> float:
    return _number(greatest(abs(x)))


def _plus(a: Tensor, b: Tensor, factor: float) -> Tensor:
    """``a + factor * b``."""
    return _now(a + b * factor)

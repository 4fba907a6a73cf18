"""Gradient descent whose steps are as long as the gradient, or made orthogonal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.functions.elementwise import maximum, where
from lamina.frontend.functions.reduction import norm
from lamina.frontend.tensor import Tensor
from lamina.nn.optim.base import Optimizer, StateTensor

__all__ = ["SGD", "Muon"]


@dataclass(eq=False, repr=False)
class SGD(Optimizer):
    """Gradient descent with momentum (Polyak 1964; Nesterov 1983), as PyTorch defines it."""

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        if self.nesterov and (self.momentum <= 0.0 or self.dampening != 0.0):
            raise ArgumentError("nesterov needs a momentum and no dampening", operation="SGD")
        return {"momentum": StateTensor()} if self.momentum else {}

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        if not self.momentum:
            return gradient
        share: float | Tensor = 1.0
        if self.dampening:  # not on the first step, which starts the average
            share = where(self._counters[gradient.device][index] > 1.5, 1.0 - self.dampening, 1.0)
        average = self._next("momentum", index, self.momentum, gradient * share)
        return gradient + average * self.momentum if self.nesterov else average


@dataclass(eq=False, repr=False)
class Muon(Optimizer):
    """Momentum, made orthogonal by Newton and Schulz's iteration; for matrices (Jordan 2024).

    Raises ShapeError for parameters that are not matrices: give those to AdamW."""

    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_steps: int = 5

    @property
    def decay_is_apart(self) -> bool:
        return True

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        for parameter in self.parameters:
            if parameter.ndim != 2:
                raise ShapeError(
                    f"a parameter of shape {parameter.shape} is not a matrix", operation="Muon"
                )
        return {"momentum": StateTensor()}

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        rows, columns = gradient.shape
        gradient = gradient * (1.0 - self.momentum)
        average = self._next("momentum", index, self.momentum, gradient)
        update = gradient + average * self.momentum if self.nesterov else average
        return self._orthogonal(update) * math.sqrt(max(1.0, rows / columns))

    def _orthogonal(self, x: Tensor) -> Tensor:
        a, b, c = 3.4445, -4.7750, 2.0315  # Jordan 2024, for singular values near 1
        is_wide = x.shape[0] <= x.shape[1]
        x = x if is_wide else x.T
        x = x / maximum(norm(x), 1e-7)
        for _ in range(self.ns_steps):
            square = (x @ x.T).contiguous()
            x = (x * a + (square * b + square @ square * c) @ x).contiguous()
        return x if is_wide else x.T

"""Optimisers' norms and decisions where each process has parts of some parameters.

What looks at all gradients, or at the norm of one parameter, has to look at all parts of it, or
processes decide differently. Here `parts` are the tensors of which each process of an axis has a
part, each element on one process; all others are the same on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lamina.core.dtypes import accumulator
from lamina.distributed.mesh import Axis
from lamina.distributed.operations import all_reduce
from lamina.frontend.functions.elementwise import minimum, sqrt
from lamina.frontend.functions.reduction import sum as sum_of
from lamina.frontend.tensor import Tensor
from lamina.nn.optim import GradScaler, Lamb

__all__ = ["PartsLamb", "PartsScaler", "clip_grad_norm"]


def clip_grad_norm(
    parameters: Iterable[Tensor], parts: Iterable[Tensor], max_norm: float, over: Axis
) -> Tensor:
    """Scale all gradients down so that their norm, taken together, is at most `max_norm`.

    parameters: that all processes of the axis `over` have, with the same gradients. parts: of which
    each has a part. Returns the norm before, float32 of shape (). Those without a gradient are
    ignored, but every process needs to have them of the same parts."""
    same, cut = _with_gradients(parameters), _with_gradients(parts)
    squares = sum((_squares(one.grad) for one in same), Tensor(0.0))
    squares_of_parts = sum((_squares(one.grad) for one in cut), Tensor(0.0))
    total = sqrt(squares + all_reduce(squares_of_parts, "sum", over))
    factor = minimum(max_norm / (total + 1e-6), 1.0)  # the term keeps a norm of 0 finite
    for one in (*same, *cut):
        assert one.grad is not None
        one.grad = (one.grad * factor.to(one.device)).cast(one.grad.dtype)
    return total


class PartsScaler(GradScaler):
    """A GradScaler whose processes leave a step out together.

    over: the axis whose processes have parts; other arguments are those of GradScaler."""

    def __init__(self, over: Axis, **options: Any) -> None:
        super().__init__(**options)
        self._over = over

    def agreed(self, finite: Tensor) -> Tensor:
        """Whether the gradients of all processes are finite."""
        return all_reduce(finite, "min", self._over)


@dataclass(eq=False, repr=False)
class PartsLamb(Lamb):
    """Lamb, with the norms of whole parameters.

    over: the axis whose processes have parts; needed. parts: the parameters that are such parts."""

    over: Axis | None = None
    parts: tuple[Tensor, ...] = ()

    def norm_of(self, index: int, x: Tensor) -> Tensor:
        """The norm of x, all parts of it taken together."""
        if not any(self.parameters[index] is one for one in self.parts):
            return super().norm_of(index, x)
        return sqrt(all_reduce(sum_of(x * x), "sum", self.over))


def _with_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [one for one in parameters if one.grad is not None]


def _squares(gradient: Tensor | None) -> Tensor:
    """The sum of squares, float32 or more precise."""
    assert gradient is not None
    exact = gradient.cast(accumulator(gradient.dtype))
    return sum_of(exact * exact)

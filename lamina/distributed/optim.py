"""Optimisers' norms and decisions where each process has parts of some parameters.

What looks at all gradients, or at the norm of one parameter, has to look at all parts of it, or
processes decide differently. Here `parts` are the tensors of which each process of an axis has a
part, each element on one process; all others are the same on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.core.dtypes import accumulator
from lamina.distributed.mesh import Axis
from lamina.distributed.operations import all_reduce
from lamina.errors import ArgumentError
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
    ignored, but every process needs to have them of the same parts. Raises ArgumentError for one
    that is among both."""
    same, cut = _with_gradients(parameters), _with_gradients(parts)
    both = set(same).intersection(cut)
    if both:
        raise ArgumentError(
            f"{len(both)} parameters are among the parts as well, and would count twice",
            operation="clip_grad_norm",
        )
    squares, squares_of_parts = (
        sum((_squares(one.grad) for one in tensors if one.grad is not None), Tensor(0.0))
        for tensors in (same, cut)
    )
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

    over: the axis whose processes have parts. parts: the parameters that are such parts. Raises
    ArgumentError for parts without an axis, and for a part that is no parameter."""

    over: Axis | None = None
    parts: Sequence[Tensor] = ()

    def __post_init__(self, foreach: bool | None, fused: bool | None) -> None:
        super().__post_init__(foreach, fused)
        if self.parts and self.over is None:
            raise ArgumentError("parts need the axis `over`", operation="PartsLamb")
        known = set(self.parameters)
        for number, one in enumerate(self.parts):
            if one not in known:
                raise ArgumentError(
                    f"part {number}, {one.dtype.name} {one.shape}, is no parameter",
                    operation="PartsLamb",
                    remedy="give what `part` gives of an annotated tensor to both",
                )

    def norm_of(self, index: int, x: Tensor) -> Tensor:
        """The norm of x, all parts of it taken together."""
        if not any(self.parameters[index] is one for one in self.parts):
            return super().norm_of(index, x)
        return sqrt(all_reduce(_squares(x), "sum", self.over))


def _with_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [one for one in parameters if one.grad is not None]


def _squares(x: Tensor) -> Tensor:
    """The sum of squares, float32 or more precise."""
    exact = x.cast(accumulator(x.dtype))
    return sum_of(exact * exact)

"""Derivatives that PyTorch has as operations: the adjoints of the forward row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamina.frontend.differentiate import gradient
from lamina.frontend.tensor import Tensor, leaf


def vjp(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], upstream: Tensor,
    mask: Sequence[bool] | None = None,
) -> list[Tensor | None]:  # fmt: skip
    """The derivatives of ``sum(function(*inputs) * upstream)`` for each input, None where `mask`
    says that nobody needs it. The inputs are leaves of their own: one tensor may be two of them."""
    leaves = [leaf(x.node, x.device) for x in inputs]
    wanted = [True] * len(leaves) if mask is None else list(mask)
    chosen = [x for x, is_wanted in zip(leaves, wanted, strict=True) if is_wanted]
    slopes = iter(gradient(function(*leaves), chosen, upstream))
    return [next(slopes) if is_wanted else None for is_wanted in wanted]

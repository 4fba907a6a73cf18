"""Rows of histograms, and of reductions over segments of an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.torch.rows.vjp import vjp

Row = Callable[..., Any]
_IDENTITIES = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCTIONS = {"prod": "prod", "max": "amax", "min": "amin"}


def _histogram(
    x: Tensor, bins: Any = 100, *, range: Sequence[float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> Any:  # fmt: skip
    limits = None if range is None else (range[0], range[1])
    return lm.histogram(x, bins, range=limits, weight=weight, density=density)


def _segment_reduce(
    x: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:  # fmt: skip
    """x: (batch..., n, rest...), with n at `axis`. lengths: (batch..., segments), or offsets:
    (batch..., segments + 1), where each begins and the last ends. Result: (batch..., segments,
    rest...)."""
    sizes = lengths if lengths is not None else lm.diff(offsets, axis=-1)
    count = sizes.shape[-1]
    outer, rest = x.shape[:axis], x.shape[axis + 1 :]
    batch = prod(outer)
    sizes = lm.reshape(sizes.cast(lm.int64), (batch, count))
    places = _segments(sizes, x.shape[axis])
    rows = lm.reshape(x, (batch * x.shape[axis], *rest))
    start = _IDENTITIES[reduce] if initial is None else initial
    starts = lm.full((batch * (count + 1), *rest), start, dtype=x.dtype)
    if reduce in _REDUCTIONS:
        combined = lm.index_reduce(starts, 0, places, rows, _REDUCTIONS[reduce], True)
    else:
        combined = lm.index_add(starts, 0, places, rows)
    result = lm.reshape(combined, (batch, count + 1, *rest))[:, :count]
    if reduce == "mean":
        divisors = lm.reshape(sizes, (batch, count, *(1,) * len(rest)))
        means = result / lm.maximum(divisors, 1).cast(x.dtype)
        nothing = math.nan if initial is None else initial
        result = lm.where(divisors == 0, nothing, means)
    return lm.reshape(result, (*outer, count, *rest))


def _segments(sizes: Tensor, length: int) -> Tensor:
    """The segment of each place, (batch * length,), numbered over all rows of `sizes`, (batch,
    segments). A row has one more number, for the places after its last segment: sizes ((2, 1), (0,
    2)) and the length 3 give 0 0 1, then 4 4 5."""
    batch, count = sizes.shape
    ends = lm.expand_dims(lm.cumulative_sum(sizes, axis=1), 1)
    numbers = lm.reshape(lm.arange(length, dtype=lm.int64), (1, length, 1))
    inner = lm.sum((numbers >= ends).cast(lm.int64), axis=2)
    first = lm.reshape(lm.arange(batch, dtype=lm.int64), (batch, 1)) * (count + 1)
    return lm.reshape(first + inner, (-1,))


def _segment_reduce_backward(
    upstream: Tensor, result: Tensor, x: Tensor, reduce: str, *, lengths: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, initial: float | None = None,
) -> Any:  # fmt: skip
    def forward(x: Tensor) -> Tensor:
        return _segment_reduce(
            x, reduce, lengths=lengths, offsets=offsets, axis=axis, initial=initial
        )

    return vjp(forward, [x], upstream)[0]


ROWS: dict[str, Row] = {
    "aten.histogram.bin_ct": _histogram,
    "aten.histogram.bins_tensor": _histogram,
    "aten.segment_reduce.default": _segment_reduce,
    "aten._segment_reduce_backward.default": _segment_reduce_backward,
}

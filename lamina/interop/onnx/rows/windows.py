"""Windows along the spatial axes, as attributes of convolutions and pools describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.functions.spatial import views
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.values import check_padded, check_table

Sizes = Sequence[int]


@dataclass(frozen=True)
class Windows:
    """One entry for each spatial axis. The padding at the end may be more than the attribute says,
    for a last window of `ceil_mode`, which may reach over it."""

    sizes: tuple[int, ...]  # of the input
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]  # padding before the first element
    ends: tuple[int, ...]  # padding after the last
    counts: tuple[int, ...]  # of windows

    @classmethod
    def of(
        cls, sizes: Sizes, kernel: Sizes, strides: Sizes | None, dilations: Sizes | None,
        pads: Sizes | None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    ) -> Windows:  # fmt: skip
        """The windows over an input of spatial `sizes`; absent attributes are None."""
        rank = len(sizes)
        steps = tuple(strides or (1,) * rank)
        gaps = tuple(dilations or (1,) * rank)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, gaps, strict=True)]
        if auto_pad.startswith("SAME"):
            margins = [_same(*row, auto_pad) for row in zip(sizes, reach, steps, strict=True)]
        else:
            pads = pads or (0,) * (2 * rank)
            margins = list(zip(pads[:rank], pads[rank:], strict=True))
            if auto_pad == "VALID":
                margins = [(0, 0)] * rank
        padded = [size + sum(margin) for size, margin in zip(sizes, margins, strict=True)]
        check_padded(sizes, padded)
        # A step over the whole axis leads outside, as any larger one does.
        steps = tuple(min(step, max(size, 1)) for step, size in zip(steps, padded, strict=True))
        rows = zip(sizes, reach, steps, margins, strict=True)
        counts = [_count(*row, ceil_mode) for row in rows]
        begins, ends = (tuple(side) for side in zip(*margins, strict=True))
        return cls(tuple(sizes), tuple(kernel), steps, gaps, begins, ends, tuple(counts))

    def padding(self) -> list[tuple[int, int]]:
        """What each axis needs before and after it, so that all windows lie inside: windows of
        `ceil_mode` reach over the end."""
        pairs = []
        for axis, size in enumerate(self.sizes):
            reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            last = (self.counts[axis] - 1) * self.strides[axis] + reach
            end = max(self.ends[axis], last - size - self.begins[axis])
            pairs.append((self.begins[axis], end))
        return pairs

    def places(self, axis: int) -> Any:
        """The places along an axis that each window reads, (kernel, count) int64; those outside
        of the input are negative, or its size and more."""
        check_table(self.kernel[axis], self.counts[axis])
        first = np.arange(self.counts[axis]) * self.strides[axis] - self.begins[axis]
        offsets = np.arange(self.kernel[axis]) * self.dilations[axis]
        return offsets[:, None] + first[None, :]

    def of_input(self, x: Tensor, outside: Any) -> Tensor:
        """(N, C, S...) as (N, C, K..., O...); around the input is `outside`."""
        rank = len(self.sizes)
        padded = lm.pad(x, [(0, 0), (0, 0), *self.padding()], value=outside)
        apart = lm.reshape(padded, (*x.shape[:2], *(1,) * rank, *padded.shape[2:]))
        node = views("windows", apart.node, self.kernel, self.strides, self.dilations)
        cut = tuple(slice(0, count) for count in self.counts)
        return Tensor.of(node, x.device)[(..., *cut)]


def _same(size: int, reach: int, stride: int, auto_pad: str) -> tuple[int, int]:
    """Padding for which there are as many windows as strides fit, rounded up."""
    total = max((ceil(size / stride) - 1) * stride + reach - size, 0)
    less, more = total // 2, total - total // 2
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def _count(size: int, reach: int, stride: int, margin: tuple[int, int], ceil_mode: int) -> int:
    """A last window of `ceil_mode` starts inside the input or the padding before it."""
    steps = (size + sum(margin) - reach) / stride
    if not ceil_mode:
        return int(steps // 1) + 1
    count = ceil(steps) + 1
    starts_behind = (count - 1) * stride >= size + margin[0]
    return count - 1 if starts_behind else count

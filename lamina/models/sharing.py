"""Models that several processes share: which part of a weight each has, and what they exchange.

Each process of an axis has some outputs of the first projections of a layer, the heads of attention
among them, and of the last projection the inputs that go with them: of their products the sum is
taken (Megatron-LM, arXiv 1909.08053). It has some rows of the vocabulary, and all get all logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from lamina.core.shape import Shape
from lamina.distributed.layout import Box, Layout
from lamina.distributed.mesh import Axis
from lamina.distributed.tensor_parallel import (
    enter_parallel,
    gather_parallel,
    layout_of_part,
    leave_parallel,
)
from lamina.errors import ShapeError
from lamina.frontend.realize import download
from lamina.frontend.tensor import Tensor
from lamina.io.blocks import Packed
from lamina.io.mapped import tensor_over

__all__ = ["Cut", "Sharing", "Weight", "divided", "layouts", "part_of"]

Weight = Tensor | Packed
Array = Any  # numpy.ndarray


@dataclass(frozen=True)
class Cut:
    """Each process has a part along `axis` of a weight, of each of `pieces` that are one after the
    other; of 12 rows in 3 pieces, the first of two processes has rows 0, 1, 4, 5, 8 and 9. Where
    the axis is `padded`, rows of zeros let it divide. whole: each has all of it."""

    axis: int
    pieces: int = 1
    padded: bool = False
    whole: bool = False


class Sharing(Enum):
    """How the processes that share a model share a projection."""

    WHOLE = auto()  # each computes all of it
    OUTPUTS = auto()  # each has some outputs
    INPUTS = auto()  # each has some inputs, and all get the outputs
    LOGITS = auto()  # each has some outputs, and all get the outputs

    def cut(self, outputs: int, pieces: int = 1) -> Cut | None:
        """Of a matrix of two axes, of which number `outputs` is that of the outputs."""
        if self is Sharing.WHOLE:
            return None
        if self is Sharing.INPUTS:
            return Cut(1 - outputs)
        return Cut(outputs, pieces, padded=self is Sharing.LOGITS)

    def cut_of_bias(self, pieces: int = 1) -> Cut | None:
        """Of the vector that is added to what comes out of the projection."""
        return Cut(0, pieces) if self is Sharing.OUTPUTS else None

    def entered(self, x: Tensor, over: Axis | None) -> Tensor:
        """Vectors that all have, as they go into the projection."""
        if over is None or self in (Sharing.WHOLE, Sharing.INPUTS):
            return x
        return enter_parallel(x, over)

    def left(self, product: Tensor, over: Axis | None, outputs: int) -> Tensor:
        """The product of each process, as it comes out of a projection with so many `outputs`."""
        if over is None or self in (Sharing.WHOLE, Sharing.OUTPUTS):
            return product
        if self is Sharing.INPUTS:
            return leave_parallel(product, over)
        return gather_parallel(product, -1, over)[..., :outputs]


def divided(count: int, over: Axis | None, what: str) -> int:
    """How many of `count` each process has. Raises ShapeError, with `what` they are, where they do
    not divide."""
    if over is None:
        return count
    if count % over.ranks:
        raise ShapeError(
            f"{count} {what}, which {over.ranks} processes cannot share equally",
            remedy="share the model among fewer processes",
        )
    return count // over.ranks


def layouts(
    weight: Weight, cut: Cut | None, bias: Tensor | None, cut_of_bias: Cut | None,
    over: Axis | None, count: int,
) -> dict[str, Layout]:  # fmt: skip
    """What part of its weight and of its bias a process has of a projection; count: of all rows,
    where these are padded. As `lamina.distributed.layout.HasLayouts`."""
    layouts: dict[str, Layout] = {}
    if over is None:
        return layouts
    if cut is not None:
        data = weight.data if isinstance(weight, Packed) else weight
        name = "weight.data" if isinstance(weight, Packed) else "weight"
        layouts[name] = _layout(data.shape, cut, over, count)
    if bias is not None and cut_of_bias is not None:
        layouts["bias"] = _layout(bias.shape, cut_of_bias, over, count)
    return layouts


def _layout(part: Shape, cut: Cut, over: Axis, count: int) -> Layout:
    if not cut.padded:
        return layout_of_part(part, cut.axis, over, cut.pieces)
    start, whole, local = [0] * len(part), list(part), list(part)
    start[cut.axis] = over.place * part[cut.axis]
    whole[cut.axis] = count
    local[cut.axis] = max(0, min(part[cut.axis], count - start[cut.axis]))
    box = Box(tuple(start), (0,) * len(part), tuple(local))
    return Layout(tuple(whole), (box,) if local[cut.axis] else (), (over,))


def part_of(weight: Weight, cut: Cut, over: Axis, device: str) -> Weight:
    """The part of a weight in the memory of the host that this process has, on `device`. Of a
    mapped file nothing else is read. Raises ShapeError where it does not divide, of quantised
    weights by whole blocks."""
    if isinstance(weight, Packed):
        return Packed(weight.kind, _part(weight.data, cut, over, device))
    return _part(weight, cut, over, device)


def _part(data: Tensor, cut: Cut, over: Axis, device: str) -> Tensor:
    import numpy as np

    array: Array = download(data)
    if cut.whole:
        local = array
    elif cut.padded:
        local = _padded(array, cut.axis, over)
    else:
        what = f"elements or blocks along axis {cut.axis}"
        length = divided(data.shape[cut.axis] // cut.pieces, over, what)
        starts = [(piece * over.ranks + over.place) * length for piece in range(cut.pieces)]
        parts = [_rows(array, cut.axis, start, start + length) for start in starts]
        local = parts[0] if cut.pieces == 1 else np.concatenate(parts, cut.axis)
    return tensor_over(np.ascontiguousarray(local), data.dtype, device)


def _padded(array: Array, axis: int, over: Axis) -> Array:
    import numpy as np

    each = -(-array.shape[axis] // over.ranks)
    local = _rows(array, axis, over.place * each, (over.place + 1) * each)
    missing = each - local.shape[axis]
    if not missing:
        return local
    shape: Shape = (*local.shape[:axis], missing, *local.shape[axis + 1 :])
    return np.concatenate([local, np.zeros(shape, local.dtype)], axis)


def _rows(array: Array, axis: int, start: int, stop: int) -> Array:
    return array[(slice(None),) * axis + (slice(start, stop),)]

"""Tensor parallel layers: each process of an axis has a part of a layer's weights.

A product with a matrix that is cut by columns, then one with a matrix that is cut by rows, need one
sum over the processes together (Megatron-LM, arXiv 1909.08053):

    hidden = gelu(column(x))        # each process has some columns of the hidden layer
    y = row(hidden)                 # their products, added up: all processes have the same y

Layers are made from whole ones, which are drawn alike everywhere, so that the values do not depend
on the number of processes. All processes of the axis have the same loss, and the gradients of their
own weights are those of one process; so are those of layers that all of them have.

With `sequence_axis` the arrays between such pairs are cut along that axis, each process has a part,
and what is added up is not sent to all (arXiv 2205.05198). Then each has a part of the gradients of
the layers that all have, such as norms: `sum_gradients` adds them up.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.dtypes import float32
from lamina.core.shape import Shape
from lamina.distributed.layout import Box, Layout
from lamina.distributed.mesh import Axis
from lamina.distributed.operations import all_gather, all_reduce, reduce_scatter
from lamina.errors import GradientError, ShapeError
from lamina.frontend.arguments import normalize_axis
from lamina.frontend.functions.elementwise import exp, log, where
from lamina.frontend.functions.indexing import take_along_axis
from lamina.frontend.functions.lookup import embedding
from lamina.frontend.functions.movement import expand_dims, reshape, squeeze
from lamina.frontend.functions.padding import pad
from lamina.frontend.functions.projection import linear
from lamina.frontend.functions.reduction import max as maximum_of
from lamina.frontend.tensor import Tensor
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.nn.embedding import Embedding
from lamina.nn.linear import Linear
from lamina.nn.state import parameter

__all__ = [
    "ColumnParallel", "RowParallel", "VocabularyParallel", "enter_parallel", "gather_parallel",
    "leave_parallel", "sum_gradients", "vocabulary_cross_entropy",
]  # fmt: skip


def enter_parallel(x: Tensor, over: Axis) -> Tensor:
    """x itself, the same everywhere, of which each process computes something else: its derivative
    is the sum of those of all processes."""
    return _with_derivative(x, all_reduce(x, "sum", over))


def leave_parallel(x: Tensor, over: Axis) -> Tensor:
    """The sum of x over the processes, of which all compute the same: its derivative is that of one
    of them."""
    return _with_derivative(all_reduce(x, "sum", over), x)


def gather_parallel(x: Tensor, axis: int, over: Axis) -> Tensor:
    """The parts of all processes along `axis`, of which all compute the same: its derivative is, of
    that of one of them, the own part. Raises AxisError."""
    position = normalize_axis("gather_parallel", axis, x.ndim)
    margins = [(0, 0)] * x.ndim
    length = x.shape[position]
    margins[position] = (over.place * length, (over.ranks - 1 - over.place) * length)
    return _with_derivative(all_gather(x, position, over), pad(x, margins))


def _with_derivative(value: Tensor, other: Tensor) -> Tensor:
    """`value`, which has the derivative of `other`."""
    return Tensor.of(Node(Op.CUSTOM_DERIVATIVE, (value.node, other.node)), value.device)


class ColumnParallel:
    """Outputs of a Linear, of which this process has a part: y[..., own outputs].

    whole: the layer of all. pieces: arrays that its outputs are joined from, 3 for a query, a key
    and a value: each process has the same part of each. sequence_axis: along which x is cut; None
    where all have all of it.

    weight: (out_features / processes, in_features). Raises ShapeError where the outputs of a piece
    do not divide."""

    def __init__(
        self, whole: Linear, over: Axis, pieces: int = 1, sequence_axis: int | None = None
    ) -> None:
        self.weight = own_part(whole.weight, 0, over, pieces)
        self.bias = None if whole.bias is None else own_part(whole.bias, 0, over, pieces)
        self._over, self._pieces, self._sequence_axis = over, pieces, sequence_axis

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`."""
        found = {"weight": layout_of_part(self.weight.shape, 0, self._over, self._pieces)}
        if self.bias is not None:
            found["bias"] = layout_of_part(self.bias.shape, 0, self._over, self._pieces)
        return found

    def __call__(self, x: Tensor) -> Tensor:
        if self._sequence_axis is None:
            x = enter_parallel(x, self._over)
        else:
            x = all_gather(x, self._sequence_axis, self._over)
        return linear(x, self.weight, self.bias)


class RowParallel:
    """A Linear of inputs of which this process has a part; all have the outputs.

    whole: the layer of all. sequence_axis: along which the outputs are cut, where each process is
    to have a part of them only.

    weight: (out_features, in_features / processes). Raises ShapeError where the inputs do not
    divide."""

    def __init__(self, whole: Linear, over: Axis, sequence_axis: int | None = None) -> None:
        self.weight = own_part(whole.weight, 1, over)
        self.bias = whole.bias
        self._over, self._sequence_axis = over, sequence_axis

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`."""
        return {"weight": layout_of_part(self.weight.shape, 1, self._over)}

    def __call__(self, x: Tensor) -> Tensor:
        part = linear(x, self.weight)
        if self._sequence_axis is None:
            total = leave_parallel(part, self._over)
        else:
            total = reduce_scatter(part, "sum", self._sequence_axis, self._over)
        return total if self.bias is None else total + self.bias


class VocabularyParallel:
    """An Embedding of which this process has some rows; `logits` are its product with them.

    weight: (num_embeddings / processes, embedding_dim). Raises ShapeError where the rows do not
    divide."""

    def __init__(self, whole: Embedding, over: Axis) -> None:
        self.weight = own_part(whole.weight, 0, over)
        self._over = over

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`."""
        return {"weight": layout_of_part(self.weight.shape, 0, self._over)}

    def __call__(self, indices: Tensor) -> Tensor:
        rows = self.weight.shape[0]
        place = indices - self._over.place * rows
        is_own = (place >= 0) & (place < rows)
        found = embedding(where(is_own, place, 0), self.weight)
        return leave_parallel(where(expand_dims(is_own, -1), found, 0.0), self._over)

    def logits(self, x: Tensor) -> Tensor:
        """Those of the rows of this process, for `vocabulary_cross_entropy`."""
        return linear(enter_parallel(x, self._over), self.weight)


def vocabulary_cross_entropy(logits: Tensor, targets: Tensor, over: Axis) -> Tensor:
    """The mean cross entropy, float32, of logits of which each process has a part.

    logits: (tokens, classes / processes). targets: (tokens,), integers, of all classes. Only the
    largest logit, the sum of exponentials and the logit of the target go between processes, not
    the logits."""
    logits = logits.cast(float32)
    largest = all_reduce(maximum_of(logits.detach(), axis=-1, keepdims=True), "max", over)
    shifted = logits - largest
    total = leave_parallel(exp(shifted).sum(axis=-1), over)
    classes = logits.shape[-1]
    place = targets - over.place * classes
    is_own = (place >= 0) & (place < classes)
    index = expand_dims(where(is_own, place, 0), -1)
    own = where(is_own, squeeze(take_along_axis(shifted, index, -1), -1), 0.0)
    return (log(total) - leave_parallel(own, over)).mean()


def sum_gradients(parameters: Sequence[Tensor], over: Axis) -> None:
    """Replace the `grad` of each parameter, of which each process has a part of the gradient, by
    the sum over the processes. Raises GradientError where a parameter has none."""
    for number, one in enumerate(parameters):
        if one.grad is None:
            raise GradientError(
                f"parameter {number}, {one.dtype.name} {one.shape}, has no gradient",
                operation="sum_gradients",
            )
        one.grad = all_reduce(one.grad, "sum", over)


def own_part(whole: Tensor, axis: int, over: Axis, pieces: int = 1) -> Tensor:
    """A parameter with the part of `whole` along `axis` that this process has of each piece: of 12
    rows in 3 pieces, the first of two processes has rows 0, 1, 4, 5, 8 and 9. Raises ShapeError."""
    length = whole.shape[axis]
    if length % (pieces * over.ranks):
        raise ShapeError(
            f"tensor parallel: axis {axis} of {whole.shape} has {length} elements, which "
            f"{over.ranks} processes cannot share equally in {pieces} pieces"
        )
    each = length // (pieces * over.ranks)
    before, after = whole.shape[:axis], whole.shape[axis + 1 :]
    cut = reshape(whole.detach(), (*before, pieces, over.ranks, each, *after))
    index = (*(slice(None),) * (axis + 1), over.place)
    part = reshape(cut[index], (*before, pieces * each, *after))
    return parameter(part.contiguous())


def layout_of_part(part: Shape, axis: int, over: Axis, pieces: int = 1) -> Layout:
    """Of what `own_part` gives, in that shape: a box for each piece."""
    each = part[axis] // pieces
    shape = (*part[:axis], part[axis] * over.ranks, *part[axis + 1 :])
    size = (*part[:axis], each, *part[axis + 1 :])
    boxes = []
    for piece in range(pieces):
        start, own_start = [0] * len(part), [0] * len(part)
        start[axis] = (piece * over.ranks + over.place) * each
        own_start[axis] = piece * each
        boxes.append(Box(tuple(start), tuple(own_start), size))
    return Layout(shape, tuple(boxes), (over,))

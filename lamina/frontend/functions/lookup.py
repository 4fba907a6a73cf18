"""Integers as rows: of a table that is learned (embedding), or with a single 1 (one_hot)."""

from typing import Any

from lamina.core.dtypes import accumulator, int64
from lamina.errors import AxisError, ShapeError
from lamina.frontend.arguments import integer
from lamina.frontend.functions import movement
from lamina.frontend.functions import reduction as over
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import maximum, where
from lamina.frontend.functions.indexing import as_index, check_range, take
from lamina.frontend.functions.scatter import counts
from lamina.frontend.functions.spatial import exact
from lamina.frontend.tensor import Tensor, as_tensor
from lamina.ir.build import broadcast_in_dim
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = ["embedding", "one_hot"]


def one_hot(indices: Any, num_classes: int = -1) -> Tensor:
    """1 at each index and 0 elsewhere along a new last axis of size `num_classes`, int64. By
    default there are as many classes as the greatest index needs, which is computed now. Raises
    AxisError for an index out of range, unless it is in a tensor: it is then nowhere."""
    array = as_tensor(indices)
    index = as_index("one_hot", array, array).cast(int64)
    count = integer("one_hot", num_classes, -1)
    if count == -1:
        if not index.size:
            raise ShapeError(
                f"num_classes is needed for indices of shape {index.shape}", operation="one_hot"
            )
        count = over.max(index).item() + 1
    check_range("one_hot", indices, index.ndim, count, minimum=0)
    classes = arange(count, device=index.device)
    return (movement.expand_dims(index, axis=-1) == classes).cast(int64)


def embedding(
    indices: Any, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of `weight`, (n, d), at `indices`, (...): shape (..., d). Raises AxisError for an
    index that is not in 0 : n, unless it is in a tensor: its row is zeros. No derivative flows into
    the row `padding_idx`.

    max_norm: a row whose norm of order `norm_type` is greater is scaled to this norm as it is
    read. The derivative takes no notice of that, as in PyTorch, which scales these rows of the
    weight itself, in place and unseen by the derivative; here `weight` is left alone.
    scale_grad_by_freq: the derivative of a row is divided by how often its index occurs."""
    if weight.ndim != 2:
        raise ShapeError(
            f"the weight has shape {weight.shape}; (n, d) is needed", operation="embedding"
        )
    rows_of_weight, width = weight.shape
    index = as_index("embedding", indices, weight)
    check_range("embedding", indices, 0, rows_of_weight, minimum=0)
    flat = Node(Op.GATHER, (weight.node, broadcast_in_dim(index.node, 0, (index.size, width))), 0)
    rows = movement.reshape(Tensor.of(flat, weight.device), (*index.shape, width))
    value, slope = rows, rows
    if max_norm is not None:
        value = _limited(rows, max_norm, norm_type)
    if scale_grad_by_freq:
        slope = rows * _shares_of_rows(index, weight)
    if padding_idx is not None:
        row = padding_row("embedding", padding_idx, rows_of_weight)
        slope = where(movement.expand_dims(index.cast(int64) == row, axis=-1), 0.0, slope)
    if value is slope:
        return rows
    return Tensor.of(Node(Op.CUSTOM_DERIVATIVE, (value.node, slope.node)), rows.device)


def padding_row(what: str, padding_idx: int, rows: int) -> int:
    """`padding_idx` counted from the front; raises AxisError when there is no such row."""
    if not -rows <= integer(what, padding_idx) < rows:
        raise AxisError(
            f"padding_idx={padding_idx} is out of range for {rows} rows", operation=what
        )
    return padding_idx % rows


def _limited(rows: Tensor, most: float, order: float) -> Tensor:
    """`rows`, (..., d), each scaled to a norm of `most` if it has a greater one."""
    norms = over.norm(exact("embedding", rows), order, axis=-1, keepdims=True)
    factors = where(norms > most, most / (norms + 1e-7), 1.0)
    return rows * factors.cast(rows.dtype)


def _shares_of_rows(index: Tensor, weight: Tensor) -> Tensor:
    """One over the number of times that each index occurs, in the dtype of `weight`, (..., 1)."""
    wanted = index.cast(int64)
    places = movement.reshape(wanted, (index.size,))
    frequency = Tensor.of(counts((len(weight),), 0, places.node), weight.device)
    times = movement.reshape(take(frequency, wanted, axis=0), (*index.shape, 1))
    return (1.0 / maximum(times, 1).cast(accumulator(weight.dtype))).cast(weight.dtype)

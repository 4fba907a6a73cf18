"""Searching sorted data, and sets (array API, "searching" and "set" functions).

The shape of a set depends on the values, so the functions of sets run at once, in NumPy.
"""

from typing import Any

from lamina.core.dtypes import int64
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.frontend import realize as memory
from lamina.frontend.arguments import normalize_axis, promote
from lamina.frontend.tensor import Tensor, as_tensor, common_device
from lamina.graph.search import places_in_sorted
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = [
    "searchsorted", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None,
    right: bool = False,
) -> Tensor:  # fmt: skip
    """Where each element v of `x2` belongs in `x1`, ascending along its last axis: int64 of x2's
    shape. With side 'left' the index i has ``x1[i - 1] < v <= x1[i]``, with 'right'
    ``x1[i - 1] <= v < x1[i]``.

    x1: (n,), with `x2` of any shape; or rows (..., n), each for a row of x2, (..., m). sorter:
    integers of x1's shape, which sort each row of it. right: PyTorch's name of side 'right'."""
    if side not in ("left", "right"):
        raise ArgumentError(
            f"side {side!r} is neither 'left' nor 'right'", operation="searchsorted"
        )
    values = as_tensor(x2, x1)
    _check_rows(x1, values, sorter)
    device = common_device("searchsorted", x1, values, x1 if sorter is None else sorter)
    dtype = promote("searchsorted", x1.dtype, values.dtype)
    if dtype.is_complex:
        raise DTypeError(f"{dtype.name} has no order", operation="searchsorted")
    axis = x1.ndim - 1
    data, wanted = build.cast(x1.node, dtype), build.cast(values.node, dtype)
    if sorter is not None:
        data = Node(Op.GATHER, (data, sorter.node), axis)
    if axis == 0:
        wanted = build.reshape(wanted, (values.size,))
    place = places_in_sorted(data, wanted, axis, from_right=right or side == "right")
    return Tensor.of(build.reshape(place, values.shape), device)


def _check_rows(x1: Tensor, values: Tensor, sorter: Tensor | None) -> None:
    """Raises ShapeError unless each row of `values` and of `sorter` has its row of `x1`."""
    if not x1.ndim:
        raise ShapeError(
            "the sorted data has shape (); an axis is needed", operation="searchsorted"
        )
    if x1.ndim > 1 and values.shape[:-1] != x1.shape[:-1]:
        raise ShapeError(f"sorted rows {x1.shape} and values {values.shape}: all but "
                         "the last sizes must be equal", operation="searchsorted")  # fmt: skip
    if sorter is not None and sorter.shape != x1.shape:
        raise ShapeError(
            f"sorter {sorter.shape} is not of x1's shape {x1.shape}", operation="searchsorted"
        )


def unique(
    x: Tensor, axis: int | None = None, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, sorted: bool = True,
) -> Any:  # fmt: skip
    """The values of `x` without repetitions, ascending; with `axis`, its different slices along
    that axis, in the order of their elements. Each NaN counts as different.

    Returns the values, or if more is asked for a tuple of them and, in this order: return_index,
    the place of the first of each, (k,), in the flat array or along `axis`; return_inverse, for
    each element the place of its value, in the shape of x, or (n,) along `axis`; return_counts, how
    often each occurs, (k,). All but the values is int64. sorted: False leaves the order open, and
    changes nothing."""
    import numpy as np

    along = None if axis is None else normalize_axis("unique", axis, x.ndim)
    values, *places = np.unique(
        memory.native(x), return_index=True, return_inverse=True, return_counts=True, axis=along,
        equal_nan=False,
    )  # fmt: skip
    asked = (return_index, return_inverse, return_counts)
    unique_values = Tensor(values, x.dtype, x.device)
    if not any(asked):
        return unique_values
    wanted = [place for place, is_wanted in zip(places, asked, strict=True) if is_wanted]
    return unique_values, *(Tensor(place, int64, x.device) for place in wanted)


def _unique(what: str, x: Tensor) -> Any:
    import numpy as np

    values, *places = result = getattr(np, what)(memory.native(x))
    tensors = (Tensor(place, int64, x.device) for place in places)
    return type(result)(Tensor(values, x.dtype, x.device), *tensors)


def unique_all(x: Tensor, /) -> Any:
    """The `values` of `x` without repetitions, ascending, each NaN for itself; `indices`, in the
    flat array, of the first of each; for each element of `x` the index of its value,
    `inverse_indices`; and how often each occurs, `counts`."""
    return _unique("unique_all", x)


def unique_counts(x: Tensor, /) -> Any:
    """The `values` of `x` and how often each occurs, `counts`."""
    return _unique("unique_counts", x)


def unique_inverse(x: Tensor, /) -> Any:
    """The `values` of `x` and for each element the index of its value, `inverse_indices`."""
    return _unique("unique_inverse", x)


def unique_values(x: Tensor, /) -> Tensor:
    """The values of `x` without repetitions, ascending; each NaN counts as different."""
    values: Tensor = unique_all(x).values
    return values

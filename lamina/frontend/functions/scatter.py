"""Elements read and written by index arrays along one axis, with PyTorch's names and meanings.

Every function returns a new tensor; the operand keeps its value. Negative indices count from the
end. An index out of range reads 0, and what would be written there is dropped, where it is in a
tensor; one that is known, in a list or an array of NumPy, raises AxisError. An array of shape
() counts as a line of one element.
"""

from typing import Any

from lamina.core.dtypes import DType, Scalar, accumulator, bool_, int64, uint64
from lamina.core.shape import Shape
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.frontend.arguments import broadcast_shapes, line_axis
from lamina.frontend.functions.indexing import as_index, check_range, take, wrapped
from lamina.frontend.functions.spatial import resized
from lamina.frontend.tensor import Data, Tensor, as_tensor, common_device
from lamina.ir.build import broadcast_in_dim, cast, expand, full, pad, reshape, select, sliced
from lamina.ir.monoids import ADD, MAX, MIN, MUL
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter

__all__ = [
    "gather", "index_add", "index_copy", "index_fill", "index_reduce", "index_select", "put",
    "scatter", "scatter_add", "scatter_reduce",
]  # fmt: skip

_MONOIDS = {
    None: None, "add": ADD, "sum": ADD, "mean": ADD, "multiply": MUL, "prod": MUL, "max": MAX,
    "amax": MAX, "min": MIN, "amin": MIN,
}  # fmt: skip


def gather(x: Data, axis: int, index: Any) -> Tensor:
    """Element ``x[..., index[..., i, ...], ...]`` of each line along `axis`, in the shape of
    `index`, which has the rank of x and is no larger than x beside `axis`."""
    along_axis = line_axis("gather", axis, x.ndim)
    places = as_index("gather", index, x)
    if x.ndim != places.ndim:
        raise ShapeError(
            f"{x.shape} and an index of {places.shape} differ in rank", operation="gather"
        )
    shape = places.shape or (1,)
    check_range("gather", index, along_axis, (x.shape or (1,))[along_axis])
    data = _cropped("gather", _line(x.node), shape, along_axis)
    inside = wrapped(reshape(places.node, shape), data.shape[along_axis])
    picked = Node(Op.GATHER, (data, inside), along_axis)
    return Tensor.of(reshape(picked, places.shape), x.device)


def scatter(
    x: Data, axis: int, index: Any, source: Any, reduce: str | None = None,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """x with ``source[..., i, ...]`` put at ``index[..., i, ...]`` along `axis`.

    index: as many axes as x has, and no larger than x beside `axis`. source: a scalar, or at least
    as large as the index; what is beyond the index is not used. reduce: how elements for one place
    are combined with each other and with the old value: "sum" ("add"), "prod" ("multiply"), "mean"
    (integers round down), "amax" ("max") or "amin" ("min"); None lets the last one replace the old
    value. include_self: whether the old value takes part; where no element arrives it stays."""
    return _scattered("scatter", x, axis, index, source, reduce, include_self)


def scatter_add(x: Data, axis: int, index: Any, source: Any) -> Tensor:
    """`scatter` with the reduction "sum"."""
    return _scattered("scatter_add", x, axis, index, source, "sum")


def scatter_reduce(
    x: Data, axis: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Tensor:
    """`scatter` with a reduction, in PyTorch's order of arguments."""
    return _scattered("scatter_reduce", x, axis, index, source, reduce, include_self)


def index_add(x: Data, axis: int, index: Any, source: Any, alpha: Scalar = 1) -> Tensor:
    """x with slice i of ``alpha * source`` added to slice ``index[i]`` along `axis`.

    index: (n,). source: broadcasts to the shape of x with n elements along `axis`."""
    scaled = as_tensor(source, x, "index_add") * alpha if alpha != 1 else source
    return _by_slices("index_add", x, axis, index, scaled, "sum")


def index_copy(x: Data, axis: int, index: Any, source: Any) -> Tensor:
    """x with slice i of `source` in place of slice ``index[i]`` along `axis`; see `index_add`."""
    return _by_slices("index_copy", x, axis, index, source, None)


def index_fill(x: Data, axis: int, index: Any, value: Any) -> Tensor:
    """x with `value`, one number, in the slices `index`, (n,), along `axis`."""
    filling = as_tensor(value, x, "index_fill")
    if filling.size != 1:
        raise ShapeError(
            f"the value has shape {filling.shape}; one number is needed", operation="index_fill"
        )
    return _by_slices("index_fill", x, axis, index, filling, None)


def index_reduce(
    x: Data, axis: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Tensor:
    """x with slice i of `source` combined into slice ``index[i]`` along `axis`; index and source
    are those of `index_add`, the reductions those of `scatter`."""
    return _by_slices("index_reduce", x, axis, index, source, reduce, include_self)


def index_select(x: Data, axis: int, index: Any) -> Tensor:
    """The slices `index`, (n,), along `axis`."""
    if not x.ndim:
        return gather(x, axis, as_index("index_select", index, x).reshape(()))
    return take(x, _vector("index_select", x, index), axis=axis)


def put(x: Data, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """x with the elements of `source` at `index`, both flat, or added there (`accumulate`). Indices
    count the elements of x row by row; index and source have equally many elements."""
    places, values = as_index("put", index, x), as_tensor(source, x, "put")
    if places.size != values.size:
        raise ShapeError(f"{places.size} indices for {values.size} elements", operation="put")
    check_range("put", index, 0, x.size)
    flat = Tensor.of(reshape(x.node, (x.size,)), x.device)
    reduce = "sum" if accumulate else None
    result = _scattered("put", flat, 0, places.reshape(-1), values.reshape(-1), reduce)
    return Tensor.of(reshape(result.node, x.shape), x.device)


def _line(node: Node) -> Node:
    """`node` with an axis, if it has none."""
    return reshape(node, node.shape or (1,))


def _cropped(what: str, node: Node, shape: Shape, free: int | None = None) -> Node:
    """The leading part of `node` that has `shape`, beside the axis `free`."""
    if len(shape) == len(node.shape):
        stop = shape if free is None else resized(shape, free, node.shape[free])
        if all(want <= have for want, have in zip(stop, node.shape, strict=True)):
            return sliced(node, map(range, stop))
    raise ShapeError(f"an index of shape {shape} does not fit {node.shape}", operation=what)


def _vector(what: str, x: Tensor, index: Any) -> Tensor:
    """`index` with one axis; raises ShapeError when it has several."""
    places = as_index(what, index, x)
    if places.ndim > 1:
        raise ShapeError(f"an index of shape {places.shape}; one axis is needed", operation=what)
    return Tensor.of(_line(places.node), places.device)


def _scattered(
    what: str, x: Tensor, axis: int, index: Any, source: Any, reduce: str | None,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """`source` combined into `x` at an `index` of its rank, which is padded to the sizes of x."""
    along_axis = line_axis(what, axis, x.ndim)
    places, values = as_index(what, index, x), as_tensor(source, x, what)
    if x.ndim != places.ndim:
        raise ShapeError(f"{x.shape} and an index of {places.shape} differ in rank", operation=what)
    size = (x.shape or (1,))[along_axis]
    check_range(what, index, along_axis, size)
    inside = wrapped(_line(places.node), size)
    wide = values.node if values.ndim else expand(values.node, inside.shape)
    update = _cropped(what, wide, inside.shape)
    _cropped(what, _line(x.node), inside.shape, along_axis)
    shape = resized(x.shape or (1,), along_axis, inside.shape[along_axis])
    before = [0] * len(shape)
    after = [have - want for have, want in zip(shape, inside.shape, strict=True)]
    nowhere = pad(inside, before, after, -1)
    return _combined(
        what, x, along_axis, nowhere, Tensor.of(pad(update, before, after), values.device),
        reduce, include_self,
    )  # fmt: skip


def _by_slices(
    what: str, x: Tensor, axis: int, index: Any, source: Any, reduce: str | None,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """`source` combined into the slices `index` of `x` along `axis`."""
    along_axis = line_axis(what, axis, x.ndim)
    lines = x.shape or (1,)
    check_range(what, index, along_axis, lines[along_axis])
    places, values = _vector(what, x, index), as_tensor(source, x, what)
    shape = resized(lines, along_axis, places.size)
    if broadcast_shapes(what, values.shape, shape) != shape:
        raise ShapeError(
            f"a source of {values.shape} does not broadcast to {shape}", operation=what
        )
    inside = broadcast_in_dim(wrapped(places.node, lines[along_axis]), along_axis, shape)
    update = Tensor.of(expand(values.node, shape), values.device)
    return _combined(what, x, along_axis, inside, update, reduce, include_self)


def _combined(
    what: str, x: Tensor, axis: int, places: Node, source: Tensor, reduce: str | None,
    include_self: bool,
) -> Tensor:  # fmt: skip
    """`source` combined into `x` at `places`, which has its shape; -1 is no place."""
    if reduce not in _MONOIDS:
        raise ArgumentError(f"reduce={reduce!r} is not one of {list(_MONOIDS)}", operation=what)
    monoid = _MONOIDS[reduce]
    if x.dtype.is_complex and monoid is MUL:
        raise DTypeError(
            f"{x.dtype.name} has no {reduce!r}, which is for real numbers", operation=what
        )
    common_device(what, x, source)
    dtype = _sum_dtype(x.dtype) if reduce == "mean" else x.dtype
    base, update = cast(_line(x.node), dtype), cast(source.cast(x.dtype).node, dtype)
    if monoid is not None and not include_self:
        (identity,) = monoid.identity((dtype,))
        replaced = _arrives(base.shape, axis, places)
        base = select(replaced, full(base.shape, identity, dtype), base)
    result = Node(Op.SCATTER, (base, places, update), Scatter(axis, monoid))
    if reduce == "mean":
        result = _divided(result, counts(base.shape, axis, places, int(include_self)))
    return Tensor.of(reshape(cast(result, x.dtype), x.shape), x.device)


def _arrives(shape: Shape, axis: int, places: Node) -> Node:
    """Where in an array of `shape` an element arrives: bool."""
    nothing, arrived = full(shape, False, bool_), full(places.shape, True, bool_)
    return Node(Op.SCATTER, (nothing, places, arrived), Scatter(axis, None))


def _sum_dtype(dtype: DType) -> DType:
    """The dtype in which a mean adds up and divides: many int8 and their count do not fit int8."""
    return int64 if dtype.is_int and dtype is not uint64 else accumulator(dtype)


def counts(shape: Shape, axis: int, places: Node, start: int = 0) -> Node:
    """How many elements arrive at each place of an array of `shape` along `axis`, plus `start`:
    int64. Places that do not exist are left out."""
    old, new = full(shape, start, int64), full(places.shape, 1, int64)
    return Node(Op.SCATTER, (old, places, new), Scatter(axis, ADD))


def _divided(total: Node, sizes: Node) -> Node:
    """Means of `sizes` elements, or of one where there is none; integers round down."""
    divisor = cast(Node(Op.MAX, (sizes, sizes.lift(1))), total.dtype)
    return Node(Op.IDIV, (total, divisor)) if total.dtype.is_int else total / divisor

"""Functions that move elements without changing them (array API, "manipulation functions")."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from lamina.core.shape import prod as product
from lamina.errors import AxisError, ShapeError
from lamina.frontend.arguments import (
    Axis,
    broadcast_shapes,
    normalize_axes,
    normalize_axis,
    sizes_of,
)
from lamina.frontend.functions.indexing import take
from lamina.frontend.functions.spatial import resized
from lamina.frontend.tensor import Data, Tensor, as_tensor, common_device, common_dtype
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = [
    "broadcast_arrays", "broadcast_to", "chunk", "concat", "diag", "diagonal", "expand",
    "expand_dims", "flatten", "flip", "matrix_transpose", "moveaxis", "permute",
    "permute_dims", "repeat", "reshape", "roll", "split", "squeeze", "stack", "tile", "transpose",
    "unsqueeze", "unstack",
]  # fmt: skip


def reshape(x: Data, /, shape: int | Sequence[int], *more: int, copy: bool | None = None) -> Tensor:
    """The elements, row-major, in another shape: a tuple (the standard) or the sizes one by one;
    one may be -1 for "what is left". Tensors are values, so `copy` changes nothing."""
    wanted = sizes_of("reshape", shape, *more, signed=True)
    count = x.size
    if wanted.count(-1) > 1:
        raise ShapeError(
            f"{wanted} leaves several sizes open; only one may be -1", operation="reshape"
        )
    known = product(size for size in wanted if size != -1)
    rest = count // known if known else -1  # beside a 0 anything would do
    shape = tuple(rest if size == -1 else size for size in wanted)
    if any(size < 0 for size in shape) or product(shape) != count:
        raise ShapeError(
            f"{x.shape} has {count} elements and does not fit {wanted}", operation="reshape"
        )
    return Tensor.of(build.reshape(x.node, shape), x.device)


def flatten(x: Data, start: int = 0, stop: int = -1) -> Tensor:
    """The axes start..stop, inclusive, as one."""
    shape = x.shape or (1,)
    first, last = (normalize_axis("flatten", axis, len(shape)) for axis in (start, stop))
    merged = product(shape[first : last + 1])
    return reshape(x, (*shape[:first], merged, *shape[last + 1 :]))


def broadcast_to(x: Data, /, shape: Sequence[int]) -> Tensor:
    """x repeated along new axes in front and along axes of size 1."""
    sizes = sizes_of("broadcast_to", shape)
    if broadcast_shapes("broadcast_to", x.shape, sizes) != sizes:
        raise ShapeError(f"{x.shape} does not broadcast to {sizes}", operation="broadcast_to")
    return Tensor.of(build.expand(x.node, sizes), x.device)


def expand(x: Data, *shape: Any) -> Tensor:
    """`broadcast_to` with sizes one by one; -1 keeps a size."""
    sizes = sizes_of("expand", *shape, signed=True)
    kept = zip((1,) * (len(sizes) - x.ndim) + x.shape, sizes, strict=False)
    return broadcast_to(x, tuple(have if want == -1 else want for have, want in kept))


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """All `arrays` in their common shape."""
    tensors = [as_tensor(array) for array in arrays]
    shape = broadcast_shapes("broadcast_arrays", *(tensor.shape for tensor in tensors))
    return [broadcast_to(tensor, shape) for tensor in tensors]


def permute_dims(x: Data, /, axes: Sequence[int]) -> Tensor:
    """The axes in another order: axis i of the result is axis ``axes[i]`` of x."""
    order = normalize_axes("permute_dims", axes, x.ndim)
    if len(order) != x.ndim:
        raise AxisError(
            f"{tuple(axes)} is not an order of the axes of {x.shape}", operation="permute_dims"
        )
    return Tensor.of(build.permute(x.node, order), x.device)


def permute(x: Data, *axes: Any) -> Tensor:
    """`permute_dims` with the axes one by one or as a sequence."""
    return permute_dims(x, sizes_of("permute", *axes, signed=True))


def transpose(x: Data, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Two axes swapped, the last two by default."""
    a, b = (normalize_axis("transpose", axis, x.ndim) for axis in (axis1, axis2))
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return Tensor.of(build.permute(x.node, order), x.device)


matrix_transpose = transpose


def reversed_axes(x: Tensor) -> Tensor:
    """The matrix transposed; the standard defines ``.T`` for two axes only."""
    if x.ndim != 2:
        raise ShapeError(f"{x.shape} is no matrix; use mT, or permute_dims", operation="T")
    return transpose(x)


def moveaxis(x: Data, source: Axis, destination: Axis, /) -> Tensor:
    """The axes `source` at the places `destination`, the others in their order."""
    moved, places = (normalize_axes("moveaxis", axes, x.ndim) for axes in (source, destination))
    if len(moved) != len(places):
        raise AxisError(f"{source} and {destination} differ in length", operation="moveaxis")
    order = [axis for axis in range(x.ndim) if axis not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return Tensor.of(build.permute(x.node, order), x.device)


def flip(x: Data, /, axis: Axis = None) -> Tensor:
    """The order along `axis` reversed, along all axes by default."""
    return Tensor.of(build.flip(x.node, normalize_axes("flip", axis, x.ndim)), x.device)


def expand_dims(x: Data, /, axis: int | Sequence[int] = 0) -> Tensor:
    """New axes of size 1 at the places `axis` of the result."""
    count = len(sizes_of("expand_dims", axis, signed=True))
    axes = normalize_axes("expand_dims", axis, x.ndim + count)
    return Tensor.of(build.insert_axes(x.node, axes), x.device)


unsqueeze = expand_dims


def squeeze(x: Data, /, axis: Axis = None) -> Tensor:
    """Without the axes `axis`, which must have size 1; all such axes by default."""
    if axis is None:
        axis = [number for number, size in enumerate(x.shape) if size == 1]
    axes = normalize_axes("squeeze", axis, x.ndim)
    for number in axes:
        if x.shape[number] != 1:
            size = x.shape[number]
            raise ShapeError(
                f"axis {number} of {x.shape} has size {size}, not 1", operation="squeeze"
            )
    kept = tuple(size for number, size in enumerate(x.shape) if number not in axes)
    return Tensor.of(build.reshape(x.node, kept), x.device)


def concat(arrays: Iterable[Any], /, axis: int | None = 0) -> Tensor:
    """The arrays one after the other along `axis`; flattened first when it is None."""
    tensors = [as_tensor(array) for array in arrays]
    if not tensors:
        raise ShapeError("there is nothing to join", operation="concat")
    if axis is None:
        tensors, axis = [flatten(tensor) for tensor in tensors], 0
    device = common_device("concat", *tensors)
    dtype = common_dtype("concat", *tensors)
    first = tensors[0].shape
    along = normalize_axis("concat", axis, len(first))
    for other in tensors[1:]:
        if other.ndim != len(first) or resized(other.shape, along, first[along]) != first:
            raise ShapeError(
                f"{first} and {other.shape} differ beside axis {along}", operation="concat"
            )
    return Tensor.of(_join([build.cast(tensor.node, dtype) for tensor in tensors], along), device)


def _join(nodes: list[Node], axis: int, few: int = 8) -> Node:
    """Each part padded with zeros to the whole, chosen by position; of many, a few at a time. Where
    more than `few` are joined, such as steps in time, the derivative of each is its piece of a sum:
    one kernel does for all, where choosing takes one for each."""
    nodes = [node for node in nodes if node.shape[axis]] or nodes[:1]
    if len(nodes) > 32:  # as each place is compared with all of their ends
        groups = (nodes[at : at + 32] for at in range(0, len(nodes), 32))
        return _join([Node(Op.CONTIGUOUS, (_join(group, axis, 1),)) for group in groups], axis, 1)
    ends = list(itertools.accumulate((node.shape[axis] for node in nodes), initial=0))
    none = (0,) * len(nodes[0].shape)
    result, *others = padded = [
        build.pad(node, resized(none, axis, start), resized(none, axis, ends[-1] - stop))
        for node, (start, stop) in zip(nodes, itertools.pairwise(ends), strict=True)
    ]
    for start, other in zip(ends[1:], others, strict=False):
        result = build.select(build.broadcasted_iota(result.shape, axis) < start, result, other)
    grafts = len(padded) > few and result.dtype.is_float
    return Node(Op.CUSTOM_DERIVATIVE, (result, sum(others, padded[0]))) if grafts else result


def stack(arrays: Iterable[Any], /, axis: int = 0) -> Tensor:
    """The arrays, which have one shape, along a new axis."""
    tensors = [as_tensor(array) for array in arrays]
    for other in tensors[1:]:
        if other.shape != tensors[0].shape:
            raise ShapeError(f"{tensors[0].shape} and {other.shape} differ", operation="stack")
    return concat([expand_dims(tensor, axis=axis) for tensor in tensors], axis=axis)


def unstack(x: Data, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along `axis`, which vanishes."""
    along = normalize_axis("unstack", axis, x.ndim)
    return tuple(squeeze(part, along) for part in split(x, [1] * x.shape[along], axis=along))


def split(x: Data, sizes: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Pieces along `axis`: of one size (the last may be smaller) or of the sizes given."""
    along = normalize_axis("split", axis, x.ndim)
    size = x.shape[along]
    if not hasattr(sizes, "__iter__"):
        sizes = [min(sizes, size - at) for at in range(0, max(size, 1), sizes or -1)]  # none of 0
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise ShapeError(
            f"{tuple(sizes)} does not add up to axis {along} of {x.shape}", operation="split"
        )
    ends = list(itertools.accumulate(sizes, initial=0))
    parts = (build.slice_axis(x.node, along, *pair) for pair in itertools.pairwise(ends))
    return tuple(Tensor.of(part, x.device) for part in parts)


def chunk(x: Data, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of one size along `axis`; the last may be smaller."""
    size = x.shape[normalize_axis("chunk", axis, x.ndim)]
    if chunks < 1:
        raise ShapeError(f"{x.shape} in {chunks} pieces", operation="chunk")
    return split(x, max(1, -(-size // chunks)), axis)


def roll(x: Data, /, shift: int | Sequence[int], *, axis: Axis = None) -> Tensor:
    """Moved by `shift` places along `axis`, around the end; over all elements by default."""
    shifts = sizes_of("roll", shift, signed=True)
    if axis is None:
        return reshape(roll(reshape(x, (x.size,)), sum(shifts), axis=0), x.shape)
    axes = sizes_of("roll", axis, signed=True)
    if len(axes) > 1 and len(shifts) == 1:
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise AxisError(f"{len(shifts)} shifts for {len(axes)} axes", operation="roll")
    rolled = x.node
    for by, number in zip(shifts, axes, strict=True):
        along = normalize_axis("roll", number, x.ndim)
        if size := x.shape[along]:
            # A part of two copies: shapes depend on no shift, so one program serves all.
            first = -by % size
            rolled = build.slice_axis(_join([rolled, rolled], along), along, first, first + size)
    return Tensor.of(rolled, x.device)


def repeat(x: Data, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times along `axis`; over the flattened array by default. Several
    `repeats`, one an element, are computed first: the shape depends on them."""
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    along = normalize_axis("repeat", axis, x.ndim)
    size = x.shape[along]
    times = sizes_of("repeat", repeats if isinstance(repeats, int) else as_tensor(repeats).tolist())
    if len(times) != 1:
        if len(times) != size:
            raise ShapeError(f"{len(times)} repeats for {size} elements", operation="repeat")
        return take(x, [i for i, n in enumerate(times) for _ in range(n)], axis=along)
    repeated = build.insert_axes(x.node, (along + 1,))
    copies = build.expand(repeated, resized(x.shape, along, size, *times))
    return Tensor.of(build.reshape(copies, resized(x.shape, along, size * times[0])), x.device)


def tile(x: Data, repetitions: Sequence[int], /) -> Tensor:
    """Copies of the whole array side by side: so many along each axis."""
    repetitions = sizes_of("tile", repetitions)
    rank = max(x.ndim, len(repetitions))
    shape = (1,) * (rank - x.ndim) + x.shape
    times = (1,) * (rank - len(repetitions)) + tuple(repetitions)
    apart = build.reshape(x.node, tuple(size for n in shape for size in (1, n)))
    full = tuple(size for pair in zip(times, shape, strict=True) for size in pair)
    merged = tuple(a * b for a, b in zip(times, shape, strict=True))
    return Tensor.of(build.reshape(build.expand(apart, full), merged), x.device)


def diagonal(x: Data, /, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The diagonal of each matrix in two axes, as the last axis."""
    if x.ndim < 2:
        raise ShapeError(f"{x.shape} has fewer than two axes", operation="diagonal")
    moved = moveaxis(x, (axis1, axis2), (-2, -1))[..., max(0, -offset) :, max(0, offset) :]
    size = min(moved.shape[-2:])
    return Tensor.of(main_diagonal(moved[..., :size, :size].node), x.device)


def main_diagonal(x: Node) -> Node:
    """(..., n, n) to (..., n): every (n + 1)-th element of a flat matrix."""
    *outer, n, _ = x.shape
    return build.slice_axis(build.reshape(x, (*outer, n * n)), len(outer), 0, n * n, n + 1)


def diag(x: Data, /, offset: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with a vector on its diagonal."""
    if x.ndim == 2:
        return diagonal(x, offset=offset)
    if x.ndim != 1:
        raise ShapeError(f"{x.shape} is neither a vector nor a matrix", operation="diag")
    padded = build.pad(x.node, (max(0, offset),), (max(0, -offset),))
    shape = padded.shape * 2
    on_diagonal = (build.broadcasted_iota(shape, 0) + offset).eq(build.broadcasted_iota(shape, 1))
    padded = build.expand(padded, shape)
    return Tensor.of(build.select(on_diagonal, padded, padded.lift(0)), x.device)

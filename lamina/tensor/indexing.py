"""Indexing with integers, slices, None, Ellipsis, masks and integer arrays, as NumPy does."""

from __future__ import annotations

from typing import Any, NamedTuple

from lamina import dtypes
from lamina.dtypes import bool_
from lamina.errors import ArgumentError, AxisError, DTypeError, ShapeError
from lamina.ir import build
from lamina.ir.monoids import ADD, MAX, MIN, MUL
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter
from lamina.shape import Shape, broadcast_shapes, normalize_axis, prod, strides_of
from lamina.tensor import realize as memory
from lamina.tensor.core import Tensor, as_tensor, common_device, is_scalar

__all__ = ["argwhere", "gather", "nonzero", "scatter", "take", "take_along_axis"]

_REDUCTIONS = {None: None, "add": ADD, "sum": ADD, "multiply": MUL, "prod": MUL, "max": MAX,
               "amax": MAX, "min": MIN, "amin": MIN}  # fmt: skip


class Slice(NamedTuple):
    """The elements start, start + step, ... of one axis: `length` of them; step may be
    negative."""

    start: int
    step: int
    length: int


class New(NamedTuple):
    """A new axis of size 1."""


Part = Slice | New | int | Node  # a Node is an integer array


# Reading a key.


def _as_slice(key: slice, size: int) -> Slice:
    start, stop, step = key.indices(size)
    return Slice(start, step, len(range(start, stop, step)))


def _as_int(key: int, size: int, axis: int, shape: Shape) -> int:
    if not -size <= key < size:
        raise AxisError(f"getitem: index {key} is out of range for axis {axis} of {shape}")
    return key % size


def _is_int(key: Any) -> bool:
    if isinstance(key, (bool, Tensor)):
        return False
    scalar = getattr(key, "ndim", None) == 0 and getattr(key.dtype, "kind", "") in "iu"
    return isinstance(key, int) or scalar


def _as_array(key: Any, x: Tensor) -> Tensor:
    """A mask or an integer array in a key as a tensor."""
    array = as_tensor(key, x) if isinstance(key, Tensor) else Tensor(key, device=x.device)
    if not isinstance(key, Tensor) and not array.size and array.dtype is not bool_:
        array = array.cast(dtypes.int64)
    if array.dtype is not bool_ and not array.dtype.is_int:
        raise DTypeError(f"getitem: an index array is {array.dtype.name}; it must be integer or "
                         "bool")  # fmt: skip
    common_device("getitem", x, array)
    return array


def _axes_taken(key: Any) -> int:
    """How many axes of the array one entry of a key uses up."""
    if key is None or isinstance(key, bool):
        return 0
    if isinstance(key, Tensor) and key.dtype is bool_:
        return key.ndim
    return 1


def _parse(x: Tensor, key: Any) -> tuple[Node, list[Part]]:
    """One part an axis (and one a new axis), the whole array covered.

    The node is that of x, with an axis of size 1 for each mask without axes, as NumPy has it.
    """
    entries = list(key) if isinstance(key, tuple) else [key]
    entries = [
        one if one is None or one is Ellipsis or isinstance(one, (bool, slice)) or _is_int(one)
        else _as_array(one, x)
        for one in entries
    ]  # fmt: skip
    taken = sum(_axes_taken(one) for one in entries if one is not Ellipsis)
    dots = [i for i, one in enumerate(entries) if one is Ellipsis]
    if taken > x.ndim or len(dots) > 1:
        raise AxisError(f"getitem: too many indices for an array of shape {x.shape}")
    place = dots[0] if dots else len(entries)
    entries[place : place + 1] = [slice(None)] * (x.ndim - taken)
    node, parts, axis, added = x.node, list[Part](), 0, 0
    for entry in entries:
        parts += _parts_of(x, entry, axis)
        if isinstance(entry, bool) or (isinstance(entry, Tensor) and not entry.ndim
                                       and entry.dtype is bool_):  # fmt: skip
            node = build.insert_axes(node, (axis + added,))
            added += 1
        axis += _axes_taken(entry)
    return node, parts


def _parts_of(x: Tensor, entry: Any, axis: int) -> list[Part]:
    if entry is None:
        return [New()]
    if isinstance(entry, slice):
        return [_as_slice(entry, x.shape[axis])]
    if isinstance(entry, bool):
        return _mask_parts(x, Tensor(entry, device=x.device), axis)
    if not isinstance(entry, Tensor):
        return [_as_int(int(entry), x.shape[axis], axis, x.shape)]
    if entry.dtype is bool_:
        return _mask_parts(x, entry, axis)
    return [_wrapped(entry.node, x.shape[axis])]


def _mask_parts(x: Tensor, mask: Tensor, axis: int) -> list[Part]:
    """The places where a mask is true: the shape depends on them, so it is computed now."""
    import numpy as np

    covered = x.shape[axis : axis + mask.ndim]
    if any(have not in (size, 0) for have, size in zip(mask.shape, covered, strict=True)):
        raise AxisError(f"getitem: a mask of shape {mask.shape} does not fit axes {axis}.. of "
                        f"{x.shape}")  # fmt: skip
    values = memory.download(mask)
    if not mask.ndim:
        zeros = np.zeros(int(bool(values)), np.int64)
        return [memory.upload(zeros, dtypes.int64, x.device)]
    return [memory.upload(one, dtypes.int64, x.device) for one in np.nonzero(values)]


def _wrapped(index: Node, size: int) -> Node:
    """Negative entries counted from the end."""
    signed = index.dtype.kind == "int"
    index = build.cast(index, dtypes.int64)
    return build.select(index < 0, index + size, index) if signed else index


# Selecting.


def _take_slices(node: Node, slices: list[Slice]) -> Node:
    """The elements of one slice an axis."""
    node = build.flip(node, [axis for axis, part in enumerate(slices) if part.step < 0])
    low, high, steps = [], [], []
    for (start, step, length), size in zip(slices, node.shape, strict=True):
        first = start if step > 0 else size - 1 - start
        low.append(first if length else 0)
        high.append(first + (length - 1) * abs(step) + 1 if length else 0)
        steps.append(abs(step))
    return build.shrink(node, low, high, steps)


def getitem(x: Tensor, key: Any) -> Tensor:
    """x[key]."""
    return Tensor.of(_select(*_parse(x, key)), x.device)


def _select(node: Node, parts: list[Part]) -> Node:
    if not any(isinstance(one, Node) for one in parts):
        return _select_basic(node, parts)
    return _select_arrays(node, parts)


def _select_basic(node: Node, parts: list[Part]) -> Node:
    shape: list[int] = []
    slices: list[Slice] = []
    for part in parts:
        if isinstance(part, Slice):
            slices.append(part)
            shape.append(part.length)
        elif isinstance(part, int):
            slices.append(Slice(part, 1, 1))
        else:
            shape.append(1)
    return build.reshape(_take_slices(node, slices), tuple(shape))


def _select_arrays(node: Node, parts: list[Part]) -> Node:
    """Integer arrays broadcast together; integers beside them count as arrays."""
    arrays = [
        build.const(one, dtypes.int64) if isinstance(one, int) else one
        for one in parts
        if not isinstance(one, (Slice, New))
    ]
    node, places = _open_arrays(node, parts)
    order = places + [axis for axis in range(len(node.shape)) if axis not in places]
    front = build.permute(node, order)
    taken, rest = front.shape[: len(places)], front.shape[len(places) :]
    shape = broadcast_shapes("getitem", *(one.shape for one in arrays))
    index = build.full(shape, 0, dtypes.int64)
    for one, stride in zip(arrays, strides_of(taken), strict=True):
        index = index + build.expand(one, shape) * stride
    result = _gather_rows(build.reshape(front, (prod(taken), *rest)), index)
    adjacent = places == list(range(places[0], places[0] + len(places)))
    if not adjacent:
        return result
    before = places[0]
    rank = len(shape)
    axes = [*range(rank, rank + before), *range(rank), *range(rank + before, len(result.shape))]
    return build.permute(result, axes)


def _open_arrays(node: Node, parts: list[Part]) -> tuple[Node, list[int]]:
    """Slices and new axes applied; and the axes of the result that arrays index."""
    shape: list[int] = []
    slices: list[Slice] = []
    places: list[int] = []
    for part in parts:
        if isinstance(part, New):
            shape.append(1)
            continue
        if not isinstance(part, Slice):
            places.append(len(shape))
            part = Slice(0, 1, node.shape[len(slices)])
        slices.append(part)
        shape.append(part.length)
    return build.reshape(_take_slices(node, slices), tuple(shape)), places


def _gather_rows(table: Node, index: Node) -> Node:
    """table[index] along the first axis of `table`."""
    rest = table.shape[1:]
    flat = build.reshape(index, (prod(index.shape), *(1 for _ in rest)))
    wide = build.expand(flat, (flat.shape[0], *rest))
    return build.reshape(Node(Op.GATHER, (table, wide), 0), (*index.shape, *rest))


# Replacing.


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``: x names a new value from now on; other tensors keep theirs."""
    source = as_tensor(value, x)
    common_device("setitem", x, source)
    if source.dtype.is_complex and not x.dtype.is_complex:
        raise DTypeError(f"setitem: {source.dtype.name} does not fit into {x.dtype.name}")
    filling = build.cast(source.node, x.dtype)
    mask = _leading_mask(x, key)
    if mask is not None and prod(filling.shape) == 1:
        wide = build.expand(build.reshape(filling, ()), x.shape)
        x.rebind(Tensor.of(build.select(mask, wide, x.node), x.device))
        return
    node, parts = _parse(x, key)
    if any(isinstance(one, Node) for one in parts) or node is not x.node:
        new = _replace_arrays(node, parts, filling)
    else:
        new = _replace_basic(node, parts, filling)
    x.rebind(Tensor.of(build.reshape(new, x.shape), x.device))


def _leading_mask(x: Tensor, key: Any) -> Node | None:
    """A key that is one mask over the first axes, in the shape of x."""
    if isinstance(key, (tuple, int, slice)) or key is None or key is Ellipsis or _is_int(key):
        return None
    mask = _as_array(key, x)
    if mask.dtype is not bool_ or mask.shape != x.shape[: mask.ndim]:
        return None
    shape = (*mask.shape, *(1 for _ in x.shape[mask.ndim :]))
    return build.expand(build.reshape(mask.node, shape), x.shape)


def _fitted(filling: Node, shape: Shape) -> Node:
    """`filling` broadcast to the selection; leading axes of size 1 may be too many."""
    sizes = filling.shape
    while len(sizes) > len(shape) and sizes[0] == 1:
        sizes = sizes[1:]
    if broadcast_shapes("setitem", sizes, shape) != shape:
        raise ShapeError(f"setitem: {filling.shape} does not broadcast to the selection {shape}")
    return build.expand(build.reshape(filling, sizes), shape)


def _replace_arrays(node: Node, parts: list[Part], filling: Node) -> Node:
    """Scatter into the places that the same key selects from the numbers of all elements."""
    size = prod(node.shape)
    numbers = build.reshape(build.iota(size, dtypes.int64), node.shape)
    chosen = _select(numbers, parts)
    count = prod(chosen.shape)
    update = build.reshape(_fitted(filling, chosen.shape), (count,))
    flat = build.reshape(node, (size,))
    index = build.reshape(chosen, (count,))
    return build.reshape(Node(Op.SCATTER, (flat, index, update), Scatter(0, None)), node.shape)


def _replace_basic(node: Node, parts: list[Part], filling: Node) -> Node:
    """The new values spread to their places, chosen by position: no index array is needed."""
    update = _fitted(filling, _select_basic(node, parts).shape)
    slices = [
        one if isinstance(one, Slice) else Slice(one, 1, 1)
        for one in parts
        if isinstance(one, (Slice, int))
    ]
    update = build.reshape(update, tuple(one.length for one in slices))
    inside: Node | None = None
    for axis, (part, size) in enumerate(zip(slices, node.shape, strict=True)):
        if part == Slice(0, 1, size):
            continue
        update = _spread(update, axis, part, size)
        here = _covered(node.shape, axis, part)
        inside = here if inside is None else inside & here
    return update if inside is None else build.select(inside, update, node)


def _spread(node: Node, axis: int, part: Slice, size: int) -> Node:
    """The inverse of taking a slice: elements at their places, zeros between them."""
    start, step, count = part
    rank = len(node.shape)
    if not count:
        return build.full((*node.shape[:axis], size, *node.shape[axis + 1 :]), 0, node.dtype)
    if step < 0:
        node = build.flip(node, (axis,))
        start, step = start + (count - 1) * step, -step
    if step > 1:
        gaps = [0] * (rank + 1)
        gaps[axis + 1] = step - 1
        wide = build.pad(build.insert_axes(node, (axis + 1,)), [0] * (rank + 1), gaps)
        merged = (*node.shape[:axis], count * step, *node.shape[axis + 1 :])
        stop = list(merged)
        stop[axis] -= step - 1
        node = build.shrink(build.reshape(wide, merged), [0] * rank, stop)
    before, after = [0] * rank, [0] * rank
    before[axis], after[axis] = start, size - start - node.shape[axis]
    return build.pad(node, before, after)


def _covered(shape: Shape, axis: int, part: Slice) -> Node:
    """Where the index along `axis` belongs to `part`."""
    start, step, count = part
    if step < 0:
        start, step = start + (count - 1) * step, -step
    place = build.iota(shape[axis], dtypes.int64)
    inside = (place > start - 1) & (place < start + (count - 1) * step + 1)
    if step > 1:
        inside = inside & ((place - start) % step).eq(0)
    line = [1] * len(shape)
    line[axis] = shape[axis]
    return build.expand(build.reshape(inside, tuple(line)), shape)


# Functions.


def _index_tensor(what: str, indices: Any, x: Tensor) -> Tensor:
    index = indices if isinstance(indices, Tensor) else Tensor(indices, device=x.device)
    if not index.size and index.dtype.is_float:
        index = index.cast(dtypes.int64)
    if not index.dtype.is_int:
        raise DTypeError(f"{what}: the index is {index.dtype.name}, not an integer")
    common_device(what, x, index)
    return index


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """The elements `indices` along `axis`; negative ones count from the end."""
    x = as_tensor(x)
    if axis is None:
        if x.ndim != 1:
            raise AxisError(f"take: an array of shape {x.shape} needs an axis")
        axis = 0
    along = normalize_axis("take", axis, x.ndim)
    index = _index_tensor("take", indices, x)
    key: list[Part] = [Slice(0, 1, size) for size in x.shape]
    key[along] = _wrapped(index.node, x.shape[along])
    return Tensor.of(_select_arrays(x.node, key), x.device)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """Element ``indices[..., i, ...]`` of each line along `axis`; the other axes broadcast."""
    x = as_tensor(x)
    index = _index_tensor("take_along_axis", indices, x)
    along = normalize_axis("take_along_axis", axis, x.ndim)
    if index.ndim != x.ndim:
        raise ShapeError(f"take_along_axis: {x.shape} and {index.shape} differ in rank")
    lines = (*x.shape[:along], 1, *x.shape[along + 1 :])
    places = (*index.shape[:along], 1, *index.shape[along + 1 :])
    common = broadcast_shapes("take_along_axis", lines, places)
    data = (*common[:along], x.shape[along], *common[along + 1 :])
    shape = (*common[:along], index.shape[along], *common[along + 1 :])
    wrapped = build.expand(_wrapped(index.node, x.shape[along]), shape)
    return Tensor.of(Node(Op.GATHER, (build.expand(x.node, data), wrapped), along), x.device)


def gather(x: Any, axis: int, index: Any) -> Tensor:
    """PyTorch's gather: like `take_along_axis`, but `index` may be smaller than x elsewhere."""
    x = as_tensor(x)
    along = normalize_axis("gather", axis, x.ndim)
    places = _index_tensor("gather", index, x)
    data = _cropped("gather", x.node, places.shape, along)
    wrapped = _wrapped(places.node, x.shape[along])
    return Tensor.of(Node(Op.GATHER, (data, wrapped), along), x.device)


def _cropped(what: str, node: Node, shape: Shape, axis: int) -> Node:
    """The leading part of `node` that has `shape` beside `axis`."""
    if len(shape) != len(node.shape) or any(
        want > have for i, (want, have) in enumerate(zip(shape, node.shape, strict=True))
        if i != axis
    ):  # fmt: skip
        raise ShapeError(f"{what}: an index of shape {shape} does not fit {node.shape}")
    stop = [node.shape[i] if i == axis else size for i, size in enumerate(shape)]
    return build.shrink(node, [0] * len(stop), stop)


def scatter(x: Any, axis: int, index: Any, source: Any, reduce: str | None = None) -> Tensor:
    """x with ``source[..., i, ...]`` put at ``index[..., i, ...]`` along `axis`.

    `reduce` combines it with what is there: "add", "multiply", "max" or "min". Source and index
    have one shape, no greater than that of x beside `axis`.
    """
    x = as_tensor(x)
    if reduce not in _REDUCTIONS:
        raise ArgumentError(f"scatter: reduce={reduce!r} is not one of {list(_REDUCTIONS)}")
    along = normalize_axis("scatter", axis, x.ndim)
    places = _index_tensor("scatter", index, x)
    values = source if is_scalar(source) else as_tensor(source, x)
    if isinstance(values, Tensor):
        common_device("scatter", x, values)
        update = build.cast(_cropped("scatter", values.node, places.shape, -1), x.dtype)
    else:
        update = build.full(places.shape, values, x.dtype)
    _cropped("scatter", x.node, places.shape, along)
    shape = tuple(x.shape[i] if i != along else size for i, size in enumerate(places.shape))
    after = [have - want for have, want in zip(shape, places.shape, strict=True)]
    before = [0] * len(after)
    wrapped = build.pad(_wrapped(places.node, x.shape[along]), before, after, -1)
    padded = build.pad(update, before, after)
    argument = Scatter(along, _REDUCTIONS[reduce])
    return Tensor.of(Node(Op.SCATTER, (x.node, wrapped, padded), argument), x.device)


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """The places of what is not 0, one index array an axis. Their number needs the values."""
    import numpy as np

    x = as_tensor(x)
    if not x.ndim:
        raise ShapeError("nonzero: an array of shape () has no axes")
    found = np.nonzero(memory.download(x))
    return tuple(Tensor.of(memory.upload(one, dtypes.int64, x.device), x.device) for one in found)


def argwhere(x: Any, /) -> Tensor:
    """The places of what is not 0, one row each."""
    import numpy as np

    x = as_tensor(x)
    found = np.argwhere(memory.download(x))
    return Tensor.of(memory.upload(found, dtypes.int64, x.device), x.device)

"""Indexing with integers, slices, None, Ellipsis, masks and integer arrays, as NumPy does."""

from typing import Any, NamedTuple

from lamina.core.dtypes import bool_, int64
from lamina.core.shape import Shape, prod, strides_of
from lamina.errors import AxisError, DTypeError, ShapeError
from lamina.frontend import realize as memory
from lamina.frontend.arguments import broadcast_shapes, normalize_axis
from lamina.frontend.functions.spatial import resized
from lamina.frontend.tensor import Data, Tensor, as_tensor, common_device, has_tensor
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter

__all__ = ["nonzero", "take", "take_along_axis"]


class Selection(NamedTuple):
    """What a key selects: a range of each axis; and of that box, in a `shape` without the axes of
    integers and with the new ones, the places that `arrays` hold for some axes of `shape`. Arrays
    broadcast together, and their axes begin at `first`; integers beside them count as arrays."""

    ranges: list[range]
    shape: Shape
    arrays: dict[int, Node]
    first: int


class Places(NamedTuple):
    """An entry of a key that is an array: a tensor, and what the user wrote."""

    array: Tensor
    written: Any


def _is_int(key: Any) -> bool:
    scalar = getattr(key, "ndim", None) == 0 and getattr(key.dtype, "kind", "") in "iu"
    return (scalar or isinstance(key, int)) and not isinstance(key, (bool, Tensor))


def as_index(what: str, key: Any, x: Tensor, *kinds: str) -> Tensor:
    """`key` as a tensor of integers, or of what `kinds` allow besides."""
    array = key if isinstance(key, Tensor) else Tensor(key, device=x.device)
    if not array.size and array.dtype.is_float:  # the dtype of an empty list
        array = array.cast(int64)
    if array.dtype.kind not in ("int", "uint", *kinds):
        raise DTypeError(f"the indices are {array.dtype.name}, not integers", operation=what)
    common_device(what, x, array)
    return array


def known_elements(indices: Any) -> Any:
    """The elements of `indices`, a number, a list or an array of NumPy, as a NumPy array; None for
    what has tensors in it, whose elements nobody has looked at."""
    if has_tensor(indices):
        return None
    import numpy as np

    return np.asarray(indices)


def check_range(what: str, indices: Any, axis: int, size: int, minimum: int | None = None) -> None:
    """Raises AxisError for an index that is known and not in ``minimum : size``; by default
    negative ones count from the end."""
    elements = known_elements(indices)
    if elements is None or elements.dtype.kind not in "iu":
        return
    first = -size if minimum is None else minimum
    outside = elements[(elements < first) | (elements >= size)]
    if outside.size:
        where = f"axis {axis} of size {size}"
        raise AxisError(f"index {outside[0]} is out of range for {where}", operation=what)


def _axes_taken(entry: Any) -> int:
    """How many axes of the array one entry of a key uses up."""
    is_mask = isinstance(entry, Places) and entry.array.dtype is bool_
    return entry.array.ndim if is_mask else int(entry is not None and entry is not Ellipsis)


def _entries(x: Tensor, key: Any) -> list[Any]:
    """The ints, slices, places and Nones of a key, which use up every axis of x; an Ellipsis stays
    if it stands for none, as it parts arrays even then."""
    entries: list[Any] = []
    for entry in key if isinstance(key, tuple) else (key,):
        if entry is None or entry is Ellipsis or isinstance(entry, slice):
            entries.append(entry)
        elif _is_int(entry):
            entries.append(int(entry))
        else:
            entries.append(Places(as_index("getitem", entry, x, "bool"), entry))
    missing = x.ndim - sum(_axes_taken(entry) for entry in entries)
    dots = [place for place, entry in enumerate(entries) if entry is Ellipsis]
    if missing < 0 or len(dots) > 1:
        raise AxisError(f"too many indices for an array of shape {x.shape}", operation="getitem")
    place = dots[0] if dots else len(entries)
    entries[place : place + (missing > 0)] = [slice(None)] * missing
    return entries


def _parse(x: Tensor, key: Any) -> Selection:
    entries = _entries(x, key)
    has_arrays = any(isinstance(entry, Places) for entry in entries)
    parts = _Parts(x, has_arrays)
    for entry in entries:
        parts.add(entry)
    first_axis = 0
    if parts.arrays:
        places = [at for at, entry in enumerate(entries) if isinstance(entry, (int, Places))]
        are_together = len(places) == places[-1] - places[0] + 1
        first_axis = min(parts.arrays) if are_together else 0
    return Selection(parts.ranges, tuple(parts.shape), parts.arrays, first_axis)


class _Parts:
    """The parts of a `Selection`, entry by entry of a key. An integer beside arrays is one of them.
    """

    def __init__(self, x: Tensor, has_arrays: bool) -> None:
        self.x, self.has_arrays = x, has_arrays
        self.ranges: list[range] = []
        self.shape: list[int] = []
        self.arrays: dict[int, Node] = {}

    def add(self, entry: Any) -> None:
        """Append what the next entry selects, of the next axes of `x`."""
        if entry is None:
            self.shape.append(1)
        elif isinstance(entry, slice):
            self._add_slice(entry)
        elif isinstance(entry, int):
            self._add_integer(entry)
        elif entry is not Ellipsis:
            self._add_array(entry)

    @property
    def _axis(self) -> int:
        """The next axis of `x`."""
        return len(self.ranges)

    def _add_slice(self, entry: slice) -> None:
        places = range(self.x.shape[self._axis])[entry] or range(0)
        self.ranges.append(places)
        self.shape.append(len(places))

    def _add_integer(self, entry: int) -> None:
        size = self.x.shape[self._axis]
        check_range("getitem", entry, self._axis, size)
        place = entry % size
        self.ranges.append(range(place, place + 1))
        if self.has_arrays:
            self._add_index(build.const(0, int64), 1)

    def _add_array(self, entry: Places) -> None:
        """Append an array of indices along an axis, or a mask of one axis or more."""
        axis = self._axis
        sizes = self.x.shape[axis : axis + _axes_taken(entry)]
        self.ranges += map(range, sizes)
        if entry.array.dtype is bool_:
            indices = _mask_indices(self.x, entry.array, sizes)
        else:
            check_range("getitem", entry.written, axis, *sizes)
            indices = [wrapped(entry.array.node, *sizes)]
        for index, size in zip(indices, sizes or (1,), strict=True):
            self._add_index(index, size)

    def _add_index(self, index: Node, size: int) -> None:
        self.arrays[len(self.shape)] = index
        self.shape.append(size)


def _mask_indices(x: Tensor, mask: Tensor, sizes: Shape) -> list[Node]:
    """The places where a mask is true: the shape depends on them, so it is computed now. A mask
    without axes is one of a new axis of size 1."""
    if any(have not in (size, 0) for have, size in zip(mask.shape, sizes, strict=True)):
        raise AxisError(
            f"a mask of {mask.shape} does not fit {sizes} in {x.shape}", operation="getitem"
        )
    found = memory.download(mask).reshape(mask.shape or (1,)).nonzero()
    return [memory.upload(one, int64, x.device) for one in found]


def wrapped(index: Node, size: int) -> Node:
    """Negative entries counted from the end."""
    wide = build.cast(index, int64)
    return build.select(wide < 0, wide + size, wide) if index.dtype.kind == "int" else wide


def getitem(x: Tensor, key: Any) -> Tensor:
    """x[key]."""
    return Tensor.of(_select(x.node, _parse(x, key)), x.device)


def _select(node: Node, selection: Selection) -> Node:
    box = build.reshape(build.sliced(node, selection.ranges), selection.shape)
    return _select_places(box, selection.arrays, selection.first) if selection.arrays else box


def _select_places(box: Node, arrays: dict[int, Node], first: int) -> Node:
    """Rows of the axes that arrays index; their own axes begin at `first`."""
    axes = list(arrays)
    front = build.permute(box, axes + [i for i in range(len(box.shape)) if i not in arrays])
    taken, rest = front.shape[: len(axes)], front.shape[len(axes) :]
    shape = broadcast_shapes("getitem", *(one.shape for one in arrays.values()))
    index = build.full(shape, 0, int64)
    for one, size, stride in zip(arrays.values(), taken, strides_of(taken), strict=True):
        place = build.expand(one, shape)
        if len(axes) > 1:  # out of range of one axis, it would be in that of all
            place = build.select((place < size) & ~(place < 0), place, place.lift(-prod(taken)))
        index = index + place * stride
    column = build.reshape(index, (prod(shape), *(1 for _ in rest)))
    wide = build.expand(column, (prod(shape), *rest))
    rows = Node(Op.GATHER, (build.reshape(front, (prod(taken), *rest)), wide), 0)
    result = build.reshape(rows, (*shape, *rest))
    order = list(range(len(shape), len(result.shape)))
    order[first:first] = range(len(shape))
    return build.permute(result, order)


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``: x names a new value from now on; other tensors keep theirs."""
    source = as_tensor(value, x, "setitem").cast(x.dtype)
    common_device("setitem", x, source)
    plain = isinstance(key, (tuple, slice)) or key is None or key is Ellipsis or _is_int(key)
    mask = None if plain or source.size != 1 else as_index("setitem", key, x, "bool")
    if mask is not None and mask.dtype is bool_ and mask.shape == x.shape[: mask.ndim]:
        new = _where_masked(x.node, mask.node, source.node)
    elif (selection := _parse(x, key)).arrays:
        new = _scattered(x.node, selection, source.node)
    else:
        new = _filled_box(x.node, selection, source.node)
    x.rebind(Tensor.of(new, x.device))


def _where_masked(x: Node, mask: Node, value: Node) -> Node:
    """`x` with a single value where a mask over its first axes holds: nothing has to be computed
    now."""
    everywhere = build.expand(build.reshape(value, ()), x.shape)
    column = build.reshape(mask, (*mask.shape, *(1 for _ in x.shape[len(mask.shape) :])))
    return build.select(build.expand(column, x.shape), everywhere, x)


def _scattered(x: Node, selection: Selection, value: Node) -> Node:
    """`x` with `value` scattered into the places that `selection` takes from the numbers of all
    elements, from 1 on: what is out of range selects 0."""
    size = prod(x.shape)
    chosen = _select(build.reshape(build.iota(size, int64) + 1, x.shape), selection) + -1
    flat = (prod(chosen.shape),)
    update = build.reshape(_fitted(value, chosen.shape), flat)
    operands = (build.reshape(x, (size,)), build.reshape(chosen, flat), update)
    return build.reshape(Node(Op.SCATTER, operands, Scatter(0, None)), x.shape)


def _filled_box(x: Node, selection: Selection, value: Node) -> Node:
    """`x` with `value` spread to the ranges of `selection`, chosen by position: no index array is
    needed."""
    sizes = tuple(map(len, selection.ranges))
    update = build.reshape(_fitted(value, selection.shape), sizes)
    if 0 in sizes:
        return x
    spread = build.pad_to_ranges(update, selection.ranges, x.shape)
    if sizes == x.shape:
        return spread
    inside = build.pad_to_ranges(build.full(sizes, True, bool_), selection.ranges, x.shape)
    return build.select(inside, spread, x)


def _fitted(filling: Node, shape: Shape) -> Node:
    """`filling` broadcast to the selection; leading axes of size 1 may be too many."""
    sizes = filling.shape
    while len(sizes) > len(shape) and sizes[0] == 1:
        sizes = sizes[1:]
    if broadcast_shapes("setitem", sizes, shape) != shape:
        raise ShapeError(
            f"{filling.shape} does not broadcast to the selection {shape}", operation="setitem"
        )
    return build.expand(build.reshape(filling, sizes), shape)


def take(x: Data, indices: Any, /, axis: int | None = None) -> Tensor:
    """The elements `indices` along `axis`, or of the flat array without one; negative ones count
    from the end. Raises AxisError for indices out of range, unless they are a tensor: their
    elements are 0."""
    if axis is None:
        x, axis = Tensor.of(build.reshape(x.node, (x.size,)), x.device), 0
    along = normalize_axis("take", axis, x.ndim)
    places = as_index("take", indices, x)
    check_range("take", indices, along, x.shape[along])
    index = wrapped(places.node, x.shape[along])
    return Tensor.of(_select_places(x.node, {along: index}, along), x.device)


def take_along_axis(x: Data, indices: Any, /, axis: int = -1) -> Tensor:
    """Element ``indices[..., i, ...]`` of each line along `axis`; the other axes broadcast."""
    index = as_index("take_along_axis", indices, x)
    along = normalize_axis("take_along_axis", axis, x.ndim)
    if index.ndim != x.ndim:
        raise ShapeError(f"{x.shape} and {index.shape} differ in rank", operation="take_along_axis")
    check_range("take_along_axis", indices, along, x.shape[along])
    lines = (resized(one.shape, along, 1) for one in (x, index))
    common = broadcast_shapes("take_along_axis", *lines)
    data, places = (
        build.expand(one.node, resized(common, along, one.shape[along])) for one in (x, index)
    )
    inside = wrapped(places, x.shape[along])
    return Tensor.of(Node(Op.GATHER, (data, inside), along), x.device)


def nonzero(x: Data, /) -> tuple[Tensor, ...]:
    """The places of what is not 0, one index array an axis. Their number needs the values."""
    if not x.ndim:
        raise ShapeError("an array of shape () has no axes", operation="nonzero")
    return tuple(Tensor(one, int64, x.device) for one in memory.download(x).nonzero())

"""Joining, cutting and rearranging arrays, as in NumPy and PyTorch, beyond the standard."""

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

from lamina.core.dtypes import default_float, default_int, int64
from lamina.core.shape import Shape, prod
from lamina.errors import AxisError, ShapeError
from lamina.frontend import arguments
from lamina.frontend import realize as memory
from lamina.frontend.arguments import Axis, integer, is_integer, normalize_axis, sizes_of
from lamina.frontend.functions.creation import linspace, meshgrid, zeros
from lamina.frontend.functions.elementwise import pow, where
from lamina.frontend.functions.indexing import getitem, nonzero, setitem, take
from lamina.frontend.functions.movement import (
    broadcast_arrays,
    broadcast_to,
    concat,
    diag,
    expand_dims,
    flatten,
    flip,
    moveaxis,
    reshape,
    split,
    stack,
    transpose,
)  # fmt: skip
from lamina.frontend.functions.padding import pad
from lamina.frontend.functions.reduction import cumulative_sum, sort, sum
from lamina.frontend.functions.sets import searchsorted
from lamina.frontend.tensor import Data, Tensor, as_tensor, common_dtype
from lamina.ir import build

__all__ = [
    "argwhere", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes",
    "bucketize", "cartesian_prod", "column_stack", "combinations", "diag_embed", "diagflat",
    "diagonal_scatter", "dsplit", "dstack", "fliplr", "flipud", "hsplit", "hstack", "isin",
    "logspace", "masked_scatter", "masked_select", "narrow", "rot90", "select",
    "select_scatter", "slice_scatter", "sum_to_size", "tensor_split", "tril_indices",
    "triu_indices", "unflatten", "unique_consecutive", "vsplit", "vstack",
]  # fmt: skip

# Joining.


def _of_rank(rank: int, x: Tensor) -> Tensor:
    """x with axes of size 1 added until it has `rank`: a vector becomes a row, (1, n), and then
    (1, n, 1); a matrix (n, m, 1)."""
    if x.ndim >= rank:
        return x
    shape = x.shape or (1,)
    if rank > 1 and len(shape) == 1:
        shape = (1, *shape)
    if rank > 2 and len(shape) == 2:
        shape = (*shape, 1)
    return reshape(x, shape)


def _each_of_rank(rank: int, arrays: Sequence[Any]) -> Any:
    tensors = [_of_rank(rank, as_tensor(array)) for array in arrays]
    return tensors[0] if len(tensors) == 1 else tensors


def atleast_1d(*arrays: Any) -> Any:
    """Each array, a number as (1,); a list of several."""
    return _each_of_rank(1, arrays)


def atleast_2d(*arrays: Any) -> Any:
    """Each array with two axes at least, new ones in front; a list of several."""
    return _each_of_rank(2, arrays)


def atleast_3d(*arrays: Any) -> Any:
    """Each array with three axes at least: (n,) as (1, n, 1), (n, m) as (n, m, 1); a list of
    several."""
    return _each_of_rank(3, arrays)


def _listed(what: str, arrays: Sequence[Any], rank: int) -> list[Tensor]:
    if not len(arrays):
        raise ShapeError("there is nothing to join", operation=what)
    return [_of_rank(rank, as_tensor(array)) for array in arrays]


def hstack(arrays: Sequence[Any]) -> Tensor:
    """The arrays side by side: joined along the second axis, vectors along the only one."""
    tensors = _listed("hstack", arrays, 1)
    return concat(tensors, axis=0 if tensors[0].ndim == 1 else 1)


def vstack(arrays: Sequence[Any]) -> Tensor:
    """The arrays one below the other: joined along the first axis; vectors are rows."""
    return concat(_listed("vstack", arrays, 2), axis=0)


def dstack(arrays: Sequence[Any]) -> Tensor:
    """The arrays one behind the other: joined along the third axis."""
    return concat(_listed("dstack", arrays, 3), axis=2)


def column_stack(arrays: Sequence[Any]) -> Tensor:
    """The arrays side by side; vectors and numbers are columns."""
    tensors = _listed("column_stack", arrays, 1)
    columns = (expand_dims(tensor, 1) if tensor.ndim == 1 else tensor for tensor in tensors)
    return concat(columns, axis=1)


def block_diag(*arrays: Any) -> Tensor:
    """A matrix with the given matrices on its diagonal; vectors are rows."""
    blocks = _listed("block_diag", arrays, 2)
    for block in blocks:
        if block.ndim != 2:
            raise ShapeError(f"{block.shape} is no matrix", operation="block_diag")
    width = builtins.sum(block.shape[1] for block in blocks)
    rows, before = [], 0
    for block in blocks:
        rows.append(pad(block, [(0, 0), (before, width - before - block.shape[1])]))
        before += block.shape[1]
    return concat(rows, axis=0)


def cartesian_prod(*arrays: Any) -> Tensor:
    """All tuples of an element of each vector, (n, number of vectors); of one vector, itself."""
    vectors = [as_tensor(array) for array in arrays]
    if len(vectors) == 1:
        return vectors[0]
    return stack([flatten(grid) for grid in meshgrid(*vectors, indexing="ij")], axis=1)


def combinations(x: Data, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All selections of `r` elements of a vector, in their order: (number, r)."""
    if x.ndim != 1:
        raise ShapeError(f"{x.shape} is no vector", operation="combinations")
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(chosen(range(x.shape[0]), integer("combinations", r, 0)))
    if not places or not r:
        return zeros((0,) if not r else (0, r), dtype=x.dtype, device=x.device)
    return take(x, places, axis=0)


# Cutting.


def tensor_split(x: Data, indices_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """So many pieces along `axis`, the first ones an element longer where the size does not divide;
    or the pieces between the given places."""
    along = normalize_axis("tensor_split", axis, x.ndim)
    size = x.shape[along]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if is_integer(indices_or_sections):
        count = integer("tensor_split", indices_or_sections, 1)
        sizes = [size // count + (place < size % count) for place in range(count)]
        return split(x, sizes, along)
    ends = [None, *sizes_of("tensor_split", indices_or_sections, signed=True), None]
    pieces = []
    for start, stop in itertools.pairwise(ends):
        key = (slice(None),) * along + (slice(start, stop),)
        pieces.append(getitem(x, key))
    return tuple(pieces)


def _split(what: str, rank: int, axis: int, x: Tensor, parts: Any) -> tuple[Tensor, ...]:
    if x.ndim < rank:
        raise ShapeError(f"{x.shape} has fewer than {rank} axes", operation=what)
    if is_integer(parts) and x.shape[axis] % integer(what, parts, 1):
        raise ShapeError(f"axis {axis} of {x.shape} is not divisible by {parts}", operation=what)
    return tensor_split(x, parts, axis)


def hsplit(x: Data, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` in equal pieces along the second axis, of a vector along the only one."""
    return _split("hsplit", 1, 0 if x.ndim == 1 else 1, x, indices_or_sections)


def vsplit(x: Data, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` in equal pieces along the first of two axes or more."""
    return _split("vsplit", 2, 0, x, indices_or_sections)


def dsplit(x: Data, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` in equal pieces along the third axis."""
    return _split("dsplit", 3, 2, x, indices_or_sections)


def _key(what: str, x: Tensor, axis: int, entry: Any) -> tuple[Any, ...]:
    return (slice(None),) * normalize_axis(what, axis, x.ndim) + (entry,)


def narrow(x: Data, axis: int, start: int, length: int) -> Tensor:
    """`length` elements along `axis` from `start` on, which may count from the end."""
    along = normalize_axis("narrow", axis, x.ndim)
    size, first = x.shape[along], int(start)
    first += size if first < 0 else 0
    if not 0 <= first <= first + length <= size:
        raise AxisError(f"{start} and {length} more of {size} elements", operation="narrow")
    return getitem(x, _key("narrow", x, along, slice(first, first + length)))


def select(x: Data, axis: int, index: int) -> Tensor:
    """The slice at `index` along `axis`, which vanishes."""
    return getitem(x, _key("select", x, axis, index))


# Copies in which a part is replaced: no tensor changes.


def _with(x: Tensor, key: Any, source: Any) -> Tensor:
    result = Tensor.of(x.node, x.device)
    setitem(result, key, source)
    return result


def select_scatter(x: Data, source: Any, axis: int, index: int) -> Tensor:
    """x with `source` in the slice at `index` along `axis`."""
    return _with(x, _key("select_scatter", x, axis, index), source)


def slice_scatter(
    x: Data, source: Any, axis: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """x with `source` in ``start:end:step`` along `axis`."""
    return _with(x, _key("slice_scatter", x, axis, slice(start, end, step)), source)


def diagonal_scatter(
    x: Data, source: Data, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> Tensor:
    """x with `source` on the diagonals of the matrices in two axes, as `diagonal` has them."""
    matrices = moveaxis(x, (axis1, axis2), (-2, -1))
    height, width = matrices.shape[-2:]
    top = max(0, -offset)
    length = max(0, min(height - top, width - max(0, offset)))
    if as_tensor(source, x).shape != (*matrices.shape[:-2], length):
        raise ShapeError(f"{source.shape} is not the shape of diagonal {offset} "
                         f"of {x.shape}", operation="diagonal_scatter")  # fmt: skip
    # Row i holds the element of the diagonal in that row.
    in_rows = pad(source.cast(x.dtype), [(top, height - top - length)])
    shape, last = matrices.shape, matrices.ndim - 1
    rows, columns = (build.broadcasted_iota(shape, axis) for axis in (last - 1, last))
    inside = Tensor.of((rows + offset).eq(columns), x.device)
    new = where(inside, expand_dims(in_rows, -1), matrices)
    return moveaxis(new, (-2, -1), (axis1, axis2))


def masked_select(x: Data, mask: Any) -> Tensor:
    """The elements where the mask, which broadcasts with x, is true, one after the other: their
    number needs the values of the mask."""
    elements, inside = broadcast_arrays(x, as_tensor(mask, x))
    return getitem(elements, inside)


def masked_scatter(x: Data, mask: Any, source: Data) -> Tensor:
    """x with the elements of `source`, one after the other, where the mask is true."""
    elements, inside = broadcast_arrays(x, as_tensor(mask, x))
    order = cumulative_sum(flatten(inside).cast(int64), axis=0) - 1
    # At the places before the first true one, the order is -1, which nobody reads.
    values = reshape(take(flatten(source), order, axis=0), elements.shape)
    return where(inside, values.cast(x.dtype), elements)


# Order of elements and axes.

def unflatten(x: Data, axis: int, sizes: Sequence[int]) -> Tensor:
    """The axis `axis` as several of the given sizes, one of which may be -1."""
    along = normalize_axis("unflatten", axis, x.ndim)
    parts = sizes_of("unflatten", sizes, signed=True)
    known = prod(size for size in parts if size != -1)
    missing = x.shape[along] // known if known else 0
    filled = tuple(missing if size == -1 else size for size in parts)
    if prod(filled) != x.shape[along]:
        raise ShapeError(f"axis {axis} of {x.shape} does not fit {parts}", operation="unflatten")
    return reshape(x, (*x.shape[:along], *filled, *x.shape[along + 1 :]))


def fliplr(x: Data) -> Tensor:
    """The order along the second axis reversed."""
    if x.ndim < 2:
        raise ShapeError(f"{x.shape} has fewer than two axes", operation="fliplr")
    return flip(x, axis=1)


def flipud(x: Data) -> Tensor:
    """The order along the first axis reversed."""
    if not x.ndim:
        raise ShapeError("an array of shape () has no axes", operation="flipud")
    return flip(x, axis=0)


def rot90(x: Data, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """The plane of two axes turned by `k` right angles, from the first axis towards the second."""
    first, second = arguments.normalize_axes("rot90", axes, x.ndim)
    turns = k % 4
    if turns == 2:
        return flip(x, axis=(first, second))
    if turns == 1:
        return flip(transpose(x, first, second), axis=first)
    return flip(transpose(x, first, second), axis=second) if turns else flip(x, axis=())


def sum_to_size(x: Data, *shape: Any) -> Tensor:
    """x summed over the axes along which `shape` broadcasts to it: the adjoint of broadcasting."""
    sizes = sizes_of("sum_to_size", *shape)
    if arguments.broadcast_shapes("sum_to_size", sizes, x.shape) != x.shape:
        raise ShapeError(f"{sizes} does not broadcast to {x.shape}", operation="sum_to_size")
    lead = x.ndim - len(sizes)
    aligned = (1,) * lead + sizes
    axes = [axis for axis, size in enumerate(aligned) if size != x.shape[axis]]
    return reshape(sum(x, axis=axes, keepdims=True, dtype=x.dtype), sizes)


def broadcast_shapes(*shapes: Any) -> Shape:
    """The common shape of shapes under NumPy's rule."""
    return arguments.broadcast_shapes(
        "broadcast_shapes", *(sizes_of("broadcast_shapes", shape) for shape in shapes)
    )


# Diagonals and triangles.


def diagflat(x: Data, offset: int = 0) -> Tensor:
    """A matrix with all elements of x on a diagonal."""
    return diag(flatten(x), offset=offset)


def diag_embed(x: Data, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Matrices in two axes of the result with the lines of the last axis on a diagonal."""
    if not x.ndim:
        raise ShapeError("an array of shape () has no axes", operation="diag_embed")
    size = x.shape[-1] + abs(offset)
    padded = pad(x, [(max(0, -offset), max(0, offset))])
    shape = (*x.shape[:-1], size, size)
    rows, columns = (build.broadcasted_iota(shape, len(shape) - back) for back in (2, 1))
    repeated = broadcast_to(expand_dims(padded, -1), shape)
    inside = Tensor.of((rows + offset).eq(columns), x.device)
    return moveaxis(where(inside, repeated, 0), (-2, -1), (axis1, axis2))


def _triangle(rows: int, columns: int, offset: int, upper: bool, device: str | None) -> Tensor:
    """The places of a triangle, row by row: (2, number)."""
    pairs = [(i, j) for i in range(rows) for j in range(columns)
             if (j - i >= offset if upper else j - i <= offset)]  # fmt: skip
    listed = [[pair[side] for pair in pairs] for side in (0, 1)]
    return Tensor(listed, default_int, device)


def tril_indices(row: int, col: int, offset: int = 0, *, device: str | None = None) -> Tensor:
    """The rows and columns of the elements on and below a diagonal, int64: (2, number)."""
    return _triangle(row, col, offset, False, device)


def triu_indices(row: int, col: int, offset: int = 0, *, device: str | None = None) -> Tensor:
    """The rows and columns of the elements on and above a diagonal, int64: (2, number)."""
    return _triangle(row, col, offset, True, device)


def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None,
    device: str | None = None,
) -> Tensor:  # fmt: skip
    """`steps` values from base**start to base**end, with evenly spaced exponents."""
    kind = arguments.as_dtype(dtype or default_float)
    exponents = linspace(start, end, steps, dtype="float64", device=device)
    return pow(base, exponents).cast(kind)


# Searching.


def argwhere(x: Data) -> Tensor:
    """The places of what is not 0, one a row: (number, axes). Their number needs the values."""
    if not x.ndim:
        return zeros((int(bool(x)), 0), dtype=int64, device=x.device)
    return stack(nonzero(x), axis=1)


def isin(x: Any, test: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element of x is one of `test`, or none with `invert`; NaN never is.
    `assume_unique` changes nothing."""
    like = x if isinstance(x, Tensor) else as_tensor(test)
    elements, wanted = (as_tensor(values, like) for values in (x, test))
    dtype = common_dtype("isin", elements, wanted)
    values, line = elements.cast(dtype), sort(flatten(wanted.cast(dtype)))
    if not line.size:
        is_in = values != values
    else:
        place = searchsorted(line, values)
        last = line.shape[0] - 1
        is_in = take(line, where(place > last, last, place), axis=0) == values
    return ~is_in if invert else is_in


def bucketize(x: Data, boundaries: Data, *, right: bool = False) -> Tensor:
    """The number of the interval between ascending boundaries that holds each element, int64. With
    ``right=False`` an interval includes its upper boundary, else its lower one."""
    return searchsorted(boundaries, x, side="right" if right else "left")


def unique_consecutive(
    x: Data, return_inverse: bool = False, return_counts: bool = False, axis: Axis = None
) -> Any:
    """x without elements, or slices along `axis`, that equal the one before; if asked for, the
    place of each in the result, and how often each came. The size needs the values."""
    import numpy as np

    array = memory.download(x)
    flat = array.reshape(-1) if axis is None else np.moveaxis(array, axis, 0)
    rows = flat.reshape(flat.shape[0], prod(flat.shape[1:]))
    first = np.ones(len(rows), bool)
    first[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    kept = np.compress(first, flat, axis=0)
    values = kept if axis is None else np.moveaxis(kept, 0, axis)
    inverse = first.cumsum() - 1
    counts = np.bincount(inverse, minlength=len(kept))
    if axis is None:
        inverse = inverse.reshape(array.shape)
    result = [Tensor(values, x.dtype, x.device)]
    result += [Tensor(inverse, int64, x.device)] if return_inverse else []
    result += [Tensor(counts, int64, x.device)] if return_counts else []
    return tuple(result) if len(result) > 1 else result[0]

"""The reference: both dialects in NumPy, slow and plain, and what compiled kernels compare with.

Values follow the dtype of each node exactly, bfloat16 and float8 through ml_dtypes. In a kernel
every axis that a store mentions is a dimension, its own axes first: an AXIS is a grid that varies
along one dimension and broadcasts along the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import mul
from typing import Any

import numpy as np

from lamina import dtypes
from lamina.dtypes import DType, Scalar, bool_
from lamina.errors import VerifyError
from lamina.ir.kernel import AnyKernel, SortKernel, Store, bound_axes, roots_of
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, const, full, toposort
from lamina.ir.ops import Op, Reduce

Array = Any  # numpy.ndarray
Arrays = Sequence[Array]
Launches = Sequence[tuple[AnyKernel, Sequence[int]]]  # kernels and the arrays of their parameters
Row = Callable[..., Array]  # of the node, and the values of its operands

# How far floats may be apart, as a share of the largest number that the kernel reads or writes.
TOLERANCE: dict[DType, float] = {
    dtypes.float8_e4m3fn: 0.13, dtypes.float8_e5m2: 0.26, dtypes.float16: 2e-3,
    dtypes.bfloat16: 2e-2, dtypes.float32: 1e-5, dtypes.float64: 1e-13,
    dtypes.complex64: 1e-5, dtypes.complex128: 1e-13,
}  # fmt: skip
ROUNDED = 0.01  # the share of integers or bools made from rounded floats that may differ
EXACT = frozenset({Op.NEG, Op.MAX, Op.MIN, Op.WHERE, Op.LOAD, Op.CONST, Op.TRUNC, Op.BITCAST})


def evaluate(
    sinks: Iterable[Node],
    leaves: Mapping[Node, Array] | None = None,
    more: Mapping[Op, Row] | None = None,
) -> list[Array]:
    """The values of `sinks`; `leaves` gives those of BUFFER and HOLE nodes, `more` adds to the
    table of operations."""
    sinks, rows = list(sinks), {**EVALUATE, **(more or {})}
    values: dict[Node, Array] = dict(leaves or {})
    with np.errstate(all="ignore"):
        for node in toposort(sinks):
            if node not in values:
                if node.op not in rows:
                    raise VerifyError(f"{node.op.name.lower()} has no value of its own: {node}")
                value = rows[node.op](node, *(values[operand] for operand in node.src))
                values[node] = np.asarray(value).astype(node.dtype.numpy, copy=False)
    return [values[sink] for sink in sinks]


def _dtypes(arrays: Arrays) -> tuple[DType, ...]:
    return tuple(dtypes.BY_NAME[one.dtype.name] for one in arrays)


def combine(monoid: Monoid, left: Arrays, right: Arrays) -> list[Array]:
    """One application of `monoid`'s combine to arrays."""
    a, b, joined = monoid.formula(_dtypes(left))
    return evaluate(joined, dict(zip(a + b, (*left, *right), strict=True)))


def reduce(arg: Reduce, operands: Arrays) -> Array:
    """One part of a reduction over some axes, which vanish."""
    if arg.monoid.op is None:
        return _prefixes(arg, operands)[-1]
    ufunc, (start,) = NUMPY[arg.monoid.op], arg.monoid.identity(_dtypes(operands))
    return ufunc.reduce(operands[0], arg.axes, operands[0].dtype, initial=start)


def scan(arg: Reduce, operands: Arrays) -> Array:
    """One part of the inclusive prefixes along some axes, row-major."""
    prefixes = _prefixes(arg, operands)[1:]
    sizes = [operands[0].shape[axis] for axis in arg.axes]
    return np.moveaxis(prefixes.reshape(*sizes, *prefixes.shape[1:]), range(len(sizes)), arg.axes)


def _prefixes(arg: Reduce, operands: Arrays) -> Array:
    """The reduced axes as one in front, and the prefixes along it, the empty one first, in rounds
    that double how far they reach (Hillis and Steele 1986, "Data parallel algorithms")."""
    kept = [axis for axis in range(operands[0].ndim) if axis not in arg.axes]
    count = math.prod(operands[0].shape[axis] for axis in arg.axes)
    rows = []
    for operand, start in zip(operands, arg.monoid.identity(_dtypes(operands)), strict=True):
        moved = np.transpose(operand, (*arg.axes, *kept))
        rows.append(np.insert(moved.reshape(count, *moved.shape[len(arg.axes) :]), 0, start, 0))
    reach = 1
    while reach <= count:
        earlier, later = [row[:-reach] for row in rows], [row[reach:] for row in rows]
        joined = combine(arg.monoid, earlier, later)
        rows = [np.concatenate([a[:reach], b]) for a, b in zip(rows, joined, strict=True)]
        reach *= 2
    return rows[arg.part]


def _shear(node: Node, x: Array) -> Array:
    axis, by, step = node.arg
    at = np.indices(node.shape, sparse=True)
    shift = step * (at[by] if step > 0 else at[by] - x.shape[by] + 1)
    return _take(x, np.broadcast_to(at[axis] - shift, node.shape), axis)


def _places(index: Array, size: int) -> Array:
    """Indices outside become `size`, where callers put one element more."""
    index = index.astype(np.int64)
    return np.where((index >= 0) & (index < size), index, size)


def _take(x: Array, index: Array, axis: int) -> Array:
    size = x.shape[axis]
    return np.take_along_axis(np.insert(x, size, 0, axis), _places(index, size), axis)


def _scatter(node: Node, base: Array, index: Array, update: Array) -> Array:
    axis, size = node.arg.axis, base.shape[node.arg.axis]
    out, at = np.insert(base, size, 0, axis), [*np.indices(index.shape, sparse=True)]
    at[axis] = _places(index, size)
    _put(node.arg.monoid, out, tuple(at), update)
    return np.delete(out, size, axis)


def _put(monoid: Monoid | None, array: Array, places: Any, elements: Array) -> None:
    """Write elements, one after the other, combined with what is there if there is a monoid."""
    if monoid is None:
        array[places] = elements
    else:
        assert monoid.op is not None
        NUMPY[monoid.op].at(array, places, elements)


def _wide(dtype: DType, x: Array) -> Array:
    """Small floats as float32: ml_dtypes lacks some functions, and does not sort NaN last."""
    return x.astype(np.float32) if dtype.is_small else x


def _numpy(function: Row) -> Row:
    return lambda node, *operands: function(*(_wide(node.dtype, one) for one in operands))


NUMPY: dict[Op, Any] = {
    Op.NEG: np.negative, Op.NOT: np.invert, Op.SQRT: np.sqrt, Op.EXP: np.exp, Op.EXP2: np.exp2,
    Op.LOG: np.log, Op.LOG2: np.log2, Op.SIN: np.sin, Op.COS: np.cos, Op.ATAN: np.arctan,
    Op.TRUNC: np.trunc, Op.ADD: np.add, Op.MUL: np.multiply, Op.DIV: np.true_divide,
    Op.IDIV: np.floor_divide, Op.MOD: np.remainder, Op.POW: np.power, Op.MAX: np.maximum,
    Op.MIN: np.minimum, Op.LT: np.less, Op.EQ: np.equal, Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor, Op.SHL: np.left_shift, Op.SHR: np.right_shift,
    Op.WHERE: np.where, Op.REAL: np.real, Op.IMAG: np.imag,
}  # fmt: skip
EVALUATE: dict[Op, Row] = {op: _numpy(one) for op, one in NUMPY.items()} | {
    Op.CONST: lambda node: np.array(node.arg.value, node.dtype.numpy),
    Op.IOTA: lambda node: np.arange(node.arg.size),
    Op.ERF: lambda node, x: np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x,
    Op.CAST: lambda node, x: x if node.dtype.is_complex else x.real,
    Op.BITCAST: lambda node, x: np.ascontiguousarray(x).view(node.dtype.numpy).reshape(x.shape),
    Op.COMPLEX: lambda node, *parts: np.stack(parts, axis=-1).view(node.dtype.numpy)[..., 0],
    Op.REDUCE: lambda node, *parts: reduce(node.arg, parts),
    Op.SCAN: lambda node, *parts: scan(node.arg, parts),
    Op.RESHAPE: lambda node, x: x.reshape(node.arg),
    Op.EXPAND: lambda node, x: np.broadcast_to(x, node.arg),
    Op.PERMUTE: lambda node, x: np.transpose(x, node.arg),
    Op.PAD: lambda node, x: np.pad(
        x, list(zip(*node.arg[:2], strict=True)), constant_values=node.arg.value),
    Op.SHRINK: lambda node, x: x[tuple(map(slice, *node.arg))],
    Op.FLIP: lambda node, x: np.flip(x, node.arg),
    Op.SHEAR: _shear,
    Op.GATHER: lambda node, x, index: _take(x, index, node.arg),
    Op.SCATTER: _scatter,
    Op.ARGSORT: lambda node, x: np.argsort(_wide(node.src[0].dtype, x), stable=True),
    Op.ASSIGN: lambda node, target, value: value,
    Op.AFFINE: lambda node, *terms: sum(map(mul, terms, node.arg.coefficients), node.arg.constant),
    **dict.fromkeys((Op.COPY, Op.CONTIGUOUS, Op.DETACH), lambda node, x: x),
}  # fmt: skip


def constant_of(node: Node) -> Scalar | None:
    """The value of a constant, CONST or EXPAND of CONST, or None for any other node."""
    scalar = node.src[0] if node.op is Op.EXPAND else node
    return scalar.arg.value if scalar.op is Op.CONST else None


def fold(op: Op, operands: tuple[Node, ...], arg: Any = None) -> Node:
    """The constant that `op` makes of constants, at compile time."""
    src = tuple(one.src[0] if one.op is Op.EXPAND else one for one in operands)
    scalar = Node(op, src, arg)
    (value,) = evaluate([scalar])
    return full(operands[0].shape, value.item(), scalar.dtype)


def run_chain(launches: Launches, arrays: dict[int, Array]) -> None:
    """Run kernels on flat NumPy arrays, in place, all of them for one block after the other; those
    of block memory are made as they are needed."""
    for kernel, slots in launches:
        for slot, one in zip(slots, kernel.parameters, strict=True):
            if one.memory == "block":
                arrays.setdefault(slot, np.zeros(one.size, one.dtype.numpy))
    for block in np.ndindex(*(axis.arg.size for axis in launches[0][0].block_axes)):
        for kernel, slots in launches:
            at = dict(zip(kernel.block_axes, block, strict=True))
            run_kernel(kernel, [arrays[slot] for slot in slots], at)


def run_kernel(kernel: AnyKernel, arrays: Arrays, at: Mapping[Node, int] | None = None) -> None:
    """Run `kernel` on its parameters, flat NumPy arrays, in place, where some axes have the values
    `at`; what is computed is computed before anything is written. Raises VerifyError for an index
    outside its parameter."""
    if isinstance(kernel, SortKernel):
        keys = arrays[0].reshape(kernel.rows, kernel.length)
        arrays[1][:] = np.argsort(keys, axis=-1, stable=True).reshape(-1)
        return
    ready = [(store, *_elements(store, arrays, at or {})) for store in kernel.stores]
    for store, places, elements in ready:
        target = arrays[store.parameter]
        _check_places(places, target, f"a store to parameter {store.parameter}")
        with np.errstate(all="ignore"):
            _put(store.monoid, target, places, elements)


def _elements(store: Store, arrays: Arrays, at: Mapping[Node, int]) -> tuple[Array, Array]:
    """Where a store writes, and what, in the order of its axes."""
    order = toposort((*store.axes, *roots_of(store)))
    axes = [one for one in order if one.op is Op.AXIS and one not in at]  # the store's own first

    def load(node: Node, index: Array, holds: Any = True) -> Array:
        number, array = node.arg.parameter, arrays[node.arg.parameter]
        index, holds = np.broadcast_arrays(index, holds)
        _check_places(index[holds], array, f"a load from parameter {number}")
        return np.insert(array, array.size, 0)[np.where(holds, index, array.size)]

    def reduction(node: Node, *operands: Array) -> Array:
        monoid, part = node.arg
        dims = tuple(map(axes.index, bound_axes(node)))
        arg, parts = Reduce(monoid, dims, part), np.broadcast_arrays(*operands)[: monoid.arity]
        prefix = node.op is Op.PREFIX
        return scan(arg, parts) if prefix else np.expand_dims(reduce(arg, parts), dims)

    grids = dict(zip(axes, np.indices([axis.arg.size for axis in axes], sparse=True), strict=True))
    leaves = grids | {axis: np.array(value) for axis, value in at.items()}
    roots = store.condition or const(True, bool_), store.index, store.value
    rows = {Op.LOAD: load, Op.FOLD: reduction, Op.PREFIX: reduction}
    shape = [axis.arg.size if axis in store.axes else 1 for axis in axes]
    holds, places, elements = (
        np.broadcast_to(value, shape).reshape(-1) for value in evaluate(roots, leaves, rows)
    )
    return places[holds], elements[holds]


def _check_places(places: Array, array: Array, what: str) -> None:
    outside = places[(places < 0) | (places >= array.size)]
    if outside.size:
        raise VerifyError(f"{what} at {outside.flat[0]}: it has {array.size} elements")


def check_chain(
    launches: Launches, before: dict[int, Array], after: Mapping[int, Array]
) -> str | None:
    """What the arrays `after` kernels have run have otherwise than the reference makes of those
    `before`, which are overwritten; or None. All are flat arrays."""
    with np.errstate(all="ignore"):
        scale = _scale(list(before.values()))
        run_chain(launches, before)
        for kernel, slots in launches:
            for number, (slot, parameter) in enumerate(zip(slots, kernel.parameters, strict=True)):
                sorts = isinstance(kernel, SortKernel) and number == 2
                if sorts or not parameter.written or parameter.memory == "block":
                    continue
                want, got = before[slot], after[slot]
                differing = np.flatnonzero(~_agree(parameter.dtype, got, want, scale))
                if len(differing) > _allowed(kernel, number):
                    at = int(differing[0])
                    return (
                        f"parameter {number} at {at}: {got[at]}, and the reference has "
                        f"{want[at]}; {len(differing)} of {want.size} elements differ"
                    )
    return None


def _allowed(kernel: AnyKernel, number: int) -> int:
    """How many elements may differ: some where rounded floats decide integers or bools."""
    parameter = kernel.parameters[number]
    if isinstance(kernel, SortKernel) or parameter.dtype.is_float:
        return 0
    nodes = toposort(store.value for store in kernel.stores if store.parameter == number)
    rounds = any(node.dtype.is_float and node.op not in EXACT for node in nodes)
    return max(1, int(ROUNDED * parameter.size)) if rounds else 0


def _scale(arrays: Arrays) -> float:
    """The largest finite magnitude among floats."""
    found = [np.abs(one.astype(np.complex128)) for one in arrays if one.dtype.kind not in "biu"]
    return max((float(one[np.isfinite(one)].max(initial=0)) for one in found), default=0.0)


def _agree(dtype: DType, got: Array, want: Array, scale: float) -> Any:
    """Elementwise; a NaN agrees with a NaN."""
    if dtype not in TOLERANCE:
        return got == want
    tolerance, reach = TOLERANCE[dtype], max(scale, _scale([want]))
    got, want = got.astype(np.complex128), want.astype(np.complex128)
    return np.isclose(got, want, rtol=10 * tolerance, atol=tolerance * reach, equal_nan=True)

"""The reference: both dialects in NumPy, slow and plain, and what compiled kernels compare with.

Values follow the dtype of each node exactly, bfloat16 and float8 through ml_dtypes. In a kernel
every axis that a store mentions is a dimension, its own axes first: an AXIS is a grid that varies
along one dimension and broadcasts along the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lamina import dtypes
from lamina.dtypes import DType, Scalar
from lamina.errors import VerifyError
from lamina.ir.kernel import AnyKernel, SortKernel, Store, bound_axes, roots_of
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, full, toposort
from lamina.ir.ops import Group, Op, Reduce

Array = Any  # numpy.ndarray; NumPy is imported on first use
Arrays = Sequence[Array]
Launches = Sequence[tuple[AnyKernel, Sequence[int]]]  # kernels and the arrays of their parameters
Row = Callable[..., Array]  # of NumPy, the node, and the values of its operands

# How far floats may be apart, as a share of the largest number that the kernel reads or writes.
TOLERANCE: dict[DType, float] = {
    dtypes.float8_e4m3fn: 0.13, dtypes.float8_e5m2: 0.26, dtypes.float16: 2e-3,
    dtypes.bfloat16: 2e-2, dtypes.float32: 1e-5, dtypes.float64: 1e-13,
    dtypes.complex64: 1e-5, dtypes.complex128: 1e-13,
}  # fmt: skip
ROUNDED = 0.01  # the share of integers or bools made from rounded floats that may differ
EXACT = frozenset({Op.NEG, Op.MAX, Op.MIN, Op.WHERE, Op.LOAD, Op.CONST, Op.TRUNC, Op.BITCAST})


def evaluate(sinks: Iterable[Node], leaves: Mapping[Node, Array] | None = None) -> list[Array]:
    """The values of `sinks`; `leaves` gives those of BUFFER and HOLE nodes."""
    import numpy as np

    sinks = list(sinks)
    values: dict[Node, Array] = dict(leaves or {})
    with np.errstate(all="ignore"):
        for node in toposort(sinks):
            if node not in values:
                values[node] = evaluate_node(node, [values[operand] for operand in node.src])
    return [values[sink] for sink in sinks]


def evaluate_node(node: Node, operands: Arrays) -> Array:
    """The value of one node from those of its operands."""
    import numpy as np

    if node.op not in EVALUATE:
        raise VerifyError(f"{node.op.name.lower()} has no value of its own: {node}")
    value = EVALUATE[node.op](np, node, *operands)
    return np.asarray(value).astype(node.dtype.numpy, copy=False)


def _dtypes(arrays: Arrays) -> tuple[DType, ...]:
    return tuple(dtypes.as_dtype(one.dtype) for one in arrays)


def combine(monoid: Monoid, left: Arrays, right: Arrays) -> list[Array]:
    """One application of `monoid`'s combine to arrays."""
    a, b, joined = monoid.formula(_dtypes(left))
    return evaluate(joined, dict(zip(a + b, (*left, *right), strict=True)))


def reduce(np: Any, arg: Reduce, operands: Arrays) -> Array:
    """One part of a reduction over some axes, which vanish."""
    if arg.monoid.op is None:
        return _prefixes(np, arg, operands)[-1]
    ufunc, (start,) = getattr(np, NUMPY[arg.monoid.op]), arg.monoid.identity(_dtypes(operands))
    return ufunc.reduce(operands[0], axis=arg.axes, dtype=operands[0].dtype, initial=start)


def scan(np: Any, arg: Reduce, operands: Arrays) -> Array:
    """One part of the inclusive prefixes along some axes, row-major."""
    prefixes = _prefixes(np, arg, operands)[1:]
    sizes = [operands[0].shape[axis] for axis in arg.axes]
    return np.moveaxis(prefixes.reshape(*sizes, *prefixes.shape[1:]), range(len(sizes)), arg.axes)


def _prefixes(np: Any, arg: Reduce, operands: Arrays) -> Array:
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


def _shear(np: Any, node: Node, x: Array) -> Array:
    axis, by, step = node.arg
    at = np.indices(node.shape, sparse=True)
    shift = step * (at[by] if step > 0 else at[by] - x.shape[by] + 1)
    return _take(np, x, np.broadcast_to(at[axis] - shift, node.shape), axis)


def _places(np: Any, index: Array, size: int) -> Array:
    """Indices outside become `size`, where callers put one element more."""
    index = index.astype(np.int64)
    return np.where((index >= 0) & (index < size), index, size)


def _take(np: Any, x: Array, index: Array, axis: int) -> Array:
    size = x.shape[axis]
    return np.take_along_axis(np.insert(x, size, 0, axis), _places(np, index, size), axis)


def _scatter(np: Any, node: Node, base: Array, index: Array, update: Array) -> Array:
    axis, monoid = node.arg
    size = base.shape[axis]
    out, places = np.insert(base, size, 0, axis), _places(np, index, size)
    rows, source, places = (np.moveaxis(one, axis, 0) for one in (out, update, places))
    others = np.indices(rows.shape[1:], sparse=True)
    for row, place in zip(source, places, strict=True):
        at = (place, *others)
        rows[at] = row if monoid is None else combine(monoid, [rows[at]], [row])[0]
    return np.delete(out, size, axis)


def _shift(np: Any, node: Node, x: Array, count: Array, shift: Row, beyond: Array) -> Array:
    """Shifts by the width or more give what an endless shift would."""
    big = (count < 0) | (count >= node.dtype.bits)
    return np.where(big, beyond, shift(x, np.where(big, 0, count).astype(x.dtype)))


def _wide(np: Any, dtype: DType, x: Array) -> Array:
    """Small floats as float32: ml_dtypes lacks some functions, and does not sort NaN last."""
    return x.astype(np.float32) if dtype.is_small else x


def _numpy(name: str) -> Row:
    return lambda np, node, *operands: getattr(np, name)(
        *(_wide(np, node.dtype, one) for one in operands)
    )


NUMPY = {
    Op.NEG: "negative", Op.NOT: "invert", Op.SQRT: "sqrt", Op.EXP: "exp", Op.EXP2: "exp2",
    Op.LOG: "log", Op.LOG2: "log2", Op.SIN: "sin", Op.COS: "cos", Op.ATAN: "arctan",
    Op.TRUNC: "trunc", Op.ADD: "add", Op.MUL: "multiply", Op.DIV: "true_divide",
    Op.IDIV: "floor_divide", Op.MOD: "remainder", Op.POW: "power", Op.MAX: "maximum",
    Op.MIN: "minimum", Op.LT: "less", Op.EQ: "equal", Op.AND: "bitwise_and", Op.OR: "bitwise_or",
    Op.XOR: "bitwise_xor", Op.WHERE: "where", Op.REAL: "real", Op.IMAG: "imag",
}  # fmt: skip
EVALUATE: dict[Op, Row] = {op: _numpy(name) for op, name in NUMPY.items()} | {
    Op.CONST: lambda np, node: np.array(node.arg.value, node.dtype.numpy),
    Op.IOTA: lambda np, node: np.arange(node.arg.size),
    Op.ERF: lambda np, node, x: np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x,
    Op.CAST: lambda np, node, x: x if node.dtype.is_complex else x.real,
    Op.BITCAST: lambda np, node, x: np.ascontiguousarray(x).view(node.dtype.numpy).reshape(x.shape),
    Op.COMPLEX: lambda np, node, *parts: np.stack(parts, axis=-1).view(node.dtype.numpy)[..., 0],
    Op.SHL: lambda np, node, x, n: _shift(np, node, x, n, np.left_shift, 0),
    Op.SHR: lambda np, node, x, n: _shift(np, node, x, n, np.right_shift, -(x < 0).astype(x.dtype)),
    Op.REDUCE: lambda np, node, *parts: reduce(np, node.arg, parts),
    Op.SCAN: lambda np, node, *parts: scan(np, node.arg, parts),
    Op.RESHAPE: lambda np, node, x: x.reshape(node.arg),
    Op.EXPAND: lambda np, node, x: np.broadcast_to(x, node.arg),
    Op.PERMUTE: lambda np, node, x: np.transpose(x, node.arg),
    Op.PAD: lambda np, node, x: np.pad(
        x, list(zip(*node.arg[:2], strict=True)), constant_values=node.arg.value),
    Op.SHRINK: lambda np, node, x: x[tuple(map(slice, *node.arg))],
    Op.FLIP: lambda np, node, x: np.flip(x, node.arg),
    Op.SHEAR: _shear,
    Op.GATHER: lambda np, node, x, index: _take(np, x, index, node.arg),
    Op.SCATTER: _scatter,
    Op.ARGSORT: lambda np, node, x: np.argsort(_wide(np, node.src[0].dtype, x), stable=True),
    Op.ASSIGN: lambda np, node, target, value: value,
}  # fmt: skip
EVALUATE |= dict.fromkeys((Op.COPY, Op.CONTIGUOUS, Op.DETACH), lambda np, node, x: x)


def _scalar(node: Node) -> Node:
    return node.src[0] if node.op is Op.EXPAND else node


def constant_of(node: Node) -> Scalar | None:
    """The value of a constant, CONST or EXPAND of CONST, or None for any other node."""
    scalar = _scalar(node)
    return scalar.arg.value if scalar.op is Op.CONST else None


def fold(op: Op, operands: tuple[Node, ...], arg: Any = None) -> Node:
    """The constant that `op` makes of constants, at compile time."""
    scalar = Node(op, tuple(map(_scalar, operands)), arg)
    (value,) = evaluate([scalar])
    return full(operands[0].shape, value.item(), scalar.dtype)


def run_chain(launches: Launches, arrays: dict[int, Array]) -> None:
    """Run kernels on flat NumPy arrays, in place, all of them for one block after the other; those
    of block memory are made as they are needed."""
    import numpy as np

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
    import numpy as np

    if isinstance(kernel, SortKernel):
        keys = arrays[0].reshape(kernel.rows, kernel.length)
        arrays[1][:] = np.argsort(keys, axis=-1, stable=True).reshape(-1)
        return
    with np.errstate(all="ignore"):
        ready = [(store, *_elements(np, store, arrays, at or {})) for store in kernel.stores]
        for store, places, elements in ready:
            target = arrays[store.parameter]
            _check_places(places, target, f"a store to parameter {store.parameter}")
            if store.monoid is None:
                target[places] = elements
            else:  # one element after the other
                assert store.monoid.op is not None
                getattr(np, NUMPY[store.monoid.op]).at(target, places, elements)


def _elements(np: Any, store: Store, arrays: Arrays, at: Mapping[Node, int]) -> tuple[Array, Array]:
    """Where a store writes, and what, in the order of its axes."""
    order = toposort((*store.axes, *roots_of(store)))
    own = [axis for axis in store.axes if axis not in at]
    axes = own + [one for one in order if one.op is Op.AXIS and one not in (*own, *at)]
    values: dict[Node, Array] = {axis: np.array(value) for axis, value in at.items()}
    for node in order:
        if node not in at:
            operands = [values[one] for one in node.src]
            values[node] = _value(np, node, axes, arrays, operands)
    shape = [axis.arg.size for axis in own] + [1] * (len(axes) - len(own))
    holds, places, elements = (
        np.broadcast_to(True if root is None else values[root], shape).reshape(-1)
        for root in (store.condition, store.index, store.value)
    )
    return places[holds], elements[holds]


def _value(np: Any, node: Node, axes: list[Node], arrays: Arrays, operands: Arrays) -> Array:
    if node.op is Op.AXIS:
        return np.arange(node.arg.size).reshape([-1 if one is node else 1 for one in axes])
    if node.op is Op.AFFINE:
        factors = zip(operands, node.arg.coefficients, strict=True)
        return sum((operand * factor for operand, factor in factors), node.arg.constant)
    if node.op is Op.LOAD:
        return _load(np, node, arrays[node.arg.parameter], *operands)
    if not bound_axes(node):
        return evaluate_node(node, operands)
    monoid, part = node.arg
    dims = tuple(axes.index(axis) for axis in bound_axes(node))
    components = np.broadcast_arrays(*operands)[: monoid.arity]
    arg = Reduce(monoid, dims, part)
    if node.op is Op.PREFIX:
        return scan(np, arg, components)
    return np.expand_dims(reduce(np, arg, components), dims)


def _load(np: Any, node: Node, array: Array, index: Array, holds: Any = True) -> Array:
    index, holds = np.broadcast_arrays(index, holds)
    _check_places(index[holds], array, f"a load from parameter {node.arg.parameter}")
    padded = np.append(array, np.zeros(1, array.dtype))  # a false condition loads 0
    return padded[np.where(holds, index, array.size)]


def _check_places(places: Array, array: Array, what: str) -> None:
    outside = places[(places < 0) | (places >= array.size)]
    if outside.size:
        raise VerifyError(f"{what} at {outside.flat[0]}: it has {array.size} elements")


def check_chain(
    launches: Launches, before: dict[int, Array], after: Mapping[int, Array]
) -> str | None:
    """What the arrays `after` kernels have run have otherwise than the reference makes of those
    `before`, which are overwritten; or None. All are flat arrays."""
    import numpy as np

    with np.errstate(all="ignore"):
        scale = _scale(np, list(before.values()))
        run_chain(launches, before)
        for kernel, slots in launches:
            for number, (slot, parameter) in enumerate(zip(slots, kernel.parameters, strict=True)):
                sorts = isinstance(kernel, SortKernel) and number == 2
                if sorts or not parameter.written or parameter.memory == "block":
                    continue
                want, got = before[slot], after[slot]
                differing = np.flatnonzero(~_agree(np, parameter.dtype, got, want, scale))
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
    inexact = (Group.ELEMENTWISE | {Op.FOLD, Op.PREFIX}) - EXACT
    nodes = toposort(store.value for store in kernel.stores if store.parameter == number)
    rounds = any(node.dtype.is_float and node.op in inexact for node in nodes)
    return max(1, int(ROUNDED * parameter.size)) if rounds else 0


def _scale(np: Any, arrays: Arrays) -> float:
    """The largest finite magnitude among floats."""
    found = [np.abs(one.astype(np.complex128)) for one in arrays if one.dtype.kind not in "biu"]
    return max((float(one[np.isfinite(one)].max(initial=0)) for one in found), default=0.0)


def _agree(np: Any, dtype: DType, got: Array, want: Array, scale: float) -> Any:
    """Elementwise; a NaN agrees with a NaN."""
    tolerance = TOLERANCE.get(dtype)
    if tolerance is None:
        return got == want
    wide = np.complex128 if dtype.is_complex else np.float64
    got, want = got.astype(wide), want.astype(wide)
    reach = max(scale, _scale(np, [want]))
    return np.isclose(got, want, rtol=10 * tolerance, atol=tolerance * reach, equal_nan=True)

"""The reference: every operation of the graph dialect in NumPy, slow and plain.

Values follow the dtype of each node exactly, bfloat16 and float8 through ml_dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lamina.errors import VerifyError
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op

Array = Any  # numpy.ndarray; NumPy is imported on first use


def evaluate(sinks: Iterable[Node], leaves: Mapping[Node, Array] | None = None) -> list[Array]:
    """The value of each of `sinks`, as NumPy arrays.

    `leaves` gives the content of BUFFER, VARIABLE and HOLE nodes.
    """
    import numpy as np

    sinks = list(sinks)
    values: dict[Node, Array] = dict(leaves or {})
    with np.errstate(all="ignore"):
        for node in toposort(sinks):
            if node not in values:
                values[node] = evaluate_node(node, [values[operand] for operand in node.src])
    return [values[sink] for sink in sinks]


def evaluate_node(node: Node, operands: list[Array]) -> Array:
    """The value of one node from those of its operands."""
    import numpy as np

    try:
        row = EVALUATE[node.op]
    except KeyError:
        raise VerifyError(f"{node.op.name.lower()} has no value of its own: {node}") from None
    value = row(np, node, *operands)
    return np.asarray(value).astype(node.dtype.numpy, copy=False)


def combine(monoid: Monoid, left: list[Array], right: list[Array], like: list[Node]) -> list[Array]:
    """One application of `monoid`'s combine to arrays."""
    a, b, joined = monoid.formula(tuple(one.dtype for one in like))
    return evaluate(joined, dict(zip(a + b, left + right, strict=True)))


def _along_one_axis(np: Any, node: Node, operands: tuple[Array, ...]) -> list[Array]:
    """The reduced axes moved to the front as one, row-major."""
    axes = node.arg.axes
    kept = [axis for axis in range(operands[0].ndim) if axis not in axes]
    kept_shape = [operands[0].shape[axis] for axis in kept]
    count = math.prod(operands[0].shape[axis] for axis in axes)
    return [np.transpose(one, (*axes, *kept)).reshape(count, *kept_shape) for one in operands]


def _identity(np: Any, node: Node, shape: tuple[int, ...]) -> list[Array]:
    dtypes = tuple(operand.dtype for operand in node.src)
    scalars = node.arg.monoid.identity(dtypes)
    return [np.full(shape, s, dtype.numpy) for s, dtype in zip(scalars, dtypes, strict=True)]


def _reduce(np: Any, node: Node, *operands: Array) -> Array:
    monoid, axes, part = node.arg
    ufunc = {ADD: np.add, MUL: np.multiply, MAX: np.maximum, MIN: np.minimum}.get(monoid)
    if ufunc is not None:
        start = _identity(np, node, ())[0]
        return ufunc.reduce(operands[0], axis=axes, dtype=node.dtype.numpy, initial=start)
    rows = _along_one_axis(np, node, operands)
    if monoid in (ARGMAX, ARGMIN) and len(rows[0]):
        return _extreme(np, node, rows)[part]
    total = _identity(np, node, rows[0].shape[1:])
    for i in range(len(rows[0])):
        total = combine(monoid, total, [row[i] for row in rows], list(node.src))
    return total[part]


def _extreme(np: Any, node: Node, rows: list[Array]) -> list[Array]:
    """The extreme value and, among its places, the least index."""
    values, indices = rows
    nan = values != values
    best = (np.max if node.arg.monoid is ARGMAX else np.min)(values, axis=0)
    places = np.where(nan.any(axis=0), nan, values == best)
    return [best, np.min(np.where(places, indices, node.src[1].dtype.max), axis=0)]


def _scan(np: Any, node: Node, *operands: Array) -> Array:
    rows = _along_one_axis(np, node, operands)
    total = _identity(np, node, rows[0].shape[1:])
    out = np.empty(rows[0].shape, node.dtype.numpy)
    for i in range(len(out)):
        total = combine(node.arg.monoid, total, [row[i] for row in rows], list(node.src))
        out[i] = total[node.arg.part]
    return np.moveaxis(out, 0, node.arg.axes[0])


def _shear(np: Any, node: Node, x: Array) -> Array:
    axis, by, step = node.arg
    out = np.zeros(node.shape, x.dtype)
    source, target = np.moveaxis(x, (axis, by), (0, 1)), np.moveaxis(out, (axis, by), (0, 1))
    for k in range(x.shape[by]):
        offset = k * step if step > 0 else (x.shape[by] - 1 - k) * -step
        target[offset : offset + x.shape[axis], k] = source[:, k]
    return out


def _gather(np: Any, node: Node, x: Array, index: Array) -> Array:
    axis = node.arg
    size = x.shape[axis]
    if not size:
        return np.zeros(node.shape, x.dtype)
    inside = (index >= 0) & (index < size)
    safe = np.where(inside, index, 0).astype(np.int64)
    return np.where(inside, np.take_along_axis(x, safe, axis), np.zeros((), x.dtype))


def _scatter(np: Any, node: Node, base: Array, index: Array, update: Array) -> Array:
    axis, monoid = node.arg
    out = np.array(base)
    rows, source, places = (np.moveaxis(one, axis, 0) for one in (out, update, index))
    others = np.indices(rows.shape[1:], sparse=True)
    for row, place in zip(source, places, strict=True):
        inside = (place >= 0) & (place < rows.shape[0])
        at = (np.where(inside, place, 0).astype(np.int64), *others)
        if not rows.shape[0]:
            continue
        new = row if monoid is None else combine(monoid, [rows[at]], [row], [node.src[0]])[0]
        rows[at] = np.where(inside, new, rows[at])
    return out


def _argsort(np: Any, node: Node, x: Array) -> Array:
    """NumPy's sort of the dtypes of ml_dtypes does not put NaN last: sort them in float32."""
    wide = x.astype(np.float32) if node.src[0].dtype.is_float and x.dtype.itemsize < 4 else x
    return np.argsort(wide, axis=-1, stable=True)


def _shift(np: Any, node: Node, x: Array, count: Array, left: bool) -> Array:
    """Shifts by the width or more give what an endless shift would: 0, or -1 for a sign."""
    big = (count < 0) | (count >= node.dtype.bits)
    safe = np.where(big, 0, count).astype(x.dtype)
    if left:
        return np.where(big, 0, np.left_shift(x, safe))
    return np.where(big, np.where(x < 0, -1, 0).astype(x.dtype), np.right_shift(x, safe))


def _cast(np: Any, node: Node, x: Array) -> Array:
    if np.iscomplexobj(x) and not node.dtype.is_complex:
        x = x.real
    return x.astype(node.dtype.numpy)


def _erf(np: Any, node: Node, x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def _multiplied_wide(row: Callable[..., Array]) -> Callable[..., Array]:
    """ml_dtypes lacks some functions for bfloat16: compute them in float32."""

    def evaluate_wide(np: Any, node: Node, *operands: Array) -> Array:
        if node.dtype.is_float and node.dtype.itemsize < 4:
            operands = tuple(one.astype(np.float32) for one in operands)
        return row(np, node, *operands)

    return evaluate_wide


def _numpy(name: str) -> Callable[..., Array]:
    return lambda np, node, *operands: getattr(np, name)(*operands)


def _pad(np: Any, node: Node, x: Array) -> Array:
    before, after, value = node.arg
    return np.pad(x, list(zip(before, after, strict=True)), constant_values=value)


def _shrink(np: Any, node: Node, x: Array) -> Array:
    return x[tuple(map(slice, *node.arg))] if node.shape else x


EVALUATE: dict[Op, Callable[..., Array]] = {
    Op.CONST: lambda np, node: np.array(node.arg.value, node.dtype.numpy),
    Op.IOTA: lambda np, node: np.arange(node.arg.size),
    Op.NEG: lambda np, node, x: np.negative(x),
    Op.NOT: lambda np, node, x: np.invert(x),
    Op.ERF: _erf,
    Op.CAST: _cast,
    Op.BITCAST: lambda np, node, x: np.ascontiguousarray(x).view(node.dtype.numpy).reshape(x.shape),
    Op.REAL: lambda np, node, x: x.real,
    Op.IMAG: lambda np, node, x: x.imag,
    Op.ADD: _numpy("add"),
    Op.MUL: _numpy("multiply"),
    Op.DIV: _numpy("true_divide"),
    Op.IDIV: _numpy("floor_divide"),
    Op.MOD: _numpy("remainder"),
    Op.POW: _multiplied_wide(_numpy("power")),
    Op.MAX: _numpy("maximum"),
    Op.MIN: _numpy("minimum"),
    Op.LT: _numpy("less"),
    Op.EQ: _numpy("equal"),
    Op.AND: _numpy("bitwise_and"),
    Op.OR: _numpy("bitwise_or"),
    Op.XOR: _numpy("bitwise_xor"),
    Op.SHL: lambda np, node, x, count: _shift(np, node, x, count, left=True),
    Op.SHR: lambda np, node, x, count: _shift(np, node, x, count, left=False),
    Op.COMPLEX: lambda np, node, re, im: _complex(np, node, re, im),
    Op.WHERE: lambda np, node, condition, yes, no: np.where(condition, yes, no),
    Op.REDUCE: _reduce,
    Op.SCAN: _scan,
    Op.RESHAPE: lambda np, node, x: x.reshape(node.arg),
    Op.EXPAND: lambda np, node, x: np.broadcast_to(x, node.arg),
    Op.PERMUTE: lambda np, node, x: np.transpose(x, node.arg),
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.FLIP: lambda np, node, x: np.flip(x, node.arg),
    Op.SHEAR: _shear,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.ARGSORT: _argsort,
    Op.ASSIGN: lambda np, node, target, value: value,
    Op.COPY: lambda np, node, x: x,
    Op.CONTIGUOUS: lambda np, node, x: x,
    Op.DETACH: lambda np, node, x: x,
}
EVALUATE |= {
    op: _multiplied_wide(_numpy(name))
    for op, name in {
        Op.SQRT: "sqrt", Op.EXP: "exp", Op.EXP2: "exp2", Op.LOG: "log", Op.LOG2: "log2",
        Op.SIN: "sin", Op.COS: "cos", Op.ATAN: "arctan", Op.TRUNC: "trunc",
    }.items()
}  # fmt: skip


def _complex(np: Any, node: Node, re: Array, im: Array) -> Array:
    out = np.empty(np.broadcast(re, im).shape, node.dtype.numpy)
    out.real, out.imag = re, im
    return out


assert set(EVALUATE) >= Group.ELEMENTWISE | Group.REDUCTION | Group.MOVEMENT

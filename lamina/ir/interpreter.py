"""The reference: graphs in NumPy, slow and plain. Values follow the dtype of each node exactly,
bfloat16 and float8 through ml_dtypes."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import mul
from typing import Any

import numpy as np

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.errors import VerifyError
from lamina.ir.monoids import ADD, Monoid
from lamina.ir.node import Node, const, constant_of, full, toposort
from lamina.ir.ops import Group, Op, Order, Reduce

Array = Any  # numpy.ndarray
Arrays = Sequence[Array]
Evaluate = Callable[..., Array]  # of the node, and the values of its operands


def evaluate(
    sinks: Iterable[Node],
    leaves: Mapping[Node, Array] | None = None,
    rows: Mapping[Op, Evaluate] | None = None,
) -> list[Array]:
    """The values of `sinks`; `leaves` gives those of BUFFER and HOLE nodes, `rows` those of
    operations in place of `EVALUATE`."""
    sinks, rows = list(sinks), rows or EVALUATE
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
    return tuple(dtypes.BY_NAME[array.dtype.name] for array in arrays)


def ordered(keys: Array, arg: Order) -> Array:
    """The places along an axis of what has the ranks of `arg`."""
    rows = np.moveaxis(keys, arg.axis, -1)
    if arg.descending:  # the first of equal keys is the last one backwards
        backwards = np.argsort(rows[..., ::-1], stable=True)[..., ::-1]
        order = rows.shape[-1] - 1 - backwards
    else:
        order = np.argsort(rows, stable=True)
    return np.moveaxis(order[..., arg.first : arg.last], -1, arg.axis)


def reduce(arg: Reduce, operands: Arrays) -> Array:
    """One part of a reduction over some axes, which vanish; sums of floats are float64, as NumPy
    adds up rows of other axes than the last one in one chain."""
    if arg.monoid.op is None:
        return _prefixes(arg, operands)[-1]
    (dtype,), (start,) = _dtypes(operands), arg.monoid.identity(_dtypes(operands))
    accumulated = dtypes.float64 if dtype.is_float and arg.monoid is ADD else dtype
    return NUMPY[arg.monoid.op].reduce(operands[0], arg.axes, accumulated.numpy, initial=start)


def scan(arg: Reduce, operands: Arrays) -> Array:
    """One part of the inclusive prefixes along some axes, row-major."""
    prefixes = _prefixes(arg, operands)[1:]
    sizes = [operands[0].shape[axis] for axis in arg.axes]
    return np.moveaxis(prefixes.reshape(*sizes, *prefixes.shape[1:]), range(len(sizes)), arg.axes)


def _prefixes(arg: Reduce, operands: Arrays) -> Array:
    """The reduced axes as one in front, and the prefixes along it, the empty one first, in rounds
    that double how far they reach (Hillis and Steele 1986, "Data parallel algorithms")."""
    count = math.prod(operands[0].shape[axis] for axis in arg.axes)
    a, b, combined = arg.monoid.formula(_dtypes(operands))
    rows = []
    for operand, start in zip(operands, arg.monoid.identity(_dtypes(operands)), strict=True):
        moved = np.moveaxis(operand, arg.axes, range(len(arg.axes)))
        rows.append(np.insert(moved.reshape(count, *moved.shape[len(arg.axes) :]), 0, start, 0))
    reach = 1
    while reach <= count:
        halves = [row[:-reach] for row in rows] + [row[reach:] for row in rows]
        joined = evaluate(combined, dict(zip(a + b, halves, strict=True)))
        rows = [np.concatenate([old[:reach], new]) for old, new in zip(rows, joined, strict=True)]
        reach *= 2
    return rows[arg.component]


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
    put(node.arg.monoid, out, tuple(at), update)
    return np.delete(out, size, axis)


def bin_sum(base: Array, places: Array, updates: Array) -> Array:
    """A copy of an array with updates added at places of it as a flat one, one after the other;
    those outside of it add nothing."""
    out = np.append(base, np.zeros(1, base.dtype))
    np.add.at(out, _places(places, base.size).reshape(-1), updates.reshape(-1))
    return out[:-1].reshape(base.shape)


def put(monoid: Monoid | None, array: Array, places: Any, elements: Array) -> None:
    """Write elements, one after the other, combined with what is there if there is a monoid."""
    if monoid is None:
        array[places] = elements
    else:
        assert monoid.op is not None
        NUMPY[monoid.op].at(array, places, elements)


def _as_float32(dtype: DType, x: Array) -> Array:
    """`x`, or float32 for floats of 16 and 8 bits: ml_dtypes lacks some functions, and does not
    sort NaN last."""
    return x.astype(np.float32) if dtype.is_small else x


def _numpy(function: Evaluate) -> Evaluate:
    return lambda node, *operands: function(*(_as_float32(node.dtype, x) for x in operands))


def _numpy_function(row: str | Callable[..., Any]) -> Any:
    """NumPy's function that a record of `Op` says, or one of operands."""
    return getattr(np, row) if isinstance(row, str) else functools.partial(row, np)


# Of collectives.


def from_ranks(op: Op, arg: Any, operands: Arrays, place: int) -> Array:
    """What a collective gives the rank at `place` of a group, from the operands of all ranks of it,
    in order."""
    return _FROM_RANKS[op](arg, np.stack(operands), place)


def _combined(arg: Any, operands: Array) -> Array:
    """The combined elements along the first axis, the ranks."""
    return reduce(Reduce(arg.monoid, (0,)), [operands])


def _sent_to(targets: Sequence[int], operands: Array, place: int) -> Array:
    return operands[targets.index(place)] if place in targets else np.zeros_like(operands[0])


_FROM_RANKS: dict[Op, Callable[[Any, Array, int], Array]] = {
    Op.ALL_REDUCE: lambda arg, operands, place: _combined(arg, operands),
    Op.ALL_GATHER: lambda arg, operands, place: operands,
    Op.REDUCE_SCATTER: lambda arg, operands, place: _combined(arg, operands[:, place]),
    Op.BROADCAST: lambda arg, operands, place: operands[arg.root],
    Op.ALL_TO_ALL: lambda arg, operands, place: operands[:, place],
    Op.COLLECTIVE_PERMUTE: lambda arg, operands, place: _sent_to(arg.targets, operands, place),
}


def _alone(node: Node, x: Array) -> Array:
    """A collective of several ranks. Callers of `evaluate` that reach the others have rows for it.
    """
    name = node.op.name.lower()
    raise VerifyError(f"{name} of {node.arg.ranks} ranks has no value in one process alone")


NUMPY: dict[Op, Any] = {op: _numpy_function(op.value.numpy) for op in Op if op.value.numpy}
EVALUATE: dict[Op, Evaluate] = {op: _numpy(function) for op, function in NUMPY.items()} | {
    Op.CONST: lambda node: np.array(node.arg.value, node.dtype.numpy),
    Op.IOTA: lambda node: np.arange(node.arg.size),
    Op.CAST: lambda node, x: x if node.dtype.kind in ("bool", "complex") else x.real,
    Op.BITCAST: lambda node, x: np.ascontiguousarray(x).view(node.dtype.numpy).reshape(x.shape),
    Op.COMPLEX: lambda node, *parts: np.stack(parts, axis=-1).view(node.dtype.numpy)[..., 0],
    Op.REDUCE: lambda node, *parts: reduce(node.arg, parts),
    Op.SCAN: lambda node, *parts: scan(node.arg, parts),
    Op.RESHAPE: lambda node, x: x.reshape(node.arg),
    Op.EXPAND: lambda node, x: np.broadcast_to(x, node.arg),
    Op.PERMUTE: lambda node, x: np.transpose(x, node.arg),
    Op.PAD: lambda node, x: np.pad(
        x, list(zip(*node.arg[:2], strict=True)), constant_values=node.arg.value),
    Op.SHRINK: lambda node, x: x[np.ix_(*node.arg)],
    Op.SHEAR: _shear,
    Op.GATHER: lambda node, x, index: _take(x, index, node.arg),
    Op.SCATTER: _scatter,
    Op.ARGSORT: lambda node, x: ordered(_as_float32(node.src[0].dtype, x), node.arg),
    Op.BIN_SUM: lambda node, *operands: bin_sum(*operands),
    Op.ASSIGN: lambda node, target, value: value,
    **dict.fromkeys(Group.COLLECTIVE, _alone),
    Op.AFFINE: lambda node, *terms: sum(map(mul, terms, node.arg.coefficients), node.arg.constant),
    **dict.fromkeys(
        (Op.COPY, Op.CONTIGUOUS, Op.DETACH, Op.AGAIN, *Group.OF_DERIVATIVES),
        lambda node, x, *_: x,
    ),
}  # fmt: skip


def fold_constant(op: Op, operands: tuple[Node, ...], arg: Any = None) -> Node:
    """The constant that `op` makes of constants, at compile time."""
    src = tuple(const(constant_of(x), x.dtype) for x in operands)  # type: ignore[arg-type]
    scalar = Node(op, src, arg)
    has_bfloat16 = any(node.dtype is dtypes.bfloat16 for node in (scalar, *src))
    value = _folded_in_float32(scalar) if has_bfloat16 else evaluate([scalar])[0]
    return full(operands[0].shape, value.item(), scalar.dtype)


def _folded_in_float32(scalar: Node) -> Array:
    """The value of an operation on constants, some of bfloat16: that on float32, rounded, as
    ml_dtypes has it. To import that takes 0.6 s, and compiling needs no more of it."""
    if scalar.op is Op.BITCAST:
        return _bits(scalar)
    src = tuple(
        const(_rounded_to_bfloat16(one.arg.value).item(), dtypes.float32)
        if one.dtype is dtypes.bfloat16 else one
        for one in scalar.src
    )  # fmt: skip
    if scalar.dtype is not dtypes.bfloat16:
        return evaluate([Node(scalar.op, src, scalar.arg)])[0]
    is_cast = scalar.op is Op.CAST  # of float64, which is rounded once
    arg = (src[0].dtype if src[0].dtype.is_float else dtypes.float32) if is_cast else scalar.arg
    return _rounded_to_bfloat16(evaluate([Node(scalar.op, src, arg)])[0].item())


def _bits(bitcast: Node) -> Array:
    """The bits of a constant, one of the types being bfloat16: the upper 16 of float32."""
    (constant,) = bitcast.src
    if bitcast.dtype is dtypes.bfloat16:
        bits = np.array(constant.arg.value, constant.dtype.numpy).view(np.uint16)
        return (bits.astype(np.uint32) << 16).view(np.float32)
    bits = _rounded_to_bfloat16(constant.arg.value).view(np.uint32) >> 16
    return bits.astype(np.uint16).view(bitcast.dtype.numpy)


def _rounded_to_bfloat16(number: float) -> Array:
    """The nearest number of bfloat16, in float32, of which it has the upper 16 bits; of two, the
    even one. Where a float64 is between two numbers of float32, that whose last bit is 1 stands for
    it, as it is between the same numbers of bfloat16. Then half of the lowest bit that is kept is
    added, and a carry may lead to the next exponent."""
    with np.errstate(over="ignore"):
        near = np.array(number, np.float32)
    if math.isnan(near):
        return near
    is_even = not near.view(np.uint32) & 1
    if is_even and math.isfinite(near) and float(near) != number:
        near = np.nextafter(near, np.float32(math.copysign(math.inf, number - float(near))))
    bits = np.asarray(near).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)

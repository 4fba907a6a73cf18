"""Dtype and shape of a node from its operands and argument: one row an operation.

A row raises ShapeError or DTypeError for operands that do not fit. The front reports friendlier
errors of its own; these are the compiler's last word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lamina.dtypes import DType, bool_, complex_of, int64, real_of
from lamina.errors import AxisError, DTypeError, ShapeError
from lamina.ir.ops import Group, Op
from lamina.shape import Shape, prod

if TYPE_CHECKING:
    from lamina.ir.node import Node

Inferred = tuple[DType, Shape]
Row = Callable[[tuple["Node", ...], Any], Inferred]

_FLOAT = ("float",)
_INTEGER = ("int", "uint")
_REAL = (*_INTEGER, "float")
_NUMBER = (*_REAL, "complex")
_BITS = ("bool", *_INTEGER)
_ORDERED = ("bool", *_REAL)
_ANY = ("bool", *_NUMBER)

# The kinds of dtype each elementwise operation takes.
KINDS: dict[Op, tuple[str, ...]] = {
    Op.NEG: _NUMBER, Op.NOT: _BITS, Op.TRUNC: _FLOAT, Op.ADD: _NUMBER, Op.MUL: _NUMBER,
    Op.DIV: ("float", "complex"), Op.IDIV: _INTEGER, Op.MOD: _REAL, Op.POW: _REAL,
    Op.MAX: _ORDERED, Op.MIN: _ORDERED, Op.LT: _ORDERED, Op.EQ: _ANY, Op.AND: _BITS, Op.OR: _BITS,
    Op.XOR: _BITS, Op.SHL: _INTEGER, Op.SHR: _INTEGER, Op.WHERE: _ANY, Op.COMPLEX: _FLOAT,
    Op.CAST: _ANY, Op.BITCAST: _ANY, Op.REAL: ("complex",), Op.IMAG: ("complex",),
} | dict.fromkeys(Group.TRANSCENDENTAL, _FLOAT)  # fmt: skip


# The dtype of a result that has not the operands' own.
_RESULT: dict[Op, Callable[[DType], DType]] = {
    Op.LT: lambda dtype: bool_, Op.EQ: lambda dtype: bool_, Op.REAL: real_of, Op.IMAG: real_of,
    Op.COMPLEX: complex_of,
}  # fmt: skip


def _elementwise(op: Op) -> Row:
    name, kinds, result = op.name.lower(), KINDS[op], _RESULT.get(op)

    def infer(src: tuple[Node, ...], arg: Any) -> Inferred:
        dtype, shape = src[0].dtype, src[0].shape
        for other in src[1:]:
            if other.shape != shape:
                raise ShapeError(f"{name}: shapes {shape} and {other.shape} differ")
            if other.dtype is not dtype:
                raise DTypeError(f"{name}: dtypes {dtype.name} and {other.dtype.name} differ")
        if dtype.kind not in kinds:
            raise DTypeError(f"{name}: {dtype.name} is not one of {', '.join(kinds)}")
        return (dtype if result is None else result(dtype)), shape

    return infer


def _where(src: tuple[Node, ...], arg: Any) -> Inferred:
    condition, yes, no = src
    if condition.dtype is not bool_:
        raise DTypeError(f"where: the condition is {condition.dtype.name}, not bool")
    if condition.shape != yes.shape:
        raise ShapeError(f"where: shapes {condition.shape} and {yes.shape} differ")
    return _elementwise(Op.WHERE)((yes, no), arg)


def _bitcast(src: tuple[Node, ...], arg: DType) -> Inferred:
    if src[0].dtype.itemsize != arg.itemsize:
        raise DTypeError(f"bitcast: {src[0].dtype.name} and {arg.name} differ in size")
    return arg, src[0].shape


def _reduce(src: tuple[Node, ...], arg: Any) -> Inferred:
    shape = src[0].shape
    if any(operand.shape != shape for operand in src):
        raise ShapeError(f"reduce: components differ in shape: {[one.shape for one in src]}")
    if len(src) != arg.monoid.arity:
        raise ShapeError(f"reduce: {arg.monoid.name} has {arg.monoid.arity} components")
    if any(not 0 <= axis < len(shape) for axis in arg.axes) or not arg.axes:
        raise AxisError(f"reduce: axes {arg.axes} of shape {shape}")
    kept = tuple(size for axis, size in enumerate(shape) if axis not in arg.axes)
    return src[arg.part].dtype, kept


def _scan(src: tuple[Node, ...], arg: Any) -> Inferred:
    return _reduce(src, arg)[0], src[0].shape


def _reshape(src: tuple[Node, ...], arg: Shape) -> Inferred:
    if prod(src[0].shape) != prod(arg):
        counts = f"{src[0].shape} has {prod(src[0].shape)} elements, {arg} has {prod(arg)}"
        raise ShapeError(f"reshape: {counts}")
    return src[0].dtype, arg


def _expand(src: tuple[Node, ...], arg: Shape) -> Inferred:
    shape = src[0].shape
    kept = arg[len(arg) - len(shape) :]
    if len(kept) != len(shape) or any(a not in (b, 1) for a, b in zip(shape, kept, strict=True)):
        raise ShapeError(f"expand: {shape} does not broadcast to {arg}")
    return src[0].dtype, arg


def _permute(src: tuple[Node, ...], arg: tuple[int, ...]) -> Inferred:
    shape = src[0].shape
    if sorted(arg) != list(range(len(shape))):
        raise AxisError(f"permute: {arg} is not an order of the axes of {shape}")
    return src[0].dtype, tuple(shape[axis] for axis in arg)


def _pad(src: tuple[Node, ...], arg: Any) -> Inferred:
    shape, before, after = src[0].shape, arg.before, arg.after
    if not len(shape) == len(before) == len(after) or min(before + after, default=0) < 0:
        raise ShapeError(f"pad: {before} and {after} do not fit {shape}")
    return src[0].dtype, tuple(map(sum, zip(before, shape, after, strict=True)))


def _shrink(src: tuple[Node, ...], arg: Any) -> Inferred:
    shape = src[0].shape
    if not len(shape) == len(arg.start) == len(arg.stop) == len(arg.step):
        raise ShapeError(f"shrink: {arg} does not fit {shape}")
    sizes = []
    for size, start, stop, step in zip(shape, arg.start, arg.stop, arg.step, strict=True):
        if not (0 <= start <= stop <= size and step >= 1):
            raise ShapeError(f"shrink: {start}:{stop}:{step} does not fit {shape}")
        sizes.append(-(-(stop - start) // step))
    return src[0].dtype, tuple(sizes)


def _flip(src: tuple[Node, ...], arg: tuple[int, ...]) -> Inferred:
    if any(not 0 <= axis < len(src[0].shape) for axis in arg):
        raise AxisError(f"flip: axes {arg} of shape {src[0].shape}")
    return _same(src, arg)


def _shear(src: tuple[Node, ...], arg: Any) -> Inferred:
    shape = list(src[0].shape)
    if not (0 <= arg.axis < len(shape) and 0 <= arg.by < len(shape)) or arg.axis == arg.by:
        raise AxisError(f"shear: axes {arg.axis} and {arg.by} of shape {tuple(shape)}")
    shape[arg.axis] += max(shape[arg.by] - 1, 0) * abs(arg.step)
    return src[0].dtype, tuple(shape)


def _check_index(what: str, data: Node, index: Node, axis: int) -> None:
    if index.dtype.kind not in _INTEGER:
        raise DTypeError(f"{what}: the index is {index.dtype.name}, not an integer")
    if not 0 <= axis < len(data.shape):
        raise AxisError(f"{what}: axis {axis} of shape {data.shape}")
    here, there = list(data.shape), list(index.shape)
    if len(here) == len(there):
        here[axis] = there[axis]
    if here != there:
        raise ShapeError(f"{what}: {index.shape} does not match {data.shape} beside axis {axis}")


def _gather(src: tuple[Node, ...], arg: int) -> Inferred:
    _check_index("gather", src[0], src[1], arg)
    return src[0].dtype, src[1].shape


def _scatter(src: tuple[Node, ...], arg: Any) -> Inferred:
    base, index, update = src
    _check_index("scatter", base, index, arg.axis)
    if index.shape != update.shape:
        raise ShapeError(f"scatter: shapes {index.shape} and {update.shape} differ")
    if base.dtype is not update.dtype:
        raise DTypeError(f"scatter: dtypes {base.dtype.name} and {update.dtype.name} differ")
    return base.dtype, base.shape


def _argsort(src: tuple[Node, ...], arg: Any) -> Inferred:
    if not src[0].shape or src[0].dtype.kind not in _ORDERED:
        raise DTypeError(f"argsort: {src[0].dtype.name} of shape {src[0].shape}")
    return int64, src[0].shape


def _assign(src: tuple[Node, ...], arg: Any) -> Inferred:
    target, value = src
    if target.op is not Op.BUFFER:
        raise ShapeError("assign: the target is not a buffer")
    if (target.shape, target.dtype) != (value.shape, value.dtype):
        raise ShapeError(f"assign: {target} and {value} differ in shape or dtype")
    return value.dtype, value.shape


def _same(src: tuple[Node, ...], arg: Any) -> Inferred:
    return src[0].dtype, src[0].shape


INFER: dict[Op, Row] = {op: _elementwise(op) for op in Group.ELEMENTWISE} | {
    Op.BUFFER: lambda src, arg: (arg.dtype, arg.shape),
    Op.IOTA: lambda src, arg: (arg.dtype, (arg.size,)),
    Op.CAST: lambda src, arg: (arg, src[0].shape),
    Op.BITCAST: _bitcast, Op.WHERE: _where, Op.REDUCE: _reduce, Op.SCAN: _scan,
    Op.RESHAPE: _reshape, Op.EXPAND: _expand, Op.PERMUTE: _permute, Op.PAD: _pad,
    Op.SHRINK: _shrink, Op.FLIP: _flip, Op.SHEAR: _shear, Op.GATHER: _gather,
    Op.SCATTER: _scatter, Op.ARGSORT: _argsort, Op.ASSIGN: _assign,
}  # fmt: skip
INFER |= dict.fromkeys((Op.CONST, Op.HOLE, Op.LOAD), lambda src, arg: (arg.dtype, ()))
INFER |= dict.fromkeys((Op.VARIABLE, Op.AXIS, Op.AFFINE), lambda src, arg: (int64, ()))
INFER |= dict.fromkeys((Op.FOLD, Op.PREFIX), lambda src, arg: (src[arg.part].dtype, ()))
INFER |= dict.fromkeys((Op.COPY, Op.CONTIGUOUS, Op.DETACH), _same)

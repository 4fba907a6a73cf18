"""Dtype and shape of a node from its operands and argument: one row an operation.

A row raises ShapeError or DTypeError for operands that do not fit. The front reports friendlier
errors of its own; these are the compiler's last word.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lamina.core.dtypes import DType, bool_, complex_of, int64, real_of
from lamina.core.shape import Shape, prod
from lamina.errors import AxisError, DTypeError, LaminaError, ShapeError
from lamina.ir.ops import Group, Kinds, Op

if TYPE_CHECKING:
    from lamina.ir.node import Node

Inferred = tuple[DType, Shape]
Operands = tuple["Node", ...]
Row = Callable[[Operands, Any], Inferred]

# The dtype of a result that has not the operands' own.
_RESULT: dict[Op, Callable[[DType], DType]] = {
    Op.LT: lambda dtype: bool_, Op.EQ: lambda dtype: bool_, Op.REAL: real_of, Op.IMAG: real_of,
    Op.COMPLEX: complex_of,
}  # fmt: skip


def _elementwise(op: Op) -> Row:
    kinds, result = op.value.kinds or Kinds.ANY, _RESULT.get(op)

    def infer(src: Operands, arg: Any) -> Inferred:
        dtype, shape = src[0].dtype, src[0].shape
        for other in src[1:]:
            if other.shape != shape or other.dtype is not dtype:
                _need(other.shape == shape, op, src, "shapes differ")
                _need(other.dtype is dtype, op, src, "dtypes differ", DTypeError)
        if dtype.kind not in kinds:
            _need(False, op, src, f"not one of {', '.join(kinds)}", DTypeError)
        return (dtype if result is None else result(dtype)), shape

    return infer


_chosen, _assigned = _elementwise(Op.WHERE), _elementwise(Op.ASSIGN)


def _need(
    fits: object, op: Op, src: Operands, why: Any, error: type[LaminaError] = ShapeError
) -> None:
    if not fits:
        operands = " and ".join(f"{one.dtype.name} {one.shape}" for one in src)
        raise error(f"{op.name.lower()}: {operands} do not fit{'' if why is None else f': {why}'}")


def _where(src: Operands, arg: Any) -> Inferred:
    _need(src[0].dtype is bool_, Op.WHERE, src, "the condition is no bool", DTypeError)
    _need(src[0].shape == src[1].shape, Op.WHERE, src, arg)
    return _chosen(src[1:], arg)


def _bitcast(src: Operands, arg: Any) -> Inferred:
    _need(src[0].dtype.itemsize == arg.itemsize, Op.BITCAST, src, arg, DTypeError)
    return arg, src[0].shape


def _reduce(src: Operands, arg: Any) -> Inferred:
    # What combines two elements has to be an operation of the dtype.
    (_, shape), axes = INFER.get(arg.monoid.op, _chosen)(src[:1] * 2, arg), arg.axes
    _need([one.shape for one in src] == [shape] * arg.monoid.arity, Op.REDUCE, src, arg)
    in_order = [axis for axis in range(len(shape)) if axis in axes]
    _need(axes and [*axes] == in_order, Op.REDUCE, src, arg, AxisError)
    return src[arg.part].dtype, tuple(n for axis, n in enumerate(shape) if axis not in axes)


def _reshape(src: Operands, arg: Any) -> Inferred:
    _need(prod(src[0].shape) == prod(arg), Op.RESHAPE, src, arg)
    return src[0].dtype, arg


def _expand(src: Operands, arg: Any) -> Inferred:
    if shape := src[0].shape:
        kept = arg[len(arg) - len(shape) :]
        _need(len(kept) == len(shape), Op.EXPAND, src, arg)
        _need(all(a in (1, b) for a, b in zip(shape, kept, strict=True)), Op.EXPAND, src, arg)
    _need(min(arg, default=0) >= 0, Op.EXPAND, src, f"{arg} has a negative size")
    return src[0].dtype, arg


def _permute(src: Operands, arg: Any) -> Inferred:
    shape = src[0].shape
    _need(sorted(arg) == list(range(len(shape))), Op.PERMUTE, src, arg, AxisError)
    return src[0].dtype, tuple(shape[axis] for axis in arg)


def _pad(src: Operands, arg: Any) -> Inferred:
    shape, (before, after, _) = src[0].shape, arg
    fits = len(shape) == len(before) == len(after) and min(before + after, default=0) >= 0
    _need(fits, Op.PAD, src, arg)
    return src[0].dtype, tuple(map(sum, zip(before, shape, after, strict=True)))


def _shrink(src: Operands, arg: Any) -> Inferred:
    _need(len(arg) == len(src[0].shape), Op.SHRINK, src, arg)
    for size, one in zip(src[0].shape, arg, strict=True):
        _need(all(0 <= at < size for at in (*one[:1], *one[-1:])), Op.SHRINK, src, one)
    return src[0].dtype, tuple(map(len, arg))


def _shear(src: Operands, arg: Any) -> Inferred:
    shape, (axis, by, step) = list(src[0].shape), arg
    fits = axis != by and 0 <= axis < len(shape) and 0 <= by < len(shape)
    _need(fits, Op.SHEAR, src, arg, AxisError)
    shape[axis] += max(shape[by] - 1, 0) * abs(step)
    return src[0].dtype, tuple(shape)


def _gather(src: Operands, axis: Any) -> Inferred:
    data, index = list(src[0].shape), src[1].shape
    _need(src[1].dtype.is_int, Op.GATHER, src, "the index is no integer", DTypeError)
    _need(0 <= axis < len(data) == len(index), Op.GATHER, src, f"axis {axis}", AxisError)
    data[axis] = index[axis]
    _need(data == list(index), Op.GATHER, src, f"axis {axis}")
    return src[0].dtype, index


def _scatter(src: Operands, arg: Any) -> Inferred:
    base, index, update = src
    _gather(src[:2], arg.axis)
    _need(index.shape == update.shape, Op.SCATTER, src, arg)
    _need(base.dtype is update.dtype, Op.SCATTER, src, arg, DTypeError)
    return INFER.get(arg.monoid and arg.monoid.op, _chosen)((base, base), arg)


def _argsort(src: Operands, arg: Any) -> Inferred:
    _need(src[0].shape and src[0].dtype.kind in Op.LT.value.kinds, Op.ARGSORT, src, arg, DTypeError)
    return int64, src[0].shape


def _assign(src: Operands, arg: Any) -> Inferred:
    _need(src[0].op is Op.BUFFER, Op.ASSIGN, src, "the target is no buffer")
    return _assigned(src, arg)


INFER: dict[Op, Row] = {op: _elementwise(op) for op in Group.ELEMENTWISE | Group.EFFECT} | {
    **dict.fromkeys((Op.BUFFER, Op.CALL), lambda src, arg: (arg.dtype, arg.shape)),
    Op.IOTA: lambda src, arg: (arg.dtype, (arg.size,)),
    Op.CAST: lambda src, arg: (arg, src[0].shape),
    Op.SCAN: lambda src, arg: (_reduce(src, arg)[0], src[0].shape),
    Op.BITCAST: _bitcast, Op.WHERE: _where, Op.REDUCE: _reduce, Op.RESHAPE: _reshape,
    Op.EXPAND: _expand, Op.PERMUTE: _permute, Op.PAD: _pad, Op.SHRINK: _shrink,
    Op.SHEAR: _shear, Op.GATHER: _gather, Op.SCATTER: _scatter, Op.ARGSORT: _argsort,
    Op.ASSIGN: _assign,
    **dict.fromkeys((Op.CONST, Op.HOLE, Op.LOAD), lambda src, arg: (arg.dtype, ())),
    **dict.fromkeys((Op.AXIS, Op.AFFINE), lambda src, arg: (int64, ())),
    **dict.fromkeys((Op.LOOP_REDUCE, Op.LOOP_SCAN), lambda src, arg: (src[arg.part].dtype, ())),
}  # fmt: skip

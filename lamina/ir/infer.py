"""Dtype and shape of a node from its operands and argument: one row an operation.

A row raises ShapeError, DTypeError or AxisError for operands that do not fit, such as

    add: float32 (3, 4) and float32 (4, 3) do not fit: shapes differ

The functions that users call report friendlier errors first; these are the compiler's last word.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lamina.core.dtypes import DType, bool_, complex_of, float32, int32, int64, real_of
from lamina.core.shape import Shape, prod
from lamina.errors import AxisError, DTypeError, LaminaError, ShapeError
from lamina.ir.ops import Group, Kinds, Op

if TYPE_CHECKING:
    from lamina.ir.node import Node

Inferred = tuple[DType, Shape]
Operands = tuple["Node", ...]
Infer = Callable[[Operands, Any], Inferred]

# Elementwise operations whose result has another dtype than the operands, and which one.
_RESULT: dict[Op, Callable[[DType], DType]] = {
    Op.LT: lambda dtype: bool_,
    Op.EQ: lambda dtype: bool_,
    Op.REAL: real_of,
    Op.IMAG: real_of,
    Op.COMPLEX: complex_of,
}


def _elementwise(op: Op) -> Infer:
    """The row of an operation on operands of one shape and dtype."""
    kinds, result = op.value.kinds or Kinds.ANY, _RESULT.get(op)

    def infer(src: Operands, arg: Any) -> Inferred:
        dtype, shape = src[0].dtype, src[0].shape
        for other in src[1:]:
            if other.shape != shape or other.dtype is not dtype:  # no call where all is well
                _need(other.shape == shape, op, src, "shapes differ")
                _need(other.dtype is dtype, op, src, "dtypes differ", error=DTypeError)
        if dtype.kind not in kinds:
            _need(False, op, src, "the dtype is not one of {}", ", ".join(kinds), error=DTypeError)
        return (dtype if result is None else result(dtype)), shape

    return infer


_alike = _elementwise(Op.WHERE)  # operands of any dtype, and a result of the same
_assigned = _elementwise(Op.ASSIGN)


def _need(
    fits: object, op: Op, src: Operands, why: str, *about: object,
    error: type[LaminaError] = ShapeError,
) -> None:  # fmt: skip
    """Raise `error`, naming the operands and `why` they do not fit, unless they do. What `why` is
    `about` stands in the place of each {} of it: no text is made where all is well."""
    if fits:
        return
    operands = " and ".join(f"{operand.dtype.name} {operand.shape}" for operand in src)
    raise error(f"{operands} do not fit: {why.format(*about)}", operation=op.name.lower())


def _where(src: Operands, arg: Any) -> Inferred:
    condition, *choices = src
    _need(condition.dtype is bool_, Op.WHERE, src, "the condition is no bool", error=DTypeError)
    same_shape = condition.shape == choices[0].shape
    _need(same_shape, Op.WHERE, src, "the condition has another shape than the choices")
    return _alike(src[1:], arg)


def _bitcast(src: Operands, arg: Any) -> Inferred:
    same_size = src[0].dtype.itemsize == arg.itemsize
    _need(same_size, Op.BITCAST, src, "{} has elements of another size", arg, error=DTypeError)
    return arg, src[0].shape


def _reduce(src: Operands, arg: Any) -> Inferred:
    # The operation that combines two elements has to take their dtype.
    combine = INFER.get(arg.monoid.op, _alike)
    _, shape = combine((src[0], src[0]), arg)
    arity = arg.monoid.arity
    same_shapes = [operand.shape for operand in src] == [shape] * arity
    _need(same_shapes, Op.REDUCE, src, "{} combines {} of one shape", arg.monoid.name, arity)
    in_order = tuple(axis for axis in range(len(shape)) if axis in arg.axes)
    are_axes = arg.axes and arg.axes == in_order
    _need(are_axes, Op.REDUCE, src, "{} are not some axes in order", arg.axes, error=AxisError)
    remaining = tuple(size for axis, size in enumerate(shape) if axis not in arg.axes)
    return src[arg.component].dtype, remaining


def _reshape(src: Operands, arg: Any) -> Inferred:
    same_count = prod(src[0].shape) == prod(arg)
    _need(same_count, Op.RESHAPE, src, "{} has another number of elements", arg)
    return src[0].dtype, arg


def _expand(src: Operands, arg: Any) -> Inferred:
    if shape := src[0].shape:
        last = arg[len(arg) - len(shape) :]  # the axes that the operand has as well
        _need(len(last) == len(shape), Op.EXPAND, src, "{} has fewer axes", arg)
        fits = all(old in (1, new) for old, new in zip(shape, last, strict=True))
        _need(fits, Op.EXPAND, src, "{} has another size along an axis that is not 1", arg)
    _need(min(arg, default=0) >= 0, Op.EXPAND, src, "{} has a negative size", arg)
    return src[0].dtype, arg


def _permute(src: Operands, arg: Any) -> Inferred:
    shape = src[0].shape
    has_each_axis = sorted(arg) == list(range(len(shape)))
    _need(has_each_axis, Op.PERMUTE, src, "{} is no order of all axes", arg, error=AxisError)
    return src[0].dtype, tuple(shape[axis] for axis in arg)


def _pad(src: Operands, arg: Any) -> Inferred:
    shape, before, after = src[0].shape, arg.before, arg.after
    fits = len(shape) == len(before) == len(after) and min(before + after, default=0) >= 0
    _need(fits, Op.PAD, src, "{} and {} are no sizes, one for each axis", before, after)
    return src[0].dtype, tuple(map(sum, zip(before, shape, after, strict=True)))


def _shrink(src: Operands, arg: Any) -> Inferred:
    _need(len(arg) == len(src[0].shape), Op.SHRINK, src, "{} has no range for each axis", arg)
    for size, elements in zip(src[0].shape, arg, strict=True):
        if elements:
            inside = 0 <= elements[0] < size and 0 <= elements[-1] < size
            _need(inside, Op.SHRINK, src, "{} is not within an axis of {}", elements, size)
    return src[0].dtype, tuple(map(len, arg))


def _shear(src: Operands, arg: Any) -> Inferred:
    axis, by, step = arg
    shape = list(src[0].shape)
    fits = axis != by and 0 <= axis < len(shape) and 0 <= by < len(shape)
    _need(fits, Op.SHEAR, src, "{} and {} are not two of the axes", axis, by, error=AxisError)
    shape[axis] += max(shape[by] - 1, 0) * abs(step)
    return src[0].dtype, tuple(shape)


def _gather(src: Operands, axis: Any) -> Inferred:
    data, index = src
    _need(index.dtype.is_int, Op.GATHER, src, "the index is no integer", error=DTypeError)
    fits = 0 <= axis < len(data.shape) == len(index.shape)
    _need(fits, Op.GATHER, src, "both have no axis {}", axis, error=AxisError)
    gathered = (*data.shape[:axis], index.shape[axis], *data.shape[axis + 1 :])
    _need(gathered == index.shape, Op.GATHER, src, "sizes differ along other axes than {}", axis)
    return data.dtype, index.shape


def _scatter(src: Operands, arg: Any) -> Inferred:
    base, index, update = src
    _gather((base, index), arg.axis)
    same_shape, same_dtype = index.shape == update.shape, base.dtype is update.dtype
    _need(same_shape, Op.SCATTER, src, "the index and the update have other shapes")
    _need(same_dtype, Op.SCATTER, src, "the update has another dtype", error=DTypeError)
    combine = INFER.get(arg.monoid and arg.monoid.op, _alike)
    return combine((base, base), arg)


def _argsort(src: Operands, arg: Any) -> Inferred:
    (keys,) = src
    has_order = keys.dtype.kind in Op.LT.value.kinds
    _need(has_order, Op.ARGSORT, src, "keys of this dtype have no order", error=DTypeError)
    axis, first, last = arg.axis, arg.first, arg.last
    has_axis = 0 <= axis < len(keys.shape)
    _need(has_axis, Op.ARGSORT, src, "there is no axis {}", axis, error=AxisError)
    has_ranks = 0 <= first <= last <= keys.shape[axis]
    _need(has_ranks, Op.ARGSORT, src, "there are no ranks {} to {}", first, last)
    return int64, (*keys.shape[:axis], last - first, *keys.shape[axis + 1 :])


def _bin_sum(src: Operands, arg: Any) -> Inferred:
    base, places, updates = src
    _need(places.dtype is int32, Op.BIN_SUM, src, "the places are no int32", error=DTypeError)
    dtypes_fit = base.dtype is updates.dtype is float32
    _need(dtypes_fit, Op.BIN_SUM, src, "a sum is of float32", error=DTypeError)
    fits = places.shape == updates.shape
    _need(fits, Op.BIN_SUM, src, "the places and the updates have other shapes")
    _need(arg > 0, Op.BIN_SUM, src, "there are {} bins", arg)
    return base.dtype, base.shape


def _combined(src: Operands, arg: Any) -> Inferred:
    """The type of a result of a monoid over ranks."""
    combine = INFER.get(arg.monoid.op, _alike)
    return combine((src[0], src[0]), arg)


def _all_gather(src: Operands, arg: Any) -> Inferred:
    return src[0].dtype, (arg.ranks, *src[0].shape)


def _reduce_scatter(src: Operands, arg: Any) -> Inferred:
    _need_one_for_each_rank(Op.REDUCE_SCATTER, src, arg)
    dtype, shape = _combined(src, arg)
    return dtype, shape[1:]


def _all_to_all(src: Operands, arg: Any) -> Inferred:
    _need_one_for_each_rank(Op.ALL_TO_ALL, src, arg)
    return src[0].dtype, src[0].shape


def _need_one_for_each_rank(op: Op, src: Operands, arg: Any) -> None:
    fits = src[0].shape[:1] == (arg.ranks,)
    _need(fits, op, src, "the first axis has no element for each of {} ranks", arg.ranks)


def _broadcast(src: Operands, arg: Any) -> Inferred:
    has_root = 0 <= arg.root < arg.ranks
    _need(has_root, Op.BROADCAST, src, "there is no rank {} of {}", arg.root, arg.ranks)
    return src[0].dtype, src[0].shape


def _collective_permute(src: Operands, arg: Any) -> Inferred:
    receiving = [target for target in arg.targets if target != -1]
    is_one_to_one = len(receiving) == len(set(receiving))
    inside = all(0 <= target < arg.ranks for target in receiving)
    fits = len(arg.targets) == arg.ranks and is_one_to_one and inside
    why = "{} are no targets of {} ranks"
    _need(fits, Op.COLLECTIVE_PERMUTE, src, why, arg.targets, arg.ranks)
    return src[0].dtype, src[0].shape


def _assign(src: Operands, arg: Any) -> Inferred:
    _need(src[0].op is Op.BUFFER, Op.ASSIGN, src, "the target is no buffer")
    return _assigned(src, arg)


INFER: dict[Op, Infer] = {op: _elementwise(op) for op in Group.ELEMENTWISE | Group.EFFECT} | {
    **dict.fromkeys((Op.BUFFER, Op.CALL), lambda src, arg: (arg.dtype, arg.shape)),
    Op.IOTA: lambda src, arg: (arg.dtype, (arg.size,)),
    Op.RECOMPUTED: lambda src, arg: (src[0].dtype, src[0].shape),
    Op.CAST: lambda src, arg: (arg, src[0].shape),
    Op.SCAN: lambda src, arg: (_reduce(src, arg)[0], src[0].shape),
    Op.BITCAST: _bitcast, Op.WHERE: _where, Op.REDUCE: _reduce, Op.RESHAPE: _reshape,
    Op.EXPAND: _expand, Op.PERMUTE: _permute, Op.PAD: _pad, Op.SHRINK: _shrink,
    Op.SHEAR: _shear, Op.GATHER: _gather, Op.SCATTER: _scatter, Op.ARGSORT: _argsort,
    Op.BIN_SUM: _bin_sum,
    Op.ASSIGN: _assign, Op.ALL_REDUCE: _combined, Op.ALL_GATHER: _all_gather,
    Op.REDUCE_SCATTER: _reduce_scatter, Op.BROADCAST: _broadcast, Op.ALL_TO_ALL: _all_to_all,
    Op.COLLECTIVE_PERMUTE: _collective_permute,
    **dict.fromkeys((Op.CONST, Op.HOLE, Op.LOAD), lambda src, arg: (arg.dtype, ())),
    **dict.fromkeys((Op.AXIS, Op.AFFINE), lambda src, arg: (int64, ())),
    **dict.fromkeys(
        (Op.LOOP_REDUCE, Op.LOOP_SCAN), lambda src, arg: (src[arg.component].dtype, ())
    ),
}  # fmt: skip

"""What users may pass and no graph holds: mixed dtypes, shapes to broadcast, axes from behind."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from lamina.core import dtypes
from lamina.core.dtypes import DType, Scalar
from lamina.core.recent import memoized
from lamina.core.shape import Shape
from lamina.errors import ArgumentError, AxisError, DTypeError, ShapeError

Axis = int | Sequence[int] | None


def integer(
    what: str, value: SupportsIndex, minimum: float = float("-inf"), argument: str = ""
) -> int:
    """`value` as an int; raises DTypeError, naming the operation `what` and its `argument`, when it
    is none, and ArgumentError when it is below `minimum`."""
    name = f"{argument}: " if argument else ""
    try:
        number = operator.index(value)
    except TypeError:
        raise DTypeError(f"{name}{value!r} is no integer", operation=what) from None
    if number < minimum:
        raise ArgumentError(f"{name}{number} is less than {minimum}", operation=what)
    return number


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer, of Python, NumPy or another library, or an array of shape ();
    arrays with axes are none, though they have the method of integers too."""
    return isinstance(value, SupportsIndex) and not getattr(value, "shape", ())


def sizes_of(what: str, *shape: Any, signed: bool = False, argument: str = "") -> Shape:
    """Sizes, one by one or as one sequence, as a shape; raises DTypeError, naming the `argument` of
    the operation `what`, and ShapeError for a negative size unless they are `signed`."""
    items = shape[0] if len(shape) == 1 and hasattr(shape[0], "__iter__") else shape
    sizes = tuple(integer(what, size, argument=argument) for size in items)
    if not signed and any(size < 0 for size in sizes):
        raise ShapeError(f"{sizes} has a negative size", operation=what)
    return sizes


@memoized(4096)
def broadcast_shapes(what: str, *shapes: Shape, about: str = "") -> Shape:
    """The common shape of `shapes` under NumPy's rule; raises ShapeError, which says what the
    shapes are `about`, when there is none."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = size
            elif size not in (1, result[axis]):
                listed = " and ".join(map(str, shapes))
                differ = f"sizes {result[axis]} and {size} differ at axis {axis - rank}"
                place = f"{about}: " if about else ""
                raise ShapeError(f"{place}{listed} do not broadcast: {differ}", operation=what)
    return tuple(result)


def normalize_axis(what: str, axis: int, rank: int) -> int:
    """`axis` counted from the front; raises AxisError when there is no such axis."""
    axis = integer(what, axis)
    if not -rank <= axis < rank:
        raise AxisError(f"axis {axis} is out of range for an array of rank {rank}", operation=what)
    return axis % rank


def line_axis(what: str, axis: int, rank: int) -> int:
    """`normalize_axis` for functions of lines: an array of rank 0 is a line of one element, whose
    axis is 0 or -1, as in PyTorch."""
    if rank == 0 and integer(what, axis) in (0, -1):
        return 0
    return normalize_axis(what, axis, rank)


def normalize_axes(what: str, axis: int | Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """`axis` (an int, several, or None for all) as different axes counted from the front."""
    if axis is None:
        return tuple(range(rank))
    numbers = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    axes = tuple(normalize_axis(what, number, rank) for number in numbers)
    if len(set(axes)) != len(axes):
        raise AxisError(f"axes {numbers} name one axis twice", operation=what)
    return axes


_PYTHON = {bool: dtypes.bool_, int: dtypes.default_int, float: dtypes.default_float,
           complex: dtypes.default_complex}  # fmt: skip


def as_dtype(dtype: Any) -> DType:
    """A DType from itself, its name, a Python type, or a dtype of NumPy or PyTorch."""
    known = find_dtype(dtype)
    if known is None:
        raise DTypeError(f"{dtype!r} is not a dtype lamina has: {', '.join(dtypes.BY_NAME)}")
    return known


def find_dtype(dtype: Any) -> DType | None:
    """`as_dtype`, or None for what is no dtype."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    name = getattr(dtype, "name", getattr(dtype, "__name__", str(dtype)))
    return dtypes.BY_NAME.get(name.removeprefix("torch."))


_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def promote(what: str, a: DType, b: DType) -> DType:
    """The dtype of an operation on `a` and `b`: the standard's tables, and where these leave it
    open, the higher kind as in PyTorch (bool < integer < float < complex).

    Raises DTypeError for float8 and for uint64 with a signed integer.
    """
    if a is b:
        return a
    if a in dtypes.STORAGE_ONLY or b in dtypes.STORAGE_ONLY:
        raise DTypeError(
            f"{a.name} and {b.name}: float8 is for storage; cast it first", operation=what
        )
    low, high = sorted((a, b), key=lambda dtype: (_RANK[dtype.kind], dtype.bits))
    if _RANK[low.kind] < _RANK[high.kind]:
        return dtypes.complex_of(low) if high is dtypes.complex64 else high
    if low.kind == high.kind:
        return high if low.bits < high.bits else dtypes.float32  # float16 and bfloat16
    bits = max(dtype.bits if dtype.kind == "int" else 2 * dtype.bits for dtype in (a, b))
    if bits > 64:
        raise DTypeError(
            f"{a.name} and {b.name} have no common integer dtype; cast one", operation=what
        )
    return dtypes.BY_NAME[f"int{bits}"]


def fitting(what: str, scalar: Scalar, dtype: DType) -> Scalar:
    """`scalar`; raises DTypeError when `dtype` has integers, but none as great or as small."""
    if dtype.is_int and not dtype.min <= scalar <= dtype.max:  # type: ignore[operator]
        shown = "a number" if 1 << 99 < abs(scalar) < float("inf") else scalar  # not all have text
        raise DTypeError(
            f"{shown} is beyond {dtype.name}; cast the array to a wider one", operation=what
        )
    return scalar


def weak(scalar: Scalar, dtype: DType) -> DType:
    """The dtype of an array of `dtype` with a Python scalar: the array's, unless the scalar is of
    a higher kind."""
    default = next(kind for python, kind in _PYTHON.items() if isinstance(scalar, python))
    default = dtypes.complex_of(dtype) if default.is_complex else default
    return dtype if _RANK[default.kind] <= _RANK[dtype.kind] else default

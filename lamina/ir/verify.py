"""The verifier of the graph dialect. Its invariants, in the order they are checked:

1.  An operation is an `Op` of the graph dialect: no AXIS, AFFINE or LOAD, and no HOLE, which
    lives only inside a monoid's combine.
2.  The operands are a tuple of nodes, as many as the operation takes.
3.  The argument is of the type the operation names in `lamina.ir.ops`, None where it names none.
    Integers are Python's own, never bools or another library's; sizes are not negative; several
    axes are a tuple, sorted, each once.
4.  A constant, and the value of a PAD, is a Python scalar of its dtype's own kind and within its
    range: float for floats (infinities and NaN included), never an int in its place.
5.  A reduction's monoid has as many components as there are operands, takes their dtypes, and has
    the part that is asked for. SCAN runs along one axis. SCATTER's monoid has one component.
6.  Dtype and shape are what the op table infers from operands and argument.
7.  An ASSIGN writes a BUFFER; it may be used like any value. Movement that moves nothing is
    allowed.
8.  BUFFER nodes of one storage agree on the device and on the number of bytes.
9.  The operands of a node live on one device; only COPY crosses over.
10. A node is the interned one, so that equal structure is one object.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any

from lamina.dtypes import DType
from lamina.errors import DTypeError, LaminaError, VerifyError
from lamina.ir.infer import INFER
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import (
    BufferRef,
    Const,
    Group,
    Hole,
    Iota,
    Op,
    Pad,
    Reduce,
    Scatter,
    Shear,
    Shrink,
    Variable,
)
from lamina.shape import prod

FOREIGN = Group.KERNEL | {Op.HOLE}
"""Operations that no graph holds."""

_INTS = tuple[int, ...]


def verify(sinks: Iterable[Node]) -> None:
    """Raise VerifyError, naming the node by its number in the text form, if an invariant fails."""
    sinks = list(sinks)
    _check_operands(sinks)
    numbers: dict[Node, int] = {}
    devices: dict[Node, str | None] = {}
    storages: dict[object, BufferRef] = {}
    for node in toposort(sinks):
        number = numbers.setdefault(node, len(numbers))
        problem = (
            complaint(node.op, node.src, node.arg)
            or _type_complaint(node)
            or _storage_complaint(node, storages)
            or _device_complaint(node, devices)
        )
        if problem is None and Node(node.op, node.src, node.arg) is not node:
            problem = "another object of this structure exists: it was not made by Node()"
        if problem is not None:
            name = node.op.name.lower() if isinstance(node.op, Op) else repr(node.op)
            raise VerifyError(f"verify: %{number} = {name}: {problem}")


def _check_operands(sinks: Iterable[Node]) -> None:
    """What `toposort` relies on."""
    seen: set[Node] = set()
    stack = list(sinks)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if type(node.src) is not tuple or not all(isinstance(one, Node) for one in node.src):
            raise VerifyError(f"verify: {node!r}: the operands are {node.src!r}, not nodes")
        stack.extend(node.src)


def complaint(op: Op, src: tuple[Node, ...], arg: Any) -> str | None:
    """What is wrong with building ``Node(op, src, arg)``, before its type is inferred."""
    if not isinstance(op, Op):
        return f"{op!r} is not an operation"
    if op in FOREIGN:
        return "it does not belong in a graph"
    if op not in ARGUMENT and arg is not None:
        return f"it takes no argument, and has {arg!r}"
    problem = _mistyped(arg, ARGUMENT[op]) if op in ARGUMENT else None
    if problem is not None:
        return problem
    expected = operand_count(op, arg)
    if len(src) != expected:
        return f"it takes {expected} operands, and has {len(src)}"
    return _CHECK[op](src, arg) if op in _CHECK else None


def operand_count(op: Op, arg: Any) -> int:
    """How many operands a graph operation takes."""
    if op in Group.REDUCTION:
        return int(arg.monoid.arity)
    if op in Group.LEAF:
        return 0
    if op in Group.BINARY or op in (Op.GATHER, Op.ASSIGN):
        return 2
    return 3 if op in (Op.WHERE, Op.SCATTER) else 1


def scalar_complaint(value: object, dtype: DType) -> str | None:
    """What keeps `value` from being a constant of `dtype`."""
    own: type = {"bool": bool, "float": float, "complex": complex}.get(dtype.kind, int)
    if type(value) is not own:
        return f"{value!r} is not a Python {own.__name__}, the kind of {dtype.name}"
    if isinstance(value, int) and not dtype.min <= value <= dtype.max:  # type: ignore[operator]
        return f"{value} is out of the range of {dtype.name}"
    return None


def _type_complaint(node: Node) -> str | None:
    try:
        dtype, shape = INFER[node.op](node.src, node.arg)
    except LaminaError as error:
        return str(error).partition("\n")[0]
    if node.dtype is not dtype:
        return f"its dtype is {node.dtype!r}, and its operands make {dtype!r}"
    if not _fits(node.shape, _INTS) or node.shape != shape:
        return f"its shape is {node.shape!r}, and its operands make {shape!r}"
    if min(shape, default=0) < 0:
        return f"its shape {shape!r} has a negative size"
    return None


def _storage_complaint(node: Node, storages: dict[object, BufferRef]) -> str | None:
    if node.op is not Op.BUFFER:
        return None
    ref: BufferRef = node.arg
    first = storages.setdefault(ref.storage, ref)
    if first.device != ref.device:
        return f"one storage on two devices, {first.device} and {ref.device}"
    if _byte_count(first) != _byte_count(ref):
        return f"one storage of two sizes, {_byte_count(first)} and {_byte_count(ref)} bytes"
    return None


def _byte_count(ref: BufferRef) -> int:
    return prod(ref.shape) * ref.dtype.itemsize


def _device_complaint(node: Node, devices: dict[Node, str | None]) -> str | None:
    used = {devices[operand] for operand in node.src} - {None}
    if len(used) > 1:
        return f"its operands live on {' and '.join(sorted(map(str, used)))}"
    devices[node] = used.pop() if used else None
    if node.op is Op.BUFFER:
        devices[node] = node.arg.device
    elif node.op is Op.COPY:
        devices[node] = node.arg
    return None


def _fits(value: object, hint: Any) -> bool:
    """Whether `value` is of an annotated type. Integers are never bools or another library's."""
    if typing.get_origin(hint) is tuple:
        return type(value) is tuple and all(type(one) is int for one in value)
    return type(value) is int if hint is int else isinstance(value, hint)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, localns={"Monoid": Monoid})


def _mistyped(arg: Any, kind: Any) -> str | None:
    if not hasattr(kind, "_fields"):
        return None if _fits(arg, kind) else f"its argument is {arg!r}, not {_name(kind)}"
    hints = _hints(kind)
    if type(arg) is not kind:
        return f"its argument is {arg!r}, not {_name(kind)}"
    for field, hint in hints.items():
        if not _fits(getattr(arg, field), hint):
            return f"{field}={getattr(arg, field)!r} is not {_name(hint)}"
    return None


def _name(hint: Any) -> str:
    known = {_INTS: "a tuple of integers", int: "an integer"}
    return known.get(hint) or f"a {getattr(hint, '__name__', hint)}"


def _constant(src: tuple[Node, ...], arg: Const) -> str | None:
    return scalar_complaint(arg.value, arg.dtype)


def _iota(src: tuple[Node, ...], arg: Iota) -> str | None:
    counts = arg.dtype.is_int or arg.dtype.is_float
    return None if counts else f"dtype={arg.dtype!r} does not count"


def _variable(src: tuple[Node, ...], arg: Variable) -> str | None:
    if not arg.name.isidentifier():
        return f"name={arg.name!r} is not an identifier"
    empty = arg.minimum > arg.maximum
    return f"the bounds {arg.minimum} and {arg.maximum} hold no integer" if empty else None


@functools.cache
def combines(monoid: Monoid, dtypes: tuple[DType, ...]) -> bool:
    """Whether `monoid` takes components of `dtypes` and keeps them."""
    left, right = (
        tuple(Node(Op.HOLE, (), Hole(f"{side}{i}", dtype)) for i, dtype in enumerate(dtypes))
        for side in "ab"
    )
    try:
        return tuple(part.dtype for part in monoid.combine(left, right)) == dtypes
    except (DTypeError, OverflowError):  # OverflowError: the dtype has no infinity
        return False


def _monoid_complaint(monoid: Monoid, dtypes: tuple[DType, ...]) -> str | None:
    if len(dtypes) != monoid.arity:
        return f"{monoid.name} has {monoid.arity} components, and {len(dtypes)} are combined"
    if not combines(monoid, dtypes):
        return f"{monoid.name} does not combine {', '.join(dtype.name for dtype in dtypes)}"
    return None


def _axes(src: tuple[Node, ...], arg: tuple[int, ...]) -> str | None:
    ascending = list(arg) == sorted(set(arg))
    return None if ascending else f"its axes are {arg!r}, not a sorted tuple of axes"


def _reduce(src: tuple[Node, ...], arg: Reduce) -> str | None:
    if not 0 <= arg.part < arg.monoid.arity:
        return f"part={arg.part!r} is not a component of {arg.monoid.name}"
    dtypes = tuple(operand.dtype for operand in src)
    return _monoid_complaint(arg.monoid, dtypes) or _axes(src, arg.axes)


def _scan(src: tuple[Node, ...], arg: Reduce) -> str | None:
    return _reduce(src, arg) if len(arg.axes) == 1 else f"axes={arg.axes!r} is not one axis"


def _pad(src: tuple[Node, ...], arg: Pad) -> str | None:
    return scalar_complaint(arg.value, src[0].dtype)


def _scatter(src: tuple[Node, ...], arg: Scatter) -> str | None:
    return None if arg.monoid is None else _monoid_complaint(arg.monoid, (src[0].dtype,))


ARGUMENT: dict[Op, Any] = {
    Op.BUFFER: BufferRef, Op.CONST: Const, Op.IOTA: Iota, Op.VARIABLE: Variable, Op.CAST: DType,
    Op.BITCAST: DType, Op.REDUCE: Reduce, Op.SCAN: Reduce, Op.RESHAPE: _INTS, Op.EXPAND: _INTS,
    Op.PERMUTE: _INTS, Op.PAD: Pad, Op.SHRINK: Shrink, Op.FLIP: _INTS, Op.SHEAR: Shear,
    Op.GATHER: int, Op.SCATTER: Scatter, Op.COPY: str,
}  # fmt: skip
"""The type of the argument of each operation that takes one."""

_CHECK: dict[Op, Callable[[tuple[Node, ...], Any], str | None]] = {
    Op.CONST: _constant, Op.IOTA: _iota, Op.VARIABLE: _variable, Op.REDUCE: _reduce,
    Op.SCAN: _scan, Op.PAD: _pad, Op.FLIP: _axes, Op.SCATTER: _scatter,
}  # fmt: skip

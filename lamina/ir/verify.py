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

Check = Callable[[tuple[Node, ...], Any], str | None]


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
    check = ARGUMENT.get(op)
    if check is None and arg is not None:
        return f"it takes no argument, and has {arg!r}"
    expected = operand_count(op, arg)
    if len(src) != expected:
        return f"it takes {expected} operands, and has {len(src)}"
    return check(src, arg) if check is not None else None


def operand_count(op: Op, arg: Any) -> int:
    """How many operands a graph operation takes."""
    if op in Group.REDUCTION:
        monoid = getattr(arg, "monoid", None)
        return monoid.arity if isinstance(monoid, Monoid) else 1
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
    if type(node.shape) is not tuple or node.shape != shape or not _are_sizes(node.shape):
        return f"its shape is {node.shape!r}, and its operands make {shape!r}"
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


def _is_int(value: object) -> bool:
    return type(value) is int


def _are_ints(value: object) -> bool:
    return type(value) is tuple and all(map(_is_int, value))


def _are_sizes(value: object) -> bool:
    return type(value) is tuple and all(type(one) is int and one >= 0 for one in value)


def _are_axes(value: object) -> bool:
    """Sorted, each once."""
    return type(value) is tuple and _are_ints(value) and list(value) == sorted(set(value))


def _of(kind: type, check: Check) -> Check:
    """The argument is exactly a `kind`, and `check` finds nothing."""

    def checked(src: tuple[Node, ...], arg: Any) -> str | None:
        if type(arg) is not kind:
            return f"its argument is {arg!r}, not a {kind.__name__}"
        return check(src, arg)

    return checked


def _must(predicate: Callable[[Any], bool], what: str) -> Check:
    return lambda src, arg: None if predicate(arg) else f"its argument is {arg!r}, not {what}"


def _fields_must(predicate: Callable[[Any], bool], what: str, *names: str) -> Check:
    def check(src: tuple[Node, ...], arg: Any) -> str | None:
        for name in names:
            if not predicate(getattr(arg, name)):
                return f"{name}={getattr(arg, name)!r} is not {what}"
        return None

    return check


def _buffer(src: tuple[Node, ...], arg: BufferRef) -> str | None:
    if not isinstance(arg.dtype, DType):
        return f"dtype={arg.dtype!r} is not a DType"
    if not _are_sizes(arg.shape):
        return f"shape={arg.shape!r} is not a tuple of sizes"
    if not isinstance(arg.device, str) or not arg.device:
        return f"device={arg.device!r} is not a device name"
    return None


def _constant(src: tuple[Node, ...], arg: Const) -> str | None:
    if not isinstance(arg.dtype, DType):
        return f"dtype={arg.dtype!r} is not a DType"
    return scalar_complaint(arg.value, arg.dtype)


def _iota(src: tuple[Node, ...], arg: Iota) -> str | None:
    if not isinstance(arg.dtype, DType) or arg.dtype.kind not in ("int", "uint", "float"):
        return f"dtype={arg.dtype!r} does not count"
    return None if _are_sizes((arg.size,)) else f"size={arg.size!r} is not a size"


def _variable(src: tuple[Node, ...], arg: Variable) -> str | None:
    if not isinstance(arg.name, str) or not arg.name.isidentifier():
        return f"name={arg.name!r} is not an identifier"
    if not _are_ints((arg.minimum, arg.maximum)) or arg.minimum > arg.maximum:
        return f"the bounds {arg.minimum!r} and {arg.maximum!r} hold no integer"
    return None


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


def _monoid_complaint(monoid: object, dtypes: tuple[DType, ...]) -> str | None:
    if not isinstance(monoid, Monoid):
        return f"monoid={monoid!r} is not a Monoid"
    if len(dtypes) != monoid.arity:
        return f"{monoid.name} has {monoid.arity} components, and {len(dtypes)} are combined"
    if not combines(monoid, dtypes):
        return f"{monoid.name} does not combine {', '.join(dtype.name for dtype in dtypes)}"
    return None


def _reduce(src: tuple[Node, ...], arg: Reduce) -> str | None:
    problem = _monoid_complaint(arg.monoid, tuple(operand.dtype for operand in src))
    if problem is not None:
        return problem
    if not _are_axes(arg.axes):
        return f"axes={arg.axes!r} is not a sorted tuple of axes"
    if not _is_int(arg.part) or not 0 <= arg.part < arg.monoid.arity:
        return f"part={arg.part!r} is not a component of {arg.monoid.name}"
    return None


def _scan(src: tuple[Node, ...], arg: Reduce) -> str | None:
    problem = _reduce(src, arg)
    if problem is None and len(arg.axes) != 1:
        return f"axes={arg.axes!r} is not one axis"
    return problem


def _pad(src: tuple[Node, ...], arg: Pad) -> str | None:
    problem = _fields_must(_are_sizes, "a tuple of sizes", "before", "after")(src, arg)
    return problem or scalar_complaint(arg.value, src[0].dtype)


def _scatter(src: tuple[Node, ...], arg: Scatter) -> str | None:
    if not _is_int(arg.axis):
        return f"axis={arg.axis!r} is not an integer"
    return None if arg.monoid is None else _monoid_complaint(arg.monoid, (src[0].dtype,))


_SHAPE = _must(_are_sizes, "a tuple of sizes")
_DTYPE = _must(lambda arg: isinstance(arg, DType), "a DType")

ARGUMENT: dict[Op, Check] = {
    Op.BUFFER: _of(BufferRef, _buffer),
    Op.CONST: _of(Const, _constant),
    Op.IOTA: _of(Iota, _iota),
    Op.VARIABLE: _of(Variable, _variable),
    Op.CAST: _DTYPE,
    Op.BITCAST: _DTYPE,
    Op.REDUCE: _of(Reduce, _reduce),
    Op.SCAN: _of(Reduce, _scan),
    Op.RESHAPE: _SHAPE,
    Op.EXPAND: _SHAPE,
    Op.PERMUTE: _must(_are_ints, "a tuple of axes"),
    Op.PAD: _of(Pad, _pad),
    Op.SHRINK: _of(Shrink, _fields_must(_are_ints, "a tuple of integers", *Shrink._fields)),
    Op.FLIP: _must(_are_axes, "a sorted tuple of axes"),
    Op.SHEAR: _of(Shear, _fields_must(_is_int, "an integer", *Shear._fields)),
    Op.GATHER: _must(_is_int, "an axis"),
    Op.SCATTER: _of(Scatter, _scatter),
    Op.COPY: _must(lambda arg: isinstance(arg, str) and bool(arg), "a device name"),
}
"""The check of each operation that takes an argument."""

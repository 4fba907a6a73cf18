"""The verifier of graphs: it runs on every graph that is compiled, and in tests and with
``LAMINA_CHECK=1`` after every pass that returns one. The invariants, in the order of their checks:

1.  An operation is of the graph dialect, none of the kernel's.
2.  The argument is what its row in `lamina.ir.ops` says. Integers are Python's own, never bools or
    another library's; sizes are not negative; several axes are a sorted tuple, each once.
3.  The operands are a tuple of nodes, as many as the operation takes.
4.  A constant, and the value of a PAD, is a Python scalar of its dtype's own kind and within its
    range: float for floats (infinities and NaN included), never an int in its place.
5.  A reduction's monoid has as many components as there are operands, takes their dtypes, and has
    the part that is asked for. SCAN runs along one axis. SCATTER's monoid has one component, and so
    has that of a collective, whose groups have two ranks or more.
6.  A node is the one that Node() makes: its dtype and shape are inferred, and equal structure is
    one object. An ASSIGN writes a BUFFER; movement that moves nothing is allowed.
7.  The operands of a node live on one device; only COPY crosses over. BUFFER nodes of one storage
    agree on the device and on the number of bytes.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lamina.core.dtypes import DType
from lamina.errors import LaminaError, VerifyError
from lamina.ir.invariants import check_monoid
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Combine, Group, Op

_INTS = tuple[int, ...]
_SINGLE = {  # the types of arguments that are no named tuples
    "": type(None), "dtype": DType, "shape": _INTS, "axes": _INTS, "axis": int, "device": str,
    "ranges": tuple[range, ...], "bins": int,
}  # fmt: skip
_OPERANDS = (
    dict.fromkeys(Group.LEAF, 0)
    | dict.fromkeys(Group.BINARY | {Op.GATHER, Op.ASSIGN, *Group.OF_DERIVATIVES}, 2)
    | dict.fromkeys((Op.WHERE, Op.SCATTER, Op.BIN_SUM), 3)
)


def verify(sinks: Iterable[Node]) -> None:
    """Raise VerifyError, naming the node by its number in the text form, if an invariant fails.

    This runs on every graph that is compiled, so messages are made only when something is wrong:
    a node takes about 8 microseconds, and compiling it a hundred times as long."""
    devices: dict[Node, set[str]] = {}
    storages: dict[object, tuple[str, int]] = {}
    try:
        order = toposort(sinks)
    except AttributeError as error:
        raise VerifyError(f"verify: an operand is not a node: {error}") from None
    for number, node in enumerate(order):
        try:
            _check_node(node, devices, storages)
        except LaminaError as error:
            name = str(getattr(node.op, "name", node.op)).lower()
            raise VerifyError(f"verify: %{number} = {name}: {error.message}") from None


def _check_node(
    node: Node, devices: dict[Node, set[str]], storages: dict[object, tuple[str, int]]
) -> None:
    """Raise LaminaError if `node`, whose operands are right, is wrong. devices: of the operands,
    and then of the node; storages: the device and the bytes of each."""
    check_parts(node.op, node.src, node.arg)
    made = Node(node.op, node.src, node.arg)
    if min(made.shape, default=0) < 0:
        raise VerifyError(f"{made.shape} has a negative size")
    if made is not node:
        another = f"and Node() makes another {made.dtype!r} {made.shape}"
        raise VerifyError(f"its type is {node.dtype!r} {node.shape!r}, {another}")
    used = set().union(*[devices[operand] for operand in node.src])
    if len(used) > 1:
        raise VerifyError(f"its operands live on {' and '.join(sorted(used))}")
    devices[node] = {node.arg} if node.op is Op.COPY else used
    if node.op is Op.BUFFER:
        devices[node] = {node.arg.device}
        here = (node.arg.device, node.nbytes)
        known = storages.setdefault(node.arg.storage, here)
        if known != here:
            raise VerifyError(f"one storage is (device, bytes) {known} and {here}")


def check_parts(op: Op, src: tuple[Node, ...], arg: Any) -> None:
    """Raise VerifyError if ``Node(op, src, arg)`` is wrong before its type is inferred."""
    if not isinstance(op, Op):
        raise VerifyError(f"{op!r} is not an operation")
    if op in Group.KERNEL:
        raise VerifyError("it does not belong in a graph")
    _check_argument(op, arg)
    if type(src) is not tuple:
        raise VerifyError(f"the operands are {src!r}, not a tuple")
    if op in Group.REDUCTION:
        check_monoid(arg.monoid, src, arg.component)
        if op is Op.SCAN and len(arg.axes) != 1:
            raise VerifyError(f"axes={arg.axes!r} is not one axis")
        return
    count = _OPERANDS.get(op, 1)
    if len(src) != count:
        raise VerifyError(f"it takes {count} operands, and has {len(src)}")
    if op in (Op.CONST, Op.PAD):
        _check_value(arg.value, arg.dtype if op is Op.CONST else src[0].dtype)
    elif op is Op.IOTA and not (arg.dtype.is_int or arg.dtype.is_float):
        raise VerifyError(f"dtype={arg.dtype!r} does not count")
    elif op is Op.SCATTER and arg.monoid is not None:
        check_monoid(arg.monoid, src[:1])
    elif op in Group.COLLECTIVE:
        _check_ranks(arg, src)


def _check_ranks(arg: Any, src: tuple[Node, ...]) -> None:
    """Raise VerifyError unless the argument of a collective names groups of several ranks."""
    if arg.ranks < 2 or arg.stride < 1:
        raise VerifyError(f"ranks={arg.ranks} with stride={arg.stride} are no groups of several")
    if isinstance(arg, Combine):
        check_monoid(arg.monoid, src)


def _check_argument(op: Op, arg: Any) -> None:
    """Raise VerifyError unless the argument and its fields are of the types that the record of
    `op` says."""
    kind = op.value.argument
    if isinstance(kind, str):
        parts = (arg,)
    elif isinstance(arg, kind):
        parts = arg
    else:
        raise VerifyError(f"its argument is {arg!r}, not {kind}")
    for field, part in zip(_fields_of(kind), parts, strict=True):
        if not field.holds(part):
            wanted = inspect.formatannotation(field.hint)
            raise VerifyError(f"{field.name or 'argument'}={part!r} is not {wanted}")


def _check_value(value: object, dtype: DType) -> None:
    """Raise VerifyError unless a constant is a Python scalar of `dtype`'s own kind and range."""
    fits = type(value) is dtype.python
    if not (fits and repr(const(value, dtype).arg.value) == repr(value)):  # type: ignore[arg-type]
        needed = f"a Python {dtype.python.__name__} within the range of {dtype.name}"
        raise VerifyError(f"{value!r} is not {needed}")


@dataclass(frozen=True)
class _Field:
    """A part of an argument. kind: the type of the part, or of each element of a tuple."""

    name: str
    hint: Any
    kind: Any
    is_tuple: bool

    def holds(self, value: object) -> bool:
        """Whether `value` is of the type. Integers are never bools or another library's."""
        kind = self.kind
        if self.is_tuple:
            return type(value) is tuple and all(type(part) is kind for part in value)
        return type(value) is int if kind is int else isinstance(value, kind)


@functools.cache
def _fields_of(argument: type | str) -> tuple[_Field, ...]:
    """The fields of a named tuple, or the one value that a text such as "axes" stands for."""
    if isinstance(argument, str):
        hints = {argument: _SINGLE[argument]}
    else:
        hints = typing.get_type_hints(argument, localns={"Monoid": Monoid})
    fields = []
    for name, hint in hints.items():
        is_tuple = typing.get_origin(hint) is tuple
        kind = typing.get_args(hint)[0] if is_tuple else hint
        fields.append(_Field(name, hint, kind, is_tuple))
    return tuple(fields)

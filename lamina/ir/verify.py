"""The verifier of the graph dialect. Its invariants, in the order they are checked:

1. An operation is of the graph dialect: none of the kernel's, no HOLE outside a monoid's combine.
2. The argument is what its row in `lamina.ir.ops` says. Integers are Python's own, never bools or
   another library's; sizes are not negative; several axes are a sorted tuple, each once.
3. The operands are a tuple of nodes, as many as the operation takes.
4. A constant, and the value of a PAD, is a Python scalar of its dtype's own kind and within its
   range: float for floats (infinities and NaN included), never an int in its place.
5. A reduction's monoid has as many components as there are operands, takes their dtypes, and has
   the part that is asked for. SCAN runs along one axis. SCATTER's monoid has one component.
6. A node is the one that Node() makes: its dtype and shape are inferred, and equal structure is
   one object. An ASSIGN writes a BUFFER; movement that moves nothing is allowed.
7. The operands of a node live on one device; only COPY crosses over. BUFFER nodes of one storage
   agree on the device and on the number of bytes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from lamina.dtypes import DType
from lamina.errors import DTypeError, LaminaError, VerifyError
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.shape import prod

_INTS = tuple[int, ...]
_SINGLE = {"dtype": DType, "shape": _INTS, "axes": _INTS, "axis": int, "device": str}
_OPERANDS = (
    dict.fromkeys(Group.LEAF, 0)
    | dict.fromkeys(Group.BINARY | {Op.GATHER, Op.ASSIGN}, 2)
    | dict.fromkeys((Op.WHERE, Op.SCATTER), 3)
)
_named = inspect.formatannotation
_hints = functools.cache(functools.partial(typing.get_type_hints, localns={"Monoid": Monoid}))


def require(holds: object, problem: str) -> None:
    """Raise VerifyError unless an invariant holds."""
    if not holds:
        raise VerifyError(problem)


@contextlib.contextmanager
def located(place: str) -> Iterator[None]:
    """Say where an invariant failed."""
    try:
        yield
    except LaminaError as error:
        raise VerifyError(f"{place}: {str(error).splitlines()[0]}") from None


def verify(sinks: Iterable[Node]) -> None:
    """Raise VerifyError, naming the node by its number in the text form, if an invariant fails."""
    devices: dict[Node, str | None] = {}
    storages: dict[object, tuple[str, int]] = {}
    try:
        order = toposort(sinks)
    except AttributeError as error:
        raise VerifyError(f"verify: an operand is not a node: {error}") from None
    for number, node in enumerate(order):
        name = node.op.name.lower() if isinstance(node.op, Op) else repr(node.op)
        with located(f"verify: %{number} = {name}"):
            check_parts(node.op, node.src, node.arg)
            made = Node(node.op, node.src, node.arg)
            found = f"its type is {node.dtype!r} {node.shape!r}"
            require(min(made.shape, default=0) >= 0, f"{made.shape} has a negative size")
            require(made is node, f"{found}, and Node() makes another {made.dtype!r} {made.shape}")
            _check_place(node, devices, storages)


def check_parts(op: Op, src: tuple[Node, ...], arg: Any) -> None:
    """Raise VerifyError if ``Node(op, src, arg)`` is wrong before its type is inferred."""
    require(isinstance(op, Op), f"{op!r} is not an operation")
    require(op not in Group.FOREIGN, "it does not belong in a graph")
    _check_argument(arg, op.value.argument)
    reduces = op in Group.REDUCTION
    count = arg.monoid.arity if reduces else _OPERANDS.get(op, 1)
    require(type(src) is tuple, f"the operands are {src!r}, not a tuple")
    require(len(src) == count, f"it takes {count} operands, and has {len(src)}")
    if op in (Op.CONST, Op.PAD):
        _check_scalar(arg.value, arg.dtype if op is Op.CONST else src[0].dtype)
    elif op is Op.IOTA:
        require(arg.dtype.is_int or arg.dtype.is_float, f"dtype={arg.dtype!r} does not count")
    elif op is Op.VARIABLE:
        require(arg.name.isidentifier(), f"name={arg.name!r} is not an identifier")
        require(arg.minimum <= arg.maximum, f"{arg.minimum} to {arg.maximum} hold no integer")
    elif op is Op.SCATTER and arg.monoid is not None:
        check_monoid(arg.monoid, src[:1])
    elif reduces or op is Op.FLIP:
        axes = arg.axes if reduces else arg
        require(list(axes) == sorted(set(axes)), f"axes={axes!r} is not a sorted tuple of axes")
        require(op is not Op.SCAN or len(axes) == 1, f"axes={axes!r} is not one axis")
    if reduces:
        check_monoid(arg.monoid, src, arg.part)


def _check_argument(arg: Any, kind: Any) -> None:
    """`kind` is what the table says of the argument."""
    single = isinstance(kind, str)
    hint = _SINGLE.get(kind, type(None)) if single else kind
    require(_fits(arg, hint), f"its argument is {arg!r}, not {_named(hint)}")
    for field, part in () if single else _hints(kind).items():
        value = getattr(arg, field)
        require(_fits(value, part), f"{field}={value!r} is not {_named(part)}")


def _fits(value: object, hint: Any) -> bool:
    """Whether `value` is of an annotated type. Integers are never bools or another library's."""
    if hint == _INTS:
        return type(value) is tuple and all(type(one) is int for one in value)
    return type(value) is int if hint is int else isinstance(value, hint)


def _check_scalar(value: Any, dtype: DType) -> None:
    own = dtype.python
    require(type(value) is own, f"{value!r} is not a Python {own.__name__}, as {dtype.name} needs")
    inside = not dtype.is_int or dtype.min <= value <= dtype.max
    require(inside, f"{value} is out of the range of {dtype.name}")


def check_monoid(monoid: Monoid, parts: tuple[Node, ...], part: int = 0) -> None:
    """Raise VerifyError unless `monoid` combines `parts` and has component `part`."""
    kinds = tuple(one.dtype for one in parts)
    fits = len(parts) == monoid.arity and combines(monoid, kinds)
    require(fits, f"{monoid.name} does not combine {', '.join(one.name for one in kinds)}")
    require(0 <= part < monoid.arity, f"part={part} is not a component of {monoid.name}")


@functools.cache
def combines(monoid: Monoid, dtypes: tuple[DType, ...]) -> bool:
    """Whether `monoid` takes components of `dtypes` and keeps them."""
    try:
        return tuple(part.dtype for part in monoid.formula(dtypes)[2]) == dtypes
    except (DTypeError, OverflowError):  # OverflowError: the dtype has no infinity
        return False


def _check_place(
    node: Node, devices: dict[Node, str | None], storages: dict[object, tuple[str, int]]
) -> None:
    used = {devices[one] for one in node.src} - {None}
    require(len(used) <= 1, f"its operands live on {' and '.join(sorted(map(str, used)))}")
    devices[node] = node.arg if node.op is Op.COPY else next(iter(used), None)
    if node.op is Op.BUFFER:
        devices[node] = node.arg.device
        here = (node.arg.device, prod(node.shape) * node.dtype.itemsize)
        known = storages.setdefault(node.arg.storage, here)
        require(known == here, f"one storage is (device, bytes) {known} and {here}")

"""The one node type of lamina: immutable and interned.

Equal structure is the same object, so `is` compares programs. Dtype and shape are inferred when a
node is made, so that a wrong program fails on the line that builds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Set
from operator import attrgetter
from threading import RLock
from typing import Any, TypeVar
from weakref import ref

from lamina.core.dtypes import SHORT, DType, Scalar
from lamina.core.shape import Shape, prod
from lamina.ir.infer import INFER
from lamina.ir.ops import BufferRef, Const, Group, Op

T = TypeVar("T")
_SCALAR_ARGUMENT = {Op.CONST, Op.PAD}  # operations whose argument holds a scalar
_BUFFER = Op.BUFFER
_MOVES = Group.MOVEMENT - {Op.PAD, Op.SHEAR}  # those that add no elements of their own


def _binary(op: Op, *, reflected: bool = False) -> Callable[[Node, Node | Scalar], Node]:
    """The method for a Python operator: ``x + 1`` is ADD of `x` and a constant; `reflected` is
    for ``1 + x``, which Python asks the right operand to compute."""

    def operator(self: Node, other: Node | Scalar) -> Node:
        lifted = self.lift(other)
        return Node(op, (lifted, self) if reflected else (self, lifted))

    return operator


# Interning: every node that is alive, by its operation, operands and argument. The references are
# weak, so that a node that nothing uses is freed; its entry then removes itself. Threads build
# graphs at the same time: an entry is added by one operation of the dict, and removed under the
# lock. A thread that holds it may free another node, and then takes it again.
Key = tuple[Any, ...]
_table: dict[Key, _Entry] = {}
_lock = RLock()
os.register_at_fork(  # no other thread of the parent, which a child lacks, holds it at the fork
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class _Entry(ref["Node"]):
    """A weak reference to a node that knows its own key in the table."""

    __slots__ = ("key",)

    key: Key


def _forget(entry: _Entry, table: dict[Key, _Entry] = _table, lock: RLock = _lock) -> None:
    """Remove the entry of a node that was freed. The table and the lock are default arguments, as
    Python clears the names of modules when it exits, while nodes are still being freed."""
    with lock:
        if table.get(entry.key) is entry:  # no new node has taken the key since
            del table[entry.key]


class _Draft:
    """A node whose slots are being filled; it then becomes a Node, which never changes."""

    __slots__ = ("__weakref__", "arg", "dtype", "op", "shape", "src")

    op: Op
    src: tuple[Node, ...]
    arg: Any
    dtype: DType
    shape: Shape


class Node(_Draft):
    """One operation applied to `src` with `arg`; see `lamina.ir.ops` for what `arg` holds."""

    __slots__ = ()

    def __new__(cls, op: Op, src: tuple[Node, ...] = (), arg: Any = None) -> Node:
        # A scalar's text tells 0.0 from -0.0 and makes NaN equal to itself.
        key = (op, src, tuple.__repr__(arg) if op in _SCALAR_ARGUMENT else arg)
        entry = _table.get(key)
        if entry is not None and (interned := entry()) is not None:
            return interned
        dtype, shape = INFER[op](src, arg)
        node = _Draft()
        node.op, node.src, node.arg, node.dtype, node.shape = op, src, arg, dtype, shape
        node.__class__ = cls
        made = _Entry(node, _forget)  # type: ignore[arg-type]
        made.key = key
        while (kept := _table.setdefault(key, made)) is not made:  # of another thread, or freed
            if (interned := kept()) is not None:
                return interned
            _forget(kept)
        return node  # type: ignore[return-value]

    @classmethod
    def unique(cls, storage: object, shape: Shape, dtype: DType, device: str) -> Node:
        """A BUFFER that no other node names, so that none can equal it: it is not interned."""
        node = _Draft()
        node.op, node.src, node.shape, node.dtype = _BUFFER, (), shape, dtype
        node.arg = tuple.__new__(BufferRef, (storage, shape, dtype, device, False))
        node.__class__ = cls
        return node  # type: ignore[return-value]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Node never changes; build another one")

    def __repr__(self) -> str:
        return f"<{self.op.name} {type_text(self.dtype, self.shape)}>"

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array."""
        return prod(self.shape) * self.dtype.itemsize

    def lift(self, value: Node | Scalar) -> Node:
        """`value` as a node of this node's shape and dtype."""
        return value if isinstance(value, Node) else full(self.shape, value, self.dtype)

    # Formulas over nodes. A Python scalar stands for a constant.

    def apply(self, op: Op) -> Node:
        """An operation of one operand, such as ``x.apply(Op.EXP)``."""
        return Node(op, (self,))

    def cast(self, dtype: DType) -> Node:
        return self if self.dtype is dtype else Node(Op.CAST, (self,), dtype)

    def select(self, yes: Node, no: Node) -> Node:
        """`yes` where this node, a bool, is true, and `no` elsewhere."""
        return Node(Op.WHERE, (self, yes, no))

    __add__ = _binary(Op.ADD)
    __radd__ = _binary(Op.ADD, reflected=True)
    __mul__ = _binary(Op.MUL)
    __rmul__ = _binary(Op.MUL, reflected=True)
    __truediv__ = _binary(Op.DIV)
    __rtruediv__ = _binary(Op.DIV, reflected=True)
    __floordiv__ = _binary(Op.IDIV)
    __mod__ = _binary(Op.MOD)
    __pow__ = _binary(Op.POW)
    __and__ = _binary(Op.AND)
    __or__ = _binary(Op.OR)
    __xor__ = _binary(Op.XOR)
    __lshift__ = _binary(Op.SHL)
    __rshift__ = _binary(Op.SHR)
    __lt__ = _binary(Op.LT)
    __gt__ = _binary(Op.LT, reflected=True)
    eq = _binary(Op.EQ)  # elementwise; ``==`` compares programs

    def __sub__(self, other: Node | Scalar) -> Node:
        return self + -self.lift(other)

    def __rsub__(self, other: Scalar) -> Node:
        return self.lift(other) + -self

    def __neg__(self) -> Node:
        return Node(Op.NEG, (self,))

    def __invert__(self) -> Node:
        return Node(Op.NOT, (self,))


def type_text(dtype: DType, shape: Shape) -> str:
    """A dtype and a shape as the text form has them: ``f32[2,3]``."""
    return f"{SHORT[dtype]}[{','.join(map(str, shape))}]"


def const(value: Scalar, dtype: DType) -> Node:
    """A scalar constant of shape (), its value of `dtype`'s own kind; integers wrap around."""
    typed = dtype.python(value)
    if dtype.is_int:
        typed = (typed - dtype.min) % (1 << dtype.bits) + dtype.min
    return Node(Op.CONST, (), Const(typed, dtype))


def full(shape: Shape, value: Scalar, dtype: DType) -> Node:
    """An array of `shape` with `value` everywhere: a constant, expanded."""
    scalar = const(value, dtype)
    return Node(Op.EXPAND, (scalar,), shape) if shape else scalar


def constant_of(node: Node) -> Scalar | None:
    """The value of a constant, even one that is reshaped or expanded; None for any other node."""
    inner = peel(node, _MOVES)
    return inner.arg.value if inner.op is Op.CONST else None


def peel(node: Node, ops: Set[Op]) -> Node:
    """The operand beneath any number of operations `ops` around it, which have one operand each:
    peeled of {CAST, RESHAPE}, ``cast(reshape(cast(x)))`` is x."""
    while node.op in ops:
        (node,) = node.src
    return node


def toposort(
    sinks: Iterable[T], within: Callable[[T], bool] | None = None,
    below: Callable[[T], Sequence[T]] = attrgetter("src"),
) -> list[T]:  # fmt: skip
    """`sinks` and all nodes `below` them, operands before users, in the same order each time. Works
    for any graph: nodes, or kernel groups by what must run before each. A node that is not
    `within` is left out, and so are the nodes that only it needs."""
    order: list[T] = []
    seen: set[T] = set()
    stack: list[Any] = list(sinks)[::-1]  # nodes to visit; before a None, one to append
    while stack:
        node = stack.pop()
        if node is None:  # all operands of the node before it are in order
            order.append(stack.pop())
        elif node not in seen and (within is None or within(node)):
            seen.add(node)
            if operands := below(node):
                stack += (node, None, *operands[::-1])
            else:
                order.append(node)
    return order

"""Make a kernel printable by a target: what the target cannot do becomes what it can.

C has no vector transcendentals, so float32 ones become polynomials, and no portable 16-bit or
8-bit floats, so those are unpacked to float32 where they are loaded and packed where stored.

Every operation on small floats rounds its result, with one exception: a product that is summed
at once stays float32, as does the sum until its end. Values that are only moved keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lamina.codegen.small_floats import (
    carrier,
    decode,
    encode,
    holds,
    is_small,
    narrowed,
    round_scalar,
    rounded,
    scalar_bits,
)
from lamina.dtypes import float32, float64
from lamina.ir.build import bitcast, cast, const, select
from lamina.ir.kernel import Kernel, Store, roots_of
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Load, Op
from lamina.simplify.transcendental import expand

# Operations whose result is always representable in the dtype of their operands.
EXACT = frozenset({Op.MAX, Op.MIN, Op.TRUNC})


def legalize(kernel: Kernel) -> Kernel:
    """`kernel` in operations that the C printer spells."""
    legalizer = _Legalizer()
    parameters = tuple(replace(one, dtype=carrier(one.dtype)) for one in kernel.parameters)
    stores = tuple(legalizer.store(store) for store in kernel.stores)
    return replace(kernel, parameters=parameters, stores=stores)


class _Legalizer:
    """What each node of one kernel has become."""

    def __init__(self) -> None:
        self.done: dict[Node, Node] = {}  # of a small dtype: float32 that holds its value
        self.bits: dict[Node, Node] = {}  # of a small dtype: its bits, where they are known
        self.unrounded: dict[Node, Node] = {}  # products of a small dtype: before rounding

    def store(self, store: Store) -> Store:
        """`store` in operations of the target."""
        for node in toposort(roots_of(store)):
            if node not in self.done:
                self.done[node] = self._visit(node)
        condition = None if store.condition is None else self.done[store.condition]
        value = self._bits_of(store.value)
        return replace(store, index=self.done[store.index], value=value, condition=condition)

    def _visit(self, node: Node) -> Node:
        if node.op is Op.CAST:
            return self._cast(node)
        if node.op is Op.BITCAST:
            return self._bitcast(node)
        if not is_small(node.dtype):
            return self._target(node)
        if node.op in KEEP_BITS:
            self.bits[node] = KEEP_BITS[node.op](self, node)
        if node.op is Op.LOAD:
            return decode(self.bits[node], node.dtype)
        if node.op is Op.CONST:
            return const(round_scalar(node.arg.value, node.dtype), float32)
        value = self._target(node)
        if node.op in EXACT or node.op in KEEP_BITS or self._picks(node):
            return value
        if node.op is Op.MUL:
            self.unrounded[node] = value
        return self._rounded(value, node)

    def _target(self, node: Node) -> Node:
        """`node` over legal operands, small ones widened."""
        src = tuple(self.done[operand] for operand in node.src)
        if node.op in (Op.FOLD, Op.PREFIX) and node.arg.monoid is ADD:
            src = (self.unrounded.get(node.src[0], src[0]), *src[1:])
        return expand(Node(node.op, src, node.arg))

    def _rounded(self, value: Node, node: Node) -> Node:
        self.bits[node] = encode(value, node.dtype)
        return rounded(value, node.dtype)

    def _picks(self, node: Node) -> bool:
        """Is this a reduction whose result is one of its operands?"""
        return node.op in (Op.FOLD, Op.PREFIX) and node.arg.monoid.op in (Op.MAX, Op.MIN)

    def _bits_of(self, node: Node) -> Node:
        """What to store for `node`: the bits of a small float, any other value itself."""
        value = self.done[node]
        if not is_small(node.dtype):
            return value
        if node not in self.bits:
            self.bits[node] = encode(value, node.dtype)
        return self.bits[node]

    def _cast(self, node: Node) -> Node:
        value, source, to = self.done[node.src[0]], node.src[0].dtype, node.dtype
        if not is_small(to):
            return cast(value, to)
        value = narrowed(value) if source is float64 else cast(value, float32)
        return value if holds(to, source) else self._rounded(value, node)

    def _bitcast(self, node: Node) -> Node:
        word = bitcast(self._bits_of(node.src[0]), carrier(node.dtype))
        if not is_small(node.dtype):
            return word
        self.bits[node] = word
        return decode(word, node.dtype)

    def _load(self, node: Node) -> Node:
        src = tuple(self.done[operand] for operand in node.src)
        return Node(Op.LOAD, src, Load(node.arg.parameter, carrier(node.dtype)))

    def _const(self, node: Node) -> Node:
        return const(scalar_bits(node.arg.value, node.dtype), carrier(node.dtype))

    def _where(self, node: Node) -> Node:
        condition, yes, no = node.src
        return select(self.done[condition], self._bits_of(yes), self._bits_of(no))

    def _negated(self, node: Node) -> Node:
        word = self._bits_of(node.src[0])
        return word ^ (1 << (node.dtype.bits - 1))


# Operations that move bits and calculate nothing.
KEEP_BITS: dict[Op, Callable[[_Legalizer, Node], Node]] = {
    Op.LOAD: _Legalizer._load,
    Op.CONST: _Legalizer._const,
    Op.WHERE: _Legalizer._where,
    Op.NEG: _Legalizer._negated,
}

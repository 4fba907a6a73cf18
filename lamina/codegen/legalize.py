"""Make a kernel printable by a target: what the target cannot do becomes what it can.

C has no vector transcendentals, so float32 ones become polynomials, and no portable 16-bit or
8-bit floats, so those are unpacked to float32 where they are loaded and packed where stored.

Every operation on small floats rounds its result, with one exception: a product that is summed
at once stays float32, as does the sum until its end. Values that are only moved keep their bits.
"""

from __future__ import annotations

from dataclasses import replace

from lamina.codegen import small_floats as small
from lamina.codegen.small_floats import carrier
from lamina.dtypes import float32, float64
from lamina.ir.build import bitcast, cast, select
from lamina.ir.kernel import Kernel, Store
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.rewrite.fold import fold
from lamina.simplify.transcendental import expand


def legalize(kernel: Kernel) -> Kernel:
    """`kernel` in operations that the C printer spells."""
    legalizer = _Legalizer()
    for node in kernel.nodes:
        legalizer.done[node] = legalizer.visit(node)
    parameters = tuple(replace(one, dtype=carrier(one.dtype)) for one in kernel.parameters)
    return replace(kernel, parameters=parameters, stores=tuple(map(legalizer.store, kernel.stores)))


class _Legalizer:
    """What each node of one kernel has become."""

    def __init__(self) -> None:
        self.done: dict[Node, Node] = {}  # of a small dtype: float32 that holds its value
        self.bits: dict[Node, Node] = {}  # of a small dtype: its bits, where they are known
        self.unrounded: dict[Node, Node] = {}  # products of a small dtype: before rounding

    def store(self, store: Store) -> Store:
        """`store` in operations of the target."""
        condition = None if store.condition is None else self.done[store.condition]
        value = self._bits_of(store.value)
        return replace(store, index=self.done[store.index], value=value, condition=condition)

    def visit(self, node: Node) -> Node:
        """`node`, whose operands have been visited, for the target."""
        if node.op is Op.CAST:
            return self._cast(node)
        if node.op is Op.BITCAST:
            return self._decoded(bitcast(self._bits_of(node.src[0]), carrier(node.dtype)), node)
        if not node.dtype.is_small:
            return self._target(node)
        if node.op is Op.LOAD:
            src = tuple(self.done[operand] for operand in node.src)
            arg = node.arg._replace(dtype=carrier(node.dtype))
            return self._decoded(Node(Op.LOAD, src, arg), node)
        if node.op is Op.CONST:
            self.bits[node] = fold(Op.BITCAST, (node,), carrier(node.dtype))
            return fold(Op.CAST, (node,), float32)
        return self._computed(node)

    def _computed(self, node: Node) -> Node:
        value = self._target(node)
        if node.op is Op.WHERE:
            condition, yes, no = node.src
            picked = select(self.done[condition], self._bits_of(yes), self._bits_of(no))
            self.bits[node] = picked
        elif node.op is Op.NEG:
            self.bits[node] = self._bits_of(node.src[0]) ^ (1 << (node.dtype.bits - 1))
        elif not _is_exact(node):
            if node.op is Op.MUL:
                self.unrounded[node] = value
            return self._rounded(value, node)
        return value

    def _target(self, node: Node) -> Node:
        """`node` over legal operands, small ones widened."""
        src = tuple(self.done[operand] for operand in node.src)
        if node.op in (Op.FOLD, Op.PREFIX) and node.arg.monoid is ADD:
            src = (self.unrounded.get(node.src[0], src[0]), *src[1:])
        return expand(Node(node.op, src, node.arg))

    def _rounded(self, value: Node, node: Node) -> Node:
        self.bits[node] = small.encode(value, node.dtype)
        return small.rounded(value, node.dtype)

    def _decoded(self, bits: Node, node: Node) -> Node:
        if not node.dtype.is_small:
            return bits
        self.bits[node] = bits
        return small.decode(bits, node.dtype)

    def _bits_of(self, node: Node) -> Node:
        """What to store for `node`: the bits of a small float, any other value itself."""
        if not node.dtype.is_small:
            return self.done[node]
        if node not in self.bits:
            self.bits[node] = small.encode(self.done[node], node.dtype)
        return self.bits[node]

    def _cast(self, node: Node) -> Node:
        value, source, to = self.done[node.src[0]], node.src[0].dtype, node.dtype
        if not to.is_small:
            return cast(value, to)
        value = small.narrowed(value) if source is float64 else cast(value, float32)
        fits = source.is_float and source.bits < to.bits
        return value if fits or source.kind == "bool" else self._rounded(value, node)


def _is_exact(node: Node) -> bool:
    """Is the result always representable in the dtype of the operands?"""
    op = node.arg.monoid.op if node.op in (Op.FOLD, Op.PREFIX) else node.op
    return op in (Op.MAX, Op.MIN, Op.TRUNC)

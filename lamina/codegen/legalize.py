"""Floats of 16 and 8 bits are computed in float32: targets load, store, select and cast them.

Every operation on small floats rounds its result, with one exception: a product that is summed
at once stays float32, as does the sum until its end. Values that are only moved keep their bits.
"""

from dataclasses import replace
from itertools import chain

from lamina.dtypes import BY_NAME, DType, float32, float64
from lamina.ir.build import bitcast, cast
from lamina.ir.interpreter import fold
from lamina.ir.kernel import roots_of
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.kernel.schedule import Nest

MOVES = (Op.LOAD, Op.CONST, Op.WHERE, Op.BITCAST)
EXACT = (Op.MAX, Op.MIN, Op.TRUNC, Op.NEG)  # the result is representable as the operands are


def legalize(nest: Nest) -> Nest:
    """`nest` with no arithmetic on small floats, which are cast to and from larger floats."""
    legalizer = _Legalizer()
    every = nest.kernel.stores, nest.fills, nest.tiles
    for node in toposort(root for one in chain(*every) for root in roots_of(one)):
        legalizer.done[node] = legalizer.visit(node)
    stores, fills, tiles = (tuple(one.rebuilt(legalizer.done) for one in some) for some in every)
    return replace(nest, kernel=replace(nest.kernel, stores=stores), fills=fills, tiles=tiles)


def carrier(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of a small float."""
    return BY_NAME[f"uint{dtype.bits}"]


class _Legalizer:
    """What each node of one kernel has become."""

    def __init__(self) -> None:
        self.done: dict[Node, Node] = {}
        self.wide: dict[Node, Node] = {}  # of a small dtype: the same value as float32

    def visit(self, node: Node) -> Node:
        """`node`, whose operands have been visited, in operations that targets have."""
        src, dtype, op = tuple(self.done[one] for one in node.src), node.dtype, node.op
        if op in MOVES or not any(one.dtype.is_small for one in (node, *node.src)):
            if dtype.is_small and op is Op.CONST:
                self.wide[node] = fold(Op.CAST, (node,), float32)
            elif dtype.is_small and op is Op.WHERE:
                self.wide[node] = Node(Op.WHERE, (src[0], *map(self.widened, node.src[1:])))
            return Node(op, src, node.arg)
        operands = tuple(map(self.widened, node.src))
        if op is Op.CAST:
            return self._cast(node, *operands)
        if op in (Op.FOLD, Op.PREFIX):
            op, term = node.arg.monoid.op, node.src[0]
            if node.arg.monoid is ADD and term.op is Op.MUL:  # before its rounding
                operands = (Node(Op.MUL, tuple(map(self.widened, term.src))), *operands[1:])
        value = Node(node.op, operands, node.arg)
        if not dtype.is_small:
            return value
        if op in EXACT:
            self.wide[node] = value
        if op is Op.NEG:
            return bitcast(bitcast(src[0], carrier(dtype)) ^ (1 << (dtype.bits - 1)), dtype)
        return cast(value, dtype)

    def widened(self, node: Node) -> Node:
        """An operand that holds the value of `node`: a small float as float32."""
        if not node.dtype.is_small:
            return self.done[node]
        return self.wide.get(node) or cast(self.done[node], float32)

    def _cast(self, node: Node, value: Node) -> Node:
        source, to = node.src[0].dtype, node.dtype
        if to.is_small and source is not float64:  # which is rounded once
            value = cast(value, float32)
            if source.kind == "bool" or (source.is_float and source.bits < to.bits):
                self.wide[node] = value
        return cast(value, to)

"""Floats of 16 and 8 bits are computed in float32: targets load, store, select and cast them.

Every operation on small floats rounds its result, with one exception: a product that is summed
at once stays float32, as does the sum until its end. Values that are only moved keep their bits.
"""

from dataclasses import replace
from itertools import chain

from lamina.core.dtypes import BY_NAME, DType, float32, float64
from lamina.ir.build import bitcast, cast
from lamina.ir.interpreter import fold_constant
from lamina.ir.kernel import roots_of
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Nest

MOVES = (Op.LOAD, Op.CONST, Op.WHERE, Op.BITCAST)
EXACT = (Op.MAX, Op.MIN, Op.TRUNC, Op.NEG)  # the result is representable as the operands are
Forms = tuple[Node, Node]  # of a value: as it is held, and in arithmetic, a small float as float32


def legalize(nest: Nest) -> Nest:
    """`nest` with no arithmetic on small floats, which are cast to and from larger floats."""
    forms, every = dict[Node, Forms](), (nest.kernel.stores, nest.fills, nest.tiles)
    for node in toposort(root for one in chain(*every) for root in roots_of(one)):
        forms[node] = _forms(node, forms)
    held = {node: one for node, (one, _) in forms.items()}
    stores, fills, tiles = (tuple(one.rebuilt(held) for one in some) for some in every)
    return replace(nest, kernel=replace(nest.kernel, stores=stores), fills=fills, tiles=tiles)


def carrier(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of a small float."""
    return BY_NAME[f"uint{dtype.bits}"]


def _forms(node: Node, forms: dict[Node, Forms]) -> Forms:
    """Those of `node`, whose operands have theirs, in operations that targets have."""
    src, dtype, op = node.src, node.dtype, node.op
    held, wide = (tuple(forms[one][which] for one in src) for which in range(2))
    exact: Node | None = None  # what is computed, if it is representable
    if op in MOVES or not any(one.dtype.is_small for one in (node, *src)):
        value = Node(op, held, node.arg)
        if dtype.is_small and op is Op.CONST:
            exact = fold_constant(Op.CAST, (node,), float32)
        elif dtype.is_small and op is Op.WHERE:
            exact = Node(Op.WHERE, (held[0], *wide[1:]))
    elif op is Op.CAST:
        (value,), source = wide, src[0].dtype
        if dtype.is_small and source is not float64:  # which is rounded once
            value = cast(value, float32)
            if source.kind == "bool" or (source.is_float and source.bits < dtype.bits):
                exact = value
        value = cast(value, dtype)
    else:
        if op in (Op.LOOP_REDUCE, Op.LOOP_SCAN):
            op, term = node.arg.monoid.op, src[0]
            if node.arg.monoid is ADD and term.op is Op.MUL:  # before its rounding
                wide = (Node(Op.MUL, tuple(forms[one][1] for one in term.src)), *wide[1:])
        result = Node(node.op, wide, node.arg)
        exact, value = result if op in EXACT else None, cast(result, dtype)
        if dtype.is_small and op is Op.NEG:
            value = bitcast(bitcast(held[0], carrier(dtype)) ^ (1 << (dtype.bits - 1)), dtype)
    return value, exact or (cast(value, float32) if dtype.is_small else value)

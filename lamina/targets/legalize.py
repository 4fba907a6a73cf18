"""Floats of 16 and 8 bits are computed in float32: targets load, store, select and cast them.

Every operation on small floats rounds its result, with one exception: a product that is summed
at once stays float32, as does the sum until its end. Values that are only moved keep their bits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from lamina.core.dtypes import BY_NAME, DType, float32, float64
from lamina.ir.build import bitcast, cast
from lamina.ir.interpreter import fold_constant
from lamina.ir.kernel import Store, roots_of
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Nest

MOVES = (Op.LOAD, Op.CONST, Op.WHERE, Op.BITCAST)  # keep the bits of what they move
EXACT = (Op.MAX, Op.MIN, Op.TRUNC)  # the result is representable as the operands are


class Forms(NamedTuple):
    """Two forms of one value.

    held: as memory has it, a small float as a small float
    number: as arithmetic takes it, a small float as float32. It has the value of `held`, rounded

    The sum of x and y of bfloat16 is held as ``cast(cast(x, f32) + cast(y, f32), bf16)``; its
    number is the cast of that to float32.
    """

    held: Node
    number: Node


def legalize(nest: Nest) -> Nest:
    """`nest` with no arithmetic on small floats, which are cast to and from larger floats."""
    forms: dict[Node, Forms] = {}
    stores = chain(nest.kernel.stores, nest.fills)
    of_stores = (root for store in stores for root in roots_of(store))
    of_tiles = (root for tile in nest.tiles for root in (tile.value, tile.row_index))
    for node in toposort(chain(of_stores, of_tiles)):
        forms[node] = _forms(node, forms)
    held = {node: both.held for node, both in forms.items()}
    return replace(
        nest,
        kernel=replace(nest.kernel, stores=_rebuilt(nest.kernel.stores, held)),
        fills=_rebuilt(nest.fills, held),
        tiles=tuple(tile.rebuilt(held) for tile in nest.tiles),
    )


def _rebuilt(stores: Iterable[Store], held: Mapping[Node, Node]) -> tuple[Store, ...]:
    """`stores` of the held forms: memory has small floats as their bits."""
    return tuple(store.rebuilt(held) for store in stores)


def carrier(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of a small float: uint16 for bfloat16."""
    return BY_NAME[f"uint{dtype.bits}"]


def _forms(node: Node, forms: Mapping[Node, Forms]) -> Forms:
    """The forms of `node`, whose operands have theirs, in operations that targets have."""
    small_operands = any(operand.dtype.is_small for operand in node.src)
    if node.op in MOVES or not (node.dtype.is_small or small_operands):
        return _moved(node, forms)
    if node.op is Op.CAST:
        return _cast(node, forms[node.src[0]])
    if node.op is Op.NEG:
        return _negated(node, forms[node.src[0]])
    return _computed(node, forms)


def _moved(node: Node, forms: Mapping[Node, Forms]) -> Forms:
    """The forms of an operation that keeps bits (MOVES), or that has no small floats. Its number is
    `held`, cast to float32; but that of a constant is a constant, and that of a WHERE chooses
    between the numbers of its operands."""
    held = Node(node.op, tuple(forms[operand].held for operand in node.src), node.arg)
    if node.dtype.is_small and node.op is Op.CONST:
        return Forms(held, fold_constant(Op.CAST, (node,), float32))
    if node.dtype.is_small and node.op is Op.WHERE:
        # Not the cast of what is held: the number of `yes` may be an exact result in float32, as
        # that of a maximum, which needs no cast.
        condition, yes, no = (forms[operand] for operand in node.src)
        return Forms(held, Node(Op.WHERE, (condition.held, yes.number, no.number)))
    return Forms(held, _as_number(held))


def _cast(node: Node, operand: Forms) -> Forms:
    """A cast from or to a small float goes by float32, but for one from float64: that would round
    twice."""
    value, source, dtype = operand.number, node.src[0].dtype, node.dtype
    if not dtype.is_small or source is float64:
        held = cast(value, dtype)
        return Forms(held, _as_number(held))
    value = cast(value, float32)
    held = cast(value, dtype)
    # A cast that rounds nothing need not be undone.
    is_exact = source.kind == "bool" or (source.is_float and source.bits < dtype.bits)
    return Forms(held, value if is_exact else _as_number(held))


def _negated(node: Node, operand: Forms) -> Forms:
    """The negative of a small float, whose sign bit changes: that of NaN too, which a cast may
    lose. As a number it is the negative of the operand's number: nothing is rounded."""
    unsigned = carrier(node.dtype)
    sign = 1 << (node.dtype.bits - 1)
    held = bitcast(bitcast(operand.held, unsigned) ^ sign, node.dtype)
    return Forms(held, Node(Op.NEG, (operand.number,), node.arg))


def _computed(node: Node, forms: Mapping[Node, Forms]) -> Forms:
    """Arithmetic in float32, whose result is rounded.

    The sum of products x * y of bfloat16 is held as ``cast(loop_reduce(cast(x, f32) * cast(y, f32),
    k), bf16)``. A maximum is one of its operands: as a number, it is not rounded again.
    """
    operands = [forms[operand].number for operand in node.src]
    combine: Op | None = node.op  # of a reduction, what it combines by; None if that is no one op
    if node.op in (Op.LOOP_REDUCE, Op.LOOP_SCAN):
        monoid, term = node.arg.monoid, node.src[0]
        combine = monoid.op
        if monoid is ADD and term.op is Op.MUL:  # the sum takes the product before its rounding
            operands[0] = Node(Op.MUL, tuple(forms[factor].number for factor in term.src))
    result = Node(node.op, tuple(operands), node.arg)
    held = cast(result, node.dtype)
    return Forms(held, result if combine in EXACT else _as_number(held))


def _as_number(held: Node) -> Node:
    """What arithmetic takes for a value that is `held`: a small float as float32."""
    return cast(held, float32) if held.dtype.is_small else held

"""Floats of short integers without a conversion, for GPUs, which convert at a part of the rate at
which they add: a fourth on an H200, and an eighth from 16 bits.

An integer n from 0 to 2**23 - 1 put into the low bits of the float32 2**23, 0x4B000000, is that
of 2**23 + n. What is to be added to n then takes 2**23 away as well, exactly: for ``float(n) - 8``

    bitcast(n | 0x4B000000) - 8388616
"""

from dataclasses import replace

from lamina.core.dtypes import float32, uint32
from lamina.ir.build import bitcast, cast, const
from lamina.ir.kernel import roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Nest

_BITS = 23  # of the fraction of a float32
_MAX_ADDED = 1 << (_BITS - 1)  # so that what is added and 2**23 are an exact float32 together
_TWO_TO_23 = 0x4B000000  # the bits of 2.0**23


def without_conversions(nest: Nest) -> Nest:
    """`nest` with sums of a short unsigned integer, as float32, and a whole number in another form.
    Its tiles, which are filled on their way to tensor cores, stay as they are."""
    done: dict[Node, Node] = {}
    for node in toposort(root for store in nest.kernel.stores for root in roots_of(store)):
        rebuilt = Node(node.op, tuple(done[operand] for operand in node.src), node.arg)
        done[node] = from_bits(rebuilt) or rebuilt
    stores = tuple(store.rebuilt(done) for store in nest.kernel.stores)
    return replace(nest, kernel=replace(nest.kernel, stores=stores))


def from_bits(node: Node) -> Node | None:
    """The sum `node` of a short integer and a whole number from the bits of the integer; None for
    any other value."""
    if node.op is not Op.ADD or node.dtype is not float32:
        return None
    number, added = node.src
    if number.op is Op.CONST:
        number, added = added, number
    if number.op is not Op.CAST or added.op is not Op.CONST:
        return None
    integer, value = number.src[0], added.arg.value
    is_short = integer.dtype.kind == "uint" and _bits_of(integer) <= _BITS
    is_whole = abs(value) <= _MAX_ADDED and value == int(value)  # an infinity or NaN is not below
    if not (is_short and is_whole):
        return None
    bits = Node(Op.OR, (cast(integer, uint32), const(_TWO_TO_23, uint32)))
    return Node(Op.ADD, (bitcast(bits, float32), const(value - float(1 << _BITS), float32)))


def _bits_of(integer: Node) -> int:
    """The bits that an unsigned integer has at most: 4 of ``w & 15``."""
    bits = integer.dtype.bits
    if integer.op is Op.AND:
        masks = [operand.arg.value for operand in integer.src if operand.op is Op.CONST]
        return min([bits, *(int(mask).bit_length() for mask in masks)])
    return int(bits)

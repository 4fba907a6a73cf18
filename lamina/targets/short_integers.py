"""Floats of short integers without a conversion, for GPUs, which convert at a part of the rate at
which they add: a fourth on an H200, and an eighth from 16 bits.

An integer n from 0 to 2**23 - 1 put into the low bits of the float32 2**23, 0x4B000000, is that
of 2**23 + n. What is to be added to n then takes 2**23 away as well, exactly: for ``float(n) - 8``

    bitcast(n | 0x4B000000) - 8388616

Bits from the middle of a word need no shift: ``w & 0xF0`` is 16 times the number in the high half
of a byte, and so ``float(w >> 4 & 15) - 8`` is

    bitcast(w & 0xF0 | 0x4B000000) * 0.0625 - 524296

in one operation after two on bits. The shift has to be a number once loops are unrolled, as that of
the halves of a byte is: then so are the factor and what is added.
"""

from collections.abc import Set
from dataclasses import dataclass, replace

from lamina.core.dtypes import float32, uint32
from lamina.ir.build import bitcast, cast, const
from lamina.ir.kernel import free_axes, loads_beneath, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Nest

_BITS = 23  # of the fraction of a float32
_MAX_ADDED = 1 << (_BITS - 1)  # so that what is added and 2**23 are an exact float32 together
_TWO_TO_23 = 0x4B000000  # the bits of 2.0**23
_EXPONENT_OF_ONE = 127  # of 1.0 in the bits of a float32


def without_conversions(nest: Nest) -> Nest:
    """`nest` with sums of a short unsigned integer, as float32, and a whole number in another form.
    Its tiles, which are filled on their way to tensor cores, stay as they are."""
    unrolled = frozenset(axis for axis in nest.order if nest.bound(axis) == "unroll")
    done: dict[Node, Node] = {}
    for node in toposort(root for store in nest.kernel.stores for root in roots_of(store)):
        rebuilt = Node(node.op, tuple(done[operand] for operand in node.src), node.arg)
        done[node] = from_bits(rebuilt, unrolled) or rebuilt
    stores = tuple(store.rebuilt(done) for store in nest.kernel.stores)
    return replace(nest, kernel=replace(nest.kernel, stores=stores))


def from_bits(node: Node, unrolled: Set[Node] = frozenset()) -> Node | None:
    """The sum `node` of a short integer and a whole number from the bits of the integer; None for
    any other value. unrolled: axes whose indices are numbers in the text"""
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
    shifted = _shifted(integer, unrolled)
    if shifted is not None:
        return shifted.plus(value)
    return Node(Op.ADD, (_beyond_two_to_23(cast(integer, uint32)), _rest(value)))


def _beyond_two_to_23(bits: Node) -> Node:
    """The float32 2**23 + n of an integer n, uint32 below 2**23."""
    return bitcast(Node(Op.OR, (bits, const(_TWO_TO_23, uint32))), float32)


def _rest(value: float) -> Node:
    """What makes ``n + value`` of 2**23 + n."""
    return const(value - float(1 << _BITS), float32)


@dataclass(frozen=True)
class _Shifted:
    """The integer ``word >> shift & mask``, of whose word no bit is beyond the fraction of a
    float32. word: uint32. shift: uint32, a number in the text"""

    word: Node
    shift: Node
    mask: int

    def plus(self, value: float) -> Node:
        """The float32 of the integer plus a whole number. Both the product and the sum are exact:
        (2**23 + 2**shift * n) / 2**shift has at most 24 bits, and so has ``n + value``."""
        mask = Node(Op.SHL, (const(self.mask, uint32), self.shift))
        in_place = Node(Op.AND, (self.word, mask))
        # 127 ^ shift is 127 - shift, as 127 has all bits of it: the exponent of 2**-shift.
        exponent = Node(Op.XOR, (const(_EXPONENT_OF_ONE, uint32), self.shift))
        scale = bitcast(Node(Op.SHL, (exponent, const(_BITS, uint32))), float32)
        number = Node(Op.MUL, (_beyond_two_to_23(in_place), scale))
        two_to_23 = Node(Op.MUL, (scale, const(-float(1 << _BITS), float32)))
        return Node(Op.ADD, (number, Node(Op.ADD, (two_to_23, const(value, float32)))))


def _shifted(integer: Node, unrolled: Set[Node]) -> _Shifted | None:
    """The word, the shift and the mask of an integer; None if it is none of a short word, and where
    the shift is no number in the text."""
    mask = (1 << integer.dtype.bits) - 1
    shifted = integer
    if integer.op is Op.AND and integer.src[1].op is Op.CONST:
        mask, shifted = int(integer.src[1].arg.value), integer.src[0]
    if shifted.op is not Op.SHR or shifted.dtype.bits > _BITS:
        return None
    word, shift = shifted.src
    is_number = not loads_beneath([shift]) and free_axes(shift) <= unrolled
    return _Shifted(cast(word, uint32), cast(shift, uint32), mask) if is_number else None


def _bits_of(integer: Node) -> int:
    """The bits that an unsigned integer has at most: 4 of ``w & 15``."""
    bits = integer.dtype.bits
    if integer.op is Op.AND:
        masks = [operand.arg.value for operand in integer.src if operand.op is Op.CONST]
        return min([bits, *(int(mask).bit_length() for mask in masks)])
    return int(bits)

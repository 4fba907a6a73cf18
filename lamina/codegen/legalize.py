"""Make a kernel printable by a target: what the target cannot do becomes what it can.

C has no vector transcendentals, so float32 ones become polynomials, and no portable 16-bit or
8-bit floats, so those are unpacked to float32 where they are loaded and packed where stored.

Every operation on small floats rounds its result, with one exception: a product that is summed
at once stays float32, as does the sum until its end. Values that are only moved keep their bits.

The bits of a small float travel as an unsigned integer. `decode` makes a float32 of them that has
the same value, `encode` goes back: each a few integer operations that vectorise. Rounding is to
nearest, ties to even, with subnormals. The bits of a normal float32 and those of a small float
differ by a shift and an offset of the exponent, and a carry out of the rounded fraction increments
the exponent as it should. Below, adding a power of two whose last place is the small format's
smallest number rounds by itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from lamina.dtypes import BY_NAME, DType, float8_e4m3fn, float32, float64, int32, int64
from lamina.ir.build import bitcast, cast, select
from lamina.ir.interpreter import fold
from lamina.ir.kernel import Kernel, Store
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
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
            return self._decoded(encode(value, node.dtype), node)
        return value

    def _target(self, node: Node) -> Node:
        """`node` over legal operands, small ones widened."""
        src = tuple(self.done[operand] for operand in node.src)
        if node.op in (Op.FOLD, Op.PREFIX) and node.arg.monoid is ADD:
            src = (self.unrounded.get(node.src[0], src[0]), *src[1:])
        return expand(Node(node.op, src, node.arg))

    def _decoded(self, bits: Node, node: Node) -> Node:
        if not node.dtype.is_small:
            return bits
        self.bits[node] = bits
        return decode(bits, node.dtype)

    def _bits_of(self, node: Node) -> Node:
        """What to store for `node`: the bits of a small float, any other value itself."""
        if not node.dtype.is_small:
            return self.done[node]
        if node not in self.bits:
            self.bits[node] = encode(self.done[node], node.dtype)
        return self.bits[node]

    def _cast(self, node: Node) -> Node:
        value, source, to = self.done[node.src[0]], node.src[0].dtype, node.dtype
        if not to.is_small:
            return cast(value, to)
        value = narrowed(value) if source is float64 else cast(value, float32)
        fits = source.is_float and source.bits < to.bits
        exact = fits or source.kind == "bool"
        return value if exact else self._decoded(encode(value, to), node)


def _is_exact(node: Node) -> bool:
    """Is the result always representable in the dtype of the operands?"""
    op = node.arg.monoid.op if node.op in (Op.FOLD, Op.PREFIX) else node.op
    return op in (Op.MAX, Op.MIN, Op.TRUNC)


# Small floats.

_MAGNITUDE = (1 << 31) - 1
_INFINITY = 0x7F800000


class _Format:
    """What the bits of a small float mean."""

    def __init__(self, dtype: DType) -> None:
        self.fraction = dtype.precision - 1  # in bits
        self.least = dtype.least
        strange = 1 if dtype is float8_e4m3fn else 1 << self.fraction  # the last are not finite
        self.first_strange = (1 << (dtype.bits - 1)) - strange  # infinity where there is one
        self.nan = self.first_strange | (1 << self.fraction >> 1)
        self.drop = 23 - self.fraction  # fraction bits that float32 has beyond this format
        # What separates the exponent fields, in place; 0 for bfloat16, which has float32's.
        self.offset = _power_bits(self.least - 1)
        # float32's bits of what would follow the largest number if the exponent had no end.
        self.beyond = (self.first_strange << self.drop) + self.offset
        # The power of two whose last place in float32 is this format's smallest number.
        self.magic = self.least + self.drop


_format = cache(_Format)


def _power_bits(exponent: int) -> int:
    """Of the float32 ``2.0**exponent``."""
    return (exponent + 127) << 23


def carrier(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of `dtype`; other dtypes hold their own."""
    return BY_NAME[f"uint{dtype.bits}"] if dtype.is_small else dtype


def decode(bits: Node, dtype: DType) -> Node:
    """The float32 that `bits`, of the carrier's dtype, stand for."""
    form = _format(dtype)
    word = cast(bits, int32)
    if not form.offset:
        return bitcast(word << form.drop, float32)
    sign_bit = 1 << (dtype.bits - 1)
    body = word & (sign_bit - 1)
    sign = (word & sign_bit) << (32 - dtype.bits)
    normal = (body << form.drop) + form.offset
    strange = body > form.first_strange - 1
    normal = normal | select(strange, body.lift(_INFINITY), body.lift(0))
    step = 2.0 ** (form.least - form.fraction)
    subnormal = bitcast(cast(body, float32) * step, int32)
    is_subnormal = body < (1 << form.fraction)
    return bitcast(select(is_subnormal, subnormal, normal) | sign, float32)


def encode(value: Node, dtype: DType) -> Node:
    """The bits, of the carrier's dtype, of a float32 rounded to `dtype`."""
    form = _format(dtype)
    word = bitcast(value, int32)
    magnitude = word & _MAGNITUDE
    body = (_round_fraction(magnitude, form) + -form.offset) >> form.drop
    if form.offset:
        raised = bitcast(magnitude, float32) + 2.0**form.magic
        subnormal = bitcast(raised, int32) + -_power_bits(form.magic)
        body = select(magnitude < _power_bits(form.least), subnormal, body)
    body = select(magnitude > _INFINITY, body.lift(form.nan), body)
    sign = (word >> (32 - dtype.bits)) & (1 << (dtype.bits - 1))
    return cast(body | sign, carrier(dtype))


def _round_fraction(magnitude: Node, form: _Format) -> Node:
    """Add half of the last place that is kept, less one where that place is even. Numbers above
    the format's range are brought to the first beyond it, so that no exponent is too large."""
    if form.offset:
        magnitude = Node(Op.MIN, (magnitude, magnitude.lift(form.beyond)))
    odd = (magnitude >> form.drop) & 1
    return magnitude + odd + ((1 << (form.drop - 1)) - 1)


def narrowed(value: Node) -> Node:
    """A float64 as float32, rounded to odd, so that rounding once more rounds correctly.

    Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved algorithms
    using rounding to odd", theorem 1.
    """
    near = cast(value, float32)
    back = cast(near, float64)
    inexact = ~back.eq(value)
    above = _magnitude64(back) > _magnitude64(value)
    word = bitcast(near, int32)
    word = word + select(above, word.lift(-1), word.lift(0))
    return bitcast(word | select(inexact, word.lift(1), word.lift(0)), float32)


def _magnitude64(value: Node) -> Node:
    return bitcast(value, int64) & ((1 << 63) - 1)

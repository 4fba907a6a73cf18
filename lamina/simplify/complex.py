"""Complex numbers as pairs of real arrays.

No target has complex scalars. Before anything else looks at a graph, every complex node becomes
two real ones, its real and imaginary parts. In memory the parts alternate: a complex buffer of
shape S is a real one of shape (*S, 2) over the same storage, and a complex result is written so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lamina.dtypes import int64, real_of, uint32, uint64
from lamina.errors import DTypeError
from lamina.ir.build import bitcast, cast, const, expand, iota, reshape, select, shrink
from lamina.ir.monoids import ADD, COMPLEX_MUL, MUL
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op, Reduce


class Pair(NamedTuple):
    """A complex array: two real arrays of its shape."""

    re: Node
    im: Node


def split_complex(nodes: Sequence[Node]) -> list[Node]:
    """`nodes` with no complex value anywhere beneath them.

    A complex node of shape S comes back as a real one of shape (*S, 2), a real node as itself in
    shape and dtype. Raises DTypeError for a reduction that has no meaning for complex numbers.
    """
    order = toposort(nodes)
    if not any(node.dtype.is_complex for node in order):
        return list(nodes)
    splitter = _Splitter()
    for node in order:
        splitter.visit(node)
    return [
        splitter.interleaved(node) if node.dtype.is_complex else splitter.real[node]
        for node in nodes
    ]


class _Splitter:
    """What every node has become: an entry in `pairs` if it is complex, else one in `real`."""

    def __init__(self) -> None:
        self.real: dict[Node, Node] = {}
        self.pairs: dict[Node, Pair] = {}

    def visit(self, node: Node) -> None:
        """Split `node`, whose operands have been visited."""
        if node.dtype.is_complex:
            self.pairs[node] = self._pair(node)
        elif any(operand.dtype.is_complex for operand in node.src):
            pairs = [self.pairs[operand] for operand in node.src]
            self.real[node] = TO_REAL[node.op](node, *pairs)
        else:
            src = tuple(self.real[operand] for operand in node.src)
            self.real[node] = node if src == node.src else Node(node.op, src, node.arg)

    def interleaved(self, node: Node) -> Node:
        """The complex `node` as one real array, its parts alternating along a new last axis."""
        if node.op is Op.BUFFER:
            return _stored(node)
        shape = (*node.shape, 2)
        re, im = (
            expand(reshape(part, (*node.shape, 1)), shape) for part in self.pairs[node]
        )
        first = Node(Op.EQ, (iota(2, int64), expand(const(0, int64), (2,))))
        return select(expand(first, shape), re, im)

    def _pair(self, node: Node) -> Pair:
        if node.op is Op.BUFFER:
            return _parts_of(_stored(node), node)
        if node.op is Op.ASSIGN:
            target, value = map(self.interleaved, node.src)
            return _parts_of(Node(Op.ASSIGN, (target, value)), node)
        if node.op in Group.REDUCTION:
            return self._reduced(node)
        if node.op in FROM_PAIRS:
            return FROM_PAIRS[node.op](node, *(self.pairs[operand] for operand in node.src))
        if node.op in FROM_REAL and not node.src[0].dtype.is_complex:
            return FROM_REAL[node.op](node, *(self.real[operand] for operand in node.src))
        if node.op is Op.CAST:
            return _cast_parts(node, self.pairs[node.src[0]])
        if node.op is Op.BITCAST:
            return self.pairs[node.src[0]]
        if node.op is Op.SCATTER and node.arg.monoid not in (None, ADD):
            raise DTypeError(f"scatter: {node.arg.monoid} does not combine {node.dtype.name}; "
                             "split it into real and imaginary parts")  # fmt: skip
        return Pair(self._each_part(node, 0), self._each_part(node, 1))

    def _each_part(self, node: Node, part: int) -> Node:
        """`node` applied to one part of its complex operands."""
        src = tuple(
            self.pairs[one][part] if one.dtype.is_complex else self.real[one] for one in node.src
        )
        return Node(node.op, src, node.arg)

    def _reduced(self, node: Node) -> Pair:
        monoid, axes, _ = node.arg
        if monoid is ADD:
            return Pair(self._each_part(node, 0), self._each_part(node, 1))
        if monoid is not MUL:
            raise DTypeError(f"{node.op.name.lower()}: {monoid} does not combine "
                             f"{node.dtype.name}; reduce its real or imaginary part")  # fmt: skip
        re, im = (
            Node(node.op, tuple(self.pairs[node.src[0]]), Reduce(COMPLEX_MUL, axes, part))
            for part in (0, 1)
        )
        return Pair(re, im)


def _stored(buffer: Node) -> Node:
    """The storage of a complex buffer as an array of its parts."""
    ref = buffer.arg
    return Node(
        Op.BUFFER, (), ref._replace(shape=(*ref.shape, 2), dtype=real_of(ref.dtype))
    )


def _parts_of(stored: Node, node: Node) -> Pair:
    """The parts of `node`, which lie interleaved in `stored`."""
    first, last = (0,) * len(node.shape), node.shape
    re, im = (
        reshape(shrink(stored, (*first, part), (*last, part + 1)), node.shape)
        for part in (0, 1)
    )
    return Pair(re, im)


def _const(node: Node) -> Pair:
    dtype, value = real_of(node.dtype), node.arg.value
    return Pair(const(value.real, dtype), const(value.imag, dtype))


def _zero_like(x: Node) -> Node:
    return x.lift(0.0)


def _multiply(node: Node, x: Pair, y: Pair) -> Pair:
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def _divide(node: Node, x: Pair, y: Pair) -> Pair:
    """Smith 1962, "Algorithm 116: Complex division": scale by the divisor's larger part, so that
    no square overflows. A zero divisor gives infinities and NaN, as for real numbers."""
    swap = _magnitude(y.re) < _magnitude(y.im)
    large, small = select(swap, y.im, y.re), select(swap, y.re, y.im)
    ratio = select(large.eq(0.0), _zero_like(large), small / large)
    factor = 1.0 / (large + small * ratio)
    first, second = select(swap, x.im, x.re), select(swap, x.re, x.im)
    cross = second - first * ratio
    return Pair((first + second * ratio) * factor, select(swap, -cross, cross) * factor)


def _magnitude(x: Node) -> Node:
    return Node(Op.MAX, (x, -x))


def _pad(node: Node, x: Pair) -> Pair:
    value = complex(node.arg.value)
    return Pair(
        Node(Op.PAD, (x.re,), node.arg._replace(value=value.real)),
        Node(Op.PAD, (x.im,), node.arg._replace(value=value.imag)),
    )


def _cast_parts(node: Node, x: Pair) -> Pair:
    dtype = real_of(node.dtype)
    return Pair(cast(x.re, dtype), cast(x.im, dtype))


def _cast_from_real(node: Node, x: Node) -> Pair:
    re = cast(x, real_of(node.dtype))
    return Pair(re, _zero_like(re))


def _join(node: Node, re: Node, im: Node) -> Pair:
    dtype = real_of(node.dtype)
    return Pair(cast(re, dtype), cast(im, dtype))


def _from_bits(node: Node, x: Node) -> Pair:
    """A 64-bit word as a complex64; the real part comes first in memory."""
    bits = bitcast(x, uint64)
    words = (bits, Node(Op.SHR, (bits, bits.lift(32))))
    re, im = (bitcast(cast(word, uint32), real_of(node.dtype)) for word in words)
    return Pair(re, im)


def _to_bits(node: Node, x: Pair) -> Node:
    low, high = (cast(bitcast(part, uint32), uint64) for part in x)
    return bitcast(low | (high << 32), node.dtype)


# Complex operands, complex result; whatever is not here works on each part alone.
FROM_PAIRS: dict[Op, Callable[..., Pair]] = {
    Op.CONST: _const,
    Op.MUL: _multiply,
    Op.DIV: _divide,
    Op.PAD: _pad,
}
# Real operands, complex result.
FROM_REAL: dict[Op, Callable[..., Pair]] = {
    Op.COMPLEX: _join,
    Op.CAST: _cast_from_real,
    Op.BITCAST: _from_bits,
}
# Complex operands, real result.
TO_REAL: dict[Op, Callable[..., Node]] = {
    Op.REAL: lambda node, x: x.re,
    Op.IMAG: lambda node, x: x.im,
    Op.EQ: lambda node, x, y: x.re.eq(y.re) & x.im.eq(y.im),
    Op.CAST: lambda node, x: cast(x.re, node.dtype),
    Op.BITCAST: _to_bits,
}

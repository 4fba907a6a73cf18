"""Complex numbers as pairs of real arrays.

No target has complex scalars, and no pass after this one knows them: every complex node becomes two
real ones, its real and imaginary parts. In memory the parts alternate: a complex buffer of shape S
is a real one of shape (*S, 2) over the same storage, and a complex result is written so.
"""

from collections.abc import Callable

from lamina.core.dtypes import bool_, int64, real_of, uint32, uint64
from lamina.ir.build import bitcast, cast, const, expand, iota, pad, reshape, select, slice_axis
from lamina.ir.monoids import COMPLEX_MUL, MUL
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Reduce

# What a node becomes: (re, im) if it is complex, else one real node.
Parts = tuple[Node, ...]


def split_complex(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """`nodes` with no complex value beneath them: a complex node of shape S comes back as a real
    one of shape (*S, 2), a real node with its own shape and dtype."""
    order = toposort(nodes)
    if not any(node.dtype.is_complex for node in order):
        return nodes
    done: dict[Node, Parts] = {}
    for node in order:
        has_complex = any(typed.dtype.is_complex for typed in (node, *node.src))
        rule = _RULES.get(node.op, _each_part) if has_complex else _each_part
        parts = rule(node, *(done[operand] for operand in node.src))
        done[node] = parts if node.dtype.is_complex else parts[:1]
    return tuple(_joined(node, done[node]) for node in nodes)


def _each_part(node: Node, *src: Parts) -> Parts:
    """`node` applied to the real parts of its operands, then to the imaginary ones; a real operand,
    such as the condition of a WHERE, takes part in both."""
    re = Node(node.op, tuple(parts[0] for parts in src), node.arg)
    im = Node(node.op, tuple(parts[-1] for parts in src), node.arg)
    return re, im


def _stored(buffer: Node) -> Node:
    """The storage of a complex buffer as an array of its parts."""
    ref = buffer.arg
    return Node(Op.BUFFER, (), ref._replace(shape=(*ref.shape, 2), dtype=real_of(ref.dtype)))


def _loaded(buffer: Node) -> Parts:
    """The parts that lie interleaved in a complex buffer."""
    stored, last = _stored(buffer), len(buffer.shape)
    parts = (slice_axis(stored, last, number, number + 1) for number in (0, 1))
    return tuple(reshape(part, buffer.shape) for part in parts)


def _joined(node: Node, parts: Parts) -> Node:
    """`node` as one real array: complex parts alternate along a new last axis."""
    if len(parts) == 1:
        return parts[0]
    shape = (*node.shape, 2)
    re, im = (expand(reshape(part, (*node.shape, 1)), shape) for part in parts)
    is_real = expand(iota(2, int64).eq(0), shape)
    joined = select(is_real, re, im)
    return Node(Op.ASSIGN, (_stored(node.src[0]), joined)) if node.op is Op.ASSIGN else joined


def _divide(node: Node, x: Parts, y: Parts) -> Parts:
    """Smith 1962, "Algorithm 116: Complex division": scale by the divisor's larger part, so that
    no square overflows. A zero divisor gives infinities and NaN, as for real numbers. With
    |c| >= |d| and r = d / c,

        (a + bi) / (c + di) = (a + br) / (c + dr) + (b - ar) / (c + dr) i

    and otherwise the same with a and b, c and d exchanged, and the imaginary part negated."""
    (a, b), (c, d) = x, y
    swap = Node(Op.MAX, (c, -c)) < Node(Op.MAX, (d, -d))
    large, small = select(swap, d, c), select(swap, c, d)
    ratio = select(large.eq(0.0), large.lift(0.0), small / large)
    factor = 1.0 / (large + small * ratio)
    first, second = select(swap, b, a), select(swap, a, b)
    cross = second - first * ratio
    return (first + second * ratio) * factor, select(swap, -cross, cross) * factor


def _pad(node: Node, x: Parts) -> Parts:
    before, after, value = node.arg
    return pad(x[0], before, after, value.real), pad(x[1], before, after, value.imag)


def _cast(node: Node, x: Parts) -> Parts:
    """A real value gets an imaginary part of 0; a bool says whether either part is not 0; another
    real dtype keeps the real part alone."""
    parts = [cast(part, real_of(node.dtype)) for part in x]
    if node.dtype is bool_:
        re, im = parts
        return (re | im,)
    return (*parts, parts[0].lift(0)) if len(parts) == 1 else tuple(parts)


def _bitcast(node: Node, x: Parts) -> Parts:
    """Between a complex64 and a 64-bit word; the real part comes first in memory."""
    if not node.dtype.is_complex:
        low, high = (cast(bitcast(part, uint32), uint64) for part in x)
        return (bitcast(low | (high << 32), node.dtype),)
    bits = bitcast(x[0], uint64)
    return tuple(bitcast(cast(word, uint32), real_of(node.dtype)) for word in (bits, bits >> 32))


def _combine(node: Node, *src: Parts) -> Parts:
    """A reduction, scan or scatter: of products by the complex monoid, else part by part."""
    if node.arg.monoid is not MUL:  # a sum, or a scatter that overwrites
        return _each_part(node, *src)
    return tuple(Node(node.op, src[0], Reduce(COMPLEX_MUL, node.arg.axes, part)) for part in (0, 1))


# Operations with a complex operand or result; what is not here works on each part alone.
_RULES: dict[Op, Callable[..., Parts]] = {
    Op.BUFFER: _loaded,
    Op.ASSIGN: lambda node, target, value: value,
    Op.CONST: lambda node: tuple(
        const(getattr(node.arg.value, part), real_of(node.dtype)) for part in ("real", "imag")
    ),
    Op.MUL: lambda node, x, y: COMPLEX_MUL.combine(x, y),
    Op.DIV: _divide,
    Op.PAD: _pad,
    Op.COMPLEX: lambda node, re, im: _cast(node, (*re, *im)),
    Op.REAL: lambda node, x: x,
    Op.IMAG: lambda node, x: x[1:],
    Op.EQ: lambda node, x, y: (x[0].eq(y[0]) & x[1].eq(y[1]),),
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    **dict.fromkeys((Op.REDUCE, Op.SCAN, Op.SCATTER), _combine),
}

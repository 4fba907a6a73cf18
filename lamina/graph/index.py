"""Index arithmetic: affine forms over loop axes, and floor division and modulus of them.

An index is a scalar int64 node: CONST, AXIS, AFFINE (a constant and one integer coefficient an
operand), or IDIV and MOD of an index by a positive constant. The functions below keep one normal
form, so that equal indices are the same node:

    (c*q + r) // c  ->  q + r // c        r keeps what c does not divide
    r // c          ->  0                 when the bounds say 0 <= r < c
    (c*q + r) % c   ->  r % c,  and r when 0 <= r < c
    c*(x // c) + x % c  ->  x

Division rounds down and MOD has the sign of the divisor, as in Python.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from math import inf

from lamina.core.dtypes import bool_, int64
from lamina.core.shape import Shape, strides_of
from lamina.ir.kernel import TRUE as TRUE
from lamina.ir.kernel import Terms, bounds, divisor_of, free_axes
from lamina.ir.kernel import terms_of as terms_of
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Affine, Axis, Op

ZERO = const(0, int64)
FALSE = const(False, bool_)


def axis(number: int, size: int, *, reduce: bool = False) -> Node:
    """A loop index ``0 <= index < size``."""
    return Node(Op.AXIS, (), Axis(number, size, reduce))


def affine(terms: Terms, constant: int) -> Node:
    """``constant + sum(coefficient * operand)`` in normal form."""
    terms = {term: factor for term, factor in terms.items() if factor}
    for term, factor in terms.items():
        if term.op is Op.MOD and (divisor := divisor_of(term)):
            inner = term.src[0]
            whole, offset = terms_of(scale(divided(inner, divisor)[0], divisor * factor))
            if whole and not offset and all(terms.get(one) == whole[one] for one in whole):
                rest = {one: terms[one] for one in terms if one is not term and one not in whole}
                return add(affine(rest, constant), scale(inner, factor))
    if not terms:
        return const(constant, int64)
    ordered = sorted(terms, key=lambda one: one.arg.number if one.op is Op.AXIS else inf)
    if len(ordered) == 1 and constant == 0 and terms[ordered[0]] == 1:
        return ordered[0]
    coefficients = tuple(terms[term] for term in ordered)
    return Node(Op.AFFINE, tuple(ordered), Affine(coefficients, constant))


def add(*indices: Node) -> Node:
    total, constant = Counter[Node](), 0
    for terms, offset in map(terms_of, indices):
        total.update(terms)
        constant += offset
    return affine(total, constant)


def scale(index: Node, factor: int, offset: int = 0) -> Node:
    """``index * factor + offset``."""
    if factor == 1 and offset == 0:
        return index
    terms, constant = terms_of(index)
    return affine({term: one * factor for term, one in terms.items()}, constant * factor + offset)


def of_value(value: Node) -> Node:
    """A scalar int64 `value` as an index: sums, and products with constants, are in normal form
    where the bounds of operands say that they do not wrap around."""
    done: dict[Node, Node] = {}
    for node in toposort([value], lambda one: one.op in (Op.ADD, Op.MUL)):
        src = [done.get(one, one) for one in node.src]
        index = node
        if node.op is Op.ADD:
            index = add(*src)
        elif src[1].op is Op.CONST:
            index = scale(src[0], src[1].arg.value)
        low, high = bounds(index)
        done[node] = index if low >= -(1 << 63) and high < 1 << 63 else node
    return done.get(value, value)


def walk(index: Sequence[Node], shape: Shape | None = None) -> Node:
    """The place of `index` in row-major memory of `shape`, or what loops count together."""
    sizes = [axis.arg.size for axis in index] if shape is None else shape
    return add(*map(scale, index, strides_of(sizes)))


@lru_cache(maxsize=65536)
def divided(index: Node, divisor: int) -> tuple[Node, Node]:
    """``index // divisor`` and ``index % divisor`` for a positive divisor."""
    terms, constant = terms_of(index)
    whole = {term: factor // divisor for term, factor in terms.items() if factor % divisor == 0}
    left = {term: factor for term, factor in terms.items() if factor % divisor}
    quotient, rest = affine(whole, constant // divisor), affine(left, constant % divisor)
    low, high = bounds(rest)
    if low >= 0 and high < divisor:
        return quotient, rest
    (terms, constant), by = terms_of(rest), const(divisor, int64)
    reduced = affine({term: factor % divisor for term, factor in terms.items()}, constant)
    return add(quotient, Node(Op.IDIV, (rest, by))), Node(Op.MOD, (reduced, by))


def inside(index: Node, size: int) -> Node:
    """The condition ``0 <= index < size``; a constant where the bounds decide it."""
    low, high = bounds(index)
    if high < 0 or low >= size:
        return FALSE
    above = Node(Op.LT, (const(-1, int64), index)) if low < 0 else TRUE
    below = Node(Op.LT, (index, const(size, int64))) if high >= size else TRUE
    return both(above, below)


def extents(condition: Node = TRUE) -> dict[Node, int] | None:
    """The size that each index of `condition` is `inside` of; None if it says anything else."""
    found, parts = dict[Node, int](), dict.fromkeys(conjuncts(condition))  # in order
    for low, high in (one.src for one in parts if one.op is Op.LT and one.src[0].dtype is int64):
        index, size = (low, high.arg.value) if high.op is Op.CONST else (high, bounds(high)[1] + 1)
        found[index] = min(size, found.get(index, size))
    return found if {*parts} == {*conjuncts(both(*map(inside, found, found.values())))} else None


def both(*conditions: Node) -> Node:
    """The conjunction, each part of it once: just the first condition if it has all the parts."""
    parts = dict.fromkeys(part for condition in conditions for part in conjuncts(condition))
    if FALSE in parts:
        return FALSE
    return reduce(lambda left, right: Node(Op.AND, (left, right)), parts) if parts else TRUE


def conjuncts(condition: Node) -> Iterator[Node]:
    """The parts of a conjunction."""
    if condition.op is Op.AND:
        for operand in condition.src:
            yield from conjuncts(operand)
    elif condition is not TRUE:
        yield condition


def suits(axis: Node, index: Node, condition: Node = TRUE) -> int:
    """How well lanes along `axis` suit one access: 1 if they touch neighbours, 0 if all touch one
    element, -1 if they are a stride apart, -2 if data or a condition decide lane by lane."""
    terms, _ = terms_of(index)
    data = any(one is not axis and axis in free_axes(one) for one in terms)
    run = axis not in free_axes(condition) or extents(condition) is not None
    if data or not run:
        return -2
    return {0: 0, 1: 1}.get(terms.get(axis, 0), -1)


def rebuild(node: Node, src: tuple[Node, ...]) -> Node:
    """`node` over new operands; an index is in normal form again."""
    if src == node.src:
        return node
    if node.op is Op.AFFINE:
        scaled = [scale(one, k) for one, k in zip(src, node.arg.coefficients, strict=True)]
        return scale(add(*scaled), 1, node.arg.constant)
    if divisor := divisor_of(node):
        return divided(src[0], divisor)[node.op is Op.MOD]
    return Node(node.op, src, node.arg)


def replaced(root: Node, replacement: dict[Node, Node]) -> Node:
    """`root` with other nodes in place of some beneath it."""
    done = dict(replacement)
    for node in toposort([root], lambda one: one not in replacement):
        done[node] = rebuild(node, tuple(done[one] for one in node.src))
    return done[root]

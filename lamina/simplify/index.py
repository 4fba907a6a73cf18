"""Index arithmetic: affine forms over loop axes, and floor division and modulus of them.

An index is a scalar int64 node: CONST, AXIS, AFFINE (a constant and one integer coefficient an
operand), or IDIV and MOD of an index by a positive constant. The functions below keep one normal
form, so that equal indices are the same node:

    (c*q + r) // c  ->  q + r // c        r keeps what c does not divide
    r // c          ->  0                 when the bounds say 0 <= r < c
    (g*e) // (g*c)  ->  e // c            also with a remainder of the constant below g
    (x // a) // b   ->  x // (a*b)
    (c*q + r) % c   ->  r % c,  and r when 0 <= r < c
    c*(x // c) + x % c  ->  x

Division rounds down and MOD has the sign of the divisor, as in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import gcd

from lamina.dtypes import bool_, int64
from lamina.ir.node import Node, const
from lamina.ir.ops import Affine, Axis, Op

Terms = dict[Node, int]
Bounds = tuple[int, int]
ZERO = const(0, int64)
TRUE = const(True, bool_)
FALSE = const(False, bool_)


def axis(number: int, size: int, *, reduce: bool = False) -> Node:
    """A loop index ``0 <= index < size``."""
    return Node(Op.AXIS, (), Axis(number, size, reduce))


def terms_of(index: Node) -> tuple[Terms, int]:
    """Coefficient of each operand, and the constant."""
    if index.op is Op.AFFINE:
        return dict(zip(index.src, index.arg.coefficients, strict=True)), index.arg.constant
    if index.op is Op.CONST:
        return {}, index.arg.value
    return {index: 1}, 0


def _order(term: Node) -> tuple[int, int]:
    return (0, term.arg.number) if term.op is Op.AXIS else (1, 0)


def affine(terms: Terms, constant: int) -> Node:
    """``constant + sum(coefficient * operand)`` in normal form."""
    kept = {term: factor for term, factor in terms.items() if factor}
    if not kept:
        return const(constant, int64)
    if any(term.op is Op.MOD for term in kept):
        constant += _join_quotients(kept)
        kept = {term: factor for term, factor in kept.items() if factor}
    ordered = sorted(kept, key=_order)
    if len(ordered) == 1 and constant == 0 and kept[ordered[0]] == 1:
        return ordered[0]
    return Node(
        Op.AFFINE, tuple(ordered), Affine(tuple(kept[term] for term in ordered), constant)
    )


def _join_quotients(terms: Terms) -> int:
    """Turn ``c*(x // c) + x % c`` into x, in place; returns the constants that the x bring."""
    total = 0
    for term, factor in list(terms.items()):
        if term.op is not Op.MOD or not _by_constant(term) or terms.get(term) != factor:
            continue
        inner, divisor = term.src[0], term.src[1].arg.value
        quotient_terms, quotient_constant = terms_of(floordiv(inner, divisor))
        if quotient_constant or not quotient_terms:
            continue
        whole = divisor * factor
        scaled = {one: coefficient * whole for one, coefficient in quotient_terms.items()}
        if all(terms.get(one) == value for one, value in scaled.items()):
            for one in (*scaled, term):
                del terms[one]
            inner_terms, constant = terms_of(inner)
            total += constant * factor
            for one, coefficient in inner_terms.items():
                terms[one] = terms.get(one, 0) + coefficient * factor
    return total


def add(*indices: Node) -> Node:
    """The sum of indices."""
    total: Terms = {}
    constant = 0
    for index in indices:
        terms, offset = terms_of(index)
        constant += offset
        for term, factor in terms.items():
            total[term] = total.get(term, 0) + factor
    return affine(total, constant)


def scale(index: Node, factor: int, offset: int = 0) -> Node:
    """``index * factor + offset``."""
    if factor == 1 and offset == 0:
        return index
    terms, constant = terms_of(index)
    return affine({term: one * factor for term, one in terms.items()}, constant * factor + offset)


@lru_cache(maxsize=65536)
def bounds(index: Node) -> Bounds | None:
    """The least and greatest value, or None when an operand is data."""
    if index.op is Op.CONST:
        return index.arg.value, index.arg.value
    if index.op is Op.AXIS:
        return 0, max(index.arg.size - 1, 0)
    if index.op is Op.VARIABLE:
        return index.arg.minimum, index.arg.maximum
    if index.op is Op.AFFINE:
        low = high = index.arg.constant
        for operand, factor in zip(index.src, index.arg.coefficients, strict=True):
            inner = bounds(operand)
            if inner is None:
                return None
            ends = (inner[0] * factor, inner[1] * factor)
            low += min(ends)
            high += max(ends)
        return low, high
    if _by_constant(index):
        divisor = index.src[1].arg.value
        inner = bounds(index.src[0])
        if index.op is Op.MOD:
            return 0, divisor - 1
        return None if inner is None else (inner[0] // divisor, inner[1] // divisor)
    return None


def _by_constant(index: Node) -> bool:
    """Is this the floor division or modulus of something by a positive constant?"""
    return (
        index.op in (Op.IDIV, Op.MOD)
        and index.dtype is int64
        and index.src[1].op is Op.CONST
        and index.src[1].arg.value > 0
    )


def _within(index: Node, divisor: int) -> bool:
    limits = bounds(index)
    return limits is not None and limits[0] >= 0 and limits[1] < divisor


def _divide(index: Node, divisor: int) -> tuple[Node, Node]:
    """``index == divisor * first + second`` with the divisible part in first."""
    terms, constant = terms_of(index)
    quotient = {one: factor // divisor for one, factor in terms.items() if factor % divisor == 0}
    rest = {one: factor for one, factor in terms.items() if factor % divisor}
    # A constant below the divisor stays with the rest, where bounds may absorb it.
    candidate = affine(rest, constant % divisor)
    if constant and not _within(candidate, divisor):
        whole = affine(rest, constant)
        if _within(whole, divisor):
            return affine(quotient, 0), whole
    return affine(quotient, constant // divisor), candidate


def floordiv(index: Node, divisor: int) -> Node:
    """``index // divisor`` for a positive divisor."""
    if divisor == 1:
        return index
    quotient, rest = _divide(index, divisor)
    if _within(rest, divisor):
        return quotient
    if rest.op is Op.CONST:
        return scale(quotient, 1, rest.arg.value // divisor)
    terms, constant = terms_of(rest)
    common = gcd(divisor, *terms.values())
    if common > 1:
        reduced = affine({one: factor // common for one, factor in terms.items()},
                         constant // common)  # fmt: skip
        return add(quotient, floordiv(reduced, divisor // common))
    if rest.op is Op.IDIV and _by_constant(rest):
        return add(quotient, floordiv(rest.src[0], rest.src[1].arg.value * divisor))
    return add(quotient, Node(Op.IDIV, (rest, const(divisor, int64))))


def mod(index: Node, divisor: int) -> Node:
    """``index % divisor`` for a positive divisor."""
    if divisor == 1:
        return ZERO
    _, rest = _divide(index, divisor)
    if _within(rest, divisor):
        return rest
    if rest.op is Op.CONST:
        return const(rest.arg.value % divisor, int64)
    terms, constant = terms_of(rest)
    reduced = {one: factor % divisor for one, factor in terms.items()}
    rest = affine(reduced, constant % divisor)
    common = gcd(divisor, *reduced.values())
    if common > 1:
        inner = affine({one: factor // common for one, factor in reduced.items()},
                       constant % divisor // common)  # fmt: skip
        return scale(mod(inner, divisor // common), common, constant % divisor % common)
    return Node(Op.MOD, (rest, const(divisor, int64)))


def inside(index: Node, size: int) -> Node:
    """The condition ``0 <= index < size``; a constant where the bounds decide it."""
    limits = bounds(index)
    conditions = []
    if limits is None or limits[0] < 0:
        if limits is not None and limits[1] < 0:
            return FALSE
        conditions.append(Node(Op.LT, (const(-1, int64), index)))
    if limits is None or limits[1] >= size:
        if limits is not None and limits[0] >= size:
            return FALSE
        conditions.append(Node(Op.LT, (index, const(size, int64))))
    return both(*conditions)


def both(*conditions: Node | None) -> Node:
    """The conjunction of conditions, without repeats; None counts as true."""
    parts: dict[Node, None] = {}
    for condition in conditions:
        for part in _conjuncts(condition):
            if part is FALSE:
                return FALSE
            parts[part] = None
    result = TRUE
    for part in parts:
        result = part if result is TRUE else Node(Op.AND, (result, part))
    return result


def implies(condition: Node, part: Node) -> bool:
    """Is every conjunct of `part` one of `condition`?"""
    return set(_conjuncts(part)) <= set(_conjuncts(condition))


def _conjuncts(condition: Node | None) -> Iterable[Node]:
    if condition is None or condition is TRUE:
        return
    if condition.op is Op.AND:
        for operand in condition.src:
            yield from _conjuncts(operand)
    else:
        yield condition


def rebuild(node: Node, src: tuple[Node, ...], replacement: dict[Node, Node]) -> Node:
    """`node` over new operands, its axes replaced, its index back in normal form."""
    if node in replacement:
        return replacement[node]
    if src == node.src:
        return node
    if node.op is Op.AFFINE:
        scaled = [scale(one, k) for one, k in zip(src, node.arg.coefficients, strict=True)]
        return scale(add(*scaled), 1, node.arg.constant)
    if _by_constant(node):
        return (floordiv if node.op is Op.IDIV else mod)(src[0], src[1].arg.value)
    return Node(node.op, src, node.arg)

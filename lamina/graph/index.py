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

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import gcd, inf
from typing import NamedTuple

from lamina.core.dtypes import bool_, int64
from lamina.core.integers import power_of_two_up_to
from lamina.core.recent import memoized
from lamina.core.shape import Shape, strides_of
from lamina.ir.kernel import TRUE as TRUE
from lamina.ir.kernel import Terms, bounds, divisor_of, free_axes
from lamina.ir.kernel import terms_of as terms_of
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Affine, Axis, Op
from lamina.ir.substitute import substitute

ZERO = const(0, int64)
FALSE = const(False, bool_)


def axis(number: int, size: int, *, reduce: bool = False) -> Node:
    """A loop index ``0 <= index < size``."""
    return Node(Op.AXIS, (), Axis(number, size, reduce))


def affine(terms: Terms, constant: int) -> Node:
    """``constant + sum(coefficient * operand)`` in normal form: axes by their numbers, then the
    other operands as they come."""
    terms = {term: factor for term, factor in terms.items() if factor}
    for term in terms:
        if term.op is Op.MOD:
            joined = _join_modulus(terms, constant, term)
            if joined is not None:
                return joined
    if not terms:
        return const(constant, int64)
    ordered = sorted(terms, key=_position)
    if len(ordered) == 1 and constant == 0 and terms[ordered[0]] == 1:
        return ordered[0]
    coefficients = tuple(terms[term] for term in ordered)
    return Node(Op.AFFINE, tuple(ordered), Affine(coefficients, constant))


def _position(term: Node) -> float:
    return term.arg.number if term.op is Op.AXIS else inf


def _join_modulus(terms: Terms, constant: int, modulus: Node) -> Node | None:
    """``terms + constant`` with ``k*x`` in place of ``k*c*(x // c) + k*(x % c)``, where `modulus`
    is ``x % c`` and k its coefficient; None if `terms` lack the quotient.

    What is divided and what is left of it may differ by a multiple of c, as the normal form of
    ``(9*i + j) % 4`` is ``(i + j) % 4``."""
    divisor, factor = divisor_of(modulus), terms[modulus]
    if not divisor:
        return None
    for term, coefficient in terms.items():
        is_quotient = term.op is Op.IDIV and divisor_of(term) == divisor
        if not is_quotient or coefficient != divisor * factor:
            continue
        dividend = term.src[0]
        if _is_multiple(add(dividend, scale(modulus.src[0], -1)), divisor):
            others = {each: terms[each] for each in terms if each not in (modulus, term)}
            return add(affine(others, constant), scale(dividend, factor))
    return None


def _is_multiple(index: Node, divisor: int) -> bool:
    """Whether `index` is a multiple of `divisor` by its coefficients."""
    terms, constant = terms_of(index)
    return all(factor % divisor == 0 for factor in (constant, *terms.values()))


@memoized(65536)
def add(*indices: Node) -> Node:
    """The sum of `indices`; 0 for none."""
    return _weighted_sum(indices, (1,) * len(indices), 0)


def _weighted_sum(indices: Sequence[Node], factors: Sequence[int], constant: int) -> Node:
    """``constant + sum(factor * index)``: of 4*i + 1 and j with factors 2 and 3, 8*i + 3*j + 2."""
    total: Terms = {}
    for index, factor in zip(indices, factors, strict=True):
        terms, offset = terms_of(index)
        for term, coefficient in terms.items():
            total[term] = total.get(term, 0) + factor * coefficient
        constant += factor * offset
    return affine(total, constant)


@memoized(65536)
def scale(index: Node, factor: int, offset: int = 0) -> Node:
    """``index * factor + offset``."""
    if factor == 1 and offset == 0:
        return index
    terms, constant = terms_of(index)
    scaled = {term: coefficient * factor for term, coefficient in terms.items()}
    return affine(scaled, constant * factor + offset)


def of_value(value: Node) -> Node:
    """A scalar int64 `value` as an index: arithmetic on axes, and else sums, and products with
    constants, are in normal form where the bounds of operands say that they do not wrap around."""
    arithmetic = of_integer(value)
    if arithmetic is not None:
        return arithmetic
    done: dict[Node, Node] = {}
    for node in toposort([value], lambda node: node.op in (Op.ADD, Op.MUL)):
        src = [done.get(operand, operand) for operand in node.src]
        index = node
        if node.op is Op.ADD:
            index = add(*src)
        elif src[1].op is Op.CONST:
            index = scale(src[0], src[1].arg.value)
        low, high = bounds(index)
        fits = low >= -(1 << 63) and high < 1 << 63
        done[node] = index if fits else node
    return done.get(value, value)


def of_integer(value: Node) -> Node | None:
    """An integer scalar of any dtype as an index; None if it depends on data, or if arithmetic on
    it may wrap around. For an axis i of 10 steps that is ``i + 3`` for ``cast(i, int8) + 3``, and
    None for ``cast(i, int8) * 100``."""
    return _of_integer(value) if value.dtype.is_int else None


@memoized(65536)
def _of_integer(value: Node) -> Node | None:
    op = value.op
    if op is Op.AXIS:
        return value
    if op is Op.CONST:
        return const(value.arg.value, int64)
    if op not in (Op.CAST, Op.NEG, Op.ADD, Op.MUL, Op.AFFINE, Op.IDIV, Op.MOD):
        return None
    parts: list[Node] = []
    for operand in value.src:
        part = of_integer(operand)
        if part is None:
            return None
        parts.append(part)
    if op is Op.AFFINE:
        return value
    if op in (Op.MUL, Op.IDIV, Op.MOD):
        if parts[1].op is not Op.CONST:
            return None
        number: int = parts[1].arg.value
        if op is not Op.MUL and number <= 0:
            return None
        index = scale(parts[0], number) if op is Op.MUL else _divided_by(op, parts[0], number)
    else:
        index = scale(parts[0], -1) if op is Op.NEG else add(*parts)
    low, high = bounds(index)
    dtype = value.dtype
    fits = low >= dtype.min and high <= dtype.max  # type: ignore[operator]
    return index if fits else None


def _divided_by(op: Op, index: Node, divisor: int) -> Node:
    """``index // divisor``, or the modulus, with what is whole of each coefficient apart:
    ``1489 * i // 3`` is ``496 * i + i // 3``, and for i < 3 that is ``496 * i``."""
    terms, constant = terms_of(index)
    whole = {term: factor // divisor for term, factor in terms.items()}
    left = {term: factor % divisor for term, factor in terms.items()}
    quotient, rest = divided(affine(left, constant % divisor), divisor)
    return rest if op is Op.MOD else add(affine(whole, constant // divisor), quotient)


def less(left: Node, right: Node) -> Node:
    """The condition ``left < right`` of two indices in normal form; TRUE or FALSE where their
    bounds decide it. Every axis is on the side where its coefficient is positive, and the constant
    beside the outermost axis, or on the side without any: ``1 - j < -i`` is ``i + 1 < j``."""
    difference = add(right, scale(left, -1))
    low, high = bounds(difference)
    if low > 0:
        return TRUE
    if high <= 0:
        return FALSE
    terms, constant = terms_of(difference)
    below = {term: -factor for term, factor in terms.items() if factor < 0}
    above = {term: factor for term, factor in terms.items() if factor > 0}
    outermost = min(terms, key=_position)
    is_beside_left = not below or (bool(above) and outermost in below)
    if is_beside_left:
        return Node(Op.LT, (affine(below, -constant), affine(above, 0)))
    return Node(Op.LT, (affine(below, 0), affine(above, constant)))


@memoized(65536)
def without_remainders(left: Node, right: Node) -> Node:
    """``left < right``, where one of them is a constant, without the terms of the other that never
    decide it: ``4*i + j < 128`` is ``i < 32`` for j < 4. So is ``-1 < 4*i + j - 128`` the same as
    ``-1 < i - 32``; but ``4*i + j < 126`` depends on j where i is 31.

    Such terms come from splits: a condition without them is the same for a whole run of j. Each
    axis has to be within its bounds.
    """
    whole = Node(Op.LT, (left, right))
    is_upper = right.op is Op.CONST
    if is_upper == (left.op is Op.CONST):
        return whole
    # Of an upper limit n: terms + constant < n. Of a lower one l: l < terms + constant, which is
    # not (terms + constant < l + 1).
    index, limit = (left, right.arg.value) if is_upper else (right, left.arg.value + 1)
    terms, constant = terms_of(index)
    for unit in sorted({abs(factor) for factor in terms.values()}, reverse=True):
        quotients = {term: factor // unit for term, factor in terms.items() if factor % unit == 0}
        rest = {term: factor for term, factor in terms.items() if factor % unit}
        low, high = bounds(affine(rest, constant - limit))
        if rest and low // unit == high // unit:  # of unit * q + r < 0: q + r // unit < 0
            quotient = affine(quotients, 0)
            bound = -(low // unit)
            if is_upper:
                return Node(Op.LT, (quotient, const(bound, int64)))
            return Node(Op.LT, (const(-1, int64), add(quotient, const(-bound, int64))))
    return whole


def row_major(index: Sequence[Node], shape: Shape | None = None) -> Node:
    """Where the element at `index` of an array of `shape` lies in row-major memory, in elements:
    ``12*i + 4*j + k`` for (i, j, k) of (2, 3, 4). Without a shape, `index` are axes and count
    together: their sizes are the shape."""
    sizes = [axis.arg.size for axis in index] if shape is None else shape
    return add(*map(scale, index, strides_of(sizes)))


@memoized(65536)
def divided(index: Node, divisor: int) -> tuple[Node, Node]:
    """``index // divisor`` and ``index % divisor`` for a positive divisor: ``8*i + j + 9`` by 4,
    for j < 3, are ``2*i + 2`` and ``j + 1``."""
    terms, constant = terms_of(index)
    whole = {term: factor // divisor for term, factor in terms.items() if factor % divisor == 0}
    left = {term: factor for term, factor in terms.items() if factor % divisor}
    quotient, rest = affine(whole, constant // divisor), affine(left, constant % divisor)
    low, high = bounds(rest)
    if low >= 0 and high < divisor:
        return quotient, rest
    # The modulus, unlike the quotient, needs just the remainder of each coefficient: 9*i % 4 is
    # i % 4.
    terms, constant = terms_of(rest)
    reduced = affine({term: factor % divisor for term, factor in terms.items()}, constant)
    by = const(divisor, int64)
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
    """The size that each index of `condition` is `inside` of, in the order of the condition; None
    if it says anything else."""
    parts = dict.fromkeys(conjuncts(condition))
    sizes: dict[Node, int] = {}
    for part in parts:
        if part.op is not Op.LT or part.src[0].dtype is not int64:
            continue
        low, high = part.src
        if high.op is Op.CONST:  # index < size
            index, size = low, high.arg.value
        else:  # -1 < index: any size above its bounds says no more
            index, size = high, bounds(high)[1] + 1
        sizes[index] = min(size, sizes.get(index, size))
    said = both(*(inside(index, size) for index, size in sizes.items()))
    return sizes if parts.keys() == set(conjuncts(said)) else None


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


def is_uniform_in_runs(condition: Node, axis: Node, length: int) -> bool:
    """Whether a condition is the same within each run of `length` neighbours along an axis, where
    each run begins at a multiple of `length`.

    ``8 * i + j < 64`` is the same in runs of 8 along j: it is ``i + floor((j - 64) / 8) < 0``, and
    the quotient is -8 for j of 0 to 7. ``8 * i + j < 60`` is the same in runs of 4.
    """
    varying = [part for part in conjuncts(condition) if axis in free_axes(part)]
    return all(_is_uniform_comparison(part, axis, length) for part in varying)


def _is_uniform_comparison(condition: Node, axis: Node, length: int) -> bool:
    """The same of a condition that is no conjunction."""
    if condition.op is not Op.LT or condition.src[0].dtype is not int64:
        return False
    left, right = condition.src
    terms, constant = terms_of(add(left, scale(right, -1)))  # negative where the condition holds
    if any(term is not axis and axis in free_axes(term) for term in terms):
        return False
    stride = terms.get(axis, 0)
    others = [factor for term, factor in terms.items() if term is not axis]
    common = gcd(stride * length, *others)
    if common == 0:  # all terms cancel
        return True
    quotients = {(constant + stride * place) // common for place in range(length)}
    return len(quotients) == 1


# What vector lanes along an axis touch in one access: neighbours in memory; all the same element;
# elements a stride apart; elements that data or a condition decide lane by lane. The numbers are
# scores: higher is better, and heuristics add them up over the accesses of a kernel.
NEIGHBOURS, SAME_ELEMENT, STRIDED, BY_LANE = 1, 0, -1, -2


def suits(axis: Node, index: Node, condition: Node = TRUE) -> int:
    """How well vector lanes along `axis` suit one access: NEIGHBOURS, SAME_ELEMENT, STRIDED or
    BY_LANE."""
    terms, _ = terms_of(index)
    by_data = any(term is not axis and axis in free_axes(term) for term in terms)
    by_lane = axis in free_axes(condition) and extents(condition) is None
    if by_data or by_lane:
        return BY_LANE
    strides = {0: SAME_ELEMENT, 1: NEIGHBOURS}
    return strides.get(terms.get(axis, 0), STRIDED)


def run_of(index: Node, sizes: Mapping[Node, int]) -> list[Node]:
    """The axes of these `sizes` along which what lies at `index` is one run of neighbours, the
    fastest first: j and then i for ``48 * c + 2 * i + j`` with 24 elements along i and 2 along j;
    along i alone there are none."""
    strides, _ = terms_of(index)
    run = list[Node]()
    length = 1
    for _ in sizes:
        following = [axis for axis in sizes if axis not in run and strides.get(axis) == length]
        if not following:
            break
        run.append(following[0])
        length *= sizes[following[0]]
    return run


class Runs(NamedTuple):
    """Runs of neighbours: where each starts, and how many elements a run has; the mean, rounded
    down, where they differ. 8 points i and 7 points c of ``16384 * c + i`` are 7 runs of 8."""

    starts: list[int]
    length: int


def runs_of_points(index: Node, unrolled: frozenset[Node]) -> Runs:
    """The runs that an index reaches while the axes `unrolled`, none of which is empty, walk and
    all others stand at 0. With 8 points i and 7 points c, ``56 * a + 7 * i + c`` reaches one run of
    56."""
    terms, constant = terms_of(index)
    places = {constant}
    for axis in unrolled.intersection(terms):
        stride = terms[axis]
        places = {place + stride * point for place in places for point in range(axis.arg.size)}
    starts = sorted(place for place in places if place - 1 not in places)
    return Runs(starts, len(places) // len(starts))


def neighbours_of_access(index: Node, unrolled: frozenset[Node], longest: int) -> int:
    """The elements of the widest access, up to `longest`, that is aligned wherever a run begins
    that an index reaches while the axes `unrolled` walk: a power of two. The last access of a run
    may have fewer.

    With 8 points i and 7 points c, an access of ``56 * a + 7 * i + c`` has 8 of a run of 56, and
    one of ``16384 * c + 8 * a + i`` all 8 of a run; ``8 * a + i + 2`` reaches 8 from an even place
    on, which are accesses of 2.
    """
    runs = runs_of_points(index, unrolled)
    terms, _ = terms_of(index)
    strides = [stride for term, stride in terms.items() if term not in unrolled]
    return gcd(power_of_two_up_to(min(runs.length, longest)), *runs.starts, *strides)


def rebuild(node: Node, src: tuple[Node, ...]) -> Node:
    """`node` over new operands; an index is in normal form again."""
    if src == node.src:
        return node
    if node.op is Op.AFFINE:
        return _weighted_sum(src, node.arg.coefficients, node.arg.constant)
    if divisor := divisor_of(node):
        quotient, rest = divided(src[0], divisor)
        return rest if node.op is Op.MOD else quotient
    return Node(node.op, src, node.arg)


def replaced(root: Node, replacement: Mapping[Node, Node]) -> Node:
    """`root` with other nodes in place of some beneath it; indices are in normal form again."""
    (result,) = substitute([root], dict(replacement), rebuild)
    return result

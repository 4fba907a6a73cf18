"""Index arithmetic against its meaning: every index evaluated at every point of its axes."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lamina.core.dtypes import int8, int64, uint8
from lamina.graph import index as ix
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Load, Op

AXES = tuple(ix.axis(number, size) for number, size in enumerate((1, 2, 3, 4, 6)))
POINTS = [
    dict(zip(AXES, point, strict=True))
    for point in product(*(range(axis.arg.size) for axis in AXES))
]
DIVISORS = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12])
FACTORS = st.sampled_from([-6, -4, -3, -1, 0, 1, 2, 3, 4, 6, 8, 12, 24])


def values(node: Node) -> list[int]:
    """The value of an index or condition at every point, by Python's own arithmetic."""
    order = toposort([node])
    return [_at(order, point) for point in POINTS]


def _at(order: list[Node], point: dict[Node, int]) -> int:
    value: dict[Node, int] = {}
    for node in order:
        src = [value[one] for one in node.src]
        if node.op is Op.AXIS:
            value[node] = point[node]
        elif node.op is Op.CONST:
            value[node] = node.arg.value
        elif node.op is Op.AFFINE:
            terms = zip(src, node.arg.coefficients, strict=True)
            value[node] = node.arg.constant + sum(a * b for a, b in terms)
        else:
            value[node] = {
                Op.ADD: lambda a, b: a + b,
                Op.MUL: lambda a, b: a * b,
                Op.IDIV: lambda a, b: a // b,
                Op.MOD: lambda a, b: a % b,
                Op.LT: lambda a, b: a < b,
                Op.EQ: lambda a, b: a == b,
                Op.AND: lambda a, b: a and b,
            }[node.op](*src)
    return value[order[-1]]


def _step(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.builds(ix.add, inner, inner),
        st.builds(ix.scale, inner, FACTORS, st.integers(-9, 9)),
        st.builds(ix.divided, inner, DIVISORS).flatmap(st.sampled_from),
    )


INDICES = st.recursive(
    st.sampled_from(AXES) | st.builds(ix.const, st.integers(-9, 9), st.just(int64)),
    _step,
    max_leaves=6,
)


@given(INDICES, INDICES)
def test_add(left: Node, right: Node) -> None:
    wanted = [a + b for a, b in zip(values(left), values(right), strict=True)]
    assert values(ix.add(left, right)) == wanted


@given(INDICES, FACTORS, st.integers(-9, 9))
def test_scale(index: Node, factor: int, offset: int) -> None:
    assert values(ix.scale(index, factor, offset)) == [
        one * factor + offset for one in values(index)
    ]


@given(INDICES, DIVISORS)
def test_quotient_and_remainder(index: Node, divisor: int) -> None:
    quotient, rest = ix.divided(index, divisor)
    assert values(quotient) == [one // divisor for one in values(index)]
    assert values(rest) == [one % divisor for one in values(index)]
    assert values(ix.add(ix.scale(quotient, divisor), rest)) == values(index)


@given(st.lists(st.integers(-30, 30), min_size=3, max_size=3), st.integers(-9, 9), DIVISORS)
def test_a_quotient_and_its_remainder_are_the_index(
    factors: list[int], constant: int, divisor: int
) -> None:
    """Also where the normal form of the remainder has other coefficients: ``9*i % 4`` is ``i % 4``.
    """
    index = ix.add(*map(ix.scale, AXES[2:], factors), const(constant, int64))
    quotient, rest = ix.divided(index, divisor)
    assert ix.add(ix.scale(quotient, divisor), rest) is index
    assert ix.add(ix.scale(quotient, -3 * divisor), ix.scale(rest, -3)) is ix.scale(index, -3)


def test_every_quotient_and_remainder_of_short_axes() -> None:
    """Also of an axis as long as the divisor, and one longer, where random indices are rarely; and
    a quotient is a constant wherever it is the same all along the axis."""
    for size, factor, constant in product(range(2, 8), range(-4, 5), range(-5, 6)):
        axis = ix.axis(0, size)
        index = ix.scale(axis, factor, constant)
        for divisor in range(1, 8):
            quotient, rest = ix.divided(index, divisor)
            orders = toposort([quotient]), toposort([rest])
            found = [tuple(_at(order, {axis: at}) for order in orders) for at in range(size)]
            wanted = [divmod(factor * at + constant, divisor) for at in range(size)]
            assert found == wanted
            is_same = len({whole for whole, _ in wanted}) == 1
            assert is_same == (quotient.op is Op.CONST)


@given(INDICES)
def test_bounds_hold(index: Node) -> None:
    limits = ix.bounds(index)
    assert limits is not None
    found = values(index)
    assert limits[0] <= min(found)
    assert max(found) <= limits[1]


@given(st.lists(FACTORS, min_size=len(AXES), max_size=len(AXES)), st.integers(-9, 9))
def test_bounds_of_affine_forms_are_tight(factors: list[int], constant: int) -> None:
    index = ix.affine(dict(zip(AXES, factors, strict=True)), constant)
    found = values(index)
    assert ix.bounds(index) == (min(found), max(found))


@given(INDICES, st.integers(0, 20))
def test_inside(index: Node, size: int) -> None:
    condition = ix.inside(index, size)
    assert [bool(one) for one in values(condition)] == [0 <= one < size for one in values(index)]


@given(INDICES, st.integers(1, 20))
def test_extents_say_what_inside_did(index: Node, size: int) -> None:
    condition = ix.inside(index, size)
    found = ix.extents(condition)
    assert found is not None or condition is ix.FALSE
    assert ix.both(*(ix.inside(*one) for one in (found or {}).items())) in (condition, ix.TRUE)
    assert not found or ix.extents(ix.both(condition, condition.eq(condition))) is None


def test_extents_are_in_the_order_of_the_condition() -> None:
    """Not in that of memory addresses: the source of a program is the key of what was compiled."""
    for number in range(0, 64, 2):
        axes = [ix.axis(number + 1, 9), ix.axis(number, 9)]
        found = ix.extents(ix.both(*(ix.inside(axis, 5) for axis in axes)))
        assert list(found or ()) == axes


@given(INDICES, INDICES)
def test_less(left: Node, right: Node) -> None:
    lower, higher = values(left), values(right)
    expected = [low < high for low, high in zip(lower, higher, strict=True)]
    assert values(ix.less(left, right)) == expected
    swapped = values(ix.less(right, ix.scale(left, 1, 1)))  # where it does not hold
    assert swapped == [not holds for holds in expected]


def test_comparisons_in_every_direction_are_one_node() -> None:
    i, j = ix.axis(0, 8), ix.axis(1, 8)
    wanted = Node(Op.LT, (ix.scale(i, 1, 3), j))
    assert ix.less(ix.scale(i, 1, 4), ix.scale(j, 1, 1)) is wanted
    assert ix.less(ix.scale(j, -1), ix.scale(i, -1, -3)) is wanted
    assert ix.less(const(3, int64), ix.add(j, ix.scale(i, -1))) is wanted
    assert ix.less(i, const(5, int64)) is Node(Op.LT, (i, const(5, int64)))
    assert ix.less(i, const(8, int64)) is ix.TRUE
    assert ix.less(i, ix.ZERO) is ix.FALSE


def test_integers_that_may_wrap_around_are_no_index() -> None:
    i = ix.axis(0, 100)
    byte = i.cast(int8)
    assert ix.of_integer(byte) is i
    assert ix.of_integer(byte + 28) is ix.scale(i, 1, 28)
    assert ix.of_integer(byte + 29) is None
    assert ix.of_integer(-byte * 2) is None
    assert ix.of_integer(i.cast(uint8) + -1) is None
    assert ix.of_integer(ix.axis(0, 129).cast(int8)) is None
    assert ix.of_integer(i + ((1 << 63) - 50)) is None
    assert ix.of_integer(Node(Op.LOAD, (i,), Load(0, int64))) is None


@given(INDICES, st.integers(-60, 60), st.booleans())
def test_a_comparison_without_remainders_says_the_same(
    index: Node, limit: int, is_upper: bool
) -> None:
    number = const(limit, int64)
    operands = (index, number) if is_upper else (number, index)
    assert values(ix.without_remainders(*operands)) == values(Node(Op.LT, operands))


def test_terms_that_never_decide_a_comparison_are_dropped() -> None:
    i, j, k = ix.axis(0, 40), ix.axis(1, 4), ix.axis(2, 8)
    index = ix.row_major((i, j, k))
    without = ix.without_remainders
    assert without(index, const(768, int64)) is Node(Op.LT, (i, const(24, int64)))
    assert without(index, const(775, int64)).src[0] is index  # row 24 has 7 of its 32
    of_pairs = Node(Op.LT, (ix.row_major((i, j), (40, 4)), const(97, int64)))
    assert without(index, const(776, int64)) is of_pairs
    moved = ix.scale(index, 1, -768)
    assert without(const(-1, int64), moved) is ix.inside(ix.scale(i, 1, -24), 16)
    assert without(index, i) is Node(Op.LT, (index, i))  # no number


@given(INDICES, INDICES)
def test_both_and_implies(left: Node, right: Node) -> None:
    first, second = ix.inside(left, 5), ix.inside(right, 5)
    joined = ix.both(first, ix.TRUE, second, first)
    wanted = [a and b for a, b in zip(values(first), values(second), strict=True)]
    assert list(map(bool, values(joined))) == list(map(bool, wanted))
    assert ix.both(joined, first) is joined


@given(INDICES, st.sampled_from(AXES), INDICES)
def test_an_index_is_replaced_along_an_axis(index: Node, axis: Node, by: Node) -> None:
    replaced = ix.replaced(index, {axis: by})
    inserted = zip(POINTS, values(by), strict=True)
    wanted = [_at(toposort([index]), {**point, axis: value}) for point, value in inserted]
    if min(values(by)) >= 0 and max(values(by)) < axis.arg.size:
        assert values(replaced) == wanted


A, B = ix.axis(0, 4), ix.axis(1, 6)


def test_normal_form_makes_equal_indices_one_node() -> None:
    flat = ix.add(ix.scale(A, 6), B)
    assert ix.divided(flat, 6) == (A, B)
    assert ix.divided(ix.add(ix.scale(A, 12), ix.scale(B, 2)), 12)[0] is A
    assert ix.inside(flat, 24) is ix.TRUE
    assert ix.inside(ix.scale(flat, 1, 24), 24) is ix.FALSE


def _by_number(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """Arithmetic on values as graphs have it, not in normal form."""
    numbers = st.builds(const, st.integers(1, 40), st.just(int64))
    return st.one_of(
        st.builds(lambda a, b: Node(Op.ADD, (a, b)), inner, inner),
        st.builds(lambda a, b: Node(Op.MUL, (a, b)), inner, numbers),
        st.builds(lambda a, b: Node(Op.IDIV, (a, b)), inner, numbers),
        st.builds(lambda a, b: Node(Op.MOD, (a, b)), inner, numbers),
    )


@given(st.recursive(st.sampled_from(AXES), _by_number, max_leaves=5))
def test_arithmetic_by_numbers_is_an_index(value: Node) -> None:
    index = ix.of_integer(value)
    assert index is not None
    assert values(index) == values(value)


def test_whole_parts_of_a_quotient_are_strides() -> None:
    """1489 elements in 3 windows: each begins 496 after the one before, as 1489 = 3 * 496 + 1."""
    window = AXES[2]
    first = Node(Op.IDIV, (Node(Op.MUL, (window, const(1489, int64))), const(3, int64)))
    assert ix.of_integer(first) is ix.scale(window, 496)

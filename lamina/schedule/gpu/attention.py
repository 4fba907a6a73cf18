"""Products back to back, such as those of attention: which kernels have them.

The left factor of an outer product is computed from the sums of inner products, tile by tile, and
never stored. Forward attention has one inner product, the scores, and one outer product::

    scores = q @ k.T          rows by keys; reduced over the elements of a row of q
    out = f(scores) @ v       rows by columns; reduced over the keys

All that is summed up over the keys has one factor ``exp(exponent - shift)``. The shift of a row is
the maximum of its exponents as a rule. It need not be known in advance: when the maximum of the
keys so far rises, sums so far are rescaled (online softmax; Milakov and Gimelshein 2018, Dao et
al. 2022).

Forward attention by its reductions, which the functions below name::

    s[row, key]        = sum_d q[row, d] * k[key, d]                     inner product
    m[row]             = max_key s                                       over the keys
    e[row, key]        = exp(s - m)                                      exponent s, shift m
    total[row]         = sum_key e                                       over the keys
    out[row, column]   = sum_key cast(e) * v[key, column]                outer product
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from lamina.core.dtypes import float32, int64
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, free_axes, free_axes_of
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from lamina.ir.products import is_exact_cast, uncast_factors
from lamina.loops.nest import Axes, operands_of
from lamina.schedule.gpu.atoms import LINE_BYTES, MIN_BACK_TO_BACK_ROWS, RESERVED_BYTES

# Rows or columns below which most of a tile would be empty: a quarter of the smallest, 64 rows or
# columns, is in use with 16. Rows of tiles of products back to back need as many elements, which
# are the k of one instruction of tensor cores for 16 bits.
MIN_SIDE = 16
# Elements of a row of a tile: two swizzle atoms of 64 elements. Longer rows would take the
# registers of the sums, or the shared memory of the multistage buffer.
MAX_ROW_ELEMENTS = 128
MAX_PRODUCTS = 4  # two inner and two outer ones, as gradients of attention have
# Accumulators of a thread, float32 registers of 255, where its inner products have 128 keys.
# Forward attention has 64 + 32 with columns of 64 elements, 64 + 64 with columns of 128; its
# gradients have up to 2 * 64 + 2 * 64. Up to FEW, registers suffice for 256 rows a block, of twice
# the threads; up to MANY, for 128 keys a tile. Beyond, a tile has 64 keys. The limits are between
# the sums that kernels have (96, 128 and 256) and not fitted to registers: values, masks and
# addresses take some of these too, how many is the compiler's choice.
FEW_ACCUMULATORS = 96
MANY_ACCUMULATORS = 160


@dataclass(frozen=True)
class Factor:
    """A factor of a product, which a block reads in tiles.

    value         an element, as an expression over the axes
    row_axes      number the rows of a tile; there may be several tiles along them
    element_axes  number the elements of a row: k of one product, the columns of v of attention
    """

    value: Node
    row_axes: Axes
    element_axes: Axes


@dataclass(frozen=True)
class ExpFactor:
    """The factor ``exp(exponent - shift)`` of everything that is summed up over the keys.

    exp       this node
    exponent  computed from inner products
    shift     of a row: computed from `row_max`, or loaded, as in gradients
    row_max   the reduction to the maximum of the exponents; None if the shift needs none
    """

    exp: Node
    exponent: Node
    shift: Node
    row_max: Node | None


@dataclass(frozen=True)
class BackToBack:
    """What tiles need to know of a kernel of products back to back.

    column     the axis that numbers the columns of the results
    key        the axis that outer products reduce
    key_tile   keys of a tile
    max_rows   the rows of the largest block whose threads have registers for the sums
    factors    both of each inner product, that of the rows first, then the right ones of the outer
               products
    """

    column: Node
    key: Node
    key_tile: int
    max_rows: int
    factors: tuple[Factor, ...]
    exp_factor: ExpFactor

    @property
    def min_shared_bytes(self) -> int:
        """Shared memory that one stage of all tiles takes, in the smallest block: of 128 queries,
        and of 128 keys and values with 128 elements of 2 bytes each, 96 KiB."""
        lines = 0
        for factor in dict.fromkeys(self.factors):
            rows = self.key_tile if self.key in factor.row_axes else MIN_BACK_TO_BACK_ROWS
            (elements,) = factor.element_axes
            lines += rows * ceil(2 * elements.arg.size / LINE_BYTES)
        return lines * LINE_BYTES

    def with_masked_ends(self, kernel: Kernel) -> Kernel:
        """`kernel` with exponents of -inf beyond the last key, where a tile has more: 300 keys
        take five tiles of 64, and 20 keys of the last one add exp(-inf), which is 0.

        Of the axis `key` the condition ``key < 300`` always holds. Tiling puts
        ``64 * tile + 8 * group + ...`` in its place, which goes up to 319.
        """
        keys = self.key.arg.size
        if keys % self.key_tile == 0:
            return kernel
        exponent = self.exp_factor.exponent
        in_range = Node(Op.LT, (self.key, const(keys, int64)))
        masked = Node(Op.WHERE, (in_range, exponent, const(-inf, float32)))
        stores = [
            replace(store, value=ix.replaced(store.value, {exponent: masked}))
            for store in kernel.stores
        ]
        return replace(kernel, stores=tuple(stores))


@dataclass(frozen=True)
class _Reductions:
    """The reductions of a kernel by what they are for.

    inner      need no other reduction: inner products
    over_keys  all others, each over the axis `key`: outer products, sums and the maximum of rows
    outer      those of them that have the axis `column` of the results: outer products
    """

    inner: list[Node]
    over_keys: list[Node]
    outer: list[Node]
    key: Node
    column: Node


@dataclass(frozen=True)
class _Product:
    """A sum of products ``left * right``; `row_elements` is the axis along the rows of its tiles:
    the reduced axis of an inner product, the column of an outer one."""

    left: Node
    right: Node
    row_elements: Node


def back_to_back(kernel: Kernel) -> BackToBack | None:
    """What is known of a kernel of products back to back; None for any other kernel. It has these
    properties:

    - each store writes one element a point of the rows, and all reductions are of float32;
    - its reductions are inner products and those over the keys, as `_roles` tells them apart, and
      all of the former, and all of the latter along columns, are products that fit in tiles;
    - what is summed up over the keys has one factor ``exp(exponent - shift)``;
    - one axis is the rows of all left factors and of no right one;
    - there are MAX_PRODUCTS products at most;
    - all factors that are read have 16 bits, one dtype, and are computed without reductions.
    """
    reductions = kernel.with_loops
    if not stores_elements(kernel) or any(node.dtype is not float32 for node in reductions):
        return None
    roles = _roles(reductions)
    if roles is None:
        return None
    exp_factor = exp_factor_of(roles.over_keys)
    inner = _all_of(_inner_product(node, roles) for node in roles.inner)
    outer = _all_of(_outer_product(node, roles) for node in roles.outer)
    if exp_factor is None or inner is None or outer is None:
        return None
    products = inner + outer
    row = _row_of(kernel, products, roles)
    if row is None or len(products) > MAX_PRODUCTS:
        return None
    factors = _factors(inner, outer, row, roles)
    values = [factor.value for factor in factors]
    # Tiles are filled from memory, before any step: a reduction would not be known yet.
    if not _are_of_16_bits(values) or _need_any(values, reductions):
        return None
    columns = roles.column.arg.size
    key_tile, max_rows = _tile_sizes(len(inner), len(outer), columns)
    return BackToBack(roles.column, roles.key, key_tile, max_rows, factors, exp_factor)


def back_to_back_on(kernel: Kernel, target: Target) -> BackToBack | None:
    """`back_to_back` of a kernel; None also on a GPU without tensor cores, and on one whose blocks
    have no room for the tiles."""
    if "tensor_cores" not in target.engines:
        return None
    both = back_to_back(kernel)
    has_room = both is not None and both.min_shared_bytes + RESERVED_BYTES <= target.shared_bytes
    return both if has_room else None


def _all_of(products: Iterable[_Product | None]) -> list[_Product] | None:
    """The products; None if a reduction was none."""
    result: list[_Product] = []
    for product in products:
        if product is None:
            return None
        result.append(product)
    return result


def _need_any(values: Iterable[Node], reductions: Iterable[Node]) -> bool:
    """Is one of `values` one of `reductions`, or computed from one?"""
    return not frozenset(reductions).isdisjoint(toposort(values))


def stores_elements(kernel: Kernel) -> bool:
    """Whether each store of a kernel writes an element for each point of the rows, and adds to
    none."""
    return all(len(store.axes) == kernel.rows and store.monoid is None for store in kernel.stores)


def _roles(reductions: list[Node]) -> _Reductions | None:
    """The reductions of a kernel by what they are for; None unless they are so:

    - Inner ones need no other one. They have results along one axis that all others reduce, the
      key, and along more, the rows: the scores have s[row, key].
    - All others have results along just one axis that no inner one has, the column. Not each of
      them has it: out[row, column] does, m[row] does not.
    """
    inner = [node for node in reductions if not _need_any(operands_of(node), reductions)]
    over_keys = [node for node in reductions if node not in inner]
    inner_axes = free_axes_of(inner)
    column_axes = free_axes_of(over_keys) - inner_axes
    key_axes = {axis for node in over_keys for axis in bound_axes(node)}
    has_rows = key_axes < inner_axes
    if len(column_axes) != 1 or len(key_axes) != 1 or not has_rows:
        return None
    (column,), (key,) = column_axes, key_axes
    outer = [node for node in over_keys if column in free_axes(node)]
    return _Reductions(inner, over_keys, outer, key, column)


def _inner_product(reduction: Node, roles: _Reductions) -> _Product | None:
    """An inner product, whose right factor alone has keys, as k[key, d] does; None if the
    reduction is none, or reduces several axes, as a row of a tile has elements along one."""
    reduced = bound_axes(reduction)
    sides = _sides(reduction, roles.key)
    if sides is None or len(reduced) > 1 or not _fits_row(reduced[0]):
        return None
    left, right = sides
    return _Product(left, right, reduced[0]) if roles.key in free_axes(right) else None


def _outer_product(reduction: Node, roles: _Reductions) -> _Product | None:
    """An outer product, whose right factor alone has columns, as v[key, column] does; None if the
    reduction is none. Its left factor is computed in float32, and rounded as the program says:
    tensor cores take it out of registers with 16 bits."""
    sides = _sides(reduction, roles.column)
    if sides is None or not _fits_row(roles.column):
        return None
    left, right = sides
    is_rounded = left.op is Op.CAST and left.src[0].dtype is float32
    if not is_rounded or roles.key not in free_axes(right):
        return None
    return _Product(left, right, roles.column)


def _sides(reduction: Node, right_axis: Node) -> tuple[Node, Node] | None:
    """The left and the right factor of a sum of products, of which only the right one may have
    `right_axis`; None for anything else. If neither has it, they stay in their order."""
    factors = uncast_factors(reduction.src[0])
    if not factors:
        return None
    left, right = factors
    if right_axis in free_axes(left):
        left, right = right, left
    return None if right_axis in free_axes(left) else (left, right)


def _fits_row(axis: Node) -> bool:
    """Can the elements along `axis` be a row of a tile? Fewer leave most of it empty, more do not
    fit: see MIN_SIDE and MAX_ROW_ELEMENTS."""
    size: int = axis.arg.size
    return MIN_SIDE <= size <= MAX_ROW_ELEMENTS


def _row_of(kernel: Kernel, products: Iterable[_Product], roles: _Reductions) -> Node | None:
    """The longest axis that the left factors of all products have and no right one has: its rows
    share what is read of the right factors. None if there is none. Of axes of one length it is the
    last one: a set has no order, and equal kernels must have equal schedules."""
    rows = frozenset(kernel.row_axes) - {roles.column}
    for product in products:
        rows &= free_axes(product.left) - free_axes(product.right)
    return max(rows, key=lambda axis: (axis.arg.size, axis.arg.number), default=None)


def _factors(
    inner: Sequence[_Product], outer: Sequence[_Product], row: Node, roles: _Reductions
) -> tuple[Factor, ...]:
    """What is read in tiles: both factors of each inner product, then the right ones of the outer
    products, whose left ones are computed.

    Equal factors have one tile. So that an array which both kinds of products read is one factor,
    the column has the name of a reduced axis of its size, if there is one. With 64 of d and of
    column, ``q[row, d] * k[key, d]`` and ``ds[row, key] * k[key, column]`` read q[row, d],
    k[key, d] and once more k[key, d]. A tile is read as a whole, so that the name does not matter
    to it.
    """
    column = roles.column
    reduced_axes = [product.row_elements for product in inner]
    same_size = [axis for axis in reduced_axes if axis.arg.size == column.arg.size]
    tile_column = same_size[0] if same_size else column

    def factor(value: Node, elements: Node) -> Factor:
        """`value` in tiles whose rows, of these elements, are rows of results or keys."""
        row_axis = row if row in free_axes(value) else roles.key
        return Factor(value, (row_axis,), (elements,))

    factors: list[Factor] = []
    for product in inner:
        factors.append(factor(product.left, product.row_elements))
        factors.append(factor(product.right, product.row_elements))
    for product in outer:
        renamed = ix.replaced(product.right, {column: tile_column})
        factors.append(factor(renamed, tile_column))
    return tuple(factors)


def _are_of_16_bits(values: Iterable[Node]) -> bool:
    """Do all factors have one dtype, bfloat16 or float16? `uncast_factors` leaves no other but
    float32, which would have to be rounded for tensor cores."""
    dtypes = {value.dtype for value in values}
    return len(dtypes) == 1 and float32 not in dtypes


def _tile_sizes(inner: int, outer: int, columns: int) -> tuple[int, int]:
    """The keys of a tile, and the rows of the largest block, for so many inner and outer products.

    64 rows by 128 keys are 64 accumulators of each of 128 threads, and 64 rows by 64 columns are
    32. An inner product and an outer one of 64 columns have 64 + 32 = 96, so that tiles have 64
    keys and blocks up to 256 rows; with 128 columns they have 64 + 2 * 32 = 128, and tiles 128
    keys, blocks 128 rows. Blocks of 256 rows have twice the threads, and each half of the
    registers: hence the 64 keys, with half of the accumulators for inner products."""
    accumulators = 64 * inner + 32 * ceil(columns / 64) * outer
    if accumulators <= FEW_ACCUMULATORS:
        return 64, 256
    if accumulators <= MANY_ACCUMULATORS:
        return 128, 128
    return 64, 128


def before_rounding(left: Node) -> Node:
    """The left factor of an outer product in float32, before it is rounded to 16 bits. It is cast
    back to float32 beside a right factor that is no cast, such as a choice of two."""
    rounded = left.src[0] if is_exact_cast(left) else left
    return rounded.src[0]


def exp_factor_of(reductions: Sequence[Node]) -> ExpFactor | None:
    """The factor that all sums among `reductions` over one axis share. None unless

    - the reductions are sums, all with the one factor ``exp(exponent + -shift)`` in their terms,
      and at most one maximum, which is that of the exponents;
    - the exponent and the other factors of terms need none of `reductions`;
    - the shift needs the maximum, if there is one, and none of the sums.

    So sums can be rescaled when the maximum rises, and there is nothing else to change.
    """
    maxima = [node for node in reductions if node.arg.monoid is MAX]
    sums = [node for node in reductions if node.arg.monoid is ADD]
    if len(maxima) > 1 or len(maxima) + len(sums) < len(reductions):
        return None
    terms = [node.src[0] for node in sums]
    exp = _common_exponential(terms)
    exponent_and_shift = None if exp is None else _exponent_and_shift(exp)
    if exp is None or exponent_and_shift is None:
        return None
    exponent, shift = exponent_and_shift
    # Besides the exponential, terms may need v, as in exp(s - m) * v. A factor that is computed
    # from a sum would change with each tile, and sums so far would be of its earlier values.
    beside_exp = toposort([exponent, *terms], lambda node: node is not exp)
    if not frozenset(reductions).isdisjoint(beside_exp):
        return None
    needed_by_shift = frozenset(reductions).intersection(toposort([shift]))
    if needed_by_shift != frozenset(maxima):
        return None
    if any(maximum.src[0] is not exponent for maximum in maxima):
        return None
    return ExpFactor(exp, exponent, shift, row_max=maxima[0] if maxima else None)


def _common_exponential(terms: Iterable[Node]) -> Node | None:
    """The exponential that is a factor of each of `terms`; None if one of them has none, or another
    one, or if there are no terms."""
    exponentials = {_exponential(term) for term in terms}
    return exponentials.pop() if len(exponentials) == 1 else None


def _exponent_and_shift(exp: Node) -> tuple[Node, Node] | None:
    """The exponent and the shift of ``exp(exponent + -shift)``; None for another exponential. Where
    both operands are negated, which of them is the shift is not known."""
    if exp.src[0].op is not Op.ADD:
        return None
    left, right = exp.src[0].src
    if (left.op is Op.NEG) == (right.op is Op.NEG):
        return None
    if left.op is Op.NEG:
        return right, left.src[0]
    return left, right.src[0]


def _exponential(term: Node) -> Node | None:
    """The first EXP that is a factor of `term`, which may be cast or, where a condition says so, 0;
    None if there is none. That of ``where(c, cast(exp(x)) * v, 0)`` is ``exp(x)``, as the term is
    zero or a multiple of it: to rescale the term is to rescale the exponential."""
    if term.op is Op.EXP:
        return term
    is_zero_or_value = term.op is Op.WHERE and any(map(_is_zero, term.src[1:]))
    if term.op not in (Op.CAST, Op.MUL) and not is_zero_or_value:
        return None
    factors = (_exponential(operand) for operand in term.src)
    return next((factor for factor in factors if factor is not None), None)


def _is_zero(node: Node) -> bool:
    """Is this the constant 0, of either sign?"""
    return node.op is Op.CONST and node.arg.value == 0


def _is_minus_infinity(node: Node) -> bool:
    """Is this the constant -inf, whose exponential is 0?"""
    return node.op is Op.CONST and node.arg.value == -inf


@dataclass(frozen=True)
class Mask:
    """What a condition on axes says of an exponent that it can make -inf.

    masks_where  the value of the condition for which it does
    index        is positive where it does: ``column - row`` of a causal mask
    """

    masks_where: bool
    index: Node


def masks_of(exponent: Node) -> dict[Node, Mask]:
    """The conditions on axes that make an exponent -inf, by condition, outermost first.

    ``where(key < query + 1, where(key < 300, s, -inf), -inf)`` has two masks, both where the
    condition is false: with the index ``key - query``, and with ``key - 299``.

    A WHERE masks if just one of its values is -inf; its other value may be such a WHERE again.
    Conditions on data are left out, as their index has more than axes. From the first WHERE on that
    does not mask or compares no integers, nothing is known.
    """
    masks: dict[Node, Mask] = {}
    value = exponent
    while value.op is Op.WHERE:
        condition, if_true, if_false = value.src
        masks_where_true, masks_where_false = map(_is_minus_infinity, (if_true, if_false))
        if masks_where_true == masks_where_false:
            break
        index = _masked_index(condition, masks_where_true)
        if index is None:
            break
        if all(term.op is Op.AXIS for term in ix.terms_of(index)[0]):
            masks[condition] = Mask(masks_where_true, index)
        value = if_false if masks_where_true else if_true
    return masks


def _masked_index(condition: Node, masks_where: bool) -> Node | None:
    """The index that is positive where a comparison of integers is `masks_where`; None for another
    condition. ``key < query + 1`` is false where ``key - query`` is positive."""
    if condition.op is not Op.LT or condition.src[0].dtype is not int64:
        return None
    left, right = map(_affine, condition.src)
    if masks_where:  # left < right, or 0 < right - left
        return ix.add(right, ix.scale(left, -1))
    return ix.add(left, ix.scale(right, -1, 1))  # left >= right, or 0 < left - right + 1


def _affine(value: Node) -> Node:
    """An integer value as an index: a sum becomes its terms."""
    return ix.add(*value.src) if value.op is Op.ADD else ix.add(value)


def scaled(term: Node) -> tuple[float, Node]:
    """A positive constant factor of a term, and the term without it; 1.0 and the term where there
    is none. ``where(c, x * 0.125, -inf)`` is 0.125 and ``where(c, x, -inf)``.

    The factor is positive, so that the maximum of terms is that of terms without it, times it, and
    -inf of masked elements stays what it is.
    """
    if term.op is Op.MUL and term.src[1].op is Op.CONST and term.src[1].arg.value > 0:
        return term.src[1].arg.value, term.src[0]
    if term.op is not Op.WHERE:
        return 1.0, term
    unmasked = [operand for operand in term.src[1:] if not _is_minus_infinity(operand)]
    if len(unmasked) != 1:
        return 1.0, term  # two values, of which each may have another factor
    factor, without_factor = scaled(unmasked[0])
    operands = tuple(without_factor if operand is unmasked[0] else operand for operand in term.src)
    return factor, Node(Op.WHERE, operands)

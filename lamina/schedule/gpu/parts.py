"""Long float32 products on a GPU, in parts that are added up afterwards.

A block adds up the products of a tile in registers, one step after the other, and the rounding
errors of such a chain grow with its length. Parts make chains shorter. The rule takes as many as
cost next to nothing by the estimate that also chooses the tiles. Parts cost time because partial
results are written and read again, and because blocks wait: where 144 parts have a tile each, 12 of
132 multiprocessors have two tiles.
"""

from collections.abc import Iterator
from math import ceil, isqrt, prod

from lamina.core.integers import first_divisor
from lamina.fuse.kernel_group import KernelGroup
from lamina.graph.rewrite import Rule, on
from lamina.graph.split_products import Reuse, long_reuse_of, reuse_of
from lamina.graph.split_reductions import (
    PRODUCT_PART,
    divisible,
    lengths,
    with_parts_in_front,
)
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import array_read, reuses_both_factors
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.schedule.gpu.attention import MIN_SIDE
from lamina.schedule.gpu.stream_k import PARTIAL_SUMS_STEPS, Products, times_of

STEP_PRODUCTS = LINE_BYTES // 4  # of float32, 32, that a result adds up in a step of a tile
# The products of the shortest part, for each result: two steps. By the estimate PARTIAL_SUMS_STEPS
# tiles of fewer than 4 take longer to store than to compute; `_time` counts that.
MIN_PART_PRODUCTS = 2 * STEP_PRODUCTS
# How long parts may take, as a multiple of the time of the best number of parts: 3 % buy shorter
# chains of additions.
MAX_SLOWDOWN = 33 / 32
# Numbers of both factors that are read for each partial result that is written, at least: these
# take an eighth of the factors' memory at most.
MIN_READS = 8
MIN_PARTS = 4  # that are worth another kernel, which adds them up: chosen, not measured
# Results of all parts of a sum without tiles, of which a thread has 7 or so: 150,000 threads of the
# GPU, 1,100 of a multiprocessor. And the products from which on parts are worth a kernel: 4 million
# take 132 multiprocessors a microsecond. Both chosen.
UNTILED_SUMS = 1 << 20
MIN_PRODUCTS_IN_PARTS = 1 << 22


def tiled_products_in_parts(multiprocessors: int) -> Rule:
    """The rule for a GPU of so many multiprocessors: long float32 products of enough rows and
    columns for a tile are taken in parts."""

    def apply(node: Node) -> Node | None:
        """`_in_parts` for these multiprocessors."""
        return _in_parts(node, multiprocessors)

    return Rule("tiled_products_in_parts", (Op.REDUCE,), apply)


@on(Op.REDUCE)
def untiled_products_in_parts(node: Node) -> Node | None:
    """On a GPU, a sum of products that has no tiles, as it uses both factors again by windows that
    slide alone, or has too few columns, in as many parts as keep threads busy: the derivative of a
    depthwise convolution by its filter adds up all places of all images to few results. The parts
    are of the first reduced axis that has as many, of images or of their rows.

    A filter of (384, 1, 7, 7) has 18,816 results, for 64 images of 14 x 14 in 16 parts of 4 images.
    A weight of (251, 2) has 502, for 849 x 112 rows in 849 parts.
    """
    results, products = prod(node.shape), prod(node.src[0].shape)
    is_sum = node.arg.monoid is ADD and results > 0 and reuses_both_factors(node)
    if not is_sum or products < MIN_PRODUCTS_IN_PARTS:
        return None
    wanted = min(UNTILED_SUMS // results, products // results // MIN_PART_PRODUCTS)
    if wanted < MIN_PARTS or (_is_matrix_product(node) and not _is_below_tiles(node)):
        return None
    extents = [node.src[0].shape[axis] for axis in node.arg.axes]
    for number, extent in enumerate(extents):
        parts = first_divisor(extent, range(wanted, 0, -1), 1)
        if parts >= MIN_PARTS:
            return with_parts_in_front(node, parts, number)
    longest = max(extents)
    if longest < wanted * MIN_PART_PRODUCTS:
        return None
    return with_parts_in_front(node, wanted, extents.index(longest))


def _is_below_tiles(node: Node) -> bool:
    """Is this a float32 product of too few rows or columns for tiles?"""
    reuse = reuse_of(node)
    return reuse is not None and not _has_tiles(reuse)


def _is_matrix_product(node: Node) -> bool:
    """Would the kernel of a sum of products be one of a product of matrices?"""
    arrays = map(array_read, node.src[0].src)
    return KernelGroup(node, {array: array.shape for array in arrays}).contraction is not None


def _in_parts(node: Node, multiprocessors: int) -> Node | None:
    """A reduction that is a float32 product in as many parts as MAX_SLOWDOWN allows; None for any
    other node, and for products

    - of too few rows or columns for tiles, or that cannot be divided into equal parts;
    - whose parts would be fewer than MIN_PARTS, or still longer than PRODUCT_PART products:
      `long_products_in_parts`, a later rule, makes them as short as that whatever time it takes.
    """
    reuse = long_reuse_of(node)
    if reuse is None or not _has_tiles(reuse):
        return None
    whole = divisible(node)
    if whole is None:
        return None
    columns = node.shape[-1]
    times = {
        parts: _time(reuse, parts, columns, multiprocessors)
        for parts in _counts(reuse, lengths(whole).first)
    }
    max_time = MAX_SLOWDOWN * min(times.values())
    parts = max(parts for parts, time in times.items() if time <= max_time)
    if parts < MIN_PARTS or reuse.products // parts > PRODUCT_PART:
        return None
    return with_parts_in_front(whole, parts)


def _has_tiles(reuse: Reuse) -> bool:
    """Has a float32 product the rows and columns that tiles need, 8 of one and 16 of the other or
    more, as `product_factors` says? A number of one factor is used once for each column, one of the
    other once for each row. Windows use numbers several times, so results are counted as well."""
    fewer, more = reuse.uses
    min_fewer, min_more = MIN_SIDE // 2, MIN_SIDE
    return fewer >= min_fewer and more >= min_more and reuse.results >= min_fewer * min_more


def _counts(reuse: Reuse, extent: int) -> Iterator[int]:
    """Into how many equal parts a reduced axis of `extent` can be divided: its divisors whose parts
    are whole steps of tiles, of MIN_PART_PRODUCTS or more, and so long that MIN_READS numbers are
    read for each partial result; 1 always.

    An axis of 768 products can have 1, 2, 3, 4, 6, 8 or 12 parts, of at least 64 products. Divisors
    come in pairs, 2 and 384, 3 and 256, so that the search ends at the square root, 27.
    """
    # A number that is read serves `of_both` products on average.
    shortest = max(MIN_PART_PRODUCTS, MIN_READS * reuse.of_both)
    for divisor in range(1, isqrt(extent) + 1):
        if extent % divisor != 0:
            continue
        for parts in {divisor, extent // divisor}:  # one number if it is the square root
            products = reuse.products // parts
            if parts == 1 or (products >= shortest and products % STEP_PRODUCTS == 0):
                yield parts


def _time(reuse: Reuse, parts: int, columns: int, multiprocessors: int) -> float:
    """About how long so many parts take, in the unit of `StreamK.time`: tiles of results, whose
    rows have so many columns, and writing and reading partial results.

    64 rows by 512 columns with sums of 2**18 products in 64 parts count as 64 products of 64 by
    512, of 2**18 / 64 / 32 = 128 steps each, and 64 * 64 * 512 partial results.
    """
    rows_of_product, columns_of_product = _rows_and_columns(reuse, columns)
    batch = ceil(reuse.results / prod(reuse.uses))  # products of rows by columns, of one part
    steps = ceil(reuse.products / parts / STEP_PRODUCTS)
    products = Products(rows_of_product, columns_of_product, steps, batch * parts)
    fastest, *_ = times_of("f32", products, multiprocessors)
    if parts == 1:
        return fastest.time
    partial_results = reuse.results * parts
    # Written once and read once, each by all multiprocessors at the same time.
    return fastest.time + 2 * PARTIAL_SUMS_STEPS * partial_results / multiprocessors


def _rows_and_columns(reuse: Reuse, columns: int) -> tuple[int, int]:
    """How many rows and columns a product has, whose results have rows of so many columns.

    A number of the left factor is used by each column of the results, one of the right factor by
    each row. So `reuse.uses` are rows and columns, the fewer first: (64, 512) of 64 by 512 and of
    512 by 64, which `columns` tells apart. Windows have other numbers of uses: then the fewer are
    the rows.
    """
    fewer, more = map(ceil, reuse.uses)
    if columns == reuse.uses[0]:
        return more, fewer
    return fewer, more

"""Long float32 sums in blocks: where the loops of a reduction are cut, and how blocks are added up.

Adding n numbers of one sign one after the other has a relative error of up to n / 2 units in the
last place, as all roundings may go the same way: 2**-15 for 2**10 numbers. So what one accumulator
adds up in a long loop is cut into blocks of a few dozen numbers. The total of the blocks is kept
with its rounding error, and then their number does not matter.
"""

from collections.abc import Collection, Mapping
from math import prod
from typing import NamedTuple

from lamina.core.dtypes import float32
from lamina.ir.kernel import free_axes, loads_beneath
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Hole, Op
from lamina.ir.products import contraction
from lamina.loops.nest import UNCACHED, Nest

SHORT_BLOCK = 32  # additions
SHORT_LOOP = 8  # iterations, as those of a window are; its blocks have equally many


class Limits(NamedTuple):
    """When one accumulator's additions are cut into blocks, by how many there are: none up to
    `plain_up_to`; then blocks of `block`; and more than `short_beyond` become short blocks."""

    plain_up_to: int
    block: int
    short_beyond: int


# At the end of a block each accumulator costs five more additions. Beside 32 numbers that are read
# for it from memory that is nothing. A register tile that uses each number many times is bound by
# arithmetic, and has no registers left for totals: blocks of 1024 cost it about 1 %. So is one that
# uses a number a few times, unless it adds up so much that no cache holds its arrays.
READING = Limits(plain_up_to=64, block=SHORT_BLOCK, short_beyond=64)
SHARING = Limits(plain_up_to=1024, block=1024, short_beyond=1 << 14)
COMPUTING = Limits(plain_up_to=1024, block=1024, short_beyond=1 << 63)
# Multiply-adds for each number that is read: fewer than 2 take less time than reading it, and fewer
# than 4 than reading it from memory; from 16 on they take longer.
TWO_USES, FEW_USES, MANY_USES = 2, 4, 16
# Every step of a scan costs one more addition: of its block to the total of those before.
SCANNING = Limits(plain_up_to=4096, block=SHORT_BLOCK, short_beyond=4096)


class Cut(NamedTuple):
    """The loop over `axis` runs in blocks of so many `iterations`."""

    axis: Node
    iterations: int


def is_compensated(reduction: Node) -> bool:
    """Is the reduction a sum whose rounding errors grow with its length? Integers have none, and
    those of float64 are too small to matter."""
    return reduction.arg.monoid is ADD and reduction.dtype is float32


def limits_of(reduction: Node, nest: Nest) -> Limits:
    """The limits of a sum: those of a contraction depend on how often it uses each number that it
    reads. A product of (64, 100) and (100, 32) has 204,800 products of 9,600 numbers, 21 of each:
    its limits are COMPUTING. That of (64, 100) and (100, 4) has 25,600 of 6,800: SHARING."""
    kernel = nest.kernel
    results = {axis for store in kernel.stores for axis in store.axes}
    if contraction([reduction], results) is None:
        return READING
    loads = loads_beneath(reduction.src)
    # Each load reads as many numbers as its loops have iterations, or fewer where windows overlap:
    # no more than the array has.
    arrays = {load: kernel.parameters[load.arg.parameter] for load in loads}
    numbers = sum(min(_iterations(load, nest), array.size) for load, array in arrays.items())
    products = _iterations(reduction.src[0], nest)
    is_cached = sum(array.nbytes for array in arrays.values()) < UNCACHED
    if products < (TWO_USES if is_cached else FEW_USES) * numbers:
        return READING
    return SHARING if products < MANY_USES * numbers else COMPUTING


def _iterations(node: Node, nest: Nest) -> int:
    """How many iterations the loops that `node` depends on have, without the ends of uneven splits
    that never run."""
    return prod(parts.extent for parts in {nest.sub_loops(axis) for axis in free_axes(node)})


def find_cut(limits: Collection[Limits], trips: Mapping[Node, int], additions: int) -> Cut | None:
    """Where to cut the loops that several sums share, so that an accumulator adds up a block; None
    if it has little to add up.

    limits: of each sum; the largest decide, as a register tile that they are for has no registers
    left for more totals.
    trips: each loop, outermost first, and how often it runs.
    additions: of one accumulator each time the innermost loop runs.

    Three loops of 4096, 3 and 3 iterations around one addition, in blocks of 32: the outermost
    one is cut into blocks of 3 iterations, which are 27 additions.
    """
    if not limits:
        return None
    chosen = max(limits)  # compared field by field: READING, then SHARING, then COMPUTING
    in_all = additions * prod(trips.values())
    if in_all <= chosen.plain_up_to:
        return None
    block = SHORT_BLOCK if in_all > chosen.short_beyond else chosen.block
    inside = additions  # in one iteration of the loop looked at, innermost first
    for axis, count in reversed(list(trips.items())):
        if inside * count > block:
            return Cut(axis, _iterations_of_block(count, max(block // inside, 1)))
        inside *= count
    return None


def _iterations_of_block(count: int, limit: int) -> int:
    """How many of the `count` iterations of a loop a block has: `limit`, or of a short loop the
    largest divisor up to that. 3 iterations with a limit of 2 are 3 blocks of 1: around a
    loop of 2 iterations and then 1, GCC 12 spills sums (measured: a convolution of 128 channels
    took 21.6 ms so, and 16.8 with blocks of 1, on a Zen 4)."""
    if count > SHORT_LOOP:
        return limit
    return next(size for size in range(limit, 0, -1) if count % size == 0)


# The state of a total of blocks: the sum with compensation, what rounding took from it so far, and
# the sum without compensation; and the sum of the next block.
TOTAL, LOST, PLAIN, ADDEND = (
    Node(Op.HOLE, (), Hole(name, float32)) for name in ("total", "lost", "plain", "addend")
)
STATE = TOTAL, LOST, PLAIN


def _next_state() -> tuple[Node, Node, Node]:
    """Kahan's summation (1965, "Further remarks on reducing truncation errors"): what rounding has
    taken away from the total is part of the next addend. For any number of blocks that leaves an
    error of about 1 unit in the last place. From infinity it makes NaN; a plain sum does not."""
    addend = ADDEND + LOST
    total = TOTAL + addend
    return total, addend - (total - TOTAL), PLAIN + ADDEND


NEXT_STATE = _next_state()
RESULT = Node(Op.WHERE, (TOTAL.eq(TOTAL), TOTAL, PLAIN))  # the plain sum where the total is NaN

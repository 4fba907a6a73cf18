"""Long float32 products on a GPU, in parts that are added up afterwards.

A block adds up the products of a tile in registers, one step after the other, and the rounding
errors of such a chain grow with its length. Parts make chains shorter. As many are taken as cost
next to nothing by the estimate that also chooses the tiles: partial results are written and read
again, and where 144 parts have a tile each, 12 of 132 blocks have two and the others wait.
"""

from collections.abc import Iterator
from math import ceil, isqrt

from lamina.core.shape import prod
from lamina.graph.rewrite import Rule
from lamina.graph.split_products import Reuse, reuse_of
from lamina.graph.split_reductions import PRODUCT_PART, divisible, in_equal_parts, lengths
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.schedule.gpu.attention import MIN_SIDE
from lamina.schedule.gpu.products import LINE, PART, times_of

STEP = LINE // 4  # products of float32 in a step of a tile
SHORTEST = 2 * STEP  # products of a part; tiles of fewer would take longer to store than to compute
SLACK = 33 / 32  # times as long as the best number of parts may take
READ = 8  # numbers that are read for each partial result, at least
FEWEST = 4  # parts that are worth a kernel that adds them up


def tiled_products_in_parts(multiprocessors: int) -> Rule:
    """The rule for a GPU of so many multiprocessors: long float32 products of enough rows and
    columns for a tile are taken in parts."""

    def apply(node: Node) -> Node | None:
        return _in_parts(node, multiprocessors)

    return Rule("tiled_products_in_parts", (Op.REDUCE,), apply)


def _in_parts(node: Node, multiprocessors: int) -> Node | None:
    reuse = reuse_of(node)
    if reuse is None:
        return None
    fewer, more = reuse.uses
    tile = (MIN_SIDE // 2, MIN_SIDE)
    if reuse.results < prod(tile) or fewer < tile[0] or more < tile[1]:
        return None
    whole = divisible(node)
    if whole is None:
        return None
    columns = node.shape[-1]
    times = {
        parts: _time(reuse, parts, columns, multiprocessors)
        for parts in _counts(reuse, lengths(whole).first)
    }
    limit = SLACK * min(times.values())
    parts = max(parts for parts, time in times.items() if time <= limit)
    if parts < FEWEST or reuse.products // parts > PRODUCT_PART:
        return None
    return in_equal_parts(whole, parts)


def _counts(reuse: Reuse, extent: int) -> Iterator[int]:
    """Numbers of equal parts of whole steps, of an axis of so many products, whose partial results
    are few beside what is read; 1 is always among them."""
    shortest = max(SHORTEST, READ * reuse.of_both)
    for divisor in range(1, isqrt(extent) + 1):
        for parts in {divisor, extent // divisor} if extent % divisor == 0 else ():
            size = reuse.products // parts
            if parts == 1 or (size >= shortest and size % STEP == 0):
                yield parts


def _time(reuse: Reuse, parts: int, columns: int, multiprocessors: int) -> float:
    """About how long so many parts take, in the unit of `share`, whose results have rows of so many
    columns: tiles, and writing and reading partial results."""
    fewer, more = reuse.uses
    sides = ceil(fewer), ceil(more)
    if columns == fewer:
        sides = sides[::-1]
    others = ceil(reuse.results / (fewer * more)) * parts
    steps = ceil(reuse.products / parts / STEP)
    fastest, *_ = times_of("f32", *sides, others, steps, multiprocessors)
    partial = reuse.results * parts if parts > 1 else 0
    return fastest.time + 2 * PART * partial / multiprocessors

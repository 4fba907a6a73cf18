"""Long float32 products in short parts, which are added up afterwards: how often they use their
factors, and the rule for CPUs. That for tiles of a GPU is in `lamina/schedule/gpu/parts.py`.
"""

from dataclasses import dataclass

from lamina.core.dtypes import float32
from lamina.core.shape import prod
from lamina.graph.rewrite import on
from lamina.graph.split_reductions import divisible, in_equal_parts, lengths
from lamina.ir.node import Node, peel
from lamina.ir.ops import Group, Op

LONG_PRODUCT = 1 << 15  # products of a result from which on short parts pay
STEPS = 32  # the number of products of a part is a multiple of it
READ = 16  # numbers that a CPU reads for each partial result that it writes, at least
MANY_USES = 16  # products for each number read from which on a CPU does not wait for memory
REGISTER_CHAIN = 1 << 10  # products that the register tile of a CPU adds up at once


@dataclass(frozen=True)
class Reuse:
    """How a sum of products of two arrays uses them.

    results: numbers that it makes. products: how many each result adds up. uses: how often the
    products use each number of either array, that of the array used less often first."""

    results: int
    products: int
    uses: tuple[float, float]

    @property
    def of_both(self) -> float:
        """Products for each number of both arrays: 8 for 16 rows by 16 columns."""
        fewer, more = self.uses
        return fewer * more / (fewer + more)


def reuse_of(node: Node) -> Reuse | None:
    """That of a long float32 sum of products of float32 numbers; None for any other node. Products
    of 16 bits take a fraction of the time, and mostly are rounded to that."""
    src, results = node.src[0], prod(node.shape)
    if node.dtype is not float32 or src.op is not Op.MUL or results == 0:
        return None
    every = prod(src.shape)
    if every < LONG_PRODUCT * results:
        return None
    arrays = [peel(factor, Group.MOVEMENT | {Op.CAST}) for factor in src.src]
    if any(array.dtype is not float32 for array in arrays):
        return None
    fewer, more = sorted(every / prod(array.shape) for array in arrays)
    return Reuse(results, every // results, (fewer, more))


@on(Op.REDUCE)
def cached_products_in_parts(node: Node) -> Node | None:
    """Long float32 products of few rows and columns are taken in short parts on a CPU: its caches
    hold a part of both factors, and chains in registers are shorter. (64, K) by (K, 64), which uses
    each number 32 times on average, has parts of 512 to 1024 products. Products that use each
    number less often wait for memory, and are added up in short blocks."""
    reuse = reuse_of(node)
    if reuse is None or not MANY_USES <= reuse.of_both < REGISTER_CHAIN / READ:
        return None
    whole = divisible(node)
    if whole is None:
        return None
    extent, products = lengths(whole)
    shortest = round(READ * reuse.of_both / STEPS) * STEPS
    sizes = range(shortest, min(2 * shortest, products // 4) + 1, STEPS)
    counts = (products // size for size in sizes if products % size == 0)
    parts = next((count for count in counts if extent % count == 0), 0)
    return in_equal_parts(whole, parts) if parts else None

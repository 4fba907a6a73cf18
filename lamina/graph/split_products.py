"""Sums of products in parts, which are added up afterwards: long float32 ones in short parts, how
often they use their factors, and the rule for CPUs. That for tiles of a GPU is in
`lamina/schedule/gpu/parts.py`. And sums of several products apart, as tiles have two factors.
"""

import functools
import operator
from dataclasses import dataclass

from lamina.core.dtypes import float32
from lamina.core.integers import first_divisor
from lamina.core.shape import prod
from lamina.graph.rewrite import on
from lamina.graph.split_reductions import divisible, lengths, with_parts_in_front
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import array_read, product_of, reuses_both_factors

# Estimates, but for the one that says otherwise: no measurement of them is kept.
LONG_PRODUCT = 1 << 15  # products of a result from which on short parts pay
STEPS = 32  # the number of products of a part is a multiple of it
READ = 16  # numbers that a CPU reads for each partial result that it writes, at least
MANY_USES = 16  # products for each number read from which on a CPU does not wait for memory
REGISTER_CHAIN = 1 << 10  # products that the register tile of a CPU adds up at once
# Multiply-adds of a product from which on tiles save a GPU more than another launch takes: without
# tiles 2**22 take 4 us at 2 TFLOP/s (measured on an H200).
WORTH_A_KERNEL = 1 << 22
MAX_TERMS = 1 << 12  # of a sum of products that become sums by themselves


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


def long_reuse_of(node: Node) -> Reuse | None:
    """That of a sum of LONG_PRODUCT products or more; None for any other node."""
    reuse = reuse_of(node)
    return reuse if reuse is not None and reuse.products >= LONG_PRODUCT else None


def reuse_of(node: Node) -> Reuse | None:
    """That of a float32 sum of products of float32 numbers; None for any other node. Products of 16
    bits take a fraction of the time, and mostly are rounded to that."""
    product, results = product_of(node), prod(node.shape)
    if product is None or node.dtype is not float32 or results == 0:
        return None
    every = prod(product.shape)
    arrays = list(map(array_read, product.src))
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
    reuse = long_reuse_of(node)
    if reuse is None or not MANY_USES <= reuse.of_both < REGISTER_CHAIN / READ:
        return None
    whole = divisible(node)
    if whole is None:
        return None
    extent, products = lengths(whole)
    shortest = round(READ * reuse.of_both / STEPS) * STEPS
    sizes = range(shortest, min(2 * shortest, products // 4) + 1, STEPS)
    counts = (products // size for size in sizes if products % size == 0)
    parts = first_divisor(extent, counts, 0)
    return with_parts_in_front(whole, parts) if parts else None


@on(Op.REDUCE)
def products_apart(node: Node) -> Node | None:
    """A sum of several products is a sum of sums of products, each of which can have tiles. The
    derivative of ``x @ a`` and ``x @ b`` by x sums up ``da * a + db * b``."""
    terms = _terms(node.src[0])
    if node.arg.monoid is not ADD or len(terms) < 2:
        return None
    sums = [build.reduce(ADD, node.arg.axes, term) for term in terms]
    are_products = all(reuses_both_factors(each) for each in sums)
    if not are_products or prod(node.src[0].shape) < WORTH_A_KERNEL:
        return None
    return functools.reduce(operator.add, sums)


def _terms(x: Node) -> list[Node]:
    """What `x` is the sum of: a, b and c for ``(a + b) + c``. Where there would be more than
    MAX_TERMS, as of a sum that is added to itself time and again, some terms are sums."""
    terms: list[Node] = []
    pending = [x]
    while pending:
        each = pending.pop()
        if each.op is Op.ADD and len(terms) + len(pending) < MAX_TERMS:
            pending.extend(reversed(each.src))
        else:
            terms.append(each)
    return terms

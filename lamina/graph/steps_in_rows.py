"""Products whose steps lie a row apart in memory read a factor that is transposed first, on CPUs.

The gradient of a weight sums up over all tokens k: ``sum_k d[k, i] * x[k, j]``. A register tile has
vectors along j, and multiplies them with single numbers of d, which for each step are on another
cache line: of 4 KiB rows, lines compete for one place in the nearest cache. As ``t[i, k]``, which a
kernel of its own writes, the steps of a row i are neighbours.
"""

from lamina.core.dtypes import float32
from lamina.core.shape import prod, squeezed
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import is_fastest, product_of, squeezed_place, varies

# Columns j that use each element of the factor: to transpose one takes about 1.6 ns, and each use
# then 0.03 ns less (measured: 1024 x 4096 times 4096 x 256 at 29 GFLOP/s, and at 52 so).
MIN_USES = 128
MIN_STEPS = 1024  # of a result: with 512 both were as fast (measured)
# Products ask for such steps ahead (`FAR_STRIDE` of targets/c/prefetches.py). Of 179 drawn ones on
# a core of a Xeon the 40 that both numbers let through are 1.05 times as fast so, in the mean, and
# the other ones would be 0.88 times as fast.


@on(Op.REDUCE)
def steps_in_rows(node: Node) -> Node | None:
    """A sum of products of two arrays, with the factor that does not vary along the last axis of
    the result transposed in memory where its steps lie apart."""
    product = product_of(node)
    if product is None or node.dtype is not float32:
        return None
    if any(factor.op is not Op.EXPAND for factor in product.src):
        return None
    last = len(product.shape) - 1
    numbers, vectors = sorted(product.src, key=lambda factor: int(varies(factor, last)))
    row = _row_of(numbers, vectors, node.arg.axes)
    steps = prod([product.shape[axis] for axis in node.arg.axes])
    uses = prod(product.shape) // prod(numbers.src[0].shape) if row is not None else 0
    if row is None or uses < MIN_USES or steps < MIN_STEPS or not is_fastest(numbers, row):
        return None
    factors = [_transposed(factor, row) if factor is numbers else factor for factor in product.src]
    return build.reduce(ADD, node.arg.axes, factors[0] * factors[1])


def _row_of(numbers: Node, vectors: Node, steps: tuple[int, ...]) -> int | None:
    """The only axis but for `steps` along which `numbers` vary, if `vectors` vary along all other
    axes of the result: no axis is one of both."""
    rows = []
    for axis, size in enumerate(numbers.shape):
        if size == 1:
            continue
        numbers_vary, vectors_vary = varies(numbers, axis), varies(vectors, axis)
        if axis in steps and not (numbers_vary and vectors_vary):
            return None
        if axis not in steps and numbers_vary == vectors_vary:
            return None
        if axis not in steps and numbers_vary:
            rows.append(axis)
    return rows[0] if len(rows) == 1 else None


def _transposed(factor: Node, row: int) -> Node:
    """An EXPAND of the same values, stored with the axis `row` before all others."""
    array = factor.src[0]
    whole = build.reshape(array, squeezed(array.shape))
    place = squeezed_place(array, row)
    order = [place, *(axis for axis in range(len(whole.shape)) if axis != place)]
    stored = build.stored_in_order(whole, order)
    return build.expand(build.reshape(stored, array.shape), factor.shape)

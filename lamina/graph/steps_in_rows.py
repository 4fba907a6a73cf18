"""Products whose steps lie a row apart in memory read a factor that is transposed first, on CPUs.

The gradient of a weight sums up over all tokens k: ``sum_k d[k, i] * x[k, j]``. A register tile has
vectors along j, and multiplies them with single numbers of d, which for each step are on another
cache line: of 4 KiB rows, lines compete for one place in the nearest cache. As ``t[i, k]``, which a
kernel of its own writes, the steps of a row i are neighbours.
"""

from lamina.core.dtypes import float32
from lamina.core.shape import prod, squeezed
from lamina.graph.rewrite import Rule
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op

# Columns j that use each element of the factor: to transpose one takes about 1.6 ns, and each use
# then 0.03 ns less (measured: 1024 x 4096 times 4096 x 256 at 29 GFLOP/s, and at 52 so).
MIN_USES = 128
MIN_STEPS = 1024  # of a result: with 512 both were as fast (measured)
# The same of a factor that the second-level cache does not hold, whose lines come from further away
# for each panel of columns. On one core of a Xeon with 2 MiB programs were 1.04 to 3.2 times as
# fast so, with 46 to 296 columns and 161 to 5,199 steps, but 0.87 once, and 0.3 to 1.05 times with
# 17 to 36 columns.
MIN_USES_FROM_FAR, MIN_STEPS_FROM_FAR = 48, 128


def steps_in_rows(l2_bytes: int) -> Rule:
    """The rule for a CPU with such a second-level cache: a sum of products of two arrays has the
    factor that does not vary along the last axis of the result transposed in memory, where its
    steps lie apart."""
    return Rule("steps_in_rows", (Op.REDUCE,), lambda node: _with_steps_in_rows(node, l2_bytes))


def _with_steps_in_rows(node: Node, l2_bytes: int) -> Node | None:
    product = node.src[0]
    if node.arg.monoid is not ADD or node.dtype is not float32 or product.op is not Op.MUL:
        return None
    if any(factor.op is not Op.EXPAND for factor in product.src):
        return None
    last = len(product.shape) - 1
    numbers, vectors = sorted(product.src, key=lambda factor: int(varies(factor, last)))
    row = _row_of(numbers, vectors, node.arg.axes)
    steps = prod([product.shape[axis] for axis in node.arg.axes])
    if row is None or not is_fastest(numbers, row):
        return None
    elements = prod(numbers.src[0].shape)
    is_far = elements * node.dtype.itemsize > l2_bytes
    min_uses, min_steps = MIN_USES, MIN_STEPS
    if is_far:
        min_uses, min_steps = MIN_USES_FROM_FAR, MIN_STEPS_FROM_FAR
    if prod(product.shape) < min_uses * elements or steps < min_steps:
        return None
    factors = [_transposed(factor, row) if factor is numbers else factor for factor in product.src]
    return build.reduce(ADD, node.arg.axes, factors[0] * factors[1])


def varies(factor: Node, axis: int) -> bool:
    """Does an EXPAND have another element at each place of `axis`?"""
    array = factor.src[0]
    inner = axis - (len(factor.shape) - len(array.shape))  # negative: an axis that it adds
    return inner >= 0 and array.shape[inner] > 1


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


def is_fastest(factor: Node, row: int) -> bool:
    """Are neighbours along the axis `row` of an EXPAND neighbours in memory, as far as axes of size
    1 and permutations alone are between?"""
    node = factor.src[0]
    new = len(factor.shape) - len(node.shape)  # axes that the EXPAND adds, in front
    place = _squeezed_place(node, row - new)
    while True:
        if node.op is Op.PERMUTE:
            rows = [axis for axis in node.arg if node.src[0].shape[axis] > 1]
            place = sorted(rows).index(rows[place])
        elif node.op is not Op.RESHAPE or squeezed(node.shape) != squeezed(node.src[0].shape):
            break
        node = node.src[0]
    return place == len(squeezed(node.shape)) - 1


def _squeezed_place(node: Node, axis: int) -> int:
    """Which of the axes of more than one element `axis` is."""
    return len(squeezed(node.shape[:axis]))


def _transposed(factor: Node, row: int) -> Node:
    """An EXPAND of the same values, stored with the axis `row` before all others."""
    array = factor.src[0]
    whole = build.reshape(array, squeezed(array.shape))
    place = _squeezed_place(array, row)
    order = [place, *(axis for axis in range(len(whole.shape)) if axis != place)]
    stored = build.stored_in_order(whole, order)
    return build.expand(build.reshape(stored, array.shape), factor.shape)

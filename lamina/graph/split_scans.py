"""A rule that takes long scans in parts, which can run in parallel."""

from collections.abc import Sequence

from lamina.core.integers import first_divisor
from lamina.core.shape import prod
from lamina.graph.rewrite import Rule
from lamina.graph.split_reductions import split_axis
from lamina.ir import build
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce

# Estimates, for two cores and for an H200.
SCAN_PART = 1 << 10  # elements of a part
MIN_IDLE = 4  # cores of a CPU for each row that has a vector of its own, from which on parts pay
ROWS_OF_VECTOR = 16  # rows of float32 that a vector of 64 bytes holds: an estimate elsewhere
MIN_ROWS = 4  # a scan of fewer rows is split as one of 4: it is long from 4 * 2**10 elements on
# Columns that count as one row on a GPU, whose blocks have as many as lie in one or two sectors.
# Down (16384, 128) elements of bfloat16 8 blocks take 26 us, and parts 7; down (4096, 2048) of
# float32 128 blocks take 24, and parts would take 29 (predicted).
COLUMNS_OF_BLOCK = 16


def scan_in_parts(cores: int | None = None) -> Rule:
    """The rule for a CPU of so many cores, or for a GPU: a long scan is taken in parts, which can
    run in parallel: each element is combined with the total of all parts before its own.
    [1, 1, 1, 1, 1, 1] in parts of 3 is [1, 2, 3] and [1, 2, 3], to which the totals before, 0 and
    3, are added.

    Parts read the array twice: a CPU takes them if it has MIN_IDLE cores for each row at least, a
    GPU if rows are few beside their length."""

    def apply(node: Node) -> Node | None:
        """`_scan_in_parts`, if cores are idle without."""
        (axis,) = node.arg.axes
        rows = prod(node.shape[:axis] + node.shape[axis + 1 :])
        vectors = rows if axis == len(node.shape) - 1 else max(rows // ROWS_OF_VECTOR, 1)
        if cores is not None:
            return None if cores < MIN_IDLE * vectors else _scan_in_parts(node, rows)
        blocks = rows if axis == len(node.shape) - 1 else rows // COLUMNS_OF_BLOCK
        return _scan_in_parts(node, blocks)

    return Rule("scan_in_parts", (Op.SCAN,), apply)


def _scan_in_parts(node: Node, rows: int) -> Node | None:
    """A long scan in parts; None for one that is short for so many rows, or whose totals would be
    rounded."""
    monoid, (axis,), component = node.arg
    shape = node.shape
    length = shape[axis]
    if length <= SCAN_PART * max(rows, MIN_ROWS) or node.dtype.is_small:
        return None
    identities = monoid.identity(tuple(operand.dtype for operand in node.src))
    size = _scan_part(length)
    operands = [
        split_axis(operand, axis, size, identity)
        for operand, identity in zip(node.src, identities, strict=True)
    ]
    split = operands[0].shape
    within = _scans(monoid, axis + 1, operands)
    if monoid.commutes:
        totals = [
            build.reduce(monoid, [axis + 1], *operands, component=number)
            for number in range(monoid.arity)
        ]
    else:  # the last of each part: a reduction would take the elements in any order
        totals = [_last_along(running, axis + 1) for running in within]
    before = [
        build.broadcast_over(total, (axis + 1,), split)
        for total in _totals_before(monoid, axis, totals)
    ]
    scanned = monoid.combine(tuple(before), tuple(within))[component]
    padded = (*shape[:axis], split[axis] * split[axis + 1], *shape[axis + 1 :])
    return build.slice_axis(build.reshape(scanned, padded), axis, 0, length)


def _totals_before(monoid: Monoid, axis: int, totals: Sequence[Node]) -> list[Node]:
    """Of each part along `axis` the total of all parts before it: 0 and 3 for the totals 3 and 3
    of a sum."""
    identities = monoid.identity(tuple(total.dtype for total in totals))
    earlier = [
        build.shifted(total, axis, identity)
        for total, identity in zip(totals, identities, strict=True)
    ]
    return _scans(monoid, axis, earlier)


def _scans(monoid: Monoid, axis: int, operands: Sequence[Node]) -> list[Node]:
    """All components of the scan of `operands` along `axis`."""
    return [
        Node(Op.SCAN, tuple(operands), Reduce(monoid, (axis,), part))
        for part in range(monoid.arity)
    ]


def _last_along(x: Node, axis: int) -> Node:
    """The last element along `axis`, which vanishes."""
    size = x.shape[axis]
    last = build.slice_axis(x, axis, size - 1, size)
    return build.reshape(last, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _scan_part(length: int) -> int:
    """Elements of a part of a scan: the largest divisor of `length` from 257 to 1024, or 1024."""
    return first_divisor(length, range(SCAN_PART, SCAN_PART // 4, -1), SCAN_PART)

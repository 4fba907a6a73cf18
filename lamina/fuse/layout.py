"""The memory layout of factors: which axis of an array that sums of products read is contiguous.

Tensor cores read tiles of a factor, whose rows are contiguous in memory. Sums over windows of
batches (N, C, H, W) move along H and W, so no row of their factor is contiguous; stored with C as
the last axis, (N, H, W, C), each row is. This pass permutes such factors, stores them in that
order, and lets elementwise operations before and after keep it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lamina.core.shape import prod
from lamina.fuse.axes import Index
from lamina.fuse.costs import widening
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.users import Users, users_of
from lamina.ir.build import permute
from lamina.ir.kernel import bounds, free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, peel
from lamina.ir.ops import Group, Op

MIN_CONTIGUOUS = 16  # elements of an axis that is worth being contiguous: 32 bytes of bfloat16
MIN_REUSE = 64  # products for each element of a factor from which on a copy in another order pays
FACTOR_BITS = (16, 32)  # widths of the dtypes that tensor cores multiply

LastAxis = dict[Node, int]  # the axis of a value that is to be contiguous


def lay_out(sinks: Sequence[Node]) -> list[Node]:
    """The graph with factors stored in the order that `_factors` chooses. Elementwise operations
    that a factor is computed from, or that read it, run in the same order."""
    users = users_of(sinks)
    factors = _factors(users)
    last_axis = _propagated(factors, users)
    done: dict[Node, Node] = {}
    permuted: dict[Node, Node] = {}  # the same values with their last axis moved to the end
    for node in users:
        new = _rebuilt(node, done)
        axis = last_axis.get(node)
        if axis is None:
            done[node] = new
            continue
        order = _moved_last(axis, len(node.shape))
        if node.op in Group.ELEMENTWISE:
            operands = [
                permuted[operand] if last_axis.get(operand) == axis
                else permute(done[operand], order)
                for operand in node.src
            ]  # fmt: skip
            moved = Node(node.op, tuple(operands), node.arg)
        else:
            moved = permute(new, order)
        permuted[node] = Node(Op.CONTIGUOUS, (moved,)) if node in factors else moved
        done[node] = permute(permuted[node], _inverse(order))
    return [done[sink] for sink in sinks]


def _rebuilt(node: Node, done: Mapping[Node, Node]) -> Node:
    """`node` over new operands; the memory that an ASSIGN writes to stays as it is."""
    src = tuple(done[operand] for operand in node.src)
    if node.op is Op.ASSIGN:
        src = (node.src[0], *src[1:])
    return node if src == node.src else Node(node.op, src, node.arg)


def _moved_last(axis: int, rank: int) -> list[int]:
    """The order of axes with `axis` at the end: [0, 2, 3, 1] for axis 1 of 4."""
    return [*(other for other in range(rank) if other != axis), axis]


def _inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes `order`: [0, 3, 1, 2] for [0, 2, 3, 1]."""
    return [order.index(axis) for axis in range(len(order))]


def _propagated(factors: LastAxis, users: Users) -> LastAxis:
    """`factors`, and the elementwise values that they are computed from and that read them, each
    with the axis of its neighbour. What comes before a factor is decided first."""
    last_axis = dict(factors)
    edges = [
        (node, operand)
        for node in users
        for operand in node.src
        if node.op in Group.ELEMENTWISE and operand.op in Group.ELEMENTWISE
    ]
    for node, operand in reversed(edges):
        if node in last_axis:
            last_axis.setdefault(operand, last_axis[node])
    for node, operand in edges:
        if operand in last_axis:
            last_axis.setdefault(node, last_axis[operand])
    return last_axis


def _factors(users: Users) -> LastAxis:
    """The factors that are worth another order, with the axis to be contiguous. Of several sums
    that read a factor the first one decides."""
    sums = [node for node in users if node.op is Op.REDUCE and node.arg.monoid is ADD]
    values = _stored_values(users, sums)
    factors: LastAxis = {}
    for total in reversed(sums):
        reads = KernelGroup(total, values).reads
        windowed = _window_axes(index for indices in reads.values() for index in indices)
        for node, indices in reads.items():
            is_reused = prod(total.src[0].shape) >= MIN_REUSE * prod(node.shape)
            if not is_reused or node.dtype.bits not in FACTOR_BITS or len(indices) != 1:
                continue
            (index,) = indices
            axis = _contiguous_axis(node, index, windowed)
            if axis is not None and _gains(node, axis, windowed):
                factors[node] = axis
    return factors


def _stored_values(users: Users, sums: Iterable[Node]) -> dict[Node, tuple[int, ...]]:
    """What a kernel of one sum may read from memory, with shapes: all but movement, casts that
    widen, and the products that are summed."""
    values = {
        node: node.shape
        for node in users
        if node.op not in Group.MOVEMENT and widening(node) <= 0
    }
    for total in sums:
        product = peel(total.src[0], Group.MOVEMENT)
        if product.op is Op.MUL:
            values.pop(product, None)
    return values


def _window_axes(indices: Iterable[Index]) -> set[Node]:
    """The loop axes that move a window: those of an index in which several steps give one place,
    such as i + k for i < 5 and k < 3, which has 15 steps for the places 0 to 6."""
    return {axis for index in indices for part in index for axis in _overlapping(part)}


def _overlapping(part: Node) -> Iterator[Node]:
    low, high = bounds(part)
    if points(free_axes(part)) > high - low + 1:
        yield from free_axes(part)


def _contiguous_axis(node: Node, index: Index, windowed: set[Node]) -> int | None:
    """The last axis but the first that is long and moves no window."""
    for axis in reversed(range(1, len(node.shape))):
        if node.shape[axis] >= MIN_CONTIGUOUS and windowed.isdisjoint(free_axes(index[axis])):
            return axis
    return None


def _gains(node: Node, axis: int, windowed: set[Node]) -> bool:
    """Whether `axis` is not the innermost one yet. A computed factor of windows is stored even if
    it is, so that its padding is computed once."""
    is_innermost = prod(node.shape[axis + 1 :]) == 1
    return not is_innermost or (bool(windowed) and node.op is not Op.BUFFER)

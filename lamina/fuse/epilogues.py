"""Where the kernel of a reduction or scan stores: after the arithmetic that alone uses its result.

The kernel of ``relu(x @ w + b)`` sums up products, adds b and takes the maximum with 0 while the
sum is in a register. This arithmetic is the reduction's *epilogue*; its last node is what the
kernel stores, and neither the sum nor what lies between needs a buffer. A movement that gives each
element a place of its own, as the transpose of ``relu(x @ w).T``, belongs to an epilogue too.
"""

from collections.abc import Set
from dataclasses import dataclass

from lamina.core.shape import squeezed, strides_of
from lamina.fuse.costs import widening
from lamina.fuse.users import Users
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op

# Movement that gives every element a place of its own.
BIJECTIVE = frozenset({Op.RESHAPE, Op.PERMUTE})
# What may follow a BIJECTIVE movement that is in an epilogue.
AFTER_MOVEMENT = Group.ELEMENTWISE | BIJECTIVE | {Op.CONTIGUOUS}


@dataclass(frozen=True)
class Epilogues:
    """`ends` are stored; the reductions `absorbed` are computed where their end is, at its axes.

    Those have a movement before the end, and so no place in a buffer of their own shape.
    """

    ends: frozenset[Node]
    absorbed: frozenset[Node]


def find_epilogues(
    users: Users, values: Set[Node], stored_first: Set[Node], *, row_blocks: bool
) -> Epilogues:
    """The ends of all reductions and scans.

    No epilogue goes on beyond a node of `values`, which is stored in any case. That of the sums
    `stored_first` is movement and casts alone. `row_blocks`: kernels of the target may run in row
    blocks (CPUs).
    """
    finder = _Finder(users, values)
    ends: set[Node] = set()
    absorbed: set[Node] = set()
    for node in values:
        if node.op is Op.REDUCE:
            end = finder.reduction_end(node, no_arithmetic=node in stored_first)
            ends.add(end.node)
            if end.is_moved:
                absorbed.add(node)
    ends |= _scan_ends(users, values, row_blocks=row_blocks)
    return Epilogues(frozenset(ends), frozenset(absorbed))


@dataclass(frozen=True)
class _End:
    """The end of an epilogue, and whether a movement comes before that end, or is it."""

    node: Node
    is_moved: bool


class _Finder:
    """Walks from reductions to the ends of their epilogues."""

    def __init__(self, users: Users, values: Set[Node]) -> None:
        self.users = users
        self.values = values
        self.position = {node: position for position, node in enumerate(users)}

    def reduction_end(self, reduction: Node, *, no_arithmetic: bool) -> _End:
        """The end of the epilogue of `reduction`: that node itself if it has none.

        The epilogue goes on as far as `_next` does, and up to the first of `values`; with
        `no_arithmetic` only through movement and casts. The end is the last node on this way that
        may be one. Two kinds may not:

        - a cast to a wider float, which is done where the value is read, so that memory holds the
          narrower one; and movement of what was widened. For h, a sum cast to bfloat16, the end of
          ``cast(h, float32).T`` is h.
        - a reshape that adds or removes axes of size 1 alone, unless elements have moved before:
          ``sum[:, None]`` is the sum in memory.
        """
        end = _End(reduction, is_moved=False)
        is_moved = False  # a movement comes before `last`, or is it
        last = self._next(reduction)
        while last is not None:
            if no_arithmetic and last.op not in BIJECTIVE and last.op is not Op.CAST:
                break
            is_moved = is_moved or _moves_elements(last)
            if last.op in Group.MOVEMENT:
                # Another dtype than that of the end: a cast between the two has widened it.
                is_as_narrow = last.dtype is end.node.dtype
            else:
                is_as_narrow = widening(last) <= 0
            if is_as_narrow and (last.op is not Op.RESHAPE or is_moved):
                end = _End(last, is_moved)
            last = None if last in self.values else self._next(last)
        return end

    def _next(self, node: Node) -> Node | None:
        """The next node of an epilogue after `node`: through it passes every use of `node`.

        A movement is in an epilogue if it is a result or if more of the epilogue may follow. One
        that only reductions, products or other movement read stays out: it costs these nothing,
        and the kernel keeps the axes of its reduction. For ``x @ w`` cut into 12 heads of 64
        columns that is tiles of 768 columns, not of 64.
        """
        users = self.users[node]
        if len(users) == 1 and users[0].op in BIJECTIVE:
            movement = users[0]
            after = self.users[movement]
            goes_on = not after or any(user.op in AFTER_MOVEMENT for user in after)
            return movement if goes_on else None
        return self._where_uses_meet(node)

    def _where_uses_meet(self, node: Node) -> Node | None:
        """The elementwise node through which every use of `node` passes, if there is one.

        For ``y = x * x + sin(x)`` it is the addition: x has the uses ``x * x`` and ``sin(x)``, and
        the first in order gives way to its own uses until one node is left. The first of several
        cannot be where they meet, as the others come after it.
        """
        frontier = set(self.users[node])
        while frontier and all(user.op in Group.ELEMENTWISE for user in frontier):
            if len(frontier) == 1:
                return frontier.pop()
            first = min(frontier, key=self.position.__getitem__)
            if not self.users[first]:
                return None  # it is a result, which meets nothing
            frontier.remove(first)
            frontier.update(self.users[first])
        return None


def _moves_elements(node: Node) -> bool:
    """Whether `node` permutes axes, or its shape without axes of size 1 is not its operand's: from
    (4, 6) to (24,) it does so, from (4, 6) to (4, 1, 6) not."""
    is_reshaped = squeezed(node.src[0].shape) != squeezed(node.shape)
    return node.op is Op.PERMUTE or is_reshaped


def _scan_ends(users: Users, values: Set[Node], *, row_blocks: bool) -> set[Node]:
    """The ends of scans: each moves on to the one node that uses it, as long as that may join.

    The end of another scan may not: ``a + b`` for two scans is the end of the first, and the second
    keeps its own.
    """
    ends = {node for node in users if node.op is Op.SCAN}
    for node, after in users.items():  # operands first, so an end that moves on is met again
        if node not in ends or node in values or len(after) != 1:
            continue
        (user,) = after
        if user not in ends and _joins_scan(user, node, row_blocks=row_blocks):
            ends.remove(node)
            ends.add(user)
    return ends


def _joins_scan(node: Node, end: Node, *, row_blocks: bool) -> bool:
    """Whether `node`, which alone uses `end`, is computed in the kernel of the scan before `end`.

    A reshape may merge axes, but splits none: the loop of a scan stays one loop. A cast to a wider
    float does not join: memory holds the narrower one. On targets with `row_blocks` (CPUs) the
    arithmetic that would join has vectors by itself, and the loop of a scan has none. There only
    commutative arithmetic joins, and its operands are results of the operation of `end` or of an
    EXPAND: with s and t for scans, ``s + t`` and ``s * expand(a)`` join, ``s * exp(x)`` does not,
    as the exponentials would lose their vectors.
    """
    arithmetic = Group.COMMUTATIVE if row_blocks else Group.ELEMENTWISE
    if node.op is not Op.RESHAPE and node.op not in arithmetic:
        return False
    if _splits_an_axis(node, end) or widening(node) > 0:
        return False
    operand_operations = {operand.op for operand in node.src}
    return not row_blocks or operand_operations <= {end.op, Op.EXPAND}


def _splits_an_axis(node: Node, operand: Node) -> bool:
    """Whether an axis of `node` is part of an axis of `operand`, which has as many elements.

    Axes that merge leave some of the strides: (4, 6, 5) has the strides 30, 5 and 1, and (24, 5)
    has 5 and 1. A part of an axis has a new stride. So does a new first axis of size 1, which
    counts as a split too.
    """
    return not set(strides_of(node.shape)) <= set(strides_of(operand.shape))

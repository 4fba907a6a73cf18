"""Placement, first half: which values are worth a buffer, and which are recomputed where they are
used. The second half, `lamina.fuse.group`, puts values into kernels; one whose users all sit in
its own kernel then needs no buffer after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.shape import prod, squeezed

# The cost of evaluating an operation once, in units of an addition.
WEIGHT: dict[Op, int] = (
    dict.fromkeys(Group.ELEMENTWISE, 1)
    | dict.fromkeys(Group.TRANSCENDENTAL | {Op.POW}, 10)
    | dict.fromkeys((Op.DIV, Op.IDIV, Op.MOD, Op.SQRT), 3)
    | {Op.CAST: 0, Op.BITCAST: 0, Op.GATHER: 1}
)
SHARED_COST = 12  # recomputing more than this for a second user costs more than a buffer
REPEATED_COST = 3  # the same for a value that an EXPAND has computed many times
MAX_WRITTEN = 256  # operations in one kernel: C compilers need quadratic time for long blocks
MEETING_STEPS = 32  # how far to look for the end of a reduction's epilogue
MAX_COST = 1000  # costs saturate here

ALWAYS = frozenset({Op.REDUCE, Op.SCAN, Op.SCATTER, Op.ARGSORT, Op.CONTIGUOUS, Op.COPY})
BIJECTIVE = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP})
INLINE = frozenset({Op.BUFFER, Op.CONST, Op.IOTA, Op.VARIABLE}) | Group.MOVEMENT
UNWRITTEN = INLINE - {Op.PAD}  # operations that leave no statement in a kernel
Users = Mapping[Node, list[Node]]


def choose_values(
    sinks: Sequence[Node], order: list[Node], users: Users
) -> dict[Node, frozenset[Node]]:
    """The nodes that get a buffer if anything outside their kernel reads them, in order, each with
    the nodes that computing it takes."""
    values = {node for node in order if node.op in ALWAYS}.union(sinks)
    values.update(node.src[0] for node in order if node.op in (Op.ARGSORT, Op.COPY))
    ends, absorbed = _epilogues(order, values, users)
    values = (values | ends) - (absorbed - set(sinks))
    values |= _repeated(order, values)
    values |= _shared(order, users, values)
    chosen: dict[Node, frozenset[Node]] = {}
    regions: dict[Node, frozenset[Node]] = {}
    for node in order:
        parts = (regions[one] for one in node.src if one not in values)
        region = regions[node] = frozenset((node,)).union(*parts)
        long = len(region) > MAX_WRITTEN and len(written(region)) > MAX_WRITTEN
        if long and node.op not in INLINE:
            values.add(node)
        if node in values and node.op is not Op.BUFFER:
            chosen[node] = region
    return chosen


def users_of(order: Iterable[Node]) -> Users:
    """The nodes that have each node as an operand."""
    users: dict[Node, list[Node]] = {node: [] for node in order}
    for node in users:
        for operand in dict.fromkeys(node.src):
            users[operand].append(node)
    return users


def _epilogues(order: list[Node], values: set[Node], users: Users) -> tuple[set[Node], set[Node]]:
    """Where the kernel of each reduction stores: at the end of the region that alone uses it. And
    the reductions that a movement separates from theirs: they have no use of their own and are
    computed in place, at the end's axes."""
    position = {node: place for place, node in enumerate(order)}
    ends, absorbed = set(), set()
    for node in (one for one in values if one.op is Op.REDUCE):
        end, last, moved = node, node, False
        while last is node or last not in values:
            following = _following(last, users, position)
            if following is None:
                break
            last = following
            moved |= last.op in (Op.PERMUTE, Op.FLIP)
            moved |= squeezed(last.src[0].shape) != squeezed(last.shape)
            if last.op is not Op.RESHAPE or moved:
                end = last
        ends.add(end)
        if moved:
            absorbed.add(node)
    return ends, absorbed


def _following(node: Node, users: Users, position: Mapping[Node, int]) -> Node | None:
    """The one-to-one movement that alone uses `node`, if arithmetic or nothing follows it; or the
    elementwise node through which every use passes, if it is near."""
    frontier = set(users[node])
    if len(frontier) == 1 and users[node][0].op in BIJECTIVE:
        after = {one.op for one in users[users[node][0]]}
        return users[node][0] if not after or after & (Group.ELEMENTWISE | BIJECTIVE) else None
    for _ in range(MEETING_STEPS):
        if not frontier or any(one.op not in Group.ELEMENTWISE for one in frontier):
            return None
        if len(frontier) == 1:
            return frontier.pop()
        first = min(frontier, key=position.__getitem__)
        if not users[first]:
            return None
        frontier.remove(first)
        frontier.update(users[first])
    return None


def costs(order: Iterable[Node], values: set[Node]) -> dict[Node, int]:
    """What one element costs to compute inline, shared operands counted at each use."""
    cost: dict[Node, int] = {}
    for node in order:
        inner = sum(1 if operand in values else cost[operand] for operand in node.src)
        cost[node] = min(inner + WEIGHT.get(node.op, 0), MAX_COST)
    return cost


def _repeated(order: list[Node], values: set[Node]) -> set[Node]:
    """Values that an EXPAND would have computed once for each copy."""
    cost = costs(order, values)
    found = set()
    for node in order:
        if node.op is not Op.EXPAND or prod(node.src[0].shape) <= 1:
            continue
        source = node.src[0]
        while source.op in Group.MOVEMENT and source not in values and source.op is not Op.PAD:
            source = source.src[0]
        repeated = source.op in Group.ELEMENTWISE and cost[source] >= REPEATED_COST
        if repeated or source.op is Op.PAD:  # testing the bounds again costs more than the copy
            found.add(source)
    return found


def _shared(order: list[Node], users: Users, values: set[Node]) -> set[Node]:
    """Expensive values with users in more than one other value, nearest to the users first."""
    cost, ends = costs(order, values), set(values)
    owners: dict[Node, frozenset[Node]] = {}
    for node in reversed(order):
        parts = ({user} if user in ends else owners[user] for user in users[node])
        owners[node] = frozenset[Node]().union(*parts)
        if len(owners[node]) > 1 and node.op in Group.ELEMENTWISE and cost[node] >= SHARED_COST:
            ends.add(node)
    return ends - values


def written(region: Iterable[Node]) -> frozenset[Node]:
    """The nodes of a region that leave a statement in a kernel."""
    return frozenset(node for node in region if node.op not in UNWRITTEN)

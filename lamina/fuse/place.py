"""Placement, first half: which values are worth a buffer of their own (`root`), and which are
recomputed where they are used (`inline`).

The second half, `lamina.fuse.group`, puts values into kernels; a value whose users all sit in
its own kernel then needs no buffer after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lamina.ir.node import Node, toposort
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
MAX_RECOMPUTED = 64  # operations worth repeating to save several buffers
MEETING_STEPS = 32  # how far to look for the end of a reduction's epilogue
MAX_COST = 1000  # costs saturate here

ALWAYS = frozenset({Op.REDUCE, Op.SCAN, Op.SCATTER, Op.ARGSORT, Op.CONTIGUOUS, Op.COPY})
BIJECTIVE = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP})
INLINE = frozenset({Op.BUFFER, Op.CONST, Op.IOTA, Op.VARIABLE}) | Group.MOVEMENT
UNWRITTEN = INLINE - {Op.PAD}  # operations that leave no statement in a kernel


def choose_values(sinks: Sequence[Node]) -> list[Node]:
    """The nodes that get a buffer if anything outside their kernel reads them, in order."""
    order = toposort(sinks)
    users = users_of(order)
    values = {node for node in order if node.op in ALWAYS} | set(sinks)
    for node in order:
        if node.op in (Op.ARGSORT, Op.COPY):
            values.add(node.src[0])
    ends, absorbed = _epilogues(order, values, users)
    values = (values | ends) - (absorbed - set(sinks))
    values |= _repeated(order, values)
    values |= _shared(order, users, values)
    values |= _too_long(order, values)
    return [node for node in order if node in values and node.op is not Op.BUFFER]


def users_of(order: Iterable[Node]) -> dict[Node, list[Node]]:
    """The nodes that have each node as an operand."""
    users: dict[Node, list[Node]] = {node: [] for node in order}
    for node in users:
        for operand in dict.fromkeys(node.src):
            users[operand].append(node)
    return users


def _epilogues(
    order: list[Node], values: set[Node], users: dict[Node, list[Node]]
) -> tuple[set[Node], set[Node]]:
    """Where the kernel of each reduction stores: at the end of the region that alone uses it.

    Returns those ends, and the reductions that a movement separates from theirs: they have no
    use of their own and are computed in place, at the end's axes.
    """
    position = {node: place for place, node in enumerate(order)}
    ends, absorbed = set(), set()
    for node in values:
        if node.op is not Op.REDUCE:
            continue
        end = last = node
        moved = False
        while last is node or last not in values:
            following = _meeting_point(last, users, position) or _moved(last, users)
            if following is None:
                break
            last = following
            if squeezed(last.src[0].shape) != squeezed(last.shape) or last.op in (
                Op.PERMUTE, Op.FLIP):  # fmt: skip
                moved = True
            if last.op is not Op.RESHAPE or moved:
                end = last
        ends.add(end)
        if moved:
            absorbed.add(node)
    return ends, absorbed


def _moved(node: Node, users: dict[Node, list[Node]]) -> Node | None:
    """The one-to-one movement that alone uses `node`, if arithmetic or nothing follows it."""
    if len(users[node]) != 1 or users[node][0].op not in BIJECTIVE:
        return None
    movement = users[node][0]
    after = users[movement]
    wanted = not after or any(one.op in Group.ELEMENTWISE | BIJECTIVE for one in after)
    return movement if wanted else None


def _meeting_point(
    node: Node, users: dict[Node, list[Node]], position: dict[Node, int]
) -> Node | None:
    """The elementwise node through which every use of `node` passes, if it is near."""
    frontier = set(users[node])
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


def _shared(
    order: list[Node], users: dict[Node, list[Node]], values: set[Node]
) -> set[Node]:
    """Expensive values with users in more than one other value, nearest to the users first."""
    cost = costs(order, values)
    found: set[Node] = set()
    owners: dict[Node, frozenset[Node]] = {}
    for node in reversed(order):
        owned = frozenset[Node]().union(
            *(
                {user} if user in values or user in found else owners[user]
                for user in users[node]
            )
        )
        owners[node] = owned
        expensive = node.op in Group.ELEMENTWISE and cost[node] >= SHARED_COST
        if len(owned) > 1 and expensive and node not in values:
            found.add(node)
    return found - _recomputed(order, values, found)


def _recomputed(order: list[Node], values: set[Node], found: set[Node]) -> set[Node]:
    """Members of `found` that outnumber the arrays they all come from: storing those instead
    moves less memory, and a little arithmetic is cheaper than memory."""
    sources: dict[Node, frozenset[Node]] = {}
    regions: dict[Node, frozenset[Node]] = {}  # what computing a node takes, itself included
    families: dict[frozenset[Node], list[Node]] = {}
    for node in order:
        region = frozenset((node,)).union(*(regions[one] for one in node.src))
        large = len(region) > MAX_RECOMPUTED
        if node in values or node.op is Op.BUFFER or large:
            sources[node], regions[node] = frozenset((node,)), frozenset()
            continue
        regions[node] = region
        sources[node] = frozenset[Node]().union(*(sources[one] for one in node.src))
        if node in found:
            families.setdefault(sources[node], []).append(node)
    return {
        node for arrays, family in families.items() if len(family) > len(arrays) for node in family
    }


def _too_long(order: list[Node], values: set[Node]) -> set[Node]:
    """Where to cut arithmetic that would make a kernel's text too long."""
    inside: dict[Node, frozenset[Node]] = {}
    found: set[Node] = set()
    for node in order:
        parts = [inside[one] for one in node.src if one not in values and one not in found]
        own = frozenset[Node]() if node.op in UNWRITTEN else frozenset((node,))
        inside[node] = own.union(*parts)
        if len(inside[node]) > MAX_WRITTEN and node.op not in INLINE:
            found.add(node)
    return found

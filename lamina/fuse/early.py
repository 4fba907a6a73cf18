"""Collectives that could run at any time, as they send nothing but inputs: when they do.

Such are those that gather the parts of a parameter. What they bring takes memory until it is used,
so each one comes right before its first use in the order of the graph; or, where collectives run
beside kernels, some steps earlier:

    gather w0, gather w1, x1 = x0 @ w0, gather w2, x2 = x1 @ w1, ...

The first ones begin before all else. Collectives run one after the other: one that began late, as
the tokens of all processes that the last kernels of a step need, would end after all others.
"""

from collections.abc import Container, Iterable, Iterator, Sequence, Set

from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op

# Collectives beyond the one that is used next which run ahead of their use, whatever they bring,
# and bytes that all of these may bring if they are more.
MIN_AHEAD = 1
MAX_AHEAD_BYTES = 64 << 20

# Operations that need little time and memory: what is sent is computed when it is sent.
LIGHT = Group.ELEMENTWISE | Group.MOVEMENT | {Op.CONTIGUOUS, Op.AGAIN}


def in_order_of_use(order: Sequence[Node], *, ahead: bool) -> list[Node]:
    """`order`, operands first, with each early collective, and what only it needs, before the first
    that uses it; with `ahead`, before the first use of an earlier one, and the first before all."""
    light = _light(order)
    early = {node for node in light if node.op in Group.COLLECTIVE}
    if not early:
        return list(order)
    parts = list(_parts(order, light))
    of_parts = [[node for node in part if node in early] for part in parts]
    queue = [node for nodes in of_parts for node in nodes]
    placed: dict[Node, None] = {}
    begun = 0  # of the queue

    def begin(end: int) -> None:
        """Put the collectives of the queue next, up to the one of that number."""
        nonlocal begun
        for collective in queue[begun:end]:
            placed.update(dict.fromkeys(_missing(collective, placed)))
        begun = max(begun, end)

    if ahead:
        begin(_end_of_ahead(queue, 0))
    used = 0
    for part, nodes in zip(parts, of_parts, strict=True):
        if ahead and nodes:
            used += len(nodes)
            begin(_end_of_ahead(queue, used))
        placed.update(dict.fromkeys(part))
    return list(placed)


def early_collectives(sinks: Iterable[Node]) -> set[Node]:
    """The collectives of a graph that could run at any time."""
    return {node for node in _light(toposort(sinks)) if node.op in Group.COLLECTIVE}


def _light(order: Sequence[Node]) -> set[Node]:
    """The nodes of `order` that are computed of inputs and of what early collectives bring, by
    nothing but light operations; early collectives, which send no other's result, are among them.
    """
    light: set[Node] = set()
    brought: set[Node] = set()  # by early collectives
    for node in order:
        if not light.issuperset(node.src):
            continue
        if node.op in Group.COLLECTIVE and brought.isdisjoint(node.src):
            light.add(node)
            brought.add(node)
        elif node.op in LIGHT or node.op in Group.LEAF:
            light.add(node)
            if not brought.isdisjoint(node.src):
                brought.add(node)
    return light


def _parts(order: Sequence[Node], light: Set[Node]) -> Iterator[list[Node]]:
    """Each node of `order` that is not light, after the light ones that it is the first to need;
    at the end the light ones that no other needs."""
    seen: set[Node] = set()
    for node in order:
        if node not in light:
            part = _missing(node, seen)
            seen.update(part)
            yield part
    yield [node for node in order if node not in seen]


def _missing(node: Node, there: Container[Node]) -> list[Node]:
    """`node` and all that it needs and that is not `there` yet, operands first."""
    return toposort([node], lambda each: each not in there)


def _end_of_ahead(queue: Sequence[Node], used: int) -> int:
    """How many of `queue` have begun once the first `used` of them are needed."""
    end, nbytes = used, 0
    while end < len(queue):
        nbytes += queue[end].nbytes
        if end - used >= MIN_AHEAD and nbytes > MAX_AHEAD_BYTES:
            break
        end += 1
    return end

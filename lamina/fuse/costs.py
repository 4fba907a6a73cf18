"""What it costs to compute an element again, in units of one addition."""

from collections.abc import Iterable, Set

from lamina.ir.node import Node
from lamina.ir.ops import Group, Op

# The cost of evaluating an operation once, in additions: estimates, after rough ratios of
# throughput with vectors. Only the comparison with the thresholds of `lamina.fuse.values` and
# `lamina.fuse.groups` matters. An operation that is not here, as a movement, costs nothing.
WEIGHT: dict[Op, int] = (
    dict.fromkeys(Group.ELEMENTWISE, 1)
    | dict.fromkeys(Group.TRANSCENDENTAL | {Op.POW}, 10)
    | dict.fromkeys((Op.DIV, Op.IDIV, Op.MOD, Op.SQRT), 3)
    | {Op.CAST: 0, Op.BITCAST: 0, Op.GATHER: 1}
)
# In additions, an estimate: to read an element of a value in memory, which a cache holds as a rule.
READ_COST = 1

# Operations with a statement in one kernel, at most: C compilers need quadratic time for long
# blocks. A chain of 100 updates of an array took 27 seconds to compile as one kernel, and takes 4.
MAX_STATEMENTS = 256

# Operations that leave no statement in a kernel. A PAD leaves a condition.
WITHOUT_STATEMENT = frozenset({Op.BUFFER, Op.CONST, Op.IOTA}) | (Group.MOVEMENT - {Op.PAD})


def element_costs(
    order: Iterable[Node], values: Set[Node], free: Set[Node] = frozenset()
) -> dict[Node, int]:
    """What one element of each node costs to compute where it is used, in additions.

    `order` has operands first; `values` are in memory. Each operation and each value that is read
    counts once, however many paths lead to it: ``y * y`` for ``y = exp(x)`` costs 10 + 1, and 1
    more for reading x if that is a value. Reading an input of the program, a BUFFER, costs nothing:
    with 1 for it, an addition of two inputs that is repeated would be stored like one of two
    values. What is in `free` costs nothing, and its operands are not
    counted either.
    """
    regions = _short_regions(order, values | free)
    own_cost = {node: 0 if node in free else WEIGHT.get(node.op, 0) for node in regions}
    cost_in_region = {node: READ_COST if node in values else own_cost[node] for node in regions}
    costs: dict[Node, int] = {}
    for node, region in regions.items():
        costs_of_others = [cost_in_region[other] for other in region if other is not node]
        # The node itself is computed, even if it is a value, which others read.
        costs[node] = WEIGHT.get(node.op, 0) + sum(costs_of_others)
    return costs


def _short_regions(order: Iterable[Node], values: Set[Node]) -> dict[Node, frozenset[Node]]:
    """Each node of `order` with all nodes that computing it takes: itself, and those beneath it
    down to `values`, which are among them, as they are read.

    A region of more than MAX_STATEMENTS nodes is too large for a kernel, and `lamina.fuse.values`
    cuts it later. Here the region of such a node is that of its operand with the largest one. So
    the regions of a chain of n operations take memory in proportion to n, and not to its square.
    """
    regions: dict[Node, frozenset[Node]] = {}
    for node in order:
        parts = [
            frozenset((operand,)) if operand in values else regions[operand] for operand in node.src
        ]
        region = frozenset((node,)).union(*parts)
        regions[node] = region if len(region) <= MAX_STATEMENTS else max(parts, key=len)
    return regions


def widening(node: Node) -> int:
    """By how many bits a cast between floats widens an element: 16 from bfloat16 to float32, -16
    the other way, 0 for anything but such a cast."""
    if node.op is not Op.CAST or not (node.dtype.is_float and node.src[0].dtype.is_float):
        return 0
    return node.dtype.bits - node.src[0].dtype.bits


def with_statements(nodes: Iterable[Node]) -> frozenset[Node]:
    """The `nodes` that leave a statement in a kernel."""
    return frozenset(node for node in nodes if node.op not in WITHOUT_STATEMENT)


def weight_of(nodes: Iterable[Node]) -> int:
    """What evaluating each of `nodes` once costs."""
    return sum(WEIGHT.get(node.op, 0) for node in nodes)

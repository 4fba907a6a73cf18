"""Reductions and costly functions of what is repeated: they are computed once, then repeated.

A reduction is taken out along an axis that it keeps, as derivatives of a mean over rows are. In
``dx = g @ w.T`` all rows of g are the same, so that those of dx are: one product of a vector takes
the place of one of matrices. A function is taken out through movement and constants, as the
activation of an image whose places are repeated is.
"""

from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from lamina.core.shape import prod
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.node import Node, constant_of, full
from lamina.ir.ops import Group, Op

# Nodes beneath a reduction that are looked at along one axis, after which that counts as not
# repeated: the steps of a long unrolled program may each be reduced.
MAX_NODES = 100

# Nodes beneath a function that are looked at for what is repeated. Repeating two axes is five, and
# arithmetic with constants a few more.
MAX_CHAIN = 16
# Movement through which a function is taken: its elements are those of its operand.
_MOVES = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SHRINK})


@on(*Group.TRANSCENDENTAL)
def function_of_repeated(node: Node) -> Node | None:
    """``exp(c * repeat(x))`` is ``repeat(exp(c * x))``, if at least half of the results are copies:
    what is costly is computed once for each element of x."""
    chain = _Chain.beneath(node)
    if chain is None or 2 * prod(chain.operand.shape) > prod(node.shape):
        return None
    result = chain.operand
    for step in chain.functions:
        operands = tuple(_resized(source, result) for source in step.src)
        result = Node(step.op, operands, step.arg)
    for step in chain.movement:
        result = Node(step.op, (result,), step.arg)
    return result


@dataclass(frozen=True)
class _Chain:
    """Elementwise operations and movement, of one operand each but for constants, from `operand`
    up to a function. Both are in the order in which they run; as movement changes no element, all
    functions may come before all movement. The first movement is an EXPAND."""

    operand: Node
    functions: tuple[Node, ...]
    movement: tuple[Node, ...]

    @classmethod
    def beneath(cls, node: Node) -> "_Chain | None":
        """The longest chain that ends with `node`, down to the lowest EXPAND; None if there is no
        EXPAND."""
        steps: list[Node] = []  # `node` first
        up_to_expand = 0  # steps of the longest chain so far
        while len(steps) < MAX_CHAIN:
            operand = _varying_operand(node)
            if operand is None:
                break
            steps.append(node)
            if node.op is Op.EXPAND:
                up_to_expand = len(steps)
            node = operand
        if not up_to_expand:
            return None
        chain = steps[up_to_expand - 1 :: -1]
        functions = tuple(step for step in chain if step.op not in _MOVES)
        movement = tuple(step for step in chain if step.op in _MOVES)
        return cls(chain[0].src[0], functions, movement)


def _varying_operand(node: Node) -> Node | None:
    """The one operand of an elementwise operation that is no constant, or that of movement; None of
    anything else."""
    if node.op not in _MOVES and node.op not in Group.ELEMENTWISE:
        return None
    varying = [operand for operand in node.src if constant_of(operand) is None]
    return varying[0] if len(varying) == 1 else None


def _resized(source: Node, value: Node) -> Node:
    """`value` in place of the operand of a chain; a constant with the shape of `value`."""
    constant = constant_of(source)
    return value if constant is None else full(value.shape, constant, source.dtype)


@on(Op.REDUCE)
def reduce_repeated(node: Node) -> Node | None:
    """``sum_j g[j] * w[k, j]`` at each (i, k) is computed once for all i, and then repeated."""
    monoid, reduced, component = node.arg
    sizes = node.src[0].shape
    if 0 in sizes:
        return None
    kept = [axis for axis in range(len(sizes)) if axis not in reduced]
    for axis in kept:
        if sizes[axis] == 1:
            continue
        search = _Search()
        once = [search.once(operand, axis) for operand in node.src]
        operands = [operand for operand in once if operand is not None]
        if len(operands) == len(once):
            total = build.reduce(monoid, reduced, *operands, component=component)
            return build.expand(total, node.shape)
    return None


class _Search:
    """Looks for what is repeated beneath one reduction, at MAX_NODES nodes at most."""

    def __init__(self) -> None:
        self._nodes_left = MAX_NODES

    def once(self, x: Node, axis: int) -> Node | None:
        """`x` with one element along `axis`; None unless all elements along it are known to be the
        same."""
        if not self._nodes_left:
            return None
        self._nodes_left -= 1
        sizes = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        if x.op is Op.EXPAND:
            return self._expanded(x, axis, sizes)
        if x.op is Op.PERMUTE:
            once = self.once(x.src[0], x.arg[axis])
            return None if once is None else build.permute(once, x.arg)
        if x.op is Op.RESHAPE:
            return self._reshaped(x, axis, sizes)
        if x.op in Group.ELEMENTWISE:
            return self._computed(x, axis)
        return None

    def _expanded(self, x: Node, axis: int, sizes: tuple[int, ...]) -> Node | None:
        source = x.src[0]
        inner = axis - (len(x.shape) - len(source.shape))  # negative: an axis that x adds
        if inner < 0 or source.shape[inner] == 1:
            return build.expand(source, sizes)
        once = self.once(source, inner)
        return None if once is None else build.expand(once, sizes)

    def _reshaped(self, x: Node, axis: int, sizes: tuple[int, ...]) -> Node | None:
        """Of a RESHAPE that leaves `axis` as it is: its operand has an axis of that size, with as
        many elements up to its end."""
        source = x.src[0]
        end = list(accumulate(x.shape, mul))[axis]
        for inner, inner_end in enumerate(accumulate(source.shape, mul)):
            if inner_end == end and source.shape[inner] == x.shape[axis]:
                once = self.once(source, inner)
                return None if once is None else build.reshape(once, sizes)
        return None

    def _computed(self, x: Node, axis: int) -> Node | None:
        operands: list[Node] = []
        for operand in x.src:
            once = self.once(operand, axis)
            if once is None:
                return None
            operands.append(once)
        return Node(x.op, tuple(operands), x.arg)

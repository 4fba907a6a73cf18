"""Where the kernel of a reduction or scan stores: after the arithmetic that alone uses its result.

The kernel of ``relu(x @ w + b)`` sums up products, adds b and takes the maximum with 0 while the
sum is in a register. This arithmetic is the reduction's *epilogue*; its last node is what the
kernel stores, and neither the sum nor what lies between needs a buffer. A movement that gives each
element a place of its own, as the transpose of ``relu(x @ w).T``, belongs to an epilogue too.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from lamina.core.shape import squeezed, strides_of
from lamina.fuse.costs import widening
from lamina.fuse.users import Users
from lamina.ir.build import component
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.ir.products import reuses_both_factors

# Movement that gives every element a place of its own.
BIJECTIVE = frozenset({Op.RESHAPE, Op.PERMUTE})
# What may follow a BIJECTIVE movement that is in an epilogue.
AFTER_MOVEMENT = Group.ELEMENTWISE | BIJECTIVE | {Op.CONTIGUOUS}


@dataclass(frozen=True)
class Epilogues:
    """`ends` are the nodes that kernels of reductions and scans store, the reduction itself if it
    has no epilogue. `absorbed` are the reductions with a movement in their epilogue: the kernel
    computes them over the axes of their end, and has no place for them in a buffer of their own
    shape. For ``(x @ w).T`` the end is the transpose, and the product is absorbed. Of reductions
    that meet before a movement, as in ``(x @ w + y.sum(0)).T``, a product alone is absorbed; the
    others are their own ends.
    """

    ends: frozenset[Node]
    absorbed: frozenset[Node]


def find_epilogues(
    users: Users, values: Set[Node], stored_first: Set[Node], *, scans_lack_vectors: bool,
    tiled_products: bool,
) -> Epilogues:  # fmt: skip
    """The ends of all reductions and scans.

    `values` are stored in any case: no epilogue goes on beyond one. The epilogue of the sums
    `stored_first` is movement and casts alone. `scans_lack_vectors` says that loops of scans have
    no vectors (CPUs), `tiled_products` that tiles of products are stored by rows (GPUs).
    """
    finder = _Finder(users, values, tiled_products)
    end_of = {
        node: finder.reduction_end(node, no_arithmetic=node in stored_first)
        for node in values
        if node.op is Op.REDUCE
    }
    # By the end the product, of several the last one: a kernel has tiles for one product. They have
    # no room for the loop of another reduction, which would run for each element.
    products = (node for node in users if node in end_of and reuses_both_factors(node))
    product_at = {end_of[product].node: product for product in products}
    absorbed = {
        node for node, end in end_of.items()
        if end.is_moved and product_at.get(end.node, node) is node
    }  # fmt: skip
    ends = {
        end.node if node in absorbed or not end.is_moved else node for node, end in end_of.items()
    }
    ends |= _scan_ends(users, values, lack_vectors=scans_lack_vectors)
    return Epilogues(frozenset(ends), frozenset(absorbed))


@dataclass(frozen=True)
class _End:
    """The end of an epilogue, and whether a movement comes before that end, or is it."""

    node: Node
    is_moved: bool


class _Finder:
    """Walks from reductions to the ends of their epilogues."""

    def __init__(self, users: Users, values: Set[Node], tiled_products: bool) -> None:
        self.users = users
        self.tiled_products = tiled_products
        self.values = values
        self.position = {node: position for position, node in enumerate(users)}

    def reduction_end(self, reduction: Node, *, no_arithmetic: bool) -> _End:
        """The end of the epilogue of `reduction`: that node itself if it has none.

        The epilogue goes on as far as `_next` does, and up to the first of `values`; with
        `no_arithmetic` only through movement and casts. The end is the last node on this way that
        `_may_be_end`.
        """
        end = _End(reduction, is_moved=False)
        is_moved = False  # a movement comes before `node`, or is it
        node = self._next(reduction)
        while node is not None:
            if no_arithmetic and node.op not in BIJECTIVE and node.op is not Op.CAST:
                break
            is_moved = is_moved or _moves_elements(node)
            is_left_to_reader = self.tiled_products and self._leads_to_cuts(node)
            if not is_left_to_reader and _may_be_end(node, end.node, is_moved=is_moved):
                end = _End(node, is_moved)
            node = None if node in self.values else self._next(node)
        return end

    def _next(self, node: Node) -> Node | None:
        """The next node of an epilogue after `node`: through it passes every use of `node`.

        A movement is in an epilogue if it is stored in any case, as a result is and what goes to
        other processes, or if an operation of AFTER_MOVEMENT uses
        it, as more of the epilogue may follow. If only reductions or products read it, it
        stays out: it costs them nothing, and the kernel keeps the axes of its reduction. ``x @ w``
        that is cut into 12 heads of 64 columns has tiles of 768 columns so, not of 64.
        """
        users = self.users[node]
        if len(users) == 1 and users[0].op in BIJECTIVE:
            movement = users[0]
            after = self.users[movement]
            is_stored = not after or movement in self.values
            goes_on = is_stored or any(user.op in AFTER_MOVEMENT for user in after)
            return movement if goes_on else None
        return self._where_uses_meet(node)

    def _leads_to_cuts(self, movement: Node) -> bool:
        """Whether `movement` is one, and what it moves is only cut after that, by a SHRINK. There
        the epilogue ends. A product had better store in the order of its own axes then, as its
        tiles write rows: to transpose is cheaper for the kernel that reads what is left.

        A transposed convolution by (157, 64, 2, 2) of images of (4, 157, 120, 64) with stride 2 is
        such a product. With results of (4, 64, 120, 2, 64, 2), whose rows have two neighbours, its
        program took an H200 163 us, and 33 with those of (4, 64, 2, 2, 120, 64)."""
        after = self.users[movement]
        if movement.op not in BIJECTIVE or not after:
            return False
        return all(user.op is Op.SHRINK or self._leads_to_cuts(user) for user in after)

    def _where_uses_meet(self, node: Node) -> Node | None:
        """The elementwise node through which every use of `node` passes, if there is one.

        For ``y = x * x + sin(x)``, in this order, it is the addition. `reached` has the nodes that
        every use passes through together: first ``x * x`` and ``sin(x)``. The first of them in
        order cannot be where all meet, as the others come later: its own users take its place.
        That gives ``sin(x)`` and the addition, and then the addition alone.
        """
        reached = set(self.users[node])
        while reached and all(user.op in Group.ELEMENTWISE for user in reached):
            if len(reached) == 1:
                return reached.pop()
            first = min(reached, key=self.position.__getitem__)
            if not self.users[first]:
                return None  # a result: this use ends here, and meets no other
            reached.remove(first)
            reached.update(self.users[first])
        return None


def _may_be_end(node: Node, end: Node, *, is_moved: bool) -> bool:
    """Whether the kernel may store `node`, of an epilogue whose last possible end so far is `end`.
    `is_moved` says that a movement comes before `node`, or is it.

    Not if memory would hold wider elements: a cast to a wider float is done where the value is
    read. So is movement after it, which has another dtype than `end`. For h, a sum cast to
    bfloat16, the end of ``cast(h, float32).T`` is h. Arithmetic may be an end in any dtype.

    And not if it is a reshape that adds or removes axes of size 1 alone, while no element has
    moved: ``sum[:, None]`` is the sum in memory.
    """
    is_movement = node.op in Group.MOVEMENT
    is_as_narrow = node.dtype is end.dtype if is_movement else widening(node) <= 0
    return is_as_narrow and (node.op is not Op.RESHAPE or is_moved)


def _moves_elements(node: Node) -> bool:
    """Whether `node` gives elements other indices: by a PERMUTE, or by a RESHAPE to other axes than
    those of size 1. From (4, 6) to (24,) it does, from (4, 6) to (4, 1, 6) it does not. Arithmetic
    keeps the shape, and so moves nothing."""
    has_other_axes = squeezed(node.src[0].shape) != squeezed(node.shape)
    return node.op is Op.PERMUTE or has_other_axes


def _scan_ends(users: Users, values: Set[Node], *, lack_vectors: bool) -> set[Node]:
    """The ends of scans: each moves on to where all of its uses meet, as long as what lies between
    may join.

    One loop computes all components of one scan, such as the value and the place of an argmax. They
    go on together from where the uses of all meet; if these do not, each is its own end, and is
    stored. No node is the end of two scans. For ``a + b`` of two scans, a in order before b, the
    addition becomes the end of a; b stays its own end, and is stored.
    """
    finder = _ScanFinder(users, values, lack_vectors)
    starts: list[Node] = []
    for scans in _scans_by_components(users):
        start: Node | None = scans[0]
        if len(scans) > 1:
            start = finder.meeting(scans) if values.isdisjoint(scans) else None
        if start is not None:
            finder.move(scans, [start])
            starts.append(start)
    for start in sorted(starts, key=finder.position.__getitem__):
        finder.move([start], [finder.end(start)])
    return finder.ends


def _scans_by_components(users: Users) -> Iterable[list[Node]]:
    """The SCANs, those that are components of one scan together."""
    components_of: dict[Node, list[Node]] = {}
    for node in users:
        if node.op is Op.SCAN:
            components_of.setdefault(component(node, 0), []).append(node)
    return components_of.values()


class _ScanFinder:
    """Walks from scans to the ends of their epilogues; `ends` are those found so far."""

    def __init__(self, users: Users, values: Set[Node], lack_vectors: bool) -> None:
        self.users = users
        self.values = values
        self.lack_vectors = lack_vectors
        self.position = {node: position for position, node in enumerate(users)}
        self.ends = {node for node in users if node.op is Op.SCAN}

    def move(self, before: Iterable[Node], after: Iterable[Node]) -> None:
        """Replace ends by others."""
        self.ends.difference_update(before)
        self.ends.update(after)

    def end(self, start: Node) -> Node:
        """The end of a scan whose components have met in `start`. Memory holds no wider floats than
        it would without this end: a cast to wider ones is computed in the kernel where narrower
        ones follow, and else where the value is read."""
        end, node = start, start
        while node not in self.values:
            user = self.meeting([node])
            if user is None:
                break
            node = user
            are_floats = node.dtype.is_float and end.dtype.is_float
            if not are_floats or node.dtype.bits <= end.dtype.bits:
                end = node
        return end

    def meeting(self, nodes: Sequence[Node]) -> Node | None:
        """The node through which every use of every one of `nodes` passes, if all until there joins
        their scan, and none of it is stored.

        For ``m + log(s)`` of m and s it is the addition: `reached` has the logarithm and the
        addition, and then, as the first of these in order gives way to its own users, the addition
        alone.
        """
        inside = set(nodes)
        reached = {user for node in nodes for user in self.users[node]}
        while reached:
            first = min(reached, key=self.position.__getitem__)
            others = [operand for operand in first.src if operand not in inside]
            if first in self.ends or not self._joins_scan(first, others):
                return None
            if len(reached) == 1:
                return first
            if first in self.values or not self.users[first]:
                return None  # it is stored
            inside.add(first)
            reached.remove(first)
            reached.update(self.users[first])
        return None

    def _joins_scan(self, node: Node, others: Iterable[Node]) -> bool:
        """Whether `node` is computed in the kernel of the scan that it uses, beside `others`.

        A reshape may merge axes, but splits none: the loop of a scan stays one loop.

        On CPUs arithmetic has vectors in a kernel of its own, and the loop of a scan has none
        (`FusionTarget.scans_lack_vectors`). So only arithmetic of one cheap instruction joins
        there, for which the commutative operations stand, and only if its other operand costs
        nothing: another scan, which is stored, or an EXPAND. With s and t for scans, ``s + t`` and
        ``s * expand(a)`` join; ``s * exp(x)`` does not, as the exponentials would lose their
        vectors, and neither does ``(s + t) + exp(x)``.
        """
        if node.op is Op.RESHAPE:
            return not _splits_an_axis(node, node.src[0])
        arithmetic = Group.COMMUTATIVE if self.lack_vectors else Group.ELEMENTWISE
        costs_nothing = all(other.op in (Op.SCAN, Op.EXPAND) for other in others)
        return node.op in arithmetic and (costs_nothing or not self.lack_vectors)


def _splits_an_axis(node: Node, operand: Node) -> bool:
    """Whether an axis of `node` is part of an axis of `operand`, which has as many elements.

    Axes that merge keep the stride of the innermost of them: (4, 6, 5) has the strides 30, 5 and 1,
    and (24, 5) has 5 and 1. A part of an axis has a new stride: (4, 2, 3, 5) has 30, 15, 5 and 1,
    and 15 is new. A new first axis of size 1 has a new stride too, 120 for (1, 4, 6, 5), and counts
    as a split.
    """
    return not set(strides_of(node.shape)) <= set(strides_of(operand.shape))

"""How what sums of products read lies in memory: with an axis nearest that tiles can lie along."""

from collections.abc import Sequence

from lamina.fuse.group import KernelGroup, Users, resizes, users_of
from lamina.ir.build import permute
from lamina.ir.kernel import bounds, free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, behind
from lamina.ir.ops import Group, Op
from lamina.shape import prod

LEAST, OFTEN = 16, 64  # neighbours, and readings of an element, that are worth a copy


def lay_out(sinks: Sequence[Node]) -> list[Node]:
    """Keep what sums of products read as `_wanted` says, and what arithmetic makes it of, or makes
    of it, in the same order."""
    users, done, lies = users_of(sinks), dict[Node, Node](), dict[Node, Node]()
    kept = _wanted(users)
    near, arithmetic = dict(kept), Group.ELEMENTWISE
    pairs = [(node, one) for node in users for one in node.src if {node.op, one.op} <= arithmetic]
    for known, other in (*reversed(pairs), *((one, node) for node, one in pairs)):
        if known in near:
            near.setdefault(other, near[known])
    for node in users:
        src = tuple(done[one] for one in node.src)
        src = (node.src[0], *src[1:]) if node.op is Op.ASSIGN else src  # the memory itself
        new = done[node] = node if src == node.src else Node(node.op, src, node.arg)
        if node in near:
            axes = sorted(range(len(node.shape)), key=lambda axis: axis == near[node])
            turned = [lies[one] if near.get(one) == near[node] else permute(done[one], axes)
                      for one in node.src if node.op in arithmetic]  # fmt: skip
            new = Node(node.op, tuple(turned), node.arg) if turned else permute(new, axes)
            lies[node] = Node(Op.CONTIGUOUS, (new,)) if node in kept else new
            done[node] = permute(lies[node], [axes.index(axis) for axis in sorted(axes)])
    return [done[sink] for sink in sinks]


def _wanted(users: Users) -> dict[Node, int]:
    """Values of 16 or 32 bits that sums of products read often, but in windows or few neighbours at
    a time, and the axis to be nearest: the last that is long and moves no window, nor is outermost,
    as results will have it too."""
    sums = [one for one in users if one.op is Op.REDUCE and one.arg.monoid is ADD]
    values = {one: one.shape for one in users
              if one.op not in Group.MOVEMENT and resizes(one) <= 0}  # fmt: skip
    for product in (behind(one.src[0], Group.MOVEMENT) for one in sums):
        if product.op is Op.MUL:
            values.pop(product, None)
    found = dict[Node, int]()
    for total in reversed(sums):
        reads = KernelGroup(total, values).read_at
        parts = [part for indices in reads.values() for index in indices for part in index]
        moving = {axis for part in parts for axis in free_axes(part)
                  if points(free_axes(part)) > 1 + bounds(part)[1] - bounds(part)[0]}  # fmt: skip
        for node, (index, *more) in reads.items():
            long = (axis for axis, size in enumerate(node.shape) if axis and size >= LEAST)
            still = [axis for axis in long if moving.isdisjoint(free_axes(index[axis]))]
            often = prod(total.src[0].shape) >= OFTEN * prod(node.shape)
            for axis in still[-1:] if often and node.dtype.bits in (16, 32) and not more else ():
                if prod(node.shape[axis + 1 :]) > 1 or (moving and node.op is not Op.BUFFER):
                    found[node] = axis
    return found

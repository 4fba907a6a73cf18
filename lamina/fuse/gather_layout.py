"""Inputs that gathers read in another order of axes, stored once in that order on a GPU.

Images (N, H, W, C) of which an interpolation has the channels first are read at C elements from one
pixel to the next. Threads along a row of the result read each its own line, and of a bilinear
interpolation four of them: data say at which place, so that no tile of the image is transposed. A
copy with the channels first takes less time where such reads are many beside the image. A single
gather transposes strips by itself.

    gather(permute(x), i) + gather(permute(x), j)
        =   gather(c, i) + gather(c, j)     with c a CONTIGUOUS copy of permute(x)
"""

from collections.abc import Iterable, Sequence, Set
from math import prod

from lamina.core.rates import GPUS, RATED_GPU
from lamina.fuse.layout import copying_seconds
from lamina.fuse.users import Users, users_of
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.ir.substitute import with_operands

RATES = GPUS[RATED_GPU]


def gathered_in_order(sinks: Sequence[Node]) -> list[Node]:
    """The graph of `sinks` with permuted inputs that gathers read too slowly as copies."""
    users, results = users_of(sinks), set(sinks)
    done: dict[Node, Node] = {}
    for node in users:
        new = with_operands(node, tuple([done[operand] for operand in node.src]))
        done[node] = Node(Op.CONTIGUOUS, (new,)) if _gains(node, users, results) else new
    return [done[sink] for sink in sinks]


def _gains(node: Node, users: Users, results: Set[Node]) -> bool:
    """Is `node` a permuted input that gathers alone read, for results in the order of its axes, and
    is a copy of it faster than their reads?"""
    if node.op is not Op.PERMUTE or node.src[0].op is not Op.BUFFER or not _lies_apart(node):
        return False
    forms = _forms(node, users)
    pairs = _readers(forms, users)
    is_stored = any(form in results for form in forms)
    if is_stored or len(pairs) < 2 or not all(_is_gather_of(*pair) for pair in pairs):
        return False
    gathers = [reader for reader, _ in pairs]
    # Each in a sector of its own, in each gather.
    elements = sum(prod(gather.shape) for gather in gathers)
    reading = elements * RATES.line / RATES.levels[0].all_read
    return reading > copying_seconds(node) and _are_of_results(gathers, users, results)


def _lies_apart(node: Node) -> bool:
    """Are neighbours along the last axis of a PERMUTE a line or more apart in memory?"""
    last = node.arg[-1]
    elements_between = prod(node.src[0].shape[last + 1 :])
    return node.shape[-1] > 1 and elements_between * node.dtype.itemsize >= RATES.line


def _forms(node: Node, users: Users) -> list[Node]:
    """The forms in which `node` is read: itself, and cast."""
    return [node, *(user for user in users[node] if user.op is Op.CAST)]


def _readers(forms: Sequence[Node], users: Users) -> list[tuple[Node, Node]]:
    """What reads one of `forms`, but for these themselves, each with the form that it reads."""
    return [(user, form) for form in forms for user in users[form] if user not in forms]


def _is_gather_of(reader: Node, form: Node) -> bool:
    """Does `reader` gather elements of `form`, which is not its index?"""
    return reader.op is Op.GATHER and reader.src[0] is form and form not in reader.src[1:]


def _are_of_results(nodes: Iterable[Node], users: Users, results: Set[Node]) -> bool:
    """Does all that is computed of `nodes` keep the order of their axes, up to results?"""
    reached = dict.fromkeys(nodes)
    queue = list(reached)
    for node in queue:  # which grows as nodes are reached
        keeps_order = node.op in Group.ELEMENTWISE or node.op is Op.GATHER
        if not keeps_order or not (users[node] or node in results):
            return False
        queue += [user for user in users[node] if user not in reached]
        reached |= dict.fromkeys(users[node])
    return True

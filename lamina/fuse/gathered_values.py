"""Values that are stored because gathers read their elements many times.

A million edges of a graph read the rows of 100,000 nodes, in bfloat16 and normalised:

    y = cast(x * scale + bias, bfloat16)      (100000, 128), of float32
    ends = gather(y, sources)                 (1000000, 128): each row of y ten times

Computed where it is read, an element of y takes 4 bytes of x each of the ten times, 40 in all.
Stored it takes the 4 bytes once, 2 of the store, and 2 for each time, which are 26. What is read at
random places counts most: rows of y are half as long, and more of them fit into a cache.
"""

from collections.abc import Set

from lamina.core.shape import prod
from lamina.fuse.users import Users
from lamina.ir.node import Node, peel, toposort
from lamina.ir.ops import Group, Op


def gathered_values(users: Users, values: Set[Node], cheap: Set[Node]) -> set[Node]:
    """The arithmetic to store because gathers would read more bytes if each computed it again.

    values: what is in memory in any case. cheap: arithmetic on indices, which reads no array
    """
    reads = dict[Node, int]()  # the elements that gathers read from each node
    for node in users:
        if node.op is Op.GATHER:
            source = peel(node.src[0], Group.MOVEMENT - {Op.EXPAND, Op.PAD, Op.SHEAR})
            reads[source] = reads.get(source, 0) + prod(node.shape)
    return {
        source
        for source, elements in reads.items()
        if source.op in Group.ELEMENTWISE
        and source not in values | cheap
        and _saves_bytes(source, elements, values)
    }


def _saves_bytes(source: Node, elements: int, values: Set[Node]) -> bool:
    """Does it take fewer bytes to compute and store `source` once, so that `elements` of it are
    read, than to read its operands for each of these?"""
    size = prod(source.shape)
    stored = source.dtype.itemsize
    computed = _bytes_read(source, values)
    return computed * size + stored * (size + elements) < computed * elements


def _bytes_read(source: Node, values: Set[Node]) -> int:
    """The bytes of memory that an element of `source` is computed from. Arrays with fewer elements,
    such as a scale for each column, are in caches and do not count."""

    computed = toposort([source], lambda node: node not in values and node.op is not Op.BUFFER)
    operands = {operand for node in computed for operand in node.src}
    in_memory = operands.difference(computed)
    return sum(node.dtype.itemsize for node in in_memory if prod(node.shape) >= prod(source.shape))

"""A nest of a GPU as one whose vectors are the threads of a block."""

from dataclasses import replace

from lamina.errors import FormatError
from lamina.ir.node import Node
from lamina.loops.moves import Split
from lamina.loops.nest import Nest

BLOCK = 256  # threads of a block in which each thread has a row: the printer's number


def in_blocks(nest: Nest) -> Nest:
    """The nest with threads as lanes of vectors. What a thread has to itself, of unrolled axes,
    vectors and dot products, are copies of the body: the printer for GPUs unrolls all of these.

    Where no loop is bound to threads, the grid numbers threads, not blocks: each BLOCK neighbours
    along its last axis are then the lanes of a vector, and all of them if there are fewer. For
    ``y[i, j] = 2 * x[i, j]`` of (64, 1000), both axes of which are the grid, j becomes 4 blocks of
    256 lanes. A nest without a grid has one thread, and one whose last axis cannot be split has
    blocks of one.
    """
    lanes = {"vector": "unroll", "dot": "unroll", "thread": "vector"}
    binding = {axis: lanes.get(bound, bound) for axis, bound in nest.binding.items()}
    grid = [axis for axis in nest.order if nest.bound(axis) == "grid"]
    grid_has_blocks = "thread" in nest.binding.values()
    if grid and not grid_has_blocks:
        last = grid[-1]
        if last.arg.size > BLOCK:
            return _split_into_blocks(replace(nest, binding=binding), last)
        binding[last] = "vector"
    return replace(nest, binding=binding)


def _split_into_blocks(nest: Nest, axis: Node) -> Nest:
    """The nest with `axis`, which numbers threads, split into blocks and the BLOCK threads of one,
    as lanes; 1000 are 4 blocks of 256, of which 24 threads do nothing. As it is where `axis` cannot
    be split."""
    outer = 1 + max(other.arg.number for other in nest.order)
    inner = outer + 1
    # `Split` takes unbound axes alone.
    unbound = {other: bound for other, bound in nest.binding.items() if other is not axis}
    split = Split(axis.arg.number, BLOCK, outer, inner)
    try:
        blocks = split.apply(replace(nest, binding=unbound))
    except FormatError:  # a sub-loop inside another one, which BLOCK does not divide
        return nest
    bound = {blocks.axis(outer): "grid", blocks.axis(inner): "vector"}
    return replace(blocks, binding={**blocks.binding, **bound})

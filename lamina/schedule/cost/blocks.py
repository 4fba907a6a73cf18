"""A nest of a GPU as one whose vectors are the threads of a block."""

from dataclasses import replace

from lamina.errors import FormatError
from lamina.ir.node import Node
from lamina.loops.moves import Split
from lamina.loops.nest import BLOCK, Nest


def in_blocks(nest: Nest) -> Nest:
    """The nest with threads as lanes of vectors. What a thread has to itself, of unrolled axes,
    vectors and dot products, are copies of the body: the printer for GPUs unrolls all of these.

    Where no loop is bound to threads, the grid numbers threads, not blocks: each BLOCK neighbours
    along its last axes are then the lanes of a vector, and all of them if there are fewer. For
    ``y[i, j] = 2 * x[i, j]`` of (64, 1000), both axes of which are the grid, j becomes 4 blocks of
    256 lanes; of (1000, 16), all of j and 16 points of i are. A nest without a grid has one thread.
    """
    lanes = {"vector": "unroll", "dot": "unroll", "thread": "vector"}
    binding = {axis: lanes.get(bound, bound) for axis, bound in nest.binding.items()}
    lanes_nest = replace(nest, binding=binding)
    grid = [axis for axis in nest.order if nest.bound(axis) == "grid"]
    grid_has_blocks = "thread" in nest.binding.values()
    if grid_has_blocks:
        return lanes_nest
    threads = BLOCK  # that are still to be found
    for axis in reversed(grid):
        if axis.arg.size > threads:
            return _split_into_blocks(lanes_nest, axis, threads)
        binding[axis] = "vector"
        lanes_nest = replace(nest, binding=dict(binding))
        threads //= axis.arg.size
    return lanes_nest


def _split_into_blocks(nest: Nest, axis: Node, threads: int) -> Nest:
    """The nest with `axis`, which numbers threads, split into blocks and so many `threads` of one,
    as lanes; 1000 are 4 blocks of 256, of which 24 threads do nothing. As it is where `axis` cannot
    be split, or one thread is wanted."""
    if threads <= 1:
        return nest
    outer = 1 + max(other.arg.number for other in nest.order)
    inner = outer + 1
    # `Split` takes unbound axes alone.
    unbound = {other: bound for other, bound in nest.binding.items() if other is not axis}
    split = Split(axis.arg.number, threads, outer, inner)
    try:
        blocks = split.apply(replace(nest, binding=unbound))
    except FormatError:  # a sub-loop inside another one, which `threads` does not divide
        return nest
    bound = {blocks.axis(outer): "grid", blocks.axis(inner): "vector"}
    return replace(blocks, binding={**blocks.binding, **bound})

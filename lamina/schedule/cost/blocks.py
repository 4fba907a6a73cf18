"""A nest of a GPU as one whose vectors are the threads of a block."""

from dataclasses import replace

from lamina.errors import FormatError
from lamina.loops.moves import Split
from lamina.loops.nest import Nest

BLOCK = 256  # threads of a block in which each thread has a row: the printer's number


def in_blocks(nest: Nest) -> Nest:
    """The nest with threads as lanes of vectors. What a thread has to itself, of unrolled axes,
    vectors and dot products, are copies of the body: the printer for GPUs unrolls all of these.

    Where no loop is bound to threads, the grid numbers threads, not blocks: each BLOCK neighbours
    along its last axis are then the lanes of a vector, and all of them if there are fewer. A nest
    without a grid has one thread, and one whose last axis cannot be split has blocks of one.
    """
    lanes = {"vector": "unroll", "dot": "unroll", "thread": "vector"}
    binding = {axis: lanes.get(bound, bound) for axis, bound in nest.binding.items()}
    grid = [axis for axis in nest.order if nest.bound(axis) == "grid"]
    if "thread" in nest.binding.values() or not grid:
        return replace(nest, binding=binding)
    last = grid[-1]
    del binding[last]
    if last.arg.size <= BLOCK:
        return replace(nest, binding={**binding, last: "vector"})
    first = 1 + max(axis.arg.number for axis in nest.order)
    try:
        nest = Split(last.arg.number, BLOCK, first, first + 1).apply(replace(nest, binding=binding))
    except FormatError:  # a sub-loop inside another one, which BLOCK does not divide
        return replace(nest, binding={**binding, last: "grid"})
    bound = {nest.axis(first): "grid", nest.axis(first + 1): "vector"}
    return replace(nest, binding={**nest.binding, **bound})

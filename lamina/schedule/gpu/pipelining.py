"""Moves that say how blocks compute the tiles of a product, after `tensorize` has said how large
these are.

A product of 4096 x 4096 x 4096 in bfloat16 on an H100, with all that a schedule can say of it:

    tensorize(mma_bf16_128x256)
    order(whole, 128)      a block has every 128th tile
    depth(4)               the buffers of both factors hold 4 steps
    roles(producer)        warps of their own fill them
    overlap(8)             results are stored in 8 slices, each beside a step of the next tile

Products back to back, as in attention, have ``depth(8)``, of the tiles that pass by, and
``ahead(1)``: inner products of a step run beside the outer products of the step before.

What a schedule leaves out is decided by the facts of the GPU, and whether all of it fits is known
there too (`lamina/tiles/decisions.py`). Barriers are in no schedule: they are derived
(`lamina/tiles/barriers.py`).
"""

from dataclasses import dataclass, replace

from lamina.core.target import Target
from lamina.ir.kernel import Kernel
from lamina.loops.moves import Move, Schedule, apply
from lamina.loops.nest import Nest
from lamina.schedule.cost.products import steps_of, tiles_of
from lamina.schedule.gpu.atoms import ATOMS
from lamina.schedule.gpu.stream_k import StreamK, divisions, has_shares
from lamina.schedule.knobs import GpuKnobs

ORDERS = ("whole", "stream_k")
PRODUCER, CONSUMERS = "producer", "consumers"
FILLERS = (PRODUCER, CONSUMERS)
MAX_SLICES = 16  # of a tile of 256 columns: 8 sums of a thread each


@dataclass(frozen=True)
class Order(Move):
    """Which tiles each of `blocks` has. In the order "whole", each `blocks`th one from its own
    number on; in the order "stream_k" as many whole tiles as each block can have, and a share of
    the steps of the others, of which there are fewer than blocks."""

    order: str
    blocks: int
    text = "order({order}, {blocks:d})"
    follows_tensorize = True

    def apply(self, nest: Nest) -> Nest:
        self.require(self.order in ORDERS, f"an order is one of {', '.join(ORDERS)}")
        tiles, steps = tiles_of(nest), steps_of(nest)
        if self.order == "whole":
            self.require(1 <= self.blocks <= tiles, f"1 to {tiles} blocks have whole tiles")
        else:
            self.require(
                self.blocks > 0 and has_shares(tiles, steps, self.blocks),
                f"{tiles} tiles of {steps} steps have no part for each of {self.blocks} blocks",
            )
        return replace(nest, pipelining=replace(nest.pipelining, **vars(self)))


@dataclass(frozen=True)
class Depth(Move):
    """How many steps the buffers of both factors hold in shared memory."""

    depth: int
    text = "depth({depth:d})"
    follows_tensorize = True

    def apply(self, nest: Nest) -> Nest:
        self.require(self.depth > 0, "buffers hold a step or more")
        return replace(nest, pipelining=replace(nest.pipelining, depth=self.depth))


@dataclass(frozen=True)
class Roles(Move):
    """Who fills the buffers: a "producer" with warps of its own, which asks the copy engine, or the
    "consumers", the threads that multiply."""

    filler: str
    text = "roles({filler})"
    follows_tensorize = True

    def apply(self, nest: Nest) -> Nest:
        self.require(self.filler in FILLERS, f"those who fill are {' or '.join(FILLERS)}")
        return replace(nest, pipelining=replace(nest.pipelining, filler=self.filler))


@dataclass(frozen=True)
class Overlap(Move):
    """Store the results of a tile in `slices` of its columns, each beside one of the first steps of
    the next tile; all results before these steps if there are 0 slices."""

    slices: int
    text = "overlap({slices:d})"
    follows_tensorize = True

    def apply(self, nest: Nest) -> Nest:
        return replace(nest, pipelining=replace(nest.pipelining, slices=self.slices))


@dataclass(frozen=True)
class Ahead(Move):
    """Of products back to back, begin the inner products of a step while the outer products of so
    many `steps` before it run: 1, so that tensor cores multiply while threads compute, or 0."""

    steps: int
    text = "ahead({steps:d})"
    follows_tensorize = True

    def apply(self, nest: Nest) -> Nest:
        self.require(self.steps in (0, 1), "inner products are 0 steps ahead, or 1")
        self.require(is_back_to_back(nest), "there are no products back to back")
        return replace(nest, pipelining=replace(nest.pipelining, ahead=self.steps))


def is_back_to_back(nest: Nest) -> bool:
    """Does a nest have products whose left factors are computed from other products?"""
    return len(nest.kernel.with_loops) > 1


def pipelining_of_knobs(
    kernel: Kernel, in_tiles: Schedule, target: Target, knobs: GpuKnobs
) -> Schedule:
    """The moves that a search draws beyond those that put a product `in_tiles`: none for a knob of
    0, nor for a kernel of which they say nothing. Raises FormatError if they do not fit."""
    if not any((knobs.division_rank, knobs.buffered_steps, knobs.filler, knobs.stored_slices)):
        return ()
    nest = apply(kernel, in_tiles)
    if is_back_to_back(nest) or not target.has_tile_programs:
        return ()
    moves: list[Move] = []
    if knobs.division_rank:
        atom, tiles, steps = ATOMS[nest.atom], tiles_of(nest), steps_of(nest)
        ranked = divisions(atom, tiles, steps, target.multiprocessors)
        moves.append(order_of(ranked[knobs.division_rank % len(ranked)], steps))
    if knobs.buffered_steps:
        moves.append(Depth(knobs.buffered_steps))
    if knobs.filler:
        moves.append(Roles(FILLERS[knobs.filler % len(FILLERS)]))
    if knobs.stored_slices:
        moves.append(Overlap(knobs.stored_slices % (MAX_SLICES + 1)))
    apply(kernel, (*in_tiles, *moves))
    return tuple(moves)


def order_of(division: StreamK, steps: int) -> Order:
    """The move for a division of tiles of so many steps."""
    return Order("whole" if division.is_whole(steps) else "stream_k", division.blocks)

"""The bodies of a nest's loops: the accesses and operations that stand in each, and how often each
loop runs. `walk` makes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from lamina.core.dtypes import DType
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op

# As how many instructions on a vector of words of bytes the instructions on tiles multiply in their
# time, with two tiles of sums: an Emerald Rapids multiplied 1.4 * 10**12 bytes a second with them,
# and 0.35 * 10**12 on vectors.
SPEED_OF_TILES = 4


@dataclass(frozen=True)
class Access:
    """A load or a store in the body of a loop.

    parameter: number of the kernel's array. index: of the element. is_store: does it write?
    axes: those that vary in one run of the body: of lanes, and of unrolled points
    times: how often the body runs in which it stands, all iterations of all loops around it
    lanes: elements of one instruction; copies: instructions in one run of the body
    share: of the elements, those that it reads or writes, as its condition holds there

    The load of ``x[64 * i + 16 * u + l]`` with 100 iterations i, 4 unrolled points u and 16 lanes l
    has the axes u and l, 100 times, 16 lanes and 4 copies.
    """

    parameter: int
    index: Node
    is_store: bool
    axes: frozenset[Node]
    times: float
    lanes: int
    copies: int
    share: float = 1.0


@dataclass(frozen=True)
class Work:
    """An operation, or the step of a reduction or scan, in the body of a loop.

    op: what it does; for the step of a monoid of several components, such as an argmax, the monoid
    dtype: of the result
    times, lanes, copies: as of an access
    fused: is it an addition that one instruction does together with a product?
    chained: of a reduction or scan, how many steps of one iteration wait for one another, the first
        of them for the iteration before; 0 for anything else
    by_constant: is its last operand a constant?
    """

    op: Op | Monoid
    dtype: DType
    times: float
    lanes: int
    copies: int
    fused: bool = False
    chained: float = 0
    by_constant: bool = False


@dataclass
class Loop:
    """A loop over `axis`: `trips` iterations of a body, in which stand accesses, operations and the
    loops inside it. The whole kernel is the one iteration of a loop around all, without an axis.

    trips: of the outermost loop of an uneven split a fraction: see `trips_of` in `walk`
    around: the next loop outside; None for the whole kernel
    done: values that the walk has computed in this body
    done_by_lane: the same of scalars, one for each lane
    filled: values that the walk has put into scratch memory in this body
    masks: indices, each with a size, of which it has found the lanes that are inside of that
    """

    axis: Node | None
    trips: float
    around: "Loop | None" = None
    loops: list["Loop"] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    done: set[Node] = field(default_factory=set)
    done_by_lane: set[Node] = field(default_factory=set)
    filled: set[Node] = field(default_factory=set)
    masks: set[tuple[Node, int]] = field(default_factory=set)

    @cached_property
    def times(self) -> float:
        """How often the body runs in all, in every iteration of the loops around it."""
        return self.trips * (self.around.times if self.around else 1.0)

    @cached_property
    def axes(self) -> frozenset[Node]:
        """The axes of this loop and of those around it."""
        outside = self.around.axes if self.around else frozenset[Node]()
        return outside | {self.axis} if self.axis is not None else outside

    def outwards(self) -> Iterator["Loop"]:
        """This loop, then the loops around it, to the whole kernel."""
        yield self
        if self.around is not None:
            yield from self.around.outwards()

    def every(self) -> Iterator["Loop"]:
        """This loop and all inside."""
        yield self
        for loop in self.loops:
            yield from loop.every()


def is_fused(node: Node) -> bool:
    """Is this an addition of floats, one of them a product? One instruction does both, the fused
    multiply-add, whose cost is that of the product."""
    adds_product = node.op is Op.ADD and any(operand.op is Op.MUL for operand in node.src)
    return adds_product and node.dtype.is_float


def has_fused_steps(node: Node) -> bool:
    """Is each step of this reduction or scan such an instruction: a multiply-add of floats?"""
    is_sum = node.arg.monoid.op is Op.ADD and node.dtype.is_float
    return is_sum and node.src[0].op is Op.MUL

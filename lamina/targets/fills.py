"""Opening loops, and filling scratch memory in them with values that a nest stages.

A store that fills has the axis `at`: it runs first in the body of the loop over that axis, in loops
of its own. The product of (512, 600) and (600, 1000) on a CPU with vectors of 8 lanes packs 128
columns of its right factor p1 for each iteration of ``column_0``, an axis of the launch. The axes
of that fill are ``column_1`` (8 strips of 16 columns), ``k_outer``, ``k_inner``, and in registers
two vectors of 8 columns:

    for (i64 column_1 = 0; column_1 < 8; column_1++) {
        for (i64 k_outer = 0; k_outer < 75; k_outer++) {
            for (i64 k_inner = 0; k_inner < 8; k_inner++) {
                const f32x8 load_1 = *(f32x8r *)(p1 + 8000 * k_outer + 1000 * k_inner + ...);
                const f32x8 load_2 = *(f32x8r *)(p1 + 8000 * k_outer + 1000 * k_inner + ... + 8);
                *(f32x8u *)(p3 + 128 * k_outer + 16 * k_inner + 9600 * column_1) = load_1;
                *(f32x8u *)(p3 + 128 * k_outer + 16 * k_inner + 9600 * column_1 + 8) = load_2;
            }
        }
    }
    for (i64 row_outer = 0; row_outer < 85; row_outer++) { ... }         which reads p3

The 512 rows are 85 tiles of 6 and one of 2: two parts, which need the same panel. Both are printed
after one fill: see `sharing_loops`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile

from lamina.ir.kernel import Store
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group
from lamina.loops.nest import Axes, is_minor
from lamina.targets.parts import (
    InRegisters,
    Loop,
    LoopPart,
    NestPart,
    Unrolled,
    Vector,
    counted_loop,
)
from lamina.targets.scopes import Scope, registers_last
from lamina.targets.values import ValuePrinter

LONGEST_COPY = 16  # iterations of a loop that fills scratch memory, up to which it is unrolled


@dataclass(frozen=True)
class _Halves:
    """A part in two: the loops down to the outermost one that fills, and the loops inside."""

    outer: NestPart
    inner: NestPart


class FillPrinter(ValuePrinter):
    """Opens loops, with the fills that belong to them."""

    @contextmanager
    def opened(self, nest_part: NestPart, later: NestPart | None = None) -> Iterator[None]:
        """`opened_in_order` in the nest's order, with the fills of each loop first in its body.

        `later`: how axes run that are opened inside of the ``with``, if a fill has some of these.
        """
        how_axes_run = {**(later or {}), **nest_part}
        with ExitStack() as open_axes:
            for axis in registers_last(nest_part, self.nest.order):
                open_axes.enter_context(self.opened_axis(axis, nest_part[axis]))
                self._fill_at(axis, how_axes_run)
            yield

    def _fill_at(self, axis: Node, how_axes_run: NestPart) -> None:
        """Print the fills of the loop over `axis`, which was just opened.

        What else their values depend on is known here: a fill has all axes inside of that loop
        that its value walks (`Stage`), so any other is a row loop around it.
        """
        for fill in self.nest.fills:
            if fill.at is axis:
                self._fill(fill, how_axes_run)

    def _fill(self, fill: Store, how_axes_run: NestPart) -> None:
        """Print the loops of `fill`; afterwards its value is read from scratch memory.

        An axis among `how_axes_run`, such as the vectors of a panel, runs here as it does in the
        loops that read the value. Any other one is divided into its main and tail parts.
        """
        self.filled -= {fill.value}  # until it is filled anew, the value is computed
        others = [axis for axis in fill.axes if axis not in how_axes_run]
        for other_parts in self.partitioner.nest_parts(others):
            self._print_fill_loops(fill, how_axes_run | other_parts)
        self.filled |= {fill.value}

    def _print_fill_loops(self, fill: Store, how_axes_run: NestPart) -> None:
        """Print one part of the loops of `fill`: over those of its axes that are not open yet.

        They are in the order of scratch memory, unless that would read an array with strides: where
        a loop goes along neighbours of the array, loops are in the order of the array. What takes
        many instructions, as an exponential does, keeps its vectors all the same: reading them lane
        by lane takes less than computing each lane by itself.
        """
        order = [axis for axis in fill.axes if axis not in self.depth_of]
        loops = {axis: how_axes_run[axis] for axis in order}
        contiguous = self.contiguous_axis(fill)
        along_neighbours = loops.get(contiguous) if contiguous else None
        is_long = any(node.op in Group.TRANSCENDENTAL for node in toposort([fill.value]))
        # In vectors or unrolled, it reads each row of the array at once already.
        if contiguous and isinstance(along_neighbours, Loop) and not is_long:
            order.remove(contiguous)
            order.append(contiguous)  # as the innermost loop
            loops = _in_order_of_array(loops, contiguous, along_neighbours)
        with self.opened_in_order(loops, order):
            self.print_stores([fill])

    def contiguous_axis(self, fill: Store) -> Node | None:
        """The axis of `fill` along which neighbours are neighbours in the array that it reads, as k
        in ``x[600 * row + k]``; None if there is no such axis."""
        return next((axis for axis in fill.axes if is_minor(fill.value, axis)), None)

    # Parts that share loops.

    def sharing_loops(self, nest_parts: Iterable[NestPart]) -> list[list[NestPart]]:
        """Groups of `nest_parts` that run in the same outer loops; a part that shares none is a
        group by itself.

        Parts that need the same values in scratch memory are alike in the outermost loop that
        fills, in the loops around that, and in the axes of these fills. In the module's example the
        parts of 85 tiles and of the last tile are a group: they are alike in ``column_0``, at which
        the fill is, and in the axes of the panel. See `_shared_loops` for nests that fill nothing.
        """
        groups: dict[frozenset[tuple[Node, LoopPart]], list[NestPart]] = {}
        for nest_part in nest_parts:
            compared = self._axes_alike(nest_part)
            if not compared:
                compared = set(nest_part)  # no two parts are alike in all axes
            shared = frozenset((axis, nest_part[axis]) for axis in compared)
            groups.setdefault(shared, []).append(nest_part)
        return list(groups.values())

    def print_sharing(self, group: Sequence[NestPart], body: Callable[[], None]) -> None:
        """Print `body` in the loops of each part of a `group`: those that all share once, and in
        them a block with the other loops of each part."""
        if len(group) == 1:
            with self.opened(group[0]):
                body()
            return
        outer = self._halves(group[0]).outer
        with self.opened(outer, later=group[0]):
            filled = self.filled
            for nest_part in group:
                self.scopes.append(Scope("{"))
                with self.opened(self._halves(nest_part).inner):
                    body()
                self.close_loop()
                self.filled = filled  # without what loops inside filled, for this part alone

    def _halves(self, nest_part: NestPart) -> _Halves:
        """`nest_part` in two. Of a0, of a1 that fills, and of a2, the outer half has a0 and a1; if
        no loop is shared, that half is empty."""
        outer = self._shared_loops(nest_part)
        inner = [axis for axis in nest_part if axis not in outer]
        return _Halves(
            {axis: nest_part[axis] for axis in outer},
            {axis: nest_part[axis] for axis in inner},
        )

    def _shared_loops(self, nest_part: NestPart) -> list[Node]:
        """The loops of `nest_part` that other parts may share, and those of the launch wherever
        they are, as they print no loop; [] if there is none.

        They go down to the outermost loop that fills. Of a nest that fills nothing and adds nothing
        up they are the loops around the axis of vectors: of 8 images with rows of 58 elements, each
        row runs 3 vectors of 16 lanes and the one that is left over while its lines are in the
        first cache. One pass over all rows for the vectors and another for the rest took 1.4 times
        as long where images come from memory: 730 us, and 510 in one pass (measured).
        """
        loops = [
            axis for axis in self.nest.order
            if axis in nest_part and not isinstance(nest_part[axis], InRegisters)
        ]  # fmt: skip
        if self.nest.fills:
            places_of_fills = {fill.at for fill in self.nest.fills}
            ends = [place for place, axis in enumerate(loops) if axis in places_of_fills]
            shared = loops[: ends[0] + 1] if ends else []
        else:
            shared = self._loops_around_vectors(loops)
        inside = loops[len(shared) :] if shared else []
        return shared + [axis for axis in inside if axis in self.partitioner.launch_axes]

    def _loops_around_vectors(self, loops: Sequence[Node]) -> list[Node]:
        """Those of `loops` that are around all of the axis of vectors; [] where the launch divides
        that, where only the launch is around it, and of a nest that adds up, whose parts have
        accumulators of their own."""
        launched = self.partitioner.launch_axes
        of_vectors = self._sub_loops_of_vectors()
        if self.nest.kernel.with_loops or not launched.isdisjoint(of_vectors):
            return []
        around = list(takewhile(lambda axis: axis not in of_vectors, loops))
        has_vectors_inside = len(around) < len(loops)
        return around if has_vectors_inside and not launched.issuperset(around) else []

    def _sub_loops_of_vectors(self) -> Axes:
        """The sub-loops of the axis that has vectors, itself among them; none without vectors."""
        vectors = [axis for axis in self.nest.order if self.nest.bound(axis) == "vector"]
        return self.nest.sub_loops(vectors[-1]).axes if vectors else ()

    def _axes_alike(self, nest_part: NestPart) -> set[Node]:
        """The axes in which parts are alike that share loops with `nest_part`: those loops, and the
        axes of `nest_part` that the fills in them have: a panel filled in the loop over a1 has an
        entry for each step along r3 and each column along a2. Of a nest that fills nothing, all
        axes but that of vectors. The empty set if no loop is shared."""
        outer = self._shared_loops(nest_part)
        axes = set(outer)
        if outer and not self.nest.fills:
            axes = set(nest_part).difference(self._sub_loops_of_vectors())
        for fill in self.nest.fills:
            if fill.at in outer:
                axes.update(axis for axis in fill.axes if axis in nest_part)
        return axes


def _in_order_of_array(loops: NestPart, contiguous: Node, along_neighbours: Loop) -> NestPart:
    """The loops of a fill so that the array is read in its order: its elements are neighbours along
    `contiguous`, whose loop is `along_neighbours`.

    That axis becomes unrolled if it is short. Vectors and unrolled axes become loops around it, but
    for a vector of as many lanes as it has indices: that is a square block, which is transposed in
    registers. Of 16 steps, `contiguous`, and 64 columns in 4 vectors of 16 lanes, unrolled: the
    steps are unrolled, the vectors stay, and the 4 become a loop, each iteration of which
    transposes a block of 16 x 16.
    """
    count = along_neighbours.iterations
    reordered = dict(loops)
    for axis, loop_part in loops.items():
        match loop_part:
            case Vector(first, lanes) if (first, lanes) != (0, count):
                reordered[axis] = counted_loop(first, lanes)
            case Unrolled(first, copies):
                reordered[axis] = counted_loop(first, copies)
    # A text as the end stands for fewer iterations in the last block: those beyond are not there.
    has_all_iterations = isinstance(along_neighbours.end, int)
    if count <= LONGEST_COPY and has_all_iterations and isinstance(along_neighbours.first, int):
        reordered[contiguous] = Unrolled(along_neighbours.first, count)
    return reordered

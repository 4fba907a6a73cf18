"""Scatters whose results are in memory of a block while its threads go through the updates.

A block has some neighbouring places, of one column or of a few side by side: the columns are those
of its rows that are in threads or unrolled. Of sums of int64 along an axis of 90 places, 25 of
which a block has, with 8 columns of 60:

    PRIVATE(i64, 200, (i64)0);                                      `opening`
    UNROLL for (i64 column = 0 + thread_in_row; ...) {
        ...
        if (and_9) { shared_sum(&results[8 * (where_5 - 25 * row) + row_inner], load_4); }
    }
    combine_results<i64, 8>(200, [&](u32 i) -> i64 * {            `closing`
        const i64 place = 25 * row + i / 8;
        const i64 side = i % 8;
        return place < 90 && 8 * row_outer + side < 60 ? p2 + 8 * row_outer + 60 * place + side : 0;
    }, [&](u32 i, i64 old) { return (old + results[i]); });
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import Store, points
from lamina.ir.node import Node, const
from lamina.loops.nest import Axes, Nest, PrivateResults, scatter_places
from lamina.schedule.gpu.private_scatters import RESULTS_AT_ONCE
from lamina.targets.c.operations import ELEMENTS
from lamina.targets.language import Point, Value
from lamina.targets.names import monoid_name

if TYPE_CHECKING:
    from lamina.targets.cuda.printer import CudaPrinter


@dataclass(frozen=True)
class ResultsOfBlock:
    """The results of a nest's scatter that a block has.

    place: the index along the scattered axis that data say. stride: elements between places.
    block: the axis that numbers the blocks of places. others: the axes of rows outside of a block,
    with their strides. sides: those inside of it, whose results are neighbours
    """

    private: PrivateResults
    store: Store
    place: Node
    stride: int
    block: Node
    others: dict[Node, int]
    sides: dict[Node, int]

    @classmethod
    def of(cls, nest: Nest) -> ResultsOfBlock:
        """Those of a nest that has any. Raises FormatError where a block's are no neighbours."""
        assert nest.private is not None
        store = nest.kernel.stores[0]
        block = nest.axis(nest.private.block)
        (place,) = scatter_places(nest.kernel)
        strides, _ = ix.terms_of(store.index)
        rows = {axis: strides.get(axis, 0) for axis in nest.kernel.row_axes if axis is not block}
        in_grid = {axis for axis in rows if nest.bound(axis) == "grid"}
        others = {axis: stride for axis, stride in rows.items() if axis in in_grid}
        sides = {axis: stride for axis, stride in rows.items() if axis not in in_grid}
        reach = sum(stride * (axis.arg.size - 1) for axis, stride in sides.items()) + 1
        has_threads = "thread" in nest.binding.values()
        are_uneven = any(
            split.extent != points(split.axes) and set(split.axes[1:]) & in_grid
            for split in nest.splits
        )
        are_neighbours = reach == points(sides) and len(sides) <= 1
        if not (are_neighbours and has_threads and nest.bound(block) == "grid") or are_uneven:
            raise FormatError(
                "privatize: a block has some places of one column, or of columns side by side "
                "along one axis that threads share"
            )
        return cls(nest.private, store, place.index, place.stride, block, others, sides)

    @property
    def width(self) -> int:
        """Columns side by side of a block."""
        return points(self.sides)

    @property
    def count(self) -> int:
        """Results of a block."""
        return self.private.places * self.width

    @property
    def nbytes(self) -> int:
        """Bytes of the results of a block."""
        return self.private.nbytes(self.count, self.store.value.dtype)

    @cached_property
    def index(self) -> Node:
        """Where an update goes in the memory of a block."""
        first = -self.private.places * self.width if self.block.arg.size > 1 else 0
        return ix.affine({self.place: self.width, self.block: first, **self.sides}, 0)

    def opening(self, printer: CudaPrinter) -> str:
        """The line that makes the memory of a block ready."""
        if scale := self.private.scale:
            return f"{'MARKED' if scale.top else 'PRIVATE'}_SUMS({self.count});"
        dtype = self.store.value.dtype
        assert self.store.monoid is not None
        (identity,) = self.store.monoid.identity((dtype,))
        text = printer.language.literal(const(identity, dtype)).text
        return f"PRIVATE({ELEMENTS[dtype]}, {self.count}, {text});"

    def update(self, printer: CudaPrinter, value: str, point: Point, *, finds_tops: bool) -> str:
        """The line that combines a value with a result of the block, or that finds the largest
        exponent of its updates."""
        assert self.store.monoid is not None
        index = printer.index_text(self.index, point)
        if finds_tops:
            return f"shared_max(&tops[{index}], exponent_of({value}));"
        if scale := self.private.scale:
            if scale.top:
                return f"marked_sum<{scale.bits}, {scale.top}>(results, marks, {index}, {value});"
            value = f"scaled<{scale.bits}>({value}, tops[{index}])"
        return f"shared_{monoid_name(self.store.monoid)}(&results[{index}], {value});"

    def closing(self, printer: CudaPrinter) -> list[str]:
        """The lines that combine what is in the memory of the device with the block's results."""
        assert self.store.monoid is not None
        kind, index_type = ELEMENTS[self.store.value.dtype], printer.language.index_type
        block = printer.axis_name(self.block)
        places, width = self.private.places, self.width
        _, constant = ix.terms_of(self.store.index)
        corner = _sum(printer, self.others, constant)
        conditions = [f"place < {self.private.extent}"]
        lines = [f"const {index_type} place = {places} * {block} + i / {width};"]
        if width > 1:
            lines.append(f"const {index_type} side = i % {width};")
            conditions += self._within_sides(printer)
        place = f"{corner} + {_times(self.stride, 'place')}" + (" + side" if width > 1 else "")
        old = Value("old", self.store.value.dtype)
        if scale := self.private.scale:
            own = "Total{results[i], tops[i]}"
            if scale.top:
                own = f"marked_total<{scale.top}>(results[i], mark_of(marks, i))"
            text = f"with_sum<{scale.bits}>(old, {own})"
        else:
            more = Value("results[i]", self.store.value.dtype)
            (updated,) = printer.combiner.combined(self.store.monoid, (old,), (more,))
            text = updated.text
        return [
            f"combine_results<{kind}, {RESULTS_AT_ONCE}>({self.count}, [&](u32 i) -> {kind} * {{",
            *(f"    {line}" for line in lines),
            f"    return {' && '.join(conditions)} ? p{self.store.parameter} + {place} : 0;",
            f"}}, [&](u32 i, {kind} old) {{ return {text}; }});",
        ]

    def _within_sides(self, printer: CudaPrinter) -> list[str]:
        """The condition that a column side by side is one of the array: of 60 columns, the last
        block of 8 has 4."""
        (inner,) = self.sides
        split = printer.nest.sub_loops(inner)
        outer: Axes = tuple(axis for axis in split.axes if axis in self.others)
        if split.extent == points(split.axes):
            return []
        before = _sum(printer, {axis: self.others[axis] for axis in outer}, 0)
        return [f"{before} + side < {split.extent}"]


def _sum(printer: CudaPrinter, terms: dict[Node, int], constant: int) -> str:
    """The text of a sum of the indices of the launch: ``64 * row + 3``."""
    texts = [_times(factor, printer.axis_name(axis)) for axis, factor in terms.items()]
    if constant or not texts:
        texts.append(f"{constant}")
    return " + ".join(texts)


def _times(factor: int, text: str) -> str:
    """The text of a product: ``64 * row``, or ``row`` for a factor of 1."""
    return text if factor == 1 else f"{factor} * {text}"

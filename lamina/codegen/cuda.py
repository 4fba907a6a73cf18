"""CUDA C++: what a prelude of macros cannot say of it, sums of products of tiles.

Such a sum is a pipeline of `products.cu`, which has all that is special to it but for what fills
the tiles of a step: the copy engine, or threads with elements that are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import gcd

from lamina.codegen.base import Point, Run, Scope, Value
from lamina.codegen.c import ELEMENTS
from lamina.codegen.gpu import FEW, GpuPrinter
from lamina.dtypes import float32
from lamina.ir.kernel import Store, bound_axes, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.kernel.tiles import LINE, PRODUCTS, Product
from lamina.runtime.buffer import Map
from lamina.simplify import index as ix

CHUNK, DIMENSIONS = 16, 5  # bytes, and axes of an array, that the copy engine knows


class CudaPrinter(GpuPrinter):
    """One kernel."""

    preludes = ("prelude.cu", "products.cu")

    def index_text(self, index: Node, point: Point) -> str:
        """The common factor apart: compilers see the alignment of no long sum."""
        terms, constant = ix.terms_of(index)
        offset = constant + sum(terms[axis] * at for axis, at in point.items() if axis in terms)
        rest = {term: by for term, by in terms.items() if term not in point}
        common = gcd(*rest.values())
        if common < 2 or len(rest) < 2:
            return super().index_text(index, point)
        inner = super().index_text(ix.affine({one: rest[one] // common for one in rest}, 0), point)
        return f"{common} * ({inner}) + {offset}"

    def _fold(self, node: Node) -> None:
        if not self.nest.product:
            super()._fold(node)
            return
        atom, mine = PRODUCTS[self.nest.product], list(self.points(free_axes(node)))
        width, tiles = LINE // atom.dtype.itemsize, self.nest.tiles
        step = max(tiles[0].axes, key=lambda axis: axis.arg.reduce)
        others = [axis for axis in bound_axes(node) if axis is not step]
        blocks = -(-step.arg.size // width)
        self.room = atom.depth * LINE * (atom.m + atom.n)
        corner = dict.fromkeys((*self.rows_inside, *self.unrolled), 0)  # of the block
        self.line(f"RINGS({ELEMENTS[atom.dtype]}, {atom.depth}, {atom.m}, {atom.n});")
        with self._function("FILL(number, slot, full) {", others, "};"):
            self.scopes[-1].lines += self.indices(others, f"number / {blocks}")
            self.line(f"const i64 a{step.arg.number} = {width} * (number % {blocks});")
            self._fill_tile("left", tiles[0], atom.m, width, corner)
            self._fill_tile("right", tiles[1], atom.n, width, corner)
        turned = ", ".join(f"{store.axes[0] is step:d}" for store in tiles)
        name, steps = self.nest.product.rpartition("_")[0], blocks * points(others)
        self.line(f"PIPELINE({steps}, {len(self.maps)}, {name}, {turned});")
        for number, point in enumerate(mine):
            self._keep(node, point, (Value(f"sums[{number}]", float32),))
        self._store_rows(atom, corner)

    def _store_rows(self, atom: Product, corner: Point) -> None:
        """Print functions that store results of tensor cores by whole rows: of stores whose rows
        begin with a 16-byte chunk and end as the factors do, as many as a step's tiles have lines
        for. The last chunk of a row may have what pads it: nothing else begins within a chunk."""
        (row, _), (column, _) = sides = [
            (tile.index, axis.arg.size)
            for tile in self.nest.tiles for axis in tile.axes if not axis.arg.reduce
        ]  # fmt: skip
        ends = ix.both(*(ix.inside(*side) for side in sides))
        left = ", ".join(f"{end} - ({self.index_text(at, corner)})" for at, end in sides)
        *_, nearest = ix.terms_of(row)[0]
        for number, store in enumerate(self.nest.kernel.stores):
            width, used = store.value.dtype.itemsize, len(self.results) * atom.m
            pitch = ix.terms_of(store.index)[0].get(nearest, 0)
            others = ix.add(store.index, ix.scale(row, -pitch), ix.scale(column, -1))
            terms, offset = ix.terms_of(others)
            room = self.nest.kernel.parameters[store.parameter].size
            steps = (offset, pitch, room, *terms.values())
            if (
                atom.dtype is not float32 and width in (2, 4) and used <= atom.n
                and ix.both(store.condition) is ends and free_axes(others).isdisjoint(corner)
                and not any(step * width % CHUNK for step in steps)
            ):  # fmt: skip
                self.results[store] = []
                place = f"p{store.parameter} + {self.index_text(store.index, corner)}, {pitch}"
                self.line(f"ROWS(store{number}, {LINE * used}, {place}, {left});")

    def store(self, store: Store, value: Value, point: Point) -> None:
        if (ready := self.results.get(store)) is None:
            super().store(store, value, point)
        else:
            ready.append(value.text)
            if len(ready) % FEW == 0:
                number, few = self.nest.kernel.stores.index(store), ", ".join(ready[-FEW:])
                self.line(f"store{number}({len(ready) - FEW}, {few});")

    def _fill_tile(self, side: str, store: Store, size: int, width: int, corner: Point) -> None:
        """Print what fills a tile of `size` rows or columns and `width` steps: the copy engine, if
        the GPU has one and it can, or threads."""
        row, step = sorted(store.axes, key=lambda axis: axis.arg.reduce)
        names, turned = [f"a{axis.arg.number}" for axis in (row, step)], store.axes[0] is step
        self.line(f"const i64 {names[0]} = {self.index_text(store.index, corner)};")
        ends = (one.arg.size % part and one.arg.size for one, part in ((row, size), (step, width)))
        flags = ", ".join(map(str, (int(turned), self.threads, *ends)))
        head = f"FILL_TILE({side}, {', '.join(names)}, {flags}) {{"
        if found := self._map(store, width if turned else size, width):
            self.maps[f"{side}_map"], axes = found
            places = ", ".join(f"a{axis.arg.number}" for axis in axes)
            head = f"COPY_TILE({side}, {turned:d}, {places}) {head}"
        with self._function(head, (row, step), "});"):
            self.line(f"return {self.result(store.value, {}).text};")

    def _map(self, store: Store, lines: int, width: int) -> tuple[Map, list[Node]] | None:
        """How the copy engine reads a tile, and along which axes; None if it cannot: the tile is of
        an array as it is, whose steps are multiples of 16 bytes."""
        value, size = store.value, store.value.dtype.itemsize
        if value.op is not Op.LOAD or self.nest.kernel.parameters[value.arg.parameter].written:
            return None
        terms, offset = ix.terms_of(value.src[0])
        axes = [*reversed(store.axes), *(one for one in terms if one not in store.axes)]
        nearest, *steps = (terms.get(axis, 0) * size for axis in axes)
        if not (
            nearest == size and offset >= 0 and min(steps) > 0 and len(value.src) == 1
            and not any(by % CHUNK for by in (offset * size, *steps))
            and len(axes) <= DIMENSIONS and all(one.op is Op.AXIS for one in axes)
        ):  # fmt: skip
            return None
        sizes, box = (axis.arg.size for axis in axes), (width, lines, *[1] * (len(axes) - 2))
        return (value.arg.parameter, size, offset * size, tuple(sizes), tuple(steps), box), axes

    @contextmanager
    def _function(self, head: str, axes: Sequence[Node], tail: str) -> Iterator[None]:
        """Print a function that knows the indices of `axes`."""
        self.scopes.append(Scope())
        with self.opened({axis: Run("fixed", f"a{axis.arg.number}") for axis in axes}, axes):
            yield
        lines = self.scopes.pop().lines
        self.scopes[-1].lines += [head, *("    " + text for text in lines), tail]

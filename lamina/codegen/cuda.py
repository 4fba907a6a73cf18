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
from lamina.ir.kernel import Store, bound_axes, bounds, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.kernel.tiles import LINE, PRODUCTS, Product
from lamina.runtime.buffer import Map
from lamina.shape import Shape
from lamina.simplify import index as ix

# What the copy engine knows: bytes, axes of an array, and elements from a window to the next.
CHUNK, DIMENSIONS, FURTHEST = 16, 5, 8


class CudaPrinter(GpuPrinter):
    """One kernel."""

    preludes = ("prelude.cu", "products.cu")

    def type(self, value: Value) -> str:
        return "auto" if value.text.startswith("f32_to_bf16(") else super().type(value)

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
        steps = [axis for axis in tiles[0].axes if axis.arg.reduce]
        others = [axis for axis in bound_axes(node) if axis not in steps]
        blocks = -(-points(steps) // width)
        self.steps = blocks * points(others)
        lines = min(len(self.nest.kernel.stores), 2) * LINE * atom.m
        self.room = atom.depth * LINE * (atom.m + atom.n) + lines
        corner = dict.fromkeys((*self.rows_inside, *self.unrolled), 0)  # of the block
        sizes = f"{atom.depth}, {atom.m}, {atom.n}, {lines}"
        self.line(f"RINGS({ELEMENTS[atom.dtype]}, {sizes});")
        with self._function("FILL(tile, number, slot, full) {", [*self.grid, *others], "};"):
            self.scopes[-1].lines += self.indices(self.grid, "tile")
            self.scopes[-1].lines += self.indices(others, f"number / {blocks}")
            name = self._walk(steps, f"{width} * (number % {blocks})")
            self._fill_tile("left", tiles[0], name, (atom.m, width), corner)
            self._fill_tile("right", tiles[1], name, (atom.n, width), corner)
        turned = ", ".join(f"{store.axes[0] in steps:d}" for store in tiles)
        name = self.nest.product.rpartition("_")[0]
        self.line(f"PIPELINE({self.threads}, {len(self.maps)}, {name}, {turned});")
        for number, point in enumerate(mine):
            self._keep(node, point, (Value(f"sums[{number}]", float32),))
        self._store_rows(atom, corner)

    def _store_rows(self, atom: Product, corner: Point) -> None:
        """Print functions that store results of tensor cores by whole rows: of stores whose rows
        begin with a 16-byte chunk and end as the factors do, as many as a step's tiles have lines
        for. The last chunk of a row may have what pads it: nothing else begins within a chunk."""
        (row, _), (column, _) = sides = [
            (tile.index, points(axis for axis in tile.axes if not axis.arg.reduce))
            for tile in self.nest.tiles
        ]
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
                atom.dtype is not float32 and width in (2, 4) and len(self.results) < 2
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
            ready.append(f"({ELEMENTS[value.dtype]}){value.text}")
            if len(ready) % FEW == 0:
                number, few = self.nest.kernel.stores.index(store), ", ".join(ready[-FEW:])
                self.line(f"store{number}({len(ready) - FEW}, {few});")

    def _fill_tile(self, side: str, store: Store, step: str, box: Shape, corner: Point) -> None:
        """Print what fills a tile of so many rows or columns and steps: the copy engine, if the GPU
        has one and it can, or threads."""
        rows, steps = sides = [[axis for axis in store.axes if axis.arg.reduce is one]
                               for one in (False, True)]  # fmt: skip
        row, turned = self._walk(rows, self.index_text(store.index, corner)), store.axes[0] in steps
        ends = [points(one) % part and points(one) for one, part in zip(sides, box, strict=True)]
        flags = ", ".join(map(str, (int(turned), self.threads, *ends)))
        head = f"FILL_TILE({side}, {row}, {step}, {flags}) {{"
        if found := self._map(store, box[turned], box[1]):
            self.maps[f"{side}_map"], places = found
            self.text_of.update((axis, f"a{axis.arg.number}") for axis in store.axes)
            texts = ", ".join(f"(int)({self.index_text(one, {})})" for one in places)
            head = f"COPY_TILE({side}, {turned:d}, {len(store.axes) > 2:d}, {texts}) {head}"
        with self._function(head, store.axes, "});"):
            self._walk(rows)
            self._walk(steps)
            self.line(f"return {self.result(store.value, {}).text};")

    def _walk(self, axes: Sequence[Node], at: str = "") -> str:
        """Print what walks `axes` as one, unless it is known, and each of them; its name."""
        name = "_".join(f"a{axis.arg.number}" for axis in axes)
        self.scopes[-1].lines += [f"const i64 {name} = {at};"] if at else []
        self.scopes[-1].lines += self.indices(axes, name) if len(axes) > 1 else []
        return name

    def _map(self, store: Store, lines: int, width: int) -> tuple[Map, list[Node]] | None:
        """How the copy engine reads a tile, and where; None if it cannot: the tile is of an array
        as it is, but for zeros beyond its ends, whose steps are multiples of 16 bytes. Several axes
        that lines walk as one are pixels to it, the last one those of images: of the window of each
        pixel, which begins between two corners of an image, it reads the element at a place."""
        value, tile, pixels = store.value, store.axes[::-1], len(store.axes) > 2
        ends = ix.extents(*value.src[1:]) if value.op is Op.LOAD else None
        if ends is None or self.nest.kernel.parameters[value.arg.parameter].written:
            return None
        size, (terms, _) = value.dtype.itemsize, ix.terms_of(value.src[0])
        walks = {axis: axis for axis in tile}  # the index of a dimension, by one of its axes
        for one in ends:
            axes = ix.terms_of(one)[0]
            walks[max(axes, key=lambda axis: (axis in tile, terms.get(axis, 0)))] = one
        known = frozenset[Node]().union(*map(free_axes, walks.values()))
        walks |= {axis: axis for axis in terms if axis not in known}
        if pixels and len(walks) == len(tile) and walks[tile[-1]] is not tile[-1]:
            walks[ix.ZERO] = ix.ZERO  # all are of one image
        places, inner = [*walks.values()], [ix.terms_of(one)[0] for one in walks.values()]
        steps = [*map(lambda axis, by: terms.get(axis, CHUNK) // by.get(axis, 1), walks, inner)]
        parts = map(ix.scale, places, (-by for by in steps))
        rest, offset = ix.terms_of(ix.add(value.src[0], *parts))
        # Beyond the last step are zeros; of what is beyond the last row nothing is stored.
        *_, last = along = [axis for axis in tile if axis.arg.reduce]
        zeros = {last, ix.ZERO} & {places[0], places[-1 if pixels else 1]}
        if (
            rest or steps[0] != 1 or min(*steps, offset + 1) < 1
            or any(axis.op is not Op.AXIS for axes in inner for axis in axes)
            or any(by * size % CHUNK for by in (offset, *steps[1:]))
            or len(places) > (min(len(tile) + 1, DIMENSIONS) if pixels else DIMENSIONS)
            or (points(along) % width and not zeros)
        ):  # fmt: skip
            return None
        extents = tuple(ends.get(one, bounds(one)[1] + 1) for one in places)
        more, corners, limit = list[Node](), list[Shape](), 1 << 16 // max(len(places) - 2, 1)
        for at, axis in enumerate(tile[1 : len(places) - 1] if pixels else tile[1:], 1):
            by = inner[at][axis]
            window = ix.add(places[at], ix.scale(axis, -by))
            low, high = bounds(window)
            far = by * bounds(axis)[1] + low - extents[at] + 1
            reach = max(high - low, 2 * abs(low), 2 * abs(far))
            if not 0 < by <= (FURTHEST if pixels else 1) or reach >= limit:
                return None
            if pixels:
                corners.append((low, far, by))
                places[at], more = ix.scale(axis, by, low), [*more, ix.scale(window, 1, -low)]
        box, jumps = (width, lines, *[1] * (len(places) - 2)), tuple(by * size for by in steps[1:])
        array = value.arg.parameter, size, offset * size, extents, jumps, box, tuple(corners)
        return array, places + more

    @contextmanager
    def _function(self, head: str, axes: Sequence[Node], tail: str) -> Iterator[None]:
        """Print a function that knows the indices of `axes`."""
        self.scopes.append(Scope())
        outside = dict(self.text_of), dict(self.depth_of)
        with self.opened({axis: Run("fixed", f"a{axis.arg.number}") for axis in axes}, axes):
            yield
        self.text_of, self.depth_of = outside
        lines = self.scopes.pop().lines
        self.scopes[-1].lines += [head, *("    " + text for text in lines), tail]

"""CUDA C++: what a prelude of macros cannot say of it, sums of products of tiles.

Such a sum is a pipeline of `products.cu`, which has all that is special to it but for what fills
the tiles of a step: the copy engine, or threads with elements that are computed. Nested ones are
one of `nested.cu`, but for what is computed from the sums within.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import e, gcd, log2
from operator import is_not

from lamina.core.dtypes import bfloat16, bool_, float16, float32
from lamina.core.shape import Shape
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.graph.rewrite import commuted, hole, matches
from lamina.ir.kernel import Store, bound_axes, bounds, free_axes, points, roots_of
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Group, Kinds, LoopReduce, Op
from lamina.loops.nest import WARP, Nest
from lamina.runtime.buffer import Map
from lamina.schedule.gpu.attention import ExpFactor, exp_factor_of, factors_of, masks_of, scaled
from lamina.schedule.gpu.products import ATOMS, LINE_BYTES, Atom, is_transposed, stream_k
from lamina.targets.c.printer import ELEMENTS
from lamina.targets.gpu import FEW, GpuPrinter
from lamina.targets.printer import Key, LoopPart, Point, Scope, Value, Values

# What the copy engine knows: bytes, axes of an array, and elements from a window to the next.
CHUNK, DIMENSIONS, FURTHEST = 16, 5, 8
PANEL = 64  # elements of 16 bits in a line
FASTER = {Op.DIV, Op.SQRT, Op.EXP, Op.EXP2, Op.ERF, Op.LOGISTIC}  # but less exact
SMOOTH = FASTER | {Op.NEG, Op.ADD, Op.MUL, Op.WHERE}
_X = hole("x", Kinds.FLOAT)
# A number times its normal distribution function, which prelude.cu has a short form of.
NORMAL_PRODUCT = commuted(_X * (Node(Op.ERF, (_X * 0.5**0.5,)) * 0.5 + 0.5))
Known = dict[Node, Node]


class CudaPrinter(GpuPrinter):
    """One kernel."""

    preludes = ("cuda/prelude.cu",)

    def __init__(self, nest: Nest, name: str, target: Target) -> None:
        super().__init__(nest, name, target)
        self.down = 0
        self.due, self.outside = 0, dict[Key, Value]()  # where a slice begins, what it knows before
        if self.is_back_to_back and all(one.size < 1 << 31 for one in nest.kernel.parameters):
            self.index = "i32"  # which masks compare
        self.exact = {root for one in nest.kernel.stores for root in roots_of(one)}
        for node in reversed(nest.kernel.nodes):  # what is not is rounded to bfloat16 in the end
            if node.dtype is not bfloat16 and (node.op not in SMOOTH or node in self.exact):
                self.exact.update(node.src)

    def tile_texts(self) -> tuple[str, ...]:
        if self.is_back_to_back:
            return ("cuda/products.cu", "cuda/nested.cu")
        return ("cuda/products.cu",) if self.nest.product else ()

    def operation(self, node: Node, operands: list[Value]) -> Value:
        texts = [one.text for one in operands]
        if self.is_back_to_back and node.op is Op.DIV:  # by what compilers see is of a row
            return Value(f"({texts[0]} * (1.0f / {texts[1]}))", float32)
        if node.dtype is float32 and node not in self.exact:
            if node.op in FASTER:
                return Value(f"short_{node.op.name.lower()}({', '.join(texts)})", float32)
            for holes in matches(NORMAL_PRODUCT, node):
                factor = texts[node.src.index(holes["x"])]
                return Value(f"short_normal_product({factor})", float32)
        return super().operation(node, operands)

    def type(self, value: Value) -> str:
        # What a function returns may know more than its float: how it rounds, or what it is near.
        return "auto" if value.dtype.is_float and value.text.endswith(")") else super().type(value)

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

    def loop_reduce(self, node: Node) -> None:
        if not self.nest.product or self.is_back_to_back:
            (self._nested if self.is_back_to_back else super().loop_reduce)(node)
            return
        atom, mine = ATOMS[self.nest.product], list(self.points(free_axes(node)))
        width, tiles = LINE_BYTES // atom.dtype.itemsize, self.nest.tiles
        steps = [axis for axis in tiles[0].axes if axis.arg.reduce]
        others = [axis for axis in bound_axes(node) if axis not in steps]
        blocks = -(-points(steps) // width)
        sizes = points(self.grid), blocks * points(others)
        division = stream_k(atom, *sizes, self.target.multiprocessors)
        part, self.blocks = division.steps, division.blocks
        beside = min(len(self.nest.kernel.stores), 2) * LINE_BYTES * atom.m
        self.room = atom.stages * LINE_BYTES * (atom.m + atom.n) + beside
        self.share, sums = (", 1", "loose") if "fma" in self.nest.product else ("", "sums")
        corner = dict.fromkeys((*self.rows_inside, *self.unrolled), 0)  # of the block
        self.line(_call("RINGS", atom.kind, atom.stages, atom.m, atom.n, beside))
        with self._function("FILL(tile, number, slot, full) {", [*self.grid, *others], "};"):
            self.scopes[-1].lines += self.indices(self.grid, "tile")
            self.scopes[-1].lines += self.indices(others, f"number / {blocks}")
            name = self._walk(steps, f"{width} * (number % {blocks})")
            self._fill_tile("left", tiles[0], name, (atom.m, width), corner)
            self._fill_tile("right", tiles[1], name, (atom.n, width), corner)
        for number, point in enumerate(mine):
            self._keep(node, point, (Value(f"{sums}[{number}]", float32),))
        turned, name = (f"{store.axes[0] in steps:d}" for store in tiles), self.nest.product
        engine, kind = len(self.maps) == len(tiles) and not self.share, name[:3]
        sides = [(tile.index, points(axis for axis in tile.axes if not axis.arg.reduce))
                 for tile in tiles]  # fmt: skip
        lines, self.outside = self.scopes[-1].lines, dict(self.scopes[-1].cache)
        start = len(lines)
        self._store_rows(atom, corner, sides)
        cut, size = self._cut(node)
        call = size, self.threads, len(self.maps), name.rpartition("_")[0], *turned
        lines[start:] = [_call("BEGIN", *call), *lines[start:], *["KEEPS {"] * bool(cut)]
        some = free_axes(node) - {[*self.unrolled][1]}  # of several rows
        for one in self.nest.kernel.nodes:  # what these need is read while products run, if short
            if one.op is Op.LOAD and one.dtype.itemsize == 2 and free_axes(one) <= some:
                self.value(one, dict.fromkeys(self.unrolled, 0))
        self.line(_call("PIPELINE", *call))
        turns = _call(f"{kind}_SHARE", int(engine), size, self.threads, *sizes, part, self.blocks)
        self.around = "PART", f"; {turns}"
        self.threads = self.width = self.threads + 4 * WARP * engine  # of which four bring tiles
        if cut:  # what follows knows nothing else that is in braces
            for number, point in enumerate(mine):
                self.line(f"kept.put({number}, {self.result(cut, point).text});")
                self.outside[self.key(cut, point)] = Value(f"kept[{number}]", cut.dtype)
            self.line("}")
            self.filled |= {cut}
            self.scopes[-1].cache, self.due = dict(self.outside), len(lines)

    def _cut(self, reduction: Node) -> tuple[Node | None, int]:
        """The last value of 16 bits, before long arithmetic, by which all results know a reduction:
        it can wait for them, stored by rows; and how many of a thread become results at a time."""
        values = [one.value for one in self.nest.kernel.stores]
        nodes = toposort(values, partial(is_not, reduction))
        long = {one for one in nodes if one.op in Group.TRANSCENDENTAL}
        cuts = [one for one in nodes if one.dtype in (bfloat16, float16)
                and long.isdisjoint(toposort([one], partial(is_not, reduction)))
                and reduction not in toposort(values, partial(is_not, one))]  # fmt: skip
        waits = cuts and len(self.results) == len(values)
        return (cuts[-1], 8 if long else 16) if waits else (None, 0)

    def _nested(self, node: Node) -> None:
        """Print the loop over tiles of nested reductions, and keep what these add up to."""
        nest, stores, atom = self.nest, self.nest.kernel.stores, ATOMS[self.nest.product]
        reductions = [one for one in nest.kernel.nodes if one.op is Op.LOOP_REDUCE]
        over = [one for one in reductions if bound_axes(one) == bound_axes(node)]
        inner = [one for one in reductions if one not in over]
        outer = [one for one in over if self.unrolled.keys() <= free_axes(one)]
        weight, (block, far, lane, near) = exp_factor_of(over), bound_axes(node)
        assert weight
        rows = [one for one in over if one not in (*outer, weight.row_max)]
        (major, half, minor), size = self.unrolled, 8 * far.arg.size
        tiles = sorted(dict.fromkeys(nest.tiles), key=lambda one: block in free_axes(one.index))
        own = sum(block not in free_axes(one.index) for one in tiles)
        self.threads += 4 * WARP  # which bring tiles
        self.room, self.share, workers = 226 << 10, ", 1", points(self.grid)  # bytes, if there are
        steps = [next(one for one in store.axes if one.arg.reduce) for store in tiles]
        shapes = [(atom.m if at < own else size, -(-step.arg.size // PANEL) * PANEL)
                  for at, step in enumerate(steps)]  # fmt: skip
        for at, (store, shape) in enumerate(zip(tiles, shapes, strict=True)):
            kind = int(at >= own), nest.product.split("_")[1], int(store.axes[0] is steps[at])
            self.line(_call("TILE", at, at + 1, *kind, *shape))
        self.line(_call("NESTED", *map(len, (tiles, stores, inner, outer, rows)), size, atom.n))
        self.scopes[-1].lines += [f"LIES({at});" for at in range(len(tiles))]
        corner = dict.fromkeys((*self.rows_inside, *self.unrolled, far, lane, near), 0)
        number = f"{self.index}, {self.axis_name(block)}"
        self.line(f"const {self.index} {self.axis_name(lane)} = THREAD % 4;")
        with self._function(f"FILL_TILES({number}) {{", (block,), "};"):
            for at, (store, shape) in enumerate(zip(tiles, shapes, strict=True)):
                with self._function(f"if (tile == {at}) {{", (), "}"):
                    start = self._walk(steps[at : at + 1], "0")
                    self._fill_tile(f"tile{at}", store, start, shape, corner)
        order = [tiles.index(one) for one in nest.tiles]
        within, beyond = order[: 2 * len(inner)], order[2 * len(inner) :]
        self.line(_call("WITHIN", *map("tile{}".format, within)))
        self.line(_call("BEYOND", *map("tile{}".format, beyond)))
        with self._function(f"ELEMENTS({number}) {{", (), "};"):
            for head, known in self._masked(weight.exponent, inner, block):
                with self._function(head, (block, lane), "}", (far, near)):
                    self._elements((inner, rows, outer), weight, known)
        early, late = (sum(1 << at - own for at in {*one} if at >= own) for one in (within, beyond))
        has_maximum = int(weight.row_max is not None)
        self.line(_call("NESTED_LOOP", own, len(tiles) - own, early, late, has_maximum))
        engine, passing = len(self.maps) == len(tiles), sum(2 * m * n for m, n in shapes[own:])
        sizes = points([self.grid[-4], self.grid[-1]]), block.arg.size * passing, self.down
        turns = _call("TAKE_TURNS", int(engine), atom.m // 64, own, workers, *sizes)
        self.around, self.blocks = ("TURN", f"; {turns}"), min(workers, self.target.multiprocessors)
        if weight.row_max:
            by = self.literal(const(scaled(weight.exponent)[0], float32)).text
            for at, point in enumerate(self.points((half,))):
                top = self.declare(Value(f"top[{at}] * {by}", float32), "max")
                self._keep(weight.row_max, point, (top,))
                self.line(_call("finish", at, self.result(weight.shift, point).text))
        self.line(_call("FINISH", int(weight.row_max is not None)))
        for name, some in (("row", rows), ("totals", outer)):
            for which, reduction in enumerate(some):
                for at, point in enumerate(self.points(free_axes(reduction))):
                    self._keep(reduction, point, (Value(f"{name}[{which}][{at}]", float32),))
        column = ix.row_major((major, self.rows_inside[-1], minor))
        ends = (points(axis for axis in one.axes if axis.arg.reduce is reduced)
                for one, reduced in ((nest.tiles[0], False), (nest.tiles[-1], True)))  # fmt: skip
        self._store_rows(atom, corner, [*zip((nest.tiles[0].index, column), ends, strict=True)])

    def _masked(self, value: Node, inner: list[Node], block: Node) -> Iterator[tuple[str, Known]]:
        """Print which tiles have values of more than -inf; how a tile with some at -inf begins, and
        any other one, and which conditions are known there."""
        some, known, lines = list[str](), {one: one for one in inner}, self.scopes[0].lines
        lines.append(_call("BOUNDS", self.index, block.arg.size))
        for condition, mask in masks_of(value).items():
            terms, least = ix.terms_of(mask.index)
            if step := terms.pop(block, 0):
                self.down = int(step > 0)
                outside = self.text_of.keys() - {*self.rows_inside}
                around = {term: by for term, by in terms.items() if term in outside}
                inside = {term: by for term, by in terms.items() if term not in outside}
                place = self.index_text(ix.affine(around, 0), {})
                ends = *bounds(ix.affine(inside, least)), step, inside.get(self.rows_inside[0], 0)
                lines.append(_call("MASK", len(some), place, *ends))
                some.append(f"MASKED({len(some)}, {self.axis_name(block)})")
                known[condition] = const(not mask.masks_where, bool_)
        lines.append("COUNT;")
        if some:
            yield f"if ({' || '.join(some)}) {{", {}
        yield "else {" if some else "{", known

    def _elements(
        self, reductions: tuple[list[Node], ...], weight: ExpFactor, known: Known
    ) -> None:
        """Print what is computed from the sums within for a tile of what is folded over."""
        inner, rows, outer = reductions
        (block, far, _, near), (_, half, _, *_) = bound_axes(outer[0]), self.unrolled
        own = {4 * at[far] + 2 * at[half] + at[near]: at for at in self.points((far, half, near))}
        for number, reduction in enumerate(inner):
            for place, point in own.items():
                self._keep(reduction, point, (Value(f"sums[{number}][{place}]", float32),))
        self.line("ready();")
        (by, rest), less = scaled(ix.replaced(weight.exponent, known)), weight.shift
        if weight.row_max:  # both so far
            largest = LoopReduce(MAX)
            both = weight.row_max, less
            top, less = (Node(Op.LOOP_SCAN, (one, block), largest) for one in both)
            for at, row in enumerate(self.points((half,))):
                self.line(_call("rise", f"top[{at}]", self._joined(MAX, rest, row)))
                text = f"top[{at}] * {self.literal(const(by, float32)).text}"
                self._keep(top, row, (self.declare(Value(text, float32), "max"),))
                wanted = self.result(ix.replaced(weight.shift, {weight.row_max: top}), row).text
                text = f"follow(less[{at}], factor[{at}], top[{at}], {wanted})"
                self._keep(less, row, (self.declare(Value(text, float32), "shift"),))
        exp = Node(Op.EXP2, (rest * (by * log2(e)) + -(less * log2(e)),))
        for number, reduction in enumerate(rows):
            term = ix.replaced(reduction.src[0], {weight.exp: exp, **known})
            for at, row in enumerate(self.points((half,))):
                self.line(_call("add", number, at, self._joined(ADD, term, row)))
        for number, reduction in enumerate(outer):
            (left,) = (one.src[0] for one in factors_of(reduction.src[0]) if half in free_axes(one))
            term = ix.replaced(left, {weight.exp: exp, **known})
            for place, point in own.items():
                self.line(f"parts[{number}][{place}] = {self.result(term, point).text};")

    def _joined(self, monoid: Monoid, term: Node, row: Point) -> str:
        """What a thread's terms of one tile and row come to."""
        *_, far, near = self.unrolled
        values: list[Values] = [(self.result(term, row | one),) for one in self.points((far, near))]
        return self._tree(monoid, values)[0].text

    def _store_rows(self, atom: Atom, corner: Point, sides: Sequence[tuple[Node, int]]) -> None:
        """Print functions that store results of tensor cores by whole rows: of stores whose rows
        begin with a 16-byte chunk and end as the factors do, as many as a step's tiles have lines
        for. The last chunk of a row may have what pads it: nothing else begins within a chunk."""
        (row, _), (column, _) = sides
        ends = ix.both(*(ix.inside(*side) for side in sides))
        left = ", ".join(f"{end} - ({self.index_text(at, corner)})" for at, end in sides)
        (*_, nearest), name = ix.terms_of(row)[0], self.nest.product
        for number, store in enumerate(self.nest.kernel.stores):
            width, used = store.value.dtype.itemsize, len(self.results) * atom.m
            pitch = ix.terms_of(store.index)[0].get(nearest, 0)
            others = ix.add(store.index, ix.scale(row, -pitch), ix.scale(column, -1))
            terms, offset = ix.terms_of(others)
            room = self.nest.kernel.parameters[store.parameter].size
            steps = (offset, pitch, room, *terms.values())
            if (
                not name.startswith("fma") and width in (2, 4) and len(self.results) < 2
                and ix.both(store.condition) is ends and free_axes(others).isdisjoint(corner)
                and not any(step * width % CHUNK for step in steps)
            ):  # fmt: skip
                self.results[store] = []
                place = f"p{store.parameter} + {self.index_text(store.index, corner)}, {pitch}"
                self.line(f"ROWS(store{number}, {LINE_BYTES * used}, {place}, {left});")

    def store(self, store: Store, value: Value, point: Point) -> None:
        if (ready := self.results.get(store)) is None:
            super().store(store, value, point)
        else:
            ready.append(f"({ELEMENTS[value.dtype]}){value.text}")
            if len(ready) % FEW == 0:
                number, few = self.nest.kernel.stores.index(store), ", ".join(ready[-FEW:])
                self.line(f"store{number}({len(ready) - FEW}, {few});")
                if self.due and store is self.nest.kernel.stores[-1]:
                    scope = self.scopes[-1]
                    scope.lines.insert(self.due, f"DUE({len(ready) - FEW}) {{")
                    self.line("}")
                    scope.cache, self.due = dict(self.outside), len(scope.lines)

    def _fill_tile(self, side: str, store: Store, step: str, box: Shape, corner: Point) -> None:
        """Print what fills a tile of so many rows or columns and steps: the copy engine, if the GPU
        has one and it can, or threads."""
        rows, steps = sides = [[axis for axis in store.axes if axis.arg.reduce is one]
                               for one in (False, True)]  # fmt: skip
        row, turned = self._walk(rows, self.index_text(store.index, corner)), store.axes[0] in steps
        across = is_transposed(store.value, rows, steps)
        ends = [points(one) % part and points(one) for one, part in zip(sides, box, strict=True)]
        flags = ", ".join(map(str, (int(turned) or 2 * across, self.threads, *ends)))
        head = f"FILL_TILE({side}, {row}, {step}, {flags}) {{"
        if found := self._map(store, box[turned], LINE_BYTES // store.value.dtype.itemsize):
            self.maps[f"{side}_map"], places = found
            self.text_of.update((axis, self.axis_name(axis)) for axis in store.axes)
            texts = ", ".join(f"(int)({self.index_text(one, {})})" for one in places)
            head = f"COPY_TILE({side}, {turned:d}, {len(store.axes) > 2:d}, {texts}) {head}"
        with self._function(head, store.axes, "});"):
            self._walk(rows)
            self._walk(steps)
            self.line(f"return {self.result(store.value, {}).text};")

    def _walk(self, axes: Sequence[Node], at: str = "") -> str:
        """Print what walks `axes` as one, unless it is known, and each of them; its name."""
        name = "_".join(map(self.axis_name, axes))
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
        beside = {terms[one]: one for one in tile[1:] if pixels and one in terms}
        for axis in (one for one in terms if one not in known):
            moved = beside.get(terms[axis], axis)  # by a window that nothing bounds, if any
            walks[moved] = ix.add(*{moved, axis})
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
            rest or places[0] is not tile[0] or steps[0] != 1 or min(*steps, offset + 1) < 1
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
        kind = "TFLOAT32" if "tf32" in self.nest.product else f"UINT{8 * size}"
        array = value.arg.parameter, kind, offset * size, extents, jumps, box, tuple(corners)
        return array, places + more

    @contextmanager
    def _function(
        self, head: str, axes: Sequence[Node], tail: str, unrolled: Sequence[Node] = ()
    ) -> Iterator[None]:
        """Print a function that knows the indices of `axes`."""
        self.scopes.append(Scope())
        outside = dict(self.text_of), dict(self.depth_of)
        runs = {axis: LoopPart("fixed", index=self.axis_name(axis)) for axis in axes}
        runs |= {axis: LoopPart("unroll", axis.arg.size) for axis in unrolled}
        with self.opened(runs, (*axes, *unrolled)):
            yield
        self.text_of, self.depth_of = outside
        lines = self.scopes.pop().lines
        self.scopes[-1].lines += [head, *("    " + text for text in lines), tail]


def _call(name: str, *arguments: object) -> str:
    return f"{name}({', '.join(map(str, arguments))});"

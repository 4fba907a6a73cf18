"""Loads and stores in C: scalars, vectors, squares that are transposed, and prefetches.

``f32x8u`` is the type of a vector that begins anywhere in memory, and ``f32x8r`` the same to read:
see `vectors.c`. `place` is an address, ``p0 + 8 * i``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from lamina.core.dtypes import DType, bool_, float32, float64
from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import Store, free_axes
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import (
    LINE,
    UNCACHED,
    Nest,
    bypasses_caches,
    is_of_constants,
    near_reads,
)
from lamina.targets.c.operations import ELEMENTS, CLanguage
from lamina.targets.language import Point, Value
from lamina.targets.parts import Unrolled
from lamina.targets.reductions import Accumulation, NestPrinter, Work

TRANSPOSES = "c/transposes.c"
STRIDES = "c/strides.c"
# The functions of that text, by the elements from lane to lane.
PICKING = {-1: "backwards", 2: "each_second", 3: "each_third", 4: "each_fourth"}
PANEL_STEPS = 8  # of a reduction: how far ahead a product prefetches from a packed panel
# The same from rows of an array that lie so many bytes apart, or more: the hardware prefetcher does
# not leave the page that it is in, and finds few rows there. 8 and 32 steps were as fast. The
# transpose of 8192 x 512 times 8192 x 40, with rows of 2 KiB, took one core of a Xeon 18 ms, and 6.
FAR_STEPS, FAR_STRIDE = 16, 1024
PAGE = 4096  # bytes
SECOND_CACHE = 1 << 20  # bytes that stay in the second-level cache
NEAREST_CACHE = 1 << 15  # bytes that stay in the first-level cache, which has 32 KiB or more
TWO_PAGES = 8192  # bytes: how far ahead arithmetic on a large array, and decoding, prefetch
# The caches that a prefetch reaches, `near` of AHEAD in `prelude.c`.
ALL_CACHES = 3
BUT_FIRST_LEVEL = 2
# Vectors of sums in a register tile that leave no registers for what several steps share. An
# estimate: of 16 registers 12 lose by sharing, 10 gain a twentieth (measured).
CROWDED_SUMS = 8
# Vectors whose lanes a kernel reads or writes one by one in its own text, outside of its sums; more
# call a function. GCC 12 took 4 s for the 200 of a register tile that updates weights in place, and
# 1 s for as many calls.
INLINED_BY_LANES = 4
FEW_LANES = 4  # no more lines than a call


@dataclass(frozen=True)
class Access:
    """How a vector reads or writes an array.

    axis    the vector axis; None for a scalar
    lanes   1 for a scalar
    stride  elements from lane to lane; None if data or a condition decide for each lane
    """

    axis: Node | None
    lanes: int
    stride: int | None


class MemoryPrinter(NestPrinter):
    """Prints loads and stores."""

    language: CLanguage

    def __init__(self, nest: Nest, language: CLanguage) -> None:
        super().__init__(nest, language)
        self.streamed: list[int] = []  # the parameters that are stored past the caches
        self._by_lanes = 0  # vectors so far that are read or written lane by lane

    def access(self, index: Node, condition: Node = ix.TRUE) -> Access:
        """How vectors read or write at `index` where `condition` holds.

        With 16 lanes along j: ``x[100 * i + 2 * j]`` has stride 2; ``x[i]`` has no vector axis, one
        lane, and stride 1; ``x[y[j]]`` has stride None.
        """
        terms, _ = ix.terms_of(index)
        for axis, vector in self.vectors.items():
            users = sum(axis in free_axes(node) for node in (*terms, condition))
            if users:
                # The axis has a coefficient if it is a term by itself. If it is in another term or
                # the condition too, lanes are no constant distance apart, or not all there.
                stride = terms.get(axis) if users == 1 else None
                return Access(axis, vector.lanes, stride)
        return Access(None, 1, 1)

    def each_lane(self, axis: Node, point: Point) -> Iterator[Point]:
        """The points of the lanes along `axis`, which meanwhile is unrolled: what is printed for
        each is a scalar."""
        vector = self.vectors.pop(axis)
        self.unrolled[axis] = Unrolled(vector.first, vector.lanes)
        self.taken_apart[axis] = vector
        yield from (point | lane for lane in self.points((axis,)))
        del self.unrolled[axis], self.taken_apart[axis]
        self.vectors[axis] = vector

    def begin_step(self, work: Work) -> None:
        """Keep the compiler from reading once what several steps of a register tile share."""
        steps = [axis for axis in work.axes if axis in self.text_of]  # those with loops
        is_crowded = bool(self.vectors) and len(work.sums) >= CROWDED_SUMS
        if steps and is_crowded and self._rows_share_elements(steps[-1], work.sums):
            self.line("NEXT_STEP;")

    def _rows_share_elements(self, step: Node, sums: Iterable[Accumulation]) -> bool:
        """Does a row of the register tile of `sums` read what another reads some steps later?

        A convolution whose window moves by two elements reads ``x[2 * i + k]``, with the rows i
        unrolled and 3 steps k: row 0 reads at step 2 what row 1 reads at step 0. Of
        ``x[100 * i + k]`` rows share nothing.
        """
        reductions = {each.reduction for each in sums}
        loads = [node for node in toposort(reductions) if node.op is Op.LOAD]
        for load in loads:
            terms, _ = ix.terms_of(load.src[0])
            stride = terms.get(step, 0)
            if stride <= 0:
                continue
            # Distances of what the row that an axis unrolls reads from what the row before reads.
            rows = [row for row, part in self.unrolled.items() if part.copies > 1]
            distances = [terms.get(row, 0) for row in rows]
            later = range(stride, stride * step.arg.size, stride)  # of the steps after the first
            if any(distance in later for distance in distances):
                return True
        return False

    # Loads.

    def load(self, node: Node, point: Point) -> Value:
        """The first of these that fits: a scalar; a column of a block that is transposed;
        neighbours under a mask of lanes; neighbours of which shuffles pick lanes, as
        ``each_third_f32x16(p0 + 3 * i)``; lanes one by one, by a function where they are many, as
        ``load_apart_f32x16(p0 + 9 * i, 576)``; neighbours. Where the condition of the load does not
        hold, it reads nothing and gives 0."""
        index, condition = index_and_condition(node)
        access = self.access(index, condition)
        if access.axis is None:
            return self._load_scalar(node, point)
        rows = self._transposing_axis(index, condition, access)
        if rows is not None:
            return self._load_column(node, point, rows, access)
        place = f"p{node.arg.parameter} + {self.index_text(index, point)}"
        mask = self._mask(node, access.axis, point) if access.stride is None else ""
        if mask:
            return self._load_masked(node, place, mask, access.lanes)
        if access.stride == 1:
            return self._load_neighbours(node, point, place, access.lanes)
        text = self._lanes_apart(node.dtype, place, access) if condition is ix.TRUE else ""
        if text:
            return Value(text, node.dtype, access.lanes)
        return self._load_by_lanes(node, point, access.axis, access.lanes)

    def _load_masked(self, node: Node, place: str, mask: str, lanes: int) -> Value:
        """``masked_f32x16(p0 + i, mask)``, or of lanes that lie apart."""
        stride = self.access(index_and_condition(node)[0]).stride
        kind = self.language.vector_type(ELEMENTS[node.dtype], lanes)
        text = f"masked_{kind}({place}, {mask})"
        if stride in (2, 3, 4) and near_reads(stride, node.dtype, lanes):
            self.language.use_text(STRIDES, lanes)
            text = f"masked_{PICKING[stride]}_{kind}({place}, {mask})"
        elif stride != 1:
            text = f"masked_apart_{kind}({place}, {stride}, {mask})"
        return self._loaded(text, node.dtype, lanes)

    def _lanes_apart(self, dtype: DType, place: str, access: Access) -> str:
        """The call of a function that reads lanes which lie a stride apart: by shuffles, or lane by
        lane where these are many; "" where lanes are read in the text of the kernel."""
        kind = self.language.vector_type(ELEMENTS[dtype], access.lanes)
        if access.stride and near_reads(access.stride, dtype, access.lanes):
            self.language.use_text(STRIDES, access.lanes)
            return f"{PICKING[access.stride]}_{kind}({place})"
        if self._calls_for_lanes(access, dtype):
            return f"load_apart_{kind}({place}, {access.stride})"
        return ""

    def _load_scalar(self, node: Node, point: Point) -> Value:
        """``p0[row + 1]``; under a condition ``(lt_3 ? p0[row + 1] : 0)``."""
        index, condition = index_and_condition(node)
        text = f"p{node.arg.parameter}[{self.index_text(index, point)}]"
        self.prefetch_scalars(node, point)
        if condition is not ix.TRUE:
            text = f"({self.value(condition, point).text} ? {text} : 0)"
        return Value(text, node.dtype)

    def _load_by_lanes(self, node: Node, point: Point, axis: Node, lanes: int) -> Value:
        """``(f32x4){load_1, load_2, load_3, load_4}``, of four scalars that are loaded before."""
        elements = [self.value(node, lane).text for lane in self.each_lane(axis, point)]
        kind = self.language.vector_type(ELEMENTS[node.dtype], lanes)
        return self._loaded(f"({kind}){{{', '.join(elements)}}}", node.dtype, lanes)

    def _calls_for_lanes(self, access: Access, dtype: DType) -> bool:
        """Does a function read or write this vector, whose lanes lie apart? It does where many
        vectors do so once for all steps of a reduction: a call there costs little."""
        open_axes = self.depth_of
        has_sums = any(axis.arg.reduce for axis in self.nest.order)
        is_after_sums = has_sums and not any(axis.arg.reduce for axis in open_axes)
        is_regular = access.stride is not None and access.lanes > FEW_LANES and dtype is not bool_
        if not (is_after_sums and is_regular):
            return False
        self._by_lanes += 1
        return self._by_lanes > INLINED_BY_LANES

    def _load_neighbours(self, node: Node, point: Point, place: str, lanes: int) -> Value:
        """``*(f32x8r *)(p0 + 8 * i)``; a condition, if there is one, holds for all lanes or none:
        ``(lt_3 ? (f32x8)*(f32x8r *)(p0 + 8 * i) : (f32x8){0})``."""
        _, condition = index_and_condition(node)
        kind = self.language.vector_type(ELEMENTS[node.dtype], lanes)
        text = f"*({kind}r *)({place})"
        self.prefetch(node, point, place)
        if self._is_shared_by_rows(node):
            text = f"HELD({kind}, {text})"
        if condition is not ix.TRUE:
            text = f"({self.value(condition, point).text} ? ({kind}){text} : ({kind}){{0}})"
        return self._loaded(text, node.dtype, lanes)

    def _is_shared_by_rows(self, load: Node) -> bool:
        """Do several rows of a register tile multiply what a step of a reduction loads?"""
        is_in_step = any(axis.arg.reduce for axis in self.depth_of)
        rows = [part.copies for axis, part in self.unrolled.items() if axis not in free_axes(load)]
        return is_in_step and load.dtype in (float32, float64) and max(rows, default=1) > 1

    def _loaded(self, text: str, dtype: DType, lanes: int) -> Value:
        """What memory holds, as a value: a vector of bytes that are bools becomes a mask."""
        if dtype is bool_ and lanes > 1:
            kind = self.language.vector_type("i8", lanes)
            return Value(f"({kind})({text} != 0)", dtype, lanes, 8)
        return Value(text, dtype, lanes)

    def _mask(self, load: Node, axis: Node, point: Point) -> str:
        """The lanes where a load happens whose lanes are a constant distance apart, as bits; "" if
        these are no runs of lanes.

        ``x[100 * i + j - 1] if 0 <= j - 1 < 100`` with lanes along j gives
        ``lanes_in(j + -1, 100, 1)``, where the last argument is by how much the index grows from
        lane to lane: 1, or 0 for a condition on i, which holds for all lanes or none.
        """
        index, condition = index_and_condition(load)
        sizes = ix.extents(condition)
        read = self.access(index)
        if not sizes or read.axis is not axis or read.stride is None:
            return ""
        runs = []
        for limited_index, size in sizes.items():
            limited = self.access(limited_index)
            if limited.stride is None:
                return ""
            step = limited.stride if limited.axis is axis else 0
            first = self.index_text(limited_index, point)
            runs.append(f"lanes_in({first}, {size}, {step})")
        return " & ".join(runs)

    # Squares.

    def _transposing_axis(self, index: Node, condition: Node, access: Access) -> Node | None:
        """The unrolled axis whose vectors together are a square block of an array, with rows that
        lie along this axis in memory; None if there is no such axis.

        ``x[100 * i + j]`` with 16 lanes along i, and j unrolled 16 times: the 16 vectors
        that the points need are the columns of a block, whose rows are neighbours along j.
        """
        if access.stride in (1, None):
            return None
        for axis, unrolled in self.unrolled.items():
            is_square = unrolled.copies == access.lanes
            is_along_memory = ix.suits(axis, index) == ix.NEIGHBOURS
            # The block is read as a whole, under one condition.
            is_same_condition = axis not in free_axes(condition)
            if is_square and is_along_memory and is_same_condition:
                return axis
        return None

    def _load_column(self, node: Node, point: Point, rows: Node, access: Access) -> Value:
        """Read a square block along its rows, which are in the order of memory, transpose it in
        registers, and remember a vector for each of its columns. The result is that of `point`.

        ``x[100 * i + j]`` with 16 lanes along i from 32 on, and j unrolled from 0 to 15:
        ``TRANSPOSED(f32x16, columns_1, 16, p0 + 3200, 100, 1)``; the vector for j = 3 is
        ``columns_1[3]``. The numbers are the side of the block, its first element, the elements
        from row to row, and the condition.
        """
        index, condition = index_and_condition(node)
        lanes = access.lanes
        kind = self.language.vector_type(ELEMENTS[node.dtype], lanes)
        holds = self.value(condition, point).text if condition is not ix.TRUE else "1"
        first = f"p{node.arg.parameter} + {self.index_text(index, point | {rows: 0})}"
        self.language.use_text(TRANSPOSES, lanes)
        name = self.fresh_name("columns")
        arguments = f"{kind}, {name}, {lanes}, {first}, {access.stride}, {holds}"
        self.line(f"TRANSPOSED({arguments})")
        cache = self.scopes[-1].cache
        for number in range(lanes):
            column = self._loaded(f"{name}[{number}]", node.dtype, lanes)
            cache[self.key(node, point | {rows: number})] = column
        return cache[self.key(node, point)]

    # Prefetches.

    def prefetch(self, load: Node, point: Point, place: str) -> None:
        """Print prefetches of what will be read some iterations after `place`, where the hardware
        prefetcher fails: `AHEAD` in `prelude.c` says why. Its numbers are elements and caches.

        - Sums that are accumulated in memory: what the next iteration of the loop around the rows
          reads, 4096 elements ahead: ``AHEAD(p0 + 4096 * k + 16 * i, 4096, 2);``. All rows come
          before that, so the nearest cache is left to them.
        - A product that reads 16 columns of a panel at each step: 8 steps ahead, as in
          ``AHEAD(p3 + 128 * k_outer + 16 * k_inner, 128, 3);``, and see `_prefetch_next_panel`.
        - A product that reads the columns of a large array row after row, where a row has 256
          elements or more: 16 rows ahead, ``AHEAD(p1 + 1384 * k + 32 * j, 22144, 3);``.
        - Numbers that are decoded before they are added up, each once, as of quantised weights:
          8192 bytes ahead, ``AHEAD(p6 + 1024 * k_outer + 64 * k_inner, 8192, 3);``.
        - Arithmetic on an array of 64 MiB: 8192 bytes ahead, ``AHEAD(p0 + 16 * i, 2048, 3);``.
        """
        terms, _ = ix.terms_of(load.src[0])
        # Does a register tile use the load more than once, as in a product? It does if there are
        # unrolled axes, rows for a load of columns, that the load does not depend on.
        reuses_load = not self.unrolled.keys() <= free_axes(load)
        if reuses_load:
            for axis in self._accumulating_loops():
                if axis in terms:
                    self.line(f"AHEAD({place}, {terms[axis]}, {BUT_FIRST_LEVEL});")
            reduced = [axis for axis in self.nest.order if axis.arg.reduce and axis in terms]
            if reduced and self._is_large_panel(load.arg.parameter):
                ahead = PANEL_STEPS * terms[reduced[-1]]  # elements: steps of the innermost loop
                self.line(f"AHEAD({place}, {ahead}, {ALL_CACHES});")
                self._prefetch_next_panel(load, point, reduced[-1])
            elif reduced and self._is_of_far_rows(load, reduced[-1], terms[reduced[-1]]):
                ahead = FAR_STEPS * terms[reduced[-1]]
                self.line(f"AHEAD({place}, {ahead}, {ALL_CACHES});")
        is_decoded = self._is_decoded_in_order(load) and self._begins_line(load, point)
        if is_decoded or self._is_large_map(load):
            self.line(f"AHEAD({place}, {TWO_PAGES // load.dtype.itemsize}, {ALL_CACHES});")

    def _prefetch_next_panel(self, load: Node, point: Point, step: Node) -> None:
        """Print prefetches of the constants that the next panel is computed from, such as weights
        of 4 bits, where `load` reads the panel of a product: ``AHEAD(p4 + 48 * k + 27648 * j,
        27648, 2);`` in panel j. Memory gives them meanwhile; else the processor would wait for them
        as the panel is filled. Scales, one for a whole block, are few, and are not
        prefetched."""
        kernel = self.nest.kernel
        for fill in self.nest.fills:
            if fill.parameter != load.arg.parameter or fill.at is None:
                continue
            for read in toposort([fill.value]):
                if read.op is not Op.LOAD or not self._begins_line(read, point):
                    continue
                terms, _ = ix.terms_of(read.src[0])
                if is_of_constants(kernel, read) and fill.at in terms and step in terms:
                    place = f"p{read.arg.parameter} + {self.index_text(read.src[0], point)}"
                    self.line(f"AHEAD({place}, {terms[fill.at]}, {BUT_FIRST_LEVEL});")

    def prefetch_scalars(self, load: Node, point: Point) -> None:
        """Print prefetches of scalars that a register tile will read: those of later steps, where
        steps lie far apart, and else those of the next rows."""
        step = self._innermost_step()
        is_large = self.nest.kernel.parameters[load.arg.parameter].nbytes > SECOND_CACHE
        if step is None or not is_large or not self._is_shared_by_vectors(load):
            return
        terms, _ = ix.terms_of(load.src[0])
        rows = [axis for axis, part in self.unrolled.items() if axis in terms and part.copies > 1]
        if len(rows) != 1:
            return
        if self._is_of_far_rows(load, step, terms.get(step, 0)):
            self._prefetch_far_step(load, point, rows[0], terms[step])
        elif terms.get(step) == 1 and point.get(rows[0], 0) == 0:
            self._prefetch_next_rows(load, point, rows[0], step)

    def _prefetch_next_rows(self, load: Node, point: Point, row: Node, step: Node) -> None:
        """Print a prefetch of what the next rows will read, one line in each step, those of a row
        after the other.

        A convolution of 64 channels reads ``p0[64 * i + k]`` for 14 rows i at each step k. Of the
        next 14 rows, step k asks for the line of row ``k & 15`` that has the channel k:
        ``AHEAD(p0 + 64 * i + k + 63 * (k & 15), 896, 3);``. After 16 steps, all rows have had a
        line, and a new one begins. Rows lie too far apart for the hardware prefetcher to see that
        they are read in turns: images of 17 MB take 10 % longer without (measured: a Zen 4).
        """
        terms, _ = ix.terms_of(load.src[0])
        in_line = LINE // load.dtype.itemsize
        count, stride = self.unrolled[row].copies, terms[row]
        if stride < in_line or step.arg.size < in_line or count > in_line:
            return
        place = f"p{load.arg.parameter} + {self.index_text(load.src[0], point)}"
        turn = f"{stride - 1} * ({self.text_of[step]} & {in_line - 1})"
        near = ALL_CACHES if stride * load.dtype.itemsize < PAGE else BUT_FIRST_LEVEL
        self.line(f"AHEAD({place} + {turn}, {count * stride}, {near});")

    def _prefetch_far_step(self, load: Node, point: Point, row: Node, stride: int) -> None:
        """Print a prefetch of the scalars that a register tile reads 16 steps later, `stride`
        elements apart, as in the transposed factor of a weight's gradient. Rows that are neighbours
        are on one line, or on two: ``AHEAD(p0 + 2119 * k + 13 * i, 33904, 3);`` for the first of
        them and for the last."""
        terms, _ = ix.terms_of(load.src[0])
        ends = (0, self.unrolled[row].copies - 1)
        if terms[row] > 1 or point.get(row, 0) in ends:
            place = f"p{load.arg.parameter} + {self.index_text(load.src[0], point)}"
            self.line(f"AHEAD({place}, {FAR_STEPS * stride}, {ALL_CACHES});")

    def _innermost_step(self) -> Node | None:
        """The innermost of the open loops of a reduction; None where none is open."""
        loops = (axis for axis in reversed(self.nest.order) if axis in self.text_of)
        return next((axis for axis in loops if axis.arg.reduce), None)

    def _is_shared_by_vectors(self, load: Node) -> bool:
        """Is a scalar multiplied with vectors of a register tile?"""
        return bool(self.vectors) and self.vectors.keys().isdisjoint(free_axes(load))

    def _accumulating_loops(self) -> list[Node]:
        """The loops whose sums are accumulated in memory: row loops that the kernel's first store,
        which stores the identity, does not have."""
        first_store = self.nest.kernel.stores[0]
        return [axis for axis in self.nest.row_loops if axis not in first_store.axes]

    def _is_large_panel(self, parameter: int) -> bool:
        """Is it the packed panel of a product, which is read from end to end, and larger than the
        nearest cache?"""
        array = self.nest.kernel.parameters[parameter]
        return array.memory == "scratch" and array.nbytes > NEAREST_CACHE

    def _is_of_far_rows(self, load: Node, step: Node, stride: int) -> bool:
        """Does each `step` of a reduction read a large array far from the one before, `stride`
        elements after it?"""
        is_large = self.nest.kernel.parameters[load.arg.parameter].nbytes > SECOND_CACHE
        steps = prod(axis.arg.size for axis in self.nest.order if axis.arg.reduce)
        is_long = steps >= 2 * FAR_STEPS
        return is_large and is_long and abs(stride) * load.dtype.itemsize >= FAR_STRIDE

    def _is_decoded_in_order(self, load: Node) -> bool:
        """Does a reduction read narrow numbers from end to end of an array that is larger than the
        nearest cache, each once, and make wider ones of them?

        ``w[1024 * b + 64 * k + 16 * v + i]`` with blocks b, 16 steps k, 4 unrolled vectors v and 16
        lanes i is such a load, in whichever loop the halves of a byte are unrolled."""
        sums = (axis for axis in self.nest.order if axis.arg.reduce)
        is_large = self.nest.kernel.parameters[load.arg.parameter].nbytes > NEAREST_CACHE
        is_narrow = load.dtype.itemsize < float32.itemsize
        if not (is_large and is_narrow) or load.src[1:] or next(sums, None) is None:
            return False
        terms, _ = ix.terms_of(load.src[0])
        lanes = [part.lanes for axis, part in self.vectors.items() if terms.get(axis) == 1]
        if not lanes:
            return False
        following = lanes[0]  # elements that all loops inside of an axis read
        is_moved = False  # by a loop inside
        for axis in reversed(self.nest.order):
            if self.nest.bound(axis) in ("vector", "dot"):
                continue
            is_loop = axis not in self.unrolled
            if axis in terms:
                if terms[axis] != following:
                    return False
                following *= axis.arg.size
                is_moved = is_moved or is_loop
            elif is_loop and is_moved:
                return False  # it reads all of them again
        return True

    def _begins_line(self, load: Node, point: Point) -> bool:
        """Is it the first of the unrolled loads of a cache line?"""
        terms, _ = ix.terms_of(load.src[0])
        first = sum(terms.get(axis, 0) * point[axis] for axis in self.unrolled if axis in point)
        return first * load.dtype.itemsize % LINE == 0

    def _is_large_map(self, load: Node) -> bool:
        """Does the kernel compute each element of an array that no cache holds from the element of
        `load` at the same index?"""
        kernel = self.nest.kernel
        store = kernel.stores[0]
        is_in_place = load.src[0] is store.index and store.axes == kernel.row_axes
        return is_in_place and kernel.parameters[store.parameter].nbytes >= UNCACHED

    # Stores.

    def store(self, store: Store, value: Value, point: Point) -> None:
        """Print a store of a scalar or of a vector of neighbours; of other vectors, one a lane, or
        the call of a function where they are many: ``store_apart_f32x16(p1 + 9 * i, 576, add_3);``.
        """
        access = self.access(store.index, store.condition)
        dtype = store.value.dtype
        is_plain = store.condition is ix.TRUE and store.monoid is None and not store.atomic
        if access.axis is not None and access.stride != 1:
            if is_plain and self._calls_for_lanes(access, dtype):
                kind = self.language.vector_type(ELEMENTS[dtype], access.lanes)
                place = f"p{store.parameter} + {self.index_text(store.index, point)}"
                text = self.language.widened(value, Value("", dtype, access.lanes))
                self.line(f"store_apart_{kind}({place}, {access.stride}, {text});")
                return
            for number, lane in enumerate(self.each_lane(access.axis, point)):
                self.store(store, self.language.lane(value, number), lane)
        elif access.lanes > 1:
            self._store_vector(store, value, point, access.lanes)
        else:
            self._store_scalar(store, value, point)

    def _store_scalar(self, store: Store, value: Value, point: Point) -> None:
        """``p1[row] = sum_3;``, or the line of an `atomic` store."""
        target = f"p{store.parameter}[{self.index_text(store.index, point)}]"
        old = Value(target, store.value.dtype)
        text = self._updated(store, old, value).text
        line = self.atomic(store, target, text) if store.atomic else f"{target} = {text};"
        self._store_line(store, line, point)

    def _store_vector(self, store: Store, value: Value, point: Point, lanes: int) -> None:
        """``*(f32x8u *)(p1 + 8 * row) = add_3;``, or past the caches
        ``STREAM(f32x8u, p1, 8 * row, add_3)``. Raises FormatError for an `atomic` store: no
        target has one of vectors."""
        if store.atomic:
            raise FormatError("atomic: this target has no such operation on vectors")
        dtype, array = store.value.dtype, f"p{store.parameter}"
        start = self.index_text(store.index, point)
        kind = self.language.vector_type(ELEMENTS[dtype], lanes)
        target = f"*({kind}u *)({array} + {start})"
        old = self._loaded(target, dtype, lanes)
        text = self.language.widened(self._updated(store, old, value), old)
        if old.mask:  # in memory true is 1
            text = f"({kind})({text}) & 1"
        line = f"{target} = {text};"
        if bypasses_caches(self.nest.kernel, store.parameter):
            if store.parameter not in self.streamed:
                self.streamed.append(store.parameter)
            line = f"STREAM({kind}u, {array}, {start}, {text})"
        self._store_line(store, line, point)

    def _updated(self, store: Store, old: Value, value: Value) -> Value:
        """What is stored where memory holds `old`: `value`, combined with it by the monoid of the
        store, if that has one."""
        if store.monoid is None or store.atomic:
            return value
        (updated,) = self.combined(store.monoid, (old,), (value,))
        return updated

    def atomic(self, store: Store, target: str, value: str) -> str:
        """The line that combines `value` with what other threads may combine at the same time.
        Raises FormatError where the target has no such operation."""
        raise FormatError(f"atomic: this target has no such operation by {store.monoid}")

    def _store_line(self, store: Store, line: str, point: Point) -> None:
        """Print the `line` of a store, under its condition if that is not always true."""
        if store.condition is not ix.TRUE:
            line = f"{self.where(self.value(store.condition, point).text)} {{ {line} }}"
        self.line(line)

    def where(self, condition: str) -> str:
        """The head of a store that happens only under a condition."""
        return f"if ({condition})"


def index_and_condition(load: Node) -> tuple[Node, Node]:
    """The operands of a LOAD: the index that it reads, and where it does so, TRUE if always."""
    index, *guard = load.src
    return index, guard[0] if guard else ix.TRUE

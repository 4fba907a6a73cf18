"""C for the CPU: the function of one kernel, with its loads and stores of vectors.

The launch hands a kernel its arrays and a chunk, a number that stands for the indices of all axes
that threads share. Of a product of (64, 128) and (128, 32) in 8 chunks:

    KERNEL(reduce0_64x32) {
        POINTER(const f32, 0);                         each array in device memory, by its number
        POINTER(const f32, 1);
        POINTER(f32, 2);
        const i64 row_outer = chunk % 8;               the indices of the launch
        const i64 column_outer = (chunk / 8) % 1;
        {                                              each part of the rows
            ...
        }
    }

Vectors are loaded as neighbours, as columns of squares that are transposed, under a mask of lanes,
or lane by lane. ``f32x8u`` is the type of a vector that begins anywhere in memory, and ``f32x8r``
the same to read: see `vectors.c`. `place` is an address, ``p0 + 8 * i``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lamina.core.dtypes import DType, bool_, float32, float64, int32
from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import Store, free_axes, loads_beneath, points
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.loops.nest import MIN_SQUARE, Nest, bypasses_caches, least_run, near_reads
from lamina.targets.c.operations import ELEMENTS, CLanguage
from lamina.targets.c.prefetches import Prefetches
from lamina.targets.c.squares import squares
from lamina.targets.kernel import KernelPrinter, index_and_condition
from lamina.targets.language import Point, Value
from lamina.targets.parts import Partitioner, Unrolled
from lamina.targets.reductions import Accumulation, Work
from lamina.targets.values import LOOKUP_LANES, Ready, digit_of

TRANSPOSES = "c/transposes.c"
STRIDES = "c/strides.c"
# The functions of that text, by the elements from lane to lane.
PICKING = {-1: "backwards", 2: "each_second", 3: "each_third", 4: "each_fourth"}
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


class CPrinter(KernelPrinter):
    """One kernel function for a CPU."""

    def __init__(self, nest: Nest, name: str, language: CLanguage) -> None:
        super().__init__(Partitioner(nest), name, language)
        self.prefetches = Prefetches(self)
        self.streamed: list[int] = []  # the parameters that are stored past the caches
        # Vectors so far that are read or written lane by lane where a function could be called.
        self._inlined_vectors = 0

    def print(self) -> tuple[str, int]:
        """The kernel's function, and the number of chunks it runs in."""
        pointers, scratch = self.arrays()
        parallel = [axis for axis in self.nest.order if axis in self.partitioner.launch_axes]
        lines = [f"POINTER({pointer});" for pointer in pointers]
        body = self.body([*lines, *scratch, *self.indices(parallel, "chunk")])
        if self.streamed:
            addresses = " | ".join(f"(u64)b[{number}]" for number in self.streamed)
            body = f"    const _Bool lines = ({addresses}) % 64 == 0;\n{body}"
        return f"KERNEL({self.function}) {{\n{body}}}", points(parallel)

    def elementwise(self, node: Node, point: Point) -> Value:
        """A float32 that four bits decide, such as a number of 4 bits with its scale, is looked up
        in a register, if that has as many lanes.

        ``cast(x & 15) * 0.5 + 1`` with 16 lanes: `_lookup_table` has 1.0, 1.5, ..., 8.5, and the
        text is ``lookup_f32x16((f32x16){1.0f, 1.5f, ..., 8.5f}, cast_2)``.
        """
        digit = digit_of(node)
        lanes = self.lanes_of(node)
        if digit is None or (node.dtype, lanes) != (float32, LOOKUP_LANES):
            return super().elementwise(node, point)
        constants = map(self.language.literal, _lookup_table(node, digit))
        table = ", ".join(constant.text for constant in constants)
        bits = digit.src[0]  # before the ``& 15``: a lookup takes the last four bits itself
        if bits.op is Op.SHR and bits.dtype.bits < 32:  # as int32: processors do not shift bytes
            bits = Node(Op.SHR, tuple(cast(operand, int32) for operand in bits.src))
        kind = self.language.vector_type("f32", lanes)
        places = self.value(cast(bits, int32), point)
        return Value(f"lookup_{kind}(({kind}){{{table}}}, {places.text})", float32, lanes)

    # Vectors.

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
        """Print NEXT_STEP, a barrier of the compiler between steps, where a register tile leaves no
        registers free. Without it the compiler would load an element that several steps read once,
        and keep it in a register until the last of these."""
        steps = [axis for axis in work.axes if axis in self.index_texts]  # those with loops
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
        loads = loads_beneath(reductions)
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
        """What a LOAD reads, in the first of these ways that fits. Where its condition does not
        hold, it reads nothing and gives 0.

        1. A scalar.
        2. A column of a square block that is transposed in registers.
        3. Lanes under a mask.
        4. Neighbours.
        5. Vectors of neighbours of which shuffles pick lanes: ``each_third_f32x16(p0 + 3 * i)``.
        6. Lanes one by one, by a function if many vectors of a kernel do so:
           ``load_apart_f32x16(p0 + 9 * i, 576)``.
        """
        index, condition = index_and_condition(node)
        access = self.access(index, condition)
        if access.axis is None:
            self.prefetches.print_of_scalar(node, point)
            return super().load(node, point)
        rows = self._transposing_axis(index, condition, access)
        if rows is not None:
            return self._load_column(node, point, rows, access)
        place = f"p{node.arg.parameter} + {self.index_text(index, point)}"
        mask = self._mask(node, access.axis, point) if access.stride is None else ""
        if mask:
            return self._load_masked(node, place, mask, access.lanes)
        if access.stride == 1:
            return self._load_neighbours(node, point, place, access.lanes)
        if condition is ix.TRUE:
            text = self._lanes_apart(node.dtype, place, access)
            if text:
                return Value(text, node.dtype, access.lanes)
            self._count_inlined(access, node.dtype)
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

    def _load_by_lanes(self, node: Node, point: Point, axis: Node, lanes: int) -> Value:
        """``(f32x4){load_1, load_2, load_3, load_4}``, of four scalars that are loaded before."""
        elements = [self.value(node, lane).text for lane in self.each_lane(axis, point)]
        kind = self.language.vector_type(ELEMENTS[node.dtype], lanes)
        return self._loaded(f"({kind}){{{', '.join(elements)}}}", node.dtype, lanes)

    def _calls_for_lanes(self, access: Access, dtype: DType) -> bool:
        """Is this vector, whose lanes lie apart, read or written by calling a function? Those that
        a function can read or write are, after the first INLINED_BY_LANES."""
        return self._inlined_vectors >= INLINED_BY_LANES and self._suits_call(access, dtype)

    def _suits_call(self, access: Access, dtype: DType) -> bool:
        """Can a function read or write this vector, and costs a call little? After the sums of a
        kernel it happens once for all their steps."""
        has_sums = any(axis.arg.reduce for axis in self.nest.order)
        is_after_sums = has_sums and not any(axis.arg.reduce for axis in self.depth_of)
        is_regular = access.stride is not None and access.lanes > FEW_LANES and dtype is not bool_
        return is_after_sums and is_regular

    def _count_inlined(self, access: Access, dtype: DType) -> None:
        """Count a vector that is about to be read or written lane by lane."""
        if self._suits_call(access, dtype):
            self._inlined_vectors += 1

    def _load_neighbours(self, node: Node, point: Point, place: str, lanes: int) -> Value:
        """``*(f32x8r *)(p0 + 8 * i)``; a condition, if there is one, holds for all lanes or none:
        ``(lt_3 ? (f32x8)*(f32x8r *)(p0 + 8 * i) : (f32x8){0})``."""
        _, condition = index_and_condition(node)
        kind = self.language.vector_type(ELEMENTS[node.dtype], lanes)
        text = f"*({kind}r *)({place})"
        self.prefetches.print_of_vector(node, point, place)
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
        """The mask, a bit for each lane, of a load with a condition whose lanes are a constant
        distance apart; "" if the condition does not give runs of lanes.

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

    # Stores.

    def print_store(self, store: Store, value: Value, point: Point) -> None:
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
            if is_plain:
                self._count_inlined(access, dtype)
            for number, lane in enumerate(self.each_lane(access.axis, point)):
                self.print_store(store, self.language.lane(value, number), lane)
        elif access.lanes > 1:
            self._store_vector(store, value, point, access.lanes)
        else:
            super().print_store(store, value, point)

    def print_ready(self, ready: Sequence[Ready]) -> None:
        """Print stores whose values are computed: those in squares by transposes in registers."""
        others = list[Ready]()
        for store in dict.fromkeys(store for store, _, _ in ready):
            own = [each for each in ready if each[0] is store]
            found = self._squares(store, own)
            for square in found:
                self._store_square(store, square)
            others += [] if found else own
        super().print_ready(others)

    def _squares(self, store: Store, ready: Sequence[Ready]) -> list[list[Ready]]:
        """The squares that `store` makes at the points of `ready`; none where its lanes are
        neighbours or few, or where a condition or what is there decides what is stored."""
        access = self.access(store.index, store.condition)
        is_plain = store.condition is ix.TRUE and store.monoid is None and not store.atomic
        is_of_bytes = any(self.nest.bound(axis) == "dot" for axis in free_axes(store.index))
        is_apart = access.stride not in (None, 1) and access.lanes >= MIN_SQUARE
        if not (is_plain and is_apart) or is_of_bytes or store.value.dtype is bool_:
            return []
        copies = {axis: part.copies for axis, part in self.unrolled.items()}
        least = least_run(access.lanes, store.value.dtype)
        return squares(ready, copies, access.lanes, least)

    def _store_square(self, store: Store, square: Sequence[Ready]) -> None:
        """Transpose the vectors of a square, and store each column: see `squares.py`."""
        access, dtype = self.access(store.index), store.value.dtype
        lanes, stride = access.lanes, access.stride
        assert stride is not None
        kind = self.language.vector_type(ELEMENTS[dtype], lanes)
        self.language.use_text(TRANSPOSES, lanes)
        name = self.fresh_name("columns")
        rows = [self.language.widened(value, Value("", dtype, lanes)) for _, value, _ in square]
        self.line(f"TURNED({kind}, {name}, {lanes}, {', '.join(rows)})")
        start = self.index_text(store.index, square[0][2])
        for lane in range(lanes):
            place = f"{start} + {stride * lane}" if lane else start
            column = f"{name}[{lane}]"
            if len(square) < lanes:
                first = f"p{store.parameter} + {place}"
                line = f"store_first_{kind}({first}, {len(square)}, {column});"
            else:
                line = self._vector_line(store, kind, place, column)
            self.print_store_line(store, line)

    def _vector_line(self, store: Store, kind: str, start: str, text: str) -> str:
        """The line that stores a vector from the element `start` on, past the caches if it may."""
        array = f"p{store.parameter}"
        if not bypasses_caches(self.nest.kernel, store.parameter):
            return f"*({kind}u *)({array} + {start}) = {text};"
        if store.parameter not in self.streamed:
            self.streamed.append(store.parameter)
        return f"STREAM({kind}u, {array}, {start}, {text})"

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
        text = self.language.widened(self.updated(store, old, value), old)
        if old.mask:  # in memory true is 1
            text = f"({kind})({text}) & 1"
        self.print_under_condition(store, self._vector_line(store, kind, start, text), point)


def _lookup_table(node: Node, digit: Node) -> list[Node]:
    """The constants that `node` is for each value of `digit`, 0 to 15."""
    cases = [ix.replaced(node, {digit: const(i, digit.dtype)}) for i in range(LOOKUP_LANES)]
    return [const(result.item(), float32) for result in evaluate(cases)]

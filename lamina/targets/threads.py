"""Rows of a kernel on the threads of a GPU.

Rows bound to the grid are run by a thread each or, where a loop inside them is bound to threads,
by a block each, in which neighbouring threads take the rows bound to threads. Such a loop goes in
steps of the threads a row has, or is none if one step is enough: what a pass over the row reads and
computes then stays in registers for the next. A reduction over it ends with exchanges. What is
outside of all of these loops, every thread of a row computes, and its first one stores.

The sums down the 1000 columns of an array of 32 rows, where a thread has 4 results side by side and
two neighbouring threads have 8: 125 blocks of 64 threads, the 32 at even numbers for one row of 4
results, and those at odd numbers for the other. So `block_rows` is 2, `threads` 64, and the threads
of a row are 2 apart:

    KERNEL(64) reduce0_1000(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
        EACH_BLOCK(u32, 64, 125);
        const i64 row_outer = worker % 125;                `grid`
        const i64 row_middle = THREAD % 2;                 `rows_inside`
        const i64 thread_in_row = THREAD / 2;              the only index of the shared loop over k
        {
            const f32 load_1 = p0[4 * (250 * thread_in_row + 2 * row_outer + row_middle) + 0];
            ...
            REDUCE(64, 2) {                                exchanges between threads 2 apart
            const auto other_13 = exchange(sum_9, s);
            sum_9 = (sum_9 + other_13);
            ...
            }
            if (THREAD < 2) { p1[4 * (2 * row_outer + row_middle) + 0] = sum_9; }
            ...

Where memory runs along the shared loop, and not along the rows of a block, and a warp holds whole
rows, the threads of a row are neighbours: of 32 rows of 64 elements with 8 threads each, thread 19
is the fourth of the third row, and a sum is three exchanges within a warp.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Store, bound_axes, free_axes, indices_of, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import BLOCK, MANY_SUMS_OF_WARP, Nest, operands_of, serial_axes
from lamina.targets.blocks import Cut
from lamina.targets.c.operations import CLanguage
from lamina.targets.kernel import KernelPrinter
from lamina.targets.language import Point, Value, Values
from lamina.targets.names import monoid_name
from lamina.targets.parts import Condition, Fixed, Loop, LoopPart, NestPart
from lamina.targets.reductions import Accumulation
from lamina.targets.scopes import Key

# Threads of the largest block that shares rows whose values it holds in registers: GPUs have no
# larger ones. Blocks that go along a row in steps have half of that at most.
MAX_SHARED_THREADS = 1024


@dataclass(frozen=True)
class _UnrolledIndices:
    """What the indices beneath a node are while some axes are unrolled.

    of: all axes that are unrolled. axes: those of them that the node depends on. terms: those of
    an index in these axes, with their coefficients, once for indices that have them in common."""

    of: tuple[Node, ...]
    axes: tuple[Node, ...]
    terms: tuple[tuple[tuple[Node, int], ...], ...]

    @classmethod
    def beneath(cls, node: Node, unrolled: tuple[Node, ...]) -> "_UnrolledIndices":
        free = free_axes(node)
        axes = tuple(axis for axis in unrolled if axis in free)
        distinct: dict[tuple[tuple[Node, int], ...], None] = {}
        for index in indices_of(node):
            factors, _ = ix.terms_of(index)
            terms = tuple(term for term in factors.items() if term[0] in axes)
            if terms:
                distinct[terms] = None
        return cls(unrolled, axes, tuple(distinct))


class ThreadPrinter(KernelPrinter):
    """One kernel, whose rows and loops threads share.

    grid          rows that are a block each, or a thread each where no axis is bound to threads
    rows_inside   rows bound to threads: neighbouring threads of a block have one each
    shared_loops  loops bound to threads: the threads of a row share their iterations
    block_rows    rows that a block has at a time
    row_threads   threads that share a row
    apart         how far these are apart: `block_rows`, or 1 where they are neighbours, which
                  `has_neighbours` says
    cooperates    whether threads share a row; else a thread has a row, and a block has BLOCK
    keeps_row     whether a thread keeps its part of a row in registers
    threads       of a block
    """

    many_sums = MANY_SUMS_OF_WARP

    def __init__(self, nest: Nest, name: str, target: Target, language: CLanguage) -> None:
        # There are no vectors and no dot products in the text: the GPU's compiler joins accesses.
        # The steps of a scan that would be lanes are a loop, as each waits for the one before.
        in_order = serial_axes(nest.kernel)
        unrolled = {
            axis: "serial" if axis in in_order else "unroll"
            for axis in nest.order
            if nest.bound(axis) in ("vector", "dot")
        }
        nest = replace(nest, binding={**nest.binding, **unrolled})
        super().__init__(nest, name, language)
        self.target = target
        bound_to_threads = [axis for axis in nest.order if nest.bound(axis) == "thread"]
        self.rows_inside = [axis for axis in bound_to_threads if axis in self.launch_axes]
        self.shared_loops = [axis for axis in bound_to_threads if axis not in self.launch_axes]
        in_grid = self.launch_axes - set(self.rows_inside)
        self.grid = [axis for axis in nest.order if axis in in_grid]
        self.block_rows = points(self.rows_inside)
        self.cooperates = bool(bound_to_threads)
        # The schedule splits the loop over a row that fits into registers: the outer part is the
        # steps of a block along the row, and the shared loop is inside.
        self.keeps_row = not all(map(nest.is_head, self.shared_loops))
        self.threads = self._block_threads() if self.cooperates else BLOCK
        self.row_threads = self.threads // self.block_rows
        self.has_neighbours = self._have_neighbours()
        self.apart = 1 if self.has_neighbours else self.block_rows
        self._unrolled_indices: dict[Node, _UnrolledIndices] = {}

    def _block_threads(self) -> int:
        """Threads of a block that share rows: as many as the longest shared loop has iterations,
        but half of the largest number where a loop goes in steps."""
        longest = max([1, *(axis.arg.size for axis in self.shared_loops)])
        limit = MAX_SHARED_THREADS if self.keeps_row else MAX_SHARED_THREADS // 2
        return whole_warps(longest * self.block_rows, limit, self.target.warp)

    def _have_neighbours(self) -> bool:
        """Are the threads of a row neighbours? They are where a warp holds whole rows, and in most
        arrays the elements of a row are nearer to each other than those of several rows."""
        if self.nest.atom or not 1 < self.row_threads <= self.target.warp:
            return False
        kernel = self.nest.kernel
        indices = [load.src[0] for load in kernel.of(Op.LOAD)]
        indices += [store.index for store in kernel.stores]
        votes = 0
        for index in indices:
            along_row = _nearest(index, self.shared_loops)
            across_rows = _nearest(index, self.rows_inside)
            if along_row and across_rows:
                votes += 1 if along_row < across_rows else -1
        return votes > 0

    # Values.

    def key(self, node: Node, point: Point) -> Key:
        """What tells values of one scope apart: the node, and what each index beneath it is at
        this point. Windows that slide read one element at several points: ``x[i + k]`` at i = 1 and
        k = 2, and at i = 2 and k = 1. Here there are no vectors.

        Parts of a split may stand in one scope: of 12,544 steps in blocks of 2048 six are unrolled,
        and in the last one, which is shorter, the number of the block is fixed. So the axes that
        are unrolled are told apart too."""
        axes = tuple(self.unrolled)
        indices = self._unrolled_indices.get(node)
        if indices is None or indices.of != axes:  # it is asked for each element of a tile
            indices = self._unrolled_indices[node] = _UnrolledIndices.beneath(node, axes)
        places = [
            sum([factor * point[axis] for axis, factor in terms]) for terms in indices.terms
        ]
        return node, (indices.axes, *places)

    # Loops.

    def loop(self, axis: Node, name: str, first: int | str, end: int | str) -> str:
        """The head of a loop; one that threads of a row share goes in steps of these threads: of
        128, ``UNROLL for (i64 a1 = 0 + thread_in_row; a1 < 1000; a1 += 128) {``."""
        if axis not in self.shared_loops:
            return super().loop(axis, name, first, end)
        step = self.stride(axis)
        own = f"{first} + thread_in_row"  # where the loop of a thread begins
        return f"UNROLL for ({self.index} {name} = {own}; {name} < {end}; {name} += {step}) {{"

    def stride(self, axis: Node) -> int:
        """Iterations from one of a thread to its next: as many as threads share a row. 256 threads
        with 8 rows side by side are 32 for each row."""
        return self.row_threads if axis in self.shared_loops else 1

    def partition(
        self, sub_loops: Sequence[Node], extent: int, *, is_after_blocks: bool = False
    ) -> list[NestPart]:
        """The parts, with an index in place of a loop that threads share if each thread has one
        step of it at most, and with rows bound to threads in range: see `_one_step` and
        `_row_in_range`.

        `super().partition` calls this method for inner sub-loops, whose parts are changed by then:
        a shared loop may be `Fixed` already, and a row in range has no condition any more.
        """
        nest_parts = super().partition(sub_loops, extent, is_after_blocks=is_after_blocks)
        for nest_part in nest_parts:
            for axis, loop_part in nest_part.items():
                if axis in self.rows_inside and isinstance(loop_part, Fixed):
                    nest_part[axis] = self._row_in_range(loop_part)
                elif axis in self.shared_loops and isinstance(loop_part, Loop):
                    nest_part[axis] = self._one_step(loop_part)
        return nest_parts

    def _row_in_range(self, row: Fixed) -> Fixed:
        """The index of an axis bound to threads, without a condition: threads beyond its end get
        the index of the last row in range, compute the same as its thread, and store nothing.

        A thread that leaves early would be missing at barriers and exchanges. Of full blocks that
        run where ``a3 < 5`` the index becomes ``min(a3, (i64)4)``; of the last block, which runs
        where ``a3 == 5``, it becomes 5.
        """
        if row.condition is None:  # all threads are in range
            return row
        bound = row.condition.bound
        if row.condition.sign == "==":
            return Fixed(bound)
        return Fixed(f"min({row.index}, ({self.index}){bound - 1})")

    def _one_step(self, loop: Loop) -> LoopPart:
        """A loop that threads share, as an index if each has one iteration at most.

        With 128 threads to a row, a loop of 1000 stays a loop, in steps of 128. Of 128 iterations
        each thread has one, `thread_in_row`. Of 100 the last 28 threads get index 99 and the
        condition ``thread_in_row < 100``, without which they add and store nothing.
        """
        count, threads_of_row = loop.iterations, self.row_threads
        is_tail = loop.first != 0  # of a split: one iteration, which the first thread runs
        if is_tail or count > threads_of_row:
            return loop
        if count == threads_of_row:
            return Fixed("thread_in_row")
        last = f"min(thread_in_row, ({self.index}){count - 1})"
        return Fixed(last, Condition("thread_in_row", "<", count))

    # Exchanges.

    def _exchanging(self) -> str:
        """The threads among which those of a row are, and how far these are apart: ``256, 8``
        for 32 threads of each of 8 rows, and ``32, 1`` where they are neighbours."""
        return f"{self.row_threads * self.apart}, {self.apart}"

    def join(self, sums: Iterable[Accumulation]) -> None:
        """Combine the accumulators of a thread, and then those of the threads that share a row.

        The latter is a loop (REDUCE in `prelude.cu`), in which `s` is a step of a butterfly. For a
        sum of 256 threads, all of one row:

            REDUCE(256, 1) {
            const auto other_25 = exchange(sum_24, s);
            sum_24 = (sum_24 + other_25);
            }
        """
        ready = list(sums)
        super().join(ready)
        if ready and not set(self.shared_loops).isdisjoint(bound_axes(ready[0].reduction)):
            self.line(f"REDUCE({self._exchanging()}) {{")
            for each in ready:
                others = tuple(
                    self.declare(value._replace(text=f"exchange({value.text}, s)"), "other")
                    for value in each.total
                )
                self.update(each.reduction.arg.monoid, each.total, others)
            self.line("}")

    # Scans.

    def cut_of_scans(self, part: NestPart, scans: Sequence[Node]) -> Cut | None:
        """None where threads share a row: `scan` of these keeps no totals of blocks. Its sums are
        shorter than a row by the number of threads, as each thread adds up its neighbours first."""
        cut = super().cut_of_scans(part, scans)
        return None if cut and not part.keys().isdisjoint(self.shared_loops) else cut

    def scan(self, node: Node, point: Point) -> None:
        """Print a scan that the threads of a row share, and keep its values at all of a thread's
        neighbours, the numbers that it has side by side. Of 128 numbers, two for each of 64
        threads:

            const auto sum_3 = (load_1 + load_2);
            f32 sum_4 = sum_3;                             what this thread comes to
            f32 sum_5 = 0.0f;                              what all did in the step before
            SCAN(64, 1) {
            const auto before_6 = earlier(sum_4, sum_5, s);       of threads before this one
            if (!precedes(s)) continue;                           there are none at distance `s`
            sum_4 = (before_6 + sum_4);
            }
            sum_4 = (sum_4 + load_1);                      from the sum of all threads before on
            const f32 scan_7 = sum_4;
            sum_4 = (sum_4 + load_2);
            const f32 scan_8 = sum_4;

        `prelude.cu` has SCAN: after it, `sum_4` is the sum of all threads before this one alone,
        and of the steps before.
        """
        along = bound_axes(node)
        if set(self.shared_loops).isdisjoint(along):
            super().scan(node, point)
            return
        # The axes inside the shared one are unrolled. All of their points are printed when the
        # first of them is needed, and kept for the others.
        inner = along[along.index(self.shared_loops[0]) + 1 :]
        near = [point | neighbour for neighbour in self.points(inner)]
        monoid = node.arg.monoid
        terms = [tuple(self.value(part, at) for part in operands_of(node)) for at in near]
        name = monoid_name(monoid)
        sums = tuple(self.declare(value, name, mutable=True) for value in self.tree(monoid, terms))
        self._print_scan_of_threads(node, sums, self.scan_ends(node, point))
        for at, term in zip(near, terms, strict=True):
            self.update(monoid, sums, term)
            self.keep(node, at, tuple(self.declare(value, "scan") for value in sums))

    def _print_scan_of_threads(self, node: Node, sums: Values, ends: Values) -> None:
        """Print the loop that leaves in `sums` what all threads before this one came to, from what
        each has come to; and what all have, in `ends`."""
        self.line(f"SCAN({self._exchanging()}) {{")
        before = tuple(
            self.declare(value._replace(text=f"earlier({value.text}, {end.text}, s)"), "before")
            for value, end in zip(sums, ends, strict=True)
        )
        self.line("if (!precedes(s)) continue;")
        self.assign(sums, self.combined(node.arg.monoid, before, sums))  # it need not commute
        self.line("}")

    # Stores.

    def store(self, store: Store, value: Value, point: Point) -> None:
        """Print a store, behind conditions where not every thread may do it.

        ``if (THREAD < 1) { p1[a0] = sum_4; }`` where all threads of a row have the value, and
        ``if (a3 == min(a3, (i64)4)) { ... }`` where threads beyond the last row compute it again.
        """
        super().store(store, value, point)
        if self.nest.kernel.parameters[store.parameter].memory == "scratch":
            return  # each thread has its own
        by_first = self._is_stored_by_first_thread()
        guard = self.guard
        if by_first and not guard:
            first = "thread_in_row == 0" if self.has_neighbours else f"THREAD < {self.block_rows}"
            guard = f"if ({first}) "
        for axis in self.rows_inside:
            is_moved_into_range = self.text_of[axis] != self.axis_name(axis)
            if is_moved_into_range:
                guard += f"if ({self.axis_name(axis)} == {self.text_of[axis]}) "
        if guard:
            line = self.scopes[-1].lines.pop()
            # The other threads of the row have read what is overwritten.
            if by_first and store.parameter in self.read:
                self.line("BARRIER;")
            self.line(f"{guard}{{ {line} }}")

    def _is_stored_by_first_thread(self) -> bool:
        """Have all threads of a row what is stored here? They do outside of shared loops, but for
        products in tiles, each of whose results one thread has. The first threads of the rows of a
        block are the threads 0 to `block_rows` - 1, unless neighbours share a row."""
        if self.nest.atom:
            return False
        in_shared_loop = any(axis in self.depth_of for axis in self.shared_loops)
        has_several_threads = self.threads > self.block_rows
        return self.cooperates and has_several_threads and not in_shared_loop


def _nearest(index: Node, axes: Sequence[Node]) -> int:
    """The shortest stride of `axes` in an index; 0 where it is a sum of none of them."""
    strides, _ = ix.terms_of(index)
    return min((abs(strides[axis]) for axis in axes if axis in strides), default=0)


def whole_warps(threads: int, limit: int, warp: int) -> int:
    """The smallest power of two not below `threads`; at least a `warp`, at most `limit`, a power of
    two: of 100 threads 128, of 5 threads 32."""
    return min(max(1 << (threads - 1).bit_length(), warp), limit)

"""Rows of a kernel on the threads of a GPU.

Rows bound to the grid are run by a thread each or, where a loop inside them is bound to threads,
by a block each, in which neighbouring threads take the rows bound to threads. Such a loop goes in
steps of the threads a row has, or is none if one step is enough: what a pass over the row reads and
computes then stays in registers for the next. A reduction over it ends with exchanges. What is
outside of all of these loops, every thread of a row computes, and its first one stores.

The sums down the 1000 columns of an array of 32 rows, where a thread has 4 results side by side and
two neighbouring threads have 8: 125 blocks of 64 threads, the 32 at even numbers for one row of 4
results, and those at odd numbers for the other. So `block_rows` is 2, `per_block` 64, and the
threads of a row are 2 apart:

    KERNEL(64) reduce0_1000(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
        EACH_BLOCK(u32, 64, 125);
        const i64 row_outer = worker % 125;                `grid`
        const i64 row_middle = THREAD % 2;                 `rows`
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

from collections.abc import Sequence
from dataclasses import replace

from lamina.core.integers import power_of_two_from
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.loops.nest import BLOCK, Nest, serial_axes
from lamina.targets.parts import (
    Condition,
    Fixed,
    Loop,
    LoopPart,
    NestPart,
    Partitioner,
    launch_axes,
)

# Threads of the largest block that shares rows whose values it holds in registers: GPUs have no
# larger ones. Blocks that go along a row in steps have half of that at most.
MAX_SHARED_THREADS = 1024


class Threads:
    """Which axes of a nest blocks and threads run.

    grid          rows that are a block each, or a thread each where no axis is bound to threads
    rows          rows bound to threads: neighbouring threads of a block have one each
    shared_loops  loops bound to threads: the threads of a row share their iterations
    block_rows    rows that a block has at a time
    per_block     threads of a block
    per_row       threads that share a row
    apart         how far these are apart: `block_rows`, or 1 where they are neighbours, which
                  `has_neighbours` says
    cooperates    whether threads share a row; else a thread has a row, and a block has BLOCK
    keeps_row     whether a thread keeps its part of a row in registers
    has_largest_blocks  whether a block may have MAX_SHARED_THREADS
    """

    def __init__(self, nest: Nest, target: Target) -> None:
        bound_to_threads = [axis for axis in nest.order if nest.bound(axis) == "thread"]
        launched = launch_axes(nest)
        self.rows = [axis for axis in bound_to_threads if axis in launched]
        self.shared_loops = [axis for axis in bound_to_threads if axis not in launched]
        in_grid = launched - set(self.rows)
        self.grid = [axis for axis in nest.order if axis in in_grid]
        self.block_rows = points(self.rows)
        self.cooperates = bool(bound_to_threads)
        # The schedule splits the loop over a row that fits into registers: the outer part is the
        # steps of a block along the row, and the shared loop is inside.
        self.keeps_row = not all(map(nest.is_head, self.shared_loops))
        # One block with the results of a scatter takes the memory of a multiprocessor.
        self.has_largest_blocks = self.keeps_row or nest.private is not None
        self.per_block = self._block_threads(target.warp) if self.cooperates else BLOCK
        self.per_row = self.per_block // self.block_rows
        self.has_neighbours = self._have_neighbours(nest, target.warp)
        self.apart = 1 if self.has_neighbours else self.block_rows

    def _block_threads(self, warp: int) -> int:
        """Threads of a block that share rows: as many as the longest shared loop has iterations,
        but half of the largest number where a loop goes in steps."""
        longest = max([1, *(axis.arg.size for axis in self.shared_loops)])
        limit = MAX_SHARED_THREADS if self.has_largest_blocks else MAX_SHARED_THREADS // 2
        return whole_warps(longest * self.block_rows, limit, warp)

    def _have_neighbours(self, nest: Nest, warp: int) -> bool:
        """Are the threads of a row neighbours? They are where a warp holds whole rows, and in most
        arrays the elements of a row are nearer to each other than those of several rows."""
        if nest.atom or not 1 < self.per_row <= warp:
            return False
        votes = 0
        for index in nest.kernel.indices:
            along_row = _nearest(index, self.shared_loops)
            across_rows = _nearest(index, self.rows)
            if along_row and across_rows:
                votes += 1 if along_row < across_rows else -1
        return votes > 0

    @property
    def place_in_row(self) -> str:
        """The text of the place of a thread among those that share its row."""
        return f"THREAD % {self.per_row}" if self.has_neighbours else f"THREAD / {self.block_rows}"

    @property
    def place_of_row(self) -> str:
        """The text of the number that stands for the indices of `rows`."""
        return f"THREAD / {self.per_row}" if self.has_neighbours else "THREAD"

    @property
    def is_first_in_row(self) -> str:
        """The condition by which a thread is the first of its row. The first threads of the rows of
        a block are the threads 0 to `block_rows` - 1, unless neighbours share a row."""
        return "thread_in_row == 0" if self.has_neighbours else f"THREAD < {self.block_rows}"


class ThreadPartitioner(Partitioner):
    """Divides the iteration space of a nest whose rows and loops threads run."""

    def __init__(self, nest: Nest, threads: Threads, index_type: str) -> None:
        super().__init__(nest)
        self.threads = threads
        self.index_type = index_type

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
                if axis in self.threads.rows and isinstance(loop_part, Fixed):
                    nest_part[axis] = self._row_in_range(loop_part)
                elif axis in self.threads.shared_loops and isinstance(loop_part, Loop):
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
        return Fixed(f"min({row.index}, ({self.index_type}){bound - 1})")

    def _one_step(self, loop: Loop) -> LoopPart:
        """A loop that threads share, as an index if each has one iteration at most.

        With 128 threads to a row, a loop of 1000 stays a loop, in steps of 128. Of 128 iterations
        each thread has one, `thread_in_row`. Of 100 the last 28 threads get index 99 and the
        condition ``thread_in_row < 100``, without which they add and store nothing.
        """
        count, threads_of_row = loop.iterations, self.threads.per_row
        is_tail = loop.first != 0  # of a split: one iteration, which the first thread runs
        if is_tail or count > threads_of_row:
            return loop
        if count == threads_of_row:
            return Fixed("thread_in_row")
        last = f"min(thread_in_row, ({self.index_type}){count - 1})"
        return Fixed(last, Condition("thread_in_row", "<", count))


def without_vectors(nest: Nest) -> Nest:
    """`nest` without vectors and dot products, as the GPU's compiler joins accesses: these axes are
    unrolled. The steps of a scan that would be lanes are a loop, as each waits for the one before.
    """
    in_order = serial_axes(nest.kernel)
    unrolled = {
        axis: "serial" if axis in in_order else "unroll"
        for axis in nest.order
        if nest.bound(axis) in ("vector", "dot")
    }
    return replace(nest, binding={**nest.binding, **unrolled})


def _nearest(index: Node, axes: Sequence[Node]) -> int:
    """The shortest stride of `axes` in an index; 0 where it is a sum of none of them."""
    strides, _ = ix.terms_of(index)
    return min((abs(strides[axis]) for axis in axes if axis in strides), default=0)


def whole_warps(threads: int, limit: int, warp: int) -> int:
    """The smallest power of two not below `threads`; at least a `warp`, at most `limit`, a power of
    two: of 100 threads 128, of 5 threads 32."""
    return min(max(power_of_two_from(threads), warp), limit)

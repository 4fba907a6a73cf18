"""GPUs: a program is one translation unit in a C++ without headers, and a launch for each kernel.

What dialects of that language do not share is in preludes, of which `gpu.c` says what they have:
`prelude.cu` is that of CUDA.

Rows bound to the grid are run by a thread each or, where a loop inside them is bound to threads,
by a block each, in which neighbouring threads take the rows bound to threads. Such a loop goes in
steps of the threads a row has, or is none if one step is enough: what a pass over the row reads and
computes then stays in registers for the next. A reduction over it ends with exchanges. What is
outside of all of these loops, every thread of a row computes, and its first one stores.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import ClassVar

from lamina.core.dtypes import SHORT
from lamina.core.target import Target
from lamina.fuse.program import Program
from lamina.ir.kernel import AnyKernel, SortKernel, Store, bound_axes, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.moves import Plan
from lamina.loops.nest import WARP, Axes, Nest, operands_of, scatter_indices
from lamina.runtime.buffer import Launch, TensorMap
from lamina.runtime.source import Source
from lamina.targets.blocks import Cut
from lamina.targets.c.printer import CPrinter
from lamina.targets.language import Point, Value
from lamina.targets.names import monoid_name
from lamina.targets.parts import Condition, Fixed, Loop, LoopPart, NestPart
from lamina.targets.reductions import Accumulation, Work
from lamina.targets.texts import helper_text

BLOCK = 256  # threads of a block in which each thread has a row
# Threads of the largest block that shares rows whose values it holds in registers: GPUs have no
# larger ones. Blocks that go along a row in steps have half of that at most.
MAX_SHARED_THREADS = 1024
KEYS = 8  # keys of a thread in a sort; up to twice as many where a block has all of its threads
RUN = 4096  # keys that a block sorts, at most
# Results of a thread that are computed before they are stored, where its registers are full.
FEW = 8
# The same of products back to back, whose sums leave their registers as they become results: the
# loads that these need, such as a bias, do not wait for the stores of the results before.
FEW_BACK_TO_BACK = 32


@dataclass(frozen=True)
class WorkLoop:
    """The loop around the body of a kernel, in which a block does one part of the work after the
    other: ``head { body } tail``. `blocks` is how many the launch has."""

    head: str
    tail: str
    blocks: int


class GpuPrinter(CPrinter):
    """One kernel; `threads` is the size of its blocks."""

    preludes: ClassVar[tuple[str, ...]]  # below targets/, of every program
    direct: ClassVar[int] = 1 << 16  # arrays that are arguments; a table has the others' addresses

    max_inlined = inf  # the texts of GPUs have no functions out of line

    def __init__(self, nest: Nest, name: str, target: Target) -> None:
        self.target = target
        # There are no vectors and no dot products in the text: the GPU's compiler joins accesses.
        unrolled = {axis: "unroll" for axis in nest.order if nest.bound(axis) in ("vector", "dot")}
        nest = replace(nest, binding={**nest.binding, **unrolled})
        super().__init__(nest, name, set())
        threads = [axis for axis in nest.order if nest.bound(axis) == "thread"]
        # Axes bound to threads are rows, of which a thread has one, or loops that threads share.
        self.rows_inside = [axis for axis in threads if axis in self.launch_axes]
        self.shared_loops = [axis for axis in threads if axis not in self.launch_axes]
        in_grid = self.launch_axes - set(self.rows_inside)
        self.grid = [axis for axis in nest.order if axis in in_grid]
        # Rows that a block has at a time: neighbouring threads take one each, and the threads of
        # one row are `block_rows` apart.
        self.block_rows = points(self.rows_inside)
        self.cooperates = bool(threads)  # else a thread has a row, and a block has many
        # Is a shared loop the inner part of a split, whose outer part is the steps of a block along
        # a row? The schedule splits rows that it keeps in registers, as far as they fit.
        keeps_row = not all(map(nest.is_head, self.shared_loops))
        self.threads = self._block_threads(keeps_row) if threads else BLOCK
        self.is_back_to_back = len(nest.tiles) > 2  # products one after the other, in registers
        if nest.product or keeps_row:
            self.batch_points = FEW_BACK_TO_BACK if self.is_back_to_back else FEW
        self.shared_bytes = 0  # of shared memory that the launch gives a block
        self.has_all_registers = False  # whether a block has those of a multiprocessor alone
        self.work_loop: WorkLoop | None = None
        self.maps: dict[str, TensorMap] = {}  # by name, what the copy engine reads
        # Results so far, of each store that is done by whole rows.
        self.results: dict[Store, list[str]] = {}
        # The loop whose iterations lanes vote on, while stores inside it are printed: `_loops`.
        self.hit_loop: Node | None = None

    def _block_threads(self, keeps_row: bool) -> int:
        """Threads of a block that share rows: as many as the longest shared loop has iterations,
        but half of the largest number where a loop goes in steps."""
        longest = max([1, *(axis.arg.size for axis in self.shared_loops)])
        limit = MAX_SHARED_THREADS if keeps_row else MAX_SHARED_THREADS // 2
        return _whole_warps(longest * self.block_rows, limit)

    def tile_texts(self) -> tuple[str, ...]:
        """The texts below targets/ for tiles that this kernel has, each after what it needs."""
        return ()

    # Loops.

    def loop(self, axis: Node, name: str, first: int | str, end: int | str) -> str:
        """The head of a loop; one that threads of a row share goes in steps of these threads: of
        128, ``UNROLL for (i64 a1 = 0 + thread_in_row; a1 < 1000; a1 += 128) {``."""
        if axis is self.hit_loop:
            # EACH_HIT counts from 0. Other starts are those of loops in blocks, which have sums or
            # scans, and of a last iteration that threads share.
            assert first == 0
            return f"EACH_HIT({self.index}, {name}, {end}) {{"
        if axis not in self.shared_loops:
            return super().loop(axis, name, first, end)
        step = self.stride(axis)
        own = f"{first} + thread_in_row"  # where the loop of a thread begins
        return f"UNROLL for ({self.index} {name} = {own}; {name} < {end}; {name} += {step}) {{"

    def loops(self, work: Work) -> None:
        """Loops without sums may be one of few hits (EACH_HIT in `gpu.c`): lanes vote on which
        iterations store. Loops with sums run every iteration: each adds."""
        outside = self.hit_loop
        self.hit_loop = None if work.sums else self._find_hit_loop(work.axes)
        super().loops(work)
        self.hit_loop = outside

    def _find_hit_loop(self, axes: Axes) -> Node | None:
        """The loop over `axes` whose iterations lanes vote on, or None.

        The kernel's only store is a scatter whose condition data decide: for each update, ``if
        (p0[column] == row)``. Few updates hit, so that nearly all iterations only read the
        condition. With EACH_HIT, each lane of a warp reads that of another iteration, and then all
        lanes run those in which it holds. That takes one condition for all lanes, and lanes that
        run all loops together: a lane that is missing casts no vote. Of several loops that decide,
        the longest one gains most.
        """
        kernel = self.nest.kernel
        if self.cooperates or not scatter_indices(kernel):  # a thread has to have a row of its own
            return None
        deciding = free_axes(kernel.stores[0].condition)
        lane_axes = self.grid[-1:]  # neighbouring lanes are neighbours along it
        if not deciding.isdisjoint(lane_axes) or not self._fills_warps(lane_axes):
            return None
        loops = [axis for axis in axes if axis in deciding]
        return max(loops, key=lambda axis: axis.arg.size, default=None)

    def _fills_warps(self, axes: Sequence[Node]) -> bool:
        """Do all lanes of every warp have an iteration of `axes`, the grid's last axis or none?

        Warps then begin and end within it: 64 iterations are two whole warps. If it is a sub-loop
        of a split axis, that has to be split evenly: where 50 are split into 2 blocks of 32, the
        last 14 lanes are beyond the end.
        """
        splits = [self.nest.sub_loops(axis) for axis in axes]
        is_even = all(split.extent == points(split.axes) for split in splits)
        return is_even and points(axes) % WARP == 0

    def where(self, condition: str) -> str:
        """``HIT(eq_6)`` in a loop over hits, which votes on the condition; else ``if (eq_6)``."""
        return f"HIT({condition})" if self.hit_loop is not None else super().where(condition)

    def stride(self, axis: Node) -> int:
        """Iterations from one of a thread to its next: as many as threads share a row. 256 threads
        with 8 rows side by side are 32 for each row."""
        return self.threads // self.block_rows if axis in self.shared_loops else 1

    def partition(self, sub_loops: Sequence[Node], extent: int) -> list[NestPart]:
        """In place of a loop of one step, its index; threads beyond the end have that of the last
        iteration, add nothing and store nothing. So do threads beyond the last of the rows that
        are bound to threads."""
        nest_parts = super().partition(sub_loops, extent)
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
        last = row.condition.bound
        if row.condition.sign == "==":
            return Fixed(last)
        return Fixed(f"min({row.index}, ({self.index}){last - 1})")

    def _one_step(self, loop: Loop) -> LoopPart:
        """A loop that threads share, as an index if each has one iteration at most.

        With 128 threads to a row, a loop of 1000 stays a loop, in steps of 128. Of 128 iterations
        each thread has one, `thread_in_row`. Of 100 the last 28 threads get index 99 and the
        condition ``thread_in_row < 100``, without which they add and store nothing.
        """
        count, threads_of_row = loop.iterations, self.threads // self.block_rows
        is_tail = loop.first != 0  # of a split: one iteration, which the first thread runs
        if is_tail or count > threads_of_row:
            return loop
        if count == threads_of_row:
            return Fixed("thread_in_row")
        last = f"min(thread_in_row, ({self.index}){count - 1})"
        return Fixed(last, Condition("thread_in_row", "<", count))

    # Values.

    def value(self, node: Node, point: Point) -> Value:
        """The loads of a whole tile are printed at once, so that none waits for another: of the
        points that are stored together, or of all points where nothing is stored yet."""
        if node.op is Op.LOAD and not self.is_back_to_back and not self._is_known(node, point):
            for other in self.batch or self.points(free_axes(node)):
                super().value(node, point | other)
        return super().value(node, point)

    def _is_known(self, node: Node, point: Point) -> bool:
        """Does a variable of an open scope hold `node` at `point`?"""
        return self.key(node, point) in self.scopes[self.home(node)].cache

    def join(self, sums: Iterable[Accumulation]) -> None:
        """Combine the accumulators of a thread, and then those of the threads that share a row.

        The latter is a loop (`prelude.cu`), in which `s` is a step of a butterfly. For a sum of 256
        threads, all of one row:

            REDUCE(256, 1) {
            const auto other_7 = exchange(sum_4, s);
            sum_4 = (sum_4 + other_7);
            }
        """
        ready = list(sums)
        super().join(ready)
        if ready and not set(self.shared_loops).isdisjoint(bound_axes(ready[0].reduction)):
            self.line(f"REDUCE({self.threads}, {self.block_rows}) {{")
            for each in ready:
                others = [
                    self.declare(value._replace(text=f"exchange({value.text}, s)"), "other")
                    for value in each.total
                ]
                self.update(each.reduction.arg.monoid, each.total, tuple(others))
            self.line("}")

    def cut_of_scans(self, part: NestPart, scans: Sequence[Node]) -> Cut | None:
        """None where threads share a row: `scan` of these keeps no totals of blocks. Its sums are
        shorter than a row by the number of threads, as each thread adds up its neighbours first."""
        cut = super().cut_of_scans(part, scans)
        return None if cut and not part.keys().isdisjoint(self.shared_loops) else cut

    def scan(self, node: Node, point: Point) -> None:
        """Print a scan that the threads of a row share, and keep its values at all of a thread's
        neighbours.

        A thread adds up its neighbours, x0 and x1; in SCAN (`prelude.cu`) the threads exchange what
        they come to, after which each has the sum of all threads before it; from there it runs
        along x0 and x1 again. The first thread goes on from `end`, what all threads came to in the
        step of the block before. For 64 threads, all of one row:

            f32 sum_4 = (x0 + x1);
            f32 sum_5 = 0.0f;                                  `end`
            SCAN(64, 1) {
            const auto before_6 = earlier(sum_4, sum_5, s);    of threads before this one
            if (!precedes(s)) continue;                        there are none at distance `s`
            sum_4 = (before_6 + sum_4);
            }
            sum_4 = (sum_4 + x0);                              the value at x0; then x1 likewise
        """
        along, rows, monoid = bound_axes(node), self.nest.kernel.row_axes, node.arg.monoid
        if set(self.shared_loops).isdisjoint(along):
            super().scan(node, point)
            return
        # The axes inside the shared one are unrolled: a thread's neighbours. All of their points
        # are printed when the first of them is needed, and kept for the others.
        inner = along[along.index(self.shared_loops[0]) + 1 :]
        near = [point | neighbour for neighbour in self.points(inner)]
        parts = [tuple(self.value(part, at) for part in operands_of(node)) for at in near]
        name = monoid_name(monoid)
        sums = tuple(self.declare(value, name, mutable=True) for value in self.tree(monoid, parts))
        depth = max(map(self.depth_of.__getitem__, rows), default=0)  # inside all rows
        row = tuple(point[axis] for axis in rows if axis in point)
        ends = self.scopes[depth].scan_ends
        if row not in ends:
            ends[row] = self.start(node, 1, depth)
        self.line(f"SCAN({self.threads}, {self.block_rows}) {{")
        before = tuple(
            self.declare(value._replace(text=f"earlier({value.text}, {end.text}, s)"), "before")
            for value, end in zip(sums, ends[row], strict=True)
        )
        self.line("if (!precedes(s)) continue;")
        self.assign(sums, self.combined(monoid, before, sums))  # a monoid need not commute
        self.line("}")
        # Now `sums` are those of all threads before; a thread adds its own, one by one.
        for at, part in zip(near, parts, strict=True):
            self.update(monoid, sums, part)
            self.keep(node, at, tuple(self.declare(value, "scan") for value in sums))

    def store(self, store: Store, value: Value, point: Point) -> None:
        """Print a store, behind conditions where not every thread may do it.

        ``if (THREAD < 1) { p1[a0] = sum_4; }`` where all threads of a row have the value, and
        ``if (a3 == min(a3, (i64)4)) { ... }`` where threads beyond the last row compute it again.
        """
        super().store(store, value, point)
        if self.nest.kernel.parameters[store.parameter].memory == "scratch":
            return  # each thread has its own
        in_shared_loop = any(axis in self.depth_of for axis in self.shared_loops)
        # Outside of shared loops all threads of a row have the value, and the first one stores it.
        # Those are threads 0 to `block_rows` - 1: there are as many rows side by side.
        by_first = self.cooperates and self.threads > self.block_rows and not in_shared_loop
        guard = self.guard
        if by_first and not guard:
            guard = f"if (THREAD < {self.block_rows}) "
        for axis in self.rows_inside:
            if self.text_of[axis] != self.axis_name(axis):  # it was moved into the range
                guard += f"if ({self.axis_name(axis)} == {self.text_of[axis]}) "
        if guard:
            line = self.scopes[-1].lines.pop()
            # The other threads of the row have read what is overwritten. Where tiles are filled,
            # some threads do nothing else, and have returned: all others would wait for ever.
            if by_first and not self.nest.tiles and store.parameter in self.read:
                self.line("BARRIER;")
            self.line(f"{guard}{{ {line} }}")

    # The function.

    def print_kernel(self) -> tuple[str, Launch]:
        """The kernel's function, and how to launch it but for its arguments."""
        workers = points(self.grid)
        pointers, scratch = self.arrays()
        body = self.body(self._opening(pointers, scratch, workers))
        blocks = workers if self.cooperates else ceil(workers / BLOCK)
        if self.work_loop:
            blocks = self.work_loop.blocks
            body = f"    {self.work_loop.head} {{\n{body}    }}{self.work_loop.tail}\n"
        arguments = [f"POINTER({pointer})" for pointer in pointers[: self.direct]]
        if len(pointers) > self.direct:
            arguments.append(f"TABLE({self.direct})")
        arguments += [f"MAP({name})" for name in self.maps]
        # The second bound is how many blocks have to fit into a multiprocessor at least: where one
        # is enough, its threads may use all registers.
        bounds = f"{self.threads}, 1" if self.has_all_registers else f"{self.threads}"
        head = f"KERNEL({bounds}) {self.function}({', '.join(arguments)} PLACE)"
        maps = tuple(self.maps.values())
        launch = Launch(self.function, blocks, self.threads, (), self.shared_bytes, maps)
        return f"{head} {{\n{body}}}", launch

    def _opening(self, pointers: list[str], scratch: list[str], workers: int) -> list[str]:
        """The lines that a kernel begins with: its arrays, which worker of `workers` it is, and its
        indices. Of a softmax of 64 rows, one a block of 64 threads:

            ALIGNED(const f32, 0, 25600, 25600);
            ALIGNED(f32, 1, 25600, 25600);
            EACH_BLOCK(u32, 64, 64);
            const i64 row = worker % 64;
            const i64 thread_in_row = THREAD / 1;
        """
        lines = [
            f"FROM_TABLE({pointer}, {number});"
            for number, pointer in enumerate(pointers[self.direct :])
        ]
        if "unroll" in self.nest.binding.values():
            lines += self._alignments(pointers)
        lines += scratch
        word = "u32" if workers < 1 << 32 else "u64"  # the type of a worker's number
        lines.append(f"{self._worker_macro()}({word}, {self.threads}, {workers});")
        lines += self.indices(self.grid, "worker")
        lines += self.indices(self.rows_inside, "THREAD")
        if self.shared_loops:
            lines.append(f"const {self.index} thread_in_row = THREAD / {self.block_rows};")
        return lines

    def _worker_macro(self) -> str:
        """The macro of `gpu.c` or of a text of tiles that says which worker this is."""
        if self.nest.tiles:
            return "EACH_TILE"
        return "EACH_BLOCK" if self.cooperates else "EACH_THREAD"

    def _alignments(self, pointers: list[str]) -> list[str]:
        """Lines that say that arrays are aligned, so that the compiler reads several elements at
        once: ``ALIGNED(const f32, 0, 25600, 25600);``.

        The last two numbers are the bytes of the array, and of the largest one that is written:
        they decide which arrays stay in the cache longer, as `kept` in `prelude.cu` says.
        """
        parameters = self.nest.kernel.parameters
        largest_written = max(array.nbytes for array in parameters if array.written)
        in_memory = [array for array in parameters if array.memory != "scratch"]
        return [
            f"ALIGNED({pointer}, {array.nbytes}, {largest_written});"
            for pointer, array in zip(pointers, in_memory, strict=True)
        ]


def _whole_warps(threads: int, limit: int) -> int:
    """The smallest power of two not below `threads`; at least a warp, at most `limit`, a power of
    two: of 100 threads 128, of 5 threads 32."""
    return min(max(1 << (threads - 1).bit_length(), WARP), limit)


def print_program(
    printer: type[GpuPrinter], target: Target, program: Program, plans: Mapping[AnyKernel, Plan]
) -> tuple[Source, tuple[Launch, ...]]:
    """The translation unit of a program in the dialect of a printer, and its launches."""
    kernels: dict[str, str] = {}
    shapes: dict[AnyKernel, Launch] = {}
    of_tiles: dict[str, None] = {}  # names, each once
    of_sorts: tuple[str, ...] = ()
    for kernel, (name, _, nest) in plans.items():
        if isinstance(nest, SortKernel):
            kernels[name], shapes[kernel] = _print_sort(nest, name)
            of_sorts = ("sorts.c",)
        else:
            kernel_printer = printer(nest, name, target)
            kernels[name], shapes[kernel] = kernel_printer.print_kernel()
            of_tiles |= dict.fromkeys(kernel_printer.tile_texts())
    launches = [
        shapes[launch.kernel]._replace(arguments=tuple(map(program.location, launch.slots)))
        for launch in program.launches
    ]
    texts = (*printer.preludes, *of_tiles, "c/arithmetic.c", "gpu.c", *of_sorts)
    helpers = "\n".join(map(helper_text, texts))
    return Source(helpers, kernels), tuple(launches)


def _print_sort(sort: SortKernel, name: str) -> tuple[str, Launch]:
    """A call of the macro of `sorts.c` that is a sort, or one of the three steps of a long one.

    Rows of 1000 keys: 128 threads with 8 keys each. Rows of 10000: 3 blocks of 256 threads with 16.
    """
    threads = _whole_warps(ceil(sort.length / KEYS), RUN // (2 * KEYS))
    keys = min(ceil(sort.length / threads), 2 * KEYS)  # of a thread
    blocks = ceil(sort.length / (keys * threads))  # of a row
    macro = "SORT"
    if blocks > 1:
        # The three steps for each byte are kernels in the order count, sum, move, and `left` is how
        # many kernels come after: 2, 1, 0 for the last byte, 5, 4, 3 for the one before.
        macro += ("_MOVE", "_SUM", "_COUNT")[sort.left % 3]
    dtype = SHORT[sort.parameters[0].dtype]
    sizes = f"{sort.rows}, {sort.length}, {sort.left}, {keys}, {threads}"
    return f"{macro}({name}, {dtype}, {sizes})", Launch(name, sort.rows * blocks, threads, ())

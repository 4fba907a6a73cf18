"""Printing a kernel of a GPU, whose rows and loops threads share as `threads.py` says.

A reduction over a loop that threads share ends with exchanges, REDUCE in the preludes, and a scan
with SCAN. What is outside of all of these loops, every thread of a row computes, and its first one
stores.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Store, bound_axes, free_axes, indices_of, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.hits import find_hit_loop
from lamina.loops.nest import MANY_SUMS_OF_WARP, Nest, operands_of
from lamina.runtime.buffer import Launch
from lamina.schedule.gpu.pipelining import is_back_to_back
from lamina.targets.blocks import Cut
from lamina.targets.c.operations import CLanguage
from lamina.targets.kernel import KernelPrinter
from lamina.targets.language import Point, Value, Values
from lamina.targets.names import monoid_name
from lamina.targets.parts import NestPart
from lamina.targets.reductions import Accumulation, Work
from lamina.targets.scopes import Key
from lamina.targets.threads import ThreadPartitioner, Threads, without_vectors

# Results of a thread that are computed before they are stored, where its registers are full.
BATCH_RESULTS = 8
# The same of products back to back, whose sums leave their registers as they become results: the
# loads that these need, such as a bias, do not wait for the stores of the results before.
BATCH_RESULTS_BACK_TO_BACK = 32


@dataclass(frozen=True)
class PrintedKernel:
    """The function of a kernel, how to launch it but for its arguments, and the texts below
    targets/ that it needs besides those of every program, each after what it needs."""

    text: str
    launch: Launch
    helper_texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrintedPart(PrintedKernel):
    """A kernel as a function that some blocks of a launch run: it takes the number that a block has
    among these, after its arrays. pointers: what macros take of each array, ``const f32, 0``"""

    pointers: tuple[str, ...] = ()


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


class GpuPrinter(KernelPrinter):
    """One kernel of a program for a GPU, as the loops of its nest."""

    direct: ClassVar[int] = 1 << 16  # arrays that are arguments; a table has the others' addresses

    many_sums = MANY_SUMS_OF_WARP
    # With an accumulator for each of 32 products, a thread adds 32 to zero, which is one operation
    # with the product, and then 31 to each other. With 4 it adds 3, and other threads run while
    # additions wait.
    max_accumulators = 4

    def __init__(self, nest: Nest, name: str, target: Target, language: CLanguage) -> None:
        nest = without_vectors(nest)
        self.threads = Threads(nest, target)
        partitioner = ThreadPartitioner(nest, self.threads, language.index_type)
        super().__init__(partitioner, name, language)
        self.target = target
        # Of products back to back, each takes the results of the one before, which stay in
        # registers.
        self.is_back_to_back = bool(nest.atom) and is_back_to_back(nest)
        if self.is_back_to_back:
            self.batch_points = BATCH_RESULTS_BACK_TO_BACK
        elif nest.atom or self.threads.keeps_row:
            self.batch_points = BATCH_RESULTS
        # The loop whose iterations lanes vote on, while stores inside are printed: `print_loops`.
        self.hit_loop: Node | None = None
        self._unrolled_indices: dict[Node, _UnrolledIndices] = {}

    # Loops.

    def print_loops(self, work: Work) -> None:
        """Loops without sums may be one of few hits (EACH_HIT in `gpu.c`): lanes vote on which
        iterations store. Loops with sums run every iteration: each adds."""
        outside = self.hit_loop
        self.hit_loop = None
        if not work.sums:
            warp = self.target.warp
            self.hit_loop = find_hit_loop(self.nest, work.axes, warp)
        super().print_loops(work)
        self.hit_loop = outside

    def loop_head(self, axis: Node, name: str, first: int | str, end: int | str) -> str:
        """The head of a loop: ``EACH_HIT(i64, column, 1000) {`` if lanes vote on iterations. One
        that threads of a row share goes in steps of these threads: of 128,
        ``UNROLL for (i64 a1 = 0 + thread_in_row; a1 < 1000; a1 += 128) {``."""
        index_type = self.language.index_type
        if axis is self.hit_loop:
            # EACH_HIT counts from 0. Other starts are those of loops in blocks, which have sums or
            # scans, and of a last iteration that threads share.
            assert first == 0
            return f"EACH_HIT({index_type}, {name}, {end}) {{"
        if axis in self.threads.shared_loops:
            start = f"{index_type} {name} = {first} + thread_in_row"
            return f"UNROLL for ({start}; {name} < {end}; {name} += {self.stride(axis)}) {{"
        return super().loop_head(axis, name, first, end)

    def stride(self, axis: Node) -> int:
        """Iterations from one of a thread to its next: as many as threads share a row. 256 threads
        with 8 rows side by side are 32 for each row."""
        return self.threads.per_row if axis in self.threads.shared_loops else 1

    # Exchanges.

    def _exchanging(self) -> str:
        """The threads among which those of a row are, and how far these are apart: ``256, 8``
        for 32 threads of each of 8 rows, and ``32, 1`` where they are neighbours."""
        return f"{self.threads.per_row * self.threads.apart}, {self.threads.apart}"

    def join_accumulators(self, sums: Iterable[Accumulation]) -> None:
        """Combine the accumulators of a thread, and then those of the threads that share a row.

        The latter is a loop (REDUCE in `prelude.cu`), in which `s` is a step of a butterfly. For a
        sum of 256 threads, all of one row:

            REDUCE(256, 1) {
            const auto other_25 = exchange(sum_24, s);
            sum_24 = (sum_24 + other_25);
            }
        """
        ready = list(sums)
        super().join_accumulators(ready)
        if ready and not set(self.threads.shared_loops).isdisjoint(bound_axes(ready[0].reduction)):
            self.line(f"REDUCE({self._exchanging()}) {{")
            for each in ready:
                others = tuple(
                    self.declare(value._replace(text=f"exchange({value.text}, s)"), "other")
                    for value in each.total
                )
                self.combiner.update(each.reduction.arg.monoid, each.total, others)
            self.line("}")

    # Scans.

    def cut_of_scans(self, part: NestPart, scans: Sequence[Node]) -> Cut | None:
        """None where threads share a row: `print_scan` of these keeps no totals of blocks. Its sums
        are shorter than a row by the number of threads, as each adds up its neighbours first."""
        cut = super().cut_of_scans(part, scans)
        return None if cut and not part.keys().isdisjoint(self.threads.shared_loops) else cut

    def print_scan(self, node: Node, point: Point) -> None:
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
        if set(self.threads.shared_loops).isdisjoint(along):
            super().print_scan(node, point)
            return
        # The axes inside the shared one are unrolled. All of their points are printed when the
        # first of them is needed, and kept for the others.
        inner = along[along.index(self.threads.shared_loops[0]) + 1 :]
        near = [point | neighbour for neighbour in self.points(inner)]
        monoid = node.arg.monoid
        terms = [tuple(self.value(operand, at) for operand in operands_of(node)) for at in near]
        name = monoid_name(monoid)
        joined = self.combiner.joined(monoid, terms)
        sums = tuple(self.declare(value, name, mutable=True) for value in joined)
        self._print_scan_of_threads(node, sums, self.scans.ends(node, point))
        for at, term in zip(near, terms, strict=True):
            self.combiner.update(monoid, sums, term)
            self.remember(node, at, tuple(self.declare(value, "scan") for value in sums))

    def _print_scan_of_threads(self, node: Node, sums: Values, ends: Values) -> None:
        """Print the loop that leaves in `sums` what all threads before this one came to, from what
        each has come to; and what all have, in `ends`."""
        self.line(f"SCAN({self._exchanging()}) {{")
        before = tuple(
            self.declare(value._replace(text=f"earlier({value.text}, {end.text}, s)"), "before")
            for value, end in zip(sums, ends, strict=True)
        )
        self.line("if (!precedes(s)) continue;")
        combined = self.combiner.combined(node.arg.monoid, before, sums)  # it need not commute
        self.combiner.assign(sums, combined)
        self.line("}")

    # Values.

    def value(self, node: Node, point: Point) -> Value:
        """The loads of a whole tile are printed at once, so that none waits for another: of the
        points that are stored together, or of all points where nothing is stored yet."""
        if node.op is Op.LOAD and not self.is_back_to_back and not self._is_known(node, point):
            for other in self.batch or self.points(free_axes(node)):
                if not self._is_known(node, point | other):
                    self.load_together(node, point | other)
                super().value(node, point | other)
        return super().value(node, point)

    def load_together(self, node: Node, point: Point) -> None:
        """Print and remember a load together with a neighbour, where compilers would not join these
        though one access could read both; do nothing elsewhere."""

    def _is_known(self, node: Node, point: Point) -> bool:
        """Does a variable of an open scope hold `node` at `point`?"""
        return self.key(node, point) in self.scopes[self.home(node)].cache

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

    # Stores.

    def condition_head(self, condition: str) -> str:
        """``HIT(eq_6)`` in a loop over hits, which votes on the condition; else ``if (eq_6)``."""
        if self.hit_loop is not None:
            return f"HIT({condition})"
        return super().condition_head(condition)

    def print_store_line(self, store: Store, line: str) -> None:
        """Print the line of a store, behind conditions where not every thread may do it.

        ``if (THREAD < 1) { p1[a0] = sum_4; }`` where all threads of a row have the value, and
        ``if (a3 == min(a3, (i64)4)) { ... }`` where threads beyond the last row compute it again.
        """
        if self.nest.kernel.parameters[store.parameter].memory == "scratch":
            self.line(line)  # each thread has its own
            return
        by_first = self._is_stored_by_first_thread()
        guard = self.guard
        if by_first and not guard:
            guard = f"if ({self.threads.is_first_in_row}) "
        for axis in self.threads.rows:
            is_moved_into_range = self.index_texts[axis] != self.axis_name(axis)
            if is_moved_into_range:
                guard += f"if ({self.axis_name(axis)} == {self.index_texts[axis]}) "
        if by_first and store.parameter in self.read_parameters:
            self.line("BARRIER;")  # the other threads of the row have read what is overwritten
        self.line(f"{guard}{{ {line} }}" if guard else line)

    def _is_stored_by_first_thread(self) -> bool:
        """Have all threads of a row what is stored here? They do outside of shared loops, but for
        products in tiles, each of whose results one thread has."""
        if self.nest.atom:
            return False
        in_shared_loop = any(axis in self.depth_of for axis in self.threads.shared_loops)
        has_several_threads = self.threads.per_block > self.threads.block_rows
        return self.threads.cooperates and has_several_threads and not in_shared_loop

    # The function.

    def helper_texts(self) -> tuple[str, ...]:
        """The texts below targets/ that the kernel needs besides those of every program."""
        return ()

    def print_kernel(self) -> PrintedKernel:
        """The kernel's function."""
        pointers, scratch = self.arrays()
        body = self.body(self.opening(pointers, scratch))
        head = self.head(pointers, self.threads.per_block, min_blocks=self.min_blocks())
        text = f"{head} {{\n{body}}}"
        return PrintedKernel(text, self.launch(), self.helper_texts())

    def min_blocks(self) -> int | None:
        """How many blocks have to fit into a multiprocessor at least; None if the compiler is to
        choose."""
        return None

    def print_block_function(self) -> PrintedPart:
        """The kernel as a function for some blocks of a launch."""
        pointers, scratch = self.arrays()
        body = self.body(self.opening(pointers, scratch, block="block"))
        arguments = [*(f"POINTER({pointer})" for pointer in pointers), "const u32 block"]
        text = f"INLINE void {self.function}({', '.join(arguments)}) {{\n{body}}}"
        return PrintedPart(text, self.launch(), self.helper_texts(), tuple(pointers))

    def launch(self) -> Launch:
        """How the kernel is launched, but for its arguments."""
        workers = points(self.threads.grid)
        blocks = workers if self.threads.cooperates else ceil(workers / self.threads.per_block)
        return Launch(self.function, blocks, self.threads.per_block, ())

    def head(
        self,
        pointers: list[str],
        threads: int,
        maps: Iterable[str] = (),
        *,
        min_blocks: int | None = None,
    ) -> str:
        """The head of the function: ``KERNEL(64) scan0_64x128(POINTER(const f32, 0), POINTER(f32,
        1) PLACE)``. Arrays beyond the `direct` ones are in a table, and maps of the copy engine
        come last. min_blocks: how many blocks have to fit into a multiprocessor at least; where one
        is enough, its threads may use all registers. None if the compiler is to choose."""
        arguments = [f"POINTER({pointer})" for pointer in pointers[: self.direct]]
        if len(pointers) > self.direct:
            arguments.append(f"TABLE({self.direct})")
        arguments += [f"MAP({name})" for name in maps]
        bounds = f"{threads}" if min_blocks is None else f"{threads}, {min_blocks}"
        return f"KERNEL({bounds}) {self.function}({', '.join(arguments)} PLACE)"

    def opening(self, pointers: list[str], scratch: list[str], block: str = "") -> list[str]:
        """The lines that a kernel begins with: its arrays, which of its workers it is, and its
        indices. block: the number of the block, if that is not the launch's. Of a softmax of 64
        rows, one a block of 64 threads:

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
            lines += self.alignments(pointers)
        lines += scratch
        workers = points(self.threads.grid)
        word = "u32" if workers < 1 << 32 else "u64"  # the type of a worker's number
        macro = "EACH_BLOCK" if self.threads.cooperates else "EACH_THREAD"
        worker = f"{word}, {self.threads.per_block}, {workers}"
        lines.append(f"{macro}_OF({block}, {worker});" if block else f"{macro}({worker});")
        lines += self.indices(self.threads.grid, "worker")
        lines += self.indices(self.threads.rows, self.threads.place_of_row)
        if self.threads.shared_loops:
            place = self.threads.place_in_row
            lines.append(f"const {self.language.index_type} thread_in_row = {place};")
        return lines

    def alignments(self, pointers: list[str]) -> list[str]:
        """Lines that say that arrays are aligned, so that the compiler reads several elements at
        once: ``ALIGNED(const f32, 0, 25600, 25600);``. Of one element nothing is said: it may be
        one of many.

        The last two numbers are the bytes of the array, and of the largest one that is written:
        they decide which arrays stay in the cache longer, as `kept` in `prelude.cu` says.
        """
        parameters = self.nest.kernel.parameters
        largest_written = max(array.nbytes for array in parameters if array.written)
        in_memory = [array for array in parameters if array.memory != "scratch"]
        return [
            f"ALIGNED({pointer}, {array.nbytes}, {largest_written});"
            for pointer, array in zip(pointers, in_memory, strict=True)
            if array.size > 1
        ]

"""GPUs: a program is one translation unit in a C++ without headers, and a launch for each kernel.

What dialects of that language do not share is in preludes, of which `gpu.c` says what they have:
`prelude.cu` is that of CUDA. `threads.py` prints what the threads of a row share.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import ClassVar

from lamina.core.dtypes import SHORT
from lamina.core.exchange import Exchange
from lamina.core.target import Target
from lamina.errors import DeviceError
from lamina.fuse.program import Program
from lamina.ir.kernel import AnyKernel, Collective, SortKernel, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.moves import Plan
from lamina.loops.nest import Axes, Nest, scatter_indices
from lamina.runtime.buffer import Launch
from lamina.runtime.source import Source
from lamina.schedule.gpu.pipelining import is_back_to_back
from lamina.targets.c.operations import CLanguage
from lamina.targets.collectives import collectives_before
from lamina.targets.helpers import HelperText, used_parts
from lamina.targets.language import Point, Value
from lamina.targets.reductions import Work
from lamina.targets.texts import helper_text
from lamina.targets.threads import ThreadPrinter, whole_warps
from lamina.tiles.program import TileProgram
from lamina.tiles.stage import TilePrograms

KEYS = 8  # keys of a thread in a sort; up to twice as many where a block has all of its threads
RUN = 4096  # keys that a block sorts, at most
# Results of a thread that are computed before they are stored, where its registers are full.
FEW = 8
# The same of products back to back, whose sums leave their registers as they become results: the
# loads that these need, such as a bias, do not wait for the stores of the results before.
FEW_BACK_TO_BACK = 32


@dataclass(frozen=True)
class PrintedKernel:
    """The function of a kernel, how to launch it but for its arguments, and the texts below
    targets/ that it needs besides those of every program, each after what it needs."""

    text: str
    launch: Launch
    helper_texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dialect:
    """A dialect of C++ for GPUs.

    preludes         texts of every program, below targets/
    print_kernel     prints a nest, by its name, for a target: by its tile program, if it has one
    has_collectives  whether an engine moves arrays of the device
    """

    preludes: tuple[str, ...]
    print_kernel: Callable[[Nest, str, Target, TileProgram | None], PrintedKernel]
    has_collectives: bool = False


class GpuPrinter(ThreadPrinter):
    """One kernel of a program for a GPU, as the loops of its nest."""

    direct: ClassVar[int] = 1 << 16  # arrays that are arguments; a table has the others' addresses

    def __init__(
        self, nest: Nest, name: str, target: Target, language: CLanguage | None = None
    ) -> None:
        # The texts of GPUs have no functions out of line.
        super().__init__(nest, name, target, language or CLanguage(max_inlined=inf))
        # One product fills two tiles. Of more, each takes the results of the one before, which
        # stay in registers.
        self.is_back_to_back = bool(nest.atom) and is_back_to_back(nest)
        if nest.atom or self.keeps_row:
            self.batch_points = FEW_BACK_TO_BACK if self.is_back_to_back else FEW
        # The loop whose iterations lanes vote on, while stores inside it are printed (see `loops`).
        self.hit_loop: Node | None = None

    # Loops of few hits.

    def loops(self, work: Work) -> None:
        """Loops without sums may be one of few hits (EACH_HIT in `gpu.c`): lanes vote on which
        iterations store. Loops with sums run every iteration: each adds."""
        outside = self.hit_loop
        self.hit_loop = None if work.sums else self._find_hit_loop(work.axes)
        super().loops(work)
        self.hit_loop = outside

    def loop(self, axis: Node, name: str, first: int | str, end: int | str) -> str:
        """The head of a loop: ``EACH_HIT(i64, column, 1000) {`` if lanes vote on iterations."""
        if axis is not self.hit_loop:
            return super().loop(axis, name, first, end)
        # EACH_HIT counts from 0. Other starts are those of loops in blocks, which have sums or
        # scans, and of a last iteration that threads share.
        assert first == 0
        return f"EACH_HIT({self.index}, {name}, {end}) {{"

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
        if kernel.stores[0].atomic:  # its rows are the updates
            return None
        deciding = free_axes(kernel.stores[0].condition)
        lane_axes = self.grid[-1:]  # neighbouring lanes are neighbours along it
        is_same_for_all_lanes = deciding.isdisjoint(lane_axes)
        if not (is_same_for_all_lanes and self._fills_warps(lane_axes)):
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
        return is_even and points(axes) % self.target.warp == 0

    def where(self, condition: str) -> str:
        """``HIT(eq_6)`` in a loop over hits, which votes on the condition; else ``if (eq_6)``."""
        return f"HIT({condition})" if self.hit_loop is not None else super().where(condition)

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

    # The function.

    def helper_texts(self) -> tuple[str, ...]:
        """The texts below targets/ that the kernel needs besides those of every program."""
        return ()

    def print_kernel(self) -> PrintedKernel:
        """The kernel's function."""
        workers = points(self.grid)
        blocks = workers if self.cooperates else ceil(workers / self.threads)
        pointers, scratch = self.arrays()
        body = self.body(self._opening(pointers, scratch, workers))
        text = f"{self.head(pointers, self.threads)} {{\n{body}}}"
        launch = Launch(self.function, blocks, self.threads, ())
        return PrintedKernel(text, launch, self.helper_texts())

    def head(
        self,
        pointers: list[str],
        threads: int,
        maps: Iterable[str] = (),
        *,
        has_all_registers: bool = False,
    ) -> str:
        """The head of the function: ``KERNEL(64) scan0_64x128(POINTER(const f32, 0), POINTER(f32,
        1) PLACE)``. Arrays beyond the `direct` ones are in a table, and maps of the copy engine
        come last. has_all_registers: may a block use all of its multiprocessor?"""
        arguments = [f"POINTER({pointer})" for pointer in pointers[: self.direct]]
        if len(pointers) > self.direct:
            arguments.append(f"TABLE({self.direct})")
        arguments += [f"MAP({name})" for name in maps]
        # The second bound is how many blocks have to fit into a multiprocessor at least: where one
        # is enough, its threads may use all registers.
        bounds = f"{threads}, 1" if has_all_registers else f"{threads}"
        return f"KERNEL({bounds}) {self.function}({', '.join(arguments)} PLACE)"

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
            lines += self.alignments(pointers)
        lines += scratch
        word = "u32" if workers < 1 << 32 else "u64"  # the type of a worker's number
        macro = "EACH_BLOCK" if self.cooperates else "EACH_THREAD"
        lines.append(f"{macro}({word}, {self.threads}, {workers});")
        lines += self.indices(self.grid, "worker")
        of_row = f"THREAD / {self.row_threads}" if self.has_neighbours else "THREAD"
        lines += self.indices(self.rows_inside, of_row)
        if self.shared_loops:
            in_row = f"% {self.row_threads}" if self.has_neighbours else f"/ {self.block_rows}"
            lines.append(f"const {self.index} thread_in_row = THREAD {in_row};")
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


def print_program(
    dialect: Dialect, target: Target, program: Program,
    plans: Mapping[AnyKernel, Plan], tiles: TilePrograms,
) -> tuple[Source, tuple[Launch, ...]]:  # fmt: skip
    """The translation unit of a program in a dialect, and its launches."""
    kernels: dict[str, str] = {}
    launch_of: dict[AnyKernel, Launch] = {}  # without arguments
    kernel_texts: dict[str, None] = {}  # each once, in the order in which kernels need them
    sort_texts: tuple[str, ...] = ()
    for kernel, (name, _, nest) in plans.items():
        if isinstance(nest, SortKernel):
            kernels[name], launch_of[kernel] = _print_sort(nest, name, target.warp)
            sort_texts = ("sorts.c",)
        elif isinstance(nest, Collective):
            launch_of[kernel] = Launch(name, 0, 0, ())
        else:
            printed = dialect.print_kernel(nest, name, target, tiles.get(kernel))
            kernels[name], launch_of[kernel] = printed.text, printed.launch
            kernel_texts |= dict.fromkeys(printed.helper_texts)
    launches = []
    exchanges: list[Exchange] = []
    for launch, after in zip(program.launches, collectives_before(program), strict=True):
        arguments = tuple(program.location(slot) for slot in launch.slots)
        ready = launch_of[launch.kernel]._replace(arguments=arguments, after=after)
        if isinstance(launch.kernel, Collective):
            ready = ready._replace(exchange=len(exchanges))
            exchanges.append(launch.kernel.exchange)
        launches.append(ready)
    if exchanges and not dialect.has_collectives:
        raise DeviceError(f"{exchanges[0]}: no engine moves arrays of this device: use the CPU")
    texts = (*dialect.preludes, *kernel_texts, "c/arithmetic.c", "gpu.c", *sort_texts)
    helpers = used_parts([HelperText(helper_text(text)) for text in texts], kernels.values())
    return Source(helpers, kernels, exchanges=tuple(exchanges)), tuple(launches)


def _print_sort(sort: SortKernel, name: str, warp: int) -> tuple[str, Launch]:
    """A call of the macro of `sorts.c` that is a sort, or one of the three steps of a long one.

    Rows of 1000 keys: 128 threads with 8 keys each. Rows of 10000: 3 blocks of 256 threads with 16.
    """
    threads = whole_warps(ceil(sort.length / KEYS), RUN // (2 * KEYS), warp)
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

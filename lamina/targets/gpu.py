"""GPUs: a program is one translation unit in a C++ without headers, and a launch for each step.

What dialects of that language do not share is in preludes, of which `gpu.c` says what they have:
`prelude.cu` is that of CUDA. `gpu_printer.py` prints a kernel.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from lamina.core.dtypes import SHORT
from lamina.core.target import Target
from lamina.errors import DeviceError
from lamina.fuse.launch import Launch
from lamina.fuse.program import Program
from lamina.ir.kernel import AnyKernel, BinKernel, Collective, SortKernel
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest
from lamina.runtime.buffer import Launch as GridLaunch
from lamina.runtime.source import Source
from lamina.targets.collectives import collectives_before
from lamina.targets.gpu_printer import PrintedKernel, PrintedPart
from lamina.targets.helpers import HelperText, used_by_each
from lamina.targets.horizontal import kernel_side_by_side
from lamina.targets.texts import helper_text
from lamina.targets.threads import whole_warps
from lamina.tiles.program import TileProgram
from lamina.tiles.stage import TilePrograms

KEYS = 8  # keys of a thread in a sort; up to twice as many where a block has all of its threads
RUN = 4096  # keys that a block sorts, at most
SHORT_ROW_THREADS = 256  # of a block that sorts short rows, each with a key, at most
SORTS, BINS = "sorts.c", "cuda/bins.cu"  # texts of whole kernels, which need all others


@dataclass(frozen=True)
class GpuPlatform:
    """By what GPUs of one kind are programmed: CUDA or Metal, each with its form of C++.

    preludes              texts of every program, below targets/
    print_kernel          prints a nest, by its name, for a target: by its tile program, if it has
                          one
    print_block_function  prints a nest for some blocks of a launch; None where each kernel has a
                          launch of its own
    print_bins            prints a kernel of a BIN_SUM; None where no graph has any
    has_collectives       whether an engine moves arrays of the device
    """

    preludes: tuple[str, ...]
    print_kernel: Callable[[Nest, str, Target, TileProgram | None], PrintedKernel]
    print_block_function: Callable[[Nest, str, Target], PrintedPart] | None = None
    print_bins: Callable[[BinKernel, str], PrintedKernel] | None = None
    has_collectives: bool = False


def print_program(
    platform: GpuPlatform, target: Target, program: Program,
    plans: Mapping[AnyKernel, Plan], tiles: TilePrograms,
) -> tuple[Source, tuple[GridLaunch, ...]]:  # fmt: skip
    """The translation unit of a program for a platform, and its launches. Raises DeviceError where
    no engine runs the program's collectives."""
    collectives = [step.kernel for step in program.launches if isinstance(step.kernel, Collective)]
    if collectives and not platform.has_collectives:
        exchange = collectives[0].exchange
        raise DeviceError(f"{exchange}: no engine moves arrays of this device: use the CPU")
    printed = _Printed(platform, target, plans, tiles)
    for step in program.steps:
        printed.add(step)
    source = _source(platform, printed.kernels.values())
    exchanges = tuple(collective.exchange for collective in collectives)
    launches = _launches(program, plans, printed.kernels)
    return replace(source, exchanges=exchanges), launches


@dataclass
class _Printed:
    """The kernels of a program that are printed so far. kernels: by the kernels of their steps"""

    platform: GpuPlatform
    target: Target
    plans: Mapping[AnyKernel, Plan]
    tiles: TilePrograms
    kernels: dict[tuple[AnyKernel, ...], PrintedKernel] = field(default_factory=dict)
    parts: dict[AnyKernel, PrintedPart] = field(default_factory=dict)

    def add(self, step: Sequence[Launch]) -> None:
        """Print what runs a step, unless an equal one did before; nothing runs a collective."""
        key = kernels_of(step)
        if key in self.kernels or isinstance(key[0], Collective):
            return
        if len(key) == 1:
            self.kernels[key] = self._kernel(key[0])
        else:
            self.kernels[key] = kernel_side_by_side([self._part(kernel) for kernel in key])

    def _kernel(self, kernel: AnyKernel) -> PrintedKernel:
        name, _, nest = self.plans[kernel]
        if isinstance(nest, SortKernel):
            return _print_sort(nest, name, self.target.warp)
        if isinstance(nest, BinKernel):
            assert self.platform.print_bins is not None
            return self.platform.print_bins(nest, name)
        assert isinstance(nest, Nest)
        return self.platform.print_kernel(nest, name, self.target, self.tiles.get(kernel))

    def _part(self, kernel: AnyKernel) -> PrintedPart:
        if kernel not in self.parts:
            name, _, nest = self.plans[kernel]
            assert isinstance(nest, Nest)
            assert self.platform.print_block_function is not None
            self.parts[kernel] = self.platform.print_block_function(nest, name, self.target)
        return self.parts[kernel]


def kernels_of(step: Sequence[Launch]) -> tuple[AnyKernel, ...]:
    """The kernels of a step, in the order of its launches."""
    return tuple(launch.kernel for launch in step)


def _source(platform: GpuPlatform, printed: Collection[PrintedKernel]) -> Source:
    """The texts of kernels, and what they use of the texts in front of them."""
    of_kernels = dict.fromkeys(text for each in printed for text in each.helper_texts)
    last = [text for text in of_kernels if text in (SORTS, BINS)]
    others = [text for text in of_kernels if text not in last]
    paths = (*platform.preludes, *others, "c/arithmetic.c", "gpu.c", *last)
    texts = [HelperText(helper_text(path)) for path in paths]
    kernels = {each.launch.name: each.text for each in printed}
    prelude, needed = used_by_each(texts, kernels)
    return Source(prelude, kernels, needed=needed)


def _launches(
    program: Program,
    plans: Mapping[AnyKernel, Plan],
    printed: Mapping[tuple[AnyKernel, ...], PrintedKernel],
) -> tuple[GridLaunch, ...]:
    """The launch of each step of a program with its arguments, and what it waits for."""
    launches: list[GridLaunch] = []
    exchanges = 0  # so far
    before = iter(collectives_before(program))
    for step in program.steps:
        kernels = kernels_of(step)
        if isinstance(kernels[0], Collective):
            launch = GridLaunch(plans[kernels[0]].name, 0, 0, (), exchange=exchanges)
            exchanges += 1
        else:
            launch = printed[kernels].launch
        views = [view for kernel_launch in step for view in kernel_launch.arguments]
        arguments = tuple(map(program.location, views))
        after = max(next(before) for _ in step)
        launches.append(launch._replace(arguments=arguments, after=after))
    return tuple(launches)


def _print_sort(sort: SortKernel, name: str, warp: int) -> PrintedKernel:
    """A call of the macro of `sorts.c` that is a sort, or one of the three steps of a long one.

    Rows of 48 keys: 256 threads for 5 rows. Rows of 1000 keys: 128 threads with 8 keys each. Rows
    of 10000: 3 blocks of 256 threads with 16.
    """
    if sort.length <= sort.short_row:
        rows = SHORT_ROW_THREADS // sort.length  # of a block
        threads = whole_warps(rows * sort.length, SHORT_ROW_THREADS, warp)
        return _sort_call("SORT_SHORT", sort, name, rows, ceil(sort.rows / rows), threads)
    threads = whole_warps(ceil(sort.length / KEYS), RUN // (2 * KEYS), warp)
    keys = min(ceil(sort.length / threads), 2 * KEYS)  # of a thread
    blocks = ceil(sort.length / (keys * threads))  # of a row
    macro = "SORT"
    if blocks > 1:
        # The three steps for each byte are kernels in the order count, sum, move, and `left` is how
        # many kernels come after: 2, 1, 0 for the last byte, 5, 4, 3 for the one before.
        macro += ("_MOVE", "_SUM", "_COUNT")[sort.left % 3]
    return _sort_call(macro, sort, name, keys, sort.rows * blocks, threads)


def _sort_call(
    macro: str, sort: SortKernel, name: str, of_block: int, blocks: int, threads: int
) -> PrintedKernel:
    """The call of a macro of `sorts.c`. of_block: rows of a block, or keys of each thread"""
    dtype = SHORT[sort.parameters[0].dtype]
    sizes = f"{sort.rows}, {sort.length}, {sort.left}, {of_block}, {threads}"
    launch = GridLaunch(name, blocks, threads, ())
    return PrintedKernel(f"{macro}({name}, {dtype}, {sizes})", launch, (SORTS,))

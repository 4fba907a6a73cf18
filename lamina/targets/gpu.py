"""GPUs: a program is one translation unit in a C++ without headers, and a launch for each kernel.

What dialects of that language do not share is in preludes, of which `gpu.c` says what they have:
`prelude.cu` is that of CUDA. `gpu_printer.py` prints a kernel.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import ceil

from lamina.core.dtypes import SHORT
from lamina.core.target import Target
from lamina.errors import DeviceError
from lamina.fuse.program import Program
from lamina.ir.kernel import AnyKernel, Collective, SortKernel
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest
from lamina.runtime.buffer import Launch
from lamina.runtime.source import Source
from lamina.targets.collectives import collectives_before
from lamina.targets.gpu_printer import PrintedKernel
from lamina.targets.helpers import HelperText, used_fragments
from lamina.targets.texts import helper_text
from lamina.targets.threads import whole_warps
from lamina.tiles.program import TileProgram
from lamina.tiles.stage import TilePrograms

KEYS = 8  # keys of a thread in a sort; up to twice as many where a block has all of its threads
RUN = 4096  # keys that a block sorts, at most
SORTS = "sorts.c"  # the text of sorts, which needs all others


@dataclass(frozen=True)
class GpuPlatform:
    """By what GPUs of one kind are programmed: CUDA or Metal, each with its form of C++.

    preludes         texts of every program, below targets/
    print_kernel     prints a nest, by its name, for a target: by its tile program, if it has one
    has_collectives  whether an engine moves arrays of the device
    """

    preludes: tuple[str, ...]
    print_kernel: Callable[[Nest, str, Target, TileProgram | None], PrintedKernel]
    has_collectives: bool = False


def print_program(
    platform: GpuPlatform, target: Target, program: Program,
    plans: Mapping[AnyKernel, Plan], tiles: TilePrograms,
) -> tuple[Source, tuple[Launch, ...]]:  # fmt: skip
    """The translation unit of a program for a platform, and its launches. Raises DeviceError where
    no engine runs the program's collectives."""
    collectives = [step.kernel for step in program.launches if isinstance(step.kernel, Collective)]
    if collectives and not platform.has_collectives:
        exchange = collectives[0].exchange
        raise DeviceError(f"{exchange}: no engine moves arrays of this device: use the CPU")
    printed: dict[AnyKernel, PrintedKernel] = {}
    for kernel, (name, _, nest) in plans.items():
        if isinstance(nest, SortKernel):
            printed[kernel] = _print_sort(nest, name, target.warp)
        elif not isinstance(nest, Collective):
            printed[kernel] = platform.print_kernel(nest, name, target, tiles.get(kernel))
    kernels = {plans[kernel].name: each.text for kernel, each in printed.items()}
    helpers = _helpers(platform, printed.values())
    exchanges = tuple(collective.exchange for collective in collectives)
    return Source(helpers, kernels, exchanges=exchanges), _launches(program, plans, printed)


def _helpers(platform: GpuPlatform, printed: Collection[PrintedKernel]) -> str:
    """What kernels use of the texts in front of them."""
    of_kernels = dict.fromkeys(text for each in printed for text in each.helper_texts)
    sorts = [text for text in of_kernels if text == SORTS]
    others = [text for text in of_kernels if text != SORTS]
    paths = (*platform.preludes, *others, "c/arithmetic.c", "gpu.c", *sorts)
    texts = [HelperText(helper_text(path)) for path in paths]
    return used_fragments(texts, [each.text for each in printed])


def _launches(
    program: Program,
    plans: Mapping[AnyKernel, Plan],
    printed: Mapping[AnyKernel, PrintedKernel],
) -> tuple[Launch, ...]:
    """The launches of a program with their arguments, and what they wait for."""
    launches: list[Launch] = []
    exchanges = 0  # so far
    for step, after in zip(program.launches, collectives_before(program), strict=True):
        if isinstance(step.kernel, Collective):
            launch = Launch(plans[step.kernel].name, 0, 0, (), exchange=exchanges)
            exchanges += 1
        else:
            launch = printed[step.kernel].launch
        arguments = tuple(program.location(view) for view in step.arguments)
        launches.append(launch._replace(arguments=arguments, after=after))
    return tuple(launches)


def _print_sort(sort: SortKernel, name: str, warp: int) -> PrintedKernel:
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
    launch = Launch(name, sort.rows * blocks, threads, ())
    return PrintedKernel(f"{macro}({name}, {dtype}, {sizes})", launch, (SORTS,))

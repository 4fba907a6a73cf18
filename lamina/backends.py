"""The backends: what the passes ask of each kind of device, and who answers.

`BACKENDS` is the table; `lamina/pipeline.py` has the passes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lamina.core.options import Options
from lamina.core.rates import COMMON_CPU
from lamina.core.recent import cached
from lamina.core.target import Target
from lamina.errors import FormatError
from lamina.fuse.program import Program
from lamina.fuse.target import FusionTarget
from lamina.graph.exact_bytes import bytes_as_floats
from lamina.graph.folded_products import folded_products
from lamina.graph.joined_scatters import joined_scatters
from lamina.graph.log_sums import log_sums_as_recurrences
from lamina.graph.nccl_types import as_nccl_combines
from lamina.graph.rewrite import Rule
from lamina.graph.short_orders import short_orders, shortest_orders
from lamina.graph.short_rows import short_rows
from lamina.graph.sort_axes import sorts_of_rows, whole_sorts
from lamina.graph.split_products import cached_products_in_parts, products_apart
from lamina.graph.split_reductions import (
    columns_in_parts,
    gradients_in_parts,
    long_columns_in_parts,
    long_products_in_parts,
    short_lines_last,
    uneven_in_parts,
)
from lamina.graph.split_scans import scan_in_parts
from lamina.graph.steps_in_rows import steps_in_rows
from lamina.graph.windows_in_rows import windows_in_rows
from lamina.ir.kernel import AnyKernel, Kernel
from lamina.loops.moves import Plan, Schedule, apply
from lamina.loops.nest import Nest
from lamina.loops.verify import verify_nest
from lamina.runtime.buffer import Launch as GpuLaunch
from lamina.runtime.cpu import library_of
from lamina.runtime.devices import target_of
from lamina.runtime.metal import no_compiler
from lamina.runtime.nvrtc import build as cubins
from lamina.runtime.source import Source
from lamina.schedule.cost import KernelTime, joined_seconds, predict_time
from lamina.schedule.cpu.heuristic import schedule_for_cpu
from lamina.schedule.cpu.register_tiles import REGISTER_TILES
from lamina.schedule.gpu.atoms import MAX_TILE_RESULTS
from lamina.schedule.gpu.attention import back_to_back_on
from lamina.schedule.gpu.gathered_windows import gathered_windows
from lamina.schedule.gpu.loops import schedule_for_gpu
from lamina.schedule.gpu.parts import tiled_products_in_parts, untiled_products_in_parts
from lamina.schedule.gpu.scatters import scatters
from lamina.schedule.knobs import CpuKnobs, GpuKnobs
from lamina.targets import gpu
from lamina.targets.c import program as c
from lamina.targets.cuda import program as cuda
from lamina.targets.legalize import legalize
from lamina.targets.metal import printer as metal
from lamina.tiles.stage import TilePrograms, with_pipelining

Printed = tuple[Source, tuple[GpuLaunch, ...]]


@dataclass(frozen=True)
class Backend:
    """What differs from one kind of device to another.

    fusion_target: what fusion asks of the device. graph_rules: the rules of the pass "suit_device"
    that it needs besides those of all devices; each is a subpass of it, and the first that fits a
    node applies. knobs: the numbers of
    the heuristic. schedule: the heuristic: the moves for a kernel, from the options and such knobs.
    print: from a program, its plans, its tile programs and the options to source, with the launches
    where the source does not hold them. compile: the binaries of a source by
    name, for an architecture, without loading them. `lamina.compiled` has what differs once a
    program is compiled.
    """

    fusion_target: Callable[[Options], FusionTarget]
    graph_rules: Callable[[Options], Sequence[Rule]]
    knobs: CpuKnobs | GpuKnobs
    schedule: Callable[[Kernel, Options, Any], Schedule]
    print: Callable[[Program, Mapping[AnyKernel, Plan], TilePrograms, Options], Printed]
    compile: Callable[[Source, str, Options], dict[str, bytes]]


@cached(256)
def by_heuristic(
    backend: Backend, kernel: Kernel, options: Options, target: Target
) -> tuple[Schedule, Nest]:
    """The heuristic's moves and their nest, kept as fusion asks for those of kernels that it may
    form. `target` is that of the options, which can change with a compiler: it is part of the key
    alone."""
    moves = backend.schedule(kernel, options, backend.knobs)
    return moves, apply(kernel, moves)


def by_hand(kernel: Kernel, name: str, moves: Schedule, target: Target) -> tuple[Schedule, Nest]:
    """The moves that the user wrote, with what they leave open, and their nest, which must keep
    what the heuristic's keep. Raises FormatError, naming the kernel."""
    try:
        nest = apply(kernel, moves)
        verify_nest(nest)
        return with_pipelining(moves, nest, target)
    except FormatError as error:
        raise FormatError(f"kernel {name}: {error.message}") from None


ANY_NUMBER = 1 << 62  # more results than an array has
# Kernels side by side in one launch: the text of each is compiled again in every launch that it is
# a part of, and all parts have the registers of the largest one. An estimate.
MAX_HORIZONTAL = 8

# Elements of a row that lie apart, which a block of a GPU passes over several times: a softmax of
# (1000, 8192) elements of float32 over the first axis took an H200 28 us as one kernel, and 33 as
# two. Of small arrays, which the second-level cache holds, two kernels may be faster: a norm over
# the channels of (16, 384, 784) of bfloat16 took 18.6 us, and 16.6 as two.
MAX_APART = 1 << 10
# In additions, an estimate: a block of a GPU runs as many in 5 us, about two launches. Ten
# functions of (1, 48406) elements and their gradients, beside a reduction, are predicted 63 us in
# one block, and 2 apart from it.
MAX_ROW_WORK = 1 << 20

OF_GPUS = FusionTarget(
    forms_row_blocks=False,
    lanes_are_neighbours=False,
    scans_lack_vectors=False,
    stores_scattered_updates=False,
    stores_scalars_of_vectors=False,
    stores_read_slices=False,
    overlaps_collectives=True,
    min_shared_cost=32,
    max_apart=MAX_APART,
    max_row_work=MAX_ROW_WORK,
    sort_run=gpu.RUN,
    row_pitch=128,
)


def _fusion_target_of_cuda(options: Options) -> FusionTarget:
    """Products are in tiles, which update their results in memory where each multiprocessor gets a
    large one."""
    target = target_of(options)
    has_tensor_cores = "tensor_cores" in target.engines
    return replace(
        OF_GPUS,
        tiled_products=True,
        gains_by_recomputing=partial(back_to_back_on, target=target) if has_tensor_cores else None,
        min_updating_results=target.multiprocessors * MAX_TILE_RESULTS,
        max_horizontal=MAX_HORIZONTAL,
    )


def _graph_rules_of_cuda(options: Options) -> Sequence[Rule]:
    """Products of rounded factors take a fraction of the time, so their parts stay long."""
    target = target_of(options)
    has_tensor_cores = "tensor_cores" in target.engines
    rounds_factors = options.tf32
    factors = (bytes_as_floats, folded_products, gathered_windows) if has_tensor_cores else ()
    tiled_parts = () if rounds_factors else (tiled_products_in_parts(target.multiprocessors),)
    sums = (
        products_apart, untiled_products_in_parts, short_lines_last, columns_in_parts,
        *tiled_parts, long_products_in_parts,
    )  # fmt: skip
    sorts = (whole_sorts, short_orders)
    return *factors, *sums, scatters(target), scan_in_parts(), *sorts, as_nccl_combines


def _graph_rules_of_metal(options: Options) -> Sequence[Rule]:
    sums = (
        untiled_products_in_parts, short_lines_last, columns_in_parts, long_products_in_parts,
    )  # fmt: skip
    return *sums, scan_in_parts(), whole_sorts


def _graph_rules_of_cpu(options: Options) -> Sequence[Rule]:
    cores = target_of(options).multiprocessors
    sums = (
        cached_products_in_parts, gradients_in_parts, long_columns_in_parts, short_rows,
        steps_in_rows, uneven_in_parts, windows_in_rows,
    )  # fmt: skip
    scans = (log_sums_as_recurrences, scan_in_parts(cores))
    sorts = (shortest_orders, sorts_of_rows)
    return *sums, joined_scatters, *scans, *sorts


def _fusion_target_of_cpu(options: Options) -> FusionTarget:
    """Row blocks are formed where `COMMON_CPU` gains by them."""
    target = target_of(options)
    flips_bytes = "unsigned_by_signed" in target.engines
    # Of the vectors that there are, those of 64 bytes alone are loaded under a mask of lanes. With
    # others the 9 copies of a depthwise convolution are too many; 6 is an estimate.
    max_padded_copies = 16 if target.vector_bytes == 64 else 6

    def cost(kernels: Sequence[Kernel], around: int) -> float:
        return joined_seconds([_common_time(kernel, options, around) for kernel in kernels])

    return FusionTarget(
        flips_bytes=flips_bytes, has_byte_tiles="byte_tiles" in target.engines,
        max_padded_copies=max_padded_copies, cost=cost,
        min_updating_results=ANY_NUMBER, packs_constants=target.vector_bytes in REGISTER_TILES,
    )  # fmt: skip


@cached(4096)
def _common_time(kernel: Kernel, options: Options, around: int) -> KernelTime:
    """How long a kernel, scheduled by the heuristic, takes on COMMON_CPU."""
    target = target_of(options)
    _, nest = by_heuristic(CPU, kernel, options, target)
    return predict_time(legalize(nest), target, COMMON_CPU, around)


CPU = Backend(
    fusion_target=_fusion_target_of_cpu,
    graph_rules=_graph_rules_of_cpu,
    knobs=CpuKnobs(),
    schedule=lambda kernel, options, knobs: schedule_for_cpu(kernel, target_of(options), knobs),
    print=lambda program, plans, tiles, options: (c.print_program(program, plans), ()),
    compile=lambda source, arch, options: {
        "program": library_of(source.text, options, source.units)
    },
)  # fmt: skip
CUDA = Backend(
    fusion_target=_fusion_target_of_cuda,
    graph_rules=_graph_rules_of_cuda,
    knobs=GpuKnobs(),
    schedule=lambda kernel, options, knobs:
        schedule_for_gpu(kernel, target_of(options), "tf32" if options.tf32 else "f32", knobs),
    print=lambda program, plans, tiles, options:
        gpu.print_program(cuda.CUDA, target_of(options), program, plans, tiles),
    compile=cubins,
)  # fmt: skip
METAL = Backend(
    fusion_target=lambda options: OF_GPUS,
    graph_rules=_graph_rules_of_metal,
    knobs=GpuKnobs(),
    schedule=lambda kernel, options, knobs:
        schedule_for_gpu(kernel, target_of(options), "", knobs),
    print=lambda program, plans, tiles, options:
        gpu.print_program(metal.METAL, target_of(options), program, plans, tiles),
    compile=no_compiler,
)  # fmt: skip
BACKENDS = {"cpu": CPU, "interp": CPU, "cuda": CUDA, "metal": METAL}


def backend(options: Options) -> Backend:
    """That of the device of `options`; the interpreter's programs are the CPU's."""
    return BACKENDS[options.kind]

"""Kernels side by side in one launch of a GPU: some of its blocks run one kernel, others another.

Fusion says which kernels need nothing of each other (`lamina.fuse.horizontal`). Those whose blocks
have the same number of threads are functions, and one kernel calls them: the first blocks run the
first one, the next blocks the second. Products of 4096 and of 1024 columns by the same row:

    namespace parts_of_reduce0_4096__reduce1_1024 {
    INLINE void reduce0_4096(POINTER(const u16, 0), ..., const u32 block) { ... }
    INLINE void reduce1_1024(POINTER(const u16, 0), ..., const u32 block) { ... }
    }
    KERNEL(256) reduce0_4096__reduce1_1024(POINTER(const u16, 0), ... PLACE) {
        using namespace parts_of_reduce0_4096__reduce1_1024;
        if (BLOCK < 2048) return reduce0_4096(p0, p1, p2, BLOCK - 0);
        return reduce1_1024(p3, p4, p5, BLOCK - 2048);
    }

A product in tiles, and a sort, have a launch of their own: their blocks share memory by plans that
are for the whole kernel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lamina.core.target import Target
from lamina.fuse.launch import Launch
from lamina.fuse.program import Program
from lamina.ir.kernel import AnyKernel, free_axes, points
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest
from lamina.runtime.buffer import Launch as GridLaunch
from lamina.targets.gpu_printer import PrintedKernel, PrintedPart
from lamina.targets.threads import Threads, without_vectors
from lamina.tiles.stage import TilePrograms

BETWEEN_NAMES = "__"  # in the name of a launch; the name of a kernel has no two underscores
# Bytes of shared memory that exchanges of all parts may have: each part has memory of its own, and
# a compiler for GPUs of sm_80 gives a kernel 48 KiB at most.
MAX_SHARED_BYTES = 32 << 10
MAX_ITEM_BYTES = 8  # of what threads exchange


@dataclass
class _Together:
    """Launches that are one, and the bytes that their exchanges share."""

    launches: list[Launch]
    shared_bytes: int


@dataclass(frozen=True)
class LaunchSplitter:
    """Decides which kernels of a step are launched together."""

    plans: Mapping[AnyKernel, Plan]
    tiles: TilePrograms
    target: Target

    def split(self, program: Program) -> Program:
        """The program with a step for each launch: kernels of a step stay in one if their blocks
        have the same number of threads, and memory for what these exchange."""
        steps = [part for step in program.steps for part in self._parts(step)]
        return replace(program, steps=tuple(steps))

    def _parts(self, step: Sequence[Launch]) -> list[tuple[Launch, ...]]:
        if len(step) == 1:
            return [tuple(step)]
        alone: list[tuple[Launch, ...]] = []
        together: list[_Together] = []
        last: dict[int, _Together] = {}  # by the threads of a block
        for launch in step:
            nest = self._loops_of(launch.kernel)
            if nest is None:
                alone.append((launch,))
                continue
            threads = Threads(nest, self.target)
            shared_bytes = _exchanged_bytes(nest, threads)
            group = last.get(threads.per_block)
            if group is None or group.shared_bytes + shared_bytes > MAX_SHARED_BYTES:
                group = last[threads.per_block] = _Together([], 0)
                together.append(group)
            group.launches.append(launch)
            group.shared_bytes += shared_bytes
        return [*alone, *(tuple(group.launches) for group in together)]

    def _loops_of(self, kernel: AnyKernel) -> Nest | None:
        """The loops of a kernel; None of one that has a launch of its own."""
        nest = self.plans[kernel].nest
        if not isinstance(nest, Nest) or kernel in self.tiles or nest.atom or nest.private:
            return None
        return without_vectors(nest)


def _exchanged_bytes(nest: Nest, threads: Threads) -> int:
    """Bytes of shared memory for the exchanges of a kernel, at most: an element for each warp and
    each of the rows side by side in it, for each result of a thread, and twice that for scans."""
    if not threads.shared_loops:
        return 0
    unrolled = frozenset(axis for axis in nest.order if nest.bound(axis) == "unroll")
    results = sum(points(unrolled & free_axes(node)) for node in nest.kernel.with_loops)
    elements = threads.per_block // 32 * min(threads.apart, 32)
    return 2 * results * elements * MAX_ITEM_BYTES


def kernel_side_by_side(parts: Sequence[PrintedPart]) -> PrintedKernel:
    """The kernel whose first blocks run the first part, and the next blocks the second."""
    name = BETWEEN_NAMES.join(part.launch.name for part in parts)
    functions = dict.fromkeys(part.text for part in parts)  # equal ones once
    pointers: list[str] = []
    calls: list[str] = []
    first_block = 0
    for number, part in enumerate(parts):
        names = [f"p{len(pointers) + place}" for place in range(len(part.pointers))]
        for pointer in part.pointers:
            kind, _ = pointer.split(", ")
            pointers.append(f"{kind}, {len(pointers)}")
        call = f"return {part.launch.name}({', '.join(names)}, BLOCK - {first_block});"
        first_block += part.launch.blocks
        is_last = number == len(parts) - 1
        calls.append(call if is_last else f"if (BLOCK < {first_block}) {call}")
    threads = parts[0].launch.threads
    arguments = ", ".join(f"POINTER({pointer})" for pointer in pointers)
    namespace = f"parts_of_{name}"  # several launches may have a part, and be in one text
    body = "".join(f"    {line}\n" for line in (f"using namespace {namespace};", *calls))
    head = f"KERNEL({threads}) {name}({arguments} PLACE)"
    text = "\n".join([f"namespace {namespace} {{", *functions, "}", f"{head} {{\n{body}}}"])
    helper_texts = dict.fromkeys(helper for part in parts for helper in part.helper_texts)
    launch = GridLaunch(name, first_block, threads, ())
    return PrintedKernel(text, launch, tuple(helper_texts))


def text_with(kernels: Mapping[str, str], name: str) -> str:
    """The text of the kernel of a name, or of the first launch that it is a part of; "" if there is
    neither, as of a collective. kernels: texts by name"""
    if name in kernels:
        return kernels[name]
    with_part = (
        text for launched, text in kernels.items() if name in launched.split(BETWEEN_NAMES)
    )
    return next(with_part, "")

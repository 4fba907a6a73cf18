"""Kernels side by side in one launch of a GPU: some of its blocks run one kernel, others another.

Fusion says which kernels need nothing of each other (`lamina.fuse.horizontal`). Those whose blocks
have as many threads are functions of one kernel, which chooses by the number of the block. Products
of 4096 and of 1024 columns by the same row:

    INLINE void reduce0_4096(POINTER(const u16, 0), ..., const u32 block) { ... }
    INLINE void reduce1_1024(POINTER(const u16, 0), ..., const u32 block) { ... }
    KERNEL(256) reduce0_4096__reduce1_1024(POINTER(const u16, 0), ... PLACE) {
        if (BLOCK < 2048) return reduce0_4096(p0, p1, p2, BLOCK - 0);
        return reduce1_1024(p3, p4, p5, BLOCK - 2048);
    }

A product in tiles, and a sort, have a launch of their own: their blocks share memory by plans that
are for the whole kernel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lamina.core.target import Target
from lamina.fuse.launch import Launch as KernelLaunch
from lamina.fuse.program import Program
from lamina.ir.kernel import AnyKernel
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest
from lamina.runtime.buffer import Launch
from lamina.targets.gpu_printer import PrintedKernel, PrintedPart
from lamina.targets.threads import Threads, without_vectors
from lamina.tiles.stage import TilePrograms

BETWEEN_NAMES = "__"  # in the name of a launch; the name of a kernel has no two underscores
BLOCK_THREADS_ALONE = 0  # of a kernel that has a launch of its own


@dataclass(frozen=True)
class SideBySide:
    """Decides which kernels of a step are launched together."""

    plans: Mapping[AnyKernel, Plan]
    tiles: TilePrograms
    target: Target

    def split(self, program: Program) -> Program:
        """The program with a step for each launch: kernels of a step stay in one if their blocks
        have as many threads."""
        steps = [part for step in program.steps for part in self._parts(step)]
        return replace(program, steps=tuple(steps))

    def _parts(self, step: Sequence[KernelLaunch]) -> list[tuple[KernelLaunch, ...]]:
        if len(step) == 1:
            return [tuple(step)]
        alone: list[tuple[KernelLaunch, ...]] = []
        together: dict[int, list[KernelLaunch]] = {}  # by the threads of a block
        for launch in step:
            threads = self._block_threads(launch.kernel)
            if threads == BLOCK_THREADS_ALONE:
                alone.append((launch,))
            else:
                together.setdefault(threads, []).append(launch)
        return [*alone, *map(tuple, together.values())]

    def _block_threads(self, kernel: AnyKernel) -> int:
        nest = self.plans[kernel].nest
        if not isinstance(nest, Nest) or kernel in self.tiles or nest.atom:
            return BLOCK_THREADS_ALONE
        return Threads(without_vectors(nest), self.target).per_block


def kernel_side_by_side(parts: Sequence[PrintedPart]) -> PrintedKernel:
    """The kernel whose blocks run these parts: those with the lowest numbers the first one."""
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
    body = "".join(f"    {call}\n" for call in calls)
    head = f"KERNEL({threads}) {name}({arguments} PLACE)"
    text = "\n".join([*functions, f"{head} {{\n{body}}}"])
    helper_texts = dict.fromkeys(helper for part in parts for helper in part.helper_texts)
    launch = Launch(name, first_block, threads, ())
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

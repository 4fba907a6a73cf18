"""A program in C: one translation unit, a function a kernel, and `lamina_run`, which calls them in
order and hands loops bound to threads to the pool, after what it needs of the C texts beside this
file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.core.dtypes import SHORT
from lamina.fuse.program import Launch, Program, Slot
from lamina.ir.kernel import AnyKernel, SortKernel
from lamina.loops.moves import Plan
from lamina.runtime.source import Source
from lamina.targets.c.dots import DotPrinter
from lamina.targets.texts import helper_text

# The order in which a program's helper texts are printed; each may use the ones before it.
TEXTS = (
    "c/prelude.c", "c/arithmetic.c", "c/vectors.c", "c/transposes.c", "c/floats.c", "c/math.c",
    "c/doubles.c", "c/dots.c",
)  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A printed function: its name, and how many chunks its work is divided into."""

    name: str
    chunks: int


def print_program(program: Program, plans: Mapping[AnyKernel, Plan]) -> Source:
    """The translation unit of a program, of which each kernel has a plan."""
    needed = {(text, 0) for text in TEXTS[:2]}  # which are not written for a number of lanes
    kernels: dict[str, str] = {}
    functions: dict[AnyKernel, Function] = {}
    for kernel, (name, _, nest) in plans.items():
        if isinstance(nest, SortKernel):
            keys, chunks = SHORT[nest.parameters[0].dtype], nest.rows
            kernels[name] = f"SORT({name}, {keys}, {nest.length})"
        else:
            kernels[name], chunks = DotPrinter(nest, name, needed).print()
        functions[kernel] = Function(name, chunks)
    launches = []
    for number, group in enumerate(program.steps):
        if len(group) > 1:
            function = _print_row_blocks(program, group, functions, kernels)
        else:
            function = functions[group[0].kernel]
        call = f"{function.name}(b, 0)"
        if function.chunks > 1:
            call = f"parallel({function.chunks}, {function.name}, b)"
        buffers = ", ".join(f"AT{program.location(slot)}" for slot in _memory_of(group))
        launches.append(f"    LAUNCH({number}, {call}, {buffers})")
    entry = "\n".join(["RUN {", *launches, "}\n"])
    return Source(_helpers(needed), kernels, entry)


def _memory_of(group: Sequence[Launch]) -> list[Slot]:
    """The slots of a group of kernels but for blocks of rows, in the order of first use."""
    slots = dict.fromkeys(slot for launch in group for slot in launch.slots)
    return [slot for slot in slots if slot.kind != "block"]


def _print_row_blocks(
    program: Program, group: Sequence[Launch], functions: Mapping[AnyKernel, Function],
    kernels: dict[str, str],
) -> Function:  # fmt: skip
    """Add the function that runs every kernel of `group` on one block of rows to `kernels`, unless
    an equal one is there. Sums that blocks add up in memory are in the order of the blocks: then
    it runs all blocks over which they are summed, one after the other.

    Slots of the program's memory are pointers ``b[0]``, ``b[1]``, ...; those of a block are
    ``block`` and an offset in bytes.
    """
    first = functions[group[0].kernel]
    accumulates = any(store.monoid for launch in group for store in launch.kernel.stores)
    steps = group[0].kernel.block_axes[-1].arg.size if accumulates else 1
    arguments = {slot: f"b[{number}]" for number, slot in enumerate(_memory_of(group))}
    calls = []
    for launch in group:
        pointers = [arguments.get(slot) or f"block + {slot.offset}" for slot in launch.slots]
        calls.append(f"    ON_BLOCK({functions[launch.kernel].name}, {', '.join(pointers)})\n")
    rest = f"{program.block}, {steps},\n{''.join(calls)})"
    equal = (name for name, text in kernels.items() if text == f"ROW_BLOCKS({name}, {rest}")
    name = next(equal, f"rows{len(kernels)}")
    kernels[name] = f"ROW_BLOCKS({name}, {rest}"
    return Function(name, first.chunks // steps)


def _helpers(needed: set[tuple[str, int]]) -> str:
    """The helper texts that kernels use, each once for each number of lanes, in their order."""
    needed = needed | {("c/vectors.c", lanes) for _, lanes in needed if lanes}
    texts = sorted(needed, key=lambda text: (TEXTS.index(text[0]), text[1]))
    return "\n".join(helper_text(*text) for text in texts)

"""The tile programs of a program: the stage "tiles" of the pipeline."""

from collections.abc import Mapping

from lamina.core.target import Target
from lamina.ir.kernel import AnyKernel
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest
from lamina.tiles.lower import UnloweredError, lower
from lamina.tiles.program import TileProgram
from lamina.tiles.text import to_text
from lamina.tiles.verify import verify_tiles

# The tile program of each kernel with products in tiles, or why there is none yet.
TilePrograms = Mapping[AnyKernel, TileProgram | str]


def tile_programs(plans: Mapping[AnyKernel, Plan], target: Target) -> TilePrograms:
    """What the blocks of products in tiles do."""
    programs: dict[AnyKernel, TileProgram | str] = {}
    for kernel, plan in plans.items():
        if isinstance(plan.nest, Nest) and plan.nest.product:
            try:
                programs[kernel] = lower(plan.name, plan.nest, target)
            except UnloweredError as error:
                programs[kernel] = error.message
    return programs


def program_of(programs: TilePrograms, kernel: AnyKernel) -> TileProgram | None:
    """The program of a kernel, if it has one."""
    program = programs.get(kernel)
    return program if isinstance(program, TileProgram) else None


def text_of_tiles(plans: Mapping[AnyKernel, Plan], programs: TilePrograms) -> str:
    """Each program, or why there is none, below the name of its kernel."""
    return "\n".join(
        f"[{plans[kernel].name}]\n{program if isinstance(program, str) else to_text(program)}"
        for kernel, program in programs.items()
    )


def verify_tile_programs(programs: TilePrograms) -> None:
    """Raise TileError if a program breaks an invariant."""
    for program in programs.values():
        if isinstance(program, TileProgram):
            verify_tiles(program)

"""The tile programs of a program: the stage "tiles" of the pipeline."""

from collections.abc import Mapping

from lamina.core.target import Target
from lamina.ir.kernel import AnyKernel
from lamina.loops.moves import Plan, Schedule
from lamina.loops.nest import Nest
from lamina.schedule.gpu.pipelining import Ahead, Depth, is_back_to_back, why_not_pipelined
from lamina.targets.legalize import legalize
from lamina.tiles.attention import BackToBackParts, stages_of, why_not_in_tiles
from lamina.tiles.decisions import decide
from lamina.tiles.lower import lower
from lamina.tiles.lower_attention import lower_attention
from lamina.tiles.lower_common import UnloweredError
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
                lowering = lower_attention if is_back_to_back(plan.nest) else lower
                programs[kernel] = lowering(plan.name, plan.nest, target)
            except UnloweredError as error:
                programs[kernel] = error.message
    return programs


def with_pipelining(moves: Schedule, nest: Nest, target: Target) -> tuple[Schedule, Nest]:
    """A schedule and its nest, with all that moves can say of how a product in tiles is computed:
    what they leave open is decided. Raises FormatError, naming the move, where what they say does
    not fit the kernel or the GPU."""
    if not nest.product:
        return moves, nest
    reason = why_not_pipelined(nest, target)
    if is_back_to_back(nest):
        parts = BackToBackParts(legalize(nest))
        missing = why_not_in_tiles(parts, target)
        reason = f"{reason} {missing}" if missing else ""
    if reason:
        for move in moves:
            says_more = move.follows_tensorize
            move.require(not says_more, f"not in the dialect of tiles yet: {reason}")
        return moves, nest
    if is_back_to_back(nest):
        decided = _moves_of_attention(moves, nest, target)
    else:
        decided = decide(legalize(nest), target).moves
    for move in decided:
        nest = move.apply(nest)
    before = (move for move in moves if not move.follows_tensorize)
    return (*before, *decided), nest


def _moves_of_attention(moves: Schedule, nest: Nest, target: Target) -> Schedule:
    """All that moves can say of products back to back, beyond their atom."""
    for move in moves:
        is_known = isinstance(move, (Depth, Ahead)) or not move.follows_tensorize
        move.require(is_known, "it says nothing of products back to back")
    parts = BackToBackParts(legalize(nest))
    stages = stages_of(parts, target)
    assert stages is not None
    return Depth(stages.passing), Ahead(int(parts.is_ahead))


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

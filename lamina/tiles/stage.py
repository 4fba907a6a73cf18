"""The tile programs of a program: the stage "tiles" of the pipeline."""

from collections.abc import Mapping

from lamina.core.target import Target
from lamina.ir.kernel import AnyKernel
from lamina.loops.moves import Plan, Schedule
from lamina.loops.nest import Nest
from lamina.schedule.gpu.pipelining import Ahead, Depth, is_back_to_back
from lamina.targets.legalize import legalize
from lamina.tiles.attention import BackToBackParts, decide_back_to_back
from lamina.tiles.decisions import decide
from lamina.tiles.lower import lower
from lamina.tiles.lower_attention import lower_attention
from lamina.tiles.program import TileProgram
from lamina.tiles.text import to_text
from lamina.tiles.verify import verify_tiles

TilePrograms = Mapping[AnyKernel, TileProgram]


def tile_programs(plans: Mapping[AnyKernel, Plan], target: Target) -> TilePrograms:
    """What the blocks of each kernel with products in tiles do, on a device that has such programs.
    """
    programs: dict[AnyKernel, TileProgram] = {}
    for kernel, plan in plans.items():
        if target.has_tile_programs and isinstance(plan.nest, Nest) and plan.nest.atom:
            lowering = lower_attention if is_back_to_back(plan.nest) else lower
            programs[kernel] = lowering(plan.name, plan.nest, target)
    return programs


def with_pipelining(moves: Schedule, nest: Nest, target: Target) -> tuple[Schedule, Nest]:
    """A schedule and its nest, with all that moves can say of how a product in tiles is computed:
    what they leave open is decided. Raises FormatError, naming the move, where what they say does
    not fit the kernel or the GPU."""
    if not nest.atom:
        return moves, nest
    if not target.has_tile_programs:
        for move in moves:
            reason = f"not in the dialect of tiles: products on this {target.kind} device"
            move.require(not move.follows_tensorize, reason)
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
    return decide_back_to_back(BackToBackParts(legalize(nest)), target).moves


def text_of_tiles(plans: Mapping[AnyKernel, Plan], programs: TilePrograms) -> str:
    """Each program below the name of its kernel."""
    return "\n".join(
        f"[{plans[kernel].name}]\n{to_text(program)}" for kernel, program in programs.items()
    )


def verify_tile_programs(programs: TilePrograms) -> None:
    """Raise TileError if a program breaks an invariant."""
    for program in programs.values():
        verify_tiles(program)

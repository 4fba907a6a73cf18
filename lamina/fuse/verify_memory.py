"""What the order of a program and its plan of memory have to keep: that an array is there when a
kernel reads it, and that no other one has taken its memory meanwhile."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from lamina.errors import VerifyError
from lamina.fuse.launch import ALIGNMENT, BufferView, Launch
from lamina.fuse.program import Program
from lamina.ir.kernel import Kernel


@dataclass(frozen=True, order=True)
class _Written:
    """The bytes of the arena from `start` up to `end`, which launch `place` has written to array
    `number`."""

    start: int
    end: int
    number: int
    place: int

    def outside(self, start: int, end: int) -> list["_Written"]:
        """What is left of it before `start` and from `end` on."""
        parts = (replace(self, end=min(self.end, start)), replace(self, start=max(self.start, end)))
        return [part for part in parts if part.start < part.end]


def verify_memory(program: Program) -> None:
    """Raises VerifyError if a launch reads bytes of scratch memory that no launch before it has
    written, or in which another array was put after them; or if kernels side by side are not
    independent."""
    for step in program.steps:
        if len(step) > 1 and not any(map(_runs_in_blocks, step)):
            _verify_independent(program, step)
    arena: list[_Written] = []  # by where they start
    for place, launch in enumerate(program.launches):
        pairs = list(zip(launch.arguments, launch.kernel.parameters, strict=True))
        for view, parameter in pairs:
            if view.kind == "scratch" and not parameter.written:
                _verify_read(place, view, arena)
        for view, parameter in pairs:
            if view.kind == "scratch" and parameter.written:
                arena = _with_array(arena, view, place)


def _runs_in_blocks(launch: Launch) -> bool:
    """Whether a launch runs one row block after the other, in turns with others of its step."""
    return isinstance(launch.kernel, Kernel) and launch.kernel.blocks > 0


def _verify_independent(program: Program, step: Sequence[Launch]) -> None:
    """Raises VerifyError if one launch of a step writes bytes that another one reads or writes."""
    for first, second in permutations(step, 2):
        for one, other in product(first.written, second.arguments):
            if _share_bytes(program, one, other):
                raise VerifyError(
                    f"kernels side by side: one writes {one}, which another reads or writes"
                )


def _share_bytes(program: Program, one: BufferView, other: BufferView) -> bool:
    """Whether two views have bytes in common."""
    (buffer, start), (other_buffer, other_start) = map(program.location, (one, other))
    if buffer != other_buffer:
        return False
    return start < other_start + other.nbytes and other_start < start + one.nbytes


def _verify_read(place: int, view: BufferView, arena: list[_Written]) -> None:
    end = view.offset + view.nbytes
    written_bytes = 0
    own_places = [written.place for written in arena if written.number == view.number]
    since = min(own_places, default=0)
    for written in arena:
        shared = min(written.end, end) - max(written.start, view.offset)
        if shared <= 0:
            continue
        # What an earlier array has left lies behind the last row, where that is padded.
        if written.number != view.number and written.place > since:
            raise VerifyError(
                f"launch {place} reads array {view.number} where array {written.number} is"
            )
        if written.number == view.number:
            written_bytes += shared
    # A view has whole cache lines (`on_touched_lines`), the last of which may be read in part.
    if written_bytes + ALIGNMENT < view.nbytes:
        raise VerifyError(
            f"launch {place} reads {view.nbytes} bytes of array {view.number}, of which "
            f"{written_bytes} are written before"
        )


def _with_array(arena: list[_Written], view: BufferView, place: int) -> list[_Written]:
    """The arena after launch `place` has written an array at `view`."""
    end = view.offset + view.nbytes
    kept = [part for written in arena for part in written.outside(view.offset, end)]
    insort(kept, _Written(view.offset, end, view.number, place))
    return kept

"""What the order of a program and its plan of memory have to keep: that an array is there when a
kernel reads it, and that no other one has taken its memory meanwhile."""

from bisect import insort
from dataclasses import dataclass, replace

from lamina.errors import VerifyError
from lamina.fuse.launch import ALIGNMENT, Slot
from lamina.fuse.program import Program


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
    written, or in which another array was put after them."""
    arena: list[_Written] = []  # by where they start
    for place, launch in enumerate(program.launches):
        pairs = list(zip(launch.slots, launch.kernel.parameters, strict=True))
        for slot, parameter in pairs:
            if slot.kind == "scratch" and not parameter.written:
                _verify_read(place, slot, arena)
        for slot, parameter in pairs:
            if slot.kind == "scratch" and parameter.written:
                arena = _with_array(arena, slot, place)


def _verify_read(place: int, slot: Slot, arena: list[_Written]) -> None:
    end = slot.offset + slot.nbytes
    written_bytes = 0
    own_places = [written.place for written in arena if written.number == slot.number]
    since = min(own_places, default=0)
    for written in arena:
        shared = min(written.end, end) - max(written.start, slot.offset)
        if shared <= 0:
            continue
        # What an earlier array has left lies behind the last row, where that is padded.
        if written.number != slot.number and written.place > since:
            raise VerifyError(
                f"launch {place} reads array {slot.number} where array {written.number} is"
            )
        if written.number == slot.number:
            written_bytes += shared
    # A slot has whole cache lines (`on_touched_lines`), the last of which may be read in part.
    if written_bytes + ALIGNMENT < slot.nbytes:
        raise VerifyError(
            f"launch {place} reads {slot.nbytes} bytes of array {slot.number}, of which "
            f"{written_bytes} are written before"
        )


def _with_array(arena: list[_Written], slot: Slot, place: int) -> list[_Written]:
    """The arena after launch `place` has written an array at `slot`."""
    end = slot.offset + slot.nbytes
    kept = [part for written in arena for part in written.outside(slot.offset, end)]
    insort(kept, _Written(slot.offset, end, slot.number, place))
    return kept

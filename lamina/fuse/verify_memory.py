"""What the order of a program and its plan of memory have to keep: that an array is there when a
kernel reads it, and that no other one has taken its memory meanwhile."""

from bisect import insort
from dataclasses import dataclass

from lamina.errors import VerifyError
from lamina.fuse.launch import ALIGNMENT, Slot
from lamina.fuse.program import Program


@dataclass(frozen=True, order=True)
class _Written:
    """The bytes of the arena from `start` up to `end`, which hold array `number`."""

    start: int
    end: int
    number: int

    def outside(self, start: int, end: int) -> list["_Written"]:
        """What is left of it before `start` and from `end` on."""
        parts = (_Written(self.start, min(self.end, start), self.number),
                 _Written(max(self.start, end), self.end, self.number))  # fmt: skip
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
                arena = _with_array(arena, slot)


def _verify_read(place: int, slot: Slot, arena: list[_Written]) -> None:
    end = slot.offset + slot.nbytes
    found = 0
    for written in arena:
        shared = min(written.end, end) - max(written.start, slot.offset)
        if shared <= 0:
            continue
        if written.number != slot.number:
            raise VerifyError(
                f"launch {place} reads array {slot.number} where array {written.number} is"
            )
        found += shared
    # A slot has whole cache lines (`on_touched_lines`), the last of which may be read in part.
    if found + ALIGNMENT < slot.nbytes:
        raise VerifyError(
            f"launch {place} reads {slot.nbytes} bytes of array {slot.number}, of which {found} "
            "are written before"
        )


def _with_array(arena: list[_Written], slot: Slot) -> list[_Written]:
    """The arena after an array was written at `slot`."""
    end = slot.offset + slot.nbytes
    kept = [part for written in arena for part in written.outside(slot.offset, end)]
    insort(kept, _Written(slot.offset, end, slot.number))
    return kept

"""Which collectives of a program have to be done before each of its kernels begins.

On a GPU a collective runs beside the kernels after it. One that touches the same memory has to
wait: it reads the result, or writes where the operand is, or its own arrays have got that memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from lamina.fuse.program import Launch, Program
from lamina.ir.kernel import Collective


@dataclass(frozen=True)
class _Range:
    """The bytes from `start` up to `end` of a buffer of the program's table."""

    buffer: int
    start: int
    end: int
    is_written: bool

    def conflicts_with(self, other: "_Range") -> bool:
        """Whether both are the same memory in part, and one is written."""
        is_shared = (
            self.buffer == other.buffer and self.start < other.end and other.start < self.end
        )
        return is_shared and (self.is_written or other.is_written)


def collectives_before(program: Program) -> list[int]:
    """For each launch of a program the number of the last collective that it has to wait for, and
    with it for all before; -1 for none. Collectives themselves run one after the other."""
    ranges_of_collectives: list[Sequence[_Range]] = []
    waits = []
    for launch in program.launches:
        ranges = _ranges(program, launch)
        if isinstance(launch.kernel, Collective):
            ranges_of_collectives.append(ranges)
            waits.append(-1)
        else:
            waits.append(_last_conflict(ranges, ranges_of_collectives))
    return waits


def _last_conflict(ranges: Sequence[_Range], of_collectives: Sequence[Sequence[_Range]]) -> int:
    """The last collective one of whose arrays conflicts with one of `ranges`; -1 if none does."""
    for number in reversed(range(len(of_collectives))):
        pairs = product(ranges, of_collectives[number])
        if any(of_kernel.conflicts_with(other) for of_kernel, other in pairs):
            return number
    return -1


def _ranges(program: Program, launch: Launch) -> list[_Range]:
    """The memory that a launch touches."""
    ranges = []
    for view, parameter in zip(launch.arguments, launch.kernel.parameters, strict=True):
        buffer, start = program.location(view)
        ranges.append(_Range(buffer, start, start + view.nbytes, parameter.written))
    return ranges

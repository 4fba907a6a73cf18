"""Which arrays take the scratch memory of a program when it needs most.

    9.0 MiB of scratch memory, 8.0 of them in step 3 of 5, reduce2_512:
      4.0 MiB: float32 of map0_1024x1024, steps 0 to 4, train.py:12: h = x.exp()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamina.compiled import Planned

MIB = 1 << 20


@dataclass
class Array:
    """A scratch array of a program.

    kernel: the name of the one that makes it. dtype: the name. nbytes: its size, as far as kernels
    touch it. first, last: the steps from the one that makes it to the last one that reads it.
    lines: of the user's program that it is of, as far as they are known.
    """

    kernel: str
    dtype: str
    nbytes: int
    first: int
    last: int
    lines: Sequence[str]


@dataclass(frozen=True)
class Peak:
    """The step in which a program needs most scratch memory.

    step: its number. kernels: that it runs. nbytes: of all arrays that are there. arrays: these,
    the largest first.
    """

    step: int
    kernels: str
    nbytes: int
    arrays: list[Array]


def peak_of(planned: Planned) -> Peak | None:
    """The step of a program that needs most; None if no step needs any scratch memory."""
    arrays = list(_scratch_arrays(planned))
    if not arrays:
        return None
    steps = planned.program.steps
    live = [0] * (len(steps) + 1)
    for array in arrays:  # what comes and goes with each step
        live[array.first] += array.nbytes
        live[array.last + 1] -= array.nbytes
    nbytes, most, peak = 0, 0, 0
    for number, change in enumerate(live):
        nbytes += change
        if nbytes > most:
            most, peak = nbytes, number
    there = [array for array in arrays if array.first <= peak <= array.last]
    there.sort(key=lambda array: -array.nbytes)
    kernels = "+".join(planned.plans[launch.kernel].name for launch in steps[peak])
    return Peak(peak, kernels, most, there)


def _scratch_arrays(planned: Planned) -> Iterator[Array]:
    """The scratch arrays of a program, in the order in which they are made."""
    found: dict[int, Array] = {}
    for number, step in enumerate(planned.program.steps):
        for launch in step:
            for view in launch.arguments:
                if view.kind != "scratch":
                    continue
                if view.number not in found:
                    name = planned.plans[launch.kernel].name
                    lines = planned.lines.get(launch.kernel, ())
                    found[view.number] = Array(name, view.dtype.name, 0, number, number, lines)
                array = found[view.number]
                array.last = number
                array.nbytes = max(array.nbytes, view.nbytes)
    yield from found.values()


def memory_lines(planned: Planned) -> Iterator[str]:
    """The arrays at the peak of a program, a line each."""
    peak = peak_of(planned)
    if peak is None:
        yield "no scratch memory"
        return
    arena, count = planned.program.arena / MIB, len(planned.program.steps)
    yield (
        f"{arena:.1f} MiB of scratch memory, {peak.nbytes / MIB:.1f} of them in step {peak.step} "
        f"of {count}, {peak.kernels}:"
    )
    for array in peak.arrays:
        of = "".join(f", {line}" for line in array.lines[-1:])
        yield (
            f"  {array.nbytes / MIB:.1f} MiB: {array.dtype} of {array.kernel}, steps {array.first} "
            f"to {array.last}{of}"
        )

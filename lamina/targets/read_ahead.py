"""What a GPU reads while it waits for others: weights of the next kernels, into its cache.

A collective that nothing runs beside leaves memory idle, and the kernel after it waits for memory.
So ahead of it comes a kernel that asks for the first inputs which are read before the next
collective, as many as half of the second-level cache holds, and does not wait for them. A token of
a tensor parallel model is sums over the processes and weights, one after the other: while the sum
after a projection of the attention takes 5 us, 20 MB of the next projection's weights are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamina.core.target import Target
from lamina.fuse.program import Launch as FusedLaunch
from lamina.fuse.program import Program
from lamina.ir.kernel import Collective
from lamina.runtime.buffer import Launch
from lamina.runtime.overlap import awaited_at_once

THREADS = 128
PIECE_BYTES = 4096  # of a thread, as in `cuda/read_ahead.cu`
# Shorter arrays are there in less time than it takes to ask for them.
MIN_BYTES = 1 << 20
# A place in the table of buffers, and the bytes from there on.
Range = tuple[tuple[int, int], int]


def with_read_ahead(
    program: Program, launches: Sequence[Launch], target: Target
) -> tuple[list[Launch], dict[str, str]]:
    """`launches`, with what runs ahead of collectives, and the texts of these kernels by name."""
    texts: dict[str, str] = {}
    names: dict[tuple[int, ...], str] = {}  # by the sizes of the ranges
    changed = list(launches)
    for number in awaited_at_once(launches):
        place = next(at for at, one in enumerate(launches) if one.exchange == number)
        ranges = list(_ranges(program, program.launches[place + 1 :], target.l2_bytes // 2))
        if not ranges:
            continue
        sizes = tuple(size for _, size in ranges)
        name = names.setdefault(sizes, f"read_ahead{len(names)}")
        texts[name] = _text(name, sizes)
        blocks = -(-max(sizes) // (PIECE_BYTES * THREADS))
        ahead = Launch(name, blocks, THREADS, tuple(start for start, _ in ranges))
        changed[place] = launches[place]._replace(ahead=ahead)
    return changed, texts


def _ranges(program: Program, following: Sequence[FusedLaunch], room: int) -> Iterator[Range]:
    """The beginnings of the inputs that launches read up to the next collective, `room` bytes in
    all. Those of one kernel have equal parts, as it reads them at one time."""
    seen: set[tuple[int, int]] = set()
    for launch in following:
        if isinstance(launch.kernel, Collective):
            return
        inputs = [
            (program.location(slot), slot.nbytes)
            for slot, parameter in zip(launch.slots, launch.kernel.parameters, strict=True)
            if slot.kind in ("input", "kept") and not parameter.written and slot.nbytes >= MIN_BYTES
        ]
        new = [(start, nbytes) for start, nbytes in inputs if start not in seen]
        for number, (start, nbytes) in enumerate(new):
            share = room // (len(new) - number)
            size = min(nbytes, share) // PIECE_BYTES * PIECE_BYTES
            seen.add(start)
            room -= size
            if size:
                yield start, size


def _text(name: str, sizes: Sequence[int]) -> str:
    """The kernel that asks for ranges of these sizes. It begins while the kernel before ends, and
    ends after that, as collectives begin when the kernel before them has ended."""
    parameters = ", ".join(f"const char *p{number}" for number in range(len(sizes)))
    asked = "".join(f"    read_ahead(p{number}, {size});\n" for number, size in enumerate(sizes))
    return f"KERNEL({THREADS}) {name}({parameters}) {{\n{asked}    FOLLOW;\n}}\n"

"""Scratch memory of programs that the GPUs of a group reach each other's of: windows of NCCL.

For arrays in windows NCCL has kernels that read and write the memory of other processes as their
own ("symmetric memory", from NCCL 2.27 on): a short sum takes them half the time, and a long one
fewer multiprocessors. An array has to begin at the same byte of the window in all processes.

What collectives read and write are scratch arrays of programs, so a window is the scratch memory of
a program. Processes run programs that exchange the same arrays, but need not be the same: one has a
row less in a last batch. So when a list of collectives first comes up, which it does in all
processes of a group at one time, they tell each other where their programs have the arrays:

    rank 0: 1,048,576 bytes, arrays at 0 and 4,096        agreed: these places, in a window of
    rank 1:   917,504 bytes, arrays at 0 and 4,096        1,048,576 bytes

Where they differ there is no window for that list. A program that comes later, of the same list
with arrays at other places, has memory of its own, and copies what it sends to the agreed places
and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lamina.runtime.buffer import Buffer
from lamina.runtime.cache import digest
from lamina.runtime.collectives import GroupPart, Places, Window
from lamina.runtime.cuda import Device
from lamina.runtime.peers import Peers


class WindowLibrary(Protocol):
    """The part of `lamina.runtime.nccl_library.Library` that windows need."""

    @property
    def has_windows(self) -> bool: ...
    def allocate(self, nbytes: int) -> int: ...
    def register(self, communicator: int, pointer: int, nbytes: int) -> None: ...


class Windows:
    """The windows of this process, and what was agreed on."""

    def __init__(
        self, library: WindowLibrary, peers: Peers, device: Device, timeout: float
    ) -> None:
        """timeout: seconds until a rank that waits for others raises."""
        self._library, self._peers, self._device = library, peers, device
        self._timeout = timeout
        # By the communicators of a group that reach them, and of what was agreed by digest too.
        self._buffers: dict[tuple[int, ...], list[Buffer]] = {}
        self._agreed: dict[tuple[tuple[int, ...], str], Window | None] = {}

    def window(
        self, part: GroupPart, group: Sequence[int], communicators: tuple[int, ...],
        places: Places, nbytes: int,
    ) -> Window | None:  # fmt: skip
        """That of a list of collectives; the first time a window of `nbytes` bytes or more, if all
        ranks of the group have the same `places`. Raises RankError where others do not come, and
        ProgramsDifferError where they exchange something else."""
        if not self._library.has_windows:
            return None
        key = communicators, part.digest
        if key not in self._agreed:
            self._agreed[key] = self._agree(part, group, communicators, places, nbytes)
        return self._agreed[key]

    def _agree(
        self, part: GroupPart, group: Sequence[int], communicators: tuple[int, ...],
        places: Places, nbytes: int,
    ) -> Window | None:  # fmt: skip
        self._peers.announce(group, part.digest, part.lines)
        topic = f"the arrays of {part.lines[0]} (digest {part.digest}) of rank"
        self._peers.publish(f"{topic} {self._peers.rank}", f"{nbytes} {digest(str(places))}")
        said = [
            self._peers.published(f"{topic} {rank}", self._timeout, group).split() for rank in group
        ]
        all_bytes = [int(size) for size, _ in said]
        all_places = {place for _, place in said}
        is_used = any(operand >= 0 and result >= 0 for operand, result in places)
        if len(all_places) > 1 or not is_used:
            return None
        return Window(self._buffer(communicators, max(all_bytes)), places)

    def _buffer(self, communicators: tuple[int, ...], nbytes: int) -> Buffer:
        """The first window of so many bytes, or a new one, which all ranks make at one time: these
        have asked for the same windows in the same order."""
        buffers = self._buffers.setdefault(communicators, [])
        for buffer in buffers:
            if buffer.nbytes >= nbytes:
                return buffer
        self._device.enter()
        self._device.empty()  # what is kept for later may be what is missing
        pointer = self._library.allocate(nbytes)
        for communicator in communicators:
            self._library.register(communicator, pointer, nbytes)
        self._device.count(nbytes)
        buffers.append(Buffer.wrap(pointer, nbytes, self._device.name, self))
        return buffers[-1]

"""The engine of collectives among GPUs: NVIDIA's NCCL.

Nothing waits here: NCCL's kernels go to a stream, or into the CUDA graph that is being recorded
from it, and wait for those of other processes on the GPU. They do so without end when a process is
gone; so whoever waits for the GPU asks the engine, which asks the other processes
(`lamina/runtime/peers.py`). A process whose GPU waits for one that is gone has to end.

`lamina/graph/nccl_types.py` has replaced what NCCL does not combine as lamina does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lamina.core.exchange import Exchange, group_of, place_of
from lamina.errors import DeviceError, RankError
from lamina.runtime.buffer import Buffer
from lamina.runtime.collectives import GroupPart, Places, Window
from lamina.runtime.cuda import Device
from lamina.runtime.nccl_library import COMBINES, DTYPES
from lamina.runtime.peers import Peers
from lamina.runtime.windows import WindowLibrary, Windows

Group = tuple[int, int]  # ranks and stride
BYTE = DTYPES["uint8"]
OF_WINDOWS = ("all_reduce", "all_gather", "reduce_scatter")  # that NCCL has kernels for windows for
# Least bytes of the result of an all_gather that copy engines gather, and not kernels. They take
# no multiprocessor from other kernels, but two H200s need about 35 us to tell each other that they
# may begin and have ended, as a timeline shows: smaller results are there sooner by kernels, which
# gather 1 MiB in 16 us. Chosen: where both take as long is not measured.
MIN_COPIED_BYTES = 1 << 20
# After so many seconds a rank that has ended is missed: it did its part before it ended.
SECONDS_AFTER_AN_END = 30.0
# Of the longer array of a collective: beyond so many bytes NCCL's kernels for windows, which take
# few multiprocessors, are slower than its others. A sum of 256 MiB between two H200s takes 1.09 ms
# by them and 0.91 ms by the others, one of 12 MiB 64 us and 71 us.
MAX_WINDOW_BYTES = 32 << 20
QUESTION_SECONDS = 0.05  # from one question to NCCL for errors to the next, while the GPU works


class Library(WindowLibrary, Protocol):
    """The part of `lamina.runtime.nccl_library.Library` that the engine uses."""

    def unique_id(self) -> bytes: ...
    def communicator(self, size: int, unique_id: bytes, rank: int) -> int: ...
    @property
    def has_copy_engines(self) -> bool: ...
    def split(self, communicator: int, color: int, key: int, *, copies: bool = False) -> int: ...
    def async_error(self, communicator: int) -> str: ...
    def call(self, function: str, *arguments: object) -> None: ...


@dataclass(frozen=True)
class Awaited:
    """What is on the GPU that other ranks have to do their part of: what it is, to read, and all
    ranks that take part."""

    what: str
    group: tuple[int, ...]


@dataclass(frozen=True)
class Communicators:
    """Of a group of ranks, by what carries collectives out: kernels for windows, copy engines among
    windows, and kernels that know of no window."""

    windows: int
    copies: int
    plain: int


class NcclEngine:
    """Collectives of all processes and of groups; see `lamina.runtime.collectives.Engine`."""

    kind = "cuda"
    # A collective takes some microseconds however short it is, in which a product waits that has a
    # block for each multiprocessor; to copy short arrays together takes less.
    bucket_bytes = 2 << 20

    def __init__(self, library: Library, peers: Peers, device: Device, timeout: float) -> None:
        """All processes make theirs at one time. timeout: seconds until a rank that waits raises.
        """
        self._library, self._peers, self._device = library, peers, device
        self._timeout = timeout
        self.rank, self.size = peers.rank, peers.size
        self._count = 0  # of programs with collectives so far
        self._awaited: Awaited | None = None  # the last one, until it has ended
        self._begin: dict[str, Callable[[Exchange, int, int, int, int], None]] = {
            "all_reduce": self._all_reduce,
            "all_gather": self._all_gather,
            "reduce_scatter": self._reduce_scatter,
            "broadcast": self._broadcast,
            "all_to_all": self._all_to_all,
            "collective_permute": self._permute,
        }
        self._windows = Windows(library, peers, device, timeout)
        device.enter()
        device.guard = self.wait
        self._world = library.communicator(self.size, self._common_id(), self.rank)
        self._communicators: dict[Group, Communicators] = {}
        self._add_group((self.size, 1))

    def _meet(self, purpose: str) -> None:
        """Go on once all ranks are here: to make a communicator waits without end. purpose: what
        all are about to do, once in a run."""
        self._peers.publish(f"rank {self.rank} {purpose}", "is here")
        everyone = range(self.size)
        for other in everyone:
            self._peers.published(f"rank {other} {purpose}", self._timeout, everyone)

    def _common_id(self) -> bytes:
        """That of the first rank, once all ranks are here."""
        if self.rank == 0:
            self._peers.publish("the id of NCCL", self._library.unique_id().hex())
        self._meet("joins")
        return bytes.fromhex(self._peers.published("the id of NCCL", self._timeout, [0]))

    def make_group(self, ranks: int, stride: int) -> None:
        group = ranks, stride
        if group in self._communicators:
            return
        self._device.enter()
        self._meet(f"makes groups of {ranks} ranks, {stride} apart")
        self._add_group(group)

    def _add_group(self, group: Group) -> None:
        """Make the communicators of a group, which all ranks do at one time."""
        first = group_of(self.rank, *group)[0]
        split = partial(self._library.split, self._world, first, self.rank)
        windows, plain = split(), split()
        copies = split(copies=True) if self._library.has_copy_engines else windows
        self._communicators[group] = Communicators(windows, copies, plain)
        self._connect(group)

    def _connect(self, group: Group) -> None:
        """Send a little from each process to each, so that they are connected before a graph is
        recorded."""
        ranks, stride = group
        source, target = (Buffer(ranks, self._device.name) for _ in range(2))
        stream = int(self._device.stream)
        communicator = self._communicators[group].windows
        self._send_parts(communicator, source.pointer, target.pointer, 1, ranks, stream)
        what = f"the first exchange among {ranks} ranks, {stride} apart"
        self._awaited = Awaited(what, group_of(self.rank, ranks, stride))
        self._device.synchronize()

    def compare(self, parts: Sequence[GroupPart]) -> None:
        """Tell the others; `wait` raises where they differ."""
        self._count += 1
        what = self._what(parts[0])
        self._peers.check(what, ())
        self._peers.now = f"in {what}"
        # The program before may still be on the GPU.
        everyone = set(self._awaited.group) if self._awaited is not None else set[int]()
        for part in parts:
            group = group_of(self.rank, part.ranks, part.stride)
            everyone.update(group)
            self._peers.announce(group, part.digest, part.lines)
        self._awaited = Awaited(what, tuple(sorted(everyone)))

    def window(self, part: GroupPart, places: Places, nbytes: int) -> Window | None:
        """See `lamina.runtime.windows`."""
        group = group_of(self.rank, part.ranks, part.stride)
        all_of_group = self._communicators_of(part.ranks, part.stride)
        with_windows = dict.fromkeys((all_of_group.windows, all_of_group.copies))
        return self._windows.window(part, group, tuple(with_windows), places, nbytes)

    def wait(self, is_done: Callable[[], bool], is_all: bool = True) -> None:
        """Wait until the GPU has done its work, if there are collectives in it. is_all: it is all
        that was launched."""
        awaited = self._awaited
        if awaited is None:
            return
        what = awaited.what
        last_question = time.monotonic()

        def is_over() -> bool:
            nonlocal last_question
            if time.monotonic() - last_question > QUESTION_SECONDS:
                self._raise_error_of_nccl(what)
                last_question = time.monotonic()
            return is_done()

        self._peers.wait_until(
            is_over, what, awaited.group, self._timeout, SECONDS_AFTER_AN_END
        )
        self._raise_error_of_nccl(what)
        if is_all:
            if self._count:
                self._peers.now = f"after {what}"
            self._awaited = None

    def _raise_error_of_nccl(self, what: str) -> None:
        """Raise RankError where any communicator has met an error: its kernels may never end."""
        for of_group in self._communicators.values():
            for communicator in (of_group.windows, of_group.copies, of_group.plain):
                error = self._library.async_error(communicator)
                if error:
                    raise RankError(f"{what}: NCCL says: {error}")

    def _what(self, part: GroupPart) -> str:
        more = len(part.lines) - 1
        others = f" and {more} more" if more else ""
        return f"{part.lines[0]}{others} (program {self._count})"

    def run(self, exchange: Exchange, operand: int, result: int, stream: int = 0) -> None:
        begin = self._begin[exchange.operation]
        begin(exchange, self._communicator(exchange), operand, result, stream)

    def _communicator(self, exchange: Exchange) -> int:
        """That carries a collective out the fastest."""
        of_group = self._communicators_of(exchange.ranks, exchange.stride)
        longest = max(exchange.size, exchange.result_size) * exchange.dtype.itemsize
        has_copies = of_group.copies != of_group.windows
        if has_copies and exchange.operation == "all_gather" and longest >= MIN_COPIED_BYTES:
            return of_group.copies
        if longest > MAX_WINDOW_BYTES and exchange.operation in OF_WINDOWS:
            return of_group.plain
        return of_group.windows

    def gather(self, exchange: Exchange, operand: bytes) -> list[bytes]:
        size = len(operand)
        source = Buffer.staging(size, self._device.name)
        source.view()[:] = operand
        here = source.sent(self._device.name)
        gathered = Buffer(size * exchange.ranks, self._device.name)
        communicator = self._communicators_of(exchange.ranks, exchange.stride).windows
        self._awaited = Awaited(str(exchange), group_of(self.rank, exchange.ranks, exchange.stride))
        self._device.enter()
        stream = int(self._device.stream)
        addresses = here.pointer, gathered.pointer
        self._library.call("ncclAllGather", *addresses, size, BYTE, communicator, stream)
        content = bytes(gathered.on_host().view())
        return [content[at : at + size] for at in range(0, size * exchange.ranks, size)]

    def _communicators_of(self, ranks: int, stride: int) -> Communicators:
        try:
            return self._communicators[ranks, stride]
        except KeyError:
            raise DeviceError(
                f"{ranks} ranks, {stride} apart, are no axis of a Mesh that this process has made"
            ) from None

    # Each begins one collective: of an operand and a result at two addresses, on a stream.

    def _all_reduce(
        self, exchange: Exchange, among: int, source: int, target: int, stream: int
    ) -> None:
        dtype, combine = _dtype(exchange), COMBINES[exchange.combine]
        self._library.call(
            "ncclAllReduce", source, target, exchange.size, dtype, combine, among, stream
        )

    def _reduce_scatter(
        self, exchange: Exchange, among: int, source: int, target: int, stream: int
    ) -> None:
        dtype, combine = _dtype(exchange), COMBINES[exchange.combine]
        count = exchange.size // exchange.ranks
        self._library.call(
            "ncclReduceScatter", source, target, count, dtype, combine, among, stream
        )

    def _all_gather(
        self, exchange: Exchange, among: int, source: int, target: int, stream: int
    ) -> None:
        size = _nbytes(exchange)
        self._library.call("ncclAllGather", source, target, size, BYTE, among, stream)

    def _broadcast(
        self, exchange: Exchange, among: int, source: int, target: int, stream: int
    ) -> None:
        size, root = _nbytes(exchange), exchange.root
        self._library.call("ncclBroadcast", source, target, size, BYTE, root, among, stream)

    def _all_to_all(
        self, exchange: Exchange, among: int, source: int, target: int, stream: int
    ) -> None:
        size = _nbytes(exchange) // exchange.ranks
        self._send_parts(among, source, target, size, exchange.ranks, stream)

    def _send_parts(
        self, among: int, source: int, target: int, size: int, ranks: int, stream: int
    ) -> None:
        """Send part number i of `source`, of `size` bytes, to rank i, and get one from each."""
        call = self._library.call
        call("ncclGroupStart")
        for other in range(ranks):
            call("ncclSend", source + other * size, size, BYTE, other, among, stream)
            call("ncclRecv", target + other * size, size, BYTE, other, among, stream)
        call("ncclGroupEnd")

    def _permute(
        self, exchange: Exchange, among: int, source: int, target: int, stream: int
    ) -> None:
        place = place_of(self.rank, exchange.ranks, exchange.stride)
        size, to = _nbytes(exchange), exchange.targets[place]
        call = self._library.call
        if place not in exchange.targets:
            self._device.fill_with_zeros(target, size, stream)
        call("ncclGroupStart")
        if to != -1:
            call("ncclSend", source, size, BYTE, to, among, stream)
        if place in exchange.targets:
            call("ncclRecv", target, size, BYTE, exchange.targets.index(place), among, stream)
        call("ncclGroupEnd")


def _dtype(exchange: Exchange) -> int:
    """As NCCL combines it; bools, which have a maximum and a minimum alone, as bytes."""
    name = "uint8" if exchange.dtype.kind == "bool" else exchange.dtype.name
    if name not in DTYPES:
        raise DeviceError(f"{exchange}: NCCL does not combine {name}")
    return DTYPES[name]


def _nbytes(exchange: Exchange) -> int:
    """Of the operand."""
    return exchange.size * exchange.dtype.itemsize

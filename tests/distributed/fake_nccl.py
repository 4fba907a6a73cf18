"""NCCL among threads of one process, over host memory, for engines that have no GPU.

Each rank is a thread. A collective waits for all ranks of its communicator, and NumPy does it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from lamina.core.exchange import Exchange
from lamina.runtime.nccl import NcclEngine
from lamina.runtime.nccl_library import COMBINES, DTYPES, ID_BYTES
from lamina.runtime.peers import Peers, Server

NUMPY_OF = {number: name for name, number in DTYPES.items()}
REDUCE = {COMBINES["ADD"]: np.add, COMBINES["MUL"]: np.multiply,
          COMBINES["MAX"]: np.maximum, COMBINES["MIN"]: np.minimum}  # fmt: skip


def memory(address: int, count: int, dtype: int) -> np.ndarray:
    """The array of `count` elements at an address."""
    kind = np.dtype(getattr(ml_dtypes, NUMPY_OF[dtype], None) or NUMPY_OF[dtype])
    raw = (ctypes.c_byte * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind)


@dataclass
class Communicator:
    """Ranks that meet: each leaves what it has, waits, and reads what the others have left."""

    ranks: tuple[int, ...]
    barrier: threading.Barrier
    left: dict[int, Any] = field(default_factory=dict)

    def meet(self, rank: int, value: Any) -> list[Any]:
        self.left[rank] = value
        self.barrier.wait(20)
        found = [self.left[one] for one in self.ranks]
        self.barrier.wait(20)
        return found


class World:
    """What the threads share."""

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        self.communicators: dict[int, Communicator] = {}
        self.numbers: dict[tuple[tuple[int, ...], bool], int] = {}
        self.number_of(tuple(range(size)))

    def number_of(self, ranks: tuple[int, ...], *, copies: bool = False) -> int:
        with self.lock:
            key = ranks, copies
            if key not in self.numbers:
                number = 100 + len(self.numbers)
                self.numbers[key] = number
                self.communicators[number] = Communicator(ranks, threading.Barrier(len(ranks)))
            return self.numbers[key]


class FakeLibrary:
    """The `Library` of one rank. called: the functions, and on which stream. registered: windows,
    by their address, in bytes. with_copies: communicators that copy engines work for."""

    has_windows = has_copy_engines = True

    def __init__(self, world: World, rank: int) -> None:
        self.registered: dict[int, int] = {}
        self.with_copies: set[int] = set()
        self._allocated: list[np.ndarray] = []
        self._world, self._rank = world, rank
        self._group: list[tuple[str, tuple[Any, ...]]] | None = None
        self.called: list[tuple[str, int]] = []

    def unique_id(self) -> bytes:
        return bytes(range(ID_BYTES))

    def communicator(self, size: int, unique_id: bytes, rank: int) -> int:
        assert unique_id == bytes(range(ID_BYTES))
        assert rank == self._rank
        return self._world.number_of(tuple(range(size)))

    def split(self, communicator: int, color: int, key: int, *, copies: bool = False) -> int:
        among = self._world.communicators[communicator]
        colors = among.meet(self._rank, color)
        assert key == self._rank
        ranks = zip(among.ranks, colors, strict=True)
        members = tuple(rank for rank, one in ranks if one == color)
        made = self._world.number_of(members, copies=copies)
        if copies:
            self.with_copies.add(made)
        return made

    def allocate(self, nbytes: int) -> int:
        self._allocated.append(np.zeros(nbytes, np.uint8))
        return self._allocated[-1].ctypes.data

    def register(self, communicator: int, pointer: int, nbytes: int) -> None:
        everyone = self._world.communicators[communicator].meet(self._rank, nbytes)
        assert set(everyone) == {nbytes}  # as NCCL wants it
        self.registered[pointer] = nbytes

    def async_error(self, communicator: int) -> str:
        return ""

    def call(self, function: str, *arguments: Any) -> None:
        if function == "ncclGroupStart":
            self._group = []
        elif function == "ncclGroupEnd":
            group, self._group = self._group, None
            self._send_and_receive(group or [])
        elif function in ("ncclSend", "ncclRecv"):
            assert self._group is not None
            self._group.append((function, arguments))
        else:
            self.called.append((function, arguments[-1]))
            *arguments_of, communicator, _stream = arguments
            getattr(self, function)(self._world.communicators[communicator], *arguments_of)

    def _send_and_receive(self, group: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        if not group:
            return  # this rank neither sends nor receives: as in NCCL, it does not wait
        sent: dict[int, list[np.ndarray]] = {}
        for function, (address, count, dtype, peer, *_) in group:
            if function == "ncclSend":
                sent.setdefault(peer, []).append(memory(address, count, dtype).copy())
        self.called.append(("group", group[0][1][-1]))
        among = self._world.communicators[group[0][1][4]]
        everyone = among.meet(self._rank, sent)
        place = among.ranks.index(self._rank)
        for function, (address, count, dtype, peer, *_) in group:
            if function == "ncclRecv":
                memory(address, count, dtype)[:] = everyone[peer][place].pop(0)

    def ncclAllReduce(  # noqa: N802 (as NCCL has it)
        self, among: Communicator, source: int, target: int, count: int, dtype: int, op: int
    ) -> None:
        operands = among.meet(self._rank, memory(source, count, dtype).copy())
        memory(target, count, dtype)[:] = REDUCE[op].reduce(np.stack(operands))

    def ncclReduceScatter(  # noqa: N802
        self, among: Communicator, source: int, target: int, count: int, dtype: int, op: int
    ) -> None:
        whole = memory(source, count * len(among.ranks), dtype).copy()
        combined = REDUCE[op].reduce(np.stack(among.meet(self._rank, whole)))
        place = among.ranks.index(self._rank)
        memory(target, count, dtype)[:] = combined[place * count : (place + 1) * count]

    def ncclAllGather(  # noqa: N802
        self, among: Communicator, source: int, target: int, count: int, dtype: int
    ) -> None:
        operands = among.meet(self._rank, memory(source, count, dtype).copy())
        memory(target, count * len(operands), dtype)[:] = np.concatenate(operands)

    def ncclBroadcast(  # noqa: N802
        self, among: Communicator, source: int, target: int, count: int, dtype: int, root: int
    ) -> None:
        operands = among.meet(self._rank, memory(source, count, dtype).copy())
        memory(target, count, dtype)[:] = operands[root]


class FakeDevice:
    """A GPU whose memory is the host's, and that is idle unless a test says otherwise."""

    name, stream = "cpu", 5
    guard: Any = None
    is_idle = True
    counted = 0  # bytes of windows

    def enter(self) -> None: ...

    def empty(self) -> None: ...

    def count(self, size: int) -> None:
        self.counted += size

    def synchronize(self) -> None:
        if self.guard is not None:
            self.guard(lambda: self.is_idle)

    def fill_with_zeros(self, pointer: int, nbytes: int, stream: int) -> None:
        ctypes.memset(pointer, 0, nbytes)


class Rank:
    """A rank of a run among threads."""

    def __init__(self, world: World, rank: int, size: int, server: Server, timeout: float) -> None:
        self.rank = rank
        self.library = FakeLibrary(world, rank)
        self.device: Any = FakeDevice()
        self.peers = Peers(rank, size, ("127.0.0.1", server.port), "token")
        self.engine = NcclEngine(self.library, self.peers, self.device, timeout)

    def exchanged(self, exchange: Exchange, operand: np.ndarray, count: int) -> np.ndarray:
        """The result of a collective, of `count` elements."""
        source = np.ascontiguousarray(operand)
        target = np.empty(count, source.dtype)
        self.engine.run(exchange, source.ctypes.data, target.ctypes.data, 9)
        return target


def run_ranks(size: int, what: Callable[[Rank], Any], timeout: float = 20.0) -> list[Any]:
    """What a function gives each rank, all of them at one time. timeout: of what they wait for
    then; as they begin, threads may be late."""
    world, server = World(size), Server(size, "token", "127.0.0.1")
    with ThreadPoolExecutor(size) as threads:
        made = [threads.submit(Rank, world, rank, size, server, 20.0) for rank in range(size)]
        ranks = [one.result() for one in made]
        for rank in ranks:
            rank.engine._timeout = rank.engine._windows._timeout = timeout
        return [one.result() for one in [threads.submit(what, rank) for rank in ranks]]

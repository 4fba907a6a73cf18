"""The engine of collectives among CPUs: MPI, by the package mpi4py.

Each collective is begun without blocking and then tested until it is done, so that a process
notices while it waits that another one failed, or that it waits for too long. MPI adds up the
floats that it knows; narrower ones are float32 on the way. Its maximum and minimum do not let NaN
win, so NumPy's are used, by a callback. All ranks get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from lamina.core.exchange import Exchange, group_of
from lamina.errors import DeviceError, MissingPackageError, ProgramsDifferError, RankError
from lamina.runtime.collectives import GroupPart, Places, Window
from lamina.runtime.peers import Peers, difference

Array = Any  # numpy.ndarray
Group = tuple[int, int]  # ranks and stride

_EXTREMES = {"MAX": np.maximum, "MIN": np.minimum}


def find() -> Any:
    """The package mpi4py. Raises MissingPackageError where it is not installed."""
    try:
        return import_module("mpi4py")
    except ModuleNotFoundError:
        raise MissingPackageError(
            "collectives among CPUs need the packages mpi4py and mpich: pip install 'lamina[mpi]'"
        ) from None


def load() -> Any:
    """The module MPI of mpi4py, which starts MPI. Raises MissingPackageError as `find` does."""
    mpi4py = find()
    mpi4py.rc.finalize = False  # `lamina.distributed` does, where no rank has failed
    return import_module("mpi4py.MPI")


class MpiEngine:
    """Collectives of MPI's world and of groups of it; see `lamina.runtime.collectives.Engine`."""

    kind = "cpu"
    bucket_bytes = 128 << 10  # a collective takes a few microseconds however short it is

    def __init__(self, mpi: Any, peers: Peers, timeout: float) -> None:
        """timeout: seconds until a rank that waits raises."""
        self._mpi, self._peers, self._timeout = mpi, peers, timeout
        self.rank, self.size = peers.rank, peers.size
        self._communicators: dict[Group, Any] = {(self.size, 1): mpi.COMM_WORLD}
        self._count = 0  # of collectives so far
        self._operations = {"ADD": mpi.SUM, "MUL": mpi.PROD}
        self._extremes: dict[tuple[str, str], Any] = {}  # by monoid and dtype
        self._carry_out: dict[str, Callable[[Exchange, Any, Array, Array], Any]] = {
            "all_reduce": self._all_reduce,
            "all_gather": self._all_gather,
            "reduce_scatter": self._reduce_scatter,
            "broadcast": self._broadcast,
            "all_to_all": self._all_to_all,
            "collective_permute": self._permute,
        }

    def make_group(self, ranks: int, stride: int) -> None:
        """Get ready for groups of `ranks`, `stride` apart. All processes call it, in one order."""
        if (ranks, stride) not in self._communicators:
            first = group_of(self.rank, ranks, stride)[0]
            world = self._mpi.COMM_WORLD
            self._communicators[ranks, stride] = world.Split(first, self.rank)

    def compare(self, parts: Sequence[GroupPart]) -> None:
        for part in parts:
            self._compare(part)

    def _compare(self, part: GroupPart) -> None:
        """Compare a part of a program with those of the other ranks of a group."""
        what = f"{part.lines[0]} (comparing programs before they run)"
        communicator = self._communicator(part.ranks, part.stride)
        group = group_of(self.rank, part.ranks, part.stride)
        here = np.frombuffer(bytes.fromhex(part.digest), np.uint8)
        all_digests = np.empty((part.ranks, here.size), np.uint8)
        self._finish(lambda: communicator.Iallgather(here, all_digests), what, group)
        if (all_digests == here).all():
            return
        everyone = communicator.allgather(part.lines)
        error = ProgramsDifferError(difference(group, everyone))
        self._peers.fail(error)
        raise error

    def window(self, part: GroupPart, places: Places, nbytes: int) -> Window | None:
        return None

    def progress(self) -> None:
        """Let MPI send what is still to be sent: it does so only while it is called."""
        self._mpi.COMM_WORLD.Iprobe()

    def run(self, exchange: Exchange, operand: int, result: int, stream: int = 0) -> None:
        size = exchange.result_size
        source = self._array(operand, exchange.size, exchange)
        target = self._array(result, size, exchange)
        if exchange.dtype.is_small and exchange.combine:
            wide = np.empty(size, np.float32)
            self._run(exchange, source.astype(np.float32), wide)
            target[:] = wide
        else:
            self._run(exchange, source, target)

    def gather(self, exchange: Exchange, operand: bytes) -> list[bytes]:
        communicator = self._communicator(exchange.ranks, exchange.stride)
        source = np.frombuffer(operand, np.uint8).copy()
        gathered = np.empty((exchange.ranks, source.size), np.uint8)
        self._finish_counted(lambda: communicator.Iallgather(source, gathered), exchange)
        return [row.tobytes() for row in gathered]

    def _run(self, exchange: Exchange, source: Array, target: Array) -> None:
        communicator = self._communicator(exchange.ranks, exchange.stride)
        begin = self._carry_out[exchange.operation]
        self._finish_counted(lambda: begin(exchange, communicator, source, target), exchange)

    def _finish_counted(self, begin: Callable[[], Any], exchange: Exchange) -> None:
        self._count += 1
        group = group_of(self.rank, exchange.ranks, exchange.stride)
        self._finish(begin, f"{exchange} (collective {self._count})", group)

    def _finish(self, begin: Callable[[], Any], what: str, group: Sequence[int]) -> None:
        """Begin a collective and wait for it; others may ask meanwhile, and later, where this is.
        """
        self._peers.check(what, group)
        self._peers.now = f"in {what}"
        request = begin()
        self._peers.wait_until(lambda: self._is_done(request, what), what, group, self._timeout)
        self._peers.now = f"after {what}"

    def _is_done(self, request: Any, what: str) -> bool:
        try:
            done: bool = request.Test()
        except self._mpi.Exception as error:
            raise RankError(f"{what}: MPI says: {error}") from error
        return done

    def _communicator(self, ranks: int, stride: int) -> Any:
        try:
            return self._communicators[ranks, stride]
        except KeyError:
            raise DeviceError(
                f"{ranks} ranks, {stride} apart, are no axis of a Mesh that this process has made"
            ) from None

    def _array(self, address: int, size: int, exchange: Exchange) -> Array:
        """The memory of `size` elements at `address`."""
        if size == 0:
            return np.empty(0, exchange.dtype.numpy)
        nbytes = size * exchange.dtype.itemsize
        return np.frombuffer(self._mpi.buffer.fromaddress(address, nbytes), exchange.dtype.numpy)

    def _operation(self, exchange: Exchange, dtype: Any) -> Any:
        """The operation of MPI that combines two arrays."""
        known = self._operations.get(exchange.combine)
        if known is not None:
            return known
        key = exchange.combine, dtype.name
        if key not in self._extremes:
            extreme = _EXTREMES[exchange.combine]

            def combine(ours: Any, theirs: Any, datatype: Any) -> None:
                result = np.frombuffer(theirs, dtype)
                extreme(np.frombuffer(ours, dtype), result, out=result)

            self._extremes[key] = self._mpi.Op.Create(combine, commute=True)
        return self._extremes[key]

    # Each begins one collective, and returns its request.

    def _all_reduce(self, exchange: Exchange, among: Any, source: Array, target: Array) -> Any:
        operation = self._operation(exchange, source.dtype)
        return among.Iallreduce(_typed(source), _typed(target), operation)

    def _reduce_scatter(self, exchange: Exchange, among: Any, source: Array, target: Array) -> Any:
        operation = self._operation(exchange, source.dtype)
        return among.Ireduce_scatter_block(_typed(source), _typed(target), operation)

    def _all_gather(self, exchange: Exchange, among: Any, source: Array, target: Array) -> Any:
        return among.Iallgather(_bytes(source), _bytes(target))

    def _all_to_all(self, exchange: Exchange, among: Any, source: Array, target: Array) -> Any:
        return among.Ialltoall(_bytes(source), _bytes(target))

    def _broadcast(self, exchange: Exchange, among: Any, source: Array, target: Array) -> Any:
        target[:] = source  # the root's; what others have is written over
        return among.Ibcast(_bytes(target), exchange.root)

    def _permute(self, exchange: Exchange, among: Any, source: Array, target: Array) -> Any:
        place = among.rank
        requests = []
        if place in exchange.targets:
            requests.append(among.Irecv(_bytes(target), exchange.targets.index(place)))
        else:
            target[:] = 0
        if exchange.targets[place] != -1:
            requests.append(among.Isend(_bytes(source), exchange.targets[place]))
        return _Requests(self._mpi, requests)


class _Requests:
    """Several requests as one."""

    def __init__(self, mpi: Any, requests: list[Any]) -> None:
        self._mpi, self._requests = mpi, requests

    def Test(self) -> bool:  # noqa: N802 (as MPI's own requests have it)
        done: bool = self._mpi.Request.Testall(self._requests)
        return done


def _typed(array: Array) -> Array:
    """As MPI adds it up; bools, which have a maximum and a minimum alone, as bytes."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def _bytes(array: Array) -> Array:
    """As MPI moves it, whatever it is."""
    return array.view(np.uint8)

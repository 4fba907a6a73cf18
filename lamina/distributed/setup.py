"""Joining the processes of a run, and leaving them in order or with an error."""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from lamina.core.options import current, set_options
from lamina.distributed.launched import Launched, Meeting, launched, meeting
from lamina.errors import ArgumentError, DeviceError, RankError
from lamina.runtime import collectives, mpi
from lamina.runtime.buffer import heap_of
from lamina.runtime.cache import digest
from lamina.runtime.collectives import Engine, GroupPart
from lamina.runtime.mpi import MpiEngine
from lamina.runtime.peers import Peers, Server

__all__ = ["init", "rank", "size"]

RETRY_SECONDS = 0.05  # between two attempts to reach the server, which may not have begun yet


@dataclass(frozen=True)
class _Process:
    """This process among those of its run; of one process, which needs no engine, None."""

    rank: int
    size: int
    engine: Engine | None = None


_joined: list[_Process] = []  # once `init` has run


def init(timeout: float = 300.0) -> None:
    """Join the processes that `lamina launch`, mpiexec or torchrun has started; a process that was
    started alone is rank 0 of 1. Calls after the first do nothing.

    Where new tensors live on "cuda", processes exchange arrays of GPUs, by NCCL: each then has the
    GPU of its number in its machine, cuda:1 the second. Otherwise they exchange arrays of CPUs, by
    MPI.

    timeout: seconds for which a collective waits for others before it raises RankError.

    Raises MissingPackageError without mpi4py or NCCL, and DeviceError where the launcher started
    processes that cannot be joined: without MPI, as torchrun does, for CPUs; without MASTER_ADDR
    and MASTER_PORT for GPUs."""
    if _joined:
        return
    if timeout <= 0:
        raise ArgumentError(f"timeout={timeout} is no number of seconds above 0", operation="init")
    process = launched()
    if process.size == 1:
        _joined.append(_Process(0, 1))
    elif current().kind == "cuda":
        _joined.append(_join_by_nccl(process, timeout))
    else:
        _joined.append(_join_by_mpi(process, timeout))


def rank() -> int:
    """The number of this process, from 0; 0 in a process alone. Calls `init`."""
    return _process().rank


def size() -> int:
    """How many processes there are. Calls `init`."""
    return _process().size


def make_group(ranks: int, stride: int) -> None:
    """Get ready for collectives in groups of `ranks`, `stride` apart: each process calls it."""
    engine = _process().engine
    if engine is not None:
        engine.make_group(ranks, stride)


def compare(ranks: int, stride: int, what: str) -> None:
    """Compare a line of text with those of the other processes of a group, which all call this at
    one time. Raises ProgramsDifferError, on GPUs at a later collective, where it is another one."""
    engine = _process().engine
    if engine is not None and ranks > 1:
        engine.compare([GroupPart(ranks, stride, (what,), digest(what))])


def bucket_bytes() -> int:
    """Arrays of fewer bytes are better moved together; 0 in a process alone."""
    engine = _process().engine
    return 0 if engine is None else engine.bucket_bytes


def _process() -> _Process:
    init()
    return _joined[0]


def _join_by_mpi(process: Launched, timeout: float) -> _Process:
    """Join the others, each with its CPUs."""
    launcher = process.launcher
    assert launcher is not None
    if not launcher.has_mpi:
        raise DeviceError(
            f"init: {launcher.name} starts processes that cannot join one MPI, by which CPUs "
            f"communicate: start them with `lamina launch -n {process.size} SCRIPT`"
        )
    module = mpi.load()
    world = module.COMM_WORLD
    if world.size != process.size:
        raise DeviceError(
            f"init: {launcher.name} started {process.size} processes, and MPI sees {world.size}: "
            f"its mpiexec is of another MPI than mpi4py uses; use that of mpi4py's, or "
            f"`lamina launch`"
        )
    peers = _meet(world)
    engine = MpiEngine(module, peers, timeout)
    collectives.use(engine)
    _leave_at_the_end(peers, engine.progress, module.Finalize)
    return _Process(world.rank, world.size, engine)


def _meet(world: Any) -> Peers:
    """Connect this process to the server on rank 0, which begins here. Only who has the token, a
    random one that MPI passes on, is let in."""
    hosts = world.allgather(socket.gethostname())
    meeting: Any = None
    if world.rank == 0:
        host = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
        token = secrets.token_hex(16)
        meeting = (host, Server(world.size, token, host).port), token
    address, token = world.bcast(meeting)
    return Peers(world.rank, world.size, address, token)


def _join_by_nccl(process: Launched, timeout: float) -> _Process:
    """Join the others, each with a GPU of its own."""
    from lamina.runtime.cuda import Device
    from lamina.runtime.nccl import NcclEngine
    from lamina.runtime.nccl_library import Library

    if current().device == "cuda":
        set_options(device=f"cuda:{process.local_rank}")
    device = heap_of(current().device)
    assert isinstance(device, Device)
    library = Library()
    peers = _meet_at(meeting(), process, timeout)
    _leave_at_the_end(peers, lambda: None, lambda: None, device.synchronize)
    engine = NcclEngine(library, peers, device, timeout)
    collectives.use(engine)
    return _Process(process.rank, process.size, engine)


def _meet_at(place: Meeting, process: Launched, timeout: float) -> Peers:
    """Connect this process to the server on rank 0, which begins here, and may begin later than
    this process. Raises DeviceError where its port is taken, and RankError after `timeout` seconds.
    """
    if process.rank == 0:
        try:
            Server(process.size, place.token, place.host, place.port)
        except OSError as error:
            raise DeviceError(
                f"init: port {place.port} of {place.host}, the one after MASTER_PORT, cannot be "
                f"used: {error}; set another MASTER_PORT"
            ) from error
    address = place.host, place.port
    until = time.monotonic() + timeout
    while True:
        try:
            return Peers(process.rank, process.size, address, place.token)
        except OSError as error:
            if time.monotonic() > until:
                raise RankError(
                    f"init: rank {process.rank} waited {timeout:g} s for rank 0 at port "
                    f"{place.port} of {place.host}: {error}"
                ) from error
            time.sleep(RETRY_SECONDS)


def _leave_at_the_end(
    peers: Peers,
    progress: Callable[[], object],
    end: Callable[[], object],
    finish: Callable[[], object] = lambda: None,
) -> None:
    """When Python ends, finish the work of this process, wait for the others while `progress` is
    called, and then `end` what joined them. After a failure that cannot be done, as it would wait
    for the rank that failed: the process ends without."""
    process = os.getpid()
    show = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        show(kind, error, at)
        if os.getpid() == process:
            peers.fail(error)

    def leave() -> None:
        if os.getpid() != process:  # a fork of it
            return
        is_finished = _finishes(peers, finish)
        if peers.leave(progress) and is_finished:
            end()
            return
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    sys.excepthook = tell
    atexit.register(leave)


def _finishes(peers: Peers, finish: Callable[[], object]) -> bool:
    """Whether this process, of a run in which nothing has failed, can finish its work."""
    if peers.failure is not None:
        return False
    try:
        finish()
    except (RankError, DeviceError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        peers.fail(error)
        return False
    return True

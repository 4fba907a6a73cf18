"""Joining the processes of a run, and leaving them in order or with an error."""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from lamina.distributed.launched import Launched, launched
from lamina.errors import ArgumentError, DeviceError
from lamina.runtime import collectives, mpi
from lamina.runtime.mpi import MpiEngine
from lamina.runtime.peers import Peers, Server

__all__ = ["init", "rank", "size"]


@dataclass(frozen=True)
class _Process:
    """This process among those of its run; of one process, which needs no engine, None."""

    rank: int
    size: int
    engine: MpiEngine | None = None


_joined: list[_Process] = []  # once `init` has run


def init(timeout: float = 300.0) -> None:
    """Join the processes that `lamina launch` or mpiexec has started; a process that was started
    alone is rank 0 of 1. Calls after the first do nothing.

    timeout: seconds for which a collective waits for others before it raises RankError.

    Raises MissingPackageError without mpi4py, and DeviceError where the launcher started processes
    that are not those of one MPI, as torchrun does."""
    if _joined:
        return
    if timeout <= 0:
        raise ArgumentError(f"init: timeout={timeout} is no number of seconds above 0")
    found = launched()
    if found.size == 1:
        _joined.append(_Process(0, 1))
    else:
        _joined.append(_join(found, timeout))


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


def _process() -> _Process:
    init()
    return _joined[0]


def _join(found: Launched, timeout: float) -> _Process:
    """Join the others by MPI."""
    launcher = found.launcher
    assert launcher is not None
    if not launcher.has_mpi:
        raise DeviceError(
            f"init: {launcher.name} starts processes that cannot join one MPI, by which CPUs "
            f"communicate: start them with `lamina launch -n {found.size} SCRIPT`"
        )
    module = mpi.load()
    world = module.COMM_WORLD
    if world.size != found.size:
        raise DeviceError(
            f"init: {launcher.name} started {found.size} processes, and MPI sees {world.size}: its "
            f"mpiexec is of another MPI than mpi4py uses; use that of mpi4py's, or `lamina launch`"
        )
    peers = _meet(world)
    engine = MpiEngine(module, peers, timeout)
    collectives.use(engine)
    _leave_at_the_end(module, peers, engine)
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


def _leave_at_the_end(module: Any, peers: Peers, engine: MpiEngine) -> None:
    """When Python ends, wait for the others, and then end MPI. After a failure MPI cannot be ended,
    as that would wait for the rank that failed: the process ends without."""
    process = os.getpid()
    show = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        show(kind, error, at)
        if os.getpid() == process:
            peers.fail(error)

    def leave() -> None:
        if os.getpid() != process:  # a fork of it
            return
        if peers.leave(engine.progress):
            module.Finalize()
            return
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    sys.excepthook = tell
    atexit.register(leave)

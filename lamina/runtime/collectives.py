"""Collectives of a program: which engine carries them out, and how generated code asks for them.

A program does not communicate by itself. On a CPU its code calls back at a collective (`EXCHANGE`
in `lamina/targets/c/exchanges.c`), and on a GPU a collective is one of the launches; the engine
that `lamina.distributed.init` has chosen moves the arrays. At each run all processes compare what
their programs exchange: two that differ would wait for each other without end.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Protocol

from lamina.core.exchange import Exchange
from lamina.errors import DeviceError
from lamina.runtime.buffer import Buffer
from lamina.runtime.cache import digest

# Of each collective of a program, where its operand and its result begin in the scratch memory, in
# bytes; -1 of an array that is elsewhere.
Places = tuple[tuple[int, int], ...]
NOWHERE = -1, -1


@dataclass(frozen=True)
class GroupPart:
    """The collectives of a program among groups of `ranks`, `stride` apart.

    lines: what they are, to read. digest: of the lines, in hexadecimal."""

    ranks: int
    stride: int
    lines: tuple[str, ...]
    digest: str

    def has(self, exchange: Exchange) -> bool:
        """Whether a collective of the program is among its groups."""
        return (exchange.ranks, exchange.stride) == (self.ranks, self.stride)


@dataclass(frozen=True)
class Window:
    """Scratch memory of this process, `buffer`, that the GPUs of a group reach, and the places of
    the arrays of a list of collectives in it."""

    buffer: Buffer
    places: Places

    def holds(self, number: int) -> bool:
        """Whether both arrays of the collective of a number lie in it."""
        return min(self.places[number]) >= 0

    def addresses(self, number: int) -> tuple[int, int]:
        """Of the operand and the result of a collective that it holds."""
        operand, result = self.places[number]
        return self.buffer.pointer + operand, self.buffer.pointer + result


def parts_of(exchanges: Sequence[Exchange]) -> tuple[GroupPart, ...]:
    """The collectives of a program by group, in one order on all ranks, whatever their programs:
    the largest groups first."""
    parts = []
    for ranks, stride in sorted({(one.ranks, one.stride) for one in exchanges}, reverse=True):
        lines = [str(one) for one in exchanges if (one.ranks, one.stride) == (ranks, stride)]
        parts.append(GroupPart(ranks, stride, tuple(lines), digest(*lines)))
    return tuple(parts)


class Engine(Protocol):
    """Moves arrays among the processes of a run. Each method is called by all of them, in the same
    order, and raises RankError, naming the operation and the rank, where that fails.

    kind: of the devices whose arrays it moves, "cpu" or "cuda". bucket_bytes: arrays of fewer are
        better moved together."""

    kind: str
    bucket_bytes: int
    rank: int
    size: int

    def make_group(self, ranks: int, stride: int) -> None:
        """Get ready for groups of `ranks`, `stride` apart."""

    def compare(self, parts: Sequence[GroupPart]) -> None:
        """Compare what a program is about to exchange with what others exchange. Raises
        ProgramsDifferError where that differs; an engine of GPUs may do so later, as it waits."""

    def window(self, part: GroupPart, places: Places, nbytes: int) -> Window | None:
        """Memory that GPUs of other processes reach, for the scratch arrays, `nbytes` in all, of a
        program with these collectives and places; agreed on when they first come up, so that it may
        be for other places. None where there is no such memory, or no agreement."""

    def run(self, exchange: Exchange, operand: int, result: int, stream: int = 0) -> None:
        """Carry out `exchange` on arrays at two addresses, which do not overlap. An engine of GPUs
        begins it on a stream, whose address is given."""

    def gather(self, exchange: Exchange, operand: bytes) -> list[bytes]:
        """The operands of all ranks of the group, in order."""


_engines: list[Engine] = []  # the one of this process, if any


def use(engine: Engine) -> None:
    """Carry out collectives by `engine` from now on."""
    _engines[:] = [engine]


def engine_for(exchange: Exchange, kind: str = "") -> Engine:
    """The engine of this process. Raises DeviceError where there is none, or none for arrays on
    devices of `kind`, if that is given."""
    if not _engines:
        why = "this process knows no others"
        how = "start it by `lamina launch`, and call lamina.distributed.init()"
        raise DeviceError(f"{exchange}: {why}: {how}")
    engine = _engines[0]
    if kind and engine.kind != kind:
        raise DeviceError(
            f"{exchange}: the array is on {kind}, and the processes of this run exchange arrays on "
            f"{engine.kind}: start them by `lamina launch --device {kind}`"
        )
    return engine


_Function = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class Exchanges:
    """The collectives of a loaded program, by number."""

    def __init__(self, library: ctypes.CDLL, exchanges: Sequence[Exchange]) -> None:
        self._exchanges = exchanges
        self._parts = parts_of(exchanges)
        self._errors: dict[int, BaseException] = {}  # by the thread that runs the program
        self._function = _Function(self._exchange)  # which the library calls: it has to stay alive
        library.lamina_set_exchange(self._function)

    def during(self, run: Callable[[], object]) -> None:
        """Run the program. Raises RankError or ProgramsDifferError as an engine does."""
        engine_for(self._exchanges[0], "cpu").compare(self._parts)
        run()
        error = self._errors.pop(get_ident(), None)
        if error is not None:
            raise error

    def _exchange(self, number: int, operand: int, result: int) -> bool:
        """Carry out one of them; an error, which cannot pass through C, ends the program."""
        exchange = self._exchanges[number]
        try:
            engine_for(exchange).run(exchange, operand, result)
        except BaseException as error:
            self._errors[get_ident()] = error
            return False
        return True


@functools.cache
def exchanges_of(library: ctypes.CDLL, exchanges: tuple[Exchange, ...]) -> Exchanges:
    """Those of a library, made once: it is loaded once too, and keeps the address of a function."""
    return Exchanges(library, exchanges)

"""Collectives of a program: which engine carries them out, and how generated code asks for them.

A program does not communicate by itself. At a collective its code calls back (`EXCHANGE` in
`lamina/targets/c/exchanges.c`), and the engine that `lamina.distributed.init` has chosen moves the
arrays. Before each run all processes compare what their programs exchange: two that differ would
wait for each other without end.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Protocol

from lamina.core.exchange import Exchange
from lamina.errors import DeviceError


class Engine(Protocol):
    """Moves arrays among the processes of a run. Each method is called by all of them, in the same
    order, and raises RankError, naming the operation and the rank, where that fails."""

    rank: int
    size: int

    def compare(self, exchanges: Sequence[Exchange]) -> None:
        """Raise ProgramsDifferError unless all ranks that are to take part in `exchanges` have
        programs with the same ones."""

    def run(self, exchange: Exchange, operand: int, result: int) -> None:
        """Carry out `exchange` on arrays at two addresses, which do not overlap."""

    def gather(self, exchange: Exchange, operand: bytes) -> list[bytes]:
        """The operands of all ranks of the group, in order."""


_engines: list[Engine] = []  # the one of this process, if any


def use(engine: Engine) -> None:
    """Carry out collectives by `engine` from now on."""
    _engines[:] = [engine]


def engine_for(exchange: Exchange) -> Engine:
    """The engine of this process. Raises DeviceError where there is none."""
    if not _engines:
        why = "this process knows no others"
        how = "start it by `lamina launch`, and call lamina.distributed.init()"
        raise DeviceError(f"{exchange}: {why}: {how}")
    return _engines[0]


_Function = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class Exchanges:
    """The collectives of a loaded program, by number."""

    def __init__(self, library: ctypes.CDLL, exchanges: Sequence[Exchange]) -> None:
        self._exchanges = exchanges
        self._errors: dict[int, BaseException] = {}  # by the thread that runs the program
        self._function = _Function(self._exchange)  # which the library calls: it has to stay alive
        library.lamina_set_exchange(self._function)

    def during(self, run: Callable[[], object]) -> None:
        """Run the program. Raises RankError or ProgramsDifferError as an engine does."""
        engine_for(self._exchanges[0]).compare(self._exchanges)
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

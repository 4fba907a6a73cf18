"""What the interpreter of tile programs computes in the registers of a warpgroup.

A register array has the 64 rows of a group; one of a row alone has one column. What no product has
written yet, or one may still write, has no value.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamina.ir.monoids import MAX
from lamina.tiles.arithmetic import TileBody
from lamina.tiles.program import (
    SHIFT_THRESHOLD,
    WARPGROUP_ROWS,
    Arrive,
    Compute,
    Drain,
    Rescale,
    RowReduce,
    Set,
    Shift,
    Statement,
    TileError,
    TileProgram,
)
from lamina.tiles.values import Gather, Map, Position

Array = Any  # numpy.ndarray


class _Settled(dict[str, Array]):
    """Values by name. Raises TileError for one that has no value now."""

    def __missing__(self, name: str) -> Array:
        raise TileError(f"{name} is read before it has a value, or while products run")


class Registers:
    """The registers of a group.

    values: by name, which this changes. busy: names of those that products may still write
    """

    def __init__(
        self, program: TileProgram, values: dict[str, Array], busy: set[str], agent: str
    ) -> None:
        self.program, self.values, self.busy, self.agent = program, values, busy, agent

    @property
    def _settled(self) -> _Settled:
        return _Settled(
            (name, value) for name, value in self.values.items() if name not in self.busy
        )

    def compute(self, compute: Compute, body: TileBody) -> None:
        """Run arithmetic on registers; `body` has the variables of the tile."""
        body.values = _Settled(body.values | self._settled)
        for statement in compute.body:
            match statement:
                case Drain() | Arrive():
                    pass
                case Map() | Gather() | Position():
                    body.run(statement)
                case RowReduce(target=target, monoid=monoid, value=value):
                    reduce = np.maximum.reduce if monoid is MAX else np.add.reduce
                    body.values[target] = reduce(body.operand(value), axis=1, keepdims=True)
                case Shift():
                    body.values[statement.target] = self._shift(statement, body.values)
                    body.values |= self._settled
                case _:
                    self.run(statement, body.values)
                    body.values |= self._settled

    def run(self, statement: Statement, values: Mapping[str, Array] | None = None) -> None:
        """Set or rescale registers, from named values or from other registers."""
        known = self._settled if values is None else values
        match statement:
            case Set(registers=name, value=value):
                alloc = self.program.alloc(name)
                shape = WARPGROUP_ROWS, alloc.shape[1]
                array = known[value] if isinstance(value, str) else np.asarray(value)
                if array.ndim == 2 and shape[1] == 1:  # a value of each row, in every column
                    array = array[:, :1]
                array = np.broadcast_to(array, shape).astype(alloc.dtype.numpy)
                self._write(name, array)
            case Rescale(sums=name, factor=factor):
                self._write(name, known[name] * known[factor])
            case _:
                raise TileError(f"{type(statement).__name__} in a place without meaning")

    def _write(self, name: str, array: Array) -> None:
        if name in self.busy:
            raise TileError(f"{self.agent} writes {name} while products run")
        self.values[name] = array

    def _shift(self, shift: Shift, values: Mapping[str, Array]) -> Array:
        before, maximum = values[shift.shift], values[shift.maximum]
        wanted = values[shift.wanted]
        wanted = np.broadcast_to(wanted, (WARPGROUP_ROWS, wanted.shape[1]))[:, :1]
        is_none = maximum == -np.inf
        with np.errstate(invalid="ignore"):
            stays = is_none | (np.abs(wanted - before) <= SHIFT_THRESHOLD)
            self._write(shift.factor, np.where(stays, np.float32(1), np.exp(before - wanted)))
        now = np.where(stays, before, wanted)
        self._write(shift.shift, now)
        return np.where(is_none, np.float32(0), now)

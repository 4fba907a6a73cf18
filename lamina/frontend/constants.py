"""Which inputs of a traced program are constants, and what the program keeps that is made of them.

A tensor that a function captures and neither assigns nor differentiates is most likely the same in
the next call: a weight in inference, a table. It is a constant input. The compiler takes what
depends on such inputs alone into a program that runs once (`lamina.fuse.constants`,
`lamina.schedule.kept`). Its results are kept here, and made anew when a constant has changed after
all. Programs share what each would keep: the packed weights of a network are the same for texts of
all lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from lamina.core.options import Options
from lamina.core.recent import CACHES, Cache
from lamina.frontend import realize as memory
from lamina.frontend.tensor import Tensor
from lamina.frontend.trace import Trace
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import substitute
from lamina.runtime.buffer import Buffer, heap_of

if TYPE_CHECKING:
    from lamina.compiled import Planned

# Runs of a program in a row that each find other constants, after which it is made without any.
MAX_CHANGES = 3


def constants_of(trace: Trace, owners: Mapping[Buffer, Tensor | None]) -> set[int]:
    """The numbers of the inputs of `trace` that are the same in most calls. owners: the tensor that
    each call reads an input from; None for arguments, and for the random key.

    Memory that another library shares is none of them: nothing tells when that writes to it."""
    written = {sink.src[0].arg.storage for sink in trace.sinks if sink.op is Op.ASSIGN}
    gradients = {*trace.asked.values()}
    constants: set[int] = set()
    for storage, number in trace.inputs.items():
        owner = owners.get(storage)
        is_argument = storage in owners and owner is None
        varies = is_argument or number in written or storage.exported
        if owner is not None:
            node = trace.around.nodes[owner]
            varies = varies or owner in gradients or node in trace.differentiated
            varies = varies or memory.memory_of(owner).exported
        if not varies:
            constants.add(number)
    return constants


def with_constants(sinks: Sequence[Node], constants: set[int]) -> list[Node]:
    """`sinks` over numbered memory, with a mark on each input among `constants`."""
    marked: dict[Node, Node] = {}
    for node in toposort(sinks):
        is_real = not node.dtype.is_complex  # `split_complex` has two inputs for one that is not
        if node.op is Op.BUFFER and node.arg.storage in constants and is_real:
            marked[node] = Node(Op.BUFFER, (), node.arg._replace(constant=True))
    return substitute(sinks, marked)


@dataclass(frozen=True)
class _Origin:
    """What an array is made of: arrays of one origin are equal.

    digest: of its `Recipe`
    options: which decide in which order sums are computed
    inputs: the memory of the constants
    writes: how often that had been written
    """

    digest: str
    options: Options
    inputs: tuple[Buffer, ...]
    writes: tuple[int, ...]


# The arrays that programs of this process keep, by their origins.
_KEPT: WeakValueDictionary[_Origin, Buffer] = WeakValueDictionary()
CACHES.append(Cache("lamina.frontend.constants.kept", _KEPT.__len__, _KEPT.clear))


class KeptArrays:
    """The arrays that a program keeps from call to call."""

    def __init__(self, planned: Planned, options: Options, constants: Iterable[int]) -> None:
        """constants: the numbers of the inputs that they are made of."""
        self._planned, self._options = planned, options
        self._constants = sorted(constants) if planned.once is not None else []
        self._made_of: list[Buffer] = []
        self._writes: list[int] = []
        self.arrays: list[Buffer] = []
        self.nbytes = 0  # of the arrays
        self.changes = 0  # how many calls in a row found other constants than the call before

    def in_call(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """`of` for a call, which counts whether its constants are those of the call before."""
        changes = self.changes
        arrays = self.of(inputs)
        if self.changes == changes:
            self.changes = 0
        return arrays

    def of(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """The arrays that are made of `inputs`, those that are there if the constants are the
        same."""
        if not self._constants:
            return self.arrays
        constants = [inputs[number] for number in self._constants]
        writes = [buffer.writes for buffer in constants]
        if constants == self._made_of and writes == self._writes:
            return self.arrays
        self.drop()
        self.arrays = self._found_or_made(inputs)
        self._made_of, self._writes = constants, writes
        self.nbytes = sum(buffer.nbytes for buffer in self.arrays)
        self.changes += 1
        return self.arrays

    def _found_or_made(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """The arrays: those of other programs where these have the same origins, and new ones."""
        from lamina.frontend.execution import run_once  # it loads when it is first needed

        origins = self._origins(inputs)
        found = [_KEPT.get(origin) for origin in origins]
        arrays = [array for array in found if array is not None]
        if len(arrays) == len(origins):
            return arrays
        made = run_once(self._planned, inputs, self._options)
        arrays = _instead_of(made, found) if arrays else made
        _KEPT.update(zip(origins, arrays, strict=True))
        return arrays

    def _origins(self, inputs: Sequence[Buffer]) -> list[_Origin]:
        """The origin of each array."""
        assert self._planned.once is not None
        origins: list[_Origin] = []
        for recipe in self._planned.once.program.recipes:
            read = tuple(inputs[number] for number in recipe.inputs)
            writes = tuple(buffer.writes for buffer in read)
            origins.append(_Origin(recipe.digest, self._options, read, writes))
        return origins

    def drop(self) -> None:
        """Free the arrays that no other program keeps; the next call makes them again."""
        self.arrays, self._made_of, self._writes = [], [], []
        self.nbytes = 0

    @property
    def is_shared(self) -> bool:
        """Whether another library has come to share the memory of a constant, and may write to it
        unseen."""
        return any(buffer.exported for buffer in self._made_of)


def kept_bytes(programs: Iterable[KeptArrays]) -> int:
    """The bytes of what all of them keep; what some share counts once."""
    arrays = {id(array): array for kept in programs for array in kept.arrays}
    return sum(array.nbytes for array in arrays.values())


def _instead_of(made: Sequence[Buffer], found: Sequence[Buffer | None]) -> list[Buffer]:
    """`found`, with copies of those of `made` that were not found: these are parts of one block of
    memory, which would live as long as any of them."""
    missing = [own for own, other in zip(made, found, strict=True) if other is None]
    device = made[0].device
    copies = Buffer.parts([own.nbytes for own in missing], device)
    for own, copy in zip(missing, copies, strict=True):
        heap_of(device).copy(own, copy)
    left = iter(copies)
    return [next(left) if other is None else other for other in found]

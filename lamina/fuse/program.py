"""From grouped values to a program: kernels in order, the buffers they use, a memory plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from lamina.dtypes import DType
from lamina.fuse.chain import chained
from lamina.fuse.group import KernelGroup, array_of, group_values
from lamina.ir.kernel import AnyKernel, Kernel, Parameter, SortKernel, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.shape import prod

ALIGNMENT = 64  # bytes; a cache line


@dataclass(frozen=True)
class Slot:
    """A buffer of a program. `kind`: "input" (a parameter of the program, by `number`), "output"
    (a fresh result, by `number`), "scratch" (at `offset` bytes of the arena), or "block" (the same
    of what each thread has for a block of a chain)."""

    kind: str
    number: int
    dtype: DType
    size: int
    offset: int = 0

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Launch:
    """One kernel and the slots (by position in the program) of its parameters."""

    kernel: AnyKernel
    slots: tuple[int, ...]
    chain: int = 0  # those of one number run together, block by block


@dataclass(frozen=True)
class Program:
    """Kernels in order. `outputs` holds a slot for each requested result. A call brings a table of
    memory: the arena, then a buffer for each output, then one for each input."""

    launches: tuple[Launch, ...]
    slots: tuple[Slot, ...]
    outputs: tuple[int, ...]
    arena: int  # bytes of scratch
    block: int  # bytes that a thread needs for a block

    @property
    def chains(self) -> list[tuple[Launch, ...]]:
        """The launches that run one after the other, those of a chain together."""
        return [tuple(group) for _, group in groupby(self.launches, attrgetter("chain"))]

    def place(self, slot: Slot) -> int:
        """Where in the table the memory of `slot` is."""
        first = {"scratch": 0, "output": 1, "input": 1 + len(self.outputs)}
        return first[slot.kind] + slot.number


@dataclass(frozen=True)
class Output:
    """A requested result: `value` goes into the input buffer `target`, or a fresh buffer."""

    value: Node
    target: Node | None = None


class _Builder:
    """Collects slots and launches; every array has one home slot."""

    def __init__(self, outputs: Sequence[Output], in_blocks: bool) -> None:
        self.outputs = outputs
        self.slots: list[Slot] = []
        self.launches: list[Launch] = []
        self.slot_of: dict[object, int] = {}
        self.chain = 0
        values = [output.value for output in outputs]
        self.chains = chained(group_values(values), values, in_blocks)
        self.groups = [group for chain in self.chains for group in chain.groups]
        self.group_of = {node: group for group in self.groups for node in group.members}

    def build(self) -> Program:
        results, late = self._place_outputs()
        read = {one for group in self.groups for one in group.reads}
        for chain in toposort(self.chains):  # now after the readers of what they overwrite
            self.chain += 1
            for group in chain.groups:
                first = group.members[0]
                if first.op is Op.ARGSORT:
                    self._sort(first)
                    continue
                if first.op is Op.SCATTER:  # the updates are combined into a copy of the base
                    self._copy(first.src[0], self.home(first))
                    self.chain += 1
                stored = [one for one in group.members if one in read or one in self.slot_of]
                self._launch(group, stored)
        for value, slot in late:
            self.chain += 1
            self._copy(value, slot)
        return _plan_memory(self.launches, self.slots, results)

    def slot(self, kind: str, node: Node, number: int = 0) -> int:
        self.slots.append(Slot(kind, number, node.dtype, prod(node.shape)))
        return len(self.slots) - 1

    def home(self, node: Node) -> int:
        """The slot that holds `node`, made as an input or as scratch if nothing asked for it."""
        key = array_of(node)
        if key not in self.slot_of:
            block = None if node.op is Op.BUFFER else self.group_of[node].block
            if block is not None and node in block.inside:
                self.slot_of[key] = self.slot("block", node)
                slot, rows = self.slots[-1], [node.shape[axis] for axis in block.inside[node]]
                self.slots[-1] = replace(slot, size=slot.size // prod(rows) * block.size)
            elif node.op is Op.BUFFER:
                self.slot_of[key] = self.slot("input", node, node.arg.storage)
            else:
                self.slot_of[key] = self.slot("scratch", node)
        return self.slot_of[key]

    def _place_outputs(self) -> tuple[list[int], list[tuple[Node, int]]]:
        """A slot for every output, and the copies to make once everything has been read."""
        results, late = [], []
        for number, output in enumerate(self.outputs):
            value, target = output.value, output.target
            slot = self.slot("output", value, number) if target is None else self.home(target)
            if value in self.slot_of or not (target is None or self._may_overwrite(value, target)):
                self.home(value)
                late.append((value, slot))
            else:
                self.slot_of[value] = slot
            results.append(slot)
        return results, late

    def _may_overwrite(self, value: Node, target: Node) -> bool:
        """Can the kernel of `value` write to `target` in place? Every other kernel that reads it
        must be able to run first, and it may read only the element that it is about to write."""
        home, storage = self.group_of[value], target.arg.storage
        others = [one for one in self.groups if one is not home and storage in one.reads]
        own = home.block is None and _reads_own_element(home, value, target)
        if not own or home in toposort(others):
            return False
        home.src = (*home.src, *others)
        return True

    def _launch(self, group: KernelGroup, stored: list[Node], target: int | None = None) -> None:
        """The kernel of a group that stores some of its members, in their homes or in `target`."""
        slots = [self.home(node) for _, node in group.parameters.values()]
        places = [self.home(node) if target is None else target for node in stored]
        slots = list(dict.fromkeys([*slots, *places]))
        stores = tuple(
            replace(group.stores[node], parameter=slots.index(place))
            for node, place in zip(stored, places, strict=True)
        )
        if any(points(store.axes) for store in stores):
            parameters, rows = self._parameters(slots, places), len(group.row_axes)
            kernel = Kernel(parameters, stores, rows, len(group.blocks))
            self.launches.append(Launch(kernel, tuple(slots), self.chain))

    def _parameters(self, slots: Sequence[int], written: Sequence[int]) -> tuple[Parameter, ...]:
        found = ((self.slots[slot], slot in written) for slot in slots)
        return tuple(
            Parameter(slot.dtype, slot.size, stored, "block" if slot.kind == "block" else "device")
            for slot, stored in found
        )

    def _copy(self, source: Node, target: int) -> None:
        """A kernel of its own that stores `source`."""
        value = Node(Op.CONTIGUOUS, (source,))
        self._launch(KernelGroup(value, frozenset(self.group_of)), [value], target)

    def _sort(self, node: Node) -> None:
        slots = (self.home(node.src[0]), self.home(node), self.slot("scratch", node))
        if prod(node.shape):
            parameters = self._parameters(slots, slots[1:])
            kernel = SortKernel(parameters, prod(node.shape[:-1]), node.shape[-1])
            self.launches.append(Launch(kernel, slots, self.chain))


def _reads_own_element(group: KernelGroup, value: Node, target: Node) -> bool:
    """Does the kernel read the storage of `target`, if at all, only where it stores `value`?"""
    storage = target.arg.storage
    if storage not in group.reads or value.op in (Op.SCATTER, Op.ARGSORT):
        return storage not in group.reads
    numbers = {
        number
        for number, node in group.parameters.values()
        if node.op is Op.BUFFER and node.arg.storage == storage
    }
    return all(
        node.src[0] is group.stores[value].index and node.dtype is target.dtype
        for node in toposort(store.value for store in group.stores.values())
        if node.op is Op.LOAD and node.arg.parameter in numbers
    )


def _plan_memory(launches: list[Launch], slots: list[Slot], outputs: list[int]) -> Program:
    """Offsets for scratch, which the kernels of a chain use at one time, and in a block."""
    scratch = [(launch.chain, slot) for launch in launches for slot in launch.slots]
    block = [(time, slot) for time, launch in enumerate(launches) for slot in launch.slots]
    sizes = [_place(slots, "scratch", scratch), _place(slots, "block", block)]
    return Program(tuple(launches), tuple(slots), tuple(outputs), *sizes)


def _place(slots: list[Slot], kind: str, uses: list[tuple[int, int]]) -> int:
    """First fit over the span from a slot's first use to its last; returns the bytes needed."""
    spans: dict[int, tuple[int, int]] = {}
    for time, slot in uses:
        if slots[slot].kind == kind:
            spans[slot] = (spans.get(slot, (time, time))[0], time)
    placed: list[tuple[int, int, int]] = []  # offset, end, slot
    for slot in sorted(spans, key=lambda one: (-slots[one].nbytes, one)):
        first, last = spans[slot]
        need = -(-slots[slot].nbytes // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, other in sorted(placed):
            overlaps = spans[other][0] <= last and first <= spans[other][1]
            if overlaps and start < offset + need and offset < end:
                offset = end
        placed.append((offset, offset + need, slot))
        slots[slot] = replace(slots[slot], offset=offset)
    return max((end for _, end, _ in placed), default=0)


def build_program(outputs: Sequence[Output], in_blocks: bool = True) -> Program:
    """Fuse, order and plan. BUFFER leaves hold the number of a program input as storage. Without
    `in_blocks`, each kernel runs as a whole."""
    owned = list(outputs)
    for number, output in enumerate(owned):
        if output.value.op is Op.BUFFER:
            owned[number] = replace(output, value=Node(Op.CONTIGUOUS, (output.value,)))
    return _Builder(owned, in_blocks).build()

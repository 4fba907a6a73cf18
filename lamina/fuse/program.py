"""From grouped values to a program: kernels in order, the buffers they use, a memory plan."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from lamina.core.dtypes import DType
from lamina.core.shape import prod
from lamina.fuse.groups import group_values, readers_of
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.members import array_of
from lamina.fuse.narrow import Narrowing, narrowed, narrowing_of
from lamina.fuse.row_blocks import chained
from lamina.fuse.target import FusionTarget
from lamina.graph import index as ix
from lamina.ir.kernel import AnyKernel, Kernel, Parameter, SortKernel, bounds, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op

ALIGNMENT = 64  # bytes; a cache line


class Slot(NamedTuple):
    """A buffer of a program, or from `offset` bytes on a part of one. `kind`: "input" (a parameter
    of the program, by `number`), "output" (a fresh result, by `number`), "scratch" (a part of the
    arena, numbered), or "block" (the same of what each thread has for a block of a chain)."""

    kind: str
    number: int
    dtype: DType
    size: int
    offset: int = 0

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


class Launch(NamedTuple):
    """One kernel and the slots of its parameters."""

    kernel: AnyKernel
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Program:
    """Chains of kernels in order; those of one run together, block by block. `outputs` holds a
    slot for each requested result. A call brings a table of memory: the arena, then a buffer for
    each output, then one for each input."""

    chains: tuple[tuple[Launch, ...], ...]
    outputs: tuple[Slot, ...]
    arena: int  # bytes of scratch
    block: int  # bytes that a thread needs for a block

    @cached_property
    def launches(self) -> list[Launch]:
        return [launch for chain in self.chains for launch in chain]

    def place(self, slot: Slot) -> tuple[int, int]:
        """Where `slot` begins: in which buffer of the table, and at which of its bytes."""
        at = {"output": 1 + slot.number, "input": 1 + len(self.outputs) + slot.number}
        return at.get(slot.kind, 0), slot.offset


class _Builder:
    """Collects slots and launches; every array has one home slot."""

    def __init__(self, sinks: Sequence[Node], memory: FusionTarget, kept: set[Node]) -> None:
        self.wanted: list[tuple[Node | None, Node]] = []  # targets, and the values they get
        for sink in sinks:
            target, value = sink.src if sink.op is Op.ASSIGN else (None, sink)
            copied = Node(Op.CONTIGUOUS, (value,)) if value.op is Op.BUFFER else value
            self.wanted.append((target, copied))
        self.found: list[list[Launch]] = []  # chain by chain
        self.slot_of: dict[object, Slot] = {}
        self.offsets: dict[Slot, int] = {}  # of what is placed within an arena
        self.numbers = itertools.count()
        self.memory = memory
        self.kept = kept  # products that kernels gain nothing by computing inside their sums
        values = [value for _, value in self.wanted]
        groups = group_values(values, memory, kept)
        self.chains = chained(groups, values, memory.row_blocks)
        self.readers = readers_of(one for chain in self.chains for one in chain.groups)
        self.chain_of = {group: chain for chain in self.chains for group in chain.groups}
        self.group_of = {node: group for group in groups for node in group.members}

    def build(self) -> Program:
        results, late = self._place_outputs()
        for chain in toposort(self.chains):  # now after the readers of what they overwrite
            for group in chain.groups:
                if group.initial:  # the updates are combined into a copy of the base
                    self._launch(group.initial, self.home(group.first))
            self.found.append([])
            for group in chain.groups:
                self._launch(group)
        for value, slot in late:
            self._launch(KernelGroup(Node(Op.CONTIGUOUS, (value,)), {value: value.shape}), slot)
        sizes = self._place("scratch"), self._place("block")
        chains = tuple(tuple(map(self._by_lines, one)) for one in self.found if one)
        return Program(chains, tuple(results), *sizes)

    def home(self, node: Node, group: KernelGroup | None = None) -> Slot:
        """The slot where `group` holds `node`, made if nothing asked for it."""
        shape = group.block.shape(node) if group else None
        key = (len(self.found), node) if shape else array_of(node)
        if key not in self.slot_of:
            kind, number = ("block" if shape else "scratch"), next(self.numbers)
            if node.op is Op.BUFFER:
                kind, number = "input", node.arg.storage
            held = shape or (group.values.get(node) if group else None) or node.shape
            self.slot_of[key] = Slot(kind, number, node.dtype, prod(held))
        return self.slot_of[key]

    def _place_outputs(self) -> tuple[list[Slot], list[tuple[Node, Slot]]]:
        """A slot for every output, and the copies to make once everything has been read."""
        results, late = [], []
        for number, (target, value) in enumerate(self.wanted):
            fresh = Slot("output", number, value.dtype, prod(value.shape))
            slot = fresh if target is None else self.home(target)
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
        readers = self.readers.get(storage, [])
        others = [one for one in readers if one is not home]
        narrowing = self._narrowing(value, target)
        steps = narrowing.indices if narrowing else {}
        place = ix.replaced(home.stores[value].index, steps)
        alike = all(
            node.dtype is target.dtype
            and ix.replaced(ix.row_major(index, node.shape), steps) is place
            for node in home.reads
            for index in home.reads[node]
            if node.op is Op.BUFFER and node.arg.storage == storage
        )
        own = home not in readers or (alike and value.op not in (Op.SCATTER, Op.ARGSORT))
        before = toposort(self.chain_of[one] for one in others)
        if home.block_axes or not own or self.chain_of[home] in before:
            return False
        home.src = (*home.src, *others)
        return True

    def _narrowing(self, value: Node, target: Node) -> Narrowing | None:
        """How the loops of the kernel of `value` become shorter if that alone overwrites `target`,
        and may then read just the elements that it changes."""
        home = self.group_of[value]
        read = home.lowered.parameters.get(array_of(target))
        number = read.parameter if read else -1
        alone = home.members == [value] and not home.block_axes
        return narrowing_of([replace(home.stores[value], parameter=number)]) if alone else None

    def _launch(self, group: KernelGroup, target: Slot | None = None) -> None:
        """The kernel of a group, which stores the members that are used in their homes; or a chain
        of its own that stores what there is in `target`."""
        if target:
            self.found.append([])
        stored = [one for one in group.members if target or one in self.readers
                  or one in self.slot_of or group.block.shape(one)]  # fmt: skip
        read = [self.home(read.node, group) for read in group.lowered.parameters.values()]
        places = [self.home(node, group) if target is None else target for node in stored]
        if sorts := group.first.op is Op.ARGSORT:
            *around, length = group.first.shape
            blocks = -(-length // (self.memory.sort_run or length or 1))
            counts = 128 * (blocks + 1) * (blocks > 1)  # 256 of 32 bits for each block, and sums
            size, dtype = prod(around) * (length + counts), group.first.dtype
            places.append(Slot("scratch", next(self.numbers), dtype, size))
        slots = tuple(dict.fromkeys([*read, *places]))
        parameters = tuple(
            Parameter(slot.dtype, slot.size, slot in places,
                      "block" if slot.kind == "block" else "device") for slot in slots
        )  # fmt: skip
        stores = tuple(
            replace(group.stores[node], parameter=slots.index(place))
            for node, place in zip(stored, places, strict=False)
        )
        if any(points(store.axes) for store in stores):
            if sorts:
                for left in reversed(range(3 * slots[0].dtype.itemsize if blocks > 1 else 1)):
                    sort = SortKernel(parameters, prod(around), length, left)
                    self.found.append([Launch(sort, slots)])
            else:
                kernel = Kernel(parameters, stores, len(group.row_axes), len(group.block_axes))
                self.found[-1].append(Launch(narrowed(kernel), slots))
                gains = self.memory.gains_by_recomputing
                if group.recomputed and gains and not gains(kernel):
                    self.kept |= group.recomputed

    def _by_lines(self, launch: Launch) -> Launch:
        """`launch` with as its parameters just the lines of arrays that it touches: so kernels that
        differ in these alone, as those of steps in time do, are one."""
        kernel, slots, starts = launch.kernel, list[Slot](), list[int]()
        touched = [(one.arg.parameter, one.src[0]) for one in kernel.nodes if one.op is Op.LOAD]
        touched += [(one.parameter, one.index) for one in kernel.stores]
        for number, slot in enumerate(launch.slots):
            line = ALIGNMENT // slot.dtype.itemsize
            ends = [max(min(end, slot.size - 1), 0)  # of padding, nothing beyond the array is read
                    for own, at in touched if own == number for end in bounds(at)]  # fmt: skip
            start = min(ends, default=0) // line * line
            stop = min(max(ends, default=slot.size) // line * line + line, slot.size)
            offset = self.offsets.get(slot, 0) + start * slot.dtype.itemsize
            slots.append(slot._replace(size=stop - start, offset=offset))
            starts.append(start)
        if isinstance(kernel, Kernel):
            done = dict[Node, Node]()
            for node in kernel.nodes:
                src = [done[one] for one in node.src]
                if node.op is Op.LOAD:
                    src[0] = ix.scale(src[0], 1, -starts[node.arg.parameter])
                done[node] = ix.rebuild(node, tuple(src))
            stores = (replace(one, index=ix.scale(one.index, 1, -starts[one.parameter]))
                      for one in (store.rebuilt(done) for store in kernel.stores))  # fmt: skip
            sized = (replace(one, size=slot.size)
                     for one, slot in zip(kernel.parameters, slots, strict=True))  # fmt: skip
            kernel = replace(kernel, parameters=tuple(sized), stores=tuple(stores))
        return Launch(kernel, tuple(slots))

    def _place(self, kind: str) -> int:
        """Place the slots of a kind, by first fit over the span from the first use of each to its
        last; the bytes needed. The kernels of a chain use scratch at one time."""
        spans: dict[Slot, list[tuple[int, int]]] = {}  # the times of use, in order
        for time, launches in enumerate(self.found):
            for number, launch in enumerate(launches):
                for slot in launch.slots:
                    if slot.kind == kind:
                        spans.setdefault(slot, []).append((time, number * (kind == "block")))
        placed: list[tuple[int, int, Slot]] = []  # offset, end, slot
        for slot in sorted(spans, key=lambda one: (-one.nbytes, one.number)):
            first, last = spans[slot][0], spans[slot][-1]
            need = -(-slot.nbytes // ALIGNMENT) * ALIGNMENT
            offset = 0
            for start, end, other in sorted(placed, key=lambda one: one[:2]):
                overlaps = spans[other][0] <= last and first <= spans[other][-1]
                if overlaps and start < offset + need and offset < end:
                    offset = end
            placed.append((offset, offset + need, slot))
            self.offsets[slot] = offset
        return max((end for _, end, _ in placed), default=0)


def build_program(sinks: Sequence[Node], memory: FusionTarget) -> Program:
    """Fuse, order and plan. An ASSIGN writes into the input buffer that is its target, any other
    sink into a fresh one; BUFFER leaves hold the number of a program input as storage."""
    kept, known = set[Node](), -1
    while known < len(kept):
        known = len(kept)
        program = _Builder(sinks, memory, kept).build()
    return program

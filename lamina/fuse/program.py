"""From grouped values to a program: kernels in order, the buffers they use, a memory plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lamina.dtypes import DType
from lamina.fuse.chain import chained
from lamina.fuse.group import KernelGroup, Memory, array_of, group_values, readers_of
from lamina.fuse.lower import flat_index
from lamina.ir.kernel import AnyKernel, Kernel, Parameter, SortKernel, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.shape import Shape, prod

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

    @cached_property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Launch:
    """One kernel and the slots (by position in the program) of its parameters."""

    kernel: AnyKernel
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """Chains of kernels in order; those of one run together, block by block. `outputs` holds a
    slot for each requested result. A call brings a table of memory: the arena, then a buffer for
    each output, then one for each input."""

    chains: tuple[tuple[Launch, ...], ...]
    slots: tuple[Slot, ...]
    outputs: tuple[int, ...]
    arena: int  # bytes of scratch
    block: int  # bytes that a thread needs for a block

    @cached_property
    def launches(self) -> list[Launch]:
        return [launch for chain in self.chains for launch in chain]

    def place(self, slot: Slot) -> int:
        """Where in the table the memory of `slot` is."""
        first = {"scratch": 0, "output": 1, "input": 1 + len(self.outputs)}
        return first[slot.kind] + slot.number


class _Builder:
    """Collects slots and launches; every array has one home slot."""

    def __init__(self, sinks: Sequence[Node], memory: Memory, kept: set[Node]) -> None:
        self.wanted: list[tuple[Node | None, Node]] = []  # targets, and the values they get
        for sink in sinks:
            target, value = sink.src if sink.op is Op.ASSIGN else (None, sink)
            copied = Node(Op.CONTIGUOUS, (value,)) if value.op is Op.BUFFER else value
            self.wanted.append((target, copied))
        self.slots: list[Slot] = []
        self.found: list[list[Launch]] = []  # chain by chain
        self.slot_of: dict[object, int] = {}
        self.memory = memory
        self.kept = kept  # products that kernels gain nothing by computing inside their sums
        values = [value for _, value in self.wanted]
        groups = group_values(values, memory, kept)
        self.chains = chained(groups, values, memory.in_blocks)
        self.readers = readers_of(one for chain in self.chains for one in chain.groups)
        self.chain_of = {group: chain for chain in self.chains for group in chain.groups}
        self.group_of = {node: group for group in groups for node in group.members}

    def build(self) -> Program:
        results, late = self._place_outputs()
        for chain in toposort(self.chains):  # now after the readers of what they overwrite
            for group in chain.groups:
                if group.base:  # the updates are combined into a copy of the base
                    self.found.append([])
                    self._launch(group.base, group.base.members, self.home(group.first))
            self.found.append([])
            for group in chain.groups:
                used = [one for one in group.members if one in self.readers or one in self.slot_of
                        or group.block.shape(one)]  # fmt: skip
                self._launch(group, used)
        for value, slot in late:
            self.found.append([])
            copy = KernelGroup(Node(Op.CONTIGUOUS, (value,)), {value: value.shape})
            self._launch(copy, copy.members, slot)
        sizes = self._place("scratch"), self._place("block")
        chains = tuple(map(tuple, filter(None, self.found)))
        return Program(chains, tuple(self.slots), tuple(results), *sizes)

    def slot(self, kind: str, node: Node, number: int = 0, shape: Shape | None = None) -> int:
        size = prod(node.shape if shape is None else shape)
        self.slots.append(Slot(kind, number, node.dtype, size))
        return len(self.slots) - 1

    def home(self, node: Node, group: KernelGroup | None = None) -> int:
        """The slot where `group` holds `node`, made if nothing asked for it."""
        shape = group.block.shape(node) if group else None
        key = (len(self.found), node) if shape else array_of(node)
        if key not in self.slot_of:
            if node.op is Op.BUFFER:
                self.slot_of[key] = self.slot("input", node, node.arg.storage)
            else:
                held = shape or (group.values.get(node) if group else None)
                self.slot_of[key] = self.slot("block" if shape else "scratch", node, 0, held)
        return self.slot_of[key]

    def _place_outputs(self) -> tuple[list[int], list[tuple[Node, int]]]:
        """A slot for every output, and the copies to make once everything has been read."""
        results, late = [], []
        for number, (target, value) in enumerate(self.wanted):
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
        readers = self.readers.get(storage, [])
        others = [one for one in readers if one is not home]
        alike = all(
            node.dtype is target.dtype and flat_index(node.shape, index) is home.stores[value].index
            for node in home.read_at
            for index in home.read_at[node]
            if node.op is Op.BUFFER and node.arg.storage == storage
        )
        own = home not in readers or (alike and value.op not in (Op.SCATTER, Op.ARGSORT))
        before = toposort(self.chain_of[one] for one in others)
        if home.blocks or not own or self.chain_of[home] in before:
            return False
        home.src = (*home.src, *others)
        return True

    def _launch(self, group: KernelGroup, stored: list[Node], target: int | None = None) -> None:
        """The kernel of a group that stores some of its members, in their homes or in `target`."""
        read = [self.home(node, group) for _, node in group.parameters.values()]
        places = [self.home(node, group) if target is None else target for node in stored]
        if sorts := group.first.op is Op.ARGSORT:
            *around, length = group.first.shape
            blocks = -(-length // (self.memory.run or length or 1))
            counts = 128 * (blocks + 1) * (blocks > 1)  # 256 of 32 bits for each block, and sums
            held = prod(around), length + counts
            places.append(self.slot("scratch", group.first, 0, held))
        slots = tuple(dict.fromkeys([*read, *places]))
        found = ((self.slots[slot], slot in places) for slot in slots)
        parameters = tuple(
            Parameter(slot.dtype, slot.size, written, "block" if slot.kind == "block" else "device")
            for slot, written in found
        )
        stores = tuple(
            replace(group.stores[node], parameter=slots.index(place))
            for node, place in zip(stored, places, strict=False)
        )
        if any(points(store.axes) for store in stores):
            kernel = Kernel(parameters, stores, len(group.row_axes), len(group.blocks))
            kernels: list[AnyKernel] = [kernel]
            if sorts:
                steps = range(3 * parameters[0].dtype.itemsize if blocks > 1 else 1)
                sizes = prod(around), length
                kernels = [SortKernel(parameters, *sizes, left) for left in reversed(steps)]
            elif group.inner and self.memory.nested and not self.memory.nested(kernel):
                self.kept |= group.inner
            for one in kernels:
                self.found[-1].append(Launch(one, slots))
                if sorts:
                    self.found.append([])

    def _place(self, kind: str) -> int:
        """Place the slots of a kind, by first fit over the span from the first use of each to its
        last; the bytes needed. The kernels of a chain use scratch at one time."""
        spans: dict[int, list[tuple[int, int]]] = {}  # the times of use, in order
        for time, launches in enumerate(self.found):
            for number, launch in enumerate(launches):
                for slot in launch.slots:
                    if self.slots[slot].kind == kind:
                        spans.setdefault(slot, []).append((time, number * (kind == "block")))
        placed: list[tuple[int, int, int]] = []  # offset, end, slot
        for slot in sorted(spans, key=lambda one: (-self.slots[one].nbytes, one)):
            first, last = spans[slot][0], spans[slot][-1]
            need = -(-self.slots[slot].nbytes // ALIGNMENT) * ALIGNMENT
            offset = 0
            for start, end, other in sorted(placed):
                overlaps = spans[other][0] <= last and first <= spans[other][-1]
                if overlaps and start < offset + need and offset < end:
                    offset = end
            placed.append((offset, offset + need, slot))
            self.slots[slot] = replace(self.slots[slot], offset=offset)
        return max((end for _, end, _ in placed), default=0)


def build_program(sinks: Sequence[Node], memory: Memory) -> Program:
    """Fuse, order and plan. An ASSIGN writes into the input buffer that is its target, any other
    sink into a fresh one; BUFFER leaves hold the number of a program input as storage."""
    kept, known = set[Node](), -1
    while known < len(kept):
        known = len(kept)
        program = _Builder(sinks, memory, kept).build()
    return program

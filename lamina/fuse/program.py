"""From grouped values to a program: kernels in order, the buffers they use, a memory plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lamina.dtypes import DType, int64
from lamina.fuse.group import KernelGroup, group_values
from lamina.fuse.lower import AxisPlan, Index, Lowering, SplitAxisError, full_index
from lamina.ir.build import cast
from lamina.ir.kernel import AnyKernel, Kernel, Parameter, SortKernel, Store, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Load, Op
from lamina.shape import prod, strides_of
from lamina.simplify import index as ix

ALIGNMENT = 64  # bytes; a cache line
_MakeStore = Callable[[Lowering], tuple[Store, int]]


@dataclass(frozen=True)
class Slot:
    """A buffer of a program. `kind`: "input" (a parameter of the program, by `number`), "output"
    (a fresh result, by `number`), or "scratch" (at `offset` bytes of the arena)."""

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


@dataclass(frozen=True)
class Program:
    """Kernels in order. `outputs` holds a slot for each requested result."""

    launches: tuple[Launch, ...]
    slots: tuple[Slot, ...]
    outputs: tuple[int, ...]
    arena: int  # bytes of scratch


@dataclass(frozen=True)
class Output:
    """A requested result: `value` goes into the input buffer `target`, or a fresh buffer."""

    value: Node
    target: Node | None = None


class _Builder:
    """Collects slots and launches; every stored value has one home slot."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.slots: list[Slot] = []
        self.launches: list[Launch] = []
        self.slot_of: dict[Node, int] = {}
        self.inputs: dict[tuple[object, DType], int] = {}
        self.groups = group_values([output.value for output in outputs])
        self.values = {node for group in self.groups for node in group.members}
        self.outputs = outputs

    def build(self) -> Program:
        results, late = self._place_outputs()
        needed = {value for group in self.groups for value in group.loads}
        for group in self._ordered():
            self._emit(group, needed)
        for source, target in late:
            self._copy(source, target)
        return _plan_memory(self.launches, self.slots, results)

    def slot(self, kind: str, node: Node, number: int) -> int:
        self.slots.append(Slot(kind, number, node.dtype, prod(node.shape)))
        return len(self.slots) - 1

    def input_slot(self, buffer: Node) -> int:
        """The slot of a program input; views of one storage in several shapes share it."""
        key = buffer.arg.storage, buffer.dtype
        if key not in self.inputs:
            self.inputs[key] = self.slot("input", buffer, buffer.arg.storage)
        return self.inputs[key]

    def home(self, node: Node) -> int:
        """The slot that holds `node`, made as scratch if nothing else asked for it."""
        if node.op is Op.BUFFER:
            return self.input_slot(node)
        if node not in self.slot_of:
            self.slot_of[node] = self.slot("scratch", node, 0)
        return self.slot_of[node]

    def _place_outputs(self) -> tuple[list[int], list[tuple[Node, int]]]:
        """A slot for every output, and the copies to make once everything has been read."""
        results: list[int] = []
        late: list[tuple[Node, int]] = []
        self.after: dict[int, set[int]] = {}
        for number, output in enumerate(self.outputs):
            if output.target is None:
                slot = self.slot("output", output.value, number)
            else:
                slot = self.input_slot(output.target)
            if output.value in self.slot_of or not self._may_overwrite(output):
                self.home(output.value)
                late.append((output.value, slot))
            else:
                self.slot_of[output.value] = slot
            results.append(slot)
        return results, late

    def _may_overwrite(self, output: Output) -> bool:
        """Can the kernel of this value write to its target in place?

        Every other kernel that reads the target must be able to run first, and the kernel itself
        may read only the element that it is about to write.
        """
        target = output.target
        if target is None:
            return True
        home = next(group for group in self.groups if output.value in group.members)
        if not _reads_own_element(home, output.value, target):
            return False
        readers = {
            group.number
            for group in self.groups
            if group is not home and target.arg.storage in _storages_read(group)
        }
        if readers & self._descendants(home):
            return False
        self.after.setdefault(home.number, set()).update(readers)
        return True

    def _needs(self, group: KernelGroup) -> set[int]:
        home = {value: one.number for one in self.groups for value in one.members}
        return {home[value] for value in group.loads} | self.after.get(group.number, set())

    def _descendants(self, group: KernelGroup) -> set[int]:
        """The kernels that must run after `group`."""
        needs = {one.number: self._needs(one) for one in self.groups}
        found: set[int] = set()
        frontier = {group.number}
        while frontier:
            frontier = {n for n, needed in needs.items() if needed & frontier} - found
            found |= frontier
        return found

    def _ordered(self) -> list[KernelGroup]:
        """The groups, each after what it needs and after the readers of what it overwrites."""
        if not self.after:
            return self.groups
        waiting = {group.number: self._needs(group) for group in self.groups}
        ordered, pending = [], list(self.groups)
        while pending:
            group = next(one for one in pending if not waiting[one.number])
            pending.remove(group)
            ordered.append(group)
            for needed in waiting.values():
                needed.discard(group.number)
        return ordered

    def _emit(self, group: KernelGroup, needed: set[Node]) -> None:
        first = group.members[0]
        if first.op is Op.SCATTER:
            self._scatter(first)
        elif first.op is Op.ARGSORT:
            self._argsort(first)
        else:
            stored = [one for one in group.members if one in needed or one in self.slot_of]
            self._stores(group, stored)

    def _stores(self, group: KernelGroup, stored: list[Node]) -> None:
        sources = [self.home(node) for node in group.parameters]
        slots = sources + [self.home(node) for node in stored]
        stores = []
        for number, node in enumerate(stored, len(sources)):
            flat = ix.add(*map(ix.scale, group.index_of[node], _strides(node)))
            stores.append(Store(number, flat, group.scalars[node], group.axes_of[node]))
        self._launch(tuple(stores), slots, len(group.row_axes))

    def _launch(self, stores: tuple[Store, ...], slots: list[int], rows: int) -> None:
        """Merge parameters that name one slot, and mark the written ones."""
        order = list(dict.fromkeys(slots))
        place = [order.index(slot) for slot in slots]
        if place != list(range(len(order))):
            stores = tuple(_renumber(store, place) for store in stores)
        written = {store.parameter for store in stores}
        parameters = tuple(
            Parameter(self.slots[slot].dtype, self.slots[slot].size, number in written)
            for number, slot in enumerate(order)
        )
        if any(all(axis.arg.size for axis in store.axes) for store in stores):
            self.launches.append(Launch(Kernel(parameters, stores, rows), tuple(order)))

    def _copy(self, source: Node, target: int) -> None:
        """A kernel of its own that copies a stored value."""
        axis = ix.axis(0, prod(source.shape))
        load = _load(0, source, axis)
        store = Store(1, axis, load, (axis,))
        self._launch((store,), [self.home(source), target], 1)

    def _standalone(self, make: _MakeStore, target: int) -> None:
        """A kernel of one store that belongs to no group, its axes split as it asks."""
        plan: AxisPlan = {}
        while True:
            parameters: dict[Node, int] = {}
            read = functools.partial(self._parameter, parameters)
            lowering = Lowering(read, lambda node, index: None, plan)
            try:
                store, rows = make(lowering)
                break
            except SplitAxisError as request:
                lowering.split(request)
        slots = [*map(self.home, parameters), target]
        self._launch((replace(store, parameter=len(parameters)),), slots, rows)

    def _parameter(self, parameters: dict[Node, int], node: Node) -> int | None:
        if node.op is not Op.BUFFER and node not in self.values:
            return None
        return parameters.setdefault(node, len(parameters))

    def _scatter(self, node: Node) -> None:
        """First the base, then the updates combined into it, serially along the axis."""
        base, places, updates = node.src
        axis, monoid = node.arg

        def fill(lowering: Lowering) -> tuple[Store, int]:
            index, axes = full_index(lowering, node.shape)
            flat = ix.add(*map(ix.scale, index, _strides(node)))
            return Store(0, flat, lowering.value(base, index), axes), len(axes)

        def combine(lowering: Lowering) -> tuple[Store, int]:
            others = [i for i in range(len(node.shape)) if i != axis]
            pairs = {i: lowering.new_axis(updates.shape[i]) for i in (*others, axis)}
            index: Index = tuple(pairs[i][0] for i in range(len(node.shape)))
            rows = tuple(one for i in others for one in pairs[i][1])
            place = cast(lowering.value(places, index), int64)
            moved = (*index[:axis], place, *index[axis + 1 :])
            flat = ix.add(*map(ix.scale, moved, _strides(node)))
            holds = ix.inside(place, node.shape[axis])
            value = lowering.value(updates, index, holds)
            condition = None if holds is ix.TRUE else holds
            store = Store(0, flat, value, (*rows, *pairs[axis][1]), condition, monoid)
            return store, len(rows)

        target = self.home(node)
        self._standalone(fill, target)
        self._standalone(combine, target)

    def _argsort(self, node: Node) -> None:
        source, target = self.home(node.src[0]), self.home(node)
        scratch = self.slot("scratch", node, 0)
        slots = (source, target, scratch)
        length = node.shape[-1]
        if not prod(node.shape):
            return
        parameters = tuple(
            Parameter(self.slots[slot].dtype, self.slots[slot].size, slot != source)
            for slot in slots
        )
        kernel = SortKernel(parameters, prod(node.shape[:-1]), length)
        self.launches.append(Launch(kernel, slots))


def _strides(node: Node) -> tuple[int, ...]:
    return strides_of(node.shape)


def _load(parameter: int, node: Node, index: Node) -> Node:
    return Node(Op.LOAD, (index,), Load(parameter, node.dtype))


def _renumber(store: Store, place: Sequence[int]) -> Store:
    """`store` with parameter i called ``place[i]``."""
    memo: dict[Node, Node] = {}
    for node in toposort(roots_of(store)):
        src = tuple(memo[operand] for operand in node.src)
        arg = node.arg
        if node.op is Op.LOAD:
            arg = Load(place[arg.parameter], arg.dtype)
        memo[node] = Node(node.op, src, arg)
    condition = None if store.condition is None else memo[store.condition]
    return replace(
        store,
        parameter=place[store.parameter],
        index=memo[store.index],
        value=memo[store.value],
        condition=condition,
    )


def _storages_read(group: KernelGroup) -> set[object]:
    """The storage of the input buffers that a kernel reads."""
    scattered = group.members[0].op in (Op.SCATTER, Op.ARGSORT)
    nodes = toposort(group.members) if scattered else group.parameters
    return {node.arg.storage for node in nodes if node.op is Op.BUFFER}


def _reads_own_element(group: KernelGroup, value: Node, target: Node) -> bool:
    """Does the kernel read `target`, if at all, only where it stores `value`?"""
    storage = target.arg.storage
    if storage not in _storages_read(group):
        return True
    if value not in group.scalars:
        return False
    numbers = {
        number
        for node, number in group.parameters.items()
        if node.op is Op.BUFFER and node.arg.storage == storage
    }
    flat = ix.add(*map(ix.scale, group.index_of[value], _strides(value)))
    return all(
        node.src[0] is flat and node.dtype is target.dtype
        for node in toposort(group.scalars.values())
        if node.op is Op.LOAD and node.arg.parameter in numbers
    )


def _plan_memory(launches: list[Launch], slots: list[Slot], outputs: list[int]) -> Program:
    """Offsets for scratch: first fit over the span from a slot's first use to its last."""
    spans: dict[int, tuple[int, int]] = {}
    for time, launch in enumerate(launches):
        for slot in launch.slots:
            if slots[slot].kind == "scratch":
                spans[slot] = (spans.get(slot, (time, time))[0], time)
    placed: list[tuple[int, int, int]] = []  # offset, end, slot
    arena = 0
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
        arena = max(arena, offset + need)
    return Program(tuple(launches), tuple(slots), tuple(outputs), arena)


def build_program(outputs: Sequence[Output]) -> Program:
    """Fuse, order and plan. BUFFER leaves hold the number of a program input as storage."""
    owned = [
        replace(output, value=Node(Op.CONTIGUOUS, (output.value,)))
        if output.value.op is Op.BUFFER
        else output
        for output in outputs
    ]
    return _Builder(owned).build()

"""From grouped values to a program: kernels in order, the buffers they use, a memory plan."""

import itertools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from lamina.core.shape import prod
from lamina.fuse.groups import group_values, readers_of
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.kernels import kernel_of, parameters_of
from lamina.fuse.launch import ALIGNMENT, on_touched_lines
from lamina.fuse.launch import Launch as Launch
from lamina.fuse.launch import Slot as Slot
from lamina.fuse.members import array_of
from lamina.fuse.memory_plan import Lifetime, MemoryPlan, plan_memory
from lamina.fuse.narrow import Narrowing, narrowed, narrowing_of
from lamina.fuse.row_blocks import steps_of
from lamina.fuse.target import FusionTarget
from lamina.graph import index as ix
from lamina.ir.kernel import SortKernel, Store, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op


@dataclass(frozen=True)
class Program:
    """Steps in order. A step is the launches of one kernel or of several; these run together, for
    one block of rows after the other. `outputs` holds a slot for each requested result.

    A call of the program brings a table of memory: the arena, then a buffer for each output, then
    one for each input."""

    steps: tuple[tuple[Launch, ...], ...]
    outputs: tuple[Slot, ...]
    arena: int  # bytes of scratch
    block: int  # bytes that each thread needs for a block of rows

    @cached_property
    def launches(self) -> list[Launch]:
        """All launches of all steps."""
        return [launch for step in self.steps for launch in step]

    def location(self, slot: Slot) -> tuple[int, int]:
        """Where `slot` begins: the number of its buffer in the table, and the byte in that. What a
        thread has for a block is no buffer of the table; its number is 0."""
        if slot.kind == "output":
            return 1 + slot.number, slot.offset
        if slot.kind == "input":
            return 1 + len(self.outputs) + slot.number, slot.offset
        return 0, slot.offset


def build_program(sinks: Sequence[Node], target: FusionTarget) -> Program:
    """Fuse, order and plan. An ASSIGN writes into the input buffer that it names, any other sink
    into a fresh one; BUFFER leaves hold the number of a program input as storage.

    Kernels may compute products again inside their sums. Whether one gains by that shows only when
    it is complete: what does not is then stored, and the program is built anew."""
    stored = set[Node]()
    while True:
        builder = _Builder(sinks, target, frozenset(stored))
        program = builder.build()
        if not builder.without_gain:
            return program
        stored |= builder.without_gain


@dataclass(frozen=True)
class _Result:
    """A sink: `value` is to be in a fresh output, or in the buffer `assigned`."""

    value: Node
    assigned: Node | None


def _result_of(sink: Node) -> _Result:
    """The value of a sink, and the buffer that it is to be in if the sink is an ASSIGN. The value
    of a program that returns its argument is a copy of that."""
    assigned: Node | None = None
    value = sink
    if sink.op is Op.ASSIGN:
        assigned, value = sink.src
    if value.op is Op.BUFFER:
        value = Node(Op.CONTIGUOUS, (value,))  # a kernel copies it
    return _Result(value, assigned)


@dataclass(frozen=True)
class _Copy:
    """`value`, once its kernel has stored it elsewhere, is to be copied to `slot`."""

    value: Node
    slot: Slot


class _Builder:
    """Collects slots and launches. Every array has one home slot; an array of which only blocks
    exist has a slot in each step that makes one."""

    def __init__(self, sinks: Sequence[Node], target: FusionTarget, stored: Set[Node]) -> None:
        """`stored` are sums of products that no kernel computes inside its own sums."""
        self.target = target
        # More of these, by which some kernel of this program gains nothing.
        self.without_gain: set[Node] = set()
        self.results = [_result_of(sink) for sink in sinks]
        values = [result.value for result in self.results]
        groups = group_values(values, target, stored)
        self.group_steps = steps_of(groups, values, target)
        self.step_of = {group: step for step in self.group_steps for group in step.groups}
        self.readers = readers_of(self.step_of)
        self.group_of = {node: group for group in groups for node in group.members}
        self.steps: list[list[Launch]] = []
        self.slot_of: dict[object, Slot] = {}
        self.numbers = itertools.count()  # of scratch slots and of those for blocks
        self.narrowings: dict[tuple[Store, ...], Narrowing | None] = {}

    def build(self) -> Program:
        outputs, copies = self._assign_slots()
        for step in toposort(self.group_steps):  # now after the readers of what they overwrite
            for group in step.groups:
                if group.initial:  # what the group updates, or adds to
                    self._launch(group.initial, self._home(group.first))
            self.steps.append([])
            for group in step.groups:
                self._launch(group)
        for copy in copies:
            value = copy.value
            group = KernelGroup(Node(Op.CONTIGUOUS, (value,)), {value: value.shape})
            self._launch(group, copy.slot)
        return self._planned(outputs)

    def _planned(self, outputs: Sequence[Slot]) -> Program:
        """The program, with a place for everything that is scratch or belongs to a block."""
        scratch = self._memory_plan("scratch")
        block = self._memory_plan("block")
        offsets = scratch.offsets | block.offsets
        steps = tuple(
            tuple(on_touched_lines(launch, offsets) for launch in step)
            for step in self.steps
            if step  # one whose arrays have no elements launches nothing
        )
        return Program(steps, tuple(outputs), arena=scratch.nbytes, block=block.nbytes)

    # Slots.

    def _home(self, node: Node) -> Slot:
        """The slot of `node` in memory, made if nothing asked for it yet."""
        array = array_of(node)
        if array not in self.slot_of:
            kind, number = "scratch", next(self.numbers)
            if node.op is Op.BUFFER:
                kind, number = "input", node.arg.storage
            group = self.group_of.get(node)
            shape = group.values.get(node, node.shape) if group else node.shape
            self.slot_of[array] = Slot(kind, number, node.dtype, prod(shape))
        return self.slot_of[array]

    def _slot_in(self, group: KernelGroup, node: Node) -> Slot:
        """The slot where `group` reads or stores `node`: its home, or memory for a block of it,
        which belongs to the step."""
        shape = group.block.shape(node)
        if shape is None:
            return self._home(node)
        key = (len(self.steps), node)
        if key not in self.slot_of:
            self.slot_of[key] = Slot("block", next(self.numbers), node.dtype, prod(shape))
        return self.slot_of[key]

    def _assign_slots(self) -> tuple[list[Slot], list[_Copy]]:
        """A slot for each result, where its kernel stores it; and the copies into slots, to be made
        once everything has been read, of results that are stored elsewhere first: those that have
        a slot already, as another result too, and those that may not overwrite their buffer."""
        outputs: list[Slot] = []
        copies: list[_Copy] = []
        for number, result in enumerate(self.results):
            value, assigned = result.value, result.assigned
            slot = Slot("output", number, value.dtype, prod(value.shape))
            if assigned is not None:
                slot = self._home(assigned)
            is_direct = value not in self.slot_of
            if is_direct and assigned is not None:
                is_direct = self._may_overwrite(value, assigned)
            if is_direct:
                self.slot_of[value] = slot
            else:
                self._home(value)  # as a result it needs a slot, for the copy to read
                copies.append(_Copy(value, slot))
            outputs.append(slot)
        return outputs, copies

    def _may_overwrite(self, value: Node, assigned: Node) -> bool:
        """Can the kernel of `value` write to the buffer `assigned` in place? Every other kernel
        that reads it must be able to run first, and it may read only the element that it is about
        to write. If so, it is made to run after the others."""
        group = self.group_of[value]
        readers = self.readers.get(assigned.arg.storage, [])
        others = [reader for reader in readers if reader is not group]
        if group.block_axes:
            # A step in row blocks runs after what its first kernel needs (`Step.src`): what only
            # this kernel needs could still run after it.
            return False
        if group in readers and not self._reads_where_it_writes(value, assigned):
            return False
        run_before_others = toposort(self.step_of[reader] for reader in others)
        if self.step_of[group] in run_before_others:
            return False
        group.src = (*group.src, *others)
        return True

    def _reads_where_it_writes(self, value: Node, assigned: Node) -> bool:
        """Whether the kernel of `value`, once it stores that in the buffer `assigned`, reads of it
        only the element that it is about to write: ``x[i] = 2 * x[i]`` does, ``x[i] = x[9 - i]``
        does not. A scatter or a sort writes elsewhere than it reads. Indices are equal if they are
        the same node."""
        if value.op in (Op.SCATTER, Op.ARGSORT):
            return False
        group = self.group_of[value]
        narrowed_indices = self._indices_if_stored_in(value, assigned)
        written = ix.replaced(group.stores[value].index, narrowed_indices)
        for node, indices in group.reads.items():
            if node.op is not Op.BUFFER or node.arg.storage != assigned.arg.storage:
                continue  # another array
            if node.dtype is not assigned.dtype:
                return False  # the same bytes, but other elements
            for index in indices:
                read = ix.replaced(ix.row_major(index, node.shape), narrowed_indices)
                if read is not written:
                    return False
        return True

    def _indices_if_stored_in(self, value: Node, assigned: Node) -> Mapping[Node, Node]:
        """What narrowed loops have in place of each axis, if the kernel of `value` stores that in
        the buffer `assigned`; nothing if its loops are not narrowed then.

        ``x[i] = x[3] + 1 if i == 3 else x[i]`` reads x[3] for other i too. Narrowed, it has 3 in
        place of i, and so reads and writes x[3] alone.
        """
        group = self.group_of[value]
        array = group.lowered.parameters.get(array_of(assigned))
        # Only a kernel that reads what it writes, with its dtype, leaves elements as they are. One
        # with other members has to compute all of these.
        if array is None or group.members != [value]:
            return {}
        narrowing = self._narrowing((replace(group.stores[value], parameter=array.parameter),))
        return narrowing.indices if narrowing else {}

    def _narrowing(self, stores: tuple[Store, ...]) -> Narrowing | None:
        """The shorter loops that `stores` need, computed once."""
        if stores not in self.narrowings:
            self.narrowings[stores] = narrowing_of(stores)
        return self.narrowings[stores]

    # Launches.

    def _launch(self, group: KernelGroup, slot: Slot | None = None) -> None:
        """Launch the kernel of a group, which stores each member that is used where it belongs.
        With a `slot`, it is a step of its own and stores its one member there."""
        if slot is None:
            stored = [node for node in group.members if self._is_used(group, node)]
        else:
            stored = group.members
            self.steps.append([])
        read = [self._slot_in(group, array.node) for array in group.lowered.parameters.values()]
        written = [slot or self._slot_in(group, node) for node in stored]
        if not any(points(group.stores[node].axes) for node in stored):
            return  # arrays without elements
        if group.first.op is Op.ARGSORT:
            self._launch_sort(group.first, read, written)
        else:
            self._launch_kernel(group, stored, read, written)

    def _is_used(self, group: KernelGroup, node: Node) -> bool:
        """Whether `node`, which `group` computes, has to be in memory: a kernel of the same blocks
        reads it there, or any other kernel, or it is a result, which has a slot from the start."""
        in_block = group.block.shape(node) is not None
        return in_block or node in self.readers or node in self.slot_of

    def _launch_kernel(
        self, group: KernelGroup, stored: list[Node], read: list[Slot], written: list[Slot]
    ) -> None:
        """Launch a kernel that reads the slots `read` and stores `stored` in those of `written`.
        Loops that number blocks are not narrowed: all kernels of a step run the same blocks."""
        kernel, slots = kernel_of(group, stored, read, written)
        narrowing = None if group.block_axes else self._narrowing(kernel.stores)
        self.steps[-1].append(Launch(narrowed(kernel, narrowing), slots, tuple(group.members)))
        gains = self.target.gains_by_recomputing
        if group.recomputed and gains and not gains(kernel):
            self.without_gain |= group.recomputed

    def _launch_sort(self, order: Node, read: list[Slot], written: list[Slot]) -> None:
        """Launch the kernels that sort the rows of the ARGSORT `order`. A GPU sorts rows that are
        longer than a block can hold byte by byte: each byte of a key takes three kernels, which
        count the keys of each block by that byte, add up the counts, and move the keys.

        Scratch memory has an int64 for each key: the order so far, or on a GPU a word of the key
        and its place. There, the counts come after those of all rows.
        """
        *outer, length = order.shape
        rows = prod(outer)
        blocks = 1
        if self.target.sort_run:
            blocks = -(-length // self.target.sort_run)
        launches = 1
        count_elements = 0
        if blocks > 1:
            launches = 3 * read[0].dtype.itemsize
            # Of int64: 256 counts of 32 bits for each block, and as many for their sums.
            count_elements = 128 * (blocks + 1)
        size = rows * (length + count_elements)
        scratch = Slot("scratch", next(self.numbers), order.dtype, size)
        slots, parameters = parameters_of(read, [*written, scratch])
        for left in reversed(range(launches)):
            sort = SortKernel(parameters, rows, length, left)
            self.steps.append([Launch(sort, slots, (order,))])

    def _memory_plan(self, kind: str) -> MemoryPlan[Slot]:
        """Where slots of `kind` lie. All kernels of a step use scratch at one time, as their blocks
        run in parallel; each thread runs the kernels of a block one after the other. Slots of one
        size are placed by their numbers."""
        lifetimes: dict[Slot, Lifetime] = {}
        for number, step in enumerate(self.steps):
            for position, launch in enumerate(step):
                time = (number, position) if kind == "block" else (number,)
                for slot in launch.slots:
                    if slot.kind == kind:
                        lifetime = lifetimes.setdefault(slot, Lifetime(slot.nbytes, time, time))
                        lifetime.last = time
        in_order = sorted(lifetimes.items(), key=lambda item: item[0].number)
        return plan_memory(dict(in_order), ALIGNMENT)

"""Whether a program may write a value over the buffer that an ASSIGN names, while kernels read it.

``x[i] = 2 * x[i]`` can be written in place: its kernel reads each element right before it writes
it. ``x[i] = x[9 - i]`` cannot: the first half is overwritten before the second half reads it. Such
a value is stored elsewhere and copied at the end. A scatter into x stores its updates alone, where
nothing else of x is read by its kernel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lamina.core.shape import prod
from lamina.fuse.groups import Readers
from lamina.fuse.kernel_group import SERIAL, KernelGroup
from lamina.fuse.members import array_of
from lamina.fuse.narrow import narrowing_of
from lamina.fuse.row_blocks import Step
from lamina.graph import index as ix
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op


@dataclass(frozen=True)
class Overwriting:
    """Decides it for the values of one program, and orders kernels so that it works."""

    group_of: Mapping[Node, KernelGroup]  # the group that makes each value
    step_of: Mapping[KernelGroup, Step]
    readers: Readers

    def allow(self, value: Node, assigned: Node) -> bool:
        """Whether the kernel of `value` can store it in the buffer `assigned`. If so, the kernel
        is made to run after all others that read the buffer."""
        group = self.group_of[value]
        if group.block_axes:
            # A step in row blocks runs after what its first kernel needs (`Step.src`): what only
            # this kernel needs could still run after it.
            return False
        readers = self.readers.get(assigned.arg.storage, [])
        if group in readers and not self._reads_what_it_writes(group, value, assigned):
            return False
        others = [reader for reader in readers if reader is not group]
        if self._runs_before_any(group, others):
            return False
        group.run_after((*group.src, *others))
        return True

    def _runs_before_any(self, group: KernelGroup, others: Sequence[KernelGroup]) -> bool:
        """Whether one of `others` needs what `group` makes, directly or by way of other kernels, or
        runs in one step with it: it cannot run before `group` then."""
        return self.step_of[group] in toposort(self.step_of[other] for other in others)

    def _reads_what_it_writes(self, group: KernelGroup, value: Node, assigned: Node) -> bool:
        """Whether `group`, once it stores `value` in the buffer `assigned`, reads that buffer at
        the index of this store alone, as ``x[9 - i]`` does not. Indices are in normal form: they
        are equal if they are the same node. A sort and a collective write elsewhere than they read,
        as does a scatter, unless it reads the buffer as its base alone: then it stores its updates
        there, and what it begins with is in place.

        All passes over a row count. ``x - max(x, axis=1)`` reads x[i, j] in the loop of the maximum
        and in that of the store, which share j, and may be written in place: printers store what a
        kernel reads only after all reductions of the row (`NestPrinter` in
        `lamina/targets/reductions.py`).
        """
        if value.op is Op.SCATTER:
            is_read = any(array_of(node) == array_of(assigned) for node in group.reads)
            return value.src[0] is assigned and not is_read
        if value.op in SERIAL and value.op is not Op.SCAN:
            return False
        narrowed_indices = _narrowed_indices(group, value, assigned)
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


def can_replace(group: KernelGroup, value: Node, operand: Node) -> bool:
    """Whether the kernel `group`, the last one that reads `operand`, can store `value` in its
    memory: it computes each element by itself, and reads `operand` at no other index than that of
    the store. The derivative of logits takes the place of the logits."""
    same_dtype = value.dtype is operand.dtype
    same_size = prod(group.values[value]) == prod(group.values[operand])
    if group.is_serial or not same_dtype or not same_size:
        return False
    nodes = toposort(store.value for store in group.stores.values())
    if any(node.op is Op.LOOP_REDUCE for node in nodes):
        return False
    written = group.stores[value].index
    shape = group.values[operand]
    return all(ix.row_major(index, shape) is written for index in group.reads[operand])


def _narrowed_indices(group: KernelGroup, value: Node, assigned: Node) -> Mapping[Node, Node]:
    """The index that each axis has in the narrowed loops of `group`, if it stores `value` in the
    buffer `assigned`; nothing if its loops are not narrowed then (`lamina.fuse.narrow`).

    ``x[i] = x[3] + 1 if 0 <= i - 3 < 1 else x[i]``, which is ``x[3] = x[3] + 1``, reads x[3] for
    other i too, and could not be written in place. Narrowed, it has {i: 3}: it reads and writes
    x[3] alone.
    """
    array = group.lowered.parameters.get(array_of(assigned))
    # Loops are narrowed if the kernel reads what it writes, to leave elements as they are, and if
    # it has no other member, as it has to compute all of that one.
    if array is None or group.members != [value]:
        return {}
    # What the kernel reads and writes is one parameter of it.
    store = replace(group.stores[value], parameter=array.parameter)
    narrowing = narrowing_of([store])
    return narrowing.indices if narrowing else {}

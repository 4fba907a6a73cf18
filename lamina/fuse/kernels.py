"""The kernel that a group becomes, once it is known where each array lies."""

from collections.abc import Sequence
from dataclasses import replace

from lamina.core.shape import prod
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.launch import Slot
from lamina.ir.kernel import Kernel, Parameter
from lamina.ir.node import Node
from lamina.ir.ops import Op


def kernel_of(
    group: KernelGroup, stored: Sequence[Node], read: Sequence[Slot], written: Sequence[Slot]
) -> tuple[Kernel, tuple[Slot, ...]]:
    """A kernel that reads the slots `read` and stores the members `stored` in those of `written`;
    and the slots of its parameters.

    `read` has a slot for each of `LoweredMembers.parameters`, in order. They are the first
    parameters of the kernel, so that the loads of the members name the right ones. A slot that is
    read and written is one parameter.
    """
    slots, parameters = parameters_of(read, written)
    stores = tuple(
        replace(group.stores[node], parameter=slots.index(slot))
        for node, slot in zip(stored, written, strict=True)
    )
    return Kernel(parameters, stores, len(group.row_axes), len(group.block_axes)), slots


def parameters_of(
    read: Sequence[Slot], written: Sequence[Slot]
) -> tuple[tuple[Slot, ...], tuple[Parameter, ...]]:
    """The slots of a kernel, each once, those that are read first; and its parameters, in the same
    order."""
    slots = tuple(dict.fromkeys([*read, *written]))
    parameters = tuple(
        Parameter(
            slot.dtype,
            slot.size,
            written=slot in written,
            memory="block" if slot.kind == "block" else "device",
            constant=slot.constant,
        )
        for slot in slots
    )
    return slots, parameters


def expected_kernel(group: KernelGroup, stored: Sequence[Node]) -> Kernel:
    """The kernel of `group` that stores the members `stored`, as far as it is known before memory
    is planned: each array has a slot for itself."""
    read = [array.node for array in group.lowered.parameters.values()]
    slots = list[Slot]()
    for number, node in enumerate([*read, *stored]):
        block_shape = group.block.shape(node)
        kind = "scratch" if block_shape is None else "block"
        shape = block_shape or group.values.get(node, node.shape)
        is_constant = node.op is Op.BUFFER and node.arg.constant
        slots.append(Slot(kind, number, node.dtype, prod(shape), constant=is_constant))
    kernel, _ = kernel_of(group, stored, slots[: len(read)], slots[len(read) :])
    return kernel

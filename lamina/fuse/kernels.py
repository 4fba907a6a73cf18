"""The kernel that a group becomes, once it is known where each array lies."""

from collections.abc import Sequence
from dataclasses import replace

from lamina.core.shape import prod
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.launch import BufferView
from lamina.ir.kernel import Kernel, Parameter
from lamina.ir.node import Node
from lamina.ir.ops import Op


def kernel_of(
    group: KernelGroup, stored: Sequence[Node],
    read: Sequence[BufferView], written: Sequence[BufferView],
) -> tuple[Kernel, tuple[BufferView, ...]]:  # fmt: skip
    """A kernel that reads the views `read` and stores the members `stored` in those of `written`;
    and the views of its parameters.

    `read` has a view for each of `LoweredMembers.parameters`, in order. They are the first
    parameters of the kernel, so that the loads of the members name the right ones. A view that is
    read and written is one parameter.
    """
    views, parameters = parameters_of(read, written)
    stores = tuple(
        replace(group.stores[node], parameter=views.index(view))
        for node, view in zip(stored, written, strict=True)
    )
    return Kernel(parameters, stores, len(group.row_axes), len(group.block_axes)), views


def parameters_of(
    read: Sequence[BufferView], written: Sequence[BufferView]
) -> tuple[tuple[BufferView, ...], tuple[Parameter, ...]]:
    """The views of a kernel, each once, those that are read first; and its parameters, in the same
    order."""
    views = tuple(dict.fromkeys([*read, *written]))
    parameters = tuple(
        Parameter(
            view.dtype,
            view.size,
            written=view in written,
            memory="block" if view.kind == "block" else "device",
            constant=view.constant,
        )
        for view in views
    )
    return views, parameters


def expected_kernel(group: KernelGroup, stored: Sequence[Node]) -> Kernel:
    """The kernel of `group` that stores the members `stored`, as far as it is known before memory
    is planned: each array has a view for itself."""
    read = [array.node for array in group.lowered.parameters.values()]
    views = list[BufferView]()
    for number, node in enumerate([*read, *stored]):
        block_shape = group.block.shape(node)
        kind = "scratch" if block_shape is None else "block"
        shape = block_shape or group.values.get(node, node.shape)
        is_constant = node.op is Op.BUFFER and node.arg.constant
        views.append(BufferView(kind, number, node.dtype, prod(shape), constant=is_constant))
    kernel, _ = kernel_of(group, stored, views[: len(read)], views[len(read) :])
    return kernel

"""Which expressions of a kernel are packed: copied in the order in which loops read them, once for
all loops that read them. The move `stage` packs in each call, the move `keep` before the first."""

from collections.abc import Collection
from dataclasses import dataclass

from lamina.ir.kernel import Kernel, free_axes, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.loops.nest import is_of_constants, sums_bytes


@dataclass(frozen=True)
class Packed:
    """An operand to pack.

    parameter, axis: the operand consists of the loads of this array that depend on this axis, which
        is that of a tile's lanes or rows. The array alone does not tell: queries and keys of
        attention may be parts of one array, and then both factors of a product load it
    staged_in: the row loop at the start of whose body the move `stage` copies the operand; None for
        constants, which the move `keep` stores before the first call
    computed_in: the row loop in whose body floats that are computed from kept bytes are staged;
        None if nothing is
    """

    parameter: int
    axis: Node
    staged_in: Node | None
    computed_in: Node | None = None


def reads_constants(kernel: Kernel, loads: list[Node]) -> bool:
    """Are `loads` all of constants, so that what they read may be kept from call to call in the
    order of the loops? Not where they read elements again, as in windows or where one byte has two
    numbers: that would be kept several times. Nor where another input says what they read, such as
    the offset of a batch."""
    for load in loads:
        array = kernel.parameters[load.arg.parameter]
        if not is_of_constants(kernel, load) or points(free_axes(load)) > array.size:
            return False
    return bool(loads)


def packed_in_word(kernel: Kernel, reduction: Node) -> int:
    """How many elements of a packed operand one step of a product takes: 4 bytes, a word, if one
    instruction adds up four products of bytes, and else 1."""
    return 4 if sums_bytes(kernel, reduction) else 1


def kept_values(kernel: Kernel, packed: Packed) -> list[Node]:
    """The expressions to keep for an operand of constants: the expressions `computed_from` it, if
    they depend on constants alone, and their elements are no wider than those of the array. Else
    the loads alone: floats that are made of bytes would take more memory than the bytes, and a
    scale may be another input. A load at an index that another input decides is not kept."""
    values = computed_from(kernel, packed)
    itemsize = kernel.parameters[packed.parameter].dtype.itemsize
    is_narrow = all(value.dtype.itemsize <= itemsize for value in values)
    if is_narrow and all(is_of_constants(kernel, value) for value in values):
        return values
    return [load for load in _loads_of(kernel, packed) if is_of_constants(kernel, load)]


def computed_from(kernel: Kernel, packed: Packed) -> list[Node]:
    """The largest expressions above the loads of `packed` that depend on the same axes as these:
    what is decoded or scaled on the way is decoded or scaled once, when it is packed.

    In ``sum_k a[i, k] * (cast(b[j, k]) * scale[k])`` for the parameter b: the product with the
    scale, which varies along j and k as b does; not the product with a, which varies along i too.
    """
    alike = _varying_like_loads(kernel, packed)
    # The largest are those that an expression over other axes has as an operand. An expression that
    # only a store uses is not among them: no reduction reads it again.
    operands = set[Node]()
    for node in kernel.nodes:
        if node not in alike:
            operands.update(node.src)
    casts = _casts_of_bytes(kernel)
    largest = [node for node in alike if node in operands]
    return [node.src[0] if node in casts else node for node in largest]


def _loads_of(kernel: Kernel, packed: Packed) -> list[Node]:
    """The loads that `packed` names."""
    loads = [load for load in kernel.of(Op.LOAD) if load.arg.parameter == packed.parameter]
    return [load for load in loads if packed.axis in free_axes(load)]


def _casts_of_bytes(kernel: Kernel) -> set[Node]:
    """The factors of sums of products of bytes, which are casts to int32. What they cast is packed
    in their place, as one instruction multiplies the bytes themselves."""
    casts = set[Node]()
    for reduction in kernel.of(Op.LOOP_REDUCE):
        if sums_bytes(kernel, reduction):
            product = reduction.src[0]
            casts.update(product.src)
    return casts


def _varying_like_loads(kernel: Kernel, packed: Packed) -> list[Node]:
    """The loads that `packed` names, and what is computed from them and varies along the same axes,
    operands first."""
    loads = _loads_of(kernel, packed)
    alike: list[Node] = []
    for node in kernel.nodes:
        if node in loads or (node.op in Group.ELEMENTWISE and _varies_alike(node, alike)):
            alike.append(node)
    return alike


def _varies_alike(node: Node, nodes: Collection[Node]) -> bool:
    """Does `node` depend on the same axes as one of its operands that are among `nodes`?"""
    free = free_axes(node)
    return any(operand in nodes and free_axes(operand) == free for operand in node.src)


def of_constants_along(kernel: Kernel, axis: Node) -> list[Node]:
    """The largest expressions of constants alone that vary along `axis`, among what reductions read
    element by element: the weight ``d[i, b] * (n[i, b, j] - 8)`` of a product."""
    operands = [operand for reduction in kernel.of(Op.LOOP_REDUCE) for operand in reduction.src]
    beneath = toposort(operands)
    constants = {
        node for node in beneath if axis in free_axes(node) and is_of_constants(kernel, node)
    }
    read = set[Node]()
    for node in beneath:
        if node not in constants:
            read.update(node.src)
    return [node for node in beneath if node in constants and node in read]

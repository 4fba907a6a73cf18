"""Images in memory with their channels last, on a CPU.

A convolution of images (N, C, H, W) sums up, over c, p and q,

    image[n, c, h + p, w + q] * filter[k, c, p, q]

Vectors along w are as long as rows are, and images of late layers have rows of 14 or 7 places. With
(N, H, W, C) in memory vectors run along channels, of which there are many: whole vectors are loaded
and stored by convolutions, by those of each channel alone, by pooling and by sums of each channel.

Only the order in memory changes. A node whose channels are to be the last axis is built over
operands of that order, and the rest of the graph sees it permuted back. Which nodes are so begins
with what windows of several channels are taken of (`_seeds`), and goes on to what is computed from
these, and what they are computed from (`_Flow`): from the first convolution to the last one.
Another beginning are sums of inputs that have their channels last, if another reduction reads them
beneath movement, or if they are repeated. Inputs and results keep their order: what reads an input
transposes it, and a result is a CONTIGUOUS copy of what is stored with its channels last.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from lamina.core.shape import prod, squeezed
from lamina.fuse.layout import is_made_of_inputs
from lamina.fuse.reorder import LastAxis, Rebuilder
from lamina.fuse.traced_axes import (
    INDEXING,
    Axis,
    axis_below,
    kept_axes,
    moved_product_of,
    reduced_in_order,
    traced,
)
from lamina.fuse.users import Users, users_of
from lamina.ir.build import inverse, moved_last, permute, reshape, stored_in_order
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op, Pad
from lamina.ir.products import has_windows, product_of
from lamina.ir.substitute import with_operands

# Channels from which on they are lanes of vectors: one vector of 64 bytes of float32.
MIN_CHANNELS = 16

# How often an array is read at least that is copied to another order, as a filter at all places.
# An estimate.
MIN_REPEATS = 16

# What has an order in memory of its own.
COMPUTED = Group.ELEMENTWISE | {Op.PAD, Op.REDUCE, Op.SCATTER}
# Of these, what is read where it is made: padding is a condition, and a scatter has memory.
NEVER_COPIED = frozenset({Op.PAD, Op.SCATTER})


def channels_last(sinks: Sequence[Node]) -> list[Node]:
    """The graph of `sinks` with the channels of images last in memory, where windows of them are
    summed up, or where an input has them so."""
    users = users_of(sinks)
    flow = _Flow(users)
    last_axis = flow.spread(chain(_seeds(users), flow.sums_of_channels_last()))
    if not last_axis:
        return list(sinks)
    stored = {node for node in last_axis if node.op not in NEVER_COPIED and flow.is_stored(node)}
    gradients = _gradients_of_filters(users, last_axis)
    rebuilder = _ChannelsLast(last_axis | gradients, stored | gradients.keys())
    results = rebuilder.rebuilt(users, sinks)
    # A result in its own order is a copy of what is stored: others read that.
    return [
        Node(Op.CONTIGUOUS, (result,)) if sink in stored else result
        for sink, result in zip(sinks, results, strict=True)
    ]


def _gradients_of_filters(users: Users, last_axis: LastAxis) -> dict[Node, int]:
    """The gradients of filters that images with their channels last make, with the axis of these
    channels. Vectors run along it, and it is the first one of a filter, so that each lane would be
    stored to another page of memory: they are stored with that axis last, and transposed by what
    reads them. The gradient of (512, 512, 3, 3) and its update by momentum took 16 to 18 ms so, and
    19 to 21 in its own order (measured: one core of a Xeon, 8 images of 7 x 7)."""
    gradients: dict[Node, int] = {}
    for node in users:
        if node.op is not Op.REDUCE or node in last_axis:
            continue
        for number in range(len(node.shape)):
            if _is_gradient_of_filter(node, number, last_axis):
                gradients[node] = number
    return gradients


def _is_gradient_of_filter(total: Node, number: int, last_axis: LastAxis) -> bool:
    """Does a sum of products over images, with windows of one factor, have its axis `number` from
    the last one of the other factor alone?

    For the filter (K, C, P, Q) of the convolution above, with d the gradient of its result, it is
    the sum over n, h and w of ``image[n, c, h + p, w + q] * d[n, k, h, w]``: its axis 0, along k,
    is that of d, which has k last in memory."""
    product = moved_product_of(total)
    below = _in_operands(total, number)
    sums_over_images = total.arg.axes[0] == 0
    if product is None or below is None or not sums_over_images:
        return False
    if list(map(_has_windows, product.src)).count(True) != 1:
        return False
    images, result_gradient = sorted(product.src, key=_has_windows, reverse=True)
    source = traced(Axis(result_gradient, below))
    is_last = source is not None and last_axis.get(source.node) == source.number
    return is_last and traced(Axis(images, below)) is None


def _array_beneath(operand: Node) -> Node:
    """The array that `operand` reads by movement and gathers."""
    while operand.op in INDEXING or operand.op is Op.GATHER:
        operand = operand.src[0]
    return operand


def _is_last_in_memory(axis: Axis) -> bool:
    """Is it the last axis of every input that `axis` comes from by arithmetic alone, and is there
    such an input?"""
    has_input, waiting, seen = False, [axis], set[Axis]()
    while waiting:
        source = traced(waiting.pop())
        if source is None or source in seen:  # None: all channels read the same there
            continue
        seen.add(source)
        node = source.node
        if node.op in Group.ELEMENTWISE:
            waiting.extend(Axis(operand, source.number) for operand in node.src)
        elif node.op is not Op.BUFFER or _is_image(source):
            return False
        has_input |= node.op is Op.BUFFER
    return has_input


def _seeds(users: Users) -> Iterator[Axis]:
    """The channels of what windows are taken of for sums of products: dense convolutions, those of
    each channel, and their gradients. The first axis numbers images."""
    for total in users:
        product = product_of(total, INDEXING)
        for factor in () if product is None else product.src:
            if not _has_windows(factor):
                continue
            for number, size in enumerate(factor.shape):
                image = traced(Axis(factor, number)) if size >= MIN_CHANNELS else None
                if image is not None and _is_channels(image):
                    yield image


def _has_windows(factor: Node) -> bool:
    return has_windows(factor, INDEXING)


def _is_channels(image: Axis) -> bool:
    """Are these the channels of images that sums of the program make? To transpose images that
    come from inputs costs as much as it gains. The channels of a group are a part of an axis of
    what lies beneath their padding."""
    node = image.node
    if node.op is Op.PAD:
        beneath = traced(Axis(node.src[0], image.number))
        return beneath is not None and _is_channels(beneath)
    return node.op in COMPUTED and image.number > 0 and not is_made_of_inputs(node)


@dataclass(frozen=True)
class _Read:
    """What a node reads beneath movement: `node` has `operand` among its operands, or among the
    factors of the products that it sums up."""

    node: Node
    operand: Node


class _Flow:
    """From axes to those of operands and of users that are the same channels, and through a dense
    convolution from the channels that it sums up to those of its result."""

    def __init__(self, users: Users) -> None:
        self.products = {moved_product_of(node) for node in users} - {None}
        self.readers: dict[Node, list[_Read]] = {}  # by what lies beneath the movement
        for node in users:
            if self._has_order(node):
                for operand in _operands_of(node):
                    self.readers.setdefault(_array_beneath(operand), []).append(
                        _Read(node, operand)
                    )

    def sums_of_channels_last(self) -> Iterator[Axis]:
        """The channels of sums and extremes that are made of inputs with these last in memory, and
        are themselves read beneath movement by a reduction, or repeated: as of a step of pooling
        windows that are not all as long, along one axis after the other. Both steps have whole
        vectors of channels then."""
        for total, reads in self.readers.items():
            is_sum = total.op is Op.REDUCE and product_of(total, INDEXING) is None
            if not is_sum or not any(_is_read_from_memory(read, total) for read in reads):
                continue
            for number, size in enumerate(total.shape):
                axis = Axis(total, number)
                if size < MIN_CHANNELS or not _is_image(axis):
                    continue
                if _is_last_in_memory(Axis(total.src[0], kept_axes(total)[number])):
                    yield axis

    def spread(self, seeds: Iterable[Axis]) -> dict[Node, int]:
        """The axis to be last of all nodes that seeds reach; the first to reach a node decides.

        Where another seed would have another axis of a node last, as of an array that one
        convolution reads as (N, C, H, W) and another one as (N, H, C, W), the node stays as it is
        decided, and what reads it permutes: the order is a matter of speed alone."""
        last_axis: dict[Node, int] = {}
        queue = deque(seeds)
        while queue:
            axis = queue.popleft()
            if not self._has_order(axis.node) or axis.node in last_axis:
                continue
            last_axis[axis.node] = axis.number
            if _is_image(axis):
                queue.extend(_same_beneath(axis))
                for read in self.readers.get(axis.node, ()):
                    queue.extend(_same_above(axis, read))
        return last_axis

    def is_stored(self, node: Node) -> bool:
        """Is `node` stored as it is, as no arithmetic follows that could be done before? What reads
        it, beneath movement, are sums and extremes, or repeats it, as the derivative of a maximum
        repeats the place of that for each element of a window."""
        reads = self.readers.get(node, ())
        return bool(reads) and all(_is_read_from_memory(read, node) for read in reads)

    def _has_order(self, node: Node) -> bool:
        return node.op in COMPUTED and node not in self.products


def _is_read_from_memory(read: _Read, node: Node) -> bool:
    """Does a reduction read movement of `node`, or anything read it several times?"""
    is_reduced = read.node.op is Op.REDUCE and read.operand is not node
    is_repeated = prod(read.operand.shape) > prod(node.shape)
    return is_reduced or is_repeated


def _operands_of(node: Node) -> tuple[Node, ...]:
    product = moved_product_of(node)
    return node.src if product is None else product.src


def _in_operands(node: Node, number: int) -> int | None:
    """Which axis of `_operands_of` a node is its axis `number`; None where padding is added along
    that, or no axis of the products is."""
    if node.op is Op.PAD and (node.arg.before[number] or node.arg.after[number]):
        return None
    if node.op is Op.SCATTER and number == node.arg.axis:
        return None
    if node.op is not Op.REDUCE:
        return number
    below = kept_axes(node)[number]
    if moved_product_of(node) is None:
        return below
    product = traced(Axis(node.src[0], below))
    return None if product is None else product.number


def _same_beneath(axis: Axis) -> list[Axis]:
    """The same channels of the operands. Those of products are the same where all factors have
    them, as with a filter for each channel."""
    number = _in_operands(axis.node, axis.number)
    if number is None:
        return []
    sources = [traced(Axis(operand, number)) for operand in _operands_of(axis.node)]
    if moved_product_of(axis.node) is not None and None in sources:
        return []
    return [source for source in sources if source is not None]


def _same_above(axis: Axis, read: _Read) -> Iterator[Axis]:
    """The channels of the node that reads `axis`: the same ones, or those that a dense convolution
    makes of them, along which the filter alone varies."""
    total = read.node
    product = moved_product_of(total)
    others = [factor for factor in product.src if factor is not read.operand] if product else []
    is_summed = any(traced(Axis(read.operand, summed)) == axis for summed in _summed(total))
    for number, size in enumerate(total.shape):
        below = _in_operands(total, number)
        if below is None or any(traced(Axis(factor, below)) is None for factor in others):
            continue
        source = traced(Axis(read.operand, below))
        is_of_filter = is_summed and source is None and size >= MIN_CHANNELS
        if source == axis or is_of_filter:
            yield Axis(total, number)


def _summed(total: Node) -> list[int]:
    """The axes of products along which they are summed up."""
    if moved_product_of(total) is None:
        return []
    below = [traced(Axis(total.src[0], axis)) for axis in total.arg.axes]
    return [axis.number for axis in below if axis is not None]


def _is_image(axis: Axis) -> bool:
    """Has a node places after its channels, so that another order changes anything?"""
    return prod(axis.node.shape[axis.number + 1 :]) > 1


class _ChannelsLast(Rebuilder):
    """What reads a node that is stored moves it, and would store it as moved."""

    def in_own_order(self, node: Node) -> Node:
        """Of a reduction, over images in the order that they have in memory, so that fusion knows
        which axis is innermost there."""
        number = self.last_axis.get(node.src[0]) if len(node.src) == 1 else None
        if node.op is not Op.REDUCE or number is None:
            return super().in_own_order(node)
        reduced = reduced_in_order(node, [self.permuted[node.src[0]]], number)
        kept = kept_axes(node)
        if number not in kept:
            return reduced
        return permute(reduced, inverse(moved_last(kept.index(number), len(kept))))

    def in_order(self, node: Node, axis: int) -> Node:
        if node.op is Op.REDUCE:
            below = kept_axes(node)[axis]
            operands = [self.operand(operand, below) for operand in node.src]
            return reduced_in_order(node, operands, below)
        if node.op not in (Op.PAD, Op.SCATTER):
            return Node(node.op, tuple(self._factors(node, axis)), node.arg)
        operands = [self.operand(operand, axis) for operand in node.src]
        order = moved_last(axis, len(node.shape))
        if node.op is Op.SCATTER:
            along = order.index(node.arg.axis)
            return Node(Op.SCATTER, tuple(operands), node.arg._replace(axis=along))
        before = tuple(node.arg.before[axis] for axis in order)
        after = tuple(node.arg.after[axis] for axis in order)
        return Node(Op.PAD, tuple(operands), Pad(before, after, node.arg.value))

    def operand(self, operand: Node, axis: int) -> Node:
        """Products are built anew, and axes of size 1 are added or removed in the new order."""
        if operand.op is Op.MUL and operand not in self.last_axis:
            return Node(Op.MUL, tuple(self._factors(operand, axis)), operand.arg)
        below = axis_below(operand, axis) if operand.op is Op.RESHAPE else None
        if below is None or squeezed(operand.shape) != squeezed(operand.src[0].shape):
            return super().operand(operand, axis)
        shape = tuple(operand.shape[other] for other in moved_last(axis, len(operand.shape)))
        return reshape(self.operand(operand.src[0], below), shape)

    def _factors(self, product: Node, number: int) -> list[Node]:
        """The operands of products, and of other arithmetic, with their axis `number` at the end.
        Where all of them vary along that, as images and filters of each channel do, an array that
        is read many times has it last in memory too."""
        traces = [traced(Axis(factor, number)) for factor in product.src]
        sources = [source for source in traces if source is not None]
        if len(sources) < len(traces):
            return [self.operand(factor, number) for factor in product.src]
        return [
            self._reordered(factor, number, source)
            for factor, source in zip(product.src, sources, strict=True)
        ]

    def _reordered(self, factor: Node, number: int, source: Axis) -> Node:
        """`factor` with its axis `number` at the end, of an array that is stored so."""
        array = source.node
        is_repeated = prod(factor.shape) >= MIN_REPEATS * prod(array.shape)
        if array in self.last_axis or not _is_image(source) or not is_repeated:
            return self.operand(factor, number)
        order = moved_last(source.number, len(array.shape))
        moved = _over(factor, array, stored_in_order(self.done[array], order))
        return permute(moved, moved_last(number, len(factor.shape)))


def _over(movement: Node, source: Node, other: Node) -> Node:
    """`movement` of an array `other` in place of `source`."""
    if movement is source:
        return other
    return with_operands(movement, (_over(movement.src[0], source, other),))

"""The memory layout of factors: which axis of an array that sums of products read is contiguous.

Tensor cores read tiles of a factor, each row of which should be contiguous in memory. A convolution
of images (N, C, H, W) sums up, over c, p and q,

    image[n, c, h + p, w + q] * filter[k, c, p, q]

No row of the image is a row of a matrix: along H and W windows move, so that several steps of the
loops read one element, and C is not contiguous. Stored as (N, H, W, C) it is, and the image is a
matrix with a row of C numbers for each pixel. The filter is stored as (K, P, Q, C) likewise.

The pass has three steps: it finds the factors that are worth another order (`_find_factors`); it
lets the elementwise operations around them have the same order, so that layers pass images on with
the channels last (`_spread`); and it builds the graph anew (`Rebuilder`). Only the order in memory
changes: every value still has its shape, as a permutation of what is stored.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from lamina.core.rates import GPUS, RATED_GPU
from lamina.core.shape import Shape, prod
from lamina.core.target import CUDA
from lamina.fuse.axes import Index
from lamina.fuse.costs import weight_of, widening
from lamina.fuse.groups import padded, shape_of_factor
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.reorder import LastAxis, Rebuilder
from lamina.fuse.traced_axes import (
    Axis,
    kept_axes,
    moved_product_of,
    reduced_in_order,
    traced,
)
from lamina.fuse.users import Users, users_of
from lamina.fuse.values import MIN_REPEATED_COST
from lamina.graph import index as ix
from lamina.ir.build import moved_last, permute
from lamina.ir.kernel import bounds, free_axes, free_axes_of, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, peel, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.products import reuses_both_factors

# Elements: a shorter axis is not worth being contiguous. 16 of bfloat16 are 32 bytes, a sector of
# a GPU's cache line, and the steps of one tensor-core instruction.
MIN_CONTIGUOUS = 16

# Steps of loops for each place that they read, from which on they are those of a window: those of
# 16 places that move by 15 have up to 1.067. Chosen.
MIN_OVERLAP = 1.06

# Products for each element of a factor: with fewer, a copy in another order, which reads and writes
# each element once, takes longer than it saves. An estimate.
MIN_REUSE = 64

# Rows that begin within a word of a GPU are read element by element, by threads, as the engine that
# copies arrays cannot. The product of (512, 3769) and (1442, 3769) in bfloat16 takes 370 us on an
# H200, and 46 us where rows are longer. A factor with such rows is stored with longer ones where
# each element has so many products, and the sum so many in all: 2**23 products of elements that are
# read one by one take 20 us or more.
MIN_COPIED_REUSE = {16: 64, 32: 128}  # by the bits of an element
MIN_COPIED_PRODUCTS = 1 << 23
# With fewer products a factor of 16 bits is stored so where threads take longer to fill the tiles
# than a kernel takes that reads and writes each element once.
RATES = GPUS[RATED_GPU]
COPY_KERNEL = 3e-6
TILE = 128  # rows or columns of a tile, about

# Of a sum whose computed factors are stored first. Sums of 256 products or fewer may be those of
# attention's heads, which computes factors once.
MIN_STORED_STEPS = 257

FACTOR_BITS = (16, 32)  # widths of the dtypes that tensor cores multiply


def lay_out(sinks: Sequence[Node], pitch: int = 0) -> list[Node]:
    """The graph of `sinks` with factors stored in the order in which tensor cores can read them.
    pitch: of the rows of what is stored, in bytes, as that of `FusionTarget`."""
    users = users_of(sinks)
    factors = _find_factors(users, set(sinks), pitch)
    return _TileOrder(_spread(factors, users), factors.keys()).rebuilt(users, sinks)


# Which factors.


def _find_factors(users: Users, sinks: Set[Node], pitch: int) -> dict[Node, int]:
    """The factors that are worth another order. Of several sums that read a factor, the first one
    decides."""
    sums = [node for node in users if node.op is Op.REDUCE and node.arg.monoid is ADD]
    shapes = _shapes_if_stored(users, sums)
    factors: dict[Node, int] = {}
    for total in reversed(sums):  # the first sum last, so that its axes replace those of others
        factors.update(_factors_of(total, shapes, sinks, pitch))
    return factors


@dataclass(frozen=True)
class _Use:
    """How a sum uses an array that it reads.

    products: of the sum
    others: results that read the same element, but for windows that move along the array: the
        columns of a product of matrices, for the left factor
    """

    products: int
    others: int

    def fills(self, array: Node) -> float:
        """How often tiles have each element: in (64, 300) by (300, 1000) each of the left factor is
        in 8 tiles of 128 columns. Windows of 3 x 3 places read it 9 times."""
        return self.products / prod(array.shape) / min(self.others, TILE)


def _gains_by_longer_rows(
    array: Node, total: Node, use: _Use, sinks: Set[Node], pitch: int
) -> bool:
    """Does a sum gain if `array`, which it uses so, is stored once more, with longer rows?

    Inputs and results have no longer rows by themselves, nor has what is computed from inputs
    where the product reads it. What else a program stores has them: see `lamina.fuse.groups`.
    """
    shape = shape_of_factor(array, pitch) if reuses_both_factors(total) else padded(array, pitch)
    if shape == array.shape:
        return False
    is_reused = use.products >= MIN_COPIED_REUSE[array.dtype.bits] * prod(array.shape)
    is_large = use.products >= MIN_COPIED_PRODUCTS
    gains = (is_reused and is_large) or _is_filled_slowly(array, use)
    return gains and (array in sinks or is_made_of_inputs(array))


def _is_filled_slowly(array: Node, use: _Use) -> bool:
    """Do threads take longer to fill tiles with an array of 16 bits than to copy it? Of a
    convolution with 2 filters of 5 x 5 places they fill tiles with each element 25 times."""
    return array.dtype.bits == 16 and _filling(array, use) > copying_seconds(array)


def _filling(array: Node, use: _Use) -> float:
    """The seconds in which threads fill all tiles with elements of `array`."""
    return prod(array.shape) * use.fills(array) * RATES.filling


def copying_seconds(array: Node) -> float:
    """The seconds of a kernel that reads and writes each element of `array` once."""
    memory = RATES.levels[-1]
    return array.nbytes / memory.all_read + array.nbytes / memory.all_write + COPY_KERNEL


def _gains_by_storing(array: Node, total: Node, use: _Use) -> bool:
    """Does the sum `total` gain if `array`, which is computed from inputs, is stored?

    Threads compute its elements wherever a tile has them, as the engine that copies arrays cannot.
    What that takes beside the products is compared with a kernel that stores each element once.
    (1808, 1680) by (1680, 1129) in float32 multiplies for 119 us, and fills tiles with the left
    factor for 53, of which 16 do not overlap; to store it takes 9. An H200 took 26 % more than
    those 119 us, beside 2 to 9 % of factors that are arrays. In bfloat16 (5749, 3600) by (3600,
    2256) multiplies for 117 us, fills for 730, and stores in 23.
    """
    if array.op not in Group.ELEMENTWISE or not is_made_of_inputs(array):
        return False
    if use.products < MIN_STORED_STEPS * prod(total.shape):
        return False
    multiplying = use.products / _products_a_second(array)
    filling = _filling(array, use)
    longer, shorter = max(multiplying, filling), min(multiplying, filling)
    in_one_kernel = longer + (1 - RATES.hidden) * shorter
    return multiplying + copying_seconds(array) < in_one_kernel


def _products_a_second(factor: Node) -> float:
    """Of all multiprocessors: of 16-bit factors by tensor cores, of float32 by instructions of
    warps."""
    target = CUDA[RATED_GPU]
    rate = RATES.tensor if factor.dtype.bits == 16 else RATES.issue * target.warp
    return rate * target.multiprocessors


def is_made_of_inputs(array: Node) -> bool:
    """Is `array` an input, or computed from inputs without a sum? What is computed from a sum may
    never be stored, as the weights of attention are not."""
    if array.op is Op.REDUCE:
        return False
    parts = toposort([array], lambda node: node.op is not Op.REDUCE)  # up to sums
    return all(operand.op is not Op.REDUCE for node in parts for operand in node.src)


def _factors_of(
    total: Node, shapes: Mapping[Node, Shape], sinks: Set[Node], pitch: int
) -> dict[Node, int]:
    """The arrays that the kernel of the sum `total` would rather read in another order, or with
    longer rows, with the axis that is to be their last one. The kernel must read an array often, in
    a dtype of tensor cores, and at one index alone: with several, each might want another order.

    Windows of one array, such as those of a mean pool, have no factors: of (192, 19, 496, 7)
    elements of float16, computed before they are pooled by 3 x 3, the pool and its gradient take
    129 us, and would take 235 with the 19 channels last (predicted)."""
    kernel = KernelGroup(total, shapes)  # with this sum alone
    reads = kernel.reads
    window_axes = window_axes_of(index for indices in reads.values() for index in indices)
    products = prod(total.src[0].shape)
    shared = _axes_of_all(kernel) if products >= MIN_COPIED_PRODUCTS else frozenset[Node]()
    factors: dict[Node, int] = {}
    for array, indices in reads.items():
        if array.dtype.bits not in FACTOR_BITS or len(indices) != 1:
            continue
        (index,) = indices
        axis = _axis_to_be_last(array, index, window_axes, shared)
        if axis is None:
            continue
        varying = free_axes_of(index)
        use = _Use(products, points(axis for axis in kernel.row_axes if axis not in varying))
        is_reused = products >= MIN_REUSE * prod(array.shape)
        if not is_reused and window_axes and len(reads) > 1:  # not for a sum of one array
            is_reused = _is_stored_for_copies(array)
        gains = _gains_by_longer_rows(array, total, use, sinks, pitch) or (
            is_reused and (_gains_by_storing(array, total, use) or _gains(array, axis, window_axes))
        )
        if gains:
            factors[array] = axis
    return factors


def _is_stored_for_copies(array: Node) -> bool:
    """Is `array` stored in any case before windows read it several times, so that no copy is made
    for another order? `_repeated` of `lamina.fuse.values` stores what is costly to compute for each
    of them, or wide to read."""
    arithmetic = toposort([array], lambda node: node.op in Group.ELEMENTWISE)
    return array.op in Group.ELEMENTWISE and (
        widening(array) < 0 or weight_of(arithmetic) >= MIN_REPEATED_COST
    )


def _axes_of_all(kernel: KernelGroup) -> frozenset[Node]:
    """The axes that every array of a kernel varies along, as the channels of a depthwise
    convolution; none where it multiplies matrices, and where all arrays vary along all axes, as
    those of pooled products do: images number results there, and channels are no better."""
    if kernel.contraction is not None:
        return frozenset()
    varied = {
        free_axes_of(position for index in indices for position in index)
        for indices in kernel.reads.values()
    }
    return frozenset[Node].intersection(*varied) if len(varied) > 1 else frozenset()


def _shapes_if_stored(users: Users, sums: Iterable[Node]) -> dict[Node, Shape]:
    """What the kernel of one of `sums` could read from memory, each with its shape.

    Which values get memory is decided after this pass, so every node counts as stored that kernels
    do not compute where they read it: all but movement, casts to wider floats, and the products
    that are summed up. For ``sum(expand(relu(x)) * expand(w))`` that leaves relu(x), x, w and the
    sum, and the factors of the sum are relu(x) and w.
    """
    shapes = {
        node: node.shape for node in users if node.op not in Group.MOVEMENT and widening(node) <= 0
    }
    for total in sums:
        product = peel(total.src[0], Group.MOVEMENT)
        if product.op is Op.MUL:
            shapes.pop(product, None)
    return shapes


def window_axes_of(indices: Iterable[Index]) -> set[Node]:
    """The loop axes that move a window along an axis of some array.

    Several steps of such loops read one element: ``i + k`` for i < 5 and k < 3 has 15 steps for the
    7 places 0 to 6. Equal parts of which the last one is padded are no windows: ``9363 * i + 2341 *
    j + k`` for i < 7, j < 4 and k < 2341 has 65,548 steps for 65,542 places.
    """
    axes: set[Node] = set()
    for index in indices:
        for position in index:
            low, high = bounds(position)
            places = high - low + 1
            steps = points(free_axes(position))
            if steps >= MIN_OVERLAP * places:
                axes |= free_axes(position)
    return axes


def _axis_to_be_last(
    array: Node, index: Index, window_axes: set[Node], shared: frozenset[Node]
) -> int | None:
    """The last axis of an array that is long, of which no elements are left out as with a stride of
    2, and along which no window moves; None if none is.

    Axis 0, which numbers images or filters, is not considered: the filters of a first layer,
    (16, 3, 3, 3), whose other axes are short, stay as they are. But it is where it is `shared` by
    all arrays of the kernel: a depthwise convolution has one filter for each channel, (96, 1, 7,
    7), and threads are along channels.
    """
    for axis in reversed(range(len(array.shape))):
        is_long = array.shape[axis] >= MIN_CONTIGUOUS
        varying = free_axes(index[axis])
        is_number = axis == 0 and not (varying and varying <= shared)
        is_whole = 1 in map(abs, ix.terms_of(index[axis])[0].values())
        if is_long and is_whole and not is_number and window_axes.isdisjoint(varying):
            return axis
    return None


def _gains(array: Node, axis: int, window_axes: set[Node]) -> bool:
    """Whether to store `array` anew: if `axis` is not the innermost one yet, or if windows move
    along a computed array, so that its padding is computed once."""
    is_innermost = prod(array.shape[axis + 1 :]) == 1
    is_computed_for_windows = bool(window_axes) and array.op is not Op.BUFFER
    return not is_innermost or is_computed_for_windows


def _spread(factors: LastAxis, users: Users) -> dict[Node, int]:
    """`factors` with their last axis, and the values connected to them with the same axis last.

    An axis goes from a value to its neighbours, its operands and users beneath movement, where both
    are arithmetic or extremes, sums and the like of one array, as of the windows of a pool. It goes
    down to operands first, then up to users. For the factor f in ``f = relu(a + b)`` and ``g = f *
    c``, with a, b and c arithmetic: down to the sum, a and b; then up to g, which reads f. c gets
    no axis, as the way down is over.

    A value that has an axis keeps it: it has that of the first neighbour in this order to reach it.
    On the way down later users come first, so the last of several users in order decides. On the
    way up the first axis counts that any operand has last.

    Products that a sum adds up have no order: a permutation would stand between the sum and these.
    A factor that is an input or a sum of products passes no axis on: a copy of it is stored in the
    other order, and values that are computed from it keep theirs.
    """
    last_axis = dict(factors)
    products = {moved_product_of(node) for node in users}
    computed = dict.fromkeys(
        node for node in users if _passes_axis(node) and node not in products
    )
    for node in reversed(computed):  # down, users first
        if node in last_axis:
            for source in _beneath(node, last_axis[node], computed):
                last_axis.setdefault(source.node, source.number)
    for node in computed:  # up, operands first
        for number in range(len(node.shape)):
            sources = _beneath(node, number, computed)
            if any(last_axis.get(source.node) == source.number for source in sources):
                last_axis.setdefault(node, number)
    return last_axis


def _passes_axis(node: Node) -> bool:
    """Can the order of a value in memory be that of its operands?"""
    if node.op is Op.REDUCE:
        return len(node.src) == 1 and moved_product_of(node) is None
    return node.op in Group.ELEMENTWISE


def _beneath(node: Node, number: int, computed: Collection[Node]) -> list[Axis]:
    """The same axis as `number` of the values `computed` that `node` reads beneath movement."""
    below = kept_axes(node)[number] if node.op is Op.REDUCE else number
    traces = [traced(Axis(operand, below), Group.MOVEMENT) for operand in node.src]
    return [source for source in traces if source is not None and source.node in computed]


class _TileOrder(Rebuilder):
    """Arithmetic and extremes are computed in the new order; an input or a sum of products is made
    as it was, and then permuted."""

    def in_order(self, node: Node, axis: int) -> Node:
        if not _passes_axis(node):
            return permute(self.in_own_order(node), moved_last(axis, len(node.shape)))
        if node.op is Op.REDUCE:
            below = kept_axes(node)[axis]
            return reduced_in_order(node, [self.operand(node.src[0], below)], below)
        operands = [self.operand(operand, axis) for operand in node.src]
        return Node(node.op, tuple(operands), node.arg)

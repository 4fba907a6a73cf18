"""Rules that take long reductions in parts: for parallelism, for caches, for accuracy.

A sum of 2**20 elements to one result is one long loop. As 64 sums of 2**14 elements each, and the
sum of those 64, it is 64 loops that run in parallel. `reduce_in_parts` applies on every target; the
other rules here are for CPUs or GPUs alone: `lamina/backends.py` says which.
"""

from collections.abc import Sequence
from itertools import pairwise, repeat
from math import gcd
from typing import NamedTuple

from lamina.core.dtypes import Scalar, float32
from lamina.core.integers import first_divisor, power_of_two_up_to
from lamina.core.shape import prod
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op, Reduce
from lamina.ir.products import product_of, reuses_both_factors, varies
from lamina.ir.substitute import substitute

# All numbers are estimates unless they say otherwise: chosen for two cores and for an H200, by the
# reason beside each; no measurement of a single one is kept.

# Reductions on every target. Sizes are numbers of elements.
LONG = 1 << 17  # reduced elements, of all results together, from which on parts pay
PARTS = 64  # parts that keep a machine busy; reductions with as many results need none
VERY_LONG = 1 << 20  # reduced elements of each result from which on there may be MAX_PARTS
MAX_PARTS = 512
CHEAP = 8  # instructions for each element that take no longer than to read it
SHORTEST_PART = 1 << 8  # elements along the axis that a part has, at least
# A sum of products over three axes or more, a convolution's gradient for its weights, is taken in
# parts that a cache holds, if it has 2**13 products a result and each part 2**10.
DEEP = 1 << 13
DEEP_PART = 1 << 10

# The same on CPUs: 2**12 products a result, and 2**9 for each step of the first axis, an image. Of
# 8 images of 128 channels of 28 x 28 places the gradient of a filter of 3 x 3 took 17 ms in 4
# parts, and 28 as a whole (measured).
CPU_DEEP = 1 << 12
CPU_DEEP_STEP = 1 << 9

# Reductions on GPUs.
# Elements of each result from which on parts pay, for fewer than PARTS results: a block reads 2**16
# words in 5 us. An element of more bytes than WORD counts for as many more, MAX_WORDS at most.
LONG_ROW = 1 << 16
WORD, MAX_WORDS = 4, 16
OF_WORD = 32  # instructions, as CPUs have them, that take a block as long as to read a word
SECTOR = 32  # bytes that are read for an element that data choose
# The same for fewer than BUSY_ROWS results: shorter rows are read once, as the registers of a block
# hold them.
TOO_LONG_FOR_A_BLOCK = 1 << 17
# Elements of each column from which on parts pay: a block reads as many sectors in 5 us.
LONG_COLUMN = 1 << 13
BUSY_ROWS = 1 << 8  # rows, each reduced by a block, that keep a GPU busy
# Elements of each part where all results together have more than MAX_PARTS of them: more blocks end
# more evenly. 24 million elements in 288 parts took an H200, which runs 264 of them at a time,
# twice as long as one round.
PART_OF_ROWS = 1 << 13
MANY_PARTS = 1 << 11
MAX_PARTS_OF_ROWS = 16  # parts of each of PARTS rows or more
BUSY_COLUMNS = 1 << 13  # columns that keep a GPU busy, as a block has a few
SHORT_COLUMN = 1 << 5  # elements of a part, at least: as many as a warp has threads
# Columns from which on each is reduced by a thread, as a schedule decides by its knob
# `enough_threads`; and threads by which memory is kept busy, each of which asks for four rows at a
# time. The sum of two bfloat16 arrays of (743, 54105) over the first axis took an H200 196 us,
# three times as long as to read them: 186 times a thread waited for 1 us. (1000, 100000) of float32
# took 120 us, and in 4 parts 96.
THREAD_COLUMNS = 1 << 15
MANY_THREADS = 1 << 19
LONG_OF_THREAD = 1 << 9  # rows
MIN_PARTS = 4  # fewer are not worth a second reduction
WARP = 32
# Elements from which on short lines are reduced last, in a kernel of their own, which takes 3 us;
# and the fewest of the axes before: all lines are written and read once more, a sixteenth of what
# is added up. (4, 100000, 3, 5) would take 12 us and not 6 (predicted).
LONG_OF_LINES = 1 << 22
MIN_BEFORE_LINES = 16

# Sums whose rounding errors would grow with their length: elements of a part.
COLUMN_PART = 1 << 9  # of a column: a CPU adds 2**6 blocks of 8 rows in memory
PRODUCT_PART = 1 << 16  # of a sum of products: registers of a GPU's tiles add up every step
# The fewest columns of a panel, whose rows a CPU adds up in memory. An estimate: of fewer, a
# processor begins with rows for longer than it reads them.
MIN_PANEL = 256
LARGE = 1 << 22  # elements of the operand from which on these are taken in parts
MAX_UNEVEN = 8  # equal parts may be up to this many times smaller than they need to be


@on(Op.REDUCE)
def reduce_in_parts(node: Node) -> Node | None:
    """Much reduced to little is reduced in parts, which can run in parallel, and then those; so are
    long sums of products over several axes, each part of which a cache holds."""
    src, axes, results = node.src[0], node.arg.axes, prod(node.shape)
    first = src.shape[axes[0]]
    rest = prod([src.shape[axis] for axis in axes[1:]])
    products = src.op is Op.MUL and len(axes) > 2
    deep = products and rest >= DEEP_PART and rest * first >= DEEP
    if prod(src.shape) < LONG or (results >= PARTS and not deep):
        return None
    if deep or min(first, rest) >= PARTS:
        return _in_padded_parts(node, first)
    very_long = prod(src.shape) >= VERY_LONG * results
    parts = gcd(first, MAX_PARTS if very_long else PARTS)
    return _in_padded_parts(node, parts) if parts >= PARTS else None


@on(Op.REDUCE)
def uneven_in_parts(node: Node) -> Node | None:
    """On a CPU, takes in PARTS equal parts and a rest what `reduce_in_parts` leaves whole: 821,449
    elements are 64 parts of 12,835 and a rest of 9. An element of more than CHEAP instructions
    counts for as many more: of a sigmoid, which has 36, 29,128 elements are LONG."""
    if reduce_in_parts.apply(node):
        return None
    by_axes, node = node, _over_one_axis(node)
    shape = node.src[0].shape
    length = shape[node.arg.axes[0]]
    work = prod(shape) * max(_instructions(node) / CHEAP, 1.0)
    if work < LONG or prod(node.shape) >= PARTS or length < PARTS * SHORTEST_PART:
        return None
    cut = _axis_after_repeats(by_axes)
    if cut is not None:
        by_axes_shape, axes = by_axes.src[0].shape, by_axes.arg.axes
        if prod([by_axes_shape[axis] for axis in axes if axis >= cut]) >= SHORTEST_PART:
            return _over_later_axes_first(by_axes, cut)
        # Of 400,003 places of 3 channels each, 3 numbers added up for each place would be 400,003
        # results in memory: the parts are of the first axis instead.
        first = by_axes_shape[axes[0]]
        if first >= PARTS:
            node, length = by_axes, first
    rest = length % PARTS
    whole = _of_slice(node, 0, length - rest)
    ends = [whole, _of_slice(node, length - rest, length)] if rest else [whole]
    components = []
    for number in range(node.arg.monoid.arity):
        of_whole, *others = (build.component(end, number) for end in ends)
        components.append([_in_padded_parts(of_whole, PARTS), *others])
    totals = [tuple(of_end) for of_end in zip(*components, strict=True)]
    monoid: Monoid = node.arg.monoid
    combined = totals[0] if len(totals) == 1 else monoid.combine(*totals)
    component: int = node.arg.component
    return combined[component]


def _axis_after_repeats(node: Node) -> int | None:
    """The first axis that a reduction over neighbouring axes had better reduce apart from those
    before it: there one of the arrays that it reads begins to be repeated, or ends to be. As one
    axis of 7 * 1000 elements both would find 7 scales, of which each is for 1000 elements, by a
    division for each element, and have no vectors.

    None if there is no such axis. With so many elements behind the first axis, axes that are no
    neighbours do not get here: `reduce_in_parts` takes these."""
    shape = node.src[0].shape
    axes: tuple[int, ...] = node.arg.axes
    inside = Group.ELEMENTWISE | Group.MOVEMENT
    beneath = toposort(node.src, lambda operand: operand.op in inside)
    copies = [each for each in beneath if each.op is Op.EXPAND]
    behind = {elements for each in copies for elements in _elements_behind_ends(each)}
    borders = (axis for axis in axes[1:] if prod(shape[axis:]) in behind)
    return next(borders, None)


def _elements_behind_ends(copies: Node) -> list[int]:
    """For an EXPAND, the number of elements behind each border between a repeated and a
    non-repeated axis. Reshapes do not change it. (7, 1) to (7, 1000): 1000."""
    shape, source = copies.shape, copies.src[0].shape
    source = (1,) * (len(shape) - len(source)) + source
    long_axes = [axis for axis, size in enumerate(shape) if size > 1]
    return [
        prod(shape[axis:])
        for before, axis in pairwise(long_axes)
        if (source[before] == 1) != (source[axis] == 1)
    ]


def _over_later_axes_first(node: Node, cut: int) -> Node:
    """A reduction that reduces the axes from `cut` on, and then those before it."""
    monoid, axes, component = node.arg
    later = tuple(axis for axis in axes if axis >= cut)
    inner = [
        Node(Op.REDUCE, node.src, Reduce(monoid, later, part)) for part in range(monoid.arity)
    ]
    return build.reduce(monoid, axes[: -len(later)], *inner, component=component)


def _of_slice(node: Node, start: int, end: int) -> Node:
    """A reduction of the elements from `start` to `end` of the first axis that it reduces. What
    these are computed from is cut, so that nothing is stored whole for two slices of it."""
    axis = node.arg.axes[0]
    computed = toposort(node.src, lambda operand: operand.op in Group.ELEMENTWISE)
    read = {operand for each in computed for operand in each.src}.union(node.src) - {*computed}
    slices = {each: build.slice_axis(each, axis, start, end) for each in read}
    return Node(Op.REDUCE, tuple(substitute(node.src, slices)), node.arg)


def _instructions(node: Node) -> float:
    """The instructions that compute an element which `node` reduces, from what is in memory."""
    inside = Group.ELEMENTWISE | Group.MOVEMENT
    beneath = toposort(node.src, lambda operand: operand.op in inside)
    return sum(each.op.value.instructions for each in beneath if each.op in Group.ELEMENTWISE)


@on(Op.REDUCE)
def gradients_in_parts(node: Node) -> Node | None:
    """On a CPU a sum of products over three axes or more, a convolution's gradient for its weights,
    is taken in equal parts of DEEP_PART products or more: 8 images of 28 x 28 places in 4 parts of
    2 images. Of 7 images each is a part, though it has fewer products.

    Sums over two axes stay whole: those of a linear layer, over a batch and places, are one long
    axis, in blocks of which memory accumulates. 8 x 1024 products of each of 256 x 512 results took
    18.6 ms, and 30.7 in parts (measured)."""
    product, axes = product_of(node), node.arg.axes
    if product is None or len(axes) < 3 or prod(product.shape) < LONG:
        return None
    first, *others = (product.shape[axis] for axis in axes)
    step = prod(others)
    if step < CPU_DEEP_STEP or first * step < CPU_DEEP:
        return None
    wanted = min(first * step // DEEP_PART, first)
    parts = first_divisor(first, range(wanted, 0, -1), 1)
    return _in_padded_parts(node, parts if parts > 1 else first)


@on(Op.REDUCE)
def columns_in_parts(node: Node) -> Node | None:
    """On a GPU, long columns or rows that are too few to keep it busy are reduced in parts: 96
    columns in 128 parts each; so are columns so many that threads wait for memory
    (`_waits_in_threads`). Sums of products that reuse both factors stay whole, as thread blocks
    share their steps."""
    results = prod(node.shape)
    if results == 0 or lengths(node).elements * MAX_WORDS < LONG_COLUMN:
        return None
    whole = _over_one_axis(_without_ones(node))
    axes, shape = whole.arg.axes, whole.src[0].shape
    # With results between the reduced axes, as channels are between a batch and places, it is not
    # known here along which axis neighbours will lie: a block may have 32 of them.
    is_apart = len(axes) > 1
    along_rows = axes[-1] == len(shape) - 1 and not is_apart
    if reuses_both_factors(whole):
        return None
    if along_rows and _is_long(node):
        fewest, wanted = _parts_of_rows(results, prod(shape))
    elif not along_rows and _waits_in_threads(whole):
        fewest, wanted = MIN_PARTS, power_of_two_up_to(max(MANY_THREADS // results, 1))
    elif not along_rows and _is_long_column(whole):
        wanted = 1 << (BUSY_COLUMNS // results).bit_length()
        # Fewer parts would be long, and taken in parts once more.
        fewest = max(min(wanted // 2, lengths(whole).elements // SHORT_COLUMN), MIN_PARTS)
    else:
        return None
    counts = [_even_parts(shape[axis], min(fewest, shape[axis]), wanted) for axis in axes]
    pairs = zip(counts, axes, strict=True)
    fitting = [count if count <= shape[axis] else 0 for count, axis in pairs]
    parts = max(fitting)
    # Parts of one element would reduce nothing, and leave the same reduction.
    if parts < MIN_PARTS or parts >= lengths(whole).elements:
        return None
    return build.reshape(_in_padded_parts(whole, parts, fitting.index(parts)), node.shape)


@on(Op.REDUCE)
def short_lines_last(node: Node) -> Node | None:
    """On a GPU, a reduction whose last axes are short lines in memory, with results between these
    and others that it reduces, leaves the lines for the end: threads then lie along neighbours.

    The sums of 3607 channels over (743, 3607, 3, 5) add up 743 rows of 3607 * 15 neighbours, and
    then lines of 15. With a thread for each line, the 32 of a warp lie 54,105 elements apart: a
    norm of that took 616 us for each sum on an H200, and 80 MB take 20.
    """
    axes, shape = node.arg.axes, node.src[0].shape
    after_results = _axes_after_results(node)
    line = prod([shape[axis] for axis in after_results])
    is_apart = 0 < len(after_results) < len(axes)
    if not is_apart or line == 1 or line >= WARP or prod(shape) < LONG_OF_LINES:
        return None
    if reuses_both_factors(node) or _columns(node) > 1:
        return None
    earlier = tuple(axis for axis in axes if axis not in after_results)
    if prod([shape[axis] for axis in earlier]) < MIN_BEFORE_LINES:
        return None
    monoid, component = node.arg.monoid, node.arg.component
    of_earlier = [
        Node(Op.REDUCE, node.src, Reduce(monoid, earlier, part)) for part in range(monoid.arity)
    ]
    lines = [axis - len(earlier) for axis in after_results]
    return build.reduce(monoid, lines, *of_earlier, component=component)


def _axes_after_results(node: Node) -> tuple[int, ...]:
    """The axes that a reduction reduces behind its last axis of more than one result: 2 and 3 of
    (743, 3607, 3, 5) over the axes 0, 2 and 3."""
    shape = node.src[0].shape
    axes = set(node.arg.axes)
    kept = [axis for axis, size in enumerate(shape) if axis not in axes and size > 1]
    last = kept[-1] if kept else -1
    return tuple(axis for axis in node.arg.axes if axis > last) if kept else ()


def _parts_of_rows(results: int, elements: int) -> tuple[int, int]:
    """How many parts each of so many `results` has, each part reduced by a block of a GPU: at
    least, and as a power of two at most. One sum of 24 million elements has 1024 to 2048 parts, and
    each of 100 sums 4 to 16."""
    if results >= PARTS:
        return max(BUSY_ROWS // results, MIN_PARTS), MAX_PARTS_OF_ROWS
    blocks = min(max(elements // PART_OF_ROWS, MAX_PARTS), MANY_PARTS)
    fewest = max(blocks // 2 // results, MIN_PARTS)
    return fewest, max(power_of_two_up_to(blocks // results), MAX_PARTS)


def _even_parts(extent: int, fewest: int, wanted: int) -> int:
    """Into how many parts an axis is cut: the common divisor of its extent and the power of two
    `wanted`; where that is below `fewest`, the next divisor of the extent, as equal parts need no
    conditions; and `wanted` where there is none between them. 13 * 201401 elements in 51 to 512
    parts are 512 uneven ones, and 37 * 16 * 587 elements 74 parts."""
    common = gcd(extent, wanted)
    if common >= fewest:
        return common
    return first_divisor(extent, range(fewest, wanted), wanted)


def _is_long(node: Node) -> bool:
    """Whether a GPU would reduce so much by so few blocks, one for each result, that parts pay: an
    argmax of 3,199,928 numbers takes one of them 360 us, and many the time of a launch. So does a
    sum of 42,437 elements that lie where data say, each in a sector of its own: 74 us. An element
    of more than OF_WORD instructions counts for as many more."""
    results, elements = prod(node.shape), lengths(node).elements
    if results < PARTS:
        instructions = min(_instructions_of_element(node) / OF_WORD, MAX_WORDS)
        return elements * max(_words_of_element(node), instructions) >= LONG_ROW
    return results < BUSY_ROWS and elements >= TOO_LONG_FOR_A_BLOCK


def _is_long_column(node: Node) -> bool:
    """The same of columns, of which a block has as many as a sector has elements: 16,384 rows of
    128 columns of float32 take 16 blocks 13 us, and parts 4 (predicted). Of fewer columns that are
    neighbours a sector has several rows: of 3 columns of 11,432 rows, it has 2.7."""
    axes, shape = node.arg.axes, node.src[0].shape
    neighbours = prod(shape[axes[-1] + 1 :]) if len(axes) == 1 else SECTOR
    of_sector = min(neighbours * WORD / SECTOR, 1.0)
    return lengths(node).elements * _words_of_element(node) * of_sector >= LONG_COLUMN


def _waits_in_threads(node: Node) -> bool:
    """Whether columns are so many that a GPU's threads have one each, and so long that each waits
    for its rows longer than memory takes to give all of them. Of a sum over windows, whose arrays
    have fewer elements than it adds up, caches give them."""
    if len(node.arg.axes) > 1 or prod(node.shape) < THREAD_COLUMNS:
        return False
    largest = max((prod(array.shape) for array in _arrays_beneath(node.src)), default=0)
    return lengths(node).elements >= LONG_OF_THREAD and largest >= prod(node.src[0].shape)


def _words_of_element(node: Node) -> float:
    """The words that are read for each element that `node` reduces, of what may be in memory: of an
    array that is repeated a part, and a SECTOR of a larger one that is read where data say."""
    elements = max(prod(node.src[0].shape), 1)
    gathers = [each for each in toposort(node.src, _is_computed) if each.op is Op.GATHER]
    at_places_of_data = _arrays_beneath([gather.src[0] for gather in gathers])
    nbytes = 0.0
    for array in _arrays_beneath(node.src):
        size = prod(array.shape)
        is_apart = array in at_places_of_data and size > elements
        nbytes += SECTOR if is_apart else array.dtype.itemsize * min(size / elements, 1.0)
    return min(max(nbytes / WORD, 1.0), MAX_WORDS)


def _instructions_of_element(node: Node) -> float:
    """The instructions for each element that `node` reduces; of smaller arrays that are repeated a
    part."""
    elements = max(prod(node.src[0].shape), 1)
    computed = [each for each in toposort(node.src, _is_computed) if each.op in Group.ELEMENTWISE]
    return sum(
        each.op.value.instructions * min(prod(each.shape) / elements, 1.0) for each in computed
    )


def _is_computed(node: Node) -> bool:
    """Is `node` no array in memory, as far as is known here?"""
    return node.op in Group.ELEMENTWISE | Group.MOVEMENT | {Op.GATHER, Op.CONST, Op.IOTA}


def _arrays_beneath(nodes: Sequence[Node]) -> set[Node]:
    """The arrays that computing `nodes` reads."""
    computed = toposort(nodes, _is_computed)
    reached = {*nodes}.union(*(node.src for node in computed))
    return {node for node in reached if not _is_computed(node)}


@on(Op.REDUCE)
def long_columns_in_parts(node: Node) -> Node | None:
    """Long wide columns are added up in parts on a CPU: its kernels read a few whole rows at a time
    and add these in memory, a series of additions whose rounding errors grow with its length."""
    if prod(node.src[0].shape) < LARGE or reuses_both_factors(node) or _columns(node) < MIN_PANEL:
        return None
    return _in_parts_of_at_most(node, COLUMN_PART)


def _columns(node: Node) -> int:
    """The elements that lie in memory between neighbours along the last axis that `node` reduces:
    1000 for (64, 1000) over axis 0, and for a vector of 64 elements times such a matrix, whose
    product has the reduced axis last. Of a slice those of the slice; 0 where all is repeated."""
    pending = [(operand, node.arg.axes[-1]) for operand in node.src]
    seen, columns = set(pending), 0
    while pending:
        operand, axis = pending.pop()
        beneath = beneath_along(operand, axis)
        if beneath is None:
            columns = max(columns, prod(operand.shape[axis + 1 :]))
            continue
        pending += [each for each in beneath if each not in seen]
        seen.update(beneath)
    return columns


def beneath_along(node: Node, axis: int) -> list[tuple[Node, int]] | None:
    """The operands that `node`, arithmetic or movement, reads along `axis`, each with its axis:
    axis 0 of (64, 1000) for axis 1 of its transpose. Without those that an EXPAND repeats along it.
    None if `node` is an array, or other movement."""
    if node.op in Group.ELEMENTWISE:
        return [(operand, axis) for operand in node.src]
    if node.op is Op.PERMUTE:
        return [(node.src[0], node.arg[axis])]
    if node.op is Op.EXPAND:
        added = len(node.shape) - len(node.src[0].shape)  # axes in front
        return [(node.src[0], axis - added)] if varies(node, axis) else []
    if node.op is Op.RESHAPE:
        place = _same_axis(node.shape, node.src[0].shape, axis)
        return None if place is None else [(node.src[0], place)]
    return None


def _same_axis(shape: Sequence[int], other: Sequence[int], axis: int) -> int | None:
    """The axis of `other`, an array of as many elements, that walks the same ones as `axis` of
    `shape`: 0 for the axis 1 of (1, 64, 1000) in (64, 1000). None if there is none."""
    after, size = prod(shape[axis + 1 :]), shape[axis]
    for place, other_size in enumerate(other):
        if other_size == size and prod(other[place + 1 :]) == after:
            return place
    return None


@on(Op.REDUCE)
def long_products_in_parts(node: Node) -> Node | None:
    """Very long sums of products that share factors are taken in parts on a GPU: registers of its
    tiles add up every step, a series of additions whose rounding errors grow with its length."""
    return _in_parts_of_at_most(node, PRODUCT_PART) if reuses_both_factors(node) else None


def _in_parts_of_at_most(node: Node, size: int) -> Node | None:
    """A float32 sum in equal parts of up to `size` elements, if there are at least four."""
    needed = lengths(node).elements // size
    if needed < MIN_PARTS:
        return None
    whole = divisible(node)
    if whole is None:
        return None
    extent = lengths(whole).first
    parts = first_divisor(extent, range(needed, MAX_UNEVEN * needed), extent)
    return with_parts_in_front(whole, parts) if parts < extent else None


def divisible(node: Node) -> Node | None:
    """A float32 sum, over neighbouring axes as over a single one; None for any other reduction. A
    sum over another reduction stays whole, as kernels may never hold more than a block of that."""
    if node.arg.monoid is not ADD or node.dtype is not float32:
        return None
    over_reduction = any(beneath.op in Group.REDUCTION for beneath in toposort(node.src))
    return None if over_reduction else _over_one_axis(node)


class Lengths(NamedTuple):
    """Of a reduction: the extent of the first axis that it reduces, and elements of a result."""

    first: int
    elements: int


def lengths(node: Node) -> Lengths:
    """The lengths of a reduction: (4, 4096, 1024) over the axes 0 and 1 is 4 and 16384."""
    axes, shape = node.arg.axes, node.src[0].shape
    return Lengths(shape[axes[0]], prod([shape[axis] for axis in axes]))


def with_parts_in_front(node: Node, parts: int, position: int = 0) -> Node:
    """A sum of as many sums over parts of one of its axes, which has this position among them; a
    last part that is too short is filled up with zeros. The parts are an axis before all others, so
    that results of one lie side by side as those of the whole do."""
    axes, cut = node.arg.axes, node.arg.axes[position]
    size = -(-node.src[0].shape[cut] // parts)
    split = split_axis(node.src[0], cut, size, 0.0)
    others = (axis for axis in range(len(split.shape)) if axis != cut)
    inner = build.reduce(
        ADD, tuple(axis + 1 for axis in axes), build.permute(split, (cut, *others))
    )
    return build.reduce(ADD, (0,), inner)


def _over_one_axis(node: Node) -> Node:
    """A reduction over neighbouring axes as one over a single axis: of (4, 4096, 1024) over the
    axes 0 and 1 as of (16384, 1024) over axis 0."""
    axes, shape = node.arg.axes, node.src[0].shape
    first, last = axes[0], axes[-1]
    if len(axes) == 1 or last - first != len(axes) - 1:
        return node
    merged = (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])
    operands = [build.reshape(operand, merged) for operand in node.src]
    return build.reduce(node.arg.monoid, (first,), *operands, component=node.arg.component)


def _without_ones(node: Node) -> Node:
    """A reduction of operands without axes of size 1: of (2, 1, 500) over the axes 0 and 2 as of
    (2, 500) over both."""
    shape = node.src[0].shape
    kept = [axis for axis, size in enumerate(shape) if size != 1]
    long_axes = tuple(shape[axis] for axis in kept)
    operands = [build.reshape(operand, long_axes) for operand in node.src]
    axes = [kept.index(axis) for axis in node.arg.axes if axis in kept]
    return build.reduce(node.arg.monoid, axes, *operands, component=node.arg.component)


def _in_padded_parts(node: Node, parts: int, position: int = 0) -> Node:
    """Reduce `parts` parts along the reduced axis that has this position among them, then those. A
    last part that is too short is filled up with the identity: 10 elements in 4 parts are 3, 3, 3
    and 1 with two zeros."""
    monoid, axes, component = node.arg
    cut = axes[position]
    size = -(-node.src[0].shape[cut] // parts)
    identities = monoid.identity(tuple(operand.dtype for operand in node.src))
    operands = tuple(map(split_axis, node.src, repeat(cut), repeat(size), identities))
    # The axis of parts is where the axis was, and the others of its right are one further.
    inner_axes = tuple(axis + (axis >= cut) for axis in axes)
    inner = tuple(
        Node(Op.REDUCE, operands, Reduce(monoid, inner_axes, part)) for part in range(monoid.arity)
    )
    of_parts = cut - sum(axis < cut for axis in axes)  # among the results of the parts
    return Node(Op.REDUCE, inner, Reduce(monoid, (of_parts,), component))


def split_axis(x: Node, axis: int, size: int, identity: Scalar) -> Node:
    """`x` with `axis` as two, parts and the `size` elements of each, filled up with `identity`:
    (10, 7) along axis 0 in parts of 3 is (4, 3, 7)."""
    parts = -(-x.shape[axis] // size)
    before, after = [0] * len(x.shape), [0] * len(x.shape)
    after[axis] = parts * size - x.shape[axis]
    padded = build.pad(x, before, after, identity)
    return build.reshape(padded, (*x.shape[:axis], parts, size, *x.shape[axis + 1 :]))

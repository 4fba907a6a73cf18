"""A loop nest: a kernel together with the order of its loops and who runs each of them.

`lamina/loops/moves.py` builds nests move by move, `lamina/loops/verify.py` checks them.

The axes of a kernel are AXIS nodes, a0, r1 and so on, r for those of reductions. The first axes of
every store, the *rows*, can run in any order; the other ones are its *columns*. For
``y[a0] = sum over r1 of x[64 * a0 + r1]`` a nest may have the order (a0, r1), the binding
{a0: "parallel"}, and after ``split(a1, 8) -> a2, a3`` the order (a0, r2, r3) and one entry of
`splits`, the sub-loops (r2, r3) with the extent 64.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import NamedTuple

from lamina.core.dtypes import DType, bool_, float32, float64, int8, int32, int64, uint8
from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.graph.exact_scatters import Scale
from lamina.ir.kernel import (
    Kernel,
    Parameter,
    Store,
    bound_axes,
    free_axes,
    loads_beneath,
    points,
)
from lamina.ir.monoids import ADD, MAX, MIN, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.products import product_of

Axes = tuple[Node, ...]

# Bindings of an axis say who runs its iterations.
IN_REGISTERS = ("vector", "unroll")  # lanes of a vector; copies of the body, one an iteration
# "dot": four products of bytes, by one instruction. "tile": the words of these in a row of a tile.
IN_ONE_THREAD = ("serial", *IN_REGISTERS, "dot", "tile")
# "parallel": threads of the CPU's pool. "thread": the threads of a GPU's block. "grid": a GPU's
# blocks, or its threads where no axis is bound to "thread".
BINDINGS = (*IN_ONE_THREAD, "parallel", "grid", "thread")

MIN_SQUARE = 4  # lanes of vectors that registers transpose before they are stored
# Bytes from which on an array is taken to have left all caches: 32 MiB, an estimate for CPUs.
UNCACHED = 1 << 25
LINE = 64  # bytes of a cache line
# Bytes from which on what a kernel stores is written past the caches: a store to a line that no
# near cache holds first reads it. One core of a Sapphire Rapids, whose second-level cache holds
# 2 MiB, took 15.9 ms for two results of 16 MiB of a product that were written past the caches, and
# 20.3 ms through them; 2.3 and 2.6 ms for copies of 8 MiB that are read again (measured).
UNCACHED_STORES = 1 << 23
# The same of a transpose, whose lines lie far apart: 1024 x 4096 of 4096 x 1024 took 2.0 ms past
# the caches and 5.1 ms through them. A result of 2 MiB took half as long past the caches, and as
# long where the second-level cache held it before (measured).
UNCACHED_TRANSPOSE = 1 << 21
LONG_ROW = 1 << 12  # bytes of rows that may end within a line: an estimate
SCANNING_THREADS = 512  # largest block of threads that computes one scan together
BLOCK = 256  # threads of a block in which each thread has a row
# So many sums hide the latency of an addition with one accumulator each: of a CPU, and of a warp,
# beside which others run. Of fewer, each unrolled step of a reduction has accumulators for itself.
MANY_SUMS, MANY_SUMS_OF_WARP = 16, 4


# Elements from lane to lane of vectors that shuffles pick from vectors of neighbours, and how many
# of these are read (`lamina/targets/c/strides.c`).
NEAR_STRIDES = {-1: 1, 2: 2, 3: 3, 4: 4}


WORDS_OF_TILE = 16  # words of four bytes in a row of a tile, at most; a tile has as many rows


class SubLoops(NamedTuple):
    """The axes that one split axis became, outermost first, and its extent in iterations. An axis
    of 10 split by 4 became axes of 3 and 4 with an extent of 10: two of the 12 points never run."""

    axes: Axes
    extent: int


@dataclass(frozen=True)
class Pipelining:
    """How blocks compute the tiles of a product, beyond its atom. What a schedule leaves open, None
    here, is decided by the facts of the GPU (`lamina/tiles/decisions.py`).

    order: "whole" if a block has every `blocks`th tile, "stream_k" if blocks share the
        steps of tiles, or of the last ones
    blocks: how many
    depth: steps that the buffers in shared memory hold
    filler: who fills the buffers: "producer", warps of their own, or the "consumers" themselves
    slices: of the results of a tile, stored beside the first steps of the next one; 0 if they are
        stored before these
    ahead: of products back to back, how many steps inner products are ahead of outer ones
    """

    order: str | None = None
    blocks: int | None = None
    depth: int | None = None
    filler: str | None = None
    slices: int | None = None
    ahead: int | None = None


@dataclass(frozen=True)
class TileFill:
    """What the tiles of a factor of a product have, in memory that a block shares.

    For ``y[a0, a1] = sum over r2 of a[a0, r2] * b[r2, a1]``, with a0 split into tiles of 64 rows,
    ``64 * a3 + a4``, those of a have the value ``a[a0, r2]``, the axes (a0, r2) and the row index
    ``64 * a3 + a4``.

    value: an element of the factor, over `axes`
    axes: of the whole factor, all its rows and steps, though a tile has only some of them; the
        fastest one in memory is last
    row_index: the row of results that a row of the tile belongs to, over the axes of tiles and
        their sub-loops; of a right factor the column, and of one with keys as rows the key
    """

    value: Node
    axes: Axes
    row_index: Node

    def rebuilt(self, done: Mapping[Node, Node]) -> "TileFill":
        """The same of rebuilt expressions: `done` holds what each has become."""
        return replace(self, value=done[self.value], row_index=done[self.row_index])


@dataclass(frozen=True)
class PrivateResults:
    """The results of a scatter that memory of a block holds, while its threads go through updates.

    places: how many places along the axis that is scattered to a block has
    extent: how many there are
    block: the number of the row axis that numbers the blocks of as many places
    scale: the integers by which float32 is added; None where the results are integers
    """

    places: int
    extent: int
    block: int
    scale: Scale | None = None

    def nbytes(self, results: int, dtype: DType) -> int:
        """The bytes of so many results of `dtype`."""
        return self.scale.nbytes(results) if self.scale else results * dtype.itemsize


@dataclass(frozen=True)
class Nest:
    """A kernel with its schedule applied.

    order: every axis of the kernel, the outermost loop first
    binding: who runs an axis, one of BINDINGS; an axis left out is serial
    splits: the sub-loops of every axis that was split
    kept: the stores that fill arrays which the program keeps from call to call. None of them runs
        in the kernel; the arrays are parameters of the kernel behind those that it had before
    fills: the stores that fill scratch memory, which the last parameters of the kernel are
    atom: by which a nest multiplies tiles that a block shares, a name in `ATOMS`; "" for any other
        nest
    tiles: how the tiles of such a product are filled, one for each factor
    pipelining: how blocks compute the tiles of a product
    private: what memory of a block holds of a scatter's results; None of any other nest
    """

    kernel: Kernel
    order: Axes
    binding: Mapping[Node, str]
    splits: tuple[SubLoops, ...] = ()
    kept: tuple[Store, ...] = ()
    fills: tuple[Store, ...] = ()
    atom: str = ""
    tiles: tuple[TileFill, ...] = ()
    pipelining: Pipelining = Pipelining()
    private: PrivateResults | None = None

    def sub_loops(self, axis: Node) -> SubLoops:
        """The sub-loops that `axis` is one of. If it is in no split, that is itself alone, and the
        extent is its size."""
        for split in self.splits:
            if axis in split.axes:
                return split
        return SubLoops((axis,), axis.arg.size)

    def sub_loops_to_split(self, axis: Node, factor: int) -> SubLoops:
        """The sub-loops that `axis` is split within. An axis of an even split that `factor` does
        not divide leaves that split: each iteration of the loops around it then has its own uneven
        end. 3000 columns are 2 panels of 1500, and each of these 93 vectors of 16 and one of 12.
        The other axes of that split are then in none, as if they had never been one axis. Axes of
        scans keep their split."""
        split = self.sub_loops(axis)
        is_even = split.extent == points(split.axes)
        if axis.arg.size % factor and is_even and axis not in serial_axes(self.kernel):
            return SubLoops((axis,), axis.arg.size)
        return split

    def splits_without(self, split: SubLoops) -> tuple[SubLoops, ...]:
        """All splits but `split`; all of them if that is an axis in no split."""
        return tuple(other for other in self.splits if other != split)

    def is_head(self, axis: Node) -> bool:
        """Is `axis` the outermost of its sub-loops, or in no split?"""
        return self.sub_loops(axis).axes[0] is axis

    def bound(self, axis: Node) -> str:
        """Who runs `axis`: one of BINDINGS."""
        return self.binding.get(axis, "serial")

    @cached_property
    def row_loops(self) -> list[Node]:
        """The row axes that are loops, neither vectors nor unrolled, outermost first.

        Where memory accumulates partial sums, as after `Accumulate`, they are loops over all axes
        of these sums: the loop around the rows, and the rows inside of it, which are columns to the
        kernel.
        """
        last = self.kernel.stores[-1]
        accumulates = last.monoid is not None and last.value.op is Op.LOOP_REDUCE
        rows = last.axes if accumulates else self.kernel.row_axes
        loops = [axis for axis in self.order if self.bound(axis) not in IN_REGISTERS]
        return [axis for axis in loops if axis in rows]

    def inside(self, row: Node) -> list[Node]:
        """The axes whose loops are in the body of the loop over `row`, one of the row loops: all
        but that row loop and those around it.

        Columns, reductions and register tiles are among them wherever they stand in the order, as
        they run where a row is computed. For the order a0, r2, a1, all serial, with the rows a0 and
        a1: r2 and a1 are inside a0, and r2 is inside a1.
        """
        through_row = self.order[: self.order.index(row) + 1]
        outside = [axis for axis in through_row if axis in self.row_loops]
        return [axis for axis in self.order if axis not in outside]

    @cached_property
    def overlapping(self) -> frozenset[Node]:
        """The row and column axes of vectors of which the last one may compute again what others
        do: 13 elements are vectors of 8 lanes at 0 and at 5. None where a store adds to what is
        there, or where the kernel reads what it stores."""
        if not _may_store_again(self.kernel):
            return frozenset()
        serial = serial_axes(self.kernel)
        vectors = [axis for axis in self.order if self.bound(axis) == "vector"]
        return frozenset(axis for axis in vectors if not axis.arg.reduce and axis not in serial)

    @cached_property
    def overlapping_blocks(self) -> frozenset[Node]:
        """Those of `overlapping` whose last vector may begin in the block before its own: 29
        elements are vectors of 16 lanes at 0 and at 13, which is -3 in block 1. Not where an index
        does not walk the sub-loops as one, such as that of a packed panel: something else may be
        before the block there."""
        return frozenset(axis for axis in self.overlapping if _are_walked_as_one(self, axis))

    def axis(self, number: int) -> Node:
        """The axis of that number. Raises FormatError when there is none."""
        axes = {axis.arg.number: axis for axis in self.order}
        if number not in axes:
            known = ", ".join(f"a{known_number}" for known_number in axes)
            raise FormatError(f"the kernel has no axis a{number}; it has {known}")
        return axes[number]


def axis_lists(kernel: Kernel) -> list[Axes]:
    """The axes of every store, then those of every LOOP_REDUCE and LOOP_SCAN: a list for each."""
    of_stores = [store.axes for store in kernel.stores]
    of_nodes = [bound_axes(node) for node in kernel.nodes]
    return of_stores + [axes for axes in of_nodes if axes]


def _may_store_again(kernel: Kernel) -> bool:
    """Is a result the same if some of its elements are computed and stored twice?"""
    loaded = {load.arg.parameter for load in kernel.of(Op.LOAD)}
    return all(
        store.monoid is None and not store.atomic and store.parameter not in loaded
        for store in kernel.stores
    )


def _are_walked_as_one(nest: Nest, lane: Node) -> bool:
    """Does all that depends on the innermost sub-loop `lane` see the sum of the sub-loops alone,
    as ``3 * (16 * a4 + a5)`` does with 16 lanes a5?"""
    sub_loops = nest.sub_loops(lane).axes
    if sub_loops[-1] is not lane:  # of words of bytes the four bytes are inside
        return False
    numbered = enumerate(sub_loops[:-1], 1)
    strides = {axis: points(sub_loops[inner:]) for inner, axis in numbered if axis.arg.size > 1}
    stores = (*nest.kernel.stores, *nest.fills, *nest.kept)
    roots = [root for store in stores for root in (store.index, store.value, store.condition)]
    if strides and lane in roots:
        return False
    for node in toposort(roots):
        if lane not in node.src:
            continue
        terms, _ = ix.terms_of(node)
        step = terms.get(lane, 0)
        is_sum = node.op is Op.AFFINE and all(
            terms.get(axis, 0) == stride * step for axis, stride in strides.items()
        )
        if strides and not is_sum:
            return False
    return True


def computes_same(reduction: Node, stores: Iterable[Store]) -> bool:
    """Do the steps of `reduction` load or compute what values of `stores` need at the same place?
    The sum over j of ``exp(x[i, j])`` computes all of ``y[i, j] = exp(x[i, j])``."""
    steps = set(bound_axes(reduction))
    of_steps = {
        node
        for node in toposort(operands_of(reduction))
        if node.op is Op.LOAD or node.op in Group.ELEMENTWISE
    }
    values = toposort(store.value for store in stores)
    return any(node in of_steps and not steps.isdisjoint(free_axes(node)) for node in values)


def monoid_in_order(nest: Nest, reduction: Node) -> Monoid | None:
    """A cheaper monoid for an argmax or argmin whose terms come in the order of their places; None
    for any other reduction.

    An argmax takes the first of equal maxima. In general it has to compare the places of equal
    values. If places only grow, a later equal value never wins, and comparing values is enough.
    They grow where they number the elements along the loops, the innermost the fastest:
    ``8 * r1 + r2`` for loops r1 around r2 < 8."""
    monoid: Monoid = reduction.arg.monoid
    if monoid.in_order is None:
        return None
    place = ix.of_integer(operands_of(reduction)[-1])
    if place is None:
        return None
    strides, first = ix.terms_of(place)
    elements = 1  # of all reduced loops inside `axis`
    for axis in reversed(nest.order):
        if axis in bound_axes(reduction):
            if strides.pop(axis, None) != elements:
                return None
            elements *= axis.arg.size
    return None if strides or first else monoid.in_order


def operands_of(node: Node) -> Axes:
    """The operands of `node` but for the axes that it binds."""
    return node.src[: len(node.src) - len(bound_axes(node))]


def scans_along(kernel: Kernel) -> set[Node]:
    """The axes along which every scan of the kernel runs, if lanes may share its steps; none if
    scans run along several, or are of bool, whose vectors are masks, or if the steps of a store
    wait for one another as well."""
    scans = kernel.of(Op.LOOP_SCAN)
    along = {frozenset(bound_axes(scan)) for scan in scans}
    of_bool = any(operand.dtype is bool_ for scan in scans for operand in operands_of(scan))
    if len(along) != 1 or of_bool or _serial_columns(kernel):
        return set()
    return set(*along)


def serial_axes(kernel: Kernel) -> frozenset[Node]:
    """Axes whose iterations must run one after another: those of a LOOP_SCAN, and columns of a
    store along which several iterations may write one element.

    If the index of the store is a sum of axes, as ``8 * a0 + a1``, these are the columns that are
    not in it: a2, if the store has that too. If the index has a term that data say, as that of a
    scatter has, these are all columns.
    """
    of_scans = {axis for node in kernel.of(Op.LOOP_SCAN) for axis in bound_axes(node)}
    return frozenset(of_scans) | _serial_columns(kernel)


def _serial_columns(kernel: Kernel) -> frozenset[Node]:
    """Columns of a store along which several iterations may write one element, each after the one
    before: operations of memory, of an `atomic` store, run in any order."""
    serial = set[Node]()
    for store in kernel.stores:
        if store.atomic:
            continue
        columns = set(store.axes[kernel.rows :])
        terms, _ = ix.terms_of(store.index)
        is_sum_of_axes = all(term.op is Op.AXIS for term in terms)
        serial |= columns - terms.keys() if is_sum_of_axes else columns
    return frozenset(serial)


@dataclass(frozen=True)
class ScatterPlace:
    """Where along one axis a scatter puts its updates: at element ``stride * index`` of an array,
    beside what the row axes and a constant add."""

    index: Node
    stride: int


def scatter_places(kernel: Kernel) -> list[ScatterPlace]:
    """The places of the kernel's only store that data say: load of i, 4 elements apart, for
    ``y[4 * i[a0] + a1] += x`` with the row axis a1. Empty if the store does not combine, or if
    there are several.

    An update's own axes are a part of its place: i + a0 for ``y[i[a1] + a0] += x`` with the columns
    a0 and a1, of which pairs have places in common.
    """
    store = kernel.stores[0]
    if store.monoid is None or len(kernel.stores) > 1:
        return []
    strides, _ = ix.terms_of(store.index)
    said = {term: stride for term, stride in strides.items() if term.op is not Op.AXIS}
    columns = {axis: strides[axis] for axis in store.axes[kernel.rows :] if axis in strides}
    if not (said and columns):
        return [ScatterPlace(term, stride) for term, stride in said.items()]
    together = {**said, **columns}
    apart = gcd(*together.values())
    index = ix.affine({term: stride // apart for term, stride in together.items()}, 0)
    return [ScatterPlace(index, apart)]


def has_atomics(kernel: Kernel) -> bool:
    """Is the kernel a scatter that combines integers of 32 or 64 bits by an operation whose result
    is the same in any order, and that is one atomic instruction?"""
    store = kernel.stores[0]
    is_integer = store.value.dtype in (int32, int64)
    return is_integer and store.monoid in (ADD, MAX, MIN) and bool(scatter_places(kernel))


def sends_updates(kernel: Kernel) -> bool:
    """Is the kernel a scatter that adds floats of 32 or 64 bits, each place by one thread in order?
    A target whose memory adds them need not wait for the old value."""
    store = kernel.stores[0]
    is_sum = store.monoid is ADD and store.value.dtype in (float32, float64)
    return is_sum and not store.atomic and bool(scatter_places(kernel))


def is_of_constants(kernel: Kernel, value: Node) -> bool:
    """Is `value` made of loads of constants alone, element by element, so that it may be kept from
    call to call? ``w[i] * s[i]`` is, unless s is another input; a sum over w is not."""
    beneath = toposort([value])
    loads = [node for node in beneath if node.op is Op.LOAD]
    is_constant = all(kernel.parameters[load.arg.parameter].constant for load in loads)
    has_loops = any(bound_axes(node) for node in beneath)
    return bool(loads) and is_constant and not has_loops


def is_far(array: Parameter) -> bool:
    """Does memory alone hold `array` when a kernel of a CPU begins? It is too large for caches, or
    has constants, as those of other kernels have come after them."""
    return array.nbytes >= UNCACHED or array.constant


def bypasses_caches(kernel: Kernel, parameter: int) -> bool:
    """May vectors that are stored in the array of `parameter` go past the caches of a CPU? One
    store must write it, of too many elements to be in a cache when another kernel reads them; this
    kernel neither reads nor adds to them. In a group that runs by blocks of rows the next kernel
    reads each block at once."""
    stores = [store for store in kernel.stores if store.parameter == parameter]
    if kernel.blocks or len(stores) != 1 or stores[0].monoid is not None:
        return False
    if any(load.arg.parameter == parameter for load in kernel.of(Op.LOAD)):
        return False
    (store,) = stores
    itemsize = kernel.parameters[parameter].dtype.itemsize
    if not _begins_lines(store, itemsize):
        return False
    stored_bytes = points(store.axes) * itemsize
    return stored_bytes >= (UNCACHED_TRANSPOSE if is_transposed(kernel, store) else UNCACHED_STORES)


def _begins_lines(store: Store, itemsize: int) -> bool:
    """Does a cache line begin at every element of `store` at which a vector does, or in long rows
    at every other one? Rows of 1576 elements of 4 bytes, 98.5 lines, are as good as that on a
    Sapphire Rapids, rows of 643 are not: one of 16 begins with a line. Two rows of 200 are 25
    lines, of which they share one, which was written in two halves: they took a Zen 4 twice as long
    as through the caches."""
    strides, _ = ix.terms_of(store.index)
    steps = [abs(stride) * itemsize for stride in strides.values() if stride != 1]
    uneven = [step for step in steps if step % LINE]
    return all(step % (LINE // 2) == 0 and step >= LONG_ROW for step in uneven)


def is_minor(value: Node, axis: Node) -> bool:
    """Are neighbours along `axis` neighbours in the memory that `value` comes from?"""
    return any(ix.terms_of(load.src[0])[0].get(axis) == 1 for load in loads_beneath([value]))


def near_reads(stride: int | None, dtype: DType, lanes: int) -> int:
    """The vectors of neighbours that are read on a CPU for one whose lanes are a `stride` apart: of
    float32 3 for a stride of 3. 0 where lanes are read one by one."""
    nbytes = lanes * dtype.itemsize
    is_register = lanes >= 4 and dtype.itemsize in (4, 8) and nbytes <= LINE
    return NEAR_STRIDES.get(stride or 0, 0) if is_register else 0


def least_run(lanes: int, dtype: DType) -> int:
    """The fewest neighbours in a row of squares that registers transpose before they are stored, of
    vectors with so many lanes, which lie apart: one for each lane, or half as many of float32 and
    float64 with 64 bytes a vector, as processors store some lanes of these under a mask. The CPU
    heuristics have such vectors with AVX-512 alone (`CpuPlanner`); float64 has 4 lanes with AVX2.
    14 vectors are then 64 shuffles and 16 stores, and lane by lane 224 stores and as many
    instructions to get each element out of its vector."""
    stores_parts = dtype in (float32, float64) and lanes * dtype.itemsize == LINE
    return lanes // 2 if stores_parts else lanes


def is_transposed(kernel: Kernel, store: Store) -> bool:
    """Does a kernel without reductions read neighbours of a large array along one axis, and `store`
    neighbours along another? ``y[64 * i + j] = x[96 * j + i]`` reads along i, and stores along j.
    An array that is read again and again, of less than half of the results' elements, stays in
    caches: products of (24, 52, 32) by (24, 32, 32) to (24, 32, 52, 32) took a Zen 4 189 us past
    the caches, and 55 through them."""
    if kernel.of(Op.LOOP_REDUCE) or kernel.of(Op.LOOP_SCAN):
        return False
    strides_of_store, _ = ix.terms_of(store.index)
    stored_along = [axis for axis, stride in strides_of_store.items() if stride == 1]
    for load in kernel.of(Op.LOAD):
        if 2 * kernel.parameters[load.arg.parameter].size < points(store.axes):
            continue
        strides, _ = ix.terms_of(load.src[0])
        is_read_across = any(strides.get(axis, 0) > 1 for axis in stored_along)
        is_read_along_another = any(
            stride == 1 and axis not in stored_along for axis, stride in strides.items()
        )
        if is_read_across and is_read_along_another:
            return True
    return False


def can_accumulate(kernel: Kernel) -> bool:
    """Is the kernel one plain reduction, stored where memory can add up parts of it?

    - It has one store, whose value is the reduction itself. Its monoid is one operation, as ADD and
      MAX are, by which a store combines a part with those before it; ARGMAX is none.
    - It stores every element, and combines it with nothing yet.
    - It does not read the array that it stores: there would be parts of results.
    - Its dtype is no float of fewer than 32 bits (`is_small`): memory would round each part.
    - No other reduction or scan runs over an axis of it: a part of the sum of
      ``x[r1] - (max over r1 of x[r1])`` needs the maximum of all parts.
    """
    if len(kernel.stores) > 1:
        return False
    store = kernel.stores[0]
    reduction = store.value
    if reduction.op is not Op.LOOP_REDUCE or reduction.arg.monoid.op is None:
        return False
    stores_every_element = store.condition is ix.TRUE and store.monoid is None
    reads_result = any(load.arg.parameter == store.parameter for load in kernel.of(Op.LOAD))
    if reads_result or not stores_every_element or reduction.dtype.is_small:
        return False
    others = [node for node in kernel.nodes if node is not reduction]
    return all(set(bound_axes(node)).isdisjoint(bound_axes(reduction)) for node in others)


def dot_axes(kernel: Kernel) -> list[Node]:
    """The axes of four steps along which one instruction may add up four int32 products of 8-bit
    integers: each reduction or scan that runs over such an axis `_is_dot` along it."""
    reduced: dict[Node, None] = {}  # all axes of reductions and scans, in order
    others: set[Node] = set()
    for node in kernel.nodes:
        for axis in bound_axes(node):
            reduced[axis] = None
            is_innermost = axis is node.src[-1]  # axes are the last operands, outermost first
            if not (is_innermost and _is_dot(kernel, node)):
                others.add(axis)
    return [axis for axis in reduced if axis not in others]


def _is_dot(kernel: Kernel, node: Node) -> bool:
    """Is `node` a reduction that `sums_bytes` along its innermost axis, and has that 4 steps?"""
    return node.op is Op.LOOP_REDUCE and node.src[-1].arg.size == 4 and sums_bytes(kernel, node)


def sums_bytes(kernel: Kernel, reduction: Node) -> bool:
    """Does `reduction` add up int32 products of two 8-bit integers, and do both vary along its
    innermost axis? ``sum over r2 of int32(x[4 * a0 + r2]) * int32(w[r2])`` does.

    The axis must be no column of a store, as r1 is in ``y[a0, r1] = x[a0, r1] - sum over r1 of
    ...``: there each element is computed by itself."""
    product, innermost = product_of(reduction), reduction.src[-1]
    if product is None or any(innermost in store.axes for store in kernel.stores):
        return False
    return all(_varies_as_int8(factor, innermost) for factor in product.src)


def _varies_as_int8(factor: Node, axis: Node) -> bool:
    """Is `factor` an 8-bit integer cast to int32 that depends on `axis`?"""
    if factor.op is not Op.CAST or axis not in free_axes(factor):
        return False
    return factor.dtype is int32 and factor.src[0].dtype in (int8, uint8)

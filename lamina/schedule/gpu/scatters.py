"""How a GPU adds the updates of a scatter: in their order, in memory of blocks, along another axis,
as sums of integers in any order, as a sum by bins, as a reduction for each result, as sums of
runs, or as reductions of windows.

In their order every thread goes through all updates of its rows, and adds those that it owns; the
time grows with the number of updates, which wait one after the other, or many at a time where
memory adds them (`sent_scatters.py`). In memory of blocks (`private_scatters.py`) the threads of a
block add to its places all at once, and each block goes through all updates of its rows; where one
has room for few columns, copies with the axis last are read as whole sectors
(`lamina/graph/turned_scatters.py`). Sums of integers are several kernels, and move 24 bytes more
for each result. A sum by bins brings the updates of some places together, so that a block adds them
in memory of its own (`lamina/graph/binned_scatters.py`): 1.5 million at as many random places took
an H200 36 us, and 74 as integers. A reduction goes through all updates of a
row for each of its results, and waits for nothing: it is for rows of few results. Sums of runs sort
the updates by their places first, which takes some 30 kernels, and then read each once: they are
for updates with many columns that share their places. Windows are for indices that are known when a
program is compiled: each result reads its own updates.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf, prod

from lamina.core.dtypes import float32, float64, int32, int64
from lamina.core.rates import GPUS, RATED_GPU
from lamina.core.target import CUDA, Target
from lamina.graph.binned_scatters import scatter_by_bins
from lamina.graph.exact_scatters import (
    MIN_BITS,
    Scale,
    scale_of,
    scatter_of_integers,
    update_bits,
)
from lamina.graph.rewrite import Rule
from lamina.graph.scatter_runs import key_type, own_index, part_of, scatter_of_runs
from lamina.graph.scatter_sums import scatter_of_sums
from lamina.graph.scatter_windows import scatter_of_windows, windows_of
from lamina.graph.turned_scatters import scatter_along_last_axis
from lamina.ir.monoids import ADD, MAX, MIN
from lamina.ir.node import Node, peel
from lamina.ir.ops import Group, Op
from lamina.schedule.cost.bins import bin_seconds, bins_of
from lamina.schedule.gpu.private_scatters import WIDTHS, BlocksOfScatter, blocks_of_row
from lamina.schedule.gpu.sent_scatters import UPDATES_SENT

RATES = GPUS[RATED_GPU]
LANES = 32  # that ask for an update each, where all have an index in common (EACH_HIT)
MIN_COLUMNS = 4 * LANES  # results side by side from which on they have, 4 of each lane
# Kernels of sums of integers that a scatter in order has not, of 2 us each: the fill of both
# arrays, the exponents, the result. Bytes of a result: int32 and int64, written and read once.
MORE_KERNELS = 6e-6
RESULT_BYTES, BYTES_A_SECOND = 24, 4e12
# Seconds of an update in order where all threads have some: 66,857,952 of them, 14 for each row of
# 7 results, took an H200 540 us.
IN_ORDER = 8e-12
# Bytes a second of copies with their axes in another order: (14847, 433) elements of float32, read
# and written once, took an H200 22 us.
TURNED_A_SECOND = 2.4e12
# Instructions of a reduction for a result and an update, about: reads of the update and of its
# index, a comparison, a choice, the sum. 234 million pairs took an H200 119 us, which are 14; those
# of four sums that share their updates are 10.
OF_PAIR = 12
# Sums of runs. Kernels beside those of the sort, which has three for each byte of a key, of 2 us
# each; seconds of a sort for each byte of a key: 8,653,860 keys of 2 bytes took an H200 267 us;
# bytes that are moved for each key beside that: its place, the order, and where runs begin.
# Instructions for each update that a reduction reads, or finds to be none.
RUN_KERNELS, KERNEL_SECONDS = 25, 2e-6
OF_KEY_BYTE, KEY_BYTES = 1.5e-11, 40
OF_SLOT = 6
# How much longer than estimated a sum by bins may take, where other ways may take less: the updates
# of one place are added by one block. With 30 % of 1,487,554 updates at one place they took an H200
# 457 us by bins, and 294 as integers; at random places 36 and 74. In memory of blocks (128, 8192)
# took 13 us, estimated 21, and 27 by bins, estimated 29.
BINS_MARGIN = 1.25
# The same with several bins for each multiprocessor, which are estimated 1.1 times too short: (2,
# 4108120) 244 us and measured 275. What is added in memory of blocks is estimated 1.3 to 1.4 times
# too long: (128, 65536) 300 us and measured 213 to 231.
SEVERAL_BINS_MARGIN = 1.5


def scatters(target: Target) -> Rule:
    """The rule for a GPU: a scatter in the way that takes least time by the estimate."""

    def apply(node: Node) -> Node | None:
        """`_in_another_way` on this GPU."""
        return _in_another_way(node, target)

    return Rule("scatters", (Op.SCATTER,), apply)


def _in_another_way(node: Node, target: Target) -> Node | None:
    """A scatter in the way that takes least time; None where that is the scatter itself."""
    ways: list[tuple[float, Callable[[Node], Node | None]]] = [
        (_staying(node, target), lambda scatter: scatter),
        (_turned(node, target), scatter_along_last_axis),
        (_in_any_order(node), scatter_of_integers),
        (
            _margin_of_bins(node, target) * _in_bins(node, target),
            lambda scatter: scatter_by_bins(scatter, _bins(node, target)),
        ),
        (_reducing(node), scatter_of_sums),
        (_in_runs(node), scatter_of_runs),
        (_in_windows(node), scatter_of_windows),
    ]
    for _, way in sorted(ways, key=lambda way: way[0]):
        new = way(node)
        if new is not None:
            return None if new is node else new
    return None


def _staying(node: Node, target: Target) -> float:
    """Seconds of a scatter as it is."""
    if _combines_integers(node):
        return min(_adding(node), _in_blocks(node, target))
    return _moving_results(node) + min(_in_order(node, target), _in_blocks(node, target))


def _combines_integers(node: Node) -> bool:
    """Whether a scatter combines integers, in any order: see `has_atomics` of loops/nest.py."""
    return node.dtype in (int32, int64) and node.arg.monoid in (ADD, MAX, MIN)


def _moving_results(node: Node) -> float:
    """Seconds of the kernel that writes what is added to, and of the one that reads the results.
    Reductions are computed where they are read: they write the results alone."""
    return 2 * (node.nbytes / BYTES_A_SECOND + KERNEL_SECONDS)


def _in_order(node: Node, target: Target) -> float:
    """Seconds of the updates in their order: one after the other, or many at a time, and of all
    threads together."""
    _, index, updates = node.src
    count: float = updates.shape[node.arg.axis]
    # Data seldom have all places equally often: of words, the most frequent one is 1 in 20 to 30.
    # 16,384 of them, 768 columns at 50,304 places, took an H200 0.6 ms.
    hits = max(_hits(node), count / LANES)
    steps = count / LANES + hits if _have_one_index(index) else count
    seconds = steps * RATES.update
    if target.adds_atomically and node.arg.monoid is ADD and node.dtype in (float32, float64):
        seconds = min(seconds, ceil(count / UPDATES_SENT) * RATES.access)
    of_update = IN_ORDER if _has_places_beside(node) else RATES.apart
    return max(seconds, prod(updates.shape) * of_update)


def _has_places_beside(node: Node) -> bool:
    """Whether neighbouring threads of a scatter in order add in one sector of memory: results of
    neighbours lie side by side, with one index, or in rows that are shorter than a sector."""
    row = prod(node.shape[node.arg.axis :]) * node.dtype.itemsize
    return _is_repeated_along_last(node.src[1]) or row <= RATES.line


def _in_blocks(node: Node, target: Target) -> float:
    """Seconds of integers, or of sums of float32, in memory of blocks, `private_scatters`; infinity
    of any other scatter, and where rows have too many places."""
    scattering = _Scattering.of(node)
    return scattering.in_blocks(target) if scattering else inf


def _turned(node: Node, target: Target) -> float:
    """The same along the last axis, with copies in another order: of the index, of the updates, of
    what is added to, and of the results."""
    scattering = _Scattering.of(node)
    if scattering is None or scattering.columns == 1:
        return inf
    keys = key_type(scattering.places).itemsize
    _, index, updates = node.src
    copying = 2 * (_once(updates) * scattering.update_bytes + 2 * node.nbytes)
    copying += _once(index) * (index.dtype.itemsize + keys)
    seconds = copying / TURNED_A_SECOND + 4 * KERNEL_SECONDS
    return scattering.turned(keys).in_blocks(target) + seconds


@dataclass(frozen=True)
class _Scattering:
    """A scatter of integers, or of float32 that is added by integers of `scale`.

    rows: of the axes before the one that is scattered along, and `columns` of those behind it.
    count: updates of a place at most. itemsize: of a result in memory of the device. index_bytes,
    update_bytes: of an index and of an update there
    """

    rows: int
    columns: int
    places: int
    count: int
    scale: Scale | None
    itemsize: int
    index_bytes: int
    update_bytes: int

    @classmethod
    def of(cls, node: Node) -> "_Scattering | None":
        """That of a node; None of any other scatter."""
        _, index, updates = node.src
        axis: int = node.arg.axis
        count: int = updates.shape[axis]
        is_sum = node.arg.monoid is ADD and node.dtype is float32
        scale = scale_of(updates, count) if is_sum else None
        if not prod(updates.shape) or (scale is None and not _combines_integers(node)):
            return None
        rows, columns = prod(node.shape[:axis]), prod(node.shape[axis + 1 :])
        nbytes = _bytes_in_memory(index), _bytes_in_memory(updates)
        itemsize = node.dtype.itemsize
        return cls(rows, columns, node.shape[axis], count, scale, itemsize, *nbytes)

    def turned(self, index_bytes: int) -> "_Scattering":
        """With all columns as rows."""
        rows = self.rows * self.columns
        return replace(self, rows=rows, columns=1, index_bytes=index_bytes)

    def in_blocks(self, target: Target) -> float:
        """Seconds in memory of blocks, with the best number of columns side by side; infinity where
        no blocks have enough."""
        if not target.adds_atomically:
            return inf
        widths = [width for width in WIDTHS if width <= self.columns]
        return min(self._with_columns(width, target) for width in widths)

    def _with_columns(self, width: int, target: Target) -> float:
        """Seconds with so many columns of a block; infinity where no blocks have enough memory."""
        itemsize = self.scale.itemsize if self.scale else self.itemsize
        of_row = blocks_of_row(self.places, width, itemsize, target)
        if not of_row:
            return inf
        results = ceil(self.places / of_row) * width
        passes = self.scale.passes if self.scale else 1
        blocks = BlocksOfScatter(
            rows=self.rows * ceil(self.columns / width),
            blocks=of_row,
            results=results,
            nbytes=self.scale.nbytes(results) if self.scale else self.itemsize * results,
            updates=self.count * width,
            passes=passes,
            array=self.rows * self.columns * self.places * self.itemsize,
            run=self.itemsize * (width if self.columns > 1 else results),
        )
        # Sectors of an index and of an update: of 4 columns half of a sector of float32 is used.
        run = width if self.columns > 1 else RATES.line
        sectors = sum(max(each, RATES.line / run) for each in (self.index_bytes, self.update_bytes))
        nbytes = self.rows * self.columns * self.count * sectors
        once = nbytes / BYTES_A_SECOND + nbytes * (of_row - 1) / RATES.levels[1].all_read
        return passes * once + sum(blocks.demands(target, RATES).values())


def _bytes_in_memory(node: Node) -> int:
    """The bytes of an element beneath casts and movement."""
    return peel(node, Group.MOVEMENT | {Op.CAST, Op.CONTIGUOUS}).dtype.itemsize


def _once(node: Node) -> int:
    """Elements, those that repeat counted once."""
    return prod(own_index(node).shape)


def _reducing(node: Node) -> float:
    """Seconds of a reduction for each result: all pairs of a result and an update of its row, and
    to read and write all results."""
    pairs = prod(node.shape) * node.src[-1].shape[node.arg.axis]
    return _computing(pairs * OF_PAIR) + 2 * node.nbytes / BYTES_A_SECOND


def _computing(instructions: float) -> float:
    """Seconds of so many instructions of threads."""
    return instructions / LANES / (RATES.issue * CUDA[RATED_GPU].multiprocessors)


def _hits(node: Node) -> float:
    """Updates of one place, with all places as likely."""
    axis: int = node.arg.axis
    return node.src[-1].shape[axis] / max(node.shape[axis], 1)


def _have_one_index(index: Node) -> bool:
    """Whether neighbouring results have one index, so that lanes of a warp ask for many at once."""
    return index.shape[-1] % MIN_COLUMNS == 0 and _is_repeated_along_last(index)


def _is_repeated_along_last(index: Node) -> bool:
    """Whether an index is the same for neighbours along the last axis."""
    return index.op is Op.EXPAND and index.src[0].shape[-1:] in ((), (1,))


def _in_any_order(node: Node) -> float:
    """Seconds that sums of integers take more than a scatter with no updates."""
    moving = prod(node.shape) * RESULT_BYTES / BYTES_A_SECOND
    return MORE_KERNELS + moving + 2 * _adding(node) + _beyond_cache(node)


def _bins(node: Node, target: Target) -> int:
    """How many bins the places of a scatter have; 0 where these are too many."""
    return bins_of(prod(node.shape), prod(node.src[-1].shape), target)


def _margin_of_bins(node: Node, target: Target) -> float:
    """How much longer than estimated a sum by bins may take."""
    has_several = _bins(node, target) > target.multiprocessors
    return SEVERAL_BINS_MARGIN if has_several else BINS_MARGIN


def _in_bins(node: Node, target: Target) -> float:
    """Seconds of a sum of float32 by bins, with the kernel that writes the place of each update,
    and those of what is in memory otherwise as another dtype; infinity of any other scatter."""
    base, index, updates = node.src
    count = prod(updates.shape)
    is_sum = node.arg.monoid is ADD and node.dtype is float32
    bits = update_bits(count)
    if not (is_sum and count and target.adds_atomically and bits >= MIN_BITS):
        return inf
    bins = _bins(node, target)
    if not bins:
        return inf
    placing = (_once(index) * _bytes_in_memory(index) + 4 * count) / BYTES_A_SECOND
    seconds = KERNEL_SECONDS + placing + sum(bin_seconds(prod(node.shape), count, bins, RATES))
    return seconds + sum(map(_writing, (base, updates)))


def _writing(node: Node) -> float:
    """Seconds of a kernel that writes what is not in memory as it is: also of a copy of an array
    with its axes in another order, or with padding."""
    if peel(node, {Op.RESHAPE, Op.CONTIGUOUS}).op is Op.BUFFER:
        return 0.0
    return KERNEL_SECONDS + 2 * node.nbytes / BYTES_A_SECOND


def _in_runs(node: Node) -> float:
    """Seconds of sums of runs: to sort the places, to say which updates are whose, to read these,
    and to write all results."""
    base, index, updates = node.src
    axis: int = node.arg.axis
    count, places = updates.shape[axis], base.shape[axis]
    keys, columns = own_index(index).shape, prod(updates.shape) // max(count, 1)
    sorting = _sorting(prod(keys), key_type(places).itemsize)
    slots = (places * part_of(count, places) + count) * columns
    moving = (updates.nbytes + 2 * base.nbytes) / BYTES_A_SECOND
    return RUN_KERNELS * KERNEL_SECONDS + sorting + _computing(slots * OF_SLOT) + moving


def _sorting(keys: int, key_bytes: int) -> float:
    """Seconds of a sort of so many keys, of so many bytes each, and of what is moved for them."""
    of_key = key_bytes * OF_KEY_BYTE + KEY_BYTES / BYTES_A_SECOND
    return 3 * key_bytes * KERNEL_SECONDS + keys * of_key


def _in_windows(node: Node) -> float:
    """Seconds of reductions of windows: to sort an index that does not ascend, to find where they
    start, to read as many updates for each result as the longest has, and to write all results;
    infinity where there are none."""
    windows = windows_of(node)
    if windows is None:
        return inf
    sorting = 0.0
    if windows.order is not None:
        sorting = _sorting(prod(windows.index.shape), int32.itemsize)
    computing = _computing(prod(node.shape) * windows.longest * OF_SLOT)
    moving = (node.src[-1].nbytes + 2 * node.nbytes) / BYTES_A_SECOND
    return KERNEL_SECONDS + sorting + computing + moving


def _adding(node: Node) -> float:
    """Seconds of the updates as atomic operations."""
    updates = prod(node.src[-1].shape)
    return max(updates * RATES.atomic, _hits(node) * RATES.same_place)


def _beyond_cache(node: Node) -> float:
    """Seconds in which sums of int64 that no cache holds come from memory and go back, a sector for
    each update: 148 us for 8,216,240 updates of as many places. An H200 took 426 us for these, and
    174 for maxima of int32, which its cache holds."""
    memory, cache = RATES.levels[-1], RATES.levels[-2]
    if prod(node.shape) * int64.itemsize <= cache.size:
        return 0.0
    sectors = 2 * prod(node.src[-1].shape)
    return sectors * RATES.line / (memory.scattered * CUDA[RATED_GPU].multiprocessors)

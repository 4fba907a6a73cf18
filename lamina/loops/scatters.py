"""The moves of scatters, which combine what is in memory at places that data say.

In a kernel as it is at first, each row goes through its updates in their order. `Partition` lets
several threads do so. Where the order makes no difference, as that of integers does not, `Atomic`
lets every update be a row, and `Privatize` lets the threads of a block share the updates of some
places, which memory of that block holds meanwhile. `Speculate` reads updates before the place of
each is known.
"""

from dataclasses import dataclass, replace

from lamina.core.dtypes import float32, int64
from lamina.graph import index as ix
from lamina.graph.exact_scatters import Scale, scale_of
from lamina.ir.kernel import Kernel, Store, bounds, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import substitute
from lamina.loops.moves import Move
from lamina.loops.nest import Nest, PrivateResults, has_atomics, scatter_places


@dataclass(frozen=True)
class Partition(Move):
    """Partition a scatter that adds by owner, so that it runs in parallel: every place belongs to
    one of `workers`, a power of two, along the new row axis `into`. All of them look at every
    update, and each adds those to its own places, in the order of the updates.

    ``partition(4) -> a1``::

        for a0 in 90: y[i[a0]] += x[a0]    ->    for a1 in 4: for a0 in 90:
                                                     if (i[a0] & 3) == a1: y[i[a0]] += x[a0]

    The owner is given by the last bits of the place: worker 2 of 4 owns 2, 6, 10, and so on.
    """

    workers: int
    into: int
    text = "partition({workers:d}) -> a{into}"

    def apply(self, nest: Nest) -> Nest:
        store = nest.kernel.stores[0]
        value = store.value
        places = scatter_places(nest.kernel)
        self.require(nest.private is None, "blocks share the updates already")
        self.require(len(places) == 1, "no store adds at one index that data say")
        is_power_of_two = self.workers.bit_count() == 1 and self.workers > 0
        self.require(is_power_of_two, f"{self.workers} workers are no power of two")
        numbers = {axis.arg.number for axis in nest.order}
        self.require(self.into not in numbers, "the new axes are new")
        worker = ix.axis(self.into, self.workers)
        last_bits = Node(Op.AND, (places[0].index, const(self.workers - 1, int64)))
        is_owner = Node(Op.EQ, (last_bits, worker))
        if value.op is Op.LOAD:  # only the owner reads the update
            source, *conditions = value.src
            value = Node(Op.LOAD, (source, ix.both(*conditions, is_owner)), value.arg)
        condition = ix.both(store.condition, is_owner)
        owned = replace(store, value=value, axes=(worker, *store.axes), condition=condition)
        kernel = replace(nest.kernel, stores=(owned,), rows=nest.kernel.rows + 1)
        return replace(nest, kernel=kernel, order=(worker, *nest.order))


@dataclass(frozen=True)
class Atomic(Move):
    """Let the first column of a scatter of integers be a row: updates along it run in any order.

    Each is an atomic operation, of which CUDA has sums, maxima and minima of integers. Those are
    the same in any order, as sums of floats are not.

    ``atomic(a0)``::

        for a0 in 90: y[i[a0]] += x[a0]    ->    for a0 in any order: atomic_sum(&y[i[a0]], x[a0])
    """

    column: int
    text = "atomic(a{column})"

    def apply(self, nest: Nest) -> Nest:
        column, kernel = nest.axis(self.column), nest.kernel
        self.require(has_atomics(kernel), "no store adds integers where data say")
        self.require(nest.private is None, "blocks share the updates already")
        is_first = kernel.stores[0].axes[kernel.rows :][:1] == (column,)
        self.require(is_first, f"a{self.column} is not the first column")
        row = ix.axis(self.column, column.arg.size)  # rows are no axes of reductions
        nest = self.reindexed(nest, {column: row}, (row,))
        stores = (replace(nest.kernel.stores[0], atomic=True),)
        return replace(nest, kernel=replace(nest.kernel, stores=stores, rows=kernel.rows + 1))


@dataclass(frozen=True)
class Privatize(Move):
    """Let the results of a scatter be in memory that the threads of a block share, as
    many `places` of them at a time, while the updates along the columns run in any order. The new
    row axis `into` numbers the blocks that have the places of a row; each goes through all updates,
    and takes those to its own places.

    ``privatize(25) -> a1``, of 90 places::

        for a0 in 70: y[i[a0]] += x[a0]    ->    for a1 in 4:
                                                     z[0:25] = 0
                                                     for a0 in 70, in any order:
                                                         if 0 <= i[a0] - 25 * a1 < 25:
                                                             atomic_sum(&z[i[a0] - 25 * a1], x[a0])
                                                     y[25 * a1:25 * a1 + 25] += z

    The last of the 4 blocks has 15 of the 90 places. An update is rated at a twentieth of the time
    of one in the memory of the device. Float32 is added as `lamina/graph/exact_scatters.py` says:
    the threads go through the updates twice, for the largest exponent of each place, and for sums
    of integers; once where one exponent serves all places.
    """

    places: int
    into: int
    text = "privatize({places:d}) -> a{into}"

    def apply(self, nest: Nest) -> Nest:
        kernel = nest.kernel
        store = kernel.stores[0]
        scale = scale_of_updates(kernel)
        adds = has_atomics(kernel) or scale is not None
        self.require(adds, "no store adds integers or float32 where data say")
        self.require(not store.atomic, "its updates are rows already")
        self.require(self.places > 0, "a block has a place at least")
        numbers = {axis.arg.number for axis in nest.order}
        self.require(self.into not in numbers, "the new axes are new")
        place = scatter_places(kernel)[0].index
        extent = places_of(kernel)
        self.require(extent > 0, "nothing says how many places there are")
        blocks = -(-extent // self.places)  # rounded up
        block = ix.axis(self.into, blocks)
        local = ix.add(place, ix.scale(block, -self.places)) if blocks > 1 else place
        is_own = ix.inside(local, self.places)
        # A place of a block is one of the places of all blocks.
        implied = set(ix.conjuncts(ix.inside(place, blocks * self.places)))
        others = [part for part in ix.conjuncts(store.condition) if part not in implied]
        owned = ix.both(*others, is_own)
        value = _read_at_once(store, kernel)
        (value,) = substitute((value,), {store.condition: owned})
        axes = (block, *store.axes)
        private = PrivateResults(self.places, extent, self.into, scale)
        of_block = replace(store, value=value, axes=axes, condition=owned, atomic=True)
        kernel = replace(kernel, stores=(of_block,), rows=kernel.rows + 1)
        return replace(nest, kernel=kernel, order=(block, *nest.order), private=private)


@dataclass(frozen=True)
class Speculate(Move):
    """Let a scatter read its updates, of which `column` is a loop, without the conditions under
    which it adds them, where that reads nothing beyond an array: the reads wait for no index.

    ``speculate(a0)``::

        for a0 in 90:                      ->    for a0 in 90:
            if 0 <= i[a0] < 25:                      x0 = x[a0]
                y[i[a0]] += x[a0]                    if 0 <= i[a0] < 25: y[i[a0]] += x0
    """

    column: int
    text = "speculate(a{column})"

    def apply(self, nest: Nest) -> Nest:
        column, kernel = nest.axis(self.column), nest.kernel
        self.require(bool(scatter_places(kernel)), "no store adds where data say")
        store = kernel.stores[0]
        is_column = column in store.axes[kernel.rows :]
        self.require(is_column, f"a{self.column} is no column")
        ahead = replace(store, value=_read_at_once(store, kernel))
        return replace(nest, kernel=replace(kernel, stores=(ahead,)))


def _read_at_once(store: Store, kernel: Kernel) -> Node:
    """What an update adds, with loads that wait for no index: without the conditions of the update
    where they are within their arrays anyway. Other conditions stay: where those of padding do not
    hold, a load is 0.

    Most sectors that a block reads have an update of its places: of 4 blocks of a row, 9 of 10.
    """
    of_update = set(ix.conjuncts(store.condition))
    loads: dict[Node, Node] = {}
    for node in toposort([store.value]):
        if node.op is not Op.LOAD or len(node.src) == 1:
            continue
        low, high = bounds(node.src[0])
        if low >= 0 and high < kernel.parameters[node.arg.parameter].size:
            others = [part for part in ix.conjuncts(node.src[1]) if part not in of_update]
            condition = (ix.both(*others),) if others else ()
            loads[node] = Node(Op.LOAD, (node.src[0], *condition), node.arg)
    (value,) = substitute((store.value,), loads)
    return value


def places_of(kernel: Kernel) -> int:
    """How many places a scatter by one index can choose from, by its condition or by its bounds; 0
    where neither says that, and of any other kernel."""
    places = scatter_places(kernel)
    if len(places) != 1:
        return 0
    index = places[0].index
    sizes = ix.extents(kernel.stores[0].condition) or {}
    low, high = bounds(index)
    if index not in sizes and low >= 0:  # the index says it by itself, as a remainder does
        return high + 1
    return sizes.get(index, 0)


def scale_of_updates(kernel: Kernel) -> Scale | None:
    """The integers by which a scatter that adds float32 does so; None of any other kernel, and
    where these would have too few bits."""
    store = kernel.stores[0]
    if store.monoid is not ADD or store.value.dtype is not float32 or not scatter_places(kernel):
        return None
    return scale_of(store.value, points(store.axes[kernel.rows :]))

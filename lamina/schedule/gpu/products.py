"""A move for sums of products whose factors lie, tile by tile, in memory that a block shares.

A tile lies in lines of 128 bytes, along its steps or, where that is how its factor lies in memory,
transposed: along its rows or columns. The 16-byte chunks of a line are permuted by its number, so
that neither lines nor columns of chunks meet in one bank of shared memory. A tile with more than a
line of steps consists of panels of such lines, one behind the other. Tensor cores and the copy
engine of a GPU (TMA) know this layout as the swizzle of 128 bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from lamina.core.dtypes import SHORT, DType, bfloat16, float16, float32
from lamina.core.shape import Shape
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Store, bound_axes, free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.moves import Move
from lamina.loops.nest import Axes, Nest
from lamina.schedule.gpu.attention import (
    MAX_ROW_ELEMENTS,
    MIN_SIDE,
    BackToBack,
    Factor,
    back_to_back,
    factors_of,
    stores_elements,
)
from lamina.schedule.planner import store_score

LINE_BYTES = 128  # of a tile: the width of a swizzle atom, and all banks of shared memory once
# Lines of all tiles of the multistage buffer, 192 KiB of the 227 KiB of a block of an H100; the
# other ones are for results on their way to memory. A block of a GPU with less has fewer stages.
BUFFER_LINES = 1536
# How long it takes to write, or to read, the partial sums of a tile: as long as so many of its
# steps at full rate. An estimate: the mean of 5 to write and 3 to read, by which `products.cu`
# shortens parts (`share_tiles` of tensor cores). No measurement of these is kept.
PARTIAL_SUMS_STEPS = 4
# How long it takes to wait for another block and to find its sums, in the unit of `StreamK.time`:
# as long as 4 steps of a tile of 128 rows and 256 columns. An estimate as well. It keeps products
# of few steps whole: 60 such tiles are divided among 120 blocks from 16 steps on, not from 8.
JOIN_COST = 1 << 17
MAX_TILE_RESULTS = 128 * 256  # results of the largest tile
# Rows of the largest block of a product: a block of more has no threads that fill tiles, and its
# barriers would wait for these. Products back to back have blocks of so many rows or twice as many:
# for them it is the smallest number, two groups of warps with 64 rows each, which read one tile.
MAX_PRODUCT_ROWS = 128
# Tiles from which float32 without tensor cores is worth the fill of shared memory; loops of threads
# take products of fewer. Fewer tiles are worth it if they have MIN_FMA_TILES**2 = 576 steps in all,
# which several blocks then share. Chosen: no measurement of either is kept.
MIN_FMA_TILES = 24
# Rows of tiles that blocks compute side by side, so that they find each other's operands in the
# second-level cache: 132 blocks in 8 rows read 8 + 17 tiles a step, in one row 1 + 132. 11 rows
# would read the fewest, 11 + 12; but a band is one only where it divides the number of tiles.
BAND = 8


@dataclass(frozen=True)
class Atom:
    """What the threads of a block multiply at once: `m` rows by `n` columns over a line of steps,
    64 rows by 128 threads, which hold the sums in float32.

    Rows and columns are each split into sub-loops, in one of two ways: the first for a tile whose
    lines run along its steps, the second for a transposed tile. All sub-loops, rows first, are
    numbered from 0.

    instruction     "mma" with tensor cores, "fma" without
    kind            of the factors: "bf16", "f16", "tf32" or "f32"
    dtype           of the factors
    stages          tiles of either factor that the multistage buffer has, if they fit
    rate            how fast a block multiplies, the largest tile on tensor cores being 1
    row_splits      extents of the sub-loops of rows, outermost first
    column_splits   the same of columns
    thread_loops    numbers of the sub-loops that number the threads, the fastest one last
    register_loops  numbers of the sub-loops that number the sums of a thread
    """

    instruction: str
    kind: str
    m: int
    n: int
    dtype: DType
    stages: int
    rate: float
    row_splits: tuple[Shape, Shape]
    column_splits: tuple[Shape, Shape]
    thread_loops: Shape
    register_loops: Shape

    @property
    def function(self) -> str:
        """The function that multiplies, of `products.cu`."""
        return f"{self.instruction}_{self.kind}"

    @property
    def name(self) -> str:
        """The name that `tensorize` takes, such as ``mma_bf16_128x256``."""
        return f"{self.function}_{self.m}x{self.n}"


# By rows and columns of a tile, the rate of its atom: a smaller tile reads more of memory for each
# multiplication. Estimates, which decide between atoms: a test predicts times of an H200 by them.
RATES = {(128, 256): 1.0, (128, 128): 0.9, (64, 128): 0.7, (128, 64): 0.6, (64, 64): 0.5}
# Of products back to back alone, whose atom no rate decides: any number will do.
ATTENTION_RATES = {(256, 64): 0.1}
# How much slower a step of float32 is without tensor cores than one of tf32 with them: about the
# quotient of the peaks of an H100, 495 and 67 TFLOP/s (NVIDIA's data sheet). All atoms without
# tensor cores share it, so it only weighs their steps against JOIN_COST, and is in `cost/`.
FMA_SLOWDOWN = 8


def _tensor_core_atom(kind: str, dtype: DType, m: int, n: int, rate: float) -> Atom:
    """Each of four warps has 16 of 64 rows. Lane 4 * i + j of a warp has rows i and i + 8, and of
    every 8 columns the neighbours 2 * j and 2 * j + 1."""
    rows = (m // 64, 4, 2, 8)  # groups of four warps, warps, rows i and i + 8, i
    columns = (n // 8, 4, 2)  # groups of 8 columns, j, neighbours
    stages = BUFFER_LINES // (m + n)
    return Atom(
        "mma", kind, m, n, dtype, stages, rate, (rows, rows), (columns, columns),
        thread_loops=(0, 1, 3, 5), register_loops=(4, 2, 6),
    )  # fmt: skip


def _fma_atom(m: int, n: int, rate: float) -> Atom:
    """A thread reads chunks of four rows, or four columns, at one step. In a transposed tile these
    are neighbours. In another one they are 8 lines apart, or 16 of columns, and threads transpose
    squares of four such lines by four steps first."""
    rows = (m // 64, 8, 2, 4, 1), (m // 64, 2, 2, 4, 4)
    columns = (n // 16, 2, 8, 1), (n // 64, 2, 8, 4)
    stages = BUFFER_LINES // (m + n)
    return Atom(
        "fma", "f32", m, n, float32, stages, rate / FMA_SLOWDOWN, rows, columns,
        thread_loops=(0, 2, 6, 3, 7), register_loops=(1, 4, 5, 8),
    )  # fmt: skip


def _atoms() -> Iterator[Atom]:
    """All atoms: with tensor cores each tile for each kind of factors, without them for float32, of
    one product alone."""
    for kind, dtype in (("bf16", bfloat16), ("f16", float16), ("tf32", float32)):
        for (m, n), rate in (RATES | ATTENTION_RATES).items():
            yield _tensor_core_atom(kind, dtype, m, n, rate)
    for (m, n), rate in RATES.items():
        yield _fma_atom(m, n, rate)


ATOMS = {atom.name: atom for atom in _atoms()}


@dataclass(frozen=True)
class _Side:
    """Axes that tiles walk as one, and how: in tiles of `tile` indices, each of which is split into
    sub-loops of the extents `split`. `band` rows of tiles run side by side if that divides their
    number."""

    axes: Axes
    tile: int
    split: Shape
    band: int = 1


@dataclass(frozen=True)
class _TiledSide:
    """A side after it was tiled.

    blocks  axes that number the tiles: of reduced axes one, of others the bands and the tiles of a
            band
    within  the sub-loops of a tile
    index   over all of these, the index along the axes as one
    """

    blocks: Axes
    within: Axes
    index: Node


@dataclass(frozen=True)
class Tensorize(Move):
    """Compute a kernel's only reduction, a sum of products, or products back to back with an atom
    of the table, in blocks of rows and columns beyond whose ends nothing is read or stored. The
    steps of products back to back pass by in tiles. Only `fuse` comes before."""

    atom: str
    text = "tensorize({atom})"

    def apply(self, nest: Nest) -> Nest:
        self.require(self.atom in ATOMS, f"an atom is one of {', '.join(ATOMS)}")
        self.require(not (nest.splits or nest.binding), "an axis is split or bound already")
        atom, both = ATOMS[self.atom], back_to_back(nest.kernel)
        factors = both.factors if both else product_factors(nest.kernel, atom.kind)
        self._require_fit(atom, factors, both)
        # Tensor cores read tf32 along the steps; only the left factor goes through registers.
        transposed = [
            is_transposed(factor.value, factor.row_axes, factor.step_axes)
            and (atom.kind != "tf32" or factor is factors[0])
            for factor in factors
        ]
        numbers = count(1 + max(axis.arg.number for axis in nest.order))
        of_tiles: dict[Node, Node] = {}  # axes that tiles have in place of those of results
        if both:
            nest = replace(nest, kernel=both.with_masked_ends(nest.kernel))
            sides = _back_to_back_sides(atom, both, transposed[0])
            # Tiles of v have the columns of the results, and tiles of k the steps, as axes that
            # nothing else numbers: a tile is read as a whole.
            for axes, reduce in ((both.column_axes, True), (both.step_axes, False)):
                size = axes[0].arg.size
                of_tiles[axes[0]] = ix.axis(next(numbers), size, reduce=reduce)
        else:
            sides = _product_sides(atom, factors, transposed)
        tiled: dict[Axes, _TiledSide] = {}
        for side in sides:
            nest, tiled[side.axes] = self._tile(nest, side, numbers)
        tiles = tuple(
            _tile_of(factor, is_turned, tiled[factor.row_axes].index, of_tiles)
            for factor, is_turned in zip(factors, transposed, strict=True)
        )
        return self._bound(replace(nest, tiles=tiles), atom, list(tiled.values()))

    def _require_fit(self, atom: Atom, factors: Sequence[Factor], both: BackToBack | None) -> None:
        """The atom multiplies factors of their dtype, and its rows and columns are as many as the
        kernel allows."""
        are_products = {factor.value.dtype for factor in factors} == {atom.dtype}
        self.require(are_products, f"that is no sum of products of {atom.dtype.name}")
        if both:
            fits = both.max_rows >= atom.m >= MAX_PRODUCT_ROWS
            fits &= MAX_ROW_ELEMENTS >= atom.n >= points(both.column_axes)
            self.require(
                fits,
                f"products back to back need {MAX_PRODUCT_ROWS} to {both.max_rows} rows and "
                f"{points(both.column_axes)} to {MAX_ROW_ELEMENTS} columns",
            )
            return
        allowed = ", ".join(other.name for other in product_atoms(atom.kind))
        self.require(
            atom.m <= MAX_PRODUCT_ROWS,
            f"{atom.m} rows are for products back to back; for one product there are {allowed}",
        )

    def _tile(self, nest: Nest, side: _Side, numbers: Iterator[int]) -> tuple[Nest, _TiledSide]:
        """`nest` with the axes of a side as one, tiled: 300 rows in tiles of 128 are 3 tiles, and
        nothing is read or stored in rows from 300 on."""
        extent, reduce = points(side.axes), side.axes[0].arg.reduce
        tiles = -(-extent // side.tile)
        blocks: Shape = (tiles,)
        if not reduce:
            band = side.band if tiles % side.band == 0 else 1
            blocks = (tiles // band, band)
        loops = tuple(
            ix.axis(next(numbers), size, reduce=reduce) for size in (*blocks, *side.split)
        )
        as_one = rest = ix.axis(next(numbers), extent, reduce=reduce)
        index_of = dict.fromkeys(side.axes, rest)
        for axis in reversed(side.axes):
            rest, index_of[axis] = ix.divided(rest, axis.arg.size)
        nest = self.reindexed(nest, index_of, (as_one,))
        index = ix.row_major(loops)
        nest = self.reindexed(nest, {as_one: index}, loops, ix.inside(index, extent))
        return nest, _TiledSide(loops[: len(blocks)], loops[len(blocks) :], index)

    def _bound(self, nest: Nest, atom: Atom, tiled: Sequence[_TiledSide]) -> Nest:
        """`nest` with its sub-loops in order and bound to the grid, to threads and to registers.

        tiled: the rows, the columns and, of products back to back, the steps

        For mma_bf16_128x256 the sub-loops 0 to 6 are, of rows, groups of four warps (2), warps (4),
        rows i and i + 8 (2), i (8), and of columns groups of 8 (32), j (4), neighbours (2). Numbers
        0, 1, 3 and 5 are 2 * 4 * 8 * 4 = 256 threads; 4, 2 and 6 are 32 * 2 * 2 = 128 sums of each
        thread.
        """
        rows, columns, *steps = tiled
        sub_loops = {axis for side in tiled for axis in (*side.blocks, *side.within)}
        others = [axis for axis in nest.kernel.row_axes if axis not in sub_loops]
        band, row_tile = rows.blocks
        grid = (*others, band, *columns.blocks, row_tile)  # the tiles of a band run side by side
        pieces = (*rows.within, *columns.within)
        threads = [pieces[number] for number in atom.thread_loops]
        registers = [pieces[number] for number in atom.register_loops]
        for side in steps:  # scores lie in registers as columns do
            group, _, neighbour = side.within
            registers += [group, neighbour]
        binding = (
            dict.fromkeys(grid, "grid")
            | dict.fromkeys(threads, "thread")
            | dict.fromkeys(registers, "unroll")
        )
        serial = [axis for axis in nest.order if axis not in binding]
        order = (*grid, *serial, *threads, *registers)
        return replace(nest, order=order, product=self.atom, binding=binding)


def _tile_of(factor: Factor, is_turned: bool, row: Node, of_tiles: Mapping[Node, Node]) -> Store:
    """The fill of a tile, the fastest axis last, whose rows begin at the index `row`."""
    order = (*factor.row_axes, *factor.step_axes)
    if is_turned:
        order = (*factor.step_axes, *factor.row_axes)
    axes = tuple(of_tiles.get(axis, axis) for axis in order)
    return Store(-1, row, ix.replaced(factor.value, of_tiles), axes)


def _product_sides(
    atom: Atom, factors: Sequence[Factor], transposed: Sequence[bool]
) -> tuple[_Side, ...]:
    """The rows and the columns of a product, each split as its tile lies."""
    left, right = factors
    row_split = atom.row_splits[transposed[0]]
    column_split = atom.column_splits[transposed[1]]
    return (
        _Side(left.row_axes, atom.m, row_split, BAND),
        _Side(right.row_axes, atom.n, column_split),
    )


def _back_to_back_sides(
    atom: Atom, both: BackToBack, is_left_transposed: bool
) -> tuple[_Side, ...]:
    """The rows, columns and steps of products back to back. The steps are the columns of inner
    products, and split as these are."""
    _, *in_a_group = columns = atom.column_splits[0]
    row_split = atom.row_splits[is_left_transposed]
    step_split = (both.step_tile // 8, *in_a_group)
    return (
        _Side(both.factors[0].row_axes, atom.m, row_split, BAND),
        _Side(both.column_axes, atom.n, columns),
        _Side(both.step_axes, both.step_tile, step_split),
    )


@dataclass(frozen=True)
class _Walks:
    """The axes that tiles of a product of two factors may walk as one."""

    kernel: Kernel
    factors: Axes

    def priority(self, axes: Axes) -> Shape:
        """How well a side of tiles along `axes` suits: neighbours in results count most, then those
        in factors, both along the innermost axis, then the number of points. The number of that
        axis decides between equals, so that equal kernels have equal tiles."""
        contiguous = sum(is_minor(factor, axes[-1]) for factor in self.factors)
        is_stored_along = store_score(self.kernel, axes[-1])
        return is_stored_along, contiguous, points(axes), axes[-1].arg.number

    def best(self, candidates: Iterable[Axes], min_points: int = MIN_SIDE) -> Axes:
        """The candidate of the highest priority of those with `min_points` or more; () if there
        is none."""
        long = (axes for axes in candidates if points(axes) >= min_points)
        return max(long, key=self.priority, default=())

    def steps(self, shared: Axes) -> Axes:
        """The reduced axes that both factors have, as one if no factor has neighbours along any of
        them; otherwise the best of them alone, along which a tile then has its lines."""
        is_any_contiguous = any(
            is_minor(factor, axis) for factor in self.factors for axis in shared
        )
        return self.best([(axis,) for axis in shared] if is_any_contiguous else [shared])

    def rows(self, factor: Node, axes: Sequence[Node], steps: Axes, min_single: int) -> Axes:
        """The row axes of a factor, among `axes`, which come outermost first: several as one where
        all results walk them as one and the steps are the factor's fastest axis, as the copy engine
        then finds rows of any distance. An only candidate may have as few points as `min_single`,
        others need MIN_SIDE.

        Results of ``x[b, s, k] @ w[k, n]`` of the shape (8, 100, 300) are stored at
        ``30000 * b + 300 * s + n``: the coefficient of b is that of s times 100, the size of s, and
        so b and s are walked as one, of 800 rows."""
        may_join = bool(steps) and is_minor(factor, steps[-1])
        strides = [ix.terms_of(store.index)[0] for store in self.kernel.stores]
        runs: list[Axes] = []
        for axis in axes:
            continues = bool(runs) and all(
                stride.get(runs[-1][-1], 0) == stride.get(axis, 0) * axis.arg.size
                for stride in strides
            )
            if may_join and continues:
                runs[-1] = (*runs[-1], axis)
            else:
                runs.append((axis,))
        rows = self.best(runs)
        if not rows and len(runs) == 1:
            rows = self.best(runs, min_single)
        return rows


def product_factors(kernel: Kernel, kind: str) -> tuple[Factor, ...]:
    """The two factors, of a dtype in the table, whose products a kernel's only reduction adds up,
    where every store writes one element a point of the rows; the rows of the first one are the rows
    of tiles. () for other kernels, where the factors share no reduced axis, where a factor has no
    row axis of its own that is long enough, or if tiles would be mostly empty.

    kind: of factors of float32, "f32" or "tf32". Tensor cores read transposed tiles of tf32 through
        registers, which hold rows: such a factor comes first.
    """
    reductions = [node for node in kernel.nodes if bound_axes(node)]
    if not stores_elements(kernel) or len(reductions) != 1:
        return ()
    (reduction,) = reductions
    if reduction.op is not Op.LOOP_REDUCE or reduction.arg.monoid is not ADD:
        return ()
    operands = factors_of(reduction.src[0])
    if not operands:
        return ()
    walks = _Walks(kernel, operands)
    left_axes, right_axes = map(free_axes, operands)
    both_axes = left_axes & right_axes
    steps = walks.steps(tuple(axis for axis in bound_axes(reduction) if axis in both_axes))
    has_float32 = operands[0].dtype is float32
    # 2 or 8 rows are enough where they are the only ones. Of few a tile is mostly empty, which
    # costs time without tensor cores; those wait for memory anyway.
    min_single = MIN_SIDE // 2 if kind == "f32" and has_float32 else 2
    sides = []
    for operand in operands:
        candidates = free_axes(operand) - both_axes
        axes = [axis for axis in kernel.row_axes if axis in candidates]
        sides.append(walks.rows(operand, axes, steps, min_single))
    if not (steps and all(sides)) or _is_mostly_empty(sides, steps):
        return ()
    factors = [Factor(operand, rows, steps) for operand, rows in zip(operands, sides, strict=True)]
    is_rounded = kind == "tf32" and has_float32

    def order(factor: Factor) -> tuple[bool, Shape]:
        """The first factor's rows are the rows of tiles: a transposed one of tf32, or else the one
        whose axes suit less, as neighbours in results are best along columns."""
        along_steps = not is_transposed(factor.value, factor.row_axes, steps)
        return is_rounded and along_steps, walks.priority(factor.row_axes)

    return tuple(sorted(factors, key=order))


def _is_mostly_empty(sides: Iterable[Axes], steps: Axes) -> bool:
    """Whether two of these are shorter than MIN_SIDE: rows, columns, and a fourth of the steps. One
    may be: a tile that is mostly empty waits for memory, as the product does. Steps count as a
    fourth, so 64 are enough: a tile has 32 or 64 steps a line, and its buffer several lines."""
    extents = sorted((*map(points, sides), points(steps) // 4))
    return extents[1] < MIN_SIDE


def is_transposed(value: Node, rows: Sequence[Node], steps: Sequence[Node]) -> bool:
    """Are neighbours in the memory that a factor comes from rows or columns, and not steps?"""
    return is_minor(value, rows[-1]) and not is_minor(value, steps[-1])


def is_minor(value: Node, axis: Node) -> bool:
    """Are neighbours along `axis` neighbours in the memory that `value` comes from?"""
    loads = (node for node in toposort([value]) if node.op is Op.LOAD)
    return any(ix.terms_of(load.src[0])[0].get(axis) == 1 for load in loads)


@dataclass(frozen=True, order=True)
class StreamK:
    """How blocks divide the steps of tiles among them.

    time    of the block that ends last: an estimate, in results of a tile times steps, which is a
            line of products each, as the largest tile on tensor cores computes them
    steps   of a block
    blocks  each has tiles as a whole or, where there are fewer tiles than multiprocessors, a part
            of the steps of one
    """

    time: float
    steps: int
    blocks: int


def stream_k(atom: Atom, tiles: int, steps: int, multiprocessors: int) -> StreamK:
    """The fastest division of `tiles`, each of so many `steps`, of three: whole tiles for each
    block, and, where there are fewer tiles than multiprocessors, equal parts of each tile, or equal
    shares of all steps. 18 tiles of 256 steps on 132 multiprocessors are taken by 18 blocks of 256,
    by 126 blocks, 7 a tile, of 37 steps, or by 132 blocks of 35."""
    results = atom.m * atom.n
    tiles_each = -(-tiles // multiprocessors)
    steps_each = tiles_each * steps
    divisions = [StreamK(steps_each * results / atom.rate, steps_each, -(-tiles // tiles_each))]
    if tiles < multiprocessors:
        blocks_of_equal_parts = multiprocessors // tiles * tiles
        for blocks in {blocks_of_equal_parts, multiprocessors}:
            steps_each = -(-tiles * steps // blocks)
            partial_sums = _partial_sums(tiles, steps, blocks, steps_each)
            time = steps_each * results / atom.rate
            time += JOIN_COST + PARTIAL_SUMS_STEPS * results * partial_sums
            divisions.append(StreamK(time, steps_each, blocks))
    return min(divisions)


def _partial_sums(tiles: int, steps: int, blocks: int, steps_each: int) -> int:
    """The tiles of partial sums that are written or read one after the other, at most, by the block
    that ends last. With as many blocks for each tile, its first block reads those of all others.

    With equal shares (`StreamK` of `products.cu`), a tile has `whole_parts` blocks of its own, and
    the other blocks divide the rests of all tiles among them, one after the other. Such a block
    writes the sums of as many rests as fit into a share; then a first block reads those of the
    parts, and of one rest, which two blocks may have: 18 tiles of 256 steps and 132 blocks of 35
    have 7 parts a tile and rests of 11 steps, so that these are 7 + 2 + 3 tiles of sums.
    """
    if blocks % tiles == 0:
        return blocks // tiles - 1
    whole_parts, rest = divmod(steps, steps_each)
    parts_of_rests = steps_each // max(rest, 1)
    return whole_parts + 2 + parts_of_rests


@dataclass(frozen=True, order=True)
class AtomTime:
    """About how long a product takes in tiles of an atom (see `StreamK`), and how many tiles."""

    time: float
    tiles: int
    atom: str


def product_atoms(kind: str) -> list[Atom]:
    """The atoms of a kind of factors that blocks of one product have."""
    return [atom for atom in ATOMS.values() if atom.kind == kind and atom.m <= MAX_PRODUCT_ROWS]


def times_of(
    kind: str, rows: int, columns: int, others: int, steps: int, multiprocessors: int
) -> list[AtomTime]:
    """For each atom of a kind, the fastest first, the time of `others` products of so many rows
    and columns, each of so many steps. A step is LINE_BYTES of a row of a factor: 64 elements of 16
    bits, 32 of float32."""
    times = []
    for atom in product_atoms(kind):
        tiles = -(-rows // atom.m) * -(-columns // atom.n) * others
        division = stream_k(atom, tiles, steps, multiprocessors)
        times.append(AtomTime(division.time, tiles, atom.name))
    return sorted(times)


def best_product(kernel: Kernel, factor_kind: str, rank: int, multiprocessors: int) -> str:
    """The atom with which a kernel's products take the least time by `times_of`; "" where the
    kernel has no products, or none is worth tiles. Products back to back have one atom.

    factor_kind: of factors of float32, "f32" or "tf32"
    rank: how many of the fastest atoms to pass over: 0 but in a search
    """
    both = back_to_back(kernel)
    if both:
        return _back_to_back_atom(kernel, both, multiprocessors)
    factors = product_factors(kernel, factor_kind)
    if not factors:
        return ""
    left, right = factors
    dtype = left.value.dtype
    kind = factor_kind if dtype is float32 else SHORT[dtype]
    others = points(kernel.row_axes) // points(left.row_axes + right.row_axes)
    (reduced,) = filter(None, map(bound_axes, kernel.nodes))
    other_steps = points(reduced) // points(left.step_axes)
    lines = -(-points(left.step_axes) * dtype.itemsize // LINE_BYTES)
    steps = lines * other_steps
    rows, columns = points(left.row_axes), points(right.row_axes)
    min_tiles = MIN_FMA_TILES if kind == "f32" else 1
    for candidate in times_of(kind, rows, columns, others, steps, multiprocessors)[rank:]:
        if candidate.tiles >= min_tiles or candidate.tiles * steps >= min_tiles**2:
            return candidate.atom
    return ""


def _back_to_back_atom(kernel: Kernel, both: BackToBack, multiprocessors: int) -> str:
    """The fewest columns that hold a row of the results, and the most rows that leave no
    multiprocessor without a block."""
    columns = points(both.column_axes)
    n = MAX_ROW_ELEMENTS if columns > MAX_ROW_ELEMENTS // 2 else MAX_ROW_ELEMENTS // 2
    rows = points(kernel.row_axes) // columns
    m = both.max_rows if rows >= both.max_rows * multiprocessors else MAX_PRODUCT_ROWS
    kind = SHORT[both.factors[0].value.dtype]
    return f"mma_{kind}_{m}x{n}"

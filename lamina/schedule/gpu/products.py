"""Which kernels have a product of two factors that tiles can compute, and with which atom."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from lamina.core.dtypes import SHORT, float32
from lamina.core.shape import Shape
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import uncast_factors
from lamina.loops.nest import Axes, is_minor
from lamina.schedule.cost.products import is_in_chunks
from lamina.schedule.gpu.atoms import LINE_BYTES, MIN_BACK_TO_BACK_ROWS, Atom, product_atoms
from lamina.schedule.gpu.attention import (
    MAX_ROW_ELEMENTS,
    MIN_SIDE,
    BackToBack,
    Factor,
    back_to_back_on,
    stores_elements,
)
from lamina.schedule.gpu.pipelining import Order
from lamina.schedule.gpu.stream_k import Products, has_shares, times_of
from lamina.schedule.planner import store_score

# Tiles from which float32 without tensor cores is worth the fill of shared memory, whatever loops
# of threads are predicted to take. So are fewer tiles that have MIN_FMA_TILES**2 = 576 steps in
# all, which several blocks then share. Chosen: no measurement of either is kept.
MIN_FMA_TILES = 24
# Loops of threads over what tiles would gather, with a test for the margins of an image at each
# step and no register tile of windows, take so many times longer than predicted: the first
# convolution of a ResNet-50, of 3 channels, took an H200 2.5 ms forward and 10.4 ms for its
# weights, predicted 0.8 and 1.8.
LOOPS_OF_GATHERED = 3.0
# Loops of threads in place of tiles on tensor cores that threads would fill are taken where they
# are predicted to take less than two thirds of the time: a margin, as either is predicted less
# surely than tiles that the copy engine fills.
LOOPS_OF_FILLED = 1.5
# The same in place of few tiles of float32 without tensor cores: of 11 products loops took an H200
# 1.7 times as long as predicted in the (geometric) mean, 0.5 to 5.7 times.
LOOPS_OF_FEW_TILES = 1.1
# The same in place of tiles that are mostly empty, of fewer than MIN_SIDE rows or columns.
LOOPS_OF_FEW_ROWS = 1.5

# Rows or columns of tiles, 64 at least, follow results as these lie in memory, so that neighbours
# are stored together. Where these are fewer than this, half a tile or more would be empty, and all
# axes of a factor are one run: of an image's 4 x 4 places, channels second, tiles have the places
# of 4 images or more. Each place in results then takes a division. Convolutions by windows of 3 x 3
# of such images took an H200 25 us in place of 73 (bfloat16, 128 images, 512 channels to 512) and
# 46 in place of 113 (float32, 64 images, 256 to 256). Of 7 x 7 places, of which a tile has one
# image, one convolution took 41 in place of 43, another 45 in place of 28.
MIN_ROWS_OF_RESULTS = 33


@dataclass(frozen=True)
class _Walks:
    """The axes that tiles of a product of two factors may walk as one."""

    kernel: Kernel
    factors: Axes

    @cached_property
    def both_axes(self) -> frozenset[Node]:
        """The axes along which both factors vary: those that the sum reduces, and those of a
        batch."""
        left, right = self.factors
        return free_axes(left) & free_axes(right)

    def priority(self, axes: Axes) -> Shape:
        """How well a side of tiles along `axes` suits: neighbours in results count most, then those
        in factors, both along the innermost axis, then the number of points. The number of that
        axis decides between equals, so that equal kernels have equal tiles."""
        innermost = axes[-1]
        in_results = store_score(self.kernel, innermost)
        in_factors = sum(1 for factor in self.factors if is_minor(factor, innermost))
        return in_results, in_factors, points(axes), innermost.arg.number

    def best(self, candidates: Iterable[Axes], min_points: int = MIN_SIDE) -> Axes:
        """The candidate of the highest priority of those with `min_points` or more; () if there
        is none."""
        long = (axes for axes in candidates if points(axes) >= min_points)
        return max(long, key=self.priority, default=())

    def k_axes(self, reduction: Node) -> Axes:
        """The axes that are k of tiles, of the reduced axes that both factors have:
        all of them as one if no factor has neighbours along any, as order then does not matter;
        otherwise the best one alone, and all as one where none has MIN_SIDE points. () if these
        have fewer together.

        Of a convolution with channels last, reduced over 3 x 3 places of a window and 64 channels,
        k are the channels; over 7 x 7 places and 3 channels all 147."""
        shared = tuple(axis for axis in bound_axes(reduction) if axis in self.both_axes)
        if not shared:
            return ()
        has_neighbours = any(is_minor(factor, axis) for axis in shared for factor in self.factors)
        alone = self.best([(axis,) for axis in shared]) if has_neighbours else ()
        return alone or self.best([shared])

    def factor(self, value: Node, k_axes: Axes, min_single: int) -> Factor | None:
        """The factor `value`, whose rows are along the best run of the row axes that it alone has;
        None if there is none that is long enough. A run needs MIN_SIDE points, but only
        `min_single` if it is the only one, as there is no other choice then: `product_factors`
        says how few rows pay.

        A tile has a line of neighbours in memory for each row or for each k. If k is the
        factor's fastest axis, each row is a line, and lines may lie at any distance: rows along
        several axes, as the 10 x 10 places of images, are then one run (im2col mode of the copy
        engine). Otherwise the rows themselves lie along a line, and so along one axis; where each
        is too short for that, threads gather the k of rows along a run of several.

        Lines at any distance may be rows that results do not walk as one, too: see
        `MIN_ROWS_OF_RESULTS`.
        """
        alone = free_axes(value) - self.both_axes
        axes = [axis for axis in self.kernel.row_axes if axis in alone]
        runs = self._runs(axes) if is_minor(value, k_axes[-1]) else [(axis,) for axis in axes]
        rows = self.best(runs, min_points=min_single if len(runs) == 1 else MIN_SIDE)
        rows = rows or self.best(self._runs(axes))
        is_along_k = is_minor(value, k_axes[-1])
        if is_along_k and points(rows) < MIN_ROWS_OF_RESULTS and len(axes) > 1:
            rows = self.best([tuple(axes)])
        return Factor(value, rows, k_axes) if rows else None

    def _runs(self, axes: Sequence[Node]) -> list[Axes]:
        """`axes`, outermost first, in runs that all results walk as one.

        Results of ``x[b, s, k] @ w[k, n]`` of the shape (8, 100, 300) are stored at
        ``30000 * b + 300 * s + n``: the coefficient of b is that of s times 100, the size of s, and
        so b and s are one run, of 800 rows."""
        runs: list[Axes] = []
        for axis in axes:
            if runs and self._continues(runs[-1][-1], axis):
                runs[-1] = (*runs[-1], axis)
            else:
                runs.append((axis,))
        return runs

    def _continues(self, outer: Node, inner: Node) -> bool:
        """Does one step along `outer` lie as far in all results as all steps along `inner`?"""
        for store in self.kernel.stores:
            coefficients, _ = ix.terms_of(store.index)
            if coefficients.get(outer, 0) != coefficients.get(inner, 0) * inner.arg.size:
                return False
        return True


def product_factors(kernel: Kernel, kind: str) -> tuple[Factor, ...]:
    """The two factors whose products a kernel's only reduction adds up, that of the rows of tiles
    first. () for kernels whose product is none for tiles, where

    - there is another reduction, a factor is of no dtype in the table of atoms, or a store writes
      anything but one element a point of the rows;
    - the factors share no reduced axis, or one has no long row axis that the other lacks;
    - tiles would be mostly empty.

    kind: of factors of float32, "f32" or "tf32"

    Of ``x[s, k] @ w[k, n]``, stored at ``300 * s + n``, the first factor is x with the rows (s,),
    the second one w with (n,), and the elements of rows of both are along (k,).
    """
    reduction = _only_sum(kernel)
    if reduction is None or not stores_elements(kernel):
        return ()
    values = uncast_factors(reduction.src[0])
    if not values:
        return ()
    walks = _Walks(kernel, values)
    k_axes = walks.k_axes(reduction)
    if not k_axes:
        return ()
    is_float32 = values[0].dtype is float32
    # 2 or 8 rows are enough where they are the only ones. Of few a tile is mostly empty, which
    # costs time without tensor cores; those wait for memory anyway.
    min_single = MIN_SIDE // 2 if kind == "f32" and is_float32 else 2
    first, second = (walks.factor(value, k_axes, min_single) for value in values)
    if first is None or second is None or _is_mostly_empty(first, second):
        return ()
    if _is_left(second, first, walks, is_tf32=kind == "tf32" and is_float32):
        return second, first
    return first, second


def _only_sum(kernel: Kernel) -> Node | None:
    """The kernel's reduction if it is a sum and the only node that has a loop of its own, such as
    another reduction or a scan; None otherwise."""
    if len(kernel.with_loops) != 1:
        return None
    (reduction,) = kernel.with_loops
    is_sum = reduction.op is Op.LOOP_REDUCE and reduction.arg.monoid is ADD
    return reduction if is_sum else None


def _is_left(factor: Factor, other: Factor, walks: _Walks, is_tf32: bool) -> bool:
    """Whether the rows of `factor` are the rows of tiles, and those of `other` the columns.

    If just one of two factors of tf32 is transposed, it is the left one: tensor cores multiply such
    tiles out of registers alone, and registers hold rows. Otherwise the one whose axes suit less
    is, as neighbours in results are best along columns: of ``x[s, k] @ w[k, n]``, stored at
    ``300 * s + n``, neighbours are along n, so that x is the left factor.
    """
    if is_tf32:
        is_factor_transposed = is_transposed(factor.value, factor.row_axes, factor.element_axes)
        is_other_transposed = is_transposed(other.value, other.row_axes, other.element_axes)
        if is_factor_transposed != is_other_transposed:
            return is_factor_transposed
    return walks.priority(factor.row_axes) < walks.priority(other.row_axes)


def _is_mostly_empty(left: Factor, right: Factor) -> bool:
    """Whether two of these are below MIN_SIDE: rows, columns, and a fourth of k.

    One may be: a tile that is mostly empty waits for memory, as the product does. 64 k are
    enough, hence the fourth: a line of a tile has 32 or 64. So (8, 4096) by (4096, 512) is worth
    tiles, (8, 32) by (32, 512) is not.
    """
    extents = (points(left.row_axes), points(right.row_axes), points(left.element_axes) // 4)
    too_short = [extent for extent in extents if extent < MIN_SIDE]
    return len(too_short) >= 2


def is_transposed(value: Node, rows: Sequence[Node], elements: Sequence[Node]) -> bool:
    """Are neighbours in the memory that a factor comes from rows or columns, and not
    the elements of one, such as its k? Then
    lines of its tiles are along these, which are those of one axis."""
    is_along_rows = is_minor(value, rows[-1]) and not is_minor(value, elements[-1])
    return is_along_rows and len(rows) == 1


def _are_gathered(factors: Sequence[Factor]) -> bool:
    """Do threads gather lines of tiles, as axes with neighbours in memory are too short to be these
    alone: k along 3 x 7 x 7, or rows?"""
    k_axes = factors[0].element_axes
    if len(k_axes) > 1 and any(is_minor(each.value, axis) for each in factors for axis in k_axes):
        return True
    return any(len(each.row_axes) > 1 and not is_minor(each.value, k_axes[-1]) for each in factors)


@dataclass(frozen=True)
class Choice:
    """An atom for a kernel's products. is_sure: are tiles faster than any loops of threads?
    side_by_side: other atoms, in orders of which a multiprocessor runs several blocks at once; they
    may be faster
    loops: what the predicted time of loops is multiplied by before it is compared with that of
    tiles, as they take longer than predicted (`LOOPS_OF_GATHERED`), or as a margin
    (`LOOPS_OF_FILLED`)"""

    atom: str
    is_sure: bool
    loops: float = 1.0
    side_by_side: tuple[tuple[str, Order], ...] = ()


def best_product(kernel: Kernel, factor_kind: str, rank: int, target: Target) -> Choice | None:
    """The atom with which a kernel's products take the least time by `times_of`; None where the
    kernel has no products, or those that tensor cores alone compute in tiles, and there are none.
    Products back to back have one atom.

    factor_kind: of factors of float32, "f32" or "tf32"
    rank: how many of the fastest atoms to pass over: 0 but in a search
    """
    has_tensor_cores = "tensor_cores" in target.engines
    both = back_to_back_on(kernel, target)
    if both:
        return Choice(_back_to_back_atom(kernel, both, target.multiprocessors), is_sure=True)
    factors = product_factors(kernel, factor_kind)
    if not factors:
        return None
    dtype = factors[0].value.dtype
    kind = factor_kind if dtype is float32 else SHORT[dtype]
    if not has_tensor_cores:
        if dtype is not float32:
            return None
        kind = "f32"
    products = _products_of(kernel, factors)
    candidates = times_of(kind, products, target.multiprocessors)[rank:]
    if not candidates:
        return None
    if _are_gathered(factors):
        return Choice(candidates[0].atom, is_sure=False, loops=LOOPS_OF_GATHERED)
    if kind != "f32" and not all(is_in_chunks(factor.value) for factor in factors):
        return Choice(candidates[0].atom, is_sure=False, loops=LOOPS_OF_FILLED)
    if kind != "f32" and min(products.rows, products.columns) < MIN_SIDE:
        return Choice(candidates[0].atom, is_sure=False, loops=LOOPS_OF_FEW_ROWS)
    min_tiles = MIN_FMA_TILES if kind == "f32" else 1
    for candidate in candidates:
        if candidate.tiles >= min_tiles or candidate.tiles * products.steps >= min_tiles**2:
            side_by_side = () if rank else _side_by_side(kind, products, target.multiprocessors)
            return Choice(candidate.atom, is_sure=True, side_by_side=side_by_side)
    loops = LOOPS_OF_FEW_TILES if kind == "f32" else 1.0
    return Choice(candidates[0].atom, is_sure=False, loops=loops)


def _side_by_side(
    kind: str, products: Products, multiprocessors: int
) -> tuple[tuple[str, Order], ...]:
    """The atoms of which a multiprocessor runs several blocks side by side, each in its orders; of
    those that have as many tiles the smallest."""
    found: dict[int, Atom] = {}
    for atom in sorted(product_atoms(kind), key=lambda atom: (atom.m * atom.n, atom.m)):
        found.setdefault(products.tiles(atom), atom)
    return tuple(
        (atom.name, order)
        for tiles, atom in found.items()
        for order in _orders_side_by_side(atom, tiles, products.steps, multiprocessors)
    )


def _orders_side_by_side(
    atom: Atom, tiles: int, steps: int, multiprocessors: int
) -> Iterator[Order]:
    """The orders in which a multiprocessor runs several blocks side by side: a block for each of
    more tiles than multiprocessors, and blocks that share all tiles, two on each multiprocessor, or
    more, up to as many as it runs. Blocks that first have whole tiles of many are left out: those
    of an H200 took longer than a block for each."""
    if tiles > multiprocessors and atom.side_by_side(are_shared=False) > 1:
        yield Order("whole", tiles)
    for at_once in range(2, atom.side_by_side(are_shared=True) + 1):
        blocks = at_once * multiprocessors
        if tiles < blocks and has_shares(tiles, steps, blocks):
            yield Order("stream_k", blocks)


def _products_of(kernel: Kernel, factors: Sequence[Factor]) -> Products:
    """The products of a kernel, which has these two factors, by what tiles count of them.

    A convolution of (8, 32, 32, 300) in bfloat16, channels last, by 3 x 3 x 300 x 64 is a product
    of 8192 rows by 64 columns. Lines of 64 elements pass by along the channels, once for each place
    of the window: 300 channels are 5 lines, so that there are 45 steps.
    """
    left, right = factors
    rows, columns = points(left.row_axes), points(right.row_axes)
    # Each point of all other row axes has a product of rows by columns, such as each of a batch.
    count = points(kernel.row_axes) // (rows * columns)
    lines = ceil(points(left.element_axes) * left.value.dtype.itemsize / LINE_BYTES)
    (reduced,) = map(bound_axes, kernel.with_loops)
    repetitions = points(reduced) // points(left.element_axes)
    return Products(rows, columns, lines * repetitions, count)


def _back_to_back_atom(kernel: Kernel, both: BackToBack, multiprocessors: int) -> str:
    """The atom of products back to back: the fewest columns, of 64 and 128, that hold a row of the
    results, and the most rows that leave no multiprocessor without a block. 8 heads of 4096 queries
    of 64 elements have 256 blocks of 128 rows, but 128 blocks of 256: of 132 multiprocessors 4
    would have none, and so the atom has 128 rows."""
    columns = both.column.arg.size
    n = MAX_ROW_ELEMENTS if columns > MAX_ROW_ELEMENTS // 2 else MAX_ROW_ELEMENTS // 2
    rows = points(kernel.row_axes) // columns
    m = both.max_rows if rows >= both.max_rows * multiprocessors else MIN_BACK_TO_BACK_ROWS
    kind = SHORT[both.factors[0].value.dtype]
    return f"mma_{kind}_{m}x{n}"

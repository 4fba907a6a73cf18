"""Which kernels have a product of two factors that tiles can compute, and with which atom."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lamina.core.dtypes import SHORT, float32
from lamina.core.shape import Shape
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Axes
from lamina.schedule.gpu.atoms import LINE_BYTES, MIN_BACK_TO_BACK_ROWS
from lamina.schedule.gpu.attention import (
    MAX_ROW_ELEMENTS,
    MIN_SIDE,
    BackToBack,
    Factor,
    back_to_back,
    factors_of,
    stores_elements,
)
from lamina.schedule.gpu.stream_k import times_of
from lamina.schedule.planner import store_score

# Tiles from which float32 without tensor cores is worth the fill of shared memory; loops of threads
# take products of fewer. Fewer tiles are worth it if they have MIN_FMA_TILES**2 = 576 steps in all,
# which several blocks then share. Chosen: no measurement of either is kept.
MIN_FMA_TILES = 24


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
    columns = both.column.arg.size
    n = MAX_ROW_ELEMENTS if columns > MAX_ROW_ELEMENTS // 2 else MAX_ROW_ELEMENTS // 2
    rows = points(kernel.row_axes) // columns
    m = both.max_rows if rows >= both.max_rows * multiprocessors else MIN_BACK_TO_BACK_ROWS
    kind = SHORT[both.factors[0].value.dtype]
    return f"mma_{kind}_{m}x{n}"

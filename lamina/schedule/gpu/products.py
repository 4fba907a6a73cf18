"""A move for sums of products whose factors lie, tile by tile, in memory that a block shares.

A tile lies in lines of 128 bytes, along its steps or, where that is how its factor lies in memory,
transposed: along its rows or columns. The 16-byte chunks of a line are permuted by its number, so
that neither lines nor columns of chunks meet in one bank. What is longer makes panels of such
lines. The tensor cores and the copy engine of a GPU (TMA) know this layout as the swizzle of 128
bytes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import NamedTuple

from lamina.core.dtypes import SHORT, DType, bfloat16, float16, float32
from lamina.core.shape import Shape
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Store, bound_axes, free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.moves import Move
from lamina.loops.nest import Axes, Nest
from lamina.schedule.gpu.attention import MIN_SIDE, Array, factors_of, nested
from lamina.schedule.planner import store_score

LINE = 128  # bytes
RING = 1536  # lines of all tiles that a block has at a time, if there is room
PART = 4  # a block writes, or reads, the partial sums of a tile in the time of so many steps
JOIN = 1 << 17  # and finds those of other blocks in the time of a step of so many products
LARGE_TILE = 128 * 256  # results of the largest tile
GROUP = 128  # the fewest rows that a block of nested reductions has, and the most columns
# Tiles worth it in float32, without tensor cores; fewer are with FEW_TILES**2 steps in all.
FEW_TILES = 24
BAND = 8  # rows of blocks that run side by side, so that they find each other's operands cached


class Product(NamedTuple):
    """What the threads of a block multiply at once, `m` rows and `n` columns over a line of steps,
    64 rows by 128 threads; they hold the sums in float32. Rows and columns are split in one of two
    ways, the second for a tile that is transposed, and the sub-loops, rows first, number the
    threads and the registers of each, the last the fastest. The multistage buffer has `depth`
    tiles, if they fit."""

    m: int
    n: int
    dtype: DType
    depth: int
    rate: float  # how near to that of the units it comes
    rows: tuple[Shape, Shape]
    columns: tuple[Shape, Shape]
    lanes: Shape
    registers: Shape


# With tensor cores, each of four warps has 16 rows: lane 4 * i + j has two neighbours from column
# 2 * j on, in rows i and i + 8, and that every 8 columns. In float32 threads read chunks of four
# neighbours, or of four rows or columns that lie in different lines. 256 rows are for nested
# reductions.
TILES = {(128, 256): 1.0, (128, 128): 0.9, (64, 128): 0.7, (128, 64): 0.6, (64, 64): 0.5}
PRODUCTS = {
    f"mma_{kind}_{m}x{n}": Product(
        m, n, dtype, RING // (m + n), rate, ((m // 64, 4, 2, 8),) * 2, ((n // 8, 4, 2),) * 2,
        (0, 1, 3, 5), (4, 2, 6),
    )
    for kind, dtype in {"bf16": bfloat16, "f16": float16, "tf32": float32}.items()
    for (m, n), rate in {**TILES, (256, 64): 0.1}.items()
} | {
    f"fma_f32_{m}x{n}": Product(
        m, n, float32, RING // (m + n), rate / 8,
        ((m // 64, 8, 2, 4, 1), (m // 64, 2, 2, 4, 4)), ((n // 16, 2, 8, 1), (n // 64, 2, 8, 4)),
        (0, 2, 6, 3, 7), (1, 4, 5, 8),
    )
    for (m, n), rate in TILES.items()
}  # fmt: skip


@dataclass(frozen=True)
class Tensorize(Move):
    """Compute a kernel's only reduction, a sum of products, or nested ones with an atom of the
    table, in blocks of rows and columns beyond whose ends nothing is read or stored. What nested
    ones are folded over passes by in tiles. Only fuse comes before."""

    atom: str
    text = "tensorize({atom})"

    def apply(self, nest: Nest) -> Nest:
        self.require(self.atom in PRODUCTS, f"an atom is one of {', '.join(PRODUCTS)}")
        self.require(not (nest.splits or nest.binding), "an axis is split or bound already")
        atom, inside, kind = PRODUCTS[self.atom], nested(nest.kernel), self.atom.split("_")[1]
        arrays = inside.arrays if inside else factors(nest.kernel, kind)
        known = {value.dtype for value, *_ in arrays} == {atom.dtype}
        fits = not inside or inside.most >= atom.m >= GROUP >= atom.n >= points(inside.column)
        self.require(known and fits, f"that is no sum of products of {atom.dtype.name}")
        if not inside:  # a block has no threads for more rows: its barriers would wait for ever
            beside = (one for one, other in PRODUCTS.items() if other.m <= GROUP)
            allowed = ", ".join(one for one in beside if f"_{kind}_" in one)
            why = f"{atom.m} rows are for nested reductions; for a product there are {allowed}"
            self.require(atom.m <= GROUP, why)
        transposed = [
            is_transposed(*array) and (kind != "tf32" or array is arrays[0]) for array in arrays
        ]
        splits = zip(arrays, transposed, atom[:2], (atom.rows, atom.columns), strict=False)
        sides = [(axes, size, split[turn]) for (_, axes, _), turn, size, split in splits]
        number, fresh = count(1 + max(one.arg.number for one in nest.order)), dict[Node, Node]()
        if inside:
            nest, split = replace(nest, kernel=inside.guarded(nest.kernel)), atom.columns[0]
            passing = (inside.size // 8, *split[1:])
            sides[1:] = (inside.column, atom.n, split), (inside.step, inside.size, passing)
            for (axis,), reduce in ((inside.column, True), (inside.step, False)):
                fresh[axis] = ix.axis(next(number), axis.arg.size, reduce=reduce)  # of tiles
        walks, parts = dict[Axes, Node](), list[Axes]()
        for axes, size, split in sides:
            blocks, reduce = -(-points(axes) // size), axes[0].arg.reduce
            band = BAND if not parts and blocks % BAND == 0 else 1
            lengths = (*((blocks,) if reduce else (blocks // band, band)), *split)
            new = tuple(ix.axis(next(number), one, reduce=reduce) for one in lengths)
            rest = whole = ix.axis(next(number), points(axes), reduce=reduce)
            places = dict.fromkeys(axes, rest)
            for axis in reversed(axes):
                rest, places[axis] = ix.divided(rest, axis.arg.size)
            nest, walks[axes] = self.reindexed(nest, places, (whole,)), ix.row_major(new)
            end = ix.inside(walks[axes], points(axes))
            nest = self.reindexed(nest, {whole: walks[axes]}, new, end)
            parts.append(new)
        (outer, inner, *rows), (far, near, *columns), *more = parts
        others = [axis for axis in nest.kernel.row_axes if axis not in chain(*parts)]
        grid, pieces = (*others, outer, far, near, inner), (*rows, *columns)
        lanes, registers = ([pieces[i] for i in some] for some in (atom.lanes, atom.registers))
        registers += [one for *_, group, _, pair in more for one in (group, pair)]
        bound = dict.fromkeys(grid, "grid") | dict.fromkeys(lanes, "thread")
        bound |= dict.fromkeys(registers, "unroll")
        tiles = list[Store]()
        for (value, axes, steps), turn in zip(arrays, transposed, strict=True):
            order = (*steps, *axes) if turn else (*axes, *steps)
            within = tuple(fresh.get(axis, axis) for axis in order)
            tiles.append(Store(-1, walks[axes], ix.replaced(value, fresh), within))
        serial = (axis for axis in nest.order if axis not in bound)
        return replace(
            nest, order=(*grid, *serial, *lanes, *registers), tiles=tuple(tiles),
            product=self.atom, binding=bound,
        )  # fmt: skip


def factors(kernel: Kernel, kind: str) -> tuple[Array, ...]:
    """The two factors, of a dtype in the table, whose products a kernel's only reduction adds up
    for single elements, with the axes of rows, or of columns for the second, and of steps; nothing
    if it does not. Factors of 16 bits may be cast: their product is exact. Tiles walk several axes
    as one: of steps if these are nowhere neighbours; of rows if results do so and steps are. Tensor
    cores read steps of tf32 that lie apart through registers, which have rows: these come first."""
    reductions = [one for one in kernel.nodes if bound_axes(one)]
    single = all(len(one.axes) == kernel.rows and one.monoid is None for one in kernel.stores)
    if not single or [(one.op, one.arg.monoid) for one in reductions] != [(Op.LOOP_REDUCE, ADD)]:
        return ()
    if not (parts := factors_of(reductions[0].src[0])):
        return ()

    def worth(axes: Axes) -> Shape:  # results lie along columns
        minor = sum(is_minor(one, axes[-1]) for one in parts)
        return store_score(kernel, axes[-1]), minor, points(axes), axes[-1].arg.number

    def best(found: Iterable[Axes], min_points: int = MIN_SIDE) -> Axes:
        return max((axes for axes in found if points(axes) >= min_points), key=worth, default=())

    left, right = map(free_axes, parts)
    strides = [ix.terms_of(store.index)[0] for store in kernel.stores]
    shared = tuple(one for one in bound_axes(reductions[0]) if one in left & right)
    apart = any(is_minor(value, axis) for value in parts for axis in shared)
    step, sides = best([(one,) for one in shared] if apart else [shared]), list[Axes]()
    few = MIN_SIDE // 2 if kind == "f32" and parts[0].dtype is float32 else 2
    for value, axes in (parts[0], left - right), (parts[1], right - left):
        runs, joint = list[Axes](), step and is_minor(value, step[-1])
        for one in (one for one in kernel.row_axes if one in axes):
            before = runs.pop() if runs and joint and all(
                by.get(runs[-1][-1], 0) == by.get(one, 0) * one.arg.size for by in strides
            ) else ()  # fmt: skip
            runs.append((*before, one))
        sides.append(best(runs) or (best(runs, few) if len(runs) == 1 else ()))
    if not (step and all(sides)) or sorted((*map(points, sides), points(step) // 4))[1] < MIN_SIDE:
        return ()  # one of these may be short: a tile that is mostly empty waits for memory
    rounds = kind == "tf32" and parts[0].dtype is float32
    arrays = [(value, axes, step) for value, axes in zip(parts, sides, strict=True)]
    return tuple(sorted(arrays, key=lambda one: (rounds > is_transposed(*one), worth(one[1]))))


def is_transposed(value: Node, axes: Sequence[Node], steps: Sequence[Node]) -> bool:
    """Are neighbours in memory rows or columns, and not steps?"""
    return is_minor(value, axes[-1]) and not is_minor(value, steps[-1])


def is_minor(value: Node, axis: Node) -> bool:
    """Are neighbours along `axis` neighbours in the memory that `value` comes from?"""
    loads = (one for one in toposort([value]) if one.op is Op.LOAD)
    return any(ix.terms_of(one.src[0])[0].get(axis) == 1 for one in loads)


def share(
    atom: Product, tiles: int, steps: int, multiprocessors: int
) -> tuple[float, int, int]:
    """About how long `tiles` take that need `steps` each, the steps of a block, and how many blocks
    there are: each has tiles as a whole or, where these are few, a part of one."""
    size, whole = atom.m * atom.n, -(-tiles // multiprocessors)
    found = [(whole * steps * size / atom.rate, whole * steps, -(-tiles // whole))]
    parts_of = {multiprocessors // tiles * tiles, multiprocessors}
    for blocks in parts_of if tiles < multiprocessors else ():
        each = -(-tiles * steps // blocks)
        parts, rest = divmod(steps, each)
        sums = blocks // tiles - 1 if blocks % tiles == 0 else parts + 2 + each // max(rest, 1)
        found.append((each * size / atom.rate + JOIN + PART * size * sums, each, blocks))
    return min(found)


class Timed(NamedTuple):
    """About how long a product takes in tiles of an atom, and how many of these it has."""

    time: float
    tiles: int
    name: str


def times_of(
    kind: str, rows: int, columns: int, others: int, steps: int, multiprocessors: int
) -> list[Timed]:
    """For each atom of a kind, the first the fastest, the time of `others` products of so many rows
    and columns, each of so many steps."""
    times: list[Timed] = []
    for name, atom in PRODUCTS.items():
        if f"_{kind}_" in name and atom.m <= GROUP:
            tiles = -(-rows // atom.m) * -(-columns // atom.n) * others
            times.append(Timed(share(atom, tiles, steps, multiprocessors)[0], tiles, name))
    return sorted(times)


def best_product(kernel: Kernel, factor_kind: str, rank: int, multiprocessors: int) -> str:
    """The atom whose last block ends first, or next, of `factor_kind` for factors of float32; ""
    where none is worth its while."""
    if inside := nested(kernel):
        columns = GROUP if points(inside.column) > GROUP // 2 else GROUP // 2
        many = points(kernel.row_axes) // points(inside.column) >= inside.most * multiprocessors
        rows = inside.most if many else GROUP
        return f"mma_{SHORT[inside.arrays[0][0].dtype]}_{rows}x{columns}"
    if not (arrays := factors(kernel, factor_kind)):
        return ""
    (first, row, _), (_, column, step) = arrays
    kind = factor_kind if first.dtype is float32 else SHORT[first.dtype]
    others = points(kernel.row_axes) // points(row + column)
    (inner,) = (points(axes) // points(step) for node in kernel.nodes if (axes := bound_axes(node)))
    steps = -(-points(step) * first.dtype.itemsize // LINE) * inner
    times = times_of(kind, points(row), points(column), others, steps, multiprocessors)
    min_tiles = FEW_TILES if kind == "f32" else 1
    return next((name for _, tiles, name in times[rank:]
                 if tiles >= min_tiles or tiles * steps >= min_tiles**2), "")  # fmt: skip

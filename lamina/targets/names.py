"""Names in generated text, for readers: of loops by what they run over, of values by what computes
them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lamina.graph import index as ix
from lamina.ir.kernel import bound_axes
from lamina.ir.monoids import ADD, MUL, Monoid
from lamina.ir.node import Node
from lamina.loops.nest import Nest, TileFill
from lamina.schedule.gpu.atoms import ATOMS

# What the sub-loops of a split axis are called, by how many there are.
_SUFFIXES = {1: ("",), 2: ("_outer", "_inner"), 3: ("_outer", "_middle", "_inner")}
# The same of rows and columns of products in tiles: the loops over tiles come first.
_TILES = ("_band", "_tile")
# Within a tile of tensor cores: of its rows warpgroups, warps, rows i and i + 8, and i; of its
# columns groups of 8, lanes, and neighbours; as `Atom.row_splits` and `column_splits`.
_ROWS_OF_TENSOR_CORES: tuple[str, ...] = ("_group", "_warp", "_half", "_lane")
_COLUMNS_OF_TENSOR_CORES: tuple[str, ...] = ("_group", "_lane", "_neighbour")


def axis_names(nest: Nest) -> dict[Node, str]:
    """A variable for each axis of `nest`.

    The last axes of a result are ``row`` and ``column``, those before ``batch``; what is reduced
    away is ``k``. One that was split has ``row_outer`` and ``row_inner``. Where there are several
    of a kind, they are numbered. The only axis of a result is ``i``, or ``row`` beside reductions.
    """
    if nest.atom:
        return _names_in_tiles(nest)
    names: dict[Node, str] = {}
    reductions = [node for node in nest.kernel.nodes if bound_axes(node)]
    # First the stores with the most axes; others share the names of the axes that they have.
    stores = sorted(nest.kernel.stores, key=lambda store: -len(store.axes))
    for store in stores:
        whole = _unsplit(nest, store.axes)
        for axis, kind in zip(whole, _kinds_of_result(len(whole), bool(reductions)), strict=True):
            names.setdefault(axis, kind)
    for reduction in reductions:
        for axis in _unsplit(nest, bound_axes(reduction)):
            names.setdefault(axis, "k")
    for axis in _unsplit(nest, nest.order):
        names.setdefault(axis, "i")
    return {
        sub_loop: name + suffix
        for axis, name in _numbered(names).items()
        for sub_loop, suffix in _with_suffixes(nest.sub_loops(axis).axes)
    }


@dataclass(frozen=True)
class _TileLoops:
    """The loops of a nest with products in tiles, outermost first.

    batch    around all tiles
    rows     of results, and `columns`
    keys     that outer products of products back to back reduce: the rows of tiles of keys
    reduced  all other loops that are reduced
    """

    batch: Sequence[Node]
    rows: Sequence[Node]
    columns: Sequence[Node]
    keys: Sequence[Node]
    reduced: Sequence[Node]

    @staticmethod
    def of(nest: Nest) -> "_TileLoops":
        """Those of a nest, whose largest result has all rows and columns."""
        all_reduced = [axis for node in nest.kernel.nodes for axis in bound_axes(node)]
        rows, *others = map(_loops_of, nest.tiles)
        keys = next((loops for loops in (rows, *others) if loops[0] in all_reduced), [])
        batch = nest.order[: nest.order.index(rows[0])]
        largest = max(nest.kernel.stores, key=lambda store: len(store.axes))
        columns = [axis for axis in largest.axes if axis not in (*batch, *rows)]
        return _TileLoops(
            batch, rows, columns, keys, [axis for axis in all_reduced if axis not in keys]
        )


def _names_in_tiles(nest: Nest) -> dict[Node, str]:
    """A variable for each axis of a nest with products in tiles, and of its tiles.

    A tile has a ``row`` or a ``column``, and a ``k``; so does a kernel of products back to back,
    in which inner products reduce ``k0`` away, and outer ones ``k1``. Axes without tiles are
    ``batch``. The loops by which rows, columns and ``k1`` are walked have names as in `_TILES`:
    ``row_band``, ``row_tile``, and with tensor cores ``row_group``, ``row_warp``, ``row_half`` and
    ``row_lane``; without them ``row_0``, ``row_1`` and so on.
    """
    loops = _TileLoops.of(nest)
    names = _numbered(_kinds_in_tiles(nest, loops))
    row_endings, column_endings = _ROWS_OF_TENSOR_CORES, _COLUMNS_OF_TENSOR_CORES
    if ATOMS[nest.atom].instruction != "mma":
        row_endings = _numbers(len(loops.rows) - len(_TILES))
        column_endings = _numbers(len(loops.columns) - len(_TILES))
    names |= _with_endings("row", loops.rows, (*_TILES, *row_endings))
    names |= _with_endings("column", loops.columns, (*_TILES, *column_endings))
    for tile in nest.tiles:
        if loops.keys and _loops_of(tile) == loops.keys:
            (name,) = (names[axis] for axis in tile.axes if not axis.arg.reduce)
            names |= _with_endings(name, loops.keys, ("_tile", *_COLUMNS_OF_TENSOR_CORES))
    return names


def _kinds_in_tiles(nest: Nest, loops: _TileLoops) -> dict[Node, str]:
    """What each axis of a nest with tiles, and of these, is: ``batch``, ``row``, ``column`` or
    ``k``."""
    kinds = dict.fromkeys(loops.batch, "batch")
    kinds |= dict.fromkeys(loops.reduced, "k")
    for tile in nest.tiles:
        side = _side_of(tile, loops)
        for axis in tile.axes:  # one that is reduced, but not here, is along the columns of results
            kinds.setdefault(axis, "column" if axis.arg.reduce else side)
    return kinds


def _side_of(tile: TileFill, loops: _TileLoops) -> str:
    """What the rows of a tile are: rows of results; keys, which are named k in the text, as outer
    products add up over them; or columns."""
    walked = _loops_of(tile)
    if walked == loops.rows:
        return "row"
    return "k" if walked == loops.keys else "column"


def _loops_of(tile: TileFill) -> list[Node]:
    """The loops that walk the rows of a tile, or its columns, outermost first."""
    return list(ix.terms_of(tile.row_index)[0])


def _with_endings(name: str, loops: Sequence[Node], endings: Sequence[str]) -> dict[Node, str]:
    """``row_band`` and so on, of loops over one axis."""
    return {loop: name + ending for loop, ending in zip(loops, endings, strict=True)}


def _numbers(count: int) -> tuple[str, ...]:
    """``_0``, ``_1`` and so on."""
    return tuple(f"_{number}" for number in range(count))


def _unsplit(nest: Nest, axes: Iterable[Node]) -> list[Node]:
    """The axes before they were split, each by its outermost sub-loop, in the order in which the
    first of its sub-loops comes: of a0 and a1 split from one axis, and a2, this is a0 and a2."""
    return list(dict.fromkeys(nest.sub_loops(axis).axes[0] for axis in axes))


def _kinds_of_result(count: int, is_reduced: bool) -> Sequence[str]:
    """What the `count` axes of a result are, outermost first."""
    if count == 1:
        return ["row" if is_reduced else "i"]
    return [*["batch"] * (count - 2), "row", "column"][-count:] if count else []


def _numbered(names: dict[Node, str]) -> dict[Node, str]:
    """`names`, with a number at those that several axes have: ``k0`` and ``k1``."""
    axes_with = Counter(names.values())
    numbered_so_far = Counter[str]()
    unique = {}
    for axis, name in names.items():
        if axes_with[name] == 1:
            unique[axis] = name
        else:
            unique[axis] = f"{name}{numbered_so_far[name]}"
            numbered_so_far[name] += 1
    return unique


def _with_suffixes(sub_loops: Sequence[Node]) -> Iterable[tuple[Node, str]]:
    """Each sub-loop of an axis, and what its name ends in: `_SUFFIXES`; of more than three ``_0``,
    ``_1`` and so on."""
    count = len(sub_loops)
    return zip(sub_loops, _SUFFIXES.get(count, _numbers(count)), strict=True)


def monoid_name(monoid: Monoid) -> str:
    """What a reduction by `monoid` is called: ``sum``, ``max``, ``argmax``."""
    return {ADD: "sum", MUL: "product"}.get(monoid, monoid.name.lower())

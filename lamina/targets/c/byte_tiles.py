"""Sums of products of bytes in C, by instructions on tiles: of up to 16 rows of 64 bytes.

An axis bound to ``tile`` has up to 16 words of four bytes, each of which an axis bound to ``dot``
has. One instruction (`c/byte_tiles.c`) multiplies them for the unrolled rows and for the lanes of a
register tile of a product. Of 16 rows, and of 32 columns as two vectors of 16 lanes, which are in a
panel of 128 bytes for each four steps:

    i32x16 tile_1[16];
    i32x16 tile_2[16];
    {
        TILES(16, 16, 16)                                       rows, words and lanes
        ZERO_TILE(0)
        ZERO_TILE(1)
        for (i64 k_outer = 0; k_outer < 12; k_outer++) {
            LOAD_ROWS(4, p0 + 64 * k_outer + ..., 768)          from a row to the next, 768 bytes
            LOAD_WORDS(5, p6 + 2048 * k_outer + ..., 128)
            TILE_DOT(0, i8, 4, u8, 5)
            LOAD_WORDS(6, p6 + 2048 * k_outer + ... + 64, 128)
            TILE_DOT(1, i8, 4, u8, 6)
        }
        STORE_TILE(0, tile_1)
        STORE_TILE(1, tile_2)
        END_TILES
    }
    const i32x16 sum_3 = tile_1[0];                             of each row and vector

Words that are left over are tiles of fewer words, and bytes that are left over go to the sums as
`dots.py` prints them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.core.dtypes import DType, int64
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.loops.nest import WORDS_OF_TILE
from lamina.targets.c.dots import WORD, DotPrinter
from lamina.targets.c.operations import TYPES
from lamina.targets.language import Point, Value
from lamina.targets.parts import Fixed, Loop, NestPart, Unrolled, Word
from lamina.targets.reductions import Accumulation, Work
from lamina.targets.scopes import Scope
from lamina.targets.values import load_of

BYTE_TILES = "c/byte_tiles.c"
# Registers of tiles, by number: 0 to 3 are of sums, one for each vector of a row, this one of the
# rows, and the last ones of words, one for each vector.
ROW_TILE, WORD_TILES = 4, (5, 6, 7)


@dataclass(frozen=True)
class _Factor:
    """A factor as a tile reads it: which array, where, and how far its rows are apart in bytes."""

    parameter: int
    index: Node
    dtype: DType
    step: int


@dataclass(frozen=True)
class _ByteTile:
    """What one part of the loops of a sum does with tiles.

    words: the axis bound to ``tile``, and how many words it has there, `count`
    row: the unrolled axis of the rows, and how they run, `rows`
    lanes: of a vector of sums
    left, right: the factors, of rows and of words
    """

    words: Node
    count: int
    row: Node
    rows: Unrolled
    lanes: int
    left: _Factor
    right: _Factor


class ByteTilePrinter(DotPrinter):
    """One kernel function, which may have axes bound to ``tile``."""

    def print_part(self, part: NestPart, work: Work) -> None:
        """One part of the loops of `work`: by tiles where these fit, or else word by word."""
        tile = self._tile_of(part, work)
        if tile is None:
            super().print_part(part, work)
        else:
            self._print_tiles(tile, part, work.sums)

    def _tile_of(self, part: NestPart, work: Work) -> _ByteTile | None:
        """The tile of `part`; None where no axis is bound to ``tile``, where bytes of the words
        lack, or where the factors do not lie as tiles do."""
        words = next((axis for axis in work.axes if self.nest.bound(axis) == "tile"), None)
        if words is None or work.stores or len({each.reduction for each in work.sums}) != 1:
            return None
        steps = part[words]
        if part.get(work.axes[-1]) != Word(WORD):
            return None
        if not isinstance(steps, Loop) or steps.first != 0 or steps.iterations > WORDS_OF_TILE:
            return None
        return self._tile_of_sums(words, steps.iterations, work)

    def _tile_of_sums(self, words: Node, count: int, work: Work) -> _ByteTile | None:
        """The tile of `work`, all of whose sums are of one reduction, with `count` words along the
        axis `words`; None where the factors do not lie as tiles do."""
        reduction = work.sums[0].reduction
        lane = next((axis for axis in self.vectors if axis in free_axes(reduction)), None)
        factors = [self._load_in_tile(cast.src[0]) for cast in reduction.src[0].src]
        of_rows = [load for load in factors if lane not in free_axes(load)]
        of_words = [load for load in factors if lane in free_axes(load)]
        if lane is None or len(of_rows) != 1 or len(of_words) != 1:
            return None
        (row_load,), (word_load,) = of_rows, of_words
        row = next((axis for axis in self.unrolled if axis in free_axes(row_load)), None)
        if row is None or row in free_axes(word_load):
            return None
        dot, rows = work.axes[-1], self.unrolled[row]
        left = _factor(row_load, row, {words: WORD, dot: 1}, (words, dot))
        right = _factor(word_load, words, {lane: WORD, dot: 1}, (words, dot))
        vectors_of_row = len(work.sums) / rows.copies
        # A tile has as many rows as words.
        fits = rows.copies <= WORDS_OF_TILE and vectors_of_row <= len(WORD_TILES)
        if left is None or right is None or not fits:
            return None
        return _ByteTile(words, count, row, rows, self.vectors[lane].lanes, left, right)

    def _load_in_tile(self, factor: Node) -> Node:
        """`factor`, or the load of scratch memory that has it."""
        return load_of(self.staged[factor]) if factor in self.filled else factor

    def _print_tiles(self, tile: _ByteTile, part: NestPart, sums: Sequence[Accumulation]) -> None:
        """Print the loops of one part, and what they come to for each of `sums`."""
        self.language.use_text(BYTE_TILES)
        first_row = {tile.row: tile.rows.first}
        # Each vector of the first row has a tile, whose sums end in an array.
        vectors = [each.point for each in sums if each.point | first_row == each.point]
        arrays = [self.fresh_name("tile") for _ in vectors]
        kind = self.language.vector_type("i32", tile.lanes)
        self.lines(f"{kind} {array}[{tile.rows.copies}];" for array in arrays)
        self.scopes.append(Scope("{"))
        self.line(f"TILES({tile.rows.copies}, {tile.count}, {tile.lanes})")
        self.lines(f"ZERO_TILE({number})" for number in range(len(arrays)))
        with self.opened({**part, tile.words: Fixed(0)}):
            self._print_step(tile, vectors)
        self.lines(f"STORE_TILE({number}, {array})" for number, array in enumerate(arrays))
        self.line("END_TILES")
        self.close_loop()
        for each in sums:
            array = arrays[vectors.index(each.point | first_row)]
            self._add_sum_of_tile(tile, array, each)

    def _add_sum_of_tile(self, tile: _ByteTile, array: str, each: Accumulation) -> None:
        """Add to a sum what its row and vector of a tile came to, which is in an array."""
        row = each.point[tile.row] - tile.rows.first
        value = Value(f"{array}[{row}]", each.reduction.dtype, tile.lanes)
        each.accumulators.append((self.declare(value, "sum", mutable=True),))

    def _print_step(self, tile: _ByteTile, vectors: Sequence[Point]) -> None:
        """Print the body of the innermost loop: one instruction for each of `vectors`, the points
        of the first row."""
        left, right = tile.left, tile.right
        self.line(f"LOAD_ROWS({ROW_TILE}, {self._address(left, vectors[0])}, {left.step})")
        left_type, right_type = TYPES[left.dtype], TYPES[right.dtype]
        for number, point in enumerate(vectors):
            words = WORD_TILES[number]
            self.line(f"LOAD_WORDS({words}, {self._address(right, point)}, {right.step})")
            self.line(f"TILE_DOT({number}, {left_type}, {ROW_TILE}, {right_type}, {words})")

    def _address(self, factor: _Factor, point: Point) -> str:
        """Where the first byte of a tile is: ``p0 + 64 * k_outer``."""
        return f"p{factor.parameter} + {self.index_text(factor.index, point)}"


def _factor(
    load: Node, row: Node, strides: dict[Node, int], steps: Sequence[Node]
) -> _Factor | None:
    """A factor whose rows of a tile lie along `row`, if its index has these `strides` in a row;
    None if not, if a condition leaves anything out, or if it is computed. steps: the axes along
    which a tile reads; its address is at the first index of each."""
    if load.op is not Op.LOAD or load.src[1:]:
        return None
    terms, _ = ix.terms_of(load.src[0])
    if any(terms.get(axis) != stride for axis, stride in strides.items()):
        return None
    if row not in terms or any(term.op is not Op.AXIS for term in terms):
        return None
    at_first_step = ix.replaced(load.src[0], dict.fromkeys(steps, const(0, int64)))
    return _Factor(load.arg.parameter, at_first_step, load.dtype, terms[row])

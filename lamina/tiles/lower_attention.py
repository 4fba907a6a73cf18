"""From the nest of products back to back, such as attention, to their tile program.

Forward attention of 2 heads of 256 queries and keys with 64 elements, without what orders fills and
uses, which `barriers_of_attention.py` adds:

    alloc tile0: shared bf16[2][row 128, element 64] swizzle(3, 4, 3)
    alloc tile1: shared bf16[8][key 64, element 64] swizzle(3, 4, 3)
    alloc tile2: shared bf16[8][key 64, element 64] swizzle(3, 4, 3)
    alloc inner0: registers f32[1][row 128, key 64] linear
    ...
    role producer: warps=4 registers=24
      for tile in tickets ...
        fill tile0 <- p0[...] by tma
        for brought step over r9 4
          fill tile1 <- p1[...] by tma
          fill tile2 <- p2[...] by tma
    role consumers: warps=8 registers=240
      for tile in tickets ...
        set totals0 <- 0.0
        ...
        for overlapped step over r9 4
          mma inner0 = tile0 * tile1 by wgmma
          compute over ...
            reduce v1: f32 = max v0
            ...
            set parts0 <- v12
          rescale totals0 by factor
          set left0 <- parts0
          mma totals0 += left0 * tile2 by wgmma_of_registers
        compute ...
        epilogue
          ...

Where the copy engine cannot bring all tiles, or tensor cores do not run by themselves, one role
does all of this, step by step: its threads fill the tiles, multiply them and compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from lamina.core.dtypes import DType, float32
from lamina.core.target import Target
from lamina.ir.kernel import free_axes, points
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import uncast_factors
from lamina.loops.nest import Nest
from lamina.schedule.gpu.attention import before_rounding
from lamina.schedule.gpu.pipelining import CONSUMERS
from lamina.tiles.attention import (
    BackToBackDecisions,
    BackToBackParts,
    FactorTile,
    decide_back_to_back,
)
from lamina.tiles.barriers_of_attention import synchronised_attention
from lamina.tiles.computed import Body
from lamina.tiles.layouts import SWIZZLE_128
from lamina.tiles.lower_common import (
    Results,
    extents,
    factor_source,
    first_of_tile,
    index_of,
    parameters_of,
    producer_and_consumers,
    row_line_allocs,
    tile_variables,
    without,
)
from lamina.tiles.program import (
    WARPGROUP_WARPS,
    Alloc,
    Compute,
    Epilogue,
    Fill,
    Mma,
    Product,
    Rescale,
    Role,
    RowReduce,
    Set,
    Shift,
    Statement,
    StepLoop,
    StepMask,
    StepsOf,
    Tickets,
    TileAxis,
    TileLoop,
    TileProgram,
)
from lamina.tiles.values import Digits, Extent, Index, Map

ROW_MAX, SHIFT, FACTOR = "row_max", "shift", "factor"


def lower_attention(name: str, nest: Nest, target: Target) -> TileProgram:
    """The program of a nest with products back to back, with its barriers."""
    parts = BackToBackParts(nest)
    blocks = min(points(parts.grid), target.multiprocessors)
    program = _Lowering(parts, decide_back_to_back(parts, target), blocks).program(name)
    return synchronised_attention(program)


@dataclass(frozen=True)
class _Lowering:
    """A nest on its way to a program."""

    parts: BackToBackParts
    decisions: BackToBackDecisions
    blocks: int

    def program(self, name: str) -> TileProgram:
        """The program without its barriers."""
        parameters = parameters_of(self.parts.nest.kernel)
        return TileProgram(name, parameters, self._allocs(), (), self._roles())

    def _roles(self) -> tuple[Role, ...]:
        """A producer and consumers, or one role whose threads fill what they multiply."""
        groups, (staying, passing) = self.parts.warpgroups, self._fills()
        if not self.decisions.has_producer:
            body = self._tiles((*staying, *self._multiply(passing, StepsOf.BROUGHT)))
            return (Role(CONSUMERS, groups * WARPGROUP_WARPS, body),)
        filling = self._tiles((*staying, self._steps(passing, StepsOf.BROUGHT)))
        which = StepsOf.OVERLAPPED if self.decisions.is_ahead else StepsOf.COMPUTED
        return producer_and_consumers(filling, self._tiles(self._multiply((), which)), groups)

    @cached_property
    def _has_maximum(self) -> bool:
        """Whether the shift follows the maximum of a row, so that sums are rescaled."""
        return self.parts.reductions.exp_factor.row_max is not None

    # Memory.

    def _allocs(self) -> tuple[Alloc, ...]:
        """Lines for results, the buffers, and the registers."""
        parts, reductions = self.parts, self.parts.reductions
        atom, dtype = parts.atom, parts.atom.dtype
        row, key = TileAxis("row", atom.m), TileAxis("key", reductions.keys.keys_of_tile)
        allocs = row_line_allocs(parts.nest, self.decisions.row_stores, atom.m)
        for buffer, tile in zip(parts.buffers, parts.tiles, strict=True):
            first = key if tile.passes_by else row
            axes = (first, TileAxis("element", tile.shape[1]))
            if tile.is_transposed:
                axes = axes[::-1]
            stages = self.decisions.passing if tile.passes_by else self.decisions.staying
            allocs.append(Alloc(buffer, "shared", dtype, stages, axes, SWIZZLE_128))

        def registers(name: str, axis: TileAxis, of: DType = float32) -> None:
            allocs.append(Alloc(name, "registers", of, 1, (row, axis)))

        of_row, element = TileAxis("one", 1), TileAxis("element", atom.n)
        for number in range(len(reductions.inner)):
            registers(f"inner{number}", key)
        for number in range(len(reductions.outer)):
            registers(f"totals{number}", element)
            registers(f"parts{number}", key)
            registers(f"left{number}", key, dtype)
        for number in range(len(reductions.of_rows)):
            registers(f"row_sums{number}", of_row)
        if self._has_maximum:
            for name in (ROW_MAX, SHIFT, FACTOR):
                registers(name, of_row)
        return tuple(allocs)

    # Loops.

    def _tiles(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """The loop over tiles of rows, which a block takes by tickets."""
        parts = self.parts
        tiles, steps = points(parts.grid), parts.reductions.keys.tile.arg.size
        over = tile_variables(parts.grid)
        tickets = Tickets(parts.row_tiles, parts.arrays_together, parts.is_last_first)
        share = steps * -(-tiles // self.blocks)
        masks = [
            StepMask(index_of(mask.place), mask.low, mask.high, mask.slope, mask.by_warpgroup)
            for mask in parts.masks
        ]
        body = (*masks, *body)
        loop = TileLoop("tickets", tiles, steps, self.blocks, share, over, body, tickets)
        return (loop,)

    def _steps(self, body: Sequence[Statement], which: StepsOf) -> StepLoop:
        tile = self.parts.reductions.keys.tile
        return StepLoop(extents([tile]), tuple(body), which)

    def _fills(self) -> tuple[Sequence[Fill], Sequence[Fill]]:
        """What fills the tiles that stay, and those that pass by."""
        agent = "tma" if self.decisions.has_producer else "threads"
        fills = [
            Fill(buffer, factor_source(tile.fill, self._first(tile), Index()), agent)
            for buffer, tile in zip(self.parts.buffers, self.parts.tiles, strict=True)
        ]
        staying = self.parts.staying
        return fills[:staying], fills[staying:]

    def _first(self, tile: FactorTile) -> Index:
        """The first row of a tile: of a tile of keys by the number of that."""
        index, keys = tile.fill.row_index, self.parts.reductions.keys
        if not tile.passes_by:
            return first_of_tile(self.parts.nest, index)
        return index_of(without(index, (keys.column_group, keys.lane, keys.neighbour)))

    # What consumers do.

    def _multiply(self, fills: Sequence[Fill], which: StepsOf) -> tuple[Statement, ...]:
        """What consumers do for a tile of rows: multiply, in `which` steps, each of which begins
        with `fills`, and store."""
        reductions = self.parts.reductions
        inner_tiles, outer_tiles = self.parts.factor_numbers
        buffers = self.parts.buffers
        inner = [
            Product(f"inner{number}", buffers[left], buffers[right])
            for number, (left, right) in enumerate(inner_tiles)
        ]
        outer = [
            Product(f"totals{number}", f"left{number}", buffers[right])
            for number, right in enumerate(outer_tiles)
        ]
        outer_numbers = range(len(reductions.outer))
        totals = [f"totals{number}" for number in outer_numbers]
        rescales = [Rescale(name, FACTOR) for name in totals if self._has_maximum]
        unit = self.decisions.unit
        body: list[Statement] = [
            *fills,
            Mma(tuple(inner), unit, adds=False),
            self._elements(),
            *rescales,
            *(Set(f"left{number}", f"parts{number}") for number in outer_numbers),
            Mma(tuple(outer), f"{unit}_of_registers", adds=True),
        ]
        loop = self._steps(body, which)
        return (*self._starts(totals), loop, *self._finish(totals), self._epilogue())

    def _starts(self, totals: Sequence[str]) -> list[Statement]:
        """What all keys add up to begins at 0, and maxima at -inf."""
        row_sums = [f"row_sums{number}" for number in range(len(self.parts.reductions.of_rows))]
        starts: list[Statement] = [Set(name, 0.0) for name in (*totals, *row_sums)]
        if self._has_maximum:
            starts += [Set(ROW_MAX, -inf), Set(SHIFT, -inf), Set(FACTOR, 1.0)]
        return starts

    def _elements(self) -> Compute:
        """What is computed from the sums of inner products: the left factors of outer products, and
        what else is summed up. The interpreter runs this; `targets/cuda/attention_elements.py`
        prints the same from the nest, and is to be changed together with it."""
        reductions = self.parts.reductions
        body = _RegisterBody()
        for number, reduction in enumerate(reductions.inner):
            body.names[reduction] = f"inner{number}"
        if reductions.exp_factor.row_max is not None:
            self._move_shift(body, reductions.exp_factor.row_max)
        for number, reduction in enumerate(reductions.of_rows):
            self._add_to_sum_of_row(body, f"row_sums{number}", reduction.src[0])
        row_half = self.parts.registers.row_half
        for number, reduction in enumerate(reductions.outer):
            factors = uncast_factors(reduction.src[0])
            (left,) = (node for node in factors if row_half in free_axes(node))
            value = before_rounding(left)
            body.compute([value])
            body.statements.append(Set(f"parts{number}", body.names[value]))
        keys = reductions.keys
        key_loops = (keys.tile, keys.column_group, keys.lane, keys.neighbour)
        first = Index(((extents([keys.tile])[0].name, keys.keys_of_tile),))
        sides = self._row_digits, Digits(first, extents(key_loops))
        return Compute(sides, tuple(body.statements))

    def _move_shift(self, body: "_RegisterBody", row_max: Node) -> None:
        """Append the maximum of each row so far and the shift from this tile on, which then stands
        for the one of all keys."""
        exp_factor = self.parts.reductions.exp_factor
        body.compute([exp_factor.exponent])
        of_tile = body.reduce(MAX, body.names[exp_factor.exponent])
        maximum = body.map(Op.MAX, ROW_MAX, of_tile)
        body.statements.append(Set(ROW_MAX, maximum))
        body.names[row_max] = maximum
        body.compute([exp_factor.shift])
        wanted, target = body.names[exp_factor.shift], body.new_name()
        body.statements.append(Shift(target, FACTOR, SHIFT, ROW_MAX, wanted))
        body.names[exp_factor.shift] = target

    def _add_to_sum_of_row(self, body: "_RegisterBody", name: str, term: Node) -> None:
        """Append what adds a term, at all keys of a tile, to a sum of each row."""
        body.compute([term])
        added = body.reduce(ADD, body.names[term])
        before = body.map(Op.MUL, name, FACTOR) if self._has_maximum else name
        body.statements.append(Set(name, body.map(Op.ADD, before, added)))

    def _finish(self, totals: Sequence[str]) -> list[Statement]:
        """Sums are relative to the shift so far, which may differ from the final one by up to
        SHIFT_THRESHOLD: they are rescaled by ``exp(shift so far - final shift)``."""
        exp_factor = self.parts.reductions.exp_factor
        if exp_factor.row_max is None:
            return []
        body = _RegisterBody()
        body.names[exp_factor.row_max] = ROW_MAX
        body.compute([exp_factor.shift])
        negated = body.map(Op.NEG, body.names[exp_factor.shift])
        factor = body.map(Op.EXP, body.map(Op.ADD, SHIFT, negated))
        body.statements.append(Set(FACTOR, factor))
        for number in range(len(self.parts.reductions.of_rows)):
            name = f"row_sums{number}"
            body.statements.append(Set(name, body.map(Op.MUL, name, FACTOR)))
        body.statements += [Rescale(name, FACTOR) for name in totals]
        sides = self._row_digits, Digits(Index(), (Extent("one", 1),))
        return [Compute(sides, tuple(body.statements))]

    # Results.

    @property
    def _results(self) -> Results:
        return Results(self.parts.nest, self.parts.result_sides, self.decisions.row_stores)

    @property
    def _row_digits(self) -> Digits:
        """The rows of a tile by their sub-loops."""
        rows, _ = self._results.digits
        return rows

    def _epilogue(self) -> Epilogue:
        reductions = self.parts.reductions
        names: dict[Node, str] = {}
        if reductions.exp_factor.row_max is not None:
            names[reductions.exp_factor.row_max] = ROW_MAX
        names |= {node: f"row_sums{number}" for number, node in enumerate(reductions.of_rows)}
        names |= {node: f"totals{number}" for number, node in enumerate(reductions.outer)}
        return self._results.epilogue(names)


class _RegisterBody(Body):
    """The body of a computation on registers, whose loads are all by element."""

    def __init__(self) -> None:
        super().__init__(view_of=lambda load: None)

    def map(self, op: Op, *operands: str) -> str:
        """Append an operation on values of float32; the result is its name."""
        name = self.new_name()
        self.statements.append(Map(name, float32, op, operands))
        return name

    def reduce(self, monoid: Monoid, value: str) -> str:
        """Append a reduction of the rows of a value; the result is its name."""
        name = self.new_name()
        self.statements.append(RowReduce(name, float32, monoid, value))
        return name

"""From the nest of products back to back, such as attention, to their tile program.

Forward attention of 2 heads of 256 queries and keys with 64 elements, without what orders fills and
uses, which `barriers_of_attention.py` adds:

    alloc tile0: shared bf16[2][row 128, element 64] swizzle(3, 4, 3)
    alloc tile1: shared bf16[8][step 64, element 64] swizzle(3, 4, 3)
    alloc tile2: shared bf16[8][step 64, column 64] swizzle(3, 4, 3)
    alloc inner0: registers f32[1][row 128, step 64] linear
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
          multiply inner0 = tile0 * tile1 by wgmma
          compute over ...
            reduce v1: f32 = max v0
            ...
            set parts0 <- v12
          rescale totals0 by factor
          set left0 <- parts0
          multiply totals0 += left0 * tile2 by wgmma_of_registers
        compute ...
        epilogue
          ...
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from lamina.core.dtypes import DType, float32
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes, points
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.schedule.gpu.attention import factors_of
from lamina.schedule.gpu.pipelining import CONSUMERS, PRODUCER
from lamina.tiles.attention import (
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    BackToBackParts,
    FactorTile,
    Stages,
    stages_of,
    why_not_in_tiles,
)
from lamina.tiles.barriers_of_attention import synchronised_attention
from lamina.tiles.computed import Body
from lamina.tiles.decisions import name_of_lines
from lamina.tiles.layouts import SWIZZLE_128, layout_of_lines
from lamina.tiles.lower import (
    NoViewError,
    UnloweredError,
    extents,
    first_of_tile,
    index_of,
    placing_loads,
    require_view,
    result_view,
    stride_of,
    without,
)
from lamina.tiles.program import (
    GROUP_WARPS,
    Alloc,
    Axis,
    Compute,
    Epilogue,
    Fill,
    Mask,
    Multiply,
    Parameter,
    Product,
    Reduce,
    Rescale,
    Role,
    Set,
    Shift,
    Statement,
    StepLoop,
    Store,
    Tickets,
    TileLoop,
    TileProgram,
)
from lamina.tiles.values import Digits, Extent, Index, Map, Places, Side, View

ROW_MAX, SHIFT, FACTOR = "row_max", "shift", "factor"


def lower_attention(name: str, nest: Nest, target: Target) -> TileProgram:
    """The program of a nest with products back to back, with its barriers. Raises UnloweredError,
    naming what the dialect cannot say yet."""
    parts = BackToBackParts(nest)
    reason = why_not_in_tiles(parts, target)
    if reason:
        raise _unlowered(reason)
    stages = stages_of(parts, target)
    assert stages is not None  # no room is a reason
    blocks = min(points(parts.grid), target.multiprocessors)
    try:
        program = _Lowering(parts, stages, blocks).program(name)
    except NoViewError:
        raise _unlowered("of factors that no view says") from None
    return synchronised_attention(program)


def _unlowered(what: str) -> UnloweredError:
    return UnloweredError(f"tiles: not in the dialect yet: products back to back {what}")


@dataclass(frozen=True)
class _Lowering:
    """A nest on its way to a program."""

    parts: BackToBackParts
    stages: Stages
    blocks: int

    def program(self, name: str) -> TileProgram:
        """The program without its barriers."""
        parts = self.parts
        parameters = tuple(
            Parameter(f"p{number}", parameter.dtype, parameter.size, parameter.written)
            for number, parameter in enumerate(parts.nest.kernel.parameters)
        )
        registers = CONSUMER_REGISTERS[parts.groups]
        roles = (
            Role(PRODUCER, GROUP_WARPS, self._tiles(self._fills()), registers=PRODUCER_REGISTERS),
            Role(
                CONSUMERS, parts.groups * GROUP_WARPS, self._tiles(self._multiply()),
                registers=registers,
            ),
        )  # fmt: skip
        return TileProgram(name, parameters, self._allocs(), (), roles)

    @cached_property
    def _has_maximum(self) -> bool:
        """Whether the shift follows the maximum of a row, so that sums are rescaled."""
        return self.parts.reductions.exp_factor.row_max is not None

    # Memory.

    def _allocs(self) -> tuple[Alloc, ...]:
        """Lines for results, the buffers, and the registers."""
        parts, reductions = self.parts, self.parts.reductions
        atom, dtype = parts.atom, parts.atom.dtype
        row, step = Axis("row", atom.m), Axis("step", reductions.steps.steps_of_tile)
        allocs: list[Alloc] = []
        for store in parts.row_stores:
            of = store.value.dtype
            line = Axis("column", LINE_BYTES // of.itemsize)
            name = name_of_lines(parts.nest.kernel, store)
            allocs.append(Alloc(name, "shared", of, 1, (row, line), layout_of_lines(of)))
        for number, tile in enumerate(parts.tiles):
            first = step if tile.passes_by else row
            axes = (first, Axis("element", tile.shape[1]))
            if tile.is_transposed:
                axes = axes[::-1]
            stages = self.stages.passing if tile.passes_by else self.stages.staying
            allocs.append(Alloc(f"tile{number}", "shared", dtype, stages, axes, SWIZZLE_128))

        def registers(name: str, axis: Axis, of: DType = float32) -> None:
            allocs.append(Alloc(name, "registers", of, 1, (row, axis)))

        of_row, element = Axis("one", 1), Axis("element", atom.n)
        for number in range(len(reductions.inner)):
            registers(f"inner{number}", step)
        for number in range(len(reductions.outer)):
            registers(f"totals{number}", element)
            registers(f"parts{number}", step)
            registers(f"left{number}", step, dtype)
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
        tiles, steps = points(parts.grid), parts.reductions.steps.tile.arg.size
        # An axis of one step is always 0, and stands in no index.
        axes = [axis for axis in parts.grid if axis.arg.size > 1] or parts.grid[-1:]
        tickets = Tickets(parts.row_tiles, parts.arrays_together, parts.is_last_first)
        share = steps * -(-tiles // self.blocks)
        masks = [
            Mask(index_of(mask.place), mask.low, mask.high, mask.slope, mask.by_group)
            for mask in parts.masks
        ]
        body = (*masks, *body)
        loop = TileLoop("tickets", tiles, steps, self.blocks, share, extents(axes), body, tickets)
        return (loop,)

    def _steps(self, body: Sequence[Statement], steps: str) -> StepLoop:
        tile = self.parts.reductions.steps.tile
        return StepLoop(extents([tile]), tuple(body), steps)

    def _fills(self) -> tuple[Statement, ...]:
        """What the producer does for a tile of rows."""
        fills = [
            Fill(f"tile{number}", self._view(tile), "tma")
            for number, tile in enumerate(self.parts.tiles)
        ]
        staying = self.parts.staying
        return (*fills[:staying], self._steps(fills[staying:], "brought"))

    def _view(self, tile: FactorTile) -> View:
        """A load of an array, of whose index the rows and the elements of the tile are one stride
        each. Raises NoViewError for any other factor."""
        load = tile.store.value
        require_view(load.op is Op.LOAD and len(load.src) == 1)
        (index,) = load.src
        rows = tuple(axis for axis in tile.store.axes if not axis.arg.reduce)
        elements = (tile.step_axis,)
        row_side = Side(stride_of(index, rows), self._first(tile), points(rows))
        element_side = Side(stride_of(index, elements), Index(), points(elements))
        sides = (element_side, row_side) if tile.is_transposed else (row_side, element_side)
        return View(f"p{load.arg.parameter}", index_of(without(index, (*rows, *elements))), sides)

    def _first(self, tile: FactorTile) -> Index:
        """The first row of a tile: of a tile of steps by the number of that."""
        index, steps = tile.store.index, self.parts.reductions.steps
        if not tile.passes_by:
            return first_of_tile(self.parts.nest, index)
        return index_of(without(index, (steps.group, steps.lane, steps.neighbour)))

    # What consumers do.

    def _multiply(self) -> tuple[Statement, ...]:
        """What consumers do for a tile of rows: multiply and store."""
        reductions = self.parts.reductions
        inner_tiles, outer_tiles = self.parts.factor_numbers
        inner = [
            Product(f"inner{number}", f"tile{left}", f"tile{right}")
            for number, (left, right) in enumerate(inner_tiles)
        ]
        outer = [
            Product(f"totals{number}", f"left{number}", f"tile{right}")
            for number, right in enumerate(outer_tiles)
        ]
        outer_numbers = range(len(reductions.outer))
        totals = [f"totals{number}" for number in outer_numbers]
        rescales = [Rescale(name, FACTOR) for name in totals if self._has_maximum]
        body: list[Statement] = [
            Multiply(tuple(inner), "wgmma", adds=False),
            self._elements(),
            *rescales,
            *(Set(f"left{number}", f"parts{number}") for number in outer_numbers),
            Multiply(tuple(outer), "wgmma_of_registers", adds=True),
        ]
        loop = self._steps(body, "overlapped" if self.parts.is_ahead else "computed")
        return (*self._starts(totals), loop, *self._finish(totals), self._epilogue())

    def _starts(self, totals: Sequence[str]) -> list[Statement]:
        """What all steps add up to begins at 0, and maxima at -inf."""
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
            factors = factors_of(reduction.src[0])
            (rounded,) = (node for node in factors if row_half in free_axes(node))
            body.compute([rounded.src[0]])
            body.statements.append(Set(f"parts{number}", body.names[rounded.src[0]]))
        steps = reductions.steps
        step_loops = (steps.tile, steps.group, steps.lane, steps.neighbour)
        first = Index(((extents([steps.tile])[0].name, steps.steps_of_tile),))
        sides = self._row_digits(), Digits(first, extents(step_loops))
        return Compute(sides, tuple(body.statements))

    def _move_shift(self, body: "_RegisterBody", row_max: Node) -> None:
        """Append the maximum of each row so far and the shift from this tile on, which then stands
        for the one of all steps."""
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
        """Append what adds a term, at all steps of a tile, to a sum of each row."""
        body.compute([term])
        added = body.reduce(ADD, body.names[term])
        before = body.map(Op.MUL, name, FACTOR) if self._has_maximum else name
        body.statements.append(Set(name, body.map(Op.ADD, before, added)))

    def _row_digits(self) -> Digits:
        """The rows of a tile by their sub-loops."""
        row_index, _ = self.parts.result_sides
        return Digits(Index(), self._sub_loops(row_index.index))

    def _sub_loops(self, index: Node) -> tuple[Extent, ...]:
        """The sub-loops within a tile, whose index this is, the fastest last."""
        strides, _ = ix.terms_of(index)
        within = [axis for axis in strides if self.parts.nest.bound(axis) != "grid"]
        return extents(sorted(within, key=lambda axis: -strides[axis]))

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
        sides = self._row_digits(), Digits(Index(), (Extent("one", 1),))
        return [Compute(sides, tuple(body.statements))]

    # Results.

    def _epilogue(self) -> Epilogue:
        """The arithmetic between sums and stores, and the stores."""
        parts, reductions = self.parts, self.parts.reductions
        kernel = parts.nest.kernel
        body = Body(view_of=self._view_of_load)
        if reductions.exp_factor.row_max is not None:
            body.names[reductions.exp_factor.row_max] = ROW_MAX
        for number, node in enumerate(reductions.of_rows):
            body.names[node] = f"row_sums{number}"
        for number, node in enumerate(reductions.outer):
            body.names[node] = f"totals{number}"
        body.compute([store.value for store in kernel.stores])
        lines = {store: name_of_lines(kernel, store) for store in parts.row_stores}
        for store in kernel.stores:
            to: View | Places
            try:
                to = self._result_view(store.parameter, store.index, (store.condition,))
            except NoViewError:
                to = body.places(store.parameter, store.index, store.condition)
            value = body.operand(store.value)
            body.statements.append(Store(to, value, lines.get(store, "")))
        _, columns = parts.result_sides
        column_digits = Digits(Index(), self._sub_loops(columns.index))
        sides = (self._row_digits(), column_digits) if body.has_places else ()
        return Epilogue(body.results, sides=sides)

    def _view_of_load(self, load: Node) -> View | None:
        if load.op is not Op.LOAD or load in placing_loads(self.parts.nest.kernel):
            return None
        index, *conditions = load.src
        try:
            return self._result_view(load.arg.parameter, index, conditions)
        except NoViewError:
            return None

    def _result_view(self, parameter: int, index: Node, conditions: Sequence[Node]) -> View:
        parts = self.parts
        return result_view(parts.nest, parts.result_sides, parameter, index, conditions)


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
        self.statements.append(Reduce(name, float32, monoid, value))
        return name

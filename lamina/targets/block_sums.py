"""Printing loops in blocks, and totals of blocks that are kept with their rounding error.

`blocks.py` decides which loop runs in blocks, and has the arithmetic of a total. A sum of 100000
numbers, of which each of four accumulators of 8 lanes adds up 3125 in blocks of 32:

    f32x8 total_12 = splat_f32x8(0.0f);                   `Total`: and `lost_13`, `plain_14`
    ...
    for (i64 k_outer_block = 0; k_outer_block < 3125; k_outer_block += 32) {
        f32x8 sum_2 = splat_f32x8(0.0f);                  sums of this block: 3 more
        for (i64 k_outer = k_outer_block; k_outer < (k_outer_block + 32 < 3125 ? ...); k_outer++) {
            const f32x8 load_1 = *(f32x8r *)(p0 + 32 * k_outer);
            sum_2 = (sum_2 + load_1);
            ...
        }
        ...                                               sum_11, of the four
        total_12 = add_16;                                `Total.add`, of sum_11
        ...
    }
    ...
    const f32x8 where_23 = where_f32x8(eq_22, total_12, plain_14);            `Total.value`
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lamina.ir.node import Node, const
from lamina.targets import blocks
from lamina.targets.blocks import Cut
from lamina.targets.combiner import Combiner
from lamina.targets.fills import FillPrinter
from lamina.targets.language import Value
from lamina.targets.parts import Loop, NestPart
from lamina.targets.scopes import Scope


class Total:
    """A total of blocks: variables for the nodes of `blocks.STATE`, in their order."""

    def __init__(self, combiner: Combiner, like: Value, depth: int) -> None:
        """Declare a total of 0, of values such as `like`, in the open scope of number `depth`."""
        self.combiner = combiner
        printer, language = combiner.printer, combiner.language
        scalar = language.literal(const(0.0, like.dtype))
        zero = like._replace(text=language.widened(scalar, like))
        names = [node.arg.name for node in blocks.STATE]
        self.state = tuple(printer.declared_at(depth, zero, name) for name in names)

    def _known(self) -> dict[Node, Value]:
        """The variable for each node of the state."""
        return dict(zip(blocks.STATE, self.state, strict=True))

    def add(self, value: Value) -> None:
        """Print what adds the sum of a block."""
        known = self._known() | {blocks.ADDEND: value}
        new_state = self.combiner.formula(blocks.NEXT_STATE, known)
        for variable, new in zip(self.state, new_state, strict=True):
            self.combiner.printer.line(f"{variable.text} = {new.text};")

    def value(self) -> Value:
        """Print the total as one number."""
        (value,) = self.combiner.formula([blocks.RESULT], self._known())
        return value


@dataclass(frozen=True)
class _BlockLoop:
    """The head of a loop over blocks, and the loop within a block."""

    head: str
    block: Loop


def trips(printer: FillPrinter, part: NestPart, axes: Collection[Node]) -> dict[Node, int]:
    """How often each loop of `part` over one of these `axes` runs in one thread, outermost
    first. A loop of 1000 iterations that 256 threads share runs 4 times."""
    trips = {}
    for axis in printer.nest.order:
        loop_part = part.get(axis)
        if axis in axes and isinstance(loop_part, Loop):
            trips[axis] = -(-loop_part.iterations // printer.stride(axis))  # rounded up
    return trips


@contextmanager
def opened_in_blocks(
    printer: FillPrinter, cut: Cut, part: NestPart
) -> Iterator[NestPart]:
    """Open the loops of `part` around the one that is cut, and then a loop over blocks of that
    one. The result is how all other axes of `part`, the cut one among them, run in a block."""
    before = printer.nest.order[: printer.nest.order.index(cut.axis)]
    outside = {axis: part[axis] for axis in before if isinstance(part.get(axis), Loop)}
    inside = {axis: loop_part for axis, loop_part in part.items() if axis not in outside}
    whole = part[cut.axis]
    assert isinstance(whole, Loop)
    over_blocks = _block_loop(printer, cut, whole)
    with printer.opened(outside):
        printer.scopes.append(Scope())
        yield inside | {cut.axis: over_blocks.block}
        lines = printer.scopes.pop().lines
        printer.braced(over_blocks.head, lines)


def _block_loop(printer: FillPrinter, cut: Cut, whole: Loop) -> _BlockLoop:
    """The loop over blocks of the loop `whole`. The module's example has 3125 iterations in
    blocks of 32, the last of which is shorter; 3200 iterations would have blocks that simply
    end before ``k_outer_block + 32``."""
    name = f"{printer.axis_name(cut.axis)}_block"  # the index at which a block begins
    size = cut.iterations * printer.stride(cut.axis)  # of a block, in indices
    end = f"{name} + {size}"
    if whole.iterations % size:
        end = f"({end} < {whole.end} ? {end} : {whole.end})"
    bounds = f"{name} = {whole.first}; {name} < {whole.end}; {name} += {size}"
    return _BlockLoop(f"for ({printer.language.index_type} {bounds}) {{", Loop(name, end, size))

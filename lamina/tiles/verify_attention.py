"""The verifier of registers and of tickets in tile programs, as `verify.py` numbers invariants:

10. Registers are set, rescaled and reduced by names that are declared, or computed before. What is
   computed for the step before is products and barriers alone.
11. Where tiles go by tickets, loops over steps have all that masks leave, each once and in order.
    Masks depend on the tile, and leave out the first or the last steps.
"""

from collections.abc import Iterator, Mapping

from lamina.core.dtypes import DType, float32
from lamina.tiles.program import (
    Mask,
    Reduce,
    Rescale,
    Set,
    Shift,
    Statement,
    StepLoop,
    TileLoop,
    TileProgram,
    statements_of,
)

Checks = Iterator[tuple[bool, str]]  # does an invariant hold, and what is wrong if not
# The steps of loops in a role that brings all, and in one that computes those of a group.
_COMPUTED = (("computed",), ("overlapped",), ("first", "others", "last"))
SEQUENCES = {
    ("brought",), *_COMPUTED, *(("before", *steps, "behind") for steps in _COMPUTED)
}  # fmt: skip


def registers_of(program: TileProgram) -> dict[str, DType]:
    """The registers of a program, and their dtypes."""
    return {alloc.name: alloc.dtype for alloc in program.allocs if alloc.memory == "registers"}


def verify_tickets(loop: TileLoop) -> Checks:
    """11. The steps of a loop over tiles that go by tickets, and its masks."""
    words = [inner.steps for inner in loop.body if isinstance(inner, StepLoop)]
    yield (
        (loop.tickets is not None) == (loop.order == "tickets"),
        f"tickets in the order {loop.order}",
    )
    if loop.tickets is None:
        yield set(words) <= {"part"}, f"steps {', '.join(words)} of a tile without tickets"
        return
    yield tuple(words) in SEQUENCES, f"steps {', '.join(words)} are not those of a tile in order"
    rows = loop.tickets.rows
    yield loop.tiles % rows == 0, f"{loop.tiles} tiles are no arrays of {rows}"
    yield loop.tickets.together > 0, "no array is read at a time"
    names = {extent.name for extent in loop.over}
    for mask in statements_of(loop.body, Mask):
        yield mask.slope != 0, "a mask leaves out no step, or all"
        yield mask.low <= mask.high, f"a mask from {mask.low} to {mask.high}"
        unknown = {name for name, _ in mask.place.terms} - names
        yield not unknown, f"a mask by {', '.join(sorted(unknown))}, which number no tile"


def verify_registers(program: TileProgram, statement: Statement) -> Checks:
    """10., of a statement outside of a computation."""
    registers = registers_of(program)
    match statement:
        case Set(registers=name, value=value):
            yield name in registers, f"{name} are no registers"
            is_number = isinstance(value, (float, int))
            yield is_number or value in registers, f"{value} is no number, and no registers"
        case Rescale(sums=name, factor=factor):
            yield {name, factor} <= {*registers}, f"{name} or {factor} are no registers"
        case _:
            pass


def verify_computed(
    program: TileProgram, statement: Statement, known: Mapping[str, DType]
) -> Checks:
    """10., of a statement of a computation that no epilogue has; `known` has the dtypes of what is
    computed before, and of registers."""
    registers = registers_of(program)
    match statement:
        case Reduce(target=target, value=value):
            yield value in known, f"{value} is not computed before"
            yield target not in known, f"{target} is computed twice"
        case Shift():
            names = (statement.factor, statement.shift, statement.maximum)
            yield {*names} <= {*registers}, f"{', '.join(names)} are no registers"
            yield statement.wanted in known, f"{statement.wanted} is not computed before"
            yield statement.target not in known, f"{statement.target} is computed twice"
        case Set(registers=name, value=value):
            yield name in registers, f"{name} are no registers"
            yield value in known, f"{value} is not computed before"
        case Rescale(sums=name, factor=factor):
            yield {name, factor} <= {*registers}, f"{name} or {factor} are no registers"
        case _:
            yield False, f"{type(statement).__name__} in a computation"


def target_of(statement: Statement) -> tuple[str, DType] | None:
    """The name of what a statement of a computation computes, and its dtype; None if it does not
    compute a value."""
    match statement:
        case Reduce(target=target, dtype=dtype):
            return target, dtype
        case Shift(target=target):
            return target, float32
    return None

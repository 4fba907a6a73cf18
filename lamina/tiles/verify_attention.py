"""The verifier of products back to back in tile programs, as `verify.py` numbers invariants:

9. The two factors of a product share one axis, and its sums have the others. Factors in shared
   memory have the layout that the unit reads; those in registers have 16 bits.
10. Registers are set, rescaled and reduced by names that are declared, or computed before. What is
   computed for the step before is products and barriers alone.
11. Where tiles go by tickets, loops over steps have all that masks leave, each once and in order.
    Masks depend on the tile, and leave out the first or the last steps.
"""

from collections.abc import Iterator, Mapping

from lamina.core.dtypes import DType, float32
from lamina.tiles.program import (
    GROUP_ROWS,
    UNITS,
    Alloc,
    Arrive,
    Await,
    Mask,
    Multiply,
    Product,
    Reduce,
    Rescale,
    Role,
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


def verify_registers(program: TileProgram, role: Role, statement: Statement) -> Checks:
    """9. and 10., of a statement outside of a computation."""
    registers = registers_of(program)
    match statement:
        case Multiply(products=products, unit=unit):
            yield unit in UNITS, f"a unit is one of {', '.join(UNITS)}, not {unit}"
            yield bool(products), "no products"
            for product in products:
                yield from _product(program, role, product, unit)
        case Await(sums=sums):
            missing = [name for name in sums if name not in registers]
            yield not missing, f"{', '.join(missing)} are no sums in registers"
        case Arrive(barrier=name):
            program.barrier(name)
        case Set(registers=name, value=value):
            yield name in registers, f"{name} are no registers"
            is_number = isinstance(value, (float, int))
            yield is_number or value in registers, f"{value} is no number, and no registers"
        case Rescale(sums=name, factor=factor):
            yield {name, factor} <= {*registers}, f"{name} or {factor} are no registers"
        case _:
            pass


def _product(program: TileProgram, role: Role, product: Product, unit: str) -> Checks:
    sums, left, right = (
        program.alloc(name) for name in (product.sums, product.left, product.right)
    )
    yield sums.memory == "registers" and sums.dtype is float32, f"{sums.name} are no sums"
    sizes = [{axis.name: axis.size for axis in alloc.axes} for alloc in (left, right)]
    along = {*sizes[0]} & {*sizes[1]}
    yield len(along) == 1, f"{left.name} and {right.name} share the axes {', '.join(sorted(along))}"
    (axis,) = along
    yield sizes[0][axis] == sizes[1][axis], f"{left.name} and {right.name} have other {axis}s"
    others = {name: size for each in sizes for name, size in each.items() if name != axis}
    wanted = {axis.name: axis.size for axis in sums.axes}
    yield others == wanted, f"{sums.name} have other sides than {left.name} and {right.name}"
    rows = wanted.get("row", 0)
    yield rows == role.groups * GROUP_ROWS, f"{rows} rows for {role.groups} groups of {GROUP_ROWS}"
    yield from _factors(left, right, unit)


def _factors(left: Alloc, right: Alloc, unit: str) -> Checks:
    is_of_registers = UNITS[unit].left == "registers"
    yield (
        is_of_registers == (left.memory == "registers"),
        f"{unit} reads {left.name} in {left.memory}",
    )
    yield left.dtype is right.dtype, f"{left.name} and {right.name} have other dtypes"
    yield left.dtype.itemsize == 2, f"{left.name} has no 16 bits"
    for factor in (left, right):
        if factor.memory == "shared":
            layout = UNITS[unit].layout
            yield factor.layout == layout, f"{unit} reads {layout}; {factor.name} has another"


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


def has_back_to_back(program: TileProgram) -> bool:
    """Whether a program has products back to back."""
    return any(statements_of(role.body, Multiply) for role in program.roles)

"""The verifier of views, values and registers in tile programs, as `verify.py` numbers invariants:

9. Views have the array's elements alone: of every tile, what is inside both ends. A variable of an
   index is one of a loop around it, or of a side of the tile. Stores write arrays that are written.
   What no view says is checked where it runs.
10. Values are computed before they are used, and stored with their dtypes; fills have the dtypes of
   their arrays, or of what computes them.
11. Registers are set, rescaled and reduced by names that are declared, or computed before; a value
   has their dtype, or is float32, which they round.
"""

from collections.abc import Iterator, Mapping

from lamina.core.dtypes import DType, bool_, float32, int64
from lamina.ir.ops import Group
from lamina.tiles.program import (
    Alloc,
    Arrive,
    Compute,
    Drain,
    Epilogue,
    Rescale,
    RowReduce,
    Set,
    Shift,
    TileProgram,
    TileStore,
)
from lamina.tiles.values import (
    Computed,
    Digits,
    Elements,
    Gather,
    Index,
    Map,
    Operand,
    Position,
    View,
)

Checks = Iterator[tuple[bool, str]]  # does an invariant hold, and what is wrong if not
Variables = Mapping[str, int]  # how many values each has


def registers_of(program: TileProgram) -> dict[str, DType]:
    """The registers of a program, and their dtypes."""
    return {alloc.name: alloc.dtype for alloc in program.allocs if alloc.memory == "registers"}


def verify_elements(
    program: TileProgram, elements: Elements, shape: tuple[int, int], variables: Variables
) -> Checks:
    """10., of what computes the elements of a tile of this shape."""
    known: dict[str, DType] = dict.fromkeys((*variables, *_along(elements.sides)), int64)
    for statement in elements.body:
        yield from _computed(program, statement, shape, known, variables)
        known[statement.target] = dtype_of(statement)


def verify_compute(program: TileProgram, compute: Compute, variables: Variables) -> Checks:
    """1., 10. and 11., of arithmetic on registers."""
    known: dict[str, DType] = dict.fromkeys((*variables, *_along(compute.sides)), int64)
    known |= registers_of(program)
    first, last = compute.sides
    for statement in compute.body:
        match statement:
            case Map() | Gather() | Position():
                yield from _computed(program, statement, (first.end, last.end), known, variables)
                known[statement.target] = dtype_of(statement)
            case RowReduce(target=target, dtype=dtype, value=value):
                yield value in known, f"{value} is not computed before"
                yield target not in known, f"{target} is computed twice"
                known[target] = dtype
            case Shift(target=target, wanted=wanted):
                names = (statement.factor, statement.shift, statement.maximum)
                are_registers = {*names} <= registers_of(program).keys()
                yield are_registers, f"{', '.join(names)} are no registers"
                yield wanted in known, f"{wanted} is not computed before"
                yield target not in known, f"{target} is computed twice"
                known[target] = float32
            case Set() | Rescale():
                yield from verify_change(program, statement, known)
            case Arrive(barrier=name):
                program.barrier(name)
            case Drain():
                pass
            case _:
                yield False, f"{type(statement).__name__} in a computation"


def verify_change(
    program: TileProgram, statement: Set | Rescale, known: Mapping[str, DType]
) -> Checks:
    """11., of what sets or rescales registers; `known` has the dtypes of registers, and of what is
    computed before."""
    registers = registers_of(program)
    match statement:
        case Set(registers=name, value=value):
            yield name in registers, f"{name} are no registers"
            is_number = isinstance(value, (float, int))
            yield is_number or value in known, f"{value} is no number, and not computed before"
            if isinstance(value, str) and value in known and name in registers:
                # A value of float32 may be rounded as it is set; nothing else is converted.
                given, held = known[value], registers[name]
                is_held = given in (held, float32)
                yield is_held, f"{name} of {held.name} is set to {given.name}"
        case Rescale(sums=name, factor=factor):
            yield {name, factor} <= {*registers}, f"{name} or {factor} are no registers"


def verify_epilogue(program: TileProgram, epilogue: Epilogue, variables: Variables) -> Checks:
    """10. Values are computed before they are used; once the value that is kept is there, nothing
    else is. The tile of results is that of the sums."""
    sums = program.sums
    places = dict.fromkeys((*variables, *_along(epilogue.sides)), int64)
    known = {**places, **registers_of(program)}
    kept, slices = epilogue.kept, epilogue.slices
    made = {part.target for part in epilogue.body if not isinstance(part, TileStore)}
    yield kept in {"", *made}, f"the epilogue keeps {kept}, which nothing computes"
    columns = sums.shape[1]
    has_slices = slices > 0 and columns % slices == 0
    yield not kept or has_slices, f"{columns} columns are not {slices} equal slices"
    for statement in epilogue.body:
        if isinstance(statement, TileStore):
            yield from _store(program, statement, sums, known, variables)
            continue
        yield from _computed(program, statement, sums.shape, known, variables)
        known = dict(places) if statement.target == kept else known
        known[statement.target] = dtype_of(statement)


def _along(sides: tuple[Digits, ...]) -> list[str]:
    """The variables along the sides of a tile."""
    return [extent.name for side in sides for extent in side.over]


def dtype_of(statement: Computed) -> DType:
    """Of what a statement computes."""
    return int64 if isinstance(statement, Position) else statement.dtype


def _computed(
    program: TileProgram, statement: Computed, shape: tuple[int, int], known: Mapping[str, DType],
    variables: Variables,
) -> Checks:  # fmt: skip
    """1. and 10., of what computes a value."""
    yield statement.target not in known, f"{statement.target} is computed twice"
    match statement:
        case Map(op=op, operands=operands):
            yield op in Group.ELEMENTWISE, f"{op.name} is not elementwise"
            for operand in operands:
                yield from _operand(program, operand, shape, known, variables)
        case Gather(array=array, index=index, condition=condition):
            dtype = program.parameter(array).dtype
            yield dtype is statement.dtype, f"{array} has {dtype.name}, and not {statement.target}"
            yield from _terms(index, condition, known)
        case Position(index=index):
            yield from _terms(index, "", known)


def _terms(index: Index, condition: str, known: Mapping[str, DType]) -> Checks:
    """9. The terms of an index, and the condition of an access."""
    for name, _ in index.terms:
        yield name in known, f"{name} is no variable, and not computed before"
        yield name not in known or not known[name].is_float, f"{name} is no integer"
    yield condition in ("", *known), f"{condition} is not computed before"
    if condition in known:
        yield known[condition] is bool_, f"{condition} is a condition, and no bool"


def _store(
    program: TileProgram, store: TileStore, sums: Alloc, known: Mapping[str, DType],
    variables: Variables,
) -> Checks:  # fmt: skip
    yield from _operand(program, store.value, sums.shape, known, variables)
    array = program.parameter(store.to.array)
    yield array.written, "a store into what is only read"
    if isinstance(store.value, str):
        dtype = known[store.value]
        yield array.dtype is dtype, f"a store of {dtype.name} into {array.dtype.name}"
    if store.through:
        lines = program.alloc(store.through)
        yield lines.memory == "shared", f"{lines.name} is not in shared memory"
        yield lines.stages == 1, f"a store goes through {lines.name}, which has several stages"
        yield (
            lines.dtype is array.dtype,
            f"a store of {array.dtype.name} through {lines.dtype.name}",
        )
    if isinstance(store.to, View):
        yield from verify_view(program, store.to, sums.shape, variables)
    else:
        yield from _terms(store.to.index, store.to.condition, known)


def _operand(
    program: TileProgram, operand: Operand, shape: tuple[int, int], known: Mapping[str, DType],
    variables: Variables,
) -> Checks:  # fmt: skip
    """1. and 10., of what a map or a store takes."""
    if isinstance(operand, View):
        yield from verify_view(program, operand, shape, variables)
    elif isinstance(operand, str):
        yield operand in known, f"{operand} is not computed before"


def verify_view(
    program: TileProgram, view: View, shape: tuple[int, int], variables: Variables
) -> Checks:
    """9. Views."""
    parameter = program.parameter(view.array)
    for index in (view.offset, *(side.first for side in view.sides)):
        for name, _ in index.terms:
            yield name in variables, f"{name} is no variable of a loop around it"
    low, high = _bounds(view.offset, variables)
    for side, size in zip(view.sides, shape, strict=True):
        first, last = _bounds(side.first, variables)
        yield first >= 0, f"a tile of {view.array} begins at {first}"
        last_inside = min(last + size, side.end) - 1
        low += min(side.stride * last_inside, 0)
        high += max(side.stride * last_inside, 0)
    yield (
        low >= 0 and high < parameter.size,
        f"{view.array} has the elements 0 to {parameter.size - 1}, and a view {low} to {high}",
    )


def _bounds(index: Index, variables: Variables) -> tuple[int, int]:
    """The lowest and the highest value of an index, both included."""
    low = high = index.constant
    for name, factor in index.terms:
        end = factor * (variables.get(name, 1) - 1)
        low, high = low + min(end, 0), high + max(end, 0)
    return low, high

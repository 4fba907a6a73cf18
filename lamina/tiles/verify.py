"""The verifier of tile programs.

1. Names are unique; every name that a statement has is declared, and is of the right kind.
2. One product has one allocation in registers, of sums of float32. Tiles in shared memory have
   whole lines of 128 bytes, a multiple of eight, so that a swizzle stays inside a tile.
3. A tile loop is the outermost loop of a role; every role has the same sequence of tiles and steps.
   Its variables number the tiles, and those of a step loop the steps.
4. A role that runs inside another one has fills alone. The copy engine reports to a barrier in a
   program that has any. All threads together have the registers of a multiprocessor at most.
5. A pause is in a step, of a role of two groups, with a resume for the same steps after the mma.
   The buffers have the steps before which it pauses.
6. Squares of a tile are transposed where its elements have 4 bytes, and its lines make whole
   squares. What is done ahead is waits, syncs, fences and transposes alone; what is done for the
   step before is products and barriers alone.
7. The factors share one axis (k; element or key of attention); its sums have the other two. Rows
   are 64 for each warpgroup. Factors have as many
   stages where steps fill both, more than products that run on, and the layout that the unit reads;
   those in registers have 16 bits.
8. Where tiles go by tickets, loops over steps have all that masks leave, each once and in order.
   Masks depend on the tile, and leave out the first or the last steps. A barrier tells the tickets
   to several roles; one role has none.

`verify_values.py` has those of views, values and registers: 9 to 11.
"""

from collections import Counter
from math import prod

from lamina.core.dtypes import float32
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.tiles.layouts import BANKS, SQUARE
from lamina.tiles.program import (
    AGENTS,
    MEMORIES,
    ORDERS,
    UNITS,
    WARPGROUP_ROWS,
    Advance,
    Alloc,
    Arrive,
    Compute,
    Drain,
    Epilogue,
    Fence,
    Fill,
    Join,
    Mma,
    NextStep,
    Pause,
    Previous,
    Product,
    Release,
    Rescale,
    Resume,
    Role,
    RowReduce,
    Set,
    Shift,
    Statement,
    StepLoop,
    StepMask,
    StepsOf,
    Sync,
    TileError,
    TileLoop,
    TileProgram,
    TileStore,
    Transpose,
    Wait,
    statements,
    statements_of,
)
from lamina.tiles.values import (
    Extent,
    Gather,
    Map,
    Position,
    View,
)
from lamina.tiles.verify_values import (
    Checks,
    Variables,
    dtype_of,
    registers_of,
    verify_change,
    verify_compute,
    verify_elements,
    verify_epilogue,
    verify_view,
)

MAX_REGISTERS = 64 << 10  # of a block, which may have those of its multiprocessor

# The steps of loops in a role that brings all, and in one that computes those of a group.
_COMPUTED = (
    (StepsOf.COMPUTED,),
    (StepsOf.OVERLAPPED,),
    (StepsOf.FIRST, StepsOf.OTHERS, StepsOf.LAST),
)
_WITH_SKIPPED = ((StepsOf.SKIPPED_BEFORE, *steps, StepsOf.SKIPPED_BEHIND) for steps in _COMPUTED)
SEQUENCES = {(StepsOf.BROUGHT,), *_COMPUTED, *_WITH_SKIPPED}


def verify_tiles(program: TileProgram) -> None:
    """Raise TileError, naming the program and what is wrong, if an invariant fails."""
    for check in (_names, _allocs, _loops, _roles):
        for holds, problem in check(program):
            if not holds:
                raise TileError(f"tiles {program.name}: {problem}")
    for role in program.roles:
        for holds, problem in _body(program, role, role.body, {}):
            if not holds:
                raise TileError(f"tiles {program.name}: role {role.name}: {problem}")


def _names(program: TileProgram) -> Checks:
    """1. Names are unique."""
    names = [
        *(parameter.name for parameter in program.parameters),
        *(alloc.name for alloc in program.allocs),
        *(barrier.name for barrier in program.barriers),
        *(role.name for role in program.roles),
    ]
    for name, count in Counter(names).items():
        yield count == 1, f"{name} is declared {count} times"


def _allocs(program: TileProgram) -> Checks:
    """2. Sides of tiles."""
    registers = registers_of(program)
    is_one_product = len(program.mmas) == 1
    if is_one_product:
        count = len(registers)
        yield count == 1, f"one result has {count} allocations of sums in registers"
    for alloc in program.allocs:
        yield alloc.memory in MEMORIES, f"{alloc.name}: memory is one of {', '.join(MEMORIES)}"
        yield alloc.stages > 0, f"{alloc.name} has no stage"
        if alloc.memory == "registers":
            is_float32 = alloc.dtype is float32
            yield is_float32 or not is_one_product, f"{alloc.name}: sums are float32"
            continue
        rows, length = alloc.shape
        line_bytes = length * alloc.dtype.itemsize
        yield rows % BANKS == 0, f"{alloc.name}: {rows} lines are no multiple of {BANKS}"
        yield (
            line_bytes % LINE_BYTES == 0,
            f"{alloc.name}: {line_bytes} bytes are no lines of {LINE_BYTES}",
        )


def _loops(program: TileProgram) -> Checks:
    """3. Each role has one loop over tiles, and all have the same tiles and steps."""
    loops = [
        (role.name, loop)
        for role in program.roles
        for loop in statements(role.body)
        if isinstance(loop, TileLoop)
    ]
    for role in program.roles:
        count = sum(name == role.name for name, _ in loops)
        yield count == 1, f"role {role.name} has {count} loops over tiles, not one"
    sequences = {
        (loop.order, loop.tiles, loop.steps, loop.blocks, loop.share, loop.tickets,
         *statements_of(loop.body, StepMask))
        for _, loop in loops
    }  # fmt: skip
    yield len(sequences) == 1, f"roles have {len(sequences)} sequences of tiles, not one"
    for name, loop in loops:
        yield loop.order in ORDERS, f"an order is one of {', '.join(ORDERS)}, not {loop.order}"
        yield _count(loop.over) == loop.tiles, f"role {name}: variables do not number the tiles"
        yield (
            (loop.share % loop.steps > 0) == (loop.order in ("stream_k", "equal")),
            f"{loop.share} steps of a block are not in the order {loop.order}",
        )
        yield from _tickets(program, loop)
        covered = loop.blocks * loop.share
        yield (
            covered >= loop.tiles * loop.steps,
            f"{loop.blocks} blocks of {loop.share} steps do not compute {loop.tiles} tiles of "
            f"{loop.steps}",
        )
        for inner in loop.body:
            if isinstance(inner, StepLoop):
                yield (
                    _count(inner.over) == loop.steps,
                    f"role {name}: variables do not number the steps",
                )


def _tickets(program: TileProgram, loop: TileLoop) -> Checks:
    """8. The steps of a loop over tiles that go by tickets, and its masks."""
    words = [inner.which for inner in loop.body if isinstance(inner, StepLoop)]
    yield (
        (loop.tickets is not None) == (loop.order == "tickets"),
        f"tickets in the order {loop.order}",
    )
    if loop.tickets is None:
        yield set(words) <= {StepsOf.PART}, f"steps {', '.join(words)} of a tile without tickets"
        return
    yield tuple(words) in SEQUENCES, f"steps {', '.join(words)} are not those of a tile in order"
    row_tiles = loop.tickets.row_tiles
    is_whole = loop.tiles % row_tiles == 0
    yield is_whole, f"{loop.tiles} tiles are no arrays of {row_tiles} tiles each"
    yield loop.tickets.together > 0, "no array is read at a time"
    if len(program.roles) == 1:
        yield not loop.tickets.barrier, "one role has a barrier for its tickets"
    elif program.barriers:
        yield bool(loop.tickets.barrier), "no barrier tells roles their tickets"
    names = {extent.name for extent in loop.over}
    for mask in statements_of(loop.body, StepMask):
        yield mask.slope != 0, "a mask leaves out no step, or all"
        yield mask.low <= mask.high, f"a mask from {mask.low} to {mask.high}"
        unknown = {name for name, _ in mask.place.terms} - names
        yield not unknown, f"a mask by {', '.join(sorted(unknown))}, which number no tile"


def _sizes_of(over: tuple[Extent, ...]) -> dict[str, int]:
    """How many values each variable has."""
    return {extent.name: extent.size for extent in over}


def _count(over: tuple[Extent, ...]) -> int:
    return prod(extent.size for extent in over)


def _roles(program: TileProgram) -> Checks:
    """4. Roles inside roles, and registers."""
    registers = sum(32 * role.warps * role.registers for role in program.roles)
    yield registers <= MAX_REGISTERS, f"{registers} registers; a block has {MAX_REGISTERS}"
    for role in program.roles:
        if not role.inside:
            yield role.warps > 0, f"role {role.name} has neither warps nor a role around it"
            continue
        around = program.role(role.inside)
        yield around.warpgroups > 0, f"role {role.name} is inside {around.name}, which has no group"
        allowed = (TileLoop, StepLoop, Fill)
        others = [other for other in statements(role.body) if not isinstance(other, allowed)]
        yield not others, f"role {role.name} is inside another one, and does more than fill"


def _body(
    program: TileProgram, role: Role, body: tuple[Statement, ...], variables: Variables
) -> Checks:
    """1., 9. and 10., of the statements of a body; `variables` are those of the loops around it."""
    for statement in body:
        match statement:
            case TileLoop(over=over, body=inside):
                yield not variables, "a loop over tiles is inside another loop"
                joins = len(statements_of(inside, Join))
                yield joins <= 1, f"the sums of a tile are joined {joins} times"
                yield from _body(program, role, inside, _sizes_of(over))
            case StepLoop(over=over, body=inside):
                yield bool(variables), "a loop over steps is outside of one over tiles"
                yield from _body(program, role, inside, {**variables, **_sizes_of(over)})
                yield from _pauses(program, role, inside)
            case Pause(body=inside):
                yield from _body(program, role, inside, variables)
            case Transpose():
                yield from _transpose(program, statement)
            case Fill():
                yield from _fill(program, statement, variables)
            case Mma():
                yield from _mma(program, role, statement)
            case Epilogue():
                yield from verify_epilogue(program, statement, variables)
            case Wait(barrier=name) | Arrive(barrier=name):
                program.barrier(name)
            case Release(to=name) if name in {other.name for other in program.roles}:
                yield program.role(name).inside == role.name, f"{name} is not inside {role.name}"
            case Release(to=name):
                program.barrier(name)
            case Advance(role=name, count=count):
                yield program.role(name).inside == role.name, f"{name} is not inside {role.name}"
                yield count > 0, f"{name} advances by {count}, not by 1 or more"
            case Join(sums=name):
                yield name in registers_of(program), f"{name} are no sums in registers"
            case Map() | Gather() | Position() | TileStore() | RowReduce() | Shift():
                yield False, "what computes or stores is outside of an epilogue or a computation"
            case Compute():
                yield from verify_compute(program, statement, variables)
            case NextStep(body=inside) | Previous(body=inside):
                yield from _in_other_step(statement)
                yield from _body(program, role, inside, variables)
            case Set() | Rescale():
                yield from verify_change(program, statement, registers_of(program))
            case _:
                pass


def _in_other_step(statement: NextStep | Previous) -> Checks:
    """6., of what is done for the step after or before the current one."""
    if isinstance(statement, NextStep):
        allowed = (Wait, Sync, Fence, Transpose)
        yield all(isinstance(each, allowed) for each in statement.body), "a fill or use is ahead"
        return
    yield (
        all(isinstance(each, (Wait, Mma, Drain, Arrive)) for each in statement.body),
        "for the step before, there are products and barriers alone",
    )


def _pauses(program: TileProgram, role: Role, step: tuple[Statement, ...]) -> Checks:
    """5. Pauses."""
    pauses, resumes = statements_of(step, Pause), statements_of(step, Resume)
    yield (
        [pause.least for pause in pauses] == [resume.least for resume in resumes],
        "a pause has no resume of the same steps",
    )
    products = [product for mma in statements_of(step, Mma) for product in mma.products]
    stages = min((program.alloc(product.right).stages for product in products), default=0)
    for pause in pauses:
        yield role.warpgroups == 2, f"{role.warpgroups} groups: of two, one pauses for the other"
        yield (
            pause.last <= stages <= pause.least,
            f"a pause before the last {pause.last} of at least {pause.least} steps, of which the "
            f"buffers have {stages}",
        )


def _fill(program: TileProgram, fill: Fill, variables: Variables) -> Checks:
    alloc = program.alloc(fill.buffer)
    yield alloc.memory == "shared", f"{fill.buffer} is not in shared memory"
    yield fill.agent in AGENTS, f"an agent is one of {', '.join(AGENTS)}, not {fill.agent}"
    if isinstance(fill.source, View):
        dtype = program.parameter(fill.source.array).dtype
        yield from verify_view(program, fill.source, alloc.shape, variables)
    else:
        yield bool(fill.source.body), f"nothing computes {fill.buffer}"
        yield from verify_elements(program, fill.source, alloc.shape, variables)
        dtype = dtype_of(fill.source.body[-1])
    yield dtype is alloc.dtype, f"a fill of {alloc.dtype.name} with {dtype.name}"
    by_engine = fill.agent == "tma" and bool(program.barriers)
    yield bool(fill.barrier) == by_engine, f"the fill of {fill.buffer} reports to no barrier"
    if fill.barrier:
        stages = program.barrier(fill.barrier).stages
        yield stages == alloc.stages, f"{fill.barrier} and {fill.buffer} have different stages"


def _transpose(program: TileProgram, transpose: Transpose) -> Checks:
    """6. Squares of tiles."""
    alloc, apart = program.alloc(transpose.buffer), transpose.apart
    yield alloc.memory == "shared", f"{alloc.name} is not in shared memory"
    yield alloc.dtype is float32, f"squares of {alloc.dtype.name} are transposed, not of float32"
    lines = alloc.shape[0]
    yield (
        apart > 0 and lines % (SQUARE * apart) == 0,
        f"{lines} lines of {alloc.name} are no squares of lines {apart} apart",
    )


def _mma(program: TileProgram, role: Role, mma: Mma) -> Checks:
    """7. Products that begin together."""
    yield mma.unit in UNITS, f"a unit is one of {', '.join(UNITS)}, not {mma.unit}"
    yield bool(mma.products), "no products"
    for product in mma.products:
        yield from _product(program, role, product)
        left, right = program.alloc(product.left), program.alloc(product.right)
        yield from _factors(left, right, mma.unit)
        for factor in (left, right):
            if factor.memory == "shared":
                stages = factor.stages
                yield stages > mma.running, f"{mma.running} products run in {stages} stages"
        passing = [alloc for alloc in (left, right) if alloc.name in program.passing]
        counts = {alloc.stages for alloc in passing}
        yield len(counts) <= 1, f"{left.name} and {right.name} have different stages"


def _product(program: TileProgram, role: Role, product: Product) -> Checks:
    """7., of the axes of a product."""
    sums, left, right = (
        program.alloc(name) for name in (product.sums, product.left, product.right)
    )
    yield sums.memory == "registers" and sums.dtype is float32, f"{sums.name} are no sums"
    left_sizes, right_sizes, sums_sizes = _sizes(left), _sizes(right), _sizes(sums)
    common = left_sizes.keys() & right_sizes.keys()
    names = ", ".join(sorted(common))
    yield len(common) == 1, f"{left.name} and {right.name} share the axes {names}"
    (axis,) = common
    are_equal = left_sizes[axis] == right_sizes[axis]
    yield are_equal, f"{left.name} and {right.name} have different sizes along {axis}"
    others = {name: size for name, size in (left_sizes | right_sizes).items() if name != axis}
    factors = f"{left.name} and {right.name}"
    yield others == sums_sizes, f"{sums.name} have different sides from {factors}"
    rows = sums_sizes.get("row", 0)
    groups = role.warpgroups
    yield rows == groups * WARPGROUP_ROWS, f"{rows} rows for {groups} groups of {WARPGROUP_ROWS}"


def _sizes(alloc: Alloc) -> dict[str, int]:
    return {axis.name: axis.size for axis in alloc.axes}


def _factors(left: Alloc, right: Alloc, unit: str) -> Checks:
    """7., of how a unit reads both factors."""
    is_of_registers = UNITS[unit].left == "registers"
    yield (
        is_of_registers == (left.memory == "registers"),
        f"{unit} reads {left.name} in {left.memory}",
    )
    yield left.dtype is right.dtype, f"{left.name} and {right.name} have different dtypes"
    if is_of_registers:
        yield left.dtype.itemsize == 2, f"{left.name} has no 16 bits"
    layout = UNITS[unit].layout
    for factor in (left, right):
        is_readable = factor.memory == "registers" or factor.layout == layout
        yield is_readable, f"{unit} reads {layout}, and {factor.name} has a different layout"

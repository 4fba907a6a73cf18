"""Tile programs as text, printed and parsed: one statement a line, bodies indented by two spaces.

`lamina/tiles/program.py` shows a program. An index is a sum such as ``128*a4 + 5``; a view is
``p0[offset | stride: first < end | stride: first < end]``, with both sides of the tile. What
computes the elements of a tile is the body of its fill:

    fill left <- elements over 128*a4: a9 200 | 64*line: r2 100 by threads
      gather v0: bf16 = p0[100*a9 + 1*r2]
      map v1: f32 = cast v0
      map v2: f32 = mul v1 0.5
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lamina.core.dtypes import SHORT, DType
from lamina.errors import FormatError, LaminaError
from lamina.ir.monoids import ADD, MAX
from lamina.ir.ops import Op
from lamina.ir.parse import BY_SHORT
from lamina.tiles.layouts import LINEAR, Swizzle
from lamina.tiles.program import (
    BODIES,
    Advance,
    Alloc,
    Arrive,
    Barrier,
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
    Tickets,
    TileAxis,
    TileLoop,
    TileParameter,
    TileProgram,
    TileStore,
    Transpose,
    Wait,
)
from lamina.tiles.values import (
    Digits,
    Elements,
    Extent,
    Gather,
    Index,
    Map,
    Operand,
    Places,
    Position,
    Side,
    View,
)

_MONOIDS = {monoid.name.lower(): monoid for monoid in (ADD, MAX)}
OPS = {op.name.lower(): op for op in Op}
_COMPUTED = (Map, Gather, Position)


def to_text(program: TileProgram) -> str:
    """The text that `parse` reads back."""
    lines = [f"tiles {program.name}"]
    for parameter in program.parameters:
        written = " written" if parameter.written else ""
        lines.append(f"parameter {parameter.name}: {_array(parameter)}{written}")
    lines += map(_alloc_text, program.allocs)
    for barrier in program.barriers:
        lines.append(f"barrier {barrier.name}: stages={barrier.stages} arrivals={barrier.arrivals}")
    for role in program.roles:
        where = f"inside {role.inside}" if role.inside else f"warps={role.warps}"
        where += f" registers={role.registers}" if role.registers else ""
        lines.append(f"role {role.name}: {where}")
        lines += _body_text(role.body)
    return "\n".join(lines)


def _array(parameter: TileParameter) -> str:
    return f"{SHORT[parameter.dtype]}[{parameter.size}]"


def _alloc_text(alloc: Alloc) -> str:
    sides = ", ".join(f"{axis.name} {axis.size}" for axis in alloc.axes)
    layout = alloc.layout
    swizzle = f"swizzle({layout.bits}, {layout.base}, {layout.shift})"
    where = f"{alloc.memory} {SHORT[alloc.dtype]}[{alloc.stages}][{sides}]"
    return f"alloc {alloc.name}: {where} {'linear' if layout == LINEAR else swizzle}"


def _body_text(body: tuple[Statement, ...]) -> Iterator[str]:
    """The lines of a body, indented."""
    for statement in body:
        yield f"  {statement_text(statement)}"
        if isinstance(statement, BODIES):
            yield from (f"  {line}" for line in _body_text(statement.body))
        elif isinstance(statement, Fill) and isinstance(statement.source, Elements):
            yield from (f"  {line}" for line in _body_text(statement.source.body))


def statement_text(statement: Statement) -> str:
    """One statement, without the body that it may have."""
    match statement:
        case TileLoop(order, tiles, steps, blocks, share, over):
            sizes = f"tiles={tiles} steps={steps} blocks={blocks} share={share}"
            tickets = _tickets_text(statement.tickets)
            return f"for tile in {order} {sizes} over {_extents_text(over)}{tickets}"
        case StepLoop(over, _, StepsOf.PART):
            return f"for step over {_extents_text(over)}"
        case Fill(buffer, source, agent, barrier):
            to = f" to {barrier}" if barrier else ""
            return f"fill {buffer} <- {_source_text(source)} by {agent}{to}"
        case Mma():
            return _mma_text(statement)
        case Map(target, dtype, op, operands):
            words = " ".join(map(operand_text, operands))
            return f"map {target}: {SHORT[dtype]} = {op.name.lower()} {words}"
        case Gather(target, dtype, array, index, condition):
            place = _place_text(array, index, condition)
            return f"gather {target}: {SHORT[dtype]} = {place}"
        case Position(target, index):
            return f"position {target} = {index_text(index)}"
        case TileStore(to, value, through):
            lines = f" through {through}" if through else ""
            return f"store {_target_text(to)} <- {operand_text(value)}{lines}"
        case Epilogue(_, kept, slices, sides):
            of_sides = f" over {_sides_text(sides)}" if sides else ""
            return f"epilogue{of_sides}" + (f" keeping {kept} in {slices} slices" if kept else "")
        case Join(sums):
            return f"join {sums}"
        case Wait(barrier, acquires):
            return f"{'acquire' if acquires else 'wait'} {barrier}"
        case Release(to, but):
            return f"release {to} but {but}"
        case Pause(last, least, _):
            return f"pause before last {last} of at least {least}"
        case Resume(least):
            return f"resume after last of at least {least}"
        case Advance(role, count):
            return f"advance {role} {count}"
        case Drain(running):
            return f"drain {running}"
        case Fence():
            return "fence"
        case Sync():
            return "sync"
        case _:
            return _text_of_others(statement)


def _text_of_others(statement: Statement) -> str:
    """One statement of products back to back, or of those of fused multiply-adds."""
    match statement:
        case Transpose(buffer, apart):
            return f"transpose {buffer} by {apart}"
        case NextStep():
            return "ahead"
        case StepLoop(over, _, which):
            return f"for {which} step over {_extents_text(over)}"
        case Arrive(barrier):
            return f"arrive {barrier}"
        case Set(registers, value):
            return f"set {registers} <- {operand_text(value)}"
        case RowReduce(target, dtype, monoid, value):
            return f"reduce {target}: {SHORT[dtype]} = {monoid.name.lower()} {value}"
        case Shift(target, factor, shift, maximum, wanted):
            return f"shift {target} of {shift} to {wanted} by {factor} below {maximum}"
        case Rescale(sums, factor):
            return f"rescale {sums} by {factor}"
        case Compute(sides):
            return f"compute over {_sides_text(sides)}"
        case Previous():
            return "previous"
        case StepMask(place, low, high, slope, by_warpgroup):
            within = f"from {low} to {high} slope {slope} by warpgroup {by_warpgroup}"
            return f"mask {index_text(place)} {within}"
        case _:
            raise FormatError(f"tiles: no text for {type(statement).__name__}")


def _mma_text(mma: Mma) -> str:
    sign = "+=" if mma.adds else "="
    products = [f"{each.sums} {sign} {each.left} * {each.right}" for each in mma.products]
    running = f" running={mma.running}" if mma.running else ""
    return f"mma {', '.join(products)} by {mma.unit}{running}"


def _tickets_text(tickets: Tickets | None) -> str:
    if tickets is None:
        return ""
    last = " last first" if tickets.is_last_first else ""
    to = f" to {tickets.barrier}" if tickets.barrier else ""
    return f" by {tickets.row_tiles} row tiles of {tickets.together} arrays{last}{to}"


def _extents_text(over: tuple[Extent, ...]) -> str:
    return ", ".join(f"{extent.name} {extent.size}" for extent in over)


def _source_text(source: View | Elements) -> str:
    """What fills a tile, without the body that it may have."""
    if isinstance(source, Elements):
        return f"elements over {_sides_text(source.sides)}"
    return view_text(source)


def _target_text(to: View | Places) -> str:
    """Where a store writes."""
    if isinstance(to, Places):
        return _place_text(to.array, to.index, to.condition)
    return view_text(to)


def _sides_text(sides: tuple[Digits, ...]) -> str:
    return " | ".join(f"{index_text(side.first)}: {_extents_text(side.over)}" for side in sides)


def _place_text(array: str, index: Index, condition: str) -> str:
    guard = f" if {condition}" if condition else ""
    return f"{array}[{index_text(index)}]{guard}"


def operand_text(operand: Operand) -> str:
    """A view, the name of a value, or a number."""
    return view_text(operand) if isinstance(operand, View) else str(operand)


def view_text(view: View) -> str:
    """A tile of an array: ``p0[0 | 512: 128*a4 < 512 | 1: 64*line < 512]``."""
    sides = [f"{side.stride}: {index_text(side.first)} < {side.end}" for side in view.sides]
    return f"{view.array}[{' | '.join([index_text(view.offset), *sides])}]"


def index_text(index: Index) -> str:
    """``128*a4 + 5``."""
    parts = [f"{factor}*{name}" for name, factor in index.terms]
    return " + ".join([*parts, str(index.constant)] if index.constant or not parts else parts)


# Parsing.

_NAME = r"[A-Za-z_]\w*"
_INDEX = r"[\w*+ -]+?"
_SIDE = rf"-?\d+: {_INDEX} < \d+"
_VIEW = rf"{_NAME}\[{_INDEX} \| {_SIDE} \| {_SIDE}\]"
_EXTENTS = rf"{_NAME} \d+(?:, {_NAME} \d+)*"
_SIDES = rf"{_INDEX}: {_EXTENTS} \| {_INDEX}: {_EXTENTS}"
_PLACE = rf"({_NAME})\[({_INDEX})\](?: if ({_NAME}))?"


@dataclass
class _Line:
    """A line of a text: its number, its indentation in levels, and the rest."""

    number: int
    level: int
    text: str


def parse(text: str) -> TileProgram:
    """The program of a text. Raises FormatError, naming the line and what it lacks."""
    lines = [
        _Line(number, (len(line) - len(line.lstrip())) // 2, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    head = re.fullmatch(r"tiles (\w+)", lines[0].text) if lines else None
    if head is None:
        raise FormatError("tiles, line 1: expected 'tiles NAME'")
    program = TileProgram(head[1], (), (), (), ())
    at = 1
    while at < len(lines):
        line = lines[at]
        at += 1
        try:
            program = _with_declaration(program, line.text)
        except LaminaError as error:
            raise FormatError(f"tiles, line {line.number}: {error.message}") from None
        if program.roles and line.text.startswith("role "):
            body, at = _parse_body(lines, at, line.level + 1)
            *others, role = program.roles
            program = replace(program, roles=(*others, replace(role, body=body)))
    return program


def _with_declaration(program: TileProgram, text: str) -> TileProgram:
    """`program` with what a line declares; a role is without its body."""
    if match := re.fullmatch(rf"parameter ({_NAME}): (\w+)\[(\d+)\]( written)?", text):
        name, dtype, size, written = match.groups()
        parameter = TileParameter(name, _dtype(dtype), int(size), bool(written))
        return replace(program, parameters=(*program.parameters, parameter))
    pattern = rf"alloc ({_NAME}): (\w+) (\w+)\[(\d+)\]\[({_EXTENTS})\] (\S.*)"
    if match := re.fullmatch(pattern, text):
        name, memory, dtype, stages, sides, layout = match.groups()
        first, last = (TileAxis(extent.name, extent.size) for extent in _extents(sides))
        alloc = Alloc(name, memory, _dtype(dtype), int(stages), (first, last), _swizzle(layout))
        return replace(program, allocs=(*program.allocs, alloc))
    if match := re.fullmatch(rf"barrier ({_NAME}): stages=(\d+) arrivals=(\d+)", text):
        barrier = Barrier(match[1], int(match[2]), int(match[3]))
        return replace(program, barriers=(*program.barriers, barrier))
    if match := re.fullmatch(rf"role ({_NAME}): warps=(\d+)(?: registers=(\d+))?", text):
        role = Role(match[1], int(match[2]), (), registers=int(match[3] or 0))
        return replace(program, roles=(*program.roles, role))
    if match := re.fullmatch(rf"role ({_NAME}): inside ({_NAME})", text):
        return replace(program, roles=(*program.roles, Role(match[1], 0, (), match[2])))
    raise FormatError(f"{text!r} is no declaration")


def _parse_body(lines: list[_Line], at: int, level: int) -> tuple[tuple[Statement, ...], int]:
    """The statements at `level` from line number `at` of `lines` on, and the number of the next."""
    body: list[Statement] = []
    while at < len(lines) and lines[at].level >= level:
        line = lines[at]
        if line.level > level:
            raise FormatError(f"tiles, line {line.number}: it is indented too far")
        try:
            statement = _parse_statement(line.text)
        except LaminaError as error:
            raise FormatError(f"tiles, line {line.number}: {error.message}") from None
        at += 1
        if isinstance(statement, (TileLoop, StepLoop, Pause, NextStep, Compute, Previous)):
            inside, at = _parse_body(lines, at, level + 1)
            statement = replace(statement, body=inside)
        elif isinstance(statement, Epilogue):
            inside, at = _parse_body(lines, at, level + 1)
            results = [part for part in inside if isinstance(part, (*_COMPUTED, TileStore))]
            if len(results) < len(inside):
                raise FormatError(f"tiles, line {line.number}: it computes and stores alone")
            statement = replace(statement, body=tuple(results))
        elif isinstance(statement, Fill) and isinstance(statement.source, Elements):
            inside, at = _parse_body(lines, at, level + 1)
            computed = [part for part in inside if isinstance(part, _COMPUTED)]
            if len(computed) < len(inside):
                raise FormatError(f"tiles, line {line.number}: it computes elements alone")
            elements = replace(statement.source, body=tuple(computed))
            statement = replace(statement, source=elements)
        body.append(statement)
    return tuple(body), at


def _parse_statement(text: str) -> Statement:
    """The statement that prints as `text`, without its body."""
    for pattern, build in _FORMS:
        if match := re.fullmatch(pattern, text):
            return build(*match.groups())
    raise FormatError(f"{text!r} is no statement")


def _tile_loop(
    order: str, tiles: str, steps: str, blocks: str, share: str, over: str, row_tiles: str | None,
    together: str | None, last: str | None, barrier: str | None,
) -> TileLoop:  # fmt: skip
    tickets = None
    if row_tiles and together:
        tickets = Tickets(int(row_tiles), int(together), bool(last), barrier or "")
    return TileLoop(
        order, int(tiles), int(steps), int(blocks), int(share), _extents(over), (), tickets
    )


def _mma(factors: str, unit: str, running: str | None) -> Mma:
    pattern = rf"({_NAME}) (\+?=) ({_NAME}) \* ({_NAME})"
    matches = [re.fullmatch(pattern, part) for part in factors.split(", ")]
    signs = {match[2] for match in matches if match}
    if None in matches or len(signs) != 1:
        raise FormatError(f"{factors!r} are no products that all add or all begin anew")
    products = tuple(Product(match[1], match[3], match[4]) for match in matches if match)
    return Mma(products, unit, adds=signs == {"+="}, running=int(running or 0))


def _reduce(target: str, dtype: str, monoid: str, value: str) -> RowReduce:
    if monoid not in _MONOIDS:
        raise FormatError(f"{monoid!r} reduces no rows: {', '.join(_MONOIDS)}")
    return RowReduce(target, _dtype(dtype), _MONOIDS[monoid], value)


def _mask(place: str, low: str, high: str, slope: str, by_warpgroup: str) -> StepMask:
    return StepMask(_index(place), *map(int, (low, high, slope, by_warpgroup)))


def _fill(
    buffer: str, view: str | None, sides: str | None, agent: str, barrier: str | None
) -> Fill:
    source = Elements(_sides(sides), ()) if sides else _view(view or "")
    return Fill(buffer, source, agent, barrier or "")


def _map(target: str, dtype: str, op: str, operands: str) -> Map:
    if op not in OPS:
        raise FormatError(f"{op!r} is no operation")
    words = re.findall(rf"{_VIEW}|\S+", operands)
    return Map(target, _dtype(dtype), OPS[op], tuple(map(_operand, words)))


def _operand(word: str) -> Operand:
    if re.fullmatch(_VIEW, word):
        return _view(word)
    if re.fullmatch(_NAME, word) and word not in ("inf", "nan"):
        return word
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    try:
        return float(word)
    except ValueError:
        raise FormatError(f"{word!r} is no operand") from None


def _gather(target: str, dtype: str, array: str, index: str, condition: str | None) -> Gather:
    return Gather(target, _dtype(dtype), array, _index(index), condition or "")


def _store(
    view: str | None, array: str | None, index: str | None, condition: str | None, value: str,
    through: str | None,
) -> TileStore:  # fmt: skip
    to = Places(array, _index(index), condition or "") if array and index else _view(view or "")
    return TileStore(to, _operand(value), through or "")


def _epilogue(sides: str | None, kept: str | None, slices: str | None) -> Epilogue:
    return Epilogue((), kept or "", int(slices or 0), _sides(sides) if sides else ())


# What a line of a statement looks like, and what makes it of the groups.
_FORMS: tuple[tuple[str, Callable[..., Statement]], ...] = (
    (rf"for tile in (\w+) tiles=(\d+) steps=(\d+) blocks=(\d+) share=(\d+) over ({_EXTENTS})"
     rf"(?: by (\d+) row tiles of (\d+) arrays( last first)?(?: to ({_NAME}))?)?",
     _tile_loop),
    (rf"for (?:({'|'.join(StepsOf)}) )?step over ({_EXTENTS})",
     lambda which, over: StepLoop(_extents(over), (), StepsOf(which or StepsOf.PART))),
    (rf"fill ({_NAME}) <- (?:({_VIEW})|elements over ({_SIDES})) by (\w+)(?: to ({_NAME}))?",
     _fill),
    (rf"transpose ({_NAME}) by (\d+)", lambda buffer, apart: Transpose(buffer, int(apart))),
    (rf"mma (.+) by ({_NAME})(?: running=(\d+))?", _mma),
    (rf"map ({_NAME}): (\w+) = (\w+) (.+)", _map),
    (rf"gather ({_NAME}): (\w+) = {_PLACE}", _gather),
    (rf"position ({_NAME}) = ({_INDEX})", lambda name, index: Position(name, _index(index))),
    (rf"store (?:({_VIEW})|{_PLACE}) <- ({_VIEW}|\S+)(?: through ({_NAME}))?", _store),
    (rf"epilogue(?: over ({_SIDES}))?(?: keeping ({_NAME}) in (\d+) slices)?", _epilogue),
    (rf"join ({_NAME})", Join),
    (rf"(wait|acquire) ({_NAME})", lambda word, barrier: Wait(barrier, word == "acquire")),
    (rf"release ({_NAME}) but (\d+)", lambda to, but: Release(to, int(but))),
    (r"pause before last (\d+) of at least (\d+)",
     lambda last, least: Pause(int(last), int(least), ())),
    (r"resume after last of at least (\d+)", lambda least: Resume(int(least))),
    (r"ahead", lambda: NextStep(())),
    (rf"advance ({_NAME}) (\d+)", lambda role, count: Advance(role, int(count))),
    (r"drain (\d+)", lambda running: Drain(int(running))),
    (rf"arrive ({_NAME})", Arrive),
    (rf"set ({_NAME}) <- (\S+)", lambda registers, value: Set(registers, _operand(value))),
    (rf"reduce ({_NAME}): (\w+) = (\w+) ({_NAME})", _reduce),
    (rf"shift ({_NAME}) of ({_NAME}) to ({_NAME}) by ({_NAME}) below ({_NAME})",
     lambda target, shift, wanted, factor, maximum: Shift(target, factor, shift, maximum, wanted)),
    (rf"rescale ({_NAME}) by ({_NAME})", Rescale),
    (rf"compute over ({_SIDES})", lambda sides: Compute(_sides(sides), ())),
    (r"previous", lambda: Previous(())),
    (rf"mask ({_INDEX}) from (-?\d+) to (-?\d+) slope (-?\d+) by warpgroup (-?\d+)", _mask),
    (r"fence", Fence),
    (r"sync", Sync),
)  # fmt: skip


def _dtype(word: str) -> DType:
    if word not in BY_SHORT:
        raise FormatError(f"{word!r} is no dtype")
    return BY_SHORT[word]


def _swizzle(text: str) -> Swizzle:
    if text == "linear":
        return LINEAR
    match = re.fullmatch(r"swizzle\((\d+), (\d+), (\d+)\)", text)
    if match is None:
        raise FormatError(f"{text!r} is no layout: linear, or swizzle(3, 4, 3)")
    return Swizzle(int(match[1]), int(match[2]), int(match[3]))


def _extents(text: str) -> tuple[Extent, ...]:
    return tuple(Extent(name, int(size)) for name, size in re.findall(rf"({_NAME}) (\d+)", text))


def _sides(text: str) -> tuple[Digits, Digits]:
    first, last = (side.split(": ") for side in text.split(" | "))
    return Digits(_index(first[0]), _extents(first[1])), Digits(_index(last[0]), _extents(last[1]))


def _view(text: str) -> View:
    array, _, rest = text.removesuffix("]").partition("[")
    offset, *sides = rest.split(" | ")
    first, last = map(_side, sides)
    return View(array, _index(offset), (first, last))


def _side(text: str) -> Side:
    stride, _, rest = text.partition(": ")
    first, _, end = rest.partition(" < ")
    return Side(int(stride), _index(first), int(end))


def _index(text: str) -> Index:
    terms: list[tuple[str, int]] = []
    constant = 0
    for part in text.split(" + "):
        if match := re.fullmatch(rf"(-?\d+)\*({_NAME})", part):
            terms.append((match[2], int(match[1])))
        elif re.fullmatch(r"-?\d+", part):
            constant += int(part)
        else:
            raise FormatError(f"{part!r} is no term of an index: a number, or 8*name")
    return Index(tuple(terms), constant)

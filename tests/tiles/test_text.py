"""The text form of tile programs reads back, and its errors name the line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core import dtypes
from lamina.errors import FormatError
from lamina.ir.ops import Op
from lamina.tiles.barriers import synchronised
from lamina.tiles.layouts import Swizzle
from lamina.tiles.program import (
    ORDERS,
    Advance,
    Alloc,
    Barrier,
    Drain,
    Epilogue,
    Fence,
    Fill,
    Join,
    Mma,
    NextStep,
    Pause,
    Product,
    Release,
    Resume,
    Role,
    StepLoop,
    StepsOf,
    Sync,
    TileAxis,
    TileLoop,
    TileParameter,
    TileProgram,
    TileStore,
    Transpose,
    Wait,
)
from lamina.tiles.text import parse, to_text
from lamina.tiles.values import (
    Digits,
    Elements,
    Extent,
    Gather,
    Index,
    Map,
    Places,
    Position,
    Side,
    View,
)
from tests.tiles.programs import BY_ENGINE, BY_FMA, BY_THREADS

NAMES = st.sampled_from(["a", "p0", "left", "sums", "line", "full", "v1", "a12"])
SIZES = st.integers(1, 300)
DTYPES = st.sampled_from([dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.bool_])


def tuples(strategy: st.SearchStrategy[object], most: int = 3) -> st.SearchStrategy[tuple[object]]:
    """Short tuples."""
    return st.lists(strategy, max_size=most).map(tuple)


def one_or_more(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object]]:
    """Short tuples that are not empty."""
    return st.lists(strategy, min_size=1, max_size=3).map(tuple)


TERMS = tuples(st.tuples(NAMES, st.integers(-300, 300)))
INDICES = st.builds(Index, TERMS, st.integers(-9, 9))
SIDES = st.builds(Side, st.integers(-9, 900), INDICES, SIZES)
VIEWS = st.builds(View, NAMES, INDICES, st.tuples(SIDES, SIDES))
NUMBERS = st.floats(allow_nan=False) | st.integers(-(2**62), 2**62)
EXTENTS = one_or_more(st.builds(Extent, NAMES, SIZES))
SIDES_OF_TILES = st.tuples(*[st.builds(Digits, INDICES, EXTENTS)] * 2)
ELEMENTWISE = st.sampled_from([Op.ADD, Op.CAST, Op.WHERE, Op.EXP])
GUARDS = st.just("") | NAMES
MAPS = st.builds(Map, NAMES, DTYPES, ELEMENTWISE, one_or_more(NAMES | VIEWS | NUMBERS))
GATHERS = st.builds(Gather, NAMES, DTYPES, NAMES, INDICES, GUARDS)
COMPUTED = MAPS | GATHERS | st.builds(Position, NAMES, INDICES)
ELEMENTS = st.builds(Elements, SIDES_OF_TILES, tuples(COMPUTED))
PLACES = st.builds(Places, NAMES, INDICES, GUARDS)
STORES = st.builds(TileStore, VIEWS | PLACES, NAMES | VIEWS | NUMBERS, st.just("") | NAMES)
EPILOGUES = st.builds(
    Epilogue, tuples(COMPUTED | STORES), sides=st.just(()) | SIDES_OF_TILES
) | st.builds(Epilogue, tuples(COMPUTED | STORES), NAMES, SIZES)
PRODUCTS = st.builds(Product, NAMES, NAMES, NAMES)
SIMPLE = st.one_of(
    st.builds(
        Fill, NAMES, VIEWS | ELEMENTS, st.sampled_from(["threads", "tma"]), st.just("") | NAMES
    ),
    st.builds(Transpose, NAMES, SIZES),
    st.builds(Mma, one_or_more(PRODUCTS), NAMES, st.booleans(), SIZES),
    st.builds(Join, NAMES),
    st.builds(Wait, NAMES, st.booleans()),
    st.builds(Release, NAMES, SIZES),
    st.builds(Resume, SIZES),
    st.builds(Advance, NAMES, SIZES),
    st.builds(Drain, SIZES),
    st.builds(Fence),
    st.builds(Sync),
    EPILOGUES,
)
STATEMENTS = st.recursive(
    SIMPLE,
    lambda inner: st.builds(StepLoop, EXTENTS, tuples(inner), st.sampled_from(StepsOf))
    | st.builds(Pause, SIZES, SIZES, tuples(inner))
    | st.builds(NextStep, tuples(inner))
    | st.builds(
        TileLoop, st.sampled_from(ORDERS), SIZES, SIZES, SIZES, SIZES, EXTENTS, tuples(inner),
    ),
    max_leaves=8,
)  # fmt: skip
ALLOCS = st.builds(
    Alloc, NAMES, st.sampled_from(["shared", "registers"]), DTYPES, SIZES,
    st.tuples(st.builds(TileAxis, NAMES, SIZES), st.builds(TileAxis, NAMES, SIZES)),
    st.builds(Swizzle, st.integers(0, 4), st.integers(0, 5), st.integers(0, 4)),
)  # fmt: skip
ROLES = st.builds(
    Role, NAMES, SIZES, tuples(STATEMENTS), registers=st.integers(0, 240)
) | st.builds(Role, NAMES, st.just(0), tuples(STATEMENTS), NAMES)
PROGRAMS = st.builds(
    TileProgram,
    NAMES,
    tuples(st.builds(TileParameter, NAMES, DTYPES, SIZES, st.booleans())),
    tuples(ALLOCS),
    tuples(st.builds(Barrier, NAMES, SIZES, SIZES)),
    tuples(ROLES),
)


@given(PROGRAMS)
def test_every_program_reads_back(program: TileProgram) -> None:
    assert parse(to_text(program)) == program


@pytest.mark.parametrize("text", [BY_ENGINE, BY_THREADS, BY_FMA])
def test_text_is_what_was_read(text: str) -> None:
    program = parse(text)
    assert to_text(program) == text.strip()
    with_barriers = synchronised(program)
    assert parse(to_text(with_barriers)) == with_barriers


def edited(old: str, new: str) -> str:
    """BY_ENGINE with one change, which has to be one."""
    assert old in BY_ENGINE
    return BY_ENGINE.replace(old, new)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda: "", "line 1: expected 'tiles NAME'"),
        (lambda: edited("p1: bf16", "p1: b16"), "line 4: 'b16' is no dtype"),
        (lambda: edited("linear", "diagonal"), "line 9: 'diagonal' is no layout"),
        (lambda: edited("left * right", "left + right"), "are no products"),
        (lambda: edited("64*b <", "b*b <"), "line 14: 'b*b' is no term of an index"),
        (lambda: edited("= cast", "= round_up"), "'round_up' is no operation"),
        (lambda: edited("cast sums", "cast -"), "'-' is no operand"),
        (lambda: edited("    epilogue", "        epilogue"), "line 20: it is indented too far"),
        (lambda: edited("      map v0: bf16 = cast sums", "      sync"), "and stores alone"),
        (lambda: edited("role producer: warps=1", "rule producer"), "is no declaration"),
    ],
)  # fmt: skip
def test_an_error_names_the_line(change: Callable[[], str], says: str) -> None:
    with pytest.raises(FormatError, match="tiles, line") as raised:
        parse(change())
    assert says in str(raised.value)

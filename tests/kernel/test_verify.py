"""Every invariant of a nest: nests of good moves pass, and each kind of broken nest is caught."""

from __future__ import annotations

import pytest

from lamina.core.dtypes import bool_, float32
from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, Store
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Load, LoopReduce, Op
from lamina.loops.moves import apply
from lamina.loops.nest import Nest
from lamina.loops.text import parse
from lamina.loops.verify import verify_nest

ROW, COLUMN, SUM = ix.axis(0, 40), ix.axis(1, 8), ix.axis(2, 64, reduce=True)
FLAT = ix.add(ix.scale(ROW, 8), COLUMN)
PARAMETERS = (Parameter(float32, 2560), Parameter(float32, 320, True))


def load(index: Node) -> Node:
    return Node(Op.LOAD, (index,), Load(0, float32))


SUMS = Kernel(
    PARAMETERS,
    (
        Store(
            1,
            FLAT,
            Node(Op.LOOP_REDUCE, (load(ix.add(ix.scale(ROW, 64), SUM)), SUM), LoopReduce(ADD))
            + load(FLAT),
            (ROW, COLUMN),
        ),
    ),
    1,
)
SCAN = Kernel(
    PARAMETERS,
    (Store(1, FLAT, Node(Op.LOOP_SCAN, (load(FLAT), COLUMN), LoopReduce(ADD)), (ROW, COLUMN)),),
    1,
)
SCAN_OF_BOOL = Kernel(
    (Parameter(bool_, 320), Parameter(bool_, 320, True)),
    (
        Store(
            1,
            FLAT,
            Node(
                Op.LOOP_SCAN,
                (Node(Op.LOAD, (FLAT,), Load(0, bool_)), COLUMN),
                LoopReduce(MAX),
            ),
            (ROW, COLUMN),
        ),
    ),
    1,
)
AGAIN = Kernel(  # the same number along a2
    PARAMETERS,
    (Store(1, FLAT, Node(Op.LOOP_REDUCE, (load(FLAT), SUM), LoopReduce(ADD)), (ROW, COLUMN)),),
    1,
)
SPLIT = "split(a0, 16) -> a3, a4"


def nest(kernel: Kernel, text: str) -> Nest:
    return apply(kernel, parse(text)[""])


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{SPLIT}; bind(a3, parallel); bind(a4, unroll)",
        f"{SPLIT}; split(a4, 4) -> a5, a6; split(a2, 16) -> a7, a8; bind(a8, vector)",
        "bind(a1, vector); split(a2, 16) -> a3, a4; bind(a4, vector)",
        "reorder(a2, a1, a0)",
        "split(a2, 32) -> a3, a4; split(a4, 4) -> a5, a6; bind(a3, unroll); bind(a5, thread)",
    ],
)
def test_good_nests_pass(text: str) -> None:
    verify_nest(nest(SUMS, text))


@pytest.mark.parametrize("text", ["bind(a1, vector)", "split(a1, 4) -> a3, a4; bind(a4, vector)"])
def test_lanes_may_share_the_steps_of_a_scan(text: str) -> None:
    verify_nest(nest(SCAN, text))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (nest(SUMS, f"{SPLIT}; bind(a3, vector)"), "a3 is not the innermost"),
        (nest(SUMS, "bind(a0, vector)"), "a0 has 40 lanes"),
        (nest(SUMS, "split(a0, 1) -> a3, a4; bind(a4, vector)"), "a4 has 1 lanes"),
        (nest(SUMS, f"{SPLIT}; bind(a4, vector); bind(a2, vector)"), "lanes along a2, a4"),
        (nest(SUMS, f"{SPLIT}; bind(a4, vector); bind(a1, vector)"), "lanes along a1, a4"),
        (nest(AGAIN, "bind(a1, vector); bind(a2, vector)"), "lanes along a1, a2"),
        (nest(SCAN_OF_BOOL, "bind(a1, vector)"), "a1 run in order, and are bound to vector"),
        (nest(SCAN, "bind(a1, unroll)"), "a1 run in order, and are bound to unroll"),
        (nest(SCAN, "split(a1, 4) -> a3, a4"), "in order, and are bound to serial, serial"),
        (nest(SCAN, "split(a1, 4) -> a3, a4; bind(a3, thread)"), "are bound to thread, serial"),
        (nest(SUMS, "bind(a2, parallel)"), "the parallel axis a2 is no row axis"),
        (nest(SUMS, "bind(a1, parallel)"), "the parallel axis a1 is no row axis"),
        (nest(SUMS, f"{SPLIT}; bind(a4, parallel)"), "a4 is not the outermost"),
    ],
)
def test_broken_nests_are_caught(broken: Nest, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        verify_nest(broken)


def test_threads_may_share_running_values() -> None:
    split = "split(a1, 4) -> a3, a4; split(a4, 2) -> a5, a6"
    verify_nest(nest(SCAN, f"{split}; bind(a3, unroll); bind(a5, thread); bind(a6, unroll)"))


def test_ordered_loops_keep_their_order() -> None:
    first, second = ix.axis(1, 2), ix.axis(2, 4)
    flat = ix.add(ix.scale(ROW, 8), ix.scale(first, 4), second)
    value = Node(Op.LOOP_SCAN, (load(flat), first, second), LoopReduce(ADD))
    kernel = Kernel(PARAMETERS, (Store(1, flat, value, (ROW, first, second)),), 1)
    verify_nest(nest(kernel, ""))
    with pytest.raises(FormatError, match="a1, a2 run in this order"):
        verify_nest(nest(kernel, "reorder(a2, a1)"))

"""Movement as index arithmetic, loops that are split, and the two obstacles of a lowering."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lamina.core.dtypes import float32, int8, int64
from lamina.core.shape import Shape
from lamina.fuse.axes import AxisSplit, Index, LoopAxes
from lamina.fuse.lower import InMemory, Lowering, Source, bounds_of, operand_index
from lamina.graph import index as ix
from lamina.ir import build
from lamina.ir.kernel import loads_beneath
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from tests.generators import leaf

X = leaf(0, (4, 6), float32)
DATA = np.arange(24).reshape(4, 6)


def from_memory(node: Node, index: Index) -> InMemory | Source:
    """Every buffer is parameter 0."""
    if node.op is Op.BUFFER:
        return InMemory(0, ix.row_major(index, node.shape))
    return Source.COMPUTED


def lowered(node: Node, plan: dict[int, tuple[int, ...]] | None = None) -> tuple[Lowering, Node]:
    """`node` at new loops over its shape."""
    lowering = Lowering(from_memory, LoopAxes(plan or {}))
    return lowering, lowering.value(node, lowering.axes.open(node.shape).index)


def with_all_splits(node: Node) -> Node:
    """`node` lowered as often as an axis has to be split."""
    plan: dict[int, tuple[int, ...]] = {}
    while True:
        lowering, value = lowered(node, plan)
        if not isinstance(lowering.obstacle, AxisSplit):
            assert lowering.obstacle is None
            return value
        plan = dict(lowering.axes.split(lowering.obstacle))


MOVED: dict[str, tuple[Node, np.ndarray]] = {
    "permute": (build.permute(X, [1, 0]), DATA.T),
    "expand": (build.expand(X, (3, 4, 6)), np.broadcast_to(DATA, (3, 4, 6))),
    "shrink": (build.sliced(X, [range(3, -1, -1), range(1, 6, 2)]), DATA[::-1, 1:6:2]),
    "pad": (build.pad(X, [1, 0], [0, 2]), np.pad(DATA, [(1, 0), (0, 2)], constant_values=-1)),
}


@pytest.mark.parametrize("name", MOVED)
def test_movement_reads_what_numpy_does(name: str) -> None:
    node, expected = MOVED[name]
    for at in np.ndindex(node.shape):
        index = tuple(ix.scale(ix.ZERO, 1, place) for place in at)
        source = [part.arg.value for part in operand_index(node, index)]
        is_inside = all(0 <= place < size for place, size in zip(source, X.shape, strict=True))
        assert expected[at] == (DATA[tuple(source)] if is_inside else -1)


def places(index: Node, shape: Shape) -> list[int]:
    """The value of an affine index at every point of loops over its axes, in their order."""
    terms, constant = ix.terms_of(index)
    axes = sorted(terms, key=lambda axis: axis.arg.number)
    assert int(np.prod([axis.arg.size for axis in axes])) == int(np.prod(shape))
    return [
        constant + sum(terms[axis] * step for axis, step in zip(axes, point, strict=True))
        for point in product(*(range(axis.arg.size) for axis in axes))
    ]


@pytest.mark.parametrize("shape", [(24,), (2, 12), (6, 2, 2), (3, 1, 2, 4), (12, 2), (3, 8)])
def test_a_reshape_splits_axes_until_no_division_is_left(shape: Shape) -> None:
    value = with_all_splits(build.reshape(build.permute(X, [1, 0]), shape))
    assert not {Op.IDIV, Op.MOD} & {inner.op for inner in toposort([value])}
    assert places(value.src[0], shape) == DATA.T.ravel().tolist()


def test_a_reshape_of_a_view_divides_where_no_split_helps() -> None:
    """Rows of 7 elements, the last of each padding, are read in rows of 4."""
    padded = build.reshape(build.pad(X, [0, 0], [0, 1]), (4, 7))
    across = build.reshape(padded, (7, 4))
    ops = {inner.op for inner in toposort([with_all_splits(across)])}
    assert {Op.IDIV, Op.MOD} <= ops


def test_a_split_is_asked_for_with_its_factor() -> None:
    x = leaf(0, (3, 4), float32)
    transposed = build.permute(x, [1, 0])
    lowering, value = lowered(build.reshape(transposed, (12,)))
    request = lowering.obstacle
    assert isinstance(request, AxisSplit)
    assert request.factor == 3
    assert lowering.axes.split(request) == {0: (4, 3)}
    assert value is const(0, float32)


def test_the_first_of_two_splits_is_asked_for() -> None:
    lowering, _ = lowered(build.reshape(leaf(0, (3, 4, 3, 5), float32), (12, 15)))
    assert isinstance(lowering.obstacle, AxisSplit)
    assert lowering.axes.split(lowering.obstacle) == {0: (3, 4)}


def test_a_piece_is_split_again_in_its_place() -> None:
    axes = LoopAxes({1: (3, 8)})
    loops = axes.open((5, 24))
    assert [axis.arg.size for axis in loops.axes] == [5, 3, 8]
    assert axes.split(AxisSplit(loops.axes[2], 4)) == {1: (3, 2, 4)}
    assert axes.split(AxisSplit(loops.axes[1], 3)) == {1: (1, 3, 8)}
    assert axes.split(AxisSplit(loops.axes[0], 5)) == {0: (1, 5), 1: (3, 8)}


def test_an_axis_of_one_element_has_no_loop() -> None:
    loops = LoopAxes({}).open((1, 7))
    assert loops.index[0] is ix.ZERO
    assert loops.axes == (loops.index[1],)


def test_a_hoisted_axis_is_in_the_index_and_not_opened() -> None:
    axes = LoopAxes({1: (4, 8)})
    (row,) = axes.open((10,)).axes
    block = axes.hoist_next(4)
    loops = axes.reduce_loops((row,), (10, 32), (1,))
    assert [axis.arg.size for axis in loops.axes] == [8]
    assert ix.terms_of(loops.index[1])[0] == {block: 8, loops.axes[0]: 1}


def test_two_reductions_of_a_row_share_their_loop() -> None:
    lowering = Lowering(from_memory, LoopAxes({}))
    rows = lowering.axes.open((4,))
    first = lowering.value(build.reduce(ADD, [1], X), rows.index)
    second = lowering.value(build.reduce(ADD, [1], X * X), rows.index)
    assert first.src[1:] == second.src[1:]


def test_a_member_at_another_index_is_an_obstacle() -> None:
    member = X * 2.0

    def sources(node: Node, index: Index) -> InMemory | Source:
        return Source.OTHER_INDEX if node is member else from_memory(node, index)

    lowering = Lowering(sources, LoopAxes({}))
    index = lowering.axes.open(X.shape).index
    assert lowering.value(member + 1.0, index).op is Op.ADD
    assert lowering.obstacle is Source.OTHER_INDEX
    assert lowering.value(X + 3.0, index) is const(0, float32)


@pytest.mark.parametrize(
    ("low", "high", "is_tested"), [(0, 5, False), (2, 3, False), (-1, 5, True), (0, 6, True)]
)
def test_places_that_are_clamped_into_the_range_are_not_tested(
    low: int, high: int, is_tested: bool
) -> None:
    """Though memory holds them: a kernel reads the clamped places as it reads any number."""
    index = leaf(1, (7,), int64)
    clamped = Node(Op.MIN, (Node(Op.MAX, (index, index.lift(low))), index.lift(high)))
    gathered = Node(Op.GATHER, (X, build.broadcast_in_dim(clamped, 1, (4, 7))), 1)

    def with_places_in_memory(node: Node, index: Index) -> InMemory | Source:
        if node is clamped:
            return InMemory(1, index[0])
        return from_memory(node, index)

    lowering = Lowering(with_places_in_memory, LoopAxes({}))
    value = lowering.value(gathered, lowering.axes.open(gathered.shape).index)
    assert (len(value.src) > 1) is is_tested


@pytest.mark.parametrize("is_there_anyway", [True, False])
def test_a_place_is_read_without_the_condition_of_the_gather(is_there_anyway: bool) -> None:
    """One place for each row is there for all columns; of one for each element there are as many
    as columns that the condition lets through."""
    rows, columns = X.shape
    index = leaf(1, (3, 1) if is_there_anyway else (3, columns), int64)
    places = build.expand(index, (3, columns))
    padded = build.pad(Node(Op.GATHER, (X, places), 0), (0, 2), (0, 1), 0.0)
    lowering = Lowering(from_memory, LoopAxes({}))
    i, j = lowering.axes.open(padded.shape).index
    value = lowering.value(padded, (i, j))
    (place,) = {load for load in loads_beneath([value]) if load.dtype is int64}
    assert (len(place.src) == 1) is is_there_anyway
    (element,) = {load for load in loads_beneath([value]) if load.dtype is float32}
    tested = set(ix.conjuncts(element.src[1]))
    assert tested == {
        *ix.conjuncts(ix.inside(ix.scale(j, 1, -2), columns)),
        *ix.conjuncts(ix.inside(place, rows)),
    }


def test_places_of_a_narrower_type_or_with_padding_are_tested() -> None:
    index = leaf(1, (7,), int64)
    clamped = Node(Op.MIN, (Node(Op.MAX, (index, index.lift(1))), index.lift(5)))
    assert bounds_of(build.permute(build.expand(clamped, (2, 7)), [1, 0])) == (1, 5)
    for other in (build.pad(clamped, (1,), (0,), 9), build.cast(clamped, int8), index):
        assert bounds_of(other) == (-(1 << 63), (1 << 63) - 1)

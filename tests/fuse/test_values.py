"""What gets memory and what shares a kernel, on the example of the modules' docstrings."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from lamina.backends import OF_GPUS
from lamina.core.dtypes import DType, bfloat16, float16, float32, int64
from lamina.fuse.costs import element_costs, widening
from lamina.fuse.groups import group_values
from lamina.fuse.program import build_program
from lamina.fuse.target import FusionTarget
from lamina.fuse.users import users_of
from lamina.fuse.values import choose_values
from lamina.ir import build
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter
from tests.generators import leaf
from tests.programs import softmax, views_of

M, K, N = 64, 32, 100
CPU = FusionTarget()
GPU = OF_GPUS


def product() -> Node:
    x, w = leaf(0, (M, K), float32), leaf(1, (K, N), float32)
    rows = build.expand(build.reshape(x, (M, K, 1)), (M, K, N))
    columns = build.expand(build.reshape(w, (1, K, N)), (M, K, N))
    return build.reduce(ADD, [1], rows * columns)


def example() -> Node:
    """``softmax(x @ w)``"""
    return softmax(product(), 1)


@pytest.mark.parametrize(
    ("target", "ops"),
    [
        (CPU, [Op.REDUCE, Op.REDUCE, Op.EXP, Op.REDUCE, Op.DIV]),
        (GPU, [Op.REDUCE, Op.REDUCE, Op.REDUCE, Op.DIV]),
    ],
)
def test_the_values_of_the_example(target: FusionTarget, ops: list[Op]) -> None:
    assert [node.op for node in choose_values([example()], target).regions] == ops


def test_an_exponential_of_a_difference_costs_as_the_docstring_says() -> None:
    users = users_of([example()])
    reductions = {node for node in users if node.op is Op.REDUCE}
    (exponential,) = (node for node in users if node.op is Op.EXP)
    assert element_costs(users, reductions)[exponential] == 14


@pytest.mark.parametrize(("order", "is_stored"), [((0, 1, 2), True), ((0, 2, 1), False)])
def test_what_is_made_of_indices_costs_nothing_if_all_lanes_share_it(
    order: tuple[int, ...], is_stored: bool
) -> None:
    """A mask of a row and a column, 14 additions or more, whose result two reductions read. It is
    the same for all lanes if it is repeated along the last axis."""
    shape = tuple((5, K, N)[axis] for axis in order)
    row, column = (build.broadcasted_iota((5, N), axis) for axis in (0, 1))
    mask = row * 3 // 7 + column * 4 // 9 < column * 2 // 3 + (column + 1) * 5 // 11
    repeated = build.expand(build.reshape(mask, (5, 1, N)), (5, K, N))
    x = leaf(0, shape, float32)
    masked = build.permute(repeated, order).select(x, x.lift(0.0))
    sinks = [build.reduce(monoid, [1], masked) for monoid in (ADD, MAX)]
    assert (masked in choose_values(sinks, CPU).regions) == is_stored


def test_the_kernels_of_the_example() -> None:
    groups = group_values([example()], CPU, frozenset())
    assert [group.rows for group in groups] == [(M, N), (M,)]
    assert [len(group.members) for group in groups] == [1, 4]
    assert groups[1].shape.columns == {(M, N): {1}, (M,): frozenset()}
    scratch = [view.size for view in views_of(build_program([example()], CPU))
               if view.kind == "scratch"]  # fmt: skip
    assert set(scratch) == {M * N}  # the product is passed on, nothing else


@pytest.mark.parametrize("name", ["columns", "other rows"])
def test_a_value_that_does_not_fit_leaves_a_kernel_as_it_was(name: str) -> None:
    """A sum down the columns has other rows than the row sums; their reverse needs other rows."""
    doubled = leaf(0, (M, N), float32) * 2.0
    rows = build.reduce(ADD, [1], doubled)
    (group,) = group_values([doubled, rows], CPU, frozenset())
    before = dict(group.stores), dict(group.reads), group.shape
    values = {"columns": build.reduce(ADD, [0], doubled), "other rows": build.flip(rows, [0]) * 3.0}
    assert not group.try_add(values[name])
    assert (dict(group.stores), dict(group.reads), group.shape) == before
    assert group.members == [doubled, rows]
    assert group.try_add(rows * 3.0)


def test_rows_that_begin_within_a_word_are_padded_between_kernels() -> None:
    """A row of 100 float16 has 200 bytes, 12.5 words of 16; 128 elements are two lines."""
    x, w = leaf(0, (M, K), float16), leaf(1, (K, N), float16)
    rows = build.expand(build.reshape(x, (M, K, 1)), (M, K, N))
    columns = build.expand(build.reshape(w, (1, K, N)), (M, K, N))
    scores = build.reduce(ADD, [1], rows * columns)
    (first, *_) = group_values([build.reduce(ADD, [0], scores)], GPU, frozenset())
    assert first.values[scores] == (M, 128)


@pytest.mark.parametrize(
    ("source", "result", "bits"),
    [(bfloat16, float32, 16), (float32, bfloat16, -16), (float16, bfloat16, 0)],
)
def test_a_cast_widens_by(source: object, result: object, bits: int) -> None:
    node = build.cast(leaf(0, (4,), source), result)  # type: ignore[arg-type]
    assert widening(node) == bits


@pytest.mark.parametrize(
    ("target", "axis", "columns", "op", "is_value"),
    [
        (CPU, 1, K, Op.EXP, True),
        (CPU, 1, K, Op.NEG, False),  # cheaper than a store and a load
        (CPU, 0, 8, Op.EXP, False),  # the scatter has vectors along the columns
        (CPU, 0, 7, Op.EXP, True),
        (GPU, 1, K, Op.EXP, False),
    ],
)
def test_a_scatter_without_vectors_reads_costly_updates(
    target: FusionTarget, axis: int, columns: int, op: Op, is_value: bool
) -> None:
    base, x = (leaf(number, (M, columns), float32) for number in range(2))
    index = leaf(2, (M, columns), int64)
    update = x.apply(op)
    total = Node(Op.SCATTER, (base, index, update), Scatter(axis, ADD))
    assert (update in choose_values([total], target).regions) == is_value


@pytest.mark.parametrize(
    ("target", "gathers", "exponentials", "is_value"),
    [
        (CPU, 2, 2, True),
        (CPU, 2, 1, False),  # an exponential more for each element
        (CPU, 1, 2, False),  # is computed once
        (GPU, 2, 2, False),
        (GPU, 3, 2, True),
    ],
)
def test_what_several_gathers_read_at_places_of_their_own_is_stored(
    target: FusionTarget, gathers: int, exponentials: int, is_value: bool
) -> None:
    total = leaf(0, (M, K), float32)
    for _ in range(exponentials):
        total = total.apply(Op.EXP)
    result = build.full((M, K), 0.0, float32)
    for number in range(gathers):
        result = result + Node(Op.GATHER, (total, leaf(1 + number, (M, K), int64)), 1)
    assert (total in choose_values([result], target).regions) == is_value


@pytest.mark.parametrize("target", [CPU, GPU])
@pytest.mark.parametrize(
    ("times", "arrays", "dtype", "is_value"),
    [
        (2, 1, bfloat16, False),  # 8 bytes each time; stored 4 + 2 + 4
        (4, 1, bfloat16, True),  # 16, and 4 + 2 + 8
        (2, 2, float32, False),  # 16, and 8 + 4 + 8
        (4, 2, float32, True),  # 32, and 8 + 4 + 16
        (8, 1, float32, False),  # as many bytes each time as of what is stored
    ],
)
def test_arithmetic_is_stored_where_gathers_read_fewer_bytes_then(
    target: FusionTarget, times: int, arrays: int, dtype: DType, is_value: bool
) -> None:
    operands = [leaf(number, (M, K), float32) for number in range(arrays)]
    scale = build.expand(leaf(8, (1, K), float32), (M, K))
    total = build.cast(reduce(Node.__add__, operands) * scale, dtype)
    index = build.expand(leaf(9, (times * M // 2, 1), int64), (times * M // 2, K))
    gathers = [Node(Op.GATHER, (total, each), 0) for each in (index, index + 1)]
    result = gathers[0] + gathers[1]
    assert (total in choose_values([result], target).regions) == is_value


def of_exponentials(count: int) -> Node:
    x = leaf(0, (M, K), float32)
    for _ in range(count):
        x = x.apply(Op.EXP)
    return x


@pytest.mark.parametrize(
    ("target", "exponentials", "is_value"),
    [(CPU, 2, True), (CPU, 1, False), (GPU, 4, True), (GPU, 3, False)],
)
def test_what_a_value_reads_at_two_places_is_stored(
    target: FusionTarget, exponentials: int, is_value: bool
) -> None:
    x = of_exponentials(exponentials)
    difference = build.slice_axis(x, 1, 1, K) - build.slice_axis(x, 1, 0, K - 1)
    assert (x in choose_values([difference], target).regions) == is_value


def test_halves_that_a_value_reads_are_not_stored() -> None:
    """A gated unit computes each element once: it is in one of both halves."""
    x = of_exponentials(4)
    gated = build.slice_axis(x, 1, 0, K // 2) * build.slice_axis(x, 1, K // 2, K)
    assert x not in choose_values([gated], CPU).regions


def products_of_prefixes(x: Node) -> Node:
    """Along the last axis, whose size is a power of 2, as PyTorch's `associative_scan` has them:
    prefixes of products of neighbours, and between these one product more."""
    rows, columns = x.shape
    if columns == 1:
        return x
    half = columns // 2
    first, second = (build.slice_axis(x, 1, side, columns, 2) for side in (0, 1))
    odd = products_of_prefixes(first * second)
    before = build.pad(build.slice_axis(odd, 1, 0, half - 1), (0, 1), (0, 0), 1.0)
    even = build.reshape(before * first, (rows, half, 1))
    odd = build.reshape(odd, (rows, half, 1))
    pairs = build.pad(even, (0, 0, 0), (0, 0, 1)) + build.pad(odd, (0, 0, 1), (0, 0, 0))
    return build.reshape(pairs, (rows, columns))


def test_a_scan_by_halves_computes_each_level_once() -> None:
    """Each level reads the one before at several places, and so has it in memory."""
    program = build_program([products_of_prefixes(of_exponentials(3))], CPU)
    nodes = [node for launch in program.launches for node in launch.kernel.nodes]
    assert sum(node.op is Op.EXP for node in nodes) == 3


@pytest.mark.parametrize(("vectors", "kernels"), [(1, 1), (16, 2)])
def test_a_product_with_one_vector_updates_arrays_in_its_kernel(vectors: int, kernels: int) -> None:
    """With several it has tiles, too few to update anything: see `min_updating_results`."""
    shape = (vectors, 512, 4096)
    weights = build.expand(leaf(0, (1, 512, 4096), float32), shape)
    x = build.expand(leaf(1, (vectors, 1, 4096), float32), shape)
    rest, scales = (leaf(number, (vectors, 512), float32) for number in (2, 3))
    result = (build.reduce(ADD, [2], weights * x) + rest) * scales
    target = replace(GPU, tiled_products=True, min_updating_results=1 << 20)
    assert len(build_program([result], target).launches) == kernels


@pytest.mark.parametrize(("device", "kernels"), [(CPU, 2), (GPU, 1)])
def test_gradients_of_filters_are_stored_before_an_update(
    device: FusionTarget, kernels: int
) -> None:
    """A sum over images and places, of which a filter is then taken from another array."""
    shape = (4, 24, 16, 6, 6)
    slopes = build.expand(leaf(0, (4, 24, 1, 6, 6), float32), shape)
    images = build.expand(leaf(1, (4, 1, 16, 6, 6), float32), shape)
    total = build.reduce(ADD, [0, 3, 4], slopes * images)
    target = replace(device, min_updating_results=1 << 20)
    program = build_program([leaf(2, (24, 16), float32) - total], target)
    assert len(program.launches) == kernels


def test_of_a_value_that_copies_need_the_slice_is_stored_that_is_read() -> None:
    x = leaf(0, (40, 6), float32)
    exponential = x.apply(Op.EXP)
    part = build.slice_axis(exponential, 0, 10, 20)
    copies = build.expand(build.reshape(part, (10, 1, 6)), (10, 3, 6))
    assert part in choose_values([copies], CPU).regions
    assert exponential not in choose_values([copies], CPU).regions
    # Where more is read of it, it is stored as a whole.
    regions = choose_values([copies, build.reduce(ADD, [0], exponential)], CPU).regions
    assert exponential in regions
    assert part not in regions


def scaled_product(columns: int, *, of_scalars: bool, by_array: bool) -> tuple[Node, Node]:
    """A product of (M, K) and (K, columns), one of which is scaled: that factor, and the product.

    of_scalars: the first one, which is the same along the columns, is scaled
    by_array: by an array, and not by a number
    """
    shape = (M, K) if of_scalars else (K, columns)
    scale = leaf(2, shape, float32) if by_array else build.full(shape, 2.0, float32)
    scaled = leaf(0, shape, float32) * scale
    x, w = (scaled, leaf(1, (K, columns), float32))
    if not of_scalars:
        x, w = leaf(1, (M, K), float32), scaled
    rows = build.expand(build.reshape(x, (M, K, 1)), (M, K, columns))
    repeated = build.expand(build.reshape(w, (1, K, columns)), (M, K, columns))
    return scaled, build.reduce(ADD, [1], rows * repeated)


@pytest.mark.parametrize(
    ("columns", "of_scalars", "by_array", "target", "is_stored"),
    [
        (48, True, True, CPU, True),
        (47, True, True, CPU, False),  # computed by few tiles of columns
        (48, False, True, CPU, False),  # as vectors, once for many rows
        (48, True, False, CPU, False),  # a number times an array
        (48, True, True, GPU, False),
    ],
)
def test_what_computes_scalars_of_many_vectors_is_stored(
    columns: int, target: FusionTarget, *, of_scalars: bool, by_array: bool, is_stored: bool
) -> None:
    scaled, total = scaled_product(columns, of_scalars=of_scalars, by_array=by_array)
    assert (scaled in choose_values([total], target).regions) == is_stored


@pytest.mark.parametrize(
    ("steps", "columns", "dtype", "by_array", "is_stored"),
    [
        (257, 256, float16, True, True),
        (256, 256, float16, True, False),  # as of the heads of attention
        (257, 255, float16, True, False),  # threads compute it for few tiles
        (257, 256, float32, True, False),  # multiplied by the threads that compute it
        (257, 256, float16, False, False),  # a number times an array
    ],
)
def test_what_threads_would_fill_tiles_with_is_stored(
    steps: int, columns: int, dtype: DType, *, by_array: bool, is_stored: bool
) -> None:
    """Of a GPU, however cheap it is."""
    scale = leaf(2, (M, steps), dtype) if by_array else build.full((M, steps), 2.0, dtype)
    scaled = leaf(0, (M, steps), dtype) * scale
    shape = (M, steps, columns)
    left, right = (
        build.expand(build.reshape(build.cast(one, float32), size), shape)
        for one, size in (
            (scaled, (M, steps, 1)), (leaf(1, (steps, columns), dtype), (1, steps, columns)),
        )
    )  # fmt: skip
    total = build.reduce(ADD, [1], left * right)
    target = replace(GPU, tiled_products=True)
    assert (scaled in choose_values([total], target).regions) == is_stored


@pytest.mark.parametrize("is_factor_alone", [True, False])
def test_short_rows_of_a_factor_begin_at_words(*, is_factor_alone: bool) -> None:
    """A row of 31 float16 has 62 bytes, and 64 where only tiles of products read it."""
    x, w = leaf(0, (M, K), float16), leaf(1, (K, 31), float16)
    copy = Node(Op.CONTIGUOUS, (w,))
    rows = build.expand(build.reshape(x, (M, K, 1)), (M, K, 31))
    total = build.reduce(ADD, [1], rows * build.expand(build.reshape(copy, (1, K, 31)), rows.shape))
    sinks = [total] if is_factor_alone else [total, build.reduce(ADD, [1], copy)]
    (first, *_) = group_values(sinks, GPU, frozenset())
    assert first.values[copy] == (K, 32 if is_factor_alone else 31)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scalars_of_vectors_may_be_repeated_along_new_axes(axis: int) -> None:
    """A vector that each of many rows is multiplied by, as in ``sum(-x * y, axis)``."""
    x, y = leaf(0, (K,), float32), leaf(1, (M, N, K), float32)
    total = build.reduce(ADD, [axis], build.expand(-x, (M, N, K)) * y)
    assert list(choose_values([total], CPU).regions) == [total]

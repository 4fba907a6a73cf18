"""Random programs keep their values when they are simplified, and simplifying twice is once."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest

from lamina.core.dtypes import DType, bfloat16, float32, float64, int32, int64
from lamina.graph import split_products, split_reductions
from lamina.graph.algebra import SIMPLIFY
from lamina.graph.rewrite import Rule, on, rewrite
from lamina.graph.split_products import cached_products_in_parts, products_apart
from lamina.graph.split_reductions import (
    columns_in_parts,
    long_columns_in_parts,
    long_products_in_parts,
)
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Reduce, Scatter
from lamina.ir.verify import verify
from lamina.schedule.gpu.parts import tiled_products_in_parts
from tests.generators import Style, leaf, random_graph
from tests.rewrite.agreement import same_values

GRAPHS = 500
EXACT_BELOW = 2.0**50
TILED_IN_PARTS = tiled_products_in_parts(multiprocessors=132)


def recorded(rules: Iterable[Rule], trace: list[str]) -> list[Rule]:
    """`rules` that add their names to `trace` where they apply."""

    def apply(rule: Rule, node: Node) -> Node | None:
        found = rule.apply(node)
        trace.extend([rule.name] if found not in (None, node) else [])
        return found

    return [one._replace(apply=partial(apply, one)) for one in rules]


def check(seed: int, style: Style, rules: Iterable[Rule]) -> str | None:
    """What is wrong with `rules` on a random program, or None."""
    sinks, leaves = random_graph(random.Random(f"{style}{seed}"), 14, style)
    trace = list[str]()
    after = rewrite(sinks, recorded(rules, trace))
    verify(after)
    if style == "sums":
        order = toposort(sinks)
        floats = [v for v in evaluate(order, leaves) if v.dtype.kind == "f"]
        if any(np.abs(v[np.isfinite(v)]).max(initial=0) >= EXACT_BELOW for v in floats):
            return None
    for before, left, right in zip(
        sinks, evaluate(sinks, leaves), evaluate(after, leaves), strict=True
    ):
        if not same_values(left, right, zeros=style == "bits"):
            return f"seed {seed}: {before}: {left} became {right} by {trace}"
    assert all(x is y for x, y in zip(rewrite(after, rules), after, strict=True))
    return None


@pytest.mark.parametrize("style", ["bits", "extrema", "sums"])
def test_simplified_program_has_the_same_value(style: Style) -> None:
    for seed in range(GRAPHS):
        wrong = check(seed, style, SIMPLIFY)
        assert wrong is None, wrong


def test_random_programs_reach_every_function() -> None:
    trace = list[str]()
    rules = recorded(SIMPLIFY, trace)
    for seed in range(3 * GRAPHS):
        sinks, _ = random_graph(random.Random(seed), 24, "loose")
        rewrite(sinks, rules)
    functions = {one.name for one in SIMPLIFY if not one.forms}
    of_large_arrays = {"reduce_in_parts", "scan_in_parts"}
    of_indices = {
        "argsort_single", "scatter_one", "scatter_into_float32", "places_of_32_bits",
    }  # fmt: skip
    of_sums = {"narrow_sum"}  # of float32, rounded to 16 bits
    missed = of_indices | of_large_arrays | of_sums
    assert functions.difference(trace) == missed


def test_loose_programs_evaluate() -> None:
    for seed in range(100):
        sinks, leaves = random_graph(random.Random(seed), 16, "loose")
        for sink, value in zip(sinks, evaluate(sinks, leaves), strict=True):
            assert value.shape == sink.shape


@on(Op.SHRINK)
def wrong_shrink_twice(node: Node) -> Node | None:
    """Forgets that the inner box has a start."""
    inner = node.src[0]
    return Node(Op.SHRINK, inner.src, node.arg) if inner.op is Op.SHRINK else None


def test_random_programs_catch_a_wrong_function() -> None:
    rules = [wrong_shrink_twice]
    assert any(check(seed, "bits", rules) for seed in range(20 * GRAPHS))


X, Y = leaf(0, (2, 3), float32), leaf(1, (9,), float32)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Node(Op.PERMUTE, (Node(Op.PERMUTE, (X,), (1, 0)),), (1, 0)), X),
        (build.reshape(build.reshape(X, (6,)), (2, 3)), X),
        (build.pad(build.expand(Y, (4, 9)), (0, 1), (0, 2), -0.0),
         build.expand(build.pad(Y, (1,), (2,), -0.0), (4, 12))),
        (build.pad(build.expand(Y, (4, 9)), (1, 0), (0, 0)),
         build.pad(build.expand(Y, (4, 9)), (1, 0), (0, 0))),
        (build.reduce(MAX, [0], build.reshape(X, (1, 2, 3))), X),
    ],
)
def test_movement_and_reductions_simplify(before: Node, after: Node) -> None:
    assert rewrite([before], SIMPLIFY) == [after]


def test_a_sum_is_rounded_before_it_is_cut() -> None:
    total = build.reduce(ADD, [1], leaf(0, (6, 5, 4), float32))

    def cut(x: Node) -> Node:
        return build.sliced(build.reshape(x, (4, 6)), [range(1, 3), range(6)])

    assert rewrite([build.cast(cut(total), bfloat16)], SIMPLIFY) == [
        cut(build.cast(total, bfloat16))
    ]
    of_input = build.cast(cut(leaf(1, (6, 4), float32)), bfloat16)
    assert rewrite([of_input], SIMPLIFY) == [of_input]


@pytest.mark.parametrize("part", [0, 1])
def test_places_of_extremes_are_found_in_32_bits(part: int) -> None:
    x = leaf(0, (4, 6), float32)
    before = build.reduce(ARGMAX, [1], x, build.broadcasted_iota(x.shape, 1), component=part)
    (after,) = rewrite([before], SIMPLIFY)
    (reduced,) = (node for node in toposort([after]) if node.op is Op.REDUCE)
    assert reduced.src[1].dtype is int32
    assert after.dtype is before.dtype
    values = {x: np.array([[1, 3, 3, 0, 2, 3], [np.nan, 1, 2, 3, 4, 5], [0.0] * 6, [-1.0] * 6])}
    values[x] = values[x].astype(np.float32)
    assert same_values(*evaluate([before, after], values))
    data = leaf(1, (4, 6), int64)  # is no number of an axis
    of_data = build.reduce(ARGMAX, [1], x, data, component=part)
    assert rewrite([of_data], SIMPLIFY) == [of_data]


@pytest.mark.parametrize("monoid", [None, ADD, MAX])
def test_a_scatter_of_one_update_is_a_choice(monoid: Monoid | None) -> None:
    rng = np.random.default_rng(0)
    places, update = leaf(1, (4, 1), int32), leaf(2, (4, 1), float32)
    base = leaf(0, (4, 3), float32)
    values = {
        base: rng.random((4, 3), np.float32),
        places: np.array([[0], [2], [5], [-1]], np.int32),
        update: rng.random((4, 1), np.float32),
    }
    before = Node(Op.SCATTER, (base, places, update), Scatter(1, monoid))
    after = rewrite([before], SIMPLIFY)[0]
    assert Op.SCATTER not in {node.op for node in toposort([after])}
    assert same_values(*evaluate([before, after], values))


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((8, 32, 40), [(1, 2), (0,)]),  # long enough, and so is each part
        ((8, 8, 40), [(0, 1, 2)]),  # short
        ((64, 16, 16), [(0, 1, 2)]),  # long, of short parts
    ],
)
def test_long_products_are_summed_in_parts(
    rows: tuple[int, int, int], wanted: list[tuple[int, ...]]
) -> None:
    x, w = leaf(0, (*rows, 1), float32), leaf(1, (1, 1, rows[2], 70), float32)
    shape = (*rows, 70)
    before = build.reduce(ADD, [0, 1, 2], build.expand(x, shape) * build.expand(w, shape))
    (after,) = rewrite([before], SIMPLIFY)
    assert [node.arg.axes for node in toposort([after]) if node.op is Op.REDUCE] == wanted
    rng = np.random.default_rng(0)
    values = {one: rng.integers(-3, 4, one.shape).astype(np.float32) for one in (x, w)}
    assert same_values(*evaluate([before, after], values))


@pytest.mark.parametrize(
    ("shape", "axes", "wanted"),
    [
        ((16384, 768), (0,), [(1,), (0,)]),
        ((16, 1024, 768), (0, 1), [(1,), (0,)]),
        ((768, 16384), (1,), [(1,)]),  # rows, each of which a block has
        ((16384, 8192), (0,), [(0,)]),  # enough columns
        ((4096, 1024), (0,), [(0,)]),  # short ones
        ((16383, 768), (0,), [(1,), (0,)]),  # of which no parts are even
        ((70000, 0), (0,), [(0,)]),  # no column
    ],
)
def test_few_long_columns_are_reduced_in_parts(
    shape: tuple[int, ...], axes: tuple[int, ...], wanted: list[tuple[int, ...]]
) -> None:
    before = build.reduce(ADD, axes, leaf(0, shape, float32))
    (after,) = rewrite([before], (*SIMPLIFY, columns_in_parts))
    assert [node.arg.axes for node in toposort([after]) if node.op is Op.REDUCE] == wanted


def test_parts_have_more_than_one_element() -> None:
    # An element of 16 arrays counts as 16 words, so that 20 columns of 512 are long.
    arrays = [leaf(number, (512, 20), float32) for number in range(16)]
    before = build.reduce(ADD, (0,), sum(arrays[1:], arrays[0]))
    (after,) = rewrite([before], (*SIMPLIFY, columns_in_parts))
    reductions = [node for node in toposort([after]) if node.op is Op.REDUCE]
    assert all(node.src[0].shape[node.arg.axes[0]] > 1 for node in reductions)


def test_parts_of_columns_come_to_what_columns_do() -> None:
    x, y = leaf(0, (65536, 64), float32), leaf(1, (65536, 1), float32)
    place = build.expand(build.reshape(build.iota(65536, int64), (65536, 1)), x.shape)
    before = [Node(Op.REDUCE, (x, place), Reduce(ARGMAX, (0,), part)) for part in range(2)]
    before.append(build.reduce(ADD, [0], x * build.expand(y, x.shape)))
    after = rewrite(before, (*SIMPLIFY, columns_in_parts))
    assert sum(one.op is Op.REDUCE for one in toposort(after)) == 6
    rng = np.random.default_rng(0)
    values = {one: rng.integers(-3, 4, one.shape).astype(np.float32) for one in (x, y)}
    assert all(map(same_values, evaluate(before, values), evaluate(after, values)))


@pytest.mark.parametrize("shape", [(65537, 64), (4194319,)])
def test_parts_need_not_be_even(shape: tuple[int, ...]) -> None:
    x = leaf(0, shape, float32)
    place = build.broadcasted_iota(shape, 0)
    before = [Node(Op.REDUCE, (x, place), Reduce(ARGMIN, (0,), 1)), build.reduce(ADD, [0], x)]
    after = rewrite(before, (*SIMPLIFY, columns_in_parts))
    assert sum(one.op is Op.REDUCE for one in toposort(after)) == 5
    values = {x: np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)}
    assert all(map(same_values, evaluate(before, values), evaluate(after, values)))


@pytest.mark.parametrize(
    ("shape", "axes", "partial"),
    [
        ((3, 99991), (1,), (3, 511)),  # a prime number: parts of 196, and a shorter one
        ((2, 1, 13, 20011), (0, 2, 3), (512,)),  # axes that lie side by side are one
        ((4, 1 << 20), (0, 1), (512,)),
        ((6, 3980832), (0, 1), (2048,)),  # more and shorter parts of a large array end more evenly
        ((5, 37, 16, 131), (1, 2, 3), (5, 74)),  # the parts are even: 74 are two of each 16 * 131
        ((88, 131200), (1,), (88, 16)),  # no block has registers for such a row
        ((5, 32749), (1,), None),  # a block reduces that as fast
        ((88, 65537), (1,), None),  # rows for most multiprocessors, which registers hold
    ],
)
def test_few_long_rows_of_any_length_are_reduced_in_parts(
    shape: tuple[int, ...], axes: tuple[int, ...], partial: tuple[int, ...] | None
) -> None:
    x = leaf(0, shape, float32)
    before = build.reduce(ADD, axes, x)
    (after,) = rewrite([before], (*SIMPLIFY, columns_in_parts))
    sums = [node.shape for node in toposort([after]) if node.op is Op.REDUCE]
    assert sums[:-1] == ([partial] if partial else [])
    values = {x: np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)}
    assert same_values(*evaluate([before, after], values))


@pytest.mark.parametrize(
    ("shape", "partial"),
    [
        ((128, 64, 40, 40), (128, 64)),  # parts of images
        ((64, 64, 40, 40), (64, 64)),  # of which there are fewer than parts are wanted
        ((8, 64, 128, 128), (64, 128)),  # of which there are few: of their rows
        ((128, 2048, 7, 7), None),  # so many channels that blocks keep a GPU busy
        ((64, 64, 8, 8), None),  # too little for another kernel
    ],
)
def test_channels_between_reduced_axes_are_reduced_in_parts(
    shape: tuple[int, ...], partial: tuple[int, ...] | None
) -> None:
    x = leaf(0, shape, float32)
    before = build.reduce(ADD, (0, 2, 3), x)
    (after,) = rewrite([before], (*SIMPLIFY, columns_in_parts))
    sums = [node.shape for node in toposort([after]) if node.op is Op.REDUCE]
    assert sums[:-1] == ([partial] if partial else [])
    values = {x: np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)}
    assert same_values(*evaluate([before, after], values))


@pytest.mark.parametrize(
    ("rows", "columns", "parts"),
    [
        (65_541, 337, 21),  # 7 parts would be taken in parts once more
        (8197, 128, 127),  # nor are 7 enough
        (600, 20, None),
        (4200, 20, 140),
    ],
)
def test_parts_of_columns_are_enough_at_once(rows: int, columns: int, parts: int | None) -> None:
    before = build.reduce(ADD, (0,), leaf(0, (rows, columns), float64))
    (after,) = rewrite([before], (*SIMPLIFY, columns_in_parts))
    sums = [node.shape for node in toposort([after]) if node.op is Op.REDUCE]
    assert sums[:-1] == ([(parts, columns)] if parts else [])


@pytest.mark.parametrize("part", [0, 1])
def test_parts_of_an_argmax_over_several_axes_find_the_first_place(part: int) -> None:
    shape = (7, 16411)
    x = leaf(0, shape, float32)
    place = build.reshape(build.iota(7 * 16411, int64), shape)
    before = Node(Op.REDUCE, (x, place), Reduce(ARGMAX, (0, 1), part))
    (after,) = rewrite([before], (*SIMPLIFY, columns_in_parts))
    assert sum(one.op is Op.REDUCE for one in toposort([after])) == 3
    values = {x: np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)}
    assert all(map(same_values, evaluate([before], values), evaluate([after], values)))


@pytest.mark.parametrize(
    ("size", "count"),
    [(256, 3), (64, 1)],  # a kernel of its own is worth its launch, and not
)
def test_sums_of_several_products_are_apart(size: int, count: int) -> None:
    shape = (size, size, size)
    left = [leaf(at, (size, size, 1), float32) for at in range(3)]
    right = [leaf(3 + at, (1, size, size), float32) for at in range(3)]
    pairs = zip(left, right, strict=True)
    first, second, third = (build.expand(a, shape) * build.expand(b, shape) for a, b in pairs)
    before = build.reduce(ADD, [1], first + (second + third))
    (after,) = rewrite([before], (products_apart,))
    assert sum(one.op is Op.REDUCE for one in toposort([after])) == count
    rng = np.random.default_rng(0)
    values = {
        one: rng.integers(-3, 4, one.shape).astype(np.float32) for one in (*left, *right)
    }
    assert same_values(*evaluate([before, after], values))


def test_a_long_sum_of_products_and_one_of_shared_sums_come_to_an_end() -> None:
    shape = (256, 256, 256)
    products = [
        build.expand(leaf(2 * at, (256, 256, 1), float32), shape)
        * build.expand(leaf(2 * at + 1, (1, 256, 256), float32), shape)
        for at in range(1200)
    ]
    (after,) = rewrite([build.reduce(ADD, [1], sum(products[1:], products[0]))], (products_apart,))
    assert sum(one.op is Op.REDUCE for one in toposort([after])) == len(products)
    doubled = products[0]
    for _ in range(64):  # 2**64 terms, of 65 sums
        doubled = doubled + doubled
    rewrite([build.reduce(ADD, [1], doubled)], (products_apart,))


def test_a_sum_of_a_product_and_an_array_stays() -> None:
    shape = (256, 256, 256)
    a, b = leaf(0, (256, 256, 1), float32), leaf(1, (1, 256, 256), float32)
    product = build.expand(a, shape) * build.expand(b, shape)
    before = build.reduce(ADD, [1], product + leaf(2, shape, float32))
    assert rewrite([before], (products_apart,)) == [before]


@pytest.mark.parametrize(
    ("rule", "shape", "axes", "partial"),
    [
        (cached_products_in_parts, (32, 2048, 32), (1,), (8, 32, 32)),
        (cached_products_in_parts, (32, 4, 512, 32), (1, 2), (8, 32, 32)),
        (cached_products_in_parts, (4, 32, 512, 32), (0, 2), (4, 32, 32)),
        (cached_products_in_parts, (16, 2048, 16), (1,), None),  # which wait for memory
        (cached_products_in_parts, (32, 2040, 32), (1,), None),  # no parts are even
        (cached_products_in_parts, (32, 512, 32), (1,), None),  # short
        (TILED_IN_PARTS, (16, 2048, 24), (1,), (16, 16, 24)),
        (TILED_IN_PARTS, (16, 8, 256, 24), (1, 2), (16, 16, 24)),
        (TILED_IN_PARTS, (2, 16, 1024, 24), (2,), (8, 2, 16, 24)),
        (TILED_IN_PARTS, (7, 2048, 24), (1,), None),  # no tile
        (long_products_in_parts, (8, 8, 16, 8), (0, 2), (4, 8, 8)),
        (long_products_in_parts, (8, 512, 8), (1,), (16, 8, 8)),
    ],
)
def test_parts_of_long_products_come_to_what_these_do(
    rule: Rule, shape: tuple[int, ...], axes: tuple[int, ...],
    partial: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(split_products, "LONG_PRODUCT", 1 << 10)
    monkeypatch.setattr(split_reductions, "PRODUCT_PART", 1 << 5)
    *_, rows, columns = (axis for axis in range(len(shape)) if axis not in axes)
    left = leaf(0, (*shape[:columns], 1, *shape[columns + 1 :]), float32)
    right = leaf(1, (*shape[:rows], 1, *shape[rows + 1 :]), float32)
    before = build.reduce(ADD, axes, build.expand(left, shape) * build.expand(right, shape))
    (after,) = rewrite([before], (*SIMPLIFY, rule))
    sums = [node.shape for node in toposort([after]) if node.op is Op.REDUCE]
    assert sums == [one for one in (partial, before.shape) if one is not None]
    rng = np.random.default_rng(0)
    values = {one: rng.integers(-3, 4, one.shape).astype(np.float32) for one in (left, right)}
    assert same_values(*evaluate([before, after], values))


@pytest.mark.parametrize("rule", [cached_products_in_parts, long_products_in_parts, TILED_IN_PARTS])
@pytest.mark.parametrize(("dtype", "sums"), [(float32, 2), (float64, 1), (int64, 1)])
def test_parts_for_accuracy_are_of_float32_alone(
    rule: Rule, dtype: DType, sums: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Integers have no rounding errors, and those of float64 are small: parts would only cost."""
    monkeypatch.setattr(split_products, "LONG_PRODUCT", 1 << 10)
    monkeypatch.setattr(split_reductions, "PRODUCT_PART", 1 << 5)
    x, y, shape = leaf(0, (32, 2048, 1), dtype), leaf(1, (1, 2048, 32), dtype), (32, 2048, 32)
    before = build.reduce(ADD, [1], build.expand(x, shape) * build.expand(y, shape))
    after = rewrite([before], (*SIMPLIFY, rule))
    assert sum(node.op is Op.REDUCE for node in toposort(after)) == sums


@pytest.mark.parametrize("rule", [cached_products_in_parts, TILED_IN_PARTS])
@pytest.mark.parametrize(("left", "sums"), [(float32, 2), (bfloat16, 1)])
def test_parts_are_of_products_of_float32_alone(
    rule: Rule, left: DType, sums: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factor of 16 bits is enough to leave a product whole."""
    monkeypatch.setattr(split_products, "LONG_PRODUCT", 1 << 10)
    shape = (32, 2048, 32)
    x = build.cast(leaf(0, (32, 2048, 1), left), float32)
    y = leaf(1, (1, 2048, 32), float32)
    before = build.reduce(ADD, [1], build.expand(x, shape) * build.expand(y, shape))
    after = rewrite([before], (*SIMPLIFY, rule))
    assert sum(node.op is Op.REDUCE for node in toposort(after)) == sums


@pytest.mark.parametrize("rule", [columns_in_parts, long_columns_in_parts])
def test_products_that_reuse_both_factors_are_no_columns(rule: Rule) -> None:
    """They are matrix products, which other rules take in parts, or none."""
    x, y = leaf(0, (16384, 64, 1), float32), leaf(1, (16384, 1, 96), float32)
    product = build.expand(x, (16384, 64, 96)) * build.expand(y, (16384, 64, 96))
    before = build.reduce(ADD, [0], product)
    assert rewrite([before], (*SIMPLIFY, rule)) == [before]

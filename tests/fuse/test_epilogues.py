"""Where reductions and scans store: the arithmetic and the movement that their kernels take in."""

from __future__ import annotations

import pytest

from lamina.core.dtypes import DType, bfloat16, float32
from lamina.fuse.epilogues import Epilogues, find_epilogues
from lamina.fuse.users import users_of
from lamina.ir import build
from lamina.ir.monoids import ADD, LOG_SUM_EXP
from lamina.ir.node import Node, full
from lamina.ir.ops import Op, Reduce
from tests.generators import leaf

X = leaf(0, (8, 16, 4), float32)
SUM = build.reduce(ADD, [1], X)  # (8, 4)
SCAN = Node(Op.SCAN, (leaf(1, (8, 4), float32),), Reduce(ADD, (1,)))


def epilogues(
    sink: Node, *, stored_first: bool = False, scans_lack_vectors: bool = True,
    tiled_products: bool = False,
) -> Epilogues:  # fmt: skip
    """Those of a graph whose reductions and result are values."""
    users = users_of([sink])
    values = {node for node in users if node.op is Op.REDUCE} | {sink}
    first = {SUM} if stored_first else set()
    return find_epilogues(
        users, values, first, scans_lack_vectors=scans_lack_vectors, tiled_products=tiled_products
    )


def relu(x: Node) -> Node:
    return Node(Op.MAX, (x, full(x.shape, 0.0, x.dtype)))


def parts_of_scan(dtype: DType) -> list[Node]:
    terms = leaf(4, (8, 4), dtype), leaf(5, (8, 4), dtype)
    return [Node(Op.SCAN, terms, Reduce(LOG_SUM_EXP, (1,), part)) for part in range(2)]


def test_parts_of_a_scan_go_on_from_where_their_uses_meet() -> None:
    scale, total = parts_of_scan(float32)
    result = build.reshape(scale, (32,)) + build.reshape(total.apply(Op.LOG), (32,))
    assert epilogues(result, scans_lack_vectors=False).ends == {result}
    assert epilogues(scale + total).ends == {scale + total}
    assert epilogues(scale + total.apply(Op.LOG)).ends == {scale, total}  # loses no vectors


def test_parts_of_a_scan_whose_uses_do_not_meet_are_stored() -> None:
    scale, total = parts_of_scan(float32)
    cut = build.sliced(scale.apply(Op.NEG), [range(8), range(3)])
    result = cut + build.sliced(total * total, [range(8), range(3)])
    assert epilogues(result, scans_lack_vectors=False).ends == {scale, total}


def test_a_scan_goes_on_beyond_wider_floats_to_narrow_ones() -> None:
    narrow = build.cast(SCAN, bfloat16)
    wide = build.cast(narrow, float32).apply(Op.SIN)
    assert epilogues(wide, scans_lack_vectors=False).ends == {narrow}
    again = build.cast(wide, bfloat16)
    assert epilogues(again, scans_lack_vectors=False).ends == {again}


def test_arithmetic_on_a_sum_is_its_epilogue() -> None:
    result = relu(SUM + build.expand(leaf(2, (1, 4), float32), (8, 4)))
    assert epilogues(result) == Epilogues(frozenset({result}), frozenset())


def test_a_kernel_takes_in_the_movement_after_one_product_alone() -> None:
    """Tiles are of one product: the sum of two, which is then transposed, is in the kernel of the
    last one, and the other is stored."""
    first, last = product(0), product(2)
    result = build.permute(first + last, [1, 0])
    assert epilogues(result) == Epilogues(frozenset({result, first}), frozenset({last}))


def product(number: int) -> Node:
    """(16, 32) @ (32, 24), of the leaves `number` and the next."""
    shape = (16, 32, 24)
    left = build.expand(leaf(number, (16, 32, 1), float32), shape)
    right = build.expand(leaf(number + 1, (1, 32, 24), float32), shape)
    return build.reduce(ADD, [1], left * right)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_kernel_of_a_product_takes_in_no_other_sum(is_first: bool) -> None:
    """Its loop would run for each element of a tile; so the sum is stored."""
    matrix, total = product(0), build.reduce(ADD, [2], leaf(2, (16, 24, 8), float32))
    result = build.permute(total + matrix if is_first else matrix + total, [1, 0])
    assert epilogues(result) == Epilogues(frozenset({result, total}), frozenset({matrix}))


def test_a_sum_is_stored_before_it_is_moved_to_meet_a_product() -> None:
    matrix, total = product(0), build.reduce(ADD, [2], leaf(2, (24, 16, 8), float32))
    result = matrix + build.permute(total, [1, 0])
    assert epilogues(result) == Epilogues(frozenset({result, total}), frozenset())


def test_uses_that_meet_are_one_epilogue() -> None:
    result = SUM * build.unary(Op.LOGISTIC, SUM)
    assert epilogues(result).ends == {result}


def test_uses_that_do_not_meet_are_none() -> None:
    total = build.reduce(ADD, [1], SUM)
    result = SUM * build.expand(build.reshape(total, (8, 1)), (8, 4))
    assert epilogues(result).ends == {SUM, total}


def test_a_transpose_is_in_the_epilogue_and_its_sum_has_no_place_of_its_own() -> None:
    result = build.permute(relu(SUM), [1, 0])
    assert epilogues(result) == Epilogues(frozenset({result}), frozenset({SUM}))


def test_movement_that_is_cut_after_it_is_left_to_what_reads_tiles() -> None:
    """As of a transposed convolution, whose results are interleaved and then cut."""
    moved = build.reshape(build.permute(SUM, [1, 0]), (32,))
    result = build.unary(Op.EXP, build.sliced(moved, [range(1, 31)]))
    assert epilogues(result, tiled_products=True).ends == {SUM}
    assert epilogues(result).ends == {moved.src[0]}
    whole = build.unary(Op.EXP, moved)
    assert epilogues(whole, tiled_products=True).ends == {whole}


def test_an_epilogue_ends_with_a_reshape_that_does_more_than_add_axes_of_one() -> None:
    assert epilogues(build.reshape(SUM, (8, 1, 4))) == Epilogues(frozenset({SUM}), frozenset())
    flat = build.reshape(SUM, (32,))
    assert epilogues(flat) == Epilogues(frozenset({flat}), frozenset({SUM}))


@pytest.mark.parametrize("narrow", [True, False])
def test_memory_holds_the_narrower_of_two_floats(narrow: bool) -> None:
    source, result = (float32, bfloat16) if narrow else (bfloat16, float32)
    total = build.reduce(ADD, [1], leaf(3, (8, 16, 4), source))
    cast = build.cast(total, result)
    assert epilogues(cast).ends == {cast if narrow else total}


def test_a_sum_that_is_widened_and_then_moved_keeps_its_place() -> None:
    """Only the wider float comes after the movement, so the sum itself is stored.
    Without a place of its own, each of the two users of `moved` would compute it again."""
    total = build.reduce(ADD, [1], leaf(3, (8, 16, 4), bfloat16))
    moved = build.permute(build.cast(total, float32), [1, 0])
    result = build.unary(Op.SIN, moved) * build.expand(
        build.reshape(build.reduce(ADD, [1], moved), (4, 1)), (4, 8)
    )
    assert total in epilogues(result).ends
    assert not epilogues(result).absorbed


def test_what_is_stored_first_takes_in_casts_alone() -> None:
    cast = build.cast(SUM, bfloat16)
    assert epilogues(relu(cast), stored_first=True).ends == {cast}
    assert epilogues(relu(cast)).ends == {relu(cast)}


def test_a_broadcast_operand_joins_a_scan_with_vectors_and_an_array_does_not() -> None:
    broadcast = SCAN + build.expand(leaf(4, (8, 1), float32), (8, 4))
    array = SCAN + leaf(5, (8, 4), float32)
    assert epilogues(broadcast).ends == {broadcast}
    assert epilogues(array).ends == {SCAN}
    assert epilogues(array, scans_lack_vectors=False).ends == {array}


def test_a_scan_keeps_its_axis_whole() -> None:
    assert epilogues(build.reshape(SCAN, (32,))).ends == {build.reshape(SCAN, (32,))}
    assert epilogues(build.reshape(SCAN, (8, 2, 2))).ends == {SCAN}

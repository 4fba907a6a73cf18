"""Values as a sum and what is added to it."""

from __future__ import annotations

from lamina.core.dtypes import float32
from lamina.fuse.accumulation import SumAndRest, sum_and_rest
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from tests.generators import leaf


def rows() -> tuple[Node, Node, Node]:
    """A sum of rows, (8,), and two arrays of its shape."""
    total = build.reduce(ADD, (1,), leaf(0, (8, 4), float32))
    return total, leaf(1, (8,), float32), leaf(2, (8,), float32)


def test_a_sum_plus_the_rest_by_way_of_reshapes() -> None:
    total, a, b = rows()
    value = build.reshape(total + a, (2, 4)) + build.reshape(b, (2, 4))
    parts = sum_and_rest(value, lambda node: node.op is Op.BUFFER)
    rest = build.reshape(a, (2, 4)) + build.reshape(b, (2, 4))
    assert parts == SumAndRest(build.reshape(total, (2, 4)), rest)


def test_what_is_in_memory_or_no_sum_is_not_taken_apart() -> None:
    total, a, _ = rows()
    assert sum_and_rest(total + a, lambda node: node is total or node.op is Op.BUFFER) is None
    assert sum_and_rest(total * a, lambda node: node.op is Op.BUFFER) is None


def test_shared_operands_are_searched_once() -> None:
    """Each addition needs the two before it: there are 2**20 paths through 40 of them, or more."""
    _, a, b = rows()
    for _ in range(40):
        a, b = b, a + b
    asked: list[Node] = []

    def is_in_memory(node: Node) -> bool:
        asked.append(node)
        return node.op is Op.BUFFER

    assert sum_and_rest(b, is_in_memory) is None
    assert len(asked) <= 2 * 40 + 2

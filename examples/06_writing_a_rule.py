"""A rewrite rule is an equation: written once, matched in every order, checked by evaluation."""

import numpy as np

from lamina.core import dtypes
from lamina.errors import VerifyError
from lamina.graph.rewrite import equation, hole, rewrite
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Kinds, Op
from lamina.ir.text import to_text

# The greater and the smaller of two integers add up to their sum. x and y are holes, which say
# what they stand for. A float has no such rule: NaN wins in both, but the sum may differ in -0.0.
x, y = hole("x", Kinds.INTEGER), hole("y", Kinds.INTEGER)
extremes_add_up = equation("extremes_add_up", Node(Op.MAX, (x, y)) + Node(Op.MIN, (x, y)), x + y)

first, second, *_ = extremes_add_up.forms
print(f"matched:\n{to_text([first])}\nand as well:\n{to_text([second])}")


def leaf(number: int) -> Node:
    """An array of four integers that is given later."""
    return Node(Op.BUFFER, (), BufferRef(number, (4,), dtypes.int64, "cpu"))


# A graph in which the operands stand the other way round.
a, b = leaf(0), leaf(1)
before = Node(Op.ADD, (Node(Op.MIN, (b, a)), Node(Op.MAX, (a, b))))
(after,) = rewrite([before], [extremes_add_up])
print(f"\nbefore:\n{to_text([before])}\nafter:\n{to_text([after])}")
assert {node.op for node in (after, *after.src)} == {Op.ADD, Op.BUFFER}

# Both sides are data, so anyone can ask the interpreter whether they are equal.
generator = np.random.default_rng(0)
for _ in range(100):
    values = {one: generator.integers(-(2**63), 2**63 - 1, 4) for one in (a, b)}
    left, right = (evaluate([side], values)[0] for side in (before, after))
    assert (left == right).all()


# The engine stops rules that chase each other, and says which.
swap = equation("swap", x ^ y, y ^ x)
try:
    rewrite([Node(Op.XOR, (a, b))], [swap])
except VerifyError as error:
    message = str(error)
print(f"\n{message}")
assert "swap" in message

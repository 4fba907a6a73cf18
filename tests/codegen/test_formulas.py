"""The formulas of elementwise kernels, read by Python's own parser: they mean what is computed."""

from __future__ import annotations

import ast
import random
from functools import reduce
from typing import Any

import pytest

from lamina.core.dtypes import DType, bool_, float64, int64
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, Store
from lamina.ir.node import Node, const
from lamina.ir.ops import Load, Op
from lamina.targets.formulas import MAX_LINES, formulas

ROW = ix.axis(0, 8)
DTYPES = (bool_, int64, float64)
PARAMETERS = (*[Parameter(dtype, 8) for dtype in DTYPES], *[Parameter(int64, 8, written=True)] * 40)
LOADS = {dtype: Node(Op.LOAD, (ROW,), Load(number, dtype)) for number, dtype in enumerate(DTYPES)}
BINARY: dict[DType, tuple[Op, ...]] = {
    bool_: (Op.AND, Op.OR, Op.XOR),
    int64: (
        Op.ADD, Op.MUL, Op.IDIV, Op.MOD, Op.POW, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.MAX,
    ),
    float64: (Op.ADD, Op.MUL, Op.DIV, Op.MOD, Op.POW, Op.MAX),
}  # fmt: skip
OF_PYTHON: dict[type[ast.AST], Op] = {
    ast.Add: Op.ADD, ast.Mult: Op.MUL, ast.Div: Op.DIV, ast.FloorDiv: Op.IDIV, ast.Mod: Op.MOD,
    ast.Pow: Op.POW, ast.BitAnd: Op.AND, ast.BitOr: Op.OR, ast.BitXor: Op.XOR,
    ast.LShift: Op.SHL, ast.RShift: Op.SHR, ast.And: Op.AND, ast.Or: Op.OR, ast.Lt: Op.LT,
    ast.Eq: Op.EQ, ast.USub: Op.NEG, ast.Invert: Op.NOT, ast.Not: Op.NOT,
}  # fmt: skip
Tree = Any  # a leaf, or an operation and trees


def tree_of_node(node: Node) -> Tree:
    if node.op is Op.LOAD:
        return f"p{node.arg.parameter}"
    if node.op is Op.CONST:
        value = node.arg.value
        return (Op.NEG, -value) if value < 0 else value
    return (node.op, *map(tree_of_node, node.src))


def tree_of_text(node: ast.AST, names: dict[str, Tree]) -> Tree:
    """The tree of an expression of Python; `names` has those of the lines before."""

    def of(part: ast.AST) -> Tree:
        return tree_of_text(part, names)

    match node:
        case ast.Name(name):
            return names[name]
        case ast.Subscript(ast.Name(name), _):
            return name
        case ast.Constant(value):
            return value
        case ast.BinOp(left, ast.Sub(), right):
            return (Op.ADD, of(left), (Op.NEG, of(right)))
        case ast.BinOp(left, op, right):
            return (OF_PYTHON[type(op)], of(left), of(right))
        case ast.BoolOp(op, values):  # ``a and b and c`` is one for Python
            return reduce(lambda left, right: (OF_PYTHON[type(op)], left, right), map(of, values))
        case ast.Compare(left, [op], [right]):  # and no chain of them
            return (OF_PYTHON[type(op)], of(left), of(right))
        case ast.UnaryOp(op, operand):
            return (OF_PYTHON[type(op)], of(operand))
        case ast.IfExp(condition, yes, no):
            return (Op.WHERE, of(condition), of(yes), of(no))
        case ast.Call(ast.Name(name), arguments):
            return (Op[name.upper()], *map(of, arguments))
        case _:
            raise AssertionError(ast.dump(node))


def random_value(rng: random.Random, dtype: DType, depth: int) -> Node:
    def operand(of: DType) -> Node:
        return random_value(rng, of, depth - 1)

    if depth == 0 or rng.random() < 0.1:
        if dtype is bool_ or rng.random() < 0.6:
            return LOADS[dtype]
        return const(dtype.python(rng.choice((-3, -2, 2, 5))), dtype)
    kind = rng.random()
    if kind < 0.15:
        return Node(Op.WHERE, (operand(bool_), operand(dtype), operand(dtype)))
    if kind < 0.4 and dtype is not bool_:
        return Node(Op.NEG if dtype is float64 else rng.choice((Op.NEG, Op.NOT)), (operand(dtype),))
    if kind < 0.4:
        return Node(Op.NOT, (operand(dtype),))
    if kind < 0.65 and dtype is bool_:
        compared = rng.choice(DTYPES)
        return Node(rng.choice((Op.LT, Op.EQ)), (operand(compared), operand(compared)))
    return Node(rng.choice(BINARY[dtype]), (operand(dtype), operand(dtype)))


def kernel_of(*values: Node) -> Kernel:
    stores = [
        Store(len(DTYPES) + number, ROW, value, (ROW,)) for number, value in enumerate(values)
    ]
    return Kernel(PARAMETERS, tuple(stores), 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_python_reads_a_formula_as_it_is_meant(dtype: DType) -> None:
    rng = random.Random(0)
    for _ in range(400):
        value = random_value(rng, dtype, 4)
        names: dict[str, Tree] = {}
        lines = formulas(kernel_of(value))
        for line in lines:
            name, _, text = line.partition(" = ")
            names[name] = tree_of_text(ast.parse(text, mode="eval").body, names)
        assert names["p3[i]"] == tree_of_node(value), lines


X, Y, B = LOADS[float64], LOADS[int64], LOADS[bool_]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((B | (X < 2.0)) & (X < 5.0), "(p0[i] or p2[i] < 2) and p2[i] < 5"),
        ((X**2.0) ** X, "(p2[i] ** 2) ** p2[i]"),
        (X ** (X**2.0), "p2[i] ** p2[i] ** 2"),
        ((-X) ** 2.0, "(-p2[i]) ** 2"),
        (-(X**2.0), "-p2[i] ** 2"),
        (X + -(X * X), "p2[i] - p2[i] * p2[i]"),
        (X + const(-2.0, float64), "p2[i] - 2"),
        ((X + X) + X, "p2[i] + p2[i] + p2[i]"),
        (X + (X + X), "p2[i] + (p2[i] + p2[i])"),
        ((Y & 3) | 4, "p1[i] & 3 | 4"),
        ((X < 2.0).eq(B), "(p2[i] < 2) == p0[i]"),
        (~B, "not p0[i]"),
        (~Y, "~p1[i]"),
    ],
)
def test_brackets(value: Node, text: str) -> None:
    assert formulas(kernel_of(value)) == [f"p3[i] = {text}"]


def test_a_name_is_subtracted_as_a_sum() -> None:
    negative = -X
    assert formulas(kernel_of(X + negative, negative * X)) == [
        "v1 = -p2[i]",
        "p3[i] = p2[i] + v1",
        "p4[i] = v1 * p2[i]",
    ]


@pytest.mark.parametrize("count", [MAX_LINES, MAX_LINES + 1, MAX_LINES + 9])
def test_many_lines(count: int) -> None:
    every = [f"p{number + 3}[i] = p2[i] + {number + 1}" for number in range(count)]
    lines = formulas(kernel_of(*(X + float(number + 1) for number in range(count))))
    if count == MAX_LINES:
        assert lines == every
        return
    shown = MAX_LINES - 2
    rest = f"... and {count - MAX_LINES + 1} lines more"
    assert lines == [*every[:shown], rest, every[-1]]
    assert len(lines) == MAX_LINES

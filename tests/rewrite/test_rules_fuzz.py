"""Every equation is tried on random operands: both sides must have one value.

Rules are data, so nobody writes these tests: a left side is built from the pattern, the compiled
rule makes the right side, and the interpreter evaluates both.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from lamina.core.dtypes import ALL, STORAGE_ONLY, bool_, float64, int32, int64
from lamina.core.shape import Shape
from lamina.errors import DTypeError
from lamina.graph.algebra import SIMPLIFY
from lamina.graph.rewrite import Rule, equation, hole, rewrite
from lamina.ir.build import cast
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, const, full, toposort
from lamina.ir.ops import Hole, Kinds, Op
from tests.generators import leaf, special_value, special_values
from tests.rewrite.agreement import same_values

EQUATIONS = [one for one in SIMPLIFY if one.forms]
DTYPES = [dtype for dtype in ALL if dtype not in STORAGE_ONLY]
SHAPES: list[Shape] = [(), (0,), (3,), (3,), (32,), (2, 3)]
WANTED = 250  # applications a rule
ATTEMPTS = 6000
DIGITS = {"float16": 10, "bfloat16": 7, "float32": 23}  # of the fraction, in bits


class Sample:
    """A random choice for each hole of a term, and the node the term then is."""

    def __init__(self, rng: random.Random, term: Node) -> None:
        self.rng = rng
        self.shape = rng.choice(SHAPES)
        self.main = rng.choice(DTYPES)
        self.bound: dict[str, Node] = {}
        self.leaves: dict[Node, object] = {}
        for one in toposort([term]):
            if one.op is Op.HOLE:
                self.bound[one.arg.name] = self.operand(one.arg)
        self.node = self.build(term)

    def operand(self, hole: Hole) -> Node:
        dtype = self.main
        if dtype.kind not in hole.kinds or self.rng.random() < 0.1:
            dtype = self.rng.choice([one for one in DTYPES if one.kind in hole.kinds])
        if hole.constant:
            value = special_value(self.rng, dtype)
            extremes = [] if dtype.is_complex else [dtype.min, dtype.max]
            return full(self.shape, self.rng.choice([value, value, value, *extremes]), dtype)
        node = leaf(len(self.leaves), self.shape, dtype)
        self.leaves[node] = special_values(self.rng, self.shape, dtype)
        return node

    def build(self, term: Node) -> Node:
        if term.op is Op.HOLE:
            return self.bound[term.arg.name]
        known = [one for one in term.src if one.op is not Op.CONST]
        like = self.build(known[-1])
        operands = []
        for i, one in enumerate(term.src):
            if one.op is Op.CONST:
                condition = term.op is Op.WHERE and i == 0
                dtype = bool_ if condition else like.dtype
                operands.append(full(like.shape, one.arg.value, dtype))
            else:
                operands.append(self.build(one))
        return Node(term.op, tuple(operands))


def in_float64(node: Node, values: dict[Node, object]) -> np.ndarray:
    """A formula of floats evaluated in float64: for narrower floats, its exact value."""
    made: dict[Node, Node] = {}
    leaves: dict[Node, object] = {}
    for part in toposort([node]):
        if part in values:
            made[part] = leaf(len(leaves), part.shape, float64)
            leaves[made[part]] = np.asarray(values[part]).astype(np.float64)
        elif part.op is Op.CONST:
            made[part] = const(part.arg.value, float64)
        else:
            made[part] = Node(part.op, tuple(made[operand] for operand in part.src), part.arg)
    (result,) = evaluate([made[node]], leaves)
    return result


def as_close(sample: Sample, left: np.ndarray, right: np.ndarray, ulps: int) -> bool:
    """Whether `right` is within `ulps` of the exact value, or as close to it as `left`."""
    if left.dtype == np.float64:  # nothing here is more exact: the two formulas have to agree
        return np.allclose(left, right, rtol=1e-12, atol=1e-300, equal_nan=True)
    exact = in_float64(sample.node, sample.leaves)
    spacing = np.abs(np.spacing(exact.astype(left.dtype).astype(np.float32)).astype(np.float64))
    spacing *= 2.0 ** (23 - DIGITS[left.dtype.name])
    left, right = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        of_left, of_right = np.abs(left - exact), np.abs(right - exact)
    same = (right == exact) | (np.isnan(right) & (np.isnan(exact) | np.isnan(left)))
    close = (of_right <= of_left) | (of_right <= ulps * spacing)
    return bool(np.all(same | close))


def fuzz(one: Rule, seed: int = 0, wanted: int = WANTED) -> tuple[int, str | None]:
    """How often a rule applied, and the first counterexample."""
    rng = random.Random(f"{one.name}{seed}")
    ulps = 2 if one.ops[0] is Op.POW else 0  # a library's power is not exact
    applied = 0
    for _ in range(ATTEMPTS):
        try:
            sample = Sample(rng, rng.choice(one.forms))
        except DTypeError:
            continue
        before, after = sample.node, one.apply(sample.node)
        if after is None or after is before:
            continue
        applied += 1
        assert (after.shape, after.dtype) == (before.shape, before.dtype), one
        left, right = evaluate([before, after], sample.leaves)
        agree = as_close(sample, left, right, one.ulps) if one.ulps else None
        if not (same_values(left, right, ulps) if agree is None else agree):
            return applied, f"{one}\n{list(sample.leaves.values())}\n{left}\n{right}"
        if applied == wanted:
            break
    return applied, None


@pytest.mark.parametrize("one", EQUATIONS, ids=lambda one: one.name)
def test_equation_holds(one: Rule) -> None:
    applied, counterexample = fuzz(one)
    assert counterexample is None, counterexample
    assert applied >= 20, f"{one} applied only {applied} times"


def test_every_rule_is_an_equation_or_a_function() -> None:
    assert len(EQUATIONS) > 20
    assert all(one.forms for one in EQUATIONS)


def test_one_cast_may_replace_two() -> None:
    rng, applied = random.Random(0), 0
    for first, through, to in itertools.product(DTYPES, repeat=3):
        x = leaf(0, (32,), first)
        before = Node(Op.CAST, (Node(Op.CAST, (x,), through),), to)
        (after,) = rewrite([before], SIMPLIFY)
        applied += after is not before
        values = {x: special_values(rng, (32,), first)}
        assert same_values(*evaluate([before, after], values)), (first, through, to)
    assert applied > 20
    x = leaf(0, (32,), int32)
    assert rewrite([cast(cast(x, float64), int64)], SIMPLIFY) == [cast(x, int64)]


# Plausible and wrong: the fuzzer must say so.


i, f, g = hole("i", Kinds.INTEGER), hole("f", Kinds.FLOAT), hole("g", Kinds.FLOAT)
n, c = hole("n", Kinds.INTEGER, constant=True), hole("c", Kinds.FLOAT, constant=True)
WRONG = [
    equation("wrong_add_zero", f + 0, f),
    equation("wrong_multiply_by_zero", f * 0, 0),
    equation("wrong_subtract_itself", f - f, 0),
    equation("wrong_cancel_scale", (i * n) // n, i),
    equation("wrong_reciprocal", f / c, f * (1 / c)),
    equation("wrong_less_than", ~(f < g), g < f),
    equation("wrong_square_root", f**0.5, Node(Op.SQRT, (f,))),
    equation("wrong_logistic", 1 / (Node(Op.EXP, (f,)) + 1), Node(Op.LOGISTIC, (f,)), ulps=2),
    equation("wrong_rounding", f * 3 * g, f * (g * 3.0001), ulps=2),
]


@pytest.mark.parametrize("one", WRONG, ids=lambda one: one.name)
def test_fuzzer_catches_wrong_rule(one: Rule) -> None:
    assert fuzz(one, wanted=300)[1] is not None

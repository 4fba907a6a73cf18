"""Rules, and rewriting a graph by them: to a fixed point, operands first, without recursion.

Rules are equations whose two sides are graphs over holes, and functions for what equations cannot
say.

    f, d = hole("f", Kinds.FLOAT), hole("d", Kinds.FLOAT, constant=True)
    equation("divide_by_power_of_two", f / d, f * (1 / d), has_exact_reciprocal)

A constant in an equation stands for that value in the dtypes that its holes may have: an integer
for integers and floats. Every commuted form of the left side is matched too.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from lamina.core.dtypes import Scalar, bool_, float32, int64
from lamina.errors import VerifyError
from lamina.ir.node import Node, constant_of, toposort
from lamina.ir.ops import Group, Hole, Kinds, Op


def hole(name: str, kinds: tuple[str, ...] = Kinds.ANY, *, constant: bool = False) -> Node:
    """A variable: a value whose dtype is one of `kinds`; if `constant`, one that is known."""
    dtype = bool_ if kinds == Kinds.BOOL else float32 if kinds == Kinds.FLOAT else int64
    return Node(Op.HOLE, (), Hole(name, dtype, kinds, constant))


def filled(term: Node, holes: dict[str, Node], like: Node) -> Node:
    """`term` with what its holes match in their place. A constant gets the dtype and shape of the
    last operand beside it that is no constant, or those of `like`."""
    if term.op is Op.HOLE:
        return holes[term.arg.name]
    if term.op is Op.CONST:
        return like.lift(term.arg.value)
    *_, typed = (operand for operand in term.src if operand.op is not Op.CONST)
    sibling = filled(typed, holes, like)
    return Node(term.op, tuple(filled(operand, holes, sibling) for operand in term.src), term.arg)


class Rule(NamedTuple):
    """A function from a node of `ops` to an equal node; to None or itself means not to apply. An
    equation has forms of its left side that are matched. Where `ulps` is not 0 the sides round
    differently: the right one is within so many units of the last place of the exact value, or at
    least as close to it as the left one."""

    name: str
    ops: tuple[Op, ...]
    apply: Callable[[Node], Node | None]
    forms: tuple[Node, ...] = ()
    ulps: int = 0


def on(*ops: Op) -> Callable[[Callable[[Node], Node | None]], Rule]:
    """Make a function a rule for nodes of `ops`."""
    return lambda function: Rule(function.__name__, ops, function)


def equation(
    name: str, left: Node, right: Node | Scalar, guard: Callable[..., bool] | None = None,
    *, ulps: int = 0,
) -> Rule:  # fmt: skip
    """The rule `left` = `right`, used from left to right where `guard` holds: a function whose
    parameters are named as the holes, of the nodes that they match. `ulps`: see `Rule`."""
    right, forms = left.lift(right), commuted(left)

    def apply(node: Node) -> Node | None:
        for holes in matches(forms, node):
            if guard is None or guard(**holes):
                return filled(right, holes, node)
        return None

    return Rule(name, (left.op,), apply, forms, ulps)


def commuted(term: Node) -> tuple[Node, ...]:
    """Every form of a term by the commutativity of operations in it, each once."""
    return tuple(dict.fromkeys(_commuted(term)))


def matches(forms: Sequence[Node], node: Node) -> Iterator[dict[str, Node]]:
    """For each of `forms` that `node` has: the nodes that its holes stand for, by their names."""
    for form in forms:
        holes: dict[str, Node] = {}
        if _fits(form, node, holes):
            yield holes


def _fits(term: Node, node: Node, holes: dict[str, Node]) -> bool:
    """Whether `node` is of the form `term`; `holes` gets what they match."""
    if term.op is Op.HOLE:
        wanted: Hole = term.arg
        is_same = holes.setdefault(wanted.name, node) is node  # as where the hole stood before
        has_kind = node.dtype.kind in wanted.kinds
        return is_same and has_kind and not (wanted.constant and constant_of(node) is None)
    if term.op is Op.CONST:  # 0 and 0.0 are not -0.0
        actual, value = constant_of(node), term.arg.value
        return actual == value and str(actual).removesuffix(".0") == str(value).removesuffix(".0")
    operands = reversed(term.src), reversed(node.src)  # a constant tells most, and is the last
    return node.op is term.op and all(map(_fits, *operands, itertools.repeat(holes)))


def _commuted(term: Node) -> Iterator[Node]:
    for src in itertools.product(*map(_commuted, term.src)):
        yield Node(term.op, src, term.arg)
        if term.op in Group.COMMUTATIVE:
            yield Node(term.op, src[::-1], term.arg)


def rewrite(sinks: Iterable[Node], rules: Sequence[Rule]) -> list[Node]:
    """`sinks` with `rules`, tried in the order given, applied until none applies anywhere. A node
    that no rule touches stays the same object. Raises VerifyError, naming the rules, when they do
    not come to an end, or when a rule changes the shape or dtype of a node."""
    by_op = {op: [rule for rule in rules if op in rule.ops] for op in Op}
    sinks, applied = list(sinks), list[str]()
    limit = 10_000 + 64 * len(toposort(sinks))  # rules that end need far fewer steps
    done: dict[Node, Node] = {}  # node -> its final form
    became: dict[Node, Node] = {}  # node -> the same over final operands, or what a rule made of it
    stack = sinks[::-1]
    while stack:
        node = stack.pop()
        if node in done:
            continue
        if (new := became.get(node)) in done:
            done[node] = done[new]
            continue
        if new is not None or len(applied) > limit:
            names = ", ".join(dict(Counter(applied[-64:]).most_common(8)))
            raise VerifyError(f"rewrite: rules {names} lead from {node!r} to no end")
        if missing := [operand for operand in node.src if operand not in done]:
            stack += (node, *missing)
            continue
        src = tuple([done[operand] for operand in node.src])
        if src != node.src:
            new = Node(node.op, src, node.arg)
        else:
            new = _first_applied(node, by_op[node.op], applied)
        if new is node:
            done[node] = node
        else:
            became[node] = new
            stack += (node, new)
    return [done[sink] for sink in sinks]


def _first_applied(node: Node, rules: Iterable[Rule], applied: list[str]) -> Node:
    """What the first of `rules` that applies to `node` makes of it, with its name added to
    `applied`; `node` itself if none does."""
    for rule in rules:
        new = rule.apply(node)
        if new is None or new is node:
            continue
        if new.dtype is not node.dtype or new.shape != node.shape:
            raise VerifyError(f"rule {rule.name} turned {node!r} into {new!r}: types differ")
        applied.append(rule.name)
        return new
    return node

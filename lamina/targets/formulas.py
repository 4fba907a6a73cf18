"""Kernels as formulas, for the comments above their text: what they compute, whatever the schedule.

    p3[row, column] = max(sum_k p0[row, k] * p1[k, column] + p2[column], 0)

A value that several others use, or that is long, has a line of its own: ``v1 = ...``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from lamina.core.dtypes import SHORT, Scalar, bool_
from lamina.graph import index as ix
from lamina.ir.kernel import AnyKernel, Kernel, SortKernel, Store, bound_axes
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Nest, axis_lists, operands_of
from lamina.runtime.source import Source
from lamina.targets.names import axis_names, monoid_name

LONGEST_LINE = 100  # characters of a value that has no line of its own
MOST_LINES = 24

# How tight an expression holds together; what is inside another one needs parentheses if looser.
REDUCTION, LOGIC, COMPARISON, SUM, PRODUCT, SIGN, ATOM = range(7)
_INFIX = {
    Op.ADD: ("+", SUM), Op.MUL: ("*", PRODUCT), Op.DIV: ("/", PRODUCT), Op.IDIV: ("//", PRODUCT),
    Op.MOD: ("%", PRODUCT), Op.POW: ("**", SIGN), Op.LT: ("<", COMPARISON),
    Op.EQ: ("==", COMPARISON), Op.AND: ("&", LOGIC), Op.OR: ("|", LOGIC), Op.XOR: ("^", LOGIC),
    Op.SHL: ("<<", LOGIC), Op.SHR: (">>", LOGIC),
}  # fmt: skip
_OF_BOOLS = {Op.AND: "and", Op.OR: "or"}
_ASSOCIATIVE = {Op.ADD, Op.MUL, Op.AND, Op.OR, Op.XOR}


def formulas(kernel: AnyKernel) -> list[str]:
    """The lines of what `kernel` computes; of many values, the first ones."""
    if isinstance(kernel, SortKernel):
        return ["p1[row] = the order of p0[row], ascending"]
    lines = _Formulas(kernel).lines()
    if len(lines) > MOST_LINES:
        rest = f"... and {len(lines) - MOST_LINES} values more"
        lines = [*lines[: MOST_LINES - 1], rest, lines[-1]]
    return lines


class _Formulas:
    """The formulas of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        order = dict.fromkeys(axis for axes in axis_lists(kernel) for axis in axes)
        self.names = axis_names(Nest(kernel, tuple(order), {}))
        self.texts: dict[Node, tuple[str, int]] = {}  # and how tight each holds together
        users = Counter(one for node in kernel.nodes for one in operands_of(node))
        self.shared = {node for node, count in users.items() if count > 1}

    def lines(self) -> list[str]:
        lines: list[str] = []
        for node in toposort(store.value for store in self.kernel.stores):
            text, tightness = self._expression(node)
            is_leaf = node.op in (Op.CONST, Op.AXIS, Op.AFFINE, Op.LOAD)
            if not is_leaf and (node in self.shared or len(text) > LONGEST_LINE):
                name = f"v{len(lines) + 1}"
                lines.append(f"{name} = {text}")
                text, tightness = name, ATOM
            self.texts[node] = text, tightness
        return lines + [self._store(store) for store in self.kernel.stores]

    def _store(self, store: Store) -> str:
        target = f"p{store.parameter}[{self._subscripts(store.index)}]"
        value = self._of(store.value)
        if store.monoid is ADD:
            text = f"{target} += {value}"
        elif store.monoid is not None:
            text = f"{target} = {monoid_name(store.monoid)}({target}, {value})"
        else:
            text = f"{target} = {value}"
        return text if store.condition is ix.TRUE else f"{text} if {self._of(store.condition)}"

    def _of(self, node: Node, inside: int = REDUCTION) -> str:
        """The text of an operand, in parentheses if it is looser than what it is `inside`."""
        for operand in toposort([node], lambda one: one not in self.texts):
            self.texts[operand] = self._expression(operand)
        text, tightness = self.texts[node]
        return text if tightness >= inside else f"({text})"

    def _expression(self, node: Node) -> tuple[str, int]:
        """The text of a node, and how tight it holds together."""
        op, src = node.op, node.src
        if op is Op.CONST:
            text = _number(node.arg.value)
            return text, SIGN if text.startswith("-") else ATOM
        if op in (Op.AXIS, Op.AFFINE):
            return self._index(node)
        if op is Op.LOAD:
            return self._load(node), ATOM
        if op in (Op.LOOP_REDUCE, Op.LOOP_SCAN):
            return self._reduction(node)
        if op is Op.WHERE:
            condition, yes, no = map(self._of, src)
            return f"({yes} if {condition} else {no})", ATOM
        if op in _INFIX:
            return self._infix(node)
        if op is Op.NEG:
            return f"-{self._of(src[0], SIGN)}", SIGN
        name = SHORT[node.dtype] if op is Op.CAST else op.name.lower()
        return f"{name}({', '.join(map(self._of, src))})", ATOM

    def _load(self, node: Node) -> str:
        text = f"p{node.arg.parameter}[{self._subscripts(node.src[0])}]"
        if len(node.src) == 1:
            return text
        return f"({text} if {self._of(node.src[1])} else 0)"

    def _infix(self, node: Node) -> tuple[str, int]:
        """``a + b``; the sum of a and -b as ``a - b``."""
        op, (left, right) = node.op, node.src
        if op is Op.ADD and right.op is Op.NEG and right not in self.shared:
            return f"{self._of(left, SUM)} - {self._of(right.src[0], PRODUCT)}", SUM
        if op is Op.ADD and right.op is Op.CONST and right.arg.value < 0:
            return f"{self._of(left, SUM)} - {_number(-right.arg.value)}", SUM
        sign, tightness = _INFIX[op]
        if node.dtype is bool_:
            sign = _OF_BOOLS.get(op, sign)
        regroups = op in _ASSOCIATIVE and right.op is op  # a + (b + c) is a + b + c
        beside = self._of(right, tightness if regroups else tightness + 1)
        return f"{self._of(left, tightness)} {sign} {beside}", tightness

    def _reduction(self, node: Node) -> tuple[str, int]:
        """``sum_k x``, or of several components ``argmax_k(value, index)[1]``."""
        monoid, operands = node.arg.monoid, operands_of(node)
        over = ",".join(self.names[axis] for axis in bound_axes(node))
        name = f"{monoid_name(monoid)}_{over}"
        if node.op is Op.LOOP_SCAN:
            name = f"running_{name}"
        if len(operands) == 1:
            return f"{name} {self._of(operands[0], PRODUCT)}", REDUCTION
        return f"{name}({', '.join(map(self._of, operands))})[{node.arg.part}]", ATOM

    def _index(self, index: Node) -> tuple[str, int]:
        terms, constant = ix.terms_of(index)
        if not constant and [*terms.values()] == [1]:
            return self._term(*terms), ATOM
        text = ""  # each term with its sign before it: " + 4 * row - column + 1"
        for term, factor in terms.items():
            size = "" if abs(factor) == 1 else f"{abs(factor)} * "
            text += f" {'-' if factor < 0 else '+'} {size}{self._term(term)}"
        if constant or not text:
            text += f" {'-' if constant < 0 else '+'} {abs(constant)}"
        text = f"-{text[3:]}" if text.startswith(" - ") else text[3:]
        return text, SUM if terms else ATOM

    def _term(self, term: Node) -> str:
        """An operand of an index: an axis by its name, data as an expression."""
        return self.names[term] if term.op is Op.AXIS else self._of(term, SIGN)

    def _subscripts(self, index: Node) -> str:
        """``row, column`` for ``100 * row + column`` with at most 100 columns; an index that walks
        no array row by row as it is."""
        terms, constant = ix.terms_of(index)
        steps = sorted(terms.items(), key=lambda term: -term[1])
        if not steps or constant or not _walks_rows(steps):
            return self._index(index)[0]
        return ", ".join(self.names[axis] for axis, _ in steps)


def _number(value: Scalar) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _walks_rows(steps: Sequence[tuple[Node, int]]) -> bool:
    """Whether axes with these steps, the largest first, are those of an array row by row: the last
    one steps by 1, and each fits into a step of the one before. Steps of 100 and 1 do if the second
    axis has at most 100 iterations."""
    if steps[-1][1] != 1 or any(axis.op is not Op.AXIS for axis, _ in steps):
        return False
    for (_, step), (inner_axis, inner_step) in pairwise(steps):
        fits = inner_axis.arg.size * inner_step <= step
        if step % inner_step != 0 or not fits:
            return False
    return True


def comment(kernel: AnyKernel, lines: Sequence[str] = ()) -> str:
    """The comment above the text of `kernel`: its formulas, and the user's `lines` that it is of.
    It is no part of what is compiled and cached, which lines of a user's must not change."""
    every = [*formulas(kernel), *(f"at {line}" for line in lines)]
    body = "\n   ".join(line.replace("*/", "* /") for line in every)
    return f"/* {body} */"


def listing(source: Source, kernels: Mapping[str, AnyKernel]) -> str:
    """`source` to read: each of its `kernels` below its comment, and what runs them, without the
    helper functions."""
    parts = []
    for name, text in source.kernels.items():
        parts += [comment(kernels[name]), text] if name in kernels else [text]
    return "\n".join(filter(None, [*parts, source.entry]))

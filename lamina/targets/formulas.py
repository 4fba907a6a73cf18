"""Kernels as formulas, for the comments above their text: what they compute, whatever the schedule.

    p3[row, column] = max((sum_k p0[row, k] * p1[k, column]) + p2[column], 0)

Elementwise operations are written as in Python, with the least brackets that its grammar needs to
read them in the order in which they are computed: ``a + b + c``, but ``a + (b + c)``.
Reductions, which Python has no sign for, bind loosest: ``(sum_k x) + y`` and ``sum_k (x + y)``. A
value that several others use, or that is long, has a line of its own: ``v1 = ...``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lamina.core.dtypes import SHORT, Scalar, bool_
from lamina.graph import index as ix
from lamina.ir.kernel import AnyKernel, BinKernel, Collective, Kernel, SortKernel, Store, bound_axes
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Nest, axis_lists, operands_of
from lamina.runtime.source import Source
from lamina.targets.horizontal import BETWEEN_NAMES
from lamina.targets.names import axis_names, monoid_name

LONGEST_LINE = 100  # characters of a value that has no line of its own
MAX_LINES = 25  # of a comment: what a reader sees at once

# How tight an expression holds together, loosest first, in the order of Python's grammar. Operands
# that are looser than their operation needs are in brackets.
(
    REDUCTION, BOOL_OR, BOOL_AND, BOOL_NOT, COMPARISON, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM,
    PRODUCT, NEGATIVE, POWER, ATOM,
) = range(14)  # fmt: skip


@dataclass(frozen=True)
class _Expression:
    """The text of an expression, and how tight it holds together: SUM for ``a + b``."""

    text: str
    tightness: int


@dataclass(frozen=True)
class _Infix:
    """How an operation is written between two operands: its sign, how tight the whole holds
    together, and how tight the operands have to for it to be read as it is meant."""

    sign: str
    tightness: int
    min_left: int
    min_right: int


def _left_to_right(sign: str, tightness: int) -> _Infix:
    """``a - b - c`` is ``(a - b) - c``: only the left operand may be as loose as the whole."""
    return _Infix(sign, tightness, tightness, tightness + 1)


def _comparison(sign: str) -> _Infix:
    """``a < b == c`` would be ``a < b and b == c``: no operand may be a comparison."""
    return _Infix(sign, COMPARISON, COMPARISON + 1, COMPARISON + 1)


_INFIX = {
    Op.OR: _left_to_right("|", BIT_OR), Op.XOR: _left_to_right("^", BIT_XOR),
    Op.AND: _left_to_right("&", BIT_AND), Op.SHL: _left_to_right("<<", SHIFT),
    Op.SHR: _left_to_right(">>", SHIFT), Op.ADD: _left_to_right("+", SUM),
    Op.MUL: _left_to_right("*", PRODUCT), Op.DIV: _left_to_right("/", PRODUCT),
    Op.IDIV: _left_to_right("//", PRODUCT), Op.MOD: _left_to_right("%", PRODUCT),
    Op.LT: _comparison("<"), Op.EQ: _comparison("=="),
    # ``a ** -b ** c`` is ``a ** (-(b ** c))``, and ``-a ** b`` is ``-(a ** b)``.
    Op.POW: _Infix("**", POWER, ATOM, NEGATIVE),
}  # fmt: skip
_INFIX_OF_BOOLS = {
    Op.OR: _left_to_right("or", BOOL_OR),
    Op.AND: _left_to_right("and", BOOL_AND),
}


def formulas(kernel: AnyKernel) -> list[str]:
    """What `kernel` computes, as lines of a comment, at most MAX_LINES: of more, the first ones and
    the last, with a line between them that says how many are left out."""
    if isinstance(kernel, SortKernel):
        order = kernel.order
        way = "descending" if order.descending else "ascending"
        ranks = "" if kernel.ranks == kernel.length else f", ranks {order.first} to {order.last}"
        return [f"p1[row] = the order of p0[row], {way}{ranks}"]
    if isinstance(kernel, BinKernel):
        base, places, updates = kernel.operands
        return [f"p{kernel.result} = p{base}, and p{updates} added at p{places}"]
    if isinstance(kernel, Collective):
        return [f"p1 = {kernel.exchange} of p0"]
    lines = _Formulas(kernel).lines()
    if len(lines) <= MAX_LINES:
        return lines
    first, last = lines[: MAX_LINES - 2], lines[-1]
    return [*first, f"... and {len(lines) - MAX_LINES + 1} lines more", last]


class _Formulas:
    """The formulas of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        order = dict.fromkeys(axis for axes in axis_lists(kernel) for axis in axes)
        self.names = axis_names(Nest(kernel, tuple(order), {}))  # axes as they are never split
        self.expressions: dict[Node, _Expression] = {}  # of a value with a line, its name
        users = Counter(operand for node in kernel.nodes for operand in operands_of(node))
        self.shared = {node for node, count in users.items() if count > 1}

    def lines(self) -> list[str]:
        """A line for each value that is shared or long, operands first; then one for each store."""
        lines: list[str] = []
        for node in toposort(store.value for store in self.kernel.stores):
            expression = self._expression(node)
            # What is read, and an index, is as short as a name, and says more.
            is_leaf = node.op in (Op.CONST, Op.AXIS, Op.AFFINE, Op.LOAD)
            is_long = len(expression.text) > LONGEST_LINE
            if not is_leaf and (node in self.shared or is_long):
                name = f"v{len(lines) + 1}"
                lines.append(f"{name} = {expression.text}")
                expression = _Expression(name, ATOM)
            self.expressions[node] = expression
        return lines + [self._store(store) for store in self.kernel.stores]

    def _store(self, store: Store) -> str:
        """``p1[row] = x``; of a store that adds ``p1[row] += x``, and of one that combines by
        another monoid ``p1[row] = max(p1[row], x)``; all with `` if ...`` under a condition."""
        target = f"p{store.parameter}[{self._subscripts(store.index)}]"
        value = self._text(store.value)
        if store.monoid is ADD:
            text = f"{target} += {value}"
        elif store.monoid is not None:
            text = f"{target} = {monoid_name(store.monoid)}({target}, {value})"
        else:
            text = f"{target} = {value}"
        return text if store.condition is ix.TRUE else f"{text} if {self._text(store.condition)}"

    def _text(self, node: Node, min_tightness: int = REDUCTION) -> str:
        """The text of an operand, in brackets if it is looser than `min_tightness`; without a
        minimum, as within brackets or on a line of its own, it needs none."""
        if node not in self.expressions:
            self._write_out(node)
        expression = self.expressions[node]
        if expression.tightness < min_tightness:
            return f"({expression.text})"
        return expression.text

    def _write_out(self, node: Node) -> None:
        """Add the expression of `node`, and of what it is computed from, to `expressions`.

        `lines` does that for all that is beneath the stored values, the indices and conditions of
        loads too. What is left are parts of the indices and conditions of stores that no stored
        value needs, such as ``j < 1`` where the first of several rows stores. They get no lines of
        their own.
        """
        for operand in toposort([node], lambda other: other not in self.expressions):
            self.expressions[operand] = self._expression(operand)

    def _expression(self, node: Node) -> _Expression:
        """A node written out, its operands by their own expressions or names."""
        match node.op:
            case Op.CONST:
                return _constant(node.arg.value)
            case Op.AXIS | Op.AFFINE:
                return self._index(node)
            case Op.LOAD:
                return self._load(node)
            case Op.LOOP_REDUCE | Op.LOOP_SCAN:
                return self._reduction(node)
            case Op.WHERE:
                condition, yes, no = map(self._text, node.src)
                return _Expression(f"({yes} if {condition} else {no})", ATOM)
            case Op.NEG:
                return self._prefix("-", node, NEGATIVE)
            case Op.NOT:
                if node.dtype is bool_:
                    return self._prefix("not ", node, BOOL_NOT)
                return self._prefix("~", node, NEGATIVE)
            case op if op in _INFIX:
                return self._infix(node)
            case _:
                return self._call(node)

    def _prefix(self, sign: str, node: Node, tightness: int) -> _Expression:
        """``-a``, ``~a`` and ``not a``, which may stand before one another: ``-~a``."""
        return _Expression(f"{sign}{self._text(node.src[0], tightness)}", tightness)

    def _call(self, node: Node) -> _Expression:
        """``exp(a)``; of a cast ``f32(a)``."""
        name = SHORT[node.dtype] if node.op is Op.CAST else node.op.name.lower()
        arguments = ", ".join(map(self._text, node.src))
        return _Expression(f"{name}({arguments})", ATOM)

    def _load(self, node: Node) -> _Expression:
        """``p0[row, k]``; under a condition ``(p0[row, k] if ... else 0)``, as it reads nothing
        and gives 0 where that does not hold."""
        text = f"p{node.arg.parameter}[{self._subscripts(node.src[0])}]"
        if len(node.src) == 2:
            text = f"({text} if {self._text(node.src[1])} else 0)"
        return _Expression(text, ATOM)

    def _infix(self, node: Node) -> _Expression:
        """``a + b``; the sum of a and -b as ``a - b``, and that of a and the constant -2 as
        ``a - 2``."""
        left, right = node.src
        has_minus = self._text(right).startswith("-")  # a value with a line has a name
        if node.op is Op.ADD and has_minus and right.op in (Op.NEG, Op.CONST):
            if right.op is Op.NEG:
                subtracted = self._text(right.src[0], PRODUCT)
            else:
                subtracted = self._text(right).removeprefix("-")
            return _Expression(f"{self._text(left, SUM)} - {subtracted}", SUM)
        infix = _INFIX[node.op]
        if node.dtype is bool_:
            infix = _INFIX_OF_BOOLS.get(node.op, infix)
        operands = self._text(left, infix.min_left), self._text(right, infix.min_right)
        return _Expression(f" {infix.sign} ".join(operands), infix.tightness)

    def _reduction(self, node: Node) -> _Expression:
        """``sum_k x`` and ``running_sum_k x``; of several components, the one that the node is:
        ``argmax_k(value, index)[1]``."""
        monoid, operands = node.arg.monoid, operands_of(node)
        over = ",".join(self.names[axis] for axis in bound_axes(node))
        name = f"{monoid_name(monoid)}_{over}"
        if node.op is Op.LOOP_SCAN:
            name = f"running_{name}"
        if len(operands) == 1:
            return _Expression(f"{name} {self._text(operands[0], PRODUCT)}", REDUCTION)
        components = ", ".join(map(self._text, operands))
        return _Expression(f"{name}({components})[{node.arg.component}]", ATOM)

    def _index(self, index: Node) -> _Expression:
        """``4 * row - column + 1``, and an axis as its name."""
        terms, constant = ix.terms_of(index)
        if not constant and [*terms.values()] == [1]:
            return _Expression(self._term(*terms), ATOM)
        parts = [(factor, self._scaled(term, abs(factor))) for term, factor in terms.items()]
        if constant or not parts:
            parts.append((constant, str(abs(constant))))
        (first_factor, text), *others = parts
        if first_factor < 0:
            text = f"-{text}"
        for factor, part in others:
            text += f" - {part}" if factor < 0 else f" + {part}"
        return _Expression(text, SUM)

    def _scaled(self, term: Node, factor: int) -> str:
        """``4 * row``; with a factor of 1 ``row``."""
        return self._term(term) if factor == 1 else f"{factor} * {self._term(term)}"

    def _term(self, term: Node) -> str:
        """An operand of an index, which may have a factor or a minus before it: an axis by its
        name, data as an expression."""
        return self.names[term] if term.op is Op.AXIS else self._text(term, NEGATIVE)

    def _subscripts(self, index: Node) -> str:
        """``row, column`` for ``100 * row + column`` with at most 100 columns. Any other index is
        written as the sum that it is: ``row + 3``, or ``50 * row + column`` with 100 columns."""
        terms, constant = ix.terms_of(index)
        steps = sorted(terms.items(), key=lambda term: -term[1])
        if not steps or constant or not _walks_rows(steps):
            return self._index(index).text
        return ", ".join(self.names[axis] for axis, _ in steps)


def _constant(value: Scalar) -> _Expression:
    """A constant to read: of a float six digits, 0.333333, which are not all that it has."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return _Expression(text, NEGATIVE if text.startswith("-") else ATOM)


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


def listing(
    source: Source, kernels: Mapping[str, AnyKernel], lines: Mapping[AnyKernel, Sequence[str]]
) -> str:
    """`source` to read, without the helper functions: its functions, and what runs them. Each of
    the `kernels` stands below its comment, with the user's `lines` of it, if they are known. In C,
    functions of row blocks have none, which only call kernels."""
    parts = []
    for launched, text in source.kernels.items():
        for name in dict.fromkeys(launched.split(BETWEEN_NAMES)):
            if name in kernels:
                kernel = kernels[name]
                parts.append(comment(kernel, lines.get(kernel, ())))
        parts.append(text)
    return "\n".join(filter(None, [*parts, source.entry]))

"""The C spelling of every elementwise operation, for scalars and for vectors.

A vector of bool is a mask: signed integers, all bits set where true, as wide as the comparison
that made it. Floats of 16 and 8 bits are held as their bits. What C has no operator for is a
function of the texts beside this file, named after the operation and the type of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lamina.codegen.base import Value
from lamina.dtypes import SHORT, bool_, float32, int32
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op

if TYPE_CHECKING:
    from lamina.codegen.c import CPrinter

TYPES = SHORT | {bool_: "_Bool"}
TYPES |= {dtype: f"u{dtype.bits}" for dtype in SHORT if dtype.is_small}

# The text of an operation on operands; the last argument is the result, with no text yet.
Spelling = Callable[["CPrinter", Node, list[Value], Value], str]


def spell(printer: CPrinter, node: Node, operands: list[Value]) -> Value:
    """One elementwise operation; a mask is as wide as the widest value it is made of."""
    lanes = max([one.lanes for one in operands])
    masked = lanes > 1 and node.dtype is bool_
    mask = max(one.mask or one.dtype.bits for one in operands) if masked else 0
    text = OPERATIONS[node.op](printer, node, operands, Value("", node.dtype, lanes, mask))
    return Value(text, node.dtype, lanes, mask)


def mask_of(value: Value) -> Value:
    """A mask, with no text yet, that selects lanes of `value`."""
    return Value("", bool_, value.lanes, value.mask or value.dtype.bits)


def _infix(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    a, b = operands[0].text, operands[1].text
    if out.mask and operands[0].dtype is bool_:
        a, b = (printer.widened(one, out) for one in operands)
        if node.op in (Op.LT, Op.EQ):
            return f"(~{a} & {b})" if node.op is Op.LT else f"~({a} ^ {b})"
    return f"({a} {SIGNS[node.op]} {b})"


def _call(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    """A function of vectors where there is one, else of scalars, lane by lane."""
    name, whole = node.op.name.lower(), node.op in (Op.MAX, Op.MIN, Op.TRUNC)
    if out.dtype is float32 and node.op in Group.TRANSCENDENTAL - {Op.SQRT, Op.TRUNC}:
        printer.need("math", out.lanes)
        whole = True
    if whole or out.lanes == 1:
        arguments = (printer.widened(one, out) for one in operands)
        return f"{name}_{printer.type(out)}({', '.join(arguments)})"
    lanes = (
        ", ".join(one.text if one.lanes == 1 else f"{one.text}[{lane}]" for one in operands)
        for lane in range(out.lanes)
    )
    calls = ", ".join(f"{name}_{TYPES[out.dtype]}({arguments})" for arguments in lanes)
    return f"({printer.type(out)}){{{calls}}}"


def _where(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    condition, yes, no = operands
    if condition.lanes == 1 and (yes.lanes, yes.mask) == (no.lanes, no.mask):
        return f"({condition.text} ? {yes.text} : {no.text})"
    mask = printer.widened(condition, mask_of(out))
    arguments = f"{mask}, {printer.widened(yes, out)}, {printer.widened(no, out)}"
    return f"where_{printer.type(out)}({arguments})"


def _extreme(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    return (_infix if out.dtype is bool_ else _call)(printer, node, operands, out)


def _shift(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    (value, count), amount = operands, node.src[1]
    if amount.op is Op.CONST and 0 <= amount.arg.value < out.dtype.bits:
        return f"({printer.widened(value, out)} {SIGNS[node.op]} {amount.arg.value})"
    if count.lanes == 1:
        return f"{node.op.name.lower()}_{printer.type(out)}({value.text}, {count.text})"
    return _call(printer, node, operands, out)


def _cast(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    value, text = operands[0], operands[0].text
    if out.dtype is bool_:
        return f"({text} != 0)"
    if value.dtype.is_small or out.dtype.is_small:
        printer.need("floats", out.lanes)
        lanes = f"x{out.lanes}" if out.lanes > 1 else ""
        return f"{SHORT[value.dtype]}_to_{SHORT[out.dtype]}{lanes}({text})"
    kind = printer.type(out)
    if out.lanes == 1:
        return f"({kind}){text}"
    if value.dtype is bool_:
        text = f"({printer.widened(value, mask_of(out))} & 1)"
    elif value.dtype.is_float != out.dtype.is_float and min(value.dtype.bits, out.dtype.bits) < 32:
        text = f"__builtin_convertvector({text}, {printer.type(out._replace(dtype=int32))})"
    return f"__builtin_convertvector({text}, {kind})"


def _bitcast(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    source, kind = operands[0], printer.type(out)
    if out.lanes > 1:
        return f"({kind}){source.text}"
    return f"BITS({TYPES[source.dtype]}, {kind}, {source.text})"


SIGNS = {
    Op.ADD: "+", Op.MUL: "*", Op.DIV: "/", Op.LT: "<", Op.EQ: "==", Op.AND: "&", Op.OR: "|",
    Op.XOR: "^", Op.SHL: "<<", Op.SHR: ">>", Op.MAX: "|", Op.MIN: "&",  # the last two of bools
}  # fmt: skip
OPERATIONS: dict[Op, Spelling] = {
    **dict.fromkeys(SIGNS, _infix),
    **dict.fromkeys(Group.TRANSCENDENTAL | {Op.IDIV, Op.MOD, Op.POW, Op.TRUNC}, _call),
    # A space, as -- before a literal would be a decrement.
    Op.NEG: lambda printer, node, operands, out: f"(- {operands[0].text})",
    Op.NOT: lambda printer, node, operands, out: (
        f"({'!' if out.dtype is bool_ and not out.mask else '~'}{operands[0].text})"
    ),
    Op.MAX: _extreme,
    Op.MIN: _extreme,
    Op.SHL: _shift,
    Op.SHR: _shift,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
}

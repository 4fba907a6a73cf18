"""The C spelling of every elementwise operation, for scalars and for vectors.

A vector of bool is a mask: signed integers, all bits set where true, as wide as the comparison
that made it.
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


def _named(printer: CPrinter, kind: Value, text: str) -> str:
    return printer.declare(kind._replace(text=text)).text


def _select(printer: CPrinter, condition: str, yes: str, no: str, out: Value) -> str:
    """Bits of `yes` where the mask is set, of `no` elsewhere."""
    if out.dtype is bool_:
        return f"(({condition} & {yes}) | (~{condition} & {no}))"
    bits = printer.type(mask_of(out))
    return f"({printer.type(out)})(({condition} & ({bits}){yes}) | (~{condition} & ({bits}){no}))"


def _by_lane(printer: CPrinter, operands: list[Value], out: Value, call: Callable[..., str]) -> str:
    if out.lanes == 1:
        return call(*(one.text for one in operands))
    elements = [
        call(*(one.text if one.lanes == 1 else f"{one.text}[{lane}]" for one in operands))
        for lane in range(out.lanes)
    ]
    return f"({printer.type(out)}){{{', '.join(elements)}}}"


def _infix(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    a, b = operands[0].text, operands[1].text
    if out.mask and operands[0].dtype is bool_:
        a, b = (printer.widened(one, out) for one in operands)
        if node.op in (Op.LT, Op.EQ):
            return f"(~{a} & {b})" if node.op is Op.LT else f"~({a} ^ {b})"
    return f"({a} {SIGNS[node.op]} {b})"


def _call(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    name = f"{node.op.name.lower()}_{TYPES[out.dtype]}"
    if node.op not in (Op.IDIV, Op.MOD, Op.POW):  # functions of the prelude
        name = f"__builtin_{node.op.name.lower()}{'f' if out.dtype is float32 else ''}"
    return _by_lane(printer, operands, out, lambda *texts: f"{name}({', '.join(texts)})")


def _where(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    condition, yes, no = operands
    if condition.lanes == 1 and (yes.lanes, yes.mask) == (no.lanes, no.mask):
        return f"({condition.text} ? {yes.text} : {no.text})"
    mask = mask_of(out)
    chosen = printer.widened(condition, mask)
    if chosen != condition.text:
        chosen = _named(printer, mask, chosen)
    return _select(printer, chosen, printer.widened(yes, out), printer.widened(no, out), out)


def _extreme(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    """MAX and MIN; with floats, a NaN on either side is the result."""
    if out.dtype is bool_:
        return _infix(printer, node, operands, out)
    sign = ">" if node.op is Op.MAX else "<"
    a, b = (
        one.text if one.lanes == out.lanes else _named(printer, out, printer.widened(one, out))
        for one in operands
    )
    if out.lanes == 1:
        nan = f" || {a} != {a}" if out.dtype.is_float else ""
        return f"({a} {sign} {b}{nan} ? {a} : {b})"
    nan = f" | ({a} != {a})" if out.dtype.is_float else ""
    mask = _named(printer, mask_of(out), f"(({a} {sign} {b}){nan})")
    return _select(printer, mask, a, b, out)


def _truncate(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    if out.lanes == 1:
        return _call(printer, node, operands, out)
    # Beyond 2**(fraction bits) every float is whole; below, an integer holds it.
    limit = "8388608.0f" if out.dtype is float32 else "4503599627370496.0"
    mask, bits = mask_of(out), out.dtype.bits
    whole, kind, x = printer.type(mask), printer.type(out), operands[0].text
    top = f"((i{bits})(1ULL << {bits - 1}) - ({whole}){{0}})"
    sign = _named(printer, mask, f"(({whole})({x}) & {top})")
    magnitude = _named(printer, out, f"({kind})(({whole})({x}) ^ {sign})")
    small = _named(printer, mask, f"({magnitude} < {limit})")
    cut = f"__builtin_convertvector(__builtin_convertvector({magnitude}, {whole}), {kind})"
    return _select(printer, small, f"({kind})(({whole}){cut} | {sign})", x, out)


def _shift(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    dtype, amount, sign = out.dtype, node.src[1], SIGNS[node.op]
    if amount.op is Op.CONST and 0 <= amount.arg.value < dtype.bits:
        return f"({printer.widened(operands[0], out)} {sign} {amount.arg.value})"
    beyond = "({0} < 0 ? -1 : 0)" if node.op is Op.SHR and dtype.kind == "int" else "0"
    call = f"((u64){{1}} < {dtype.bits} ? {{0}} {sign} {{1}} : {beyond})"
    return _by_lane(printer, operands, out, call.format)


def _cast(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    value, text = operands[0], operands[0].text
    if out.dtype is bool_:
        return f"({text} != 0)"
    kind = printer.type(out)
    if out.lanes == 1:
        return f"({kind}){text}"
    if value.dtype is bool_:
        text = f"({printer.widened(value, mask_of(out))} & 1)"
        if out.dtype.is_int:
            return f"({kind}){text}"
    elif value.dtype.is_float != out.dtype.is_float and min(value.dtype.bits, out.dtype.bits) < 32:
        text = f"__builtin_convertvector({text}, {printer.type(out._replace(dtype=int32))})"
    return f"__builtin_convertvector({text}, {kind})"


def _bitcast(printer: CPrinter, node: Node, operands: list[Value], out: Value) -> str:
    source, kind = operands[0], printer.type(out)
    if out.lanes > 1:
        return f"({kind}){source.text}"
    return f"((union {{ {TYPES[source.dtype]} from; {kind} to; }}){{{source.text}}}).to"


SIGNS = {
    Op.ADD: "+", Op.MUL: "*", Op.DIV: "/", Op.LT: "<", Op.EQ: "==", Op.AND: "&", Op.OR: "|",
    Op.XOR: "^", Op.SHL: "<<", Op.SHR: ">>", Op.MAX: "|", Op.MIN: "&",  # the last two of bools
}  # fmt: skip
OPERATIONS: dict[Op, Spelling] = {
    **dict.fromkeys(SIGNS, _infix),
    **dict.fromkeys(Group.TRANSCENDENTAL | {Op.IDIV, Op.MOD, Op.POW}, _call),
    # A space, as -- before a literal would be a decrement.
    Op.NEG: lambda printer, node, operands, out: f"(- {operands[0].text})",
    Op.NOT: lambda printer, node, operands, out: (
        f"({'!' if out.dtype is bool_ and not out.mask else '~'}{operands[0].text})"
    ),
    Op.MAX: _extreme,
    Op.MIN: _extreme,
    Op.TRUNC: _truncate,
    Op.SHL: _shift,
    Op.SHR: _shift,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
}

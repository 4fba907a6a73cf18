"""The C spelling of every elementwise operation, for scalars and for vectors.

A vector of bool is a mask: signed integers, all bits set where true, as wide as the comparison
that made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lamina.codegen.base import Value
from lamina.dtypes import (
    DType,
    bool_,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from lamina.ir.node import Node
from lamina.ir.ops import Op

if TYPE_CHECKING:
    from lamina.codegen.c import CPrinter

TYPES: dict[DType, str] = {
    bool_: "_Bool", int8: "i8", int16: "i16", int32: "i32", int64: "i64", uint8: "u8",
    uint16: "u16", uint32: "u32", uint64: "u64", float32: "f32", float64: "f64",
}  # fmt: skip
BITS = {name: int(name[1:]) for name in TYPES.values() if name != "_Bool"}

# Integer division rounds down and survives zero; the remainder has the divisor's sign.
HELPERS: dict[str, str] = {}
for _kind in ("i8", "i16", "i32", "i64"):
    HELPERS[f"idiv_{_kind}"] = (
        f"INLINE {_kind} idiv_{_kind}({_kind} a, {_kind} b) {{ if (b == 0) return 0; "
        f"if (b == -1) return -a; {_kind} q = a / b; "
        f"return q - ((a % b != 0) && ((a < 0) != (b < 0))); }}"
    )
    HELPERS[f"mod_{_kind}"] = (
        f"INLINE {_kind} mod_{_kind}({_kind} a, {_kind} b) {{ if (b == 0 || b == -1) return 0; "
        f"{_kind} r = a % b; return r != 0 && ((r < 0) != (b < 0)) ? r + b : r; }}"
    )
for _kind in ("u8", "u16", "u32", "u64"):
    HELPERS[f"idiv_{_kind}"] = (
        f"INLINE {_kind} idiv_{_kind}({_kind} a, {_kind} b) {{ return b == 0 ? 0 : a / b; }}"
    )
    HELPERS[f"mod_{_kind}"] = (
        f"INLINE {_kind} mod_{_kind}({_kind} a, {_kind} b) {{ return b == 0 ? 0 : a % b; }}"
    )
for _kind in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"):
    HELPERS[f"pow_{_kind}"] = (
        f"INLINE {_kind} pow_{_kind}({_kind} a, {_kind} b) {{ {_kind} r = 1; "
        f"if ((i64)b < 0) return a == 1 ? 1 : a == ({_kind})-1 ? (b & 1 ? a : 1) : 0; "
        f"while (b) {{ if (b & 1) r *= a; a *= a; b >>= 1; }} return r; }}"
    )
for _kind, _suffix in (("f32", "f"), ("f64", "")):
    HELPERS[f"mod_{_kind}"] = (
        f"INLINE {_kind} mod_{_kind}({_kind} a, {_kind} b) {{ {_kind} r = __builtin_fmod{_suffix}"
        f"(a, b); if (r == 0) return __builtin_copysign{_suffix}(r, b); "
        f"return (r < 0) != (b < 0) ? r + b : r; }}"
    )
    HELPERS[f"pow_{_kind}"] = (
        f"INLINE {_kind} pow_{_kind}({_kind} a, {_kind} b) "
        f"{{ return __builtin_pow{_suffix}(a, b); }}"
    )

Spelling = Callable[["CPrinter", Node, list[Value], int], Value]


def splat(text: str, element: str, vector: str) -> str:
    """A scalar in every lane; the subtraction keeps the sign of zero."""
    if text in ("0", "0.0f", "0.0"):
        return f"({vector}){{0}}"
    return f"(({element})({text}) - ({vector}){{0}})"


def _common_mask(operands: list[Value]) -> int:
    return max((one.mask for one in operands if one.lanes > 1), default=8)


def _bools(printer: CPrinter, operands: list[Value], lanes: int) -> tuple[list[str], int]:
    mask = _common_mask(operands)
    return [printer.widened(one, lanes, mask) for one in operands], mask


def _infix(sign: str) -> Spelling:
    def spell(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
        if node.dtype is bool_ and lanes > 1:
            (a, b), mask = _bools(printer, operands, lanes)
            return Value(f"({a} {sign} {b})", bool_, lanes, mask)
        a, b = (one.text for one in operands)
        return Value(f"({a} {sign} {b})", node.dtype, lanes)

    return spell


def _compare(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
    sign = "<" if node.op is Op.LT else "=="
    dtype = operands[0].dtype
    if lanes == 1:
        return Value(f"({operands[0].text} {sign} {operands[1].text})", bool_)
    if dtype is bool_:
        (a, b), mask = _bools(printer, operands, lanes)
        text = f"(~{a} & {b})" if node.op is Op.LT else f"~({a} ^ {b})"
        return Value(text, bool_, lanes, mask)
    a, b = (one.text for one in operands)
    printer.type(bool_, lanes, dtype.bits)
    return Value(f"({a} {sign} {b})", bool_, lanes, dtype.bits)


def _negate(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
    return Value(f"(- {operands[0].text})", node.dtype, lanes)  # not --, before a literal


def _invert(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
    sign = "!" if node.dtype is bool_ and lanes == 1 else "~"
    return Value(f"({sign}{operands[0].text})", node.dtype, lanes, operands[0].mask)


def select(printer: CPrinter, condition: str, mask: int, yes: str, no: str, dtype: DType,
           lanes: int) -> Value:  # fmt: skip
    """Bits of `yes` where the mask is set, of `no` elsewhere."""
    if dtype is bool_:
        return Value(f"(({condition} & {yes}) | (~{condition} & {no}))", dtype, lanes, mask)
    bits = printer.type(bool_, lanes, dtype.bits)
    kind = printer.type(dtype, lanes)
    return Value(
        f"({kind})(({condition} & ({bits}){yes}) | (~{condition} & ({bits}){no}))", dtype, lanes
    )


def _where(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
    condition, yes, no = operands
    if lanes == 1:
        return Value(f"({condition.text} ? {yes.text} : {no.text})", node.dtype)
    if condition.lanes == 1 and yes.lanes == lanes == no.lanes and yes.mask == no.mask:
        text = f"({condition.text} ? {yes.text} : {no.text})"
        return Value(text, node.dtype, lanes, yes.mask)
    mask = _common_mask(operands) if node.dtype is bool_ else node.dtype.bits
    texts = [printer.widened(one, lanes, mask) for one in (condition, yes, no)]
    if condition.lanes == 1 or condition.mask != mask:
        held = printer.declare(Value(texts[0], bool_, lanes, mask))
        texts[0] = held.text
    return select(printer, texts[0], mask, texts[1], texts[2], node.dtype, lanes)


def _extreme(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
    """MAX and MIN; with floats, a NaN on either side is the result."""
    sign = ">" if node.op is Op.MAX else "<"
    dtype = node.dtype
    if dtype is bool_:
        return _infix("|" if node.op is Op.MAX else "&")(printer, node, operands, lanes)
    a, b = (one.text for one in operands)
    if lanes == 1:
        nan = f" || {a} != {a}" if dtype.is_float else ""
        return Value(f"({a} {sign} {b}{nan} ? {a} : {b})", dtype)
    a, b = (
        printer.declare(Value(printer.widened(one, lanes), dtype, lanes)).text
        if one.lanes == 1
        else one.text
        for one in operands
    )
    nan = f" | ({a} != {a})" if dtype.is_float else ""
    mask = printer.declare(Value(f"(({a} {sign} {b}){nan})", bool_, lanes, dtype.bits)).text
    return select(printer, mask, dtype.bits, a, b, dtype, lanes)


def _by_lane(printer: CPrinter, dtype: DType, lanes: int, operands: list[Value],
             call: Callable[..., str]) -> Value:  # fmt: skip
    if lanes == 1:
        return Value(call(*(one.text for one in operands)), dtype)
    elements = []
    for lane in range(lanes):
        texts = [one.text if one.lanes == 1 else f"{one.text}[{lane}]" for one in operands]
        elements.append(call(*texts))
    return Value(f"({printer.type(dtype, lanes)}){{{', '.join(elements)}}}", dtype, lanes)


def _helper(stem: str) -> Spelling:
    def spell(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
        name = f"{stem}_{TYPES[node.dtype]}"
        printer.used.add(name)
        return _by_lane(
            printer, node.dtype, lanes, operands, lambda a, b: f"{name}({a}, {b})"
        )

    return spell


def _builtin(name: str) -> Spelling:
    def spell(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
        suffix = "f" if node.dtype is float32 else ""
        return _by_lane(
            printer, node.dtype, lanes, operands, lambda x: f"__builtin_{name}{suffix}({x})"
        )

    return spell


def _truncate(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
    if lanes == 1:
        return _builtin("trunc")(printer, node, operands, lanes)
    # Beyond 2**(fraction bits) every float is whole; below, an integer holds it.
    bits, limit = node.dtype.bits, "8388608.0f" if node.dtype is float32 else "4503599627370496.0"
    whole, kind = printer.type(bool_, lanes, bits), printer.type(node.dtype, lanes)
    x = operands[0].text
    top = splat(f"1ULL << {bits - 1}", f"i{bits}", whole)
    sign = printer.declare(Value(f"(({whole})({x}) & {top})", bool_, lanes, bits)).text
    magnitude = printer.declare(Value(f"({kind})(({whole})({x}) ^ {sign})", node.dtype, lanes)).text
    small = printer.declare(Value(f"({magnitude} < {limit})", bool_, lanes, bits)).text
    cut = (
        f"({kind})(({whole})__builtin_convertvector(__builtin_convertvector({magnitude}, {whole}), "
        f"{kind}) | {sign})"
    )
    return select(printer, small, bits, cut, x, node.dtype, lanes)


def _shift(sign: str) -> Spelling:
    def spell(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
        dtype, amount = node.dtype, node.src[1]
        if amount.op is Op.CONST and 0 <= amount.arg.value < dtype.bits:
            wide = printer.widened(operands[0], lanes)
            return Value(f"({wide} {sign} {amount.arg.value})", dtype, lanes)
        beyond = "0" if sign == "<<" or dtype.kind == "uint" else "({0} < 0 ? -1 : 0)"
        call = f"((u64){{1}} < {dtype.bits} ? {{0}} {sign} {{1}} : {beyond})"
        return _by_lane(printer, dtype, lanes, operands, call.format)

    return spell


def _cast(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
    value, to = operands[0], node.arg
    if lanes == 1:
        text = f"({value.text} != 0)" if to is bool_ else f"({TYPES[to]}){value.text}"
        return Value(text, to)
    if to is bool_:
        printer.type(bool_, lanes, value.dtype.bits)
        return Value(f"({value.text} != 0)", bool_, lanes, value.dtype.bits)
    kind = printer.type(to, lanes)
    if value.dtype is bool_:
        wide = printer.widened(value, lanes, to.bits)
        if to.is_float:
            return Value(f"__builtin_convertvector(({wide} & 1), {kind})", to, lanes)
        return Value(f"({kind})({wide} & 1)", to, lanes)
    if value.dtype.is_float and to.is_int and to.bits < 32:
        middle = printer.type(int32, lanes)
        inner = f"__builtin_convertvector({value.text}, {middle})"
        return Value(f"__builtin_convertvector({inner}, {kind})", to, lanes)
    return Value(f"__builtin_convertvector({value.text}, {kind})", to, lanes)


def _bitcast(printer: CPrinter, node: Node, operands: list[Value], lanes: int) -> Value:
    value, to = operands[0], node.arg
    if lanes > 1:
        return Value(f"({printer.type(to, lanes)}){value.text}", to, lanes)
    return Value(
        f"((union {{ {TYPES[value.dtype]} from; {TYPES[to]} to; }}){{{value.text}}}).to", to
    )


OPERATIONS: dict[Op, Spelling] = {
    Op.NEG: _negate,
    Op.NOT: _invert,
    Op.SQRT: _builtin("sqrt"),
    Op.EXP: _builtin("exp"),
    Op.EXP2: _builtin("exp2"),
    Op.LOG: _builtin("log"),
    Op.LOG2: _builtin("log2"),
    Op.SIN: _builtin("sin"),
    Op.COS: _builtin("cos"),
    Op.ATAN: _builtin("atan"),
    Op.ERF: _builtin("erf"),
    Op.TRUNC: _truncate,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    Op.ADD: _infix("+"),
    Op.MUL: _infix("*"),
    Op.DIV: _infix("/"),
    Op.IDIV: _helper("idiv"),
    Op.MOD: _helper("mod"),
    Op.POW: _helper("pow"),
    Op.MAX: _extreme,
    Op.MIN: _extreme,
    Op.LT: _compare,
    Op.EQ: _compare,
    Op.AND: _infix("&"),
    Op.OR: _infix("|"),
    Op.XOR: _infix("^"),
    Op.SHL: _shift("<<"),
    Op.SHR: _shift(">>"),
    Op.WHERE: _where,
}

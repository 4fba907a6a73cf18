"""How C spells types, constants and operations, with the vector extensions of GCC and Clang.

A vector of bool is a mask: signed integers, all bits set where true, as wide as the comparison
that made it. Floats of 16 and 8 bits are held as their bits. What C has no operator for is a
function of the texts beside this file, named after the operation and the type of its result:
``max_f32x8``.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lamina.core.dtypes import SHORT, DType, bool_, float32, float64, int32
from lamina.ir.interpreter import fold_constant
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.targets.language import Language, Value
from lamina.targets.legalize import carrier

TYPES = SHORT | {bool_: "_Bool"}
TYPES |= {dtype: f"u{dtype.bits}" for dtype in SHORT if dtype.is_small}
ELEMENTS = TYPES | {bool_: "u8"}  # in memory

VECTORS = "c/vectors.c"
FLOATS = "c/floats.c"
MATH = "c/math.c"
DOUBLES = "c/doubles.c"
# Operations that `vectors.c` has functions of.
IN_VECTORS = (Op.MAX, Op.MIN, Op.TRUNC)
# The functions in `math.c` and in `doubles.c`. Processors have an instruction for square roots.
OF_FLOAT32 = Group.TRANSCENDENTAL - {Op.SQRT}
VECTORS_OF_FLOAT64 = frozenset({
    Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS, Op.ATAN, Op.ERF, Op.LOGISTIC,
    Op.TANH,
})  # fmt: skip
SIGNS = {
    Op.ADD: "+", Op.MUL: "*", Op.DIV: "/", Op.LT: "<", Op.EQ: "==", Op.AND: "&", Op.OR: "|",
    Op.XOR: "^", Op.MAX: "|", Op.MIN: "&",  # the last two of bools
}  # fmt: skip
# Transcendental functions that a kernel inlines: the first ones, as whole tiles come before
# the rows and columns left over. It calls the others, which takes 10 to 20 % longer, as GCC's
# time grows faster than the length of a kernel. 16 are four vectors of four functions.
MAX_INLINED = 16


class NeededText(NamedTuple):
    """That a program needs a helper text: its path below targets/, and the number of lanes; 0 if it
    has nothing of lanes."""

    path: str
    lanes: int = 0


class CLanguage(Language):
    """How C spells the values of one kernel, and which helper texts these need.

    needed         the helper texts that the program needs, which grow
    max_inlined    see MAX_INLINED
    index_type     of indices and of the variables of loops
    """

    def __init__(
        self,
        needed: set[NeededText] | None = None,
        max_inlined: float = MAX_INLINED,
        index_type: str = "i64",
    ) -> None:
        self.needed = set[NeededText]() if needed is None else needed
        self.max_inlined = max_inlined
        self.index_type = index_type
        self.transcendental = 0  # functions of vectors in the text so far

    def use_text(self, path: str, lanes: int = 0) -> None:
        """Note that a helper text is needed for so many lanes."""
        self.needed.add(NeededText(path, lanes))

    # Types and constants.

    def type(self, value: Value) -> str:
        """``f32``, ``f32x8``; of a mask ``i32x8``, integers of as many bits as it has."""
        name = f"i{value.mask}" if value.mask else TYPES[value.dtype]
        return name if value.lanes == 1 else self.vector_type(name, value.lanes)

    def vector_type(self, element: str, lanes: int) -> str:
        """The type of vectors, such as ``f32x8``, which `vectors.c` defines."""
        self.use_text(VECTORS, lanes)
        return f"{element}x{lanes}"

    def literal(self, node: Node) -> Value:
        """The text of a constant: ``1.5f``, ``inf_f64``, ``(i64)3``; of a small float, its bits."""
        value, dtype = node.arg
        if dtype.is_small:
            value, dtype = fold_constant(Op.BITCAST, (node,), carrier(dtype)).arg
        if not dtype.is_float:
            return Value(f"({TYPES[dtype]}){int(value)}", node.dtype)
        is_float32 = dtype is float32
        # A number is rounded to float32 here, as by the interpreter. A C compiler would round the
        # decimal digits of the float64, and refuse 1e39f: beyond float32, it is inf_f32.
        text = repr(ctypes.c_float(value).value if is_float32 else value)
        if not text[-1].isdigit():  # nan, inf and -inf are names of the prelude: ``-inf_f32``
            text = f"{text}_{TYPES[dtype]}"
        elif is_float32:
            text = f"{text}f"
        return Value(text, node.dtype)

    def operation(self, node: Node, operands: list[Value]) -> Value:
        """One elementwise operation; a mask is as wide as the widest value it is made of."""
        lanes = max([operand.lanes for operand in operands])
        mask = 0
        if lanes > 1 and node.dtype is bool_:
            mask = max(operand.mask or operand.dtype.bits for operand in operands)
        out = Value("", node.dtype, lanes, mask)
        return out._replace(text=OPERATIONS[node.op](self, node, operands, out))

    # Lanes.

    def widened(self, value: Value, to: Value) -> str:
        """`value` itself, a mask with wider or narrower elements, or a scalar in each lane:
        ``splat_f32x8(sum_3)``."""
        if (value.lanes, value.mask) == (to.lanes, to.mask):
            return value.text
        kind = self.type(to)
        if value.lanes > 1:  # a mask
            return f"__builtin_convertvector({value.text}, {kind})"
        minus = "-" if to.mask else ""  # true is -1 in a mask
        return f"splat_{kind}({minus}{value.text})"

    def lane(self, value: Value, number: int) -> Value:
        """One lane as a scalar; a scalar as it is."""
        text = f"{value.text}[{number}]" if value.lanes > 1 else value.text
        return Value(f"({text} != 0)" if value.mask else text, value.dtype)

    def half(self, vectors: Sequence[Value], side: int, run: int) -> Value:
        """For a and b of 4 lanes, side 0 and runs of 1: ``(f32x4){a[0], b[0], a[1], b[1]}``."""
        half_lanes = vectors[0].lanes // 2
        first = side * half_lanes
        places = [
            (vector, lane)
            for start in range(first, first + half_lanes, run)
            for vector in vectors
            for lane in range(start, start + run)
        ]
        if len(places) == 1:  # half of one vector of two lanes is a scalar
            return self.lane(*places[0])
        half = vectors[0]._replace(lanes=len(places))
        elements = ", ".join(f"{vector.text}[{lane}]" for vector, lane in places)
        return half._replace(text=f"({self.type(half)}){{{elements}}}")

    def moved_up(self, value: Value, by: int, fill: Value) -> Value:
        """For a of 4 lanes, by 1, and 0.0f: ``(f32x4){0.0f, a[0], a[1], a[2]}``."""
        kept = (f"{value.text}[{lane}]" for lane in range(value.lanes - by))
        elements = ", ".join((*[fill.text] * by, *kept))
        return value._replace(text=f"({self.type(value)}){{{elements}}}")

    def lane_numbers(self, lanes: int, dtype: DType) -> Value:
        """``(i64x4){0, 1, 2, 3}``."""
        numbers = ", ".join(map(str, range(lanes)))
        return Value(f"({self.vector_type(TYPES[dtype], lanes)}){{{numbers}}}", dtype, lanes)

    def called_name(self, op: Op) -> str:
        """The name of a transcendental function of vectors: ``exp``, or ``called_exp`` for the copy
        that is not inlined, once the kernel has inlined `max_inlined`."""
        self.transcendental += 1
        name = op.name.lower()
        return f"called_{name}" if self.transcendental > self.max_inlined else name


# The text of an operation on operands. The last argument is the result, with no text yet: it says
# the lanes and the mask that the text has to have.
Spelling = Callable[[CLanguage, Node, list[Value], Value], str]


def _infix(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """Two operands with a sign between them; masks as operands become as wide as the result."""
    left, right = operands[0].text, operands[1].text
    if out.mask and operands[0].dtype is bool_:
        left, right = (c.widened(operand, out) for operand in operands)
        if node.op is Op.LT:  # in a mask true is -1, which is less than false
            left, right = right, left
    return f"({left} {SIGNS[node.op]} {right})"


def _max_or_min(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """A function; of bools a sign: the maximum is ``(a | b)``."""
    spell = _infix if out.dtype is bool_ else _function
    return spell(c, node, operands, out)


def _function(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """A function of vectors where a text has one; else a function of scalars, lane by lane:
    ``max_f32x8(a, b)``, but ``(f64x2){pow_f64(a[0], b[0]), pow_f64(a[1], b[1])}``."""
    name = node.op.name.lower()
    text = _text_of_function(node.op, out)
    if text:
        c.use_text(text, out.lanes)
        name = c.called_name(node.op)
    if text or node.op in IN_VECTORS or out.lanes == 1:
        arguments = [c.widened(operand, out) for operand in operands]
        return f"{name}_{c.type(out)}({', '.join(arguments)})"
    calls = []
    for number in range(out.lanes):
        lanes = [c.lane(operand, number).text for operand in operands]
        calls.append(f"{name}_{TYPES[out.dtype]}({', '.join(lanes)})")
    return f"({c.type(out)}){{{', '.join(calls)}}}"


def _text_of_function(op: Op, out: Value) -> str:
    """The text that has transcendental functions for the dtype and lanes of `out`: `math.c` for any
    number of lanes, one too, and `doubles.c`; "" if `op` is left to the C library."""
    if out.dtype is float32 and op in OF_FLOAT32:
        return MATH
    if out.dtype is float64 and out.lanes > 1 and op in VECTORS_OF_FLOAT64:
        return DOUBLES
    return ""


def _shift(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """A function: one number shifts all lanes, ``shl_i32x8(a, n)``, or each lane has its own."""
    value, count = operands
    if count.lanes == 1:
        return f"{node.op.name.lower()}_{c.type(out)}({value.text}, {count.text})"
    return _function(c, node, operands, out)


def _where(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """C's choice where one condition decides for all lanes, else a function of a mask as wide as
    the result."""
    condition, yes, no = operands
    # The operands of C's choice have one type.
    if condition.lanes == 1 and (yes.lanes, yes.mask) == (no.lanes, no.mask):
        return f"({condition.text} ? {yes.text} : {no.text})"
    mask = c.widened(condition, out._replace(dtype=bool_, mask=out.mask or out.dtype.bits))
    return f"where_{c.type(out)}({mask}, {c.widened(yes, out)}, {c.widened(no, out)})"


def _cast(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """A cast of C, or of all lanes at once; small floats, which C lacks, have functions."""
    (value,) = operands
    if out.dtype is bool_:  # of a vector a mask, of which C makes the elements as wide as `value`
        return f"({value.text} != 0)"
    if value.dtype.is_small or out.dtype.is_small:
        c.use_text(FLOATS, out.lanes)
        lanes = f"x{out.lanes}" if out.lanes > 1 else ""
        return f"{SHORT[value.dtype]}_to_{SHORT[out.dtype]}{lanes}({value.text})"
    if out.lanes == 1:
        return f"({c.type(out)}){value.text}"
    return f"__builtin_convertvector({_convertible(c, value, out)}, {c.type(out)})"


def _convertible(c: CLanguage, value: Value, out: Value) -> str:
    """A vector that compilers convert to the dtype of `out` all lanes at once."""
    if value.dtype is bool_:  # true is -1 in a mask, and & 1 makes it 1
        mask = c.widened(value, out._replace(dtype=bool_, mask=out.dtype.bits))
        return f"({mask} & 1)"
    crosses = value.dtype.is_float != out.dtype.is_float
    if crosses and min(value.dtype.bits, out.dtype.bits) < 32:
        # Processors convert floats from and to int32; compilers go lane by lane from shorter ones.
        return f"__builtin_convertvector({value.text}, {c.type(out._replace(dtype=int32))})"
    return value.text


def _negative(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """A space, as -- before a literal would be a decrement."""
    return f"(- {operands[0].text})"


def _not(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """Of a bool !, of a mask or an integer ~."""
    sign = "!" if out.dtype is bool_ and not out.mask else "~"
    return f"({sign}{operands[0].text})"


def _bitcast(c: CLanguage, node: Node, operands: list[Value], out: Value) -> str:
    """A macro of the prelude. What may be widened is made opaque: see `vectors.c`."""
    (value,) = operands
    bits = f"BITS({c.type(value)}, {c.type(out)}, {value.text})"
    is_short_vector = out.lanes > 1 and out.dtype.bits < 32
    return f"OPAQUE({c.type(out)}, {bits})" if is_short_vector else bits


OPERATIONS: dict[Op, Spelling] = {
    **dict.fromkeys(Group.ELEMENTWISE - {Op.REAL, Op.IMAG, Op.COMPLEX}, _function),
    **dict.fromkeys(SIGNS, _infix),
    **dict.fromkeys((Op.MAX, Op.MIN), _max_or_min),
    **dict.fromkeys((Op.SHL, Op.SHR), _shift),
    Op.NEG: _negative,
    Op.NOT: _not,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
}

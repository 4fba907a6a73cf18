"""The operations of every dialect and their arguments.

Graph dialect: everything but the kernel group. A value is an array; elementwise operations take
operands of one shape and never broadcast (EXPAND says it). Kernel dialect: scalars over named
loop axes; no movement operations, with LOAD in place of BUFFER.
"""

# ruff: noqa: PIE796 -- rows that read alike are not equal: each is an operation of its own
from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lamina.core.dtypes import DType, Scalar
from lamina.core.shape import Shape

if TYPE_CHECKING:
    from lamina.ir.monoids import Monoid


class Kinds:
    """The kinds of dtypes that an operation takes, or that the hole of a rule stands for."""

    BOOL = ("bool",)
    FLOAT = ("float",)
    INTEGER = ("int", "uint")
    REAL = (*INTEGER, "float")
    NUMBER = (*REAL, "complex")
    BITS = ("bool", *INTEGER)
    ORDERED = ("bool", *REAL)
    ANY = ("bool", *NUMBER)


# Arguments of several parts are named tuples: they hash and compare as fast as tuples.


class Const(NamedTuple):
    value: Scalar  # of the dtype's own Python type
    dtype: DType


class BufferRef(NamedTuple):
    storage: object  # a device buffer, or after normalisation the number of a parameter
    shape: Shape
    dtype: DType
    device: str


class Iota(NamedTuple):
    size: int
    dtype: DType


class Hole(NamedTuple):
    name: str
    dtype: DType  # in a rule one for all that it stands for, with which formulas are built
    kinds: tuple[str, ...] = ()  # of the dtypes that it stands for in a rule
    constant: bool = False  # stands for constants alone


class Reduce(NamedTuple):  # its operands are the monoid's components
    monoid: Monoid
    axes: tuple[int, ...]  # sorted; a SCAN has one
    part: int = 0  # which component of the result; nodes that differ only here share one loop


class Pad(NamedTuple):
    before: tuple[int, ...]  # elements added along each axis
    after: tuple[int, ...]
    value: Scalar = 0


class Shear(NamedTuple):
    """Along `axis` the output has ``n + (size of axis by - 1) * abs(step)`` elements. With k the
    index along `by`, output element i is input element ``i - k * step`` for a positive step and
    ``i - (size of by - 1 - k) * abs(step)`` for a negative one, and 0 outside the input. With
    EXPAND and SHRINK this makes sliding windows, with PAD and REDUCE their adjoints, diagonals."""

    axis: int
    by: int
    step: int


class Scatter(NamedTuple):
    axis: int
    monoid: Monoid | None  # combines updates with what is there; without one the last wins


class Axis(NamedTuple):
    number: int  # tells axes apart
    size: int
    reduce: bool = False


class Affine(NamedTuple):
    coefficients: tuple[int, ...]  # one for each operand
    constant: int


class Load(NamedTuple):  # its operands are an index in elements and optionally a condition
    parameter: int
    dtype: DType


class LoopReduce(NamedTuple):  # its operands are the monoid's components, then the axes
    monoid: Monoid
    part: int = 0


@dataclass(frozen=True, eq=False)
class Row:
    """What the table below says of an operation."""

    group: str
    kinds: tuple[str, ...] = ()  # of dtypes, that an elementwise operation takes
    argument: Any = ""  # a named tuple, or the name of a single value, if any


class Op(enum.Enum):
    """An operation; its comment is what it means."""

    BUFFER = Row("leaf", argument=BufferRef)  # an array in device memory
    CONST = Row("leaf", argument=Const)  # one scalar, shape ()
    IOTA = Row("leaf", argument=Iota)  # 0, 1, ..., size - 1
    NEG = Row("unary", Kinds.NUMBER)
    NOT = Row("unary", Kinds.BITS)  # logical on bool, bitwise on integers
    SQRT = Row("transcendental", Kinds.FLOAT)
    EXP = Row("transcendental", Kinds.FLOAT)
    EXP2 = Row("transcendental", Kinds.FLOAT)
    LOG = Row("transcendental", Kinds.FLOAT)
    LOG2 = Row("transcendental", Kinds.FLOAT)
    SIN = Row("transcendental", Kinds.FLOAT)
    COS = Row("transcendental", Kinds.FLOAT)
    ATAN = Row("transcendental", Kinds.FLOAT)
    ERF = Row("transcendental", Kinds.FLOAT)
    LOGISTIC = Row("transcendental", Kinds.FLOAT)  # 1 / (1 + exp(-x))
    TRUNC = Row("unary", Kinds.FLOAT)
    CAST = Row("unary", Kinds.ANY, "dtype")
    BITCAST = Row("unary", Kinds.ANY, "dtype")  # between dtypes of one size
    REAL = Row("unary", ("complex",))
    IMAG = Row("unary", ("complex",))
    ADD = Row("binary", Kinds.NUMBER)
    MUL = Row("binary", Kinds.NUMBER)
    DIV = Row("binary", ("float", "complex"))
    IDIV = Row("binary", Kinds.INTEGER)  # rounds down; x // 0 is 0
    MOD = Row("binary", Kinds.REAL)  # sign of the divisor; integer x % 0 is 0
    POW = Row("binary", Kinds.REAL)
    MAX = Row("binary", Kinds.ORDERED)  # NaN wins
    MIN = Row("binary", Kinds.ORDERED)  # NaN wins
    LT = Row("binary", Kinds.ORDERED)
    EQ = Row("binary", Kinds.ANY)
    AND = Row("binary", Kinds.BITS)  # bool and integers
    OR = Row("binary", Kinds.BITS)
    XOR = Row("binary", Kinds.BITS)
    SHL = Row("binary", Kinds.INTEGER)
    SHR = Row("binary", Kinds.INTEGER)  # arithmetic on signed integers
    COMPLEX = Row("binary", Kinds.FLOAT)  # from real and imaginary parts
    WHERE = Row("ternary", Kinds.ANY)
    REDUCE = Row("reduction", argument=Reduce)  # one part of a monoid over some axes, which vanish
    SCAN = Row("reduction", argument=Reduce)  # one part of an inclusive prefix along one axis
    RESHAPE = Row("movement", argument="shape")
    EXPAND = Row("movement", argument="shape")  # NumPy's broadcast_to
    PERMUTE = Row("movement", argument="axes")
    PAD = Row("movement", argument=Pad)
    SHRINK = Row("movement", argument="ranges")  # the elements at a range of each axis
    SHEAR = Row("movement", argument=Shear)  # one axis shifted by a multiple of another's index
    GATHER = Row("indexed", argument="axis")  # take_along_axis; 0 where the index is out of range
    SCATTER = Row("indexed", argument=Scatter)  # its inverse into a copy of a base
    ARGSORT = Row("indexed")  # stable ascending order along the last axis
    ASSIGN = Row("effect")  # a buffer's new content, written in place
    COPY = Row("effect", argument="device")  # to another device
    CONTIGUOUS = Row("effect")  # must own a buffer
    DETACH = Row("effect")  # derivatives stop here
    CUSTOM_DERIVATIVE = Row("effect")  # the first operand's value, with the second's derivative
    HOLE = Row("kernel", argument=Hole)  # a variable in a formula, of a monoid or a rule
    CALL = Row("kernel", argument="graph")  # over operands for its BUFFERs; opened when it is cut
    AXIS = Row("kernel", argument=Axis)  # the index of a loop
    AFFINE = Row("kernel", argument=Affine)  # constant + sum of coefficient * operand
    LOAD = Row("kernel", argument=Load)  # an element of a parameter; 0 where its condition is false
    LOOP_REDUCE = Row("kernel", argument=LoopReduce)  # one part of a monoid over some axes
    LOOP_SCAN = Row("kernel", argument=LoopReduce)  # one part of a monoid over the indices so far

    __hash__ = object.__hash__  # Enum's own hashes the name: slow on the interning path


def _group(name: str) -> frozenset[Op]:
    return frozenset(op for op in Op if op.value.group == name)


class Group:
    """Sets of operations that passes ask for."""

    LEAF = _group("leaf")
    TRANSCENDENTAL = _group("transcendental")
    UNARY = TRANSCENDENTAL | _group("unary")
    BINARY = _group("binary")
    COMMUTATIVE = frozenset({Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.EQ, Op.AND, Op.OR, Op.XOR})
    ELEMENTWISE = UNARY | BINARY | {Op.WHERE}
    REDUCTION = _group("reduction")
    MOVEMENT = _group("movement")
    EFFECT = _group("effect")
    KERNEL = _group("kernel")  # what is in no graph that passes see

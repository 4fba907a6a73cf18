"""The operations of every dialect and their arguments.

Graph dialect: everything but the kernel group. A value is an array; elementwise operations take
operands of one shape and never broadcast (EXPAND says it). Kernel dialect: scalars over named
loop axes; no movement operations, with LOAD in place of BUFFER.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lamina.core.dtypes import DType, Scalar, bool_
from lamina.core.shape import Shape

if TYPE_CHECKING:
    from lamina.ir.monoids import Monoid
    from lamina.ir.node import Node

    Contributions = Sequence[Node | None]
    Derivative = Callable[..., Contributions]


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
    constant: bool = False  # a parameter that is the same in most calls of a program


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
    component: int = 0  # of the result; nodes that differ only here share one loop


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


class Order(NamedTuple):
    """The ranks from `first` on that are below `last`, of a stable order along an axis: in both
    directions equal elements keep their order. NaN is greater than every number."""

    axis: int
    descending: bool
    first: int
    last: int


class Scatter(NamedTuple):
    axis: int
    monoid: Monoid | None  # combines updates with what is there; without one the last wins


# Collectives. Every process of a run is a rank, and is in one group of each collective. Rank r is
# at ``(r // stride) % ranks`` of its group, and neighbours in it are `stride` apart. Of 4 ranks, 2
# with a stride of 1 are the groups (0, 1) and (2, 3), and 2 with a stride of 2 (0, 2) and (1, 3).


class Ranks(NamedTuple):
    ranks: int  # of a group
    stride: int


class Combine(NamedTuple):
    monoid: Monoid  # of one component
    ranks: int
    stride: int


class Broadcast(NamedTuple):
    root: int  # the place in its group of the rank whose value all get
    ranks: int
    stride: int


class SendTo(NamedTuple):
    targets: tuple[int, ...]  # for each place in a group the one that gets its value, -1 for none
    ranks: int
    stride: int


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
    component: int = 0


@dataclass(frozen=True, eq=False)
class OpRecord:
    """The record of an operation: what every part of the compiler asks of it.

    numpy, of an elementwise operation: the name of NumPy's function, or a function of the module
    NumPy and of the operands. Conversions between dtypes, which need the node as well, and all
    operations that are not elementwise have theirs in `lamina.ir.interpreter`.

    derivative, of an elementwise operation: a rule as `lamina.graph.autodiff` describes, from the
    adjoint g, the result z and the operands to a contribution for each operand; or the reason why
    there is none. Other operations have theirs in that module.

    instructions, of an elementwise operation: how many instructions it takes on a vector of
    float32, about as many as its function in `lamina/targets/c/math.c` has; of a maximum, with its
    tests for NaN.

    What targets print is checked against this table: see `docs/how-to/add-an-operation.md`.
    """

    group: str
    kinds: tuple[str, ...] = ()  # of the dtypes that an elementwise operation takes
    argument: Any = ""  # a named tuple, or the name of a single value, if any
    meaning: str = ""  # where the name does not say it
    numpy: str | Callable[..., Any] = ""
    derivative: Derivative | str = ""
    instructions: int = 1


_DISCRETE = "bools and integers have no derivative"
_COMPLEX = "complex derivatives are not supported"


def _erf(np: Any, x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def _logistic(np: Any, x: Any) -> Any:
    return np.exp(np.minimum(x, 0)) / (np.exp(-abs(x)) + 1)


def _power(np: Any, x: Any, y: Any) -> Any:
    """Of integers 1 / x**-y rounded towards 0 for negative y, which NumPy refuses."""
    if x.dtype.kind != "i":
        return np.power(x, y)
    powers = np.power(x, np.where(y < 0, y & 1, y))
    return np.where((y < 0) & (abs(x) != 1), 0, powers)


def _d_power(g: Node, z: Node, x: Node, y: Node) -> Contributions:
    """dx = g y x^(y - 1) and dy = g z ln x; both are 0 where the limit is: x^0 and 0^y, y >= 0.
    Wider selections (y = 0, say) would make mixed second derivatives wrong."""
    zero, is_zero = x.lift(0.0), x.eq(0.0)
    dx = g * (is_zero & y.eq(0.0)).select(zero, y * x ** (y - 1.0))
    dy = g * (is_zero & ~(y < 0.0)).select(zero, z * x.apply(Op.LOG))
    return dx, dy


def _scaled(g: Node, factor: Node) -> Node:
    """g * factor. A bool as a factor selects: its zeros stay zeros beside infinities."""
    if factor.op is Op.CAST and factor.src[0].dtype is bool_:
        return factor.src[0].select(g, g.lift(0.0))
    return g * factor


def _if_larger(g: Node, this: Node, other: Node) -> Node:
    """g where `this` exceeds `other`, g / 2 where they are equal (as NaN counts), else 0."""
    return (other < this).select(g, (this < other).select(g.lift(0.0), g * 0.5))


def _d_where(g: Node, z: Node, condition: Node, yes: Node, no: Node) -> Contributions:
    """`lamina.graph.autodiff` says how these zeros stay zeros further down."""
    zero = g.lift(0.0)
    return None, condition.select(g, zero), condition.select(zero, g)


class Op(enum.Enum):
    """An operation, and its record."""

    # Leaves.
    BUFFER = OpRecord("leaf", argument=BufferRef, meaning="an array in device memory")
    CONST = OpRecord("leaf", argument=Const, meaning="one scalar, shape ()")
    IOTA = OpRecord("leaf", argument=Iota, meaning="0, 1, ..., size - 1")

    # Elementwise, of one operand.
    NEG = OpRecord(
        "unary", Kinds.NUMBER, numpy="negative",
        derivative=lambda g, z, x: (-g,),
    )  # fmt: skip
    NOT = OpRecord(
        "unary", Kinds.BITS, numpy="invert", derivative=_DISCRETE,
        meaning="logical on bool, bitwise on integers",
    )  # fmt: skip
    SQRT = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="sqrt",
        derivative=lambda g, z, x: (g * 0.5 / z,),
    )  # fmt: skip
    EXP = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="exp", instructions=30,
        derivative=lambda g, z, x: (g * z,),
    )  # fmt: skip
    EXP2 = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="exp2", instructions=24,
        derivative=lambda g, z, x: (g * z * math.log(2.0),),
    )  # fmt: skip
    LOG = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="log", instructions=30,
        derivative=lambda g, z, x: (g / x,),
    )  # fmt: skip
    LOG2 = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="log2", instructions=28,
        derivative=lambda g, z, x: (g * (1.0 / math.log(2.0)) / x,),
    )  # fmt: skip
    SIN = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="sin", instructions=40,
        derivative=lambda g, z, x: (g * x.apply(Op.COS),),
    )  # fmt: skip
    COS = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="cos", instructions=40,
        derivative=lambda g, z, x: (-(g * x.apply(Op.SIN)),),
    )  # fmt: skip
    ATAN = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="arctan", instructions=30,
        derivative=lambda g, z, x: (g / (x * x + 1.0),),
    )  # fmt: skip
    ERF = OpRecord(
        "transcendental", Kinds.FLOAT, numpy=_erf, instructions=24,
        derivative=lambda g, z, x: (g * (-(x * x)).apply(Op.EXP) * (2.0 / math.sqrt(math.pi)),),
    )  # fmt: skip
    LOGISTIC = OpRecord(
        "transcendental", Kinds.FLOAT, numpy=_logistic, meaning="1 / (1 + exp(-x))",
        instructions=36,
        derivative=lambda g, z, x: (g * (z * (1.0 - z)),),
    )  # fmt: skip
    TANH = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="tanh", instructions=24,
        derivative=lambda g, z, x: (g * (1.0 - z * z),),
    )  # fmt: skip
    TRUNC = OpRecord(
        "unary", Kinds.FLOAT, numpy="trunc", instructions=2,
        derivative=lambda g, z, x: (None,),  # flat almost everywhere
    )  # fmt: skip
    CAST = OpRecord(
        "unary", Kinds.ANY, "dtype",
        derivative=lambda g, z, x: (g.cast(x.dtype),),
    )  # fmt: skip
    BITCAST = OpRecord(
        "unary", Kinds.ANY, "dtype", "between dtypes of one size",
        derivative="its bits are read as another dtype",
    )  # fmt: skip
    REAL = OpRecord("unary", ("complex",), numpy="real", derivative=_COMPLEX)
    IMAG = OpRecord("unary", ("complex",), numpy="imag", derivative=_COMPLEX)

    # Elementwise, of two and of three operands.
    ADD = OpRecord(
        "binary", Kinds.NUMBER, numpy="add",
        derivative=lambda g, z, x, y: (g, g),
    )  # fmt: skip
    MUL = OpRecord(
        "binary", Kinds.NUMBER, numpy="multiply",
        derivative=lambda g, z, x, y: (_scaled(g, y), _scaled(g, x)),
    )  # fmt: skip
    DIV = OpRecord(
        "binary", ("float", "complex"), numpy="true_divide",
        derivative=lambda g, z, x, y: (g / y, -(g / y * z)),
    )  # fmt: skip
    IDIV = OpRecord(
        "binary", Kinds.INTEGER, numpy="floor_divide", derivative=_DISCRETE,
        meaning="rounds down; x // 0 is 0",
    )  # fmt: skip
    MOD = OpRecord(
        "binary", Kinds.REAL, numpy="remainder", instructions=8,
        meaning="sign of the divisor; integer x % 0 is 0",
        derivative=lambda g, z, x, y: (g, -(g * ((x - z) / y))),  # z = x - y floor(x / y)
    )  # fmt: skip
    POW = OpRecord("binary", Kinds.REAL, numpy=_power, derivative=_d_power, instructions=90)
    MAX = OpRecord(
        "binary", Kinds.ORDERED, numpy="maximum", meaning="NaN wins", instructions=4,
        derivative=lambda g, z, x, y: (_if_larger(g, x, y), _if_larger(g, y, x)),
    )  # fmt: skip
    MIN = OpRecord(
        "binary", Kinds.ORDERED, numpy="minimum", meaning="NaN wins", instructions=4,
        derivative=lambda g, z, x, y: (_if_larger(g, -x, -y), _if_larger(g, -y, -x)),
    )  # fmt: skip
    LT = OpRecord("binary", Kinds.ORDERED, numpy="less", derivative=_DISCRETE)
    EQ = OpRecord("binary", Kinds.ANY, numpy="equal", derivative=_DISCRETE)
    AND = OpRecord(
        "binary", Kinds.BITS, numpy="bitwise_and", derivative=_DISCRETE,
        meaning="bool and integers",
    )  # fmt: skip
    OR = OpRecord("binary", Kinds.BITS, numpy="bitwise_or", derivative=_DISCRETE)
    XOR = OpRecord("binary", Kinds.BITS, numpy="bitwise_xor", derivative=_DISCRETE)
    SHL = OpRecord(
        "binary", Kinds.INTEGER, numpy="left_shift", derivative=_DISCRETE, instructions=2,
    )  # fmt: skip
    SHR = OpRecord(
        "binary", Kinds.INTEGER, numpy="right_shift", derivative=_DISCRETE, instructions=2,
        meaning="arithmetic on signed integers",
    )  # fmt: skip
    COMPLEX = OpRecord(
        "binary", Kinds.FLOAT, derivative=_COMPLEX,
        meaning="from real and imaginary parts",
    )  # fmt: skip
    WHERE = OpRecord("ternary", Kinds.ANY, numpy="where", derivative=_d_where)

    # Of other groups.
    REDUCE = OpRecord(
        "reduction", argument=Reduce, meaning="a component of a monoid over axes, which vanish",
    )  # fmt: skip
    SCAN = OpRecord(
        "reduction", argument=Reduce, meaning="a component of an inclusive prefix along one axis",
    )  # fmt: skip
    RESHAPE = OpRecord("movement", argument="shape")
    EXPAND = OpRecord("movement", argument="shape", meaning="NumPy's broadcast_to")
    PERMUTE = OpRecord("movement", argument="axes")
    PAD = OpRecord("movement", argument=Pad)
    SHRINK = OpRecord("movement", argument="ranges", meaning="the elements at a range of each axis")
    SHEAR = OpRecord(
        "movement", argument=Shear, meaning="one axis shifted by a multiple of another's index",
    )  # fmt: skip
    GATHER = OpRecord(
        "indexed", argument="axis", meaning="take_along_axis; 0 where the index is out of range",
    )  # fmt: skip
    SCATTER = OpRecord("indexed", argument=Scatter, meaning="its inverse into a copy of a base")
    ARGSORT = OpRecord(
        "indexed", argument=Order, meaning="the places along an axis of what has some ranks",
    )  # fmt: skip
    BIN_SUM = OpRecord(
        "indexed", argument="bins",
        meaning="a base with updates added at places of it as a flat array, -1 is none",
    )  # fmt: skip
    ALL_REDUCE = OpRecord(
        "collective", argument=Combine, meaning="the operands of all ranks of a group, combined",
    )  # fmt: skip
    ALL_GATHER = OpRecord(
        "collective", argument=Ranks, meaning="the operands of all ranks along a new first axis",
    )  # fmt: skip
    REDUCE_SCATTER = OpRecord(
        "collective", argument=Combine,
        meaning="rank i has the combined elements i along the first axis, which vanishes",
    )  # fmt: skip
    BROADCAST = OpRecord("collective", argument=Broadcast, meaning="the operand of one rank")
    ALL_TO_ALL = OpRecord(
        "collective", argument=Ranks, meaning="element i of rank j is element j of rank i",
    )  # fmt: skip
    COLLECTIVE_PERMUTE = OpRecord(
        "collective", argument=SendTo,
        meaning="the operand of the rank that sends its own here; 0 where none does",
    )  # fmt: skip
    ASSIGN = OpRecord("effect", meaning="a buffer's new content, written in place")
    COPY = OpRecord("effect", argument="device", meaning="to another device")
    CONTIGUOUS = OpRecord("effect", meaning="must own a buffer")
    DETACH = OpRecord("effect", meaning="derivatives stop here")
    CUSTOM_DERIVATIVE = OpRecord(
        "effect", meaning="the first operand's value, with the second's derivative",
    )  # fmt: skip
    RECOMPUTED = OpRecord(
        "effect",
        meaning="the first operand's value, which derivatives compute again from the second",
    )  # fmt: skip
    AGAIN = OpRecord(
        "effect", meaning="the operand's value; what is made of it is made apart, and later",
    )  # fmt: skip
    HOLE = OpRecord(
        "kernel", argument=Hole, meaning="a variable in a formula, of a monoid or a rule",
    )  # fmt: skip
    CALL = OpRecord(
        "kernel", argument="graph",
        meaning="over operands for its BUFFERs; opened when it is cut",
    )  # fmt: skip
    AXIS = OpRecord("kernel", argument=Axis, meaning="the index of a loop")
    AFFINE = OpRecord("kernel", argument=Affine, meaning="constant + sum of coefficient * operand")
    LOAD = OpRecord(
        "kernel", argument=Load,
        meaning="an element of a parameter; 0 where its condition is false",
    )  # fmt: skip
    LOOP_REDUCE = OpRecord(
        "kernel", argument=LoopReduce, meaning="a component of a monoid over some axes",
    )  # fmt: skip
    LOOP_SCAN = OpRecord(
        "kernel", argument=LoopReduce, meaning="a component of a monoid over the indices so far",
    )  # fmt: skip

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
    COLLECTIVE = _group("collective")  # among processes
    EFFECT = _group("effect")
    # Of two operands: the first one's value, and the second says something of its derivative.
    OF_DERIVATIVES = frozenset({Op.CUSTOM_DERIVATIVE, Op.RECOMPUTED})
    # Of kernels; and HOLE, of formulas, and CALL, of graphs before they are cut.
    KERNEL = _group("kernel")

"""The operations of every dialect and their arguments.

Graph dialect: everything but the kernel group. A value is an array; elementwise operations take
operands of one shape and never broadcast (EXPAND says it). Kernel dialect: scalars over named
loop axes; no movement operations, with LOAD in place of BUFFER.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from lamina.dtypes import DType, Scalar
from lamina.shape import Shape

if TYPE_CHECKING:
    from lamina.ir.monoids import Monoid


class Op(enum.Enum):
    """An operation; `Group` lists what belongs together."""

    # Leaves.
    BUFFER = enum.auto()  # an array in device memory
    CONST = enum.auto()  # one scalar, shape ()
    IOTA = enum.auto()  # 0, 1, ..., size - 1
    VARIABLE = enum.auto()  # a symbolic integer with bounds, bound at launch
    HOLE = enum.auto()  # a placeholder scalar in a monoid's combine
    # Elementwise, one operand.
    NEG = enum.auto()
    NOT = enum.auto()  # logical on bool, bitwise on integers
    SQRT = enum.auto()
    EXP = enum.auto()
    EXP2 = enum.auto()
    LOG = enum.auto()
    LOG2 = enum.auto()
    SIN = enum.auto()
    COS = enum.auto()
    ATAN = enum.auto()
    ERF = enum.auto()
    TRUNC = enum.auto()
    CAST = enum.auto()
    BITCAST = enum.auto()  # between dtypes of one size
    REAL = enum.auto()
    IMAG = enum.auto()
    # Elementwise, two operands.
    ADD = enum.auto()
    MUL = enum.auto()
    DIV = enum.auto()  # floats and complex
    IDIV = enum.auto()  # integers, rounds down; x // 0 is 0
    MOD = enum.auto()  # sign of the divisor; integer x % 0 is 0
    POW = enum.auto()
    MAX = enum.auto()  # NaN wins
    MIN = enum.auto()  # NaN wins
    LT = enum.auto()
    EQ = enum.auto()
    AND = enum.auto()  # bool and integers
    OR = enum.auto()
    XOR = enum.auto()
    SHL = enum.auto()
    SHR = enum.auto()  # arithmetic on signed integers
    COMPLEX = enum.auto()  # from real and imaginary parts
    # Elementwise, three operands.
    WHERE = enum.auto()
    # Reductions.
    REDUCE = enum.auto()  # one part of a monoid over some axes, which vanish
    SCAN = enum.auto()  # one part of an inclusive prefix along one axis
    # Movement.
    RESHAPE = enum.auto()
    EXPAND = enum.auto()  # NumPy's broadcast_to
    PERMUTE = enum.auto()
    PAD = enum.auto()
    SHRINK = enum.auto()  # a box, with a positive step along each axis
    FLIP = enum.auto()
    SHEAR = enum.auto()  # one axis shifted by a multiple of another's index
    # Data-dependent movement.
    GATHER = enum.auto()  # take_along_axis; 0 where the index is out of range
    SCATTER = enum.auto()  # its inverse into a copy of a base
    ARGSORT = enum.auto()  # stable ascending order along the last axis
    # Effects.
    ASSIGN = enum.auto()  # a buffer's new content, written in place
    COPY = enum.auto()  # to another device
    CONTIGUOUS = enum.auto()  # must own a buffer
    DETACH = enum.auto()  # derivatives stop here
    # Kernel dialect.
    AXIS = enum.auto()  # the index of a loop
    AFFINE = enum.auto()  # constant + sum of coefficient * operand
    LOAD = enum.auto()  # one element of a kernel parameter; 0 where its condition is false
    FOLD = enum.auto()  # one part of a monoid over some axes
    PREFIX = enum.auto()  # one part of a monoid over the indices up to an axis's own

    __hash__ = object.__hash__  # Enum's own hashes the name: slow on the interning path


def _ops(names: str) -> frozenset[Op]:
    return frozenset(Op[name] for name in names.split())


class Group:
    """Sets of operations that passes ask for."""

    LEAF = _ops("BUFFER CONST IOTA VARIABLE HOLE AXIS")
    TRANSCENDENTAL = _ops("SQRT EXP EXP2 LOG LOG2 SIN COS ATAN ERF")
    UNARY = TRANSCENDENTAL | _ops("NEG NOT TRUNC CAST BITCAST REAL IMAG")
    COMPARE = _ops("LT EQ")
    COMMUTATIVE = _ops("ADD MUL MAX MIN EQ AND OR XOR")
    BINARY = COMMUTATIVE | _ops("DIV IDIV MOD POW LT SHL SHR COMPLEX")
    ELEMENTWISE = UNARY | BINARY | {Op.WHERE}
    REDUCTION = _ops("REDUCE SCAN")
    MOVEMENT = _ops("RESHAPE EXPAND PERMUTE PAD SHRINK FLIP SHEAR")
    EFFECT = _ops("ASSIGN COPY CONTIGUOUS DETACH")
    KERNEL = _ops("AXIS AFFINE LOAD FOLD PREFIX")
    FOREIGN = KERNEL | {Op.HOLE}  # what no graph holds


# Arguments of several parts are named tuples: they hash and compare as fast as tuples. `ARGUMENT`
# at the end says which operation takes which.


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


class Variable(NamedTuple):
    name: str
    minimum: int  # of its values, int64
    maximum: int


class Hole(NamedTuple):
    name: str
    dtype: DType


class Reduce(NamedTuple):
    """The operands are the components of the monoid's tuple. Nodes that differ only in `part`
    share one loop."""

    monoid: Monoid
    axes: tuple[int, ...]  # sorted; a SCAN has one
    part: int = 0  # the component of the result that the node is


class Pad(NamedTuple):
    before: tuple[int, ...]  # elements added along each axis
    after: tuple[int, ...]
    value: Scalar = 0


class Shrink(NamedTuple):
    start: tuple[int, ...]
    stop: tuple[int, ...]
    step: tuple[int, ...]  # positive


class Shear(NamedTuple):
    """Along `axis` the output has ``n + (size of axis by - 1) * abs(step)`` elements. With k the
    index along `by`, output element i is input element ``i - k * step`` for a positive step and
    ``i - (size of by - 1 - k) * abs(step)`` for a negative one, and 0 outside the input.
    Together with EXPAND and SHRINK this makes sliding windows, with PAD and REDUCE their
    adjoints, and diagonals.
    """

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


class Load(NamedTuple):
    """The operands are an index in elements and optionally a condition."""

    parameter: int
    dtype: DType


class Fold(NamedTuple):
    """The operands are the monoid's components, then the axes."""

    monoid: Monoid
    part: int = 0


ARGUMENT: dict[Op, Any] = {
    Op.BUFFER: BufferRef, Op.CONST: Const, Op.IOTA: Iota, Op.VARIABLE: Variable, Op.HOLE: Hole,
    Op.CAST: "dtype", Op.BITCAST: "dtype", Op.REDUCE: Reduce, Op.SCAN: Reduce, Op.RESHAPE: "shape",
    Op.EXPAND: "shape", Op.PERMUTE: "axes", Op.PAD: Pad, Op.SHRINK: Shrink, Op.FLIP: "axes",
    Op.SHEAR: Shear, Op.GATHER: "axis", Op.SCATTER: Scatter, Op.COPY: "device", Op.AXIS: Axis,
    Op.AFFINE: Affine, Op.LOAD: Load, Op.FOLD: Fold, Op.PREFIX: Fold,
}  # fmt: skip
"""The argument of each operation that takes one: a named tuple, or the name of a single value."""

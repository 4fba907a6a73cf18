"""Operations by the unit that does them, in instructions on a whole vector or a warp."""

import functools
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from math import ceil

from lamina.core.dtypes import DType, bool_, float32, float64
from lamina.core.rates import Rates
from lamina.ir.monoids import Monoid
from lamina.ir.node import toposort
from lamina.ir.ops import Group, Op
from lamina.schedule.cost.body import Work, is_fused

# Instructions of an operation on a vector of float64, by `lamina/targets/c/doubles.c`; a scalar is
# left to the C library. Those of float32 stand in the record of an operation.
INSTRUCTIONS_OF_FLOAT64: dict[Op, float] = {
    Op.EXP: 26, Op.EXP2: 24, Op.LOG: 36, Op.LOG2: 46, Op.SIN: 56, Op.COS: 56, Op.ATAN: 38,
    Op.ERF: 50, Op.LOGISTIC: 34, Op.TANH: 30,
}  # fmt: skip
# The same of the step of a monoid of several components, such as an argmax, which is no single
# operation, on single elements: it moves flags to registers, and branches. On vectors it takes its
# operations.
COMPOUND_STEP = 12
# Operations that divide once, beside their instructions.
DIVIDING = frozenset({Op.DIV, Op.SQRT, Op.LOGISTIC, Op.TANH, Op.ATAN, Op.MOD})
DIVIDING_FLOAT64 = DIVIDING | {Op.LOG, Op.LOG2}
# A division of a whole vector of float64, and a square root, in divisions of one of float32: a
# Sapphire Rapids takes 16 clocks, 12 and 24 for a root of float64, for 10.
OF_FLOAT64, OF_ROOT = 1.6, 1.3
BY_CONSTANT = 5  # instructions of an integer division by a constant: a product and shifts
# The latency of a step of a chain, in that of an addition of floats (`Rates.latency`), about: a
# maximum compares and chooses. So does the step of a monoid of several components, such as an
# argmax; that of vectors on a Zen 4 is met best by less, as a part of it is no longer waited for.
# Steps on integers take at most 2 of 4 clocks. All others take as long as an addition.
LATENCY = {Op.MAX: 2.5, Op.MIN: 2.5}
COMPOUND_LATENCY = 2.0
INTEGER_LATENCY = 0.5


@dataclass(frozen=True)
class Demand:
    """Counts, by the unit that does them.

    multiply: multiplications, which add as well, each on a whole vector or warp
    simple: all other instructions, each on a vector or warp
    scalar: those on single integers and truth values
    divide: divisions of whole vectors of floats, beside the instruction that each is
    integer_division: divisions of single integers by what is no constant
    function: calls of scalar functions of the C library
    tensor: products on tensor cores, each of two 16-bit floats; one of tf32 counts as two
    """

    multiply: float = 0.0
    simple: float = 0.0
    scalar: float = 0.0
    divide: float = 0.0
    integer_division: float = 0.0
    function: float = 0.0
    tensor: float = 0.0

    def plus(self, other: "Demand") -> "Demand":
        """Both together."""
        return Demand(
            self.multiply + other.multiply,
            self.simple + other.simple,
            self.scalar + other.scalar,
            self.divide + other.divide,
            self.integer_division + other.integer_division,
            self.function + other.function,
            self.tensor + other.tensor,
        )

    def times(self, share: float) -> "Demand":
        """A share of all of it."""
        return Demand(*(share * count for count in astuple(self)))

    @property
    def instructions(self) -> float:
        """Those on vectors."""
        return self.multiply + self.simple

    def seconds(self, rates: Rates) -> dict[str, float]:
        """The seconds of one worker that did all of it, by unit; without tensor cores if these do
        nothing, as a device may have none."""
        tensor = {"tensor cores": self.tensor / rates.tensor} if self.tensor else {}
        return {
            **tensor,
            "instructions": self._seconds_of_instructions(rates),
            "division": self.divide / rates.divide,
            "integer division": self.integer_division / rates.integer_division,
            "functions": self.function / rates.function,
        }

    def _seconds_of_instructions(self, rates: Rates) -> float:
        """Those of all kinds, one after the other."""
        of_vectors = self.multiply / rates.issue + self.simple / rates.simple
        return of_vectors + self.scalar / rates.scalar


def demand_of(work: Work, vector_bytes: int, rates: Rates) -> Demand:
    """What one operation takes in all of its iterations. A vector that is longer than a register
    takes an instruction for each register; a division of integers and a function of the C library
    take one lane after the other.

    An exponential of 1024 elements of float32, as 64 runs of 16 lanes with registers of 64 bytes,
    takes 64 * 30 = 1920 instructions.
    """
    if work.fused:
        return Demand()  # one instruction multiplies and adds, and that of the product counts
    runs = work.times * work.copies
    elements = runs * work.lanes
    if _divides_integers(work) and not work.by_constant:
        return Demand(integer_division=elements)
    if _is_of_library(work):
        return Demand(function=elements)
    if _is_scalar(work):
        return Demand(scalar=runs * _instructions(work, rates))
    registers = runs * registers_of(work.lanes, work.dtype, vector_bytes)
    dividing = DIVIDING_FLOAT64 if work.dtype is float64 else DIVIDING
    divides = work.op in dividing and work.dtype.is_float
    # A truth value is a bit of a mask, or as long as what was compared.
    is_short = 2 * work.lanes * work.dtype.itemsize <= vector_bytes
    is_narrow = is_short and work.dtype is not bool_
    time_of_one = rates.narrow if is_narrow else 1.0
    instructions = registers * _instructions(work, rates) * time_of_one
    is_product = work.op is Op.MUL
    return Demand(
        multiply=instructions if is_product else 0.0,
        simple=0.0 if is_product else instructions,
        divide=runs * _divisions(work, vector_bytes, rates) if divides else 0.0,
    )


def _is_scalar(work: Work) -> bool:
    """Is this an operation on single integers or truth values, as indices and conditions are? What
    a BITCAST counts for moves elements of vectors."""
    is_operation = isinstance(work.op, Op) and work.op is not Op.BITCAST
    return work.lanes == 1 and not work.dtype.is_float and is_operation


def _divisions(work: Work, vector_bytes: int, rates: Rates) -> float:
    """How many divisions of a whole register take as long as one of the lanes of `work`. Short
    vectors are divided faster: of float32, a Sapphire Rapids divides 16 lanes in 10 clocks, 8 in 5
    and 4, or one, in 3; a Zen 3 8 in 5 and 4 in 3 (uops.info)."""
    nbytes = work.lanes * work.dtype.itemsize
    of_dtype = OF_FLOAT64 if work.dtype is float64 else 1.0
    of_operation = OF_ROOT if work.op is Op.SQRT else 1.0
    return of_dtype * of_operation * max(nbytes, rates.shortest_division) / vector_bytes


def _instructions(work: Work, rates: Rates) -> float:
    """The instructions of one operation on one vector register."""
    if _divides_integers(work):
        return BY_CONSTANT
    if work.op in (Op.MAX, Op.MIN) and (work.by_constant or not work.dtype.is_float):
        return 1.0  # neither integers nor constants are nan
    if work.op is Op.CAST and work.dtype.is_small:
        return rates.rounding
    if isinstance(work.op, Op):
        return _instructions_of(work.op, work.dtype, rates)
    of_vector = sum(_instructions_of(op, work.dtype, rates) for op in operations_of(work.op))
    if work.lanes > 1:
        return of_vector
    return max(COMPOUND_STEP * rates.elementary, of_vector)


def _instructions_of(op: Op, dtype: DType, rates: Rates) -> float:
    """The same of an operation by itself, as measured or as its record says."""
    if op not in INSTRUCTIONS_OF_FLOAT64:
        count = instructions_of(op)
    elif function_name(op, dtype) in rates.functions:
        return rates.functions[function_name(op, dtype)]
    else:
        count = INSTRUCTIONS_OF_FLOAT64[op] if dtype is float64 else instructions_of(op)
    # A GPU takes 0.4 times as many (`elementary`), but for nothing less than one.
    return max(count * rates.elementary, 1.0)


@functools.cache
def operations_of(monoid: Monoid) -> tuple[Op, ...]:
    """The operations of a step of a monoid that take an instruction on vectors: all but negations
    of truth values, which are other masks, and additions of products. An argmax whose places come
    in order has 7: three comparisons, as nan wins, two operations on their masks, and two choices,
    of the value and of its place. One that compares places as well has 14."""
    *_, results = monoid.formula((float32,) * monoid.arity)
    return tuple(
        node.op
        for node in toposort(results)
        if node.op in Group.ELEMENTWISE and node.op is not Op.NOT and not is_fused(node)
    )


def _is_of_library(work: Work) -> bool:
    """Is this a function of the C library, called lane by lane? Of float64 powers are, and single
    elements; lamina has functions of its own for vectors of float64 and for all of float32. Floats
    of 16 bits are computed as float32."""
    if work.dtype is not float64:
        return False
    is_scalar_function = work.op in INSTRUCTIONS_OF_FLOAT64 and work.lanes == 1
    return is_scalar_function or work.op is Op.POW


def _divides_integers(work: Work) -> bool:
    """Is this the quotient or the modulus of two integers?"""
    return work.op in (Op.IDIV, Op.MOD) and not work.dtype.is_float


def function_name(op: Op, dtype: DType) -> str:
    """What `Rates.functions` calls an elementary function of vectors: "EXP float64". Floats of 16
    bits are computed as float32."""
    return f"{op.name} {'float64' if dtype is float64 else 'float32'}"


def instructions_of(op: Op | None) -> float:
    """The vector instructions of an operation on float32, or of the step of a monoid whose `op`
    this is: None for one of several components."""
    return COMPOUND_STEP if op is None else op.value.instructions


def latency_of(op: Op | Monoid, dtype: DType) -> float:
    """The latency of the step of a chain, in that of an addition of floats. op: of the monoid, or
    one of several components itself"""
    if isinstance(op, Monoid):
        return COMPOUND_LATENCY
    return LATENCY.get(op, 1.0) if dtype.is_float else INTEGER_LATENCY


def registers_of(lanes: int, dtype: DType, vector_bytes: int) -> int:
    """The vector registers that so many lanes fill, one at least: 16 lanes of float64 are 128
    bytes, which are 4 registers of 32."""
    return max(ceil(lanes * dtype.itemsize / vector_bytes), 1)


def total(every: Iterable[Work], vector_bytes: int, rates: Rates) -> Demand:
    """The demand of all."""
    demand = Demand()
    for work in every:
        demand = demand.plus(demand_of(work, vector_bytes, rates))
    return demand

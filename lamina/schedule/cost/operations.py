"""Operations by the unit that does them, in instructions on a whole vector or a warp."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from lamina.core.dtypes import DType, float32
from lamina.core.rates import Rates
from lamina.ir.kernel import Kernel, bound_axes, divisor_of, free_axes
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.schedule.cost.walk import Work, is_fused, sums_products

# Vector instructions of an operation on float32, about as many as its function has in
# `lamina/targets/c/math.c`; of a maximum, with its tests for nan. None is the step of a monoid of
# several components, such as an argmax. All others take one.
INSTRUCTIONS: dict[Op | None, float] = {
    Op.EXP: 30, Op.EXP2: 24, Op.LOG: 30, Op.LOG2: 28, Op.SIN: 90, Op.COS: 90, Op.ATAN: 30,
    Op.ERF: 24, Op.LOGISTIC: 36, Op.POW: 90, Op.MAX: 4, Op.MIN: 4, Op.TRUNC: 2, Op.SHL: 2,
    Op.SHR: 2, Op.MOD: 8, None: 12,
}  # fmt: skip
# Operations that divide once, beside their instructions.
DIVIDING = frozenset({Op.DIV, Op.SQRT, Op.LOGISTIC, Op.ATAN, Op.MOD})
# Functions of the C library, called lane by lane, in other dtypes than float32.
OF_LIBRARY = Group.TRANSCENDENTAL - {Op.SQRT} | {Op.POW}
BY_CONSTANT = 5  # instructions of an integer division by a constant: a product and shifts
# How many times the latency of a float's addition the step of a chain takes, about: a maximum
# compares and chooses; None as above.
LATENCY = {Op.MAX: 2.5, Op.MIN: 2.5, None: 5.0}
INTEGER_LATENCY = 0.5  # the same of a step on integers: at most 2 of 4 clocks


class Demand(NamedTuple):
    """Counts, by the unit that does them.

    issue: instructions, each on a whole vector or warp
    divide: divisions of whole vectors of floats, beside the instruction that each is
    integer_division: divisions of single integers by what is no constant
    function: calls of scalar functions of the C library
    tensor: products of 16-bit floats on tensor cores, two for one of tf32
    """

    issue: float = 0.0
    divide: float = 0.0
    integer_division: float = 0.0
    function: float = 0.0
    tensor: float = 0.0

    def plus(self, other: "Demand") -> "Demand":
        """Both together."""
        return Demand(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def seconds(self, rates: Rates) -> dict[str, float]:
        """The seconds of one worker that did all of it, by unit; without tensor cores if these do
        nothing, as a device may have none."""
        tensor = {"tensor cores": self.tensor / rates.tensor} if self.tensor else {}
        return {
            **tensor,
            "instructions": self.issue / rates.issue,
            "division": self.divide / rates.divide,
            "integer division": self.integer_division / rates.integer_division,
            "functions": self.function / rates.function,
        }


def demand_of(work: Work, vector_bytes: int, rates: Rates) -> Demand:
    """The instructions of one operation in all of its iterations, the first of these that fits:
    integer divisions and moduli, by constants or not; functions of the C library, lane by lane; and
    else INSTRUCTIONS, of which those of the device may be fewer (`rates.elementary`). A maximum of
    integers takes one, a rounding to 16 bits `rates.rounding`. A vector that is longer than a
    register takes all of that several times."""
    values = work.times * work.copies
    vectors = values * registers_of(work.lanes, work.dtype, vector_bytes)
    is_float = work.dtype.is_float
    if work.op in (Op.IDIV, Op.MOD) and not is_float:
        if work.by_constant:
            return Demand(issue=vectors * BY_CONSTANT)
        return Demand(integer_division=values * work.lanes)
    if work.op in OF_LIBRARY and is_float and work.dtype is not float32:
        return Demand(function=values * work.lanes)
    each = INSTRUCTIONS.get(work.op, 1.0)
    if each > 1:
        each = max(each * rates.elementary, 1.0)
    if work.op in (Op.MAX, Op.MIN) and not is_float:
        each = 1.0
    if work.op is Op.CAST and work.dtype.is_small:
        each = rates.rounding
    divides = vectors if work.op in DIVIDING else 0.0
    return Demand(issue=each * vectors, divide=divides)


def registers_of(lanes: int, dtype: DType, vector_bytes: int) -> int:
    """The vector registers that so many lanes fill, one at least: 16 lanes of float64 are 128
    bytes, which are 4 registers of 32."""
    return max(-(-lanes * dtype.itemsize // vector_bytes), 1)


def total(every: Iterable[Work], vector_bytes: int, rates: Rates) -> Demand:
    """The demand of all. An addition that is fused with a product takes no instruction beside that
    of the product."""
    demand = Demand()
    fused = 0.0
    for work in every:
        demand = demand.plus(demand_of(work, vector_bytes, rates))
        if work.fused:
            registers = registers_of(work.lanes, work.dtype, vector_bytes)
            fused += work.times * work.copies * registers
    return demand._replace(issue=max(demand.issue - fused, 0.0))


Iterations = Callable[[Iterable[Node]], float]  # how often loops over axes run


def irreducible(
    kernel: Kernel, iterations: Iterations, vector_bytes: int, rates: Rates, each_product: float
) -> Demand:
    """What the kernel computes, however it is scheduled: each value once, on full vectors. Indices
    cost nothing, as loops may count them. A product that a sum adds up is one instruction with the
    addition. In ``sum(x * y)`` over 1024 of float32, with vectors of 8, these are 128 instructions.

    iterations: how often loops over axes run together
    each_product: what a product that a sum adds costs tensor cores, in products of 16 bits; 0 if
        they do not compute these sums. Where they do, what is beneath the sums costs nothing else.
    """
    every: list[Work] = []
    tensor, on_tensor_cores = 0.0, set[Node]()
    for node in kernel.of(Op.LOOP_REDUCE) if each_product else ():
        if sums_products(node):
            axes = free_axes(node).union(bound_axes(node))
            tensor += each_product * iterations(axes)
            beneath = (operand for operand in toposort(node.src) if not bound_axes(operand))
            on_tensor_cores.update([node], beneath)
    for node in kernel.nodes:
        is_index = bool(divisor_of(node))
        if is_index or node in on_tensor_cores:
            continue
        if node.op in Group.ELEMENTWISE:
            op, axes, fused = node.op, free_axes(node), is_fused(node)
        elif bound_axes(node):
            op, axes = node.arg.monoid.op, free_axes(node).union(bound_axes(node))
            fused = sums_products(node)
        else:
            continue
        lanes = max(vector_bytes // node.dtype.itemsize, 1)
        constant = node.src[-1].op is Op.CONST
        times = iterations(axes) / lanes
        every.append(Work(op, node.dtype, times, lanes, 1, fused, by_constant=constant))
    return total(every, vector_bytes, rates)._replace(tensor=tensor)


def latency_of(op: Op | None, dtype: DType) -> float:
    """The latency of a step of a chain, in that of an addition of floats."""
    return LATENCY.get(op, 1.0) if dtype.is_float or op is None else INTEGER_LATENCY

"""What tests know of the functions of one float: a formula that nobody here wrote, where the
derivative is smooth, and how exact the text of the CPU has to be.

`tests/ir/test_totality.py` says which row is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from lamina.ir.ops import Op

Formula = Callable[[float], float]


class Case(NamedTuple):
    """A function of one float.

    formula: of a Python float, from Python's own mathematics.
    smooth: an interval in which its derivatives are compared with finite differences.
    max_ulp: the largest distance of a float32 result from the exact value, in units of its last
    place: measured over all of float32, with a margin for other choices of what to fuse.
    max_ulp_float64: the same of float64, measured over a sample; the C library's are below 1.
    """

    formula: Formula
    smooth: tuple[float, float]
    max_ulp: float
    max_ulp_float64: float = 1.0


def _or_nan(function: Formula, overflow: float = math.nan) -> Formula:
    """`function`, which has a value where Python raises an error."""

    def call(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return overflow
        except ValueError:
            return math.nan

    return call


def _with_pole(logarithm: Formula) -> Formula:
    safe = _or_nan(logarithm)
    return lambda x: -math.inf if x == 0 else safe(x)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x)


CASES: dict[Op, Case] = {
    Op.SQRT: Case(_or_nan(math.sqrt), (0.3, 3), 0.5, 0.5),
    Op.EXP: Case(_or_nan(math.exp, math.inf), (-2, 2), 1.2, 1.1),
    Op.EXP2: Case(_or_nan(math.exp2, math.inf), (-2, 2), 1.2, 1.1),
    Op.LOG: Case(_with_pole(math.log), (0.3, 3), 1.0),
    Op.LOG2: Case(_with_pole(math.log2), (0.3, 3), 1.5),
    Op.SIN: Case(_or_nan(math.sin), (-3, 3), 1.75),
    Op.COS: Case(_or_nan(math.cos), (-3, 3), 1.75),
    Op.ATAN: Case(math.atan, (-3, 3), 1.5, 1.5),
    Op.ERF: Case(math.erf, (-2, 2), 1.75, 1.75),
    Op.LOGISTIC: Case(_logistic, (-3, 3), 2.5, 2.5),
    Op.TANH: Case(math.tanh, (-2, 2), 2.75, 2.75),
}

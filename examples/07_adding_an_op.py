"""Two ways to a new operation: compose it from others, or write its record.

Most operations are compositions. They need no derivative, no kernel and no C of their own: all of
that follows from their parts, and fusion makes one kernel of them. Where parts lose digits or time,
an operation of its own is one record and a function in the texts of targets:
`docs/how-to/add-an-operation.md` is the checklist.
"""

import math

import numpy as np

import lamina as lm
from lamina import Tensor
from lamina.explain.report import profile
from lamina.graph.autodiff import VJP, gradient
from lamina.ir.interpreter import EVALUATE, evaluate
from lamina.ir.node import const
from lamina.ir.ops import Kinds, Op, OpRecord
from lamina.targets.texts import helper_text


# First way: a function. The logarithm of cosh behaves like x * x / 2 near 0 and like |x| far
# away; cosh itself would overflow at 89, so it is written with softplus.
def log_cosh(x: Tensor) -> Tensor:
    """log(cosh(x)), elementwise, for any size of x."""
    size = abs(x)
    return size + (size * -2.0).softplus() - float(np.log(2.0))


points = np.array([-100.0, -2.0, -0.5, 0.5, 2.0, 100.0], np.float32)
x = Tensor(points, requires_grad=True)
with profile() as records:
    found = log_cosh(x).numpy()
print("kernels:", [record.name for record in records])
assert len(records) == 1
assert np.allclose(found[1:5], np.log(np.cosh(points[1:5])), atol=1e-6)
assert np.allclose(found[[0, 5]], 100.0 - np.log(2.0))

# Its derivative is tanh, and nobody had to say so.
log_cosh(x).sum().backward()
assert x.grad is not None
assert np.allclose(x.grad.numpy(), np.tanh(points), atol=1e-6)

# The compiled program and the reference interpreter agree.
with lm.using(device="interp"):
    assert np.allclose(log_cosh(Tensor(points)).numpy(), found, rtol=1e-6)

# Second way: an operation. This is the record of the error function, from which the tables of the
# interpreter and of derivatives are made.
record = Op.ERF.value
print(f"{Op.ERF.name}: {record.group} of {', '.join(record.kinds)}")
assert EVALUATE[Op.ERF]
assert VJP[Op.ERF] is record.derivative

half = const(0.5, lm.float64)
erf = half.apply(Op.ERF)
(slope,) = gradient(erf, [half])
assert slope is not None
value, derivative = evaluate([erf, slope])
print(f"erf(0.5) = {value:.6f}, with the slope {derivative:.6f}")
assert math.isclose(value, math.erf(0.5))
assert math.isclose(derivative, 2 / math.sqrt(math.pi) * math.exp(-0.25))

# A record of one's own: the logarithm to base 10, as the checklist adds it to `Op`. The derivative
# takes the adjoint, the result and the operand; finite differences of NumPy's function agree.
log10 = OpRecord(
    "transcendental",
    Kinds.FLOAT,
    numpy="log10",
    derivative=lambda g, z, x: (g * (1.0 / math.log(10.0)) / x,),
    instructions=90,
)
function = getattr(np, str(log10.numpy))
assert callable(log10.derivative)
adjoint, result, operand = (const(value, lm.float64) for value in (1.0, function(3.0), 3.0))
(contribution,) = log10.derivative(adjoint, result, operand)
assert contribution is not None
(slope_at_3,) = evaluate([contribution])
print(f"the record of log10 has the slope {slope_at_3:.6f} at 3")
assert math.isclose(slope_at_3, (function(3.001) - function(2.999)) / 0.002, rel_tol=1e-6)

# The texts of erf: float64 everywhere and float32 on GPUs in one row, vectors of float32 on the
# CPU, and Metal's library, which lacks it. A test names each text that lacks an operation.
assert "EACH_FLOAT(LIBRARY, erf)" in helper_text("c/arithmetic.c")
assert "f32x8 erf_f32x8(f32x8 x)" in helper_text("c/math.c", lanes=8)
assert "using ::erf;" in helper_text("metal/prelude.metal")

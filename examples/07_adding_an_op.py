"""Two ways to a new operation: compose it from others, or add a row to every table.

Most operations are compositions. They need no derivative, no kernel and no C of their own: all of
that follows from their parts, and fusion makes one kernel of them.
"""

import numpy as np

import lamina as lm
from lamina import Tensor
from lamina.explain.report import profile
from lamina.graph.autodiff import VJP
from lamina.ir.interpreter import EVALUATE
from lamina.ir.ops import Group, Op
from lamina.targets.c.printer import OPERATIONS


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

# Second way: a primitive, when parts cannot say it or would be slow. These are the tables that
# have a row for the error function; a test fails while a table lacks one.
ROWS = {
    "member of the enumeration and of its group": Op.ERF in Group.TRANSCENDENTAL,
    "dtypes it takes (ir/ops.py)": Op.ERF.value.kinds,
    "NumPy evaluation, the reference (ir/interpreter.py)": EVALUATE[Op.ERF],
    "derivative (autodiff.py)": VJP[Op.ERF],
    "spelling in C (targets/c/printer.py)": OPERATIONS[Op.ERF],
}
for table, row in ROWS.items():
    print(f"{table}: {getattr(row, '__name__', row)}")
    assert row

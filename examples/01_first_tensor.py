"""Lazy tensors: a program is written down first, and runs when somebody looks at a value."""

import lamina as lm
from lamina import Tensor

x = Tensor([[1.0, 2.0], [3.0, 4.0]])
w = lm.ones((2, 3))

# Nothing has been computed yet: `y` names a graph. Shapes and dtypes are known all the same.
y = (x @ w).relu().sum(axis=1)
print(y.shape, y.dtype, "realized:", y.is_realized())
assert not y.is_realized()

# Looking at it compiles the graph into kernels and runs them. The result is kept.
print(y.numpy())
assert y.tolist() == [9.0, 21.0]
assert y.is_realized()

# Mistakes are reported where they are made, with both shapes and this line.
try:
    x @ lm.ones((3, 2))
except lm.LaminaError as error:
    message = str(error)
print(message)
assert "(2, 2)" in message
assert "(3, 2)" in message

# The array functions are those of the Python array API standard.
table = lm.reshape(lm.arange(6), (2, 3))
assert lm.sum(table, axis=0).tolist() == [3, 5, 7]
assert table[:, ::-1].tolist() == [[2, 1, 0], [5, 4, 3]]

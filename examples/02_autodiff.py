"""Derivatives are graphs made from graphs, so they can be differentiated again."""

import lamina as lm
from lamina import Tensor

# The derivative of a value for some tensors: nothing runs until it is looked at.
x = Tensor(0.5)
y = lm.sin(x) * x
(slope,) = lm.gradient(y, [x])
print("d(x sin x)/dx at 0.5:", slope.item())
assert abs(slope.item() - (0.5 * lm.cos(x) + lm.sin(x)).item()) < 1e-6


# Of a function. Applied again, it gives the second derivative, and so on.
def cube(x: Tensor) -> Tensor:
    return x**3


first, second = lm.grad(cube), lm.grad(lm.grad(cube))
print("3 x^2 and 6 x at 2:", first(Tensor(2.0)).item(), second(Tensor(2.0)).item())
assert abs(first(Tensor(2.0)).item() - 12.0) < 1e-4
assert abs(second(Tensor(2.0)).item() - 12.0) < 1e-4

# As in PyTorch: `backward` fills `grad` of the tensors that ask for it.
w = Tensor([[1.0, -2.0], [3.0, 0.5]], requires_grad=True)
loss = (w * w).sum()
loss.backward()
assert w.grad is not None
print(w.grad.numpy())
assert w.grad.tolist() == (2.0 * w).tolist()

# A branch that is not taken contributes nothing, not even NaN.
z = Tensor([-1.0, 4.0], requires_grad=True)
lm.where(z > 0, lm.sqrt(z), 0.0).sum().backward()
assert z.grad is not None
assert z.grad.tolist() == [0.0, 0.25]

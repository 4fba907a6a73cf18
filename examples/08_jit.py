"""A training step as one program: traced once, then a single foreign call."""

import lamina as lm
from lamina import nn

lm.random.manual_seed(1)
model = nn.Sequential(nn.Linear(2, 16), lm.tanh, nn.Linear(16, 1))
optimizer = nn.optim.Adam(nn.parameters(model), lr=0.02)


@lm.jit
def step(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
    # This body runs in Python once for each signature of its arguments. Parameters and optimiser
    # state are captured: each call reads them anew and updates them in place.
    print("tracing for shapes", x.shape, y.shape)
    loss = lm.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for count in range(400):
    size = 64 if count else 32  # another shape is another program
    x = lm.random.uniform((size, 2), low=-1.0, high=1.0)  # a fresh batch each time
    loss = step(x, x[:, :1] * x[:, 1:])
    if count % 100 == 0:
        print(f"step {count:3}: loss {loss.item():.5f}")

print(f"the product of two numbers, learned with a loss of {loss.item():.5f}")
assert loss.item() < 0.01, loss.item()

"""The smallest problem that needs a hidden layer: exclusive or."""

import lamina as lm
from lamina import Tensor, nn

lm.random.manual_seed(1)
x = Tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
y = Tensor([[0.0], [1.0], [1.0], [0.0]])

# A layer is a plain object; Sequential is a list of layers and functions.
model = nn.Sequential(nn.Linear(2, 8), lm.tanh, nn.Linear(8, 1))
optimizer = nn.optim.Adam(nn.parameters(model), lr=0.05)

for step in range(300):
    loss = lm.binary_cross_entropy_with_logits(model(x), y)
    loss.backward()
    optimizer.step()  # loss, gradients and update run as one program, compiled once
    optimizer.zero_grad()
    if step % 50 == 0:
        print(f"step {step:3}: loss {loss.item():.4f}")

answers = model(x).sigmoid()
print(answers.numpy().round(3))
assert loss.item() < 0.02, loss.item()
assert (answers.numpy().round() == y.numpy()).all()

"""A small GPT trained in two or four processes, step by step beside the same in one.

Every rank also trains the whole batch alone, and compares the losses and the parameters. The last
batch has one row, so that all ranks but one have none of it.
"""

import numpy as np

import lamina as lm
from lamina import Tensor, distributed, nn

LETTERS, LENGTH, WIDTH, HEADS = 11, 8, 16, 2
BATCHES = (4, 5, 4, 1)  # rows; of two ranks 2 and 2, 3 and 2, 2 and 2, 1 and 0


class Block:
    def __init__(self) -> None:
        self.norms = [nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)]
        self.heads = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), lm.gelu, nn.Linear(4 * WIDTH, WIDTH))

    def __call__(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        split = self.heads(self.norms[0](x)).reshape(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.transpose(1, 3).unstack(axis=2)
        mixed = lm.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Gpt:
    def __init__(self) -> None:
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = [Block()]
        self.norm = nn.LayerNorm(WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.letters(x) + self.places(lm.arange(LENGTH))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.letters.weight.T


def loss_of(model: Gpt, text: np.ndarray) -> Tensor:
    logits = model(Tensor(text[:, :-1]))
    return lm.cross_entropy(logits.flatten(0, 1), Tensor(text[:, 1:]).flatten())


rank = distributed.rank()
lm.random.manual_seed(rank)  # ranks begin otherwise, until the first one's values are copied
models = [Gpt(), Gpt()]
together, alone = models
distributed.copy_from_first(together)
nn.load_state_dict(alone, nn.state_dict(together))
optimizers = [nn.optim.SGD(nn.parameters(model), lr=0.05, momentum=0.9) for model in models]
generator = np.random.default_rng(3)

for count in BATCHES:
    batch = generator.integers(0, LETTERS, (count, LENGTH + 1))
    own = batch[distributed.rows_of(count)]
    rows = len(own)
    if rows:
        loss = loss_of(together, own)
        loss.backward()
    else:  # this rank has nothing to learn from, and waits for what others have
        loss = lm.zeros(())
        for parameter in optimizers[0].parameters:
            parameter.grad = lm.zeros_like(parameter)
    distributed.average_gradients(optimizers[0].parameters, rows)
    mean = distributed.mean_over_rows(loss, rows)
    whole = loss_of(alone, batch)
    whole.backward()
    gradients = [[one.grad for one in optimizer.parameters] for optimizer in optimizers]
    lm.realize(*gradients[0], *gradients[1], mean, whole)
    for mine, reference in zip(*gradients, strict=True):
        np.testing.assert_allclose(mine.numpy(), reference.numpy(), atol=2e-6)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    np.testing.assert_allclose(mean.item(), whole.item(), rtol=1e-5)
    print(f"rank {rank}: {rows} rows, loss {mean.item():.4f}", flush=True)

pairs = zip(*[nn.state_dict(model).values() for model in models], strict=True)
for mine, reference in pairs:
    np.testing.assert_allclose(mine.numpy(), reference.numpy(), atol=5e-6)
sums = [float(np.abs(one.numpy()).sum()) for one in nn.parameters(together)]
everyone = distributed.all_gather(Tensor(np.array([sums]))).numpy()
for one in everyone[1:]:
    np.testing.assert_array_equal(one, everyone[0])  # not one bit is different
print(f"rank {rank}: all is well", flush=True)

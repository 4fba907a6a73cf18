"""A small GPT whose tensors are annotated, trained in two processes step by step beside one.

Every process also trains the whole model alone, and compares losses and parameters.
"""

import sys
from typing import Any

import numpy as np

import lamina as lm
from lamina import Tensor, distributed, nn
from tests.distributed.gpt import LENGTH, Gpt

LETTERS, ROWS, STEPS = 12, 4, 3
rank, size = distributed.rank(), distributed.size()


def loss_of(model: Gpt, inputs: Tensor, targets: Tensor) -> Tensor:
    logits = model.hidden(model.embedded(inputs)) @ model.letters.weight.T
    return lm.cross_entropy(logits.flatten(0, 1), targets.flatten())


def cut(layer: Any, mesh: distributed.Mesh, names: tuple[str | None, ...]) -> None:
    """Cut the weight of a layer, and its bias along with its rows."""
    layer.weight = distributed.shard(layer.weight, mesh, names)
    if getattr(layer, "bias", None) is not None and names[0]:
        layer.bias = distributed.shard(layer.bias, mesh, names[:1])


def tensor_parallel(model: Gpt, mesh: distributed.Mesh) -> None:
    for block in model.blocks:
        for layer in (block.heads, block.up):
            cut(layer, mesh, ("model", None))
        for layer in (block.output, block.down):
            cut(layer, mesh, (None, "model"))
    cut(model.letters, mesh, ("model", None))


def parts_of(model: Gpt) -> list[Tensor]:
    """What an optimiser updates: of what is cut the part of this process."""
    tensors = dict.fromkeys(nn.state_dict(model).values())
    return [one if one.requires_grad else distributed.part(one) for one in tensors]


def train(sizes: dict[str, int]) -> None:
    mesh = distributed.Mesh(**sizes)
    lm.random.manual_seed(0)
    together, alone = Gpt(LETTERS), Gpt(LETTERS)
    nn.load_state_dict(alone, nn.state_dict(together))
    tensor_parallel(together, mesh)
    optimizers = [nn.optim.SGD(parts_of(model), lr=0.1, momentum=0.9)
                  for model in (together, alone)]  # fmt: skip

    @lm.jit
    def step(own: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        tokens, following = (distributed.of_part(one, mesh, ("data", None))
                             for one in (own[:, :-1], own[:, 1:]))  # fmt: skip
        losses = [distributed.whole(loss_of(together, tokens, following)),
                  loss_of(alone, batch[:, :-1], batch[:, 1:])]  # fmt: skip
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.step(lm.gradient(loss, optimizer.parameters))
        return losses[0], losses[1]

    generator = np.random.default_rng(3)
    for _ in range(STEPS):
        batch = generator.integers(0, LETTERS, (ROWS, LENGTH + 1))
        own = batch[distributed.rows_of(ROWS, mesh["data"])]
        mine, reference = step(Tensor(own), Tensor(batch))
        np.testing.assert_allclose(mine.item(), reference.item(), rtol=1e-5)
    pairs = zip(nn.state_dict(together).values(), nn.state_dict(alone).values(), strict=True)
    for tensor, expected in pairs:
        found = tensor if tensor.requires_grad else distributed.whole(tensor)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=5e-6)


train({way: size if way == sys.argv[1] else 1 for way in ("data", "model")})
print(f"rank {rank}: all is well", flush=True)

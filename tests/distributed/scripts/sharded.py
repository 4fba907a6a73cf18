"""A small GPT whose tensors are annotated, trained in several processes step by step beside one,
with norms over all parts, and a step that is left out: ``sharded.py DATA MODEL``, the processes
along two axes of a mesh.

Every process also trains the whole model alone, and compares losses and parameters.
"""

import sys
from typing import Any

import numpy as np

import lamina as lm
from lamina import Tensor, distributed, nn
from tests.distributed.gpt import LENGTH, Gpt

LETTERS, ROWS, LARGEST = 12, 4, 0.5
rank = distributed.rank()


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


def parts_of(model: Gpt) -> tuple[list[Tensor], list[Tensor]]:
    """What an optimiser updates: what all processes have, and of what is cut their parts."""
    tensors = dict.fromkeys(nn.state_dict(model).values())
    same = [one for one in tensors if one.requires_grad]
    return same, [distributed.part(one) for one in tensors if not one.requires_grad]


def train(data: int, model: int) -> None:
    mesh = distributed.Mesh(data=data, model=model)
    lm.random.manual_seed(0)
    together, alone = Gpt(LETTERS), Gpt(LETTERS)
    nn.load_state_dict(alone, nn.state_dict(together))
    tensor_parallel(together, mesh)
    same, parts = parts_of(together)
    over = mesh["model"]
    optimizers = [
        distributed.PartsLamb([*same, *parts], lr=0.02, over=over, parts=tuple(parts)),
        nn.optim.Lamb(nn.parameters(alone), lr=0.02),
    ]
    scalers = [distributed.PartsScaler(over, init_scale=8.0), nn.optim.GradScaler(init_scale=8.0)]

    @lm.jit
    def step(
        own: Tensor, batch: Tensor, more: Tensor, more_somewhere: Tensor
    ) -> tuple[Tensor, ...]:
        """more: what is added to the gradients of the parts of this process. more_somewhere: the
        same of all processes together."""
        tokens, following = (distributed.of_part(one, mesh, ("data", None))
                             for one in (own[:, :-1], own[:, 1:]))  # fmt: skip
        losses = [distributed.whole(loss_of(together, tokens, following)),
                  loss_of(alone, batch[:, :-1], batch[:, 1:])]  # fmt: skip
        for loss, optimizer, scaler in zip(losses, optimizers, scalers, strict=True):
            optimizer.zero_grad()
            scaler.scale(loss).backward()
        for one in parts:
            one.grad = one.grad + more
        first, *_ = nn.parameters(alone)
        first.grad = first.grad + more_somewhere
        for optimizer, scaler in zip(optimizers, scalers, strict=True):
            scaler.unscale_(optimizer)
        norms = [distributed.clip_grad_norm(same, parts, LARGEST, over),
                 nn.optim.clip_grad_norm(nn.parameters(alone), LARGEST)]  # fmt: skip
        for optimizer, scaler in zip(optimizers, scalers, strict=True):
            scaler.step(optimizer)
            scaler.update()
        return *losses, *norms

    generator = np.random.default_rng(3)
    for more in (0.0, np.inf, 0.0):  # the second step is left out by all, for the first part
        batch = generator.integers(0, LETTERS, (ROWS, LENGTH + 1))
        own = batch[distributed.rows_of(ROWS, mesh["data"])]
        added = [Tensor(np.float32(one)) for one in (more if over.place == 0 else 0.0, more)]
        found = step(Tensor(own), Tensor(batch), *added)
        mine, reference, norm, whole_norm = (one.item() for one in found)
        np.testing.assert_allclose(mine, reference, rtol=1e-5)
        np.testing.assert_allclose(norm, whole_norm, rtol=1e-5)
    pairs = zip(nn.state_dict(together).values(), nn.state_dict(alone).values(), strict=True)
    for tensor, expected in pairs:
        found = tensor if tensor.requires_grad else distributed.whole(tensor)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=5e-6)


train(*map(int, sys.argv[1:]))
print(f"rank {rank}: all is well", flush=True)

"""A small GPT trained in two or four processes, in each of the ways to share it, beside one.

Every process also trains the whole model alone, and compares the losses, and at the end the
parameters that it has, or its parts of them.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import lamina as lm
from lamina import Tensor, distributed, nn
from lamina.distributed.layout import layouts_of, whole
from tests.distributed.gpt import LENGTH, WIDTH, Gpt, parts_of_block

LETTERS, ROWS, STEPS, RATE = 12, 4, 3, 0.1
rank, size = distributed.rank(), distributed.size()
mesh = distributed.Mesh(model=size)
over = mesh["model"]
own_tokens = slice(rank * LENGTH // size, (rank + 1) * LENGTH // size)
Step = Callable[[np.ndarray], Tensor]  # the loss of a batch; gradients are left in `grad`
# With it the layers that this process trains, whose parameters are named as in the whole model.
Shared = tuple[Step, Any]


def tensor_parallel(model: Gpt) -> Shared:
    model.blocks = [parts_of_block(block, over, None) for block in model.blocks]
    letters = distributed.VocabularyParallel(model.letters, over)
    model.letters = letters

    def step(batch: np.ndarray) -> Tensor:
        hidden = model.hidden(model.embedded(Tensor(batch[:, :-1])))
        logits = letters.logits(hidden).flatten(0, 1)
        targets = Tensor(batch[:, 1:]).flatten()
        loss = distributed.vocabulary_cross_entropy(logits, targets, over)
        loss.backward()
        return loss

    return step, model


def tensor_and_sequence_parallel(model: Gpt) -> Shared:
    """Between products each process has a part of the tokens."""
    shared = [*nn.parameters([block.norms for block in model.blocks]), model.norm.weight,
              model.norm.bias, model.letters.weight, model.places.weight]  # fmt: skip
    shared += [one for block in model.blocks for one in (block.output.bias, block.down.bias)]
    model.blocks = [parts_of_block(block, over, 1) for block in model.blocks]

    def step(batch: np.ndarray) -> Tensor:
        x = model.embedded(Tensor(batch[:, :-1]))[:, own_tokens]
        logits = model.hidden(x) @ model.letters.weight.T
        targets = Tensor(batch[:, 1:][:, own_tokens]).flatten()
        loss = lm.cross_entropy(logits.flatten(0, 1), targets) / size
        loss.backward()
        distributed.sum_gradients(shared, over)
        return distributed.all_reduce(loss.detach())

    return step, model


def ring(model: Gpt) -> Shared:
    """Each process has a part of the tokens throughout."""
    for block in model.blocks:
        block._attend = lambda query, key, value: distributed.ring_attention(
            query, key, value, over, is_causal=True
        )

    def step(batch: np.ndarray) -> Tensor:
        x = Tensor(batch[:, :-1][:, own_tokens])
        logits = model.hidden(model.embedded(x, own_tokens.start)) @ model.letters.weight.T
        targets = Tensor(batch[:, 1:][:, own_tokens]).flatten()
        loss = lm.cross_entropy(logits.flatten(0, 1), targets) / size
        loss.backward()
        distributed.sum_gradients(nn.parameters(model), over)
        return distributed.all_reduce(loss.detach())

    return step, model


def fully_sharded(model: Gpt) -> Shared:
    """Each process has a part of the rows of a batch, and of each parameter."""
    sharded = distributed.FullySharded(Whole(model), over)

    def step(batch: np.ndarray) -> Tensor:
        loss = sharded(batch[distributed.rows_of(ROWS)]) / size
        loss.backward()
        return distributed.all_reduce(loss.detach())

    return step, sharded


class Whole:
    """The model as a layer from text to its loss."""

    def __init__(self, model: Gpt) -> None:
        self.model = model

    def __call__(self, text: np.ndarray) -> Tensor:
        return self.model.loss(text)


def pipelined(model: Gpt) -> Shared:
    """Each process has a block; the embedding of letters is not tied here, as both ends would need
    it: a product of the last one's own."""
    block, output = model.blocks[rank], model.output
    own: dict[str, Any] = {"blocks": {str(rank): block}}
    if rank == 0:
        own |= {"letters": model.letters, "places": model.places}
    if rank == size - 1:
        own |= {"norm": model.norm, "output": output}

    def stage(x: Tensor) -> Tensor:
        return block(x if rank else model.embedded(x))

    def loss_of(x: Tensor, target: Tensor) -> Tensor:
        return lm.cross_entropy(output(model.norm(x)).flatten(0, 1), target.flatten())

    parameters = nn.parameters(own)
    shape = (ROWS // 4, LENGTH, WIDTH)
    pipeline = distributed.Pipeline(stage, loss_of, parameters, over, shape, lm.float32)

    def step(batch: np.ndarray) -> Tensor:
        parts = np.split(batch, 4)
        inputs = [Tensor(part[:, :-1]) for part in parts]
        return pipeline.step(inputs, [Tensor(part[:, 1:]) for part in parts])

    return step, own


class Untied(Gpt):
    """A GPT of a block for each process, with an output layer of its own."""

    def __init__(self, letters: int) -> None:
        super().__init__(letters, size)
        self.output = nn.Linear(WIDTH, letters, bias=False)

    def loss(self, text: np.ndarray) -> Tensor:
        logits = self.output(self.hidden(self.embedded(Tensor(text[:, :-1]))))
        return lm.cross_entropy(logits.flatten(0, 1), Tensor(text[:, 1:]).flatten())


WAYS = {
    "tensor": (tensor_parallel, Gpt),
    "tensor-and-sequence": (tensor_and_sequence_parallel, Gpt),
    "ring": (ring, Gpt),
    "sharded": (fully_sharded, Gpt),
    "pipeline": (pipelined, Untied),
}


def compare_parameters(shared: Any, alone: Any) -> None:
    """Compare what this process has of each parameter with the model that it has trained alone."""
    layouts = layouts_of(shared)
    expected = {name: one.numpy() for name, one in nn.state_dict(alone).items()}
    for name, parameter in nn.state_dict(shared).items():
        layout = layouts.get(name, whole(parameter.shape))
        values = expected[name.removeprefix("shards.model.")].reshape(layout.shape)
        for box in layout.boxes:
            ends = np.add(box.start, box.shape)
            there = tuple(map(slice, box.start, ends))
            mine = parameter.numpy()[box.own_slices]
            np.testing.assert_allclose(mine, values[there], 1e-4, 1e-6, err_msg=name)


def train(name: str) -> None:
    """Train in one way, and alone."""
    share, kind = WAYS[name]
    lm.random.manual_seed(5)
    together, alone = kind(LETTERS), kind(LETTERS)
    nn.load_state_dict(alone, nn.state_dict(together))
    step, shared = share(together)
    own = nn.parameters(shared)
    parameters = nn.parameters(alone)
    optimizers = [nn.optim.SGD(list(one), lr=RATE, momentum=0.9) for one in (own, parameters)]
    generator = np.random.default_rng(3)
    for _ in range(STEPS):
        batch = generator.integers(0, LETTERS, (ROWS, LENGTH + 1))
        loss, expected = step(batch), alone.loss(batch)
        expected.backward()
        lm.realize(loss, expected, *[one.grad for one in (*own, *parameters)])
        np.testing.assert_allclose(loss.item(), expected.item(), rtol=2e-5)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    final = step(batch), alone.loss(batch)
    np.testing.assert_allclose(final[0].item(), final[1].item(), rtol=2e-5)
    assert final[1].item() < expected.item()
    compare_parameters(shared, alone)
    print(f"rank {rank}: {name}: all is well", flush=True)


for name in sys.argv[1:] or WAYS:
    train(name)

"""A small transformer learns this file's first lines, and writes with a cache of one fixed size."""

from pathlib import Path

import numpy as np

import lamina as lm
from lamina import Tensor, nn

LENGTH, WIDTH, HEADS, BLOCKS, STEPS = 64, 64, 4, 2, 200
text = Path(__file__).read_text(encoding="utf-8")[:1200]
letters = sorted(set(text))
numbers = np.array([letters.index(one) for one in text])


class Attention:
    """Causal self-attention; what it has seen before is in a cache, or there is none."""

    def __init__(self) -> None:
        self.heads = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def __call__(self, x: Tensor, place: Tensor | None, cache: list[Tensor]) -> Tensor:
        batch, length, _ = x.shape
        split = self.heads(x).reshape(batch, length, 3, HEADS, -1).transpose(1, 3)
        query, key, value = split.unstack(axis=2)
        if place is None:
            mixed = lm.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            # A shape is part of a program: a cache that grew would need a new one for each letter.
            rows = lm.arange(LENGTH)
            for held, new in zip(cache, (key, value), strict=True):
                held.assign(lm.where(rows[:, None] == place, new, held))
            mixed = lm.scaled_dot_product_attention(query, *cache, attn_mask=rows <= place)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Block:
    def __init__(self) -> None:
        self.norms = [nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)]
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), lm.gelu, nn.Linear(4 * WIDTH, WIDTH))

    def __call__(self, x: Tensor, place: Tensor | None, cache: list[Tensor]) -> Tensor:
        x = x + self.attention(self.norms[0](x), place, cache)
        return x + self.mlp(self.norms[1](x))


class Transformer:
    """Letters (batch, length) to the logits of each next one; with a `place`, of one letter."""

    def __init__(self) -> None:
        self.letters = nn.Embedding(len(letters), WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = [Block() for _ in range(BLOCKS)]
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, len(letters), bias=False)
        self.output.weight = self.letters.weight  # one tensor with two names is trained once
        for embedding in (self.letters, self.places):
            embedding.weight.assign(embedding.weight * 0.1)

    def __call__(self, x: Tensor, place: Tensor | None = None) -> Tensor:
        x = self.letters(x) + self.places(lm.arange(x.shape[1]) if place is None else place)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, place, cache)
        return self.output(self.norm(x))


lm.random.manual_seed(0)
# Keys and values of each block. They are no attributes of the model, so not part of its state.
caches = [[lm.zeros((1, HEADS, LENGTH, WIDTH // HEADS)) for _ in "kv"] for _ in range(BLOCKS)]
model = Transformer()
optimizer = nn.optim.AdamW(nn.parameters(model))
rate = nn.schedules.cosine(4e-3, STEPS, warmup=20)


@lm.jit
def learn(x: Tensor, y: Tensor) -> Tensor:
    loss = lm.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    nn.optim.clip_grad_norm(optimizer.parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss


generator = np.random.default_rng(0)
for step in range(STEPS):
    optimizer.lr = rate(step)  # a schedule is Python: inside of `jit` it would run once
    starts = generator.integers(0, len(numbers) - LENGTH, 8)
    windows = numbers[starts[:, None] + np.arange(LENGTH + 1)]
    loss = learn(windows[:, :-1], windows[:, 1:])
    if step % 50 == 0:
        print(f"step {step:3}: loss {loss.item():.3f}")
print(f"the last loss: {loss.item():.3f}")
assert loss.item() < 1.2, loss.item()


@lm.jit
def following(letter: Tensor, place: Tensor) -> Tensor:
    # One program for all places: the place is a tensor, and the caches are written in place.
    return model(letter, place)[0, -1].argmax()


PROMPT = "import "
written = [letters.index(one) for one in PROMPT]
for place in range(LENGTH - 1):
    best = following(Tensor([[written[place]]]), Tensor([place]))
    if place + 1 == len(written):
        written.append(int(best))
print("".join(letters[one] for one in written))

# Without a cache, each letter is computed from all before it again: the same ones are the best.
logits = model(Tensor([written[:-1]]))[0]
chosen = lm.take_along_axis(logits, Tensor(written[1:])[:, None], axis=1)[:, 0]
assert (logits.max(axis=1) - chosen)[len(PROMPT) - 1 :].max().item() < 1e-3

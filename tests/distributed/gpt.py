"""A small GPT for scripts of several processes, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import lamina as lm
from lamina import Tensor, distributed, nn
from lamina.distributed.mesh import Axis

LENGTH, WIDTH, HEADS = 8, 16, 4


class Block:
    """Attention by `attend`, and two layers."""

    def __init__(self) -> None:
        self.norms = [nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)]
        self.heads = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self._attend: Callable[[Tensor, Tensor, Tensor], Tensor] = causal

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.output(self.mixed(self.heads(self.norms[0](x))))
        return x + self.down(lm.gelu(self.up(self.norms[1](x))))

    def mixed(self, joined: Tensor) -> Tensor:
        """What attention makes of queries, keys and values side by side, of some heads."""
        rows, length, width = joined.shape
        split = joined.reshape(rows, length, 3, -1, WIDTH // HEADS)
        query, key, value = split.transpose(1, 3).unstack(axis=2)
        return self._attend(query, key, value).transpose(1, 2).reshape(rows, length, width // 3)


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return lm.scaled_dot_product_attention(query, key, value, is_causal=True)


class Gpt:
    def __init__(self, letters: int, blocks: int = 1) -> None:
        self.letters = nn.Embedding(letters, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = [Block() for _ in range(blocks)]
        self.norm = nn.LayerNorm(WIDTH)

    def embedded(self, x: Tensor, first: int = 0) -> Tensor:
        """Of tokens from place `first` on."""
        return self.letters(x) + self.places(lm.arange(first, first + x.shape[1]))

    def hidden(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def loss(self, text: np.ndarray) -> Tensor:
        """The mean cross entropy of each letter of (rows, LENGTH + 1) but the first."""
        hidden = self.hidden(self.embedded(Tensor(text[:, :-1])))
        logits = hidden @ self.letters.weight.T
        return lm.cross_entropy(logits.flatten(0, 1), Tensor(text[:, 1:]).flatten())


def parts_of_block(block: Block, over: Axis, sequence_axis: int | None) -> Block:
    """A block of which this process has a part of the heads and of the hidden units."""
    part = Block()
    part.norms = block.norms
    part.heads = distributed.ColumnParallel(block.heads, over, 3, sequence_axis)
    part.output = distributed.RowParallel(block.output, over, sequence_axis)
    part.up = distributed.ColumnParallel(block.up, over, 1, sequence_axis)
    part.down = distributed.RowParallel(block.down, over, sequence_axis)
    return part

"""The block that the transformers among these programs consist of."""

from __future__ import annotations

from typing import Any

from bench.cases.whole import Layers


def blocks(
    layers: Layers, count: int, width: int, heads: int, causal: bool = False, post: bool = False
) -> Any:
    """`count` blocks of attention and two layers with GELU, (N, T, width) to the same.

    post: normalised after each sum, as in BERT, not before each part, as in GPT-2."""
    nn, functional = layers.nn, layers.functional

    class Block(layers.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            if post:
                x = self.norm1(x + self.attention(x))
                return self.norm2(x + self.inner(x))
            x = x + self.attention(self.norm1(x))
            return x + self.inner(self.norm2(x))

        def attention(self, x: Any) -> Any:
            batch, length, _ = x.shape
            query, key, value = (
                part.reshape(batch, length, heads, width // heads).transpose(1, 2)
                for part in self.qkv(x).chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
            return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

        def inner(self, x: Any) -> Any:
            return self.down(functional.gelu(self.up(x)))

    return nn.Sequential(*(Block() for _ in range(count)))

"""Small PyTorch models, with a part of each kind that large ones have."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):  # type: ignore[misc]
    """A layer of a decoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):  # type: ignore[misc]
    """The loss of a language model."""

    def __init__(self, width: int = 32, words: int = 50) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.blocks(self.embedding(tokens)))
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


class Images(nn.Module):  # type: ignore[misc]
    """The loss of an image classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 16, 3, stride=2, groups=4), nn.GroupNorm(4, 16), nn.Hardswish(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.layers(x), target, label_smoothing=0.1)

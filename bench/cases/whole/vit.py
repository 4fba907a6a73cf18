"""ViT-tiny (Dosovitskiy et al. 2020; Touvron et al. 2020 for the size), patches of 16 x 16."""

from __future__ import annotations

from typing import Any

from bench.cases.whole import Layers, group, images, inference, training, with_classes
from bench.cases.whole.transformer import blocks

BATCH, SIDE, PATCH, CLASSES = 8, 224, 16, 1000
WIDTH, HEADS, LAYERS = 192, 3, 12
PATCHES = (SIDE // PATCH) ** 2


def network(layers: Layers) -> Any:
    """(N, 3, SIDE, SIDE) to (N, CLASSES)."""
    nn = layers.nn

    class ViT(layers.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
            self.first = nn.Embedding(1, WIDTH)  # the token whose result is classified
            self.positions = nn.Embedding(PATCHES + 1, WIDTH)
            self.blocks = blocks(layers, LAYERS, WIDTH, HEADS)
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)
            first = self.first.weight.expand(x.shape[0], 1, WIDTH)
            x = layers.concat([first, x], 1) + self.positions.weight
            return self.head(self.norm(self.blocks(x))[:, 0])

    return ViT()


_IMAGES = images(BATCH, SIDE)
_LABELLED = with_classes(_IMAGES, CLASSES, BATCH)
GROUP = group(
    "ViT-tiny",
    inference("ViT-tiny, forward, 1 image", network, images(1, SIDE), quick=False),
    inference(f"ViT-tiny, forward, {BATCH} images", network, _IMAGES),
    training(f"ViT-tiny, training with AdamW, {BATCH} images", network, _LABELLED, adam=True),
)

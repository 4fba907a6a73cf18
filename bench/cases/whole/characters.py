"""A model of characters, of the size that people train on a laptop."""

from __future__ import annotations

from typing import Any

from bench.cases.whole import Layers, group, inference, tokens, training, with_classes
from bench.cases.whole.transformer import blocks

BATCH, LENGTH, VOCABULARY = 32, 128, 65
WIDTH, HEADS, LAYERS = 256, 4, 4


def network(layers: Layers) -> Any:
    """Characters (N, T) to (N * T, VOCABULARY)."""
    nn = layers.nn

    class Characters(layers.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.characters = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(LENGTH, WIDTH)
            self.blocks = blocks(layers, LAYERS, WIDTH, HEADS, causal=True)
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.characters(ids) + self.positions.weight[: ids.shape[1]]
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    return Characters()


_TOKENS = tokens(BATCH, LENGTH, VOCABULARY)
_SHAPE = f"{BATCH} x {LENGTH}"
GROUP = group(
    "Character model",
    inference(f"Character model, forward, {_SHAPE}", network, _TOKENS),
    training(f"Character model, training with AdamW, {_SHAPE}", network,
             with_classes(_TOKENS, VOCABULARY, BATCH * LENGTH), adam=True),
)  # fmt: skip

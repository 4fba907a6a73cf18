"""MiniLM (Wang et al. 2020) with 6 layers, as sentence embeddings use it: the mean of the vectors
of all tokens; and its training as a classifier of two classes."""

from __future__ import annotations

from typing import Any

from bench.cases.whole import Layers, group, inference, tokens, training, with_classes
from bench.cases.whole.transformer import blocks

BATCH, LENGTH, VOCABULARY, CONTEXT = 8, 128, 30522, 512
WIDTH, HEADS, LAYERS, CLASSES = 384, 12, 6, 2


def network(layers: Layers) -> Any:
    """Vectors of sentences: tokens (N, T) to (N, WIDTH)."""
    nn = layers.nn

    class MiniLM(layers.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.kinds = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(2, WIDTH)
            self.positions = nn.Embedding(CONTEXT, WIDTH)
            self.norm = nn.LayerNorm(WIDTH)
            self.blocks = blocks(layers, LAYERS, WIDTH, HEADS, post=True)

        def forward(self, ids: Any) -> Any:
            positions = self.positions.weight[: ids.shape[1]]
            x = self.norm(self.words(ids) + positions + self.kinds.weight[0])
            return self.blocks(x).mean(1)

    return MiniLM()


def classifier(layers: Layers) -> Any:
    """Tokens (N, T) to (N, CLASSES)."""
    return layers.nn.Sequential(network(layers), layers.nn.Linear(WIDTH, CLASSES))


_TOKENS = tokens(BATCH, LENGTH, VOCABULARY)
_SHAPE = f"{BATCH} x {LENGTH} tokens"
GROUP = group(
    "MiniLM",
    inference(f"MiniLM, forward, 1 x {LENGTH} tokens", network, tokens(1, LENGTH, VOCABULARY),
              quick=False),
    inference(f"MiniLM, forward, {_SHAPE}", network, _TOKENS),
    training(f"MiniLM, training with AdamW, {_SHAPE}", classifier,
             with_classes(_TOKENS, CLASSES, BATCH), adam=True),
)  # fmt: skip

"""A small Llama with drawn weights, and what it writes by the plainest of means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lamina import Tensor, random
from lamina.core.options import using
from lamina.models.llama import Llama, LlamaConfig
from lamina.models.rope import Rope
from lamina.models.weights import DrawnWeights
from lamina.serving.engine import Room
from lamina.text.tokenizer import Tokenizer
from tests.text.tables import tables

CONFIG = LlamaConfig(
    vocabulary=600, size=32, inner=48, layers=2, heads=4, key_heads=2, head_size=8,
    rope=Rope(8, 10000.0), tied=True, context=96,
)  # fmt: skip
ROOM = Room(slots=3, capacity=96, pages=36, page_size=8, chunk=16)


def network(device: str) -> Llama:
    """Weights are drawn larger than for training: texts then depend on all of their prompts."""
    random.manual_seed(3)
    with using(device=device):
        return Llama(CONFIG, DrawnWeights(0.4))


def tokenizer() -> Tokenizer:
    pytest.importorskip("tokenizers")
    return Tokenizer.from_gguf(tables("smollm"))


def greedy(made: Llama, prompt: Sequence[int], count: int) -> list[int]:
    """The most probable tokens, each from the whole text anew: no cache, no batch, no page."""
    ids = list(prompt)
    for _ in range(count):
        logits = made(Tensor([ids], device="interp")).numpy()
        ids.append(int(np.argmax(logits[0, -1])))
    return ids[len(prompt) :]

"""Small encoders of text with random weights, as transformers makes and saves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 48,
}  # fmt: skip
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}),
    "roberta": ("Roberta", {"pad_token_id": 3, "type_vocab_size": 1}),
    "modernbert": (
        "ModernBert", {"num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0}
    ),
    "modernbert with kinds": (
        "ModernBert",
        {"layer_types": ["sliding_attention", "full_attention"], "local_attention": 4,
         "pad_token_id": 0, "rope_parameters": {
             "full_attention": {"rope_type": "default", "rope_theta": 50.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 9.0}}},
    ),
}  # fmt: skip
_LENGTHS = (24, 1, 17)  # of texts; what is behind them is padding


def texts(padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and a mask: three texts, padded to one length."""
    mask = np.arange(max(_LENGTHS)) < np.array(_LENGTHS)[:, None]
    ids = np.random.default_rng(0).integers(4, SIZES["vocab_size"], mask.shape)
    return np.where(mask, ids, padding), mask


def reference(name: str, head: str = "Model") -> Any:
    """The model of transformers, float32. Normalizations and biases are drawn as well."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind, changes = ENCODERS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES | changes)
    model = getattr(transformers, f"{kind}{head}")(config).eval()
    for weight in model.parameters():
        with torch.no_grad():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim == 1 else 0.15))
    return model

"""A small byte-level BPE learned from a text, as the tables of a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Some English: that of an old README, which stays as it is, so that tokens do.
PROSE = Path(__file__).with_name("prose.txt")
SPECIAL = {"<|endoftext|>": 3, "<|im_start|>": 3, "<|im_end|>": 3, "<user>": 4}
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}\n"
    "  {% if message.role == 'nobody' %}{{ raise_exception('no ' + message.role) }}{% endif %}\n"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def learned() -> Any:
    """A tokenizer with 600 tokens, those of `SPECIAL` first, by the package's own trainer."""
    tokenizers = pytest.importorskip("tokenizers")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    backend.train([str(PROSE)], trainer)
    return backend


def tables(pre: str) -> dict[str, Any]:
    """The metadata of a GGUF file with this tokenizer, which splits by the rule `pre`."""
    model = json.loads(learned().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.token_type": np.array([SPECIAL.get(one, 1) for one in tokens], np.int32),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }

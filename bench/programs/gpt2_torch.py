"""The forward pass of GPT-2-small in PyTorch, eager; arguments as in `gpt2_lamina`."""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from torch.nn import functional

from bench.programs.gpt2_data import HEADS, LAYERS, TOKENS, WIDTH, read
from bench.programs.protocol import emit, serve

torch.set_grad_enabled(False)
started = time.perf_counter()
arrays, tokens = read(sys.argv[1])
weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
ids = torch.from_numpy(tokens)
loading = time.perf_counter() - started


def forward() -> torch.Tensor:
    """Logits, (1, T, VOCABULARY)."""
    x = functional.embedding(ids, weights["tokens"]) + weights["positions"][:TOKENS]
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    for layer in range(LAYERS):
        w = {name: weights[f"{layer}.{name}"] for name in
             ("gain1", "bias1", "qkv", "qkv_bias", "out", "out_bias",
              "gain2", "bias2", "up", "up_bias", "down", "down_bias")}  # fmt: skip
        y = functional.layer_norm(x, (WIDTH,), w["gain1"], w["bias1"]) @ w["qkv"] + w["qkv_bias"]
        query, key, value = (
            one.reshape(1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2) for one in y.chunk(3, -1)
        )
        scores = query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        mixed = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1) @ value
        x = x + mixed.transpose(1, 2).reshape(x.shape) @ w["out"] + w["out_bias"]
        y = functional.layer_norm(x, (WIDTH,), w["gain2"], w["bias2"]) @ w["up"] + w["up_bias"]
        x = x + functional.gelu(y, approximate="tanh") @ w["down"] + w["down_bias"]
    x = functional.layer_norm(x, (WIDTH,), weights["gain"], weights["bias"])
    return x @ weights["tokens"].T


def step() -> None:
    """One forward pass."""
    forward()


result = forward()
ended = time.time()
np.save(sys.argv[2], result.numpy())
emit(ended=ended, loading=loading)
serve({"step": step})

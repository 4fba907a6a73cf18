"""The forward pass of GPT-2-small in tinygrad, unjitted; arguments as in `gpt2_lamina`."""

from __future__ import annotations

import sys
import time

import numpy as np
from tinygrad import Tensor
from tinygrad.helpers import GlobalCounters

from bench.programs.gpt2_data import HEADS, LAYERS, TOKENS, WIDTH, read
from bench.programs.protocol import emit, serve

started = time.perf_counter()
arrays, tokens = read(sys.argv[1])
weights = {name: Tensor(array).realize() for name, array in arrays.items()}
ids = Tensor(tokens).realize()
loading = time.perf_counter() - started


def forward() -> Tensor:
    """Logits, (1, T, VOCABULARY)."""
    x = weights["tokens"][ids] + weights["positions"][:TOKENS]
    mask = Tensor.ones(TOKENS, TOKENS).tril() > 0
    for layer in range(LAYERS):
        w = {name: weights[f"{layer}.{name}"] for name in
             ("gain1", "bias1", "qkv", "qkv_bias", "out", "out_bias",
              "gain2", "bias2", "up", "up_bias", "down", "down_bias")}  # fmt: skip
        y = (x.layernorm() * w["gain1"] + w["bias1"]) @ w["qkv"] + w["qkv_bias"]
        query, key, value = (
            one.reshape(1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)
            for one in y.chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        mixed = mask.where(scores, -float("inf")).softmax(-1) @ value
        x = x + mixed.transpose(1, 2).reshape(x.shape) @ w["out"] + w["out_bias"]
        y = (x.layernorm() * w["gain2"] + w["bias2"]) @ w["up"] + w["up_bias"]
        x = x + y.gelu() @ w["down"] + w["down_bias"]
    return (x.layernorm() * weights["gain"] + weights["bias"]) @ weights["tokens"].T


def step() -> None:
    """One forward pass, from building the graph to the logits."""
    forward().numpy()


started = time.perf_counter()
result = forward()
building = time.perf_counter() - started
before = GlobalCounters.kernel_count
logits = result.numpy()
ended = time.time()
launches = GlobalCounters.kernel_count - before
np.save(sys.argv[2], logits)
emit(ended=ended, loading=loading, graph=building, launches=launches)
serve({"step": step})

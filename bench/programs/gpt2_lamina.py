"""The forward pass of GPT-2-small in lamina. Arguments: the weights, where to write the logits."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import Any

import numpy as np

import lamina as lm
from bench.programs.gpt2_data import HEADS, LAYERS, TOKENS, WIDTH, read
from bench.programs.protocol import emit, serve
from lamina import pipeline
from lamina.runtime import compiler

compiling = [0.0]
run_compiler = compiler.run


def timed_run(*arguments: Any, **options: Any) -> Any:
    """The C compiler, and the seconds that it takes."""
    started = time.perf_counter()
    try:
        return run_compiler(*arguments, **options)
    finally:
        compiling[0] += time.perf_counter() - started


compiler.run = timed_run
started = time.perf_counter()
arrays, tokens = read(sys.argv[1])
weights = {name: lm.asarray(array) for name, array in arrays.items()}
ids = lm.asarray(tokens)
loading = time.perf_counter() - started


def heads(x: lm.Tensor, part: int) -> lm.Tensor:
    """The queries, keys or values of (1, T, 3 WIDTH) as (1, HEADS, T, WIDTH / HEADS)."""
    one = x[..., part * WIDTH : (part + 1) * WIDTH]
    return lm.permute_dims(one.reshape((1, TOKENS, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))


def forward() -> lm.Tensor:
    """Logits, (1, T, VOCABULARY)."""
    x = lm.embedding(ids, weights["tokens"]) + weights["positions"][:TOKENS]
    mask = lm.tril(lm.ones((TOKENS, TOKENS), dtype=lm.bool))
    for layer in range(LAYERS):
        w = {name: weights[f"{layer}.{name}"] for name in
             ("gain1", "bias1", "qkv", "qkv_bias", "out", "out_bias",
              "gain2", "bias2", "up", "up_bias", "down", "down_bias")}  # fmt: skip
        y = lm.layer_norm(x, (WIDTH,), w["gain1"], w["bias1"]) @ w["qkv"] + w["qkv_bias"]
        query, key, value = (heads(y, part) for part in range(3))
        scores = query @ lm.matrix_transpose(key) * (WIDTH // HEADS) ** -0.5
        mixed = lm.softmax(lm.where(mask, scores, -lm.inf), axis=-1) @ value
        x = x + lm.permute_dims(mixed, (0, 2, 1, 3)).reshape(x.shape) @ w["out"] + w["out_bias"]
        y = lm.layer_norm(x, (WIDTH,), w["gain2"], w["bias2"]) @ w["up"] + w["up_bias"]
        x = x + lm.gelu(y, approximate="tanh") @ w["down"] + w["down_bias"]
    x = lm.layer_norm(x, (WIDTH,), weights["gain"], weights["bias"])
    return x @ lm.matrix_transpose(weights["tokens"])


def step() -> None:
    """One forward pass, from building the graph to the logits."""
    lm.realize(forward())


started = time.perf_counter()
result = forward()
building = time.perf_counter() - started
before = pipeline.counter.kernels
with pipeline.pass_times() as record:
    lm.realize(result)
ended = time.time()
passes: dict[str, float] = defaultdict(float)
for name, seconds in record:
    passes[name] += seconds
np.save(sys.argv[2], result.numpy())
launches = pipeline.counter.kernels - before
with pipeline.profile() as records:
    step()
emit(
    ended=ended,
    loading=loading,
    graph=building,
    passes=passes,
    compiler=compiling[0],
    launches=launches,
    distinct=len({one.name for one in records}),
    profile=[(one.name, one.seconds, one.flops) for one in records],
)
serve({"step": step})

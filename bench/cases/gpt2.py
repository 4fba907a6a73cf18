"""GPT-2-small with random weights: the forward pass in each framework, and a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.cases import Array

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 50257, 1024, 768, 12, 12
LEARNING_RATE = 1e-4
CACHE = 256  # places for keys and values
_BLOCK = {
    "gain1": (WIDTH,), "bias1": (WIDTH,),
    "qkv": (WIDTH, 3 * WIDTH), "qkv_bias": (3 * WIDTH,),
    "out": (WIDTH, WIDTH), "out_bias": (WIDTH,),
    "gain2": (WIDTH,), "bias2": (WIDTH,),
    "up": (WIDTH, 4 * WIDTH), "up_bias": (4 * WIDTH,),
    "down": (4 * WIDTH, WIDTH), "down_bias": (WIDTH,),
}  # fmt: skip
Weights = dict[str, Any]
Attention = Callable[..., Any]  # of the number of a layer, its query, key and value


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "tokens", (VOCABULARY, WIDTH)
    yield "positions", (CONTEXT, WIDTH)
    for layer in range(LAYERS):
        for name, shape in _BLOCK.items():
            yield f"{layer}.{name}", shape
    yield "gain", (WIDTH,)
    yield "bias", (WIDTH,)


def inputs(length: int) -> Callable[[np.random.Generator], list[Array]]:
    """Draws the ids of `length` tokens and the next ones, (1, length), and every weight."""

    def draw(random: np.random.Generator) -> list[Array]:
        ids = random.integers(0, VOCABULARY, (1, length + 1))
        arrays: list[Array] = [np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])]
        for name, shape in _shapes():
            values = random.standard_normal(shape, dtype=np.float32)
            values *= np.float32(0.02)
            arrays.append(values + np.float32(1) if "gain" in name else values)
        return arrays

    return draw


def _named(arrays: Any) -> Weights:
    return {name: one for (name, _), one in zip(_shapes(), arrays, strict=True)}


def _layer(weights: Weights, number: int) -> Weights:
    return {name: weights[f"{number}.{name}"] for name in _BLOCK}


def _lamina_logits(
    lm: Any, ids: Any, weights: Weights, positions: Any = None, attention: Attention | None = None
) -> Any:
    length = ids.shape[1]

    def heads(y: Any, part: int) -> Any:
        third = y[..., part * WIDTH : (part + 1) * WIDTH]
        return third.reshape((1, length, HEADS, WIDTH // HEADS)).transpose(1, 2)

    def causal(number: int, *parts: Any) -> Any:
        return lm.scaled_dot_product_attention(*parts, is_causal=True)

    mix = attention or causal
    x = lm.embedding(ids, weights["tokens"])
    x = x + weights["positions"][slice(length) if positions is None else positions]
    for number in range(LAYERS):
        w = _layer(weights, number)
        y = lm.layer_norm(x, (WIDTH,), w["gain1"], w["bias1"]) @ w["qkv"] + w["qkv_bias"]
        mixed = mix(number, *(heads(y, part) for part in range(3)))
        x = x + mixed.transpose(1, 2).reshape(x.shape) @ w["out"] + w["out_bias"]
        y = lm.layer_norm(x, (WIDTH,), w["gain2"], w["bias2"]) @ w["up"] + w["up_bias"]
        x = x + lm.gelu(y, approximate="tanh") @ w["down"] + w["down_bias"]
    return lm.layer_norm(x, (WIDTH,), weights["gain"], weights["bias"]) @ weights["tokens"].T


def _torch_logits(
    torch: Any, ids: Any, weights: Weights, positions: Any = None,
    attention: Attention | None = None,
) -> Any:  # fmt: skip
    functional, length = torch.nn.functional, ids.shape[1]

    def causal(number: int, *parts: Any) -> Any:
        return functional.scaled_dot_product_attention(*parts, is_causal=True)

    mix = attention or causal
    x = functional.embedding(ids, weights["tokens"])
    x = x + weights["positions"][slice(length) if positions is None else positions]
    for number in range(LAYERS):
        w = _layer(weights, number)
        y = functional.layer_norm(x, (WIDTH,), w["gain1"], w["bias1"]) @ w["qkv"] + w["qkv_bias"]
        parts = (
            one.reshape(1, length, HEADS, WIDTH // HEADS).transpose(1, 2) for one in y.chunk(3, -1)
        )
        mixed = mix(number, *parts)
        x = x + mixed.transpose(1, 2).reshape(x.shape) @ w["out"] + w["out_bias"]
        y = functional.layer_norm(x, (WIDTH,), w["gain2"], w["bias2"]) @ w["up"] + w["up_bias"]
        x = x + functional.gelu(y, approximate="tanh") @ w["down"] + w["down_bias"]
    x = functional.layer_norm(x, (WIDTH,), weights["gain"], weights["bias"])
    return x @ weights["tokens"].T


def _jax_logits(jax: Any, ids: Any, weights: Weights) -> Any:
    length = ids.shape[1]

    def norm(x: Any, gain: Any, bias: Any) -> Any:
        away = x - x.mean(-1, keepdims=True)
        return away * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias

    x = weights["tokens"][ids] + weights["positions"][:length]
    for number in range(LAYERS):
        w = _layer(weights, number)
        y = norm(x, w["gain1"], w["bias1"]) @ w["qkv"] + w["qkv_bias"]
        query, key, value = (
            one.reshape(1, length, HEADS, WIDTH // HEADS) for one in jax.numpy.split(y, 3, -1)
        )
        mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
        x = x + mixed.reshape(x.shape) @ w["out"] + w["out_bias"]
        y = norm(x, w["gain2"], w["bias2"]) @ w["up"] + w["up_bias"]
        x = x + jax.nn.gelu(y) @ w["down"] + w["down_bias"]
    return norm(x, weights["gain"], weights["bias"]) @ weights["tokens"].T


def _tinygrad_logits(ids: Any, weights: Weights) -> Any:
    length = ids.shape[1]
    x = weights["tokens"][ids] + weights["positions"][:length]
    for number in range(LAYERS):
        w = _layer(weights, number)
        y = (x.layernorm() * w["gain1"] + w["bias1"]) @ w["qkv"] + w["qkv_bias"]
        query, key, value = (
            one.reshape(1, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for one in y.chunk(3, dim=-1)
        )
        mixed = query.scaled_dot_product_attention(key, value, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(x.shape) @ w["out"] + w["out_bias"]
        y = (x.layernorm() * w["gain2"] + w["bias2"]) @ w["up"] + w["up_bias"]
        x = x + y.gelu() @ w["down"] + w["down_bias"]
    return (x.layernorm() * weights["gain"] + weights["bias"]) @ weights["tokens"].T


def _lamina(lm: Any, ids: Any, _: Any, *arrays: Any) -> Any:
    weights = _named(arrays)
    return lambda ids: _lamina_logits(lm, ids, weights)


def _torch(torch: Any, ids: Any, _: Any, *arrays: Any) -> Any:
    weights = _named(arrays)

    def step(ids: Any) -> Any:
        with torch.no_grad():
            return _torch_logits(torch, ids, weights)

    return step


def _exported(torch: Any, ids: Any, _: Any, *arrays: Any) -> Any:
    weights = _named(arrays)
    return lambda ids: _torch_logits(torch, ids, weights)


def _jax(jax: Any, ids: Any, _: Any, *arrays: Any) -> Any:
    forward = jax.jit(lambda ids, weights: _jax_logits(jax, ids, weights))
    weights = _named(arrays)
    return lambda ids: forward(ids, weights)


def _tinygrad(_: Any, ids: Any, following: Any, *arrays: Any) -> Any:
    weights = _named(arrays)
    return lambda ids: _tinygrad_logits(ids, weights)


def _lamina_training(lm: Any, ids: Any, following: Any, *arrays: Any) -> Any:
    from lamina import nn

    weights = {name: lm.Tensor(one.numpy(), requires_grad=True)
               for name, one in _named(arrays).items()}  # fmt: skip
    parameters = list(weights.values())
    optimizer = nn.optim.AdamW(parameters, lr=LEARNING_RATE)

    def step(ids: Any, following: Any) -> Any:
        logits = _lamina_logits(lm, ids, weights)
        loss = lm.cross_entropy(logits.reshape((-1, VOCABULARY)), following.reshape((-1,)))
        optimizer.step(lm.gradient(loss, parameters))
        return loss

    return step


def _torch_training(torch: Any, ids: Any, following: Any, *arrays: Any) -> Any:
    weights = {name: one.clone().requires_grad_() for name, one in _named(arrays).items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=LEARNING_RATE, fused=True)

    def step(ids: Any, following: Any) -> Any:
        optimizer.zero_grad()
        logits = _torch_logits(torch, ids, weights)
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, VOCABULARY), following.reshape(-1)
        )
        loss.backward()
        optimizer.step()
        return loss

    return step


def _lamina_decode(lm: Any, token: Any, _: Any, *arrays: Any) -> Any:
    weights, shape = _named(arrays), (1, HEADS, CACHE, WIDTH // HEADS)
    caches = [(lm.zeros(shape).clone(), lm.zeros(shape).clone()) for _ in range(LAYERS)]
    position = lm.zeros((), dtype=lm.int64).clone()
    lm.realize(position, *(one for pair in caches for one in pair))

    def attention(number: int, query: Any, *news: Any) -> Any:
        for cache, new in zip(caches[number], news, strict=True):
            cache[:, :, position] = new[:, :, 0]
        seen = lm.arange(CACHE) <= position
        return lm.scaled_dot_product_attention(query, *caches[number], attn_mask=seen)

    def step(token: Any) -> Any:
        logits = _lamina_logits(lm, token, weights, position, attention)
        position.assign((position + 1) % CACHE)
        return logits

    return step


def _torch_decode(torch: Any, token: Any, _: Any, *arrays: Any) -> Any:
    weights, shape = _named(arrays), (1, HEADS, CACHE, WIDTH // HEADS)
    dtype = weights["tokens"].dtype
    caches = [(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype))
              for _ in range(LAYERS)]  # fmt: skip
    position, places = torch.zeros(1, dtype=torch.int64), torch.arange(CACHE)

    def attention(number: int, query: Any, *news: Any) -> Any:
        for cache, new in zip(caches[number], news, strict=True):
            cache.index_copy_(2, position, new)
        return torch.nn.functional.scaled_dot_product_attention(
            query, *caches[number], attn_mask=(places <= position)[None]
        )

    def step(token: Any) -> Any:
        with torch.no_grad():
            logits = _torch_logits(torch, token, weights, position, attention)
            position.add_(1).remainder_(CACHE)
        return logits

    return step


FORWARD = {"lamina": _lamina, "torch": _torch, "jax": _jax, "tinygrad": _tinygrad,
           "onnxruntime": _exported}  # fmt: skip
TRAINING = {"lamina": _lamina_training, "torch": _torch_training}
DECODE = {"lamina": _lamina_decode, "torch": _torch_decode}

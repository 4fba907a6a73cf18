"""A Llama in PyTorch as its guides write one: grouped queries, rotary embeddings, a static cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lamina.models.llama import LlamaConfig


class Llama(nn.Module):
    """Tokens (batch, length) to the logits of the token after the last one, in bfloat16.

    weights: by their names on the Hugging Face hub. caches: of each layer the keys and the values,
        (batch, heads, capacity, size)
    """

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Tensor],
        caches: list[tuple[Tensor, Tensor]],
    ) -> None:  # fmt: skip
        super().__init__()
        self.config = config
        device = next(iter(weights.values())).device
        # Buffers are where a CUDA graph reads them; any other tensor it copies in each call.
        for name, weight in weights.items():
            self.register_buffer(_buffer(name), weight)
        frequencies = torch.from_numpy(config.rope.frequencies()).to(device)
        angles = torch.outer(torch.arange(config.context, device=device), frequencies)
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())
        for number, (keys, values) in enumerate(caches):
            self.register_buffer(f"keys{number}", keys)
            self.register_buffer(f"values{number}", values)

    def forward(self, ids: Tensor, positions: Tensor, is_cached: bool) -> Tensor:
        """positions: of the tokens, (length,). is_cached: there are tokens before them, and
        their keys and values are kept; otherwise they are the first ones."""
        x = functional.embedding(ids, self._weight("model.embed_tokens"))
        turns = (self.cos[positions], self.sin[positions])
        for number in range(self.config.layers):
            name = f"model.layers.{number}."
            normal = self._norm(x, name + "input_layernorm")
            x = x + self._attention(normal, number, positions, turns, is_cached)
            normal = self._norm(x, name + "post_attention_layernorm")
            gate = functional.silu(self._project(normal, name + "mlp.gate_proj"))
            x = x + self._project(
                gate * self._project(normal, name + "mlp.up_proj"), name + "mlp.down_proj"
            )
        return self._project(self._norm(x[:, -1], "model.norm"), "lm_head")

    def _norm(self, x: Tensor, name: str) -> Tensor:
        size = self.config.size
        return functional.rms_norm(x, (size,), self._weight(name), self.config.eps)

    def _project(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self._weight(name))

    def _weight(self, name: str) -> Tensor:
        weight: Tensor = getattr(self, _buffer(f"{name}.weight"))
        return weight

    def _attention(
        self, x: Tensor, number: int, positions: Tensor, turns: tuple[Tensor, Tensor],
        is_cached: bool,
    ) -> Tensor:  # fmt: skip
        config, name = self.config, f"model.layers.{number}.self_attn."
        batch, length, _ = x.shape
        query, key, value = (
            self._project(x, f"{name}{part}_proj").view(batch, length, -1, config.head_size)
            .transpose(1, 2) for part in "qkv"
        )  # fmt: skip
        query, key = (_turned(heads, *turns) for heads in (query, key))
        if not is_cached:
            mixed = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=True
            )
            return self._project(mixed.transpose(1, 2).flatten(2), name + "o_proj")
        keys, values = getattr(self, f"keys{number}"), getattr(self, f"values{number}")
        keys.index_copy_(2, positions, key)
        values.index_copy_(2, positions, value)
        seen = (torch.arange(keys.shape[2], device=x.device) <= positions[-1])[None, None, None]
        # The queries of a group as rows of one product: no key is read, or repeated, for each.
        grouped = query.reshape(batch, config.key_heads, -1, config.head_size)
        mixed = functional.scaled_dot_product_attention(grouped, keys, values, seen)
        return self._project(mixed.reshape(batch, 1, -1), name + "o_proj")


def _buffer(name: str) -> str:
    """The name of a weight as that of an attribute."""
    return name.replace(".", "_")


def _turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads (batch, heads, length, size) with element i turned together with i + size / 2."""
    first, second = heads.float().chunk(2, -1)
    return (heads.float() * cos + torch.cat([-second, first], -1) * sin).to(heads.dtype)


def compiled(model: Llama, *, is_cached: bool) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A step of `model`, by PyTorch's compiler: the best tokens and the logits. On a GPU it tries
    all kernels that it has, and launches a CUDA graph."""

    def step(ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(ids, positions, is_cached)
        return logits.argmax(-1), logits

    mode = "max-autotune" if model.cos.is_cuda else "default"
    fast: Any = torch.compile(step, mode=mode, fullgraph=True)

    def run(ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            best, logits = fast(ids, positions)
        return best, logits

    return run

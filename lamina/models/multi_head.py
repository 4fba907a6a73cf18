"""Attention with projections of queries, keys and values, and one of what comes out."""

from __future__ import annotations

from lamina.frontend.functions.attention import scaled_dot_product_attention
from lamina.frontend.tensor import Tensor
from lamina.models.language_model import KeyShape
from lamina.models.parts import Projection, heads_of
from lamina.models.weights import Source

__all__ = ["Memory", "MultiHead", "attend", "memory_of"]

Memory = tuple[Tensor, Tensor]  # keys and values, (batch, heads, length, size), of one layer


def memory_of(vectors: Tensor, key: Projection, value: Projection, shape: KeyShape) -> Memory:
    """Keys and values of vectors, (batch, length, size). shape: of one layer."""
    keys, values = (heads_of(project(vectors), shape.size) for project in (key, value))
    return keys.cast(shape.dtype), values.cast(shape.dtype)


def attend(
    query: Tensor, memory: Memory, mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Attention of queries of all heads to a memory: (batch, length, heads * size), as the queries.
    Other arguments are those of `lamina.scaled_dot_product_attention`."""
    keys, values = memory
    heads = heads_of(query, keys.shape[3]).cast(keys.dtype)
    mixed = scaled_dot_product_attention(
        heads, keys, values, mask, is_causal=is_causal, scale=scale
    )
    return mixed.transpose(1, 2).flatten(2)


class MultiHead:
    """Attention of `heads` heads, each of size / heads elements, with its four projections (Vaswani
    et al. 2017, "Attention is all you need"). key_bias: whether the projection of keys has a bias;
    all others have one."""

    def __init__(
        self, source: Source, name: str, size: int, heads: int, key_bias: bool = True
    ) -> None:
        self._shape = KeyShape(1, heads, size // heads, source.activations)
        self.q_proj = Projection(source, f"{name}.q_proj", size, size, bias=True)
        self.k_proj = Projection(source, f"{name}.k_proj", size, size, bias=key_bias)
        self.v_proj = Projection(source, f"{name}.v_proj", size, size, bias=True)
        self.out_proj = Projection(source, f"{name}.out_proj", size, size, bias=True)

    def memory(self, vectors: Tensor) -> Memory:
        """The keys and values of vectors, (batch, length, size)."""
        return memory_of(vectors, self.k_proj, self.v_proj, self._shape)

    def __call__(
        self, x: Tensor, memory: Memory, mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """x: (batch, length, size); so is the result. mask, is_causal: as of `attend`."""
        return self.out_proj(attend(self.q_proj(x), memory, mask, is_causal))

"""Lookups of rows by index; see `lamina.embedding` and `lamina.embedding_bag`."""

from typing import Any

from lamina import random
from lamina.core.dtypes import DType, default_float
from lamina.frontend.functions import lookup, sequence
from lamina.frontend.tensor import Tensor
from lamina.nn.state import parameter

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding:
    """The rows of `weight`, (num_embeddings, embedding_dim), at integer indices.

    The row `padding_idx` starts as zeros and receives no derivative."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        weight = random.normal((num_embeddings, embedding_dim), dtype=dtype, device=device)
        if padding_idx is not None:
            padding_idx = lookup.padding_row("Embedding", padding_idx, num_embeddings)
            weight[padding_idx] = 0.0
        self.weight, self.padding_idx = parameter(weight), padding_idx

    def __call__(self, indices: Any) -> Tensor:
        return lookup.embedding(indices, self.weight, self.padding_idx)


class EmbeddingBag:
    """The sum, mean or maximum of the rows of each bag of indices; see `lamina.embedding_bag`.

    The row `padding_idx` starts as zeros and counts for no bag."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, mode: str = "mean",
        include_last_offset: bool = False, padding_idx: int | None = None,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        weight = random.normal((num_embeddings, embedding_dim), dtype=dtype, device=device)
        if padding_idx is not None:
            padding_idx = lookup.padding_row("EmbeddingBag", padding_idx, num_embeddings)
            weight[padding_idx] = 0.0
        self.weight = parameter(weight)
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.padding_idx = padding_idx

    def __call__(
        self, indices: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        return sequence.embedding_bag(
            indices, self.weight, offsets, self.mode, per_sample_weights,
            self.include_last_offset, self.padding_idx,
        )  # fmt: skip

"""Linear, Embedding, Dropout, Sequential."""

from __future__ import annotations

from typing import Any

from lamina import random
from lamina.dtypes import DType
from lamina.errors import ArgumentError, ShapeError
from lamina.nn.state import default_dtype, fan_in_bound, parameter, settle, uniform_parameter
from lamina.tensor import normalization
from lamina.tensor.core import Tensor


class Linear:
    """``x @ weight.T + bias`` along the last axis.

    weight: (out_features, in_features). bias: (out_features,) or None.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        shape = (out_features, in_features)
        bound = fan_in_bound(shape)
        self.weight = uniform_parameter(shape, bound, dtype, device)
        self.bias = uniform_parameter((out_features,), bound, dtype, device) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``; raises ShapeError when the last axis of x does not fit."""
    if not x.ndim or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"Linear: x of shape {x.shape} with a weight of shape {weight.shape}: the last axis "
            f"of x must have size {weight.shape[1]}"
        )
    result: Tensor = x @ weight.T
    return result if bias is None else result + bias


class Embedding:
    """The rows of `weight`, (num_embeddings, embedding_dim), at integer indices.

    The row `padding_idx` starts as zeros and receives no derivative.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ShapeError(f"Embedding: padding_idx {padding_idx} of {num_embeddings} rows")
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        weight = random.normal((num_embeddings, embedding_dim), dtype=dtype, device=device)
        if self.padding_idx is not None:
            weight[self.padding_idx] = 0.0
        self.weight = parameter(weight)

    def __call__(self, indices: Tensor) -> Tensor:
        settle()
        rows: Tensor = normalization.embedding(indices, self.weight, self.padding_idx)
        return rows


class Dropout:
    """Zero elements with probability `p` while training; see `lamina.dropout`."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"Dropout: p is {p}; a probability lies between 0 and 1")
        self.p = p
        self.training = True

    def __call__(self, x: Tensor) -> Tensor:
        return normalization.dropout(x, self.p, self.training)


class Sequential(list[Any]):
    """Layers and functions applied one after another; a list, so layers can be indexed."""

    def __init__(self, *layers: Any) -> None:
        super().__init__(layers)

    def __call__(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x

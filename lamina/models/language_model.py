"""What every model that writes text is: tokens to logits, with caches of keys and values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from lamina.core.dtypes import DType, int8
from lamina.errors import DTypeError, ShapeError
from lamina.frontend.tensor import Tensor
from lamina.models.network import Network
from lamina.models.paged import PagedCache
from lamina.models.parts import Cache, KeyValues

__all__ = ["KeyShape", "LanguageModel"]


@dataclass(frozen=True)
class KeyShape:
    """What a model keeps of a token: keys and values of `layers` times `heads`, of `size` elements
    of `dtype` each."""

    layers: int
    heads: int
    size: int
    dtype: DType


class LanguageModel(Network, ABC):
    """Tokens (batch, length) to the logits of each next token, (batch, length, vocabulary)."""

    keys: KeyShape
    vocabulary: int

    def __call__(
        self, ids: Tensor, caches: Sequence[KeyValues] | None = None, first: Tensor | None = None,
        only: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """caches: of each layer, which the tokens are added to; `first` is then the position of the
        first one, a scalar, or one for each text, (batch,); by default 0. only: the place among
        `ids`, a scalar, of the one token whose logits are wanted: (batch, 1, vocabulary).

        Raises ShapeError for ids that have no two axes, and for another number of caches."""
        name = type(self).__name__
        if ids.ndim != 2:
            raise ShapeError(
                f"tokens of shape {ids.shape}; (batch, length) is needed", operation=name
            )
        if caches is not None and len(caches) != self.keys.layers:
            raise ShapeError(f"{len(caches)} caches for {self.keys.layers} layers", operation=name)
        x = self.vectors(ids, [None] * self.keys.layers if caches is None else caches, first)
        if only is not None:
            x = x.take(only.reshape((1,)), axis=1)
        return self.logits(x)

    @abstractmethod
    def vectors(
        self, ids: Tensor, caches: Sequence[KeyValues | None], first: Tensor | None
    ) -> Tensor:
        """The vectors of tokens after all layers, (batch, length, size), not yet normalized."""

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Of vectors (..., size): (..., vocabulary)."""

    def new_pages(
        self, pages: int, size: int, device: str | None = None, dtype: DType | None = None
    ) -> list[PagedCache]:
        """Empty ones for each layer: so many pages of `size` positions. dtype: as of `new_caches`.
        """
        keys, kept = self.keys, self._kept(dtype)
        return [
            PagedCache(keys.heads, pages, size, keys.size, device, kept)
            for _ in range(keys.layers)
        ]

    def new_caches(
        self, batch: int, capacity: int, device: str | None = None, dtype: DType | None = None
    ) -> list[Cache]:
        """Empty ones for each layer. dtype: int8, as `lamina.models.vector_cache` says, or by
        default that of keys and values. Raises DTypeError for any other."""
        keys, kept = self.keys, self._kept(dtype)
        return [
            Cache(batch, keys.heads, capacity, keys.size, device, kept)
            for _ in range(keys.layers)
        ]

    def _kept(self, dtype: DType | None) -> DType:
        if dtype not in (None, int8):
            raise DTypeError(f"{dtype}; int8 or None is needed", operation="new_caches")
        return self.keys.dtype if dtype is None else int8

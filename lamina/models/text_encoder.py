"""What every model that reads a text as a whole is: tokens to a vector for each, which depends on
the tokens before and behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from lamina.errors import ShapeError
from lamina.frontend.tensor import Tensor
from lamina.models.network import Network
from lamina.models.weights import Weight

__all__ = ["TextEncoder", "without_heads"]


class TextEncoder(Network, ABC):
    """Tokens (batch, length) to their vectors after the last layer, (batch, length, size). Its
    configuration has the `size` of a vector and the `context`, the most tokens of a text."""

    def __call__(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """mask: bool (batch, length), true for tokens of the texts; others are padding, which no
        token of a text sees. By default there is none.

        Raises ShapeError for ids that have no two axes or too many tokens, and for a mask of
        another shape."""
        name = type(self).__name__
        if ids.ndim != 2:
            raise ShapeError(
                f"tokens of shape {ids.shape}; (batch, length) is needed", operation=name
            )
        if ids.shape[1] > self.config.context:
            raise ShapeError(
                f"{ids.shape[1]} tokens of a text; {self.config.context} have a position",
                operation=name, remedy="shorten the texts",
            )  # fmt: skip
        if mask is not None and mask.shape != ids.shape:
            raise ShapeError(f"mask {mask.shape} for tokens {ids.shape}", operation=name)
        return self.vectors(ids, None if mask is None else mask.unsqueeze(1).unsqueeze(1))

    @abstractmethod
    def vectors(self, ids: Tensor, seen: Tensor | None) -> Tensor:
        """The vectors of tokens after all layers, (batch, length, size). seen: which tokens the
        others of their text see, bool (batch, 1, 1, length); None for all."""


def without_heads(
    weights: Mapping[str, Weight], prefix: str, others: tuple[str, ...]
) -> dict[str, Weight]:
    """The weights of an encoder, in files of a model that it is a part of: without the prefix that
    they have there, and without weights whose names begin as `others` do."""
    short = {name.removeprefix(prefix): weight for name, weight in weights.items()}
    return {name: weight for name, weight in short.items() if not name.startswith(others)}

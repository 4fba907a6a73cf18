"""The weights that a model is built from: by name and shape, whatever file they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lamina import random
from lamina.core.shape import Shape
from lamina.errors import FormatError
from lamina.frontend.functions.creation import ones, zeros
from lamina.frontend.tensor import Tensor
from lamina.io.blocks import Packed
from lamina.io.interleaved import Interleaved
from lamina.nn.state import parameter

__all__ = ["DrawnWeights", "Source", "StoredWeights", "Weight"]

Weight = Tensor | Packed
_SHOWN = 8  # names in an error


class Source(Protocol):
    """Where the layers of a model get their weights."""

    def take(self, name: str, shape: Shape) -> Weight:
        """The weight `name`."""

    def vector(self, name: str, size: int) -> Tensor:
        """The weight `name`, (size,), which is never quantised."""

    def interleaved(self, weight: Weight) -> Interleaved | None:
        """A copy of a weight for products with single vectors, where these are to be rounded."""

    def ignore(self, name: str) -> None:
        """Nothing needs the weight `name`, which may be there."""


class StoredWeights:
    """The tensors of a file. Each is to be taken once, with its shape; `check` says what is not so.

    origin: the name of the file, for messages. lanes: of `Interleaved`, where single vectors are to
    be rounded as they are multiplied with quantised weights."""

    def __init__(
        self, tensors: Mapping[str, Weight], origin: str, lanes: int | None = None
    ) -> None:
        self._tensors, self._origin, self._lanes = tensors, origin, lanes
        self._used: set[str] = set()
        self._missing: list[str] = []
        self._misshapen: list[str] = []

    def take(self, name: str, shape: Shape) -> Weight:
        self._used.add(name)
        weight = self._tensors.get(name)
        if weight is None:
            self._missing.append(name)
        elif weight.shape == shape:
            return weight
        else:
            self._misshapen.append(f"{name} has shape {weight.shape}, {shape} is needed")
        return zeros(shape)  # until `check` raises

    def vector(self, name: str, size: int) -> Tensor:
        weight = self.take(name, (size,))
        return weight.decode() if isinstance(weight, Packed) else weight

    def interleaved(self, weight: Weight) -> Interleaved | None:
        if self._lanes is None or not isinstance(weight, Packed):
            return None
        return Interleaved.of(weight, self._lanes)

    def ignore(self, name: str) -> None:
        self._used.add(name)

    def check(self) -> None:
        """Raises FormatError for weights that are missing, of another shape, or that nobody took.
        """
        surplus = [name for name in self._tensors if name not in self._used]
        problems = [
            f"{what} {_listed(names)}"
            for what, names in (("missing", self._missing), ("unexpected", surplus)) if names
        ]  # fmt: skip
        problems += [_listed(self._misshapen)] if self._misshapen else []
        if problems:
            raise FormatError(f"{self._origin}: weights do not fit: {'; '.join(problems)}")


class DrawnWeights:
    """New parameters for training: matrices are drawn from a normal distribution, scales of
    normalizations are one, biases zero."""

    def __init__(self, std: float = 0.02) -> None:
        self._std = std

    def take(self, name: str, shape: Shape) -> Tensor:
        return parameter(random.normal(shape, std=self._std))

    def vector(self, name: str, size: int) -> Tensor:
        return parameter(zeros((size,)) if name.endswith("bias") else ones((size,)))

    def interleaved(self, weight: Weight) -> None:
        return None

    def ignore(self, name: str) -> None:
        pass


def _listed(names: list[str]) -> str:
    """The first of `names`, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

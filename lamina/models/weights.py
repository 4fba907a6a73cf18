"""The weights that a model is built from: by name and shape, whatever file they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lamina import random
from lamina.core.dtypes import DType, float32
from lamina.core.shape import Shape
from lamina.distributed.mesh import Axis
from lamina.errors import FormatError
from lamina.frontend.functions.creation import ones, zeros
from lamina.frontend.tensor import Tensor
from lamina.io.blocks import Packed
from lamina.io.interleaved import Interleaved
from lamina.models.sharing import Cut, Weight, part_of
from lamina.nn.state import parameter

__all__ = ["DrawnWeights", "Source", "StoredWeights", "Weight"]

_SHOWN = 8  # names in an error


class Source(Protocol):
    """Where the layers of a model get their weights. over: the processes that share the model.
    activations: the dtype of what layers keep, and to which factors of products are rounded."""

    over: Axis | None
    activations: DType

    def take(self, name: str, shape: Shape, cut: Cut | None = None) -> Weight:
        """The weight `name`, in all of `shape`; where the model is shared, by `cut`, a part of it.
        """

    def vector(self, name: str, size: int, cut: Cut | None = None) -> Tensor:
        """The weight `name`, in all (size,), which is never quantised."""

    def interleaved(self, weight: Weight) -> Interleaved | None:
        """A copy of a weight for products with single vectors, where these are to be rounded."""

    def ignore(self, name: str) -> None:
        """Nothing needs the weight `name`, which may be there."""


class StoredWeights:
    """The tensors of a file. Each is to be taken once, with its shape; `check` says what is not so.

    origin: the name of the file, for messages. lanes: of `Interleaved`, where single vectors are to
    be rounded as they are multiplied with quantised weights. over: the processes that share the
    model; `tensors` are then on the host, and each process brings its parts to `device`.
    activations: as `Source` says."""

    def __init__(
        self, tensors: Mapping[str, Weight], origin: str, lanes: int | None = None,
        over: Axis | None = None, device: str = "cpu", activations: DType = float32,
    ) -> None:  # fmt: skip
        self._tensors, self._origin, self._lanes = tensors, origin, lanes
        self.over, self._device, self.activations = over, device, activations
        self._used: set[str] = set()
        self._missing: list[str] = []
        self._misshapen: list[str] = []

    def take(self, name: str, shape: Shape, cut: Cut | None = None) -> Weight:
        self._used.add(name)
        weight = self._tensors.get(name)
        if weight is None:
            self._missing.append(name)
        elif weight.shape == shape:
            return weight if self.over is None else self._part(weight, cut, self.over)
        else:
            self._misshapen.append(f"{name} has shape {weight.shape}, {shape} is needed")
        return zeros(shape)  # until `check` raises

    def vector(self, name: str, size: int, cut: Cut | None = None) -> Tensor:
        weight = self.take(name, (size,), cut)
        return weight.decode() if isinstance(weight, Packed) else weight

    def _part(self, weight: Weight, cut: Cut | None, over: Axis) -> Weight:
        """What this process has of a weight, on its device."""
        return part_of(weight, cut or Cut(0, whole=True), over, self._device)

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
    normalizations are one, biases zero. over: the processes that share the model; the seeds of
    `lamina.random.manual_seed` have to be the same on all of them."""

    activations = float32

    def __init__(self, std: float = 0.02, over: Axis | None = None) -> None:
        self._std, self.over = std, over

    def take(self, name: str, shape: Shape, cut: Cut | None = None) -> Tensor:
        return self._parameter(random.normal(shape, std=self._std), cut)

    def vector(self, name: str, size: int, cut: Cut | None = None) -> Tensor:
        return self._parameter(zeros((size,)) if name.endswith("bias") else ones((size,)), cut)

    def _parameter(self, whole: Tensor, cut: Cut | None) -> Tensor:
        """The part of it that this process has: all draw the whole, and so the same values."""
        if self.over is None or cut is None:
            return parameter(whole)
        own = part_of(whole, cut, self.over, whole.device)
        assert isinstance(own, Tensor)
        return parameter(own)

    def interleaved(self, weight: Weight) -> None:
        return None

    def ignore(self, name: str) -> None:
        pass


def _listed(names: list[str]) -> str:
    """The first of `names`, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

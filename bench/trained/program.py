"""What a training program is: its weights, its batches, and its losses, written once.

A loss takes the functions of a framework (`bench.trained.functions`), the weights by name, and
the arrays of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.cases import Array

Shape = tuple[int, ...]
Weights = dict[str, Any]
Loss = Callable[..., Any]
RUNNING = "running"  # in the names of statistics, which no gradient trains


@dataclass(frozen=True)
class Weight:
    """shape: of the array. scale: the standard deviation of its numbers. middle: their mean."""

    shape: Shape
    scale: float = 0.0
    middle: float = 0.0

    def drawn(self, random: np.random.Generator) -> Array:
        """Such an array of float32."""
        if not self.scale:
            return np.full(self.shape, self.middle, np.float32)
        values = random.standard_normal(self.shape, dtype=np.float32)
        return values * np.float32(self.scale) + np.float32(self.middle)


@dataclass
class Specification:
    """The weights of a model, collected layer by layer under dotted names."""

    weights: dict[str, Weight] = field(default_factory=dict)

    def linear(
        self, name: str, inputs: int, outputs: int, bias: bool = True, scale: float = 0.0
    ) -> None:
        """(outputs, inputs), and a bias. scale: 1 / sqrt(inputs) where none is given."""
        self.weights[f"{name}.weight"] = Weight((outputs, inputs), scale or inputs**-0.5)
        if bias:
            self.weights[f"{name}.bias"] = Weight((outputs,))

    def convolution(self, name: str, shape: Shape, bias: bool = False) -> None:
        """A filter of (outputs, inputs, height, width), for a rectifier that follows."""
        scale = math.sqrt(2 / math.prod(shape[1:]))
        self.weights[f"{name}.weight"] = Weight(shape, scale)
        if bias:
            self.weights[f"{name}.bias"] = Weight(shape[:1])

    def norm(self, name: str, width: int, bias: bool = True) -> None:
        """A gain of ones, and zeros."""
        self.weights[f"{name}.weight"] = Weight((width,), middle=1.0)
        if bias:
            self.weights[f"{name}.bias"] = Weight((width,))

    def batch_norm(self, name: str, width: int) -> None:
        """The same with running statistics."""
        self.norm(name, width)
        self.weights[f"{name}.{RUNNING}_mean"] = Weight((width,))
        self.weights[f"{name}.{RUNNING}_var"] = Weight((width,), middle=1.0)

    def table(self, name: str, rows: int, width: int, scale: float = 0.02) -> None:
        """An embedding."""
        self.weights[name] = Weight((rows, width), scale)


@dataclass(frozen=True)
class Phase:
    """A loss, the beginning of the names of the weights that it trains, and the places in a batch
    of the arrays that it takes; all of both where nothing else is said."""

    loss: Loss
    prefix: str = ""
    arrays: tuple[int, ...] | None = None

    def trains(self, name: str) -> bool:
        """Whether its gradient changes the weight."""
        return name.startswith(self.prefix) and RUNNING not in name

    def of_batch(self, batch: Any) -> list[Any]:
        """The arrays of the batch that its loss takes."""
        return list(batch) if self.arrays is None else [batch[place] for place in self.arrays]


@dataclass(frozen=True)
class Program:
    """A training step on batches of fixed shapes.

    sizes: what is trained, in words. weights: by name. batch: draws one. phases: losses and what
    they train, one after the other in each step. optimizer: `lamina.nn.optim` and `torch.optim`
    have a class of that name, which takes `settings`. is_half: weights are bfloat16; else they are
    float32, and products are computed in bfloat16. has_images: batches and filters of four axes,
    which PyTorch is given with the channels last.
    """

    sizes: str
    weights: Mapping[str, Weight]
    batch: Callable[[np.random.Generator], list[Array]]
    phases: tuple[Phase, ...]
    optimizer: str = "AdamW"
    settings: Mapping[str, Any] = field(default_factory=lambda: {"lr": 1e-4, "weight_decay": 0.1})
    is_half: bool = False
    has_images: bool = False

    def trains(self, name: str) -> bool:
        """Whether a step changes the weight by a gradient."""
        return any(phase.trains(name) for phase in self.phases)

    def parameters(self) -> int:
        """How many numbers are trained."""
        trained = (weight for name, weight in self.weights.items() if self.trains(name))
        return sum(math.prod(weight.shape) for weight in trained)

"""Rotary position embeddings, and how their frequencies are scaled for longer texts.

Pairs of elements of queries and keys are turned by angles that grow with the position, so that the
product of a query and a key depends on the distance between them. Element i of a head is paired
with element i + size / 2. Source: Su et al. 2021, "RoFormer".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lamina.frontend.functions.elementwise import cos, sin, where
from lamina.frontend.functions.movement import concat
from lamina.frontend.tensor import Tensor

__all__ = [
    "LinearScaling", "Llama3Scaling", "LongScaling", "Rope", "Rotation", "Scaling", "YarnScaling",
]  # fmt: skip


@dataclass(frozen=True)
class LinearScaling:
    """All positions are divided by `factor` (Chen et al. 2023)."""

    factor: float

    def frequencies(self, plain: Any, rope: Rope) -> Any:
        return plain / self.factor

    @property
    def length(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Llama3Scaling:
    """Long waves are slowed down by `factor`, short ones stay, between them is a ramp.

    context: the length that the model was first trained on. Waves longer than context / low are
    long, waves shorter than context / high are short (Llama 3.1)."""

    factor: float
    low: float
    high: float
    context: int

    def frequencies(self, plain: Any, rope: Rope) -> Any:
        import numpy as np

        waves = self.context * plain / (2 * math.pi)  # in the first context
        kept = np.clip((waves - self.low) / (self.high - self.low), 0.0, 1.0)
        return (1 - kept) * plain / self.factor + kept * plain

    @property
    def length(self) -> float:
        return 1.0


@dataclass(frozen=True)
class YarnScaling:
    """Frequencies that turn fewer than `slow` times in the first context are divided by `factor`,
    those that turn more than `fast` times stay, between them is a ramp over their numbers. The
    vectors get longer, which sharpens attention (Peng et al. 2023, "YaRN")."""

    factor: float
    context: int
    fast: float = 32.0
    slow: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, plain: Any, rope: Rope) -> Any:
        import numpy as np

        first = max(math.floor(self._number(self.fast, rope)), 0)
        last = min(math.ceil(self._number(self.slow, rope)), rope.size - 1)
        width = max(last - first, 0.001)
        slowed = np.clip((np.arange(len(plain)) - first) / width, 0.0, 1.0)
        return slowed * plain / self.factor + (1 - slowed) * plain

    def _number(self, turns: float, rope: Rope) -> float:
        """The number of the frequency that turns so often in the first context."""
        waves = self.context / (turns * 2 * math.pi)
        return rope.size * math.log(waves) / (2 * math.log(rope.theta))

    @property
    def length(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0


@dataclass(frozen=True)
class LongScaling:
    """Each frequency has a divisor of its own: `long` ones for tokens whose call ends behind the
    first `context` tokens of a text, `short` ones for others (Ding et al. 2024, "LongRoPE"). Keys
    of earlier calls stay as they are. length: that all vectors are multiplied by."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    context: int
    length: float

    def frequencies(self, plain: Any, rope: Rope) -> Any:
        """Of short texts."""
        import numpy as np

        return plain / np.asarray(self.short)

    def long_frequencies(self, plain: Any) -> Any:
        import numpy as np

        return (plain / np.asarray(self.long)).astype(np.float32)


Scaling = LinearScaling | Llama3Scaling | YarnScaling | LongScaling


@dataclass(frozen=True)
class Rope:
    """Rotary embeddings of the first `size` elements of heads: pair i turns by
    theta ** (-2 i / size) a position, before scaling. divisors: of each frequency, where a file has
    them. pairs_neighbours: element 2 i is paired with 2 i + 1, not i with i + size / 2."""

    size: int
    theta: float = 10000.0
    scaling: Scaling | None = None
    divisors: Sequence[float] | None = None
    pairs_neighbours: bool = False

    def frequencies(self) -> Any:
        """Of each pair, in radians a position: NumPy's float32, (size / 2,)."""
        import numpy as np

        frequencies = self._plain()
        if self.scaling is not None:
            frequencies = self.scaling.frequencies(frequencies, self)
        return frequencies.astype(np.float32)

    def _plain(self) -> Any:
        """Before scaling."""
        import numpy as np

        plain = self.theta ** (-np.arange(0, self.size, 2) / self.size)
        return plain if self.divisors is None else plain / np.asarray(self.divisors, np.float64)

    def at(self, positions: Tensor) -> Rotation:
        """The rotation of heads at `positions`, integers (..., length)."""
        frequencies = Tensor(self.frequencies(), device=positions.device)
        if isinstance(self.scaling, LongScaling) and positions.shape[-1]:
            long = self.scaling.long_frequencies(self._plain())
            is_long = positions[..., -1:] >= self.scaling.context
            frequencies = where(is_long, Tensor(long, device=positions.device), frequencies)
        angles = positions.cast(frequencies.dtype).unsqueeze(-1) * frequencies.unsqueeze(-2)
        length = 1.0 if self.scaling is None else self.scaling.length
        # In memory: each layer would compute them again for every head.
        cosines, sines = cos(angles) * length, sin(angles) * length
        return Rotation(cosines.contiguous(), sines.contiguous(), self.pairs_neighbours)


@dataclass(frozen=True, eq=False)
class Rotation:
    """Cosines and sines, (..., length, size / 2). Where neighbours are paired, the first ones of
    all pairs come before the second ones in the result: queries and keys are put into the same
    order, so that their products stay."""

    cosines: Tensor
    sines: Tensor
    pairs_neighbours: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Heads (..., length, size or more); elements behind those of pairs stay."""
        half = self.cosines.shape[-1]
        if self.pairs_neighbours:
            first, second = x[..., : 2 * half : 2], x[..., 1 : 2 * half : 2]
        else:
            first, second = x[..., :half], x[..., half : 2 * half]
        parts = [
            first * self.cosines - second * self.sines,
            second * self.cosines + first * self.sines,
        ]
        if 2 * half < x.shape[-1]:
            parts.append(x[..., 2 * half :])
        return concat(parts, axis=-1)

"""A Llama with 8 thousand million parameters, of random bfloat16 weights that are made on the
device: for speed alone."""

from __future__ import annotations

import lamina as lm
from lamina.core.dtypes import DType
from lamina.core.shape import Shape
from lamina.distributed.mesh import Axis
from lamina.frontend.tensor import Tensor
from lamina.models.llama import LlamaConfig
from lamina.models.rope import Rope
from lamina.models.sharing import Cut

EIGHT_BILLION = LlamaConfig(
    vocabulary=128256, size=4096, inner=14336, layers=32, heads=32, key_heads=8, head_size=128,
    rope=Rope(128, 500000.0), context=8192,
)  # fmt: skip
TINY = LlamaConfig(
    vocabulary=259, size=32, inner=48, layers=2, heads=4, key_heads=2, head_size=8,
    rope=Rope(8, 10000.0), context=64,
)  # fmt: skip


class HalfWeights:
    """Weights as `lamina.models.weights.Source`; each process draws what it has."""

    def __init__(self, over: Axis | None, activations: DType = lm.float32) -> None:
        self.over, self.activations = over, activations

    def take(self, name: str, shape: Shape, cut: Cut | None = None) -> Tensor:
        weight = (0.02 * lm.random.normal(self._own(shape, cut))).cast(lm.bfloat16)
        lm.realize(weight)
        return weight

    def vector(self, name: str, size: int, cut: Cut | None = None) -> Tensor:
        return lm.ones(self._own((size,), cut)).cast(lm.bfloat16).contiguous()

    def interleaved(self, weight: object) -> None:
        return None

    def ignore(self, name: str) -> None:
        pass

    def _own(self, shape: Shape, cut: Cut | None) -> Shape:
        if self.over is None or cut is None:
            return shape
        own = -(-shape[cut.axis] // self.over.ranks)
        return (*shape[: cut.axis], own, *shape[cut.axis + 1 :])

"""Layers of products with matrices, and layers that change the shape alone."""

import math
from dataclasses import dataclass
from typing import Any

from lamina.core.dtypes import DType, default_float
from lamina.frontend.arguments import normalize_axis
from lamina.frontend.functions import movement, projection
from lamina.frontend.functions.spatial import resized
from lamina.frontend.tensor import Tensor
from lamina.nn.initial import Maybe, uniform_parameter, weight_and_bias

__all__ = ["Bilinear", "Flatten", "Identity", "Linear", "Unflatten"]


class Linear:
    """``x @ weight.T + bias`` along the last axis; see `lamina.linear`.

    weight: (out_features, in_features). bias: (out_features,) or None."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        shape = (out_features, in_features)
        self.weight, self.bias = weight_and_bias(shape, out_features, bias, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        return projection.linear(x, self.weight, self.bias)


class Bilinear:
    """``x1 @ weight[k] @ x2 + bias[k]`` for each k; see `lamina.bilinear`.

    weight: (out_features, in1_features, in2_features). bias: (out_features,) or None."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        bound = 1.0 / math.sqrt(max(in1_features, 1))
        shape = (out_features, in1_features, in2_features)
        self.weight = uniform_parameter(shape, bound, dtype, device)
        self.bias: Maybe = None
        if bias:
            self.bias = uniform_parameter((out_features,), bound, dtype, device)

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        return projection.bilinear(x1, x2, self.weight, self.bias)


class Identity:
    """The input itself. Arguments of the constructor are accepted and mean nothing, so that it
    takes the place of any layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, x: Tensor) -> Tensor:
        return x


@dataclass(eq=False)
class Flatten:
    """The axes start_dim..end_dim, inclusive, as one."""

    start_dim: int = 1
    end_dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        return movement.flatten(x, self.start_dim, self.end_dim)


@dataclass(eq=False)
class Unflatten:
    """The axis `dim` as several axes of `unflattened_size`, one of which may be -1."""

    dim: int
    unflattened_size: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        axis = normalize_axis("Unflatten", self.dim, x.ndim)
        return movement.reshape(x, resized(x.shape, axis, *self.unflattened_size))

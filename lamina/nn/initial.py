"""Initial values of the layers' parameters, which are PyTorch's."""

import math
from collections.abc import Sequence

from lamina import random
from lamina.core.dtypes import DType
from lamina.frontend.tensor import Tensor
from lamina.nn.state import filled, parameter

Maybe = Tensor | None


def uniform_parameter(
    shape: Sequence[int], bound: float, dtype: DType, device: str | None
) -> Tensor:
    """A new parameter with values evenly distributed in [-bound, bound)."""
    return parameter(random.uniform(shape, -bound, bound, dtype=dtype, device=device))


def weight_and_bias(
    shape: Sequence[int], outputs: int, bias: bool, dtype: DType, device: str | None
) -> tuple[Tensor, Maybe]:
    """A weight (out, in, ...), and a bias if wanted, within 1 / sqrt(inputs of a unit)."""
    fan_in = math.prod(shape[1:])
    bound = 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    weight = uniform_parameter(shape, bound, dtype, device)
    return weight, uniform_parameter((outputs,), bound, dtype, device) if bias else None


def scale_and_shift(
    shape: int | Sequence[int], affine: bool, dtype: DType, device: str | None, bias: bool = True
) -> tuple[Maybe, Maybe]:
    """A weight of ones and a bias of zeros, where they are wanted."""
    weight = filled(shape, 1.0, dtype, device, True) if affine else None
    return weight, filled(shape, 0.0, dtype, device, True) if affine and bias else None

"""Activation functions as layers; see the functions of `lamina` of the same meaning.

`inplace`, which PyTorch has, is accepted and changes nothing: the compiler decides where results
lie.
"""

from dataclasses import dataclass

from lamina.core.dtypes import DType, default_float
from lamina.errors import ShapeError
from lamina.frontend.functions import activations, elementwise, reduction
from lamina.frontend.tensor import Tensor
from lamina.nn.state import filled

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]  # fmt: skip


@dataclass(eq=False)
class CELU:
    """See `lamina.celu`."""

    alpha: float = 1.0
    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return activations.celu(x, self.alpha)


@dataclass(eq=False)
class ELU:
    """See `lamina.elu`."""

    alpha: float = 1.0
    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.elu(x, self.alpha)


@dataclass(eq=False)
class GELU:
    """See `lamina.gelu`."""

    approximate: str = "none"

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.gelu(x, self.approximate)


@dataclass(eq=False)
class GLU:
    """See `lamina.glu`."""

    dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        return activations.glu(x, self.dim)


@dataclass(eq=False)
class Hardshrink:
    """See `lamina.hardshrink`."""

    lambd: float = 0.5

    def __call__(self, x: Tensor) -> Tensor:
        return activations.hardshrink(x, self.lambd)


@dataclass(eq=False)
class Hardsigmoid:
    """See `lamina.hardsigmoid`."""

    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.hardsigmoid(x)


@dataclass(eq=False)
class Hardswish:
    """See `lamina.hardswish`."""

    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.hardswish(x)


@dataclass(eq=False)
class Hardtanh:
    """See `lamina.hardtanh`."""

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return activations.hardtanh(x, self.min_val, self.max_val)


@dataclass(eq=False)
class LeakyReLU:
    """See `lamina.leaky_relu`."""

    negative_slope: float = 0.01
    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.leaky_relu(x, self.negative_slope)


@dataclass(eq=False)
class LogSigmoid:
    """See `lamina.logsigmoid`."""

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.logsigmoid(x)


@dataclass(eq=False)
class Softmax:
    """See `lamina.softmax`; along the last axis by default."""

    dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        return reduction.softmax(x, self.dim)


@dataclass(eq=False)
class LogSoftmax:
    """See `lamina.log_softmax`; along the last axis by default."""

    dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        return reduction.log_softmax(x, self.dim)


@dataclass(eq=False)
class Softmin:
    """See `lamina.softmin`; along the last axis by default."""

    dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        return activations.softmin(x, self.dim)


@dataclass(eq=False)
class Softmax2d:
    """The softmax over the channels of images, (N, C, H, W) or (C, H, W)."""

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim not in (3, 4):
            raise ShapeError(
                f"the input has shape {x.shape}, not ([N,] C, H, W)", operation="Softmax2d"
            )
        return reduction.softmax(x, -3)


@dataclass(eq=False)
class Mish:
    """See `lamina.mish`."""

    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.mish(x)


class PReLU:
    """See `lamina.prelu`. weight: (num_parameters,), one for all channels or one for each."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.weight = filled((num_parameters,), init, dtype, device, requires_grad=True)

    def __call__(self, x: Tensor) -> Tensor:
        return activations.prelu(x, self.weight)


@dataclass(eq=False)
class RReLU:
    """See `lamina.rrelu`; slopes are drawn while training."""

    lower: float = 1.0 / 8.0
    upper: float = 1.0 / 3.0
    inplace: bool = False

    def __post_init__(self) -> None:
        self.training = True

    def __call__(self, x: Tensor) -> Tensor:
        return activations.rrelu(x, self.lower, self.upper, self.training)


@dataclass(eq=False)
class ReLU:
    """See `lamina.relu`."""

    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.relu(x)


@dataclass(eq=False)
class ReLU6:
    """See `lamina.relu6`."""

    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.relu6(x)


@dataclass(eq=False)
class SELU:
    """See `lamina.selu`."""

    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return activations.selu(x)


@dataclass(eq=False)
class SiLU:
    """See `lamina.silu`."""

    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.silu(x)


@dataclass(eq=False)
class Sigmoid:
    """See `lamina.sigmoid`."""

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.sigmoid(x)


@dataclass(eq=False)
class Softplus:
    """``log(1 + exp(beta x)) / beta``, and `x` where ``beta x`` is above `threshold`; see
    `lamina.softplus`."""

    beta: float = 1.0
    threshold: float = 20.0

    def __call__(self, x: Tensor) -> Tensor:
        smooth = elementwise.softplus(x, self.beta)
        return elementwise.where(x * self.beta > self.threshold, x, smooth)


@dataclass(eq=False)
class Softshrink:
    """See `lamina.softshrink`."""

    lambd: float = 0.5

    def __call__(self, x: Tensor) -> Tensor:
        return activations.softshrink(x, self.lambd)


@dataclass(eq=False)
class Softsign:
    """See `lamina.softsign`."""

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.softsign(x)


@dataclass(eq=False)
class Tanh:
    """See `lamina.tanh`."""

    def __call__(self, x: Tensor) -> Tensor:
        return elementwise.tanh(x)


@dataclass(eq=False)
class Tanhshrink:
    """See `lamina.tanhshrink`."""

    def __call__(self, x: Tensor) -> Tensor:
        return activations.tanhshrink(x)


@dataclass(eq=False)
class Threshold:
    """See `lamina.threshold`."""

    threshold: float
    value: float
    inplace: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return activations.threshold(x, self.threshold, self.value)

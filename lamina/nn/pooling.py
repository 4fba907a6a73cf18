"""Pooling as layers, for one to three spatial axes; see the functions of `lamina` of the same
names."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lamina.frontend.functions import pooling, windows
from lamina.frontend.functions.pooling import AdaptiveSizes
from lamina.frontend.functions.spatial import Sizes
from lamina.frontend.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d",
    "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
]  # fmt: skip


@dataclass(eq=False)
class _MaxPool:
    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0
    dilation: Sizes = 1
    return_indices: bool = False
    ceil_mode: bool = False

    _rank: ClassVar[int]

    def __call__(self, x: Tensor) -> Any:
        return pooling.max_pool(
            f"max_pool{self._rank}d", self._rank, x, self.kernel_size, self.stride, self.padding,
            self.dilation, self.ceil_mode, self.return_indices,
        )  # fmt: skip


class MaxPool1d(_MaxPool):
    """The largest element of each window of ([N,] C, L); see `lamina.max_pool1d`."""

    _rank = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window of ([N,] C, H, W); see `lamina.max_pool2d`."""

    _rank = 2


class MaxPool3d(_MaxPool):
    """The largest element of each window of ([N,] C, D, H, W); see `lamina.max_pool3d`."""

    _rank = 3


@dataclass(eq=False)
class _AvgPool:
    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None

    _rank: ClassVar[int]

    def __call__(self, x: Tensor) -> Tensor:
        return pooling.avg_pool(
            f"avg_pool{self._rank}d", self._rank, x, self.kernel_size, self.stride, self.padding,
            self.ceil_mode, self.count_include_pad, self.divisor_override,
        )  # fmt: skip


class AvgPool1d(_AvgPool):
    """The mean of each window of ([N,] C, L); see `lamina.avg_pool1d`."""

    _rank = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of ([N,] C, H, W); see `lamina.avg_pool2d`."""

    _rank = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of ([N,] C, D, H, W); see `lamina.avg_pool3d`."""

    _rank = 3


@dataclass(eq=False)
class _LPPool:
    norm_type: float
    kernel_size: Sizes
    stride: Sizes | None = None
    ceil_mode: bool = False

    _rank: ClassVar[int]

    def __call__(self, x: Tensor) -> Tensor:
        return windows.lp_pool(f"lp_pool{self._rank}d", self._rank, x, self.norm_type,
                               self.kernel_size, self.stride, self.ceil_mode)  # fmt: skip


class LPPool1d(_LPPool):
    """The root of the sum of powers of each window of ([N,] C, L); see `lamina.lp_pool1d`."""

    _rank = 1


class LPPool2d(_LPPool):
    """The root of the sum of powers of each window of ([N,] C, H, W); see `lamina.lp_pool2d`."""

    _rank = 2


class LPPool3d(_LPPool):
    """The root of the sum of powers of each window of ([N,] C, D, H, W); see `lamina.lp_pool3d`."""

    _rank = 3


@dataclass(eq=False)
class _AdaptiveAvgPool:
    output_size: AdaptiveSizes

    _rank: ClassVar[int]

    def __call__(self, x: Tensor) -> Tensor:
        name = f"adaptive_avg_pool{self._rank}d"
        return pooling.adaptive_avg_pool(name, self._rank, x, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over `output_size` windows of ([N,] C, L); see `lamina.adaptive_avg_pool1d`."""

    _rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over a grid of windows of ([N,] C, H, W); see `lamina.adaptive_avg_pool2d`."""

    _rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over a grid of windows of ([N,] C, D, H, W); see `lamina.adaptive_avg_pool3d`."""

    _rank = 3


@dataclass(eq=False)
class _AdaptiveMaxPool:
    output_size: AdaptiveSizes
    return_indices: bool = False

    _rank: ClassVar[int]

    def __call__(self, x: Tensor) -> Any:
        name = f"adaptive_max_pool{self._rank}d"
        return pooling.adaptive_max_pool(
            name, self._rank, x, self.output_size, self.return_indices
        )


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over `output_size` windows of ([N,] C, L); see `lamina.adaptive_max_pool1d`."""

    _rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over a grid of windows of ([N,] C, H, W); see `lamina.adaptive_max_pool2d`."""

    _rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over a grid of windows of ([N,] C, D, H, W); see `lamina.adaptive_max_pool3d`."""

    _rank = 3

"""Normalisation layers; see the functions of `lamina` of the same names."""

from collections.abc import Sequence
from typing import Any

from lamina.core import dtypes
from lamina.core.dtypes import DType, default_float
from lamina.errors import ShapeError
from lamina.frontend.functions import neural
from lamina.frontend.tensor import Tensor
from lamina.nn.initial import scale_and_shift
from lamina.nn.state import filled

__all__ = [
    "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "RMSNorm",
]  # fmt: skip


class LayerNorm:
    """Normalise over the last axes, whose sizes are `normalized_shape`; see `lamina.layer_norm`."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
        elementwise_affine: bool = True, bias: bool = True, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight, self.bias = scale_and_shift(
            normalized_shape, elementwise_affine, dtype, device, bias
        )

    def __call__(self, x: Tensor) -> Tensor:
        return neural.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm:
    """Divide by the root mean square over the last axes; see `lamina.rms_norm`."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight, _ = scale_and_shift(
            normalized_shape, elementwise_affine, dtype, device, bias=False
        )

    def __call__(self, x: Tensor) -> Tensor:
        return neural.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm:
    """Normalise groups of channels of each sample; see `lamina.group_norm`."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"{num_channels} channels in {num_groups} groups", operation="GroupNorm"
            )
        self.num_groups, self.eps = num_groups, eps
        self.weight, self.bias = scale_and_shift(num_channels, affine, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        return neural.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm:
    """Normalise each channel of each sample, (N, C, spatial...); see `lamina.instance_norm`.

    With `track_running_stats` every call while training moves `running_mean` and `running_var` by
    the share `momentum` (None: not at all), and evaluation normalises by them. As in PyTorch,
    `num_batches_tracked` is part of the state and does not count."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = False, track_running_stats: bool = False, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.eps, self.momentum, self.training = eps, momentum, True
        self.weight, self.bias = scale_and_shift(num_features, affine, dtype, device)
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = filled((num_features,), 0.0, dtype, device)
            self.running_var = filled((num_features,), 1.0, dtype, device)
            self.num_batches_tracked = filled((), 0, dtypes.int64, device)

    def __call__(self, x: Tensor) -> Tensor:
        mean, variance = self.running_mean, self.running_var
        if mean is None or variance is None:
            output: Tensor = neural.instance_norm(x, self.weight, self.bias, self.eps)
            return output
        result: neural.BatchNorm = neural.instance_norm(
            x, self.weight, self.bias, self.eps, running_mean=mean, running_var=variance,
            use_input_stats=self.training, momentum=self.momentum or 0.0,
        )  # fmt: skip
        if self.training:
            mean.assign(result.running_mean)
            variance.assign(result.running_var)
        return result.output


InstanceNorm1d = InstanceNorm2d = InstanceNorm3d = InstanceNorm


class BatchNorm:
    """Normalise each channel of (N, C, ...) over all samples; see `lamina.batch_norm`.

    While training, every call moves `running_mean` and `running_var` towards the statistics of
    its input by the share `momentum` (None: they become the average over all calls)."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.eps, self.momentum, self.training = eps, momentum, True
        self.weight, self.bias = scale_and_shift(num_features, affine, dtype, device)
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = filled((num_features,), 0.0, dtype, device)
            self.running_var = filled((num_features,), 1.0, dtype, device)
            self.num_batches_tracked = filled((), 0, dtypes.int64, device)

    def __call__(self, x: Tensor) -> Tensor:
        count = self.num_batches_tracked if self.training else None
        share: Any = self.momentum
        if share is None and count is not None:
            share = 1.0 / (count + 1).cast(dtypes.float32)
        output, *moved = neural.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, count is not None,
            share, self.eps,
        )  # fmt: skip
        if count is not None:
            held: list[Any] = [self.running_mean, self.running_var, count]
            for statistic, new in zip(held, [*moved, count + 1], strict=True):
                statistic.assign(new)
        return output


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm

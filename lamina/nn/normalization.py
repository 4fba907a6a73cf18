"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence

from lamina import dtypes
from lamina.dtypes import DType
from lamina.errors import ShapeError
from lamina.nn.state import default_dtype, filled, settle
from lamina.tensor import normalization
from lamina.tensor.core import Tensor


class LayerNorm:
    """Normalise over the last axes, whose sizes are `normalized_shape`; see `lamina.layer_norm`."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.weight = self.bias = None
        if elementwise_affine:
            self.weight = filled(self.normalized_shape, 1.0, dtype, device, True)
            self.bias = filled(self.normalized_shape, 0.0, dtype, device, True) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return normalization.layer_norm(
            x, self.normalized_shape, self.weight, self.bias, self.eps
        )


class RMSNorm:
    """Divide by the root mean square over the last axes; see `lamina.rms_norm`."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.weight = (
            filled(self.normalized_shape, 1.0, dtype, device, True) if elementwise_affine else None
        )

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return normalization.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm:
    """Normalise groups of channels of each sample; see `lamina.group_norm`."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_channels} channels in {num_groups} groups")
        self.num_groups, self.eps = num_groups, eps
        self.weight = filled((num_channels,), 1.0, dtype, device, True) if affine else None
        self.bias = filled((num_channels,), 0.0, dtype, device, True) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return normalization.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm:
    """Normalise each channel of each sample, (N, C, spatial...); see `lamina.instance_norm`."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = False,
        dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:
        self.eps = eps
        self.weight = filled((num_features,), 1.0, dtype, device, True) if affine else None
        self.bias = filled((num_features,), 0.0, dtype, device, True) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return normalization.instance_norm(x, self.weight, self.bias, self.eps)


class BatchNorm:
    """Normalise each channel of (N, C, ...) over all samples; see `lamina.batch_norm`.

    While training, every call moves `running_mean` and `running_var` towards the statistics of
    its input by the share `momentum` (None: they become the average over all calls).
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:
        self.eps, self.momentum = eps, momentum
        self.training = True
        self.weight = self.bias = None
        if affine:
            self.weight = filled((num_features,), 1.0, dtype, device, True)
            self.bias = filled((num_features,), 0.0, dtype, device, True)
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = filled((num_features,), 0.0, dtype, device)
            self.running_var = filled((num_features,), 1.0, dtype, device)
            self.num_batches_tracked = filled((), 0, dtypes.int64, device)

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        if not self.training or self.num_batches_tracked is None:
            return normalization.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            ).output
        assert self.running_mean is not None
        assert self.running_var is not None
        momentum = self.momentum
        share: float | Tensor = 0.0 if momentum is None else momentum
        if momentum is None:
            share = 1.0 / (self.num_batches_tracked + 1).cast(self.running_mean.dtype)
        found = normalization.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, True,
            share, self.eps,  # type: ignore[arg-type]
        )  # fmt: skip
        assert found.running_mean is not None
        assert found.running_var is not None
        self.running_mean.assign(found.running_mean.detach())
        self.running_var.assign(found.running_var.detach())
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)
        return found.output


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


def _shape(sizes: int | Sequence[int]) -> tuple[int, ...]:
    return (sizes,) if isinstance(sizes, int) else tuple(sizes)

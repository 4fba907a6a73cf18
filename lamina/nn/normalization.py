"""Normalisation layers: the functions of the same names, with parameters."""

from __future__ import annotations

from collections.abc import Sequence

from lamina import dtypes
from lamina.dtypes import DType
from lamina.errors import ShapeError
from lamina.nn.state import default_dtype, filled, settle
from lamina.tensor import normalization
from lamina.tensor.core import Tensor

Pair = tuple[Tensor | None, Tensor | None]


def _affine(
    shape: int | Sequence[int], affine: bool, dtype: DType, device: str | None, bias: bool = True
) -> Pair:
    """A weight of ones and a bias of zeros, where they are wanted."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    weight = filled(sizes, 1.0, dtype, device, True) if affine else None
    return weight, filled(sizes, 0.0, dtype, device, True) if affine and bias else None


class LayerNorm:
    """Normalise over the last axes, whose sizes are `normalized_shape`; see `lamina.layer_norm`."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
        elementwise_affine: bool = True, bias: bool = True, dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight, self.bias = _affine(normalized_shape, elementwise_affine, dtype, device, bias)

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return normalization.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm:
    """Divide by the root mean square over the last axes; see `lamina.rms_norm`."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight, _ = _affine(normalized_shape, elementwise_affine, dtype, device, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return normalization.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm:
    """Normalise groups of channels of each sample; see `lamina.group_norm`."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_channels} channels in {num_groups} groups")
        self.num_groups, self.eps = num_groups, eps
        self.weight, self.bias = _affine(num_channels, affine, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return normalization.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm:
    """Normalise each channel of each sample, (N, C, spatial...); see `lamina.instance_norm`."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, affine: bool = False,
        dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        self.eps = eps
        self.weight, self.bias = _affine(num_features, affine, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return normalization.instance_norm(x, self.weight, self.bias, self.eps)


class BatchNorm:
    """Normalise each channel of (N, C, ...) over all samples; see `lamina.batch_norm`.

    While training, every call moves `running_mean` and `running_var` towards the statistics of
    its input by the share `momentum` (None: they become the average over all calls).
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.eps, self.momentum, self.training = eps, momentum, True
        self.weight, self.bias = _affine(num_features, affine, dtype, device)
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = filled((num_features,), 0.0, dtype, device)
            self.running_var = filled((num_features,), 1.0, dtype, device)
            self.num_batches_tracked = filled((), 0, dtypes.int64, device)

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        count = self.num_batches_tracked if self.training else None
        share: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if count is not None and self.momentum is None:
            share = 1.0 / (count + 1).cast(dtypes.float32)
        found = normalization.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, count is not None,
            share, self.eps,  # type: ignore[arg-type]
        )  # fmt: skip
        if count is not None:
            for held, new in zip((self.running_mean, self.running_var), found[1:], strict=True):
                assert held is not None
                assert new is not None
                held.assign(new.detach())
            count.assign(count + 1)
        return found.output


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm

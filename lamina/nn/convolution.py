"""Convolution layers for one, two and three axes, and their adjoints; see `lamina.conv2d`."""

from __future__ import annotations

from typing import ClassVar

from lamina.dtypes import DType
from lamina.errors import ShapeError
from lamina.nn.state import default_dtype, fan_in_bound, settle, uniform_parameter
from lamina.tensor import convolution
from lamina.tensor.core import Tensor
from lamina.tensor.windows import Sizes, per_axis


class _Convolution:
    """weight: (out_channels, in_channels / groups, *kernel_size), and of an adjoint
    (in_channels, out_channels / groups, *kernel_size). bias: (out_channels,) or None."""

    _rank: ClassVar[int]
    padding: Sizes | str

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
        padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1, bias: bool = True,
        dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self._create((out_channels, in_channels), kernel_size, out_channels, bias, dtype, device)

    def _create(
        self, channels: tuple[int, int], kernel_size: Sizes, outputs: int, bias: bool,
        dtype: DType, device: str | None,
    ) -> None:  # fmt: skip
        what, groups = type(self).__name__, self.groups
        if groups < 1 or channels[0] % groups or channels[1] % groups:
            raise ShapeError(f"{what}: {channels[0]} and {channels[1]} channels do not divide into "
                             f"{groups} groups")  # fmt: skip
        kernel = per_axis(what, "kernel_size", kernel_size, self._rank)
        shape = (channels[0], channels[1] // groups, *kernel)
        bound = fan_in_bound(shape)
        self.weight = uniform_parameter(shape, bound, dtype, device)
        self.bias = uniform_parameter((outputs,), bound, dtype, device) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        function = (convolution.conv1d, convolution.conv2d, convolution.conv3d)[self._rank - 1]
        return function(x, self.weight, self.bias, self.stride, self.padding, self.dilation,
                        self.groups)  # fmt: skip


class Conv1d(_Convolution):
    """Cross-correlation of sequences, (N, C, L)."""

    _rank = 1


class Conv2d(_Convolution):
    """Cross-correlation of images, (N, C, H, W)."""

    _rank = 2


class Conv3d(_Convolution):
    """Cross-correlation of volumes, (N, C, D, H, W)."""

    _rank = 3


class _Transposed(_Convolution):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
        padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, bias: bool = True,
        dilation: Sizes = 1, dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.dilation, self.groups = dilation, groups
        self._create((in_channels, out_channels), kernel_size, out_channels, bias, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        function = (
            convolution.conv_transpose1d, convolution.conv_transpose2d,
            convolution.conv_transpose3d,
        )[self._rank - 1]  # fmt: skip
        return function(
            x, self.weight, self.bias, self.stride, self.padding,  # type: ignore[arg-type]
            self.output_padding, self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_Transposed):
    """The adjoint of `Conv1d`."""

    _rank = 1


class ConvTranspose2d(_Transposed):
    """The adjoint of `Conv2d`."""

    _rank = 2


class ConvTranspose3d(_Transposed):
    """The adjoint of `Conv3d`."""

    _rank = 3

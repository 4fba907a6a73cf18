"""Convolution layers for one, two and three axes, and their adjoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from lamina.dtypes import DType
from lamina.errors import ShapeError
from lamina.nn.state import default_dtype, fan_in_bound, settle, uniform_parameter
from lamina.tensor import convolution
from lamina.tensor.core import Tensor

Sizes = int | Sequence[int]


def _sizes(what: str, value: Sizes, rank: int) -> tuple[int, ...]:
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) != rank:
        raise ShapeError(f"{what}: {sizes} has {len(sizes)} sizes; {rank} are needed")
    return sizes


def _check_groups(what: str, in_channels: int, out_channels: int, groups: int) -> None:
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise ShapeError(
            f"{what}: {in_channels} and {out_channels} channels do not divide into {groups} groups"
        )


class _Convolution:
    """weight: (out_channels, in_channels / groups, *kernel_size). bias: (out_channels,)."""

    _rank: ClassVar[int]
    _function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:
        what = type(self).__name__
        _check_groups(what, in_channels, out_channels, groups)
        kernel = _sizes(what, kernel_size, self._rank)
        shape = (out_channels, in_channels // groups, *kernel)
        bound = fan_in_bound(shape)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight = uniform_parameter(shape, bound, dtype, device)
        self.bias = uniform_parameter((out_channels,), bound, dtype, device) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return type(self)._function(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv1d(_Convolution):
    """Cross-correlation of sequences, (N, C, L); see `lamina.conv1d`."""

    _rank = 1
    _function = staticmethod(convolution.conv1d)


class Conv2d(_Convolution):
    """Cross-correlation of images, (N, C, H, W); see `lamina.conv2d`."""

    _rank = 2
    _function = staticmethod(convolution.conv2d)


class Conv3d(_Convolution):
    """Cross-correlation of volumes, (N, C, D, H, W); see `lamina.conv3d`."""

    _rank = 3
    _function = staticmethod(convolution.conv3d)


class _Transposed:
    """weight: (in_channels, out_channels / groups, *kernel_size). bias: (out_channels,)."""

    _rank: ClassVar[int]
    _function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        dtype: DType = default_dtype,
        device: str | None = None,
    ) -> None:
        what = type(self).__name__
        _check_groups(what, in_channels, out_channels, groups)
        kernel = _sizes(what, kernel_size, self._rank)
        shape = (in_channels, out_channels // groups, *kernel)
        bound = fan_in_bound(shape)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.groups, self.dilation = groups, dilation
        self.weight = uniform_parameter(shape, bound, dtype, device)
        self.bias = uniform_parameter((out_channels,), bound, dtype, device) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        settle()
        return type(self)._function(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding,
            self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_Transposed):
    """The adjoint of `Conv1d`; see `lamina.conv_transpose1d`."""

    _rank = 1
    _function = staticmethod(convolution.conv_transpose1d)


class ConvTranspose2d(_Transposed):
    """The adjoint of `Conv2d`; see `lamina.conv_transpose2d`."""

    _rank = 2
    _function = staticmethod(convolution.conv_transpose2d)


class ConvTranspose3d(_Transposed):
    """The adjoint of `Conv3d`; see `lamina.conv_transpose3d`."""

    _rank = 3
    _function = staticmethod(convolution.conv_transpose3d)

"""Convolutions and their adjoints, see `lamina.conv2d` and `lamina.conv_transpose2d`."""

from typing import ClassVar

from lamina.core.dtypes import DType, default_float
from lamina.errors import ShapeError
from lamina.frontend.functions import spatial
from lamina.frontend.functions.spatial import Sizes, per_axis
from lamina.frontend.tensor import Tensor
from lamina.nn.initial import weight_and_bias

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
]  # fmt: skip


class _Convolution:
    """weight: (out_channels, in_channels / groups, *kernel_size), and of an adjoint
    (in_channels, out_channels / groups, *kernel_size). bias: (out_channels,) or None."""

    _rank: ClassVar[int]
    _adjoint: ClassVar[bool] = False

    def __init_subclass__(cls, rank: int = 0) -> None:
        if rank:
            cls._rank = rank

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
        padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1, bias: bool = True,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        what, pair = type(self).__name__, (out_channels, in_channels)
        rows, columns = pair[::-1] if self._adjoint else pair
        if groups < 1 or rows % groups or columns % groups:
            raise ShapeError(
                f"{groups} groups do not divide {rows} and {columns} channels", operation=what
            )
        kernel = per_axis(what, "kernel_size", kernel_size, self._rank)
        shape = (rows, columns // groups, *kernel)
        self.weight, self.bias = weight_and_bias(shape, out_channels, bias, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        return spatial.conv(f"conv{self._rank}d", self._rank, x, self.weight, self.bias,
                            self.stride, self.padding, self.dilation, self.groups)  # fmt: skip


class Conv1d(_Convolution, rank=1):
    """Cross-correlation of sequences, (N, C, L)."""


class Conv2d(_Convolution, rank=2):
    """Cross-correlation of images, (N, C, H, W)."""


class Conv3d(_Convolution, rank=3):
    """Cross-correlation of volumes, (N, C, D, H, W)."""


class _Transposed(_Convolution):
    _adjoint = True
    padding: Sizes

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
        padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, bias: bool = True,
        dilation: Sizes = 1, dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                         bias, dtype, device)  # fmt: skip
        self.output_padding = output_padding

    def __call__(self, x: Tensor) -> Tensor:
        return spatial.conv_transpose(
            f"conv_transpose{self._rank}d", self._rank, x, self.weight, self.bias, self.stride,
            self.padding, self.output_padding, self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_Transposed, rank=1):
    """The adjoint of `Conv1d`."""


class ConvTranspose2d(_Transposed, rank=2):
    """The adjoint of `Conv2d`."""


class ConvTranspose3d(_Transposed, rank=3):
    """The adjoint of `Conv3d`."""

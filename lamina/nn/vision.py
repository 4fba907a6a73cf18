"""Layers that change the sizes of images; see the functions of `lamina` of the same meaning."""

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.frontend.functions import resize, vision, windows
from lamina.frontend.functions.spatial import Sizes
from lamina.frontend.tensor import Tensor

__all__ = [
    "ChannelShuffle", "Fold", "LocalResponseNorm", "PixelShuffle", "PixelUnshuffle", "Unfold",
    "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d",
]  # fmt: skip


@dataclass(eq=False)
class Upsample:
    """Images at `size`, or `scale_factor` times as large; see `lamina.interpolate`."""

    size: Sizes | None = None
    scale_factor: float | Sequence[float] | None = None
    mode: str = "nearest"
    align_corners: bool | None = None

    def __call__(self, x: Tensor) -> Tensor:
        corners = bool(self.align_corners)
        return resize.interpolate(x, self.size, self.scale_factor, self.mode, corners)


class UpsamplingNearest2d(Upsample):
    """`Upsample` that takes the nearest pixel."""

    def __init__(
        self, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` that interpolates, with the outermost pixels of input and output the same."""

    def __init__(
        self, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


@dataclass(eq=False)
class PixelShuffle:
    """See `lamina.pixel_shuffle`."""

    upscale_factor: int

    def __call__(self, x: Tensor) -> Tensor:
        return vision.pixel_shuffle(x, self.upscale_factor)


@dataclass(eq=False)
class PixelUnshuffle:
    """See `lamina.pixel_unshuffle`."""

    downscale_factor: int

    def __call__(self, x: Tensor) -> Tensor:
        return vision.pixel_unshuffle(x, self.downscale_factor)


@dataclass(eq=False)
class ChannelShuffle:
    """See `lamina.channel_shuffle`."""

    groups: int

    def __call__(self, x: Tensor) -> Tensor:
        return vision.channel_shuffle(x, self.groups)


@dataclass(eq=False)
class Unfold:
    """See `lamina.unfold`."""

    kernel_size: Sizes
    dilation: Sizes = 1
    padding: Sizes = 0
    stride: Sizes = 1

    def __call__(self, x: Tensor) -> Tensor:
        return windows.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


@dataclass(eq=False)
class Fold:
    """See `lamina.fold`."""

    output_size: Sizes
    kernel_size: Sizes
    dilation: Sizes = 1
    padding: Sizes = 0
    stride: Sizes = 1

    def __call__(self, x: Tensor) -> Tensor:
        return windows.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding,
                            self.stride)  # fmt: skip


@dataclass(eq=False)
class LocalResponseNorm:
    """See `lamina.local_response_norm`."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        return windows.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

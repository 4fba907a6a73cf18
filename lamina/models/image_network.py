"""What networks of images share: convolutions, normalizations of channels, and the classes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lamina.core.dtypes import float32
from lamina.errors import ShapeError
from lamina.frontend.functions import spatial
from lamina.frontend.functions.neural import batch_norm
from lamina.frontend.functions.spatial import Sizes
from lamina.frontend.tensor import Tensor
from lamina.models.network import Network
from lamina.models.parts import floats
from lamina.models.weights import Source

__all__ = ["BatchNorm", "Convolution", "ImageClassifier", "check_images"]


class ImageClassifier(Network, ABC):
    """Images (batch, channels, height, width), normalized, to the logits of classes, (batch,
    classes). labels: the names of the classes."""

    channels: int
    labels: tuple[str, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Raises ShapeError for images of other axes, channels or sizes."""
        check_images(images, self.channels, type(self).__name__)
        return self.logits(images)

    @abstractmethod
    def logits(self, images: Tensor) -> Tensor:
        """Of images whose axes and channels are right."""


def check_images(images: Tensor, channels: int, what: str) -> None:
    """Raises ShapeError, of the network `what`, for other than (batch, channels, height, width)."""
    if images.ndim != 4 or images.shape[1] != channels:
        raise ShapeError(
            f"images of shape {images.shape}; (batch, {channels}, height, width) is needed",
            operation=what,
        )


class Convolution:
    """Cross-correlation of images, or of signals for a kernel of one axis. weight: (outputs,
    inputs / groups, *kernel)."""

    def __init__(
        self, source: Source, name: str, inputs: int, outputs: int, kernel: tuple[int, ...],
        stride: Sizes = 1, padding: Sizes = 0, groups: int = 1, bias: bool = True,
    ) -> None:  # fmt: skip
        self._rank, self._stride, self._padding, self._groups = len(kernel), stride, padding, groups
        self.weight = source.take(f"{name}.weight", (outputs, inputs // groups, *kernel))
        self.bias = source.vector(f"{name}.bias", outputs) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """x: (batch, inputs, *sizes); the result has `outputs` channels."""
        bias = None if self.bias is None else self.bias.cast(float32)
        return spatial.conv(
            f"conv{self._rank}d", self._rank, x, floats(self.weight), bias, self._stride,
            self._padding, groups=self._groups,
        )  # fmt: skip


class BatchNorm:
    """Channels normalized by the mean and the variance that a file has of them, in training as well
    (Ioffe and Szegedy 2015, "Batch normalization")."""

    def __init__(self, source: Source, name: str, size: int, eps: float = 1e-5) -> None:
        self.weight = source.vector(f"{name}.weight", size)
        self.bias = source.vector(f"{name}.bias", size)
        self.running_mean = source.vector(f"{name}.running_mean", size)
        self.running_var = source.vector(f"{name}.running_var", size)
        source.ignore(f"{name}.num_batches_tracked")
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        mean, variance = self.running_mean.cast(float32), self.running_var.cast(float32)
        weight, bias = self.weight.cast(float32), self.bias.cast(float32)
        return batch_norm(x, mean, variance, weight, bias, eps=self._eps).output

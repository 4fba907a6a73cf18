"""Images of other sizes, by filters that are as wide as the pixels of the smaller of two images.

The numbers are those of Pillow, which the models' images were made with: an axis after the other,
the horizontal one first, and what is between them is rounded to bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FILTERS", "Filter", "resized"]

Array = Any  # numpy.ndarray


@dataclass(frozen=True)
class Filter:
    """The weight of a pixel at a distance from the centre, in pixels; zero from `reach` on."""

    reach: float
    weight: Callable[[Array], Array]


def resized(image: Array, height: int, width: int, kernel: Filter) -> Array:
    """Bytes (height, width, channels), to bytes of another height and width."""
    wide = _along(image, width, 1, kernel)
    return _along(wide, height, 0, kernel)


def _along(image: Array, size: int, axis: int, kernel: Filter) -> Array:
    import numpy as np

    if image.shape[axis] == size:
        return image
    sums = np.tensordot(_weights(image.shape[axis], size, kernel), image, axes=(1, axis))
    return np.moveaxis(np.clip(np.floor(sums + 0.5), 0, 255).astype(np.uint8), 0, axis)


def _weights(before: int, after: int, kernel: Filter) -> Array:
    """Of pixels for each new pixel, (after, before). From 4 pixels to 2, a new one is at 1.0 of the
    axis, and bilinear weights of the old ones, whose centres are 0.5 to 3.5, are 3, 3, 1 and 0
    sevenths: the filter reaches 2 pixels."""
    import numpy as np

    scale = before / after
    width = max(scale, 1.0)  # of a pixel of the filter
    centres = (np.arange(after) + 0.5) * scale
    first = np.floor(np.maximum(centres - kernel.reach * width + 0.5, 0))
    last = np.floor(np.minimum(centres + kernel.reach * width + 0.5, before))
    places = np.arange(before)
    is_near = (places >= first[:, None]) & (places < last[:, None])
    distances = (places + 0.5 - centres[:, None]) / width
    weights = np.where(is_near, kernel.weight(distances), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def _triangle(distances: Array) -> Array:
    import numpy as np

    return np.maximum(1 - np.abs(distances), 0)


def _cubic(distances: Array) -> Array:
    """Keys 1981, "Cubic convolution interpolation", with the slope -0.5 at a distance of 1."""
    import numpy as np

    d = np.abs(distances)
    near = (1.5 * d - 2.5) * d * d + 1
    far = ((-0.5 * d + 2.5) * d - 4) * d + 2
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def _lanczos(distances: Array) -> Array:
    import numpy as np

    return np.where(np.abs(distances) < 3, np.sinc(distances) * np.sinc(distances / 3), 0.0)


# By Pillow's numbers, which files have.
FILTERS: Mapping[int, Filter] = {
    1: Filter(3, _lanczos),
    2: Filter(1, _triangle),
    3: Filter(2, _cubic),
}

"""Images of files, as a model wants them, and the names of what is on them.

``preprocessor_config.json`` says how large images are, and what is done to their pixels.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lamina.errors import ArgumentError, MissingPackageError
from lamina.frontend.functions.creation import asarray
from lamina.frontend.functions.reduction import softmax
from lamina.models.fields import Fields, read_object
from lamina.models.image_network import ImageClassifier
from lamina.models.loading import Model, load
from lamina.models.resampling import FILTERS, Filter, resized

__all__ = ["Label", "Labels", "Preprocessing", "read_image"]

Array = Any  # numpy.ndarray

_MODES = {1: "L", 3: "RGB"}  # Pillow's, by the number of channels
_LARGEST = 1 << 14  # pixels of a side; more are a mistake in a file, and much memory
_LEAST_UNCROPPED = 384  # pixels of a side, from which on images of ConvNeXt are not cropped


@dataclass(frozen=True)
class Preprocessing:
    """What is done to an image of bytes, in this order.

    shortest: the shorter side is resized to so many pixels, and the other one in proportion; or
    exact: to a height and a width. Neither leaves the image as large as it is. crop: the
    height and the width of the part in the middle that is kept. scale: of the bytes. mean,
    deviation: of the channels, which are normalized by them."""

    shortest: int | None
    exact: tuple[int, int] | None
    crop: tuple[int, int] | None
    filter: Filter
    scale: float
    mean: Sequence[float]
    deviation: Sequence[float]

    @classmethod
    def of_folder(cls, folder: Path, channels: int) -> Preprocessing:
        """As ``preprocessor_config.json`` says. Raises FormatError, which names the field, and
        OSError."""
        path = folder / "preprocessor_config.json"
        return _read(Fields(read_object(path), str(path)), channels)

    def __call__(self, image: Array) -> Array:
        """Bytes (height, width, channels) to float32 (channels, height, width). Raises
        ArgumentError for images that are smaller than what is kept of them."""
        import numpy as np

        pixels = self._cropped(self._resized(image)).astype(np.float32)
        mean, deviation = (np.asarray(x, np.float32) for x in (self.mean, self.deviation))
        normalized = (pixels * np.float32(self.scale) - mean) / deviation
        return np.ascontiguousarray(normalized.transpose(2, 0, 1))

    def _resized(self, image: Array) -> Array:
        height, width = image.shape[:2]
        if self.exact is not None:
            height, width = self.exact
        elif self.shortest is not None:
            short = min(height, width)
            height, width = self.shortest * height // short, self.shortest * width // short
        return resized(image, height, width, self.filter)

    def _cropped(self, image: Array) -> Array:
        if self.crop is None:
            return image
        (height, width), (rows, columns) = image.shape[:2], self.crop
        if rows > height or columns > width:
            raise ArgumentError(
                f"an image of {height} x {width} pixels; {rows} x {columns} of it are needed"
            )
        top, left = (height - rows) // 2, (width - columns) // 2
        return image[top : top + rows, left : left + columns]


def _read(fields: Fields, channels: int) -> Preprocessing:
    shortest, exact, crop = _sizes(fields)
    number = fields.get("resample", 2)
    if not isinstance(number, int) or number not in FILTERS:
        known = ", ".join(map(str, FILTERS))
        raise fields.fail("resample", f"{number!r}; known filters are those of the numbers {known}")
    mean, deviation = [0.0] * channels, [1.0] * channels
    if fields.flag("do_normalize", True):
        mean = _of_channels(fields, "image_mean", channels)
        deviation = _of_channels(fields, "image_std", channels)
    return Preprocessing(
        shortest=shortest,
        exact=exact,
        crop=crop,
        filter=FILTERS[number],
        scale=fields.number("rescale_factor", 1 / 255) if fields.flag("do_rescale", True) else 1.0,
        mean=mean,
        deviation=deviation,
    )


class _Sizes(NamedTuple):
    """Those of `Preprocessing`."""

    shortest: int | None
    exact: tuple[int, int] | None
    crop: tuple[int, int] | None


def _sizes(fields: Fields) -> _Sizes:
    """``size`` is an object; in older files it is a number, of the shorter side where something is
    cropped afterwards, and otherwise of both sides. Files of ConvNeXt have a share, ``crop_pct``:
    of 0.875 and a size of 224 an image is resized to 256, of which the middle 224 are kept."""
    is_cropped, has_share = fields.flag("do_center_crop"), fields.get("crop_pct") is not None
    crop = _height_and_width(fields, "crop_size") if is_cropped else None
    if not fields.flag("do_resize", True):
        return _Sizes(None, None, crop)
    if isinstance(fields.get("size"), dict):
        size = fields.part("size")
        if "shortest_edge" not in size.values:
            return _Sizes(None, _height_and_width(fields, "size"), crop)
        shortest = size.size("shortest_edge", largest=_LARGEST)
    else:
        shortest = fields.size("size", 224, _LARGEST)
        if not is_cropped and not has_share:
            return _Sizes(None, (shortest, shortest), crop)
    if not has_share:
        return _Sizes(shortest, None, crop)
    if shortest >= _LEAST_UNCROPPED:
        return _Sizes(None, (shortest, shortest), crop)
    larger = min(int(shortest / fields.number("crop_pct")), _LARGEST)
    return _Sizes(larger, None, crop or (shortest, shortest))


def _height_and_width(fields: Fields, name: str) -> tuple[int, int]:
    if not isinstance(fields.get(name), dict):
        size = fields.size(name, largest=_LARGEST)
        return size, size
    part = fields.part(name)
    return part.size("height", largest=_LARGEST), part.size("width", largest=_LARGEST)


def _of_channels(fields: Fields, name: str, channels: int) -> list[float]:
    values = fields.get(name)
    is_list = isinstance(values, list) and len(values) == channels
    if not is_list or not all(isinstance(value, (int, float)) for value in values):
        raise fields.fail(name, f"{values!r}; {channels} numbers are needed")
    if name == "image_std" and not all(value > 0 for value in values):
        raise fields.fail(name, f"{values!r}; positive numbers are needed")
    return [float(value) for value in values]


def read_image(path: str | os.PathLike[str], channels: int = 3) -> Array:
    """The bytes of a file, (height, width, channels); one channel is grey, three are red, green and
    blue. Raises ArgumentError for other numbers of channels, MissingPackageError without Pillow,
    and OSError for what is no image."""
    import numpy as np

    if channels not in _MODES:
        raise ArgumentError(f"{channels} channels; images of files have 1 or 3")
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError:
        raise MissingPackageError(
            "reading images needs the package pillow: pip install 'lamina[images]'"
        ) from None
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image)  # cameras say how they were held
        pixels = np.asarray(upright.convert(_MODES[channels]))
    return pixels.reshape((*pixels.shape[:2], -1))


class Label(NamedTuple):
    """What may be on an image."""

    name: str
    probability: float


class Labels:
    """A model that says what is on images, from a folder. Raises ArgumentError for models that are
    none, and FormatError and OSError as `load` and `Preprocessing.of_folder` do."""

    def __init__(self, folder: str | os.PathLike[str], device: str | None = None) -> None:
        model = load(folder, device)
        self.network = _classifier(model)
        assert model.folder is not None  # GGUF files have no such networks
        self.preprocessing = Preprocessing.of_folder(model.folder, self.network.channels)
        self._device = model.device

    def best(self, image: Array, count: int) -> list[Label]:
        """The most probable `count` labels of an image of bytes, (height, width, channels). Raises
        ArgumentError as `Preprocessing` does."""
        pixels = asarray(self.preprocessing(image)[None], device=self._device)
        probabilities = softmax(self.network(pixels), axis=-1).numpy()[0]
        order = (-probabilities).argsort(kind="stable")[:count]
        names = self.network.labels
        return [Label(names[number], float(probabilities[number])) for number in order]


def _classifier(model: Model) -> ImageClassifier:
    if not isinstance(model.network, ImageClassifier):
        kind = type(model.network).__name__
        raise ArgumentError(f"{kind} names nothing on images", operation="load")
    return model.network

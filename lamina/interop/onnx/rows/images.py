"""The row of images in the formats of files, which Pillow decodes where it is installed."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row

# The formats that ONNX lists, by Pillow's names. Others may start programs, as EPS does.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}  # Pillow's names of pixel formats


@row("ImageDecoder")
def decode_image(context: Context, encoded: Any, *, pixel_format: str = "RGB") -> Any:
    """The bytes of a file to (H, W, C) uint8, decoded on the host. Raises OnnxError for bytes of
    none of ONNX's formats."""
    if pixel_format not in _MODES:
        raise OnnxError(f"pixel_format {pixel_format!r}")
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise OnnxError("ImageDecoder needs Pillow: pip install pillow") from error
    try:
        with Image.open(BytesIO(context.host(encoded).tobytes()), formats=_FORMATS) as image:
            pixels = np.array(image.convert(_MODES[pixel_format]))
    except (OSError, Image.DecompressionBombError, SyntaxError) as error:
        raise OnnxError(f"Pillow cannot decode the image: {error}") from error
    if pixel_format == "Grayscale":
        return pixels[:, :, None]
    return np.ascontiguousarray(pixels[:, :, ::-1]) if pixel_format == "BGR" else pixels

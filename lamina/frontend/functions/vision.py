"""Images: channels moved to and from places, and sampling at points of a grid.

Names and meanings are PyTorch's.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from lamina.core.dtypes import DType, int64
from lamina.core.shape import Shape, prod
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.arguments import integer
from lamina.frontend.functions import movement
from lamina.frontend.functions.creation import arange, ones, ones_like
from lamina.frontend.functions.elementwise import abs, clip, floor, remainder, round, where
from lamina.frontend.functions.indexing import take_along_axis
from lamina.frontend.functions.linalg import matmul
from lamina.frontend.functions.resize import cubic_shares
from lamina.frontend.functions.spatial import exact
from lamina.frontend.tensor import Tensor, common_device

__all__ = ["affine_grid", "channel_shuffle", "grid_sample", "pixel_shuffle", "pixel_unshuffle"]


class Tap(NamedTuple):
    """A pixel, along one axis, that points are interpolated from."""

    place: Tensor  # int64, in the image
    share: Tensor
    exists: Tensor  # bool: where it does not, it counts as 0


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """(..., C r r, H, W) to (..., C, H r, W r) for r, the `upscale_factor`: each group of r * r
    channels becomes a square of pixels (Shi et al. 2016, "Real-time single image and video
    super-resolution", section 3.2)."""
    r = integer("pixel_shuffle", upscale_factor, 1, "upscale_factor")
    if x.ndim < 3 or x.shape[-3] % (r * r):
        raise ShapeError(
            f"{x.shape} has no channels in groups of {r * r}", operation="pixel_shuffle"
        )
    *batch, channels, height, width = x.shape
    first = len(batch)
    apart = movement.reshape(x, (*batch, channels // (r * r), r, r, height, width))
    order = (*range(first), first, first + 3, first + 1, first + 4, first + 2)
    result = movement.permute_dims(apart, order)
    return movement.reshape(result, (*batch, channels // (r * r), height * r, width * r))


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H r, W r) to (..., C r r, H, W): what undoes `pixel_shuffle`."""
    r = integer("pixel_unshuffle", downscale_factor, 1, "downscale_factor")
    if x.ndim < 3 or x.shape[-2] % r or x.shape[-1] % r:
        raise ShapeError(
            f"{x.shape} does not divide into squares of {r} pixels", operation="pixel_unshuffle"
        )
    *batch, channels, tall, wide = x.shape
    first = len(batch)
    apart = movement.reshape(x, (*batch, channels, tall // r, r, wide // r, r))
    order = (*range(first), first, first + 2, first + 4, first + 1, first + 3)
    result = movement.permute_dims(apart, order)
    return movement.reshape(result, (*batch, channels * r * r, tall // r, wide // r))


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels of `x`, (N, C, ...), in another order: the first of each group, then the second
    of each, and so on (Zhang et al. 2018, "ShuffleNet", section 3.1)."""
    groups = integer("channel_shuffle", groups, 1, "groups")
    if x.ndim < 3 or x.shape[1] % groups:
        raise ShapeError(
            f"{x.shape} has no channels in {groups} groups", operation="channel_shuffle"
        )
    batch, channels, *rest = x.shape
    apart = movement.reshape(x, (batch, groups, channels // groups, *rest))
    return movement.reshape(movement.transpose(apart, 1, 2), x.shape)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """The points where `grid_sample` is to look, for an affine map of the output's points.

    theta: (N, 2, 3) with size (N, C, H, W), or (N, 3, 4) with size (N, C, D, H, W).
    Result: (N, H, W, 2) or (N, D, H, W, 3), the coordinates in the order x, y, z; -1 and 1 are the
    borders of an axis, or the centres of its outermost pixels with `align_corners`."""
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1):
        raise ShapeError(
            f"theta {theta.shape} for size {tuple(size)}; (N, 2, 3) with "
            "4 sizes or (N, 3, 4) with 5 are needed",
            operation="affine_grid",
        )
    values, sizes = exact("affine_grid", theta), tuple(size[2:])
    points = []
    for axis in reversed(range(rank)):  # x is the last axis
        centres = _centres(sizes[axis], align_corners, values.dtype, theta.device)
        line = movement.reshape(centres, (-1, *(1,) * (rank - 1 - axis)))
        points.append(movement.broadcast_to(line, sizes))
    points.append(ones(sizes, dtype=values.dtype, device=theta.device))
    flat = movement.reshape(movement.stack(points, axis=-1), (prod(sizes), rank + 1))
    moved = matmul(flat, movement.matrix_transpose(values))
    return movement.reshape(moved, (size[0], *sizes, rank)).cast(theta.dtype)


def _centres(count: int, align_corners: bool, dtype: DType, device: str) -> Tensor:
    """The centres of `count` pixels, where -1 and 1 are as in `affine_grid`."""
    places = arange(count, device=device).cast(dtype)
    if align_corners:
        return places * (2.0 / (count - 1)) - 1.0 if count > 1 else places
    return (places * 2.0 + (1.0 - count)) / float(count)


def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:  # fmt: skip
    """The values of images `x` at the points of `grid`, between the pixels interpolated.

    x: (N, C, H, W) and grid: (N, OH, OW, 2), or (N, C, D, H, W) and (N, OD, OH, OW, 3); points as
    `affine_grid` makes them. mode: 'bilinear' (of volumes: trilinear), 'nearest', or, of images,
    'bicubic'. padding_mode: what is outside: 'zeros', the nearest 'border', or its 'reflection'.
    Result: (N, C, OH, OW) or (N, C, OD, OH, OW). (Jaderberg et al. 2015, "Spatial transformer
    networks", section 3.3.)"""
    rank = x.ndim - 2
    if rank not in (2, 3) or grid.shape[:1] + grid.shape[-1:] != (x.shape[0], rank) or (
        grid.ndim != x.ndim):  # fmt: skip
        raise ShapeError(
            f"input {x.shape} and grid {grid.shape}; (N, C, H, W) and "
            "(N, OH, OW, 2), or one axis more and 3, are needed",
            operation="grid_sample",
        )
    modes = ("bilinear", "nearest", "bicubic")[: 3 if rank == 2 else 2]
    if mode not in modes or padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            f"mode={mode!r} and padding_mode={padding_mode!r} of "
            f"{x.shape}, which has {', '.join(modes)}; padding is 'zeros', "
            "'border' or 'reflection'",
            operation="grid_sample",
        )
    common_device("grid_sample", x, grid)
    values, points = exact("grid_sample", x), exact("grid_sample", grid)
    batch, count = x.shape[0], prod(grid.shape[1:-1])
    places = []
    for axis, size in enumerate(x.shape[2:]):
        coordinate = movement.reshape(points[..., rank - 1 - axis], (batch, 1, count))
        places.append(_place(coordinate, size, align_corners))
    result = sample_pixels(values, places, mode, padding_mode, align_corners)
    return movement.reshape(result, (*x.shape[:2], *grid.shape[1:-1])).cast(x.dtype)


def sample_pixels(
    values: Tensor, places: Sequence[Tensor], mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:  # fmt: skip
    """The values, (N, C, P), of images (N, C, sizes) at P points, as in `grid_sample`.

    places: for each spatial axis (N, 1, P), in pixels: 0 is the centre of the first one."""
    sizes = values.shape[2:]
    pixels = movement.reshape(values, (*values.shape[:2], prod(sizes)))
    taps: list[list[Tap]] = []
    for place, size in zip(places, sizes, strict=True):
        taps.append(_taps(place, size, mode, padding_mode, align_corners))
    total: Tensor | None = None
    for corner in product(*taps):
        term = _corner(pixels, sizes, corner)
        total = term if total is None else total + term
    assert total is not None
    return total


def _place(coordinate: Tensor, size: int, align_corners: bool) -> Tensor:
    """A coordinate between -1 and 1 in pixels of an axis of `size`."""
    if align_corners:
        return (coordinate + 1.0) * ((size - 1) / 2.0)
    return ((coordinate + 1.0) * float(size) - 1.0) / 2.0


def _corner(pixels: Tensor, sizes: Shape, corner: Sequence[Tap]) -> Tensor:
    """One pixel near each point, times its share; 0 where it does not exist.

    pixels: (N, C, number of pixels). The parts of a tap: (N, 1, number of points)."""
    index, share, exists = corner[0]
    for size, tap in zip(sizes[1:], corner[1:], strict=True):
        index = index * size + tap.place
        share = share * tap.share
        exists = exists & tap.exists
    picked = take_along_axis(pixels, index, axis=2)
    return picked * where(exists, share, 0.0).cast(pixels.dtype)


def _taps(place: Tensor, size: int, mode: str, padding_mode: str, align_corners: bool) -> list[Tap]:
    """The pixels along an axis of `size` that a place, in pixels, is interpolated from."""

    def bounded(at: Tensor) -> Tensor:
        return _bounded(at, size, padding_mode, align_corners)

    def tap(at: Tensor, share: Tensor) -> Tap:
        inside = (at >= 0.0) & (at <= size - 1.0)
        return Tap(clip(at, 0.0, size - 1.0).cast(int64), share, inside)

    if mode == "bicubic":
        below = floor(place).detach()
        shares = cubic_shares(place - below)
        steps = (-1.0, 0.0, 1.0, 2.0)
        return [tap(bounded(below + by), share) for by, share in zip(steps, shares, strict=True)]
    place = bounded(place)
    if mode == "nearest":
        nearest = round(place).detach()
        return [tap(nearest, ones_like(nearest))]
    below = floor(place).detach()
    share = place - below
    return [tap(below, 1.0 - share), tap(below + 1.0, share)]


def _bounded(place: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """`place`, in pixels, brought into the image as `padding_mode` says."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if not span:
            return place * 0.0
        away = remainder(abs(place - low), 2.0 * span)
        place = where(away > span, 2.0 * span - away, away) + low
    return clip(place, 0.0, size - 1.0)

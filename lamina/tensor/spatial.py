"""Steps along axes, sliding windows as views, and what is made of them: convolution, pooling and
resizing with one to three spatial axes, with PyTorch's names and meanings.

A window view has ``out[k, o] = x[o * stride + k * dilation]``. EXPAND repeats the axis for each
k, SHEAR by ``-dilation`` shifts each copy, and SHRINK keeps the rows where all copies overlap:
nothing is copied, the compiler sees affine indices only.

A convolution is one product of window views and weights, summed over channels and kernel axes at
once: the compiler sees a matrix product with affine indices. Halves are summed in float32.

Pools take (N, C, spatial...) or (C, spatial...). `stride` is the kernel's size by default.
`ceil_mode` keeps a last window that starts inside the input or its padding but does not fit.
The gradient of a maximum is shared evenly among ties.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec

from lamina.autodiff import VJP
from lamina.dtypes import Scalar, accumulator, float32, float64, int64
from lamina.errors import DTypeError, ShapeError
from lamina.ir import build
from lamina.ir.build import cast, expand, full, insert_axes, iota, reduce, reshape, select
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.shape import Shape, prod
from lamina.tensor.arguments import fitting, integer, promote, sizes_of
from lamina.tensor.core import Tensor, common_device
from lamina.tensor.elementwise import named

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "interpolate", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

P = ParamSpec("P")
Sizes = int | Sequence[int]
AdaptiveSizes = int | None | Sequence[int | None]


def resized(shape: Shape, axis: int, *sizes: int) -> Shape:
    """`shape` with the size of `axis` replaced by `sizes`."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def for_ranks(function: Callable[Concatenate[str, int, P], Tensor]) -> list[Callable[P, Tensor]]:
    """`function` of a name and a number of spatial axes for one, two and three of them."""
    name, doc = function.__name__, function.__doc__
    return [named(f"{name}{rank}d", doc, function, rank) for rank in (1, 2, 3)]


def exact(what: str, x: Tensor) -> Tensor:
    """`x` in its accumulator's dtype; raises DTypeError when it is no float."""
    if not x.dtype.is_float:
        raise DTypeError(f"{what}: {x.dtype.name} is not a float dtype; cast it")
    return x.cast(accumulator(x.dtype))


def check_shapes(what: str, shape: Shape, *weights: Tensor | None) -> None:
    """Raises ShapeError unless the weights or biases that are given have `shape`."""
    for one in weights:
        if one is not None and one.shape != shape:
            raise ShapeError(f"{what}: a weight or bias vector has shape {one.shape}, not {shape}")


def per_axis(what: str, name: str, value: Sizes, rank: int, least: int = 1) -> Shape:
    """`value` once for each of `rank` spatial axes; raises ShapeError for other counts."""
    sizes = sizes_of(f"{what}: {name}", value, signed=True)
    if len(sizes) == 1:
        sizes *= rank
    if len(sizes) != rank or min(sizes) < least:
        raise ShapeError(f"{what}: {name} is {value}; one or {rank} integers >= {least} are needed")
    return sizes


def batched(what: str, x: Node, rank: int) -> Node:
    """`x` of shape (N, C, spatial...) from itself or from (C, spatial...)."""
    if len(x.shape) not in (rank + 1, rank + 2):
        raise ShapeError(f"{what}: the input has shape {x.shape}, not ([N,] C, {rank} sizes)")
    return x if len(x.shape) == rank + 2 else insert_axes(x, (0,))


def unbatched(result: Node, like: Tensor) -> Tensor:
    """Undo `batched`, whose operand was `like`."""
    shape = result.shape[len(result.shape) - like.ndim :]
    return Tensor.of(reshape(result, shape), like.device)


def views(what: str, x: Node, kernels: Shape, strides: Shape, dilations: Shape) -> Node:
    """The windows along the last axes of `x`: (..., 1..., S...) becomes (..., K..., O...); where
    steps are 1, K may be there already. Raises ShapeError when a kernel does not fit."""
    rank, lead = len(kernels), x.shape[: len(x.shape) - 2 * len(kernels)]
    sizes, ones = x.shape[-rank:], (1,) * rank
    rows = list(zip(sizes, kernels, strides, dilations, strict=True))
    counts = tuple((size - (k - 1) * gap - 1) // step + 1 for size, k, step, gap in rows)
    if min(counts) < 1:
        raise ShapeError(f"{what}: kernel {kernels} of dilation {dilations} does not fit {sizes}")
    phases = tuple(stride if dilation == 1 else 1 for *_, stride, dilation in rows)
    if phases == ones:
        x = expand(x, (*lead, *kernels, *sizes))
        for axis, (_, kernel, _, dilation) in enumerate(rows, len(lead)):
            x = build.shear(x, axis + rank, axis, -dilation if kernel > 1 else 0)
        start = [(kernel - 1) * dilation for _, kernel, _, dilation in rows]
        stop = [at + (n - 1) * by + 1 for at, n, by in zip(start, counts, strides, strict=True)]
        outer = map(range, (*lead, *kernels))
        return build.sliced(x, (*outer, *map(range, start, stop, strides)))
    # With x[q * stride + p] as [q, p] and k = a * stride + p these are the windows [o + a, p] of
    # neighbours, and where kernels are as long as strides a reshape.
    parts = tuple(-(-kernel // by) for kernel, by in zip(kernels, phases, strict=True))
    whole = [
        (n - 1 + part) * by if by > 1 else size
        for n, part, by, size in zip(counts, parts, phases, sizes, strict=True)
    ]
    x = pad_spatial(x, (0,) * rank, [new - old for new, old in zip(whole, sizes, strict=True)])
    pairs = [part for size, by in zip(whole, phases, strict=True) for part in (size // by, by)]
    front, last = range(len(lead)), range(len(lead), len(lead) + 3 * rank)
    split = build.permute(reshape(x, (*lead, *pairs)), [*front, *last[1:-rank:2], *last[:-rank:2]])
    near = reshape(split, (*lead, *phases, *ones, *pairs[::2]))
    steps = tuple(stride // by for stride, by in zip(strides, phases, strict=True))
    order = [at for axis in last[:rank] for at in (axis + rank, axis)]
    view = build.permute(
        views(what, near, parts, steps, dilations), [*front, *order, *last[-rank:]]
    )
    flat = tuple(part * by for part, by in zip(parts, phases, strict=True))
    view = reshape(view, (*lead, *flat, *counts))
    return build.sliced(view, map(range, (*lead, *kernels, *counts)))


def pad_spatial(x: Node, before: Sequence[int], after: Sequence[int], value: Scalar = 0) -> Node:
    """Pad the last axes of `x`; a negative amount crops."""
    none = [0] * (len(x.shape) - len(before))
    before, after = [*none, *before], [*none, *after]
    start = [max(-amount, 0) for amount in before]
    stop = [size - max(-amount, 0) for size, amount in zip(x.shape, after, strict=True)]
    low, high = ([max(amount, 0) for amount in amounts] for amounts in (before, after))
    inside = build.sliced(x, map(range, start, stop))
    return build.pad(inside, low, high, fitting("pad", value, x.dtype))


# Convolution.


def conv(
    what: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlation of inputs with kernels, such as images for two spatial axes.

    x: (N, C, H, W) or (C, H, W). weight: (O, C / groups, KH, KW). bias: (O,). padding: zeros on
    both sides, or 'valid' (none), or 'same' (the result has x's sizes; stride 1 only).
    Result: (N, O, OH, OW) with ``OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1``."""
    images = _images(what, rank, x, weight, bias, groups, transposed=False)
    steps = per_axis(what, "stride", stride, rank)
    gaps = per_axis(what, "dilation", dilation, rank)
    reach = [d * (k - 1) for d, k in zip(gaps, weight.shape[2:], strict=True)]
    if padding == "same" and set(steps) == {1}:
        before, after = [size // 2 for size in reach], [size - size // 2 for size in reach]
    elif isinstance(padding, str) and padding != "valid":
        raise ShapeError(f"{what}: padding {padding!r} with stride {steps}; it is 'valid', "
                         "'same' for stride 1, or integers")  # fmt: skip
    else:
        zeros = 0 if isinstance(padding, str) else padding
        before = after = list(per_axis(what, "padding", zeros, rank, least=0))
    result = _correlated(what, images, (before, after), weight.node, steps, gaps, groups)
    return _biased(unbatched(result, x), bias, rank)


def conv_transpose(
    what: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:  # fmt: skip
    """The adjoint, with respect to its input, of a convolution with as many spatial axes.

    x: (N, C, H, W) or (C, H, W). weight: (C, O / groups, KH, KW). bias: (O,). output_padding:
    rows added at the end, fewer than the stride or the dilation. Result: (N, O, OH, OW) with
    ``OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1``."""
    images = _images(what, rank, x, weight, bias, groups, transposed=True)
    steps = per_axis(what, "stride", stride, rank)
    gaps = per_axis(what, "dilation", dilation, rank)
    margins = per_axis(what, "padding", padding, rank, least=0)
    extra = per_axis(what, "output_padding", output_padding, rank, least=0)
    if any(more >= max(s, d) for more, s, d in zip(extra, steps, gaps, strict=True)):
        raise ShapeError(f"{what}: output_padding {extra} reaches stride {steps}, dilation {gaps}")
    batch, _, *sizes = images.shape
    rows = zip(sizes, steps, margins, gaps, weight.shape[2:], extra, strict=True)
    wanted = [(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, s, p, d, k, e in rows]
    if min(wanted) < 1:
        raise ShapeError(f"{what}: padding {margins} leaves nothing of an input of {x.shape}")
    dtype = promote(what, x.dtype, weight.dtype)
    like = full((batch, weight.shape[1] * groups, *wanted), 0, dtype)
    result = _correlated(what, like, (margins, margins), weight.node, steps, gaps, groups)
    # As many rows as the stride give one more window, which the input has not.
    more = [e // s for e, s in zip(extra, steps, strict=True)]
    adjoint: Any = pad_spatial(cast(images, dtype), (0,) * rank, more)
    while result is not like:  # linear, by way of first operands
        adjoint, result = VJP[result.op](adjoint, result, *result.src)[0], result.src[0]
    return _biased(unbatched(adjoint, x), bias, rank)


conv1d, conv2d, conv3d = for_ranks(conv)
conv_transpose1d, conv_transpose2d, conv_transpose3d = for_ranks(conv_transpose)


def _images(
    what: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int,
    transposed: bool,
) -> Node:  # fmt: skip
    """`x` as a batch, if everything fits to it."""
    images, shape = batched(what, x.node, rank), weight.shape
    if len(shape) != rank + 2:
        raise ShapeError(f"{what}: the weight has shape {shape}; {rank + 2} axes are needed")
    if groups < 1 or shape[0] % groups:
        raise ShapeError(f"{what}: {shape[0]} rows of weight {shape} in {groups} groups")
    channels, outputs = shape[1] * groups, shape[0]
    if transposed:
        channels, outputs = outputs, channels
    if images.shape[1] != channels:
        raise ShapeError(f"{what}: input {x.shape} and weight {shape} in {groups} groups: the "
                         f"weight is for {channels} channels")  # fmt: skip
    check_shapes(what, (outputs,), bias)
    common_device(what, x, weight, *(() if bias is None else (bias,)))
    return images


def _correlated(
    what: str, images: Node, margins: tuple[Sequence[int], Sequence[int]], weight: Node,
    stride: Shape, dilation: Shape, groups: int,
) -> Node:  # fmt: skip
    """(N, C, S...) with margins and (O, C / groups, K...) to (N, O, S'...).

    With stride 1 the input is repeated for every output channel before it is padded and windows
    are taken, so that its adjoint is one sum over channels and window, a convolution itself. Where
    that would multiply many more zeros, or read the adjoint for few inputs, each element of a
    window gets its sum over channels first, and those are added up."""
    rank, dtype = len(stride), promote(what, images.dtype, weight.dtype)
    wide, (batch, _, *sizes) = accumulator(dtype), images.shape
    outputs, inputs, *kernel = weight.shape
    each, ones = outputs // groups, (1,) * rank
    apart = reshape(cast(images, wide), (batch, groups, 1, inputs, *ones, *sizes))
    rows = zip(kernel, dilation, stride, sizes, strict=True)
    if each <= 8 * inputs and all(s == 1 and 2 * (k - 1) * d <= n for k, d, s, n in rows):
        apart = expand(apart, (batch, groups, each, inputs, *kernel, *sizes))
    view = views(what, pad_spatial(apart, *margins), tuple(kernel), stride, dilation)
    places = view.shape[4 + rank :]
    left = expand(view, (batch, groups, each, inputs, *kernel, *places))
    right = reshape(cast(weight, wide), (1, groups, each, inputs, *kernel, *ones))
    total = reduce(ADD, range(3, 4 + rank), left * expand(right, left.shape))
    return cast(reshape(total, (batch, outputs, *places)), dtype)


def _biased(result: Tensor, bias: Tensor | None, rank: int) -> Tensor:
    return result if bias is None else result + bias.reshape(-1, *(1,) * rank)


# Pooling.


def max_pool(
    what: str, rank: int, x: Tensor, kernel_size: Sizes, stride: Sizes | None = None,
    padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The largest element of each window; padding, at most half a kernel, never wins."""
    result, _ = _pooled(what, rank, x.node, MAX, kernel_size, stride, padding, dilation, ceil_mode)
    return unbatched(result, x)


def avg_pool(
    what: str, rank: int, x: Tensor, kernel_size: Sizes, stride: Sizes | None = None,
    padding: Sizes = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window. `count_include_pad` counts the zeros of the padding as elements;
    `divisor_override` divides every sum by one number instead."""
    values = exact(what, x).node
    result, axes = _pooled(what, rank, values, ADD, kernel_size, stride, padding, 1, ceil_mode)
    whole = all(not one.overhang and (count_include_pad or not one.padding) for one in axes)
    if divisor_override is not None or whole:
        result = result / float(divisor_override or prod(one.kernel for one in axes))
    else:
        for axis, one in enumerate(axes, 2):
            counts = cast(one.counts(result.shape[axis], count_include_pad), result.dtype)
            result = result / build.along(counts, axis, result.shape)
    return unbatched(cast(result, x.dtype), x)


def adaptive_avg_pool(what: str, rank: int, x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """Means over a grid of `output_size` windows; None keeps the size of an axis. Window i of n
    along an axis of size s is ``floor(i s / n) : ceil((i + 1) s / n)``."""
    return _adaptive(what, rank, x, exact(what, x).node, output_size, ADD)


def adaptive_max_pool(what: str, rank: int, x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """Maxima over a grid of `output_size` windows, those of `adaptive_avg_pool2d`."""
    return _adaptive(what, rank, x, x.node, output_size, MAX)


max_pool1d, max_pool2d, max_pool3d = for_ranks(max_pool)
avg_pool1d, avg_pool2d, avg_pool3d = for_ranks(avg_pool)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = for_ranks(adaptive_avg_pool)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = for_ranks(adaptive_max_pool)


class _Axis(NamedTuple):
    """The windows along a spatial axis of `size` elements."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil_mode: bool

    @property
    def overhang(self) -> int:
        """Elements after the padding that only the last windows of ceil_mode reach."""
        whole = self.size + 2 * self.padding
        reach = (self.kernel - 1) * self.dilation + 1
        last = min(-((reach - whole) // self.stride), (whole - self.padding - 1) // self.stride)
        return max(0, last * self.stride + reach - whole) if self.ceil_mode else 0

    def counts(self, number: int, include_padding: bool) -> Node:
        """How many elements each of `number` windows has, int64; an overhang never counts."""
        margin = self.padding if include_padding else 0
        start = iota(number, int64) * self.stride + -self.padding
        stop = start + self.kernel
        start = Node(Op.MAX, (start, start.lift(-margin)))
        return Node(Op.MIN, (stop, stop.lift(self.size + margin))) - start


def _pooled(
    what: str, rank: int, x: Node, monoid: Monoid, kernel: Sizes, stride: Sizes | None,
    padding: Sizes, dilation: Sizes, ceil_mode: bool,
) -> tuple[Node, list[_Axis]]:  # fmt: skip
    """The reductions of all windows, and where these are; around the input is the identity."""
    images = batched(what, x, rank)
    kernels = per_axis(what, "kernel_size", kernel, rank)
    steps = per_axis(what, "stride", kernel if stride is None else stride, rank)
    margins = per_axis(what, "padding", padding, rank, least=0)
    gaps = per_axis(what, "dilation", dilation, rank)
    rows = zip(images.shape[2:], kernels, steps, margins, gaps, strict=True)
    axes = [_Axis(*row, ceil_mode) for row in rows]
    if any(2 * one.padding > one.kernel for one in axes):
        raise ShapeError(f"{what}: padding {margins} is over half of the kernel {kernels}")
    after = [one.padding + one.overhang for one in axes]
    padded = pad_spatial(images, margins, after, *monoid.identity((x.dtype,)))
    lead, sizes = padded.shape[:2], padded.shape[2:]
    view = views(what, reshape(padded, (*lead, *(1,) * rank, *sizes)), kernels, steps, gaps)
    return reduce(monoid, range(2, 2 + rank), view), axes


def _adaptive(
    what: str, rank: int, x: Tensor, node: Node, output_size: AdaptiveSizes, monoid: Monoid
) -> Tensor:
    """`node`, the values of `x`, reduced to maxima or to means."""
    result = batched(what, node, rank)
    given: Any = output_size if hasattr(output_size, "__iter__") else (output_size,) * rank
    if len(given) != rank or any(size is not None and size < 1 for size in given):
        raise ShapeError(f"{what}: output_size {output_size}; one or {rank} sizes are needed")
    for axis, size in enumerate(given, 2):
        if size is not None and size != result.shape[axis]:
            result = _adapt_axis(result, axis, integer(what, size), monoid)
    return unbatched(cast(result, x.dtype), x)


def _adapt_axis(x: Node, axis: int, count: int, monoid: Monoid) -> Node:
    """Reduce stretches of `axis`, which gets size `count`."""
    size = x.shape[axis]
    if not size % count:
        length: Node | float = float(size // count)
        inside = reshape(x, resized(x.shape, axis, count, size // count))
    else:
        place, longest = iota(count, int64), -(-size // count) + 1
        first, last = place * size // count, -(-(place + 1) * size // count)
        shape = resized(x.shape, axis, count, longest)
        index = build.along(first, axis, shape) + build.places(shape, axis + 1)
        taken, (outside,) = index < build.along(last, axis, shape), monoid.identity((x.dtype,))
        flat = Node(Op.GATHER, (x, reshape(index, resized(x.shape, axis, count * longest))), axis)
        inside = select(taken, reshape(flat, shape), full(shape, outside, x.dtype))
        length = build.along(cast(last - first, x.dtype), axis, resized(x.shape, axis, count))
    total = reduce(monoid, (axis + 1,), inside)
    return total if monoid is MAX else total / length


# Changing sizes by interpolation.

_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}
_NEAREST = ("nearest", "nearest-exact")


def interpolate(
    x: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool = False,
) -> Tensor:  # fmt: skip
    """Resize the spatial axes of `x`, (N, C, 1 to 3 sizes), to `size` or by `scale_factor`.

    mode: 'nearest' takes the element at ``floor(i * ratio)``, 'nearest-exact' the one at
    ``floor((i + 1/2) * ratio)``; 'linear', 'bilinear' and 'trilinear' blend neighbours.
    align_corners: the outermost elements of input and output coincide, instead of the borders."""
    linear, modes = mode in _LINEAR, (*_NEAREST, *[*_LINEAR][x.ndim - 3 : x.ndim - 2])
    if x.ndim not in (3, 4, 5) or mode not in modes:
        raise ShapeError(f"interpolate: mode {mode!r} of {x.shape}, which has {', '.join(modes)}")
    if align_corners and not linear:
        raise ShapeError(f"interpolate: align_corners is for linear modes, not for {mode!r}")
    result = exact("interpolate", x).node if linear else x.node
    for axis, (count, ratio) in enumerate(_targets(x, size, scale_factor), 2):
        result = _resampled(result, axis, count, ratio, mode, align_corners)
    return Tensor.of(cast(result, x.dtype), x.device)


def _targets(
    x: Tensor, size: Sizes | None, scale_factor: float | Sequence[float] | None
) -> list[tuple[int, float]]:
    """For each axis its new size and the distance between samples, in input elements."""
    sizes = x.shape[2:]
    if (size is None) == (scale_factor is None):
        raise ShapeError("interpolate: exactly one of size and scale_factor is needed")
    if size is not None:
        wanted = per_axis("interpolate", "size", size, len(sizes))
        return [(new, old / new) for new, old in zip(wanted, sizes, strict=True)]
    scales: Any = scale_factor if hasattr(scale_factor, "__iter__") else [scale_factor] * len(sizes)
    counts = [math.floor(n * scale) for n, scale in zip(sizes, scales, strict=False)]
    if len(scales) != len(sizes) or min(counts) < 1:
        raise ShapeError(f"interpolate: scale_factor {scale_factor} does not fit {x.shape}")
    return [(new, 1 / scale) for new, scale in zip(counts, scales, strict=True)]


def _resampled(
    x: Node, axis: int, count: int, ratio: float, mode: str, align_corners: bool
) -> Node:
    size, linear = x.shape[axis], mode in _LINEAR
    if not linear and count % size == 0 and ratio * (count // size) == 1:
        # Whole repetitions need no index: each element is expanded.
        shape = resized(x.shape, axis, size, count // size)
        return reshape(expand(insert_axes(x, (axis + 1,)), shape), resized(x.shape, axis, count))
    wide = x.dtype if linear or x.dtype is float64 else float32
    place = cast(iota(count, int64), wide)
    if align_corners:
        source = place * ((size - 1) / (count - 1) if count > 1 else 0.0)
    elif linear:
        source = (place + 0.5) * ratio - 0.5
        source = Node(Op.MAX, (source, source.lift(0.0)))
    else:
        source = (place + (0.5 if mode == "nearest-exact" else 0.0)) * ratio
    first = cast(source, int64)
    left = _take(x, first, axis)
    if not linear:
        return left
    share = build.along(source - cast(first, wide), axis, left.shape)
    return left * (1.0 - share) + _take(x, first + 1, axis) * share


def _take(x: Node, index: Node, axis: int) -> Node:
    """The elements of `x` at `index`, a vector, or the last one, along `axis`."""
    bounded = Node(Op.MIN, (index, index.lift(x.shape[axis] - 1)))
    shape = resized(x.shape, axis, *index.shape)
    return Node(Op.GATHER, (x, build.along(bounded, axis, shape)), axis)

"""Steps along axes, sliding windows as views, and convolution with one to three spatial axes, with
PyTorch's names and meanings.

A window view has ``out[k, o] = x[o * stride + k * dilation]``. EXPAND repeats the axis for each
k, SHEAR by ``-dilation`` shifts each copy, and SHRINK keeps the rows where all copies overlap:
nothing is copied, the compiler sees affine indices only.

A convolution is one product of window views and weights, summed over channels and kernel axes at
once: the compiler sees a matrix product with affine indices. Halves are summed in float32.
"""

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from lamina.core.dtypes import Scalar, accumulator
from lamina.core.shape import Shape
from lamina.errors import DTypeError, ShapeError
from lamina.frontend.arguments import fitting, promote, sizes_of
from lamina.frontend.functions.elementwise import named
from lamina.frontend.tensor import Tensor, common_device
from lamina.graph.autodiff import transposed
from lamina.ir import build
from lamina.ir.build import cast, expand, full, insert_axes, reduce, reshape
from lamina.ir.monoids import ADD
from lamina.ir.node import Node

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
Sizes = int | Sequence[int]


def resized(shape: Shape, axis: int, *sizes: int) -> Shape:
    """`shape` with the size of `axis` replaced by `sizes`."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def for_ranks(
    function: Callable[Concatenate[str, int, P], R], kind: Callable[..., Any] = named
) -> list[Callable[P, R]]:
    """`function` of a name and a number of spatial axes for one, two and three of them; each is
    made by `kind`, which is `variant` where the result is not always one tensor."""
    name, doc = function.__name__, function.__doc__
    return [kind(f"{name}{rank}d", doc, function, rank) for rank in (1, 2, 3)]


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
    image = transposed(result, like, pad_spatial(cast(images, dtype), (0,) * rank, more))
    return _biased(unbatched(image, x), bias, rank)


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

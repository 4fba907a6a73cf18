"""Steps along axes, sliding windows as views, and convolution with one to three spatial axes, with
PyTorch's names and meanings.

A window view has ``out[k, o] = x[o * stride + k * dilation]``. EXPAND repeats the axis for each
k, SHEAR by ``-dilation`` shifts each copy, and SHRINK keeps the rows where all copies overlap:
nothing is copied, the compiler sees affine indices only.

A convolution is one product of window views and weights, summed over channels and kernel axes at
once: the compiler sees a matrix product with affine indices. Halves are summed in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from lamina.core.dtypes import Scalar, accumulator, int32
from lamina.core.shape import Shape, prod
from lamina.errors import DTypeError, ShapeError
from lamina.frontend.arguments import fitting, promote, sizes_of
from lamina.frontend.functions.elementwise import named
from lamina.frontend.tensor import Tensor, common_device, common_dtype
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
        raise DTypeError(f"{x.dtype.name} is not a float dtype; cast it", operation=what)
    return widened(x)


def widened(x: Tensor) -> Tensor:
    """`x` in its accumulator's dtype. A product of such factors is not rounded to 16 bits, so that
    what is added to it counts in full: 257 - 256, in 8 bits of a bfloat16, would be 256 - 256."""
    return x.cast(accumulator(x.dtype))


def check_shapes(what: str, shape: Shape, *weights: Tensor | None) -> None:
    """Raises ShapeError unless the weights or biases that are given have `shape`."""
    for weight in weights:
        if weight is not None and weight.shape != shape:
            raise ShapeError(
                f"a weight or bias vector has shape {weight.shape}, not {shape}", operation=what
            )


def per_axis(what: str, name: str, value: Sizes, rank: int, minimum: int = 1) -> Shape:
    """`value` once for each of `rank` spatial axes; raises ShapeError for other counts."""
    sizes = sizes_of(what, value, signed=True, argument=name)
    if len(sizes) == 1:
        sizes *= rank
    if len(sizes) != rank or min(sizes) < minimum:
        raise ShapeError(
            f"{name} is {value}; one or {rank} integers >= {minimum} are needed", operation=what
        )
    return sizes


def batched(what: str, x: Node, rank: int) -> Node:
    """`x` of shape (N, C, spatial...) from itself or from (C, spatial...)."""
    if len(x.shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"the input has shape {x.shape}, not ([N,] C, {rank} sizes)", operation=what
        )
    return x if len(x.shape) == rank + 2 else insert_axes(x, (0,))


def unbatched(result: Node, like: Tensor) -> Tensor:
    """Undo `batched`, whose operand was `like`."""
    shape = result.shape[len(result.shape) - like.ndim :]
    return Tensor.of(reshape(result, shape), like.device)


@dataclass(frozen=True)
class _Windows:
    """The windows along an axis."""

    size: int  # of the axis
    kernel: int
    stride: int
    dilation: int

    @property
    def count(self) -> int:
        """How many windows fit: 3 of kernel 3 and stride 2 in 8 elements."""
        return (self.size - (self.kernel - 1) * self.dilation - 1) // self.stride + 1

    @property
    def phases(self) -> int:
        """Into how many phases the axis is split: element ``q * phases + p`` has phase p."""
        return self.stride if self.dilation == 1 else 1

    @property
    def parts(self) -> int:
        """How many elements of each phase a window reads at most: 2 of kernel 3 and stride 2."""
        return -(-self.kernel // self.phases)

    @property
    def whole(self) -> int:
        """The elements that the windows read, in whole phases."""
        if self.phases == 1:
            return self.size
        return (self.count - 1 + self.parts) * self.phases


def _axes_of_windows(
    what: str, x: Node, kernels: Shape, strides: Shape, dilations: Shape
) -> tuple[Shape, list[_Windows]]:
    """The sizes in front of the spatial ones of `x`, and the windows along each spatial axis."""
    rank = len(kernels)
    lead, sizes = x.shape[: len(x.shape) - 2 * rank], x.shape[-rank:]
    axes = [_Windows(*row) for row in zip(sizes, kernels, strides, dilations, strict=True)]
    if min(axis.count for axis in axes) < 1:
        raise ShapeError(
            f"kernel {kernels} of dilation {dilations} does not fit {sizes}", operation=what
        )
    return lead, axes


def views(what: str, x: Node, kernels: Shape, strides: Shape, dilations: Shape) -> Node:
    """The windows along the last axes of `x`: (..., 1..., S...) becomes (..., K..., O...); where
    steps are 1, K may be there already. Raises ShapeError when a kernel does not fit."""
    lead, axes = _axes_of_windows(what, x, kernels, strides, dilations)
    if all(axis.phases == 1 for axis in axes):
        return _sheared(x, lead, axes)
    return _phases_joined(_in_phases(x, lead, axes), lead, axes)


@dataclass(frozen=True)
class PhasedWindows:
    """The windows of `views` in the form whose adjoint is a sum over the parts of windows, as
    nothing is cut off.

    view: (..., W..., O...), with W the axes of phases and parts, or of a kernel if there are no
        phases. numbers: (W...), int32: the number of each element in its window, row by row.
    lengths: of a window, with what may be there after its last element.
    """

    view: Node
    numbers: Node
    lengths: Shape


def phased_views(
    what: str, x: Node, kernels: Shape, strides: Shape, dilations: Shape
) -> PhasedWindows:
    """`views` before their phases are joined."""
    rank = len(kernels)
    lead, axes = _axes_of_windows(what, x, kernels, strides, dilations)
    lengths = tuple(axis.parts * axis.phases for axis in axes)
    numbers = build.iota(prod(lengths), int32)
    if all(axis.phases == 1 for axis in axes):
        return PhasedWindows(_sheared(x, lead, axes), reshape(numbers, lengths), lengths)
    # Element ``part * phases + phase`` of an axis.
    pairs = reshape(numbers, tuple(n for axis in axes for n in (axis.parts, axis.phases)))
    order = [*range(1, 2 * rank, 2), *range(0, 2 * rank, 2)]
    return PhasedWindows(_in_phases(x, lead, axes), build.permute(pairs, order), lengths)


def _in_phases(x: Node, lead: Shape, axes: Sequence[_Windows]) -> Node:
    """(lead, 1..., S...) to (lead, phases..., parts..., O...): with x[q * stride + p] as [q, p] and
    k = a * stride + p, the windows [o + a, p] of neighbours; where kernels are as long as strides,
    a reshape."""
    apart = _phases_apart(x, lead, axes)
    lengths = apart.shape[-len(axes) :]
    inner = [
        _Windows(size, axis.parts, axis.stride // axis.phases, axis.dilation)
        for size, axis in zip(lengths, axes, strict=True)
    ]
    return _sheared(apart, apart.shape[: -2 * len(axes)], inner)


def _sheared(x: Node, lead: Shape, axes: Sequence[_Windows]) -> Node:
    """The windows by a copy of each axis for each place in the kernel, shifted by its dilation, and
    cut to where all overlap."""
    rank = len(axes)
    kernels = [axis.kernel for axis in axes]
    x = expand(x, (*lead, *kernels, *x.shape[-rank:]))
    for number, axis in enumerate(axes, len(lead)):
        x = build.shear(x, number + rank, number, -axis.dilation if axis.kernel > 1 else 0)
    ranges = [range(size) for size in (*lead, *kernels)]
    for axis in axes:
        start = (axis.kernel - 1) * axis.dilation
        ranges.append(range(start, start + (axis.count - 1) * axis.stride + 1, axis.stride))
    return build.sliced(x, ranges)


def _phases_apart(x: Node, lead: Shape, axes: Sequence[_Windows]) -> Node:
    """(lead, 1..., S...) to (lead, phases..., 1..., S / phases...)."""
    rank = len(axes)
    missing = [axis.whole - axis.size for axis in axes]
    x = pad_spatial(x, (0,) * rank, missing)
    phases = [axis.phases for axis in axes]
    lengths = [axis.whole // axis.phases for axis in axes]
    pairs = [size for pair in zip(lengths, phases, strict=True) for size in pair]
    front, last = range(len(lead)), range(len(lead), len(lead) + 2 * rank)
    split = build.permute(reshape(x, (*lead, *pairs)), [*front, *last[1::2], *last[::2]])
    return reshape(split, (*lead, *phases, *(1,) * rank, *lengths))


def _phases_joined(view: Node, lead: Shape, axes: Sequence[_Windows]) -> Node:
    """(lead, phases..., parts..., O...) to (lead, K..., O...)."""
    rank = len(axes)
    front, phases = range(len(lead)), range(len(lead), len(lead) + rank)
    order = [number for phase in phases for number in (phase + rank, phase)]
    places = range(len(lead) + 2 * rank, len(lead) + 3 * rank)
    view = build.permute(view, [*front, *order, *places])
    counts = [axis.count for axis in axes]
    rounded_up = [axis.parts * axis.phases for axis in axes]
    view = reshape(view, (*lead, *rounded_up, *counts))
    kernels = [axis.kernel for axis in axes]
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
    The bias is added before the sum is rounded to 16 bits.
    Result: (N, O, OH, OW) with ``OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1``."""
    images = _images(what, rank, x, weight, bias, groups, transposed=False)
    if bias is not None:
        factors = widened(x), widened(weight)
        sums = conv(what, rank, *factors, None, stride, padding, dilation, groups)
        return _biased(what, sums, bias, x, weight)
    steps = per_axis(what, "stride", stride, rank)
    gaps = per_axis(what, "dilation", dilation, rank)
    reach = [d * (k - 1) for d, k in zip(gaps, weight.shape[2:], strict=True)]
    if padding == "same" and set(steps) == {1}:
        before, after = [size // 2 for size in reach], [size - size // 2 for size in reach]
    elif isinstance(padding, str) and padding != "valid":
        raise ShapeError(f"padding {padding!r} with stride {steps}; it is 'valid', "
                         "'same' for stride 1, or integers", operation=what)  # fmt: skip
    else:
        zeros = 0 if isinstance(padding, str) else padding
        before = after = list(per_axis(what, "padding", zeros, rank, minimum=0))
    result = _correlated(what, images, (before, after), weight.node, steps, gaps, groups)
    return unbatched(result, x)


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
    if bias is not None:
        factors = widened(x), widened(weight)
        sums = conv_transpose(
            what, rank, *factors, None, stride, padding, output_padding, groups, dilation
        )
        return _biased(what, sums, bias, x, weight)
    steps = per_axis(what, "stride", stride, rank)
    gaps = per_axis(what, "dilation", dilation, rank)
    margins = per_axis(what, "padding", padding, rank, minimum=0)
    extra = per_axis(what, "output_padding", output_padding, rank, minimum=0)
    _check_output_padding(what, extra, steps, gaps)
    batch, _, *sizes = images.shape
    wanted: list[int] = []
    rows = zip(sizes, steps, margins, gaps, weight.shape[2:], extra, strict=True)
    for size, step, margin, gap, window, more_rows in rows:
        reached = (size - 1) * step + gap * (window - 1) + 1  # by the windows
        wanted.append(reached - 2 * margin + more_rows)
    if min(wanted) < 1:
        raise ShapeError(
            f"padding {margins} leaves nothing of an input of {x.shape}", operation=what
        )
    dtype = promote(what, x.dtype, weight.dtype)
    like = full((batch, weight.shape[1] * groups, *wanted), 0, dtype)
    result = _correlated(what, like, (margins, margins), weight.node, steps, gaps, groups)
    # As many rows as the stride give one more window, which the input has not.
    more = [more_rows // step for more_rows, step in zip(extra, steps, strict=True)]
    image = transposed(result, like, pad_spatial(cast(images, dtype), (0,) * rank, more))
    return unbatched(image, x)


conv1d, conv2d, conv3d = for_ranks(conv)
conv_transpose1d, conv_transpose2d, conv_transpose3d = for_ranks(conv_transpose)


def _check_output_padding(what: str, extra: Shape, steps: Shape, gaps: Shape) -> None:
    if any(more >= max(s, d) for more, s, d in zip(extra, steps, gaps, strict=True)):
        raise ShapeError(
            f"output_padding {extra} reaches stride {steps}, dilation {gaps}", operation=what
        )


def _images(
    what: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int,
    transposed: bool,
) -> Node:  # fmt: skip
    """`x` as a batch, if everything fits to it."""
    images, shape = batched(what, x.node, rank), weight.shape
    if len(shape) != rank + 2:
        raise ShapeError(
            f"the weight has shape {shape}; {rank + 2} axes are needed", operation=what
        )
    if groups < 1 or shape[0] % groups:
        raise ShapeError(f"{shape[0]} rows of weight {shape} in {groups} groups", operation=what)
    channels, outputs = shape[1] * groups, shape[0]
    if transposed:
        channels, outputs = outputs, channels
    if images.shape[1] != channels:
        raise ShapeError(f"input {x.shape} and weight {shape} in {groups} groups: the "
                         f"weight is for {channels} channels", operation=what)  # fmt: skip
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


def _biased(what: str, sums: Tensor, bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """`sums` of `widened` factors, ([N,] O, S...), plus the bias, (O,), in the dtype of all."""
    spatial = weight.ndim - 2
    result = sums + bias.reshape(-1, *(1,) * spatial)
    return result.cast(common_dtype(what, x, weight, bias))

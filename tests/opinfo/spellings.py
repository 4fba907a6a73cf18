"""How a user of lamina writes an operation whose name or arguments differ from PyTorch's.

A row is one short expression: another name, an operator, another order of arguments. Functions
below the table read the forms of arguments that only PyTorch has. What needs more than that is
missing from lamina, and has no row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lamina as lm

GRID_MODES = ("bilinear", "nearest", "bicubic")
GRID_PADDINGS = ("zeros", "border", "reflection")

SPELLINGS: dict[str, Callable[..., Any]] = {
    "__rdiv__": lambda x, y: y / x,
    "H": lambda x: x.conj().T,
    "mH": lambda x: x.conj().mT,
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "add": lambda x, y, alpha=1: x + y * alpha if alpha != 1 else x + y,
    "sub": lambda x, y, alpha=1: x - y * alpha if alpha != 1 else x - y,
    "rsub": lambda x, y, alpha=1: y - x * alpha if alpha != 1 else y - x,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "true_divide": lambda x, y: x / y,
    "div": lambda x, y, rounding_mode=None: divide(x, y, rounding_mode),
    "cat": lambda parts, axis=0: lm.concat(without_placeholders(parts), axis=axis),
    "clamp": lambda x, min=None, max=None: x.clip(min, max),
    "clamp_min": lambda x, bound: x.clip(bound, None),
    "clamp_max": lambda x, bound: x.clip(None, bound),
    "conj_physical": lambda x: x.conj(),
    "resolve_conj": lambda x: x,
    "resolve_neg": lambda x: x,
    "byte": lambda x: x.cast(lm.uint8),
    "char": lambda x: x.cast(lm.int8),
    "short": lambda x: x.cast(lm.int16),
    "int": lambda x: x.cast(lm.int32),
    "long": lambda x: x.cast(lm.int64),
    "half": lambda x: x.cast(lm.float16),
    "bfloat16": lambda x: x.cast(lm.bfloat16),
    "float": lambda x: x.cast(lm.float32),
    "double": lambda x: x.cast(lm.float64),
    "bool": lambda x: x.cast(lm.bool),
    "cfloat": lambda x: x.cast(lm.complex64),
    "cdouble": lambda x: x.cast(lm.complex128),
    "to": lambda x, *args, **named: x.cast(first_dtype(args, named, x.dtype)),
    "alias_copy": lambda x: x,
    "view_as": lambda x, y: x.reshape(y.shape),
    "reshape_as": lambda x, y: x.reshape(y.shape),
    "expand_as": lambda x, y: x.expand(y.shape),
    "view": lambda x, *shape: x.reshape(*shape),
    "view_copy": lambda x, *shape: x.reshape(*shape),
    "ravel": lambda x: x.reshape(-1),
    "expand_copy": lambda x, shape: x.expand(shape),
    "permute_copy": lambda x, axes: x.permute(axes),
    "squeeze": lambda x, axis=None: squeeze(x, axis),
    "squeeze_copy": lambda x, axis=None: squeeze(x, axis),
    "unsqueeze_copy": lambda x, axis: x.unsqueeze(axis),
    "t": lambda x: x.permute(tuple(reversed(range(x.ndim)))),
    "t_copy": lambda x: x.permute(tuple(reversed(range(x.ndim)))),
    "transpose": lambda x, first, second: x.transpose(first, second) if x.ndim else x,
    "transpose_copy": lambda x, first, second: x.transpose(first, second) if x.ndim else x,
    "movedim": lambda x, source, target: x.moveaxis(source, target),
    "broadcast_tensors": lambda *parts: lm.broadcast_arrays(*parts),
    "repeat": lambda x, *counts: x.tile(counts[0] if isinstance(counts[0], tuple) else counts),
    "diagonal_copy": lambda x, offset=0, axis1=0, axis2=1: x.diagonal(offset, axis1, axis2),
    "narrow_copy": lambda x, axis, start, size: x.narrow(axis, start, size),
    "slice": lambda x, axis=0, start=None, end=None, step=1: x[
        (slice(None),) * axis + (slice(start, end, step),)
    ],
    "unfold": lambda x, axis, size, step: sliding_windows(x, axis, size, step),
    "unfold_copy": lambda x, axis, size, step: sliding_windows(x, axis, size, step),
    "atleast_1d": lambda x: lm.atleast_1d(*x) if isinstance(x, list) else lm.atleast_1d(x),
    "atleast_2d": lambda x: lm.atleast_2d(*x) if isinstance(x, list) else lm.atleast_2d(x),
    "atleast_3d": lambda x: lm.atleast_3d(*x) if isinstance(x, list) else lm.atleast_3d(x),
    "meshgrid": lambda *parts, **named: lm.meshgrid(*map(lm.atleast_1d, flat(parts)), **named),
    "repeat_interleave": lambda x, repeats, axis=None, output_size=None: lm.repeat(
        x, repeats, axis=axis
    ),
    "unbind": lambda x, axis=0: lm.unstack(x, axis=axis),
    "unbind_copy": lambda x, axis=0: lm.unstack(x, axis=axis),
    "split_with_sizes": lambda x, sizes, axis=0: x.split(sizes, axis),
    "split_with_sizes_copy": lambda x, sizes, axis=0: x.split(sizes, axis),
    "unsafe_split": lambda x, sizes, axis=0: x.split(sizes, axis),
    "unsafe_chunk": lambda x, count, axis=0: x.chunk(count, axis),
    "take_along_dim": lambda x, index, axis=None: take_along(x, index, axis),
    "index_put": lambda x, key, values, accumulate=False: lm.put(
        x, places(x, key), values.expand(places(x, key).shape), accumulate
    ),
    "gather": lambda x, axis, index: lm.gather(x.expand(x.shape or index.shape), axis, index),
    "amax": lambda x, axis=None, keepdims=False: x.max(axis=all_if_empty(axis), keepdims=keepdims),
    "amin": lambda x, axis=None, keepdims=False: x.min(axis=all_if_empty(axis), keepdims=keepdims),
    "cummax": lambda x, axis: lm.cummax(x, axis=axis, return_indices=True),
    "cummin": lambda x, axis: lm.cummin(x, axis=axis, return_indices=True),
    "std": lambda x, *args, **named: deviation(lm.std, x, *args, **named),
    "std_mean": lambda x, *args, **named: deviation(lm.std_mean, x, *args, **named),
    "var": lambda x, *args, **named: deviation(lm.var, x, *args, **named),
    "var_mean": lambda x, *args, **named: deviation(lm.var_mean, x, *args, **named),
    "new_full": lambda x, shape, value, dtype=None: lm.full(shape, value, dtype=dtype or x.dtype),
    "new_ones": lambda x, shape, dtype=None: lm.ones(shape, dtype=dtype or x.dtype),
    "new_zeros": lambda x, shape, dtype=None: lm.zeros(shape, dtype=dtype or x.dtype),
    # In which order the elements are stored is the compiler's choice.
    "empty_permuted": lambda shape, order, dtype=None: lm.empty(shape, dtype=dtype),
    "new_empty": lambda x, shape, dtype=None: lm.empty(shape, dtype=dtype or x.dtype),
    "fill": lambda x, value: lm.full_like(x, value),
    "zero_": lambda x: lm.zeros_like(x),
    "scalar_tensor": lambda value, dtype=lm.float32: lm.asarray(value, dtype=dtype),
    "bmm": lambda x, y: x @ y,
    "mm": lambda x, y: x @ y,
    "mv": lambda x, y: x @ y,
    "constant_pad_nd": lambda x, pad, value=0: lm.pad(x, pad, value=value),
    "sort": lambda x, axis=-1, descending=False, stable=False: (
        lm.sort(x, axis=axis, descending=descending),
        lm.argsort(x, axis=axis, descending=descending),
    ),
    "msort": lambda x: lm.sort(x, axis=0),
    "max": lambda x, *args, **named: extreme("max", x, *args, **named),
    "min": lambda x, *args, **named: extreme("min", x, *args, **named),
    "diff": lambda x, n=1, axis=-1, prepend=None, append=None: lm.diff(
        x, n=n, axis=axis, prepend=prepend, append=append
    ),
    "einsum": lambda parts, equation: lm.einsum(equation, *parts),
    "equal": lambda x, y: x.shape == y.shape and bool((x == y).all()),
    "flatten": lambda x, start_dim=0, end_dim=-1: x.flatten(start_dim, end_dim),
    "nn.functional.avg_pool2d": lambda x, size, stride=None, *args, **named: lm.avg_pool2d(
        x, size, stride or None, *args, **named
    ),
    "nn.functional.batch_norm": lambda x, *args, **named: lm.batch_norm(x, *args, **named)[0],
    "nn.functional.instance_norm": lambda x, *args, **named: instance_norm(x, *args, **named),
    "nn.functional.linear_cross_entropy": (
        lambda x, w, target, linear_bias=0, options=None, **named: lm.cross_entropy(
            lm.tensordot(x, w, axes=((-1,), (-1,))) + linear_bias, target, **named
        )
    ),
    "nn.functional.embedding": lambda weight, index, sparse=False, **named: lm.embedding(
        index, weight, **named
    ),
    "nn.functional.embedding_bag": lambda weight, index, sparse=False, **named: lm.embedding_bag(
        index, weight, **named
    ),
    # The distance of its samples is `torch.nn.PairwiseDistance()`.
    "nn.functional.triplet_margin_with_distance_loss": (
        lambda anchor, positive, negative, distance_function, **named: (
            lm.triplet_margin_with_distance_loss(
                anchor, positive, negative, lm.pairwise_distance, **named
            )
        )
    ),
    "nn.functional.upsample_bilinear": lambda x, size=None, scale_factor=None: lm.interpolate(
        x, size, scale_factor, mode="bilinear", align_corners=True
    ),
    "nn.functional.upsample_nearest": lambda x, size=None, scale_factor=None: lm.interpolate(
        x, size, scale_factor, mode="nearest"
    ),
    "grid_sampler_2d": lambda x, grid, mode, padding_mode, align_corners: lm.grid_sample(
        x, grid, GRID_MODES[mode], GRID_PADDINGS[padding_mode], align_corners
    ),
    "grid_sampler_3d": lambda x, grid, mode, padding_mode, align_corners: lm.grid_sample(
        x, grid, GRID_MODES[mode], GRID_PADDINGS[padding_mode], align_corners
    ),
    "native_dropout_backward": lambda gradient, mask, scale: gradient * mask * scale,
    "linalg.norm": lambda x, *args, **named: norm(x, *args, **named),
    "linalg.vector_norm": lambda x, ord=2, axis=None, keepdims=False, dtype=None: lm.norm(
        x.cast(dtype or x.dtype), ord, axis, keepdims
    ),
    "linalg.vander": lambda x, **named: lm.vander(lm.atleast_1d(x), increasing=True, **named),
    "bucketize": lambda x, boundaries, out_int32=False, right=False: lm.bucketize(
        x, boundaries, right=right
    ).cast(lm.int32 if out_int32 else lm.int64),
    "cdist": lambda x, y, p=2.0, compute_mode=None: lm.cdist(x, y, p),
    "isreal": lambda x: lm.imag(x.cast(lm.complex64)) == 0,
    "mvlgamma": lambda x, p: lm.multigammaln(x, p),
    "polygamma": lambda x, n: lm.polygamma(n, x),
    "special.polygamma": lambda x, n: lm.polygamma(n, x),
    "special.modified_bessel_i0": lambda x: lm.i0(x),
    "special.modified_bessel_i1": lambda x: lm.i1(x),
    "sgn": lambda x: lm.sign(x),
    "trapz": lambda y, x=None, **named: lm.trapezoid(y, x, **named),
    "arange": lambda start, end=None, step=1, dtype=None: (
        lm.arange(start, dtype=dtype) if end is None else lm.arange(start, end, step, dtype=dtype)
    ),
    "nonzero": lambda x, as_tuple=False: (
        lm.nonzero(lm.atleast_1d(x)) if as_tuple else lm.argwhere(x)
    ),
    "nonzero_static": lambda x, size, fill_value=-1: nonzero_static(x, size, fill_value),
    "roll": lambda x, shifts, axis=None: lm.roll(x, shifts, axis=all_if_empty(axis)),
    "tensordot": lambda x, y, axis=2: lm.tensordot(x, y, axes=axis),
    "where": lambda x, condition, y: lm.where(condition, x, y),
    "searchsorted": lambda rows, x, out_int32=False, right=False, side=None, sorter=None: (
        lm.searchsorted(rows, x, side=side or ("right" if right else "left"), sorter=sorter).cast(
            lm.int32 if out_int32 else lm.int64
        )
    ),
    "masked.sum": lambda x, *axes, **named: masked(lm.sum, 0, x, *axes, **named),
    "masked.prod": lambda x, *axes, **named: masked(lm.prod, 1, x, *axes, **named),
    "masked.amax": lambda x, *axes, **named: masked(lm.max, -lm.inf, x, *axes, **named),
    "masked.amin": lambda x, *axes, **named: masked(lm.min, lm.inf, x, *axes, **named),
    # PyTorch's masked places of extremes have the dtype of the elements.
    "masked.argmax": lambda x, *axes, **named: masked(lm.argmax, -lm.inf, x, *axes, **named).cast(
        x.dtype
    ),
    "masked.argmin": lambda x, *axes, **named: masked(lm.argmin, lm.inf, x, *axes, **named).cast(
        x.dtype
    ),
    "masked.logaddexp": lambda x, y, input_mask=None, other_mask=None: lm.logaddexp(
        kept(x, input_mask, -lm.inf), kept(y, other_mask, -lm.inf)
    ),
    "masked.mean": lambda x, axis=None, keepdims=False, mask=None: lm.mean(
        x, axis=all_if_empty(axis), keepdims=keepdims, where=mask
    ),
    "masked.median": lambda x, axis, keepdims=False, mask=None: lm.nanmedian(
        kept(x, mask, lm.nan), axis=axis, keepdims=keepdims
    )[0],
    "masked.norm": lambda x, order, axis=None, keepdims=False, mask=None: lm.norm(
        kept(x, mask, lm.inf if order < 0 else 0), order, all_if_empty(axis), keepdims
    ),
    "masked.std": lambda x, *args, mask=None, **named: deviation(
        lm.std, x, *args, where=mask, **named
    ),
    "masked.var": lambda x, *args, mask=None, **named: deviation(
        lm.var, x, *args, where=mask, **named
    ),
    "masked.logsumexp": lambda x, *axes, **named: masked(lm.logsumexp, -lm.inf, x, *axes, **named),
    "masked.cumsum": lambda x, *axes, **named: masked(lm.cumulative_sum, 0, x, *axes, **named),
    "masked.cumprod": lambda x, *axes, **named: masked(lm.cumulative_prod, 1, x, *axes, **named),
    "masked.softmax": lambda x, *axes, **named: masked(lm.softmax, -lm.inf, x, *axes, **named),
    "masked.log_softmax": lambda x, *axes, **named: masked(
        lm.log_softmax, -lm.inf, x, *axes, **named
    ),
    "masked.softmin": lambda x, *axes, **named: masked(lm.softmax, -lm.inf, -x, *axes, **named),
    "bernoulli": lambda p: lm.random.bernoulli(p.shape, p).cast(p.dtype),
    "cauchy": lambda x, median, sigma: (
        median + sigma * lm.tan(lm.pi * (lm.random.uniform(x.shape) - 0.5))
    ),
    "exponential": lambda x, rate: lm.random.exponential(x.shape, 1 / rate),
    "geometric": lambda x, p: lm.ceil(lm.random.exponential(x.shape, -1 / math.log1p(-p))),
    "log_normal": lambda x, mean, std: lm.exp(lm.random.normal(x.shape) * std + mean),
    "multinomial": lambda weights, count, replacement=False: lm.random.multinomial(
        weights, count, replacement
    ),
    "normal": lambda mean, std=1, *shape, **named: normal(mean, std, *shape, **named),
    "randn": lambda *shape, dtype=None: lm.random.normal(flat(shape), dtype=dtype),
    "randn_like": lambda x, dtype=None: lm.random.normal(x.shape, dtype=dtype or x.dtype),
    "rand_like": lambda x, dtype=None: lm.random.uniform(x.shape, dtype=dtype or x.dtype),
    "randint": lambda *args, dtype=None: randint(*args).cast(dtype or lm.int64),
    "randint_like": lambda x, *bounds, dtype=None: randint(*bounds, x.shape).cast(dtype or x.dtype),
    "uniform": lambda x, low=0.0, high=1.0: lm.random.uniform(x.shape, low, high),
}

# Their values are drawn at random, or are left open: dtypes and shapes are compared here,
# statistics in tests/functions.
RANDOM = frozenset({
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "exponential", "geometric",
    "log_normal", "multinomial", "new_empty", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "normal", "rand_like",
    "randint", "randint_like", "randn", "randn_like", "uniform",
})  # fmt: skip


def divide(x: Any, y: Any, rounding_mode: str | None) -> Any:
    """PyTorch's division: by rounding mode an operator of Python, or a function."""
    if rounding_mode == "floor":
        return x // y
    return (x / y).trunc() if rounding_mode == "trunc" else x / y


def first_dtype(args: tuple[Any, ...], named: dict[str, Any], default: Any) -> Any:
    """The dtype among the arguments of `to`, or that of a tensor among them."""
    for value in (*args, *named.values()):
        if isinstance(value, lm.DType):
            return value
        if isinstance(value, lm.Tensor):
            return value.dtype
    return default


def shape_of(*values: Any) -> tuple[int, ...]:
    """The common shape of tensors and numbers."""
    shapes = [value.shape for value in values if isinstance(value, lm.Tensor)]
    return lm.broadcast_arrays(*[lm.zeros(shape) for shape in shapes])[0].shape


def squeeze(x: Any, axis: Any) -> Any:
    """PyTorch leaves axes of other sizes than 1 as they are; the standard refuses them."""
    axes = range(x.ndim) if axis is None else axis
    wanted = (axes,) if isinstance(axes, int) else axes
    return x.squeeze(tuple(number for number in wanted if x.ndim and x.shape[number] == 1))


def take_along(x: Any, index: Any, axis: int | None) -> Any:
    """Without an axis, PyTorch takes from the flat array."""
    if axis is None:
        return lm.take_along_axis(x.reshape(-1), index.reshape(-1), axis=0)
    return lm.take_along_axis(x, index, axis=axis)


def deviation(
    function: Callable[..., Any], x: Any, *args: Any, unbiased: Any = None, correction: Any = 1,
    **named: Any,
) -> Any:  # fmt: skip
    """std and var, whose correction is 1 by default in PyTorch and 0 in the standard."""
    flags = [value for value in args if isinstance(value, bool)]
    axes = [value for value in args if not isinstance(value, bool)]
    if flags:
        unbiased = flags[0]
    if len(flags) > 1:
        named["keepdims"] = flags[1]
    if axes:
        named["axis"] = axes[0]
    if unbiased is not None:
        correction = int(unbiased)
    return function(x, correction=1 if correction is None else correction, **named)


def flat(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one, or as one sequence."""
    return tuple(shape[0]) if shape and isinstance(shape[0], (tuple, list)) else shape


def normal(mean: Any, std: Any, shape: Any = None, dtype: Any = None, generator: Any = None) -> Any:
    """Normal numbers of a given shape, or of the common shape of both parameters.

    The method of PyTorch's tensors has the tensor whose values are drawn in front of both."""
    if isinstance(shape, (int, float)):
        return lm.random.normal(mean.shape) * shape + std
    wanted = shape_of(mean, std) if shape is None else tuple(shape)
    return lm.random.normal(wanted, dtype=dtype or lm.float32) * std + mean


def randint(*args: Any) -> Any:
    """Whole numbers, by ``([low,] high, shape)``."""
    *bounds, shape = args
    low, high = (0, *bounds)[-2:]
    return lm.random.randint(tuple(shape), low, high)


def extreme(name: str, x: Any, *args: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """PyTorch's max and min: of everything, of two tensors, or along an axis with the places."""
    if args and isinstance(args[0], lm.Tensor):
        return getattr(lm, name + "imum")(x, args[0])
    if args:
        axis, keepdims = args[0], args[1] if len(args) > 1 else keepdims
    if axis is None:
        return getattr(lm, name)(x)
    options = {"axis": axis, "keepdims": keepdims}
    return getattr(lm, name)(x, **options), getattr(lm, "arg" + name)(x, **options)


def kept(x: Any, mask: Any, neutral: float) -> Any:
    """`x` with `neutral` where the mask, if there is one, is False."""
    return x if mask is None else lm.where(mask, x, neutral)


def masked(
    function: Any, neutral: float, x: Any, *axes: Any, mask: Any = None, **named: Any
) -> Any:
    """A masked reduction: what the mask leaves out is the neutral element."""
    if named.get("dtype") is None:
        named.pop("dtype", None)
    if axes:
        named["axis"] = axes[0]
    return function(kept(x, mask, neutral), **named)


def all_if_empty(axis: Any) -> Any:
    """PyTorch reduces an empty tuple of axes over all axes; NumPy over none."""
    return None if axis == () or axis == [] else axis


def without_placeholders(parts: Any) -> Any:
    """PyTorch's cat ignores arrays of shape (0,) beside arrays of more axes."""
    return [part for part in parts if part.shape != (0,)] or parts


def sliding_windows(x: Any, axis: int, size: int, step: int) -> Any:
    """PyTorch's Tensor.unfold: windows along an axis, whose elements are a new last axis."""
    if x.ndim == 0:
        return x.expand((1,))[:size]
    starts = lm.arange(0, x.shape[axis] - size + 1, step, dtype=lm.int64)
    windows = lm.take(x, starts[:, None] + lm.arange(size, dtype=lm.int64), axis=axis)
    return windows.moveaxis(axis % x.ndim + 1, -1)


def places(x: Any, key: Any) -> Any:
    """The flat indices of the elements that ``x[key]`` reads."""
    return lm.arange(x.size, dtype=lm.int64).reshape(x.shape)[tuple(key)]


def norm(x: Any, order: Any = None, axis: Any = None, keepdims: bool = False, **named: Any) -> Any:
    """PyTorch's linalg.norm: of a matrix, or of a vector, by the axes that are given."""
    order = named.get("ord", order)
    values = x.cast(named.get("dtype") or x.dtype)
    is_matrix = x.ndim == 2 if axis is None else not isinstance(axis, int) and len(axis) == 2
    if order is None:
        return lm.norm(values, 2, axis, keepdims)
    if is_matrix:
        return lm.matrix_norm(values, order, axis or (-2, -1), keepdims)
    return lm.norm(values, order, axis, keepdims)


def nonzero_static(x: Any, size: int, fill_value: int) -> Any:
    """The places of the first `size` elements that are not zero, and rows of the fill value."""
    rows = lm.argwhere(x)[:size]
    return lm.pad(rows, ((0, size - rows.shape[0]), (0, 0)), value=fill_value)


def instance_norm(
    x: Any, running_mean: Any = None, running_var: Any = None, *args: Any, **named: Any
) -> Any:
    """Lamina returns running statistics beside the result where it is given some."""
    if running_mean is None:
        return lm.instance_norm(x, *args, **named)
    return lm.instance_norm(
        x, *args, running_mean=running_mean, running_var=running_var, **named
    ).output

"""Reductions and prefix sums (array API, "statistical", "searching" and "utility" functions)."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from lamina import dtypes
from lamina.dtypes import DType, as_dtype, bool_
from lamina.errors import AxisError, DTypeError, ShapeError
from lamina.ir import build
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce
from lamina.shape import normalize_axes, normalize_axis
from lamina.shape import prod as product
from lamina.tensor import complex_math, real_math
from lamina.tensor.core import Tensor, as_tensor
from lamina.tensor.elementwise import float_dtype
from lamina.tensor.movement import concat

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cummax", "cummin", "cumulative_prod",
    "cumulative_sum", "diff", "log_softmax", "logsumexp", "max", "mean", "min", "norm", "prod",
    "softmax", "std", "sum", "var",
]  # fmt: skip

Axis = int | Sequence[int] | None


def _finish(node: Node, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return Tensor.of(build.insert_axes(node, axes) if keepdims else node, x.device)


def _accumulator(dtype: DType) -> DType:
    """The 16-bit floats add up in float32."""
    return dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype


def _total_dtype(dtype: DType, wanted: Any) -> DType:
    """The dtype of a sum or product: the widest integer of the kind; floats stay."""
    if wanted is not None:
        return as_dtype(wanted)
    if dtype.kind in ("float", "complex"):
        return dtype
    return dtypes.uint64 if dtype.kind == "uint" else dtypes.default_int


def _fold(monoid: Monoid, node: Node, axes: Sequence[int], dtype: DType) -> Node:
    wide = build.cast(node, _accumulator(dtype))
    return build.cast(build.reduce(monoid, axes, wide), dtype)


def _total(
    what: str, monoid: Monoid, x: Any, axis: Axis, dtype: Any, keepdims: bool
) -> Tensor:
    x = as_tensor(x)
    axes = normalize_axes(what, axis, x.ndim)
    node = _fold(monoid, x.node, axes, _total_dtype(x.dtype, dtype))
    return _finish(node, x, axes, keepdims)


def sum(x: Any, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`, over everything by default; integers add up in 64 bits."""
    return _total("sum", ADD, x, axis, dtype, keepdims)


def prod(x: Any, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`, over everything by default; integers multiply in 64 bits."""
    return _total("prod", MUL, x, axis, dtype, keepdims)


def _extreme(what: str, monoid: Monoid, x: Any, axis: Axis, keepdims: bool) -> Tensor:
    x = as_tensor(x)
    axes = normalize_axes(what, axis, x.ndim)
    if not product(x.shape[one] for one in axes):
        raise ShapeError(f"{what}: {x.shape} has no elements along {axes}")
    if x.dtype.is_complex:
        raise DTypeError(f"{what}: complex numbers have no order")
    return _finish(build.reduce(monoid, axes, x.node), x, axes, keepdims)


def max(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The greatest element over `axis`; NaN wins."""
    return _extreme("max", MAX, x, axis, keepdims)


def min(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element over `axis`; NaN wins."""
    return _extreme("min", MIN, x, axis, keepdims)


def _truth(what: str, monoid: Monoid, x: Any, axis: Axis, keepdims: bool) -> Tensor:
    x = as_tensor(x)
    axes = normalize_axes(what, axis, x.ndim)
    node = x.node if x.dtype is bool_ else ~x.node.eq(0)
    return _finish(build.reduce(monoid, axes, node), x, axes, keepdims)


def all(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Whether every element over `axis` is true."""
    return _truth("all", MIN, x, axis, keepdims)


def any(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Whether some element over `axis` is true."""
    return _truth("any", MAX, x, axis, keepdims)


def count_nonzero(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """How many elements over `axis` are not 0."""
    x = as_tensor(x)
    axes = normalize_axes("count_nonzero", axis, x.ndim)
    node = build.cast(~x.node.eq(0), dtypes.default_int)
    return _finish(build.reduce(ADD, axes, node), x, axes, keepdims)


def _float_node(x: Tensor) -> tuple[Node, DType]:
    """The node of x in its accumulator's dtype, and the dtype of the result."""
    dtype = float_dtype(x.dtype)
    return build.cast(x.node, _accumulator(dtype)), dtype


def mean(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over `axis`; NaN of nothing."""
    x = as_tensor(x)
    axes = normalize_axes("mean", axis, x.ndim)
    node, dtype = _float_node(x)
    count = product(x.shape[one] for one in axes)
    total = build.reduce(ADD, axes, node)
    return _finish(build.cast(total / float(count), dtype), x, axes, keepdims)


def _variance(what: str, x: Tensor, axis: Axis, correction: float) -> tuple[Node, Sequence[int]]:
    """The mean squared distance from the mean, in the accumulator's dtype."""
    axes = normalize_axes(what, axis, x.ndim)
    node, _ = _float_node(x)
    if node.dtype.is_complex:
        raise DTypeError(f"{what}: {x.dtype.name} is not supported; take the parts")
    count = product(x.shape[one] for one in axes)
    center = build.insert_axes(build.reduce(ADD, axes, node) / float(count), axes)
    distance = node - build.expand(center, node.shape)
    divisor = count - correction
    total = build.reduce(ADD, axes, distance * distance)
    return total / float(divisor if divisor > 0 else 0), axes


def var(
    x: Any, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance over `axis`: squared distances from the mean over count - correction."""
    x = as_tensor(x)
    node, axes = _variance("var", x, axis, correction)
    return _finish(build.cast(node, float_dtype(x.dtype)), x, axes, keepdims)


def std(
    x: Any, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The square root of the variance over `axis`."""
    x = as_tensor(x)
    node, axes = _variance("std", x, axis, correction)
    root = real_math.root(node)
    return _finish(build.cast(root, float_dtype(x.dtype)), x, axes, keepdims)


def _arg(what: str, monoid: Monoid, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    x = as_tensor(x)
    if x.dtype.is_complex:
        raise DTypeError(f"{what}: complex numbers have no order")
    node = build.reshape(x.node, (x.size,)) if axis is None else x.node
    along = 0 if axis is None else normalize_axis(what, axis, x.ndim)
    if axis is not None and not x.ndim:
        raise AxisError(f"{what}: axis {axis} is out of range for an array of rank 0")
    if not node.shape[along]:
        raise ShapeError(f"{what}: {x.shape} has no elements to choose from")
    line = [1] * len(node.shape)
    line[along] = node.shape[along]
    place = build.reshape(build.iota(node.shape[along], dtypes.int64), tuple(line))
    found = build.reduce(monoid, (along,), node, build.expand(place, node.shape), part=1)
    axes = range(x.ndim) if axis is None else (along,)
    return _finish(found, x, axes, keepdims)


def argmax(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The place of the greatest element, the first of several."""
    return _arg("argmax", ARGMAX, x, axis, keepdims)


def argmin(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The place of the smallest element, the first of several."""
    return _arg("argmin", ARGMIN, x, axis, keepdims)


# Exponentials.


def _shifted(what: str, x: Tensor, axes: Sequence[int]) -> tuple[Node, Node]:
    """x less its maximum, and the maximum; the shift cancels, so no derivative flows there."""
    node, _ = _float_node(x)
    if node.dtype.is_complex:
        raise DTypeError(f"{what}: {x.dtype.name} is not supported")
    top = Node(Op.DETACH, (build.insert_axes(build.reduce(MAX, axes, node), axes),))
    return node - build.expand(top, node.shape), top


def softmax(x: Any, axis: Axis = -1, *, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along `axis`."""
    source = as_tensor(x) if dtype is None else as_tensor(x).cast(dtype)
    axes = normalize_axes("softmax", axis, source.ndim)
    if not source.size:
        return source
    powers = Node(Op.EXP, (_shifted("softmax", source, axes)[0],))
    total = build.insert_axes(build.reduce(ADD, axes, powers), axes)
    value = powers / build.expand(total, powers.shape)
    return Tensor.of(build.cast(value, float_dtype(source.dtype)), source.device)


def log_softmax(x: Any, axis: Axis = -1, *, dtype: Any = None) -> Tensor:
    """The logarithm of the softmax along `axis`."""
    source = as_tensor(x) if dtype is None else as_tensor(x).cast(dtype)
    axes = normalize_axes("log_softmax", axis, source.ndim)
    if not source.size:
        return source
    shifted, _ = _shifted("log_softmax", source, axes)
    total = build.reduce(ADD, axes, Node(Op.EXP, (shifted,)))
    log_total = build.insert_axes(Node(Op.LOG, (total,)), axes)
    value = shifted - build.expand(log_total, shifted.shape)
    return Tensor.of(build.cast(value, float_dtype(source.dtype)), source.device)


def logsumexp(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis` without overflow; -inf where everything is -inf."""
    x = as_tensor(x)
    axes = normalize_axes("logsumexp", axis, x.ndim)
    node, dtype = _float_node(x)
    top = Node(Op.DETACH, (build.insert_axes(build.reduce(MAX, axes, node), axes),))
    base = build.select(real_math.is_finite(top), top, top.lift(0))
    powers = Node(Op.EXP, (node - build.expand(base, node.shape),))
    total = Node(Op.LOG, (build.reduce(ADD, axes, powers),))
    value = total + build.reshape(base, total.shape)
    return _finish(build.cast(value, dtype), x, axes, keepdims)


def norm(x: Any, ord: float = 2, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The vector norm over `axis`: the root of order `ord` of the sum of powers."""
    x = as_tensor(x)
    axes = normalize_axes("norm", axis, x.ndim)
    node, dtype = _float_node(x)
    if node.dtype.is_complex:
        node, dtype = complex_math.absolute(node), dtypes.real_of(dtype)
    size = real_math.absolute(node)
    if ord in (math.inf, -math.inf):
        value = build.reduce(MAX if ord > 0 else MIN, axes, size)
    elif ord == 2:
        value = real_math.root(build.reduce(ADD, axes, node * node))
    elif ord == 1:
        value = build.reduce(ADD, axes, size)
    elif ord == 0:
        value = build.reduce(ADD, axes, build.cast(~node.eq(0), node.dtype))
    else:
        powers = Node(Op.POW, (size, size.lift(float(ord))))
        total = build.reduce(ADD, axes, powers)
        value = real_math.root(total, ord)
    return _finish(build.cast(value, dtype), x, axes, keepdims)


# Prefixes.


def _prefix(what: str, monoid: Monoid, x: Tensor, axis: int | None, dtype: DType) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise AxisError(f"{what}: an array of shape {x.shape} needs an axis")
        axis = 0
    along = normalize_axis(what, axis, x.ndim)
    wide = build.cast(x.node, _accumulator(dtype))
    scan = Node(Op.SCAN, (wide,), Reduce(monoid, (along,)))
    return Tensor.of(build.cast(scan, dtype), x.device)


def _cumulative(
    what: str, monoid: Monoid, x: Any, axis: int | None, dtype: Any, initial: int | None
) -> Tensor:
    x = as_tensor(x)
    result = _prefix(what, monoid, x, axis, _total_dtype(x.dtype, dtype))
    if initial is None:
        return result
    along = normalize_axis(what, 0 if axis is None else axis, x.ndim)
    shape = (*x.shape[:along], 1, *x.shape[along + 1 :])
    first = Tensor.of(build.full(shape, initial, result.dtype), x.device)
    return concat([first, result], axis=along)


def cumulative_sum(
    x: Any, /, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The sums of the first 1, 2, ... elements along `axis`; from 0 with `include_initial`."""
    return _cumulative("cumulative_sum", ADD, x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Any, /, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The products of the first 1, 2, ... elements along `axis`; from 1 with
    `include_initial`."""
    return _cumulative("cumulative_prod", MUL, x, axis, dtype, 1 if include_initial else None)


def cummax(x: Any, axis: int | None = None) -> Tensor:
    """The greatest of the first 1, 2, ... elements along `axis`."""
    x = as_tensor(x)
    return _prefix("cummax", MAX, x, axis, x.dtype)


def cummin(x: Any, axis: int | None = None) -> Tensor:
    """The smallest of the first 1, 2, ... elements along `axis`."""
    x = as_tensor(x)
    return _prefix("cummin", MIN, x, axis, x.dtype)


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """The differences of neighbours along `axis`, `n` times over."""
    x = as_tensor(x)
    along = normalize_axis("diff", axis, x.ndim)
    ends = [one for one in (prepend, x, append) if one is not None]
    if len(ends) > 1:
        x = concat(ends, axis=along)
    node = x.node
    for _ in range(n):
        size = node.shape[along]
        low, high = [0] * x.ndim, list(node.shape)
        low[along] = builtins.min(1, size)
        high[along] = builtins.max(0, size - 1)
        later = build.shrink(node, low, node.shape)
        earlier = build.shrink(node, [0] * x.ndim, high)
        node = later ^ earlier if node.dtype is bool_ else later - earlier
    return Tensor.of(node, x.device)

"""Functions of whole arrays: NumPy's answer beside ours, and inputs without kinks.

A row's functions are called with a generator and the operands; both draw their arguments from
equal generators, so that they get equal arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import lamina as lm
from lamina.core.dtypes import DType
from tests.functions.sampling import ALL, REAL, Array, Draw, Shape, axes_of, axis_of, broadcasting

Shapes = Callable[[Shape, Draw], list[Shape]]
Function = Callable[..., Any]

NUMBERS = (lm.int16, lm.uint8, lm.float32, lm.float64)


class Row(NamedTuple):
    """Ours, NumPy's, the shapes of the operands, the dtypes, and whether it has derivatives."""

    ours: Function
    theirs: Function
    shapes: Shapes
    dtypes: tuple[DType, ...] = ALL
    differentiable: bool = True


def any_shape(shape: Shape, draw: Draw) -> list[Shape]:
    return [shape]


def some_axis(shape: Shape, draw: Draw) -> list[Shape]:
    return [shape or (3,)]


def filled(shape: Shape, draw: Draw) -> list[Shape]:
    return [tuple(max(1, size) for size in shape)]


def filled_axis(shape: Shape, draw: Draw) -> list[Shape]:
    return [tuple(max(1, size) for size in shape or (3,))]


def matrix(shape: Shape, draw: Draw) -> list[Shape]:
    return [(*shape, 2, 3)[-max(2, len(shape)) :]]


def vector(shape: Shape, draw: Draw) -> list[Shape]:
    return [(*shape, 3)[:1]]


def two_vectors(shape: Shape, draw: Draw) -> list[Shape]:
    return [(*shape, 3)[:1], (*shape, 2, 2)[1:2]]


def equal_pair(shape: Shape, draw: Draw) -> list[Shape]:
    return [shape or (2,)] * 2


def broadcast_pair(shape: Shape, draw: Draw) -> list[Shape]:
    return [shape, broadcasting(shape, draw)]


def line_pair(shape: Shape, draw: Draw) -> list[Shape]:
    return [(*shape, 3), (*broadcasting(shape, draw), 3)]


def products(shape: Shape, draw: Draw) -> list[Shape]:
    k, n = int(draw.integers(0, 4)), int(draw.integers(0, 4))
    left = (*shape, k)
    right = ((k,), (k, n), (*broadcasting(shape[:-1], draw), k, n))[draw.integers(3)]
    return [left, right]


def by_index(x: Any, draw: Draw) -> tuple[Any, int]:
    """Indices that `x` has along an axis, in another order and number; and the axis."""
    axis = axis_of(x, draw)
    shape = list(x.shape)
    shape[axis] = 2 if x.shape[axis] else 0
    indices = draw.integers(0, max(1, x.shape[axis]), shape)
    return (lm.asarray(indices) if isinstance(x, lm.Tensor) else indices), axis


def taken(x: Any, draw: Draw) -> tuple[Any, int]:
    axis = axis_of(x, draw)
    size = x.shape[axis]
    indices = draw.integers(-size, size, 3) if size else np.zeros(0, np.int64)
    return (lm.asarray(indices) if isinstance(x, lm.Tensor) else indices), axis


def cut(x: Any, draw: Draw) -> tuple[int, list[int]]:
    """An axis and sizes of pieces that sum to its size."""
    axis = axis_of(x, draw)
    first = int(draw.integers(0, x.shape[axis] + 1))
    return axis, [first, x.shape[axis] - first]


def added(x: Array, index: Array, source: Array, axis: int) -> Array:
    """Adds `source` at `index` along `axis`, one element after the other."""
    result = np.array(x)
    for place in np.ndindex(*index.shape):
        target = list(place)
        target[axis] = index[place]
        result[(*target, ...)] += source[place]
    return result


def split_theirs(r: Draw, a: Array) -> list[Array]:
    axis, sizes = cut(a, r)
    return np.split(a, [sizes[0]], axis)


def split_ours(r: Draw, t: lm.Tensor) -> Any:
    axis, sizes = cut(t, r)
    return lm.split(t, sizes, axis)


def scatter_ours(r: Draw, t: lm.Tensor, source: lm.Tensor) -> lm.Tensor:
    index, axis = by_index(t, r)
    return lm.scatter(t, axis, index, lm.take_along_axis(source, index, axis=axis), "add")


def scatter_theirs(r: Draw, a: Array, source: Array) -> Array:
    index, axis = by_index(a, r)
    return added(a, index, np.take_along_axis(source, index, axis), axis)


def by(r: Draw) -> int:
    return int(r.integers(-4, 5))


def order(x: Any, r: Draw) -> list[int]:
    return [int(one) for one in r.permutation(x.ndim)]


def pairs(x: Any, r: Draw) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in r.integers(0, 3, (x.ndim, 2))]


def times(r: Draw) -> list[int]:
    return [int(one) for one in r.integers(0, 3, r.integers(1, 4))]


def place(x: Any, r: Draw) -> int:
    """Where a new axis can go."""
    return int(r.integers(-x.ndim - 1, x.ndim + 1))


def squeezable(shape: Shape, draw: Draw) -> list[Shape]:
    return [tuple(1 if draw.random() < 0.6 else size for size in shape)]


def ones(x: Any, r: Draw) -> int | Shape | None:
    """Axes of size 1."""
    found = tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    return (None, found, *found[:1])[r.integers(2 + len(found[:1]))]


def chunks_theirs(r: Draw, a: Array) -> list[Array]:
    axis = axis_of(a, r)
    step = max(1, -(-a.shape[axis] // 2))
    return np.split(a, range(step, a.shape[axis], step), axis) if a.shape[axis] else []


MOVEMENT: dict[str, Row] = {
    "reshape": Row(lambda r, t: lm.reshape(t, (t.size, 1)), lambda r, a: a.reshape(-1, 1)
                   if a.size else a.reshape(0, 1), any_shape),
    "flatten": Row(lambda r, t: lm.flatten(t), lambda r, a: a.reshape(-1), any_shape),
    "broadcast_to": Row(lambda r, t: lm.broadcast_to(t, (2, *t.shape)),
                        lambda r, a: np.broadcast_to(a, (2, *a.shape)), any_shape),
    "expand": Row(lambda r, t: lm.expand(t, 2, *[-1] * t.ndim),
                  lambda r, a: np.broadcast_to(a, (2, *a.shape)), any_shape),
    "broadcast_arrays": Row(lambda r, t, u: lm.broadcast_arrays(t, u),
                            lambda r, a, b: np.broadcast_arrays(a, b), broadcast_pair),
    "permute_dims": Row(lambda r, t: lm.permute_dims(t, order(t, r)),
                        lambda r, a: np.transpose(a, order(a, r)), any_shape),
    "permute": Row(lambda r, t: lm.permute(t, *order(t, r)) if t.ndim else lm.permute(t, ()),
                   lambda r, a: np.transpose(a, order(a, r)), any_shape),
    "transpose": Row(lambda r, t: lm.transpose(t, axis_of(t, r), axis_of(t, r)),
                     lambda r, a: np.swapaxes(a, axis_of(a, r), axis_of(a, r)), some_axis),
    "matrix_transpose": Row(lambda r, t: lm.matrix_transpose(t), lambda r, a: a.mT, matrix),
    "moveaxis": Row(lambda r, t: lm.moveaxis(t, axis_of(t, r), axis_of(t, r)),
                    lambda r, a: np.moveaxis(a, axis_of(a, r), axis_of(a, r)), some_axis),
    "flip": Row(lambda r, t: lm.flip(t, axis=axes_of(t, r)),
                lambda r, a: np.flip(a, axes_of(a, r)), any_shape),
    "roll": Row(lambda r, t: lm.roll(t, by(r), axis=axis_of(t, r)),
                lambda r, a: np.roll(a, by(r), axis_of(a, r)), some_axis),
    "expand_dims": Row(lambda r, t: lm.expand_dims(t, place(t, r)),
                       lambda r, a: np.expand_dims(a, place(a, r)), any_shape),
    "unsqueeze": Row(lambda r, t: lm.unsqueeze(t, place(t, r)),
                     lambda r, a: np.expand_dims(a, place(a, r)), any_shape),
    "squeeze": Row(lambda r, t: lm.squeeze(t, ones(t, r)), lambda r, a: np.squeeze(a, ones(a, r)),
                   squeezable),
    "pad": Row(lambda r, t: lm.pad(t, pairs(t, r), value=1),
               lambda r, a: np.pad(a, pairs(a, r), constant_values=1) if a.ndim else a, any_shape),
    "concat": Row(lambda r, t, u: lm.concat([t, u, t], axis=axis_of(t, r)),
                  lambda r, a, b: np.concatenate([a, b, a], axis_of(a, r)), equal_pair),
    "stack": Row(lambda r, t, u: lm.stack([t, u], axis=place(t, r)),
                 lambda r, a, b: np.stack([a, b], place(a, r)), equal_pair),
    "unstack": Row(lambda r, t: lm.unstack(t, axis=axis_of(t, r)),
                   lambda r, a: np.unstack(a, axis=axis_of(a, r)), filled_axis),
    "split": Row(split_ours, split_theirs, some_axis),
    "chunk": Row(lambda r, t: lm.chunk(t, 2, axis_of(t, r)), chunks_theirs, filled_axis),
    "repeat": Row(lambda r, t: lm.repeat(t, 2, axis=axis_of(t, r)),
                  lambda r, a: np.repeat(a, 2, axis_of(a, r)), some_axis),
    "tile": Row(lambda r, t: lm.tile(t, times(r)), lambda r, a: np.tile(a, times(r)), any_shape),
    "diagonal": Row(lambda r, t: lm.diagonal(t, offset=by(r)),
                    lambda r, a: np.diagonal(a, by(r), -2, -1), matrix),
    "diag": Row(lambda r, t: lm.diag(t, offset=by(r)), lambda r, a: np.diag(a, by(r)), vector),
    "tril": Row(lambda r, t: lm.tril(t, k=by(r)), lambda r, a: np.tril(a, by(r)), matrix),
    "triu": Row(lambda r, t: lm.triu(t, k=by(r)), lambda r, a: np.triu(a, by(r)), matrix),
    "meshgrid": Row(lambda r, t, u: lm.meshgrid(t, u), lambda r, a, b: np.meshgrid(a, b),
                    two_vectors),
    "take": Row(lambda r, t: (lambda i, axis: lm.take(t, i, axis=axis))(*taken(t, r)),
                lambda r, a: np.take(a, *taken(a, r)), some_axis),
    "take_along_axis": Row(
        lambda r, t: (lambda i, axis: lm.take_along_axis(t, i, axis=axis))(*by_index(t, r)),
        lambda r, a: np.take_along_axis(a, *by_index(a, r)), some_axis),
    "gather": Row(lambda r, t: (lambda i, axis: lm.gather(t, axis, i))(*by_index(t, r)),
                  lambda r, a: np.take_along_axis(a, *by_index(a, r)), some_axis),
    "scatter": Row(scatter_ours, scatter_theirs, equal_pair, NUMBERS),
    "nonzero": Row(lambda r, t: lm.nonzero(t), lambda r, a: np.nonzero(a), some_axis,
                   differentiable=False),
}  # fmt: skip


def reduction(name: str) -> tuple[Function, Function]:
    """A function of both libraries that takes `axis` and `keepdims`."""

    def run(library: Any, r: Draw, x: Any) -> Any:
        return getattr(library, name)(x, axis=axes_of(x, r), keepdims=bool(r.integers(2)))

    return lambda r, t: run(lm, r, t), lambda r, a: run(np, r, a)


def along(ours: str, theirs: Function) -> tuple[Function, Function]:
    """A function that keeps the size of an axis."""
    return (lambda r, t: getattr(lm, ours)(t, axis=axis_of(t, r)),
            lambda r, a: theirs(a, axis=axis_of(a, r)))  # fmt: skip


def softmax(a: Array, axis: Any) -> Array:
    powers = np.exp(a - a.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def logsumexp_theirs(r: Draw, a: Array) -> Array:
    return np.log(np.exp(a).sum(axes_of(a, r), keepdims=bool(r.integers(2))))


def norm_theirs(r: Draw, a: Array) -> Array:
    return np.sqrt((a * a).sum(axes_of(a, r), keepdims=bool(r.integers(2))))


REALS = (lm.float32, lm.float64)
SIGNED = (lm.int16, lm.float32, lm.float64)
REDUCTIONS: dict[str, Row] = {
    **{name: Row(*reduction(name), any_shape, NUMBERS) for name in ("sum", "prod")},
    **{name: Row(*reduction(name), filled, NUMBERS) for name in ("max", "min")},
    **{name: Row(*reduction(name), filled, REALS) for name in ("mean", "var", "std")},
    **{name: Row(*reduction(name), any_shape, ALL, False)
       for name in ("any", "all", "count_nonzero")},
    **{name: Row(*along(name, getattr(np, name)), filled_axis, REAL, False)
       for name in ("argmax", "argmin")},
    "norm": Row(lambda r, t: lm.norm(t, axis=axes_of(t, r), keepdims=bool(r.integers(2))),
                norm_theirs, filled, REALS),
    "logsumexp": Row(
        lambda r, t: lm.logsumexp(t, axis=axes_of(t, r), keepdims=bool(r.integers(2))),
        logsumexp_theirs, filled, REALS),
    "softmax": Row(*along("softmax", softmax), filled_axis, REALS),
    "log_softmax": Row(*along("log_softmax", lambda a, axis: np.log(softmax(a, axis))),
                       filled_axis, REALS),
    "cumulative_sum": Row(*along("cumulative_sum", np.cumulative_sum), some_axis, NUMBERS),
    "cumulative_prod": Row(*along("cumulative_prod", np.cumulative_prod), some_axis, NUMBERS),
    "cummax": Row(*along("cummax", np.maximum.accumulate), some_axis, NUMBERS),
    "cummin": Row(*along("cummin", np.minimum.accumulate), some_axis, NUMBERS),
    "diff": Row(*along("diff", np.diff), some_axis, (lm.bool, *NUMBERS)),
    "sort": Row(*along("sort", np.sort), some_axis, REAL),
    "argsort": Row(*along("argsort", lambda a, axis: np.argsort(a, axis, stable=True)), some_axis,
                   REAL, False),
    "topk": Row(lambda r, t: lm.topk(t, 1, axis_of(t, r)).values,
                lambda r, a: a.max(axis_of(a, r) % a.ndim, keepdims=True), filled_axis, NUMBERS),
    "searchsorted": Row(lambda r, t, u: lm.searchsorted(lm.sort(t), u),
                        lambda r, a, b: np.searchsorted(np.sort(a), b), two_vectors, SIGNED, False),
    "matmul": Row(lambda r, t, u: lm.matmul(t, u), lambda r, a, b: a @ b, products, SIGNED),
    "tensordot": Row(lambda r, t, u: lm.tensordot(t, u, axes=1),
                     lambda r, a, b: np.tensordot(a, b, 1), lambda s, r: [(*s, 3), (3, *s)],
                     SIGNED),
    "vecdot": Row(lambda r, t, u: lm.vecdot(t, u), lambda r, a, b: np.vecdot(a, b), line_pair,
                  SIGNED),
    "dot": Row(lambda r, t, u: lm.dot(t, u), lambda r, a, b: a @ b,
               lambda s, r: vector(s, r) * 2, SIGNED),
    "outer": Row(lambda r, t, u: lm.outer(t, u), lambda r, a, b: np.outer(a, b), two_vectors,
                 SIGNED),
    "einsum": Row(lambda r, t, u: lm.einsum("...i,...i->...", t, u),
                  lambda r, a, b: np.einsum("...i,...i->...", a, b), line_pair, SIGNED),
    "trace": Row(lambda r, t: lm.trace(t, offset=by(r)), lambda r, a: np.trace(a, by(r), -2, -1),
                 matrix, NUMBERS),
}  # fmt: skip

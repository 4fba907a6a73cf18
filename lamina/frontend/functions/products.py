"""Products of matrices and vectors beyond the array API standard, and distances."""

from collections.abc import Callable, Sequence
from functools import partial
from string import ascii_letters
from typing import Any

from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.arguments import normalize_axis
from lamina.frontend.functions import reduction as over
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import multiply, pow, where
from lamina.frontend.functions.indexing import take
from lamina.frontend.functions.linalg import (
    einsum,
    matmul,
    on_one_device,
    outer,
    tensordot,
    vecdot,
)
from lamina.frontend.functions.movement import (
    broadcast_arrays,
    expand_dims,
    flatten,
    flip,
    reshape,
    roll,
)  # fmt: skip
from lamina.frontend.functions.spatial import widened
from lamina.frontend.tensor import Data, Tensor, as_tensor, common_dtype

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "cdist", "cross", "dist", "inner", "kron",
    "multi_dot", "pairwise_distance", "pdist", "renorm", "vander", "vdot",
]  # fmt: skip

# beta x + alpha times a product.


def _added(
    what: str, x: Data, product: Callable[[Tensor, Tensor], Tensor], x1: Tensor, x2: Tensor,
    beta: float, alpha: float,
) -> Tensor:  # fmt: skip
    """beta x + alpha times a product, rounded once to 16 bits; without x where beta is 0, even
    where x is NaN. what: the name of the function."""
    factors = on_one_device(what, x1, x2)
    result = product(*map(widened, factors))
    if alpha != 1:
        result = result * alpha
    if beta != 0:
        summand = widened(x) if isinstance(x, Tensor) else x
        result = result + (summand if beta == 1 else summand * beta)
    terms = factors if beta == 0 else [x, *factors]
    dtype = common_dtype(what, *terms)
    return result.cast(dtype) if dtype.is_small else result


def addmm(x: Data, x1: Tensor, x2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha x1 @ x2, of matrices (n, k) and (k, m); x broadcasts to (n, m)."""
    if x1.ndim != 2 or x2.ndim != 2:
        raise ShapeError(f"{x1.shape} @ {x2.shape}: two matrices are needed", operation="addmm")
    return _added("addmm", x, matmul, x1, x2, beta, alpha)


def addmv(x: Data, x1: Tensor, x2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha x1 @ x2, of a matrix (n, k) and a vector (k,); x broadcasts to (n,)."""
    if x1.ndim != 2 or x2.ndim != 1:
        raise ShapeError(
            f"{x1.shape} @ {x2.shape}: a matrix and a vector are needed", operation="addmv"
        )
    return _added("addmv", x, matmul, x1, x2, beta, alpha)


def addr(x: Data, x1: Tensor, x2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha times all products of two vectors (n,) and (m,); x broadcasts to (n, m)."""
    return _added("addr", x, outer, x1, x2, beta, alpha)


def baddbmm(x: Data, x1: Tensor, x2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha x1 @ x2, of batches (b, n, k) and (b, k, m); x broadcasts to (b, n, m)."""
    if x1.ndim != 3 or x2.ndim != 3:
        raise ShapeError(
            f"{x1.shape} @ {x2.shape}: two batches of matrices are needed", operation="baddbmm"
        )
    return _added("baddbmm", x, matmul, x1, x2, beta, alpha)


def addbmm(x: Data, x1: Tensor, x2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha times the sum over the batch of x1 @ x2, (b, n, k) and (b, k, m); x broadcasts
    to (n, m)."""
    if x1.ndim != 3 or x2.ndim != 3:
        raise ShapeError(
            f"{x1.shape} @ {x2.shape}: two batches of matrices are needed", operation="addbmm"
        )
    return _added("addbmm", x, partial(einsum, "bij,bjk->ik"), x1, x2, beta, alpha)


# Other products.


def inner(x1: Data, x2: Any) -> Tensor:
    """The sums of products over the last axes, (..., k) and (..., k); products with a number."""
    other = as_tensor(x2, x1)
    if not x1.ndim or not other.ndim:
        return multiply(x1, other)
    return tensordot(x1, other, axes=((-1,), (-1,)))


def vdot(x1: Data, x2: Any) -> Tensor:
    """The inner product of all elements; those of the first operand are conjugated."""
    return vecdot(flatten(x1), flatten(as_tensor(x2, x1)))


def kron(x1: Data, x2: Any) -> Tensor:
    """The product of Kronecker: each element of x1 times all of x2, (a, ...) and (b, ...) to
    (a b, ...)."""
    other = as_tensor(x2, x1)
    rank = max(x1.ndim, other.ndim)
    left, right = ((1,) * (rank - one.ndim) + one.shape for one in (x1, other))
    spread = reshape(x1, tuple(size for one in left for size in (one, 1)))
    repeated = reshape(other, tuple(size for one in right for size in (1, one)))
    return reshape(spread * repeated, tuple(a * b for a, b in zip(left, right, strict=True)))


def multi_dot(arrays: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, the smallest intermediate result first. The first and the
    last may be vectors."""
    terms = [ascii_letters[at : at + 2] for at in range(len(arrays))]
    if len(arrays) < 2:
        raise ShapeError(f"{len(arrays)} arrays; two at least are needed", operation="multi_dot")
    if arrays[0].ndim == 1:
        terms[0] = terms[0][1:]
    if arrays[-1].ndim == 1:
        terms[-1] = terms[-1][:1]
    if any(one.ndim != len(term) for one, term in zip(arrays, terms, strict=True)):
        shapes = " @ ".join(str(one.shape) for one in arrays)
        raise ShapeError(
            f"{shapes}: matrices are needed, and vectors at the ends", operation="multi_dot"
        )
    outer_axes = (terms[0][0] if arrays[0].ndim == 2 else "",
                  terms[-1][1] if arrays[-1].ndim == 2 else "")  # fmt: skip
    return einsum(f"{','.join(terms)}->{''.join(outer_axes)}", *arrays)


def cross(x1: Data, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The vector products of vectors of three elements along `axis`; the others broadcast."""
    first, second = broadcast_arrays(x1, as_tensor(x2, x1))
    along = normalize_axis("cross", axis, first.ndim)
    if first.shape[along] != 3:
        raise ShapeError(f"axis {axis} of {first.shape} has {first.shape[along]} elements, "
                         "not 3", operation="cross")  # fmt: skip
    (a, b), (c, d) = ([roll(one, by, axis=along) for by in (-1, -2)] for one in (first, second))
    return a * d - b * c


def vander(x: Data, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """The powers 0 to N - 1 of each element, (..., n) to (..., n, N), N = n by default; the
    highest first unless they are `increasing`."""
    count = x.shape[-1] if N is None else N
    powers = pow(expand_dims(x, -1), arange(count, device=x.device).cast(x.dtype))
    return powers if increasing else flip(powers, axis=-1)


# Distances.


def _check_order(what: str, p: float) -> None:
    if not p >= 0.0:
        raise ArgumentError(f"p={p}; a distance has an order of 0 or more", operation=what)


def cdist(x1: Data, x2: Data, p: float = 2.0) -> Tensor:
    """The distance of order `p` of each row of x1, (..., n, d), from each row of x2, (..., m, d):
    (..., n, m)."""
    _check_order("cdist", p)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            f"{x1.shape} and {x2.shape}; rows of one size are needed", operation="cdist"
        )
    return over.norm(expand_dims(x1, -2) - expand_dims(x2, -3), p, axis=-1)


def pdist(x: Data, p: float = 2.0) -> Tensor:
    """The distances of order `p` between rows i < j of x, (n, d), row by row: (n (n - 1) / 2,)."""
    _check_order("pdist", p)
    if x.ndim != 2:
        raise ShapeError(f"{x.shape} is no matrix", operation="pdist")
    count = x.shape[0]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    return over.norm(take(x, first, axis=0) - take(x, second, axis=0), p, axis=-1)


def dist(x1: Data, x2: Any, p: float = 2.0) -> Tensor:
    """The norm of order `p` of all elements of x1 - x2."""
    return over.norm(x1 - as_tensor(x2, x1), p)


def pairwise_distance(
    x1: Data, x2: Data, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Tensor:
    """The norm of order `p` over the last axis of x1 - x2 + eps."""
    return over.norm(x1 - x2 + eps, p, axis=-1, keepdims=keepdims)


def renorm(x: Data, p: float, axis: int, maxnorm: float) -> Tensor:
    """x with each slice along `axis` whose norm of order `p` exceeds `maxnorm` scaled to it."""
    along = normalize_axis("renorm", axis, x.ndim)
    others = [one for one in range(x.ndim) if one != along]
    size = over.norm(x, p, axis=others, keepdims=True)
    return multiply(x, where(size > maxnorm, maxnorm / (size + 1e-7), 1.0))

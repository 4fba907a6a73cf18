"""Attention; its name and meaning are PyTorch's. Halves are computed in float32."""

import math
from collections.abc import Callable
from functools import partial

from lamina.core.dtypes import DType, accumulator, bool_
from lamina.core.options import kind_of
from lamina.errors import ShapeError
from lamina.frontend.arguments import broadcast_shapes
from lamina.frontend.functions import movement
from lamina.frontend.functions import reduction as over
from lamina.frontend.functions.elementwise import exp, where
from lamina.frontend.functions.linalg import matmul
from lamina.frontend.functions.neural import dropout
from lamina.frontend.functions.spatial import exact
from lamina.frontend.tensor import Tensor, common_device, common_dtype
from lamina.ir.build import broadcasted_iota
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = ["scaled_dot_product_attention"]

_WHAT = "scaled_dot_product_attention"
_PARTS, _LEAST_PART = 8, 256  # causal attention in parts of so many rows computes little in vain


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """``softmax(scale * query @ key.T + mask) @ value``, shape (..., L, Ev).

    query: (..., L, E). key: (..., S, E). value: (..., S, Ev). attn_mask broadcasts to
    (..., L, S): bool, True where a key takes part, or a float that is added to the scores.
    is_causal: position i sees keys 0 to i. scale: 1 / sqrt(E) by default. enable_gqa: each head
    (the axis before the last two) of key and value serves a group of the query's. A row without
    any key is zeros, and so is its derivative. Scores and sums are float32 for halves."""
    from lamina.compiled import RUNNERS  # it loads when it is first needed

    dtype = common_dtype(_WHAT, query, key, value)
    sum_dtype = accumulator(dtype)
    query, key, value = (exact(_WHAT, x).cast(sum_dtype) for x in (query, key, value))
    common_device(_WHAT, query, key, value)
    shapes = f"query {query.shape}, key {key.shape} and value {value.shape}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(f"{shapes}: two axes or more are needed", operation=_WHAT)
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"{shapes}: query and key need one last size, key and value one before",
            operation=_WHAT,
        )
    groups = _shared_heads(query, key, value) if enable_gqa else 0
    if groups:
        query, attn_mask = _in_groups(query, groups), _mask_in_groups(attn_mask, query, groups)
        key, value = (_for_groups(x, query) for x in (key, value))
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    attend = partial(_attend, factor=factor, dropout_p=dropout_p, dtype=dtype)
    whole = dtype.is_small and RUNNERS[kind_of(query.device)].skips_masked_tiles
    if whole or not is_causal or attn_mask is not None:
        mixed = attend(query, key, value, attn_mask, 0 if is_causal else None)
    else:
        mixed = _causal(attend, query, key, value)
    return _with_one_axis_of_heads(mixed) if groups else mixed


def _causal(attend: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention in parts of rows: no row of a part sees a key behind the part's end. Rows
    from the last key on see all keys, and are one part: of 1719 rows and 600 keys the first 600
    are two parts, and the others a third one."""
    length, keys = query.shape[-2], key.shape[-2]
    if keys >= 2 * length:  # the last keys are seen by no row; padding slopes costs less
        key, value = key[..., :length, :], value[..., :length, :]
    masked = min(length, keys)
    parts = min(_PARTS, masked // _LEAST_PART)
    if parts < 2:
        return attend(query, key, value, None, 0)
    step = -(-masked // parts)
    starts = range(0, masked, step)
    ends = [*starts[1:], masked]
    attended = [
        attend(query[..., at:end, :], key[..., :end, :], value[..., :end, :], None, at)
        for at, end in zip(starts, ends, strict=True)
    ]
    if masked < length:
        attended.append(attend(query[..., masked:, :], key, value, None, None))
    return movement.concat(attended, axis=-2)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, first: int | None,
    factor: float, dropout_p: float, dtype: DType,
) -> Tensor:  # fmt: skip
    """Attention of rows that are `first` and those after it, which see no later keys; or, without
    a first one, that see all keys."""
    sum_dtype = query.dtype
    scores = matmul(query, movement.matrix_transpose(key))
    scores = _rounded(scores, sum_dtype, dtype) * factor
    if first is not None:
        box = scores.shape[-2:]
        rows, columns = (Tensor.of(broadcasted_iota(box, axis), scores.device) for axis in (0, 1))
        scores = where(rows + first < columns, -math.inf, scores)
    if attn_mask is not None:
        if broadcast_shapes(_WHAT, attn_mask.shape, scores.shape) != scores.shape:
            raise ShapeError(
                f"mask {attn_mask.shape} does not fit scores {scores.shape}", operation=_WHAT
            )
        allows = attn_mask.dtype is bool_
        if allows:
            scores = where(attn_mask, scores, -math.inf)
        else:
            scores = scores + attn_mask.cast(sum_dtype)
    if scores.shape[-1] == 0:  # zeros, and no row has a maximum
        return matmul(scores, value).cast(dtype)
    top = over.max(scores, axis=-1, keepdims=True).detach()
    # A finite reference keeps rows of -inf, which have no key, away from NaN.
    top = where(top == -math.inf, 0.0, top)
    # Neither weights nor what is divided by their sum gets too small.
    if dtype.least > sum_dtype.least:
        top = top + round(math.log2(scores.shape[-1]) / 2) * math.log(2.0)
    weights = exp(scores - top)
    total = over.sum(weights, axis=-1, keepdims=True)
    weights = _rounded(dropout(weights, dropout_p, training=dropout_p > 0.0), dtype, sum_dtype)
    mixed = _rounded(matmul(weights, value), sum_dtype, dtype)
    return (mixed / where(total == 0.0, 1.0, total)).cast(dtype)


def _rounded(x: Tensor, to: DType, back: DType) -> Tensor:
    """`x` rounded to one dtype, and its derivative to another, as factors of products are."""
    value, slope = (x.cast(dtype).cast(x.dtype).node for dtype in (to, back))
    return Tensor.of(Node(Op.CUSTOM_DERIVATIVE, (value, slope)), x.device)


def _shared_heads(query: Tensor, *shared: Tensor) -> int:
    """How many groups the heads of the query are in, the most heads that one of `shared` has; 0
    where it has a head for each of the query's."""
    heads = query.shape[-3:-2]
    counts = [x.shape[-3] if x.ndim > 2 else 0 for x in shared]
    groups = max(counts)
    for x, count in zip(shared, counts, strict=True):
        if not heads or not count or heads[0] % groups or groups % count:
            raise ShapeError(
                f"heads of {query.shape} do not divide by those of {x.shape}", operation=_WHAT
            )
    return groups if [heads[0]] * len(counts) != counts else 0


def _in_groups(x: Tensor, groups: int) -> Tensor:
    """(..., heads, L, E) as (..., groups, heads of each, L, E). Scores keep the axis of groups, and
    so do all that sum over them: a kernel computes scores again for sums of their own axes."""
    return movement.reshape(x, (*x.shape[:-3], groups, x.shape[-3] // groups, *x.shape[-2:]))


def _with_one_axis_of_heads(x: Tensor) -> Tensor:
    *batch, groups, members, rows, columns = x.shape
    return movement.reshape(x, (*batch, groups * members, rows, columns))


def _mask_in_groups(mask: Tensor | None, query: Tensor, groups: int) -> Tensor | None:
    """A mask that broadcasts to (..., heads, L, S), with the axes of `_in_groups`."""
    if mask is None or mask.ndim < 3:
        return mask
    if mask.shape[-3] not in (1, query.shape[-3]):
        raise ShapeError(
            f"mask {mask.shape} does not fit heads of {query.shape}", operation=_WHAT
        )
    return _in_groups(mask, 1 if mask.shape[-3] == 1 else groups)


def _for_groups(x: Tensor, query: Tensor) -> Tensor:
    """The heads of `x`, key or value, each for all heads of the query's groups that it serves."""
    groups, members = query.shape[-4:-2]
    if x.shape[-3] != groups:
        x = movement.repeat(x, groups // x.shape[-3], axis=-3)
    wide = (*x.shape[:-2], members, *x.shape[-2:])
    return movement.broadcast_to(movement.reshape(x, (*x.shape[:-2], 1, *x.shape[-2:])), wide)

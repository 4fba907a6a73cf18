"""Sequences of symbols: losses of alignments, and bags of rows.

Names and meanings are PyTorch's.
"""

import math
from collections.abc import Sequence
from typing import Any

from lamina.core.dtypes import bool_, int64
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.functions import movement
from lamina.frontend.functions import reduction as over
from lamina.frontend.functions.creation import arange, full, zeros
from lamina.frontend.functions.elementwise import maximum, where
from lamina.frontend.functions.indexing import (
    as_index,
    check_range,
    known_elements,
    take,
    take_along_axis,
)
from lamina.frontend.functions.lookup import embedding, padding_row
from lamina.frontend.functions.neural import reduced
from lamina.frontend.functions.padding import pad
from lamina.frontend.functions.scatter import counts, scatter
from lamina.frontend.functions.sets import searchsorted
from lamina.frontend.functions.spatial import exact, views
from lamina.frontend.tensor import Tensor, common_device

__all__ = ["ctc_loss", "embedding_bag"]

# Stands for the logarithm of 0: exp of it is 0, and differences of such numbers are no NaN.
_IMPOSSIBLE = -1e30

Lengths = Tensor | Sequence[int] | int


def ctc_loss(
    log_probs: Tensor, targets: Any, input_lengths: Lengths, target_lengths: Lengths,
    blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Minus the logarithm of the probability of all alignments of the inputs with the targets
    (Graves et al. 2006, "Connectionist temporal classification", section 4.1).

    log_probs: logarithms of probabilities of classes, (T, N, C) or (T, C), as `log_softmax` makes
    them. targets: integer classes but `blank`, (N, S) padded at the end, or those of all samples
    one after the other, (sum of target_lengths,); (S,) without the axis N. input_lengths,
    target_lengths: (N,), or () without N. reduction: 'mean' divides each loss by the length of its
    target first. zero_infinity: targets too long for their inputs, whose loss is infinite, count
    as 0.

    The T steps are unrolled, so the program grows with T. Targets one after the other need the
    values of `target_lengths`, which are then computed at once. Raises ShapeError for shapes that
    do not fit; and for targets and lengths out of range, unless they are in tensors, AxisError and
    ArgumentError."""
    if log_probs.ndim == 2:
        return _ctc_of_one(log_probs, targets, input_lengths, target_lengths, blank, reduction,
                           zero_infinity)  # fmt: skip
    if log_probs.ndim != 3 or not log_probs.shape[0]:
        raise ShapeError(
            f"log_probs {log_probs.shape} is not (T, [N,] C) with a step", operation="ctc_loss"
        )
    _, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise ArgumentError(f"blank={blank} is none of {classes} classes", operation="ctc_loss")
    inputs = as_index("ctc_loss", input_lengths, log_probs).cast(int64)
    lengths = as_index("ctc_loss", target_lengths, log_probs).cast(int64)
    labels = as_index("ctc_loss", targets, log_probs).cast(int64)
    if inputs.shape != (batch,) or lengths.shape != (batch,):
        raise ShapeError(f"log_probs {log_probs.shape} needs {batch} lengths, not "
                         f"{inputs.shape} and {lengths.shape}", operation="ctc_loss")  # fmt: skip
    _check_known(log_probs, labels, targets, input_lengths, target_lengths)
    if labels.ndim == 1:
        labels = _padded(labels, lengths)
    elif labels.ndim != 2 or labels.shape[0] != batch:
        raise ShapeError(f"targets {labels.shape} for log_probs {log_probs.shape}; "
                         f"({batch}, S) or one axis is needed", operation="ctc_loss")  # fmt: skip
    chance = _log_chance(exact("ctc_loss", log_probs), labels, inputs, lengths, blank)
    impossible = chance < _IMPOSSIBLE / 2.0
    losses = where(impossible, 0.0 if zero_infinity else math.inf, -chance)
    if reduction == "mean":
        losses = losses / maximum(lengths, 1).cast(losses.dtype)
    return reduced("ctc_loss", losses, reduction, log_probs)


def _ctc_of_one(
    log_probs: Tensor, targets: Any, input_lengths: Lengths, target_lengths: Lengths,
    blank: int, reduction: str, zero_infinity: bool,
) -> Tensor:  # fmt: skip
    """`ctc_loss` of a sample without the axis N."""
    labels = as_index("ctc_loss", targets, log_probs)
    if labels.ndim != 1:
        raise ShapeError(f"targets {labels.shape} for log_probs {log_probs.shape}; "
                         "(S,) is needed", operation="ctc_loss")  # fmt: skip
    inputs, lengths = (
        as_index("ctc_loss", one, log_probs).reshape(1) for one in (input_lengths, target_lengths)
    )
    _check_known(log_probs, labels, targets, input_lengths, target_lengths)
    batched = log_probs.unsqueeze(1), labels.unsqueeze(0)
    losses = ctc_loss(*batched, inputs, lengths, blank, reduction, zero_infinity)
    return losses.squeeze(0) if reduction == "none" else losses


def _check_known(
    log_probs: Tensor, labels: Tensor, targets: Any, input_lengths: Any, target_lengths: Any
) -> None:
    """Raises for lengths and classes that are known and out of range. `labels` are the `targets` as
    a tensor. What pads them, behind their lengths, may be anything."""
    _check_lengths("input_lengths", input_lengths, log_probs.shape[0])
    _check_lengths("target_lengths", target_lengths, labels.shape[-1])
    classes, lengths = known_elements(targets), known_elements(target_lengths)
    is_padded = labels.ndim == log_probs.ndim - 1
    if classes is None or (is_padded and lengths is None):
        return
    if is_padded:
        import numpy as np

        ends = lengths.reshape(*labels.shape[:-1], 1)
        classes = classes[np.arange(labels.shape[-1]) < ends]
    axis = log_probs.ndim - 1
    check_range("ctc_loss", classes, axis, log_probs.shape[axis], minimum=0)


def _check_lengths(name: str, lengths: Any, longest: int) -> None:
    known = known_elements(lengths)
    if known is not None and not ((known >= 0) & (known <= longest)).all():
        raise ArgumentError(
            f"{name}={lengths}; they lie between 0 and {longest}", operation="ctc_loss"
        )


def _padded(labels: Tensor, lengths: Tensor) -> Tensor:
    """Targets one after the other, (sum of lengths,), as rows (N, S) with anything at the end."""
    counts = lengths.tolist()
    if sum(counts) > labels.shape[0]:
        raise ShapeError(
            f"targets {labels.shape} are fewer than their lengths, {counts}", operation="ctc_loss"
        )
    starts = over.cumulative_sum(lengths, axis=0) - lengths
    columns = arange(max(counts, default=0), device=labels.device)
    places = movement.expand_dims(starts, axis=1) + columns
    if not labels.shape[0]:
        return places
    return take(labels, where(places < labels.shape[0], places, 0), axis=0)


def _log_chance(
    log_probs: Tensor, labels: Tensor, inputs: Tensor, lengths: Tensor, blank: int
) -> Tensor:
    """The logarithm of the sum over all alignments, (N,), by the forward recursion."""
    states = _states(labels, blank)
    bounded = maximum(log_probs, _IMPOSSIBLE)  # a logarithm of 0 may be -inf
    emitted = take_along_axis(bounded, movement.expand_dims(states, axis=0), axis=2)
    penalty = _penalty(states, blank).cast(log_probs.dtype).contiguous()
    place = arange(states.shape[1], device=labels.device)
    first, *emissions = movement.unstack(emitted.contiguous(), axis=0)
    forward = [where(place < 2, first, _IMPOSSIBLE).contiguous()]
    for emission in emissions:
        reached = over.logsumexp(_last_three(forward[-1]) + penalty, axis=1) + emission
        forward.append(reached.contiguous())
    steps = movement.reshape(maximum(inputs - 1, 0), (1, -1, 1))
    final = movement.squeeze(take_along_axis(movement.stack(forward), steps, axis=0), axis=0)
    last = movement.expand_dims(2 * lengths, axis=1)
    ends = (place == last) | (place == last - 1)
    chance = over.logsumexp(where(ends, final, _IMPOSSIBLE), axis=1)
    nothing = where(lengths == 0, 0.0, _IMPOSSIBLE).cast(chance.dtype)
    return where(inputs == 0, nothing, chance)


def _states(labels: Tensor, blank: int) -> Tensor:
    """The labels, (N, S), with a blank before, between and after each, (N, 2 S + 1). Blanks at the
    end, which change nothing, make rows a multiple of 64 bytes long: steps in time that read their
    rows at whole lines of memory share a kernel."""
    batch, count = labels.shape
    blanks = full((batch, count), blank, dtype=int64, device=labels.device)
    pairs = movement.reshape(movement.stack([blanks, labels], axis=2), (batch, 2 * count))
    width = -(-(2 * count + 1) // 16) * 16  # floats
    return pad(pairs, [(0, 0), (0, width - 2 * count)], value=blank)


def _penalty(states: Tensor, blank: int) -> Tensor:
    """The logarithms, 0 or that of 0, of the ways to each state, (N, 3, states): from two before,
    which skips the blank between two different labels, from one before, and from itself."""
    before = pad(states, [(0, 0), (2, 0)], value=blank)[:, : states.shape[1]]
    skips = where((states != blank) & (states != before), 0.0, _IMPOSSIBLE)
    free = zeros(states.shape, dtype=skips.dtype, device=states.device)
    return movement.stack([skips, free, free], axis=1)


def _last_three(x: Tensor) -> Tensor:
    """(N, S) to (N, 3, S): the elements two places before, one before, and each itself."""
    padded = pad(x, [(0, 0), (2, 0)], value=_IMPOSSIBLE)
    apart = movement.expand_dims(padded, axis=1)
    return Tensor.of(views("ctc_loss", apart.node, (3,), (1,), (1,)), x.device)


def embedding_bag(
    indices: Any, weight: Tensor, offsets: Any = None, mode: str = "mean",
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None, *, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Tensor:  # fmt: skip
    """The sum, mean or maximum of the rows of `weight`, (n, d), at the indices of each bag.

    indices: (N, L), a bag a row; or (L,) with `offsets` (N,), where each bag begins: ascending from
    0. mode: 'sum', 'mean' or 'max'. per_sample_weights: of the shape of indices, a factor of each
    row, for 'sum'. include_last_offset: the last offset is the end of the last bag. padding_idx:
    this index counts for no bag. max_norm, norm_type, scale_grad_by_freq: as for `embedding`.
    Result: (N, d); a bag of nothing is zeros. Raises AxisError for an index out of range, and
    ArgumentError for such offsets, unless they are in tensors."""
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(
            f"mode={mode!r} is not 'sum', 'mean' or 'max'", operation="embedding_bag"
        )
    index, starts = _bags(indices, weight, offsets)
    check_range("embedding_bag", indices, 0, len(weight), minimum=0)
    rows = embedding(index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = _weighted(rows, per_sample_weights, mode)
    counted = full(index.shape, True, dtype=bool_, device=index.device)
    if padding_idx is not None:
        counted = index != padding_row("embedding_bag", padding_idx, len(weight))
    values = rows if mode == "max" else exact("embedding_bag", rows)
    chosen = where(movement.expand_dims(counted, axis=-1), values, _start(mode))
    if starts is None:
        combined, sizes = _over_rows(chosen, counted, mode)
    else:
        _check_offsets(offsets, index.shape[0])
        count = starts.shape[0] - int(include_last_offset)
        combined, sizes = _over_runs(chosen, counted, starts, count, mode)
    sizes = movement.expand_dims(sizes, axis=-1)
    if mode == "mean":
        combined = combined / maximum(sizes, 1)
    return where(sizes == 0, 0.0, combined).cast(rows.dtype)


def _bags(indices: Any, weight: Tensor, offsets: Any) -> tuple[Tensor, Tensor | None]:
    """The indices and where each bag begins, if they have one axis, as int64."""
    index = as_index("embedding_bag", indices, weight).cast(int64)
    starts = None if offsets is None else as_index("embedding_bag", offsets, weight).cast(int64)
    if index.ndim not in (1, 2) or (index.ndim == 1) != (starts is not None):
        shape = None if starts is None else starts.shape
        raise ShapeError(f"indices {index.shape} with offsets {shape}; (N, L) alone "
                         "or (L,) with offsets is needed", operation="embedding_bag")  # fmt: skip
    return index, starts


def _weighted(rows: Tensor, per_sample_weights: Tensor, mode: str) -> Tensor:
    """The rows, (..., d), each times its weight."""
    if mode != "sum" or per_sample_weights.shape != rows.shape[:-1]:
        shapes = f"{per_sample_weights.shape} of indices {rows.shape[:-1]}"
        raise ArgumentError(
            f"per_sample_weights {shapes} with mode={mode!r}; "
            "it has the shape of the indices, and is for 'sum'",
            operation="embedding_bag",
        )
    return rows * movement.expand_dims(per_sample_weights.cast(rows.dtype), axis=-1)


def _start(mode: str) -> float:
    """What a bag of nothing combines to: the identity of maxima or sums."""
    return -math.inf if mode == "max" else 0.0


def _check_offsets(offsets: Any, count: int) -> None:
    """Raises ArgumentError for offsets that are known and not those of `count` indices."""
    known = known_elements(offsets)
    if known is None or not known.size:
        return
    if known[0] != 0 or known[-1] > count or (known[1:] < known[:-1]).any():
        raise ArgumentError(f"offsets {offsets} of {count} indices; they ascend "
                            f"from 0 to {count} at most", operation="embedding_bag")  # fmt: skip


def _over_rows(chosen: Tensor, counted: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Maxima or sums of bags of equal length, (N, L, d) to (N, d), and how many rows of each are
    counted, (N,). There is no maximum of L = 0 elements."""
    combine = over.max if mode == "max" and chosen.shape[1] else over.sum
    return combine(chosen, axis=1), over.sum(counted.cast(int64), axis=1)


def _over_runs(
    chosen: Tensor, counted: Tensor, starts: Tensor, count: int, mode: str
) -> tuple[Tensor, Tensor]:
    """As `_over_rows`, of (L, d) to (count, d), by where each bag starts."""
    device = common_device("embedding_bag", chosen, starts)
    place = arange(chosen.shape[0], device=device)
    bag = searchsorted(starts, place, side="right") - 1
    sizes = counts((count,), 0, where(counted, bag, -1).node)  # -1 is no place
    start = full((count, chosen.shape[1]), _start(mode), dtype=chosen.dtype, device=device)
    places = movement.broadcast_to(movement.expand_dims(bag, axis=-1), chosen.shape)
    combined = scatter(start, 0, places, chosen, "max" if mode == "max" else "add")
    return combined, Tensor.of(sizes, device)

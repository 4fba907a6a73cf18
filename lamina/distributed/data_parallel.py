"""Data parallel training: each process has the whole model, and its own rows of each batch.

    distributed.copy_from_first(model)
    rows = distributed.rows_of(len(batch))
    loss = loss_of(model(batch[rows]))              # a mean over the rows of this process
    loss.backward()
    distributed.average_gradients(optimizer.parameters, rows.stop - rows.start)
    optimizer.step()

Then all processes have the gradients of the mean over the whole batch, and make the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lamina.core.dtypes import DType, float16, float32
from lamina.distributed.mesh import Axis, axis_of
from lamina.distributed.operations import all_reduce, broadcast
from lamina.errors import ArgumentError, GradientError
from lamina.frontend.functions.elementwise import maximum
from lamina.frontend.functions.movement import concat, reshape, split
from lamina.frontend.realize import realize
from lamina.frontend.tensor import Tensor
from lamina.ir.node import const
from lamina.nn.state import state_dict

__all__ = ["average_gradients", "averaged", "copy_from_first", "mean_over_rows", "rows_of"]

# Gradients of fewer bytes are sent in buckets of about so many: one collective takes a few
# microseconds however short it is. Larger ones are sent as they are, without a copy, each as soon
# as it is ready.
BUCKET_BYTES = 128 << 10


def rows_of(count: int, over: Axis | None = None) -> slice:
    """The rows of this process of a batch of `count`: 10 rows of 4 processes are 3, 3, 2 and 2."""
    axis = axis_of(over)
    each, more = divmod(count, axis.ranks)
    start = axis.place * each + min(axis.place, more)
    return slice(start, start + each + (axis.place < more))


def copy_from_first(obj: Any, over: Axis | None = None) -> None:
    """Give the tensors of `obj`, a model or an optimiser, the values that the first process has."""
    tensors = list(dict.fromkeys(state_dict(obj).values()))
    for tensor in tensors:
        tensor.assign(broadcast(tensor.detach(), 0, over))
    realize(*tensors)


def mean_over_rows(x: Tensor, rows: int, over: Axis | None = None) -> Tensor:
    """The mean over all rows, of any shape, from `x`, the mean over the `rows` of this process. A
    process without rows, whose mean is NaN, counts for nothing."""
    share = _share(rows, x.device, over)
    return all_reduce(_weighted(x.detach(), rows, share), "sum", over)


def average_gradients(
    parameters: Sequence[Tensor], rows: int | None = None, over: Axis | None = None
) -> None:
    """Replace the `grad` of each parameter, float tensors, by the mean over all processes, as
    `averaged` takes it.

    Raises GradientError where a parameter has no gradient, and ArgumentError for rows below 0."""
    gradients = [_gradient_of(parameter, number) for number, parameter in enumerate(parameters)]
    for parameter, mean in zip(parameters, averaged(gradients, rows, over), strict=True):
        parameter.grad = mean


def averaged(
    gradients: Sequence[Tensor], rows: int | None = None, over: Axis | None = None
) -> list[Tensor]:
    """The mean over all processes of each of `gradients`, float tensors, which every process has in
    the same order: that of the layers, as the last ones are sent first.

    rows: of this process, over which its loss is a mean: a process with more rows counts for more,
    and one with none for nothing. Without, all count the same.

    Raises ArgumentError for rows below 0."""
    if rows is not None and rows < 0:
        raise ArgumentError(f"{rows} rows are less than none", operation="average_gradients")
    ranks = axis_of(over).ranks
    if ranks == 1 or not gradients:
        return list(gradients)
    if rows is not None:
        share = _share(rows, gradients[0].device, over)
        weighted = [_weighted(gradient, rows, share) for gradient in gradients]
    else:
        weighted = [gradient / _ranks_before(gradient, ranks) for gradient in gradients]
    means = list(gradients)
    for bucket in buckets(weighted):
        parts = [weighted[number] for number in bucket]
        for number, total in zip(bucket, _sum_of_bucket(parts, over), strict=True):
            is_mean = rows is not None
            means[number] = total if is_mean else total / _ranks_after(total, ranks)
    return means


def buckets(tensors: Sequence[Tensor]) -> Iterable[list[int]]:
    """The numbers of `tensors` in groups of one dtype and about BUCKET_BYTES, from the last on: the
    gradients of the last layers are complete first."""
    filling: dict[DType, list[int]] = {}
    sizes: dict[DType, int] = {}
    for number in reversed(range(len(tensors))):
        dtype = tensors[number].dtype
        nbytes = tensors[number].size * dtype.itemsize
        if nbytes >= BUCKET_BYTES:
            yield [number]
            continue
        filling.setdefault(dtype, []).append(number)
        sizes[dtype] = sizes.get(dtype, 0) + nbytes
        if sizes[dtype] >= BUCKET_BYTES:
            yield filling.pop(dtype)
            sizes[dtype] = 0
    yield from filling.values()


def _gradient_of(parameter: Tensor, number: int) -> Tensor:
    gradient = parameter.grad
    if gradient is None:
        raise GradientError(
            f"parameter {number}, {parameter.dtype.name} {parameter.shape}, has "
            "no gradient: all processes need one of each; call backward first",
            operation="average_gradients",
        )
    return gradient


def _ranks_before(gradient: Tensor, ranks: int) -> int:
    """By how much a gradient is divided before it is summed, of `ranks` in all. Sums of float16 may
    overflow; others are divided by the kernel that uses them, which costs nothing."""
    return ranks if gradient.dtype is float16 else 1


def _ranks_after(total: Tensor, ranks: int) -> int:
    """By how much the sum is divided."""
    return ranks // _ranks_before(total, ranks)


def _share(rows: int, device: str, over: Axis | None) -> Tensor:
    """What part of the rows of all processes this one has, float32; 0 where there are none."""
    here = Tensor.of(const(float(rows), float32), device)
    total = all_reduce(here, "sum", over)
    return rows / maximum(total, 1.0)


def _weighted(x: Tensor, rows: int, share: Tensor) -> Tensor:
    """`x`, a mean over `rows`, times their share of all rows: it is no larger, so that float16 does
    not overflow. Without rows 0, computed from the share all the same: all processes exchange that.
    """
    if rows == 0:
        return share.cast(x.dtype).expand(x.shape)
    return (x * share).cast(x.dtype)


def _sum_of_bucket(tensors: Sequence[Tensor], over: Axis | None) -> list[Tensor]:
    """The sums over all processes of `tensors`, of one dtype, by one collective."""
    flat = concat([reshape(tensor, (-1,)) for tensor in tensors])
    summed = all_reduce(flat, "sum", over)
    parts = split(summed, [tensor.size for tensor in tensors])
    return [reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

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

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lamina.core.dtypes import DType, accumulator, float16, float32
from lamina.distributed import setup
from lamina.distributed.layout import Layout, layouts_of
from lamina.distributed.mesh import Axis, axis_of
from lamina.distributed.operations import all_gather, all_reduce, broadcast
from lamina.errors import ArgumentError, GradientError
from lamina.frontend.functions.elementwise import maximum
from lamina.frontend.functions.movement import concat, reshape, split
from lamina.frontend.realize import realize
from lamina.frontend.tensor import Tensor
from lamina.graph.sent_rows import bytes_of_gathering, bytes_of_summing
from lamina.ir.node import const
from lamina.ir.ops import Op
from lamina.nn.state import state_dict

__all__ = ["average_gradients", "averaged", "copy_from_first", "mean_over_rows", "rows_of"]

# A bucket is sent before it is full once so many bytes were sent in others: it would be late, and
# what comes after it.
SPAN_BYTES = 32 << 20


def rows_of(count: int, over: Axis | None = None) -> slice:
    """The rows of this process of a batch of `count`: 10 rows of 4 processes are 3, 3, 2 and 2."""
    axis = axis_of(over)
    each, more = divmod(count, axis.ranks)
    start = axis.place * each + min(axis.place, more)
    return slice(start, start + each + (axis.place < more))


def copy_from_first(obj: Any, over: Axis | None = None) -> None:
    """Give the tensors of `obj`, a model or an optimiser, the values that the first process has.

    Raises ArgumentError, where that is the first of all processes, for a layer that has parts, such
    as FullySharded: those of the others would be lost."""
    state = state_dict(obj)
    if axis_of(over).ranks == setup.size():
        _refuse_parts(state, layouts_of(obj))
    tensors = list(dict.fromkeys(state.values()))
    for tensor in tensors:
        tensor.assign(broadcast(tensor.detach(), 0, over))
    realize(*tensors)


def _refuse_parts(state: Mapping[str, Tensor], layouts: Mapping[str, Layout]) -> None:
    for name, layout in layouts.items():
        if layout.shape != state[name].shape:
            raise ArgumentError(
                f"{name}, {state[name].shape}, is a part of {layout.shape}, of which each process "
                "has another one",
                operation="copy_from_first",
                remedy="copy before layers are divided, or over an axis along which they are not",
            )


def mean_over_rows(x: Tensor, rows: int, over: Axis | None = None) -> Tensor:
    """The mean over all rows, of any shape, from `x`, the mean over the `rows` of this process. A
    process without rows, whose mean is NaN, counts for nothing."""
    share = _share(rows, x.device, over)
    return all_reduce(_weighted(x.detach(), rows, share), "sum", over)


def average_gradients(
    parameters: Sequence[Tensor], rows: int | None = None, over: Axis | None = None
) -> None:
    """Replace the `grad` of each parameter, float tensors, by the mean over all processes, as
    `averaged` takes it. All of these have the whole parameter: of parts, such as the `shards` of
    FullySharded, each process has other elements.

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
        sent = [_weighted(gradient, rows, share) for gradient in gradients]
    else:
        sent = [_shortest(gradient, ranks) for gradient in gradients]
    means = list(gradients)
    for bucket in buckets(sent, setup.bucket_bytes()):
        parts = [sent[number] for number in bucket]
        dtypes = [gradients[number].dtype for number in bucket]
        for number, total in zip(bucket, _sums_of_bucket(parts, dtypes, over), strict=True):
            is_mean = rows is not None
            means[number] = total if is_mean else total / _ranks_after(total, ranks)
    return means


def buckets(
    tensors: Sequence[Tensor], enough: int, span: float = SPAN_BYTES
) -> Iterator[list[int]]:
    """The numbers of `tensors` in groups of one dtype and about `enough` bytes, from the last on:
    the gradients of the last layers are complete first. One that has as many is alone, and is sent
    without a copy. span: bytes that are sent in others until a group is sent that is not full."""
    filling: dict[DType, _Bucket] = {}
    sent = 0  # bytes
    for number in reversed(range(len(tensors))):
        dtype = tensors[number].dtype
        nbytes = tensors[number].size * dtype.itemsize
        if nbytes >= enough:
            yield [number]
            sent += nbytes
            continue
        bucket = filling.setdefault(dtype, _Bucket(sent))
        bucket.add(number, nbytes)
        complete = [
            dtype
            for dtype, bucket in filling.items()
            if bucket.nbytes >= enough or sent - bucket.sent_before >= span
        ]
        for dtype in complete:
            bucket = filling.pop(dtype)
            yield bucket.numbers
            sent += bucket.nbytes
    yield from (bucket.numbers for bucket in filling.values())


class _Bucket:
    """Gradients that are sent together.

    numbers: of these. nbytes: of all of them. sent_before: bytes that were sent in others before
    this one was begun."""

    def __init__(self, sent_before: int) -> None:
        self.numbers: list[int] = []
        self.nbytes = 0
        self.sent_before = sent_before

    def add(self, number: int, nbytes: int) -> None:
        self.numbers.append(number)
        self.nbytes += nbytes


def _gradient_of(parameter: Tensor, number: int) -> Tensor:
    gradient = parameter.grad
    if gradient is None:
        raise GradientError(
            f"parameter {number}, {parameter.dtype.name} {parameter.shape}, has "
            "no gradient: all processes need one of each; call backward first",
            operation="average_gradients",
        )
    return gradient


def _shortest(gradient: Tensor, ranks: int) -> Tensor:
    """What a process sends of a gradient: 16 bits of a number that was cast from so many, where to
    gather those moves fewer bytes than to sum up all of them. A float16 is sent as its part of the
    mean."""
    node = gradient.node
    if node.op is Op.CAST and node.dtype is not float16:
        (short,) = node.src
        gathers = bytes_of_gathering(short.dtype, ranks) < bytes_of_summing(node.dtype, ranks)
        if short.dtype.kind == "float" and gathers:
            return Tensor.of(short, gradient.device)
    return gradient / _ranks_before(gradient, ranks)


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


def _sums_of_bucket(
    sent: Sequence[Tensor], dtypes: Sequence[DType], over: Axis | None
) -> list[Tensor]:
    """The sums over all processes of what each sends, tensors of one dtype, by one collective:
    each sum of one of `dtypes`, whose numbers `sent` may have in fewer bits."""
    sizes = [tensor.size for tensor in sent]
    # One alone is sent from where its kernel has stored it: a row of its elements would be a copy.
    joined = sent[0] if len(sent) == 1 else concat([reshape(tensor, (-1,)) for tensor in sent])
    if all(dtype is joined.dtype for dtype in dtypes):
        of_ranks = [reshape(all_reduce(joined, "sum", over), (-1,))]
    else:
        ranks = axis_of(over).ranks
        gathered = reshape(all_gather(joined, 0, over), (ranks, joined.size))
        of_ranks = [gathered[place] for place in range(ranks)]
    terms = [split(elements, sizes) for elements in of_ranks]
    sums = []
    for number, (tensor, dtype) in enumerate(zip(sent, dtypes, strict=True)):
        exact = accumulator(dtype)
        values = [reshape(term[number], tensor.shape).cast(exact) for term in terms]
        sums.append(sum(values[1:], values[0]).cast(dtype))
    return sums

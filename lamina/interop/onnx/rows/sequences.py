"""Rows of sequences, which are Python's lists, and of optional values, which may be None."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.control import stacked
from lamina.interop.onnx.rows.movement import joined, parted
from lamina.interop.onnx.values import space


@row("SequenceEmpty")
def sequence_empty(context: Context, *, dtype: int = 1) -> Any:
    return []


@row("SequenceConstruct")
def sequence_construct(context: Context, *parts: Any) -> Any:
    return list(parts)


@row("SequenceInsert")
def sequence_insert(context: Context, sequence: Any, value: Any, position: Any = None) -> Any:
    context.spend(len(sequence) // 1024)  # the list is copied
    place = len(sequence) if position is None else context.integers(position)[0]
    if not -len(sequence) <= place <= len(sequence):
        raise OnnxError(f"position {place} in a sequence of {len(sequence)}")
    return [*sequence[:place], value, *sequence[place:]]


@row("SequenceErase")
def sequence_erase(context: Context, sequence: Any, position: Any = None) -> Any:
    rest = list(sequence)
    del rest[-1 if position is None else context.integers(position)[0]]
    return rest


@row("SequenceAt")
def sequence_at(context: Context, sequence: Any, position: Any) -> Any:
    return sequence[context.integers(position)[0]]


@row("SequenceLength")
def sequence_length(context: Context, sequence: Any) -> Any:
    return np.array(len(sequence), np.int64)


@row("SplitToSequence")
def split_to_sequence(
    context: Context, x: Any, split: Any = None, *, axis: int = 0, keepdims: int = 1
) -> Any:
    size = x.shape[axis]
    if split is None:
        context.spend(size)
        parts = parted(x, axis, [1] * size, size)
        return parts if keepdims else [space(x).squeeze(part, axis=axis) for part in parts]
    sizes = context.integers(split)
    if len(split.shape) == 0:
        step = sizes[0]
        if step < 1:
            raise OnnxError(f"parts of {step} elements")
        context.spend(size // step)
        sizes = [min(step, size - start) for start in range(0, size, step)]
    return parted(x, axis, sizes, len(sizes))


@row("ConcatFromSequence")
def concat_from_sequence(context: Context, sequence: Any, *, axis: int, new_axis: int = 0) -> Any:
    return stacked(sequence, axis) if new_axis else joined(sequence, axis)


@row("Optional")
def optional(context: Context, value: Any = None, *, type: Any = None) -> Any:
    return value


@row("OptionalHasElement")
def optional_has_element(context: Context, value: Any = None) -> Any:
    return np.array(value is not None)


@row("OptionalGetElement")
def optional_get_element(context: Context, value: Any) -> Any:
    if value is None:
        raise OnnxError("the optional value is empty")
    return value

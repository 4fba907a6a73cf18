"""Rows of control flow. Conditions and counts are read when a model is called: a branch that is
not taken is not computed, and a loop becomes as many copies of its body as it has turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, TypeProto

import lamina as lm
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.movement import sliced
from lamina.interop.onnx.values import numpy_dtype, space, tensor


@row("If")
def if_(context: Context, condition: Any, *, then_branch: Any, else_branch: Any) -> Any:
    is_true = bool(context.host(condition).reshape(()))
    return tuple(then_branch() if is_true else else_branch())


@row("Loop")
def loop(
    context: Context, max_trip_count: Any, condition: Any, *carried: Any, body: Any
) -> Any:
    turns = None if max_trip_count is None else context.integers(max_trip_count)[0]
    goes_on = condition is None or bool(context.host(condition).reshape(()))
    state, collected = list(carried), list[list[Any]]()
    turn = 0
    while goes_on and (turns is None or turn < turns):
        results = body(np.array(turn, np.int64), np.array(True), *state)
        goes_on = bool(context.host(results[0]).reshape(()))
        state = results[1 : 1 + len(carried)]
        collected.append(results[1 + len(carried) :])
        turn += 1
    if not collected:
        return (*state, *[_no_turns(kind) for kind in body.output_types[1 + len(carried) :]])
    count = context.outputs - len(carried)
    scans = [stacked([values[place] for values in collected], 0) for place in range(count)]
    return (*state, *scans)


def _no_turns(kind: TypeProto, axis: int = 0) -> Any:
    """The results of no turns, whose new `axis` has no elements: what the body says of an element
    is all that is known. Sizes that it leaves open are 0, a dtype is float32."""
    said = kind.tensor_type
    dtype = numpy_dtype(said.elem_type or TensorProto.FLOAT)
    sizes = [max(dim.dim_value, 0) for dim in said.shape.dim]
    sizes.insert(axis % (len(sizes) + 1), 0)
    return np.zeros(sizes, dtype)


def stacked(parts: Sequence[Any], axis: int) -> Any:
    """Arrays of one shape along a new axis."""
    functions = space(*parts)
    if functions is lm:
        parts = [tensor(part) for part in parts]
    return functions.stack(list(parts), axis=axis)


def _slice_at(x: Any, axis: int, place: int) -> Any:
    """`x` at a place along an axis, without this axis."""
    return space(x).squeeze(sliced(x, axis, place, place + 1), axis=axis)


@row("Scan", since=9)
def scan(
    context: Context, *inputs: Any, body: Any, num_scan_inputs: int,
    scan_input_axes: list[int] | None = None, scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None, scan_output_directions: list[int] | None = None,
) -> Any:  # fmt: skip
    states = len(inputs) - num_scan_inputs
    if states < 0 or num_scan_inputs < 1:
        raise OnnxError(f"num_scan_inputs={num_scan_inputs} of {len(inputs)} inputs")
    outputs = context.outputs - states
    axes = scan_input_axes or [0] * num_scan_inputs
    backwards = scan_input_directions or [0] * num_scan_inputs
    state, scanned = list(inputs[:states]), inputs[states:]
    length = scanned[0].shape[axes[0]]
    results_axes = scan_output_axes or [0] * outputs
    if length == 0:
        kinds = body.output_types[states:]
        results = [_no_turns(kind, axis) for kind, axis in zip(kinds, results_axes, strict=True)]
        return (*state, *results)
    collected = []
    for turn in range(length):
        parts = []
        for x, axis, is_reversed in zip(scanned, axes, backwards, strict=True):
            parts.append(_slice_at(x, axis, length - 1 - turn if is_reversed else turn))
        results = body(*state, *parts)
        state = results[:states]
        collected.append(results[states:])
    directions = scan_output_directions or [0] * outputs
    scans = []
    for place, (axis, is_reversed) in enumerate(zip(results_axes, directions, strict=True)):
        parts = [values[place] for values in collected]
        scans.append(stacked(parts[::-1] if is_reversed else parts, axis))
    return (*state, *scans)


@row("Scan", since=8)
def batched_scan(
    context: Context, lengths: Any, *inputs: Any, body: Any, num_scan_inputs: int,
    directions: list[int] | None = None,
) -> Any:  # fmt: skip
    if lengths is not None:
        raise OnnxError("a Scan of version 8 with lengths of sequences: use version 9")
    batch = inputs[0].shape[0]
    runs = []
    for place in range(batch):
        rows = [_slice_at(x, 0, place) for x in inputs]
        runs.append(
            scan(context, *rows, body=body, num_scan_inputs=num_scan_inputs,
                 scan_input_directions=directions)
        )  # fmt: skip
    return tuple([stacked(parts, 0) for parts in zip(*runs, strict=True)])

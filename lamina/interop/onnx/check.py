"""Running a model on arguments that are drawn, and comparing its results with another runtime's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto

from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.values import check_table, numpy_dtype

# Of the largest magnitude that is expected, by bytes of an element; 1e-4 for float32.
_TOLERANCES = {16: 1e-4, 8: 1e-4, 4: 1e-4, 2: 2e-2, 1: 2e-1}


def drawn(name: str, kind: TypeProto, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Some value for the input `name`: floats of the normal distribution, other numbers 0 or 1. A
    size that the model leaves open is 1. Raises OnnxError for an input that is no tensor of
    numbers of a known rank."""
    tensor = kind.tensor_type
    if not kind.HasField("tensor_type") or not tensor.HasField("shape"):
        raise OnnxError(f"input {name!r} is no tensor of a known rank: give a value for it")
    sizes = [max(dim.dim_value, 1) for dim in tensor.shape.dim]
    check_table(*sizes)
    dtype = numpy_dtype(tensor.elem_type)
    if dtype.kind in "OUST":
        raise OnnxError(f"input {name!r} has strings: give a value for it")
    if dtype.kind in "biu":
        return generator.integers(0, 2, sizes).astype(dtype)
    return generator.normal(size=sizes).astype(dtype)


def on_host(value: Any) -> Any:
    """A result with NumPy arrays for tensors, which are computed."""
    if isinstance(value, (list, tuple)):
        return [on_host(part) for part in value]
    return value.numpy() if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class Peer:
    """Another runtime's results for a model. name: of the runtime."""

    name: str
    outputs: Sequence[Any]


def peer_of(path: str | os.PathLike[str], arguments: Mapping[str, Any]) -> Peer:
    """The results of onnxruntime where it is installed, otherwise of onnx's reference evaluator.
    Raises OnnxError where that runtime refuses the model."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return _reference(path, arguments)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3  # errors alone
    try:
        session = onnxruntime.InferenceSession(
            os.fspath(path), settings, providers=["CPUExecutionProvider"]
        )
        return Peer("onnxruntime", session.run(None, dict(arguments)))
    except Exception as error:  # of its C++, of many types
        raise OnnxError(f"onnxruntime cannot run the model: {error}") from error


def _reference(path: str | os.PathLike[str], arguments: Mapping[str, Any]) -> Peer:
    from onnx.reference import ReferenceEvaluator

    name = "onnx's reference evaluator"
    try:
        return Peer(name, ReferenceEvaluator(onnx.load(path)).run(None, dict(arguments)))
    except Exception as error:  # as its rows raise them
        raise OnnxError(f"{name} cannot run the model: {error}") from error


@dataclass(frozen=True)
class Comparison:
    """How far a result is from the expected one: the largest difference, as a share of the largest
    magnitude that is expected, where that is above 1."""

    difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance


def compare(result: Any, expected: Any) -> Comparison:
    """Values on the host. Numbers that are no floats, strings, shapes and dtypes have to be equal,
    and so do infinities and the places of NaN."""
    if isinstance(expected, list):
        if not isinstance(result, list) or len(result) != len(expected):
            return Comparison(np.inf, 0)
        parts = [compare(*pair) for pair in zip(result, expected, strict=True)]
        return max(parts, key=lambda part: part.difference, default=Comparison(0, 0))
    if result is None or expected is None:
        return Comparison(0 if result is expected else np.inf, 0)
    one, other = np.asarray(result), np.asarray(expected)
    if one.shape != other.shape or (one.dtype != other.dtype and one.dtype.kind != "O"):
        return Comparison(np.inf, 0)
    if one.dtype.kind in "OUSTbiu" or "int" in one.dtype.name or not one.size:
        return Comparison(0 if np.array_equal(one, other) else np.inf, 0)
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    return _difference(one.astype(wide), other.astype(wide), one.dtype.itemsize)


def _difference(one: Any, other: Any, itemsize: int) -> Comparison:
    tolerance = _TOLERANCES[itemsize]
    is_finite = np.isfinite(other)
    if not np.array_equal(one[~is_finite], other[~is_finite], equal_nan=True):
        return Comparison(np.inf, tolerance)
    distance = np.abs(one[is_finite] - other[is_finite]).max(initial=0)
    if np.isnan(distance):
        return Comparison(np.inf, tolerance)
    return Comparison(float(distance / max(1, np.abs(other[is_finite]).max(initial=0))), tolerance)

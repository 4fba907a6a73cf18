"""What goes into a model and what comes out, and values in words and as ONNX's types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, helper

from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.values import dtype_of, lamina_dtype, numpy_dtype, tensor


def argument_of(name: str, value: Any, kind: TypeProto) -> Any:
    """`value` as the input `name` of a graph. Raises OnnxError where dtype, rank or sizes differ
    from those that the model says; sizes with a name may be any."""
    if kind.HasField("optional_type"):
        return None if value is None else argument_of(name, value, kind.optional_type.elem_type)
    if kind.HasField("sequence_type"):
        if not isinstance(value, (list, tuple)):
            raise OnnxError(f"input {name!r} is a sequence, and got {described(value)}")
        return [argument_of(name, part, kind.sequence_type.elem_type) for part in value]
    if not kind.HasField("tensor_type"):
        return value
    number = kind.tensor_type.elem_type
    if isinstance(value, Tensor):
        array: Any = value
    else:
        keeps_dtype = hasattr(value, "dtype") or not number
        try:
            array = np.asarray(value, None if keeps_dtype else numpy_dtype(number))
        except (OverflowError, RuntimeError, TypeError, ValueError) as error:
            raise OnnxError(f"input {name!r} is no array: {error}") from error
    if isinstance(array, np.ndarray) and array.dtype.kind in "UOST":
        array = np.asarray(array, dtype=object)
    dtype, expected = dtype_of(array), numpy_dtype(number) if number else None
    if expected is not None and dtype != expected and not _is_text(dtype, expected):
        raise OnnxError(f"input {name!r} has dtype {dtype}, not {expected}")
    _check_sizes(name, tuple(array.shape), kind.tensor_type)
    return array if lamina_dtype(dtype) is None else tensor(array)


def _is_text(dtype: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    return dtype.kind == "O" and expected.kind in "OUST"


def _check_sizes(name: str, sizes: tuple[int, ...], kind: TypeProto.Tensor) -> None:
    if not kind.HasField("shape"):
        return
    said = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    # Exporters write 0 and -1 for sizes that they do not know.
    fits = len(said) == len(sizes) and all(
        size == wanted or wanted is None or wanted <= 0
        for size, wanted in zip(sizes, said, strict=True)
    )
    if not fits:
        shown = ", ".join("?" if wanted is None else str(wanted) for wanted in said)
        raise OnnxError(f"input {name!r} has shape {sizes}, not ({shown})")


def result_of(value: Any) -> Any:
    """An output as a user gets it: a tensor, wherever lamina has the dtype."""
    if isinstance(value, list):
        return [result_of(part) for part in value]
    if isinstance(value, (np.ndarray, np.generic)) and lamina_dtype(value.dtype) is not None:
        return tensor(value)
    return value


def described(value: Any) -> str:
    """A value's dtype and shape, as ``float32(2, 3)``."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"[{', '.join(described(part) for part in value[:3])}]"
    if isinstance(value, (Tensor, np.ndarray)):
        return f"{dtype_of(value)}{tuple(value.shape)}"
    return type(value).__name__


def type_of(value: Any) -> onnx.TypeProto:
    """A value's type in ONNX's words; that of an absent one is empty."""
    if value is None:
        return TypeProto()
    if isinstance(value, list):
        element = type_of(value[0]) if value else TypeProto()
        return helper.make_sequence_type_proto(element)
    number = helper.np_dtype_to_tensor_dtype(dtype_of(value))
    return helper.make_tensor_type_proto(number, tuple(value.shape))

"""Rows that convert between element types.

Types that lamina lacks (strings, integers of 2 and 4 bits, some floats of 4 to 8 bits) are NumPy
arrays, with the dtypes of ml_dtypes; they are converted on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import dtype_of, is_folded, lamina_dtype, numpy_dtype, tensor

# Floats of 8 bits that have values for overflows: infinity, or NaN where there is none.
_OVERFLOWING = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


def _numbers_of_strings(x: Any, dtype: np.dtype[Any]) -> Any:
    """Numbers as Python reads them; those of integers may have a fraction or an exponent."""
    numbers = [float(text) for text in x.ravel()]
    return np.array(numbers, np.float64).reshape(x.shape).astype(dtype)


def _strings(x: Any) -> Any:
    values = x.astype(np.float32) if x.dtype.kind == "V" else x
    return values.astype(np.str_).astype(object)


def _scales(x: Any, saturate: bool, round_mode: str) -> Any:
    """As powers of two, the only values of float8_e8m0fnu."""
    from onnx.numpy_helper import to_float8e8m0

    return to_float8e8m0(x.astype(np.float32), saturate, round_mode)


def _on_host(x: Any, dtype: np.dtype[Any], saturate: bool, round_mode: str) -> Any:
    if dtype.name == "float8_e8m0fnu":
        return _scales(x, saturate, round_mode).astype(dtype)
    if dtype.name in _OVERFLOWING and saturate:
        import ml_dtypes

        largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        x = np.clip(x.astype(np.float32), -largest, largest)
    with np.errstate(all="ignore"):  # overflow to infinity is what is asked for
        return x.astype(dtype)


def converted(
    context: Context, x: Any, dtype: Any, saturate: bool = True, round_mode: str = "up"
) -> Any:
    """`x` with the NumPy dtype `dtype`; object stands for strings.

    saturate: overflows of float8 become the largest number, not infinity or NaN. round_mode: "up",
    "down" or "nearest", for float8_e8m0fnu alone."""
    is_text = dtype_of(x).kind == "O"
    if np.dtype(dtype).kind == "O":
        return x if is_text else _strings(context.host(x))
    if is_text:
        return _numbers_of_strings(x, dtype)
    target = lamina_dtype(dtype)
    narrow = np.dtype(dtype).name in _OVERFLOWING
    if target is None or lamina_dtype(dtype_of(x)) is None or narrow or is_folded(x):
        return _on_host(context.host(x), np.dtype(dtype), saturate, round_mode)
    return tensor(x).cast(target)


@row("Cast")
def cast(
    context: Context, x: Any, *, to: int | str, saturate: int = 1, round_mode: str = "up"
) -> Any:
    """Before version 6 the type is a name, such as FLOAT."""
    if isinstance(to, str):
        from onnx import TensorProto

        number = int(TensorProto.DataType.Value(to.upper()))
    else:
        number = to
    return converted(context, x, numpy_dtype(number), bool(saturate), round_mode)


@row("CastLike")
def cast_like(
    context: Context, x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up"
) -> Any:
    return converted(context, x, dtype_of(like), bool(saturate), round_mode)


@row("BitCast")
def bit_cast(context: Context, x: Any, *, to: int) -> Any:
    """The same bits, read as another dtype of as many bits."""
    return context.host(x).view(numpy_dtype(to))

"""When two arrays are the same answer."""

from __future__ import annotations

import numpy as np


def same_values(left: np.ndarray, right: np.ndarray, ulps: int = 0, zeros: bool = True) -> bool:
    """Equal to the bit but for NaN payloads.

    ulps: floats may lie this many units of the last place apart. zeros: 0.0 and -0.0 differ.
    """
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    left, right = np.ascontiguousarray(left).reshape(-1), np.ascontiguousarray(right).reshape(-1)
    if left.dtype.kind == "c":
        part = np.float32 if left.dtype.itemsize == 8 else np.float64
        left, right = left.view(part), right.view(part)
    bits = np.dtype(f"i{left.dtype.itemsize}")
    a, b = left.view(bits), right.view(bits)
    if left.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    with np.errstate(invalid="ignore"):
        same = (a == b) | ((left != left) & (right != right))
        if not zeros:
            same |= left == right
    if ulps:
        near = np.abs(a.astype(object) - b.astype(object)) <= ulps
        same |= near.astype(bool) & ((a < 0) == (b < 0))
    return bool(np.all(same))

"""Sorts of short rows on a GPU, whose text runs on the processor, beside NumPy's stable order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lamina import pipeline
from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.options import current
from lamina.ir import build
from tests.cuda.fibers import run_in_fibers
from tests.generators import leaf

DTYPES = (
    dtypes.int8, dtypes.int16, dtypes.float16, dtypes.bfloat16, dtypes.int32, dtypes.float32,
    dtypes.int64, dtypes.float64,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [2, 31, 48, 64])
def test_short_rows_are_in_a_stable_order(dtype: DType, length: int, tmp_path: Path) -> None:
    """Rows of few different keys, which fill several blocks and a part of the last one."""
    rows = 600 // length + 1
    keys = np.random.default_rng(length).integers(0, 9, (rows, length)) - 4
    keys = keys.astype(np.float32)
    if dtype.is_float:
        keys[keys == 4] = np.nan
        keys[keys == 3] = -0.0
    stored = keys.astype(dtype.numpy)
    order = build.argsort(leaf(0, (rows, length), dtype))
    planned = pipeline.compile_source([order], replace(current(), device="cuda:0"))
    assert "SORT_SHORT(sort0" in planned.text
    (got,) = run_in_fibers(planned, [stored], tmp_path)
    comparable = keys if dtype.is_float else stored
    wanted = np.argsort(comparable, axis=1, kind="stable")
    np.testing.assert_array_equal(got.reshape(rows, length), wanted)

"""Sorts and selections of the CPU, beside NumPy's stable order."""

from __future__ import annotations

import subprocess
from pathlib import Path
from string import Template

import numpy as np
import pytest

import lamina as lm
from lamina.core.dtypes import DType, bool_, float32, float64, int8, int64, uint8, uint16
from lamina.core.options import current
from lamina.errors import CompilerNotFoundError
from lamina.ir import build
from lamina.runtime import compiler
from tests.codegen.running import leaf, run

Shape = tuple[int, ...]

# Calls a program of one argument and one result, whose bytes are drawn.
MAIN = Template("""
#include <stdlib.h>
static void in_order(long n, void (*body)(void *, long), void *argument) {
    for (long i = 0; i < n; i++) body(argument, i);
}
int main(void) {
    const long sizes[] = {$arena, $places, $keys};
    void *buffers[3];
    for (int i = 0; i < 3; i++)
        if (posix_memalign(&buffers[i], 64, sizes[i])) return 1;
    unsigned char *keys = buffers[2];
    for (long i = 0; i < $keys; i++) keys[i] = rand() >> 7;
    lamina_run(buffers, in_order, 0);
    return 0;
}
""")


def _keys(dtype: DType, shape: Shape, style: str) -> np.ndarray:
    """Many different keys, few different ones, or equal ones; of floats some are special."""
    random = np.random.default_rng(len(shape))
    scale = {"many": 1e4, "few": 2.0, "equal": 0.0}[style]
    keys = (random.standard_normal(shape) * scale).astype(dtype.numpy)
    if dtype.is_float:
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], dtype.numpy)
        chosen = random.integers(0, 50, shape)
        keys = np.where(chosen < 5, special[chosen % 5], keys)
    return keys


def _order(keys: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return keys.shape[axis] - 1 - np.flip(backwards, axis)


# Rows whose keys are counted, are selected by their ends, and are selected by buckets; and columns.
@pytest.mark.parametrize(
    ("shape", "axis"), [((40,), 0), ((2, 700), 1), ((5000,), 0), ((600, 3), 0), ((2, 90, 4), 1)]
)
@pytest.mark.parametrize("dtype", [float32, float64, int8, uint16, int64, bool_])
def test_ranks_are_those_of_a_stable_order(shape: Shape, axis: int, dtype: DType) -> None:
    size = shape[axis]
    ranges = [(0, size), (0, 5), (size - 5, size), (size // 2, size // 2 + 1), (3, size // 3)]
    for style in ("many", "few", "equal"):
        keys = _keys(dtype, shape, style)
        ways = [(*ranks, descending) for ranks in ranges for descending in (False, True)]
        sinks = [build.argsort(leaf(keys), axis, down, *ranks) for *ranks, down in ways]
        for (first, last, descending), got in zip(ways, run(sinks), strict=True):
            places = [slice(None)] * len(shape)
            places[axis] = slice(first, last)
            wanted = _order(keys, axis, descending)[tuple(places)]
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("count", [3, 50])
@pytest.mark.parametrize("dtype", [uint8, uint16, float32, float64])
def test_selections_stay_inside_their_arrays(dtype: DType, count: int, tmp_path: Path) -> None:
    """Under the address sanitizer: a register may be wider than all keys that are left."""
    try:
        used = compiler.find(current())
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    keys = lm.TensorSpec((3, 200), dtype)
    lowered = lm.jit(lambda x: lm.topk(x, count).indices).lower(keys, device="cpu")
    sizes = {"keys": 600 * dtype.itemsize, "places": 24 * count, "arena": lowered.scratch_bytes}
    source, output = tmp_path / "sorts.c", tmp_path / "sorts"
    source.write_text(lowered.source + MAIN.substitute(sizes), encoding="utf-8")
    command = [part for part in used.command(source, output) if part != "-shared"]
    built = subprocess.run([*command, "-fsanitize=address"], check=False)
    if built.returncode:
        pytest.skip(f"{used} has no address sanitizer")
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    ran = subprocess.run([output], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr

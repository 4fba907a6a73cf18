"""Tiles that threads fill by whole chunks have the elements that are copied one by one: both texts
run on the CPU, thread after thread."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.targets.cuda import tile_fills

FILL = re.compile(r"^( *)UNROLLED for \(int i = THREAD; .*?^\1\}$", re.DOTALL | re.MULTILINE)
FIRST = re.compile(r"const i(?:32|64) (first_\w+) = ")
# What the text takes from CUDA. Places outside of tiles, such as the batch, are 0.
OPENING = """
#include <stdint.h>
#define UNROLLED
#define min(a, b) ((a) < (b) ? (a) : (b))
typedef int32_t i32; typedef int64_t i64; typedef uint16_t u16;
typedef struct __attribute__((packed, may_alias)) { uint32_t x, y, z, w; } uint4;
static uint4 make_uint4(int x, int y, int z, int w) { return (uint4){x, y, z, w}; }
enum { batch, fill_slot, number };
"""


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return lm.scaled_dot_product_attention(query, key, value)


def of_keys_across(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention to keys whose neighbours in memory are those of other keys."""
    return lm.scaled_dot_product_attention(query, key.transpose(-1, -2), value)


def transposed_product(left: Tensor, right: Tensor) -> Tensor:
    return left.T @ right


# Beyond the last row there may be any other: those that lie along lines end with a tile.
CASES: list[tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = [
    (attention, [(2, 304, 80), (2, 200, 80), (2, 200, 80)]),
    (of_keys_across, [(2, 128, 64), (2, 64, 200), (2, 200, 64)]),
    (transposed_product, [(72, 256), (72, 256)]),
]


def text_of(function: Callable[..., Tensor], shapes: list[tuple[int, ...]]) -> str:
    """The kernel with products in tiles, for a GPU without a copy engine."""
    specs = [lm.TensorSpec(shape, lm.bfloat16) for shape in shapes]
    kernels = lm.jit(function).lower(*specs, device="cuda:0", arch="sm_80").kernels
    (text,) = (kernel.source for kernel in kernels if "tensorize" in kernel.schedule)
    return text


def filled(text: str, first: int, folder: Path) -> list[bytes]:
    """The shared memory after each fill of a text alone, of tiles that begin at `first` rows and
    elements of a row, of arrays that have their places as elements."""
    arrays = sorted(set(re.findall(r"\bp\d+(?=\[)", text)))
    names = sorted(set(FIRST.findall(text)))
    every = [match.group() for match in FILL.finditer(text)]
    functions = [
        f"void fill{number}(int THREAD, uint8_t *shared, {_arguments(arrays)}) {{\n"
        + "".join(f"int {name} = {first};\n" for name in names)
        + f"{fill}\n}}\n"
        for number, fill in enumerate(every)
    ]
    source = folder / f"fills{len(list(folder.iterdir()))}.c"
    library = source.with_suffix(".so")
    source.write_text(OPENING + "\n".join(functions), encoding="utf-8")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-fno-strict-aliasing", "-o", library, source], check=True
    )
    loaded = ctypes.CDLL(str(library))
    elements: Any = np.arange(1 << 16, dtype=np.uint16)
    results: list[bytes] = []
    for number in range(len(every)):
        shared: Any = np.full(1 << 18, 255, np.uint8)
        for thread in range(256):
            pointers = [elements.ctypes.data_as(ctypes.c_void_p)] * len(arrays)
            function = getattr(loaded, f"fill{number}")
            function(thread, shared.ctypes.data_as(ctypes.c_void_p), *pointers)
        results.append(shared.tobytes())
    return results


def _arguments(arrays: list[str]) -> str:
    return ", ".join(f"const u16 *{name}" for name in arrays)


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler runs the texts")
@pytest.mark.parametrize(("function", "shapes"), CASES)
def test_chunks_have_the_elements_that_are_copied_one_by_one(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    text = text_of(function, shapes)
    assert "*(const uint4 *)&p0[" in text
    monkeypatch.setattr(tile_fills, "_has_whole_chunks", lambda *_: False)
    lm.frontend.session.SESSION.forget()
    by_element = text_of(function, shapes)
    assert "(const uint4 *)&p0[" not in by_element
    for first in 0, 64, 128:
        assert filled(text, first, tmp_path) == filled(by_element, first, tmp_path)

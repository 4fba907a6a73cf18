"""Products of one vector with quantised weights on a GPU: a thread decodes whole blocks."""

from __future__ import annotations

import re

import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.recent import forget
from lamina.frontend.lowered import Lowered
from lamina.io.blocks import BLOCK_TYPES, BlockType, Packed
from lamina.schedule.gpu import loops

KINDS = {kind.name: kind for kind in BLOCK_TYPES.values()}
COLUMNS = 4096


def product(kind: BlockType, rows: int) -> Lowered:
    """Of a vector of bfloat16 and a weight of COLUMNS."""

    def function(x: Tensor, data: Tensor) -> Tensor:
        return x.cast(lm.float32) @ Packed(kind, data).decode().T

    x = lm.TensorSpec((1, COLUMNS), lm.bfloat16)
    data = lm.TensorSpec((rows, COLUMNS // kind.weights, kind.nbytes), lm.uint8)
    return lm.jit(function).lower(x, data, device="cuda:0", arch="sm_90a")


def test_bytes_are_read_once_in_pairs_and_scales_multiply_once_a_block() -> None:
    (kernel,) = product(KINDS["Q4_0"], 1536).kernels
    loads = re.findall(r"const (\w+) (?:load|pair)_\d+ = \*?\(?[^;]*\bp1\b", kernel.source)
    rows = loads.count("u16") // 8  # of a thread: 16 bytes of a block are 8 pairs
    assert rows >= 2
    assert loads.count("u16") == 8 * rows
    assert loads.count("u8") == 2 * rows  # of the scale, whose bytes are no neighbours of a loop
    assert "factor(" in kernel.schedule
    assert not re.search(r"\bfor \(i64", kernel.source)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "IQ4_NL", "MXFP4"])
def test_blocks_are_predicted_to_be_faster(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 2560
    with_tiles = product(KINDS[name], rows).cost.seconds
    monkeypatch.setattr(loops, "tiles_of_blocks", lambda plan: [])
    forget()  # the schedules so far
    without = product(KINDS[name], rows).cost.seconds
    monkeypatch.setattr(loops, "flat_rows", lambda plan: [])
    forget()
    apart = product(KINDS[name], rows).cost.seconds
    forget()
    assert with_tiles < 0.9 * without  # all bytes of a row as one loop
    assert with_tiles < 0.72 * apart  # threads along blocks; 0.71 is predicted of IQ4_NL

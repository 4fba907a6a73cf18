"""Products of one vector with quantised weights: a thread decodes whole blocks."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.io.blocks import BLOCK_TYPES, BlockType, Packed
from tests.schedule.test_decoded import decoded, drawn_blocks

pytest.importorskip("gguf")
ROWS, BLOCKS = 36, 48


@pytest.mark.parametrize("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
def test_products_with_one_vector(kind: BlockType) -> None:
    blocks = max(BLOCKS * 32 // kind.weights, 2)
    data = drawn_blocks(kind, ROWS, blocks)
    packed = Packed(kind, Tensor(data))
    x = np.random.default_rng(1).standard_normal((1, 1, packed.shape[1]), dtype=np.float32)
    product = lm.jit(lambda x, data: x @ Packed(kind, data).decode().T)
    got = product(Tensor(x), packed.data).numpy()
    wanted = x.astype(np.float64) @ decoded(kind, data).T
    np.testing.assert_allclose(got, wanted, atol=4e-6 * np.abs(wanted).max())

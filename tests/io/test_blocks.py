"""Quantised blocks against the `gguf` package's own decoding, of random bytes, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.errors import DTypeError, ShapeError
from lamina.io.blocks import BLOCK_TYPES, BlockType, Packed

reference = pytest.importorskip("gguf")


def random_blocks(kind: BlockType, rows: int, blocks: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, blocks, kind.nbytes), np.uint8)


@pytest.mark.parametrize("code", BLOCK_TYPES)
def test_every_block_type_decodes_as_the_reference_does(code: int) -> None:
    kind = BLOCK_TYPES[code]
    data = random_blocks(kind, 5, 40, code)
    data[0, 0] = 0
    data[0, 1] = 255
    with np.errstate(all="ignore"):  # random scales are infinite now and then
        wanted = reference.quants.dequantize(
            data.reshape(5, -1), reference.GGMLQuantizationType(code)
        )
    packed = Packed(kind, Tensor(data))
    assert packed.shape == wanted.shape
    np.testing.assert_array_equal(packed.decode().numpy(), wanted)


def test_the_table_agrees_with_the_reference_on_names_and_sizes() -> None:
    for code, kind in BLOCK_TYPES.items():
        named = reference.GGMLQuantizationType(code)
        assert named.name == kind.name
        assert reference.GGML_QUANT_SIZES[named] == (kind.weights, kind.nbytes)


@pytest.mark.parametrize("code", [3, 8, 12])
def test_a_product_with_packed_weights_never_stores_them_as_floats(code: int) -> None:
    kind = BLOCK_TYPES[code]
    data = random_blocks(kind, 24, 2, 0)
    data[..., 0:4] = np.array([0.5, 0.25], np.float16).view(np.uint8)  # scales of each of these
    x = np.random.default_rng(1).standard_normal((1, 2 * kind.weights), dtype=np.float32)

    def product(x: Tensor, data: Tensor) -> Tensor:
        return x @ Packed(kind, data).decode().T

    program = lm.jit(product)
    wanted = x.astype(np.float64) @ reference.quants.dequantize(
        data.reshape(24, -1), reference.GGMLQuantizationType(code)
    ).T.astype(np.float64)
    np.testing.assert_allclose(
        program(Tensor(x), Tensor(data)).numpy(), wanted, atol=1e-5 * np.abs(wanted).max()
    )
    lowered = program.lower(Tensor(x), Tensor(data))
    assert lowered.scratch_bytes <= data.nbytes  # the scales of Q4_K are; of the others nothing
    if kind.weights == 32:
        assert len(lowered.kernels) == 1


def test_rows_are_those_of_the_decoded_matrix() -> None:
    packed = Packed(BLOCK_TYPES[8], Tensor(random_blocks(BLOCK_TYPES[8], 9, 3, 2) & 63))
    index = np.array([[4, 0, 8], [4, 4, 1]])
    wanted = packed.decode().numpy()[index]
    np.testing.assert_array_equal(packed.rows(Tensor(index)).numpy(), wanted)


def test_bytes_that_are_no_blocks_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"Q8_0 needs \(\.\.\., blocks, 34\), not \(2, 33\)"):
        Packed(BLOCK_TYPES[8], lm.zeros((2, 33), dtype=lm.uint8))
    with pytest.raises(DTypeError, match="Q4_0 needs uint8, not int8"):
        Packed(BLOCK_TYPES[2], lm.zeros((2, 18), dtype=lm.int8))
    with pytest.raises(ShapeError, match=r"rows: \(2, 3, 32\) has no two axes"):
        Packed(BLOCK_TYPES[2], lm.zeros((2, 3, 1, 18), dtype=lm.uint8)).rows(Tensor([0]))

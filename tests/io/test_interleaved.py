"""Products with activations rounded to 8 bits, against the decoded weights."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.errors import ShapeError
from lamina.io.blocks import BLOCK_TYPES, Packed
from lamina.io.interleaved import INTERLEAVED_TYPES, Interleaved

OUTPUTS, BLOCKS = 48, 5
INPUTS = 32 * BLOCKS


def weights(name: str) -> Packed:
    """Random blocks, whose scales are of one size."""
    random = np.random.default_rng(0)
    (kind,) = (one for one in BLOCK_TYPES.values() if one.name == name)
    data = random.integers(0, 256, (OUTPUTS, BLOCKS, kind.nbytes), np.uint8)
    scales = random.uniform(0.01, 0.02, (OUTPUTS, BLOCKS, 2)).astype(np.float16).view(np.uint8)
    count = 4 if name == "Q4_1" else 2  # bytes of scales
    data[..., :count] = scales[..., :count]
    return Packed(kind, Tensor(data))


def product(packed: Packed, lanes: int, x: np.ndarray) -> np.ndarray:
    interleaved = Interleaved.of(packed, lanes)
    assert interleaved is not None
    return lm.jit(interleaved.product)(Tensor(x)).numpy()


@pytest.mark.parametrize("name", INTERLEAVED_TYPES)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_activations_that_8_bits_hold_are_exact(name: str, lanes: int) -> None:
    random = np.random.default_rng(1)
    blocks = random.integers(-127, 128, (BLOCKS, 32)).astype(np.float32)
    blocks[:, 3] = -127
    x = (blocks * 2.0 ** random.integers(-9, 3, (BLOCKS, 1))).reshape(1, 1, INPUTS)
    x[..., 64:96] = 0.0  # a block without a greatest element
    packed = weights(name)
    wanted = x.astype(np.float64) @ packed.decode().numpy().T.astype(np.float64)
    found = product(packed, lanes, x.astype(np.float32))
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", INTERLEAVED_TYPES)
def test_others_are_off_by_the_rounding_alone(name: str) -> None:
    x = np.random.default_rng(2).standard_normal((1, INPUTS)).astype(np.float32)
    packed = weights(name)
    matrix = packed.decode().numpy().astype(np.float64)
    errors = np.abs(product(packed, 8, x) - x @ matrix.T)
    greatest = np.repeat(np.abs(x.reshape(BLOCKS, 32)).max(axis=1), 32)
    assert (errors <= (np.abs(matrix) @ greatest) / 254 + 1e-5).all()
    assert errors.max() > 0


def test_what_it_is_not_for() -> None:
    assert Interleaved.of(weights("Q5_1"), 8) is None
    assert Interleaved.of(weights("Q4_1"), 32) is None  # 48 rows
    interleaved = Interleaved.of(weights("Q4_1"), 8)
    assert interleaved is not None
    for shape in ((2, INPUTS), (1, 32)):
        with pytest.raises(ShapeError, match="one vector is needed"):
            interleaved.product(lm.zeros(shape))

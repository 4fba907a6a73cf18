"""Blocks against the `gguf` package's, and files against its reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.io import gguf as ours
from lamina.io.encoding import encode
from lamina.io.gguf_writing import Part, save

gguf = pytest.importorskip("gguf")

FLOATS = st.floats(-1000.0, 1000.0, width=32).map(lambda x: x if abs(x) > 1e-30 else 0.0)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
@given(weights=arrays.arrays(np.float32, (3, 64), elements=FLOATS))
def test_blocks_are_those_of_the_reference(kind: str, weights: np.ndarray) -> None:
    expected = gguf.quants.quantize(weights, getattr(gguf.GGMLQuantizationType, kind))
    np.testing.assert_array_equal(encode(kind, weights).reshape(3, -1), expected)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_drawn_weights_are_those_of_the_reference(kind: str) -> None:
    weights = np.random.default_rng(0).standard_normal((200, 256)).astype(np.float32)
    expected = gguf.quants.quantize(weights, getattr(gguf.GGMLQuantizationType, kind))
    np.testing.assert_array_equal(encode(kind, weights).reshape(200, -1), expected)


Q4_K = gguf.GGMLQuantizationType.Q4_K


def test_blocks_of_256_are_as_near_as_those_of_the_reference() -> None:
    """What ggml's reference makes of these has an error of 0.071381 times their deviation, and of
    weights above 0 as well 0.070212."""
    weights = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
    for values, of_reference in ((weights, 0.0714), (np.abs(weights), 0.0424)):
        read = gguf.quants.dequantize(encode("Q4_K", values).reshape(512, -1), Q4_K)
        error = np.sqrt(np.mean((read - values) ** 2))
        assert 0.9 * of_reference < error < 1.01 * of_reference


OF_GROUPS = arrays.arrays(np.float32, (8, 1), elements=FLOATS)


@given(st.integers(0, 99), OF_GROUPS, OF_GROUPS)
def test_any_weights_are_near_their_blocks_of_256(
    seed: int, scales: np.ndarray, offsets: np.ndarray
) -> None:
    """Half of a step of 15 is 0.033 of the width of a group, whose ends include 0. Scales and
    minima are wrong by at most half of a 63rd of the largest ones."""
    drawn = np.random.default_rng(seed).standard_normal((8, 32)).astype(np.float32)
    groups = scales * drawn + offsets
    blocks = encode("Q4_K", groups.reshape(1, 256)).reshape(1, -1)
    read = gguf.quants.dequantize(blocks, Q4_K).reshape(8, 32)
    width = groups.max(axis=-1).clip(0) - groups.min(axis=-1).clip(None, 0)
    error = np.sqrt(np.mean((read - groups) ** 2, axis=-1))
    assert (error <= 0.033 * width + 0.02 * width.max() + 1e-5).all()


def test_equal_weights_are_kept() -> None:
    """They have no width: above 0 as numbers of 15, below as minima."""
    for value in (0.0, 1.0, -1.0):
        read = gguf.quants.dequantize(encode("Q4_K", np.full((1, 256), value)).reshape(1, -1), Q4_K)
        np.testing.assert_allclose(read, value, rtol=1e-3)


def test_what_has_no_blocks_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'Q9' is none of Q8_0, Q4_0"):
        encode("Q9", np.zeros((2, 32), np.float32))
    with pytest.raises(ShapeError, match=r"\(2, 32\): Q4_K needs rows of a multiple of 256"):
        encode("Q4_K", np.zeros((2, 32), np.float32))
    with pytest.raises(ShapeError, match=r"\(2, 33\): Q8_0 needs rows of a multiple of 32"):
        encode("Q8_0", np.zeros((2, 33), np.float32))


METADATA = {
    "general.architecture": "llama", "a.flag": True, "a.count": 7, "a.long": 1 << 40, "a.less": -3,
    "a.ratio": 0.5, "a.texts": ["one", "zwei", ""], "a.flags": [True, False],
    "a.kinds": np.array([1, -2, 3], np.int32), "a.lists": [["x"], ["y", "z"]],
}  # fmt: skip


def test_files_are_read_by_both_readers(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    blocks = encode("Q8_0", np.ones((2, 64), np.float32))
    parts = [
        Part("dense", (2, 3), 0, values.nbytes, lambda: [values.tobytes()]),
        Part("packed", (2, 64), 8, blocks.nbytes, lambda: [blocks[:1].tobytes(), blocks[1:].data]),
    ]
    save(path, METADATA, parts)
    read = ours.load(path)
    kinds = read.metadata.pop("a.kinds")
    assert kinds.dtype == np.int32
    assert kinds.tolist() == [1, -2, 3]
    assert read.metadata == {name: METADATA[name] for name in METADATA if name != "a.kinds"}
    np.testing.assert_array_equal(read.tensors["dense"].numpy(), values)  # type: ignore[union-attr]
    theirs = gguf.GGUFReader(path)
    dense, packed = theirs.tensors
    np.testing.assert_array_equal(dense.data, values)
    assert (packed.name, packed.tensor_type.name, [*packed.shape]) == ("packed", "Q8_0", [64, 2])
    np.testing.assert_array_equal(packed.data.reshape(-1), blocks.reshape(-1))
    assert theirs.fields["a.count"].contents() == 7
    assert theirs.fields["a.texts"].contents() == ["one", "zwei", ""]


@pytest.mark.parametrize("value", [None, 1 << 64, [1, "x"], np.zeros(2, complex), {}])
def test_metadata_that_the_format_lacks_are_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match="metadata 'odd'"):
        save(tmp_path / "odd.gguf", {"odd": value}, [])
    assert not (tmp_path / "odd.gguf").exists()

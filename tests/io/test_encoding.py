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
from lamina.io.encoding import ENCODERS, encode
from lamina.io.gguf_writing import Part, save

gguf = pytest.importorskip("gguf")

FLOATS = st.floats(-1000.0, 1000.0, width=32).map(lambda x: x if abs(x) > 1e-30 else 0.0)


@pytest.mark.parametrize("kind", ENCODERS)
@given(weights=arrays.arrays(np.float32, (3, 64), elements=FLOATS))
def test_blocks_are_those_of_the_reference(kind: str, weights: np.ndarray) -> None:
    expected = gguf.quants.quantize(weights, getattr(gguf.GGMLQuantizationType, kind))
    np.testing.assert_array_equal(encode(kind, weights).reshape(3, -1), expected)


@pytest.mark.parametrize("kind", ENCODERS)
def test_drawn_weights_are_those_of_the_reference(kind: str) -> None:
    weights = np.random.default_rng(0).standard_normal((200, 256)).astype(np.float32)
    expected = gguf.quants.quantize(weights, getattr(gguf.GGMLQuantizationType, kind))
    np.testing.assert_array_equal(encode(kind, weights).reshape(200, -1), expected)


def test_what_has_no_blocks_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'Q9' is none of Q8_0, Q4_0"):
        encode("Q9", np.zeros((2, 32), np.float32))
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

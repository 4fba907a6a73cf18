"""The safetensors format: both directions against the reference package, and hostile files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor
from lamina.core import dtypes
from lamina.errors import DTypeError, FormatError
from lamina.io import safetensors

reference = pytest.importorskip("safetensors.numpy")


def packed(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(shape: Any = (1,), begin: Any = 0, end: Any = 4, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.fixture
def example() -> dict[str, Tensor]:
    generator = np.random.default_rng(0)
    tensors = {
        dtype.name: Tensor(generator.integers(0, 2, (2, 3)).astype(dtype.numpy), dtype)
        for dtype in dtypes.ALL
        if dtype is not dtypes.complex128
    }
    return tensors | {"scalar": Tensor(2.5), "empty": lm.zeros((0, 4)), "ünïcode.0": Tensor([1.0])}


def test_round_trip_of_every_dtype(tmp_path: Path, example: dict[str, Tensor]) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.save(path, example, {"format": "pt"})
    loaded = safetensors.load(path)
    assert set(loaded) == set(example)
    for name, tensor in example.items():
        assert loaded[name].dtype is tensor.dtype
        assert loaded[name].shape == tensor.shape
        assert loaded[name].numpy().tobytes() == tensor.numpy().tobytes()
    assert safetensors.metadata(path) == {"format": "pt"}


def test_the_reference_reads_what_we_write(tmp_path: Path, example: dict[str, Tensor]) -> None:
    numpy_has = {name: one for name, one in example.items() if "float8" not in name}
    path = tmp_path / "ours"
    safetensors.save(path, numpy_has)
    for name, array in reference.load_file(path).items():
        assert array.tobytes() == numpy_has[name].numpy().tobytes()
        assert array.shape == numpy_has[name].shape


def test_we_read_what_the_reference_writes(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False, True]),
              "c": np.arange(5, dtype=np.int16)}  # fmt: skip
    path = tmp_path / "theirs"
    reference.save_file(arrays, path, {"note": "text"})
    loaded = safetensors.load(path)
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name].numpy(), array)
    assert safetensors.metadata(path) == {"note": "text"}


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=5).filter(lambda one: one != "__metadata__"),
        st.tuples(st.sampled_from(["float32", "int8", "uint16", "float64", "bool"]),
                  st.lists(st.integers(0, 3), max_size=3)),
        max_size=5,
    )
)  # fmt: skip
def test_any_names_and_shapes_round_trip(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, tuple[str, list[int]]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "file"
    arrays = {name: np.ones(shape, kind) for name, (kind, shape) in shapes.items()}
    safetensors.save(path, {name: Tensor(one) for name, one in arrays.items()})
    for loaded in (reference.load_file(path), safetensors.load(path)):
        assert set(loaded) == set(arrays)
        for name, one in arrays.items():
            assert tuple(loaded[name].shape) == one.shape


def test_loaded_tensors_compute_and_never_write_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    safetensors.save(path, {"w": Tensor([1.0, 2.0, 3.0]), "flag": Tensor([True])})
    before = path.read_bytes()
    weight = safetensors.load(path)["w"]
    np.testing.assert_array_equal((weight * 2.0).numpy(), [2.0, 4.0, 6.0])
    weight.assign(weight + 1.0).realize()
    np.testing.assert_array_equal(weight.numpy(), [2.0, 3.0, 4.0])
    assert path.read_bytes() == before


def test_tensors_that_are_not_aligned_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    header = {"byte": entry([1], 0, 1, "U8"), "x": entry([2], 1, 9)}
    path.write_bytes(packed(header, b"\7" + np.array([1.5, -2.0], np.float32).tobytes()))
    loaded = safetensors.load(path)
    np.testing.assert_array_equal((loaded["x"] + 1.0).numpy(), [2.5, -1.0])
    assert loaded["byte"].item() == 7


HOSTILE = {
    "nothing": (b"", "header too small"),
    "a few bytes": (b"\1\0\0", "header too small"),
    "header beyond the file": ((100).to_bytes(8, "little") + b"{}", "invalid header length"),
    "huge header": ((1 << 63).to_bytes(8, "little"), "header too large"),
    "not JSON": (packed(b"{nonsense"), "JSON"),
    "not UTF-8": (packed(b'{"\xff": 1}'), "UTF-8"),
    "deep nesting": (packed(b"[" * 100_000), "JSON"),
    "a list": (packed([]), "JSON in header: invalid type: sequence"),
    "long number": (packed(b'{"a": ' + b"9" * 10_000 + b"}"), "number out of range"),
    # The last entry of a name counts, so the first one's bytes belong to nobody.
    "twice": (
        packed(
            b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, '
            b'"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
            b"12345678",
        ),
        "invalid offset for tensor `a`",
    ),
    "metadata": (packed({"__metadata__": {"a": 1}}), "expected a string"),
    "entry": (packed({"a": 1}), "expected struct TensorInfo"),
    "dtype": (packed({"a": entry(dtype="Q4")}, b"1234"), "`Q4`, expected one of"),
    "sub-byte dtype": (packed({"a": entry([2], 0, 1, "F4")}, b"1"), "'a' has dtype F4; known are"),
    "list as dtype": (packed({"a": entry(dtype=[])}, b"1234"), "invalid type: sequence"),
    "negative size": (packed({"a": entry([-1, -1])}, b"1234"), "`-1`, expected usize"),
    "bool size": (packed({"a": entry([True])}, b"1234"), "boolean `true`, expected usize"),
    "float size": (packed({"a": entry([1.0])}, b"1234"), "`1.0`, expected usize"),
    "offsets": (packed({"a": entry(begin=-4, end=0)}, b"1234"), "`-4`, expected usize"),
    "three offsets": (
        packed({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, b"1234"),
        "expected 2 elements",
    ),
    "bytes": (packed({"a": entry([2])}, b"1234"), "invalid shape, data type, or offset"),
    "overflow": (packed({"a": entry([1 << 62, 1 << 62, 4])}, b"1234"), "overflow computing"),
    "truncated": (packed({"a": entry()}, b"123"), "not fully covered"),
    "overlap": (packed({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, b"12345678"), "tensor `b`"),
    "gap": (packed({"a": entry([1], 4, 8)}, b"12345678"), "invalid offset for tensor `a`"),
    "tail": (packed({"a": entry()}, b"12345678"), "not fully covered"),
    "tail of nothing": (packed({}, b"1234"), "not fully covered"),
}




@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    content, text = HOSTILE[name]
    path = tmp_path / "file.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=text) as caught:
        safetensors.load(path)
    assert "file.safetensors" in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=f"{tmp_path.name} is a folder"):
        safetensors.load(tmp_path)


@given(st.data())
def test_damaged_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any change to a header ends in a FormatError or in tensors inside the file."""
    content = bytearray(packed({"a": entry([2], 0, 8), "b": entry([1], 8, 12)}, b"123456789012"))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "file"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        loaded = safetensors.load(path)
    except FormatError:
        return
    assert sum(one.nbytes for one in loaded.values()) <= len(content)


def test_fields_that_nobody_knows_are_passed_over(tmp_path: Path) -> None:
    """As the reference does."""
    path = tmp_path / "file"
    path.write_bytes(packed({"a": entry() | {"code": "import os"}}, np.float32(1.5).tobytes()))
    assert safetensors.load(path)["a"].tolist() == [1.5]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    safetensors.save(path, {"a": Tensor([1.0])})
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        safetensors.save(path, {"a": Tensor([2.0])})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "model"
    safetensors.save(path, {"a": Tensor([1.0, 2.0])})
    mapped = safetensors.load(path)["a"]
    safetensors.save(path, {"a": mapped * 10.0})
    np.testing.assert_array_equal(mapped.numpy(), [1.0, 2.0])  # the old file lives on
    np.testing.assert_array_equal(safetensors.load(path)["a"].numpy(), [10.0, 20.0])


def test_what_the_format_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match="complex128"):
        safetensors.save(tmp_path / "a", {"z": Tensor([1j], dtype=lm.complex128)})
    with pytest.raises(FormatError, match="reserved"):
        safetensors.save(tmp_path / "a", {"__metadata__": Tensor([1.0])})
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        safetensors.load(tmp_path / "missing")


def test_arrays_of_numpy_are_saved_as_tensors_are(tmp_path: Path) -> None:
    array = np.arange(6.0).reshape(2, 3).T
    safetensors.save(tmp_path / "arrays", {"array": array})  # type: ignore[dict-item]
    np.testing.assert_array_equal(safetensors.load(tmp_path / "arrays")["array"].numpy(), array)

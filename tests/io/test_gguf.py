"""The GGUF format: against the `gguf` package's writer, and hostile files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from lamina import Tensor
from lamina.errors import FormatError
from lamina.io import gguf
from lamina.io.blocks import Packed
from tests.io.gguf_files import Draft, array, entry, text, value

reference = pytest.importorskip("gguf")


def test_we_read_what_the_reference_writes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    dense = random.standard_normal((3, 64), dtype=np.float32)
    half = dense.astype(np.float16)
    blocks = reference.quants.quantize(dense, reference.GGMLQuantizationType.Q5_1)
    path = tmp_path / "model.gguf"
    writer = reference.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.eps", 0.5)
    writer.add_bool("yes", True)
    writer.add_string("name", "ünï")
    writer.add_array("tokens", ["a", "", "ζ"])
    writer.add_array("scores", [0.5, -1.0])
    writer.add_array("flags", [True, False])
    writer.add_array("nested", [[1, 2], [3]])
    writer.add_tensor("dense", dense)
    writer.add_tensor("half", half)
    writer.add_tensor("ints", np.arange(6, dtype=np.int16).reshape(1, 2, 3))
    writer.add_tensor("blocks", blocks, raw_dtype=reference.GGMLQuantizationType.Q5_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    loaded = gguf.load(path)
    scores, nested = loaded.metadata.pop("scores"), loaded.metadata.pop("nested")
    assert loaded.metadata == {
        "general.architecture": "llama", "llama.block_count": 2, "llama.eps": 0.5, "yes": True,
        "name": "ünï", "tokens": ["a", "", "ζ"], "flags": [True, False],
    }  # fmt: skip
    np.testing.assert_array_equal(scores, [0.5, -1.0])
    assert [list(one) for one in nested] == [[1, 2], [3]]
    assert list(loaded.tensors) == ["dense", "half", "ints", "blocks"]
    for name, wanted in {"dense": dense, "half": half}.items():
        tensor = loaded.tensors[name]
        assert isinstance(tensor, Tensor)
        assert tensor.dtype.numpy == wanted.dtype
        np.testing.assert_array_equal(tensor.numpy(), wanted)
    assert loaded.tensors["ints"].shape == (1, 2, 3)
    packed = loaded.tensors["blocks"]
    assert isinstance(packed, Packed)
    np.testing.assert_array_equal(
        packed.decode().numpy(),
        reference.quants.dequantize(blocks, reference.GGMLQuantizationType.Q5_1),
    )


def in_parts(folder: Path) -> list[Path]:
    """Files that are parts of one with five tensors, as the reference writes them."""
    writer = reference.GGUFWriter(folder / "model.gguf", "llama", split_max_tensors=2)
    writer.add_string("name", "whole")
    for number in range(5):
        writer.add_tensor(f"t{number}", np.full((2, 3), number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("*.gguf"))


def test_files_in_parts_are_read_from_the_first(tmp_path: Path) -> None:
    parts = in_parts(tmp_path)
    assert [path.name for path in parts] == [f"model-0000{at}-of-00003.gguf" for at in (1, 2, 3)]
    loaded = gguf.load(parts[0])
    assert loaded.metadata == {"general.architecture": "llama", "name": "whole"}
    assert list(loaded.tensors) == [f"t{number}" for number in range(5)]
    for number, tensor in enumerate(loaded.tensors.values()):
        assert isinstance(tensor, Tensor)
        np.testing.assert_array_equal(tensor.numpy(), np.full((2, 3), number, np.float32))


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    first, second, third = in_parts(tmp_path)
    with pytest.raises(FormatError, match="part 2 of 3, where the first is needed"):
        gguf.load(second)
    renamed = first.rename(tmp_path / "other.gguf")
    with pytest.raises(FormatError, match=r"name has to end with -00001-of-00003\.gguf"):
        gguf.load(renamed)
    renamed.rename(first)
    kept = third.read_bytes()
    third.write_bytes(second.read_bytes())
    with pytest.raises(FormatError, match=r"00003\.gguf: part 2 of 3, where part 3 is needed"):
        gguf.load(first)
    third.write_bytes(kept.replace(b"t4", b"t0"))
    with pytest.raises(FormatError, match="tensor 't0': given twice"):
        gguf.load(first)
    third.unlink()
    with pytest.raises(FileNotFoundError, match="00003"):
        gguf.load(first)
    third.write_bytes(kept)
    wrong = first.read_bytes().replace(struct.pack("<Ii", 5, 5), struct.pack("<Ii", 5, 6))
    first.write_bytes(wrong)
    with pytest.raises(FormatError, match="5 tensors in 3 parts, 6 are needed"):
        gguf.load(first)
    (tmp_path / "wild.gguf").write_bytes(
        Draft(metadata=[value("split.count", 9, array(4, 1, struct.pack("<I", 2)))]).packed()
    )
    with pytest.raises(FormatError, match=r"metadata 'split.no': part 0 of array"):
        gguf.load(tmp_path / "wild.gguf")


def test_loaded_tensors_never_write_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    numbers = np.array([1, 2, 3, 4], np.float32)
    path.write_bytes(Draft(entries=[entry()], data=numbers.tobytes()).packed())
    before = path.read_bytes()
    tensor = gguf.load(path).tensors["w"]
    assert isinstance(tensor, Tensor)
    tensor.assign(tensor + 1.0).realize()
    np.testing.assert_array_equal(tensor.numpy(), numbers + 1)
    assert path.read_bytes() == before


def test_other_alignments_and_empty_tensors(tmp_path: Path) -> None:
    eight = value("general.alignment", 4, struct.pack("<I", 8))
    entries = [entry("a", (2,), 0, 0), entry("none", (0, 3), 0, 8), entry("b", (1,), 0, 8)]
    data = np.array([1, 2, 3], np.float32).tobytes()
    path = tmp_path / "file"
    path.write_bytes(Draft(metadata=[eight], entries=entries).packed().rstrip(b"\0"))
    # The header ends with the offset 8 of the last tensor, of which 7 bytes were zeros.
    head = path.read_bytes() + bytes(7)
    path.write_bytes(head + bytes(-len(head) % 8) + data)
    loaded = gguf.load(path).tensors
    assert isinstance(loaded["a"], Tensor)
    assert isinstance(loaded["b"], Tensor)
    np.testing.assert_array_equal(loaded["a"].numpy(), [1, 2])
    np.testing.assert_array_equal(loaded["b"].numpy(), [3])
    assert loaded["none"].shape == (3, 0)


FLOATS = bytes(64)


def meta(*values: bytes) -> bytes:
    """A file of metadata alone."""
    return Draft(metadata=list(values)).packed()


def tensors(*entries: bytes) -> bytes:
    """A file of tensors with 64 bytes."""
    return Draft(entries=list(entries), data=FLOATS).packed()


def aligned(code: int, payload: bytes) -> bytes:
    return meta(value("general.alignment", code, payload))


HOSTILE = {
    "nothing": (b"", "magic: 4 bytes from byte 0 on, but the file has 0"),
    "another format": (Draft(magic=b"GGML").packed(), "magic: b'GGML' where b'GGUF' is needed"),
    "old version": (Draft(version=1).packed(), "version: 1; known are 2 and 3"),
    "big-endian": (Draft(version=3 << 24).packed(), "version: the file is big-endian, of version"),
    "half a header": (b"GGUF\3\0\0\0\1\0", "tensor count: 8 bytes from byte 8"),
    "many tensors": (Draft(tensor_count=1 << 63).packed(), "tensor count: 9223372036854775808; at"),
    "many values": (Draft(metadata_count=1 << 40).packed(), "metadata count: 1099511627776; at"),
    "fewer values": (Draft(metadata_count=1).packed(), "metadata '', type: 4 bytes from byte 32"),
    "long name": (meta(value("n" * 65536, 7, b"\1")), "name 0 of the metadata: 65536 bytes long"),
    "endless name": (meta(struct.pack("<Q", (1 << 64) - 1)), "name 0 of the metadata: 1844"),
    "name that is no text": (meta(text(b"\xff")), "name 0 of the metadata: not UTF-8"),
    "value twice": (meta(value("a", 7, b"\1"), value("a", 7, b"\0")), "metadata 'a': given twice"),
    "unknown type of value": (meta(value("a", 13, b"")), "metadata 'a', type: 13 is no type"),
    "value that is no bool": (meta(value("a", 7, b"\2")), "metadata 'a': a bool that is neither"),
    "bools": (meta(value("a", 9, array(7, 2, b"\1\2"))), "metadata 'a': a bool that is neither"),
    "endless text": (
        meta(value("a", 8, struct.pack("<Q", 1 << 62))), "metadata 'a': 4611686018427387904 bytes",
    ),
    "text that is none": (meta(value("a", 8, text(b"\xc3\x28"))), "metadata 'a': not UTF-8"),
    "endless numbers": (meta(value("a", 9, array(6, 1 << 62))), "metadata 'a': 1844674407370955"),
    "endless texts": (
        meta(value("a", 9, array(8, 1 << 62))),
        "metadata 'a', length: 4611686018427387904; arrays of this file have more than 1048576",
    ),
    "fewer texts": (
        meta(value("a", 9, array(8, 30, text("x") + text("y")))), r"metadata 'a'\[\d+\], length: 8",
    ),
    "a text in an array that is none": (
        meta(value("a", 9, array(8, 2, text("x") + text(b"\xff")))), r"metadata 'a'\[1\]: not UTF",
    ),
    "an endless text in an array": (
        meta(value("a", 9, array(8, 1, struct.pack("<Q", 1 << 63)))), r"metadata 'a'\[0\]: 92233",
    ),
    "texts in several arrays": (
        meta(*(value(name, 9, array(7, 600_000, bytes(600_000))) for name in "ab")),
        "metadata 'b', length: 600000; arrays of this file",
    ),
    "deep arrays": (meta(value("a", 9, array(9, 1) * 5)), "arrays in arrays, more than 4 deep"),
    "element of a wrong type": (
        meta(value("a", 9, array(77, 1))), r"metadata 'a'\[0\], type: 77 is no type",
    ),
    "alignment": (aligned(4, struct.pack("<I", 24)), "'general.alignment': 24; a power of two"),
    "alignment of zero": (aligned(4, bytes(4)), "'general.alignment': 0; a power of two"),
    "alignment that is a text": (aligned(8, text("x")), "'general.alignment': 'x'; a power"),
    "long name of a tensor": (tensors(entry("n" * 64)), "name of tensor 0: 64 bytes long; at most"),
    "rank": (tensors(entry(rank=5)), "tensor 'w', rank: 5; at most 4"),
    "type of a tensor": (
        tensors(entry(code=99)), "tensor 'w', type: 99 is unknown; known are float32, .*MXFP4",
    ),
    "odd blocks": (
        tensors(entry(sizes=(33,), code=8)),
        r"tensor 'w', shape: \(33,\) in Q8_0, whose blocks have 32 weights",
    ),
    "blocks of nothing": (tensors(entry(sizes=(), code=8)), r"tensor 'w', shape: \(\) in Q8_0"),
    "tensor twice": (tensors(entry(), entry(offset=32)), "tensor 'w': given twice"),
    "offset": (tensors(entry(offset=4)), "tensor 'w', offset: 4 is no multiple of 32"),
    "beyond the end": (tensors(entry(offset=64)), "tensor 'w': bytes 128 to 144, but the file"),
    "far beyond the end": (tensors(entry(offset=(1 << 64) - 32)), "tensor 'w': bytes 1844"),
    "huge sizes": (tensors(entry(sizes=(1 << 63, 1 << 63))), "tensor 'w': bytes 96 to 3402823669"),
    "huge sizes beside zero": (
        tensors(entry(sizes=(0, 1 << 63))), "tensor 'w', shape: .*: the sizes beside 0 are too",
    ),
    "huge sizes of blocks beside zero": (
        tensors(entry(sizes=(0, 1 << 40, 1 << 40), code=8)), "the sizes beside 0 are too large",
    ),
    "overlap": (
        tensors(entry("b", offset=32), entry("a", (9,))), "tensor 'b', offset: inside 'a'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_by_the_field(tmp_path: Path, case: str) -> None:
    raw, message = HOSTILE[case]
    path = tmp_path / "file"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=message):
        gguf.load(path)


def test_mutated_files_raise_format_errors_or_load(tmp_path: Path) -> None:
    metadata = [
        value("a", 8, text("text")), value("b", 9, array(8, 2, text("x") + text("y"))),
        value("c", 9, array(5, 3, bytes(12))), value("general.alignment", 4, struct.pack("<I", 32)),
    ]  # fmt: skip
    entries = [entry("w", (4, 2)), entry("q", (32,), 8, 32)]
    whole = Draft(metadata=metadata, entries=entries, data=bytes(96)).packed()
    random = np.random.default_rng(0)
    path, refused = tmp_path / "file", 0
    for _ in range(400):
        raw = bytearray(whole)
        for place in random.integers(0, len(raw) - 96, random.integers(1, 4)):
            raw[place] = random.choice([0, 1, 127, 128, 255, random.integers(256)])
        path.write_bytes(raw[: random.integers(1, len(raw) + 1)] if random.random() < 0.2 else raw)
        try:
            gguf.load(path)
        except FormatError:
            refused += 1
    assert 200 < refused < 400

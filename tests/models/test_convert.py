"""Converted files against the `gguf` package, and the models in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lamina import Tensor, cli, models
from lamina.errors import ArgumentError
from lamina.models.convert import convert
from tests.models import families
from tests.models.gguf_models import written

gguf = pytest.importorskip("gguf")
pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_matrices_are_in_the_type_that_is_asked_for(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From Q4_1, and the lookup from Q8_0; norms stay as they are."""
    source, target = tmp_path / "source.gguf", tmp_path / "target.gguf"
    written("smollm", source)
    assert cli.main(["convert", str(source), str(target), "--type", kind]) == 0
    assert capsys.readouterr().out == f"{target}: {target.stat().st_size / 1e6:.1f} MB\n"
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(target)
    assert [one.name for one in after.tensors] == [one.name for one in before.tensors]
    for old, new in zip(before.tensors, after.tensors, strict=True):
        if len(old.shape) == 1:
            np.testing.assert_array_equal(new.data, old.data)
            continue
        wanted = "Q8_0" if new.name == "token_embd.weight" else kind
        assert new.tensor_type.name == wanted
        values = gguf.quants.dequantize(old.data, old.tensor_type)
        expected = gguf.quants.quantize(values, new.tensor_type)
        # Weights of Q4_1 differ in their last bits, as kernels round a product and a sum once; of
        # those between two numbers of the new type some become the other one.
        assert (new.data != expected).mean() < 0.01
    assert after.fields["llama.block_count"].contents() == 2
    network = models.load(target, device="interp").network
    assert np.isfinite(network(Tensor([[3, 4]], device="interp")).numpy()).all()


def test_rows_of_no_whole_blocks_of_256_have_8_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(families.SIZES, "intermediate_size", 256)
    source, target = tmp_path / "source.gguf", tmp_path / "target.gguf"
    written("smollm", source)
    convert(source, target, "Q4_K")
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(target)
    kinds = {one.name: one.tensor_type.name for one in after.tensors}
    assert kinds["blk.0.ffn_down.weight"] == "Q4_K"  # its rows have 256 weights, others have 64
    assert kinds["blk.0.ffn_up.weight"] == "Q8_0"
    for old, new in zip(before.tensors, after.tensors, strict=True):
        expected, values = (gguf.quants.dequantize(one.data, one.tensor_type) for one in (old, new))
        assert np.sqrt(np.mean((values - expected) ** 2)) < 0.08 * expected.std()
    network = models.load(target, device="interp").network
    assert np.isfinite(network(Tensor([[3, 4]], device="interp")).numpy()).all()


def test_the_source_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    written("smollm", path)
    content = path.read_bytes()
    with pytest.raises(ArgumentError, match="is the source; give another file"):
        convert(path, path, "Q8_0")
    with pytest.raises(ArgumentError, match="'Q5_K' is none of Q8_0, Q4_0, Q4_K"):
        convert(path, tmp_path / "new.gguf", "Q5_K")
    assert path.read_bytes() == content

"""Mixtures of experts: blocks of inputs, and the forms that files have their matrices in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Tensor, models
from lamina.errors import FormatError
from lamina.io import safetensors
from lamina.models.experts import Choice, Experts, Mixture, joined
from lamina.models.weights import StoredWeights
from tests.models.families import reference, saved
from tests.models.test_llama import IDS, wanted

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def on_interpreter(array: np.ndarray) -> Tensor:
    return Tensor(array.astype(np.float32), device="interp")


@given(st.data())
def test_inputs_pass_their_experts_whatever_is_chosen(data: st.DataObject) -> None:
    """Few inputs and many, experts with none and with all of them."""
    count, tokens = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 24))
    chosen = data.draw(st.integers(1, count))
    order = st.permutations(range(count)).map(lambda numbers: numbers[:chosen])
    numbers = np.array(data.draw(st.lists(order, min_size=tokens, max_size=tokens)))
    weighs_inputs = data.draw(st.booleans())
    random = np.random.default_rng(0)
    x, shares = random.normal(size=(tokens, 6)), random.uniform(size=numbers.shape)
    gate, up = random.normal(size=(2, count, 4, 6))
    down = random.normal(size=(count, 6, 4))
    weights = {"gate_proj": gate, "up_proj": up, "down_proj": down}
    stored = {f"experts.{name}": on_interpreter(weight) for name, weight in weights.items()}
    layer = Experts(StoredWeights(stored, "test"), "experts", count, 6, 4, weighs_inputs)
    expected = np.zeros_like(x)
    for token, place in np.ndindex(*numbers.shape):
        expert, share = numbers[token, place], shares[token, place]
        row = x[token] * share if weighs_inputs else x[token]
        gates = gate[expert] @ row
        result = down[expert] @ (gates / (1 + np.exp(-gates)) * (up[expert] @ row))
        expected[token] += result if weighs_inputs else share * result
    choice = Choice(Tensor(numbers, device="interp"), on_interpreter(shares))
    ours = layer(on_interpreter(x), choice).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["mixtral", "qwen3 with experts"])
def test_files_have_the_matrices_of_experts_in_one(name: str, tmp_path: Path) -> None:
    """As the modules of transformers name them; `save_pretrained` writes them apart."""
    theirs = saved(name, tmp_path)
    assert not any("gate_up" in one for one in safetensors.load(tmp_path / "model.safetensors"))
    state = {key: Tensor(value.numpy()) for key, value in theirs.state_dict().items()}
    assert any(key.endswith("experts.gate_up_proj") for key in state)
    safetensors.save(tmp_path / "model.safetensors", state)
    network = models.load(tmp_path, device="interp").network
    logits = network(Tensor(IDS, device="interp")).numpy()
    np.testing.assert_allclose(logits, wanted(theirs, IDS), atol=1e-4)


def test_halves_of_experts_stay_halves(tmp_path: Path) -> None:
    reference("mixtral").to(torch.bfloat16).save_pretrained(tmp_path)
    network = models.load(tmp_path, device="interp").network
    weight = network.model.layers[0].mlp.experts.up_proj
    assert isinstance(weight, Tensor)
    assert weight.dtype.name == "bfloat16"


def test_experts_that_are_missing_are_named(tmp_path: Path) -> None:
    saved("mixtral", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {name: one.contiguous() for name, one in safetensors.load(path).items()}
    del tensors["model.layers.1.block_sparse_moe.experts.2.w1.weight"]
    safetensors.save(path, tensors)
    with pytest.raises(FormatError, match=r"missing model.layers.1.mlp.experts.gate_proj; unexp"):
        models.load(tmp_path)


def test_matrices_of_several_shapes_stay_apart() -> None:
    mixture = Mixture(count=2, chosen=1, inner=3, normalizes=True, layers=(0,))
    names = [f"0.experts.{number}.up_proj.weight" for number in range(2)]
    weights = {names[0]: Tensor(np.zeros((3, 4))), names[1]: Tensor(np.zeros((3, 5)))}
    assert joined(weights, mixture).keys() == set(names)
    gates = {"0.experts.gate_up_proj": Tensor(np.zeros((2, 5, 4)))}
    assert joined(gates, mixture).keys() == gates.keys()

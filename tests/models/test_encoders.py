"""Encoders of text against transformers: vectors with padding, a training step, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, models, nn
from lamina.errors import ArgumentError, FormatError, ShapeError
from lamina.io import safetensors
from lamina.models.configuration import from_hugging_face
from tests.models.encoders import ENCODERS, SIZES, reference, texts

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def wanted(model: Any, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(ids), torch.tensor(mask)).last_hidden_state.numpy()


def vectors(folder: Path, ids: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    network = models.load(folder, device="interp").network
    seen = None if mask is None else Tensor(mask, device="interp")
    result: np.ndarray = network(Tensor(ids, device="interp"), seen).numpy()
    return result


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = reference(name)
    model.save_pretrained(tmp_path)
    ids, mask = texts(model.config.pad_token_id)
    ours = vectors(tmp_path, ids, mask)
    np.testing.assert_allclose(ours[mask], wanted(model, ids, mask)[mask], atol=1e-4)
    # Without padding, and alone.
    whole = vectors(tmp_path, ids[:1], None)
    np.testing.assert_allclose(whole[0], ours[0], atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_files_of_models_with_a_head_have_the_encoder(name: str, tmp_path: Path) -> None:
    model = reference(name, "ForMaskedLM")
    model.save_pretrained(tmp_path)
    ids, mask = texts(model.config.pad_token_id)
    ours = vectors(tmp_path, ids, mask)
    np.testing.assert_allclose(ours[mask], wanted(model.base_model, ids, mask)[mask], atol=1e-4)


def test_old_files_have_other_names_and_positions(tmp_path: Path) -> None:
    model = reference("bert")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    old = {"embeddings.position_ids": lm.zeros((1, 48), dtype=lm.int64, device="interp")}
    for name, weight in safetensors.load(path, "interp").items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old[f"bert.{name.replace('LayerNorm.bias', 'LayerNorm.beta')}"] = weight.contiguous()
    safetensors.save(path, old)
    ids, mask = texts(0)
    ours = vectors(tmp_path, ids, mask)
    np.testing.assert_allclose(ours[mask], wanted(model, ids, mask)[mask], atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_training_step_has_the_gradients_of_pytorch(name: str, tmp_path: Path) -> None:
    theirs = reference(name)
    theirs.save_pretrained(tmp_path)
    ids, mask = texts(theirs.config.pad_token_id)
    goal = np.random.default_rng(1).standard_normal((*ids.shape, SIZES["hidden_size"]), np.float32)
    kept = torch.tensor(mask)
    hidden = theirs(torch.tensor(ids), kept).last_hidden_state
    loss = ((hidden - torch.tensor(goal))[kept] ** 2).mean()
    loss.backward()
    network = models.load(tmp_path, device="interp").network
    state = nn.state_dict(network)
    seen = Tensor(mask, device="interp")
    squares = (network(Tensor(ids, device="interp"), seen) - Tensor(goal, device="interp")) ** 2
    count = int(mask.sum()) * SIZES["hidden_size"]
    ours = lm.where(seen.unsqueeze(-1), squares, 0.0).sum() / count
    gradients = lm.gradient(ours, list(state.values()))
    assert ours.item() == pytest.approx(loss.item(), rel=1e-5)
    of_theirs = {name: one.grad for name, one in theirs.named_parameters()}
    pooler = {"pooler.dense.weight", "pooler.dense.bias"}
    assert state.keys() == of_theirs.keys() - pooler
    for weight, gradient in zip(state, gradients, strict=True):
        expected = of_theirs[weight].numpy()
        np.testing.assert_allclose(
            gradient.numpy(), expected, rtol=1e-4, atol=1e-4, err_msg=weight
        )


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    reference("roberta").save_pretrained(tmp_path)
    model = models.load(tmp_path, device="interp")
    network = model.network
    with pytest.raises(ArgumentError, match="Bert writes no text"):
        _ = model.writer
    with pytest.raises(ShapeError, match=r"tokens of shape \(3,\); \(batch, length\) is needed"):
        network(Tensor([5, 6, 7]))
    with pytest.raises(ShapeError, match="45 tokens of a text; 44 have a position"):
        network(lm.full((1, 45), 5))
    with pytest.raises(ShapeError, match=r"mask \(1, 2\) for tokens \(1, 3\)"):
        network(Tensor([[5, 6, 7]]), lm.ones((1, 2), dtype=lm.bool))


BERT = {**SIZES, "model_type": "bert"}
MODERN = {**SIZES, "model_type": "modernbert"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "activation": ({**BERT, "hidden_act": "relu"}, "hidden_act: 'relu'; models of this family"),
    "heads": ({**BERT, "num_attention_heads": 5}, "num_attention_heads: 5 heads do not divide 32"),
    "positions": (
        {**BERT, "position_embedding_type": "relative_key"}, "type: 'relative_key'; only 'absolute'"
    ),
    "decoder": ({**BERT, "is_decoder": True}, "is_decoder: True; models of this family have False"),
    "padding": (
        {**BERT, "model_type": "roberta", "pad_token_id": -1}, "pad_token_id: -1; an integer from 0"
    ),
    "only padding": (
        {**BERT, "model_type": "roberta", "pad_token_id": 47}, "max_position_embeddings: 48; more"
    ),
    "biases": ({**MODERN, "mlp_bias": True}, "mlp_bias: True; models of this family have False"),
    "kinds": ({**MODERN, "layer_types": ["full_attention"]}, "layer_types: full_attention or sl"),
    "size of a head": ({**MODERN, "head_dim": 16}, "head_dim: 16; 4 heads of 32 elements are n"),
    "rotation": (
        {**MODERN, "rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
        "full_attention: rope_type: 'yarn'; models of this family have 'default'",
    ),
    "scaling": ({**MODERN, "rope_scaling": {"factor": 2.0}}, "rope_scaling: models of this family"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_configurations_that_make_no_sense_are_refused(name: str) -> None:
    values, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        from_hugging_face(values, "config.json")

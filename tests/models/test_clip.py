"""CLIP against transformers: vectors of texts and images, logits, and a training step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, models, nn
from lamina.errors import FormatError, ShapeError
from lamina.io import safetensors
from lamina.models.configuration import from_hugging_face

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXT = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 12, "eos_token_id": 59, "bos_token_id": 58,
}  # fmt: skip
VISION = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "clip": {"projection_dim": 20, "text_config": TEXT, "vision_config": VISION},
    "old end": {
        "projection_dim": 20, "text_config": {**TEXT, "eos_token_id": 2}, "vision_config": VISION
    },
    "other sizes": {
        "projection_dim": 7,
        "text_config": {**TEXT, "hidden_act": "gelu", "num_attention_heads": 1, "eos_token_id": 7},
        "vision_config": {**VISION, "patch_size": 5, "hidden_act": "relu", "num_channels": 1,
                          "layer_norm_eps": 1e-2},
    },
}  # fmt: skip
GENERATOR = np.random.default_rng(0)
IDS = GENERATOR.integers(8, 58, (3, 12))
IDS[0, 4:], IDS[1, 11], IDS[2, [6, 9]] = 59, 59, 59
IDS[0, 2], IDS[1, 5:] = 7, 7
IDS[1, 11] = 59


def images_of(name: str) -> np.ndarray:
    channels = FAMILIES[name]["vision_config"].get("num_channels", 3)
    generator = np.random.default_rng(1)
    return generator.normal(size=(2, channels, 16, 16)).astype(np.float32)


def saved(name: str, folder: Path) -> Any:
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(**FAMILIES[name])).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim:
                weight.copy_(torch.randn_like(weight) * (0.4 if weight.ndim == 1 else 0.2))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_vectors_and_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs, images = saved(name, tmp_path), images_of(name)
    with torch.no_grad():
        wanted = theirs(torch.tensor(IDS), torch.tensor(images))
    network = models.load(tmp_path, device="interp").network
    ids, pixels = Tensor(IDS, device="interp"), Tensor(images, device="interp")
    np.testing.assert_allclose(network.texts(ids).numpy(), wanted.text_embeds.numpy(), atol=1e-4)
    found = network.images(pixels).numpy()
    np.testing.assert_allclose(found, wanted.image_embeds.numpy(), atol=1e-4)
    logits = network(ids, pixels).numpy()
    np.testing.assert_allclose(logits, wanted.logits_per_image.numpy(), atol=1e-4)


def test_a_training_step_has_the_gradients_of_pytorch(tmp_path: Path) -> None:
    """Of the loss that CLIP was trained with, of one of the two directions."""
    theirs, images = saved("clip", tmp_path), images_of("clip")
    labels = np.array([2, 0])
    output = theirs(torch.tensor(IDS), torch.tensor(images))
    loss = torch.nn.functional.cross_entropy(output.logits_per_image, torch.tensor(labels))
    loss.backward()
    network = models.load(tmp_path, device="interp").network
    state = nn.state_dict(network)
    ids, pixels = Tensor(IDS, device="interp"), Tensor(images, device="interp")
    ours = lm.cross_entropy(network(ids, pixels), Tensor(labels, device="interp"))
    gradients = lm.gradient(ours, list(state.values()))
    assert ours.item() == pytest.approx(loss.item(), abs=1e-5)
    of_theirs = {key: one.grad.numpy() for key, one in theirs.named_parameters()}
    assert state.keys() == of_theirs.keys()
    for key, gradient in zip(state, gradients, strict=True):
        wanted = of_theirs[key]
        np.testing.assert_allclose(gradient.numpy(), wanted, atol=1e-4, rtol=1e-3, err_msg=key)


def test_older_files_have_numbers_of_positions(tmp_path: Path) -> None:
    saved("clip", tmp_path)
    path = tmp_path / "model.safetensors"
    weights = dict(safetensors.load(path))
    for tower, count in (("text_model", 12), ("vision_model", 17)):
        weights[f"{tower}.embeddings.position_ids"] = lm.arange(count).reshape((1, count))
    safetensors.save(path, weights)
    assert models.load(tmp_path).network.config.context == 12


def test_older_files_describe_towers_twice() -> None:
    values = {"model_type": "clip", **FAMILIES["clip"]}
    older = {**values, "text_config_dict": TEXT, "text_config": {"hidden_size": 7}}
    wanted = from_hugging_face(values, "")
    assert from_hugging_face(older, "") == wanted
    assert from_hugging_face({**values, "vision_config_dict": None}, "") == wanted


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    saved("clip", tmp_path)
    network = models.load(tmp_path).network
    with pytest.raises(ShapeError, match=r"tokens of shape \(1, 13\); \(batch, length up to 12\)"):
        network.texts(Tensor(np.zeros((1, 13), np.int64)))
    with pytest.raises(ShapeError, match=r"images of \(16, 20\) pixels; \(16, 16\) is needed"):
        network.images(lm.zeros((1, 3, 16, 20)))
    with pytest.raises(ShapeError, match=r"images of shape \(1, 1, 16, 16\); \(batch, 3, height"):
        network.images(lm.zeros((1, 1, 16, 16)))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "heads": ({"text_config": {"num_attention_heads": 5}}, "text_config: num_attention_heads: 5 h"),
    "patch": ({"vision_config": {"patch_size": 300}}, "vision_config: patch_size: 300, larger tha"),
    "end": ({"text_config": {"vocab_size": 60}}, "eos_token_id: 49407; a number from 0 to 59"),
    "tower": ({"vision_config": [1]}, r"vision_config: \[1\]; an object is needed"),
    "function": ({"text_config": {"hidden_act": "odd"}}, "hidden_act: 'odd'; known are gelu"),
}


@pytest.mark.parametrize("name", WRONG)
def test_configurations_that_make_no_sense_are_refused(name: str) -> None:
    changes, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        from_hugging_face({"model_type": "clip", **changes}, "config.json")

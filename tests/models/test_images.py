"""Models of images against transformers: logits, gradients, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, models, nn
from lamina.errors import FormatError, ShapeError
from lamina.models.configuration import from_hugging_face

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LABELS = {"id2label": {0: "cat", 1: "dog", 2: "bird"}, "label2id": {"cat": 0, "dog": 1, "bird": 2}}
VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
RESNET = {"embedding_size": 8, "hidden_sizes": [16, 32, 24], "depths": [2, 1, 2]}
CONVNEXT = {"hidden_sizes": [8, 16, 12], "depths": [1, 2, 1], "num_stages": 3}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", VIT),
    "vit of other sizes": (
        "ViT", {**VIT, "image_size": [32, 32], "patch_size": [5, 9], "qkv_bias": False,
                "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}
    ),
    "resnet": ("ResNet", RESNET),
    "resnet of basic blocks": (
        "ResNet", {**RESNET, "layer_type": "basic", "downsample_in_first_stage": True,
                   "hidden_act": "gelu"}
    ),
    "resnet that halves early": ("ResNet", {**RESNET, "downsample_in_bottleneck": True}),
    "convnext": ("ConvNext", CONVNEXT),
    "convnext without scales": (
        "ConvNext", {**CONVNEXT, "layer_scale_init_value": 0.0, "patch_size": 3,
                     "hidden_act": "relu"}
    ),
}  # fmt: skip
IMAGES = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)


def saved(name: str, folder: Path) -> Any:
    """A model of transformers with random weights and statistics, which is in `folder` as well."""
    kind, changes = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**changes, **LABELS)
    model = getattr(transformers, f"{kind}ForImageClassification")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim == 1 else 0.15))
        for key, values in model.named_buffers():
            if key.endswith(("running_mean", "running_var")):
                values.copy_(torch.rand_like(values) + 0.5)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    with torch.no_grad():
        wanted = theirs(torch.tensor(IMAGES)).logits.numpy()
    network = models.load(tmp_path, device="interp").network
    np.testing.assert_allclose(network(Tensor(IMAGES, device="interp")).numpy(), wanted, atol=1e-4)
    assert network.labels == ("cat", "dog", "bird")


@pytest.mark.parametrize("name", ["vit", "resnet", "convnext"])
def test_a_training_step_has_the_gradients_of_pytorch(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    images = IMAGES if name == "vit" else IMAGES[..., :16, :16]
    labels = np.array([2, 0])
    loss = torch.nn.functional.cross_entropy(
        theirs(torch.tensor(images)).logits, torch.tensor(labels)
    )
    loss.backward()
    network = models.load(tmp_path, device="interp").network
    state = nn.state_dict(network)
    saved_names = set(theirs.state_dict()) if name != "vit" else set(state)
    statistics = ("running_mean", "running_var")
    assert set(state) == {key for key in saved_names if not key.endswith("num_batches_tracked")}
    weights = {key: one for key, one in state.items() if not key.endswith(statistics)}
    logits = network(Tensor(images, device="interp"))
    ours = lm.cross_entropy(logits, Tensor(labels, device="interp"))
    gradients = lm.gradient(ours, list(weights.values()))
    assert ours.item() == pytest.approx(loss.item(), abs=1e-5)
    of_theirs = {renamed(key): one.grad.numpy() for key, one in theirs.named_parameters()}
    assert weights.keys() == of_theirs.keys()
    for key, gradient in zip(weights, gradients, strict=True):
        wanted = of_theirs[key]
        np.testing.assert_allclose(gradient.numpy(), wanted, atol=1e-4, rtol=1e-3, err_msg=key)


def renamed(name: str) -> str:
    """The name in files of a parameter, which transformers has another one for in a ViT."""
    for old, new in {
        "vit.layers.": "vit.encoder.layer.", "attention.q_proj": "attention.attention.query",
        "attention.k_proj": "attention.attention.key", "mlp.fc1": "intermediate.dense",
        "attention.v_proj": "attention.attention.value", "mlp.fc2": "output.dense",
        "attention.o_proj": "attention.output.dense",
    }.items():  # fmt: skip
        name = name.replace(old, new)
    return name


def test_parts_of_files_that_no_class_needs_are_ignored(tmp_path: Path) -> None:
    """A file with a pooler, as those that were saved with one have."""
    from lamina.io import safetensors

    theirs = saved("vit", tmp_path)
    weights = dict(safetensors.load(tmp_path / "model.safetensors"))
    weights["vit.pooler.dense.weight"] = lm.ones((32, 32))
    weights["vit.pooler.dense.bias"] = lm.ones((32,))
    safetensors.save(tmp_path / "model.safetensors", weights)
    with torch.no_grad():
        wanted = theirs(torch.tensor(IMAGES)).logits.numpy()
    network, images = models.load(tmp_path, "interp").network, Tensor(IMAGES, device="interp")
    np.testing.assert_allclose(network(images).numpy(), wanted, atol=1e-4)


def test_wrong_images_are_refused(tmp_path: Path) -> None:
    saved("vit", tmp_path)
    network = models.load(tmp_path).network
    with pytest.raises(ShapeError, match=r"images of shape \(2, 1, 32, 32\); \(batch, 3, height"):
        network(Tensor(IMAGES[:, :1]))
    with pytest.raises(ShapeError, match=r"images of \(32, 16\) pixels; \(32, 32\) is needed"):
        network(Tensor(IMAGES[..., :16]))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "heads": ({"model_type": "vit", "num_attention_heads": 5}, "num_attention_heads: 5 heads do"),
    "patch": ({"model_type": "vit", "patch_size": 500}, r"patch_size: \(500, 500\), larger than"),
    "three axes": ({"model_type": "vit", "image_size": [8, 8, 8]}, "image_size: .*one integer or"),
    "layer": ({"model_type": "resnet", "layer_type": "odd"}, "layer_type: 'odd'; known are basic"),
    "depths": ({"model_type": "resnet", "depths": [1]}, r"depths: \[1\] blocks of 4 stages"),
    "empty": ({"model_type": "resnet", "depths": []}, r"depths: \[\]; a list of integers"),
    "narrow": (
        {"model_type": "resnet", "hidden_sizes": [2], "depths": [1]}, "hidden_sizes: 2 channels"
    ),
    "stages": ({"model_type": "convnext", "num_stages": 3}, "hidden_sizes: 4 integers for 3 st"),
    "layers": (
        {"model_type": "convnext", "num_stages": 1, "hidden_sizes": [8], "depths": [5000]},
        "depths: 5000 blocks; at most 4096",
    ),
    "activation": ({"model_type": "convnext", "hidden_act": "odd"}, "hidden_act: 'odd'; known ar"),
    "labels": ({"model_type": "vit", "id2label": {"1": "one"}}, "id2label: names of the numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_configurations_that_make_no_sense_are_refused(name: str) -> None:
    changes, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        from_hugging_face(changes, "config.json")

"""The models, small enough to compile in a minute, and their inputs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Inputs = dict[str, torch.Tensor]

# Sizes that almost every configuration of transformers has under these names.
_SMALL = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """build: makes the module, with random weights. inputs: its arguments by name."""

    name: str
    library: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[], Inputs]


def _tokens(*names: str) -> Callable[[], Inputs]:
    """Two sequences of 16 tokens for each name."""
    return lambda: {name: torch.randint(3, 90, (2, 16)) for name in names}


def _images(name: str, size: int) -> Callable[[], Inputs]:
    """Two images of `size` pixels a side."""
    return lambda: {name: torch.randn(2, 3, size, size)}


def _sound() -> Inputs:
    return {"input_values": torch.randn(2, 800)}


def _transformer(
    name: str, inputs: Callable[[], Inputs], head: str = "AutoModel", **sizes: Any
) -> Model:
    """name: the `model_type` of a configuration. head: the class of transformers that makes it."""

    def build() -> torch.nn.Module:
        transformers = importlib.import_module("transformers")
        config = transformers.AutoConfig.for_model(name, **{**_SMALL, **sizes})
        if hasattr(config, "use_cache"):
            config.use_cache = False  # caches are no tensors to compare
        module: torch.nn.Module = getattr(transformers, head).from_config(config)
        return module

    return Model(name, "transformers", build, inputs)


def _decoder(name: str, **sizes: Any) -> Model:
    return _transformer(name, _tokens("input_ids"), "AutoModelForCausalLM", **sizes)


def _encoder(name: str, **sizes: Any) -> Model:
    return _transformer(name, _tokens("input_ids"), **sizes)


def _timm(name: str, size: int = 64, **options: Any) -> Model:
    def build() -> torch.nn.Module:
        module: torch.nn.Module = importlib.import_module("timm").create_model(name, **options)
        return module

    return Model(name, "timm", build, _images("x", size))


def _torchvision(name: str, size: int = 64, **options: Any) -> Model:
    """name: of a function in torchvision.models or, after a dot, in a module of it."""

    def build() -> torch.nn.Module:
        place, _, function = f"torchvision.models.{name}".rpartition(".")
        module: torch.nn.Module = getattr(importlib.import_module(place), function)(
            weights=None, **options
        )
        return module

    return Model(name, "torchvision", build, _images("x", size))


MODELS = (
    _encoder("bert"),
    _encoder("distilbert", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    _encoder("albert", embedding_size=16),
    _encoder("electra", embedding_size=16),
    _encoder("deberta-v2", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    _decoder("gpt2", n_embd=32, n_layer=2, n_head=4),
    _decoder("opt", ffn_dim=64, word_embed_proj_dim=32),
    _decoder("bloom", n_layer=2, n_head=4),
    _decoder("llama", num_key_value_heads=2),
    _transformer(
        "t5", _tokens("input_ids", "decoder_input_ids"), d_model=32, d_kv=8, d_ff=64,
        num_layers=2, num_heads=4,
    ),
    _transformer("vit", _images("pixel_values", 64), image_size=64, patch_size=16),
    _transformer("deit", _images("pixel_values", 64), image_size=64, patch_size=16),
    _transformer(
        "wav2vec2", _sound, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3),
        num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        mask_time_prob=0.0,
    ),
    _timm("convnext_atto", depths=(1, 1, 1, 1)),
    _timm("regnetx_002"),
    _timm("test_efficientnet"),
    _timm("vit_tiny_patch16_224", img_size=64, depth=2),
    _timm(
        "swin_tiny_patch4_window7_224", 56, img_size=56, depths=(2, 2), num_heads=(2, 4),
        embed_dim=32,
    ),
    _torchvision("resnet18"),
    _torchvision("mobilenet_v3_small"),
    _torchvision("segmentation.fcn_resnet50", weights_backbone=None),
)  # fmt: skip

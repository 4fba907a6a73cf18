"""The models, small enough to compile in a minute, their inputs, and both in sizes of a GPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
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
class Scale:
    """Sizes as factors of the table's: of the samples of a call, of tokens and moments, of the
    pixels of a side, and of widths. heads: of their number; they are as much wider as remains, and
    so are the stages of networks for images, which have many more pixels."""

    batch: int = 1
    length: int = 1
    side: int = 1
    width: int = 1
    heads: int = 1

    def of(self, name: str) -> int:
        """The factor of a size that a configuration has under that name."""
        if name in _WIDTHS:
            return self.width
        if name in _HEADS:
            return self.heads
        if name in _WIDTHS_OF_HEADS or name in _WIDTHS_OF_STAGES:
            return self.width // self.heads
        if name in _LENGTHS:
            return self.length
        return self.side if name in ("image_size", "img_size") else 1

    def sized(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Those of a configuration, of which some are lists."""
        return {name: _multiplied(value, self.of(name)) for name, value in sizes.items()}


SMALL = Scale()
# Two layers of 1024 channels for 64 sequences of 256 tokens, or 64 images of 256 x 256 pixels: most
# kernels take longer than their launch on the largest GPUs.
LARGE = Scale(batch=32, length=16, side=4, width=32, heads=4)

_WIDTHS = frozenset((
    "vocab_size", "hidden_size", "intermediate_size", "d_model", "dim", "hidden_dim", "n_embd",
    "emb_dim", "ffn_dim", "word_embed_proj_dim", "d_inner", "d_ff", "dff", "encoder_ffn_dim",
    "decoder_ffn_dim", "embedding_size", "intra_bottleneck_size", "true_hidden_size",
    "input_embedding_size", "output_embedding_size", "attention_hidden_size",
    "moe_intermediate_size", "shared_expert_intermediate_size", "conv_dim",
))  # fmt: skip
_HEADS = frozenset((
    "num_attention_heads", "num_key_value_heads", "n_heads", "n_head", "num_heads",
    "attention_heads", "encoder_attention_heads", "decoder_attention_heads",
))  # fmt: skip
_WIDTHS_OF_HEADS = frozenset(("head_dim", "rotary_dim", "d_kv", "key_dim"))
_WIDTHS_OF_STAGES = frozenset(
    ("hidden_sizes", "neck_hidden_sizes", "decoder_hidden_size", "embed_dim")
)
_LENGTHS = frozenset(("max_source_positions", "max_target_positions", "max_length"))


def _multiplied(value: Any, factor: int) -> Any:
    if factor == 1:
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_multiplied(part, factor) for part in value)
    return value * factor


@dataclass(frozen=True)
class Model:
    """make: the module, with random weights. draw: its arguments by name."""

    name: str
    library: str
    make: Callable[[Scale], torch.nn.Module]
    draw: Callable[[Scale], Inputs]

    def build(self, scale: Scale = SMALL) -> torch.nn.Module:
        """The module, with random weights."""
        return self.make(scale)

    def inputs(self, scale: Scale = SMALL) -> Inputs:
        """New arguments, by name."""
        return self.draw(scale)


def _words(scale: Scale, length: int) -> torch.Tensor:
    return torch.randint(3, 90, (2 * scale.batch, length * scale.length))


def _tokens(*names: str) -> Callable[[Scale], Inputs]:
    """Two sequences of 16 tokens for each name."""
    return lambda scale: {name: _words(scale, 16) for name in names}


def _images(name: str, size: int) -> Callable[[Scale], Inputs]:
    """Two images of `size` pixels a side."""

    def draw(scale: Scale) -> Inputs:
        side = size * scale.side
        return {name: torch.randn(2 * scale.batch, 3, side, side)}

    return draw


def _sound(scale: Scale) -> Inputs:
    return {"input_values": torch.randn(2 * scale.batch, 800 * scale.length)}


def _spectrogram(scale: Scale) -> Inputs:
    return {"input_values": torch.randn(2 * scale.batch, 64 * scale.length, 32)}


def _speech(scale: Scale) -> Inputs:
    """Spectra of 32 moments, and the words so far."""
    spectra = torch.randn(2 * scale.batch, 8, 32 * scale.length)
    return {"input_features": spectra, "decoder_input_ids": _words(scale, 8)}


def _transformer(
    name: str, inputs: Callable[[Scale], Inputs], head: str = "AutoModel", **sizes: Any
) -> Model:
    """name: the `model_type` of a configuration. head: the class of transformers that makes it."""

    def build(scale: Scale) -> torch.nn.Module:
        transformers = importlib.import_module("transformers")
        config = transformers.AutoConfig.for_model(name, **scale.sized({**_SMALL, **sizes}))
        if hasattr(config, "use_cache"):
            config.use_cache = False  # caches are no tensors to compare
        module: torch.nn.Module = getattr(transformers, head).from_config(config)
        return module

    return Model(name, "transformers", build, inputs)


def _decoder(name: str, **sizes: Any) -> Model:
    return _transformer(name, _tokens("input_ids"), "AutoModelForCausalLM", **sizes)


def _encoder(name: str, **sizes: Any) -> Model:
    return _transformer(name, _tokens("input_ids"), **sizes)


def _translator(name: str, **sizes: Any) -> Model:
    """An encoder and a decoder of two layers each."""
    small = {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    }  # fmt: skip
    return _transformer(name, _tokens("input_ids", "decoder_input_ids"), **{**small, **sizes})


def _picture(name: str, **sizes: Any) -> Model:
    return _transformer(name, _images("pixel_values", 64), **sizes)


def _patches(name: str, **sizes: Any) -> Model:
    """A transformer of 16 patches."""
    return _picture(name, image_size=64, patch_size=16, **sizes)


def _timm(name: str, size: int = 64, **options: Any) -> Model:
    def build(scale: Scale) -> torch.nn.Module:
        timm = importlib.import_module("timm")
        module: torch.nn.Module = timm.create_model(name, **scale.sized(options))
        return module

    return Model(name, "timm", build, _images("x", size))


def _torchvision(name: str, size: int = 64, **options: Any) -> Model:
    """name: of a function in torchvision.models or, after a dot, in a module of it."""

    def build(scale: Scale) -> torch.nn.Module:
        place, _, function = f"torchvision.models.{name}".rpartition(".")
        module: torch.nn.Module = getattr(importlib.import_module(place), function)(
            weights=None, **options
        )
        return module

    return Model(name, "torchvision", build, _images("x", size))


_STAGES = {
    "num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [16, 32], "patch_sizes": [7, 3],
    "strides": [4, 2],
}  # fmt: skip
_MIX = {
    **_STAGES, "sr_ratios": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
    "decoder_hidden_size": 16,
}  # fmt: skip
_WAVES = {
    "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0,
}  # fmt: skip

ENCODERS = (
    _encoder("bert"),
    _encoder("distilbert", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    _encoder("albert", embedding_size=16),
    _encoder("electra", embedding_size=16),
    _encoder("deberta-v2", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    _encoder("roberta"),
    _encoder("mpnet"),
    _encoder("convbert", embedding_size=16),
    _encoder("roformer", embedding_size=16),
    _encoder("rembert", input_embedding_size=16, output_embedding_size=16),
    _encoder(
        "mobilebert", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16
    ),
    _encoder("squeezebert", embedding_size=32),
    _encoder("fnet", use_tpu_fourier_optimizations=False),
    _encoder("xlnet", d_model=32, n_layer=2, n_head=4, d_inner=64),
    _encoder(
        "modernbert", pad_token_id=0, global_attn_every_n_layers=2, local_attention=8,
        bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    ),
    _encoder("xlm", emb_dim=32, n_layers=2, n_heads=4),
    _encoder("layoutlm"),
    _encoder("ibert"),
    _encoder("canine"),
    _encoder("megatron-bert"),
    _encoder("bert-generation"),
    _encoder("esm", pad_token_id=1),
    _encoder("yoso"),
    _encoder("big_bird", attention_type="original_full"),
    _encoder("splinter"),
    _encoder("data2vec-text"),
)  # fmt: skip
DECODERS = (
    _decoder("gpt2", n_embd=32, n_layer=2, n_head=4),
    _decoder("opt", ffn_dim=64, word_embed_proj_dim=32),
    _decoder("bloom", n_layer=2, n_head=4),
    _decoder("llama", num_key_value_heads=2),
    _decoder("mistral", num_key_value_heads=2),
    _decoder("qwen2", num_key_value_heads=2),
    _decoder("qwen3", num_key_value_heads=2, head_dim=8),
    _decoder("gemma", num_key_value_heads=2, head_dim=8),
    _decoder("gemma2", num_key_value_heads=2, head_dim=8),
    _decoder("gemma3_text", num_key_value_heads=2, head_dim=8),
    _decoder("phi"),
    _decoder("phi3", pad_token_id=0, num_key_value_heads=2),
    _decoder("gpt_neox"),
    _decoder("gptj", n_embd=32, n_layer=2, n_head=4, rotary_dim=8),
    _decoder(
        "gpt_neo", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
    ),
    _decoder("codegen", n_embd=32, n_layer=2, n_head=4, rotary_dim=8),
    _decoder("mpt", d_model=32, n_heads=4, n_layers=2),
    _decoder("falcon"),
    _decoder("stablelm", num_key_value_heads=2),
    _decoder("olmo"),
    _decoder("olmo2"),
    _decoder("cohere", num_key_value_heads=2),
    _decoder("granite", num_key_value_heads=2),
    _decoder("starcoder2", num_key_value_heads=2),
    _decoder("mixtral", num_key_value_heads=2, num_local_experts=4),
    _decoder(
        "qwen2_moe", num_key_value_heads=2, num_experts=4, moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    ),
    _decoder("biogpt"),
    _decoder("xglm", d_model=32, num_layers=2, attention_heads=4, ffn_dim=64),
    _decoder("ctrl", n_embd=32, dff=64, n_layer=2, n_head=4),
    _decoder("mamba", state_size=4),
    _decoder("mamba2", num_heads=8, head_dim=8, state_size=8, n_groups=2, chunk_size=8),
    _decoder("rwkv", attention_hidden_size=32),
    _decoder("smollm3", num_key_value_heads=2, pad_token_id=0),
    _decoder("glm", num_key_value_heads=2, head_dim=8, pad_token_id=0),
    _decoder("nemotron", num_key_value_heads=2),
    _decoder("helium", num_key_value_heads=2, head_dim=8),
    _decoder("persimmon"),
    _decoder("openai-gpt", n_embd=32, n_layer=2, n_head=4),
    _decoder("gpt_bigcode", n_embd=32, n_layer=2, n_head=4),
)  # fmt: skip
TRANSLATORS = (
    _translator("t5", d_kv=8, d_ff=64, num_layers=2, num_heads=4),
    _translator("umt5", d_kv=8, d_ff=64, num_layers=2, num_heads=4),
    _translator("bart"),
    _translator("mbart"),
    _translator("pegasus"),
    _translator("blenderbot"),
    _translator("m2m_100"),
    _translator("plbart"),
)  # fmt: skip
PICTURES_AND_SOUND = (
    _patches("vit"),
    _patches("deit"),
    _patches("beit"),
    _patches("dinov2"),
    _patches("vit_mae", decoder_num_hidden_layers=1, mask_ratio=0.0),
    _patches("vit_msn"),
    _patches("siglip_vision_model"),
    _patches("clip_vision_model"),
    _picture("convnext", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    _picture("convnextv2", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    _picture("segformer", **_MIX),
    _picture("glpn", **_MIX),
    _picture("resnet", embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1]),
    _picture("poolformer", **{**_STAGES, "hidden_sizes": [8, 16], "padding": [2, 1]}),
    _picture(
        "mobilevit", image_size=64, hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 16, 16, 24, 24, 32, 64],
    ),
    _picture(
        "levit", image_size=64, hidden_sizes=[16, 32, 48], num_attention_heads=[1, 2, 3],
        depths=[1, 1, 1], key_dim=[8, 8, 8],
    ),
    _picture("mobilenet_v2", image_size=64, depth_multiplier=0.25),
    _picture(
        "focalnet", image_size=64, embed_dim=16, depths=[1, 1], focal_levels=[2, 2],
        focal_windows=[3, 3],
    ),
    _transformer("wav2vec2", _sound, **_WAVES),
    _transformer("hubert", _sound, **_WAVES),
    _transformer(
        "audio-spectrogram-transformer", _spectrogram, max_length=64, num_mel_bins=32
    ),
    _transformer(
        "whisper", _speech, num_mel_bins=8, max_source_positions=16, max_target_positions=16,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, d_model=32,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64,
    ),
)  # fmt: skip
TIMM = (
    _timm("test_byobnet"),
    _timm("test_convnext"),
    _timm("test_convnext2"),
    _timm("test_efficientnet"),
    _timm("test_efficientnet_gn"),
    _timm("test_efficientnet_evos"),
    _timm("test_efficientnet_ln"),
    _timm("test_mambaout"),
    _timm("test_nfnet"),
    _timm("test_resnet"),
    _timm("test_vit", 160),
    _timm("test_vit2", 160),
    _timm("convnext_atto", depths=(1, 1, 1, 1)),
    _timm("regnetx_002"),
    _timm("lcnet_035"),
    _timm("tinynet_e"),
    _timm("starnet_s050"),
    _timm("mobilenetv1_100"),
    _timm("mobilenetv2_050"),
    _timm("mobilevitv2_050"),
    _timm("resnet10t"),
    _timm("seresnext26ts"),
    _timm("ecaresnet26t"),
    _timm("skresnet18"),
    _timm("resnest14d"),
    _timm("lambda_resnet26t"),
    _timm("darknet17"),
    _timm("cs3darknet_s"),
    _timm("ese_vovnet19b_dw"),
    _timm("hgnetv2_b0"),
    _timm("gernet_s"),
    _timm("edgenext_xx_small"),
    _timm("efficientvit_b0"),
    _timm("poolformer_s12"),
    _timm("pvt_v2_b0"),
    _timm("vit_tiny_patch16_224", img_size=64, depth=2),
    _timm("vit_tiny_r_s16_p8_224", img_size=64, depth=2),
    _timm("vit_relpos_small_patch16_224", img_size=64, depth=2),
    _timm("deit_tiny_distilled_patch16_224", img_size=64, depth=2),
    _timm("deit3_small_patch16_224", img_size=64, depth=2, embed_dim=96),
    _timm("beit_base_patch16_224", img_size=64, depth=2, embed_dim=96, num_heads=4),
    _timm("samvit_base_patch16_224", img_size=64, depth=2, embed_dim=96),
    _timm("naflexvit_base_patch16_gap", embed_dim=96, depth=2, num_heads=4),
    _timm("eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    _timm("cait_xxs24_224", img_size=64, depth=2),
    _timm("xcit_nano_12_p16_224", img_size=64, depth=2),
    _timm("convit_tiny", img_size=64, depth=2),
    _timm("twins_svt_small", img_size=64, depths=(1, 1, 1, 1)),
    _timm(
        "swin_tiny_patch4_window7_224", 56, img_size=56, depths=(2, 2), num_heads=(2, 4),
        embed_dim=32,
    ),
    _timm(
        "swinv2_tiny_window8_256", img_size=64, depths=(1, 1), num_heads=(2, 4), embed_dim=32
    ),
)  # fmt: skip
TORCHVISION = (
    _torchvision("resnet18"),
    _torchvision("alexnet"),
    _torchvision("squeezenet1_1"),
    _torchvision("shufflenet_v2_x0_5"),
    _torchvision("mnasnet0_5"),
    _torchvision("mobilenet_v3_small"),
    _torchvision("segmentation.fcn_resnet50", weights_backbone=None),
)
MODELS = (*ENCODERS, *DECODERS, *TRANSLATORS, *PICTURES_AND_SOUND, *TIMM, *TORCHVISION)
# What the page says beside an outcome.
REMARKS = {
    "levit": "batch norms of two small images: eager's derivatives, of up to 33, are off by 0.2 to "
    "1.5 where its inputs move by a rounding, and these by 0.5",
}

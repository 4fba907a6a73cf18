"""The vision transformer: patches of an image are the tokens of an encoder.

Source: Dosovitskiy et al. 2020, "An image is worth 16x16 words". Attributes are named as in the
files of the Hugging Face hub. The vector of a first token, which is no patch, is classified.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.errors import ShapeError
from lamina.frontend.functions.movement import concat
from lamina.frontend.tensor import Tensor
from lamina.models.activations import ACTIVATIONS, activation_of
from lamina.models.fields import MAX_LAYERS, Fields, head_count, labels_of, pair_of
from lamina.models.image_network import Convolution, ImageClassifier
from lamina.models.language_model import KeyShape
from lamina.models.multi_head import attend, memory_of
from lamina.models.parts import LayerNorm, Projection, floats
from lamina.models.weights import Source

__all__ = ["ViT", "ViTConfig", "read"]


@dataclass(frozen=True)
class ViTConfig:
    """What tells the models of the family apart. image, patch: height and width in pixels."""

    channels: int
    image: tuple[int, int]
    patch: tuple[int, int]
    size: int  # of the vector of a patch
    inner: int
    layers: int
    heads: int
    labels: tuple[str, ...]
    activation: str = "gelu"
    qkv_biases: bool = True
    eps: float = 1e-12  # of the normalizations


class ViT(ImageClassifier):
    """As `ImageClassifier`; images have the height and the width of the configuration."""

    def __init__(self, config: ViTConfig, source: Source) -> None:
        self.config, self.channels, self.labels = config, config.channels, config.labels
        self.vit = _Encoder(config, source)
        self.classifier = Projection(
            source, "classifier", config.size, len(config.labels), bias=True
        )

    def logits(self, images: Tensor) -> Tensor:
        if images.shape[2:] != self.config.image:
            raise ShapeError(
                f"images of {images.shape[2:]} pixels; {self.config.image} is needed",
                operation="ViT",
            )
        return self.classifier(self.vit(images)[:, 0])


class _Encoder:
    def __init__(self, config: ViTConfig, source: Source) -> None:
        self.embeddings = _Embeddings(config, source)
        layers = [
            _Layer(config, source, f"vit.encoder.layer.{number}") for number in range(config.layers)
        ]
        self.encoder = {"layer": layers}
        self.layernorm = LayerNorm(source, "vit.layernorm", config.size, config.eps)
        for name in ("pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"):
            source.ignore(f"vit.{name}")

    def __call__(self, images: Tensor) -> Tensor:
        """The vectors of the first token and of patches: (batch, 1 + patches, size)."""
        x = self.embeddings(images)
        for layer in self.encoder["layer"]:
            x = layer(x)
        return self.layernorm(x)


class _Embeddings:
    def __init__(self, config: ViTConfig, source: Source) -> None:
        rows, columns = (
            pixels // patch for pixels, patch in zip(config.image, config.patch, strict=True)
        )
        name, size = "vit.embeddings", config.size
        self.cls_token = source.take(f"{name}.cls_token", (1, 1, size))
        self.position_embeddings = source.take(
            f"{name}.position_embeddings", (1, 1 + rows * columns, size)
        )
        projection = Convolution(
            source, f"{name}.patch_embeddings.projection", config.channels, size, config.patch,
            stride=config.patch,
        )  # fmt: skip
        self.patch_embeddings = {"projection": projection}

    def __call__(self, images: Tensor) -> Tensor:
        patches = self.patch_embeddings["projection"](images).flatten(2).transpose(1, 2)
        first = floats(self.cls_token).expand((images.shape[0], 1, patches.shape[2]))
        return concat([first, patches], axis=1) + floats(self.position_embeddings)


class _Layer:
    def __init__(self, config: ViTConfig, source: Source, name: str) -> None:
        size, inner = config.size, config.inner
        self.layernorm_before = LayerNorm(source, f"{name}.layernorm_before", size, config.eps)
        self.attention = _Attention(config, source, f"{name}.attention")
        self.layernorm_after = LayerNorm(source, f"{name}.layernorm_after", size, config.eps)
        self.intermediate = {
            "dense": Projection(source, f"{name}.intermediate.dense", size, inner, bias=True)
        }
        self.output = {"dense": Projection(source, f"{name}.output.dense", inner, size, bias=True)}
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x))
        inner = self._activation(self.intermediate["dense"](self.layernorm_after(x)))
        return x + self.output["dense"](inner)


class _Attention:
    def __init__(self, config: ViTConfig, source: Source, name: str) -> None:
        size, heads = config.size, config.heads
        self._keys = KeyShape(1, heads, size // heads, source.activations)
        self.attention = {
            part: Projection(source, f"{name}.attention.{part}", size, size, config.qkv_biases)
            for part in ("query", "key", "value")
        }
        self.output = {"dense": Projection(source, f"{name}.output.dense", size, size, bias=True)}

    def __call__(self, x: Tensor) -> Tensor:
        parts = self.attention
        memory = memory_of(x, parts["key"], parts["value"], self._keys)
        return self.output["dense"](attend(parts["query"](x), memory))


# Configurations.


def read(fields: Fields) -> ViTConfig:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    size = fields.size("hidden_size", 768)
    heads = head_count(fields, "num_attention_heads", size, 12)
    image, patch = pair_of(fields, "image_size", 224), pair_of(fields, "patch_size", 16)
    if patch[0] > image[0] or patch[1] > image[1]:
        raise fields.fail("patch_size", f"{patch}, larger than an image of {image}")
    return ViTConfig(
        channels=fields.size("num_channels", 3),
        image=image,
        patch=patch,
        size=size,
        inner=fields.size("intermediate_size", 3072),
        layers=fields.size("num_hidden_layers", 12, largest=MAX_LAYERS),
        heads=heads,
        labels=labels_of(fields),
        activation=activation_of(fields, "hidden_act", "gelu"),
        qkv_biases=fields.flag("qkv_bias", True),
        eps=fields.number("layer_norm_eps", 1e-12),
    )

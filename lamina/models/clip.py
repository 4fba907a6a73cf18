"""CLIP: vectors of texts and of images, which are near each other where a text says what is on an
image.

Source: Radford et al. 2021, "Learning transferable visual models from natural language
supervision". Attributes are named as in the files of the Hugging Face hub.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.core.dtypes import float32, int64
from lamina.errors import ShapeError
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import exp, sqrt
from lamina.frontend.functions.indexing import take_along_axis
from lamina.frontend.functions.movement import concat
from lamina.frontend.tensor import Tensor
from lamina.models.activations import ACTIVATIONS, activation_of
from lamina.models.fields import MAX_LAYERS, Fields, head_count, token_of
from lamina.models.image_network import Convolution, check_images
from lamina.models.multi_head import MultiHead
from lamina.models.network import Network
from lamina.models.parts import LayerNorm, Lookup, Projection, floats
from lamina.models.weights import Source

__all__ = ["Clip", "ClipConfig", "Tower", "read"]

# The number of the end token that older files have, though it is none: the end of a text is then
# its token with the highest number.
_WRONG_END = 2


@dataclass(frozen=True)
class Tower:
    """Layers of one of the two encoders."""

    size: int  # of a vector
    inner: int
    layers: int
    heads: int
    activation: str
    eps: float  # of the normalizations


@dataclass(frozen=True)
class ClipConfig:
    """What tells the models of the family apart.

    size: of the vectors of texts and images. context: the most tokens of a text. end: the token
    whose vector is that of the text; None for the one with the highest number. image, patch: pixels
    of a side."""

    size: int
    text: Tower
    vocabulary: int
    context: int
    end: int | None
    vision: Tower
    channels: int
    image: int
    patch: int


class Clip(Network):
    """Texts, tokens (texts, length) with an end, and normalized images (images, channels, height,
    width) to logits (images, texts). What follows the end of a text does not matter."""

    def __init__(self, config: ClipConfig, source: Source) -> None:
        self.config = config
        self.text_model = _TextModel(config, source)
        self.vision_model = _VisionModel(config, source)
        self.visual_projection = Projection(
            source, "visual_projection", config.vision.size, config.size
        )
        self.text_projection = Projection(source, "text_projection", config.text.size, config.size)
        self.logit_scale = source.take("logit_scale", ())  # its logarithm
        for tower in ("text_model", "vision_model"):
            source.ignore(f"{tower}.embeddings.position_ids")

    def __call__(self, ids: Tensor, images: Tensor) -> Tensor:
        """Raises ShapeError for texts that are too long, and images of other sizes."""
        return self.images(images) @ self.texts(ids).mT * exp(floats(self.logit_scale))

    def texts(self, ids: Tensor) -> Tensor:
        """Their vectors, of length 1: (texts, size)."""
        if ids.ndim != 2 or ids.shape[1] > self.config.context:
            wanted = f"(batch, length up to {self.config.context})"
            raise ShapeError(f"tokens of shape {ids.shape}; {wanted} is needed", operation="Clip")
        return _normalized(self.text_projection(self.text_model(ids)))

    def images(self, images: Tensor) -> Tensor:
        """Their vectors, of length 1: (images, size)."""
        side = self.config.image
        check_images(images, self.config.channels, "Clip")
        if images.shape[2:] != (side, side):
            raise ShapeError(
                f"images of {images.shape[2:]} pixels; {(side, side)} is needed", operation="Clip"
            )
        return _normalized(self.visual_projection(self.vision_model(images)))


def _normalized(x: Tensor) -> Tensor:
    return x / sqrt((x * x).sum(axis=-1, keepdims=True))


class _TextModel:
    def __init__(self, config: ClipConfig, source: Source) -> None:
        name, tower = "text_model", config.text
        self._end = config.end
        self.embeddings = {
            "token_embedding": Lookup(
                source, f"{name}.embeddings.token_embedding", config.vocabulary, tower.size
            ),
            "position_embedding": Lookup(
                source, f"{name}.embeddings.position_embedding", config.context, tower.size,
                is_shared=False,
            ),
        }  # fmt: skip
        self.encoder = _Encoder(tower, source, f"{name}.encoder", is_causal=True)
        self.final_layer_norm = LayerNorm(
            source, f"{name}.final_layer_norm", tower.size, tower.eps
        )

    def __call__(self, ids: Tensor) -> Tensor:
        """The vectors of the ends of texts: (texts, tower's size)."""
        tokens = self.embeddings["token_embedding"](ids)
        positions = arange(ids.shape[1], device=ids.device)
        x = self.encoder(tokens + self.embeddings["position_embedding"](positions))
        x = self.final_layer_norm(x)
        marks = ids if self._end is None else (ids == self._end).cast(int64)
        ends = marks.argmax(axis=1).cast(int64)  # of several equal marks the first one
        indices = ends.reshape((-1, 1, 1)).expand((x.shape[0], 1, x.shape[2]))
        return take_along_axis(x, indices, axis=1)[:, 0]


class _VisionModel:
    def __init__(self, config: ClipConfig, source: Source) -> None:
        name, tower = "vision_model", config.vision
        self.embeddings = _Patches(config, source, f"{name}.embeddings")
        # The name has lost letters in the files.
        self.pre_layrnorm = LayerNorm(source, f"{name}.pre_layrnorm", tower.size, tower.eps)
        self.encoder = _Encoder(tower, source, f"{name}.encoder", is_causal=False)
        self.post_layernorm = LayerNorm(source, f"{name}.post_layernorm", tower.size, tower.eps)

    def __call__(self, images: Tensor) -> Tensor:
        """The vectors of the first tokens: (images, tower's size)."""
        x = self.encoder(self.pre_layrnorm(self.embeddings(images)))
        return self.post_layernorm(x[:, 0])


class _Patches:
    def __init__(self, config: ClipConfig, source: Source, name: str) -> None:
        size, patch = config.vision.size, config.patch
        self.class_embedding = source.vector(f"{name}.class_embedding", size)
        self.patch_embedding = Convolution(
            source, f"{name}.patch_embedding", config.channels, size, (patch, patch), stride=patch,
            bias=False,
        )  # fmt: skip
        positions = 1 + (config.image // patch) ** 2
        self.position_embedding = Lookup(
            source, f"{name}.position_embedding", positions, size, is_shared=False
        )

    def __call__(self, images: Tensor) -> Tensor:
        patches = self.patch_embedding(images).flatten(2).transpose(1, 2)
        first = self.class_embedding.cast(float32).expand((images.shape[0], 1, patches.shape[2]))
        return concat([first, patches], axis=1) + floats(self.position_embedding.weight)


class _Encoder:
    def __init__(self, tower: Tower, source: Source, name: str, is_causal: bool) -> None:
        self._is_causal = is_causal
        self.layers = [
            _Layer(tower, source, f"{name}.layers.{number}") for number in range(tower.layers)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, self._is_causal)
        return x


class _Layer:
    def __init__(self, tower: Tower, source: Source, name: str) -> None:
        size, inner = tower.size, tower.inner
        self.layer_norm1 = LayerNorm(source, f"{name}.layer_norm1", size, tower.eps)
        self.self_attn = MultiHead(source, f"{name}.self_attn", size, tower.heads)
        self.layer_norm2 = LayerNorm(source, f"{name}.layer_norm2", size, tower.eps)
        self.mlp = {
            "fc1": Projection(source, f"{name}.mlp.fc1", size, inner, bias=True),
            "fc2": Projection(source, f"{name}.mlp.fc2", inner, size, bias=True),
        }
        self._activation = ACTIVATIONS[tower.activation]

    def __call__(self, x: Tensor, is_causal: bool) -> Tensor:
        normalized = self.layer_norm1(x)
        memory = self.self_attn.memory(normalized)
        x = x + self.self_attn(normalized, memory, is_causal=is_causal)
        inner = self._activation(self.mlp["fc1"](self.layer_norm2(x)))
        return x + self.mlp["fc2"](inner)


# Configurations.

# What files leave out, of either encoder.
_USUAL_TEXT = Tower(
    size=512, inner=2048, layers=12, heads=8, activation="quick_gelu", eps=1e-5
)
_USUAL_VISION = Tower(
    size=768, inner=3072, layers=12, heads=12, activation="quick_gelu", eps=1e-5
)


def read(fields: Fields) -> ClipConfig:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    text, vision = _part(fields, "text_config"), _part(fields, "vision_config")
    vocabulary = text.size("vocab_size", 49408)
    end = token_of(text, "eos_token_id", 49407, vocabulary)
    image, patch = vision.size("image_size", 224), vision.size("patch_size", 32)
    if patch > image:
        raise vision.fail("patch_size", f"{patch}, larger than an image of {image}")
    return ClipConfig(
        size=fields.size("projection_dim", 512),
        text=_tower(text, _USUAL_TEXT),
        vocabulary=vocabulary,
        context=text.size("max_position_embeddings", 77),
        end=None if end == _WRONG_END else end,
        vision=_tower(vision, _USUAL_VISION),
        channels=vision.size("num_channels", 3),
        image=image,
        patch=patch,
    )


def _part(fields: Fields, name: str) -> Fields:
    """The fields of a tower. Older files have them twice, and ``text_config_dict`` counts more than
    ``text_config``."""
    older = f"{name}_dict"
    return fields.part(name if fields.get(older) is None else older)


def _tower(fields: Fields, usual: Tower) -> Tower:
    size = fields.size("hidden_size", usual.size)
    heads = head_count(fields, "num_attention_heads", size, usual.heads)
    return Tower(
        size=size,
        inner=fields.size("intermediate_size", usual.inner),
        layers=fields.size("num_hidden_layers", usual.layers, MAX_LAYERS),
        heads=heads,
        activation=activation_of(fields, "hidden_act", usual.activation),
        eps=fields.number("layer_norm_eps", usual.eps),
    )

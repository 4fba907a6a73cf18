"""ConvNeXt: stages of blocks, each of a convolution within channels and two layers across them.

Source: Liu et al. 2022, "A ConvNet for the 2020s". Attributes are named as in the files of the
Hugging Face hub.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.core.dtypes import float32
from lamina.frontend.tensor import Tensor
from lamina.models.activations import ACTIVATIONS, activation_of
from lamina.models.fields import MAX_LAYERS, Fields, labels_of, pair_of, sizes_of
from lamina.models.image_network import Convolution, ImageClassifier
from lamina.models.parts import LayerNorm, Projection
from lamina.models.weights import Source

__all__ = ["ConvNext", "ConvNextConfig", "read"]

_EPS = 1e-6  # of all normalizations but the last


@dataclass(frozen=True)
class ConvNextConfig:
    """What tells the models of the family apart. patch: height and width in pixels of what the
    first layer makes one place of. sizes, depths: channels and blocks of each stage. scales: what a
    block adds is multiplied by a learned vector. eps: of the last normalization."""

    channels: int
    patch: tuple[int, int]
    sizes: tuple[int, ...]
    depths: tuple[int, ...]
    labels: tuple[str, ...]
    activation: str = "gelu"
    scales: bool = True
    eps: float = 1e-12


class ConvNext(ImageClassifier):
    """As `ImageClassifier`, of images of any size."""

    def __init__(self, config: ConvNextConfig, source: Source) -> None:
        self.config, self.channels, self.labels = config, config.channels, config.labels
        self.convnext = _Trunk(config, source)
        self.classifier = Projection(
            source, "classifier", config.sizes[-1], len(config.labels), bias=True
        )

    def logits(self, images: Tensor) -> Tensor:
        return self.classifier(self.convnext(images))


class _Trunk:
    def __init__(self, config: ConvNextConfig, source: Source) -> None:
        self.embeddings = _Stem(config, source)
        self.encoder = _Encoder(config, source)
        self.layernorm = LayerNorm(source, "convnext.layernorm", config.sizes[-1], config.eps)

    def __call__(self, images: Tensor) -> Tensor:
        """The mean of all places, normalized: (batch, sizes[-1])."""
        x = self.encoder(self.embeddings(images))
        return self.layernorm(x.mean((-2, -1)))


class _Stem:
    def __init__(self, config: ConvNextConfig, source: Source) -> None:
        self.patch_embeddings = Convolution(
            source, "convnext.embeddings.patch_embeddings", config.channels, config.sizes[0],
            config.patch, stride=config.patch,
        )  # fmt: skip
        self.layernorm = _ChannelNorm(
            source, "convnext.embeddings.layernorm", config.sizes[0], _EPS
        )

    def __call__(self, images: Tensor) -> Tensor:
        return self.layernorm(self.patch_embeddings(images))


class _Encoder:
    def __init__(self, config: ConvNextConfig, source: Source) -> None:
        self.stages = [
            _Stage(config, source, f"convnext.encoder.stages.{number}", number)
            for number in range(len(config.sizes))
        ]

    def __call__(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


class _Stage:
    """All stages but the first halve height and width before their blocks."""

    def __init__(self, config: ConvNextConfig, source: Source, name: str, number: int) -> None:
        size, halved = config.sizes[number], f"{name}.downsampling_layer"
        self.downsampling_layer: list[_ChannelNorm | Convolution] = []
        if number:
            inputs = config.sizes[number - 1]
            self.downsampling_layer = [
                _ChannelNorm(source, f"{halved}.0", inputs, _EPS),
                Convolution(source, f"{halved}.1", inputs, size, (2, 2), stride=2),
            ]
        self.layers = [
            _Block(config, source, f"{name}.layers.{block}", size)
            for block in range(config.depths[number])
        ]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in (*self.downsampling_layer, *self.layers):
            x = layer(x)
        return x


class _Block:
    def __init__(self, config: ConvNextConfig, source: Source, name: str, size: int) -> None:
        self._activation = ACTIVATIONS[config.activation]
        self.dwconv = Convolution(
            source, f"{name}.dwconv", size, size, (7, 7), padding=3, groups=size
        )
        self.layernorm = LayerNorm(source, f"{name}.layernorm", size, _EPS)
        self.pwconv1 = Projection(source, f"{name}.pwconv1", size, 4 * size, bias=True)
        self.pwconv2 = Projection(source, f"{name}.pwconv2", 4 * size, size, bias=True)
        self.layer_scale_parameter: Tensor | None = None
        if config.scales:
            self.layer_scale_parameter = source.vector(f"{name}.layer_scale_parameter", size)

    def __call__(self, x: Tensor) -> Tensor:
        inner = self.layernorm(self.dwconv(x).permute_dims((0, 2, 3, 1)))
        inner = self.pwconv2(self._activation(self.pwconv1(inner)))
        if self.layer_scale_parameter is not None:
            inner = inner * self.layer_scale_parameter.cast(float32)
        return x + inner.permute_dims((0, 3, 1, 2))


class _ChannelNorm(LayerNorm):
    """The channels of each place: (batch, channels, height, width), as the result."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute_dims((0, 2, 3, 1))).permute_dims((0, 3, 1, 2))


# Configurations.


def read(fields: Fields) -> ConvNextConfig:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    stages = fields.size("num_stages", 4, largest=MAX_LAYERS)
    sizes = sizes_of(fields, "hidden_sizes", (96, 192, 384, 768))
    depths = sizes_of(fields, "depths", (3, 3, 9, 3))
    for name, values in (("hidden_sizes", sizes), ("depths", depths)):
        if len(values) != stages:
            raise fields.fail(name, f"{len(values)} integers for {stages} stages")
    if sum(depths) > MAX_LAYERS:
        raise fields.fail("depths", f"{sum(depths)} blocks; at most {MAX_LAYERS} are supported")
    return ConvNextConfig(
        channels=fields.size("num_channels", 3),
        patch=pair_of(fields, "patch_size", 4),
        sizes=sizes,
        depths=depths,
        labels=labels_of(fields),
        activation=activation_of(fields, "hidden_act", "gelu"),
        scales=_scales(fields),
        eps=fields.number("layer_norm_eps", 1e-12),
    )


def _scales(fields: Fields) -> bool:
    """Whether blocks have scales: unless the value that they begin with in training is 0."""
    if fields.get("layer_scale_init_value") == 0:
        return False
    fields.number("layer_scale_init_value", 1e-6)  # another value is refused
    return True

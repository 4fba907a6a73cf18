"""ResNet: stages of blocks of convolutions, each added to its input.

Source: He et al. 2015, "Deep residual learning for image recognition". Attributes are named as in
the files of the Hugging Face hub. Channels are normalized by the statistics of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.frontend.functions import pooling
from lamina.frontend.tensor import Tensor
from lamina.models.activations import ACTIVATIONS, activation_of
from lamina.models.fields import MAX_LAYERS, Fields, labels_of, sizes_of
from lamina.models.image_network import BatchNorm, Convolution, ImageClassifier
from lamina.models.parts import Projection
from lamina.models.weights import Source

__all__ = ["ResNet", "ResNetConfig", "read"]

_REDUCTION = 4  # of the channels inside a bottleneck


@dataclass(frozen=True)
class ResNetConfig:
    """What tells the models of the family apart.

    embedding: channels after the first convolution. sizes, depths: channels and blocks of each
    stage. has_bottlenecks: three convolutions a block, the second of a quarter of the channels,
    in place of two. halves_first: the first stage has half the pixels of its input, as all others
    have. halves_early: of a bottleneck, the first convolution does that and not the second."""

    channels: int
    embedding: int
    sizes: tuple[int, ...]
    depths: tuple[int, ...]
    labels: tuple[str, ...]
    has_bottlenecks: bool = True
    activation: str = "relu"
    halves_first: bool = False
    halves_early: bool = False


class ResNet(ImageClassifier):
    """As `ImageClassifier`, of images of any size."""

    def __init__(self, config: ResNetConfig, source: Source) -> None:
        self.config, self.channels, self.labels = config, config.channels, config.labels
        self.resnet = _Trunk(config, source)
        classes = Projection(
            source, "classifier.1", config.sizes[-1], len(config.labels), bias=True
        )
        self.classifier = {"1": classes}  # in files layer 0 flattens, and has no weights

    def logits(self, images: Tensor) -> Tensor:
        return self.classifier["1"](self.resnet(images).mean((-2, -1)))


class _Trunk:
    def __init__(self, config: ResNetConfig, source: Source) -> None:
        self.embedder = _Stem(config, source)
        self.encoder = _Encoder(config, source)

    def __call__(self, images: Tensor) -> Tensor:
        """The channels of all places: (batch, sizes[-1], height / 32, width / 32) of four stages.
        """
        return self.encoder(self.embedder(images))


class _Stem:
    def __init__(self, config: ResNetConfig, source: Source) -> None:
        self.embedder = _Normalized(
            source, "resnet.embedder.embedder", config.channels, config.embedding, kernel=7,
            stride=2, activation=config.activation,
        )  # fmt: skip

    def __call__(self, images: Tensor) -> Tensor:
        largest: Tensor = pooling.max_pool(
            "max_pool2d", 2, self.embedder(images), kernel_size=3, stride=2, padding=1
        )
        return largest


class _Encoder:
    def __init__(self, config: ResNetConfig, source: Source) -> None:
        self.stages, inputs = [], config.embedding
        for number, (size, depth) in enumerate(zip(config.sizes, config.depths, strict=True)):
            stride = 2 if number or config.halves_first else 1
            name = f"resnet.encoder.stages.{number}"
            self.stages.append(_Stage(config, source, name, inputs, size, stride, depth))
            inputs = size

    def __call__(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


class _Stage:
    def __init__(
        self, config: ResNetConfig, source: Source, name: str, inputs: int, size: int, stride: int,
        depth: int,
    ) -> None:  # fmt: skip
        first = _Block(config, source, f"{name}.layers.0", inputs, size, stride)
        others = [
            _Block(config, source, f"{name}.layers.{number}", size, size, stride=1)
            for number in range(1, depth)
        ]
        self.layers = [first, *others]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Block:
    def __init__(
        self, config: ResNetConfig, source: Source, name: str, inputs: int, outputs: int,
        stride: int,
    ) -> None:  # fmt: skip
        self._activation = ACTIVATIONS[config.activation]
        self.shortcut: _Normalized | None = None
        if inputs != outputs or stride != 1:
            self.shortcut = _Normalized(
                source, f"{name}.shortcut", inputs, outputs, kernel=1, stride=stride
            )
        if config.has_bottlenecks:
            self.layer = _bottleneck(config, source, name, inputs, outputs, stride)
        else:
            self.layer = [
                _Normalized(
                    source, f"{name}.layer.0", inputs, outputs, kernel=3, stride=stride,
                    activation="relu",
                ),
                _Normalized(source, f"{name}.layer.1", outputs, outputs, kernel=3),
            ]  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        residual = x if self.shortcut is None else self.shortcut(x)
        for layer in self.layer:
            x = layer(x)
        return self._activation(x + residual)


def _bottleneck(
    config: ResNetConfig, source: Source, name: str, inputs: int, outputs: int, stride: int
) -> list[_Normalized]:
    inner = outputs // _REDUCTION
    first, second = (stride, 1) if config.halves_early else (1, stride)
    return [
        _Normalized(
            source, f"{name}.layer.0", inputs, inner, kernel=1, stride=first, activation="relu"
        ),
        _Normalized(
            source, f"{name}.layer.1", inner, inner, kernel=3, stride=second, activation="relu"
        ),
        _Normalized(source, f"{name}.layer.2", inner, outputs, kernel=1),
    ]


class _Normalized:
    """A convolution without a bias, a normalization of its channels, and an activation if there is
    one. For a stride of 1 the result has as many pixels as the input."""

    def __init__(
        self, source: Source, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1,
        activation: str | None = None,
    ) -> None:  # fmt: skip
        self.convolution = Convolution(
            source, f"{name}.convolution", inputs, outputs, (kernel, kernel), stride, kernel // 2,
            bias=False,
        )  # fmt: skip
        self.normalization = BatchNorm(source, f"{name}.normalization", outputs)
        self._activation = None if activation is None else ACTIVATIONS[activation]

    def __call__(self, x: Tensor) -> Tensor:
        x = self.normalization(self.convolution(x))
        return x if self._activation is None else self._activation(x)


# Configurations.


def read(fields: Fields) -> ResNetConfig:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    sizes = sizes_of(fields, "hidden_sizes", (256, 512, 1024, 2048))
    depths = sizes_of(fields, "depths", (3, 4, 6, 3))
    if len(depths) != len(sizes) or sum(depths) > MAX_LAYERS:
        reason = f"{list(depths)} blocks of {len(sizes)} stages, in all at most {MAX_LAYERS}"
        raise fields.fail("depths", reason)
    kind = fields.text("layer_type", "bottleneck")
    if kind not in ("basic", "bottleneck"):
        raise fields.fail("layer_type", f"{kind!r}; known are basic and bottleneck")
    if kind == "bottleneck" and min(sizes) < _REDUCTION:
        raise fields.fail("hidden_sizes", f"{min(sizes)} channels, which have no quarter")
    return ResNetConfig(
        channels=fields.size("num_channels", 3),
        embedding=fields.size("embedding_size", 64),
        sizes=sizes,
        depths=depths,
        labels=labels_of(fields),
        has_bottlenecks=kind == "bottleneck",
        activation=activation_of(fields, "hidden_act", "relu"),
        halves_first=fields.flag("downsample_in_first_stage"),
        halves_early=fields.flag("downsample_in_bottleneck"),
    )

"""MobileNetV2 (Sandler et al. 2018, "Inverted residuals and linear bottlenecks")."""

from __future__ import annotations

from typing import Any

from bench.cases.whole import IMAGE_PEERS, Layers, group, images, inference, training, with_classes

BATCH, SIDE, CLASSES = 8, 224, 1000
# Expansion, channels, blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
LAST = 1280


def network(layers: Layers) -> Any:
    """(N, 3, SIDE, SIDE) to (N, CLASSES)."""
    nn, functional = layers.nn, layers.functional

    def normed(before: int, after: int, size: int, stride: int = 1, groups: int = 1) -> Any:
        convolution = nn.Conv2d(
            before, after, size, stride, (size - 1) // 2, groups=groups, bias=False
        )
        return nn.Sequential(convolution, nn.BatchNorm2d(after))

    def relu6(x: Any) -> Any:
        return functional.hardtanh(x, 0.0, 6.0)

    class Block(layers.base):  # type: ignore[misc, name-defined]
        """1x1 to more channels, 3x3 for each channel, 1x1 to few channels."""

        def __init__(self, expansion: int, before: int, after: int, stride: int) -> None:
            super().__init__()
            inner = expansion * before
            self.expands = expansion != 1
            if self.expands:
                self.expand = normed(before, inner, 1)
            self.depthwise = normed(inner, inner, 3, stride, inner)
            self.project = normed(inner, after, 1)
            self.residual = stride == 1 and before == after

        def forward(self, x: Any) -> Any:
            y = relu6(self.expand(x)) if self.expands else x
            y = self.project(relu6(self.depthwise(y)))
            return x + y if self.residual else y

    class MobileNet(layers.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = normed(3, 32, 3, 2)
            blocks, before = [], 32
            for expansion, after, count, stride in STAGES:
                for number in range(count):
                    blocks.append(Block(expansion, before, after, 1 if number else stride))
                    before = after
            self.blocks = nn.Sequential(*blocks)
            self.last = normed(before, LAST, 1)
            self.fc = nn.Linear(LAST, CLASSES)

        def forward(self, x: Any) -> Any:
            x = relu6(self.last(self.blocks(relu6(self.first(x)))))
            return self.fc(x.mean((2, 3)))

    return MobileNet()


_IMAGES = images(BATCH, SIDE)
_LABELLED = with_classes(_IMAGES, CLASSES, BATCH)
GROUP = group(
    "MobileNetV2",
    inference("MobileNetV2, forward, 1 image", network, images(1, SIDE), IMAGE_PEERS, quick=False),
    inference(f"MobileNetV2, forward, {BATCH} images", network, _IMAGES, IMAGE_PEERS),
    training(
        f"MobileNetV2, training with SGD, {BATCH} images", network, _LABELLED, False, IMAGE_PEERS
    ),
)

"""U-Net (Ronneberger et al. 2015), with padding and batch normalisation, a quarter to a half as
wide as theirs."""

from __future__ import annotations

from typing import Any

from bench.cases.whole import IMAGE_PEERS, Layers, group, images, inference, training, with_classes

BATCH, SIDE, CLASSES = 4, 128, 2
WIDTHS = (32, 64, 128, 256)


def network(layers: Layers) -> Any:
    """(N, 3, SIDE, SIDE) to (N, CLASSES, SIDE, SIDE)."""
    nn, functional = layers.nn, layers.functional

    class Pair(layers.base):  # type: ignore[misc, name-defined]
        """Two convolutions."""

        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)

        def forward(self, x: Any) -> Any:
            x = functional.relu(self.bn1(self.conv1(x)))
            return functional.relu(self.bn2(self.conv2(x)))

    class UNet(layers.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            one, two, three, four = WIDTHS
            self.down1, self.down2 = Pair(3, one), Pair(one, two)
            self.down3, self.down4 = Pair(two, three), Pair(three, four)
            self.widen3 = nn.ConvTranspose2d(four, three, 2, stride=2)
            self.up3 = Pair(2 * three, three)
            self.widen2 = nn.ConvTranspose2d(three, two, 2, stride=2)
            self.up2 = Pair(2 * two, two)
            self.widen1 = nn.ConvTranspose2d(two, one, 2, stride=2)
            self.up1 = Pair(2 * one, one)
            self.classes = nn.Conv2d(one, CLASSES, 1)

        def forward(self, x: Any) -> Any:
            x1 = self.down1(x)
            x2 = self.down2(functional.max_pool2d(x1, 2))
            x3 = self.down3(functional.max_pool2d(x2, 2))
            x = self.down4(functional.max_pool2d(x3, 2))
            x = self.up3(layers.concat([x3, self.widen3(x)], 1))
            x = self.up2(layers.concat([x2, self.widen2(x)], 1))
            x = self.up1(layers.concat([x1, self.widen1(x)], 1))
            return self.classes(x)

    return UNet()


_IMAGES = images(BATCH, SIDE)
_LABELLED = with_classes(_IMAGES, CLASSES, BATCH, SIDE, SIDE)
GROUP = group(
    "U-Net",
    inference(f"U-Net, forward, {BATCH} images", network, _IMAGES, IMAGE_PEERS),
    training(f"U-Net, training with SGD, {BATCH} images", network, _LABELLED, False, IMAGE_PEERS),
)

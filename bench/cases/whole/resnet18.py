"""ResNet-18, as `bench.cases.resnet` writes it."""

from __future__ import annotations

from typing import Any

from bench.cases import resnet
from bench.cases.whole import IMAGE_PEERS, Layers, group, images, inference, training, with_classes

BATCH, SIDE = 8, 224


def network(layers: Layers) -> Any:
    """(N, 3, H, W) to (N, resnet.CLASSES)."""
    return resnet.network(layers.nn, layers.functional, layers.base)


_IMAGES = images(BATCH, SIDE)
_LABELLED = with_classes(_IMAGES, resnet.CLASSES, BATCH)
GROUP = group(
    "ResNet-18",
    inference("ResNet-18, forward, 1 image", network, images(1, SIDE), IMAGE_PEERS, quick=False),
    inference(f"ResNet-18, forward, {BATCH} images", network, _IMAGES, IMAGE_PEERS),
    training(
        f"ResNet-18, training with SGD, {BATCH} images", network, _LABELLED, False, IMAGE_PEERS
    ),
)

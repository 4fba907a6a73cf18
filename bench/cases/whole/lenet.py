"""LeNet-5 (LeCun et al. 1998, "Gradient-based learning applied to document recognition"), with the
rectified units and maxima of later textbooks."""

from __future__ import annotations

from typing import Any

from bench.cases.whole import IMAGE_PEERS, Layers, group, images, inference, training, with_classes

BATCH, SIDE, CLASSES = 128, 28, 10


def network(layers: Layers) -> Any:
    """(N, 1, SIDE, SIDE) to (N, CLASSES)."""
    nn, functional = layers.nn, layers.functional

    class LeNet(layers.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.fc1 = nn.Linear(16 * 5 * 5, 120)
            self.fc2 = nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, CLASSES)

        def forward(self, x: Any) -> Any:
            x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
            x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
            x = functional.relu(self.fc1(x.flatten(1)))
            return self.fc3(functional.relu(self.fc2(x)))

    return LeNet()


_IMAGES = images(BATCH, SIDE, 1)
_LABELLED = with_classes(_IMAGES, CLASSES, BATCH)
GROUP = group(
    "LeNet",
    inference(f"LeNet, forward, {BATCH} images", network, _IMAGES, IMAGE_PEERS),
    training(f"LeNet, training with SGD, {BATCH} images", network, _LABELLED, False, IMAGE_PEERS),
)

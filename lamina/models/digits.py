"""A small convolutional network for handwritten digits, and how to train it."""

from collections.abc import Iterator
from typing import Any

from lamina import nn, random
from lamina.datasets import Split
from lamina.frontend.functions.neural import cross_entropy
from lamina.frontend.functions.pooling import max_pool2d
from lamina.frontend.tensor import Tensor

BATCH = 64
PEAK_RATE = 8e-3
SHIFTED_SHARE = 0.3  # of the training images move by a pixel, along each axis


class DigitsNet:
    """Two convolutions, a pooling and a linear layer: images (n, 1, 8, 8) to logits (n, 10)."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.output = nn.Linear(32 * 4 * 4, 10)

    def __call__(self, images: Tensor) -> Tensor:
        x = self.conv1(images).relu()
        return self.output(max_pool2d(self.conv2(x).relu(), 2).flatten(1))


def train(data: Split, epochs: int, seed: int) -> Iterator[tuple[DigitsNet, float, float]]:
    """A network trained on `data`, its mean loss and its accuracy, after each epoch."""
    import numpy as np

    random.manual_seed(seed)
    state = np.random.default_rng(seed)
    model = DigitsNet()
    images, labels = data.train_images.numpy(), data.train_labels.numpy()
    rate = nn.schedules.one_cycle(PEAK_RATE, epochs * (len(images) // BATCH))
    optimizer = nn.optim.AdamW(nn.parameters(model), lr=rate)
    for _ in range(epochs):
        order, figures = state.permutation(len(images)), []
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            logits = model(Tensor(_shifted(images[chosen], state)))
            loss = cross_entropy(logits, Tensor(labels[chosen]))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            right = (logits.numpy().argmax(axis=1) == labels[chosen]).mean()
            figures.append((float(loss), right))
        yield model, *np.mean(figures, axis=0)


def _shifted(images: Any, state: Any) -> Any:
    """Some of the NumPy `images` moved by a pixel up, down, left or right; zeros come in."""
    import numpy as np

    count, _, height, width = images.shape
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    drawn, moves = state.random((2, count)), state.integers(0, 3, (2, count))
    down, right = np.where(drawn < SHIFTED_SHARE, moves, 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), (2, 3))
    return windows[np.arange(count), :, down, right]

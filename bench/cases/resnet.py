"""ResNet-18 (He et al. 2015, "Deep residual learning for image recognition"), for inference.

The layers of `lamina.nn` have PyTorch's names and parameters, so one description serves both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.cases import Array

BATCH, SIDE, CLASSES = 8, 224, 1000
WIDTHS = (64, 128, 256, 512)


def _norm(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for part in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{part}", (width,)


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names and shapes of all weights."""
    yield "conv1.weight", (64, 3, 7, 7)
    yield from _norm("bn1", 64)
    before = 64
    for stage, width in enumerate(WIDTHS):
        for block in range(2):
            name = f"blocks.{2 * stage + block}"
            yield f"{name}.conv1.weight", (width, before, 3, 3)
            yield from _norm(f"{name}.bn1", width)
            yield f"{name}.conv2.weight", (width, width, 3, 3)
            yield from _norm(f"{name}.bn2", width)
            if width != before:
                yield f"{name}.short.weight", (width, before, 1, 1)
                yield from _norm(f"{name}.short_bn", width)
            before = width
    yield "fc.weight", (CLASSES, before)
    yield "fc.bias", (CLASSES,)


def inputs(random: np.random.Generator) -> list[Array]:
    """Images, (BATCH, 3, SIDE, SIDE), and weights that keep the size of what flows through."""
    arrays = [random.standard_normal((BATCH, 3, SIDE, SIDE), dtype=np.float32)]
    for name, shape in _shapes():
        values = random.standard_normal(shape, dtype=np.float32)
        if len(shape) > 1:
            values *= np.float32((2 / np.prod(shape[1:])) ** 0.5)
        elif name.endswith(("running_var", "bn1.weight")):
            values = np.abs(values) * np.float32(0.1) + np.float32(1)
        else:
            values *= np.float32(0.2)
        arrays.append(values)
    return arrays


def network(nn: Any, functional: Any, base: type) -> Any:
    """The network from the layers of `nn`, the functions of `functional` and the class `base`."""

    class Block(base):  # type: ignore[misc]
        """Two convolutions beside a shortcut."""

        def __init__(self, before: int, width: int) -> None:
            super().__init__()
            stride = 1 if width == before else 2
            self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.narrow = width != before
            if self.narrow:
                self.short = nn.Conv2d(before, width, 1, stride, bias=False)
                self.short_bn = nn.BatchNorm2d(width)

        def forward(self, x: Any) -> Any:
            """(N, before, H, W) to (N, width, H or H / 2, W or W / 2)."""
            y = functional.relu(self.bn1(self.conv1(x)))
            short = self.short_bn(self.short(x)) if self.narrow else x
            return functional.relu(self.bn2(self.conv2(y)) + short)

    class ResNet(base):  # type: ignore[misc]
        """The whole network."""

        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            before = (64, 64, 64, 128, 128, 256, 256, 512)
            after = (64, 64, 128, 128, 256, 256, 512, 512)
            self.blocks = nn.Sequential(*map(Block, before, after))
            self.fc = nn.Linear(512, CLASSES)

        def forward(self, x: Any) -> Any:
            """(N, 3, H, W) to (N, CLASSES)."""
            x = functional.relu(self.bn1(self.conv1(x)))
            x = self.blocks(functional.max_pool2d(x, 3, 2, 1))
            return self.fc(x.mean((2, 3)))

    return ResNet()


class _Callable:
    """What a layer of lamina needs: nothing but to be called."""

    def __call__(self, x: Any) -> Any:
        return self.forward(x)  # type: ignore[attr-defined]


def _lamina(lm: Any, x: Any, *arrays: Any) -> Any:
    from lamina import nn

    model = network(nn, lm, _Callable)
    names = [name for name, _ in _shapes()]
    nn.load_state_dict(model, dict(zip(names, arrays, strict=True)), strict=False)
    nn.eval(model)
    return model


def _exported(torch: Any, x: Any, *arrays: Any) -> Any:
    model = network(torch.nn, torch.nn.functional, torch.nn.Module).to(x.dtype).eval()
    names = [name for name, _ in _shapes()]
    model.load_state_dict(dict(zip(names, arrays, strict=True)), strict=False)
    return model


def _torch(torch: Any, x: Any, *arrays: Any) -> Any:
    model = _exported(torch, x, *arrays)

    def step(x: Any) -> Any:
        with torch.no_grad():
            return model(x)

    return step


FORWARD = {"lamina": _lamina, "torch": _torch, "onnxruntime": _exported}

"""Models of images: ResNet-50, ConvNeXt, a U-Net, DCGAN, and a vision transformer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.cases import Array
from bench.trained.program import Phase, Program, Specification, Weight

CLASSES = 1000
SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
Functions = Any  # of `bench.trained.functions`


def _labelled(batch: int, side: int) -> Any:
    """Draws images of (batch, 3, side, side), and their classes."""

    def draw(random: np.random.Generator) -> list[Array]:
        images = random.standard_normal((batch, 3, side, side), dtype=np.float32)
        return [images, random.integers(0, CLASSES, batch)]

    return draw


@dataclass(frozen=True)
class ResNet:
    """ResNet with bottlenecks (He et al. 2015), with the stride in their middle."""

    blocks: tuple[int, ...]
    batch: int
    side: int

    FIRST, WIDER = 64, 4

    def _layout(self) -> Iterator[tuple[str, int, int, int]]:
        """Each block's name, channels before it, channels within it, and stride."""
        before = self.FIRST
        for stage, count in enumerate(self.blocks):
            width = self.FIRST << stage
            for block in range(count):
                yield f"{stage}.{block}", before, width, 2 if stage and not block else 1
                before = self.WIDER * width

    def program(self) -> Program:
        """Its training step."""
        s = Specification()
        s.convolution("first", (self.FIRST, 3, 7, 7))
        s.batch_norm("first.norm", self.FIRST)
        for name, before, width, stride in self._layout():
            outer = self.WIDER * width
            shapes = (width, before, 1, 1), (width, width, 3, 3), (outer, width, 1, 1)
            for at, shape in enumerate(shapes):
                s.convolution(f"{name}.{at}", shape)
                s.batch_norm(f"{name}.{at}.norm", shape[0])
            if stride != 1 or before != outer:
                s.convolution(f"{name}.short", (outer, before, 1, 1))
                s.batch_norm(f"{name}.short.norm", outer)
        s.linear("classes", self.WIDER * self.FIRST << (len(self.blocks) - 1), CLASSES)
        sizes = f"{'-'.join(map(str, self.blocks))} blocks, B{self.batch}, {self.side} px"
        draw = _labelled(self.batch, self.side)
        phases = (Phase(self.loss),)
        return Program(sizes, s.weights, draw, phases, "SGD", SGD, has_images=True)

    def loss(self, f: Functions, images: Any, labels: Any) -> Any:
        def layer(x: Any, name: str, stride: int = 1, padding: int = 0) -> Any:
            return f.batch_norm(f.convolution(x, name, stride, padding), f"{name}.norm")

        x = f.max_pool(f.relu(layer(images, "first", 2, 3)), 3, 2, 1)
        for name, _, _, stride in self._layout():
            y = f.relu(layer(x, f"{name}.0"))
            y = f.relu(layer(y, f"{name}.1", stride, 1))
            y = layer(y, f"{name}.2")
            short = f"{name}.short"
            x = f.relu(y + (layer(x, short, stride) if f"{short}.weight" in f.weights else x))
        return f.cross_entropy(f.linear(x.mean((2, 3)), "classes"), labels)


@dataclass(frozen=True)
class ConvNeXt:
    """ConvNeXt (Liu et al. 2022), without stochastic depth."""

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    batch: int
    side: int

    def program(self) -> Program:
        """Its training step."""
        s, before = Specification(), 3
        for stage, (depth, width) in enumerate(zip(self.depths, self.widths, strict=True)):
            s.norm(f"{stage}.norm", before if stage else width)
            window = 2 if stage else 4
            s.convolution(f"{stage}.narrow", (width, before, window, window), bias=True)
            for block in range(depth):
                name = f"{stage}.{block}"
                s.convolution(f"{name}.deep", (width, 1, 7, 7), bias=True)
                s.norm(f"{name}.norm", width)
                s.linear(f"{name}.up", width, 4 * width)
                s.linear(f"{name}.down", 4 * width, width)
                s.weights[f"{name}.scale"] = Weight((width,), middle=1e-2)
            before = width
        s.norm("norm", before)
        s.linear("classes", before, CLASSES)
        sizes = f"depths {self.depths}, d {self.widths}, B{self.batch}, {self.side} px"
        draw, phases = _labelled(self.batch, self.side), (Phase(self.loss),)
        return Program(sizes, s.weights, draw, phases, has_images=True)

    def loss(self, f: Functions, images: Any, labels: Any) -> Any:
        def last(x: Any) -> Any:
            return x.moveaxis(1, -1)

        def norm(x: Any, name: str) -> Any:  # of channels
            return f.layer_norm(last(x), name, 1e-6).moveaxis(-1, 1)

        x = norm(f.convolution(images, "0.narrow", 4), "0.norm")
        for stage, (depth, width) in enumerate(zip(self.depths, self.widths, strict=True)):
            if stage:
                x = f.convolution(norm(x, f"{stage}.norm"), f"{stage}.narrow", 2)
            for block in range(depth):
                name = f"{stage}.{block}"
                y = f.convolution(x, f"{name}.deep", 1, 3, width)
                y = f.gelu(f.linear(f.layer_norm(last(y), f"{name}.norm", 1e-6), f"{name}.up"))
                y = f.linear(y, f"{name}.down") * f.weights[f"{name}.scale"]
                x = x + y.moveaxis(-1, 1)
        x = f.layer_norm(x.mean((2, 3)), "norm", 1e-6)
        return f.cross_entropy(f.linear(x, "classes"), labels)


@dataclass(frozen=True)
class UNet:
    """U-Net (Ronneberger et al. 2015) with padding and batch norms, for `CLASSES` of each pixel."""

    base: int
    depth: int
    batch: int
    side: int

    CLASSES = 21

    def program(self) -> Program:
        """Its training step."""
        s = Specification()

        def twice(name: str, before: int, width: int) -> None:
            for at, inputs in enumerate((before, width)):
                s.convolution(f"{name}.{at}", (width, inputs, 3, 3))
                s.batch_norm(f"{name}.{at}.norm", width)

        widths = [self.base << level for level in range(self.depth + 1)]
        for level, width in enumerate(widths):
            twice(f"down.{level}", widths[level - 1] if level else 3, width)
        for level in reversed(range(self.depth)):
            width = widths[level]
            s.convolution(f"wider.{level}", (2 * width, width, 2, 2))
            s.weights[f"wider.{level}.bias"] = Weight((width,))
            twice(f"up.{level}", 2 * width, width)
        s.convolution("classes", (self.CLASSES, self.base, 1, 1), bias=True)
        sizes = f"{self.depth} levels, {self.base} channels, B{self.batch}, {self.side} px"
        return Program(sizes, s.weights, self.draw, (Phase(self.loss),), has_images=True)

    def draw(self, random: np.random.Generator) -> list[Array]:
        """Images, and the class of each pixel."""
        shape = self.batch, self.side, self.side
        images = random.standard_normal((self.batch, 3, self.side, self.side), dtype=np.float32)
        return [images, random.integers(0, self.CLASSES, shape)]

    def loss(self, f: Functions, images: Any, labels: Any) -> Any:
        def twice(x: Any, name: str) -> Any:
            for at in range(2):
                x = f.convolution(x, f"{name}.{at}", 1, 1)
                x = f.relu(f.batch_norm(x, f"{name}.{at}.norm"))
            return x

        x, kept = images, []
        for level in range(self.depth):
            kept.append(twice(x, f"down.{level}"))
            x = f.max_pool(kept[-1], 2, 2)
        x = twice(x, f"down.{self.depth}")
        for level in reversed(range(self.depth)):
            x = f.transposed_convolution(x, f"wider.{level}", 2)
            x = twice(f.concat([kept[level], x], 1), f"up.{level}")
        return f.cross_entropy(f.convolution(x, "classes"), labels)


@dataclass(frozen=True)
class DCGAN:
    """DCGAN (Radford et al. 2015) for images of 64 x 64: a step of the discriminator, and one of
    the generator with noise of its own."""

    base: int
    noise: int
    batch: int

    LEVELS, SLOPE = 4, 0.2

    def program(self) -> Program:
        """Its training step."""
        s, narrow = Specification(), 0.02

        def layer(name: str, shape: tuple[int, ...], width: int) -> None:
            s.weights[f"{name}.weight"] = Weight(shape, narrow)
            if width:
                s.batch_norm(f"{name}.norm", width)

        widths = [self.base << level for level in range(self.LEVELS)]
        steps = zip([self.noise, *reversed(widths)], [*reversed(widths), 3], strict=True)
        for level, (before, width) in enumerate(steps):
            layer(f"generator.{level}", (before, width, 4, 4), width if width != 3 else 0)
        steps = zip([3, *widths], [*widths, 1], strict=True)
        for level, (before, width) in enumerate(steps):
            normed = width if 0 < level < self.LEVELS else 0
            layer(f"discriminator.{level}", (width, before, 4, 4), normed)
        phases = (
            Phase(self.discriminator_loss, "discriminator", (0, 1)),
            Phase(self.generator_loss, "generator", (2,)),
        )
        sizes = f"{self.base} channels, B{self.batch}, 64 px"
        settings = {"lr": 2e-4, "betas": (0.5, 0.999)}
        return Program(sizes, s.weights, self.draw, phases, "Adam", settings, has_images=True)

    def draw(self, random: np.random.Generator) -> list[Array]:
        """Images, and noise for both."""
        images = random.uniform(-1, 1, (self.batch, 3, 64, 64)).astype(np.float32)
        shape = self.batch, self.noise, 1, 1
        return [images, *(random.standard_normal(shape, dtype=np.float32) for _ in range(2))]

    def _generated(self, f: Functions, noise: Any) -> Any:
        x = noise
        for level in range(self.LEVELS + 1):
            stride, padding = (2, 1) if level else (1, 0)
            x = f.transposed_convolution(x, f"generator.{level}", stride, padding)
            if level < self.LEVELS:
                x = f.relu(f.batch_norm(x, f"generator.{level}.norm"))
        return f.tanh(x)

    def _loss(self, f: Functions, x: Any, target: float) -> Any:
        """Of the discriminator's answers to images that are real (1.0) or not (0.0)."""
        for level in range(self.LEVELS + 1):
            stride, padding = (2, 1) if level < self.LEVELS else (1, 0)
            x = f.convolution(x, f"discriminator.{level}", stride, padding)
            if 0 < level < self.LEVELS:
                x = f.batch_norm(x, f"discriminator.{level}.norm")
            if level < self.LEVELS:
                x = f.leaky_relu(x, self.SLOPE)
        answers = f.wide(x.reshape((-1,)))
        return f.bce(answers, f.constant_like(answers, target))

    def discriminator_loss(self, f: Functions, images: Any, noise: Any) -> Any:
        generated = self._generated(f, noise).detach()
        return self._loss(f, images, 1.0) + self._loss(f, generated, 0.0)

    def generator_loss(self, f: Functions, noise: Any) -> Any:
        return self._loss(f, self._generated(f, noise), 1.0)


@dataclass(frozen=True)
class ViT:
    """A vision transformer (Dosovitskiy et al. 2021), without dropout."""

    layers: int
    width: int
    heads: int
    patch: int
    batch: int
    side: int

    def program(self) -> Program:
        """Its training step."""
        s, wide = Specification(), self.width
        s.convolution("patches", (wide, 3, self.patch, self.patch), bias=True)
        s.table("class", 1, wide)
        s.table("positions", (self.side // self.patch) ** 2 + 1, wide)
        for layer in range(self.layers):
            for name, inner, outer in (("qkv", 1, 3), ("out", 1, 1), ("up", 1, 4), ("down", 4, 1)):
                s.linear(f"{layer}.{name}", inner * wide, outer * wide)
            s.norm(f"{layer}.first", wide)
            s.norm(f"{layer}.second", wide)
        s.norm("last", wide)
        s.linear("classes", wide, CLASSES)
        sizes = f"{self.layers} layers, d {wide}, B{self.batch}, {self.side} px"
        return Program(sizes, s.weights, _labelled(self.batch, self.side), (Phase(self.loss),))

    def loss(self, f: Functions, images: Any, labels: Any) -> Any:
        patches = f.convolution(images, "patches", self.patch)
        x = patches.reshape((self.batch, self.width, -1)).transpose(1, 2)
        first = f.weights["class"].broadcast_to((self.batch, 1, self.width))
        x = f.concat([first, f.wide(x)], 1) + f.weights["positions"]
        shape = (self.batch, x.shape[1], self.heads, self.width // self.heads)
        for layer in range(self.layers):
            y = f.linear(f.layer_norm(x, f"{layer}.first", 1e-6), f"{layer}.qkv")
            parts = (y[..., at * self.width : (at + 1) * self.width] for at in range(3))
            query, key, value = (part.reshape(shape).transpose(1, 2) for part in parts)
            mixed = f.attention(query, key, value).transpose(1, 2).reshape(x.shape)
            x = x + f.linear(mixed, f"{layer}.out")
            y = f.gelu(f.linear(f.layer_norm(x, f"{layer}.second", 1e-6), f"{layer}.up"))
            x = x + f.linear(y, f"{layer}.down")
        return f.cross_entropy(f.linear(f.layer_norm(x[:, 0], "last", 1e-6), "classes"), labels)

"""Whole programs: a network written once, for the layers of `lamina.nn` and of `torch.nn`.

A program is inference, or a training step with its optimiser. Inputs are arguments of each call,
weights are captured, as users write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.cases import Array, Case, Group
from bench.report import Target

PEERS = ("torch", "torch.compile")
CHANNELS_LAST = "torch.channels_last"  # which PyTorch's guides recommend for convolutions
IMAGE_PEERS = (*PEERS, CHANNELS_LAST)
LEAST_RATIO = Target(0.9)  # of the best peer's time to lamina's
TOLERANCE = 1e-4
MOMENTUM, LEARNING_RATE = 0.9, 1e-3


@dataclass(frozen=True)
class Layers:
    """What a network is written with.

    nn: the module of layers. functional: that of functions. base: the class of a network.
    concat: joins a list of arrays along an axis."""

    nn: Any
    functional: Any
    base: type
    concat: Callable[[list[Any], int], Any]


Network = Callable[[Layers], Any]


class _Called:
    """What a layer of lamina needs: nothing but to be called."""

    def __call__(self, *arrays: Any) -> Any:
        return self.forward(*arrays)  # type: ignore[attr-defined]


def _lamina_network(network: Network) -> Any:
    import lamina as lm
    from lamina import nn

    return network(Layers(nn, lm, _Called, lm.concat))


def _torch_network(network: Network) -> Any:
    import torch

    return network(Layers(torch.nn, torch.nn.functional, torch.nn.Module, torch.concat))


def _weight_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights and running statistics, by PyTorch's names."""
    from lamina import nn

    state = nn.state_dict(_lamina_network(network))
    return {name: one.shape for name, one in state.items() if one.dtype.is_float}


def _weight(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """A weight that keeps the size of what flows through."""
    values = random.standard_normal(shape, dtype=np.float32)
    if len(shape) > 1:
        return values * np.float32(np.prod(shape[1:]) ** -0.5)
    values *= np.float32(0.1)
    if name.endswith("running_var"):
        return np.abs(values) + np.float32(1)
    return values + np.float32(1) if name.endswith("weight") else values


Draw = Callable[[np.random.Generator], list[Array]]


def _with_weights(draw: Draw, network: Network) -> Draw:
    def arrays(random: np.random.Generator) -> list[Array]:
        shapes = _weight_shapes(network)
        return [*draw(random), *(_weight(random, *item) for item in shapes.items())]

    return arrays


def inference(
    name: str, network: Network, draw: Draw, peers: tuple[str, ...] = PEERS, quick: bool = True
) -> Case:
    """The results of `network` for the array that `draw` draws."""

    def lamina(lm: Any, x: Any, *weights: Any) -> Any:
        from lamina import nn

        model = _lamina_network(network)
        nn.load_state_dict(model, _named(network, weights), strict=False)
        nn.eval(model)
        return model

    def exported(torch: Any, x: Any, *weights: Any) -> Any:
        model = _torch_network(network).to(weights[0].dtype)
        model.load_state_dict(_named(network, weights), strict=False)
        return model.eval()

    def torch_eager(torch: Any, *arrays: Any) -> Any:
        return torch.no_grad()(exported(torch, *arrays))

    def channels_last(torch: Any, *arrays: Any) -> Any:
        order = torch.channels_last
        model = exported(torch, *arrays).to(memory_format=order)
        return torch.no_grad()(lambda x: model(x.contiguous(memory_format=order)))

    return Case(
        name, _with_weights(draw, network),
        {"lamina": lamina, "torch": torch_eager, "onnxruntime": exported,
         CHANNELS_LAST: channels_last},
        (*peers, "onnxruntime"), targets=(LEAST_RATIO,), quick=quick, tolerance=TOLERANCE,
        makes_step=True, arguments=1,
    )  # fmt: skip


def training(
    name: str, network: Network, draw: Draw, adam: bool, peers: tuple[str, ...] = PEERS
) -> Case:
    """The loss of a training step of `network` for the inputs and classes that `draw` draws, by
    AdamW or by SGD with momentum. Classes stand along the second axis of what the network gives."""

    def lamina(lm: Any, x: Any, target: Any, *weights: Any) -> Any:
        from lamina import nn

        model = _lamina_network(network)
        nn.load_state_dict(model, _named(network, weights), strict=False)
        parameters = nn.parameters(model)
        if adam:
            optimizer: Any = nn.optim.AdamW(parameters, lr=LEARNING_RATE)
        else:
            optimizer = nn.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)

        def step(x: Any, target: Any) -> Any:
            optimizer.zero_grad()
            loss = lm.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def torch_step(torch: Any, x: Any, target: Any, *weights: Any, order: Any = None) -> Any:
        model = _torch_network(network).to(weights[0].dtype)
        model.load_state_dict(_named(network, weights), strict=False)
        if order is not None:
            model = model.to(memory_format=order)
        if adam:
            optimizer: Any = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
        else:
            optimizer = torch.optim.SGD(
                model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, fused=True
            )

        def step(x: Any, target: Any) -> Any:
            optimizer.zero_grad()
            moved = x if order is None else x.contiguous(memory_format=order)
            loss = torch.nn.functional.cross_entropy(model(moved), target)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def channels_last(torch: Any, *arrays: Any) -> Any:
        return torch_step(torch, *arrays, order=torch.channels_last)

    return Case(
        name, _with_weights(draw, network),
        {"lamina": lamina, "torch": torch_step, CHANNELS_LAST: channels_last},
        peers, targets=(LEAST_RATIO,), quick=True, tolerance=TOLERANCE, makes_step=True,
        arguments=2,
    )  # fmt: skip


def _named(network: Network, weights: tuple[Any, ...]) -> Mapping[str, Any]:
    return dict(zip(_weight_shapes(network), weights, strict=True))


def images(batch: int, side: int, channels: int = 3) -> Draw:
    """Draws images, (batch, channels, side, side)."""
    shape = (batch, channels, side, side)
    return lambda random: [random.standard_normal(shape, dtype=np.float32)]


def tokens(batch: int, length: int, vocabulary: int) -> Draw:
    """Draws the numbers of tokens, (batch, length)."""
    return lambda random: [random.integers(0, vocabulary, (batch, length))]


def with_classes(draw: Draw, classes: int, *shape: int) -> Draw:
    """Draws what `draw` does and a class for each place of `shape`."""
    return lambda random: [*draw(random), random.integers(0, classes, shape)]


def group(title: str, *cases: Case) -> Group:
    """The programs of one network. Of the quick ones the first results are measured too."""
    notes = ("Training is compared by the loss of the third step.",)
    return Group(title, cases, notes, single=False, rounds=4)

"""Fully sharded layers: each process keeps a part of the parameters, and of the optimiser's state.

The parameters of a layer are gathered before it runs. Their derivative is a sum over the processes,
of which each keeps its own part: so gradients, and what an optimiser keeps for them, are as short
as the parts (ZeRO, arXiv 1910.02054). On GPUs the next layer's are gathered while one runs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from lamina.core.shape import Shape
from lamina.distributed.layout import Box, Layout
from lamina.distributed.mesh import Axis
from lamina.distributed.operations import all_gather
from lamina.errors import ArgumentError
from lamina.frontend.functions.movement import reshape
from lamina.frontend.functions.padding import pad
from lamina.frontend.tensor import Tensor
from lamina.nn.state import parameter, state_dict

__all__ = ["FullySharded"]


class FullySharded:
    """`layer`, any callable object with parameters, of which each process of an axis keeps a part.

    Calls give what `layer` gives. `shards` has by name this process's part of each parameter, all
    elements in one row, which are rounded up to a multiple of the number of processes with zeros:
    of 10 elements 4 processes have 3 each. Other tensors of the layer stay whole, and a parameter
    that two layers share has to be wrapped with both.

    Gradients are sums over the processes. Where each has a mean over its own rows of a batch,
    divide the loss by the number of processes. Raises ArgumentError for a parameter in a tuple."""

    def __init__(self, layer: Callable[..., Any], over: Axis) -> None:
        self.layer, self._over = layer, over
        self._shapes: dict[str, Shape] = {}
        self.shards: dict[str, Tensor] = {}
        # What sets each place of a parameter: those of a tied one are several.
        self._places: dict[str, list[Callable[[Tensor | None], None]]] = {}
        first_name: dict[Tensor, str] = {}
        for name, tensor in state_dict(layer).items():
            if tensor.requires_grad:
                first = first_name.setdefault(tensor, name)
                self._places.setdefault(first, []).append(_setter(layer, name))
        for tensor, name in first_name.items():
            self._shapes[name] = tensor.shape
            self.shards[name] = _shard(tensor, over)
        self._put(dict.fromkeys(self.shards))  # nothing keeps the whole ones

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        gathered: dict[str, Tensor | None] = {}
        for name in self.shards:
            gathered[name] = self.whole(name)
        self._put(gathered)
        try:
            return self.layer(*arguments, **keywords)
        finally:
            self._put(dict.fromkeys(self.shards))

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`: all elements of a parameter in one row."""
        found: dict[str, Layout] = {}
        for name, shape in self._shapes.items():
            size, each = prod(shape), self.shards[name].size
            start = self._over.place * each
            own = max(0, min(each, size - start))
            boxes = (Box((start,), (0,), (own,)),) if own else ()
            found[f"shards.{name}"] = Layout((size,), boxes)
        return found

    def whole(self, name: str) -> Tensor:
        """A parameter, gathered from all processes."""
        shape = self._shapes[name]
        elements = all_gather(self.shards[name], 0, self._over)
        return reshape(elements[: prod(shape)], shape)

    def _put(self, values: dict[str, Tensor | None]) -> None:
        """Give the layer's attributes these values."""
        for name, value in values.items():
            for put in self._places[name]:
                put(value)


def _shard(whole: Tensor, over: Axis) -> Tensor:
    """A parameter with the elements of this process."""
    each = -(-whole.size // over.ranks)
    missing = each * over.ranks - whole.size
    elements = pad(reshape(whole.detach(), (-1,)), [(0, missing)])
    start = over.place * each
    return parameter(elements[start : start + each].contiguous())


def _setter(layer: Any, name: str) -> Callable[[Tensor | None], None]:
    """What sets the attribute, or the element of a list or a dict, of a dotted name. Raises
    ArgumentError for that of a tuple."""
    *path, last = name.split(".")
    owner = layer
    for step in path:
        owner = _child(owner, step)
    if isinstance(owner, tuple):
        raise ArgumentError(
            f"parameter {name} is directly in a tuple, whose elements cannot be replaced",
            operation="FullySharded", remedy="put it into a list"
        )  # fmt: skip

    def put(value: Tensor | None) -> None:
        if isinstance(owner, list):
            owner[int(last)] = value
        elif isinstance(owner, dict):
            owner[last] = value
        else:
            setattr(owner, last, value)

    return put


def _child(owner: Any, step: str) -> Any:
    if isinstance(owner, (list, tuple)):
        return owner[int(step)]
    return owner[step] if isinstance(owner, dict) else getattr(owner, step)

"""Which elements of a whole array a process has: what checkpoints need to know of a part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lamina.core.shape import Shape
from lamina.distributed.mesh import Axis
from lamina.frontend.tensor import Tensor
from lamina.nn.state import named_layers


@dataclass(frozen=True)
class Box:
    """Elements that are a box both in the whole array and in a part of it.

    start: of the box in the whole array, along each axis. own_start: in the part. shape: of the
    box."""

    start: Shape
    own_start: Shape
    shape: Shape

    @property
    def own_slices(self) -> tuple[slice, ...]:
        """Where the box is in the part."""
        pairs = zip(self.own_start, self.shape, strict=True)
        return tuple(slice(start, start + size) for start, size in pairs)

    def common(self, start: Shape, shape: Shape) -> tuple[Shape, Shape] | None:
        """The start and the shape of what this box and another one of the whole array have in
        common; None if nothing."""
        lows = tuple(map(max, self.start, start))
        ends = tuple(map(min, _ends(self.start, self.shape), _ends(start, shape)))
        sizes = tuple(end - low for low, end in zip(lows, ends, strict=True))
        return (lows, sizes) if all(size > 0 for size in sizes) else None


@dataclass(frozen=True)
class Layout:
    """What part of a whole array of `shape` a tensor is. Elements in no box are padding.

    axes: of the mesh, along which processes have other parts."""

    shape: Shape
    boxes: tuple[Box, ...]
    axes: tuple[Axis, ...] = ()


@runtime_checkable
class HasLayouts(Protocol):
    """A layer whose tensors are parts of whole ones."""

    def layouts(self) -> Mapping[str, Layout]:
        """Those of its tensors that are parts, by their names in the layer."""


def whole(shape: Shape) -> Layout:
    """The layout of a tensor that every process has."""
    zeros = (0,) * len(shape)
    return Layout(shape, (Box(zeros, zeros, shape),))


def layouts_of(obj: Any) -> dict[str, Layout]:
    """The layouts of the tensors of `obj` that are parts, by their names in its `state_dict`."""
    found: dict[str, Layout] = {}
    for name, layer in named_layers(obj):
        if isinstance(layer, HasLayouts) and not isinstance(layer, Tensor):
            for own_name, layout in layer.layouts().items():
                found[f"{name}.{own_name}" if name else own_name] = layout
    return found


def _ends(start: Shape, shape: Shape) -> Shape:
    return tuple(low + size for low, size in zip(start, shape, strict=True))

"""Processes as an array with named axes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lamina.core.exchange import group_of, place_of
from lamina.distributed import setup
from lamina.errors import ArgumentError

__all__ = ["Axis", "Mesh"]


@dataclass(frozen=True)
class Axis:
    """One axis of a mesh: the group of this process along it, and those of all others.

    name: of the axis. ranks: processes along it. stride: from one of them to the next."""

    name: str
    ranks: int
    stride: int

    @property
    def place(self) -> int:
        """That of this process along the axis, from 0."""
        return place_of(setup.rank(), self.ranks, self.stride)

    @property
    def group(self) -> tuple[int, ...]:
        """The ranks of all processes along the axis that differ from this one in no other axis."""
        return group_of(setup.rank(), self.ranks, self.stride)


class Mesh:
    """All processes of a run as an array, row-major, whose axes have names: 4 processes as
    ``Mesh(data=2, model=2)`` are

        rank 0: data 0, model 0        rank 1: data 0, model 1
        rank 2: data 1, model 0        rank 3: data 1, model 1

    and ``mesh["model"]`` has the groups (0, 1) and (2, 3). Every process makes the same meshes in
    the same order. Raises ArgumentError unless the sizes multiply to the number of processes."""

    def __init__(self, **sizes: int) -> None:
        if not sizes or any(size < 1 for size in sizes.values()):
            raise ArgumentError(
                f"{sizes} are no sizes of axes, which are 1 or more", operation="Mesh"
            )
        if prod(sizes.values()) != setup.size():
            said = " * ".join(f"{name}={size}" for name, size in sizes.items())
            raise ArgumentError(
                f"{said} is not {setup.size()}, the number of processes", operation="Mesh"
            )
        self.axes: dict[str, Axis] = {}
        stride = setup.size()
        for name, ranks in sizes.items():
            stride //= ranks
            self.axes[name] = Axis(name, ranks, stride)
            if ranks > 1:
                setup.make_group(ranks, stride)

    def __getitem__(self, name: str) -> Axis:
        """The axis of a name. Raises ArgumentError where there is none."""
        if name not in self.axes:
            raise ArgumentError(
                f"no axis {name!r}; there are {', '.join(self.axes)}", operation="Mesh"
            )
        return self.axes[name]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis.name}={axis.ranks}" for axis in self.axes.values())
        return f"Mesh({sizes})"


def axis_of(over: Axis | None) -> Axis:
    """`over`, or all processes as one axis."""
    return Axis("all", setup.size(), 1) if over is None else over

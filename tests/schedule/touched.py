"""What a nest touches, found by running through every point of its loops."""

from __future__ import annotations

from collections.abc import Iterable, Set

import numpy as np

from lamina.ir.interpreter import EVALUATE, evaluate
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Nest


def touched(nest: Nest, index: Node, walking: Set[Node]) -> set[int]:
    """The elements at `index` while the axes `walking` run, and all others stand at 0."""
    axes = [axis for axis in nest.order if axis in walking]
    grids = _points(nest, axes)
    for axis in free_axes(index) - set(axes):
        grids[axis] = np.zeros_like(next(iter(grids.values()), np.zeros(1, np.int64)))
    (places,) = evaluate([index], grids, EVALUATE)
    return set(np.unique(places).tolist())


def _points(nest: Nest, axes: list[Node]) -> dict[Node, np.ndarray]:
    """The indices of every point that runs, flat: of an uneven split, some do not."""
    sizes = [axis.arg.size for axis in axes]
    grids = dict(zip(axes, (grid.reshape(-1) for grid in np.indices(sizes)), strict=True))
    runs = np.ones(int(np.prod(sizes)), bool)
    for split in nest.splits:
        place = np.zeros(len(runs), np.int64)
        for axis in split.axes:
            place = place * axis.arg.size + grids.get(axis, 0)
        runs &= place < split.extent
    return {axis: grid[runs] for axis, grid in grids.items()}


def lines_of(elements: Iterable[int], itemsize: int, line: int) -> int:
    """How many lines of so many bytes hold these elements."""
    return len({element * itemsize // line for element in elements})


def is_affine(index: Node) -> bool:
    """Is the index a sum of axes, with neither divisions nor data?"""
    return all(node.op in (Op.AXIS, Op.AFFINE, Op.CONST) for node in toposort([index]))

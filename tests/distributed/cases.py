"""Each collective, and NumPy's words for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lamina import Tensor, distributed
from lamina.distributed.mesh import Axis

WORLD = 4
Reference = Callable[[np.ndarray], list[np.ndarray]]  # of the operands of a group, stacked


def drawn(shape: tuple[int, ...] = (4, 3), dtype: str = "float64") -> list[np.ndarray]:
    generator = np.random.default_rng(7)
    values = generator.permutation(WORLD * int(np.prod(shape))) / 7 - 1.5  # no two are equal
    return list(values.reshape(WORLD, *shape).astype(dtype))


def everywhere(value: np.ndarray, ranks: int) -> list[np.ndarray]:
    return [value] * ranks


REDUCE = {"sum": np.sum, "product": np.prod, "max": np.max, "min": np.min}


def cases(over: Axis) -> dict[str, tuple[Callable[[Tensor], Tensor], Reference]]:
    """Each operation by name, and NumPy's words for it."""
    n = over.ranks
    ring = [(place, (place + 1) % n) for place in range(n)]
    found: dict[str, tuple[Callable[[Tensor], Tensor], Reference]] = {
        "all_gather 0": (
            lambda x: distributed.all_gather(x, 0, over),
            lambda x: everywhere(np.concatenate(x, 0), n),
        ),
        "all_gather 1": (
            lambda x: distributed.all_gather(x, -1, over),
            lambda x: everywhere(np.concatenate(x, 1), n),
        ),
        "broadcast": (
            lambda x: distributed.broadcast(x, 1, over),
            lambda x: everywhere(x[1], n),
        ),
        "all_to_all 0 1": (
            lambda x: distributed.all_to_all(x, 0, 1, over),
            lambda x: [
                np.concatenate([np.split(one, n, 0)[place] for one in x], 1) for place in range(n)
            ],
        ),
        "ring": (
            lambda x: distributed.permute(x, ring, over),
            lambda x: list(np.roll(x, 1, axis=0)),
        ),
        "one way": (
            lambda x: distributed.permute(x, ring[:-1], over),
            lambda x: [np.zeros_like(x[0]), *x[:-1]],
        ),
    }
    for name, reduce in REDUCE.items():
        found[f"all_reduce {name}"] = (
            lambda x, name=name: distributed.all_reduce(x, name, over),
            lambda x, reduce=reduce: everywhere(reduce(x, axis=0), n),
        )
        found[f"reduce_scatter {name}"] = (
            lambda x, name=name: distributed.reduce_scatter(x, name, 0, over),
            lambda x, reduce=reduce: np.split(reduce(x, axis=0), n, axis=0),
        )
    return found

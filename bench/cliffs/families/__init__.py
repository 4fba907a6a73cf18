"""The grammars: what networks are made of. A family draws the lines of one program into a sketch
and returns the value that is wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.cliffs.families import arrays, matrices, networks, windows
from bench.cliffs.sketch import Sketch, Value


@dataclass(frozen=True)
class Family:
    """What draws a program, and how probable it is that the program has derivatives."""

    draw: Callable[[Sketch], Value]
    gradients: float = 0.35


FAMILIES = {
    "product": Family(matrices.product),
    "elementwise": Family(arrays.elementwise),
    "convolution": Family(windows.convolution),
    "attention": Family(matrices.attention),
    "reduction": Family(arrays.reduction),
    "gated-mlp": Family(matrices.gated_mlp),
    "norm": Family(arrays.norm, 0.5),
    "movement": Family(arrays.movement, 0.25),
    "sum-of-products": Family(matrices.sum_of_products),
    "softmax": Family(arrays.softmax, 0.5),
    "pooling": Family(windows.pooling),
    "lookup": Family(arrays.lookup),
    "scan": Family(arrays.scan, 0.25),
    "network": Family(networks.network, 0.7),
    "einsum": Family(matrices.einsum, 0.25),
    "sort": Family(arrays.sort, 0.0),
    "resize": Family(windows.resize),
    "recurrent": Family(networks.recurrent, 0.5),
    "int8-product": Family(matrices.int8_product, 0.0),
    "transposed-convolution": Family(windows.transposed_convolution),
    "argmax": Family(arrays.argmax, 0.0),
}

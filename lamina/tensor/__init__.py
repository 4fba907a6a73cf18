"""What the user holds: the tensor handle and the functions on it.

Functions are the canonical interface. The methods of `Tensor` are the same functions, attached
here; a function whose first argument is not one tensor stays a function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from lamina.tensor import (
    activation,
    differentiate,
    elementwise,
    indexing,
    inspection,
    linalg,
    movement,
    product,
    reduction,
    sorting,
)
from lamina.tensor.core import Tensor
from lamina.tensor.operators import OPERATORS

# Modules whose public functions become methods, and the functions that do not.
MODULES: tuple[ModuleType, ...] = (
    elementwise, activation, movement, indexing, reduction, product, linalg, sorting,
)  # fmt: skip
FUNCTIONS_ONLY = frozenset({"broadcast_arrays", "concat", "einsum", "stack", "where"})

METHODS: dict[str, Callable[..., object]] = {
    "astype": inspection.astype,
    "backward": differentiate.backward,
}
PROPERTIES: dict[str, Callable[[Tensor], Tensor]] = {
    "T": movement.reversed_axes,
    "mT": movement.matrix_transpose,
    "real": elementwise.real,
    "imag": elementwise.imag,
}


def attach() -> None:
    """Give Tensor its methods, properties and operators."""
    for module in MODULES:
        for name in module.__all__:
            if name not in FUNCTIONS_ONLY:
                setattr(Tensor, name, getattr(module, name))
    for name, method in (METHODS | OPERATORS).items():
        setattr(Tensor, name, method)
    for name, function in PROPERTIES.items():
        setattr(Tensor, name, property(function))


attach()

"""What the user holds: the tensor handle and the functions on it.

Functions are the canonical interface. The methods of `Tensor` are the same functions, attached
here; a function whose first argument is not one tensor stays a function.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType

from lamina.tensor import (
    activation, differentiate, elementwise, indexing, inspection, movement, product, reduction,
)  # fmt: skip
from lamina.tensor.core import Tensor
from lamina.tensor.operators import OPERATORS

# Modules whose public functions become methods.
MODULES: tuple[ModuleType, ...] = (
    elementwise, activation, movement, indexing, reduction, product,
    *(importlib.import_module(f"{__name__}.{name}") for name in (
        "attention", "convolution", "linalg", "losses", "normalization", "pooling", "resize",
        "sorting",
    ) if find_spec(f"{__name__}.{name}")),
)  # fmt: skip
_FUNCTIONS_ONLY = frozenset({"broadcast_arrays", "concat", "stack", "where"})

PROPERTIES: dict[str, Callable[[Tensor], Tensor]] = {
    "T": movement.reversed_axes,
    "mT": movement.matrix_transpose,
    "real": elementwise.real,
    "imag": elementwise.imag,
}


def attach(modules: tuple[ModuleType, ...]) -> None:
    """Make the public functions of `modules` methods of Tensor."""
    for module in modules:
        for name in module.__all__:
            if name not in _FUNCTIONS_ONLY and name not in PROPERTIES:
                setattr(Tensor, name, getattr(module, name))


attach(MODULES)
Tensor.astype = inspection.astype  # type: ignore[attr-defined]
Tensor.backward = differentiate.backward  # type: ignore[attr-defined]
for _name, _function in PROPERTIES.items():
    setattr(Tensor, _name, property(_function))
for _name, _method in OPERATORS.items():
    setattr(Tensor, _name, _method)

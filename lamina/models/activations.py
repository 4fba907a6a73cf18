"""Functions between two layers, by the names that configurations have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lamina.frontend.functions.elementwise import gelu, relu, sigmoid, silu
from lamina.frontend.tensor import Tensor
from lamina.models.fields import Fields

__all__ = ["ACTIVATIONS", "activation_of"]


def _quick_gelu(x: Tensor) -> Tensor:
    """Near `gelu`, with one exponential (Hendrycks and Gimpel 2016, "GELUs", section 2)."""
    return x * sigmoid(1.702 * x)


_gelu_by_tanh = partial(gelu, approximate="tanh")

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_new": _gelu_by_tanh,
    "gelu_pytorch_tanh": _gelu_by_tanh,
    "quick_gelu": _quick_gelu,
    "relu": relu,
    "silu": silu,
    "swish": silu,
}


def activation_of(fields: Fields, name: str, fallback: str) -> str:
    """A key of `ACTIVATIONS`."""
    kind = fields.text(name, fallback)
    if kind not in ACTIVATIONS:
        raise fields.fail(name, f"{kind!r}; known are {', '.join(ACTIVATIONS)}")
    return kind

"""The table from ONNX's operators to functions on lamina's tensors.

A row is a function of the node's context and inputs; attributes are its keyword arguments, with
ONNX's names and defaults. An input that a node leaves out is None. A row returns the node's output,
or a tuple of several; a list is one value, a sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from lamina.errors import JitError
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError

Row = Callable[..., Any]

# The modules of this package that have rows.
_MODULES = (
    "activations", "casts", "control", "conv", "elementwise", "images", "indexing", "microsoft",
    "ml", "movement", "norms", "pooling", "products", "quantized", "random", "recurrent",
    "reductions", "regions", "resize", "sequences", "signal", "strings", "training", "vision",
)  # fmt: skip

_MAPS = "lamina has no maps: take the tensors that the map is made of"

# What to do about operators that are left out on purpose, by domain and name.
_LEFT_OUT = {
    ("ai.onnx.ml", "CastMap"): _MAPS,
    ("ai.onnx.ml", "DictVectorizer"): _MAPS,
    ("ai.onnx.ml", "ZipMap"): _MAPS,
}


def _unbounded(steps: int) -> None:
    """Of a row that runs outside of a model."""


@dataclass(frozen=True)
class Context:
    """What a row may ask about its node.

    opset: the version of the operator set that the model imports. outputs: the number of outputs
    that the node names. named: the value of a name in the graph around the node. spend: takes steps
    from those that a call has, for each that a row unrolls; raises OnnxError where none are left.
    """

    opset: int
    op_type: str = ""
    name: str = ""
    outputs: int = 1
    named: Callable[[str], Any] | None = None
    spend: Callable[[int], None] = _unbounded

    def host(self, value: Any) -> np.ndarray[Any, Any]:
        """`value` as a NumPy array, computed now if need be. Raises OnnxError for a value that
        is traced, whose elements nobody knows."""
        if not isinstance(value, Tensor):
            return np.asarray(value)
        try:
            return np.asarray(value.numpy())
        except JitError as error:
            raise OnnxError(
                f"{self.op_type} needs the elements of an input while the model is traced: call "
                "the model without lm.jit, or make that input a constant of the model"
            ) from error

    def integers(self, value: Any) -> list[int]:
        """The elements of an array of integers, such as sizes or axes."""
        return [int(element) for element in self.host(value).reshape(-1)]


@dataclass(frozen=True)
class Entry:
    """A row, and the first version of the operator set that it is for."""

    since: int
    run: Row


_ENTRIES: dict[tuple[str, str], list[Entry]] = {}


def row(operator: str, since: int = 1, domain: str = "") -> Callable[[Row], Row]:
    """Make the decorated function the row of `operator` from version `since` on, up to the next
    version that has a row of its own."""

    def add(function: Row) -> Row:
        _ENTRIES.setdefault((domain, operator), []).append(Entry(since, function))
        return function

    return add


def find_row(operator: str, version: int, domain: str) -> Row | None:
    """The row of `operator` in `version` of its operator set; None where there is none."""
    for module in _MODULES:
        import_module(f"{__name__}.{module}")
    entries = _ENTRIES.get((domain, operator), [])
    fitting = [entry for entry in entries if entry.since <= version]
    if not fitting:
        return None
    return max(fitting, key=lambda entry: entry.since).run


def without_row(operator: str, domain: str) -> str:
    """What to say of an operator that has neither row nor body."""
    advice = _LEFT_OUT.get((domain, operator))
    return "lamina has no row for it" + (f"; {advice}" if advice else "")

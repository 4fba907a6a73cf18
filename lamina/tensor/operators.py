"""Python's operators on tensors: which function each of them is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lamina.tensor import elementwise, indexing, interop, product
from lamina.tensor.core import Tensor, is_scalar
from lamina.tensor.inspection import array_namespace

Binary = Callable[[Any, Any], Tensor]


def _known(value: object) -> bool:
    return isinstance(value, Tensor) or is_scalar(value) or hasattr(value, "__array__")


def _forward(function: Binary) -> Callable[[Tensor, Any], Any]:
    """`function`, leaving operands of unknown classes to their own operators."""

    def operator(self: Tensor, other: Any) -> Any:
        return function(self, other) if _known(other) else NotImplemented

    return operator


def _reflected(function: Binary) -> Callable[[Tensor, Any], Any]:
    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self) if _known(other) else NotImplemented

    return operator


_ARITHMETIC: dict[str, Binary] = {
    "add": elementwise.add,
    "sub": elementwise.subtract,
    "mul": elementwise.multiply,
    "truediv": elementwise.divide,
    "floordiv": elementwise.floor_divide,
    "mod": elementwise.remainder,
    "pow": elementwise.pow,
    "matmul": product.matmul,
    "and": elementwise.bitwise_and,
    "or": elementwise.bitwise_or,
    "xor": elementwise.bitwise_xor,
    "lshift": elementwise.bitwise_left_shift,
    "rshift": elementwise.bitwise_right_shift,
}
_COMPARISON: dict[str, Binary] = {
    "__eq__": elementwise.equal,
    "__ne__": elementwise.not_equal,
    "__lt__": elementwise.less,
    "__le__": elementwise.less_equal,
    "__gt__": elementwise.greater,
    "__ge__": elementwise.greater_equal,
}
OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": _forward(function) for name, function in _ARITHMETIC.items()},
    **{f"__r{name}__": _reflected(function) for name, function in _ARITHMETIC.items()},
    **{name: _forward(function) for name, function in _COMPARISON.items()},
    "__neg__": elementwise.negative,
    "__pos__": elementwise.positive,
    "__abs__": elementwise.abs,
    "__invert__": elementwise.bitwise_invert,
    "__getitem__": indexing.getitem,
    "__setitem__": indexing.setitem,
    "__array__": interop.to_numpy,
    "__dlpack__": interop.to_dlpack,
    "__dlpack_device__": interop.dlpack_device,
    "__array_namespace__": array_namespace,
}

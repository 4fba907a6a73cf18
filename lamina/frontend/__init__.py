"""What the user holds: the tensor handle and the functions on it.

Functions are the canonical interface. The methods and operators of `Tensor` are the same
functions, attached here; a function whose first argument is not one tensor stays a function.
"""

from __future__ import annotations  # noqa: I001 (the modules are a grid)

from collections.abc import Callable
from types import ModuleType
from typing import Any

from lamina.frontend import differentiate
from lamina.frontend.functions import (
    arithmetic, creation, elementwise, indexing, inspection, linalg, movement, padding, products,
    rearrange, reduction, scatter, sets, special, statistics,
)  # fmt: skip
from lamina.frontend.tensor import Tensor, checked, is_scalar

Binary = Callable[[Any, Any], Any]

# Modules whose public functions become methods, and the functions that do not.
MODULES: tuple[ModuleType, ...] = (
    elementwise, movement, padding, indexing, scatter, reduction, sets, linalg, arithmetic,
    special, statistics, products, rearrange,
)  # fmt: skip
FUNCTIONS_ONLY = frozenset({
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_arrays", "broadcast_shapes",
    "cartesian_prod", "column_stack", "complex", "concat", "dstack", "einsum", "hstack", "logspace",
    "multi_dot", "polar", "polygamma", "stack", "tril_indices", "triu_indices", "vstack", "where",
})  # fmt: skip


def _operator(function: Binary, reflected: bool = False) -> Binary:
    """`function`, leaving operands of unknown classes to their own operators. Lists and tuples
    are arrays, as they are to NumPy: with the dtype that `asarray` gives them."""

    def operator(self: Tensor, other: Any) -> Any:
        known = isinstance(other, (Tensor, list, tuple)) or is_scalar(other)
        if not known and not hasattr(other, "__array__"):
            return NotImplemented
        return function(other, self) if reflected else function(self, other)

    return operator


_ARITHMETIC: dict[str, Binary] = {
    "add": elementwise.add, "sub": elementwise.subtract, "mul": elementwise.multiply,
    "truediv": elementwise.divide, "floordiv": elementwise.floor_divide,
    "mod": elementwise.remainder, "pow": elementwise.pow, "matmul": linalg.matmul,
    "and": elementwise.bitwise_and, "or": elementwise.bitwise_or, "xor": elementwise.bitwise_xor,
    "lshift": elementwise.bitwise_left_shift, "rshift": elementwise.bitwise_right_shift,
}  # fmt: skip
_COMPARISON: dict[str, Binary] = {
    "eq": elementwise.equal, "ne": elementwise.not_equal, "lt": elementwise.less,
    "le": elementwise.less_equal, "gt": elementwise.greater, "ge": elementwise.greater_equal,
}  # fmt: skip
OPERATORS: dict[str, Any] = {
    **{f"__{name}__": _operator(checked(one)) for name, one in (_ARITHMETIC | _COMPARISON).items()},
    **{f"__r{name}__": _operator(checked(one), True) for name, one in _ARITHMETIC.items()},
    "__neg__": checked(elementwise.negative), "__pos__": checked(elementwise.positive),
    "__abs__": checked(elementwise.abs), "__invert__": checked(elementwise.bitwise_invert),
    "__getitem__": checked(indexing.getitem), "__setitem__": checked(indexing.setitem),
    "_stack": staticmethod(movement.stack),
    "__array__": creation.to_numpy, "__array_namespace__": inspection.array_namespace,
    "__dlpack__": creation.to_dlpack, "__dlpack_device__": creation.dlpack_device,
}  # fmt: skip
METHODS: dict[str, Any] = {
    name: getattr(module, name)
    for module in MODULES for name in module.__all__ if name not in FUNCTIONS_ONLY
} | {
    "astype": inspection.astype, "backward": differentiate.backward,
    "T": property(movement.reversed_axes), "mT": property(movement.matrix_transpose),
    "real": property(elementwise.real), "imag": property(elementwise.imag),
}  # fmt: skip

for _name, _method in (METHODS | OPERATORS).items():
    if _name in METHODS and callable(_method):
        _method = checked(_method, _name)
    setattr(Tensor, _name, _method)

"""The reference for the kernel dialect, in NumPy, and how a compiled kernel compares with it.

Every axis that a store mentions is a dimension, its own axes first: an AXIS is a grid that varies
along one dimension and broadcasts along the others.
"""

from __future__ import annotations

from typing import Any

from lamina import dtypes
from lamina.dtypes import DType
from lamina.errors import VerifyError
from lamina.ir.interpreter import NUMPY, Array, Arrays, evaluate_node, reduce, scan
from lamina.ir.kernel import AnyKernel, SortKernel, Store, bound_axes, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op, Reduce

# How far floats may be apart, as a share of the largest number that the kernel reads or writes.
TOLERANCE: dict[DType, float] = {
    dtypes.float8_e4m3fn: 0.13, dtypes.float8_e5m2: 0.26, dtypes.float16: 2e-3,
    dtypes.bfloat16: 2e-2, dtypes.float32: 1e-5, dtypes.float64: 1e-13,
    dtypes.complex64: 1e-5, dtypes.complex128: 1e-13,
}  # fmt: skip
ROUNDED = 0.01  # the share of integers or bools made from rounded floats that may differ
EXACT = frozenset({Op.NEG, Op.MAX, Op.MIN, Op.WHERE, Op.LOAD, Op.CONST, Op.TRUNC, Op.BITCAST})


def run_kernel(kernel: AnyKernel, arrays: Arrays) -> None:
    """Run `kernel` on its parameters, flat NumPy arrays, in place: every value is computed before
    anything is written. Raises VerifyError for an index outside its parameter."""
    import numpy as np

    if isinstance(kernel, SortKernel):
        keys = arrays[0].reshape(kernel.rows, kernel.length)
        arrays[1][:] = np.argsort(keys, axis=-1, stable=True).reshape(-1)
        return
    with np.errstate(all="ignore"):
        ready = [(store, *_elements(np, store, arrays)) for store in kernel.stores]
        for store, places, elements in ready:
            target = arrays[store.parameter]
            _check_places(places, target, f"a store to parameter {store.parameter}")
            if store.monoid is None:
                target[places] = elements
            else:  # one element after the other
                assert store.monoid.op is not None
                getattr(np, NUMPY[store.monoid.op]).at(target, places, elements)


def _elements(np: Any, store: Store, arrays: Arrays) -> tuple[Array, Array]:
    """Where a store writes, and what, in the order of its axes."""
    order = toposort((*store.axes, *roots_of(store)))
    axes = list(store.axes)
    axes += [one for one in order if one.op is Op.AXIS and one not in axes]
    values: dict[Node, Array] = {}
    for node in order:
        values[node] = _value(np, node, axes, arrays, [values[one] for one in node.src])
    shape = [axis.arg.size for axis in store.axes] + [1] * (len(axes) - len(store.axes))
    holds, places, elements = (
        np.broadcast_to(True if root is None else values[root], shape).reshape(-1)
        for root in (store.condition, store.index, store.value)
    )
    return places[holds], elements[holds]


def _value(np: Any, node: Node, axes: list[Node], arrays: Arrays, operands: Arrays) -> Array:
    if node.op is Op.AXIS:
        return np.arange(node.arg.size).reshape([-1 if one is node else 1 for one in axes])
    if node.op is Op.AFFINE:
        factors = zip(operands, node.arg.coefficients, strict=True)
        return sum((operand * factor for operand, factor in factors), node.arg.constant)
    if node.op is Op.LOAD:
        return _load(np, node, arrays[node.arg.parameter], *operands)
    if not bound_axes(node):
        return evaluate_node(node, operands)
    monoid, part = node.arg
    dims = tuple(axes.index(axis) for axis in bound_axes(node))
    components = np.broadcast_arrays(*operands)[: monoid.arity]
    kinds = tuple(one.dtype for one in node.src[: monoid.arity])
    if node.op is Op.PREFIX:
        return scan(np, Reduce(monoid, dims, part), kinds, components)
    return np.expand_dims(reduce(np, Reduce(monoid, dims, part), kinds, components), dims)


def _load(np: Any, node: Node, array: Array, index: Array, holds: Any = True) -> Array:
    index, holds = np.broadcast_arrays(index, holds)
    _check_places(index[holds], array, f"a load from parameter {node.arg.parameter}")
    padded = np.append(array, np.zeros(1, array.dtype))  # a false condition loads 0
    return padded[np.where(holds, index, array.size)]


def _check_places(places: Array, array: Array, what: str) -> None:
    outside = places[(places < 0) | (places >= array.size)]
    if outside.size:
        raise VerifyError(f"{what} at {outside.flat[0]}: it has {array.size} elements")


def check_kernel(kernel: AnyKernel, before: Arrays, after: Arrays) -> str | None:
    """What the parameters `after` a compiled kernel have otherwise than the reference makes of
    those `before`, which are overwritten; or None. All are flat arrays."""
    import numpy as np

    with np.errstate(all="ignore"):
        scale = _scale(np, before)
        run_kernel(kernel, before)
        for number, parameter in enumerate(kernel.parameters):
            if not parameter.written or (isinstance(kernel, SortKernel) and number == 2):
                continue
            want, got = before[number], after[number]
            differing = np.flatnonzero(~_agree(np, parameter.dtype, got, want, scale))
            if len(differing) > _allowed(kernel, number):
                at = int(differing[0])
                return (
                    f"parameter {number} at {at}: {got[at]}, and the reference has {want[at]}; "
                    f"{len(differing)} of {want.size} elements differ"
                )
    return None


def _allowed(kernel: AnyKernel, number: int) -> int:
    """How many elements may differ: some where rounded floats decide integers or bools."""
    parameter = kernel.parameters[number]
    if isinstance(kernel, SortKernel) or parameter.dtype.is_float:
        return 0
    inexact = (Group.ELEMENTWISE | {Op.FOLD, Op.PREFIX}) - EXACT
    nodes = toposort(store.value for store in kernel.stores if store.parameter == number)
    rounds = any(node.dtype.is_float and node.op in inexact for node in nodes)
    return max(1, int(ROUNDED * parameter.size)) if rounds else 0


def _scale(np: Any, arrays: Arrays) -> float:
    """The largest finite magnitude among floats."""
    found = [np.abs(one.astype(np.complex128)) for one in arrays if one.dtype.kind not in "biu"]
    return max((float(one[np.isfinite(one)].max(initial=0)) for one in found), default=0.0)


def _agree(np: Any, dtype: DType, got: Array, want: Array, scale: float) -> Any:
    """Elementwise; a NaN agrees with a NaN."""
    tolerance = TOLERANCE.get(dtype)
    if tolerance is None:
        return got == want
    wide = np.complex128 if dtype.is_complex else np.float64
    got, want = got.astype(wide), want.astype(wide)
    reach = max(scale, _scale(np, [want]))
    return np.isclose(got, want, rtol=10 * tolerance, atol=tolerance * reach, equal_nan=True)

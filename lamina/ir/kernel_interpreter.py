"""The reference for the kernel dialect: one kernel in NumPy, slow and plain.

Every axis of a store is a dimension of its own, in the order of the axes' numbers: an AXIS is a
grid that varies along one dimension and broadcasts along the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.errors import VerifyError
from lamina.ir.interpreter import Array, evaluate, evaluate_node
from lamina.ir.kernel import AnyKernel, Kernel, SortKernel, Store, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import BufferRef, Op, Reduce


def run_kernel(kernel: AnyKernel, arrays: Sequence[Array]) -> None:
    """Run `kernel` on its parameters, flat NumPy arrays, in place.

    Every value is computed before anything is written: rows may run in any order. Raises
    VerifyError for an index outside its parameter.
    """
    if isinstance(kernel, SortKernel):
        _sort(kernel, arrays)
        return
    _run_stores(kernel, arrays)


def _sort(kernel: SortKernel, arrays: Sequence[Array]) -> None:
    import numpy as np

    keys = arrays[0].reshape(kernel.rows, kernel.length)
    arrays[1][:] = np.argsort(keys, axis=-1, stable=True).reshape(-1)


def _run_stores(kernel: Kernel, arrays: Sequence[Array]) -> None:
    import numpy as np

    with np.errstate(all="ignore"):
        ready = [_StoreValues(store, arrays) for store in kernel.stores]
        for one in ready:
            one.write()


class _StoreValues:
    """What one store writes, and where, in the order of its axes."""

    def __init__(self, store: Store, arrays: Sequence[Array]) -> None:
        self.store = store
        self.arrays = arrays
        nodes = toposort((*roots_of(store), *store.axes))
        axes = sorted((one for one in nodes if one.op is Op.AXIS), key=lambda one: one.arg.number)
        self.dimension = {axis: place for place, axis in enumerate(axes)}
        self.values: dict[Node, Array] = {}
        for node in nodes:
            self.values[node] = self._value(node)
        self.places = self._listed(store.index)
        self.elements = self._listed(store.value)
        if store.condition is not None:
            holds = self._listed(store.condition)
            self.places, self.elements = self.places[holds], self.elements[holds]

    def _listed(self, root: Node) -> Array:
        """The values of a root at every point of the store's axes, in their order."""
        import numpy as np

        axes = self.store.axes
        rank = len(self.dimension)
        value = np.broadcast_to(self.values[root], np.broadcast_shapes(
            (1,) * rank, *(self.values[axis].shape for axis in axes), self.values[root].shape))
        order = [self.dimension[axis] for axis in axes]
        rest = [place for place in range(rank) if place not in order]
        return np.transpose(value, order + rest).reshape(-1)

    def _value(self, node: Node) -> Array:
        row = {
            Op.AXIS: self._axis,
            Op.AFFINE: self._affine,
            Op.LOAD: self._load,
            Op.FOLD: self._fold,
            Op.PREFIX: self._prefix,
        }.get(node.op)
        if row is not None:
            return row(node)
        return evaluate_node(node, [self.values[one] for one in node.src])

    def _axis(self, node: Node) -> Array:
        import numpy as np

        shape = [1] * len(self.dimension)
        shape[self.dimension[node]] = node.arg.size
        return np.arange(node.arg.size, dtype=np.int64).reshape(shape)

    def _affine(self, node: Node) -> Any:
        factors = zip(node.src, node.arg.coefficients, strict=True)
        return sum((self.values[one] * factor for one, factor in factors), node.arg.constant)

    def _load(self, node: Node) -> Array:
        import numpy as np

        array = self.arrays[node.arg.parameter]
        index = self.values[node.src[0]]
        holds = self.values[node.src[1]] if len(node.src) > 1 else np.array(True)
        index, holds = np.broadcast_arrays(index, holds)
        _check_places(index[holds], array, f"a load from parameter {node.arg.parameter}")
        if not array.size:
            return np.zeros(index.shape, array.dtype)
        return np.where(holds, array[np.where(holds, index, 0)], np.zeros((), array.dtype))

    def _components(self, node: Node) -> tuple[list[Array], list[int]]:
        """The components of a reduction with the dimensions that it runs over spread out."""
        import numpy as np

        parts = node.arg.monoid.arity
        axes = node.src[parts:]
        shape = np.broadcast_shapes(*(self.values[one].shape for one in node.src))
        operands = [np.broadcast_to(self.values[one], shape) for one in node.src[:parts]]
        return operands, [self.dimension[axis] for axis in axes]

    def _fold(self, node: Node) -> Array:
        import numpy as np

        operands, places = self._components(node)
        result = _reduction(Op.REDUCE, node, operands, sorted(places))
        return np.expand_dims(result, sorted(places))

    def _prefix(self, node: Node) -> Array:
        import numpy as np

        operands, places = self._components(node)
        rank, along = operands[0].ndim, len(places)
        last = range(rank - along, rank)
        moved = [np.moveaxis(one, places, last) for one in operands]
        shape = moved[0].shape
        flat = [one.reshape(*shape[: rank - along], -1) for one in moved]
        result = _reduction(Op.SCAN, node, flat, [rank - along])
        return np.moveaxis(result.reshape(shape), last, places)

    def write(self) -> None:
        """Store, or combine with what is there one element after the other."""
        import numpy as np

        store, target = self.store, self.arrays[self.store.parameter]
        _check_places(self.places, target, f"a store to parameter {store.parameter}")
        if store.monoid is None:
            target[self.places] = self.elements
            return
        assert store.monoid.op is not None
        ufunc = {Op.ADD: np.add, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum}
        ufunc[store.monoid.op].at(target, self.places, self.elements)


def _reduction(op: Op, node: Node, operands: list[Array], axes: list[int]) -> Array:
    """A FOLD or PREFIX as the graph operation that it comes from."""
    leaves = {
        Node(Op.BUFFER, (), BufferRef(i, array.shape, one.dtype, "interp")): array
        for i, (one, array) in enumerate(zip(node.src, operands, strict=False))
    }
    argument = Reduce(node.arg.monoid, tuple(axes), node.arg.part)
    return evaluate([Node(op, tuple(leaves), argument)], leaves)[0]


def _check_places(places: Array, array: Array, what: str) -> None:
    outside = places[(places < 0) | (places >= array.size)]
    if outside.size:
        raise VerifyError(f"{what} at {outside.flat[0]}: it has {array.size} elements")

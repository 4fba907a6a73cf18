"""The verifier of the kernel dialect. Its invariants, in the order they are checked:

1.  A sort has three parameters of rows * length elements: keys, the int64 order, int64 scratch.
2.  Parameters are marked written exactly if a store writes them.
3.  The stores begin with the kernel's row axes, in one order; a store's axes are distinct and not
    reduced. Axes of one number are one node.
4.  A node is a scalar: a CONST, VARIABLE, AXIS, AFFINE, LOAD, FOLD, PREFIX or elementwise
    operation. No movement operation is left.
5.  An AFFINE is in normal form: int64 operands, each once, no AFFINE or CONST among them, no
    coefficient of zero.
6.  A LOAD names a parameter and has its dtype; its index is int64, its condition bool.
7.  A FOLD or PREFIX holds a monoid over components of dtypes that it combines, then axes. FOLD
    binds reduced axes; a PREFIX runs along the last axes of its store, in their order.
8.  A store's value has its parameter's dtype, its index is int64, its condition bool; they depend
    on no axis but the store's own. Its monoid has one component.
9.  Rows are independent: every row axis of more than one element moves a store's index, and a
    parameter that is written is read only at the element that its store writes.
10. An index of axes alone stays inside its parameter, unless a condition guards it.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamina.dtypes import bool_, int64
from lamina.errors import VerifyError
from lamina.ir.kernel import AnyKernel, Kernel, SortKernel, Store, free_axes, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.verify import combines

SCALAR = Group.ELEMENTWISE | Group.KERNEL | {Op.CONST, Op.VARIABLE}
"""Operations that a kernel holds."""


def verify_kernel(kernel: AnyKernel, *, exact: bool = True) -> None:
    """Raise VerifyError, naming the store, if an invariant fails.

    exact: check that indices stay inside; a nest whose axes are split covers more points than it
    runs.
    """
    if isinstance(kernel, SortKernel):
        _report("sort", _sort_complaints(kernel))
        return
    _report("kernel", _kernel_complaints(kernel))
    for number, store in enumerate(kernel.stores):
        where = f"store {number} to parameter {store.parameter}"
        for node in toposort(roots_of(store)):
            _report(f"{where}: {node.op.name.lower()}", _node_complaints(kernel, store, node))
        _report(where, _store_complaints(kernel, store))
        if exact and all(axis.arg.size for axis in store.axes):
            _report(where, _bound_complaints(kernel, store))


def _report(where: str, complaints: Iterator[str]) -> None:
    for complaint in complaints:
        raise VerifyError(f"verify: {where}: {complaint}")


def _sort_complaints(kernel: SortKernel) -> Iterator[str]:
    if len(kernel.parameters) != 3:
        yield f"{len(kernel.parameters)} parameters, not keys, order and scratch"
    if any(one.size != kernel.rows * kernel.length for one in kernel.parameters):
        yield f"a parameter has not {kernel.rows} * {kernel.length} elements"
    if any(one.dtype is not int64 or not one.written for one in kernel.parameters[1:]):
        yield "order and scratch are written int64"


def _kernel_complaints(kernel: Kernel) -> Iterator[str]:
    written = {store.parameter for store in kernel.stores}
    if not kernel.stores:
        yield "no store"
    for number, parameter in enumerate(kernel.parameters):
        if parameter.written != (number in written):
            yield f"parameter {number} is {'' if parameter.written else 'not '}marked written"
    numbers: dict[int, Node] = {}
    for store in kernel.stores:
        if not 0 <= store.parameter < len(kernel.parameters):
            yield f"there is no parameter {store.parameter}"
        if any(one.op is not Op.AXIS or one.arg.reduce for one in store.axes):
            yield f"the axes of a store are {store.axes}, not loops of its own"
        if len(set(store.axes)) != len(store.axes):
            yield "a store has an axis twice"
        if not 0 <= kernel.rows <= len(store.axes):
            yield f"{kernel.rows} rows, and a store of {len(store.axes)} axes"
        if store.axes[: kernel.rows] != kernel.stores[0].axes[: kernel.rows]:
            yield "the stores do not begin with the same rows"
        for node in toposort((*roots_of(store), *store.axes)):
            if node.op is Op.AXIS and numbers.setdefault(node.arg.number, node) is not node:
                yield f"two axes are a{node.arg.number}"


def _node_complaints(kernel: Kernel, store: Store, node: Node) -> Iterator[str]:
    if node.op not in SCALAR:
        yield "it does not belong in a kernel"
    if node.shape:
        yield f"its shape is {node.shape}; a kernel computes scalars"
    if node.op is Op.AFFINE:
        yield from _affine_complaints(node)
    elif node.op is Op.LOAD:
        yield from _load_complaints(kernel, store, node)
    elif node.op in (Op.FOLD, Op.PREFIX):
        yield from _reduction_complaints(store, node)


def _affine_complaints(node: Node) -> Iterator[str]:
    if len(node.arg.coefficients) != len(node.src) or not node.src:
        yield f"{len(node.arg.coefficients)} coefficients for {len(node.src)} operands"
    if any(one.dtype is not int64 or one.op in (Op.AFFINE, Op.CONST) for one in node.src):
        yield "an operand is no int64 term of its own"
    if len(set(node.src)) != len(node.src) or not all(node.arg.coefficients):
        yield "an operand is there twice, or not at all"


def _load_complaints(kernel: Kernel, store: Store, node: Node) -> Iterator[str]:
    number = node.arg.parameter
    if not 0 <= number < len(kernel.parameters):
        yield f"there is no parameter {number}"
        return
    if kernel.parameters[number].dtype is not node.dtype:
        yield f"parameter {number} holds {kernel.parameters[number].dtype.name}"
    if len(node.src) not in (1, 2) or node.src[0].dtype is not int64:
        yield "its index is not int64"
    if len(node.src) == 2 and node.src[1].dtype is not bool_:
        yield "its condition is not bool"
    stored = [one.index for one in kernel.stores if one.parameter == number]
    if any(index is not node.src[0] for index in stored):
        yield f"it reads parameter {number} where another row may write it"


def _reduction_complaints(store: Store, node: Node) -> Iterator[str]:
    monoid, part = node.arg
    parts, axes = node.src[: monoid.arity], node.src[monoid.arity :]
    if len(parts) != monoid.arity or not 0 <= part < monoid.arity:
        yield f"{monoid.name} has {monoid.arity} components"
    elif not combines(monoid, tuple(one.dtype for one in parts)):
        yield f"{monoid.name} does not combine {', '.join(one.dtype.name for one in parts)}"
    if not axes or any(one.op is not Op.AXIS for one in axes) or len(set(axes)) != len(axes):
        yield "it runs over no axes, or one of them twice"
    elif node.op is Op.FOLD and not all(one.arg.reduce for one in axes):
        yield "it binds an axis that is not reduced"
    elif node.op is Op.PREFIX and axes != store.axes[len(store.axes) - len(axes) :]:
        yield "it does not run along the last axes of its store"


def _store_complaints(kernel: Kernel, store: Store) -> Iterator[str]:
    dtype = kernel.parameters[store.parameter].dtype
    if store.value.dtype is not dtype:
        yield f"its value is {store.value.dtype.name}, and the parameter {dtype.name}"
    if store.index.dtype is not int64:
        yield f"its index is {store.index.dtype.name}"
    if store.condition is not None and store.condition.dtype is not bool_:
        yield f"its condition is {store.condition.dtype.name}"
    for root in roots_of(store):
        if strange := free_axes(root) - set(store.axes):
            yield f"it depends on {_names(strange)}, which it does not run over"
    if store.monoid is not None and store.monoid.op is None:
        yield f"it combines with {store.monoid.name}, which is no operation"
    still = {axis for axis in store.axes[: kernel.rows] if axis.arg.size > 1}
    if still := still - free_axes(store.index):
        yield f"rows along {_names(still)} write one element"


def _names(axes: set[Node] | frozenset[Node]) -> str:
    return ", ".join(sorted(f"a{axis.arg.number}" for axis in axes))


def _bound_complaints(kernel: Kernel, store: Store) -> Iterator[str]:
    if store.condition is None:
        yield from _outside(kernel, store.parameter, store.index)
    nodes = toposort(roots_of(store))
    if any(node.op is Op.AXIS and not node.arg.size for node in nodes):
        return
    for node in nodes:
        if node.op is Op.LOAD and len(node.src) == 1:
            yield from _outside(kernel, node.arg.parameter, node.src[0])


def _outside(kernel: Kernel, parameter: int, index: Node) -> Iterator[str]:
    terms = index.src if index.op is Op.AFFINE else (index,)
    if index.op is Op.CONST:
        low = high = index.arg.value
    elif all(one.op is Op.AXIS for one in terms):
        factors, low = index.arg if index.op is Op.AFFINE else ((1,), 0)
        reach = [(one.arg.size - 1) * factor for one, factor in zip(terms, factors, strict=True)]
        low, high = low + sum(min(0, r) for r in reach), low + sum(max(0, r) for r in reach)
    else:
        return
    size = kernel.parameters[parameter].size
    if low < 0 or high >= size:
        yield f"indices {low} to {high} of parameter {parameter}, which has {size} elements"
